#!/bin/sh
# cpu_report.sh FOLDER: tests and times the CPU backend on this machine and leaves the logs in FOLDER, with a
# summary on standard output. BUILD: where the programs are. ONLY: a pattern of the parts to run, as 'step-*'.
# BENCH: options for every bench, as '--layers 6' where 17 GB of memory are too much.
set -u
out=$1
mkdir -p "$out"
# shellcheck source=tools/report_parts.sh
. tools/report_parts.sh

all=$(nproc)
# 1, 2, 4 … and all
counts=$(n=1 && while [ "$n" -lt "$all" ]; do printf '%d,' "$n" && n=$((n * 2)); done && echo "$all")
# The instruction sets that this processor has, the best one last.
case $("$BUILD/dgemma" devices 2>/dev/null | sed -n 's/^cpu .*kernels for //p') in
neon) sets=neon ;;
i8mm) sets='neon i8mm' ;;
bf16) sets='neon i8mm bf16' ;;
avx2) sets=avx2 ;;
vnni) sets='avx2 vnni' ;;
amx) sets='avx2 vnni amx' ;;
*) sets= ;;
esac

# bench OPTION...
bench() {
    # shellcheck disable=SC2086 # options are words
    within "$BUILD/dgemma" bench --device cpu ${BENCH-} "$@"
}

# step NAME OPTION...: the table of a bench
step() {
    name=$1
    shift
    LINES_SHOWN=40 part "step-$name" bench --synthetic Q4_K_M "$@"
}

# The same seeds give the same answers with any number of threads.
threads_agree() {
    answers threads-1 --device cpu --threads 1 || return 1
    for n in 2 3 "$all"; do
        answers "threads-$n" --device cpu --threads "$n" --parallel "$n" &&
            cmp "$out/threads-1.txt" "$out/threads-$n.txt" || return 1
    done
    echo "16 requests: the same answers with 1, 2, 3 and all threads"
}

# A model that is mapped: memory, and a step.
file() { within "$BUILD/dgemma" bench --device cpu -m "$model" --context 1024 --steps 2 --prompt 64 --no-rates; }

# Steps over threads and over context, as SVG.
plots() {
    bench --synthetic Q4_K_M --threads "$counts" --context 512 --steps 3 --prompt 64 --no-rates --json >"$out/threads.json" &&
        bench --synthetic Q4_K_M --context 512,4096,8192,32768,131072 --steps 3 --prompt 64 --no-rates --json >"$out/context.json" &&
        mkdir -p "$out/threads" "$out/context" &&
        python3 tools/plot_bench.py -o "$out/threads" "$out/threads.json" &&
        python3 tools/plot_bench.py -o "$out/context" "$out/context.json"
}

"$BUILD/dgemma" devices
lscpu 2>/dev/null | sed -n 's/^Model name: *//p'
part kernels within "$BUILD/check_kernels"
for set in ref $sets; do
    part "golden-$set" within "$BUILD/dgemma-golden" --cpu-flags "$set" tests/fixtures/golden
done
part threads threads_agree
LINES_SHOWN=30 part pocket-integer pocket --profile integer
LINES_SHOWN=30 part pocket-float pocket --profile float
part errors within "$BUILD/bench_products" --error
step best --context 512,32768,512,32768,512 --steps 3 --prompt 1024
for set in $sets; do
    step "$set" --cpu-flags "$set" --context 1024 --steps 2 --prompt 1024
done
step stages --context 512,32768 --steps 3 --prompt 64 --stages --no-rates
LINES_SHOWN=20 part file with_file Q4_K_M 17 file
LINES_SHOWN=2 part picture bench --synthetic Q4_K_M --layers 1 --steps 2 --prompt 64 --picture 280
part start within "$BUILD/bench_start" -m models/pocket/pocket.gguf --rounds 30
if command -v python3 >/dev/null; then
    part plots plots
fi
finish
