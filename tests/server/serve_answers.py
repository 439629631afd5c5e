"""What the server answers: the same tokens in every form, counted right."""
import base64
import json
import os
import re
import subprocess

from serving import ENDLESS, FIXTURE, HAS_POCKET, MODEL, SLOW, Server, check, events, finish, read_all, run, wait_until

CHAT = "/v1/chat/completions"


def text_of(body):
    return body["choices"][0]["message"]["content"]


def streamed(s, **fields):
    found, raw = events(read_all(s.open_stream(**fields)))
    return found, raw


def joined(found, index=0):
    return "".join(c["delta"].get("content") or "" for e in found for c in e["choices"] if c["index"] == index)


def same_tokens():
    with Server("-q") as s:
        answers = {}
        for seed in range(1, 7):
            status, whole = s.chat(seed=seed, max_tokens=40)
            found, raw = streamed(s, seed=seed, max_tokens=40)
            answers[seed] = text_of(whole)
            check("streamed and whole are the same", joined(found) == text_of(whole), (joined(found), text_of(whole)))
            check("again the same", text_of(s.chat(seed=seed, max_tokens=40)[1]) == text_of(whole))
            alone = subprocess.run([os.environ["DGEMMA"], "run", "-m", FIXTURE, "-q", "--json", "--seed", str(seed), "-n", "40",
                                    "Hello"], capture_output=True, check=True)
            check("as without a server", json.loads(alone.stdout)["text"] == text_of(whole))
        check("seeds differ", len(set(answers.values())) > 1, answers)
        _, many = s.chat(seed=1, n=3, max_tokens=40)
        got = {c["index"]: c["message"]["content"] for c in many["choices"]}
        check("n answers have n seeds", got == {i: answers[1 + i] for i in range(3)}, got)
        check("a prompt counts once", many["usage"]["prompt_tokens"] == s.chat(seed=1)[1]["usage"]["prompt_tokens"])
        found, _ = streamed(s, seed=1, n=3, max_tokens=40)
        check("n answers in one stream", all(joined(found, i) == answers[1 + i] for i in range(3)))
        del many
        seeds = {s.chat(seed=None)[1]["timings"]["diffusion"]["seed"] for _ in range(3)}
        check("without a seed, another each time", len(seeds) == 3, seeds)


def stream_form():
    with Server("-q") as s:
        found, raw = streamed(s, max_tokens=40, stream_options={"include_usage": True})
        check("a stream ends with [DONE]", raw.endswith("data: [DONE]\n\n"), raw[-50:])
        check("one id", len({e["id"] for e in found}) == 1 and len({e["created"] for e in found}) == 1)
        check("the role comes first", found[0]["choices"][0]["delta"]["role"] == "assistant")
        finishes = [c["finish_reason"] for e in found for c in e["choices"] if c["finish_reason"]]
        check("one finish_reason", len(finishes) == 1, finishes)
        check("usage is last", found[-1]["choices"] == [] and found[-1]["usage"]["total_tokens"] > 0, found[-1])
        check("and null before", all(e["usage"] is None for e in found[:-1]))
        check("timings come with the finish", "diffusion" in found[-2]["timings"])
        found, _ = streamed(s, max_tokens=40)
        check("no usage unless asked", all("usage" not in e for e in found))
        found, _ = streamed(s, path="/v1/completions", max_tokens=40)
        whole = s.json("POST", "/v1/completions", {"prompt": "Hello", "seed": 3, "max_tokens": 40})[1]
        check("completions stream the same",
              "".join(c["text"] for e in found for c in e["choices"]) == whole["choices"][0]["text"])


def counting():
    with Server("-q") as s:
        _, cut = s.chat(max_tokens=5, seed=2)
        check("cut at max_tokens", cut["choices"][0]["finish_reason"] == "length" and cut["usage"]["completion_tokens"] == 5,
              cut)
        _, cut = s.chat(max_tokens=50, max_completion_tokens=6, seed=2)
        check("max_completion_tokens wins", cut["usage"]["completion_tokens"] <= 6)
        for seed in range(20):
            answer = text_of(s.chat(seed=seed, max_tokens=60)[1])
            if len(answer) > 8:
                break
        stop = answer[4:7]
        _, body = s.chat(seed=seed, max_tokens=60, stop=[stop])
        check("a stop string cuts", text_of(body) == answer[:answer.index(stop)]
              and body["choices"][0]["finish_reason"] == "stop", (answer, stop, body))
        before = s.metric("vllm:prompt_tokens_total"), s.metric("vllm:generation_tokens_total")
        usage = s.chat()[1]["usage"]
        check("metrics count prompts", s.metric("vllm:prompt_tokens_total") - before[0] == usage["prompt_tokens"])
        check("metrics count answers", s.metric("vllm:generation_tokens_total") - before[1] == usage["completion_tokens"])
        _, body = s.chat(diffusion={"steps": 1}, max_tokens=40)
        d = body["timings"]["diffusion"]
        check("one step a block", d["n_steps"] == d["n_blocks"] and d["n_blocks"] >= 1, d)
        _, body = s.chat(diffusion={"canvas_length": 4, "steps": 3, "stability_threshold": 99}, max_tokens=12, seed=2)
        d = body["timings"]["diffusion"]
        check("a smaller canvas", d["canvas_tokens"] == 4 * d["n_blocks"] and d["n_capped"] == d["n_blocks"], d)


def lengths():
    """Text need not end; unless it is told how far to go on, a block of it is enough."""
    with Server("-q") as s:
        canvas = s.json("GET", "/props")[1]["canvas_length"]
        for i in range(4):
            body = s.json("POST", "/v1/completions", {"prompt": "Hello", "seed": i})[1]
            check("a block of text", body["timings"]["diffusion"]["n_blocks"] == 1
                  and body["usage"]["completion_tokens"] <= canvas, body)
        raw = {"prompt": "Hello", "raw": True, "stream": False, "options": {"seed": 3}}
        check("also where it is raw", s.json("POST", "/api/generate", raw)[1]["eval_count"] <= canvas)
        longest = max(s.json("POST", "/v1/completions", {"prompt": "Hello", "seed": i, "max_tokens": 4 * canvas})[1]["usage"]
                      ["completion_tokens"] for i in range(8))
        check("as far as it is told", canvas < longest <= 4 * canvas, longest)


def separate_caches():
    """What one key asked is not there for another, unless they are told to share."""
    text = "Remember these words: " + "fox tree river stone " * 40

    def cached(s, key):
        body = s.chat(text, headers={"Authorization": "Bearer " + key}, seed=None)[1]
        return body["usage"]["prompt_tokens_details"]["cached_tokens"]

    with Server("-q", "--api-key", "one", "--api-key", "two") as s:
        first = cached(s, "one"), cached(s, "one"), cached(s, "two")
        check("each key has its own cache", first[0] == first[2] == 0 and first[1] > 50, first)
        check("and keeps it", cached(s, "two") > 50 and cached(s, "one") > 50)
        body = {"messages": [{"role": "user", "content": text}], "max_tokens": 8}
        usage = s.json("POST", "/v1/messages", body, {"X-Api-Key": "one"})[1]["usage"]
        check("whatever the header and the dialect", usage["cache_read_input_tokens"] > 50, usage)
    with Server("-q", "--api-key", "one", "--api-key", "two", "--share-cache") as s:
        shared = cached(s, "one"), cached(s, "two")
        check("they share on request", shared[0] == 0 and shared[1] > 50, shared)
    with Server("-q") as s:
        check("without keys everybody shares", cached(s, "x") == 0 and cached(s, "y") > 50)


def memory():
    """While an answer runs nothing of a large body is kept but what the engine made of it: a picture's bytes."""
    with open("tests/data/images/square.png", "rb") as f:
        picture = f.read() + bytes(12 << 20)  # what is behind a picture's end says nothing
    url = "data:image/png;base64," + base64.b64encode(picture).decode()
    chat = [{"type": "text", "text": "What is it?"}, {"type": "image_url", "image_url": {"url": url}}]
    items = [{"type": "input_text", "text": "What is it?"}, {"type": "input_image", "image_url": url}]
    for path, fields in (("/v1/chat/completions", {"messages": [{"role": "user", "content": chat}]}),
                         ("/v1/responses", {"input": [{"role": "user", "content": items}]})):
        with Server("-q", model=MODEL) as s:
            s.chat()
            before = s.rss()
            c = s.open_stream(path=path, prompt=None, **(fields | ENDLESS))
            check(f"{path}: an answer runs", s.wait_metric("vllm:num_requests_running", lambda n: n == 1))
            check(f"{path}: its body is gone", wait_until(lambda: SLOW > 1 or s.rss() - before < 28 << 20), s.rss() - before)
            c.close()


def json_answers():
    """Held to JSON, a model that has learnt nothing answers with JSON."""
    with Server("-q") as s:
        for i in range(2):
            before = s.metric("vllm:request_success_total")
            status, body = s.chat("List nothing.", response_format={"type": "json_object"}, max_tokens=60, seed=i)
            n = s.metric("vllm:request_success_total") - before
            check("JSON is JSON, at once", status == 200 and n == 1 and isinstance(json.loads(text_of(body)), dict), body)
            found, _ = streamed(s, text="List nothing.", response_format={"type": "json_object"}, max_tokens=60, seed=i)
            check("the same in a stream", joined(found) == text_of(body), found)
        schema = {"type": "object", "properties": {"a": {"enum": [1, 2]}, "b": {"type": "array", "items": {"type": "boolean"},
                                                                               "maxItems": 3}}, "required": ["a", "b"]}
        for fields, holds in (({"json_schema": schema}, lambda t: json.loads(t)["a"] in (1, 2) and len(json.loads(t)["b"]) < 4),
                              ({"guided_choice": ["red", "blue"]}, lambda t: t in ("red", "blue")),
                              ({"regex": "[a-f]{3}"}, lambda t: re.fullmatch("[a-f]{3}", t)),
                              ({"grammar": 'root ::= "a" root | "b"'}, lambda t: re.fullmatch("a*b", t)),
                              ({"structured_outputs": {"json": schema}, "whitespace": "compact"}, lambda t: " " not in t and json.loads(t))):
            status, body = s.chat("Hello", max_tokens=60, **fields)
            check(f"held to {fields}", status == 200 and holds(text_of(body)), body)
            status, _, data = s.request("POST", "/v1/completions", {"prompt": "Hello", "max_tokens": 60, **fields})
            check("completions too", status == 200 and holds(json.loads(data)["choices"][0]["text"]), data)
        status, body = s.chat("Hello", max_tokens=2, json_schema=schema)
        check("too few tokens", status == 400 and body["error"]["code"] == "max_tokens_too_small"
              and body["error"]["param"] == "max_tokens", body)


def prometheus():
    with Server("-q") as s:
        for _ in range(3):
            s.chat()
        _, headers, page = s.request("GET", "/metrics")
        page = page.decode()
        check("a content type of Prometheus", headers["content-type"].startswith("text/plain; version=0.0.4"))
        lines = [x for x in page.splitlines() if not x.startswith("#")]
        form = re.compile(r'^[a-zA-Z_:][a-zA-Z0-9_:]*(\{([a-z_]+="[^"]*",?)+\})? [-+0-9.e]+$')
        bad = [x for x in lines if not form.match(x)]
        check("every line has the form", not bad, bad[:3])
        for name in ("vllm:time_to_first_token_seconds", "dgemma:block_seconds", "dgemma:steps_per_block",
                     "vllm:e2e_request_latency_seconds"):
            buckets = [float(x.rsplit(" ", 1)[1]) for x in lines if x.startswith(name + "_bucket")]
            total = [float(x.rsplit(" ", 1)[1]) for x in lines if x.startswith(name + "_count")]
            check(f"{name} is a histogram", buckets == sorted(buckets) and total == [buckets[-1]] and total[0] > 0, buckets)
        types = re.findall(r"^# TYPE (\S+) ", page, re.M)
        check("each name once", len(types) == len(set(types)))
        for name in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc", "prompt_tokens_total",
                     "generation_tokens_total", "request_success_total", "request_prompt_tokens", "request_generation_tokens",
                     "request_prefill_time_seconds", "request_decode_time_seconds", "request_queue_time_seconds",
                     "diffusion_num_denoising_steps_total"):
            check(f"dashboards find vllm:{name}", f"vllm:{name}" in types)


def old_http():
    with Server("-q") as s:
        body = b'{"messages":[{"role":"user","content":"Hello"}],"stream":true,"max_tokens":8}'
        c = s.connect()
        c.sendall(b"POST /v1/chat/completions HTTP/1.0\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        data = b""
        while True:
            piece = c.recv(65536)
            if not piece:
                break
            data += piece
        check("HTTP/1.0 gets its stream", data.endswith(b"data: [DONE]\n\n"), data[-100:])
        c = s.connect()
        one = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body
        c.sendall(one + one)
        data = b""
        while data.count(b"[DONE]") < 2:
            piece = c.recv(65536)
            if not piece:
                break
            data += piece
        check("two requests on one connection", data.count(b"[DONE]") == 2)


run([same_tokens, stream_form, counting, lengths, separate_caches, *([memory] if HAS_POCKET else []), json_answers, prometheus, old_http])
finish()
