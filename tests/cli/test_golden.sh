#!/bin/sh
# The golden runner finds what is wrong: a comparison that cannot fail proves nothing. From the environment: BUILD, SAN.
. tests/support/shell_test.sh

if [ -n "${SAN:-}" ]; then
    skip "the golden runner's own eyes" "a sanitized build runs the traces themselves; this takes minutes there"
    finish
fi

# fresh FIXTURE: a copy to spoil, in $temp/x
fresh() {
    rm -rf "$temp/x"
    mkdir "$temp/x"
    cp -rL "tests/fixtures/golden/$1" "$temp/x/$1"
    chmod -R u+w "$temp/x"
}
# wrong NAME [TEXT]: the runner must fail, and say why
wrong() {
    check "$1" fails_saying "${2:-FAILED}" "$BUILD/dgemma-golden" --threads 1 "$temp/x"
}
# Where a tensor's data starts in a file: the header's length, and the offset it names.
offset_of() {
    header=$(od -An -tu8 -N8 "$1" | tr -d ' ')
    start=$(dd if="$1" bs=1 skip=8 count="$header" 2>/dev/null | tr '}' '\n' | grep "\"$2\":" |
        sed 's/.*"data_offsets":\[\([0-9]*\),.*/\1/')
    echo $((8 + header + start))
}
# spoil FILE TENSOR BYTE: flips bits of one byte of the tensor
spoil() {
    at=$(($(offset_of "$1" "$2") + $3))
    old=$(od -An -tu1 -j "$at" -N1 "$1" | tr -d ' ')
    new=$(printf '\\%03o' $(((old + 64) % 256)))
    # shellcheck disable=SC2059 # an octal escape
    printf "$new" | dd of="$1" bs=1 seek="$at" conv=notrunc 2>/dev/null
}

for what in encoder.prompt.out cache.prompt.k.1 cache.commit.v.2 logits.0 logits.2 decoder.1.hidden.3; do
    fresh text
    spoil "$temp/x/text/trace.safetensors" "$what" 3
    wrong "a wrong value in $what"
done
for what in step.argmax step.sampled step.accepted step.finished step.next_canvas sequences; do
    fresh generate_stable2
    spoil "$temp/x/generate_stable2/trace.safetensors" "$what" 0
    wrong "a wrong value in $what"
done
for what in step.accepted step.finished step.next_canvas step.processed; do
    fresh sampler_finishes
    spoil "$temp/x/sampler_finishes/trace.safetensors" "$what" 3
    wrong "a wrong value in $what of a sampler trace"
done
fresh vision
spoil "$temp/x/vision/trace.safetensors" image_features 3
wrong "a wrong image feature" "image_features"
fresh vision
spoil "$temp/x/vision/trace.safetensors" encoder.prompt.out 3
wrong "a wrong encoder output behind a picture" "encoder.prompt.out"
fresh vision
spoil "$temp/x/vision/trace.safetensors" image_position_ids 0
wrong "a patch in another place" "image_position_ids"
fresh vision
spoil "$temp/x/vision/model/model.safetensors" model.encoder.vision_tower.encoder.layers.1.mlp.up_proj.linear.weight 1
wrong "a wrong weight of the tower" "image_features"
fresh vision_generate
spoil "$temp/x/vision_generate/model/model.safetensors" model.encoder.vision_tower.encoder.layers.1.mlp.up_proj.linear.weight 1
wrong "a wrong weight behind a generation" "step.processed"
fresh vision_generate
sed -i 's/"use_bidirectional_attention": "vision"/"use_bidirectional_attention": null    /' "$temp/x/vision_generate/model/config.json"
wrong "a picture that is read causally" "step.processed"
for what in prompt draw.canvas step.argmax step.sampled step.accepted step.finished step.next_canvas sequences; do
    fresh pocket_thinking
    spoil "$temp/x/pocket_thinking/trace.safetensors" "$what" 0
    wrong "a wrong value in $what of the small model"
done
for what in step.entropy step.processed; do
    fresh pocket_thinking
    spoil "$temp/x/pocket_thinking/trace.safetensors" "$what" 3
    wrong "a wrong value in $what of the small model" "${what#step.} of step 0"
done
fresh pocket_picture
spoil "$temp/x/pocket_picture/trace.safetensors" pixel_values 3
wrong "a wrong pixel before the small model" "pixel value 0"
fresh pocket_thinking
sed -i 's|"models/pocket/pocket.gguf": "[0-9a-f]*"|"models/pocket/pocket.gguf": "0123456789abcdef"|' "$temp/x/pocket_thinking/trace.json"
wrong "a trace of another model" "make the trace again"
fresh pocket_thinking
sed -i 's|"model": "models/pocket/|"model": "models/purse/|' "$temp/x/pocket_thinking/trace.json"
wrong "a model that is not there" "models/purse/pocket.gguf"
fresh pocket_thinking
sed -i 's/"step\.kept"/"step.kind"/' "$temp/x/pocket_thinking/trace.safetensors"
wrong "logits of nobody knows which positions" "lacks step.kept"
fresh text
spoil "$temp/x/text/model/model.safetensors" model.decoder.layers.3.self_attn.q_proj.weight 1
wrong "a wrong weight"

fresh peft
rm -r "$temp/x/peft/adapter"
wrong "an adapter that is not there" "encoder.prompt.hidden.1"
fresh peft
sed -i 's/"lora_alpha": 3/"lora_alpha": 4/' "$temp/x/peft/adapter/adapter_config.json"
wrong "a wrong factor of an adapter" "encoder.prompt.hidden.1"

fresh text
sed -i 's/"kind": "forward"/"kind": "mystery"/' "$temp/x/text/trace.json"
wrong "an unknown kind" 'kind "mystery"'
fresh text
sed -i 's/"logits\.2"/"logits.9"/' "$temp/x/text/trace.safetensors"
wrong "a missing tensor" "lacks logits.2"
fresh generate_early
sed -i 's/"step.finished"/"step.finishes"/; s/"step.accepted"/"step.acceptex"/' "$temp/x/generate_early/trace.safetensors"
wrong "a broken header"
fresh text
rm "$temp/x/text/model/config.json"
wrong "a missing config" "config.json"
fresh text
rm "$temp/x/text/trace.safetensors"
wrong "a missing trace" "trace.safetensors"

rm -rf "$temp/x"
mkdir "$temp/x"
cp -r tests/data/images "$temp/x/images"
chmod -R u+w "$temp/x"
check "pictures" "$BUILD/dgemma-golden" "$temp/x"
spoil "$temp/x/images/expected.safetensors" square.torch 999
wrong "a wrong byte of a picture" "square: byte 999"
cp -r tests/data/images/. "$temp/x/images"
spoil "$temp/x/images/expected.safetensors" tower.size 0
wrong "a wrong size of a picture" "tower: "
cp -r tests/data/images/. "$temp/x/images"
rm "$temp/x/images/strip.png"
wrong "a missing picture" "no picture strip"

rm -rf "$temp/x"
mkdir "$temp/x"
check "an empty folder" fails_saying "no fixture there" "$BUILD/dgemma-golden" "$temp/x"

check "the reference kernels" "$BUILD/dgemma-golden" --cpu-flags ref tests/fixtures/golden
check "small chunks" "$BUILD/dgemma-golden" --chunk 3 tests/fixtures/golden
check "one thread" "$BUILD/dgemma-golden" --threads 1 tests/fixtures/golden
finish
