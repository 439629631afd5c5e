#!/bin/sh
# The page in a headless Chromium, driven over WebDriver; where there is none, the suite is skipped by name:
#
#   test_page.sh [SUITE...]
#
# From the environment: DGEMMA, SAN, BROWSER (0: without one).
. tests/support/shell_test.sh

PYTHONDONTWRITEBYTECODE=1
export PYTHONDONTWRITEBYTECODE
case ${BROWSER:-} in
0 | no)
    skip "the page in a browser" "BROWSER=$BROWSER"
    finish
    ;;
esac
if ! command -v python3 >/dev/null 2>&1 || ! command -v chromedriver >/dev/null 2>&1; then
    skip "the page in a browser" "there is no python3, or no Chromium with its driver"
    finish
fi
if [ ! -e models/pocket/pocket.gguf ]; then
    skip "the page in a browser" "models/pocket/pocket.gguf is not in this tree"
    finish
fi

if [ $# -eq 0 ] && [ -n "${SAN:-}" ]; then
    skip "the page with scripted answers" "nothing of it runs in the sanitized program"
    set -- page_chat
fi
[ $# -gt 0 ] || set -- page_chat page_scripted page_desk page_rewrite page_mishaps
for name in "$@"; do
    python3 "tests/server/$name.py" >"$temp/suite.log" 2>&1
    sed '$d' "$temp/suite.log"
    line=$(tail -n 1 "$temp/suite.log")
    case $line in
    *" passed, "*" failed, "*" skipped")
        # shellcheck disable=SC2086 # the line is six words
        set -- $line
        n_passed=$((n_passed + $1)) n_failed=$((n_failed + $3)) n_skipped=$((n_skipped + $5))
        ;;
    *)
        echo "FAILED: $name ended without a closing line: $line"
        n_failed=$((n_failed + 1))
        ;;
    esac
done
finish
