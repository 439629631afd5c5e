"""Trains pocket on one GPU.

    python3 train.py --minutes 8 --out OUT [--init DIR | --warm DIR] [--lr-from 2e-3 --lr-to 1e-3] [--deadline 560]

The objective: a prefix that is clean, and a canvas each of whose tokens is replaced by any id of the vocabulary with
probability t, t uniform in [0, 1] (for some samples 1: where an answer begins); cross-entropy of the clean canvas. Half of the
samples are conditioned on what the network thought of a canvas before, as every step but the first of an answer is. Some canvases
are of the network's own making, as those of an answer are: its mistakes are plausible ones, which random ids never are.
Pictures teach more than their answers: a linear probe, thrown away in the end, must tell from each soft token what shape and
colour or which digit it is part or middle of.

Writes weights.{0,1}.pt (moving average: the result) and raw.{0,1}.pt (to go on from, --init).
"""
import argparse
import json
import os
import queue
import tarfile
import tempfile
import threading
import time

START = time.time()
import feed as feeding  # noqa: E402  the processes that make samples start before PyTorch is loaded

import pictures  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))


def arguments():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--minutes", type=float, required=True, help="of training, compilation not counted")
    ap.add_argument("--out", required=True)
    ap.add_argument("--init", help="folder with raw.{0,1}.pt to go on from")
    ap.add_argument("--init-stem", default="raw")
    ap.add_argument("--warm", help="folder with pocket.gguf and mmproj-pocket.gguf to begin with, where there is no --init")
    ap.add_argument("--warm-tokenizer", default=os.path.join(HERE, "tokenizer.json"), help="the one of those files")
    ap.add_argument("--steps", type=int, default=0, help="stop after so many; 0: by the clock alone")
    ap.add_argument("--deadline", type=float, default=1e9, help="seconds after the start at which all must be over")
    ap.add_argument("--reserve", type=float, default=0, help="of these seconds, how many are kept for the evaluation at the end")
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--lr-from", type=float, default=2e-3)
    ap.add_argument("--lr-to", type=float, default=1e-4)
    ap.add_argument("--warmup", type=int, default=150, help="steps")
    ap.add_argument("--rows", type=int, default=98304, help="rows of a batch, prefixes and canvases together")
    ap.add_argument("--workers", type=int, default=14)
    ap.add_argument("--tokenizer", default=os.path.join(HERE, "tokenizer.json"))
    ap.add_argument("--mix", help="file of {family: weight}, read again whenever it changes")
    ap.add_argument("--check", type=float, default=0, help="seconds between two looks at the families; the mix follows what is wrong")
    ap.add_argument("--ema", type=float, default=0.998)
    ap.add_argument("--full-noise", type=float, default=0.25, help="share of samples with t = 1")
    ap.add_argument("--balance", type=float, default=0.01, help="weight of the loss that spreads rows over experts")
    ap.add_argument("--own", type=float, default=0.4, help="share of the conditioned samples that get a canvas of the network's own making")
    ap.add_argument("--probe", type=float, default=0.3, help="weight of the loss that says what each soft token shows")
    ap.add_argument("--replay", type=int, default=64, help="batches kept, to be noised anew when no fresh one is ready; 0: wait")
    ap.add_argument("--no-compile", action="store_true")
    ap.add_argument("--cache", default=os.path.join(tempfile.gettempdir(), "pocket-compiled"), help="folder of compiled code")
    ap.add_argument("--cache-tar", help="archive to fill that folder from, where it exists")
    ap.add_argument("--save-cache", action="store_true", help="write OUT/compiled.tar.gz")
    ap.add_argument("--eval", type=int, default=40, help="prompts of each family at the end")
    ap.add_argument("--check-prompts", type=int, default=60, help="prompts of each family when the mix is looked at")
    ap.add_argument("--report", type=float, default=10, help="seconds between reports")
    return ap.parse_args()


def restore_cache(args):
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = args.cache
    os.environ["TRITON_CACHE_DIR"] = os.path.join(args.cache, "triton")
    os.environ["TORCHINDUCTOR_FX_GRAPH_CACHE"] = os.environ["TORCHINDUCTOR_AUTOGRAD_CACHE"] = "1"
    if args.cache_tar and os.path.exists(args.cache_tar):
        with tarfile.open(args.cache_tar) as t:
            t.extractall(args.cache, filter="data")


def say(*words):
    print(f"[{time.time() - START:6.1f}]", *words, flush=True)


class Batches:
    """Batches on the device, one ahead; old ones again when the processes are slower than training."""

    def __init__(self, feed, device, torch, replay, seed):
        import random
        self.feed, self.device, self.torch, self.room = feed, device, torch, replay
        self.kept, self.rng, self.fresh, self.again, self.skipped, self.error = [], random.Random(seed), 0, 0, 0, None
        self.ready = queue.Queue(6)
        threading.Thread(target=self.pull, daemon=True).start()

    def pull(self):
        torch = self.torch
        try:
            while True:
                b = self.feed.get()
                for k, v in b.items():
                    if not isinstance(v, (tuple, list, int)):
                        t = torch.from_numpy(v)
                        b[k] = t.pin_memory() if self.device.type == "cuda" else t
                self.ready.put(b)
        except Exception as e:  # reported by the training loop
            self.error = e

    def upload(self, b):
        out = {k: v.to(self.device, non_blocking=True) if self.torch.is_tensor(v) else v for k, v in b.items()}
        for k in ("prefix", "length", "target", "cells"):
            if k in out:
                out[k] = out[k].long()
        return out

    def next(self):
        while True:
            if self.error:
                raise self.error
            try:
                b = self.ready.get_nowait() if self.kept else self.ready.get(timeout=1)
            except queue.Empty:
                if not self.kept or self.again > self.fresh * 8:
                    time.sleep(0.005)
                    continue
                self.again += 1
                return self.rng.choice(self.kept)
            self.fresh += 1
            self.skipped += b["skipped"]
            b = self.upload(b)
            if self.room:
                self.kept.append(b)
                del self.kept[:-self.room]
            return b


class Tally:
    """Sums by family, kept on the device until a report."""

    def __init__(self, torch, device, room=128):
        self.torch, self.ids, self.room = torch, {}, room
        self.sums = torch.zeros(room, 6, device=device)

    def add(self, batch, ce, right, t):
        torch = self.torch
        if "which" not in batch:
            batch["which"] = torch.tensor([self.ids.setdefault(f, len(self.ids) % self.room) for f in batch["family"]],
                                          device=ce.device)
        w = batch["weight"]
        weight, loss, hits = w.sum(1), (ce * w).sum(1), (right * w).sum(1)
        hard = (t > 0.9).float()
        rows = torch.stack([torch.ones_like(weight), weight, loss, weight * hard, loss * hard, hits * hard], 1)
        self.sums.index_add_(0, batch["which"], rows)

    def report(self):
        sums = self.sums.tolist()
        self.sums.zero_()
        for family, i in sorted(self.ids.items()):
            n, weight, loss, hard, hard_loss, hits = sums[i]
            if n and hard:
                print(f"      {family:24s} {int(n):8d} samples  loss {loss / weight:.4f}   "
                      f"at full noise: loss {hard_loss / hard:.4f}, right {100 * hits / hard:5.1f} %", flush=True)


class Trainer:
    def __init__(self, args, torch, M, device, image_id):
        from optim import Average, Optimizer
        import evaluate
        self.args, self.torch, self.M, self.image_id, self.evaluation = args, torch, M, image_id, evaluate
        self.largest = max(feeding.batch_sizes(args.rows).values())
        if args.init:
            weights = M.load_weights(args.init, args.init_stem)
        elif args.warm:
            import carry_over
            weights = carry_over.weights_of(args.warm, args.warm_tokenizer, args.tokenizer)
        else:
            weights = M.new_weights(args.seed)
        self.net = M.Pocket(weights, device, torch.bfloat16 if device.type == "cuda" else torch.float32, train=True)
        self.optimizer, self.average = Optimizer(self.net.params, device), Average(self.net.params, args.ema)
        self.probe = torch.zeros(pictures.N_CELL, M.TEXT["hidden_size"], device=device, requires_grad=True)
        self.last_unseen = torch.zeros((), device=device)
        self.probe_optimizer = torch.optim.AdamW([self.probe], lr=3e-3, weight_decay=0.0)
        if not args.no_compile:
            torch._dynamo.config.recompile_limit = 32
            torch._dynamo.config.suppress_errors = True  # what cannot be compiled runs as it is written
            self.net.ops.compile()

    def noised(self, target, t):
        torch = self.torch
        noise = torch.rand(target.shape, device=target.device) < t[:, None]
        return torch.where(noise, torch.randint_like(target, self.M.TEXT["vocab_size"]), target)

    def thought(self, job, target, canvas, t, closed):
        """The signal for half of the samples: what the network makes of the same canvas or, as often, of a noisier one; and the
        canvases, some of them made of what it thought."""
        torch, M, n = self.torch, self.M, len(target) // 2
        other = self.noised(target[:n], t[:n] + (1 - t[:n]) * torch.rand_like(t[:n]))
        same = torch.rand(n, 1, device=target.device) < 0.5
        first = torch.where(same, canvas[:n], other)
        # with gradients on and then dropped: so the compiled code is the one of the second pass
        z = self.net.logits(M.part_of_job(job, n), first)
        temperature = 0.4 + 0.4 * torch.rand(n, 1, 1, device=target.device)
        soft = self.net.soft_of(z, temperature).detach()
        canvas = torch.cat([self.own_canvas(z.detach() / temperature, canvas[:n], target[:n], closed[:n]), canvas[n:]])
        return torch.cat([soft, soft.new_zeros(len(target) - n, *soft.shape[1:])]), canvas

    def own_canvas(self, z, canvas, target, closed):
        """For some of the samples the canvas that the sampler would make of these logits. Where one answer is right (`closed`) its
        mistakes come along, to be put right. A story would become another one than the target, and the network would learn to
        believe nothing that it reads: there the sampler draws, where it settles something, what the target has."""
        torch = self.torch
        logp = z.log_softmax(-1)
        accepted = self.evaluation.accept(-(logp.exp() * logp).sum(-1), self.evaluation.BOUND)
        drawn = (logp - torch.empty_like(logp).exponential_().log()).argmax(-1)
        drawn = torch.where(closed[:, None], drawn, target)
        own = torch.where(accepted, drawn, torch.randint_like(target, self.M.TEXT["vocab_size"]))
        use = torch.rand(len(z), 1, device=z.device) < self.args.own
        return torch.where(use, own, canvas)

    def loss(self, batch):
        torch, net, target = self.torch, self.net, batch["target"]
        t = torch.rand(len(target), device=target.device)
        t = torch.where(torch.rand_like(t) < self.args.full_noise, torch.ones_like(t), t)
        canvas = self.noised(target, t)
        extra = {}
        if "patches" in batch:
            extra = dict(image_id=self.image_id, patches=batch["patches"].float() / 255, position=batch["position"].long())
        job = net.prepare(batch["prefix"], batch["length"], **extra)
        seen = None if job["soft"] is None else job["soft"].detach()
        with_signal, canvas = self.thought({**job, "soft": seen}, target, canvas, t, batch["closed"])
        x, uneven = net.rows(job, canvas, with_signal)
        ce, right = net.loss(x, target)
        w = batch["weight"]
        loss = (ce * w).sum() / w.sum()
        # batches of long samples are small: without this factor their samples would count for more
        total = loss + self.args.balance * uneven
        if "cells" in batch:
            total = total + self.args.probe * self.unseen(job["soft"], batch["cells"])
        return total * (len(target) / self.largest), loss.detach(), uneven.detach(), ce.detach(), right, t

    def unseen(self, soft, cells):
        """How much the probe cannot tell. It looks at normed rows: making them large would not help it."""
        z = self.torch.nn.functional.linear(self.M.rms(soft), self.probe)
        loss = self.torch.nn.functional.cross_entropy(z.flatten(0, 1), cells.flatten(), ignore_index=-1)
        self.last_unseen = loss.detach()
        return loss

    def save(self):
        """All or nothing: a run that is killed while it writes leaves what was there."""
        parts = os.path.join(self.args.out, "saving")
        os.makedirs(parts, exist_ok=True)
        self.M.save_weights(parts, "weights", self.average.weights())
        self.M.save_weights(parts, "raw", self.net.params)
        for name in os.listdir(parts):
            os.replace(os.path.join(parts, name), os.path.join(self.args.out, name))
        os.rmdir(parts)


def flops(M, batch):
    """Of a step's matrix products: forward, twice that backward, and the first pass of half of the samples."""
    n, prefix = batch["prefix"].shape
    rows = prefix + M.CANVAS
    per_row = sum(p[0] * p[1] * (p[2] if len(p) == 3 else 1) for name, p in M.shapes().items()
                  if len(p) > 1 and name.startswith("decoder.layers"))
    attention = sum(2 * rows * 4 * (64 if k == "S" else 128) for k in M.KINDS)
    return 2 * n * (rows * (per_row + attention) + 2 * M.CANVAS * M.TEXT["vocab_size"] * M.TEXT["hidden_size"]) * 3.5


def warm_up(trainer, torch, sizes, device):
    """Runs every bucket once on made-up batches, so that compilation is over before the clock of the schedule starts."""
    for (n_prefix, pictured), n in sizes.items():
        begun = time.time()
        b = dict(prefix=torch.full((n, n_prefix), 5, device=device), length=torch.full((n,), n_prefix, device=device),
                 target=torch.full((n, feeding.CANVAS), 7, device=device), weight=torch.ones(n, feeding.CANVAS, device=device),
                 closed=torch.ones(n, dtype=torch.bool, device=device))
        if pictured:
            b["patches"] = torch.zeros(n, feeding.SOFT_ROOM, 9, 48, dtype=torch.uint8, device=device)
            b["position"] = torch.zeros(n, feeding.SOFT_ROOM, 9, 2, dtype=torch.int16, device=device)
        trainer.loss(b)[0].backward()
        for p in trainer.net.params.values():
            p.grad = None
        if device.type == "cuda":
            torch.cuda.synchronize()
        say(f"bucket {n_prefix}{' with pictures' if pictured else ''} of {n}: {time.time() - begun:.1f} s")


def check(trainer, per_family, until=None):
    """Asks prompts of every family -> the share of right answers of each."""
    net = trainer.M.Pocket(trainer.average.weights(), trainer.net.device, trainer.net.dtype)
    return trainer.evaluation.evaluate(net, trainer.args.tokenizer, per_family, until=until)


def write_mix(path, shares, allowed=0.03):
    """What the samples to come are made of: more of what fails more often than in `allowed` of the cases, less of the rest."""
    import families
    mix = {f: w * min(2.0, max(0.6, (1 - shares.get(f, 1 - allowed)) / allowed)) for f, (_, w) in families.FAMILIES.items()}
    say("mix", {f: round(w, 1) for f, w in mix.items()})
    with open(path + ".new", "w", encoding="utf-8") as f:
        json.dump(mix, f)
    os.replace(path + ".new", path)


def train(trainer, batches, torch, M, device):
    args, tally = trainer.args, Tally(torch, device)
    begun = last = saved = time.time()
    step, n_sample, pending = 0, 0, []
    work, mean_loss, mean_uneven, waited = 0.0, None, 0.0, 0.0  # waited: for the device, which is then what bounds the speed
    end = min(begun + args.minutes * 60, START + args.deadline - args.reserve)
    checked = begun
    while True:
        now = time.time()
        if now >= end or args.steps and step == args.steps:
            break
        part = (now - begun) / (end - begun)
        lr = (args.lr_from + (args.lr_to - args.lr_from) * part) * min(1.0, (step + 1) / args.warmup)
        batch = batches.next()
        total, loss, uneven, ce, right, t = trainer.loss(batch)
        total.backward()
        trainer.optimizer.step(lr)
        if trainer.probe.grad is not None:
            trainer.probe_optimizer.step()
            trainer.probe.grad = None
        trainer.average.update()
        tally.add(batch, ce, right, t)
        step, n_sample, work = step + 1, n_sample + len(t), work + flops(M, batch)
        mean_loss = loss if mean_loss is None else mean_loss.lerp(loss, 0.02)
        if device.type == "cuda":  # the clock above must not run far ahead of the device
            pending.append(torch.cuda.Event())
            pending[-1].record()
            if len(pending) > 4:
                began = time.time()
                pending.pop(0).synchronize()
                waited += time.time() - began
        if now - last >= args.report:
            value, mean_uneven = mean_loss.item(), uneven.item()
            say(f"step {step}  {n_sample / (now - last):.0f} samples/s  loss {value:.4f}  lr {lr:.2e}  experts {mean_uneven:.3f}  "
                f"unseen {trainer.last_unseen.item():.4f}  "
                f"queue {batches.ready.qsize()}+{batches.feed.depth()}  fresh {batches.fresh} again {batches.again} "
                f"too long {batches.skipped}  {work / (now - last) / 1e12:.0f} TFLOP/s ({work / (now - last) / 9.9e14:.0%}), waiting {waited / (now - last):.0%}"
                + (f", {torch.cuda.max_memory_allocated() / 1e9:.0f} GB" if device.type == "cuda" else ""))
            tally.report()
            if value != value:
                raise SystemExit("the loss is not a number")
            last, n_sample, work, waited = now, 0, 0.0, 0.0
        if args.check and now - checked > args.check and end - now > args.check / 2:
            write_mix(args.mix, check(trainer, args.check_prompts))
            checked = now
        if now - saved > 120:
            trainer.save()
            saved = now
    say(f"{step} steps, loss {mean_loss.item():.4f}")
    tally.report()


def main():
    args = arguments()
    os.makedirs(args.out, exist_ok=True)
    if args.mix and not os.path.exists(args.mix):
        raise SystemExit(f"{args.mix}: no such file")
    args.mix = args.mix or os.path.join(args.out, "mix.json")
    sizes = feeding.batch_sizes(args.rows)
    feed = feeding.Feed(args.workers, args.seed, args.tokenizer, args.mix, sizes)
    restore_cache(args)
    import torch
    import model as M
    say(f"PyTorch {torch.__version__}, batches {sizes}")
    torch.set_float32_matmul_precision("high")
    cuda = torch.cuda.is_available()
    device = torch.device("cuda" if cuda else "cpu")
    torch.manual_seed(args.seed)
    if not cuda:
        torch.set_num_threads(2)
    trainer = Trainer(args, torch, M, device, M.image_ids(args.tokenizer)[0])
    say(f"{sum(p.numel() for p in trainer.net.params.values()) / 1e6:.2f} M parameters on {device}")
    batches = Batches(feed, device, torch, args.replay, args.seed)
    try:
        if not args.no_compile:
            warm_up(trainer, torch, sizes, device)
            if args.save_cache:
                with tarfile.open(os.path.join(args.out, "compiled.tar.gz"), "w:gz", compresslevel=1) as t:
                    t.add(args.cache, ".")
                say(f"compiled code: {os.path.getsize(os.path.join(args.out, 'compiled.tar.gz')) >> 20} MiB")
        train(trainer, batches, torch, M, device)
    finally:
        feed.close()
    trainer.save()
    say("saved")
    if args.eval and START + args.deadline - time.time() > 5:
        check(trainer, args.eval, until=START + args.deadline - 5)
    say("done")


if __name__ == "__main__":
    main()
