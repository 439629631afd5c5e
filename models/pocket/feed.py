"""Processes that make batches: samples from samples.Sampler, sorted by the length of the prefix, as arrays of fixed shape.

Nothing here needs PyTorch, so that a dozen processes start in a moment.
"""
import json
import multiprocessing
import os
import signal
import traceback

import numpy as np

from families import OPEN

CANVAS = 64
BUCKETS = (32, 64, 128, 256, 448)  # longest prefix of each
PICTURE_PREFIX = 160
SOFT_ROOM = 72  # 70 by the processor's budget; 72 * 9 patches are a multiple of 8, which attention kernels ask for
POOL, PATCH = 3, 4
SIDE = POOL * PATCH


def patches_of(picture, exact=False):
    """uint8 [H, W, 3] -> patches [soft, 9, 48] and their (x, y) [soft, 9, 2]: the nine of a soft token together, so that
    pooling is a mean over one axis. Padded to SOFT_ROOM with position -1 unless exact."""
    h, w, _ = picture.shape
    if h % SIDE or w % SIDE or h * w > 70 * SIDE * SIDE:
        raise ValueError(f"a picture of {w}x{h}: wanted sides that are multiples of {SIDE} and at most 70 soft tokens")
    rows, cols = h // SIDE, w // SIDE
    p = picture.reshape(rows, POOL, PATCH, cols, POOL, PATCH, 3).transpose(0, 3, 1, 4, 2, 5, 6)
    y, x = np.mgrid[0:h // PATCH, 0:w // PATCH]
    pos = np.stack([x, y], -1).reshape(rows, POOL, cols, POOL, 2).transpose(0, 2, 1, 3, 4)
    n = rows * cols
    room = n if exact else SOFT_ROOM
    patches = np.zeros((room, POOL * POOL, PATCH * PATCH * 3), np.uint8)
    position = np.full((room, POOL * POOL, 2), -1, np.int16)
    patches[:n], position[:n] = p.reshape(n, POOL * POOL, -1), pos.reshape(n, POOL * POOL, 2)
    return patches, position


def bucket_of(prefix, picture):
    """Longest prefix of the bucket, and whether it is the one for pictures; None when too long."""
    if picture is not None:
        return (PICTURE_PREFIX, True) if len(prefix) <= PICTURE_PREFIX else None
    return next(((b, False) for b in BUCKETS if len(prefix) <= b), None)


def batch_sizes(rows, picture_share=0.5):
    """{bucket: samples}: so many that a batch has about `rows` rows. Pictures cost a tower as well, hence fewer."""
    out = {(b, False): max(2, rows // (b + CANVAS) // 16 * 16) for b in BUCKETS}
    out[PICTURE_PREFIX, True] = max(2, int(rows * picture_share) // (PICTURE_PREFIX + CANVAS) // 16 * 16)
    return out


def assemble(bucket, samples):
    n_prefix, pictured = bucket
    n = len(samples)
    out = dict(bucket=bucket, prefix=np.zeros((n, n_prefix), np.int16), length=np.zeros(n, np.int16),
               target=np.zeros((n, CANVAS), np.int16), weight=np.zeros((n, CANVAS), np.float32),
               family=[s[4] for s in samples], closed=np.array([s[4] not in OPEN for s in samples]))
    for i, (prefix, target, weight, *_) in enumerate(samples):
        out["prefix"][i, :len(prefix)] = prefix
        out["length"][i] = len(prefix)
        out["target"][i] = target
        out["weight"][i] = weight
    if pictured:
        both = [patches_of(s[3]) for s in samples]
        out["patches"], out["position"] = np.stack([b[0] for b in both]), np.stack([b[1] for b in both])
        out["cells"] = np.full((n, SOFT_ROOM), -1, np.int16)
        for row, s in zip(out["cells"], samples):
            row[:s[5].size] = s[5].ravel()
    return out


def read_mix(path):
    """What a file says that samples are made of, and when it was written; nothing where there is none."""
    try:
        with open(path, encoding="utf-8") as f:
            return json.load(f), os.stat(path).st_mtime_ns
    except FileNotFoundError:
        return None, 0


def work(queue, seed, tokenizer, mix_file, sizes):
    """Runs in a process of its own until it is ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    try:
        from samples import Sampler
        mix, written = read_mix(mix_file)
        sampler = Sampler(seed, tokenizer, mix=mix)
        waiting, skipped = {b: [] for b in sizes}, 0
        while True:
            sample = sampler.next()
            bucket = bucket_of(sample[0], sample[3])
            if bucket is None:
                skipped += 1
                continue
            waiting[bucket].append(sample)
            if len(waiting[bucket]) == sizes[bucket]:
                batch = assemble(bucket, waiting[bucket])
                batch["skipped"], skipped = skipped, 0
                waiting[bucket] = []
                queue.put(batch)
                mix, now = read_mix(mix_file)
                if now != written:  # training found out what is still hard
                    sampler.set_mix(mix)
                    written = now
    except Exception:
        queue.put(dict(error=traceback.format_exc()))


class Feed:
    """Start it before PyTorch is imported: the processes are forks."""

    def __init__(self, n, seed, tokenizer, mix_file, sizes, depth=48):
        context = multiprocessing.get_context("fork")
        self.queue = context.Queue(depth)
        self.processes = [context.Process(target=work, args=(self.queue, seed * 1000 + i, tokenizer, mix_file, sizes), daemon=True)
                          for i in range(n)]
        for p in self.processes:
            p.start()

    def get(self, timeout=None):
        """The next batch; queue.Empty after `timeout` seconds."""
        batch = self.queue.get(timeout=timeout)
        if "error" in batch:
            raise RuntimeError("a process that makes samples failed:\n" + batch["error"])
        return batch

    def depth(self):
        return self.queue.qsize()

    def close(self):
        for p in self.processes:
            p.terminate()
        for p in self.processes:
            p.join()
