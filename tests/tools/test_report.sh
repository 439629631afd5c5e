#!/bin/sh
# tools/cpu_report.sh and what it shares with gpu_report.sh: parts that are run, that fail, and that there are none of.
. tests/support/shell_test.sh

# program NAME LINE STATUS
program() {
    cat >"$temp/$1" <<END
#!/bin/sh
echo "\$*" >>'$temp/calls'
case \$1 in synth) echo weights >'$temp/out/model.gguf' ;; esac
echo '$2'
exit $3
END
    chmod +x "$temp/$1"
}
program dgemma "cpu      2 processors, kernels for vnni" 0
program check_kernels "12 passed, 0 failed, 0 skipped" 0
program dgemma-golden "11 passed, 1 failed, 0 skipped" 1
# report PARTS [NAME=VALUE]...
report() {
    only=$1
    shift
    : >"$temp/calls"
    env BUILD="$temp" ONLY="$only" "$@" sh tools/cpu_report.sh "$temp/out" >"$temp/report.log" 2>&1
    status=$?
    cat "$temp/report.log"
    return $status
}

check "a part that passes" report kernels
check "is shown" grep -qx '12 passed, 0 failed, 0 skipped' "$temp/report.log"
check "and is the only one" sh -c "! grep -q golden '$temp/calls'"
check "a part that fails" fails_saying "== golden-ref FAILED" report 'golden-*'
check "each set that the processor has" sh -c "grep -c '== golden-.* FAILED' '$temp/says.log' | grep -qx 3"
check "a part that there is not" fails_saying "no part is called step" report step
check "options of every bench" report 'step-best' BENCH='--layers 6'
check "are given" grep -q 'bench --device cpu --layers 6 --synthetic Q4_K_M' "$temp/calls"
check "answers that are missing" fails_saying "not all were answered" report threads
program df "Filesystem 1024-blocks Used Available
d 1 1 19" 0
check "a file that there is no room for" report file PATH="$temp:$PATH"
check "is said to be skipped" sh -c "grep -qx '== file skipped' '$temp/report.log' && grep -qx 'no room for a file of 17 GB' '$temp/report.log'"
program df "Filesystem 1024-blocks Used Available
d 1 1 19000000" 0
check "a file" report file PATH="$temp:$PATH"
check "is made and measured" grep -q "bench --device cpu -m $temp/out/model.gguf" "$temp/calls"
check "is not left" sh -c "[ ! -e '$temp/out/model.gguf' ]"

if [ -x "$(dirname "$DGEMMA")/dgemma" ]; then
    check "a bench" report picture BUILD="$(dirname "$DGEMMA")" BENCH='--shape tiny'
    check "says what it measured" grep -q 'pictures/s' "$temp/report.log"
fi
finish
