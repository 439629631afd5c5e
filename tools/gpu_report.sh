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
for type in BF16 Q8_0 Q4_K_M; do
    part "step-$type" "$BUILD/bench_step" --device cuda --type "$type" --steps 24
done
part step-batch4 "$BUILD/bench_step" --device cuda --type Q4_K_M --batch 4 --steps 8
part step-8k "$BUILD/bench_step" --device cuda --type Q4_K_M --context 8192 --chunk 2048 --steps 8
LINES_SHOWN=60 part products "$BUILD/bench_cuda_products"
exit $failed
