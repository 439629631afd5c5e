"""Holds answers to the pieces in which they are read: what training teaches to write gives, decoded and encoded again, the same
ids. Only words between \\x01 and \\x02 are written otherwise, letter by letter, and only in some families.

    python3 check_samples.py [--tokenizer FILE] [--per-family N] [--dgemma PROGRAM]

--dgemma: encode with this program and the model that comes with it, where there is no package `tokenizers`."""
import argparse
import importlib.util
import json
import os
import random
import re
import subprocess

import families
import render
from samples import Codec

HERE = os.path.dirname(os.path.abspath(__file__))
LETTERED = {"reverse", "letters", "mixed", "recall", "typed_tools"}  # the last three ask for anything, words turned around, too


class EngineCodec(Codec):
    """Encodes with `dgemma tokenize`, many texts at once: `ids` only notes a text until `encode` was called."""

    def __init__(self, program, vocab):
        self.program, self.vocab, self.known, self.noted = program, vocab, {}, {}

    def ids(self, text):
        if text in self.known:
            return self.known[text]
        self.noted[text] = None
        return []

    def encode(self):
        texts, eos, ids = list(self.noted), self.vocab["<eos>"], [[]]
        said = subprocess.run([self.program, "tokenize", "--markers", "-f", "-"], input="<eos>".join(texts), capture_output=True, text=True, check=True)
        for i in map(int, said.stdout.split()):
            if i == eos:
                ids.append([])
            else:
                ids[-1].append(i)
        if len(ids) != len(texts):
            raise SystemExit(f"{len(texts)} texts were encoded, {len(ids)} came back")
        self.known, self.noted = dict(zip(texts, ids)), {}


def vocabulary(path):
    with open(path, encoding="utf-8") as f:
        doc = json.load(f)
    return {**doc["model"]["vocab"], **{t["content"]: t["id"] for t in doc["added_tokens"]}}


def spans(pieces):
    out, at = [], 0
    for p in pieces:
        out.append((at, at + len(p)))
        at += len(p)
    return out


def lettered(text):
    """Where the plain text is to be written letter by letter."""
    out, at = [], 0
    for i, part in enumerate(re.split("[\x01\x02]", text)):
        if i % 2:
            out.append((at, at + len(part)))
        at += len(part)
    return out


def wrong(text, written, read):
    """What is wrong with the pieces in which an answer with marks is written, given those in which it is read; None: nothing."""
    plain, exempt = families.plain(text), lettered(text)
    for pieces in written, read:
        if "".join(pieces).replace("▁", " ") != plain:
            return "it is not its text"

    def outside(pieces):
        return [(a, b) for a, b in spans(pieces) if not any(a < to and since < b for since, to in exempt)]
    for a, b in sorted(set(outside(written)) ^ set(outside(read))):
        return f"pieces differ at {plain[a:b]!r}"
    for a, b in spans(written):
        if b - a > 1 and any(since <= a and b <= to for since, to in exempt):
            return f"{plain[a:b]!r} is not a letter"
    return None


def check(codec, per_family, only=None):
    """Ends the program at the first sample that is not as it should be."""
    names, rng, texts = {i: w for w, i in codec.vocab.items()}, random.Random(11), []
    for family in only or families.FAMILIES:
        for _ in range(per_family):
            e = families.example(rng, "train", family)
            texts.append((family, render.answer(e.text, e.thought, e.calls)))
    if isinstance(codec, EngineCodec):
        for _, text in texts:
            codec.answer(text), codec.ids(families.plain(text))
        codec.encode()
    for family, text in texts:
        if "\x01" in text and family not in LETTERED:
            raise SystemExit(f"{family}: {families.plain(text)!r} has words that are written letter by letter")
        written, read = ([names[i] for i in ids] for ids in (codec.answer(text), codec.ids(families.plain(text))))
        why = wrong(text, written, read)
        if why:
            raise SystemExit(f"{family}: {why}:\n  written {written}\n  read    {read}")
    return len(texts)


def check_itself():
    """What it is there to find."""
    for text, written, read, found in (
            ('{"age"}', '{ " a ge " }', '{ " age " }', "pieces differ at 'a'"), (" an owl", "▁an ▁ ow l", "▁an ▁ow l", "pieces differ at ' '"),
            ("is\x01 lwo\x02.", "is ▁ l w o .", "is ▁l wo .", None), ("is\x01 lwo\x02.", "is ▁ l wo .", "is ▁l wo .", "'wo' is not a letter"),
            ("is\x01 lwo\x02n", "is ▁ l w o n", "is ▁l won", "pieces differ at 'n'"), ("owl", "o w", "ow l", "it is not its text")):
        if wrong(text, written.split(" "), read.split(" ")) != found:
            raise SystemExit(f"{text!r} as {written!r}: {wrong(text, written.split(' '), read.split(' '))}, not {found}")


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--tokenizer", default=os.path.join(HERE, "tokenizer.json"))
    ap.add_argument("--per-family", type=int, default=50)
    ap.add_argument("--dgemma")
    a = ap.parse_args()
    check_itself()
    only = list(families.FAMILIES)
    if not importlib.util.find_spec("PIL") or not importlib.util.find_spec("numpy"):
        print("pictures are left out: they want NumPy and Pillow")
        only.remove("pictures")
    codec = EngineCodec(a.dgemma, vocabulary(a.tokenizer)) if a.dgemma else Codec(a.tokenizer)
    print(f"{check(codec, a.per_family, only)} answers of {len(only)} families are written as they are read")


if __name__ == "__main__":
    main()
