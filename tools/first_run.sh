#!/bin/sh
# What `make run` shows: the chat on a terminal; without one, three sample prompts with some of their denoising steps.
#
#   first_run.sh PROGRAM [OPTION]...      the options go to the program
set -eu
program=$1
shift

if [ -t 0 ] && [ -t 1 ]; then
    exec "$program" chat "$@"
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT

# Of the first block the steps 1, 2, 4, 8, … are kept, of every block the last one.
some_steps() {
    awk -v named="$2" '
        function flush() { if (held != "") print held; held = "" }
        /^dgemma: no model was named/ { if (named) next }
        /^block [0-9]+ step/ {
            if ($2 != block) flush()
            block = $2
            held = $0
            step = $4 + 0
            while (step > 1 && step % 2 == 0) step /= 2
            if (block == 0 && step == 1) flush()
            next
        }
        { flush(); print }
        END { flush() }
    ' "$1"
}

named=
sample() {
    prompt=$1
    shift
    echo "> $prompt"
    code=0
    "$program" run --draft "$@" "$prompt" >"$log" 2>&1 </dev/null || code=$?
    some_steps "$log" "$named"
    named=1
    echo
    [ "$code" -eq 0 ] || exit "$code"
}

sample "What is the capital of France?" "$@"
sample "Write a rhyming couplet about a sleepy cat and the moon." "$@"
sample "What is 47 + 85?" --think "$@"

echo "Each line above is the whole canvas after a step: all places settle at once, not from left to right."
echo "Next:"
next() { printf '    %-32s  %s\n' "$1" "$2"; }
next "$program chat" "talk with it, and watch the canvas"
next "$program serve" "a page in the browser, and an API for programs"
next "$program run --help" "everything one prompt can have"
next "make run RUN_MODEL=model.gguf" "the same with a model of yours"
next "make test" "every test"
