"""How well the pocket model fills what was cut out of its own answers (docs/canvas.md has the figures):

    DGEMMA=build/dgemma python3 tests/server/canvas_eval.py [N [FAMILY...]]

N requests of each family, or those named, of models/pocket/eval. A finished canvas as a start, holes of 4 and 8 tokens whose length is known, and
gaps of 1 to 8 tokens whose length is not. A couplet has several openings and several ends by the rules that the model learnt from:
where those fit around a hole, each is as right as the one that stood there. So two figures are told, `as it was` and `right`: as it
was, or another answer that the family's own check takes. Fails where `right` is below what docs/canvas.md promises."""
import json
import random
import sys

from serving import MODEL, Server, check, events, finish, read_all

FAMILIES = ("facts", "json", "couplets")
WANTED = {"as a start": 0.999, "a hole of 4": 0.99, "a hole of 8": 0.99, "a gap": 0.95}


def rows(family, n):
    """The first n requests that are to be answered without a thought."""
    with open(f"models/pocket/eval/{family}.jsonl") as f:
        return [r for r in map(json.loads, f) if not r["thinking"]][:n]


def fits(c, text):
    """Whether an answer is one of the family's for its request."""
    if c["kind"] == "any":
        return text in [b + "\n" + t for b in c["behind"] for t in c["texts"]]
    if c["kind"] == "json":
        try:
            return json.loads(text) == c["value"]
        except ValueError:
            return False
    return text == c["text"]


def ask(s, body):
    body = json.dumps({"stream": True, "max_tokens": 64, **body}).encode()
    c = s.connect()
    c.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    found, _ = events(read_all(c))
    text = "".join(x["delta"].get("content") or "" for e in found for x in e["choices"])
    drafts = [e["diffusion"] for e in found if "diffusion" in e]
    return text, drafts


class Tally:
    """Of each thing that was tried: as it was, right, steps."""

    def __init__(self, family):
        self.family, self.of = family, {}

    def add(self, what, row, cut, before, now, steps):
        same, right = now == before, now == before or fits(row["check"], now)
        self.of.setdefault(what, []).append((same, right, steps))
        if not same:
            print(f"    {self.family}, {what}: {before!r} without {cut!r}: {now!r}{' (right, too)' if right else ''}")

    def tell(self):
        for what, x in self.of.items():
            same, right, steps = (sum(y) for y in zip(*x))
            print(f"{self.family}, {what}: {same}/{len(x)} as it was, {right}/{len(x)} right, {steps / len(x):.1f} steps", flush=True)
            check(f"{self.family}, {what}", right >= WANTED[what] * len(x), f"{right} of {len(x)}")


def cut_and_fill(s, rng, tally, row, seed):
    said = row["messages"]
    text, drafts = ask(s, {"messages": said, "seed": seed, "diffusion": {"drafts": True, "ids": True}})
    ids, pieces = drafts[-1]["ids"], drafts[-1]["pieces"]
    if drafts[-1]["block"] or "<turn|>" not in pieces:
        return  # more than one canvas
    length = pieces.index("<turn|>")

    def again(what, cut, canvas):
        now, d = ask(s, {"messages": said, "seed": seed, "diffusion": {"drafts": True, "ids": True, "canvas": canvas}})
        tally.add(what, row, cut, text, now, len(d))

    again("as a start", "", {"tokens": ids, "strength": 0.02})
    for hole in (4, 8):
        if length > hole:
            at = rng.randrange(length - hole + 1)
            again(f"a hole of {hole}", "".join(pieces[at:at + hole]),
                  {"tokens": ids[:at] + [None] * hole + ids[at + hole:], "keep": [[0, at], [at + hole, len(ids)]]})
    size = rng.randint(1, min(8, length - 1))
    at = rng.randrange(length - size + 1)
    before, after = "".join(pieces[:at]), "".join(pieces[at + size:length])
    _, done = s.json("POST", "/v1/edit", {"text": before + after, "ranges": [[len(before), len(before)]], "messages": said, "seed": seed})
    tally.add("a gap", row, "".join(pieces[at:at + size]), text, done["text"], done["steps"])


def main():
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    with Server("-q", model=MODEL) as s:
        for family in sys.argv[2:] or FAMILIES:
            tally, rng = Tally(family), random.Random(1)
            for seed, row in enumerate(rows(family, n)):
                cut_and_fill(s, rng, tally, row, seed)
            tally.tell()
    finish()


main()
