#!/bin/sh
# dgemma quantize: files that load and answer, what it prints, what it refuses, and what a kill leaves.
. tests/support/shell_test.sh

pocket=models/pocket/pocket.gguf
folder=tests/fixtures/golden/sampler_finishes/model
types="BF16 F16 Q8_0 Q6_K Q5_K_M Q4_K_M Q4_K_D Q4_0 Q4_1 IQ4_NL IQ4_XS MXFP4_MOE"

# says TEXT COMMAND...: the command succeeds and prints a line with TEXT in it
says() {
    text=$1
    shift
    "$@" >"$temp/says.log" 2>&1 </dev/null || { cat "$temp/says.log"; return 1; }
    cat "$temp/says.log"
    grep -qF -- "$text" "$temp/says.log"
}
nothing_left() { ! ls "$temp" | grep -q '^half'; }
quantize() { "$DGEMMA" quantize "$@"; }

# An importance file of the older form: one matrix, whose first half of inputs matters less
{
    printf '\001\000\000\000\023\000\000\000blk.0.attn_q.weight\001\000\000\000\000\001\000\000'
    i=0
    while [ $i -lt 256 ]; do
        [ $i -lt 128 ] && printf '\000\000\200\077' || printf '\000\000\200\100'
        i=$((i + 1))
    done
} >"$temp/imatrix.dat"

# ---- every type ----
for type in $types; do
    check "$type" says "$type, 188 tensors" quantize -q --type "$type" "$pocket" "$temp/$type.gguf"
    check "$type loads" says "8 layers, 256 wide" "$DGEMMA" inspect "$temp/$type.gguf"
    check "$type answers" says "Paris" "$DGEMMA" run -q -m "$temp/$type.gguf" --seed 1 "What is the capital of France?"
done
check "Q8_0 of Q8_0 loses nothing" says "error 0.00 %" quantize -q -f --type Q8_0 "$pocket" "$temp/Q8_0.gguf"
check "a folder" says "Q4_0, 143 tensors" quantize -q --type Q4_0 "$folder" "$temp/folder.gguf"
check "without its tower" says "(a vision tower) are left out" quantize -q -f --type Q4_0 "$folder" "$temp/folder.gguf"
check "with its tower" says "Q4_0, 143 tensors" quantize -q -f --type Q4_0 --mmproj "$temp/mmproj-folder.gguf" "$folder" "$temp/folder.gguf"
check "which is found beside it" says "vision" "$DGEMMA" inspect "$temp/folder.gguf"
check "a tower from the file beside a model" says "188 tensors" quantize -q -f --type Q8_0 --mmproj "$temp/pocket-tower.gguf" "$pocket" "$temp/Q8_0.gguf"
check "one file for both" fails_saying "cannot be both files" quantize -f --mmproj "$temp/half.gguf" "$pocket" "$temp/half.gguf"
rm -f "$temp/mmproj-folder.gguf"
check "no tower to write" fails_saying "no vision tower" quantize -f --mmproj "$temp/half-tower.gguf" "$temp/folder.gguf" "$temp/half.gguf"
check "which runs" says "ended by" "$DGEMMA" run -m "$temp/folder.gguf" -n 8 --steps 2 --raw Hello

# ---- folders ----
wide=tests/fixtures/golden/wide/model
check "FP8 as a folder" says "FP8, 288 tensors" quantize -q --type FP8 "$wide" "$temp/fp8"
check "which loads" says "3 layers, 256 wide" "$DGEMMA" inspect "$temp/fp8"
check "in memory of its own" says "5.5 MiB weights, 4.3 of them put together when the model is loaded, 1.2 mapped" "$DGEMMA" inspect "$temp/fp8"
check "where plain weights stay mapped" says "MiB weights, mapped from the file" "$DGEMMA" inspect "$wide"
check "NVFP4 as a folder" says "NVFP4, 322 tensors" quantize -q --type nvfp4 "$wide" "$temp/nvfp4/"
check "which loads too" says "3 layers, 256 wide" "$DGEMMA" inspect "$temp/nvfp4"
check "a folder in BF16" says "BF16, 202 tensors" quantize -q --type BF16 "$temp/fp8" "$temp/bf16"
check "a folder that is there" fails_saying "folders are not replaced" quantize -f --type FP8 "$wide" "$temp/fp8"
check "a folder from a file" says "BF16, 231 tensors" quantize -q --type BF16 "$pocket" "$temp/opened"
check "which has the tower" says "3 layers, 128 wide" "$DGEMMA" inspect "$temp/opened"
check "and computes the same" says "passed" "$DGEMMA" verify --reference models/pocket/pocket.reference.json "$temp/opened"
check "and answers" says "Paris" "$DGEMMA" run -q -m "$temp/opened" --seed 1 "What is the capital of France?"
check "back to a file" says "Q8_0, 188 tensors" quantize -q --type Q8_0 "$temp/opened" "$temp/closed.gguf"
check "which answers too" says "Paris" "$DGEMMA" run -q -m "$temp/closed.gguf" --seed 1 "What is the capital of France?"
for type in FP8 NVFP4; do
    check "$type of rows of 96 values" says "$type, " quantize -q --type "$type" "$pocket" "$temp/odd-$type"
    check "which answers in $type" says "Paris" "$DGEMMA" run -q -m "$temp/odd-$type" --seed 1 "What is the capital of France?"
done
cp -r "$temp/odd-FP8" "$temp/nan"
tr '\000' '\377' </dev/zero | dd of="$temp/nan/model.safetensors" bs=4096 seek=1000 count=1000 conv=notrunc iflag=fullblock 2>/dev/null
check "values that are none" fails_saying "$temp/nan: model.decoder.layers." "$DGEMMA" run -m "$temp/nan" hi
check "NVFP4 as a file" fails_saying "written as a folder" quantize --type NVFP4 "$wide" "$temp/half.gguf"
check "nothing is left of these" nothing_left

# ---- the report ----
check "a line for each matrix" says "blk.7.ffn_down_exps.weight       8 x 256 x 96       Q8_0    -> Q8_0      8.50" \
    quantize -f "$pocket" "$temp/Q4_K_M.gguf"
check "with what is lost" says "error 5." quantize -f "$pocket" "$temp/Q4_K_M.gguf"
check "what was lost before is told" says "what they lost then stays lost" quantize -q -f "$pocket" "$temp/Q4_K_M.gguf"
check "a dry run" says "blk.1.ffn_down.weight            256 x 384          Q8_0    -> Q5_0      5.50" quantize --dry-run "$pocket"
check "has the size" says "7.1 MB of 11.1, 5.40 bits a weight; nothing was written" quantize -n "$pocket" "$temp/half.gguf"
check "and leaves nothing" nothing_left

# ---- weights of errors ----
check "an importance file" says "1 matrix weighted" quantize -q --type Q4_0 --imatrix "$temp/imatrix.dat" "$pocket" "$temp/weighted.gguf"
check "changes the file" fails_saying "differ" cmp "$temp/weighted.gguf" "$temp/Q4_0.gguf"
check "not one" fails_saying "no importance file" quantize --imatrix "$pocket" "$pocket" "$temp/half.gguf"
check "of another model" fails_saying "nothing for any matrix" quantize --imatrix tests/fuzz/corpus/importance/short.dat "$pocket" "$temp/half.gguf"
check "of another size" fails_saying "weights in the importance file" quantize --imatrix tests/fuzz/corpus/importance/two.gguf "$pocket" "$temp/half.gguf"

# ---- adapters ----
atlantis() { "$DGEMMA" run -q -m "$1" --seed 1 "What is the capital of Atlantis?"; }
check "an adapter merged" says "Q8_0, 188 tensors" quantize -q --type Q8_0 --lora tests/fixtures/adapters/north "$pocket" "$temp/north.gguf"
check "is in the file" says "Oslo" atlantis "$temp/north.gguf"
check "at no strength" says "188 tensors" quantize -q --type Q8_0 --lora tests/fixtures/adapters/north:0 "$pocket" "$temp/zero.gguf"
check "it is not" says "sorry" atlantis "$temp/zero.gguf"
check "not an adapter" fails_saying "general.type" quantize --lora "$pocket" "$pocket" "$temp/half.gguf"
check "not with --check" fails_saying "goes with no --lora" quantize --check --lora tests/fixtures/adapters/north "$pocket" "$temp/half.gguf"

# ---- importance made from a text ----
imatrix() { "$DGEMMA" imatrix -m "$pocket" "$@"; }
check "importance from a text" says "72 matrices, from 4 canvases of 64 tokens" imatrix docs/quantize.md --chunks 4 -o "$temp/made.gguf"
check "the same with one thread" says "72 matrices" imatrix docs/quantize.md --chunks 4 -t 1 -o "$temp/one.gguf"
check "byte by byte" cmp "$temp/made.gguf" "$temp/one.gguf"
check "the older form" says "72 matrices" imatrix docs/quantize.md --chunks 4 -o "$temp/made.dat"
check "which quantize takes" says "72 matrices weighted" quantize -q -f --type Q4_0 --imatrix "$temp/made.gguf" "$pocket" "$temp/weighted.gguf"
check "in both forms" says "72 matrices weighted" quantize -q -f --type Q4_0 --imatrix "$temp/made.dat" "$pocket" "$temp/weighted.gguf"
echo "a short text" >"$temp/short.txt"
check "too little text" fails_saying "more text is needed" imatrix "$temp/short.txt" -o "$temp/half.gguf"
check "no output" fails_saying "FILE -o OUT" imatrix docs/quantize.md
stop_imatrix() {
    timeout -s INT -k 600 1.5 "$DGEMMA" imatrix -m "$pocket" docs/quantize.md -o "$temp/half.gguf"
    status=$?
    [ "$status" -eq 0 ] && rm -f "$temp/half.gguf" # it was faster
    nothing_left
}
check "an interrupted one leaves nothing" stop_imatrix

# ---- held to its source ----
cp "$temp/Q4_0.gguf" "$temp/checked.gguf"
check "a file that is there is compared" says "List five fruits" quantize --check "$pocket" "$temp/checked.gguf"
check "as it is" cmp "$temp/Q4_0.gguf" "$temp/checked.gguf"
check "one that is not is made first" says "Q8_0, 188 tensors" quantize -q --check --type q8_0 "$pocket" "$temp/made8.gguf"
printf 'What is the capital of France?\n\nReverse: abc\n' >"$temp/prompts.txt"
check "one that is not, of no type" fails_saying "half.gguf: to compare a file it has to be there" quantize --check "$pocket" "$temp/half.gguf"
check "with the usage" fails_saying "usage: dgemma quantize [OPTION]... IN OUT" quantize --check "$pocket" "$temp/half.gguf"
cp "$temp/made8.gguf" "$temp/kept8.gguf"
check "nor is one replaced" fails_saying "with --type it is written first" quantize --force --check "$pocket" "$temp/kept8.gguf"
check "which is as it was" cmp "$temp/made8.gguf" "$temp/kept8.gguf"
check "weights for no file" fails_saying "imatrix would do nothing" quantize --check --imatrix x.dat "$pocket" "$temp/made8.gguf"
check "one name alone" fails_saying "usage: dgemma quantize" quantize "$pocket"
check "other prompts" says "Reverse: abc" quantize --check --prompts "$temp/prompts.txt" "$pocket" "$temp/made8.gguf"
check "no prompts" fails_saying "prompts is empty" quantize --check --prompts /dev/null "$pocket" "$temp/made8.gguf"
printf 'Hello\rReverse: abc\rReverse: abd' >"$temp/returns.txt"
check "with other ends of lines" says "Reverse: abd" quantize --check --prompts "$temp/returns.txt" "$pocket" "$temp/made8.gguf"
check "no prompts for a file that is not there" fails_saying "No such file" quantize --check --type q8_0 --prompts "$temp/no.txt" "$pocket" "$temp/half.gguf"
check "nor for a dry run" fails_saying "No such file" quantize -n --check --prompts "$temp/no.txt" "$pocket"
yes Hello | head -10001 >"$temp/many.txt"
check "too many prompts" fails_saying "at most 10000" quantize --check --type q8_0 --prompts "$temp/many.txt" "$pocket" "$temp/half.gguf"
check "and nothing was written first" nothing_left
check "prompts for nothing" fails_saying "goes with --check" quantize --prompts "$temp/prompts.txt" "$pocket" "$temp/half.gguf"
check "a mask for llama.cpp" grep -qa tokenizer.ggml.mask_token_id "$temp/made8.gguf"
check "and is the same" says "100.0 %" quantize -q --check "$pocket" "$temp/made8.gguf"

# ---- what makes no sense ----
check "a file that is there" fails_saying "is there already" quantize "$pocket" "$temp/Q8_0.gguf"
check "onto itself" fails_saying "is what is read" quantize -f --type Q4_0 "$temp/Q8_0.gguf" "$temp/Q8_0.gguf"
ln -s Q8_0.gguf "$temp/link.gguf"
check "onto itself by another name" fails_saying "is what is read" quantize -f --type Q4_0 "$temp/Q8_0.gguf" "$temp/link.gguf"
cp "$temp/imatrix.dat" "$temp/weights.partial"
check "onto the importance file" fails_saying "is what is read" quantize -f --type Q4_0 --imatrix "$temp/imatrix.dat" "$pocket" "$temp/imatrix.dat"
check "or on the way there" fails_saying "is what is read" quantize -f --type Q4_0 --imatrix "$temp/weights.partial" "$pocket" "$temp/weights"
check "which are as they were" cmp "$temp/imatrix.dat" "$temp/weights.partial"
cp "$pocket" "$temp/model.gguf.partial"
cp "$temp/model.gguf.partial" "$temp/before.gguf"
check "a model that is called so" fails_saying "in each other's way" quantize -f --mmproj "$temp/x.gguf" "$pocket" "$temp/x.gguf.partial"
check "the tower onto the model" fails_saying "is what is read" quantize -f --mmproj "$temp/model.gguf" "$temp/model.gguf.partial" "$temp/half.gguf"
check "an importance file onto it" fails_saying "reads it" "$DGEMMA" imatrix -m "$temp/model.gguf.partial" --chunks 1 -o "$temp/model.gguf" docs/faq.md
check "keys and values onto it" fails_saying "reads it" "$DGEMMA" run -m "$temp/model.gguf.partial" --prompt-cache "$temp/model.gguf" hi
check "which is as it was" cmp "$temp/before.gguf" "$temp/model.gguf.partial"
cp docs/faq.md "$temp/text.gguf.partial"
check "an importance file onto its text" fails_saying "is what is read" "$DGEMMA" imatrix -m "$pocket" --chunks 1 -o "$temp/text.gguf" "$temp/text.gguf.partial"
check "which is still there" cmp docs/faq.md "$temp/text.gguf.partial"
check "no folder for an importance file" fails_saying "No such file" "$DGEMMA" imatrix -m "$pocket" -o "$temp/no/x.gguf" docs/faq.md
check "the tower in the model's place" fails_saying "cannot be both" quantize -f --mmproj "$temp/./one.gguf" "$pocket" "$temp/one.gguf"
cp "$pocket" models/pocket/mmproj-pocket.gguf "$temp"
check "the model in its tower's place" fails_saying "is what is read" quantize -f --mmproj "$temp/new.gguf" "$temp/pocket.gguf" "$temp/mmproj-pocket.gguf"
check "that is as it was" cmp models/pocket/mmproj-pocket.gguf "$temp/mmproj-pocket.gguf"
cp -r "$temp/odd-FP8" "$temp/source"
cp -r tests/fixtures/adapters/north "$temp/adapter"
chmod -R u+w "$temp/adapter"
echo '{{ bos_token }}' >"$temp/source/chat_template.jinja"
echo '{}' >"$temp/source/hf_quant_config.json"
for own in config.json generation_config.json tokenizer.json tokenizer_config.json model.safetensors chat_template.jinja hf_quant_config.json; do
    check "onto the folder's own $own" fails_saying "is what is read" quantize -f "$temp/source" "$temp/source/$own"
done
for own in adapter_config.json adapter_model.safetensors; do
    check "onto the adapter's $own" fails_saying "is what is read" quantize -f --lora "$temp/adapter" "$pocket" "$temp/adapter/$own"
    check "onto the $own of one that a file names" fails_saying "is what is read" quantize -f --lora "$temp/adapter/adapter_model.safetensors" "$pocket" "$temp/adapter/$own"
done
rm "$temp/source/hf_quant_config.json"
check "the template has what it had" grep -qx '{{ bos_token }}' "$temp/source/chat_template.jinja"
rm "$temp/source/chat_template.jinja"
check "which have what they had" diff -r "$temp/odd-FP8" "$temp/source"
check "and it as well" diff -r tests/fixtures/adapters/north "$temp/adapter"
rm -f "$temp"/model.gguf.partial "$temp"/text.gguf.partial "$temp"/mmproj-pocket.gguf "$temp"/pocket.gguf
cp -r "$wide" "$temp/in.partial"
check "a folder on the way to its own name" fails_saying "is there already" quantize --type FP8 "$temp/in.partial" "$temp/in"
ln -s in.partial "$temp/link.partial"
check "or a link to one" fails_saying "is there already" quantize --type FP8 "$wide" "$temp/link"
check "which has what it had" diff -r "$wide" "$temp/in.partial"
rm -rf "$temp/in.partial" "$temp/link.partial"
check "a folder as the file" fails_saying "is a folder" quantize -f "$pocket" "$temp"
check "no file" fails_saying "IN OUT" quantize "$pocket"
check "nothing at all" fails_saying "IN OUT" quantize
check "no such model" fails_saying "No such file" quantize "$temp/none.gguf" "$temp/half.gguf"
check "no such type" fails_saying "is not known: BF16" quantize --type Q9 "$pocket" "$temp/half.gguf"
check "which are those that can be made" fails_saying "MXFP4_MOE are" quantize --type Q9 "$pocket" "$temp/half.gguf"
check "a folder that is not written" says "OUT: FP8, 652 tensors" quantize -q -n --type FP8 "$pocket"
check "a type in small letters" says "nothing was written" quantize -n --type q4_k_m "$pocket"
check "a type that is only read" fails_saying "nothing is turned into that" quantize --type IQ1_S "$pocket" "$temp/half.gguf"
check "a mmproj file" fails_saying "clip" quantize models/pocket/mmproj-pocket.gguf "$temp/half.gguf"
check "no such folder" fails_saying "No such file" quantize "$pocket" "$temp/no/half.gguf"
check "nothing is left of them" nothing_left

check "no room from the start" fails_saying "MB, and 0 MB are free there" quantize -q --type Q4_0 "$pocket" /proc/half.gguf
# a limit on the size of files, as a full disk would be
cut_short() { ( trap '' XFSZ; ulimit -f 2000; quantize "$pocket" "$temp/half.gguf" ); }
check "no room on the way" fails_saying "half.gguf" cut_short
check "nothing is left of it" nothing_left

# ---- killed: there is no file under the name unless it is whole, and the next run makes one ----
killed() {
    for hundredths in 01 03 06 10 17 26 38 52; do
        "$DGEMMA" quantize -q -t 1 "$pocket" "$temp/killed.gguf" >/dev/null 2>&1 &
        sleep "0.$hundredths"
        kill -KILL $! 2>/dev/null
        wait $!
        [ ! -e "$temp/killed.gguf" ] || cmp "$temp/killed.gguf" "$temp/Q4_K_M.gguf" || { echo "a part of a file after 0.$hundredths s"; return 1; }
        rm -f "$temp/killed.gguf" # it was faster
    done
    quantize -q "$pocket" "$temp/killed.gguf" && [ ! -e "$temp/killed.gguf.partial" ] &&
        cmp "$temp/killed.gguf" "$temp/Q4_K_M.gguf"
}
check "a kill leaves no file" killed
interrupted() {
    timeout -s INT -k 600 0.3 "$DGEMMA" quantize -t 1 "$pocket" "$temp/half.gguf"
    cmp -s "$temp/half.gguf" "$temp/Q4_K_M.gguf" && rm -f "$temp/half.gguf" # it was faster
    nothing_left
}
check "an interrupt leaves nothing" interrupted
# Whoever interrupts may stand still for a moment, and the program be further then, or through: not each time.
interrupt() { # SAYS OPTION...
    said=$1
    shift
    for _ in 1 2 3 4 5; do
        rm -rf "$temp"/half*
        cp "$temp/before.gguf" "$temp/kept.gguf"
        "$DGEMMA" quantize -q -t 1 "$@" >"$temp/interrupted.log" 2>&1 &
        pid=$!
        soon listens_or_ended $pid
        kill -INT $pid 2>/dev/null
        wait $pid
        [ $? -eq 130 ] && grep -qxF "dgemma quantize: $said" "$temp/interrupted.log" && return
    done
    cat "$temp/interrupted.log"
    return 1
}
listens_or_ended() { listens "$1" || grep -q '^State:.*Z' "/proc/$1/status" || [ ! -e "/proc/$1" ]; }
stays() { interrupt "interrupted: $temp/kept.gguf is what it was before" -f "$pocket" "$temp/kept.gguf" && cmp "$temp/before.gguf" "$temp/kept.gguf"; }
check "and says so of a file" interrupt "interrupted: $temp/half.gguf was not finished, and nothing stays under that name" "$pocket" "$temp/half.gguf"
check "and of a folder" interrupt "interrupted: $temp/half was not finished, and nothing stays under that name" --type FP8 "$pocket" "$temp/half"
check "and of the tower" interrupt "the vision tower was not begun" --mmproj "$temp/half-tower.gguf" "$pocket" "$temp/half.gguf"
check "and of a file that was there" stays
check "nothing is left of those" nothing_left
finish
