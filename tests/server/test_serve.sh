#!/bin/sh
# What the server answers, to whom, and how it stops:
#
#   test_serve.sh [SUITE...]
#
# From the environment: DGEMMA, SAN.
. tests/support/shell_test.sh

PYTHONDONTWRITEBYTECODE=1
export PYTHONDONTWRITEBYTECODE
if ! command -v python3 >/dev/null 2>&1; then
    skip "the server's answers, hostile clients and stopping" "there is no python3"
    finish
fi

# Each suite prints what failed and closes with its sum.
suite() {
    start=$(date +%s)
    python3 "tests/server/$1.py" >"$temp/suite.log" 2>&1
    sed '$d' "$temp/suite.log"
    echo "   $1: $(($(date +%s) - start)) s"
    line=$(tail -n 1 "$temp/suite.log")
    # shellcheck disable=SC2086 # the line is six words
    set -- "$1" $line
    if [ $# -ne 7 ] || [ "$3" != "passed," ]; then
        echo "FAILED: $1 ended without a closing line: $line"
        n_failed=$((n_failed + 1))
        return
    fi
    n_passed=$((n_passed + $2)) n_failed=$((n_failed + $4)) n_skipped=$((n_skipped + $6))
}
[ $# -gt 0 ] || set -- serve_answers serve_hostile serve_smuggling serve_metrics serve_dialects serve_decisions serve_tools serve_links serve_canvas serve_drain serve_agents serve_batch serve_files serve_batches serve_slots serve_stored serve_proxied serve_replicas serve_adapters serve_models serve_page
for name in "$@"; do
    suite "$name"
done
finish
