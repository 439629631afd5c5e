#!/bin/sh
# Runs test programs and scripts and adds up their closing lines:
#
#   run_tests.sh PROGRAM|SCRIPT.sh ...
#
# Each closes with `N passed, N failed, N skipped`; one that ends without it, or with a status that
# contradicts it, counts as one failure more. The last line printed is the sum in the same form.
#
# Three lanes for two processors, since a script often waits. In the first go the scripts that share the program, which
# some of them link anew; in the second the unit tests; in the third clients of the server, which are installed once,
# with a copy of the program. Others need nothing but themselves, and the page nothing but that copy: each goes to the
# lane that is free first. What the second and the third do is shown at the end.
# From the environment: BUILD (this configuration's folder), DGEMMA (the program; empty: none), CC, SAN.
set -u

temp=$BUILD/test.$$
mkdir -p "$temp"
trap 'rm -rf "$temp"' EXIT

# The search for leaks at the end of a process takes 5 s on aarch64, where it walks through all address
# space; so it is off where there are many processes, and the unit tests run in a single one there.
# A script can have it back for one command: ASAN_OPTIONS=detect_leaks=1.
leaks_on=${ASAN_OPTIONS:-}
leaks_off=detect_leaks=0${ASAN_OPTIONS:+:$ASAN_OPTIONS}
export ASAN_OPTIONS

# Sanitized programs are several times slower.
limit=1800
if [ -n "${SAN:-}" ]; then
    limit=3600
    CK_TIMEOUT_MULTIPLIER=8
    export CK_TIMEOUT_MULTIPLIER
fi

# add LINE OTHERWISE: a closing line to the sums; without one, six other words
add() {
    line=$(echo "$1" | grep -E '^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$')
    # shellcheck disable=SC2086 # the line is six words
    set -- ${line:-$2}
    passed=$((passed + $1)) failed=$((failed + $3)) skipped=$((skipped + $5))
    n_failed=$3
}

run() {
    echo "== $*"
    # A hung test must not hang the run.
    start=$(date +%s)
    { timeout "$limit" "$@" 2>&1 </dev/null; echo $? >"$temp/$lane.status"; } | tee "$temp/$lane.log"
    code=$(cat "$temp/$lane.status")
    echo "   in $(($(date +%s) - start)) s"
    add "$(tail -n 1 "$temp/$lane.log")" "0 passed, 1 failed, 0 skipped"
    if [ -z "$line" ]; then
        echo "FAILED: ended with status $code and without a closing line"
    elif [ "$code" -ne 0 ] && [ "$n_failed" -eq 0 ]; then
        echo "FAILED: status $code in spite of the closing line"
        failed=$((failed + 1))
    fi
}

run_test() {
    name=${1##*/}
    ASAN_OPTIONS=$leaks_on
    case $1 in
    */server/*.sh) DGEMMA=${program:+$temp/dgemma} ;;
    *) DGEMMA=$program ;;
    esac
    case $name in
    *.sh)
        ASAN_OPTIONS=$leaks_off
        run sh "$1"
        ;;
    pty_tests)
        ASAN_OPTIONS=$leaks_off
        run "$1"
        ;;
    unit_tests)
        # For leaks, all in one process.
        case ${SAN:-} in
        *address*) run env CK_FORK=no "$1" ;;
        *) run "$1" ;;
        esac
        ;;
    fuzz_*) run "$1" "tests/fuzz/corpus/${name#fuzz_}" ;;
    dgemma-golden) run "$1" tests/fixtures/golden ;;
    *) run "$1" ;;
    esac
}

# lane_of TEST: whose it is
lane_of() {
    case $1 in
    */test_page.sh) echo any ;;
    */server/*.sh) echo third ;;
    *.sh | */pty_tests) echo first ;;
    */unit_tests) echo second ;;
    *) echo any ;;
    esac
}

# run_lane NAME TEST...: those that are its own, then those that nobody has begun
run_lane() {
    lane=$1
    shift
    passed=0 failed=0 skipped=0
    for turn in "$lane" any; do
        number=0
        for test in "$@"; do
            number=$((number + 1))
            [ "$(lane_of "$test")" = "$turn" ] && mkdir "$temp/$number" 2>/dev/null && run_test "$test"
        done
    done
    echo "$passed passed, $failed failed, $skipped skipped" >"$temp/$lane.sum"
}

program=${DGEMMA:-}
export DGEMMA
[ -z "$program" ] || cp "$program" "$temp/dgemma"

run_lane second "$@" >"$temp/second.out" 2>&1 &
run_lane third "$@" >"$temp/third.out" 2>&1 &
(run_lane first "$@")
wait
cat "$temp/third.out" "$temp/second.out"

passed=0 failed=0 skipped=0
for lane in first second third; do
    add "$(cat "$temp/$lane.sum")" "0 passed, 1 failed, 0 skipped"
done
echo
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
