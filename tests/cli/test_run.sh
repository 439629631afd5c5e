#!/bin/sh
# dgemma run as a person uses it. From the environment: DGEMMA.
. tests/support/shell_test.sh

model=tests/fixtures/golden/sampler_finishes/model    # has a tokenizer
bare=tests/fixtures/golden/text/model                 # has none

# prints STATUS PATTERN COMMAND...: the command ends with the status and prints a line like the pattern
prints() {
    want=$1 pattern=$2
    shift 2
    "$@" >"$temp/out" 2>&1 </dev/null
    got=$?
    echo "status $got"
    cat "$temp/out"
    [ "$got" = "$want" ] && grep -q -e "$pattern" "$temp/out"
}
expect() {
    name=$1
    shift
    check "$name" prints "$@"
}

expect "help names the command"         0 'run'                       "$DGEMMA" --help
expect "help of the command"            0 '--entropy-bound'           "$DGEMMA" run --help
expect "version"                        0 '^dgemma [0-9]'             "$DGEMMA" --version
expect "no command"                     2 'usage'                     "$DGEMMA"
expect "unknown command"                2 'no command "dance"'        "$DGEMMA" dance
expect "unknown option"                 2 'no option --dance'         "$DGEMMA" run --dance
expect "a value is missing"             2 'needs a value'             "$DGEMMA" run -m
expect "a value does not fit"           2 'does not fit'              "$DGEMMA" run -m "$model" --seed x hi
expect "two prompts"                    2 'the prompt once'           "$DGEMMA" run -m "$model" --tokens 1 hi
expect "a choice that is none"          2 '"x" does not fit.*whole, window or causal' "$DGEMMA" run --image-attention=x hi
expect "the option as it was typed"     2 'run: -n: "x" does not fit' "$DGEMMA" run -nx hi
expect "one word too many"              2 'one word too many'         "$DGEMMA" run -m "$model" hi there
expect "no such folder"                 1 'No such file'              "$DGEMMA" run -m "$temp/none" hi
expect "not a model"                    1 "$temp"                      "$DGEMMA" run -m "$temp" hi
expect "an empty prompt"                2 'there is no prompt'        "$DGEMMA" run -m "$model" ''
expect "a prompt of white space"        2 'there is no prompt'        "$DGEMMA" run -m "$model" ' '
expect "an empty prompt by a pipe"      2 'there is no prompt'        "$DGEMMA" run -m "$model"
expect "an empty prompt in tokens"      2 'empty'                     "$DGEMMA" run -m "$bare" --tokens ''
expect "tokens that are no numbers"     2 'expected token ids'          "$DGEMMA" run -m "$bare" --tokens 1,x
expect "a token out of range"           2 'not in the vocabulary'     "$DGEMMA" run -m "$bare" --tokens 1,999999
expect "text without a tokenizer"       1 'no tokenizer'              "$DGEMMA" run -m "$bare" hi
expect "a prompt past the context"      1 'context length is 4 tokens' "$DGEMMA" run -m "$bare" -c 4 --tokens 1,2,3,4,5
expect "a bad knob"                     2 '<= --t-min <= --t-max'                     "$DGEMMA" run -m "$model" --t-min 0 hi
expect "a negative t-min"               2 '--t-min'                   "$DGEMMA" run -m "$model" --t-min -1 hi
expect "a negative t-max"               2 '--t-max'                   "$DGEMMA" run -m "$model" --t-max -1 hi
expect "a negative entropy bound"       2 'dgemma: --entropy-bound is -1' "$DGEMMA" run -m "$model" --entropy-bound -1 hi
expect "a negative confidence"          2 'dgemma: --confidence is -1' "$DGEMMA" run -m "$model" --confidence -1 hi
expect "an instruction set not there"   2 '--cpu-flags "abacus": ref, neon' "$DGEMMA" run -m "$model" --cpu-flags abacus hi
expect "an answer, with statistics"     0 'tokens/s'                  "$DGEMMA" run -m "$model" -n 20 hi
expect "an answer in tokens"            0 '^[0-9 ]* $'                "$DGEMMA" run -m "$bare" -n 20 -q --tokens 9,8,7
expect "drafts"                         0 '^block 0 step  1'          "$DGEMMA" run -m "$model" -n 20 --draft hi
expect "JSON"                           0 '^{"text": ".*"tokens": \[.*"end": "' "$DGEMMA" run -m "$model" -n 20 -q --json hi

expect "keys and values for later"      0 'prompt [0-9]* tokens;'     "$DGEMMA" run -m "$model" -n 20 --prompt-cache "$temp/kv" hi
expect "and from the last time"         0 'of them known'             "$DGEMMA" run -m "$model" -n 20 --prompt-cache "$temp/kv" hi
expect "only to read"                   0 'of them known'             "$DGEMMA" run -m "$model" -n 20 --prompt-cache "$temp/kv" --prompt-cache-ro hi
expect "of other numerics"              1 'kv: it was made with numerics' "$DGEMMA" run -m "$model" --cpu-flags ref --prompt-cache "$temp/kv" hi
mkfifo "$temp/kv-pipe"
expect "a pipe, which would keep it waiting" 1 'kv-pipe: not a regular file' "$DGEMMA" run -m "$model" --prompt-cache "$temp/kv-pipe" hi
expect "nothing to read"                1 'none: No such file'        "$DGEMMA" run -m "$model" --prompt-cache "$temp/none" --prompt-cache-ro hi
expect "not with adapters"              2 'without --lora'            "$DGEMMA" run -m "$model" --prompt-cache "$temp/kv" --lora x hi
north=tests/fixtures/adapters/north
refuses_lora() { # WORD WANTED
    expect "an adapter given as $1"     2 "--lora: \"$1\" does not fit, wanted $2; \[NAME=\]PATH\[:SCALE\]" "$DGEMMA" run -m models/pocket/pocket.gguf --lora "$1" hi
}
for bad in strong "" nan -nan inf 0x1 0x1p-2 " 1" 1,5; do
    refuses_lora "$north:$bad" "a decimal number behind the colon"
done
for bad in 1e300 -1001 1000.1; do
    refuses_lora "$north:$bad" "a scale from -1000 to 1000"
done
for most in 1000 -1e3; do
    check "as strong as can be, $most" "$DGEMMA" run -q -m models/pocket/pocket.gguf --lora "$north:$most" -n 4 --seed 1 hi
done
refuses_lora "" "a path"
refuses_lora "=$north" "a name in front of the ="
refuses_lora "x=" "a path behind the ="
refuses_lora ":2" "a path in front of the scale"
refuses_lora "x=:2" "a path in front of the scale"
refuses_lora "tests=0.5" "the scale behind a colon"
expect "a name that is taken"           2 'two adapters are called "north"' "$DGEMMA" run -m models/pocket/pocket.gguf --lora "$north" --lora "north=$north" hi
many=$(yes -- "--lora $north" | head -n 65)
# shellcheck disable=SC2086 # many words
expect "more adapters than there may be" 2 'no more adapters: 64 are there' "$DGEMMA" run -m models/pocket/pocket.gguf $many hi
ln -s "$PWD/$north" "$temp/a:b"
expect "a colon in a path"              0 'Oslo'                      "$DGEMMA" run -q -m models/pocket/pocket.gguf --lora "$temp/a:b" "What is the capital of Atlantis?"
expect "and a scale behind it"          0 'Oslo'                      "$DGEMMA" run -q -m models/pocket/pocket.gguf --lora "n=$temp/a:b:0.9" "What is the capital of Atlantis?"
expect "no such adapter"                1 'nowhere:x: No such file'   "$DGEMMA" run -m models/pocket/pocket.gguf --lora nowhere:x hi
expect "no file at all"                 2 'goes with --prompt-cache'  "$DGEMMA" run -m "$model" --prompt-cache-ro hi
expect "a cold draw"                    0 'tokens/s'                  "$DGEMMA" run -m "$model" -n 20 --temperature 0 hi
expect "filtered draws"                 0 'tokens/s'                  "$DGEMMA" run -m "$model" -n 20 --temperature 1.3 --top-k 40 --top-p 0.9 --min-p 0.01 hi
expect "a temperature that is none"     2 'dgemma: --temperature is 500' "$DGEMMA" run -m "$model" --temperature 500 hi
expect "a number in another base"       2 'does not fit, wanted a number' "$DGEMMA" run -m "$model" --temperature 0x1 hi
expect "a negative temperature"         2 '--temperature is -1'       "$DGEMMA" run -m "$model" --temperature -1 hi
expect "a probability that is none"     2 '--top-p is 2'              "$DGEMMA" run -m "$model" --top-p 2 hi
expect "a negative min-p"               2 '--min-p is -1'             "$DGEMMA" run -m "$model" --min-p -1 hi
expect "settled beginnings"             0 'tokens/s'                  "$DGEMMA" run -m "$model" -n 20 --settled 2 hi
expect "a system prompt and thinking"   0 'tokens/s'                  "$DGEMMA" run -m "$model" -n 20 --system s --think hi
expect "thinking with a raw prompt"     2 'go with a chat'            "$DGEMMA" run -m "$model" --raw --think hi
expect "an unknown chat template"       2 '--chat-template "c": "a" and "b"' "$DGEMMA" run -m "$model" --chat-template c hi
expect "chat templates as help has them" 0 'chat-template a|b'        "$DGEMMA" run --help
expect "the same with serve"            0 'chat-template a|b'         "$DGEMMA" serve --help
expect "no time for an answer"          2 'does not fit'              "$DGEMMA" serve --timeout 0
expect "a conversation that is no JSON" 2 'dgemma:'                   "$DGEMMA" run -m "$model" --messages README.md
expect "tools that are no JSON"         2 'dgemma:'                   "$DGEMMA" run -m "$model" --tools README.md hi
expect "a file that is not there"       1 'No such file'              "$DGEMMA" run -m "$model" --messages "$temp/none"
picture=tests/fixtures/golden/vision/image.png
expect "a picture"                      0 'tokens/s'                  "$DGEMMA" run -m "$model" -n 20 --image "$picture" "What is it?"
expect "two pictures in their places"   0 'tokens/s'                  "$DGEMMA" run -m "$model" -n 20 --image "$picture" --image "$picture" "<|image|> or <|image|>?"
expect "a mark too few"                 2 'mark all or none'          "$DGEMMA" run -m "$model" --image "$picture" --image "$picture" "<|image|>?"
expect "a picture that is none"         1 'README.md'                 "$DGEMMA" run -m "$model" --image README.md "What is it?"
expect "a picture that is not there"    1 "^dgemma: $temp/none.png: No such file" "$DGEMMA" run -m "$model" --image "$temp/none.png" "What is it?"
expect "a budget that is none"          2 '--image-tokens is 9999'    "$DGEMMA" run -m "$model" --image "$picture" --image-tokens 9999 x
cat >"$temp/chat.json" <<'END'
[{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Weather in Paris?"},
 {"role": "assistant", "tool_calls": [{"id": "c1", "function": {"name": "weather", "arguments": "{\"city\": \"Paris\"}"}}]},
 {"role": "tool", "tool_call_id": "c1", "content": "sunny"}]
END
echo '[{"type": "function", "function": {"name": "weather", "description": "Weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}]' >"$temp/tools.json"
expect "a conversation with tools"      0 '"tool_calls": \['          "$DGEMMA" run -m "$model" -n 20 -q --json --messages "$temp/chat.json" --tools "$temp/tools.json"

ask() { "$DGEMMA" run -m "$model" -q -n 40 "$@"; }
printf 'Hello there' >"$temp/prompt"
ask --seed 3 "Hello there" >"$temp/word" </dev/null
ask --seed 3 --prompt "Hello there" >"$temp/option" </dev/null
ask --seed 3 --file "$temp/prompt" >"$temp/file" </dev/null
ask --seed 3 <"$temp/prompt" >"$temp/pipe"
ask --seed 3 --threads 1 "Hello there" >"$temp/thread" </dev/null
ask --seed 4 "Hello there" >"$temp/other" </dev/null
printf 'Hello' >"$temp/half"
printf 'Hello\n\nthere' >"$temp/both"
ask --seed 3 --file "$temp/both" >"$temp/joined" </dev/null
ask --seed 3 there <"$temp/half" >"$temp/pipe_and_word"
printf 'Hello\n' | ask --seed 3 -p there >"$temp/pipe_and_option"
ask --seed 3 -f "$temp/half" there >"$temp/file_and_word" </dev/null
: | ask --seed 3 "Hello there" >"$temp/empty_pipe"
for f in pipe_and_word pipe_and_option file_and_word; do
    check "text and words go together: $f" cmp "$temp/joined" "$temp/$f"
done
check "a pipe without text leaves the words" cmp "$temp/word" "$temp/empty_pipe"
no_words() { echo text | fails_saying "there is no prompt" "$DGEMMA" run -m "$model" "$1"; }
check "text with an empty prompt" no_words ""
check "text with a prompt of white space" no_words " "
told_to_wait() { grep -q 'waiting for the text on standard input' "$temp/told"; }
silent_pipe() {
    : >"$temp/told"
    soon told_to_wait | "$DGEMMA" run -q -m "$model" -n 4 hi 2>"$temp/told" >/dev/null
    told_to_wait
}
check "a pipe that stays silent is told of" silent_pipe
check "the answer is not empty" test -s "$temp/word"
for f in option file pipe thread; do
    check "the same answer by $f" cmp "$temp/word" "$temp/$f"
done
ask --seed 3 --temperature 1 --top-k 1000000 --top-p 1 "Hello there" >"$temp/open" </dev/null
check "filters that let all through change nothing" cmp "$temp/word" "$temp/open"
check "another seed, another answer" test "$(cksum <"$temp/word")" != "$(cksum <"$temp/other")"

# Descriptors that are closed are not given to anything else.
fails_without_output() { ! "$DGEMMA" run -m "$model" -q -n 4 hi >&-; }
check "output that is closed is a failure" fails_without_output
keeps_descriptors() {
    "$DGEMMA" serve -m "$model" --port 0 >"$temp/serves" <&- 2>&- &
    pid=$!
    soon test -s "$temp/serves"
    [ "$(readlink "/proc/$pid/fd/0")$(readlink "/proc/$pid/fd/2")" = /dev/null/dev/null ]
    kept=$?
    kill $pid
    wait $pid
    return $kept
}
check "a server without standard error" keeps_descriptors

# Ctrl-C in a block that takes for ever.
interrupted() {
    "$DGEMMA" run -m "$model" --steps 100000 --confidence 0 hi >"$temp/out" 2>"$temp/err" </dev/null &
    pid=$!
    until listens $pid; do kill -0 $pid || return 1; sleep 0.05; done
    sleep 0.5 # well into the block, so that it is the block that is left
    kill -INT $pid
    # a program that does not hear must not hold up the other tests
    (
        sleep 300 &
        trap 'kill $!; exit' TERM
        wait $! && kill -KILL $pid
    ) &
    guard=$!
    wait $pid
    code=$?
    kill $guard
    echo "status $code"
    cat "$temp/err"
    [ "$code" = 130 ] && grep -q "ended by cancelled" "$temp/err"
}
check "Ctrl-C ends an answer inside a block" interrupted

# Output that cannot be written. tests/cli/test_chat.sh has the chat.
lost() {
    "$@" >/dev/full 2>"$temp/err" </dev/null
    code=$?
    echo "status $code"
    cat "$temp/err"
    [ "$code" = 1 ] && grep -q "standard output cannot be written" "$temp/err"
}
"$DGEMMA" verify --record "$bare" >"$temp/record" 2>/dev/null
check "a full disk under run"           lost "$DGEMMA" run -m "$model" -n 20 hi
check "a full disk under run --json"    lost "$DGEMMA" run -m "$model" -n 20 --json hi
check "a full disk under inspect"       lost "$DGEMMA" inspect "$model"
check "a full disk under tokenize"      lost "$DGEMMA" tokenize -m "$model" hi
check "a full disk under verify"        lost "$DGEMMA" verify -r "$temp/record" "$bare"
check "a full disk under a record"      lost "$DGEMMA" verify --record "$bare"
check "a full disk under help"          lost "$DGEMMA" --help
check "a full disk under a help"        lost "$DGEMMA" run --help
check "a full disk under version"       lost "$DGEMMA" --version

for n in 20 20000 3000000; do
    head -c $n models/pocket/pocket.gguf >"$temp/cut.gguf"
    expect "a GGUF file of its first $n bytes" 1 "$temp/cut.gguf: .*truncated" "$DGEMMA" run -m "$temp/cut.gguf" hi
done
cp -r "$model" "$temp/cut"
chmod -R u+w "$temp/cut"
for n in 2000000 4096; do
    truncate -s $n "$temp/cut/model.safetensors"
    expect "safetensors of $n bytes" 1 "model.safetensors: .*truncated" "$DGEMMA" run -m "$temp/cut" hi
done
expect "the pocket model is what it was"  0 '^passed'                 "$DGEMMA" verify models/pocket/pocket.gguf
cp models/pocket/pocket.gguf "$temp/beside.gguf"
sed 's/\[2, /[3, /' models/pocket/pocket.reference.json >"$temp/beside.reference.json"
expect "a reference beside the model"     1 '^FAILED'                 "$DGEMMA" verify "$temp/beside.gguf"

if command -v python3 >/dev/null; then
    ask --seed 3 --json "Hello there" </dev/null >"$temp/json"
    check "the JSON is JSON" python3 -m json.tool "$temp/json"
else
    skip "the JSON is JSON" "there is no python3 to read it"
fi
finish
