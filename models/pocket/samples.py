"""Training samples: an example as token ids, cut into a prefix and one block of the answer."""
import random
import re

import families
import render
import typed

CANVAS = 64
PAD_WEIGHT = 0.1  # what follows the end of the answer is easy, and most of a block
PIXELS = 12  # of one soft token, each way


class Codec:
    def __init__(self, path):
        from tokenizers import Tokenizer
        self.tokenizer = Tokenizer.from_file(path)
        self.vocab = self.tokenizer.get_vocab()

    def ids(self, text):
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    def answer(self, text):
        """Ids of an answer: those of its text, but for the words that families.py marks (check_samples.py)."""
        out = []
        for part in re.split("(\x01[^\x02]*\x02)", text):
            if part.startswith("\x01"):
                out += [self.vocab["▁" if c == " " else c] for c in part[1:-1]]
            elif part:
                out += self.ids(part)
        return out

    def prompt(self, e):
        return self.ids(render.prompt(e.messages, e.tools, e.thinking, [soft_tokens(e.picture)] if e.picture is not None else []))

    def target(self, e):
        return self.answer(render.answer(e.text, e.thought, e.calls))


def soft_tokens(rgb):
    return rgb.shape[0] // PIXELS * (rgb.shape[1] // PIXELS)


class Sampler:
    def __init__(self, seed, tokenizer_path, mix=None):
        self.rng = random.Random(seed)
        self.codec = Codec(tokenizer_path)
        self.set_mix(mix)

    def set_mix(self, mix):
        """{family: weight}; None: as families.py has them."""
        weights = {f: w for f, (_, w) in families.FAMILIES.items()}
        weights.update(mix or {})
        self.families, self.weights = list(weights), list(weights.values())

    def next(self):
        """(prefix ids, the block's 64 ids, a loss weight for each, the picture or None, family, what is where in the picture)"""
        rng = self.rng
        family = rng.choices(self.families, self.weights)[0]
        e = families.example(rng, "train", family)
        if e.check["kind"] in typed.OPEN:  # in a conversation, too
            family = e.check["kind"]
        prefix, answer = self.codec.prompt(e), self.codec.target(e)
        block = rng.randrange((len(answer) + CANVAS - 1) // CANVAS)
        if e.check["kind"] == "tale" and rng.random() < 0.4:
            block = 0  # which follows the hint: what comes after it is of one grammar
        prefix += answer[:block * CANVAS]
        target = answer[block * CANVAS:(block + 1) * CANVAS]
        rest = CANVAS - len(target)
        return prefix, target + [0] * rest, [1.0] * len(target) + [PAD_WEIGHT] * rest, e.picture, family, e.cells

    def eval_items(self, n_per_family, seed, only=None):
        """[(family, prefix ids, picture or None, expected ids, check(text) -> bool)], of what training never sees."""
        rng = random.Random(seed)
        items = []
        for family in only or families.EVALUATED + list(typed.FAMILIES):
            for _ in range(n_per_family):
                e = families.example(rng, "eval", family)
                items.append((family, self.codec.prompt(e), e.picture, self.codec.target(e), lambda text, e=e: right(e, text)))
        return items


def right(e, text):
    """Judges an answer as the model wrote it, markers and all; its stop token may be there or not."""
    if e.thought is not None:
        m = re.match(r"<\|channel>thought\n(.+?)<channel\|>", text, re.S)
        if not m:
            return False
        text = text[m.end():]
    expected_calls = "".join(render.call(n, a) for n, a in e.calls)
    if e.calls:
        wanted = {render.call(n, a) for n, a in e.calls}
        got = re.findall(r"<\|tool_call>.*?<tool_call\|>", text, re.S)
        return set(got) == wanted and "".join(got) == text.replace("<|tool_response>", "") and len(text) >= len(expected_calls)
    return families.judge(e, text.removesuffix("<turn|>"))
