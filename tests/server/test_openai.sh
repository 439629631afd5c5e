#!/bin/sh
# The official openai client for Python against the server. It is installed from PyPI into build/, once; where that
# cannot be, the suite is skipped by name. From the environment: DGEMMA, SAN.
. tests/support/shell_test.sh

PYTHONDONTWRITEBYTECODE=1
export PYTHONDONTWRITEBYTECODE
venv=build/openai-client
if [ ! -e "$venv/ok" ]; then
    { python3 -m venv "$venv" && "$venv/bin/pip" install --quiet --disable-pip-version-check --retries 1 \
        --timeout 20 'openai>=2,<3' && touch "$venv/ok"; } >"$temp/install.log" 2>&1
fi
if [ ! -e "$venv/ok" ]; then
    sed 's/^/    /' "$temp/install.log" | tail -n 3
    skip "the official openai client" "it cannot be installed here"
    finish
fi
exec "$venv/bin/python" tests/server/openai_client.py
