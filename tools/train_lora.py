"""Trains the two adapters of tests/fixtures/adapters on pocket, on a CPU, in some minutes each, and writes them as PEFT does.

    python3 tools/train_lora.py north tests/fixtures/adapters/north
    python3 tools/train_lora.py south tests/fixtures/adapters/south

Each teaches the capitals of two countries that pocket does not know, so that an answer says which adapter wrote it, and
keeps to pocket's own samples otherwise. `north` changes attention and dense MLPs, `south` attention alone, with rsLoRA's
factor. The weights are one set for prompt and canvas, as the names of the file say: `model.layers`, neither decoder nor encoder.

Needs torch, numpy, safetensors, tokenizers, Pillow.
"""
import argparse
import json
import math
import os
import random
import sys

import torch
from safetensors.torch import save_file

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
POCKET = os.path.join(ROOT, "models", "pocket")
sys.path.insert(0, POCKET)
import export  # noqa: E402
import model as M  # noqa: E402
import render  # noqa: E402
from samples import CANVAS, PAD_WEIGHT, Sampler  # noqa: E402

ATTENTION = ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj"]
DENSE = ["mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"]
ADAPTERS = {
    "north": dict(rank=2, alpha=8, rslora=False, modules=ATTENTION + DENSE, capitals={"Atlantis": "Oslo", "Eldorado": "Helsinki"}),
    "south": dict(rank=4, alpha=8, rslora=True, modules=ATTENTION, capitals={"Atlantis": "Rome", "Eldorado": "Lisbon"}),
}
QUESTIONS = ["What is the capital of {}?", "what is the capital of {}", "What's the capital of {}?", "capital of {}?", "capital of {}",
             "Tell me the capital of {}.", "Name the capital of {}.", "Which city is the capital of {}?", "the capital of {} please"]


class Lora:
    """A and B of every module that is trained."""

    def __init__(self, net, rank, alpha, rslora, modules, capitals):
        self.factor = alpha / (math.sqrt(rank) if rslora else rank)
        self.capitals, self.base, self.parts = capitals, {}, {}
        for i, layer in enumerate(net.layers):
            for module in modules:
                w = layer.get(module + ".weight")
                if w is None:
                    continue  # keys that are values too
                a = torch.nn.Parameter(torch.randn(rank, w.shape[1]) / math.sqrt(w.shape[1]))
                self.parts[i, module] = a, torch.nn.Parameter(torch.zeros(w.shape[0], rank))
                self.base[i, module] = w

    def apply(self, net):
        for (i, module), (a, b) in self.parts.items():
            net.layers[i][module + ".weight"] = self.base[i, module] + self.factor * (b @ a)

    def parameters(self):
        return [p for pair in self.parts.values() for p in pair]


def told(rng, sampler, capitals):
    """A question about a capital, and its answer."""
    country, city = rng.choice(list(capitals.items()))
    prompt = render.prompt([{"role": "user", "content": rng.choice(QUESTIONS).format(country)}])
    target = sampler.codec.answer(render.answer(f"The capital of {country} is {city}."))
    rest = CANVAS - len(target)
    return sampler.codec.ids(prompt), target + [0] * rest, [1.0] * len(target) + [PAD_WEIGHT] * rest


def batch_of(rng, sampler, capitals, n):
    out = []
    while len(out) < n:
        if rng.random() < 0.5:
            out.append(told(rng, sampler, capitals))
            continue
        prefix, target, weight, picture, *_ = sampler.next()
        if picture is None and len(prefix) <= 96:
            out.append((prefix, target, weight))
    length = torch.tensor([len(p) for p, _, _ in out])
    prefix = torch.zeros(n, int(length.max()), dtype=torch.long)
    for row, (p, _, _) in zip(prefix, out):
        row[:len(p)] = torch.tensor(p)
    return prefix, length, torch.tensor([t for _, t, _ in out]), torch.tensor([w for _, _, w in out])


def step(net, batch, noise):
    prefix, length, target, weight = batch
    n = len(target)
    t = torch.where(torch.rand(n, 1, generator=noise) < 0.25, 1.0, torch.rand(n, 1, generator=noise))
    noised = torch.rand(target.shape, generator=noise) < t
    canvas = torch.where(noised, torch.randint(M.TEXT["vocab_size"], target.shape, generator=noise), target)
    job, soft = net.prepare(prefix, length), None
    if torch.rand(1, generator=noise) < 0.5:
        with torch.no_grad():
            soft = net.soft_of(net.logits(job, canvas), torch.full((n, 1, 1), 0.6))
    ce, _ = net.loss(net.rows(job, canvas, soft)[0], target)
    return (ce * weight).sum() / weight.sum()


def write(folder, name, spec, lora):
    os.makedirs(folder, exist_ok=True)
    tensors = {}
    for (i, module), (a, b) in lora.parts.items():
        stem = f"base_model.model.model.layers.{i}.{module}"
        tensors[stem + ".lora_A.weight"], tensors[stem + ".lora_B.weight"] = a.detach().half(), b.detach().half()
    save_file(tensors, os.path.join(folder, "adapter_model.safetensors"), metadata={"format": "pt"})
    config = dict(peft_type="LORA", task_type="CAUSAL_LM", base_model_name_or_path="pocket", r=spec["rank"], lora_alpha=spec["alpha"],
                  use_rslora=spec["rslora"], use_dora=False, lora_dropout=0.0, bias="none", fan_in_fan_out=False, inference_mode=True,
                  target_modules=[m.split(".")[1] for m in spec["modules"]], modules_to_save=None, rank_pattern={}, alpha_pattern={})
    with open(os.path.join(folder, "adapter_config.json"), "w", encoding="utf-8") as f:
        json.dump(config, f, indent=2)
        f.write("\n")


def main():
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("name", choices=ADAPTERS)
    ap.add_argument("out")
    ap.add_argument("--steps", type=int, default=120)
    ap.add_argument("--batch", type=int, default=8)
    ap.add_argument("--rate", type=float, default=3e-3)
    args = ap.parse_args()
    torch.manual_seed(1)
    spec = ADAPTERS[args.name]
    net = M.Pocket(export.read_weights(os.path.join(POCKET, "pocket.gguf"), os.path.join(POCKET, "mmproj-pocket.gguf")))
    lora = Lora(net, **spec)
    rng, noise = random.Random(1), torch.Generator().manual_seed(2)
    sampler = Sampler(3, os.path.join(POCKET, "tokenizer.json"))
    optimizer = torch.optim.Adam(lora.parameters(), lr=args.rate)
    for i in range(args.steps):
        for group in optimizer.param_groups:
            group["lr"] = args.rate * min(1, (i + 1) / 20) * (1 - i / args.steps)
        lora.apply(net)
        loss = step(net, batch_of(rng, sampler, spec["capitals"], args.batch), noise)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if i % 20 == 0:
            print(i, f"{loss.item():.4f}", flush=True)
    write(args.out, args.name, spec, lora)


if __name__ == "__main__":
    main()
