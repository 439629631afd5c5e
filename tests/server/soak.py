"""make soak: many clients at once, with all that clients do: text, pictures, tools, four choices, leaving early, asking for
nonsense. Every answer must be the one given alone with that seed, nobody gets an error that was not asked for, memory stays
flat, nobody is starved, and /health answers in time while there is a processor to spare for it.

    soak.py [--clients N] [--seconds S | --minutes M] [--tokens N] [--steps N] [--model PATH]
"""
import argparse
import base64
import collections
import http.client
import json
import multiprocessing
import os
import random
import socket
import statistics
import sys
import threading
import time

from serving import ENDLESS, MODEL, Server, check, events, finish, read_all, status_of

CHAT = "/v1/chat/completions"
PROMPTS = ["Hello", "What is the weather in Paris?", "What is 12 + 30?", "Tell me a story about a fox.",
           "Why is the sky blue?", "List three colours.", "Translate good morning into French.", "Who are you?"]
WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "The weather in a city",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}
PICTURES = [["square"], ["tower", "square"], ["strip"], ["portrait", "grey"]]

# name, method, path, body, status: what some clients send, and what they get for it
BAD = [
    ("no JSON", "POST", CHAT, "{", 400),
    ("no messages", "POST", CHAT, {"messages": []}, 400),
    ("a heat out of range", "POST", CHAT, {"messages": [{"role": "user", "content": "x"}], "temperature": 9}, 400),
    ("no picture", "POST", CHAT, {"messages": [{"role": "user", "content": [
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]}]}, 400),
    ("beyond the context", "POST", CHAT, {"messages": [{"role": "user", "content": "ab " * 30000}]}, 400),
    ("nowhere", "GET", "/nowhere", None, 404),
    ("the wrong method", "GET", CHAT, None, 405),
]
SMUGGLED = (b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n"
            b"\r\n0\r\n\r\n")


# ---- jobs: each returns what was said, to be compared, and how many tokens that was ----

class PatientServer(Server):
    """Who waits behind sixty others waits as long as it takes; how long that was is looked at later."""

    patience = 900


def stream(s, fields):
    found, raw = events(read_all(s.open_stream(fields["messages"][-1]["content"], **fields)))
    if not raw.endswith("data: [DONE]\n\n"):
        raise RuntimeError("an answer did not end: " + raw[-300:])
    said = "".join(c["delta"].get("content") or "" for e in found for c in e["choices"])
    return said, found[-1]["timings"]["predicted_n"]


def whole(s, fields):
    status, body = s.json("POST", CHAT, fields)
    if status != 200:
        raise RuntimeError(f"{status} {body}")
    said = []
    for c in sorted(body["choices"], key=lambda c: c["index"]):
        m = c["message"]
        calls = [(t["function"]["name"], t["function"]["arguments"]) for t in m.get("tool_calls") or []]
        said.append((m.get("content"), calls, c["finish_reason"]))
    return said, body["usage"]["completion_tokens"]


def leave(s, dice):
    """Goes in the middle of an answer: some with a word, some without."""
    c = s.open_stream(dice.choice(PROMPTS), **ENDLESS)
    if dice.random() < 0.7:
        c.recv(1 + dice.randrange(2000))
    time.sleep(dice.random() / 4)
    if dice.random() < 0.5:
        c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")  # reset, not close
    c.close()


def nonsense(s, dice):
    k = dice.randrange(len(BAD) + 1)
    if k == len(BAD):
        c = s.connect()
        c.sendall(SMUGGLED)
        got, want = status_of(read_all(c)), 400
        c.close()
    else:
        _, method, path, body, want = BAD[k]
        got = s.request(method, path, body)[0]
    if got != want:
        raise RuntimeError(f"nonsense {k} got {got}, not {want}")
    return want


def image(name):
    with open(f"tests/data/images/{name}.png", "rb") as f:
        return {"type": "image_url", "image_url": {"url": "data:image/png;base64," + base64.b64encode(f.read()).decode()}}


def make_jobs(n_token, n_step, with_pictures):
    """{name: (how it is asked, the request)}"""
    jobs, common = {}, {"max_tokens": n_token, "diffusion": {"steps": n_step}}
    for i, text in enumerate(PROMPTS):
        for seed in (1, 2):
            ask = {"messages": [{"role": "user", "content": text}], "seed": seed, **common}
            jobs[f"text {i} {seed}"] = (stream, ask)
        jobs[f"tools {i}"] = (whole, {**ask, "tools": [WEATHER]})
        jobs[f"four {i}"] = (whole, {**ask, "n": 4, "max_tokens": n_token // 2})
    for i, names in enumerate(PICTURES if with_pictures else []):
        parts = [image(n) for n in names] + [{"type": "text", "text": "What is in the picture?"}]
        jobs[f"picture {i}"] = (whole, {"messages": [{"role": "user", "content": parts}], "seed": i, **common})
    return jobs


# ---- load ----

class Load:
    """Clients that ask again and again until told to stop."""

    def __init__(self, s, n_client, jobs, wanted, mixed=False):
        self.s, self.jobs, self.wanted, self.mixed, self.stop = s, jobs, wanted, mixed, threading.Event()
        self.done = [0] * n_client
        self.tokens = [0] * n_client
        self.seconds = [[] for _ in range(n_client)]
        self.kinds = collections.Counter()
        self.refused = collections.Counter()
        self.lock = threading.Lock()
        self.wrong, self.errors = [], []
        self.threads = [threading.Thread(target=self.client, args=(i,)) for i in range(n_client)]

    def visit(self, i, dice, name):
        """One job of a client."""
        if name == "leave":
            leave(self.s, dice)
        elif name == "nonsense":
            status = nonsense(self.s, dice)
            with self.lock:
                self.refused[status] += 1
        else:
            ask, fields = self.jobs[name]
            start = time.time()
            said, n = ask(self.s, fields)
            self.seconds[i].append(time.time() - start)
            self.tokens[i] += n
            if said != self.wanted[name]:
                self.wrong.append((name, said, self.wanted[name]))
        with self.lock:
            self.kinds[name.split(" ")[0]] += 1

    def client(self, i):
        dice = random.Random(i)
        plain = list(self.jobs)
        while not self.stop.is_set():
            kinds = plain + ["leave", "nonsense"] * (len(plain) // 6) if self.mixed else plain
            for name in dice.sample(kinds, len(kinds)):
                if self.stop.is_set():
                    return
                try:
                    self.visit(i, dice, name)
                except Exception as e:  # noqa: BLE001
                    self.errors.append(f"{name}: {e!r}")
                    return
                self.done[i] += 1

    def run(self, seconds, during=None):
        start = time.time()
        for t in self.threads:
            t.start()
        while time.time() - start < seconds:
            time.sleep(0.2)
            if during:
                during(time.time() - start)
        self.stop.set()
        for t in self.threads:
            t.join()
        return sum(self.tokens) / (time.time() - start)


def ask_health(port, stop, out):
    """In a process of its own, so that the clients' work does not count as the server's."""
    times = []
    while not stop.is_set():
        start = time.perf_counter()
        c = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        c.request("GET", "/health")
        c.getresponse().read()
        c.close()
        times.append(time.perf_counter() - start)
        time.sleep(0.05)
    out.put(times)


def by_status(s):
    _, _, page = s.request("GET", "/metrics")
    return {int(line.split('status="')[1].split('"')[0]): int(line.rsplit(" ", 1)[1])
            for line in page.decode().splitlines() if line.startswith("dgemma:http_requests_total{")}


def settled(memory, seconds):
    """Means over a sixth of the time, after a quarter of it and at its end."""
    def mean(a, b):
        return statistics.mean(m for t, m in memory if a <= t / seconds <= b)
    return mean(1 / 4, 1 / 4 + 1 / 6), mean(1 - 1 / 6, 1)


def main():
    a = argparse.ArgumentParser()
    a.add_argument("--clients", type=int, default=64)
    a.add_argument("--seconds", type=float, default=60)
    a.add_argument("--minutes", type=float)
    a.add_argument("--tokens", type=int, default=24)
    a.add_argument("--steps", type=int, default=8)
    a.add_argument("--model", default=MODEL)
    o = a.parse_args()
    if o.minutes:
        o.seconds = 60 * o.minutes
    threads = max(1, len(os.sched_getaffinity(0)) - 1)  # one to spare
    with PatientServer("-q", "--threads", str(threads), "--max-active", "512", "--timeout", "900", model=o.model) as s:
        jobs = make_jobs(o.tokens, o.steps, s.json("GET", "/props")[1]["modalities"]["vision"])
        wanted = {name: ask(s, fields)[0] for name, (ask, fields) in jobs.items()}
        texts = {name: job for name, job in jobs.items() if job[0] is stream}
        check("alone, the same twice", all(ask(s, fields)[0] == wanted[name] for name, (ask, fields) in jobs.items()))
        one = Load(s, 1, texts, wanted).run(min(10, o.seconds / 6))
        sixteen = Load(s, 16, texts, wanted).run(min(20, o.seconds / 6))

        before = by_status(s)
        stop, out = multiprocessing.Event(), multiprocessing.Queue()
        health = multiprocessing.Process(target=ask_health, args=(s.port, stop, out))
        health.start()
        load, memory = Load(s, o.clients, jobs, wanted, mixed=True), []
        rate = load.run(o.seconds, lambda t: memory.append((t, s.rss())))
        stop.set()
        times = sorted(out.get())
        health.join()
        check("nothing runs on", s.wait_metric("vllm:num_requests_running", lambda n: n == 0))
        statuses = {k: n - before.get(k, 0) for k, n in by_status(s).items()}

        early, late = settled(memory, o.seconds)
        p99 = times[int(len(times) * 0.99)]
        mean = statistics.mean(statistics.mean(x) for x in load.seconds if x)
        slowest = max(statistics.mean(x) for x in load.seconds if x)
        print(json.dumps({
            "model": o.model, "clients": o.clients, "threads": threads, "seconds": o.seconds, "visits": dict(load.kinds),
            "statuses": statuses,
            "tokens_per_second": {"1": round(one, 1), "16": round(sixteen, 1), str(o.clients): round(rate, 1)},
            "rss_mb": [round(early / 2**20, 1), round(late / 2**20, 1)],
            "client_seconds": {"mean": round(mean, 3), "slowest": round(slowest, 3)},
            "health_ms": {"p50": round(1e3 * times[len(times) // 2], 2), "p99": round(1e3 * p99, 2), "n": len(times)}}),
            flush=True)
        check("no error", not load.errors, load.errors[:3])
        check("every answer as it is alone", not load.wrong and sum(load.done) > 0, load.wrong[:3])
        check("every kind of visit", len(load.kinds) == len({n.split(" ")[0] for n in jobs}) + 2, load.kinds)
        check("refused are those who asked for it",
              all(statuses.get(k, 0) == n for k, n in load.refused.items()), (statuses, load.refused))
        check("no other status", set(statuses) <= {200, 400, 404, 405, 499}, statuses)
        check("only who left is missing", statuses.get(499, 0) <= load.kinds["leave"], (statuses, load.kinds))
        check("the engine failed in nothing", s.metric('vllm:request_success_total{finished_reason="error"}') == 0)
        check("memory is flat within 2 %", late / early - 1 < 0.02, late / early - 1)
        check("16 clients get as much as one", sixteen >= 0.95 * one, (one, sixteen))
        check("every client was served", all(load.done), load.done)
        check("the slowest client is within twice the mean", slowest <= 2 * mean, (slowest, mean))
        check("health within 50 ms", p99 < 0.05, p99)
    finish()


if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(__file__))
    main()
