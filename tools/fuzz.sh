#!/bin/sh
# Runs libFuzzer targets, as many at a time as there are processors, and prints a line for each:
#
#   fuzz.sh SECONDS FOLDER TARGET...
#
# What a target learns is kept in FOLDER/corpus/NAME, what it finds in FOLDER/findings. It starts from
# tests/fuzz/corpus/NAME. Fails when one of them found something.
set -u

if [ "$1" != --one ]; then
    # xargs gives 123 when one of its commands failed
    seconds=$1 folder=$2
    shift 2
    printf '%s\n' "$@" | xargs -P "$(nproc)" -n 1 sh "$0" --one "$seconds" "$folder"
    exit
fi

seconds=$2 folder=$3 target=$4
name=${target##*/fuzz_}
corpus=$folder/corpus/$name findings=$folder/findings log=$folder/$name.log
mkdir -p "$corpus" "$findings"

"$target" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=2048 -print_final_stats=1 \
    -artifact_prefix="$findings/$name-" "$corpus" "tests/fuzz/corpus/$name" >"$log" 2>&1 </dev/null
code=$?
runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
coverage=$(sed -n 's/.* cov: \([0-9]*\) .*/\1/p' "$log" | tail -n 1)
if [ "$code" -ne 0 ]; then
    tail -n 60 "$log"
    echo "fuzz_$name: FAILED with status $code; the log is $log, the input in $findings"
    exit 1
fi
echo "fuzz_$name: no finding in $seconds s, ${runs:-?} runs, coverage ${coverage:-?}"
