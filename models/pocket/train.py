"""Trains pocket on one GPU.

    python3 train.py --minutes 8 --out OUT [--init DIR | --warm DIR] [--lr-from 2e-3 --lr-to 1e-3] [--deadline 560]

The objective: a prefix that is clean, and a canvas each of whose tokens is replaced by any id of the vocabulary with
probability t, t uniform in [0, 1] (for some samples 1: where an answer begins), or only behind some place, as in an answer that
settles from the left; cross-entropy of the clean canvas. Half of the
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

import check_samples  # noqa: E402
import pictures  # noqa: E402
import samples  # noqa: E402

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
    ap.add_argument("--samples", type=int, default=768, help="of a batch of text")
    ap.add_argument("--mean-prefix", type=float, default=56, help="tokens of the prefixes of a batch, by sample")
    ap.add_argument("--pictures", type=int, default=192, help="of a batch of pictures")
    ap.add_argument("--workers", type=int, default=14)
    ap.add_argument("--tokenizer", default=os.path.join(HERE, "tokenizer.json"))
    ap.add_argument("--mix", help="file of {family: weight}, read again whenever it changes")
    ap.add_argument("--check", type=float, default=0, help="seconds between two looks at the families; the mix follows what is wrong")
    ap.add_argument("--ema", type=float, default=0.998)
    ap.add_argument("--full-noise", type=float, default=0.25, help="share of samples with t = 1")
    ap.add_argument("--from-left", type=float, default=0.25, help="share of samples that are clean up to some place and noise behind it")
    ap.add_argument("--balance", type=float, default=0.01, help="weight of the loss that spreads rows over experts")
    ap.add_argument("--own", type=float, default=0.4, help="share of the conditioned samples that get a canvas of the network's own making")
    ap.add_argument("--probe", type=float, default=0.3, help="weight of the loss that says what each soft token shows")
    ap.add_argument("--replay", type=int, default=1024, help="batches kept, to be noised anew when no fresh one is ready; 0: wait")
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


PINNING = threading.Lock()  # no memory is pinned while a graph is recorded


def say(*words):
    print(f"[{time.time() - START:6.1f}]", *words, flush=True)


class Batches:
    """Batches in pinned memory; old ones again when the processes are slower than training."""

    def __init__(self, feed, device, torch, replay, seed):
        import random
        self.feed, self.device, self.torch, self.room = feed, device, torch, replay
        self.kept, self.rng, self.fresh, self.again, self.skipped, self.error = [], random.Random(seed), 0, 0, 0, None
        self.ready = queue.Queue(4096)
        threading.Thread(target=self.pull, daemon=True).start()

    def pull(self):
        torch = self.torch
        try:
            while True:
                b = self.feed.get()
                self.skipped += b.pop("skipped")
                b = {k: torch.from_numpy(v) for k, v in b.items()}
                with PINNING:
                    b = {k: v.pin_memory() for k, v in b.items()} if self.device.type == "cuda" else b
                self.ready.put(b)
        except Exception as e:  # reported by the training loop
            self.error = e

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
            if self.room:
                self.kept.append(b)
                del self.kept[:-self.room]
            return b


class Tally:
    """Sums by family, kept on the device until a report."""

    def __init__(self, torch, device):
        self.torch, self.sums = torch, torch.zeros(len(feeding.NUMBER), 6, device=device)

    def add(self, which, w, ce, right, t):
        torch = self.torch
        weight, loss, hits = w.sum(1), (ce * w).sum(1), (right * w).sum(1)
        hard = (t > 0.9).float()
        rows = torch.stack([torch.ones_like(weight), weight, loss, weight * hard, loss * hard, hits * hard], 1)
        self.sums.index_add_(0, which.long(), rows)

    def report(self):
        sums = self.sums.tolist()
        self.sums.zero_()
        for family, i in sorted(feeding.NUMBER.items()):
            n, weight, loss, hard, hard_loss, hits = sums[i]
            if n and hard:
                print(f"      {family:24s} {int(n):8d} samples  loss {loss / weight:.4f}   "
                      f"at full noise: loss {hard_loss / hard:.4f}, right {100 * hits / hard:5.1f} %", flush=True)


class Step:
    """All of a step for batches of one kind. On a GPU a graph that is recorded once: shapes never change. Launched piece by piece,
    the two thousand kernels of a step keep the host busy for longer than the device."""

    def __init__(self, trainer, torch, device, example):
        self.trainer, self.params = trainer, list(trainer.net.params.values()) + [trainer.probe]
        self.inputs = {k: v.to(device) for k, v in example.items()}
        self.graph = None
        if device.type != "cuda":
            return
        begun, side = time.time(), torch.cuda.Stream()
        trainer.optimizer.lr.zero_()  # until training begins nothing is to change
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(2):
                self.compute()
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        warm = time.time()
        graph = torch.cuda.CUDAGraph()
        try:
            with PINNING, torch.cuda.graph(graph, capture_error_mode="thread_local"):
                self.out = self.compute()
            self.graph = graph
        except RuntimeError as e:
            say(f"not recorded, every step is launched piece by piece: {e}")
        torch.cuda.synchronize()
        say(f"recorded in {time.time() - warm:.1f} s, warm after {warm - begun:.1f} s, {torch.cuda.max_memory_allocated() / 1e9:.0f} GB")

    def compute(self):
        """-> mean loss and unevenness"""
        t, b = self.trainer, self.inputs
        for p in self.params:
            p.grad = None
        total, loss, uneven, ce, right, noise = t.loss(b)
        total.backward()
        t.optimizer.step()
        if t.probe.grad is not None:
            t.probe_optimizer.step()
        t.average.update()
        t.tally.add(b["which"], b["weight"], ce, right, noise)
        t.mean_loss.lerp_(loss, 0.02)
        return loss, uneven

    def run(self, batch):
        for k, v in batch.items():
            self.inputs[k].copy_(v, non_blocking=True)
        if not self.graph:
            return self.compute()
        self.graph.replay()
        return self.out


class Trainer:
    def __init__(self, args, torch, M, device, image_id):
        from optim import Average, Optimizer, adam
        import evaluate
        import packed
        self.args, self.torch, self.M, self.image_id, self.evaluation, self.packed = args, torch, M, image_id, evaluate, packed
        if args.init:
            weights = M.load_weights(args.init, args.init_stem)
        elif args.warm:
            import carry_over
            weights = carry_over.weights_of(args.warm, args.warm_tokenizer, args.tokenizer)
        else:
            weights = M.new_weights(args.seed)
        self.net = M.Pocket(weights, device, torch.bfloat16 if device.type == "cuda" else torch.float32, train=True)
        self.optimizer, self.average = Optimizer(self.net.params, device), Average(self.net.params, args.ema, device)
        self.probe = torch.zeros(pictures.N_CELL, M.TEXT["hidden_size"], device=device, requires_grad=True)
        self.last_unseen = torch.zeros((), device=device)
        self.probe_optimizer = adam([self.probe], torch.full((), 3e-3, device=device), (0.9, 0.999))
        self.tally, self.mean_loss = Tally(torch, device), torch.zeros((), device=device)
        if not args.no_compile:
            torch._dynamo.config.recompile_limit = 32
            torch._dynamo.config.suppress_errors = True  # what cannot be compiled runs as it is written
            self.net.ops.compile()

    def noised(self, target, t, edge):
        """With probability t any token; behind `edge` all of them, where it is not past the canvas."""
        torch = self.torch
        noise = torch.rand(target.shape, device=target.device) < t[:, None]
        noise |= torch.arange(target.shape[1], device=target.device) >= edge[:, None]
        return torch.where(noise, torch.randint_like(target, self.M.TEXT["vocab_size"]), target)

    def amounts(self, weight):
        """Of noise, by sample: its probability at each place, and the place behind which nothing is left. Where places hang on the lengths of the words
        before them, an answer settles from the left; noise that is everywhere alike never looks like that."""
        torch = self.torch
        t = torch.rand(len(weight), device=weight.device)
        t = torch.where(torch.rand_like(t) < self.args.full_noise, torch.ones_like(t), t)
        left = torch.rand_like(t) < self.args.from_left
        edge = torch.where(left, (weight == 1).sum(1) * torch.rand_like(t), torch.full_like(t, weight.shape[1]))
        return torch.where(left, 0.05 * t, t), edge

    def thought(self, look, target, canvas, t, edge, closed):
        """The signal for half of the samples: what the network makes of the same canvas or, as often, of a noisier one (`look`: canvases
        of the first samples -> raw logits); and the canvases, some of them made of what it thought."""
        torch, n = self.torch, len(target) // 2
        left = edge[:n] < target.shape[1]
        u = torch.rand_like(t[:n])
        other = self.noised(target[:n], torch.where(left, t[:n], t[:n] + (1 - t[:n]) * u), torch.where(left, edge[:n] * u, edge[:n]))
        same = torch.rand(n, 1, device=target.device) < 0.5
        # with gradients on and then dropped: so the compiled code is the one of the second pass
        z = look(torch.where(same, canvas[:n], other)).detach()
        temperature = (0.4 + 0.4 * torch.rand(n, 1, device=target.device)).expand(target[:n].shape).reshape(-1, 1)
        p, entropy, drawn = self.net.ops.thoughts(z, temperature, torch.empty(z.shape, device=z.device).exponential_(), self.net.dtype)
        soft = self.M.linear(p, self.net.table.t(), self.net.dtype).detach().float().view(n, target.shape[1], -1) * self.M.TEXT["hidden_size"] ** 0.5
        own = self.own_canvas(entropy.view(target[:n].shape), drawn.view(target[:n].shape), canvas[:n], target[:n], closed[:n])
        return torch.cat([soft, soft.new_zeros(len(target) - n, *soft.shape[1:])]), torch.cat([own, canvas[n:]])

    def own_canvas(self, entropy, drawn, canvas, target, closed):
        """For some of the samples the canvas that the sampler would make of what was drawn. Where one answer is right (`closed`) its
        mistakes come along, to be put right. A story would become another one than the target, and the network would learn to
        believe nothing that it reads: there the sampler draws, where it settles something, what the target has."""
        torch = self.torch
        accepted = self.evaluation.accept(entropy, self.evaluation.BOUND)
        drawn = torch.where(closed[:, None], drawn, target)
        own = torch.where(accepted, drawn, torch.randint_like(target, self.M.TEXT["vocab_size"]))
        use = torch.rand(len(target), 1, device=target.device) < self.args.own
        return torch.where(use, own, canvas)

    def loss(self, b):
        """What is minimised, then what is reported: loss, unevenness, and by token its loss and whether it is right, and the noise."""
        torch, target = self.torch, b["target"].long()
        self.net.cast()
        t, edge = self.amounts(b["weight"])
        x, uneven, extra = (self.pictured if "patches" in b else self.text)(b, target, self.noised(target, t, edge), t, edge)
        ce, right = self.net.loss(x, target)
        w = b["weight"]
        loss = (ce * w).sum() / w.sum()
        total = loss + self.args.balance * uneven + self.args.probe * extra
        # batches of pictures are small: without this factor their samples would count for more
        return total * (len(target) / self.args.samples), loss.detach(), uneven.detach(), ce.detach(), right, t

    def text(self, b, target, canvas, t, edge):
        packed, net, prefix = self.packed, self.net, b["prefix"].long()
        layout = packed.Layout(b["lengths"].long(), len(prefix))
        left, read = packed.read(net, layout, prefix)
        still = [(k.detach(), v.detach()) for k, v in left]

        def look(first):
            x = packed.write(net, layout, still, first, x_zero[:len(first)])[0]
            return net.raw_logits(x.view(*first.shape, -1))
        x_zero = self.torch.zeros(*target.shape, self.M.TEXT["hidden_size"], device=target.device)
        signal, canvas = self.thought(look, target, canvas, t, edge, b["closed"])
        x, written = packed.write(net, layout, left, canvas, signal)
        return x.view(*target.shape, -1), packed.uneven(read, written), 0.0

    def pictured(self, b, target, canvas, t, edge):
        job = self.net.prepare(b["prefix"].long(), b["lengths"].long(), image_id=self.image_id, patches=b["patches"].float() / 255, position=b["position"].long())
        still = {**job, "soft": job["soft"].detach()}
        signal, canvas = self.thought(lambda first: self.net.raw_logits(self.net.rows(self.M.part_of_job(still, len(first)), first)[0]), target, canvas, t, edge, b["closed"])
        x, uneven = self.net.rows(job, canvas, signal)
        return x, uneven, self.unseen(job["soft"], b["cells"].long())

    def unseen(self, soft, cells):
        """How much the probe cannot tell. It looks at normed rows: making them large would not help it."""
        z = self.torch.nn.functional.linear(self.M.rms(soft), self.probe)
        loss = self.torch.nn.functional.cross_entropy(z.flatten(0, 1), cells.flatten(), ignore_index=-1)
        self.last_unseen.copy_(loss.detach())
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


def flops(M, rows, n):
    """Of a step's matrix products: forward, twice that backward, and the first look at half of the canvases."""
    per_row = sum(p[0] * p[1] * (p[2] if len(p) == 3 else 1) for name, p in M.shapes().items()
                  if len(p) > 1 and name.startswith("decoder.layers"))
    head = M.CANVAS * M.TEXT["vocab_size"] * M.TEXT["hidden_size"]
    return 2 * (3 * rows * per_row + n * (0.5 * M.CANVAS * per_row + 4 * head))


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


def train(trainer, steps, batches, torch, M, device):
    args, tally, mean_loss = trainer.args, trainer.tally, trainer.mean_loss
    begun = last = saved = time.time()
    step, n_sample, pending = 0, 0, []
    work, waited = 0.0, 0.0  # waited: for the device, which is then what bounds the speed
    end = min(begun + args.minutes * 60, START + args.deadline - args.reserve)
    checked = begun
    tally.sums.zero_()
    while True:
        now = time.time()
        if now >= end or args.steps and step == args.steps:
            break
        part = (now - begun) / (end - begun)
        lr = (args.lr_from + (args.lr_to - args.lr_from) * part) * min(1.0, (step + 1) / args.warmup)
        trainer.optimizer.lr.fill_(lr)
        batch = batches.next()
        loss, uneven = steps["patches" in batch].run(batch)
        if not step:
            mean_loss.copy_(loss)
        rows = batch["prefix"].numel() + M.CANVAS * len(batch["target"])
        step, n_sample, work = step + 1, n_sample + len(batch["target"]), work + flops(M, rows, len(batch["target"]))
        if device.type == "cuda":  # the clock above must not run far ahead of the device
            pending.append(torch.cuda.Event())
            pending[-1].record()
            if len(pending) > 4:
                began = time.time()
                pending.pop(0).synchronize()
                waited += time.time() - began
        if now - last >= args.report:
            value = mean_loss.item()
            say(f"step {step}  {n_sample / (now - last):.0f} samples/s  loss {value:.4f}  lr {lr:.2e}  experts {uneven.item():.3f}  "
                f"unseen {trainer.last_unseen.item():.4f}  "
                f"queue {batches.ready.qsize()}+{batches.feed.depth()}  fresh {batches.fresh} again {batches.again} "
                f"too long {batches.skipped}  {work / (now - last) / 1e12:.0f} TFLOP/s ({work / (now - last) / 9.9e14:.0%}), waiting {waited / (now - last):.0%}")
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
    sizes = args.samples, int(args.samples * args.mean_prefix) // 128 * 128, args.pictures
    feed = feeding.Feed(args.workers, args.seed, args.tokenizer, args.mix, sizes)
    check_samples.check(samples.Codec(args.tokenizer), 20)
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
        steps = {}
        while len(steps) < 2:  # one of each kind
            batch = batches.next()
            if ("patches" in batch) not in steps:
                steps["patches" in batch] = Step(trainer, torch, device, batch)
                feed.all_go()
        if args.save_cache:
            with tarfile.open(os.path.join(args.out, "compiled.tar.gz"), "w:gz", compresslevel=1) as t:
                t.add(args.cache, ".")
            say(f"compiled code: {os.path.getsize(os.path.join(args.out, 'compiled.tar.gz')) >> 20} MiB")
        train(trainer, steps, batches, torch, M, device)
    finally:
        feed.close()
    trainer.save()
    say("saved")
    if args.eval and START + args.deadline - time.time() > 5:
        check(trainer, args.eval, until=START + args.deadline - 5)
    say("done")


if __name__ == "__main__":
    main()
