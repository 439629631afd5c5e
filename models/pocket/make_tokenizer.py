"""Makes tokenizer.json: BPE of Gemma's kind (a space is ▁, bytes as a last resort, no words cut beforehand) from the texts that
pocket is trained on. Special tokens below id 256 and the bytes keep the ids they have in the real model.

A word has the same pieces wherever it stands: they are merged first, and the space before the first of them last. So what is copied from
a sentence into JSON is read and written in the same pieces (▁hedge hog, "hedge hog"), and no answer needs pieces of its own.

    python3 make_tokenizer.py tokenizer.json"""
import collections
import json
import random
import re
import sys

from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

import families
import render

SIZE = 4096
OF_WORDS = 2300  # pieces without a space; those with one get what is left
BYTES = 238
SPECIAL = {0: "<pad>", 1: "<eos>", 2: "<bos>", 3: "<unk>", 4: "<mask>", 46: "<|tool>", 47: "<tool|>", 48: "<|tool_call>", 49: "<tool_call|>",
           50: "<|tool_response>", 51: "<tool_response|>", 52: '<|"|>', 98: "<|think|>", 100: "<|channel>", 101: "<channel|>", 105: "<|turn>",
           106: "<turn|>", 108: "<|image>", 109: "<|image|>", 110: "<image|>", 111: "<|audio>", 112: "<|audio|>", 113: "<audio|>", 114: "<|video|>"}
NEWLINE = 107


def corpus(n):
    rng = random.Random(7)
    for _ in range(n):
        e = families.example(rng, "train")
        text = render.prompt(e.messages, e.tools, e.thinking, [0]) + render.answer(e.text, e.thought, e.calls)
        for name in SPECIAL.values():
            text = text.replace(name, "\n")
        yield families.plain(text)


def counted(texts, words):
    """The same texts; their words that stand behind a space are counted on the way."""
    for text in texts:
        words.update(re.findall("(?<= )[A-Za-z]+", text))
        yield text


def first_pieces(learner, words):
    """With which pieces words behind a space begin, the most frequent first."""
    found = collections.Counter()
    for word, n in words.items():
        found[learner.encode(word).tokens[0]] += n
    return [p for p, _ in found.most_common()]


def main(path):
    alphabet = [chr(c) for c in range(33, 127)] + ["▁"]
    first = BYTES + 256
    learner = Tokenizer(models.BPE())
    learner.normalizer = normalizers.Replace(" ", "▁")
    learner.pre_tokenizer = pre_tokenizers.Split(Regex("[A-Za-z]+|."), "isolated")
    words = collections.Counter()
    learner.train_from_iterator(counted(corpus(150000), words), trainers.BpeTrainer(
        vocab_size=OF_WORDS, initial_alphabet=alphabet, limit_alphabet=len(alphabet), min_frequency=20, show_progress=False))
    learned = json.loads(learner.to_str())["model"]
    pieces = [p for p, _ in sorted(learned["vocab"].items(), key=lambda kv: kv[1])]
    behind_space = first_pieces(learner, words)[:SIZE - first - len(pieces)]
    pieces += ["▁" + p for p in behind_space]
    merges = learned["merges"] + [["▁", p] for p in behind_space]
    vocab = {}
    for i in range(first):
        vocab[SPECIAL.get(i) or ("\n" if i == NEWLINE else "<0x%02X>" % (i - BYTES) if i >= BYTES else "<unused%d>" % i)] = i
    for p in pieces:
        vocab[p] = len(vocab)
    for i in range(len(vocab), SIZE):
        vocab["<unused%d>" % i] = i
    added = [{"id": i, "content": t, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
             for t, i in sorted(vocab.items(), key=lambda kv: kv[1]) if i in SPECIAL or t.startswith("<unused")]
    out = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
           "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}, "pre_tokenizer": None, "post_processor": None,
           "decoder": {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}]},
           "model": {"type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None, "end_of_word_suffix": None,
                     "fuse_unk": True, "byte_fallback": True, "ignore_merges": False, "vocab": vocab, "merges": merges}}
    with open(path, "w", encoding="utf-8") as f:
        json.dump(out, f, ensure_ascii=False, indent=0)
    t = Tokenizer.from_file(path)
    for text in ("The capital of France is Paris.", "Brabloud owns 47 + 85 Äpfel 🦙", "<|turn>user\nHi<turn|>"):
        ids = t.encode(text, add_special_tokens=False)
        print(ids.tokens, repr(t.decode(ids.ids, skip_special_tokens=False)))
    print(len(vocab), "pieces,", len(merges), "merges")


if __name__ == "__main__":
    main(sys.argv[1])
