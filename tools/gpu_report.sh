#!/bin/sh
# gpu_report.sh FOLDER: tests and times the CUDA backend on this machine and leaves the logs in FOLDER, with
# a summary on standard output. BUILD: where the programs are. ONLY: a pattern of the parts to run, as
# 'step-*'. A quarter of an hour on an H200.
set -u
out=$1
mkdir -p "$out"
# shellcheck source=tools/report_parts.sh
. tools/report_parts.sh

# step NAME OPTION...: the table of a bench; rows are sure of their words, as in the middle of an answer
step() {
    name=$1
    shift
    LINES_SHOWN=40 part "step-$name" within "$BUILD/dgemma" bench --device cuda --temperature 0.15 "$@"
}

# The same seed gives the same answer alone and among sixteen.
together() {
    answers alone --device cuda --parallel 1 && answers among --device cuda --parallel 16 || return 1
    cmp "$out/alone.txt" "$out/among.txt" && echo '16 requests: each has the same answer alone and among all'
}

load() { within "$BUILD/dgemma" bench --device cuda -m "$model" --temperature 0.15 --steps 4 --prompt 64 --no-rates; }

# What one client gets, with the narrower weights.
serve() {
    for weights in fp8 int4; do
        echo "weights $weights"
        within "$python" bench/serve_stream.py --program "$BUILD/dgemma" -m "$model" -- --device cuda --weights "$weights" || return
    done
}

nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>/dev/null || {
    echo 'gpu_report.sh: there is no NVIDIA driver here' >&2
    exit 1
}
part kernels within "$BUILD/cuda_tests"
LINES_SHOWN=12 part golden within "$BUILD/dgemma-golden" --device cuda tests/fixtures/golden
python=$(command -v python3)
if [ -n "$python" ] && "$python" -c 'import torch, transformers' 2>/dev/null; then
    part heads-trace within "$python" tools/make_golden_heads.py "$out/heads"
    part heads-float within "$BUILD/dgemma-golden" --device cuda "$out/heads"
    part heads-served within "$BUILD/dgemma-golden" --device cuda --as-served "$out/heads"
    rm -rf "$out/heads"
else
    echo '== heads skipped: there is no transformers here to compare heads of 256 and 512 with'
fi
part together together
LINES_SHOWN=30 part pocket pocket --device cuda
step BF16 --synthetic BF16 --steps 24 --context 1024,32768,131072 --batch 1,4,16 --prompt 4096 --chunk 2048,512
step Q4_K_M --synthetic Q4_K_M --steps 24 --context 1024,32768,131072 --batch 1,4,16 --prompt 4096 --chunk 2048
step fp8 --synthetic BF16 --weights fp8 --steps 24 --context 1024,32768,131072 --prompt 4096 --chunk 2048
step int4 --synthetic BF16 --weights int4 --steps 24 --context 1024,32768,131072 --prompt 4096 --chunk 2048
step many --synthetic BF16 --steps 4 --context 8192 --batch 1,64 --prompt 64 --no-rates
step skew --synthetic Q4_K_M --steps 24 --skew --prompt 64 --no-rates
for type in BF16 Q8_0 Q4_K_M; do
    step "stages-$type" --synthetic "$type" --layers 12 --steps 24 --stages --prompt 64 --no-rates
done
LINES_SHOWN=40 part step-flat within "$BUILD/dgemma" bench --device cuda --synthetic BF16 --steps 24 --batch 1,4 --prompt 64 --no-rates
LINES_SHOWN=2 part picture within "$BUILD/dgemma" bench --device cuda --synthetic BF16 --layers 1 --steps 2 --prompt 64 --picture 280
LINES_SHOWN=6 part loading with_file Q4_K_M 17 load
[ -z "$python" ] || LINES_SHOWN=14 part serve with_file BF16 51 serve
LINES_SHOWN=60 part products within "$BUILD/bench_cuda_products"
finish
