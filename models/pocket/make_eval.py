"""Writes eval/FAMILY.jsonl, what `make pocket-eval` asks: content and phrasings that training never saw.

    python3 make_eval.py tokenizer.json eval"""
import base64
import io
import json
import os
import random
import sys

from PIL import Image

import families
from samples import Codec

PER_FAMILY = 500


def data_url(rgb, n):
    """JPEG and WebP in turn: half the size of PNG, and what people send."""
    out, kind = io.BytesIO(), ("jpeg", "webp")[n % 2]
    Image.fromarray(rgb).save(out, kind, quality=92)
    return "data:image/%s;base64," % kind + base64.b64encode(out.getvalue()).decode()


def as_sent(m, picture, n):
    """A message in OpenAI's form: arguments of calls are a string there, pictures a URL."""
    m = dict(m)
    if isinstance(m["content"], list):
        m["content"] = [{"type": "image_url", "image_url": {"url": data_url(picture, n)}} if p["type"] == "image" else p for p in m["content"]]
    if m.get("tool_calls"):
        m["tool_calls"] = [dict(c, function=dict(c["function"], arguments=json.dumps(c["function"]["arguments"]))) for c in m["tool_calls"]]
    return m


def check_story(codec):
    """The sentences of a section are of one length (families.py says why), which hangs on the tokenizer."""
    words = dict(name=families.NAMES[0], adj=families.ADJECTIVES[0], animal=families.ANIMALS[0], place=families.PLACES[0], thing=families.THINGS[0],
                 gift=families.THINGS[0])
    before = ""
    for section in families.STORY:
        lengths = {len(codec.ids(before + s.format(**words))) for s in section}
        if len(lengths) > 1:
            raise SystemExit(f"sentences of different lengths: {section}")
        before = "The end. "


def main(tokenizer, folder):
    codec = Codec(tokenizer)
    check_story(codec)
    os.makedirs(folder, exist_ok=True)
    for family in families.EVALUATED:
        rng = random.Random("pocket " + family)
        seen = set()
        with open(os.path.join(folder, family + ".jsonl"), "w", encoding="utf-8") as f:
            while len(seen) < PER_FAMILY:
                e = families.example(rng, "eval", family)
                line = {"family": family, "id": len(seen), "thinking": e.thinking, "messages": [as_sent(m, e.picture, len(seen)) for m in e.messages]}
                key = json.dumps(line["messages"])
                if key in seen:
                    continue
                seen.add(key)
                if e.tools:
                    line["tools"] = e.tools
                line["thought"] = e.thought is not None
                line["n_prompt"] = len(codec.prompt(e))
                line["check"] = e.check
                f.write(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
