"""How well the pocket model fills what was cut out of its own answers (docs/canvas.md has the figures):

    DGEMMA=build/dgemma python3 tests/server/canvas_eval.py [N]

N answers of each family. A finished canvas as a start, holes of 4 and 8 tokens whose length is known, and gaps of 1 to 8 tokens
whose length is not."""
import json
import random
import sys

from serving import MODEL, Server, events, read_all

PLACES = ["France", "Italy", "Spain", "Japan", "Egypt", "Norway", "Greece", "Poland", "Peru", "Kenya", "India", "Canada", "Cuba",
          "Ireland", "Portugal", "Austria", "Sweden", "Finland", "Hungary", "Chile"]
NAMES = ["Ada", "Ben", "Eva", "Tom", "Mia", "Leo", "Zoe", "Max", "Ida", "Sam"]
FAMILIES = {
    "facts": [f"What is the capital of {p}?" for p in PLACES],
    "JSON": [f"Turn this into JSON: {NAMES[i % 10]} is {20 + i} years old and lives in {c}."
             for i, c in enumerate(["Paris", "Rome", "Oslo", "Lima", "Cairo"] * 4)],
    "couplets": [f"Write a couplet about {x}." for x in ["the sea", "the moon", "a cat", "the wind", "a tree", "the rain", "a bird",
                                                        "the night", "a river", "the sun"] * 2],
}


def ask(s, body):
    body = json.dumps({"stream": True, "max_tokens": 64, **body}).encode()
    c = s.connect()
    c.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    found, _ = events(read_all(c))
    text = "".join(x["delta"].get("content") or "" for e in found for x in e["choices"])
    drafts = [e["diffusion"] for e in found if "diffusion" in e]
    return text, drafts


def main():
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    rng = random.Random(1)
    with Server("-q", model=MODEL) as s:
        for family, questions in FAMILIES.items():
            tally = {}
            for i, q in enumerate(questions[:n]):
                said = [{"role": "user", "content": q}]
                text, drafts = ask(s, {"messages": said, "seed": i, "diffusion": {"drafts": True, "ids": True}})
                ids = drafts[-1]["ids"]
                if drafts[-1]["block"]:
                    continue  # more than one canvas

                def again(name, canvas, **more):
                    now, d = ask(s, {"messages": said, "seed": i, "diffusion": {"drafts": True, "ids": True, "canvas": canvas}, **more})
                    tally.setdefault(name, []).append((d[-1]["ids"] == ids, len(d)))

                again("as a start", {"tokens": ids, "strength": 0.02})
                length = drafts[-1]["pieces"].index("<turn|>")
                for hole in (4, 8):
                    if length > hole:
                        at = rng.randrange(length - hole + 1)
                        again(f"a hole of {hole}", {"tokens": ids[:at] + [None] * hole + ids[at + hole:],
                                                    "keep": [[0, at], [at + hole, len(ids)]]})
                size = rng.randint(1, min(8, length - 1))
                at = rng.randrange(length - size + 1)
                pieces = drafts[-1]["pieces"]
                before, after = "".join(pieces[:at]), "".join(pieces[at + size:length])
                _, done = s.json("POST", "/v1/edit", {"text": before + after, "ranges": [[len(before), len(before)]], "messages": said, "seed": i})
                tally.setdefault("a gap", []).append((done["text"] == text, done["steps"]))
                # a blank in front of the gap is written anew, with the word behind it
                right = done["text"] == text or done["changed_tokens"] == size + before.endswith(" ")
                tally.setdefault("its length", []).append((right, done["steps"]))
                if done["text"] != text:
                    print(f"    {text!r} without {''.join(pieces[at:at + size])!r}: {done['text']!r}")
            print(f"{family}: " + ", ".join(f"{name} {sum(ok for ok, _ in x)}/{len(x)} in {sum(k for _, k in x) / len(x):.1f} steps"
                                            for name, x in tally.items()), flush=True)


main()
