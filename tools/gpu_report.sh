#!/bin/sh
# gpu_report.sh FOLDER: tests and times the CUDA backend on this machine and leaves the logs in FOLDER, with
# a summary on standard output. BUILD: where the programs are. ONLY: a pattern of the parts to run, as
# 'step-*'. A quarter of an hour on an H200.
set -u
out=$1
mkdir -p "$out"
failed=0

within() { timeout 900 "$@"; }

# part NAME COMMAND...: its last LINES_SHOWN lines are shown
part() {
    name=$1
    shift
    # shellcheck disable=SC2254 # a pattern
    case $name in
    ${ONLY:-*}) ;;
    *) return ;;
    esac
    if "$@" >"$out/$name.log" 2>&1; then
        echo "== $name"
    else
        echo "== $name FAILED ($*)"
        failed=1
    fi
    tail -n "${LINES_SHOWN:-4}" "$out/$name.log"
}

# step NAME OPTION...: the table of a bench; rows are sure of their words, as in the middle of an answer
step() {
    name=$1
    shift
    LINES_SHOWN=40 part "step-$name" within "$BUILD/dgemma" bench --device cuda --temperature 0.15 "$@"
}

# Sixteen requests to pocket, each with a seed of its own.
requests() {
    for i in $(seq 16); do
        printf '{"custom_id":"%d","method":"POST","url":"/v1/chat/completions","body":{"seed":%d,' "$i" "$i"
        printf '"max_tokens":200,"messages":[{"role":"user","content":"Tell me a story about %d foxes."}]}}\n' "$i"
    done
}

# Answers as `ID TEXT`, in order.
texts() { sed -n 's/.*"custom_id":"\([0-9]*\)".*"content":"\(\([^"\\]\|\\.\)*\)".*/\1 \2/p' "$1" | sort; }

# The same seed gives the same answer alone and among sixteen.
together() {
    rm -f "$out"/alone.jsonl "$out"/among.jsonl
    requests >"$out/requests.jsonl"
    within "$BUILD/dgemma" batch --device cuda -q --parallel 1 "$out/requests.jsonl" "$out/alone.jsonl" &&
        within "$BUILD/dgemma" batch --device cuda -q --parallel 16 "$out/requests.jsonl" "$out/among.jsonl" || return 1
    texts "$out/alone.jsonl" >"$out/alone.txt"
    texts "$out/among.jsonl" >"$out/among.txt"
    [ "$(wc -l <"$out/alone.txt")" -eq 16 ] || { echo 'not all were answered' && return 1; }
    cmp "$out/alone.txt" "$out/among.txt" && echo '16 requests: each has the same answer alone and among all'
}

# A file of 16.8 GB that was written just now, if there is room for it.
loading() {
    model=$out/model.gguf
    [ "$(df -Pk "$out" | awk 'NR == 2 {print $4}')" -gt 20000000 ] || { echo 'no room for the file' && return 0; }
    "$BUILD/dgemma" synth --type Q4_K_M -o "$model" && cat "$model" >/dev/null &&
        within "$BUILD/dgemma" bench --device cuda -m "$model" --temperature 0.15 --steps 4 --prompt 64 --no-rates
    status=$?
    rm -f "$model"
    return "$status"
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
# shellcheck disable=SC2046 # a list of files
LINES_SHOWN=30 part pocket within "$BUILD/pocket_eval" --device cuda -m models/pocket/pocket.gguf $(ls models/pocket/eval/*.jsonl models/pocket/eval/*.txt)
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
LINES_SHOWN=6 part loading loading
if [ -n "$python" ]; then
    for weights in fp8 int4; do
        LINES_SHOWN=6 part "serve-$weights" within "$python" bench/serve_stream.py --program "$BUILD/dgemma" --synthetic BF16 --folder "$out" -- --device cuda --weights "$weights"
    done
fi
LINES_SHOWN=60 part products within "$BUILD/bench_cuda_products"
exit $failed
