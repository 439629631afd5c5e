"""The engine against transformers' generate(): the same weights, prompts and random draws must give the same texts.

    python3 compare_transformers.py [--prompts 200] [--engine ../../build/release/pocket_eval]

The engine answers prompts of the evaluation, evenly spread over the families, with products, keys and values in float32, and puts the
tokens of prompts and answers on record. transformers then gets the same tokens and, for each canvas and step, the draws
that the engine makes from the prompt's seed. Prints how many answers are equal, token by token; fails below 99 %.

Needs torch, transformers, gguf, numpy, pillow, and the program: make build/release/pocket_eval.
"""
import argparse
import base64
import glob
import io
import json
import os
import subprocess
import sys
import tempfile

import numpy as np
import torch
from PIL import Image

import export
import model as M

WANTED = 0.99
HERE = M.HERE


# ---- the engine's draws: src/base/rng.c, src/diffusion/draws.c ----

INITIAL, NOISE, TOKEN = range(3)  # streams


def philox(counter, key):
    """Philox-4x32, ten rounds. counter: four arrays or numbers below 2^32, key: two numbers."""
    c, k = [np.asarray(x, np.uint64) for x in counter], list(key)
    low = np.uint64(0xFFFFFFFF)
    for _ in range(10):
        a, b = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        c = [(b >> np.uint64(32)) ^ c[1] ^ np.uint64(k[0]), b & low, (a >> np.uint64(32)) ^ c[3] ^ np.uint64(k[1]), a & low]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c


# the generator's published test vectors, for counters and keys of zeros and of ones
assert [int(x) for x in philox([0] * 4, [0] * 2)] == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
assert [int(x) for x in philox([0xFFFFFFFF] * 4, [0xFFFFFFFF] * 2)] == [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]


def halves(seed, stream, block, step, n):
    """64 random bits for each of n positions, as (high, low) 32."""
    c = philox([np.arange(n), step, block, stream], [seed & 0xFFFFFFFF, seed >> 32])
    return c[1], c[0]


def uniforms(*at):
    high, low = halves(*at)
    return ((high << np.uint64(32) | low) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def ids_below(vocab, *at):
    high, low = halves(*at)
    v, shift = np.uint64(vocab), np.uint64(32)
    return ((high * v + (low * v >> shift)) >> shift).astype(np.int64)


def fnv1a(data):
    h = 0xCBF29CE484222325
    for byte in data:
        h = (h ^ byte) * 0x100000001B3 & (1 << 64) - 1
    return h


def seed_of(name):
    """Of "FAMILY/ID", as tests/pocket/prompts.c has it."""
    return fnv1a(name.encode())


class Draws:
    """While open, what generate() draws is what the engine draws. It asks for a canvas when a block begins; then each step
    picks tokens and asks for a canvas of noise."""

    def __init__(self, seed):
        self.seed, self.block, self.step, self.picked = seed, -1, 0, False

    def randint(self, low=0, high=None, size=None, device=None, **_):
        if self.picked:
            ids = ids_below(high, self.seed, NOISE, self.block, self.step, size[1])
            self.step += 1
        else:
            self.block, self.step = self.block + 1, 0
            ids = ids_below(high, self.seed, INITIAL, self.block, 0, size[1])
        self.picked = False
        return torch.from_numpy(ids)[None].to(device or "cpu")

    def multinomial(self, probs, num_samples=1, **_):
        u = torch.from_numpy(uniforms(self.seed, TOKEN, self.block, self.step, probs.shape[0]))
        self.picked = True
        cdf = probs.double().cumsum(-1)
        pick = (cdf <= (u * cdf[:, -1]).unsqueeze(-1)).sum(-1)
        return pick.clamp_max(probs.shape[-1] - 1).unsqueeze(-1)

    def __enter__(self):
        self.saved = torch.randint, torch.multinomial
        torch.randint, torch.multinomial = self.randint, self.multinomial

    def __exit__(self, *_):
        torch.randint, torch.multinomial = self.saved


# ---- both sides ----

def ask_engine(args, files):
    """The records of tests/pocket/pocket_eval.c; a low score is not our business here."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "record.jsonl")
        command = [args.engine, "-m", args.model, "--kv", "f32", "--profile", "float", "--max-tokens", str(args.max_tokens), "--record", path,
                   "--limit", str(-(-args.prompts // len(files))), "--grammars", os.path.join(HERE, "grammar"), *files]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
        if done.returncode not in (0, 1):
            sys.exit(f"{args.engine} ended with status {done.returncode}")
        with open(path, encoding="utf-8") as f:
            return [json.loads(line) for line in f]


def pictures_by_name(files):
    """{"FAMILY/ID": pictures in the order of the conversation}, of the prompts that have some."""
    out = {}
    for file in files:
        with open(file, encoding="utf-8") as f:
            for p in map(json.loads, f):
                urls = [part["image_url"]["url"] for m in p["messages"] if isinstance(m.get("content"), list)
                        for part in m["content"] if part["type"] == "image_url"]
                if urls:
                    out[f"{p['family']}/{p['id']}"] = [
                        Image.open(io.BytesIO(base64.b64decode(u.split(",", 1)[1]))).convert("RGB") for u in urls]
    return out


class Reference:
    def __init__(self, args):
        from transformers.models.diffusion_gemma.generation_diffusion_gemma import (
            DiffusionGemmaGenerationConfig, EntropyBoundSamplerConfig)
        from transformers.models.gemma4.image_processing_pil_gemma4 import Gemma4ImageProcessorPil
        import gguf
        config, state = export.load_gguf(args.model, args.mmproj)
        self.net = export.load_hf(config, state)
        reader = gguf.GGUFReader(args.model)
        has = lambda name: reader.get_field("diffusion." + name).contents()
        self.settings = DiffusionGemmaGenerationConfig(
            max_new_tokens=args.max_tokens, max_denoising_steps=int(has("eb_max_steps")), t_min=float(has("eb_t_min")),
            t_max=float(has("eb_t_max")), stability_threshold=int(has("eb_stability_threshold")),
            confidence_threshold=float(has("eb_confidence_threshold")),
            sampler_config=EntropyBoundSamplerConfig(entropy_bound=float(has("eb_entropy_bound"))),
            pad_token_id=M.PAD, bos_token_id=M.BOS, eos_token_id=list(M.STOPS))
        self.look = Gemma4ImageProcessorPil(patch_size=M.VISION["patch_size"], max_soft_tokens=M.MAX_SOFT,
                                            pooling_kernel_size=M.VISION["pooling_kernel_size"])

    def answer(self, record, pictures):
        """The tokens up to the one that ends the turn."""
        ids = torch.tensor([record["prompt"]])
        inputs = dict(input_ids=ids)
        if pictures:
            seen = self.look.preprocess(pictures, return_tensors="pt")
            inputs.update(mm_token_type_ids=(ids == self.net.config.image_token_id).long(),
                          pixel_values=seen["pixel_values"].float(), image_position_ids=seen["image_position_ids"])
        with Draws(seed_of(record["id"])), torch.no_grad():
            out = self.net.generate(**inputs, generation_config=self.settings).sequences[0, ids.shape[1]:].tolist()
        end = next((i for i, t in enumerate(out) if t in M.STOPS), len(out))
        return out[:min(end, record["max_tokens"])]


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--prompts", type=int, default=200, help="at least so many (200)")
    ap.add_argument("--max-tokens", type=int, default=1024)
    ap.add_argument("--model", default=os.path.join(HERE, "pocket.gguf"))
    ap.add_argument("--mmproj", default=os.path.join(HERE, "mmproj-pocket.gguf"))
    ap.add_argument("--eval", default=os.path.join(HERE, "eval"), help="folder of the prompts")
    ap.add_argument("--engine", default=os.path.join(HERE, "..", "..", "build", "release", "pocket_eval"))
    args = ap.parse_args()
    files = sorted(glob.glob(os.path.join(args.eval, "*.jsonl")))
    if not files:
        sys.exit(f"{args.eval} has no prompts")
    records, pictures, reference = ask_engine(args, files), pictures_by_name(files), Reference(args)
    equal = 0
    for n, r in enumerate(records, 1):
        theirs = reference.answer(r, pictures.get(r["id"]))
        same = theirs == r["tokens"]
        equal += same
        if not same:
            at = next((i for i, (a, b) in enumerate(zip(theirs, r["tokens"])) if a != b), min(len(theirs), len(r["tokens"])))
            print(f"{r['id']}: differs from token {at} on; the engine said {r['text']!r}")
        if sys.stderr.isatty():
            print(f"\r{n} of {len(records)}", end="", file=sys.stderr, flush=True)
    print(f"{equal} of {len(records)} answers are equal ({100 * equal / len(records):.1f} %)")
    if equal < WANTED * len(records):
        sys.exit(1)


if __name__ == "__main__":
    main()
