#!/usr/bin/env python3
"""Writes a small Hugging Face checkpoint as GGUF, the way converters of DiffusionGemma do.

    tools/make_gguf_fixture.py tests/fixtures/golden/generate_early/model tests/fixtures/tiny_tokenizer.json \
        tests/fixtures/gguf/tiny.gguf

Needs the packages gguf and numpy. The file is written by the gguf package itself, so that our
reader is held to something that our writer had no part in. Weights keep their type, F32 or BF16: the logits of
both must be equal.
"""
import json
import sys

import gguf
import numpy

TOP = {
    "token_embd.weight": "embed_tokens.weight",
    "output_norm.weight": "norm.weight",
    "self_cond_pre_norm.weight": "self_conditioning.pre_norm.weight",
    "self_cond_gate.weight": "self_conditioning.gate_proj.weight",
    "self_cond_up.weight": "self_conditioning.up_proj.weight",
    "self_cond_down.weight": "self_conditioning.down_proj.weight",
}

LAYER = {
    "attn_norm.weight": "input_layernorm.weight",
    "attn_q.weight": "self_attn.q_proj.weight",
    "attn_k.weight": "self_attn.k_proj.weight",
    "attn_v.weight": "self_attn.v_proj.weight",
    "attn_output.weight": "self_attn.o_proj.weight",
    "attn_q_norm.weight": "self_attn.q_norm.weight",
    "attn_k_norm.weight": "self_attn.k_norm.weight",
    "post_attention_norm.weight": "post_attention_layernorm.weight",
    "ffn_norm.weight": "pre_feedforward_layernorm.weight",
    "ffn_gate.weight": "mlp.gate_proj.weight",
    "ffn_up.weight": "mlp.up_proj.weight",
    "ffn_down.weight": "mlp.down_proj.weight",
    "post_ffw_norm_1.weight": "post_feedforward_layernorm_1.weight",
    "pre_ffw_norm_2.weight": "pre_feedforward_layernorm_2.weight",
    "post_ffw_norm_2.weight": "post_feedforward_layernorm_2.weight",
    "post_ffw_norm.weight": "post_feedforward_layernorm.weight",
    "ffn_gate_inp.weight": "router.proj.weight",
    "ffn_gate_inp.scale": "router.scale",
    "ffn_down_exps.scale": "router.per_expert_scale",
    "ffn_gate_up_exps.weight": "experts.gate_up_proj",
    "ffn_down_exps.weight": "experts.down_proj",
    "layer_output_scale.weight": "layer_scalar",
}

TEMPLATE = "{{ bos_token }}{% for m in messages %}<|turn>{{ m.role }}\n{{ m.content }}<turn|>\n{% endfor %}"

# As in published files: some special tokens are typed so that they are printed, <eos> as a normal one.
USER_DEFINED = {"<|tool_call>", "<tool_call|>", "<|tool_response>", "<tool_response|>", '<|"|>', "<|channel>",
                "<channel|>"}


def add_sizes(out, config, generation):
    text = config["text_config"]
    n_layer = text["num_hidden_layers"]
    sliding = [kind == "sliding_attention" for kind in text["layer_types"]]
    special = text["per_layer_config"]
    at = {i: special.get(str(i), {}) for i in range(n_layer)}
    last = at[n_layer - 1]
    out.add_block_count(n_layer)
    out.add_context_length(text["max_position_embeddings"])
    out.add_embedding_length(text["hidden_size"])
    out.add_feed_forward_length(text["intermediate_size"])
    out.add_head_count(text["num_attention_heads"])
    out.add_head_count_kv([at[i].get("num_key_value_heads", text["num_key_value_heads"]) for i in range(n_layer)])
    out.add_layer_norm_rms_eps(text["rms_norm_eps"])
    out.add_expert_count(text["num_experts"])
    out.add_expert_used_count(text["top_k_experts"])
    out.add_expert_feed_forward_length(text["moe_intermediate_size"])
    out.add_key_length(last.get("head_dim", text["head_dim"]))
    out.add_value_length(last.get("head_dim", text["head_dim"]))
    out.add_key_length_swa(text["head_dim"])
    out.add_value_length_swa(text["head_dim"])
    out.add_final_logit_softcapping(30.0)
    out.add_sliding_window(text["sliding_window"])
    out.add_sliding_window_pattern(sliding)
    out.add_shared_kv_layers(0)
    rope = text["rope_parameters"]
    out.add_rope_freq_base(rope["full_attention"]["rope_theta"])
    out.add_float32(f"{out.arch}.rope.freq_base_swa", rope["sliding_attention"]["rope_theta"])
    out.add_rope_dimension_count(last.get("head_dim", text["head_dim"]))
    out.add_bool(f"{out.arch}.attention.causal", False)
    out.add_uint32("diffusion.canvas_length", config["canvas_length"])
    out.add_uint32("diffusion.eb_max_steps", generation["max_denoising_steps"])
    out.add_float32("diffusion.eb_t_min", generation["t_min"])
    out.add_float32("diffusion.eb_t_max", generation["t_max"])
    out.add_float32("diffusion.eb_entropy_bound", generation["sampler_config"]["entropy_bound"])
    out.add_uint32("diffusion.eb_stability_threshold", generation["stability_threshold"])
    out.add_float32("diffusion.eb_confidence_threshold", generation["confidence_threshold"])
    half = last.get("head_dim", text["head_dim"]) // 2
    turning = int(rope["full_attention"]["partial_rotary_factor"] * half)
    freqs = [1.0] * turning + [1e30] * (half - turning)
    out.add_tensor("rope_freqs.weight", numpy.array(freqs, dtype=numpy.float32))


def add_tokenizer(out, tokenizer):
    vocab = tokenizer["model"]["vocab"]
    tokens = sorted(vocab, key=vocab.get)
    special = {token["content"] for token in tokenizer["added_tokens"]}

    def kind(token):
        if token in USER_DEFINED:
            return gguf.TokenType.USER_DEFINED
        if token in special and token != "<eos>":
            return gguf.TokenType.CONTROL
        return gguf.TokenType.BYTE if token.startswith("<0x") else gguf.TokenType.NORMAL

    out.add_tokenizer_model("gemma4")
    out.add_token_list(tokens)
    out.add_token_scores([-1000.0] * len(tokens))
    out.add_token_types([kind(token) for token in tokens])
    out.add_token_merges([" ".join(pair) for pair in tokenizer["model"]["merges"]])
    out.add_bos_token_id(vocab["<bos>"])
    out.add_eos_token_id(vocab["<turn|>"])
    out.add_pad_token_id(vocab["<pad>"])
    out.add_add_bos_token(True)
    out.add_add_space_prefix(False)
    out.add_chat_template(TEMPLATE)


def add_weight(out, name, tensor):
    if tensor.dtype == numpy.float32:
        out.add_tensor(name, tensor)
    elif tensor.ndim > 1:
        out.add_tensor(name, tensor.view(numpy.uint8), raw_dtype=gguf.GGMLQuantizationType.BF16)
    else:  # vectors are F32 in every published file; widening them changes no value
        out.add_tensor(name, (tensor.astype(numpy.uint32) << 16).view(numpy.float32))


def add_weights(out, weights, n_layer):
    for name, ours in TOP.items():
        add_weight(out, name, weights[f"model.decoder.{ours}"])
    for i in range(n_layer):
        for name, ours in LAYER.items():
            tensor = weights.get(f"model.decoder.layers.{i}.{ours}")
            if tensor is not None:
                add_weight(out, f"blk.{i}.{name}", tensor)
        scalar = weights[f"model.encoder.language_model.layers.{i}.layer_scalar"]
        add_weight(out, f"blk.{i}.enc_layer_output_scale.weight", scalar)


def load_weights(path):
    """The tensors of a safetensors file; numpy has no bfloat16, so these are left as 16-bit patterns."""
    with open(path, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        data = file.read()
    kinds = {"BF16": "<u2", "F32": "<f4"}
    weights = {}
    for name, info in header.items():
        if name != "__metadata__":
            begin, end = info["data_offsets"]
            weights[name] = numpy.frombuffer(data[begin:end], dtype=kinds[info["dtype"]]).reshape(info["shape"])
    return weights


def main(model, tokenizer, path):
    def load(name):
        with open(name, encoding="utf-8") as file:
            return json.load(file)

    config = load(f"{model}/config.json")
    out = gguf.GGUFWriter(path, "diffusion-gemma")
    add_sizes(out, config, load(f"{model}/generation_config.json"))
    add_tokenizer(out, load(tokenizer))
    add_weights(out, load_weights(f"{model}/model.safetensors"),
                config["text_config"]["num_hidden_layers"])
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
