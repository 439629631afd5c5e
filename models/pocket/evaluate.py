"""How well pocket answers: prompts of every family through the entropy-bound sampler, many at a time.

    python3 evaluate.py WEIGHTS_DIR [STEM] [--per-family N] [--tokenizer FILE] [--gguf]
"""
import argparse
import os
import time

import numpy as np
import torch

import model as M
from feed import patches_of

STEPS, T_MIN, T_MAX, BOUND, CONFIDENCE, BLOCKS = 48, 0.4, 0.8, 0.1, 0.005, 8


def accept(entropy, bound):
    """Positions whose better ones have, together, at most `bound` nats."""
    h, order = entropy.sort(-1)
    good = h.cumsum(-1) - h <= bound
    return torch.zeros_like(good).scatter(1, order, good)


def keep_rows(job, rows):
    if isinstance(job, dict):
        return {k: keep_rows(v, rows) for k, v in job.items()}
    return tuple(v[rows] for v in job) if isinstance(job, tuple) else job if job is None else job[rows]


@torch.no_grad()
def denoise(net, job, n, until=None):
    """One canvas for each of n prepared prompts -> (best ids [n, canvas], steps that each took)."""
    vocab, dev = M.TEXT["vocab_size"], net.device
    out = torch.zeros(n, M.CANVAS, dtype=torch.long, device=dev)
    took = torch.zeros(n, dtype=torch.long, device=dev)
    at = torch.arange(n, device=dev)  # rows that still run
    canvas = torch.randint(0, vocab, (n, M.CANVAS), device=dev)
    before, soft = torch.full_like(canvas, -1), None
    for left in range(STEPS, 0, -1):
        t = T_MIN + (T_MAX - T_MIN) * left / STEPS
        raw = net.logits(job, canvas, soft)
        z = raw / t
        logp = z.log_softmax(-1)
        p = logp.exp()
        entropy = -(p * logp).sum(-1)
        best = z.argmax(-1)
        sampled = torch.multinomial(p.flatten(0, 1), 1).view(canvas.shape)
        canvas = torch.where(accept(entropy, BOUND), sampled, torch.randint(0, vocab, canvas.shape, device=dev))
        out[at], took[at] = best, took[at] + 1
        on = ~((best == before).all(-1) & (entropy.mean(-1) < CONFIDENCE))
        if not on.any() or (until is not None and time.time() > until):
            break
        soft = net.soft_of(raw, t)
        before = best
        if not on.all():
            rows = on.nonzero().squeeze(1)
            at, canvas, before, soft, job = at[rows], canvas[rows], before[rows], soft[rows], keep_rows(job, rows)
    return out, took


def prepare(net, prompts, pictures, image_id):
    dev = net.device
    room = (max(map(len, prompts)) + 15) // 16 * 16
    prefix = torch.zeros(len(prompts), room, dtype=torch.long)
    for row, ids in zip(prefix, prompts):
        row[:len(ids)] = torch.tensor(ids)
    extra = {}
    if pictures[0] is not None:
        both = [patches_of(p) for p in pictures]
        extra = dict(image_id=image_id, patches=torch.from_numpy(np.stack([b[0] for b in both])).to(dev).float() / 255,
                     position=torch.from_numpy(np.stack([b[1] for b in both])).to(dev).long())
    return net.prepare(prefix.to(dev), torch.tensor([len(p) for p in prompts], device=dev), **extra)


@torch.no_grad()
def generate(net, prompts, pictures, image_id, blocks=BLOCKS, batch=512, until=None):
    """Answers up to the first stop token, and the mean number of steps for a canvas of each."""
    answers, steps, n_canvas = [[] for _ in prompts], [0] * len(prompts), [0] * len(prompts)
    running = list(range(len(prompts)))
    for _ in range(blocks):
        going = []
        running.sort(key=lambda i: (pictures[i] is not None, len(prompts[i]) + len(answers[i])))
        while running:
            pictured = pictures[running[0]] is not None
            part = [i for i in running[:batch if not pictured else batch // 4] if (pictures[i] is not None) == pictured]
            running = running[len(part):]
            if until is not None and time.time() > until:
                continue
            job = prepare(net, [prompts[i] + answers[i] for i in part], [pictures[i] for i in part], image_id)
            out, took = denoise(net, job, len(part), until)
            for i, ids, n in zip(part, out.tolist(), took.tolist()):
                stop = next((k for k, x in enumerate(ids) if x in M.STOPS), None)
                answers[i] += ids if stop is None else ids[:stop + 1]
                steps[i] += n
                n_canvas[i] += 1
                if stop is None:
                    going.append(i)
        running = going
    return answers, [s / max(1, n) for s, n in zip(steps, n_canvas)]


def evaluate(net, tokenizer_path, per_family, seed=99, until=None, n_failures=3):
    """Prints right answers by family and returns the share of each. `until`: time.time() at which to stop."""
    from samples import Sampler
    from tokenizers import Tokenizer
    tokenizer = Tokenizer.from_file(tokenizer_path)
    items = Sampler(seed, tokenizer_path).eval_items(per_family, seed)
    start = time.time()
    answers, steps = generate(net, [list(i[1]) for i in items], [i[2] for i in items], M.image_ids(tokenizer_path)[0], until=until)
    families = {}
    for (family, prefix, _, expected, check), ids, n in zip(items, answers, steps):
        text = tokenizer.decode([i for i in ids if i != M.PAD], skip_special_tokens=False)
        wanted = None if expected is None else [i for i in expected if i != M.PAD]
        right = bool(check(text)) if check is not None else [i for i in ids if i != M.PAD] == wanted
        families.setdefault(family, []).append((right, n, prefix, text, wanted))
    total = 0
    for family, rows in sorted(families.items()):
        right = sum(r[0] for r in rows)
        total += right
        print(f"  {family:24s} {right:4d}/{len(rows):<4d} {100 * right / len(rows):5.1f} %   "
              f"{sum(r[1] for r in rows) / len(rows):5.1f} steps a canvas")
        for _, _, prefix, text, wanted in [r for r in rows if not r[0]][:n_failures]:
            asked = tokenizer.decode(list(prefix), skip_special_tokens=False)
            want = "" if wanted is None else " wanted " + repr(tokenizer.decode(wanted, skip_special_tokens=False)[:160])
            print(f"      {asked[-160:]!r}\n        -> {text[:160]!r}{want}")
    print(f"  all {total}/{len(items)}, {sum(steps) / max(1, len(steps)):.1f} steps a canvas, {time.time() - start:.1f} s", flush=True)
    return {family: sum(r[0] for r in rows) / len(rows) for family, rows in families.items()}


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("dir")
    ap.add_argument("stem", nargs="?", default="weights")
    ap.add_argument("--per-family", type=int, default=50)
    ap.add_argument("--seed", type=int, default=99)
    ap.add_argument("--tokenizer", default=os.path.join(M.HERE, "tokenizer.json"))
    ap.add_argument("--gguf", action="store_true", help="dir holds pocket.gguf and mmproj-pocket.gguf; evaluate these")
    a = ap.parse_args()
    if a.gguf:
        import export
        weights = export.read_weights(os.path.join(a.dir, "pocket.gguf"), os.path.join(a.dir, "mmproj-pocket.gguf"))
    else:
        weights = M.load_weights(a.dir, a.stem)
    cuda = torch.cuda.is_available()
    net = M.Pocket(weights, "cuda" if cuda else "cpu", torch.bfloat16 if cuda else torch.float32)
    evaluate(net, a.tokenizer, a.per_family, a.seed)


if __name__ == "__main__":
    main()
