#!/bin/sh
# dgemma bench on a model that takes no time: tables, JSON, plots of it, and what is refused.
. tests/support/shell_test.sh

# says TEXT COMMAND...: the command succeeds and prints a line with TEXT in it
says() {
    text=$1
    shift
    "$@" >"$temp/says.log" 2>&1 </dev/null || { cat "$temp/says.log"; return 1; }
    cat "$temp/says.log"
    grep -qF -- "$text" "$temp/says.log"
}
# ends_lines: nothing was to follow at the end of a line of what was said last
ends_lines() { ! grep -n '[;,] *$' "$temp/says.log"; }
tiny() { "$DGEMMA" bench --device cpu --synthetic Q4_K_M --shape tiny --layers 2 --steps 2 --prompt 100 "$@"; }

check "steps" says "step " tiny -c 64 --no-rates
check "what the machine can do" says "at best: reads" tiny -c 64
check "and the share of it" says "% of reading" tiny -c 64
check "lines with shares that end" ends_lines
check "what a context adds" says " more" tiny -t 1 -c 64,3900,64,3900,64,3900 --steps 25
if grep -q ', f32 ' "$temp/says.log"; then
    check "and the share of floats" grep -q ' more at [0-9]* % of ' "$temp/says.log"
fi
check "without what the machine can do" says " more, " tiny -t 1 -c 64,3900,64,3900,64,3900 --steps 25 --no-rates
check "a shorter one behind it" says "step " tiny -c 3900,64 --no-rates
check "adds nothing" sh -c "! grep -q ' more' '$temp/says.log'"
check "a prompt" says "tokens/s" tiny -c 64 --chunk 50 --no-rates
check "a block" says "block of 2 steps" tiny -c 64 --no-rates
check "stages" says "vocabulary" tiny -c 64 --stages --no-rates
check "steps of an answer" says "block of 3 steps" tiny -c 64 --steps 3 -b 1,2 --answer --stages --no-rates
check "the entropy of rows" says "entropy 0.0" tiny -c 64 --temperature 0.01 --no-rates
check "rows that are less sure" says "entropy " tiny -c 64 --temperature 20 --no-rates
check "are not" sh -c "! grep -q 'entropy 0.0' '$temp/says.log'"
check "a picture" says "pictures/s" tiny -c 0 --picture 6 --no-rates
check "a picture of a model's file" says "pictures/s" "$DGEMMA" bench --device cpu -n 1 --prompt 8 --no-rates -c 8 --picture 6
check "threads" says "on 2 threads, " tiny -t 1,2 -c 64 --no-rates
check "one thread" grep -q "on 1 thread, " "$temp/says.log"
check "lines that end" ends_lines
check "a block of one step" says "block of 1 step " tiny --steps 1 -c 0 --no-rates
"$DGEMMA" synth --shape tiny --layers 2 -o "$temp/tiny.gguf" >/dev/null
check "products in floats" says "numerics: portable" tiny -c 0 --profile float --no-rates --cpu-flags "$(uname -m | sed 's/aarch64/neon/; s/x86_64/avx2/')"
check "a model's file" says "$temp/tiny.gguf, 2 layers" "$DGEMMA" bench --device cpu -m "$temp/tiny.gguf" -n 1 --no-rates --prompt 10
check "a prompt longer than a piece of the context" says "prompt by 70" tiny -c 0 --prompt 3000 --chunk 70 --no-rates
check "the model that comes with dgemma" says "pocket.gguf" "$DGEMMA" bench --device cpu -n 1 --prompt 8 --no-rates -c 8

# ---- JSON ----
tiny -t 1,2 -c 64,256,1024 -b 1,2 --stages --json >"$temp/bench.json" 2>"$temp/bench.err"
python=$(command -v python3)
if [ -n "$python" ]; then
    check "JSON" "$python" - "$temp/bench.json" <<'END'
import json, sys
results = json.load(open(sys.argv[1]))["results"]
kinds = [r["kind"] for r in results]
assert kinds[:2] == ["machine", "load"], kinds
steps = [(r["threads"], r["context"], r["batch"]) for r in results if r["kind"] == "step"]
assert steps == [(1, 64, 1), (2, 64, 1), (2, 256, 1), (2, 1024, 1), (2, 64, 2)], steps
machine = results[0]
assert machine["rates"]["read"] > 1e6 and machine["layers"] == 2, machine
for r in results:
    if r["kind"] == "machine":
        last = r
    if r["kind"] == "step":
        assert r["least"] <= r["lower"] <= r["median"] <= r["upper"] <= r["most"] and r["of_read"] > 0, r
        assert 0 < r["attention_seconds"] < r["most"] and r["entropy"] >= 0 and r["rates"]["read"] == last["rates"]["read"], r
        first = r if (r["context"], r["batch"]) == (64, 1) else first
        assert "added" not in r or (r["batch"] == 1 and r["context"] > 64), r
        if "added" in r:
            more = r["attention_seconds"] - first["attention_seconds"]
            assert abs(r["added"] - more) < 1e-8 * max(1, 9 * r["attention_seconds"]), (r, first)
            assert abs(r["added_ops"] / (r["ops"] - first["ops"]) - 1) < 1e-6, (r, first)
            floats = [v for k, v in r["rates"].items() if k != "read" and not k.startswith("int8")]
            assert ("added_of_float" in r) == bool(floats), r
            if floats:
                assert abs(r["added_ops"] / more / max(floats) / r["added_of_float"] - 1) < 1e-2, r
    if r["kind"] == "load":
        assert r["weight_bytes"] > 1000 and r["resident_bytes"] > 1000, r
assert sum(k == "stage" for k in kinds) == 26, kinds
END
    check "plots" says "$temp/step_threads.svg" "$python" tools/plot_bench.py -o "$temp" Q4="$temp/bench.json"
    check "are XML" "$python" -c 'import sys, xml.dom.minidom as m
for name in ("threads", "context"):
    drawn = m.parse(f"{sys.argv[1]}/step_{name}.svg").getElementsByTagName("circle")
    assert len(drawn) == {"threads": 2, "context": 3}[name], len(drawn)' "$temp"
    check "plots of nothing" fails_saying "not what dgemma bench" "$python" tools/plot_bench.py -o "$temp" tools/plot_bench.py
    check "nothing else is said" test ! -s "$temp/bench.err"
else
    skip "JSON" "there is no python3"
fi

# ---- through the server, by a client's clock ----
if [ -n "$python" ]; then
    stream() { "$python" bench/serve_stream.py --program "$DGEMMA" "$@" --prompt 40 --tokens 70 --steps 2 --rounds 1 -- --device cpu; }
    check "streamed answers" says "2 clients: " stream -m "$temp/tiny.gguf" --clients 2
    check "of a model made for it" says "1 x 70 tokens" stream --synthetic Q8_0 --shape tiny --layers 1 --folder "$temp"
    check "which is gone then" [ -z "$(find "$temp" -name synthetic.gguf)" ]
    check "too few tokens a second" fails_saying "that is less than" stream -m "$temp/tiny.gguf" --least 1e12
    check "other settings" says "; diffusion.t_max=0.5" stream -m "$temp/tiny.gguf" --with diffusion.t_max=0.5,0.8
    check "no model" fails_saying "say which model" stream
else
    skip "streamed answers" "there is no python3"
fi

# ---- what makes no sense ----
for bad in '-c x' '-c 1,,2' '-c 1,' '-c -5' '-t 99999999999' '-b 0x10' '--steps 0' '--prompt 0' '--layers 0' "-c $(seq -s, 40)"; do
    # shellcheck disable=SC2086 # option and value
    check "bench $bad" fails_saying "does not fit" tiny $bad
done
check "narrower weights on the CPU" fails_saying "on CUDA devices only" tiny --weights fp8
check "no such weights" fails_saying '"fp8" and "int4" are known' tiny --weights fp9
check "no such context" fails_saying "context 1000000: 0 to" tiny -c 1000000
check "no such temperature" fails_saying "a temperature of 0.001" tiny --temperature 0.001
check "no temperature at all" fails_saying "a temperature of 0:" tiny --temperature 0
check "a temperature for an answer" fails_saying "of its own" tiny --answer --temperature 1
check "no such batch" fails_saying "batch 0" tiny -b 0
check "threads without end" fails_saying "threads 5000" tiny -t 5000
check "no such type" fails_saying "is not known: BF16" "$DGEMMA" bench --synthetic Q17
check "no such shape" fails_saying "is not known: 26b-a4b" "$DGEMMA" bench --synthetic Q8_0 --shape round
check "a model and a synthetic one" fails_saying "not both" tiny -m "$temp/tiny.gguf"
check "layers of a file" fails_saying "of a synthetic model" "$DGEMMA" bench -m "$temp/tiny.gguf" --layers 1
check "no such model" fails_saying "No such file" "$DGEMMA" bench -m "$temp/none.gguf"
check "no such device" fails_saying "are known" tiny --device abacus
mkdir "$temp/empty"
: >"$temp/empty/model.gguf"
check "not a model" fails_saying "dgemma:" "$DGEMMA" bench -m "$temp/empty/model.gguf"
finish
