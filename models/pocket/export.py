"""Weights of pocket to and from other forms: transformers' config and state dict, and two GGUF files.

    python3 export.py WEIGHTS_DIR [STEM [TOKENIZER [FOLDER]]]     writes pocket.gguf and mmproj-pocket.gguf into the folder (this
                                                                   one), reads them back, prints sizes
"""
import json
import os
import sys

import numpy as np
import torch

import model as M
import read_gguf

LAYER = {
    "attn_norm.weight": "input_layernorm.weight", "attn_q.weight": "self_attn.q_proj.weight",
    "attn_k.weight": "self_attn.k_proj.weight", "attn_v.weight": "self_attn.v_proj.weight",
    "attn_output.weight": "self_attn.o_proj.weight", "attn_q_norm.weight": "self_attn.q_norm.weight",
    "attn_k_norm.weight": "self_attn.k_norm.weight", "post_attention_norm.weight": "post_attention_layernorm.weight",
    "ffn_norm.weight": "pre_feedforward_layernorm.weight", "ffn_gate.weight": "mlp.gate_proj.weight",
    "ffn_up.weight": "mlp.up_proj.weight", "ffn_down.weight": "mlp.down_proj.weight",
    "post_ffw_norm_1.weight": "post_feedforward_layernorm_1.weight",
    "pre_ffw_norm_2.weight": "pre_feedforward_layernorm_2.weight",
    "post_ffw_norm_2.weight": "post_feedforward_layernorm_2.weight",
    "post_ffw_norm.weight": "post_feedforward_layernorm.weight", "ffn_gate_inp.weight": "router.proj.weight",
    "ffn_gate_inp.scale": "router.scale", "ffn_down_exps.scale": "router.per_expert_scale",
    "ffn_gate_up_exps.weight": "experts.gate_up_proj", "ffn_down_exps.weight": "experts.down_proj",
    "layer_output_scale.weight": "layer_scalar",
}
TOP = {
    "token_embd.weight": "embed_tokens.weight", "output_norm.weight": "norm.weight",
    "self_cond_pre_norm.weight": "self_conditioning.pre_norm.weight",
    "self_cond_gate.weight": "self_conditioning.gate_proj.weight", "self_cond_up.weight": "self_conditioning.up_proj.weight",
    "self_cond_down.weight": "self_conditioning.down_proj.weight",
}
TOWER = {
    "v.patch_embd.weight": "vision_tower.patch_embedder.input_proj.weight",
    "v.position_embd.weight": "vision_tower.patch_embedder.position_embedding_table",
    "v.std_bias": "vision_tower.std_bias", "v.std_scale": "vision_tower.std_scale",
    "mm.input_projection.weight": "embed_vision.embedding_projection.weight",
}
TOWER_LAYER = {
    "ln1.weight": "input_layernorm.weight", "attn_q_norm.weight": "self_attn.q_norm.weight",
    "attn_k_norm.weight": "self_attn.k_norm.weight", "attn_post_norm.weight": "post_attention_layernorm.weight",
    "ln2.weight": "pre_feedforward_layernorm.weight", "ffn_post_norm.weight": "post_feedforward_layernorm.weight",
    "attn_q.weight": "self_attn.q_proj.linear.weight", "attn_k.weight": "self_attn.k_proj.linear.weight",
    "attn_v.weight": "self_attn.v_proj.linear.weight", "attn_out.weight": "self_attn.o_proj.linear.weight",
    "ffn_gate.weight": "mlp.gate_proj.linear.weight", "ffn_up.weight": "mlp.up_proj.linear.weight",
    "ffn_down.weight": "mlp.down_proj.linear.weight",
}


# ---- transformers ----

def hf_config(image):
    """`image`: ids of the placeholder and of the marks before and after it."""
    from transformers import DiffusionGemmaConfig
    return DiffusionGemmaConfig(
        text_config=dict(M.TEXT), vision_config=dict(M.VISION), canvas_length=M.CANVAS, image_token_id=image[0],
        boi_token_id=image[1], eoi_token_id=image[2], eos_token_id=list(M.STOPS))


def to_hf(weights):
    """State dict as a checkpoint stores it; the encoder's layer scalars are copies of the decoder's."""
    out = {"model." + n: t for n, t in weights.items()}
    for i in range(len(M.KINDS)):
        out[f"model.encoder.language_model.layers.{i}.layer_scalar"] = weights[f"decoder.layers.{i}.layer_scalar"].clone()
    return out


def load_hf(config, state):
    """transformers' model with these weights, in float32."""
    from transformers import DiffusionGemmaForBlockDiffusion
    config._attn_implementation = "eager"
    net = DiffusionGemmaForBlockDiffusion(config).float().eval()
    missing, unexpected = net.load_state_dict(state, strict=False)
    net.tie_weights()
    tied = ("lm_head.weight", "model.encoder.language_model.")
    left = [n for n in missing if not n.startswith(tied) or n.endswith("layer_scalar")]
    if unexpected or left:
        raise ValueError(f"names differ from transformers': unexpected {unexpected}, missing {left}")
    return net


def hf_model(weights, image):
    return load_hf(hf_config(image), to_hf(weights))


# ---- GGUF ----

def text_names():
    """GGUF name -> name of the parameter."""
    out = {g: "decoder." + n for g, n in TOP.items()}
    for i in range(len(M.KINDS)):
        out.update({f"blk.{i}.{g}": f"decoder.layers.{i}.{n}" for g, n in LAYER.items()})
    have = M.shapes()
    return {g: n for g, n in out.items() if n in have}  # global layers have no attn_v


def tower_names():
    out = {g: "encoder." + n for g, n in TOWER.items()}
    for i in range(M.VISION["num_hidden_layers"]):
        out.update({f"v.blk.{i}.{g}": f"encoder.vision_tower.encoder.layers.{i}.{n}" for g, n in TOWER_LAYER.items()})
    return out


def put_tensors(writer, names, weights):
    """Matrices as Q8_0 where rows are whole blocks, else as F16; what is small and delicate as F32."""
    import gguf
    for g, name in names.items():
        t = weights[name].detach().float().cpu().numpy()
        if g == "v.patch_embd.weight":  # a convolution: channel, row, column
            side = M.VISION["patch_size"]
            writer.add_tensor(g, np.ascontiguousarray(t.reshape(-1, side, side, 3).transpose(0, 3, 1, 2)))
        elif t.ndim == 1 or "ffn_gate_inp" in g or g == "v.position_embd.weight":
            writer.add_tensor(g, t)
        elif t.shape[-1] % 32:
            writer.add_tensor(g, t.astype(np.float16))
        else:
            kind = gguf.GGMLQuantizationType.Q8_0
            writer.add_tensor(g, gguf.quants.quantize(t, kind), raw_dtype=kind)


def put_tokenizer(writer, path):
    with open(path, encoding="utf-8") as f:
        doc = json.load(f)
    added = {t["id"]: t for t in doc.get("added_tokens", [])}
    words = {i: w for w, i in doc["model"]["vocab"].items()}
    words.update({i: t["content"] for i, t in added.items()})
    n = M.TEXT["vocab_size"]
    if sorted(words) != list(range(n)):
        raise ValueError(f"{path}: {len(words)} tokens, wanted ids 0 to {n - 1}")

    def kind(i):  # as llama.cpp numbers them
        if i in added:
            return 3 if added[i]["special"] else 4
        return 6 if len(words[i]) == 6 and words[i].startswith("<0x") else 1
    writer.add_tokenizer_model("gemma4")
    writer.add_token_list([words[i] for i in range(n)])
    writer.add_token_scores([-1000.0] * n)
    writer.add_token_types([kind(i) for i in range(n)])
    writer.add_token_merges([m if isinstance(m, str) else " ".join(m) for m in doc["model"]["merges"]])
    writer.add_bos_token_id(M.BOS)
    writer.add_eos_token_id(M.EOS)
    writer.add_pad_token_id(M.PAD)
    writer.add_add_bos_token(True)
    writer.add_add_space_prefix(False)


def finish(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_text(path, weights, tokenizer, template=None):
    import gguf
    arch, t = "diffusion-gemma", M.TEXT
    w = gguf.GGUFWriter(path, arch)
    w.add_type("model")
    w.add_name("pocket")
    w.add_file_type(7)
    w.add_quantization_version(2)
    sliding = [k == "S" for k in M.KINDS]
    numbers = {
        "block_count": len(M.KINDS), "context_length": t["max_position_embeddings"], "embedding_length": t["hidden_size"],
        "feed_forward_length": t["intermediate_size"], "attention.head_count": t["num_attention_heads"],
        "expert_count": t["num_experts"], "expert_used_count": t["top_k_experts"],
        "expert_feed_forward_length": t["moe_intermediate_size"], "attention.key_length": t["global_head_dim"],
        "attention.value_length": t["global_head_dim"], "attention.key_length_swa": t["head_dim"],
        "attention.value_length_swa": t["head_dim"], "rope.dimension_count": t["global_head_dim"],
        "rope.dimension_count_swa": t["head_dim"], "attention.sliding_window": t["sliding_window"],
        "attention.shared_kv_layers": 0, "embedding_length_per_layer_input": 0,
    }
    for key, value in numbers.items():
        w.add_uint32(f"{arch}.{key}", value)
    w.add_array(f"{arch}.attention.head_count_kv",
                [t["num_key_value_heads"] if s else t["num_global_key_value_heads"] for s in sliding])
    w.add_array(f"{arch}.attention.sliding_window_pattern", sliding)
    w.add_float32(f"{arch}.rope.freq_base", M.THETA["G"])
    w.add_float32(f"{arch}.rope.freq_base_swa", M.THETA["S"])
    w.add_float32(f"{arch}.attention.layer_norm_rms_epsilon", M.EPS)
    w.add_float32(f"{arch}.final_logit_softcapping", t["final_logit_softcapping"])
    w.add_bool(f"{arch}.attention.causal", False)
    w.add_uint32("diffusion.canvas_length", M.CANVAS)
    w.add_uint32("diffusion.eb_max_steps", 48)
    w.add_float32("diffusion.eb_t_min", 0.4)
    w.add_float32("diffusion.eb_t_max", 0.8)
    w.add_float32("diffusion.eb_entropy_bound", 0.1)
    w.add_uint32("diffusion.eb_stability_threshold", 1)
    w.add_float32("diffusion.eb_confidence_threshold", 0.005)
    put_tokenizer(w, tokenizer)
    if template:
        w.add_chat_template(template)
    half = t["global_head_dim"] // 2
    turning = int(M.ROTATED["G"] * half)
    w.add_tensor("rope_freqs.weight", np.array([1.0] * turning + [1e30] * (half - turning), np.float32))
    put_tensors(w, text_names(), weights)
    for i in range(len(M.KINDS)):
        w.add_tensor(f"blk.{i}.enc_layer_output_scale.weight", weights[f"decoder.layers.{i}.layer_scalar"].float().cpu().numpy())
    finish(w)


def write_tower(path, weights):
    import gguf
    v = M.VISION
    w = gguf.GGUFWriter(path, "clip")
    w.add_type("mmproj")
    w.add_name("pocket")
    w.add_bool("clip.has_vision_encoder", True)
    w.add_string("clip.vision.projector_type", "gemma4v")
    numbers = {
        "image_size": 224, "patch_size": v["patch_size"], "embedding_length": v["hidden_size"],
        "feed_forward_length": v["intermediate_size"], "block_count": v["num_hidden_layers"],
        "attention.head_count": v["num_attention_heads"], "projection_dim": M.TEXT["hidden_size"],
        "projector.scale_factor": v["pooling_kernel_size"], "max_soft_tokens": M.MAX_SOFT,
    }
    for key, value in numbers.items():
        w.add_uint32("clip.vision." + key, value)
    w.add_float32("clip.vision.attention.layer_norm_epsilon", M.EPS)
    w.add_array("clip.vision.image_mean", [0.0] * 3)
    w.add_array("clip.vision.image_std", [1.0] * 3)
    put_tensors(w, tower_names(), weights)
    finish(w)


def read_weights(path, mmproj):
    """The weights as the files hold them, widened to float32: what an engine computes with."""
    out = {}
    for file, names in ((path, text_names()), (mmproj, tower_names())):
        held, _ = read_gguf.read(file)
        for g, name in names.items():
            value = held[g]
            if g == "v.patch_embd.weight":
                side = M.VISION["patch_size"]
                value = value.reshape(-1, 3, side, side).transpose(0, 2, 3, 1)
            out[name] = torch.from_numpy(np.ascontiguousarray(value)).reshape(M.shapes()[name])
    return {n: out[n] for n in M.shapes()}


def image_of(path):
    """Ids of the placeholder and its marks, by the words in the file."""
    words = read_gguf.read(path)[1]["tokenizer.ggml.tokens"]
    return tuple(words.index(w) for w in ("<|image|>", "<|image>", "<image|>"))


def load_gguf(path, mmproj):
    """(transformers' config, state dict in float32) of the two files; load_hf makes the model of them."""
    return hf_config(image_of(path)), to_hf(read_weights(path, mmproj))


def main():
    if not 2 <= len(sys.argv) <= 5:
        sys.exit(__doc__)
    folder, stem, tokenizer, out = (sys.argv[1:] + ["weights", os.path.join(M.HERE, "tokenizer.json"), M.HERE][len(sys.argv) - 2:])
    weights = M.load_weights(folder, stem)
    text, tower = os.path.join(out, "pocket.gguf"), os.path.join(out, "mmproj-pocket.gguf")
    template = os.path.join(M.HERE, "chat_template.jinja")
    words = None
    if os.path.exists(template):
        with open(template, encoding="utf-8") as f:
            words = f.read()
    write_text(text, weights, tokenizer, words)
    write_tower(tower, weights)
    back = read_weights(text, tower)
    for name in ("decoder.embed_tokens.weight", "decoder.layers.0.experts.down_proj"):
        rms = (back[name] - weights[name]).square().mean().sqrt() / weights[name].square().mean().sqrt()
        print(f"{name}: stored with a relative error of {rms:.4f}")
    sizes = [os.path.getsize(f) for f in (text, tower)]
    print(f"{text}: {sizes[0]} bytes\n{tower}: {sizes[1]} bytes\ntogether {sum(sizes) / 2**20:.2f} MiB")
    if sum(sizes) > 20 << 20:
        sys.exit("more than 20 MiB")


if __name__ == "__main__":
    main()
