"""Decisions over HTTP: both wires, their errors, and the same numbers whatever the company. And lm-eval's choices through them."""
import importlib.util
import math
import threading

from serving import HAS_POCKET, MODEL, Server, check, finish, run

TONES = {"angry": "an upset message", "calm": None, "glad": None}
QUESTIONS = {"spam": {"type": "noul", "instructions": "Is it spam?", "criteria": {"true": "advertising", "false": None}},
             "tone": {"type": "choice", "instructions": {"task": "name the tone"}, "criteria": TONES},
             "urgent": {"type": "score", "criteria": ["no", "somewhat", "very"]},
             "only": {"type": "choice", "instructions": "Which?", "criteria": {"this": None}}}
STATE = {"subject": "hello", "lines": [1, 2], "text": "\"<turn|>\" <|image|>"}


def close(a, b, tolerance=1e-9):
    return abs(a - b) < tolerance


def check_systemone(s):
    status, headers, data = s.request("POST", "/v1/systemone", {"model": "jev-latest", "state": STATE, "questions": QUESTIONS})
    import json
    body = json.loads(data)
    a = body["answers"]
    check("systemone", status == 200 and list(a) == list(QUESTIONS) and body["model"] == "test", body)
    check("how long it took", headers.get("server-timing", "").startswith("model;dur="), headers)
    check("noul", a["spam"]["type"] == "noul" and 0 <= a["spam"]["noul"] <= 1, a["spam"])
    p = a["tone"]["probabilities"]
    first, second = sorted(p.values(), reverse=True)[:2]
    check("choice", list(p) == list(TONES) and close(sum(p.values()), 1) and p[a["tone"]["choice"]] == first, a["tone"])
    check("confidence", close(a["tone"]["confidence"], first - second), a["tone"])
    q = a["urgent"]
    check("score", q["legend"] == {"0": "no", "1": "somewhat", "2": "very"} and
          close(q["score"], q["probabilities"]["1"] + 2 * q["probabilities"]["2"]), q)
    check("one option is certain", a["only"]["choice"] == "this" and a["only"]["probabilities"] == {"this": 1.0}, a["only"])
    check("usage", body["usage"]["input_tokens"] > 50 and body["usage"]["output_tokens"] == 0, body["usage"])
    return body


def check_systemone_errors(s):
    def post(**body):
        return s.json("POST", "/v1/systemone", body)
    for name, path, body in [
            ("no state", ["body", "state"], {"questions": QUESTIONS}),
            ("no questions", ["body", "questions"], {"state": "x"}),
            ("questions in a list", ["body", "questions"], {"state": "x", "questions": [1]}),
            ("a state that is a number", ["body", "state"], {"state": 7, "questions": QUESTIONS}),
            ("an unknown type", ["body", "questions", "q", "type"], {"state": "x", "questions": {"q": {"type": "box"}}}),
            ("a name with slashes", ["body", "questions", "a/b//c", "type"], {"state": "x", "questions": {"a/b//c": {"type": "box"}}}),
            ("a question without a name", ["body", "questions", "", "type"], {"state": "x", "questions": {"": {"type": "box"}}}),
            ("a choice without criteria", ["body", "questions", "q", "criteria"], {"state": "x", "questions": {"q": {"type": "choice"}}})]:
        status, got = post(**body)
        check(name, status == 422 and got["detail"][0]["loc"] == path and got["detail"][0]["msg"], (status, got))
    many = {str(i): None for i in range(256)}
    for name, body in [("256 options", {"q": {"type": "choice", "criteria": many}}), ("no option", {"q": {"type": "choice", "criteria": {}}}),
                       ("eleven levels", {"q": {"type": "score", "criteria": ["x"] * 11}})]:
        status, got = post(state="x", questions=body)
        check(name, status == 400 and isinstance(got["detail"], str), (status, got))
    for name, value in [("samples", 33), ("samples", "some"), ("steps", 9), ("think", -1), ("mode", "odd"), ("permute", 0), ("seed", "x"),
                        ("temperature", 0), ("diagnostics", "yes"), ("images", ["http://localhost/x.png"]), ("images", [1])]:
        status, got = post(state="x", questions=QUESTIONS, **{name: value})
        check(f"{name} {value}", status == 400, (status, got))
    status, got = s.json("POST", "/v1/systemone", "{")
    check("no JSON", status == 400 and isinstance(got["detail"], str), got)


def check_options(s, plain):
    def post(**fields):
        return s.json("POST", "/v1/systemone", {"state": STATE, "questions": QUESTIONS, **fields})
    for name, fields in [("samples", {"samples": 3}), ("auto", {"samples": "auto"}), ("orders", {"permute": 3}), ("apart", {"mode": "independent"}),
                         ("steps", {"steps": 2}), ("a thought", {"think": 16}), ("seed", {"seed": 5}), ("temperature", {"temperature": 2})]:
        status, got = post(diagnostics=True, **fields)
        ok = status == 200 and close(sum(got["answers"]["tone"]["probabilities"].values()), 1)
        check(name, ok and got["answers"]["tone"] != plain["answers"]["tone"], got)
        d = got["answers"]["tone"]["diagnostics"]
        check(f"{name}: diagnostics", 0 < d["label_mass"] <= 1 and d["reads"] >= 1 and "thought" in got, d)


def check_decisions(s, plain):
    questions = [{"type": "predicate", "instructions": "Is it spam?", "name": "spam"},
                 {"type": "choice", "instructions": [{"type": "input_text", "text": "Which?"}], "choices": [{"value": True}, {"value": "true", "description": "d"}]},
                 {"type": "score", "instructions": "How much?", "levels": [{"label": "low"}, {"label": "high", "description": "d"}]}]
    body = {"model": "gpt", "input": [{"role": "user", "content": [{"type": "input_text", "text": "hi"}, {"type": "input_json", "data": {"a": 1}}]}],
            "questions": questions}
    status, got = s.json("POST", "/v1/decisions", body)
    a = got.get("answers", [{}] * 3)
    check("decisions", status == 200 and [x["type"] for x in a] == ["predicate", "choice", "score"], got)
    check("their names", a[0]["name"] == "spam" and a[1]["name"] is None, a)
    check("values keep their types", [x["value"] for x in a[1]["probabilities"]] == [True, "true"] and a[1]["choice"] in (True, "true"), a[1])
    check("levels", [(x["value"], x["label"]) for x in a[2]["probabilities"]] == [(0, "low"), (1, "high")], a[2])
    check("their usage", got["usage"]["total_tokens"] == got["usage"]["input_tokens"] and "cached_tokens" in got["usage"]["input_tokens_details"], got)
    for name, change in [("a system's message", {"input": [{"role": "system", "content": "x"}]}), ("no input", {"input": None}),
                         ("a part that is none", {"input": [{"role": "user", "content": [{"type": "audio"}]}]}),
                         ("pictures beside the input", {"images": ["data:image/png;base64,"]}), ("no questions", {"questions": None}), ("empty", {"questions": []}), ("too many", {"questions": questions * 90}),
                         ("a value twice", {"questions": [{"type": "choice", "instructions": "x", "choices": [{"value": "a"}, {"value": "a"}]}]}),
                         ("no instructions", {"questions": [{"type": "predicate"}]}), ("no such type", {"questions": [{"type": "x", "instructions": "x"}]})]:
        status, got = s.json("POST", "/v1/decisions", {**body, **change})
        check(name, status == 400 and got["error"]["message"], (status, got))


def check_company(s, plain):
    """40 decisions at a time beside chats: the same numbers."""
    answers, chats = {}, []

    def ask(i):
        answers[i] = s.json("POST", "/v1/systemone", {"state": STATE, "questions": QUESTIONS, "seed": i % 2})[1]["answers"]
    threads = [threading.Thread(target=ask, args=(i,)) for i in range(40)]
    threads += [threading.Thread(target=lambda: chats.append(s.chat("Tell me a story.")[0])) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    check("the same in company", all(answers[i] == plain["answers"] for i in range(0, 40, 2)))
    check("another seed is another noise", all(answers[i] == answers[1] != plain["answers"] for i in range(1, 40, 2)))
    check("chats go on beside them", chats == [200] * 4, chats)


def check_refusals(s):
    status, got = s.json("POST", "/v1/completions", {"prompt": "x", "echo": True})
    check("echo", status == 400 and "/v1/decisions" in got["error"]["message"], got)
    status, got = s.chat(prompt_logprobs=1)
    check("log-probabilities of a prompt", status == 400 and got["error"]["param"] == "prompt_logprobs", got)


def check_stop_tokens(s):
    """A token that ends the answer: with the end of a thought for it, a thought is all that is said, and it has all tokens."""
    def ask(**fields):
        return s.chat("What is 7 + 5?", chat_template_kwargs={"enable_thinking": True}, logprobs=True, **fields)
    _, free = ask(max_tokens=64)
    status, got = ask(max_tokens=64, stop_token_ids=[101])
    one, other = (x["choices"][0] for x in (free, got))
    tokens = [t["token"] for t in other["logprobs"]["content"]]
    check("the token that ended it is told", tokens == [t["token"] for t in one["logprobs"]["content"]][:len(tokens)] and tokens[-1] == "<channel|>"
          and "<channel|>" not in tokens[:-1] and got["usage"]["completion_tokens"] == len(tokens) - 1, tokens)
    check("a thought ends the answer", status == 200 and one["message"]["content"] and not other["message"]["content"]
          and other["message"]["reasoning"] == one["message"]["reasoning"] and other["finish_reason"] == "stop", got)
    status, got = ask(max_tokens=8, stop_token_ids=[101])
    check("or its tokens are used up", status == 200 and not got["choices"][0]["message"]["content"] and got["usage"]["completion_tokens"] == 8, got)
    status, got = s.chat("Tell me a story.", logprobs=True, return_tokens_as_token_ids=True, max_tokens=32)
    tokens = [t["token"] for t in got["choices"][0]["logprobs"]["content"]]
    word = int(tokens[5].split(":")[1])
    before = tokens[:tokens.index(tokens[5])]
    status, got = s.chat("Tell me a story.", logprobs=True, return_tokens_as_token_ids=True, max_tokens=32, stop_token_ids=[word])
    text = s.json("POST", "/detokenize", {"tokens": [int(t.split(":")[1]) for t in before]})[1]["content"]
    one = got["choices"][0]
    check("a word that ends it is not in the text", status == 200 and one["message"]["content"] == text and one["finish_reason"] == "stop"
          and [t["token"] for t in one["logprobs"]["content"]] == before + [tokens[5]] and got["usage"]["completion_tokens"] == len(before), (text, got))
    form = {"type": "json_object"}
    status, got = s.chat(response_format=form, stop_token_ids=[101])
    check("no text of a form is cut", status == 400 and got["error"]["param"] == "stop_token_ids", got)
    check("the model's own ends go with any", s.chat(response_format=form, stop_token_ids=[106], max_tokens=60)[0] == 200)
    for ids in ([1 << 20], [-1], list(range(17)), "x", [1.5]):
        status, got = s.chat(stop_token_ids=ids)
        check(f"refused: {str(ids)[:20]}", status == 400 and got["error"]["param"].startswith("stop_token_ids"), got)


def own_first(own, asked):
    """The tokens told of a position: its most likely one, then those that were asked for."""
    return [own] + [t for t in (f"token_id:{i}" for i in asked) if t != own]


def check_xargs_of_tokens(s, seed, slot, asked):
    """As servers in front of vLLM think first and then read: a prompt of ids, a thought, and a canvas behind it."""
    prompt = [2] + s.json("POST", "/tokenize", {"content": "What is the capital of France?"})[1]["tokens"]
    status, got = s.json("POST", "/v1/completions", {"prompt": prompt, "max_tokens": 8, "logprobs": 0, "return_tokens_as_token_ids": True, "stop_token_ids": [101]})
    thought = [int(t.split(":")[1]) for t in got["choices"][0]["logprobs"]["tokens"]] if status == 200 else []
    check("a thought by its ids", 0 < len(thought) <= 9, got)
    args = {"diffusion_seed_canvas": seed, "diffusion_canvas_length": 16, "diffusion_max_steps": 1, "diffusion_read_only": True}
    status, got = s.json("POST", "/v1/completions", {"prompt": prompt + thought, "max_tokens": slot + 1, "logprobs": 20, "logprob_token_ids": asked,
                                                     "return_tokens_as_token_ids": True, "vllm_xargs": args})
    rows = got["choices"][0]["logprobs"]["top_logprobs"] if status == 200 else []
    own = got["choices"][0]["logprobs"]["tokens"] if status == 200 else []
    check("a canvas behind a prompt of ids", len(rows) == 16 and all(list(r) == own_first(o, asked) for o, r in zip(own, rows)), got)


def check_xargs(s):
    """vLLM's arguments: a canvas that is brought along and read."""
    _, got = s.json("POST", "/tokenize", {"content": "The capital of France is"})
    seed = got["tokens"] + [0] * (16 - len(got["tokens"]))
    asked, slot = [300, 5, 4000], len(got["tokens"])

    def read(**change):
        args = {"diffusion_seed_canvas": seed, "diffusion_canvas_length": 16, "diffusion_pinned": list(range(slot)), "diffusion_max_steps": 1,
                "diffusion_read_only": True}
        args.update(change.pop("vllm_xargs", {}))
        return s.chat("What is the capital of France?", **{"logprobs": True, "top_logprobs": 3, "logprob_token_ids": asked, "return_tokens_as_token_ids": True,
                                                           "vllm_xargs": {k: v for k, v in args.items() if v is not None}, **change})
    status, got = read()
    rows = got["choices"][0]["logprobs"]["content"] if status == 200 else []
    check("a canvas is read", len(rows) == 16 and got["usage"]["completion_tokens"] == 0, got)
    check("what was asked of it", all([t["token"] for t in r["top_logprobs"]] == own_first(r["token"], asked)
                                      and r["top_logprobs"][0]["logprob"] == r["logprob"] for r in rows), rows[:1])
    own = [int(r["token"].split(":")[1]) for r in rows]
    _, known = read(logprob_token_ids=sorted(set(own)))
    check("the position's own, asked for too", all([t["token"] for t in k["top_logprobs"]] == own_first(r["token"], sorted(set(own)))
                                                   and close(k["logprob"], r["logprob"], 1e-9) for r, k in zip(rows, known["choices"][0]["logprobs"]["content"])), known)
    _, likely = read(logprob_token_ids=None)
    likely = likely["choices"][0]["logprobs"]["content"]
    check("the most likely where none is asked for", len(likely) == 16 and all(
        len(k["top_logprobs"]) == 3 and k["top_logprobs"][0]["token"] == r["token"] and k["top_logprobs"][0]["logprob"] == r["logprob"]
        and [t["logprob"] for t in k["top_logprobs"]] == sorted((t["logprob"] for t in k["top_logprobs"]), reverse=True)
        for r, k in zip(rows, likely)), likely[:1])
    check("its probabilities", all(sum(math.exp(t["logprob"]) for t in r["top_logprobs"]) < 1 + 1e-6 for r in rows))
    check("the word behind it", got["choices"][0]["message"]["content"].startswith("The capital of France is Paris"), got["choices"][0]["message"])
    check("the same again", read()[1]["choices"][0]["logprobs"] == got["choices"][0]["logprobs"])
    for steps in (1, 3):
        status, among = read(vllm_xargs={"diffusion_constrained": True, "diffusion_max_steps": steps})
        check(f"among what was asked, steps {steps}", status == 200 and all(
            close(sum(math.exp(t["logprob"]) for t in r["top_logprobs"]), 1, 1e-6) and len(r["top_logprobs"]) == 3
            and r["token"] == max(r["top_logprobs"], key=lambda t: t["logprob"])["token"] == r["top_logprobs"][0]["token"]
            for r in among["choices"][0]["logprobs"]["content"]), among)
    _, numbers = read(vllm_xargs={"diffusion_read_only": 1, "diffusion_constrained": 0})
    check("switches are numbers too", numbers["choices"][0]["logprobs"] == got["choices"][0]["logprobs"], numbers)
    status, several = read(seed=5, vllm_xargs={"diffusion_samples": 3})
    said = [c["logprobs"]["content"] for c in several["choices"]] if status == 200 else []
    check("samples are choices", len(said) == 3 and all(len(c) == 16 for c in said) and said[0] != said[1] != said[2] != said[0], several)
    check("the same samples again", read(seed=5, vllm_xargs={"diffusion_samples": 3})[1]["choices"] == several["choices"])
    check("each has the seed behind the one before", read(seed=6, vllm_xargs={"diffusion_samples": 2})[1]["choices"][0]["logprobs"]
          == several["choices"][1]["logprobs"])
    status, noise = read(vllm_xargs={"diffusion_seed_canvas": None, "diffusion_pinned": None, "diffusion_canvas_length": 8})
    check("a canvas of noise", status == 200 and len(noise["choices"][0]["logprobs"]["content"]) == 8, noise)
    for name, change in [("a canvas of another length", {"vllm_xargs": {"diffusion_canvas_length": 17}}), ("pins without a canvas", {"vllm_xargs": {"diffusion_seed_canvas": None}}),
                         ("a pin outside", {"vllm_xargs": {"diffusion_pinned": [16]}}), ("tokens that are none", {"vllm_xargs": {"diffusion_seed_canvas": [-1] * 16}}),
                         ("a canvas that is too long", {"vllm_xargs": {"diffusion_canvas_length": 100000}}), ("no list", {"vllm_xargs": {"diffusion_pinned": 3}}),
                         ("a canvas to write on", {"vllm_xargs": {"diffusion_read_only": False}}), ("a stream", {"stream": True}),
                         ("among none", {"vllm_xargs": {"diffusion_constrained": True}, "logprob_token_ids": None}),
                         ("a switch that is 2", {"vllm_xargs": {"diffusion_constrained": 2}}), ("an unknown name", {"vllm_xargs": {"diffusion_sample": 2}}),
                         ("samples of a canvas without pins", {"vllm_xargs": {"diffusion_samples": 2, "diffusion_pinned": None}}),
                         ("samples and n", {"vllm_xargs": {"diffusion_samples": 2}, "n": 2}), ("33 samples", {"vllm_xargs": {"diffusion_samples": 33}}),
                         ("no object", {"vllm_xargs": {"diffusion_max_steps": 0}})]:
        status, got = read(**change)
        check(f"xargs: {name}", status == 400 and got["error"]["param"], (status, got))
    status, got = read(vllm_xargs={"diffusion_pinned": [0, 16]})
    check("a pin outside is told where pins may be", got["error"]["message"] == "vllm_xargs.diffusion_pinned[1]: wanted a whole number from 0 to 15", got)
    status, got = read(response_format={"type": "json_object"})
    check("a read beside a constraint", status == 400 and got["error"]["param"] == "vllm_xargs.diffusion_read_only", got)
    check_xargs_of_tokens(s, seed, slot, asked)
    status, got = s.chat(vllm_xargs={"diffusion_read_only": True}, logprob_token_ids=[1] * 513)
    check("too many ids", status == 400 and got["error"]["param"] == "logprob_token_ids", got)
    for n in (127, 512):
        status, got = read(n=16, logprob_token_ids=[5] * n, vllm_xargs={"diffusion_seed_canvas": None, "diffusion_pinned": None, "diffusion_canvas_length": 64})
        check(f"16 choices with {n} ids", status == 200 if n == 127 else status == 400 and got["error"]["code"] == "limit_exceeded"
              and str(16 * 64 * (n + 1)) in got["error"]["message"], (status, str(got)[:300]))
    for n in (119, 120):
        for letters in ("", "a"):
            status, got = s.chat(vllm_xargs={"diffusion_" + letters + "é" * n: 1})
            check(f"a long name that is not known, {n}{letters}", status == 400 and got["error"]["code"] == "unknown_parameter", (status, got))


def check_lm_eval(s):
    spec = importlib.util.spec_from_file_location("lm_eval_decisions", "examples/lm_eval_decisions.py")
    adapter = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(adapter)
    client = adapter.Decisions(f"http://127.0.0.1:{s.port}")
    pairs = [("Water is", " wet"), ("Water is", " dry"), ("Fire is", " hot"), ("Fire is", " cold"), ("Fire is", " hot")]
    got = adapter.score(client, pairs)
    check("lm-eval, choices", len(got) == 5 and close(math.exp(got[0][0]) + math.exp(got[1][0]), 1), got)
    check("lm-eval, equal choices", got[2] == got[4] and close(sum(math.exp(x) for x, _ in got[2:]), 1), got)
    check("lm-eval, one is best", got[0][1] != got[1][1], got)
    try:
        adapter.score(client, [("Water is", " wet")])
        check("lm-eval, a text alone", False)
    except NotImplementedError as e:
        check("lm-eval, a text alone", "canvas" in str(e))


def decisions():
    with Server(model=MODEL) as s:
        plain = check_systemone(s)
        check("again", check_systemone(s)["answers"] == plain["answers"])
        check_systemone_errors(s)
        check_options(s, plain)
        check_decisions(s, plain)
        check_company(s, plain)
        check_refusals(s)
        check_xargs(s)
        check_lm_eval(s)
        if HAS_POCKET:
            check_stop_tokens(s)
    with Server("--api-key", "secret", "--decision-temperature", "2", model=MODEL) as s:
        status, got = s.json("POST", "/v1/systemone", {"state": STATE, "questions": QUESTIONS})
        check("no key", status == 401 and got["detail"]["error_type"] == "invalid_api_key", got)
        status, got = s.json("POST", "/v1/systemone", {"state": STATE, "questions": QUESTIONS}, {"Authorization": "Bearer secret"})
        warm, cold = got["answers"]["spam"]["noul"], plain["answers"]["spam"]["noul"]
        check("the server's temperature", close(2 * math.log(warm / (1 - warm)), math.log(cold / (1 - cold)), 1e-6), (warm, cold))


run([decisions])
finish()
