# For test scripts: `. tests/support/shell_test.sh`, then check or skip for each case, finish at the end.
# shellcheck shell=sh

set -u
n_passed=0 n_failed=0 n_skipped=0
temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT

# check NAME COMMAND...: passes when the command does; what it prints is shown when it does not.
check() {
    check_name=$1
    shift
    if "$@" >"$temp/check.log" 2>&1; then
        n_passed=$((n_passed + 1))
    else
        echo "FAILED: $check_name (status $?)"
        sed 's/^/    /' "$temp/check.log"
        n_failed=$((n_failed + 1))
    fi
}

# skip NAME WHY
skip() {
    echo "skipped: $1: $2"
    n_skipped=$((n_skipped + 1))
}

finish() {
    echo "$n_passed passed, $n_failed failed, $n_skipped skipped"
    [ "$n_failed" -eq 0 ]
    exit
}

# soon COMMAND...: until the command succeeds; fails when it has not for minutes.
soon() {
    soon_n=0
    until "$@"; do
        soon_n=$((soon_n + 1))
        [ $soon_n -lt 6000 ] || return 1
        sleep 0.05
    done
}

# listens PID: whether it catches interrupts, as /proc has it: SIGINT is the bit of value 2.
listens() { case $(sed -n 's/^SigCgt:.*\(.\)$/\1/p' "/proc/$1/status" 2>/dev/null) in [2367abef]) ;; *) return 1 ;; esac }

# fails_saying TEXT COMMAND...: the command fails and prints a line with TEXT in it.
fails_saying() {
    text=$1
    shift
    if "$@" >"$temp/says.log" 2>&1; then
        echo "did not fail: $*"
        return 1
    fi
    cat "$temp/says.log"
    grep -qF -- "$text" "$temp/says.log"
}
