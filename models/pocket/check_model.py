"""Holds model.py to transformers: the same random weights, prefixes of several lengths, with and without conditioning on a
previous step, with and without a picture; and packed.py to model.py, gradients too.

    python3 check_model.py          prints the largest differences; fails above 1e-4
"""
import sys

import numpy as np
import torch
from transformers.cache_utils import DynamicCache

import export
import packed
from feed import patches_of
from model import CANVAS, TEXT, Pocket, new_weights

IMAGE = (4090, 4091, 4092)  # placeholder, begin, end: no tokenizer is needed here
LIMIT = 1e-4


def livelier(weights, seed):
    """Norms, scalars and scales away from their plain first values, so that leaving one out would show."""
    g = torch.Generator().manual_seed(seed)
    out = {}
    for name, t in weights.items():
        r = torch.randn(t.shape, generator=g)
        out[name] = t * (1 + 0.2 * r) + (0.1 * r if name.endswith("std_bias") else 0) if t.ndim == 1 else t
        if name.endswith(("q_norm.weight", "k_norm.weight")):
            out[name] = out[name] * 1.5
    return out


def theirs(model, ids, canvas, logits, picture):
    """One sample through encoder, cache and decoder, the mask made as generate() makes it."""
    ids = torch.tensor([ids])
    cache = DynamicCache(config=model.config.text_config)
    kinds = (ids == IMAGE[0]).long()
    extra = {}
    if picture is not None:
        patch, pos = patches_of(picture, exact=True)
        # as the processor orders them: rows of patches
        order = np.lexsort((pos.reshape(-1, 2)[:, 0], pos.reshape(-1, 2)[:, 1]))
        extra = dict(pixel_values=torch.tensor(patch.reshape(1, -1, 48)[:, order]).float() / 255,
                     image_position_ids=torch.tensor(pos.reshape(1, -1, 2)[:, order]).long())
    enc = model.model.encoder
    mask = enc.create_masks_for_generate(
        config=model.config.text_config, inputs_embeds=enc.get_input_embeddings()(ids), attention_mask=torch.ones_like(ids),
        past_key_values=cache, position_ids=torch.arange(ids.shape[1])[None], mm_token_type_ids=kinds)
    enc(input_ids=ids, attention_mask=mask, past_key_values=cache, mm_token_type_ids=kinds, **extra)
    return model(decoder_input_ids=canvas[None], past_key_values=cache, self_conditioning_logits=logits).logits[0]


def packed_differs(weights):
    """The largest difference of a row, and of a gradient in parts of its largest value, between packed and dense rows."""
    lengths, rows = [3, 20, 47, 48, 120, 1], 640
    spare = rows - sum(lengths) - (packed.FILLERS - 1)
    prefix, canvas = torch.randint(3, 4000, (rows,)), torch.randint(3, 4000, (len(lengths), CANVAS))
    target, signal = torch.randint(3, 4000, canvas.shape), torch.randn(*canvas.shape, TEXT["hidden_size"])
    dense = torch.zeros(len(lengths), max(lengths), dtype=torch.long)
    for row, part in zip(dense, prefix.split(lengths + [rows - sum(lengths)])):
        row[:len(part)] = part

    def packed_rows(net):
        layout = packed.Layout(torch.tensor(lengths + [1] * (packed.FILLERS - 1) + [spare]), rows)
        left, read = packed.read(net, layout, prefix)
        x, written = packed.write(net, layout, left, canvas, signal)
        return x.view(*canvas.shape, -1), packed.uneven(read, written)

    found = []
    for way in (packed_rows, lambda net: net.rows(net.prepare(dense, torch.tensor(lengths)), canvas, signal)):
        net = Pocket(weights, train=True)
        x, uneven = way(net)
        (net.loss(x, target)[0].mean() + uneven).backward()
        found.append((x.detach(), {n: p.grad for n, p in net.params.items() if p.grad is not None}))
    (x, g), (y, h) = found
    largest = max(t.abs().max() for t in h.values())
    return (x - y).abs().max().item() / y.abs().max().item(), max((g[n] - h[n]).abs().max().item() for n in h) / largest.item()


def main():
    torch.manual_seed(5)
    rng = np.random.default_rng(5)
    weights = livelier(new_weights(3), 4)
    hf = export.hf_model(weights, IMAGE)
    ours = Pocket(weights)
    soft_tokens = 5 * 7
    cases = [rng.integers(3, 4000, n).tolist() for n in (3, 47, 48, 49, 130)]
    picture = rng.integers(0, 256, (5 * 12, 7 * 12, 3), dtype=np.uint8)
    with_picture = rng.integers(3, 4000, 30).tolist() + [IMAGE[1]] + [IMAGE[0]] * soft_tokens + [IMAGE[2]]
    worst = 0.0
    for batch, pic in ((cases, None), ([with_picture + rng.integers(3, 4000, n).tolist() for n in (4, 61)], picture)):
        length = torch.tensor([len(c) for c in batch])
        prefix = torch.zeros(len(batch), int(length.max()) + 5, dtype=torch.long)
        for row, c in zip(prefix, batch):
            row[:len(c)] = torch.tensor(c)
        canvas = torch.randint(0, TEXT["vocab_size"], (len(batch), CANVAS))
        extra = {}
        if pic is not None:
            patch, pos = patches_of(pic)
            extra = dict(image_id=IMAGE[0], patches=torch.tensor(patch).expand(len(batch), -1, -1, -1).float() / 255,
                         position=torch.tensor(pos).expand(len(batch), -1, -1, -1).long())
        with torch.no_grad():
            job = ours.prepare(prefix, length, **extra)
            first = ours.logits(job, canvas)
            second = ours.logits(job, canvas.flip(1), ours.soft_of(first, 0.65))
            for i, c in enumerate(batch):
                a = (theirs(hf, c, canvas[i], None, pic) - first[i]).abs().max().item()
                b = (theirs(hf, c, canvas[i].flip(0), first[i:i + 1] / 0.65, pic) - second[i]).abs().max().item()
                print(f"prefix {len(c):4d} {'picture' if pic is not None else '       '}  plain {a:.2e}  conditioned {b:.2e}  "
                      f"(largest logit {first[i].abs().max():.2f})")
                worst = max(worst, a, b)
    if not worst < LIMIT:
        sys.exit(f"differs from transformers by {worst:.2e}, wanted less than {LIMIT}")
    print("agrees with transformers")
    apart = packed_differs(weights)
    print("packed rows: off by %.2e, gradients by %.2e of the largest" % apart)
    if not max(apart) < LIMIT:
        sys.exit("packed rows are others")


if __name__ == "__main__":
    main()
