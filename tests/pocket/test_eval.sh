#!/bin/sh
# The evaluation program, and a sample of what the small trained model must be able to do. From the environment: BUILD.
. tests/support/shell_test.sh

eval=$BUILD/pocket_eval
noise=tests/fixtures/golden/sampler_finishes/model # random weights: it knows nothing
pocket=models/pocket/pocket.gguf

# line FAMILY ID CHECK: a prompt
line() {
    printf '{"family": "%s", "id": "%s", "messages": [{"role": "user", "content": "Hello?"}], "check": %s}\n' "$@"
}
for i in 1 2 3 4; do
    line greetings "g$i" '{"kind": "exact", "text": "Hello!"}'
    line records "r$i" '{"kind": "json", "value": {}}'
    line errands "e$i" '{"kind": "calls", "calls": [{"name": "go", "arguments": {}}], "text": null}'
done >"$temp/prompts.jsonl"

ask() {
    "$eval" -m "$noise" --max-tokens 16 "$@" "$temp/prompts.jsonl"
}
# said NAME TEXT OPTION...: the run fails, as it must, and the table says TEXT
said() {
    said_name=$1 said_text=$2
    shift 2
    check "$said_name" fails_saying "$said_text" ask "$@"
}
said "noise is not an answer" "FAILED: greetings: 0.0 % right, wanted 95 %"
said "noise calls no tool" "FAILED: errands: 0.0 % of the calls right, wanted 97 %"
said "noise is not JSON" "FAILED: records: 0.0 % readable as JSON, wanted 98 %"
said "the sum" "0 passed, 3 failed, 0 skipped" --parallel 3
said "one family" "0 passed, 1 failed, 0 skipped" --family records --threads 1
said "self-conditioning left out" "without self-conditioning" --no-self-conditioning --limit 1
check "slack" ask --limit 2 --slack 2
said "not slack enough" "0 passed, 3 failed" --limit 2 --slack 1
said "a limit" "greetings               2      0     0.0" --limit 2
said "files to write" "0 passed, 3 failed" --failures "$temp/wrong.jsonl" --record "$temp/record.jsonl" --kv f32
check "each failure has its line" [ "$(grep -c '"why":' "$temp/wrong.jsonl")" -eq 12 ]
check "each answer is on record" [ "$(grep -c '"prompt":\[2,' "$temp/record.jsonl")" -eq 12 ]
said "no such device" "are known" --device abacus
said "in parallel" "0 passed, 3 failed" --parallel 5 --record "$temp/parallel.jsonl" --kv f32
check "the same answers in parallel" cmp "$temp/record.jsonl" "$temp/parallel.jsonl"

sed 's/"messages"/"n_prompt": 3, "messages"/' "$temp/prompts.jsonl" >"$temp/longer.jsonl"
check "a prompt of another length" fails_saying "0 passed, 3 failed" \
    "$eval" -m "$noise" --max-tokens 1 --failures "$temp/wrong.jsonl" "$temp/longer.jsonl"
check "is said" grep -q 'it was written as 3"' "$temp/wrong.jsonl"

check "no model" fails_saying "usage:" "$eval" "$temp/prompts.jsonl"
check "no prompts" fails_saying "usage:" "$eval" -m "$noise"
check "a family that is not there" fails_saying "no prompt to ask" ask --family poems
check "a number that is none" fails_saying "usage:" ask --limit many
line greetings g1 '{"kind": "guess"}' >"$temp/prompts.jsonl"
check "a check that is none" fails_saying 'greetings/g1: a check of kind "guess"' ask
echo '{"family": "greetings"}' >"$temp/prompts.jsonl"
check "a prompt that is none" fails_saying "line 1: family, id, messages or check is missing" ask

if [ -f "$pocket" ]; then
    # that engine and model fit together; what the model must reach is for make pocket-eval to say, and answers are
    # the same under a sanitizer
    limit=14
    [ -z "${SAN:-}" ] || limit=2
    check "the small model, $limit prompts of each family" "$eval" -m "$pocket" --limit $limit --slack 1 models/pocket/eval/*.jsonl
else
    skip "the small model" "there is no $pocket"
fi
finish
