"""Gaps, edits and pinned tokens over HTTP."""
import json

from serving import HAS_POCKET, MODEL, Server, check, events, finish, read_all, run

TEXT = "The capital of Ëngland is very large, and it is old."


def stream(s, path, body):
    """Its events, and the raw bytes."""
    body = json.dumps({**body, "stream": True}).encode()
    c = s.connect()
    c.sendall(b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % (path.encode(), len(body)) + body)
    return events(read_all(c))


def edit(s, **fields):
    return s.json("POST", "/v1/edit", {"text": TEXT, "seed": 1, **fields})


def gaps():
    with Server("-q") as s:
        body = {"prompt": "The capital of", "suffix": " Paris.", "seed": 1, "max_tokens": 12, "diffusion": {"steps": 4}}
        status, whole = s.json("POST", "/v1/completions", body)
        check("a suffix", status == 200 and whole["choices"][0]["finish_reason"] == "stop"
              and 1 <= whole["usage"]["completion_tokens"] <= 12 and "agreement" in whole["timings"]["diffusion"], whole)
        text = whole["choices"][0]["text"]
        check("the same seed fills it alike", s.json("POST", "/v1/completions", body)[1]["choices"][0]["text"] == text)
        found, _ = stream(s, "/v1/completions", {**body, "diffusion": {"steps": 4, "drafts": True}})
        check("a stream of it", "".join(c["text"] for e in found for c in e["choices"]) == text)
        drafts = [e["diffusion"] for e in found if "diffusion" in e]
        check("drafts say what is pinned, and that lengths are tried",
              any(d["gap"]["trying"] for d in drafts) and not drafts[-1]["gap"]["trying"]
              and all(sum(d["pinned"]) == len(d["pieces"]) - d["gap"]["length"] for d in drafts), drafts[-1:])
        two = s.json("POST", "/v1/completions", {**body, "prompt": ["The capital of", "It is"], "n": 2})[1]
        check("several prompts, several answers", len(two["choices"]) == 4 and two["choices"][0]["text"] == text, two)
        fill = {"input_prefix": "The capital", "prompt": " of", "input_suffix": " Paris.", "n_predict": 12, "seed": 1,
                "diffusion": {"steps": 4}, "input_extra": [{"filename": "a.txt", "text": "x"}]}
        status, whole = s.json("POST", "/infill", fill)
        check("/infill", status == 200 and whole["stop"] is True and whole["content"] and whole["tokens_predicted"] <= 12, whole)
        pieces, _ = stream(s, "/infill", fill)
        check("/infill as a stream", "".join(p["content"] for p in pieces) == whole["content"] and pieces[-1]["stop"], pieces)
        for name, extra in [("a constraint", {"guided_regex": "[0-9]+"}), ("token ids", {"prompt": [5]})]:
            status, refused = s.json("POST", "/v1/completions", {**body, **extra})
            check(f"a suffix and {name}", status == 400 and "suffix" in refused["error"]["message"], refused)


def edits():
    with Server("-q") as s:
        start, end = TEXT.index("very"), TEXT.index(",")
        status, done = edit(s, ranges=[[start, end]], instruction="Shorter.", max_tokens=8, diffusion={"steps": 4})
        (a, b), = done["ranges"]
        check("an edit", status == 200 and a == start and done["tries"] > 0 and 0 <= done["agreement"] <= 1, done)
        check("what is outside stays", done["text"][:a] == TEXT[:start] and done["text"][b:] == TEXT[end:], done["text"])
        check("strength 0 changes nothing", edit(s, ranges=[[start, end]], strength=0)[1]["text"] == TEXT)
        status, two = edit(s, ranges=[[4, 11], [start, end]], lengths="same", diffusion={"steps": 4})
        (a, b), (c, d) = two["ranges"]
        check("two passages", two["text"][:a] == TEXT[:4] and two["text"][b:c] == TEXT[11:start] and two["text"][d:] == TEXT[end:],
              two["text"])
        check("a passage alone is what it is beside another",
              edit(s, ranges=[[4, 11]], lengths="same", diffusion={"steps": 4})[1]["text"][a:b] == two["text"][a:b])
        said = [{"role": "user", "content": "Tell me."}]
        body = {"text": TEXT, "seed": 1, "ranges": [[start, end]], "messages": said, "instruction": "Shorter.", "max_tokens": 8,
                "diffusion": {"steps": 3, "drafts": True}}
        found, raw = stream(s, "/v1/edit", body)
        check("a stream of drafts, then the result", raw.endswith("data: [DONE]\n\n") and found[0]["object"] == "edit.draft"
              and found[-1]["object"] == "edit", found[-1:])
        for name, fields in [("a range beyond the text", {"ranges": [[0, 999]]}), ("none", {}),
                             ("huge numbers", {"ranges": [[0, 2**62]]}), ("a passage too long", {"ranges": [[0, 4000]], "text": "ab " * 2000,
                                                                                                "lengths": "same"})]:
            check(f"ranges: {name}", edit(s, **fields)[0] == 400)


def pins():
    with Server("-q") as s:
        ids = s.json("POST", "/tokenize", {"content": "The answer is here"})[1]["tokens"]
        canvas = {"tokens": [None] + ids, "keep": [[1, 1 + len(ids)]]}
        status, body = s.chat(seed=2, max_tokens=20, diffusion={"steps": 3, "canvas": canvas})
        check("pinned tokens are in the answer", status == 200 and "The answer is here" in body["choices"][0]["message"]["content"], body)
        check("and counted", 0 <= body["timings"]["diffusion"]["agreement"] <= 1)
        status, refused = s.chat(diffusion={"canvas": {"tokens": ids[:1] * 100000}})
        check("a canvas beyond the context", status == 400 and refused["error"]["param"] == "diffusion.canvas", refused)
        check("not with log-probabilities", s.chat(logprobs=True, diffusion={"canvas": canvas})[0] == 400)
        check("nor with a constraint",
              s.chat(response_format={"type": "json_object"}, diffusion={"canvas": canvas})[0] == 400)


def pocket():
    """What the model says of itself comes back."""
    with Server("-q", model=MODEL) as s:
        said = [{"role": "user", "content": "What is the capital of France?"}]
        text = s.chat(messages=said, seed=1)[1]["choices"][0]["message"]["content"]
        word = text.index("France")
        body = {"text": text, "messages": said, "ranges": [[word, word + 6]], "seed": 5}
        check("a word that only fits is found again", s.json("POST", "/v1/edit", body)[1]["text"] == text, text)


run([gaps, edits, pins, *([pocket] if HAS_POCKET else [])])
finish()
