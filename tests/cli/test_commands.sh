#!/bin/sh
# dgemma inspect, tokenize and verify; the man page and the completions against the program's own help.
. tests/support/shell_test.sh

model=tests/fixtures/golden/sampler_finishes/model
bare=tests/fixtures/golden/text/model

commands=$("$DGEMMA" --help | sed -n 's/^  \([a-z]*\) .*/\1/p')

# says TEXT COMMAND...: the command succeeds and prints a line with TEXT in it
says() {
    text=$1
    shift
    "$@" >"$temp/says.log" 2>&1 </dev/null || { cat "$temp/says.log"; return 1; }
    cat "$temp/says.log"
    grep -qF -- "$text" "$temp/says.log"
}

check "commands are listed" says verify echo $commands

# ---- inspect ----
check "inspect" says "6 layers, 96 wide, 384 words" "$DGEMMA" inspect "$model"
check "inspect tells the layers" says "sliding, window 8" "$DGEMMA" inspect "$model"
check "inspect tells the types" says "BF16" "$DGEMMA" inspect "$model"
check "inspect without a tokenizer" says "tokenizer: no" "$DGEMMA" inspect "$bare"
check "inspect --tensors" says "model.decoder.layers.3.experts.down_proj" "$DGEMMA" inspect --tensors "$model"
check "inspect --json" says '"n_layers": 6' "$DGEMMA" inspect --json --tensors "$model"
check "inspect tells the numerics" says '"numerics": "' "$DGEMMA" inspect --json "$model"
check "inspect --batch" says "with 4 such requests" "$DGEMMA" inspect --batch 4 --context 1000 "$model"
check "inspect tells the tower" says "3 layers, 48 wide, 3 heads" "$DGEMMA" inspect "$model"
check "inspect --picture" says "with a budget of   70:   63 tokens" "$DGEMMA" inspect --picture 83x61 "$model"
check "inspect --picture, not a size" fails_saying "does not fit" "$DGEMMA" inspect --picture 83 "$model"
passes() { "$DGEMMA" inspect --json "$@" "$model" | grep -o '"work_bytes": [0-9]*'; }
check "inspect --batch counts the passes of so many" test "$(passes)" != "$(passes --batch 16)"
check "inspect, a batch of one is the default" test "$(passes)" = "$(passes --batch 1)"
check "inspect, a batch of none" fails_saying "does not fit" "$DGEMMA" inspect --batch 0 "$model"
check "inspect, a picture in JSON" fails_saying "not told in JSON" "$DGEMMA" inspect --json --picture 83x61 "$model"
# a model with an escape in the name of a tensor
cp -r "$model" "$temp/named"
chmod -R u+w "$temp/named"
LC_ALL=C sed 's/layers\.0\.layer_scalar/layers.0.layer_\\u001b/' "$model/model.safetensors" >"$temp/named/model.safetensors"
tensors() {
    "$DGEMMA" inspect --tensors "$temp/named" >"$temp/tensors" 2>"$temp/wrong"
    [ $? -eq 1 ] && grep -q 'layers.0.layer_scalar is missing' "$temp/wrong" || return 1
    grep -q 'layers.0.layer_␛ ' "$temp/tensors" && ! grep -q "$(printf '\033')" "$temp/tensors"
}
check "names of tensors cannot command a terminal" tensors
# files that contradict their config: all is told, then what is wrong
cp -r "$model" "$temp/other"
chmod -R u+w "$temp/other"
contradicts() { # TEXT SED [OPTION]...
    said=$1
    sed "$2" "$model/config.json" >"$temp/other/config.json"
    cmp -s "$model/config.json" "$temp/other/config.json" && return 1
    shift 2
    "$DGEMMA" inspect "$@" "$temp/other" >"$temp/tensors" 2>"$temp/wrong"
    [ $? -eq 1 ] && grep -q "$said" "$temp/wrong" && grep -q 384 "$temp/tensors"
}
check "inspect, a config for other shapes" contradicts "has shape .*, the config asks for" \
    's/"moe_intermediate_size": [0-9]*/"moe_intermediate_size": 7/'
check "inspect --json, likewise" contradicts "has shape .*, the config asks for" \
    's/"moe_intermediate_size": [0-9]*/"moe_intermediate_size": 7/' --json
check "inspect, a tower of other shapes" contradicts "vision_tower.*has shape .*, the config asks for" \
    '/vision_config/,$s/"position_embedding_size": [0-9]*/"position_embedding_size": 77/'
# of several folders, an error tells which
for document in config generation_config tokenizer tokenizer_config hf_quant_config; do
    rm -rf "$temp/several"
    cp -r "$model" "$temp/several"
    chmod -R u+w "$temp/several"
    rm -f "$temp/several/chat_template.jinja"
    printf '{"x": ' >"$temp/several/$document.json"
    check "a broken $document.json is named" fails_saying "$temp/several/$document.json: line 1" "$DGEMMA" inspect "$temp/several"
done
rm "$temp/several/hf_quant_config.json"
sed 's/"moe_intermediate_size": [0-9]*/"moe_intermediate_size": -7/' "$model/config.json" >"$temp/several/config.json"
check "a key is named with its file" fails_saying "$temp/several/config.json: text_config.moe_intermediate_size is -7" "$DGEMMA" inspect "$temp/several"
cp -r tests/fixtures/golden/sampler_finishes/model "$temp/wordy"
chmod -R u+w "$temp/wordy"
cp models/pocket/tokenizer.json "$temp/wordy"
check "a tokenizer with words that the model has no rows for" fails_saying "tokens, the model" "$DGEMMA" inspect "$temp/wordy"
truncate -s 65M "$temp/named/tokenizer.json"
check "a tokenizer beyond all reason" fails_saying "longer than 67108864 bytes" "$DGEMMA" inspect "$temp/named"
cp tests/fixtures/gguf/tiny.gguf "$temp/beside.gguf"
: >"$temp/mmproj-empty.gguf"
check "inspect tells why a tower is not used" says "not used: $temp/mmproj-empty.gguf" "$DGEMMA" inspect "$temp/beside.gguf"
check "run tells it too" says "without pictures: $temp/mmproj-empty.gguf" "$DGEMMA" run -m "$temp/beside.gguf" -n 2 Hello
check "inspect, no such model" fails_saying "No such file" "$DGEMMA" inspect "$temp/none"

# ---- infill and edit ----
printf 'It was' >"$temp/before"
printf ' and so on.' >"$temp/after"
printf 'The tower is v\303\251ry tall.\n' >"$temp/text"
check "infill" says "lengths" "$DGEMMA" infill -m "$model" --prefix "$temp/before" --suffix "$temp/after" -n 4 --steps 3
whole() {
    "$DGEMMA" infill -q -m "$model" --prefix "$temp/before" --suffix "$temp/after" -n 4 --steps 3 --whole >"$temp/whole" || return 1
    head -c 6 "$temp/whole" | cmp - "$temp/before" && tail -c 11 "$temp/whole" | cmp - "$temp/after"
}
check "infill --whole" whole
check "infill does not think" fails_saying "no option --think" "$DGEMMA" infill --think --prefix "$temp/before"
check "infill, of what?" fails_saying "give --prefix" "$DGEMMA" infill
check "infill, standard input twice" fails_saying "two options" "$DGEMMA" infill --prefix - --suffix -
outside() { # all but the passage is as it was
    "$DGEMMA" edit -q -m "$model" --steps 3 -n 8 "$temp/text" --range 13:17 "$@" >"$temp/edited" || return 1
    head -c 13 "$temp/edited" | cmp - "$temp/kept" && tail -c 7 "$temp/edited" | cmp - "$temp/rest"
}
head -c 13 "$temp/text" >"$temp/kept"
tail -c 7 "$temp/text" >"$temp/rest"
check "edit" outside --say "Shorter."
check "edit, as many tokens" outside --same-length
unchanged() { "$DGEMMA" edit -q -m "$model" "$temp/text" --range 4:9 --range 13:17 --strength 0 | cmp - "$temp/text"; }
check "edit of strength 0" unchanged
check "edit, what is not there" fails_saying "beyond the text" "$DGEMMA" edit -m "$model" "$temp/text" --range 13:99
check "edit, ranges out of order" fails_saying "does not fit" "$DGEMMA" edit "$temp/text" --range 4:9 --range 2:3
check "edit, no range" fails_saying "give --range" "$DGEMMA" edit "$temp/text"
check "edit, a strength that is none" fails_saying "0 to 1" "$DGEMMA" edit "$temp/text" --range 1:2 --strength 2

# ---- tokenize ----
ids=$("$DGEMMA" tokenize -m "$model" "Hello <|turn> there" 2>/dev/null)
check "tokenize and back" says "Hello <|turn> there" "$DGEMMA" tokenize -m "$model" --decode "$ids"
check "tokenize --markers" says '"<|turn>"' "$DGEMMA" tokenize -m "$model" --markers --pieces "a<|turn>"
check "tokenize --count" says 1 "$DGEMMA" tokenize -m "$model" --markers --count "<bos>"
printf 'from a pipe' >"$temp/text"
check "tokenize --file" says "$("$DGEMMA" tokenize -m "$model" "from a pipe")" "$DGEMMA" tokenize -m "$model" --file "$temp/text"
check "tokenize without a tokenizer" fails_saying "no tokenizer" "$DGEMMA" tokenize -m "$bare" x
check "tokenize, ids that are none" fails_saying "expected token ids" "$DGEMMA" tokenize -m "$model" --decode 1,x
check "tokenize, ids that are no tokens" fails_saying "99999999 is not a token" "$DGEMMA" tokenize -m "$model" --decode 1,99999999
check "tokenize, no ids" fails_saying "there are none" "$DGEMMA" tokenize -m "$model" --decode ""
check "tokenize, a text and a file" fails_saying "the text once" "$DGEMMA" tokenize -m "$model" x --file "$temp/text"
check "tokenize, a text and ids" fails_saying "the text once" "$DGEMMA" tokenize -m "$model" x --decode 1
check "tokenize, pieces of ids" fails_saying "go with a text" "$DGEMMA" tokenize -m "$model" --pieces --decode 1
check "tokenize, pieces and their count" fails_saying "not both" "$DGEMMA" tokenize -m "$model" --pieces --count x

# ---- constrain ----
printf '{"type": "object", "properties": {"a": {"type": "integer", "maximum": 20}}, "required": ["a"]}' >"$temp/schema.json"
printf '{"properties": {"a": {"uniqueItems": true}}}' >"$temp/unique.json"
printf 'root ::= "a" root | "b"\n' >"$temp/ab.gbnf"
constrain() { "$DGEMMA" constrain "$@"; }
check "constrain, a text of a schema" says accepted constrain --json-schema "$temp/schema.json" '{"a": 17}'
check "constrain, one that is not" fails_saying "rejected at byte 7: could go on with [0}]" constrain --schema "$temp/schema.json" '{"a": 21}'
check "constrain, the beginning of one" fails_saying "prefix at byte 2" constrain --json-schema "$temp/schema.json" --text '{"'
check "constrain, in JSON" fails_saying '"verdict": "prefix", "at": 1' constrain --json --choice yes --choice no y
check "constrain, a keyword that is refused" fails_saying '"uniqueItems" at #/properties/a is not supported' constrain --schema "$temp/unique.json" x
check "constrain, and left out" says accepted constrain --schema "$temp/unique.json" --lenient '{"a": [1, 1]}'
check "constrain, a schema as a word" says accepted constrain --json-schema '{"type": "integer"}' 7
check "run, held to a schema" says '{"a": ' "$DGEMMA" run -q -m "$model" --json-schema "$temp/schema.json" --steps 2 hello
check "run, held to two things" fails_saying "give one of" "$DGEMMA" run -q -m "$model" --regex x --choice y hello
check "run, a schema from a pipe" says '{"a": ' sh -c '"$0" run -q -m "$1" --json-schema - --steps 2 hello <"$2"' "$DGEMMA" "$model" "$temp/schema.json"
check "run, two that ask for a pipe" fails_saying "two options ask for standard input" "$DGEMMA" run -q -m "$model" --json-schema - --file - hello
check "run, a schema that is refused" fails_saying uniqueItems "$DGEMMA" run -q -m "$model" --json-schema "$temp/unique.json" hello
check "run, too few tokens for the schema" fails_saying "needs" "$DGEMMA" run -q -m "$model" --json-schema "$temp/schema.json" -n 2 hello
check "constrain, lines" says accepted sh -c 'printf "aab\nb\n" | "$0" constrain --grammar "$1"' "$DGEMMA" "$temp/ab.gbnf"
check "constrain, lines of which one is not" fails_saying rejected sh -c 'printf "aab\nbb\n" | "$0" constrain --grammar "$1"' "$DGEMMA" "$temp/ab.gbnf"
check "constrain, no line at all" fails_saying "there is no text" sh -c '"$0" constrain --regex a </dev/null' "$DGEMMA"
check "constrain, a file" says accepted constrain --regex '\{.*\}' --file "$temp/schema.json" --lines
check "constrain, at random" says '{"a": ' constrain --schema "$temp/schema.json" --random 5
constrain --json-object --random 20 --seed 3 --json >"$temp/drawn"
constrain --json-object --random 20 --seed 3 --json >"$temp/again"
check "constrain, the same seed" cmp "$temp/drawn" "$temp/again"
printf '[{"name": "go", "parameters": {"properties": {"to": {"enum": ["up", "down"]}}, "required": ["to"]}}, {"name": "stop"}]' >"$temp/tools.json"
check "constrain, a call" says accepted constrain --tools "$temp/tools.json" 'So: <|tool_call>call:go{to:<|"|>up<|"|>}<tool_call|>'
check "constrain, one that is not allowed" fails_saying "rejected at byte 17: could go on with [s]" constrain --tools "$temp/tools.json" --allow-tool stop '<|tool_call>call:go{'
check "constrain, a call that must be" fails_saying "prefix at byte 0: could go on with a special token" constrain --tools "$temp/tools.json" --tool-choice go ''
check "constrain, one call" fails_saying "rejected at byte 35" constrain --tools "$temp/tools.json" --one-call '<|tool_call>call:stop{}<tool_call|><|tool_call>'
check "constrain, calls at random" says '<|tool_call>call:go{to:<|"|>' constrain --tools "$temp/tools.json" --tool-choice required --random 9
check "constrain, a choice without tools" fails_saying "go with --tools" constrain --regex a --one-call x
check "constrain, its size" fails_saying "nodes" constrain --regex a --size b
check "constrain, two of them" fails_saying "give one of" constrain --regex a --json-object x
check "constrain, none" fails_saying "give one of" constrain x
check "constrain, no such file" fails_saying "No such file" constrain --schema "$temp/none" x

# ---- verify ----
"$DGEMMA" verify --record --kv-type f32 "$bare" >"$temp/good.json"
check "verify against its own record" says passed "$DGEMMA" verify --reference "$temp/good.json" --kv-type f32 "$bare"
check "verify with the reference kernels" says passed "$DGEMMA" verify --reference "$temp/good.json" --kv-type f32 --cpu-flags ref "$bare"
"$DGEMMA" verify --record --kv-type f32 models/pocket/pocket.gguf >"$temp/pocket.json"
check "a record holds for other last bits" says passed "$DGEMMA" verify --reference "$temp/pocket.json" models/pocket/pocket.gguf
for type in bf16 f32 q8_0 fp8; do
    check "keys and values as $type" says Paris "$DGEMMA" run -m models/pocket/pocket.gguf --seed 1 --kv-type $type "What is the capital of France?"
done
for command in run chat serve bench verify inspect; do
    check "$command, keys of no known type" fails_saying "$command: --kv-type is bf16, f32, q8_0 or fp8" "$DGEMMA" $command --kv-type q4_0
done
check "verify, a record and a reference" fails_saying "makes a reference" "$DGEMMA" verify --record -r "$temp/good.json" "$bare"
check "verify on a device that is not there" fails_saying CUDA "$DGEMMA" verify --reference "$temp/good.json" --device cuda:99 "$bare"
check "verify another model" fails_saying "OFF  embedding" "$DGEMMA" verify --reference "$temp/good.json" "$model"
check "verify without a reference" fails_saying "give a reference" "$DGEMMA" verify "$bare"
# a model with one weight of layer 2 changed
cp -r "$bare" "$temp/spoilt"
chmod -R u+w "$temp/spoilt"
file=$temp/spoilt/model.safetensors
header=$(od -An -tu8 -N8 "$file" | tr -d ' ')
start=$(dd if="$file" bs=1 skip=8 count="$header" 2>/dev/null | tr '}' '\n' |
    grep '"model.decoder.layers.2.post_feedforward_layernorm.weight":' | sed 's/.*"data_offsets":\[\([0-9]*\),.*/\1/')
head -c 128 /dev/zero | dd of="$file" bs=1 seek=$((8 + header + start)) conv=notrunc 2>/dev/null
check "verify names the layer" fails_saying "OFF  layer 2" "$DGEMMA" verify --reference "$temp/good.json" --kv-type f32 "$temp/spoilt"

# ---- what newcomers try ----
check "help COMMAND" says "usage: dgemma run" "$DGEMMA" help run
check "help of no command" fails_saying 'no command "dance"' "$DGEMMA" help dance
check "a number that is none" fails_saying "wanted a whole number from 0 on" "$DGEMMA" run -t fish hi
check "a fraction that is none" fails_saying "wanted a number" "$DGEMMA" run --top-p fish hi
for limit in parallel max-active max-connections max-body max-choices; do
    check "serve --$limit 0" fails_saying "wanted a whole number from 1 on" "$DGEMMA" serve --$limit 0
done
printf '{"type": "object",\n "\303\251": {"a": }}' >"$temp/broken.json"
for option in json-schema grammar; do
    check "run, a broken --$option has a name" fails_saying "$temp/broken.json: the " "$DGEMMA" run -q --$option "$temp/broken.json" hi
done
check "a broken schema has a line" fails_saying "$temp/broken.json: the schema: JSON: not a value at line 2, column 13" constrain --json-schema "$temp/broken.json" x
check "broken tools have a line" fails_saying "$temp/broken.json: tools: JSON: not a value at line 2" "$DGEMMA" run -q -m "$model" --tools "$temp/broken.json" hi
check "a broken conversation has a line" fails_saying "$temp/broken.json: the conversation: JSON: not a value at line 2" "$DGEMMA" run -q -m "$model" --messages "$temp/broken.json"
check "a broken schema from a pipe" fails_saying "standard input: the schema" sh -c '"$0" constrain --json-schema - x <"$1"' "$DGEMMA" "$temp/broken.json"
check "a tool that is nobody's" fails_saying 'none is called "fly"' constrain --tools "$temp/tools.json" --tool-choice fly x
check "compact, of nothing" fails_saying "--compact goes with" "$DGEMMA" run -m "$model" --compact hi
check "lenient, of nothing" fails_saying "--lenient goes with" constrain --regex a --lenient a
narrow() {
    for command in $commands; do
        "$DGEMMA" "$command" --help | awk -v c="$command" 'length > 100 { print c ": " $0; wide = 1 } END { exit wide }' || return 1
    done
}
check "help is at most 100 columns wide" narrow
check "the example of a schema" says accepted constrain --json-schema examples/person.json '{"name": "Ada", "age": 36}'
check "what it refuses" fails_saying "rejected at byte 23: could go on with [0-9]" constrain --json-schema examples/person.json '{"name": "Ada", "age": -1}'
check "the example of a picture" says "red circle" "$DGEMMA" run -q --image examples/picture.png "What is in the picture?"
check "the example of a conversation" says Rome "$DGEMMA" run -q --messages examples/chat.json --tools examples/tools.json

# ---- decide ----
differ() { ! cmp -s "$1" "$2"; }
decide() { "$DGEMMA" decide -m models/pocket/pocket.gguf "$@"; }
printf '{"questions": {"warm": {"type": "noul", "instructions": "Is it warm?"}, "town": {"type": "choice", "criteria": {"Rome": "in Italy", "Oslo": null}}, "loud": {"type": "score", "criteria": ["low", "high"]}}}' >"$temp/questions.json"
check "decide" says "Is it warm?: " decide --yes-no "Is it warm?" "The sun shines."
check "decide, a score" says ", score " decide --score "How loud?=low,high" ""
check "decide, questions of a file" says "town: " decide --questions "$temp/questions.json" --state examples/person.json
decide --json --questions "$temp/questions.json" x >"$temp/decided"
decide --json --questions "$temp/questions.json" -t 1 --cpu-flags ref --seed 1 x >"$temp/redecided"
check "decide, in JSON" says '"choice": ' cat "$temp/decided"
check "decide, another seed is another noise" differ "$temp/decided" "$temp/redecided"
decide --json --questions "$temp/questions.json" -t 3 x >"$temp/redecided"
check "decide, the same with other threads" cmp "$temp/decided" "$temp/redecided"
{
    for i in 1 2 3; do
        printf '{"state": "case %d", "questions": {"a": {"type": "noul"}, "b": {"type": "score", "criteria": ["x", "y"]}}, "answers": {"a": true, "b": %d}}\n' "$i" "$((i % 2))"
    done
} >"$temp/cases.jsonl"
check "decide, calibrated" says "6 answers" decide --calibrate "$temp/cases.jsonl"
printf '{"state": "x", "questions": {"a": {"type": "noul"}}, "answers": {"a": 3}}\n' >>"$temp/cases.jsonl"
check "decide, a case without its answer" fails_saying 'cases.jsonl: line 4: "a" has no answer' decide --calibrate "$temp/cases.jsonl"
check "decide, an option twice" fails_saying 'has option "a" twice' decide --choice "Which?=a,b,a" x
check "decide, a question twice" fails_saying '"Is it?" is asked twice' decide --yes-no "Is it?" --yes-no "Is it?" x
printf 'a\000b' >"$temp/nul"
printf 'a\377b' >"$temp/latin"
check "decide, a question that is no text" fails_saying "question 1 is not UTF-8" decide --json --yes-no "$(cat "$temp/latin")" x
check "decide, an option that is no text" fails_saying "option 2 is not UTF-8" decide --json --score "Which?=a,$(cat "$temp/latin")" x
check "decide, a state that is no text" fails_saying "latin: it is not UTF-8" decide --yes-no "Is it?" --state "$temp/latin"
check "decide, a state with a NUL byte" fails_saying "nul: there is a NUL byte" decide --yes-no "Is it?" --state "$temp/nul"
check "infill, a NUL byte" fails_saying "nul: there is a NUL byte" "$DGEMMA" infill -q -m "$model" --prefix "$temp/nul" --suffix "$temp/after"
check "edit, a NUL byte" fails_saying "nul: there is a NUL byte" "$DGEMMA" edit -q -m "$model" "$temp/nul" --range 0:1
check "decide, nothing asked" fails_saying "ask something" decide x
check "decide, options that are none" fails_saying "does not fit" decide --choice "Which?" x
check "decide, a type that is none" fails_saying "its type is noul" sh -c 'echo "{\"q\": {\"type\": \"box\"}}" | "$0" decide --questions - x' "$DGEMMA"

# ---- documents that repeat what --help says ----
in_man_page() {
    for command in $commands; do
        for option in $("$DGEMMA" "$command" --help | grep -o -e '--[a-z-]*' | sort -u); do
            sed 's/\\-/-/g' docs/man/dgemma.1 | grep -qF -e "$option" ||
                { echo "$command $option is not in the man page"; return 1; }
        done
    done
}
check "the man page has every option" in_man_page

if command -v bash >/dev/null; then
    complete() { # complete WORDS...: what bash would offer for the last one
        PATH="$(dirname "$DGEMMA"):$PATH" bash -c '. completions/dgemma.bash
            COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)); _dgemma; printf "%s\n" "${COMPREPLY[@]}"' bash "$@"
    }
    check "completion of commands" says inspect complete dgemma ins
    check "completion of options" says --entropy-bound complete dgemma run --ent
    check "completion of values" says bf16 complete dgemma run --kv-type b
    check "completion for chat" says --no-live complete dgemma chat --no-l
    check "completion of types" says Q4_K_M complete dgemma bench --synthetic Q4_K
    check "completion of types to write" says Q4_K_M complete dgemma quantize --type Q4_K
    check "completion of colours" says always complete dgemma chat --color a
else
    skip "completions" "there is no bash"
fi
finish
