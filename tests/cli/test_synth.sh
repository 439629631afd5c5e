#!/bin/sh
# dgemma synth: files that load and run, and what it refuses.
. tests/support/shell_test.sh

tiny=$temp/tiny.gguf

# says TEXT COMMAND...: the command succeeds and prints a line with TEXT in it
says() {
    text=$1
    shift
    "$@" >"$temp/says.log" 2>&1 </dev/null || { cat "$temp/says.log"; return 1; }
    cat "$temp/says.log"
    grep -qF -- "$text" "$temp/says.log"
}
nothing_left() { ! ls "$temp" | grep -q '^half'; }

check "synth" says "tiny, Q4_K_M" "$DGEMMA" synth --shape tiny -o "$tiny"
check "inspect" says "12 layers, 256 wide, 1024 words" "$DGEMMA" inspect "$tiny"
check "its types" says "Q5_0" "$DGEMMA" inspect "$tiny"
check "its template" says "chat template: revision a" "$DGEMMA" inspect "$tiny"
check "run" says "ended by" "$DGEMMA" run -m "$tiny" -n 8 --steps 2 Hello
check "another seed, another file" says "tiny" "$DGEMMA" synth --shape tiny --seed 1 -o "$temp/other.gguf"
check "which differs" fails_saying "differ" cmp "$tiny" "$temp/other.gguf"
check "fewer layers" says "tiny" "$DGEMMA" synth --shape tiny --layers 7 --type BF16 -o "$temp/seven.gguf"
check "are what was asked for" says "7 layers" "$DGEMMA" inspect "$temp/seven.gguf"

# the tokenizer of another model
for from in tests/fixtures/gguf/tiny.gguf tests/fixtures/golden/sampler_finishes/model \
    tests/fixtures/golden/sampler_finishes/model/tokenizer.json; do
    check "a tokenizer from $from" says "tiny" "$DGEMMA" synth --shape tiny --tokenizer "$from" --force -o "$temp/taken.gguf"
    case $from in *.json) from=${from%/*} ;; esac
    check "gives the same ids" says "$("$DGEMMA" tokenize -m "$from" "Hello there")" "$DGEMMA" tokenize -m "$temp/taken.gguf" "Hello there"
done
check "one that is too large" fails_saying "room for 1024" "$DGEMMA" synth --shape tiny \
    --tokenizer models/pocket/pocket.gguf -o "$temp/half.gguf"
check "none at all" fails_saying "No such file" "$DGEMMA" synth --shape tiny --tokenizer "$temp/none" -o "$temp/half.gguf"
printf '{"model": 3}' >"$temp/tokenizer.json"
check "not a tokenizer" fails_saying "tokenizer.json" "$DGEMMA" synth --shape tiny --tokenizer "$temp" -o "$temp/half.gguf"

# ---- what makes no sense ----
check "a file that is there" fails_saying "is there already" "$DGEMMA" synth --shape tiny -o "$tiny"
check "a folder" fails_saying "is a folder" "$DGEMMA" synth --shape tiny -f -o "$temp"
check "no file" fails_saying "-o FILE" "$DGEMMA" synth --shape tiny
check "no such shape" fails_saying 'the shape "huge" is not known' "$DGEMMA" synth --shape huge -o "$temp/half.gguf"
check "no such type" fails_saying "is not known: BF16" "$DGEMMA" synth --shape tiny --type Q9 -o "$temp/half.gguf"
check "more layers than there are" fails_saying "has 1 to 12" "$DGEMMA" synth --shape tiny --layers 13 -o "$temp/half.gguf"
check "no layers" fails_saying "does not fit" "$DGEMMA" synth --shape tiny --layers 0 -o "$temp/half.gguf"
check "layers beyond all numbers" fails_saying "does not fit" "$DGEMMA" synth --layers 99999999999999999999 -o "$temp/half.gguf"
check "nothing is left of them" nothing_left

# a limit on the size of files, as a full disk would be: the write fails, and what was there goes
cut_short() { ( trap '' XFSZ; ulimit -f 2000; "$DGEMMA" synth --shape tiny -o "$temp/half.gguf" ); }
check "no room on the way" fails_saying "half.gguf" cut_short
check "nothing is left of it" nothing_left

# a place with less room than the true model takes: the smallest of those that can be written to
small=
for dir in "$temp" /dev/shm /run/user/"$(id -u)" /tmp; do
    [ -d "$dir" ] && [ -w "$dir" ] || continue
    free=$(df -Pk "$dir" 2>/dev/null | awk 'NR == 2 {print $4}')
    [ "${free:-99999999}" -lt 47000000 ] && small=$dir && break
done
if [ -n "$small" ]; then
    [ "$free" -lt 97657 ] && unit=MB || unit=GB # what is less than a tenth is told in MB
    check "no room from the start" fails_saying "$unit are free there" "$DGEMMA" synth --type BF16 -o "$small/half.$$.gguf"
    check "not even begun" test ! -e "$small/half.$$.gguf.partial"
else
    skip "no room from the start" "every disk here has room for 50 GB"
fi

# Ctrl-C
interrupted() {
    timeout -s INT -k 600 1 "$DGEMMA" synth --layers 30 -o "$temp/half.gguf"
    [ $? -eq 124 ] && nothing_left
}
if [ "$(df -Pk "$temp" | awk 'NR == 2 {print $4}')" -gt 20000000 ]; then
    check "an interrupt leaves nothing" interrupted
else
    skip "an interrupt leaves nothing" "there is too little room to be interrupted in time"
fi
finish
