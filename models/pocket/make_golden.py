"""Records what transformers computes with pocket, as fixtures for tests/golden: pocket_story, pocket_thinking, pocket_picture.

    python3 make_golden.py [--out ../../tests/fixtures/golden]

Run it again whenever pocket.gguf or mmproj-pocket.gguf changed. Each fixture is a whole generation in float32, with the
weights as the files hold them: the draws, and of every step the arg-max, the token drawn, entropy, acceptance, next canvas
and whether the block was finished, at all positions; the logits at the step's temperature, in float32, at every 8th
position, or 16th or 32nd, as a generation has more steps: the three fixtures together stay below 2 MB. trace.json names the
model instead of holding it, with a hash of each file.

The prompt is the first of its family in the evaluation that fits (FIXTURES) and whose decisions do not hang on rounding:
they must stay the same with weights that are off by about ten roundings of float32.

Needs torch, transformers, gguf, numpy, pillow, safetensors, tokenizers.
"""
import argparse
import copy
import json
import os
import shutil

import torch
import transformers
from safetensors.torch import save_file

import compare_transformers as C
import model as M
import render
from samples import Codec

ROOT = os.path.join(M.HERE, "..", "..")
MODEL, MMPROJ = "models/pocket/pocket.gguf", "models/pocket/mmproj-pocket.gguf"
MAX_TOKENS = 512
MAX_BYTES = 2_000_000
FIXTURES = {  # family; whether to think; at least so many blocks; bytes for the logits
    "pocket_story": ("stories", False, 2, 1_400_000),
    "pocket_thinking": ("arithmetic", True, 1, 200_000),
    "pocket_picture": ("pictures", False, 1, 200_000),
}


class Draws(C.Draws):
    """Keeps what it gave out."""

    def __init__(self, seed):
        super().__init__(seed)
        self.canvases, self.uniforms, self.drawn = [], [], []

    def randint(self, *args, **named):
        self.canvases.append(super().randint(*args, **named))
        return self.canvases[-1]

    def multinomial(self, probs, *args, **named):
        self.uniforms.append(torch.from_numpy(C.uniforms(self.seed, C.TOKEN, self.block, self.step, probs.shape[0])))
        self.drawn.append(super().multinomial(probs, *args, **named))
        return self.drawn[-1]


def record(net, settings, inputs, seed):
    """One generation: the tensors of a trace, and how many blocks it has."""
    draws, steps, step = Draws(seed), [], net._denoising_step

    def watched(*args, sampler, **named):
        canvas, argmax, processed, finished = out = step(*args, sampler=sampler, **named)
        steps.append(dict(
            argmax=argmax, next_canvas=canvas, accepted=sampler.accepted_token_mask.to(torch.uint8),
            entropy=torch.distributions.Categorical(logits=processed).entropy(), finished=finished.to(torch.uint8),
            processed=processed))
        return out

    net._denoising_step = watched
    try:
        with draws, torch.no_grad():
            out = net.generate(**inputs, generation_config=settings)
    finally:
        del net._denoising_step
    trace = {"step." + key: torch.cat([s[key] for s in steps]) for key in steps[0]}
    trace.update({
        "prompt": inputs["input_ids"], "sequences": out.sequences, "tokens_per_forward": out.tokens_per_forward.float(),
        "draw.canvas": torch.cat(draws.canvases), "draw.uniform": torch.stack(draws.uniforms),
        "step.sampled": torch.stack([d.squeeze(-1) for d in draws.drawn])})
    trace.update({k: v for k, v in inputs.items() if k in ("pixel_values", "image_position_ids")})
    return {k: v.contiguous().clone() for k, v in trace.items()}, len(draws.canvases) - len(steps)


def thinned(trace, room):
    """The trace with logits at so many positions, evenly spread, as the room allows; `step.kept` says which."""
    logits = trace["step.processed"]
    steps, n, vocab = logits.shape
    stride = next((s for s in (8, 16, 32) if steps * (n // s) * vocab * 4 <= room), n)
    kept = torch.arange(stride // 2 - 1, n, stride)
    return dict(trace, **{"step.processed": logits[:, kept].contiguous(), "step.kept": kept})


def jittered(net):
    """A copy whose weights are off by about ten roundings of float32."""
    other, g = copy.deepcopy(net), torch.Generator().manual_seed(1)
    with torch.no_grad():
        for p in other.parameters():
            p.mul_(1 + 1e-6 * torch.randn(p.shape, generator=g))
    return other


def same_decisions(a, b):
    whole = [k for k, v in a.items() if not v.is_floating_point()]
    return all(a[k].shape == b[k].shape and torch.equal(a[k], b[k]) for k in whole)


def inputs_of(prompt, pictures, reference, codec):
    inputs, soft = {}, []
    if pictures:
        seen = reference.look.preprocess(pictures, return_tensors="pt")
        soft = [int(n) for n in seen["num_soft_tokens_per_image"]]
        inputs = dict(pixel_values=seen["pixel_values"].float(), image_position_ids=seen["image_position_ids"])
    ids = torch.tensor([codec.ids(render.prompt(prompt["messages"], prompt.get("tools"), prompt["thinking"], soft))])
    if ids.shape[1] != prompt["n_prompt"]:
        raise ValueError(f"{prompt['family']}/{prompt['id']}: {ids.shape[1]} tokens, the evaluation says {prompt['n_prompt']}")
    if pictures:
        inputs["mm_token_type_ids"] = (ids == reference.net.config.image_token_id).long()
    return dict(inputs, input_ids=ids)


def choose(rule, reference, other, codec):
    """(name, trace, pictures) of the first prompt that fits."""
    family, thinking, least, room = rule
    file = os.path.join(M.HERE, "eval", family + ".jsonl")
    pictures = C.pictures_by_name([file])
    with open(file, encoding="utf-8") as f:
        for prompt in map(json.loads, f):
            name = f"{family}/{prompt['id']}"
            if prompt["thinking"] != thinking:
                continue
            seen = pictures.get(name, [])
            inputs, seed = inputs_of(prompt, seen, reference, codec), C.seed_of(name)
            trace, blocks = record(reference.net, reference.settings, inputs, seed)
            if blocks >= least and same_decisions(trace, record(other, reference.settings, inputs, seed)[0]):
                return name, thinned(trace, room), seen
    raise SystemExit(f"{file}: no prompt fits")


def hash_of(path):
    with open(os.path.join(ROOT, path), "rb") as f:
        return f"{C.fnv1a(f.read()):016x}"


def write(folder, name, trace, pictures):
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    save_file(trace, os.path.join(folder, "trace.safetensors"))
    for picture in pictures:
        picture.save(os.path.join(folder, "image.png"), optimize=True)
    says = dict(kind="generate", model=MODEL, files={p: hash_of(p) for p in (MODEL, MMPROJ)}, prompt=name,
                generation=dict(max_new_tokens=MAX_TOKENS), transformers=transformers.__version__,
                tensors={k: [str(v.dtype), list(v.shape)] for k, v in sorted(trace.items())})
    with open(os.path.join(folder, "trace.json"), "w", encoding="utf-8") as f:
        json.dump(says, f, indent=1)
        f.write("\n")
    return sum(os.path.getsize(os.path.join(folder, n)) for n in os.listdir(folder))


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--out", default=os.path.join(ROOT, "tests", "fixtures", "golden"))
    args = ap.parse_args()
    reference = C.Reference(argparse.Namespace(
        model=os.path.join(ROOT, MODEL), mmproj=os.path.join(ROOT, MMPROJ), max_tokens=MAX_TOKENS))
    other, codec, total = jittered(reference.net), Codec(os.path.join(M.HERE, "tokenizer.json")), 0
    for fixture, rule in FIXTURES.items():
        name, trace, pictures = choose(rule, reference, other, codec)
        size = write(os.path.join(args.out, fixture), name, trace, pictures)
        total += size
        print(f"{fixture}: {name}, {trace['prompt'].shape[1]} tokens, {len(trace['step.finished'])} steps in "
              f"{int(trace['step.finished'].sum())} finished blocks, logits at {len(trace['step.kept'])} positions, {size} bytes")
    if total > MAX_BYTES:
        raise SystemExit(f"{total} bytes together, {MAX_BYTES} are allowed")


if __name__ == "__main__":
    main()
