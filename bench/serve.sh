#!/bin/sh
# Load on the server by concurrency, with wrk; what it costs is read from the server's own metrics.
#
#   DGEMMA=build/dgemma bench/serve.sh [-m MODEL] [-d SECONDS] [-n TOKENS] [-c "1 4 16 64"]
#
# Prints a table in Markdown, once with the prefix cache and once without: every conversation begins with the same
# instructions of about 150 words.
set -eu

model=tests/fixtures/golden/sampler_finishes/model
[ ! -e models/pocket/pocket.gguf ] || model=models/pocket/pocket.gguf
seconds=20 tokens=64 clients="1 4 16 64"
while getopts m:d:n:c: option; do
    case $option in
    m) model=$OPTARG ;;
    d) seconds=$OPTARG ;;
    n) tokens=$OPTARG ;;
    c) clients=$OPTARG ;;
    *) exit 2 ;;
    esac
done

temp=$(mktemp -d)
server=
trap 'test -z "$server" || kill "$server"; rm -rf "$temp"' EXIT
i=0
while [ $i -lt 30 ]; do
    echo "You answer briefly and kindly. "
    i=$((i + 1))
done >"$temp/shared"

# sum of a metric in a saved page
value() { awk -v name="$1" 'index($1, name "{") == 1 { sum += $2 } END { printf "%.9g", sum }' "$2"; }
change() { echo "$(value "$1" "$temp/after") $(value "$1" "$temp/before")" | awk '{ printf "%.9g", $1 - $2 }'; }

measure() {
    curl -s "$url/metrics" >"$temp/before"
    TOKENS=$tokens wrk -t 1 -c "$1" -d "$seconds" --timeout 120 --latency -s bench/serve.lua "$url" -- \
        "$temp/shared" >"$temp/wrk"
    curl -s "$url/metrics" >"$temp/after"
    if grep -q 'Non-2xx\|Socket errors' "$temp/wrk"; then
        grep 'Non-2xx\|Socket errors' "$temp/wrk" >&2
    fi
    awk -v c="$1" -v s="$seconds" \
        -v tokens="$(change vllm:generation_tokens_total)" \
        -v requests="$(change vllm:time_to_first_token_seconds_count)" \
        -v first="$(change vllm:time_to_first_token_seconds_sum)" \
        -v blocks="$(change dgemma:block_seconds_count)" -v block="$(change dgemma:block_seconds_sum)" \
        -v prompt="$(change vllm:prompt_tokens_total)" -v cached="$(change vllm:prefix_cache_hits_total)" \
        '/^ +99%/ { p99 = $2 }
         function per(a, b) { return b > 0 ? a / b : 0 }
         END { printf "| %d | %.1f | %.0f | %.1f | %.1f | %s | %.0f %% |\n", c, per(requests, s), per(tokens, s),
                      1e3 * per(first, requests), 1e3 * per(block, blocks), p99, 100 * per(cached, prompt) }' "$temp/wrk"
}

table() {
    rm -f "$temp/where"
    "$DGEMMA" serve -m "$model" -q --port 0 "$@" >"$temp/where" &
    server=$!
    until [ -s "$temp/where" ]; do sleep 0.1; done
    url=$(sed 's/.* //' "$temp/where")
    echo "| clients | answers/s | tokens/s | first text, ms | block, ms | p99 of an answer | prompt from the cache |"
    echo "| --: | --: | --: | --: | --: | --: | --: |"
    for c in $clients; do
        measure "$c"
    done
    kill "$server"
    wait "$server"
    server=
}
echo "$model, answers of up to $tokens tokens, $seconds s each"
echo
table
echo
echo "Without the prefix cache:"
echo
table --no-prefix-cache
