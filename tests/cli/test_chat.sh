#!/bin/sh
# dgemma chat without a terminal, and `make run` without one. From the environment: DGEMMA, and what make hands down.
. tests/support/shell_test.sh

model=tests/fixtures/golden/sampler_finishes/model    # has a tokenizer
bare=tests/fixtures/golden/text/model                 # has none

chat() { "$DGEMMA" chat -m "$model" -n 40 --seed 3 --hide-thinking "$@" 2>"$temp/err"; }

# ---- lines through a pipe ----
"$DGEMMA" run -q -m "$model" -n 40 --seed 3 --hide-thinking "Hello there" >"$temp/run" 2>/dev/null </dev/null
echo "Hello there" | chat >"$temp/pipe"
check "the answer of a line is that of run" cmp "$temp/run" "$temp/pipe"
chat -p "Hello there" >"$temp/option" </dev/null
check "the first message as an option" cmp "$temp/run" "$temp/option"
printf 'Hello \\\nthere\n/save %s/joined.json\n' "$temp" | chat >/dev/null
check "a line that goes on is one message" grep -qF '"Hello \nthere"' "$temp/joined.json"
printf 'one\n/save %s/a.json\ntwo\n/save %s/b.json\n' "$temp" "$temp" | chat >/dev/null
count() { grep -c '"role"' "$1"; }
printf 'Hello there\r\n/seed 3\r\n\r\n/exit\r\n' | chat >"$temp/crlf"
check "lines of Windows" test $? = 0
check "lines of Windows are answered alike" cmp "$temp/run" "$temp/crlf"
printf 'Hello \\\r\nthere\r\n/save %s/crlf.json\r\n' "$temp" | chat >/dev/null
check "lines of Windows go on" cmp "$temp/joined.json" "$temp/crlf.json"
check "a conversation grows" test "$(count "$temp/a.json") $(count "$temp/b.json")" = "2 4"
no_escapes() { ! grep -q "$(printf '\033\\[')" "$temp/pipe"; }
check "no escapes in a pipe" no_escapes

fails_chat() {
    text=$1
    shift
    if "$DGEMMA" chat "$@" >"$temp/fails.log" 2>&1 </dev/null; then return 1; fi
    cat "$temp/fails.log"
    grep -qF -- "$text" "$temp/fails.log"
}
check "a model without a tokenizer" fails_chat "no tokenizer" -m "$bare"
check "a color that is none" fails_chat "does not fit" -m "$model" --color blue
check "a word that is none" fails_chat "one word too many" -m "$model" hello
check "a picture that is none" fails_chat "not a PNG" -m "$model" --image README.md
check "a system message that is no UTF-8" fails_chat "UTF-8" -m "$model" --system "$(printf '\377')"

says() { grep -qF -- "$1" "$temp/err" || { cat "$temp/err"; return 1; }; }
# a word of the answer written anew: the rest of it stays, in what is shown and in what is kept
rewrite() {
    word=$(grep -o '[a-z]' "$temp/once" | head -n 1)
    printf '%s\n' "Hello there" "/rewrite \"$word\" shorter" "/save $temp/anew.json" | chat --steps 8 >"$temp/anew" || return 1
    says "Anew, with seed 4." && grep -c '"role"' "$temp/anew.json" | grep -qx 2 && grep -qF "$(cat "$temp/once")" "$temp/anew"
}
printf 'Hello there\n' | chat --steps 8 >"$temp/once"
check "a passage anew" rewrite
# a model that loses the end of its file between two lines: no signal, but words
cp -r "$model" "$temp/cut"
chmod -R u+w "$temp/cut"
cut_between() {
    { echo one; until [ -s "$temp/out" ]; do sleep 0.1; done
      truncate -s 4096 "$temp/cut/model.safetensors"; echo two; } |
        timeout 600 "$DGEMMA" chat -m "$temp/cut" -n 4 >"$temp/out" 2>"$temp/err"
    [ $? -eq 1 ] && says "model.safetensors was cut short"
}
check "a model file that is cut short" cut_between
# fails_after NAME LINES...: the chat goes on to the end of its lines, and then fails
fails_after() {
    name=$1
    shift
    printf '%b\n' "$@" | chat >"$temp/out"
    code=$?
    check "$name fails in the end" test "$code" = 1
}
fails_after "a message that is no UTF-8" '\0377' Hello
check "a message that is no UTF-8" says "not valid UTF-8"
check "the next one is answered" test -s "$temp/out"
head -c 17000000 /dev/zero | tr '\0' x | chat >"$temp/out"
check "a message that is too long fails" test $? = 1
check "a message that is too long" says "at most 16777216 bytes"
printf 'Hello\n' | "$DGEMMA" chat -m "$model" -c 8 >"$temp/out" 2>"$temp/err"
check "a conversation past the context fails" test $? = 1
check "a conversation past the context" says "maximum context length is 8 tokens"
fails_after "a file that is not there" "/load $temp/none.json" Hello
check "a file that is not there" says "No such file"
check "and the next line is answered" test -s "$temp/out"
fails_after "a command that is none" /dance Hello
echo Hello | chat >/dev/full
check "an answer on a full disk fails" test $? = 1
check "an answer on a full disk" says "cannot be written"
printf '/load %s\nGo on\n' "$temp/b.json" | chat >"$temp/out"
check "a chat that went well" test $? = 0
check "a conversation goes on" test -s "$temp/out"
printf '[{"role": "user", "content": [{"type": "dance"}]}]' >"$temp/dance.json"
printf '/load %s\nGo on\n/stats\n' "$temp/dance.json" | chat >"$temp/out"
check "what only the library sees in a file" says 'content[0].type: "dance"'
kills() {
    mkfifo "$temp/fifo"
    "$DGEMMA" chat -m "$model" <"$temp/fifo" >/dev/null 2>&1 &
    pid=$!
    exec 9>"$temp/fifo"
    sleep 1
    kill -"$1" $pid
    wait $pid
    code=$?
    exec 9>&-
    rm "$temp/fifo"
    echo "status $code, wanted $2"
    [ "$code" = "$2" ]
}
check "ended by SIGTERM" kills TERM 143

# ---- make run, without a terminal ----
three_answers() {
    make run RUN_MODEL="$model" RUN_ARGS='-n 20 --seed 5 --t-max 1.6 --t-min 0.3' >"$temp/make" 2>&1 </dev/null ||
        { cat "$temp/make"; return 1; }
    cat "$temp/make"
    [ "$(grep -ac '^> W' "$temp/make")" = 3 ] && [ "$(grep -ac '^block 0 step  1 ' "$temp/make")" = 3 ] &&
        [ "$(grep -ac '^block 0 step  2 ' "$temp/make")" = 3 ] && ! grep -aq '^block 0 step  3 .*kept' "$temp/make" &&
        [ "$(grep -ac 'tokens/s; prompt' "$temp/make")" = 3 ] && grep -aq 'chat .* talk with it' "$temp/make"
}
check "make run answers three samples" three_answers
case $DGEMMA in
build/release/*) check "make run names the program as the README does" grep -aq '^ *build/dgemma chat ' "$temp/make" ;;
esac
run_fails() { ! make run RUN_MODEL="$temp/none" >"$temp/make" 2>&1 </dev/null && grep -q "No such file" "$temp/make"; }
check "make run with a model that is not there" run_fails
if [ -e models/pocket/pocket.gguf ]; then
    pocket() { make run >"$temp/make" 2>&1 </dev/null && [ "$(grep -c 'pocket model answers' "$temp/make")" = 1 ]; }
    check "make run on the pocket model" pocket
    check "what a canvas ends in is told once" grep -q 'is Paris\.<turn|><pad> ×56$' "$temp/make"
else
    skip "make run on the pocket model" "models/pocket/pocket.gguf is not in this tree"
fi
finish
