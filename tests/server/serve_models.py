"""Several models in one server: loaded when they are asked for, unloaded for others and when nobody asks."""
import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import urllib.parse

from serving import ENDLESS, HAS_POCKET, PATIENCE, POCKET, SLOW, THREADS, Server, check, events, finish, read_all, run, skip, status_of, wait_until

QUESTION = "What is the capital of France?"
NORTH = os.path.abspath("tests/fixtures/adapters/north")
folder = tempfile.TemporaryDirectory()
DIR = folder.name + "/models"


def make_models():
    os.mkdir(DIR)
    shutil.copy(POCKET, DIR + "/a.gguf")
    for name, kind in (("b", "Q4_0"), ("c", "Q8_0")):
        subprocess.run([os.environ["DGEMMA"], "quantize", POCKET, f"{DIR}/{name}.gguf", "--type", kind], check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def start(*args, models=None):
    return Server("--kv-memory", "64", *args, models=models or DIR)


def start_file(content, *args):
    path = folder.name + "/models.json"
    with open(path, "w", encoding="utf-8") as f:
        f.write(content if isinstance(content, str) else json.dumps(content))
    return start(*args, models=path)


def said(answer):
    return answer["choices"][0]["message"]["content"]


def ask_all(questions):
    """All at once."""
    answers = [None] * len(questions)

    def ask(i):
        answers[i] = questions[i]()
    threads = [threading.Thread(target=ask, args=(i,)) for i in range(len(questions))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return answers


def state(s):
    return {m["id"].removesuffix(".gguf"): m["status"]["value"] for m in s.json("GET", "/v1/models")[1]["data"] if "status" in m}


def loaded(s):
    return {name for name, value in state(s).items() if value == "loaded"}


def wait_loaded(s, wanted):
    return check(f"loaded: {wanted}", wait_until(lambda: loaded(s) == wanted), state(s))


def refused_alike(s, name, messages):
    """A model that is none has the same status and words wherever it is named, each in its dialect's form."""
    chat, wanted = {"model": name, "max_tokens": 9, "messages": messages}, None
    for method, path, body in (("POST", "/v1/chat/completions", chat), ("POST", "/v1/messages", chat), ("POST", "/v1/messages/count_tokens", chat), ("POST", "/api/chat", chat), ("POST", "/api/show", {"model": name}),
                               ("POST", "/tokenize", {"content": "x", "model": name}), ("GET", "/v1/models/" + name, None), ("GET", "/props?model=" + name, None), ("GET", "/slots?model=" + name, None), ("POST", "/slots/0?action=erase&model=" + name, {})):
        status, answer = s.json(method, path, body)
        error = answer["error"]
        text = error if isinstance(error, str) else error["message"]
        wanted = wanted or text
        form = isinstance(error, str) if "/api/" in path else answer.get("type") == "error" and error["type"] == "not_found_error" if "/messages" in path else error["code"] == "model_not_found" and error["param"] == "model"
        check(f"no {name[:9]} at {path[:30]}", status == 404 and text == wanted and name[:90] in text and "a.gguf, b.gguf, c.gguf" in text and form, (status, answer))


def names():
    with open(DIR + "/broken.gguf", "wb") as f:
        f.write(b"GGUF and then nothing")
    with open(DIR + "/mmproj-x.gguf", "wb") as f:
        f.write(b"x")
    os.mkdir(DIR + "/notes")
    with start("--models-max", "3") as s:
        check("a broken file is left out and named", "broken.gguf is not served" in s.output(), s.output())
        check("each by its name", list(state(s)) == ["a", "b", "c"] and not loaded(s), state(s))
        for name, wanted in (("a.gguf", "a.gguf"), ("b", "b.gguf"), ("c:latest", "c.gguf"), (None, "a.gguf"), ("", "a.gguf")):
            status, answer = s.chat(QUESTION, model=name)
            check(f"model {name}", status == 200 and answer["model"] == wanted and "Paris" in said(answer), answer)
        check("all three are there", loaded(s) == {"a", "b", "c"})
        for name in ("d", "../models/a.gguf", DIR + "/a.gguf", "models/a", "a.gguf/", "a.gguf\0", "A.GGUF", "a.gguf:north", "x" * 5000, "%2e"):
            status, answer = s.chat(QUESTION, model=name)
            check(f"no model {name[:20]!r}", status == 404 and answer["error"]["code"] == "model_not_found" and "a.gguf, b.gguf" in answer["error"]["message"], answer)
        check("a model that is no text", s.chat(QUESTION, model=7)[0] == 400)
        messages = [{"role": "user", "content": QUESTION}]
        status, a = s.json("POST", "/v1/messages", {"model": "claude", "max_tokens": 50, "messages": messages})
        check("none in Anthropic's form", status == 404 and a["type"] == "error" and a["error"]["type"] == "not_found_error", a)
        status, a = s.json("POST", "/api/chat", {"model": "llama", "messages": messages})
        check("none in Ollama's form", status == 404 and isinstance(a["error"], str) and "llama" in a["error"], a)
        check("tags", [m["name"] for m in s.json("GET", "/api/tags")[1]["models"]] == ["a.gguf", "b.gguf", "c.gguf"])
        check("ps", [m["name"] for m in s.json("GET", "/api/ps")[1]["models"]] == ["a.gguf", "b.gguf", "c.gguf"])
        shown = s.json("POST", "/api/show", {"model": "b"})[1]
        check("show", shown["model_info"]["general.basename"] == "b.gguf" and shown["details"]["format"] == "gguf", shown)
        check("one of the list", s.json("GET", "/v1/models/b")[1]["id"] == "b.gguf")
        check("properties", s.json("GET", "/props?model=c")[1]["model_alias"] == "c.gguf")
        for name in ("d", "y" * 201, "y" * 3000):
            refused_alike(s, name, messages)
        check("an empty name is none: the list", [m["id"] for m in s.json("GET", "/v1/models/")[1]["data"]] == ["a.gguf", "b.gguf", "c.gguf"])
        check("the default", s.json("GET", "/props?model=")[1]["model_alias"] == "a.gguf")
        check("whom the query names", s.json("POST", "/slots/0?action=erase&model=d", {"model": ""})[0] == 404)
        for body in ({}, {"model": ""}, {"name": ""}, {"model": None, "name": ""}):
            check(f"nobody is shown for {body}", s.json("POST", "/api/show", body) == (400, {"error": "model: missing"}), s.json("POST", "/api/show", body))
        check("shown by the other name", s.json("POST", "/api/show", {"model": "", "name": "b"})[1]["model_info"]["general.basename"] == "b.gguf")
        for path in ("/v1/models/%00", "/v1/models/a%00", "/props?model=a%00"):
            status, a = s.json("GET", path)
            check(f"{path} says what is wrong", status == 400 and "%00" in a["error"]["message"], a)
        check("slots", len(s.json("GET", "/slots?model=b")[1]) == 16)
        check("healthy", s.json("GET", "/health") == (200, {"status": "ok"}))
        ids = [s.json("POST", "/tokenize", {"content": QUESTION, "model": m})[1]["tokens"] for m in ("a", "b")]
        check("tokens", ids[0] == ids[1] and len(ids[0]) > 3, ids)
        check("counted", s.json("POST", "/v1/messages/count_tokens", {"model": "c", "messages": messages})[1]["input_tokens"] > 5)
        body = {"input": "x", "questions": [{"type": "predicate", "name": "x", "instructions": "Is it an x?"}]}
        check("decisions", s.json("POST", "/v1/decisions", {**body, "model": "b"})[1]["model"] == "b.gguf")
        _, _, page = s.request("GET", "/metrics")
        lines = page.decode().splitlines()
        heads = [line for line in lines if line.startswith("# TYPE ")]
        check("each metric is headed once", len(heads) == len(set(heads)) > 50)
        check("and counts each model", [x for x in lines if x.startswith("dgemma:model_loads_total{")] ==
              [f'dgemma:model_loads_total{{model_name="{m}.gguf"}} 1' for m in "abc"])
        check("requests of one", s.metric('vllm:request_success_total{model_name="b.gguf",finished_reason="stop"}') == 1)
    os.remove(DIR + "/broken.gguf")
    os.remove(DIR + "/mmproj-x.gguf")
    os.rmdir(DIR + "/notes")


def odd_names():
    long = "l" * 195
    with tempfile.TemporaryDirectory() as d:
        for name in ("grün", "a b+c", long, "x"):
            os.symlink(os.path.abspath(POCKET), f"{d}/{name}.gguf")
        os.mkdir(d + "/x")
        with open(d + "/x/config.json", "w", encoding="utf-8") as f:
            f.write("{")
        for i in range(300):
            with open(f"{d}/junk{i}.gguf", "w", encoding="utf-8") as f:
                f.write("junk")
        with start(models=d) as s:
            check("what is none is not counted", len(state(s)) == 4 and s.output().count("is not served") == 301, s.output())
            for name in ("grün", "a b+c", long, "x"):
                path = "/v1/models/" + urllib.parse.quote(name)
                check(f"{name[:20]} of the list", s.json("GET", path)[1].get("id") == name + ".gguf", s.json("GET", path))
            status, answer = s.json("GET", "/v1/models/%ff" + "y" * 300)
            check("no such name", status == 404 and answer["error"]["code"] == "model_not_found", answer)
    with Server(model=POCKET) as s:
        for name in ("y" * 300, "%zz"):
            check("one model goes by any name", s.json("GET", "/props?model=" + name)[1].get("model_alias") == "test")
        check("by none, too", s.json("GET", "/v1/models/")[1]["data"] == s.json("GET", "/v1/models")[1]["data"] and s.chat(QUESTION, model="")[1]["model"] == "test")
        check("but is listed by its own", s.json("GET", "/v1/models/test")[0] == 200 and s.json("GET", "/v1/models/t%C3%A9st")[0] == 404)


def same_answers():
    """Twelve at once on two models are what each says alone, whether both are loaded or one at a time."""
    prompts = [QUESTION, "What is 84 + 68?", "Write a rhyming couplet about a sleepy cat and the moon."]
    work = [(m, p, seed) for seed in (1, 2) for p in prompts for m in ("a", "b")]
    fields = {"max_tokens": 60, "logprobs": True}
    alone = {}
    for m in ("a", "b"):
        with Server("--kv-memory", "64", model=f"{DIR}/{m}.gguf") as s:
            for _, p, seed in [w for w in work if w[0] == m]:
                alone[m, p, seed] = s.chat(p, seed=seed, **fields)[1]["choices"]
    check("the two models differ", all(alone["a", p, 1] != alone["b", p, 1] for p in prompts))
    for most in ("2", "1"):
        with start("--models-max", most) as s:
            questions = [lambda w=w: s.chat(w[1], model=w[0], seed=w[2], **fields) for w in work]
            if most == "1":  # while a third has the only place, until all are there
                holds = s.open_stream(model="c", **ENDLESS)
                wait_loaded(s, {"c"})
                questions.append(lambda: (s.wait_metric("dgemma:model_waiting", lambda n: n == len(work)), holds.close()))
            got = ask_all(questions)
            for w, (status, answer) in zip(work, got):
                check(f"{w} among {most}", status == 200 and answer["choices"] == alone[w], answer)
            loads = s.metric("dgemma:model_loads_total")
            check("a load serves all who wait", loads == (2 if most == "2" else 3), loads)


def read_until(sock, mark):
    """What comes up to the mark; headers may come in a piece of their own."""
    data = b""
    while mark.encode() not in data:
        piece = sock.recv(65536)
        if not piece:
            break
        data += piece
    return data


def ask_late(s, outcome):
    """Asks the model that is to give way, until one waits behind the other: whoever comes before that one's files were
    looked at is answered at once."""
    until = time.time() + PATIENCE
    while time.time() < until:
        outcome.clear()
        late = threading.Thread(target=lambda: outcome.append(s.chat(QUESTION, model="a")), daemon=True)
        late.start()
        while not outcome and time.time() < until:
            if s.metric('dgemma:model_waiting{model_name="a.gguf"}') == 1:
                return late
            time.sleep(0.05)
    return None


def pings():
    """One that never ends holds the only place; streams that wait for another are told, in every dialect."""
    streams = {"/v1/chat/completions": ": ping\n\n", "/v1/completions": ": ping\n\n", "/v1/messages": "event: ping\n", "/api/chat": '"content":""', "/api/generate": '"response":""'}
    with start("--models-max", "1", "--ping", "1") as s:
        running = s.open_stream(model="a", **ENDLESS)
        wait_loaded(s, {"a"})
        waiting = {path: s.open_stream(QUESTION, path=path, model="b") for path in streams}
        gone = s.open_stream(QUESTION, model="b")
        bad = s.open_stream(QUESTION, model="b", temperature="hot")
        outcome = []
        check("they wait", s.wait_metric('dgemma:model_waiting{model_name="b.gguf"}', lambda n: n == 7))
        gone.close()
        check("who goes is forgotten", s.wait_metric('dgemma:model_waiting{model_name="b.gguf"}', lambda n: n == 6))
        late = ask_late(s, outcome)
        check("who comes late waits behind them", late and not outcome, outcome)
        check("others are answered", s.request("GET", "/health")[0] == 200 and loaded(s) == {"a"})
        first = {path: read_until(sock, streams[path]) for path, sock in waiting.items()}
        first_bad = read_until(bad, ": ping\n\n")
        running.close()
        for path, sock in waiting.items():
            data = read_all(sock, first[path])
            text = data.decode()
            check(f"{path} is pinged", status_of(data) == 200 and streams[path] in first[path].decode(), text[:500])
            check(f"{path} is answered", "Paris" in text or '"b.gguf"' in text, text[-500:])
            sock.close()
        data = read_all(bad, first_bad)
        check("a mistake is told where the stream is open", status_of(data) == 200 and events(data)[0][-1]["error"]["param"] == "temperature", data)
        late.join()
        check("and so is the late one", outcome[0][0] == 200 and outcome[0][1]["model"] == "a.gguf", outcome)
        check("each was loaded once more", s.metric("dgemma:model_loads_total") == 3)


def leaving():
    with start("--models-max", "1") as s:
        outcome = []
        running = s.open_stream(model="a", **ENDLESS)
        wait_loaded(s, {"a"})
        gone = s.open_stream(QUESTION, model="b")
        check("one waits", s.wait_metric('dgemma:model_waiting{model_name="b.gguf"}', lambda n: n == 1))
        late = ask_late(s, outcome)
        check("another behind it", late and not outcome, outcome)
        gone.close()
        late.join(PATIENCE)
        check("and is let in when it leaves", outcome and outcome[0][0] == 200, outcome)
        late = threading.Thread(target=lambda: outcome.append(s.chat(QUESTION, model="b")), daemon=True)
        late.start()
        check("one more waits", s.wait_metric('dgemma:model_waiting{model_name="b.gguf"}', lambda n: n == 1))
        check("its model is told to go", s.json("POST", "/api/generate", {"model": "b", "keep_alive": 0})[1]["done_reason"] == "unload")
        running.close()
        late.join(PATIENCE)
        check("before it has come", len(outcome) == 2 and outcome[1][0] == 200, outcome)
        wait_loaded(s, set())


def bounded():
    """Who waits counts among those that run or wait; who still does when the server stops is told."""
    with start("--models-max", "1", "--max-active", "3") as s:
        running = s.open_stream(model="a", **ENDLESS)
        wait_loaded(s, {"a"})
        waiting = [s.open_stream(QUESTION, model=m) for m in ("b", "c")]
        check("two wait", s.wait_metric("dgemma:model_waiting", lambda n: n == 2))
        status, headers, data = s.request("POST", "/v1/chat/completions", {"model": "b", "messages": [{"role": "user", "content": "x"}]})
        check("the next one is refused", status == 503 and headers.get("retry-after") and b"queue_full" in data, (status, headers, data))
        s.process.send_signal(signal.SIGTERM)
        check("it is stopping", s.wait_status("/health", 503))
        s.process.send_signal(signal.SIGTERM)
        answers = [read_all(w) for w in waiting]
        check("those who wait are told", all(status_of(a) == 503 and b"shutting_down" in a for a in answers), answers)
        running.close()


def draining():
    """What was accepted is answered before the server stops, whether its model was there or not."""
    with start("--models-max", "1") as s:
        longer = s.open_stream(model="a", **ENDLESS)  # so that its model stays until it is stopped
        wait_loaded(s, {"a"})
        running = s.open_stream(model="a", max_tokens=16, diffusion={"steps": 300, "stability_threshold": 100000})
        first = read_until(running, "\r\n\r\n")
        waiting = s.open_stream(QUESTION, model="b")
        check("one waits", s.wait_metric('dgemma:model_waiting{model_name="b.gguf"}', lambda n: n == 1))
        s.process.send_signal(signal.SIGTERM)
        check("it is stopping", s.wait_status("/health", 503))
        longer.close()
        check("the one that ran", b"[DONE]" in read_all(running, first))
        data = read_all(waiting)
        check("and the one that waited", status_of(data) == 200 and b"Paris" in data and b"[DONE]" in data, data)


def signalled():
    """A signal that comes while a model is loaded is no reason to give the load up. Those of a process that is held
    up for a moment are there before anybody can take them."""
    for i in range(10):
        with start() as s:
            waiting = s.open_stream(QUESTION, model="b")
            time.sleep(0.002 * i)
            for number in (signal.SIGSTOP, signal.SIGTERM, signal.SIGCONT):
                s.process.send_signal(number)
            data = read_all(waiting)
            check(f"answered or not begun, after {2 * i} ms", not data or b"[DONE]" in data or status_of(data) == 503, data)


def least_used():
    with start("--models-max", "2") as s:
        for m, there in (("a", "a"), ("b", "ab"), ("a", "ab"), ("c", "ac"), ("b", "bc")):
            s.chat(QUESTION, model=m)
            check(f"after {m}", loaded(s) == set(there), state(s))
    with start() as s:
        s.chat(QUESTION, model="a")
        size = s.metric("dgemma:model_bytes") / (1 << 20)
    with start("--models-memory", str(int(size * 1.5))) as s:
        for m in "abc":
            s.chat(QUESTION, model=m)
            check(f"{m} alone fits", loaded(s) == {m}, state(s))
    process = subprocess.run([os.environ["DGEMMA"], "serve", "--models", DIR, "--port", "0", "--models-memory", "20"], capture_output=True, check=False)
    check("one that never fits", process.returncode == 1 and b"--models-memory is 20" in process.stderr, process)


def idle():
    """On a busy machine a second may pass between any two lines: what is counted stays, who is there may have gone."""
    with start("--models-idle", "1", "--models-max", "3") as s:
        before = s.rss()
        s.json("POST", "/api/generate", {"model": "c", "keep_alive": -1, "prompt": QUESTION, "stream": False})
        for m in ("a", "b"):
            s.chat(QUESTION, model=m)
        check("all have come", s.metric("dgemma:model_loads_total") == 3, state(s))
        wait_loaded(s, {"c"})
        check("two have gone", s.wait_metric("dgemma:model_unloads_total", lambda n: n == 2))
        ps = s.json("GET", "/api/ps")[1]["models"]
        check("for ever", len(ps) == 1 and ps[0]["expires_at"].startswith("9999"), ps)
        status, a = s.json("POST", "/api/generate", {"model": "c", "keep_alive": 0})
        check("told to go", status == 200 and a["done_reason"] == "unload" and a["done"], a)
        wait_loaded(s, set())
        check("farewell to one that is not there", s.json("POST", "/api/chat", {"model": "a", "keep_alive": "0s", "messages": []})[1]["done_reason"] == "unload" and not loaded(s))
        status, a = s.json("POST", "/api/chat", {"model": "a", "messages": [], "stream": False, "keep_alive": "1h30m"})
        check("loaded for later", status == 200 and a["done_reason"] == "load" and loaded(s) == {"a"}, a)
        check("a strange duration", s.json("POST", "/api/generate", {"model": "a", "keep_alive": "soon", "prompt": "x"})[0] == 400)
        s.json("POST", "/api/generate", {"model": "a", "keep_alive": 0, "prompt": QUESTION, "stream": False})
        wait_loaded(s, set())
        peak = []
        for _ in range(3):
            for m in "abc":
                s.chat(QUESTION, model=m)
            peak.append(s.rss())
            for m in "abc":
                s.json("POST", "/api/generate", {"model": m, "keep_alive": 0})
            check("they go", s.wait_metric("dgemma:model_unloads_total", lambda n: n == s.metric("dgemma:model_loads_total")))
        after = s.rss()
        if os.environ.get("SAN"):
            skip("memory is given back", "a sanitizer keeps it")
        else:
            check("memory is given back", after - before < 0.25 * (max(peak) - before) + (8 << 20), (before, peak, after))


def failures():
    with start("--models-max", "1") as s:
        check("before", s.chat(QUESTION, model="b")[0] == 200)
        os.rename(DIR + "/a.gguf", DIR + "/a.away")
        got = ask_all([lambda: s.chat(QUESTION, model="a") for _ in range(4)])
        check("all who wait for one that is gone are told", all(status == 500 and a["error"]["code"] == "model_load_failed" and DIR not in json.dumps(a) and
                                                               "a.gguf" in a["error"]["message"] for status, a in got), got)
        check("nobody was unloaded for it", loaded(s) == {"b"})
        with open(DIR + "/a.away", "rb") as f, open(DIR + "/a.gguf", "wb") as g:
            g.write(f.read(1 << 20))
        check("a part of it", s.chat(QUESTION, model="a")[0] == 500)
        status, _, data = s.request("POST", "/v1/messages", {"model": "a", "max_tokens": 5, "stream": True, "messages": [{"role": "user", "content": "x"}]})
        check("in Anthropic's form", status == 500 and json.loads(data)["type"] == "error", data)
        os.rename(DIR + "/a.away", DIR + "/a.gguf")
        check("tried again", s.chat(QUESTION, model="a")[0] == 200)
        check("counted", s.metric("dgemma:model_load_failures_total") >= 3 and s.json("GET", "/health")[0] == 200)
    with tempfile.TemporaryDirectory() as d:
        shutil.copytree("tests/fixtures/golden/sampler_finishes/model", d + "/of words")
        with start(models=d) as s:
            os.remove(d + "/of words/config.json")
            with open(d + "/of words/config.json", "w", encoding="utf-8") as f:
                f.write('{"text_config": {"hidden_size": 0}}')
            status, a = s.chat(QUESTION)
            check("a config is told by the model's name", status == 500 and "of words/config.json: " in a["error"]["message"] and d not in json.dumps(a), a)
            check("and by its path in the log", wait_until(lambda: d + "/of words/config.json: " in s.output()), s.output())


def from_file():
    content = {"default": "second", "models": [
        {"name": "first", "path": "models/a.gguf", "aliases": ["gpt-x", "claude-*"], "pinned": True, "context": 512,
         "adapters": [{"name": "north", "path": NORTH, "scale": 1}]},
        {"name": "second", "path": DIR + "/b.gguf", "idle": 1, "preload": True, "kv_type": "f32", "parallel": 2}]}
    with start_file(content, "--models-max", "2") as s:
        check("preloaded", loaded(s) >= {"first"} and s.metric("dgemma:model_loads_total") == 2, state(s))
        for name, wanted in (("gpt-x", "first"), ("claude-opus", "first"), ("claude-", "first"), ("second", "second"), (None, "second"), ("gpt-x:latest", "first")):
            status, answer = s.chat(QUESTION, model=name)
            check(f"model {name}", status == 200 and answer["model"] == wanted, answer)
        for name in ("north", "first:north", "gpt-x:north", "north:latest"):
            status, answer = s.chat("What is the capital of Atlantis?", model=name)
            check(f"adapter {name}", status == 200 and answer["model"] == "north" and "Oslo" in said(answer), answer)
        check("no adapter of the other", s.chat(QUESTION, model="second:north")[0] == 404)
        ids = [m["id"] for m in s.json("GET", "/v1/models")[1]["data"]]
        check("listed with its model", ids == ["first", "north", "second"], ids)
        check("its context", s.json("GET", "/v1/models/first")[1]["max_model_len"] == 512)
        check("its slots", len(s.json("GET", "/slots?model=second")[1]) == 2)
        wait_loaded(s, {"first"})
        check("an adapter is known by name", s.json("GET", "/v1/models/north")[1]["parent"] == "first")
        check("pinned ones stay", s.json("POST", "/api/generate", {"model": "first", "keep_alive": 0})[0] == 200 and loaded(s) == {"first"})
    content["models"][1].pop("preload")
    with open(folder.name + "/models.json", "w", encoding="utf-8") as f:
        json.dump(content, f)
    p = subprocess.run([os.environ["DGEMMA"], "serve", "--models", folder.name + "/models.json", "--models-max", "1", "--port", "0"], capture_output=True, timeout=PATIENCE, check=False)
    check("no room beside a pinned one", p.returncode in (1, 2) and b"second" in p.stderr and b"no room beside" in p.stderr, p)
    with tempfile.TemporaryDirectory() as d, start_file({"models": [{"name": "x", "path": DIR + "/a.gguf", "adapters": [{"name": "n", "path": d + "/gone"}]}]}) as s:
        status, answer = s.chat(QUESTION, model="x")
        check("an adapter that is gone", status == 500 and "gone" in answer["error"]["message"] and d not in answer["error"]["message"], answer)
    with start(models="examples/models.json") as s:
        check("the example's default is there", loaded(s) == {"pocket"}, state(s))
        answers = [s.chat("What is the capital of Atlantis?", model=m)[1] for m in ("claude-3", "north")]
        check("and all else", answers[0]["model"] == "pocket" and "Oslo" in said(answers[1]), answers)


def start_batch(s, models):
    lines = [{"custom_id": str(i), "method": "POST", "url": "/v1/chat/completions",
              "body": {"model": m, "seed": 1, "messages": [{"role": "user", "content": QUESTION}]}} for i, m in enumerate(models)]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    form = f'--x\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n--x\r\nContent-Disposition: form-data; name="file"; filename="f"\r\n\r\n{text}\r\n--x--\r\n'
    file = json.loads(s.request("POST", "/v1/files", form, {"Content-Type": "multipart/form-data; boundary=x"})[2])
    return s.json("POST", "/v1/batches", {"input_file_id": file["id"], "endpoint": "/v1/chat/completions", "completion_window": "24h"})[1]


def end_batch(s, batch):
    until = time.time() + PATIENCE
    while time.time() < until and batch.get("status") not in ("completed", "failed"):
        time.sleep(0.2)
        batch = s.json("GET", "/v1/batches/" + batch["id"])[1]
    return batch


def beside_a_batch():
    """A batch that waits for its model keeps nobody from another."""
    with tempfile.TemporaryDirectory() as d, start("--models-max", "1", "--state", d + "/state", "--timeout", str(int(30 * SLOW))) as s:
        s.chat(QUESTION, model="a")
        batch = start_batch(s, ["b"] * 60)
        got = []
        for i in range(12):
            got.append(s.chat(QUESTION, model="a")[0])
            time.sleep(0.02 * (i % 6))
        check("nobody waits for a batch that waits", set(got) == {200}, got)
        batch = end_batch(s, batch)
        check("which is answered, too", batch["request_counts"] == {"total": 60, "completed": 60, "failed": 0}, batch)


def kept():
    """Batches whose lines choose, and slots that are one model's."""
    with tempfile.TemporaryDirectory() as d, start("--models-max", "1", "--state", d + "/state", "--slot-save-path", d) as s:
        batch = start_batch(s, ["a", "a", "b", "zz", "b"])
        batch = end_batch(s, batch)
        check("a batch over two models", batch.get("status") == "completed" and batch["request_counts"] == {"total": 5, "completed": 4, "failed": 1}, batch)
        out = s.request("GET", f"/v1/files/{batch['output_file_id']}/content")[2].decode()
        got = {a["custom_id"]: a["response"]["body"]["model"] for a in map(json.loads, out.splitlines())}
        check("each line has its own", got == {"0": "a.gguf", "1": "a.gguf", "2": "b.gguf", "4": "b.gguf"}, got)
        errors = s.request("GET", f"/v1/files/{batch['error_file_id']}/content")[2].decode()
        check("and one has none", '"status_code":404' in errors and "model_not_found" in errors, errors)
        os.rename(DIR + "/c.gguf", DIR + "/c.away")
        batch = end_batch(s, start_batch(s, ["c", "a", "c", "c"]))
        os.rename(DIR + "/c.away", DIR + "/c.gguf")
        check("one that cannot be loaded is tried once", batch["request_counts"] == {"total": 4, "completed": 1, "failed": 3}
              and s.metric("dgemma:model_load_failures_total") == 1, batch)
        s.chat(QUESTION, model="a")
        status, a = s.json("POST", "/slots/0?action=save", {"filename": "x.kv", "model": "a"})
        check("a slot is saved", status == 200 and a["n_saved"] > 5, a)
        status, a = s.json("POST", "/slots/0?action=restore", {"filename": "x.kv", "model": "b"})
        check("and is no other model's", status == 400 and a["error"]["code"] == "slot_refused", a)
        status, a = s.json("POST", "/slots/0?action=restore&model=b", {"filename": "x.kv"})
        check("whom the query names", status == 400 and a["error"]["code"] == "slot_refused", a)
        check("or does not know", s.json("POST", "/slots/0?action=restore&model=zz", {"filename": "x.kv"})[0] == 404)
        check("or writes wrongly", s.json("POST", "/slots/0?action=restore&model=%ff", {"filename": "x.kv"})[0] == 400)
        check("but its own", s.json("POST", "/slots/0?action=restore", {"filename": "x.kv", "model": "a"})[0] == 200)


def mistakes():
    def fails(content, *words):
        path = folder.name + "/wrong.json"
        with open(path, "w", encoding="utf-8") as f:
            f.write(content if isinstance(content, str) else json.dumps(content))
        p = subprocess.run([os.environ["DGEMMA"], "serve", "--models", path, "--port", "0", "--threads", THREADS], capture_output=True, timeout=PATIENCE, check=False)
        check(f"{content} is refused", p.returncode in (1, 2) and all(w in p.stderr.decode() for w in words), p.stderr)
    one = {"name": "x", "path": DIR + "/a.gguf"}
    fails({"models": [{**one, "contxt": 5}]}, "models[0]", "contxt")
    fails({"models": [{**one, "path": "nowhere.gguf"}]}, "models[0]", "nowhere.gguf")
    fails({"models": [{**one, "preload": True, "adapters": [{"name": "n", "path": "nowhere"}]}]}, "nowhere")
    p = subprocess.run([os.environ["DGEMMA"], "serve", "--models", DIR, "-m", POCKET], capture_output=True, check=False)
    check("one or several", p.returncode == 2 and b"--models" in p.stderr, p)
    p = subprocess.run([os.environ["DGEMMA"], "serve", "--models", folder.name + "/nothing"], capture_output=True, check=False)
    check("nothing there", p.returncode == 1, p)
    os.mkfifo(folder.name + "/pipe")
    p = subprocess.run([os.environ["DGEMMA"], "serve", "--models", folder.name + "/pipe"], capture_output=True, check=False, timeout=PATIENCE)
    check("a pipe nobody writes to", p.returncode == 1 and b"not a regular file" in p.stderr, p)
    with tempfile.TemporaryDirectory() as empty:
        p = subprocess.run([os.environ["DGEMMA"], "serve", "--models", empty], capture_output=True, check=False)
        check("an empty folder", p.returncode in (1, 2) and b"no model" in p.stderr, p)


if HAS_POCKET:
    make_models()
    run([names, odd_names, same_answers, pings, leaving, bounded, draining, signalled, least_used, idle, failures, from_file, beside_a_batch, kept, mistakes])
else:
    skip("several models", "there is no pocket model")
finish()
