#!/usr/bin/env python3
"""Records what transformers computes with heads of 256 and 512 and rows of 2112 and 704 values, as a fixture for dgemma-golden.

    python3 tools/make_golden_heads.py OUT [--device cuda|cpu] [--small] [--seed N]

The fixtures of tests/fixtures/golden are small enough to lie in the tree, and so are their heads and rows: a GPU's fast
kernels, which are made for the published shape, do not see them. This one has that shape, with fewer layers, experts and
words; it takes half a gigabyte and seconds on a GPU, so it is made where it is needed (`make gpu-report`). --small: narrow
layers that keep the heads and the expert rows, 30 MB, for a machine without a GPU.

A trace of kind `forward` in float32. trace.json also says under "bfloat16" how far transformers is from it when it computes
in bfloat16: `dgemma-golden --as-served` holds a backend's 16-bit path to that.

Needs torch, transformers and safetensors.
"""
import argparse
import copy
import json
import os

import torch
import transformers
from safetensors.torch import save_file
from transformers import DiffusionGemmaConfig, DiffusionGemmaForBlockDiffusion
from transformers.cache_utils import DynamicCache

LAYERS = ["sliding_attention", "sliding_attention", "full_attention"]
SHAPE = dict(
    vocab_size=4096, hidden_size=2816, intermediate_size=2112, num_hidden_layers=len(LAYERS), num_attention_heads=16,
    num_key_value_heads=8, head_dim=256, global_head_dim=512, num_global_key_value_heads=2, num_experts=16,
    top_k_experts=8, moe_intermediate_size=704, sliding_window=128, max_position_embeddings=4096, layer_types=LAYERS,
    pad_token_id=0, eos_token_id=[1, 7], bos_token_id=2)
SMALL = dict(SHAPE, vocab_size=512, hidden_size=256, num_attention_heads=2, num_key_value_heads=1,
             num_global_key_value_heads=1, num_experts=4, top_k_experts=2)
# No picture is asked for; the loader wants a tower all the same.
VISION = dict(
    model_type="gemma4_vision", hidden_size=48, intermediate_size=80, num_hidden_layers=1, num_attention_heads=3,
    num_key_value_heads=3, head_dim=16, patch_size=4, pooling_kernel_size=3, position_embedding_size=96,
    use_clipped_linears=True, standardize=True)
CANVAS, PROMPT = 256, 300


def value_of(name, shape, random):
    """What a tensor is filled with. A layer adds a little to the stream, as a trained one does: with more, the rounding of
    bfloat16 would grow until nothing is left to compare."""
    r = torch.randn(shape, generator=random)
    if name.endswith("layer_scalar"):
        return 0.55 + 0.4 * torch.rand(shape, generator=random)
    if name.endswith(("input_min", "output_min", "input_max", "output_max")):
        return torch.full(shape, -2.5 if name.endswith("min") else 2.25)
    if "norm" in name or name.endswith("scale"):
        adds = name.endswith(("post_attention_layernorm.weight", "post_feedforward_layernorm.weight"))
        return (1 + 0.25 * r) * (0.2 if adds else 1)
    if "embed_tokens" in name or "lm_head" in name:
        return 0.45 * r
    return r * (1.6 / shape[-1] ** 0.5) if len(shape) >= 2 else 0.3 * r


def build(shape, seed):
    words = shape["vocab_size"]
    cfg = DiffusionGemmaConfig(
        text_config=copy.deepcopy(shape), vision_config=copy.deepcopy(VISION), canvas_length=CANVAS,
        image_token_id=words - 4, boi_token_id=words - 6, eoi_token_id=words - 5)
    cfg._attn_implementation = "eager"
    net = DiffusionGemmaForBlockDiffusion(cfg).float().eval()
    net.tie_weights()
    random, seen = torch.Generator().manual_seed(seed), set()
    with torch.no_grad():
        for name, p in list(net.named_parameters()) + list(net.named_buffers()):
            if p.data_ptr() in seen or "inv_freq" in name or name.endswith("embed_scale"):
                continue
            seen.add(p.data_ptr())
            # As bfloat16 has it, so that the checkpoint holds the same numbers in half the bytes.
            p.copy_(value_of(name, p.shape, random).bfloat16().float())
    return cfg, net


def inputs(words, seed):
    random = torch.Generator().manual_seed(seed)
    ids = lambda n: torch.randint(8, words - 8, (1, n), generator=random)
    return {"prompt": ids(PROMPT), "canvas.0": ids(CANVAS), "canvas.1": ids(CANVAS), "commit": ids(CANVAS), "canvas.2": ids(CANVAS)}


def keep(trace, prefix, outputs):
    for i, h in enumerate(outputs.hidden_states or ()):
        trace[f"{prefix}.hidden.{i}"] = h


def keep_cache(trace, prefix, cache):
    for i, layer in enumerate(cache.layers):
        trace[f"{prefix}.k.{i}"], trace[f"{prefix}.v.{i}"] = layer.keys, layer.values


@torch.no_grad()
def record(cfg, net, given, like=None):
    """The passes that tests/golden/golden_forward.c makes. like: a trace whose logits condition the later ones."""
    device, t = net.device, {}
    on = {k: v.to(device) for k, v in given.items()}
    conditioned = lambda key, temperature: ((like or t)[key].to(device) / temperature).to(net.dtype)
    cache = DynamicCache(config=cfg.text_config)
    out = net.model.encoder(input_ids=on["prompt"], past_key_values=cache, output_hidden_states=True)
    t["encoder.prompt.out"] = out.last_hidden_state
    keep(t, "encoder.prompt", out)
    keep_cache(t, "cache.prompt", cache)
    t = {k: v.float().cpu().clone() for k, v in t.items()}

    out = net(decoder_input_ids=on["canvas.0"], past_key_values=cache, output_hidden_states=True)
    t["logits.0"] = out.logits
    keep(t, "decoder.0", out)
    t["self_conditioning_logits.1"] = conditioned("logits.0", 0.65)
    out = net(decoder_input_ids=on["canvas.1"], past_key_values=cache, output_hidden_states=True,
              self_conditioning_logits=t["self_conditioning_logits.1"])
    t["logits.1"] = out.logits
    keep(t, "decoder.1", out)
    out = net.model.encoder(input_ids=on["commit"], past_key_values=cache)
    t["encoder.commit.out"] = out.last_hidden_state
    keep_cache(t, "cache.commit", cache)
    t["logits.2"] = net(decoder_input_ids=on["canvas.2"], past_key_values=cache,
                        self_conditioning_logits=conditioned("logits.1", 0.5)).logits
    return {k: v.float().cpu().contiguous().clone() for k, v in t.items()}


def distance(a, b):
    return ((a.double() - b.double()).norm() / b.double().norm()).item()


def worst(narrow, exact):
    """By sort of value, as dgemma-golden sorts them."""
    found = {"encoder": 0.0, "logits": 0.0}
    for key, value in exact.items():
        if not key.startswith("self_conditioning"):
            sort = "logits" if key.startswith(("logits", "decoder")) else "encoder"
            found[sort] = max(found[sort], distance(narrow[key], value))
    return found


def write_model(folder, net):
    os.makedirs(os.path.join(folder, "model"), exist_ok=True)
    net.bfloat16().save_pretrained(os.path.join(folder, "model"))
    path = os.path.join(folder, "model", "config.json")
    with open(path, encoding="utf-8") as f:
        config = json.load(f)
    config["dtype"] = "float32"  # the numbers are float32's: so is the embedding's scale
    with open(path, "w", encoding="utf-8") as f:
        json.dump(config, f, indent=1)


def write_trace(folder, trace, says):
    save_file(trace, os.path.join(folder, "trace.safetensors"))
    with open(os.path.join(folder, "trace.json"), "w", encoding="utf-8") as f:
        json.dump(says, f, indent=1)


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("out")
    ap.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    ap.add_argument("--small", action="store_true")
    ap.add_argument("--seed", type=int, default=1)
    args = ap.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    cfg, net = build(SMALL if args.small else SHAPE, args.seed)
    given = inputs(cfg.text_config.vocab_size, args.seed + 1)
    exact = record(cfg, net.to(args.device), given)
    write_model(args.out, net)
    # As users load it: a model that was cast has angles of bfloat16, too.
    narrow = DiffusionGemmaForBlockDiffusion.from_pretrained(
        os.path.join(args.out, "model"), dtype=torch.bfloat16, attn_implementation="eager").to(args.device).eval()
    says = dict(kind="forward", transformers=transformers.__version__, bfloat16=worst(record(cfg, narrow, given, exact), exact))
    write_trace(args.out, {**exact, **given}, says)
    print("transformers in bfloat16 is off by", says["bfloat16"])


if __name__ == "__main__":
    main()
