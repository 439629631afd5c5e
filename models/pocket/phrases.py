"""Ways of saying one thing, composed from parts, and what happens to them between head and keyboard.

A pattern has alternatives in parentheses and options in brackets: "(what is|whats) the capital [city] of {x}". Content that must
survive as it is stands between \\x05 and \\x06 (`keep`): no slip of the fingers touches it."""
import re

_PARSED = {}


def _parse(text, at, stop):
    """[parts] from `at` on: a string, or a list of alternatives -> (parts, where it ended)."""
    branches, parts, plain = [], [], []
    while at < len(text) and text[at] not in stop:
        c = text[at]
        if c in "([":
            if plain:
                parts.append("".join(plain))
                plain = []
            inner, at = _parse(text, at + 1, ")" if c == "(" else "]")
            parts.append(inner if c == "(" else inner + [[]])
        elif c == "|":
            parts.append("".join(plain))
            branches.append(parts)
            parts, plain = [], []
        else:
            plain.append(c)
        at += 1
    parts.append("".join(plain))
    return branches + [parts], at


def _say(rng, branches):
    return "".join(p if type(p) is str else _say(rng, p) for p in branches[int(rng.random() * len(branches))])


def say(rng, pattern, **slots):
    """One of the texts of a pattern, its slots filled."""
    if pattern not in _PARSED:
        _PARSED[pattern] = _parse(pattern, 0, "\n")[0]
    text = " ".join(_say(rng, _PARSED[pattern]).split(" "))
    text = re.sub(" +", " ", text).strip()
    return text.format(**slots) if slots else text


def keep(text):
    return "\x05%s\x06" % text


def count_ways(pattern):
    """How many texts a pattern has."""
    def ways(branches):
        total = 0
        for b in branches:
            n = 1
            for p in b:
                n *= 1 if type(p) is str else ways(p)
            total += n
        return total
    return ways(_parse(pattern, 0, "\n")[0])


SHORT = {"you": "u", "are": "r", "please": "pls", "what is": "whats", "what's": "whats", "do not": "dont", "thanks": "thx", "because": "cuz", "i am": "im",
         "for": "4", "about": "abt", "and": "n", "the": "teh", "with": "w", "your": "ur", "to": "2", "want to": "wanna", "going to": "gonna", "okay": "ok"}
NEAR = {"a": "s", "s": "d", "d": "f", "e": "r", "r": "t", "t": "y", "o": "p", "i": "o", "n": "m", "l": "k", "h": "j", "u": "i", "c": "v", "p": "o"}
BEFORE = ["please", "pls", "hey", "hi", "hello", "ok", "okay", "so", "and", "well", "quick question", "question", "can you help", "hmm", "um", "now", "next", "ok next",
          "one more", "hey pocket", "i have a question", "sorry", "yo", "good", "cool", "nice", "thanks", "great", "alright", "but", "also", "then", "actually"]
BEHIND = ["please", "pls", "thanks", "thank you", "thx", "for me", "?", "??", "!", "...", "if you can", "i am curious", "for my homework", "quickly", "asap", "right now", "mate",
          "my friend", "in one sentence", "again", "i forgot", "do you know", "can you tell me", "tell me", "help", "ok", "now"]


def slip(rng, word):
    """A word with one slip of the fingers."""
    if len(word) < 4 or not word.isalpha():
        return word
    at = rng.randrange(1, len(word) - 1)
    kind = rng.random()
    if kind < 0.35:
        return word[:at] + word[at + 1] + word[at] + word[at + 2:]
    if kind < 0.65:
        return word[:at] + word[at + 1:]
    if kind < 0.8:
        return word[:at] + word[at] + word[at:]
    return word[:at] + NEAR.get(word[at], word[at]) + word[at + 1:]


def slips(rng, text):
    """Slips in one or two words that are not kept."""
    parts = re.split("(\x05[^\x06]*\x06|[ ,.?!:]+)", text)
    loose = [i for i, p in enumerate(parts) if len(p) > 3 and p.isalpha()]
    for i in rng.sample(loose, min(len(loose), rng.choice([1, 1, 2]))):
        parts[i] = slip(rng, parts[i])
    return "".join(parts)


def shorten(rng, text):
    for long, short in SHORT.items():
        if rng.random() < 0.4:
            text = re.sub(r"\b%s\b(?![^\x05]*\x06)" % long, short, text, count=1)
    return text


def as_typed(rng, text, polite=True):
    """The text as somebody might have typed it; kept parts may change their case only."""
    style = rng.random()
    if polite and rng.random() < 0.12:
        text = rng.choice(BEFORE) + rng.choice([" ", ", ", ": ", "! "]) + text
    if polite and rng.random() < 0.12:
        text = text.rstrip("?.! ") + " " + rng.choice(BEHIND)
    if rng.random() < 0.08:
        text = shorten(rng, text)
    if rng.random() < 0.13:
        text = slips(rng, text)
    text = text.replace("\x05", "").replace("\x06", "")
    if style < 0.55:
        text = text.lower()
    elif style < 0.93:
        text = text[:1].upper() + text[1:]
    elif style < 0.95 and len(text) < 40:
        text = text.upper()
    mark = rng.random()
    if mark < 0.45:
        text = text.rstrip("?.! ")
    elif mark < 0.55 and text[-1:] not in "?.!":
        text += rng.choice([".", "?", "??", "!", " ?"])
    elif mark < 0.8 and text[-1:] not in "?.!":
        text += "?" if re.match("(wh|how|is|are|do|can|who|did|does)", text, re.I) else "."
    return re.sub(" +([?.!,])", r"\1", text).strip() or "?"
