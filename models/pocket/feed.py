"""Processes that make batches of samples from samples.Sampler, as arrays of fixed shape: text end to end (packed.py), pictures padded.

Nothing here needs PyTorch, so that a dozen processes start in a moment.
"""
import json
import multiprocessing
import os
import signal
import traceback

import numpy as np

from families import FAMILIES, OPEN

CANVAS = 64
LONGEST = 448  # tokens of a prefix
FILLERS = 64  # sequences of nothing that fill the rows which are left
PICTURE_PREFIX = 160
SOFT_ROOM = 72  # 70 by the processor's budget; 72 * 9 patches are a multiple of 8, which attention kernels ask for
POOL, PATCH = 3, 4
SIDE = POOL * PATCH
EARLY = 5  # processes that begin at once
NUMBER = {f: i for i, f in enumerate(FAMILIES)}


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


class Packer:
    """Collects samples until n of them fill the rows that there are for their prefixes. What is too long for the rest waits."""

    def __init__(self, n, rows, waiting=256):
        self.n, self.rows, self.most = n, rows, waiting
        self.batch, self.used, self.waiting, self.skipped = [], 0, [], 0

    def offer(self, sample):
        left = self.n - len(self.batch) - 1
        if left < 0 or self.used + len(sample[0]) + left * 24 > self.rows:
            return False
        self.batch.append(sample)
        self.used += len(sample[0])
        return True

    def add(self, sample):
        """The batch, once it is complete."""
        if len(sample[0]) > LONGEST:
            self.skipped += 1
        elif not self.offer(sample):
            self.waiting.append(sample)
            if len(self.waiting) > self.most:
                self.waiting.pop(0)
                self.skipped += 1
        if len(self.batch) < self.n:
            return None
        done, self.batch, self.used = self.batch, [], 0
        self.waiting = [s for s in self.waiting if not self.offer(s)]
        return done


def text_arrays(samples, rows):
    prefix = [i for s in samples for i in s[0]]
    left = rows - len(prefix)
    assert 0 <= left <= FILLERS * LONGEST, (left, rows)
    lengths = [len(s[0]) for s in samples] + [left // FILLERS] * (FILLERS - 1) + [left - left // FILLERS * (FILLERS - 1)]
    return dict(prefix=np.array(prefix + [0] * left, np.int16), lengths=np.array(lengths, np.int16), **answers(samples))


def answers(samples):
    return dict(target=np.array([s[1] for s in samples], np.int16), weight=np.array([s[2] for s in samples], np.float32),
                which=np.array([NUMBER[s[4]] for s in samples], np.int16), closed=np.array([s[4] not in OPEN for s in samples]))


def picture_arrays(samples):
    n = len(samples)
    out = dict(prefix=np.zeros((n, PICTURE_PREFIX), np.int16), lengths=np.array([len(s[0]) for s in samples], np.int16), **answers(samples))
    for row, s in zip(out["prefix"], samples):
        row[:len(s[0])] = s[0]
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


def work(queue, seed, tokenizer, mix_file, sizes, go):
    """Runs in a process of its own until it is ended. sizes: samples of a batch of text, rows of their prefixes, pictures of a batch."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(10)  # compiling and training go first
    go.wait()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    try:
        from samples import Sampler
        mix, written = read_mix(mix_file)
        sampler = Sampler(seed, tokenizer, mix=mix)
        n, rows, n_picture = sizes
        packer, pictured = Packer(n, rows), []
        while True:
            sample, batch = sampler.next(), None
            if sample[3] is None:
                batch = packer.add(sample)
                batch = batch and text_arrays(batch, rows)
            elif len(sample[0]) <= PICTURE_PREFIX:
                pictured.append(sample)
                if len(pictured) == n_picture:
                    batch, pictured = picture_arrays(pictured), []
            if batch:
                batch["skipped"], packer.skipped = packer.skipped, 0
                queue.put(batch)
                mix, now = read_mix(mix_file)
                if now != written:  # training found out what is still hard
                    sampler.set_mix(mix)
                    written = now
    except Exception:
        queue.put(dict(error=traceback.format_exc()))


class Feed:
    """Start it before PyTorch is imported: the processes are forks."""

    def __init__(self, n, seed, tokenizer, mix_file, sizes, depth=512):
        context = multiprocessing.get_context("fork")
        self.queue, at_once, self.later = context.Queue(depth), context.Event(), context.Event()
        at_once.set()
        self.processes = [context.Process(target=work, args=(self.queue, seed * 1000 + i, tokenizer, mix_file, sizes, at_once if i < EARLY else self.later),
                                          daemon=True) for i in range(n)]
        for p in self.processes:
            p.start()

    def all_go(self):
        """Nothing is compiled any more: the processes that waited begin, too."""
        self.later.set()

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
