#!/bin/sh
# The library's chat prompts against the Jinja templates themselves, on random conversations.
. tests/support/shell_test.sh

compare() {
    python3 tests/tools/jinja_chat.py "$BUILD/render_chat" "$@"
}

if ! python3 -c 'import jinja2.sandbox' >/dev/null 2>&1; then
    skip "prompts against Jinja" "python3 with the package jinja2 (python3-jinja2) is not there"
elif [ ! -x "$BUILD/render_chat" ]; then
    skip "prompts against Jinja" "$BUILD/render_chat is not built"
else
    check "500 conversations, template A" compare A 500 1
    check "500 conversations, template B" compare B 500 1
fi
finish
