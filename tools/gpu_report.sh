#!/bin/sh
# gpu_report.sh FOLDER: tests and times the CUDA backend on this machine and leaves the logs in FOLDER, with
# a summary on standard output. BUILD: where the programs are.
set -u
out=$1
mkdir -p "$out"
failed=0

part() {
    name=$1
    shift
    if timeout 600 "$@" >"$out/$name.log" 2>&1; then
        echo "== $name"
    else
        echo "== $name FAILED ($*)"
        failed=1
    fi
    tail -n "${LINES_SHOWN:-4}" "$out/$name.log"
}

nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>/dev/null || {
    echo 'gpu_report.sh: there is no NVIDIA driver here' >&2
    exit 1
}
part kernels "$BUILD/cuda_tests"
LINES_SHOWN=12 part golden "$BUILD/dgemma-golden" --device cuda tests/fixtures/golden
python=$(command -v python3)
if [ -n "$python" ] && "$python" -c 'import torch, transformers' 2>/dev/null; then
    part heads-trace "$python" tools/make_golden_heads.py "$out/heads"
    part heads-float "$BUILD/dgemma-golden" --device cuda "$out/heads"
    part heads-served "$BUILD/dgemma-golden" --device cuda --as-served "$out/heads"
    rm -rf "$out/heads"
else
    echo '== heads skipped: there is no transformers here to compare heads of 256 and 512 with'
fi
for type in BF16 Q8_0 Q4_K_M; do
    LINES_SHOWN=40 part "step-$type" "$BUILD/dgemma" bench --device cuda --synthetic "$type" --steps 24 --stages \
        --context 1024,512,8192,32768,131072 --batch 1,4,16,64 --prompt 4096 --chunk 512,2048
done
part step-skew "$BUILD/dgemma" bench --device cuda --synthetic Q4_K_M --steps 24 --skew --no-rates --prompt 512
LINES_SHOWN=2 part picture "$BUILD/dgemma" bench --device cuda --synthetic BF16 --layers 1 --steps 2 --prompt 64 --picture 280
[ -z "$python" ] || LINES_SHOWN=6 part serve-Q4_K_M "$python" bench/serve_stream.py --program "$BUILD/dgemma" --synthetic Q4_K_M -- --device cuda
LINES_SHOWN=60 part products "$BUILD/bench_cuda_products"
exit $failed
