#!/bin/sh
# tests/run_tests.sh: adds up, and counts a program that died as a failure.
. tests/support/shell_test.sh

# program NAME LINE STATUS
program() {
    printf '#!/bin/sh\necho working\necho "%s"\nexit %s\n' "$2" "$3" >"$temp/$1"
    chmod +x "$temp/$1"
}
program good "3 passed, 0 failed, 1 skipped" 0
program bad "1 passed, 2 failed, 0 skipped" 1
program dead "in the middle of it" 139
program liar "4 passed, 0 failed, 0 skipped" 1

# sum STATUS LINE PROGRAM...: the runner's status and last line
sum() {
    want_status=$1 want=$2
    shift 2
    (cd "$temp" && BUILD=. SAN='' DGEMMA='' sh "$runner" "$@") >"$temp/out"
    status=$?
    cat "$temp/out"
    [ "$status" -eq "$want_status" ] && [ "$(tail -n 1 "$temp/out")" = "$want" ]
}
runner=$PWD/tests/run_tests.sh

check "all is well" sum 0 "6 passed, 0 failed, 2 skipped" ./good ./good
check "failures add up" sum 1 "4 passed, 2 failed, 1 skipped" ./good ./bad
check "no closing line" sum 1 "3 passed, 1 failed, 1 skipped" ./dead ./good
check "a status against its line" sum 1 "7 passed, 1 failed, 1 skipped" ./good ./liar
program unit_tests "5 passed, 0 failed, 0 skipped" 0
program good.sh "3 passed, 0 failed, 1 skipped" 0
check "the unit tests, beside others" sum 0 "11 passed, 0 failed, 2 skipped" ./unit_tests ./good.sh ./good
shown_last() { grep '^== ' "$temp/out" | tail -n 1 | grep -q unit_tests; }
sum 0 "8 passed, 0 failed, 1 skipped" ./unit_tests ./good.sh >/dev/null
check "they are shown last" shown_last
program unit_tests "4 passed, 1 failed, 0 skipped" 1
check "their failures count" sum 1 "7 passed, 1 failed, 1 skipped" ./unit_tests ./good
# Two that wait for each other, each in a lane of its own, and a third that nobody may run twice.
meet() { printf '#!/bin/sh\n: >%s.here\ni=0; until [ -e %s.here ]; do i=$((i + 1)); [ $i -lt 200 ] || exit 1; sleep 0.1; done\necho "1 passed, 0 failed, 0 skipped"\n' "$1" "$2" >"$temp/$1"; chmod +x "$temp/$1"; }
meet one two
meet two one
check "programs go to both lanes" sum 0 "5 passed, 0 failed, 1 skipped" ./one ./good ./two
no_browser() { BROWSER=0 sh tests/server/test_page.sh >"$temp/out" && grep -q '^skipped: the page in a browser: BROWSER=0' "$temp/out"; }
check "without a browser, by name" no_browser
without_packages() { make -n test BROWSER=0 >"$temp/out" 2>&1 && ! grep -q 'deps.sh browser' "$temp/out"; }
check "without a browser, none is installed" without_packages
# A filter that nothing goes by is a slip, not a success.
for name in unit_tests cuda_host_tests device_tests check_kernels pty_tests; do
    [ -x "${BUILD:-none}/$name" ] || continue
    case $name in check_kernels) filter="--set nonesuch" ;; *) filter=nonesuch ;; esac
    # shellcheck disable=SC2086 # two words for check_kernels
    nothing() { ! "$BUILD/$name" $filter >"$temp/out" 2>&1 && ! grep -q "^[1-9][0-9]* passed" "$temp/out"; }
    check "$name that finds no case" nothing
done
check "not there at all" sum 1 "0 passed, 1 failed, 0 skipped" ./absent
finish
