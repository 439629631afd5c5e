#!/usr/bin/env python3
"""Prints the tokenizer.json of the tiny test models: Gemma 4's kind with 384 ids.

    tools/make_tiny_tokenizer.py > tests/fixtures/tiny_tokenizer.json

All special tokens of Gemma 4 are there under their names; any text can be written with the byte tokens, and
common English takes fewer tokens by the pieces below.
"""
import json
import sys

SPECIAL = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>", "<|think|>", "<|turn>", "<turn|>", "<|channel>",
           "<channel|>", "<|tool>", "<tool|>", "<|tool_call>", "<tool_call|>", "<|tool_response>",
           "<tool_response|>", '<|"|>', "<|audio>"]
SPECIAL_LAST = ["<|image>", "<image|>", "<|image|>", "<|audio|>", "<audio|>", "<|video|>"]

# In the order of their rank; "_" stands for a space here.
LEARNED = """
_t _th _a er _o in _the on en _c re ti se li _p or is _w _s _of ed ou _f it at _an tion ar _in _d _m _to es
_co an _n you _b ro ing al ri _you _h le _or ent ver _and th ce _u _re _no _e ut si _for _is _this _that
ly _con ch de mo use user mode model
""".replace("_", "\u2581").split()

CHARACTERS = "\u2581etaoinsrhldcumpfgwybvkxjqz\n.,'-?!"

BYTES = [f"<0x{byte:02X}>" for byte in range(256)]


def merges_of(piece, vocab):
    """Every split into two pieces, longest left part first."""
    splits = [[piece[:i], piece[i:]] for i in range(len(piece) - 1, 0, -1)]
    return [pair for pair in splits if pair[0] in vocab and pair[1] in vocab]


def main():
    pieces = SPECIAL + BYTES + LEARNED + list(CHARACTERS) + SPECIAL_LAST
    vocab = {piece: i for i, piece in enumerate(pieces)}
    assert len(vocab) == len(pieces) == 384 and vocab["<|image>"] == 378
    assert all(merges_of(piece, vocab) for piece in LEARNED)

    added = [{"id": vocab[name], "content": name, "single_word": False, "lstrip": False, "rstrip": False,
              "normalized": False, "special": True} for name in SPECIAL + SPECIAL_LAST]
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"},
        "pre_tokenizer": {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious",
                          "invert": False},
        "post_processor": None,
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "},
            {"type": "ByteFallback"},
            {"type": "Fuse"}]},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": "<unk>",
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": True,
            "byte_fallback": True,
            "ignore_merges": False,
            "vocab": vocab,
            "merges": [pair for piece in LEARNED for pair in merges_of(piece, vocab)],
        },
    }
    json.dump(tokenizer, sys.stdout, ensure_ascii=False, indent=1)
    print()


if __name__ == "__main__":
    main()
