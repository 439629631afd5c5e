"""Weights to go on from: those of two GGUF files of pocket, for another tokenizer than theirs if need be.

A piece that both know keeps its row of the table of embeddings; another gets the mean of the rows of the pieces that its letters had."""
import json
import os

import torch
from tokenizers import Tokenizer

import export
import read_gguf


def vocabulary(path):
    with open(path, encoding="utf-8") as f:
        doc = json.load(f)
    words = {i: w for w, i in doc["model"]["vocab"].items()}
    words.update({t["id"]: t["content"] for t in doc["added_tokens"]})
    return [words[i] for i in range(len(words))]


def old_ids(tokenizer, known, piece):
    """What the old tokenizer makes of a new piece."""
    if piece in known:
        return [known[piece]]
    return [known[c] for c in piece if c in known] if "\n" in piece else tokenizer.encode(piece.replace("▁", " "), add_special_tokens=False).ids


def weights_of(folder, old_tokenizer, new_tokenizer):
    """Of folder/pocket.gguf and folder/mmproj-pocket.gguf, by the names of model.py; old_tokenizer: theirs."""
    text = os.path.join(folder, "pocket.gguf")
    weights = export.read_weights(text, os.path.join(folder, "mmproj-pocket.gguf"))
    held, wanted = read_gguf.read(text)[1]["tokenizer.ggml.tokens"], vocabulary(new_tokenizer)
    if held == wanted:
        return weights
    if held != vocabulary(old_tokenizer):
        raise ValueError(f"{old_tokenizer} is not the tokenizer of {text}")
    known, tokenizer = {w: i for i, w in enumerate(held)}, Tokenizer.from_file(old_tokenizer)
    table = weights["decoder.embed_tokens.weight"]
    rows = []
    for piece in wanted:
        ids = old_ids(tokenizer, known, piece)
        rows.append(table[torch.tensor(ids)].mean(0) if ids else table.mean(0))
    weights["decoder.embed_tokens.weight"] = torch.stack(rows)
    print(f"{sum(p in known for p in wanted)} of {len(wanted)} pieces keep their row", flush=True)
    return weights
