#!/bin/sh
# Runs test programs and scripts and adds up their closing lines:
#
#   run_tests.sh PROGRAM|SCRIPT.sh ...
#
# Each closes with `N passed, N failed, N skipped`; one that ends without it, or with a status that
# contradicts it, counts as one failure more. The last line printed is the sum in the same form.
# The unit tests take as long as all others, so they run beside them, and are shown at the end.
# From the environment: BUILD (this configuration's folder), DGEMMA (the program; empty: none), CC, SAN.
set -u

log=$BUILD/test.$$.log
status=$BUILD/test.$$.status
beside=$BUILD/test.$$.beside
passed=0 failed=0 skipped=0

# The search for leaks at the end of a process takes 5 s on aarch64, where it walks through all address
# space; so it is off where there are many processes, and the unit tests run in a single one there.
# A script can have it back for one command: ASAN_OPTIONS=detect_leaks=1.
leaks_on=${ASAN_OPTIONS:-}
leaks_off=detect_leaks=0${ASAN_OPTIONS:+:$ASAN_OPTIONS}
export ASAN_OPTIONS

# Sanitized programs are several times slower.
if [ -n "${SAN:-}" ]; then
    CK_TIMEOUT_MULTIPLIER=8
    export CK_TIMEOUT_MULTIPLIER
fi

run() {
    echo "== $*"
    # A hung test must not hang the run.
    start=$(date +%s)
    { timeout 1800 "$@" 2>&1 </dev/null; echo $? >"$status"; } | tee "$log"
    code=$(cat "$status")
    echo "   in $(($(date +%s) - start)) s"
    line=$(tail -n 1 "$log" | grep -E '^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$')
    if [ -z "$line" ]; then
        echo "FAILED: ended with status $code and without a closing line"
        failed=$((failed + 1))
        return
    fi
    # shellcheck disable=SC2086 # the line is six words
    set -- $line
    passed=$((passed + $1)) failed=$((failed + $3)) skipped=$((skipped + $5))
    if [ "$code" -ne 0 ] && [ "$3" -eq 0 ]; then
        echo "FAILED: status $code in spite of the closing line"
        failed=$((failed + 1))
    fi
}

# Adds the sum of the run that went on beside this one.
join() {
    wait "$1"
    cat "$beside"
    line=$(tail -n 1 "$beside" | grep -E '^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$')
    # shellcheck disable=SC2086 # the line is six words
    set -- ${line:-0 passed, 1 failed, 0 skipped}
    passed=$((passed + $1)) failed=$((failed + $3)) skipped=$((skipped + $5))
}

other=
n_test=$#
for test in "$@"; do
    name=${test##*/}
    ASAN_OPTIONS=$leaks_on
    case $name in
    *.sh)
        ASAN_OPTIONS=$leaks_off
        run sh "$test"
        ;;
    pty_tests)
        ASAN_OPTIONS=$leaks_off
        run "$test"
        ;;
    unit_tests)
        if [ "$n_test" -gt 1 ]; then
            sh "$0" "$test" >"$beside" 2>&1 &
            other=$!
            continue
        fi
        # For leaks, all in one process.
        case ${SAN:-} in
        *address*) run env CK_FORK=no "$test" ;;
        *) run "$test" ;;
        esac
        ;;
    fuzz_*) run "$test" "tests/fuzz/corpus/${name#fuzz_}" ;;
    dgemma-golden) run "$test" tests/fixtures/golden ;;
    *) run "$test" ;;
    esac
done

[ -z "$other" ] || join "$other"
rm -f "$log" "$status" "$beside"
echo
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
