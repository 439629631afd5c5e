#!/usr/bin/env python3
"""Makes an adapter with PEFT itself, and records what PEFT's model computes with it.

    python3 tools/make_peft_golden.py FIXTURE OUT

FIXTURE is a folder of kind `forward`, tests/fixtures/golden/text. OUT becomes one of the same kind for dgemma-golden, with OUT/adapter as
PEFT saved it, beside a link `model` that is to be made. Every matrix of two layers that may have an adapter gets one, with random numbers:
attention, dense MLP, router and experts of both trees, encoder and decoder each with its own, and self-conditioning. Both trees share weights,
so PEFT cannot merge such an adapter; its model computes with it as it is.

Needs torch, transformers, safetensors and peft from 0.19 on (older ones lay experts out another way).
"""
import json
import os
import sys

import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import DiffusionGemmaForBlockDiffusion

from make_quantised_golden import recompute

LAYERS = (0, 2)  # a sliding and a global one, and others that have none
LINEAR = (r".*\.(decoder|encoder\.language_model)\.(layers\.[02]\.(self_attn\.[qkvo]_proj|mlp\.(gate|up|down)_proj|router\.proj)"
          r"|self_conditioning\.(gate|up|down)_proj)")


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    fixture, out = sys.argv[1:]
    torch.manual_seed(5)
    source = os.path.join(fixture, "model")
    model = DiffusionGemmaForBlockDiffusion.from_pretrained(source, dtype=torch.float32, attn_implementation="eager").eval()
    config = LoraConfig(r=2, lora_alpha=3, target_modules=LINEAR, init_lora_weights=False,
                        target_parameters=[f"layers.{i}.experts.{name}" for i in LAYERS for name in ("gate_up_proj", "down_proj")])
    adapted = get_peft_model(model, config).eval()
    for name, p in adapted.named_parameters():
        if "lora_B" in name:  # of about the weights' own size in all
            torch.nn.init.normal_(p, std=0.05)
    adapted.save_pretrained(os.path.join(out, "adapter"))
    os.remove(os.path.join(out, "adapter", "README.md"))
    trace = recompute(adapted.base_model.model, load_file(os.path.join(fixture, "trace.safetensors")))
    save_file(trace, os.path.join(out, "trace.safetensors"))
    about = json.load(open(os.path.join(fixture, "trace.json")))
    about.update(fixture=os.path.basename(os.path.normpath(out)), tensors={k: [str(v.dtype), list(v.shape)] for k, v in trace.items()})
    about.pop("bfloat16", None)
    json.dump(about, open(os.path.join(out, "trace.json"), "w"), indent=1)


if __name__ == "__main__":
    main()
