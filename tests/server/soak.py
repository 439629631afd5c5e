"""make soak: many streaming clients at once for a while. Every answer must be the one given alone with that seed, memory
must stay flat, nobody may be starved, and /health must answer in time.

    soak.py [--clients N] [--seconds S] [--model PATH]
"""
import argparse
import http.client
import json
import multiprocessing
import os
import statistics
import sys
import threading
import time

from serving import MODEL, Server, check, events, finish, read_all

PROMPTS = ["Hello", "What is the weather in Paris?", "What is 12 + 30?", "Tell me a story about a fox.",
           "Why is the sky blue?", "List three colours.", "Translate good morning into French.", "Who are you?"]


def jobs(n_token):
    return [(text, seed, n_token) for text in PROMPTS for seed in (1, 2)]


def answer(s, job):
    text, seed, n = job
    found, raw = events(read_all(s.open_stream(text, seed=seed, max_tokens=n)))
    if not raw.endswith("data: [DONE]\n\n"):
        raise RuntimeError("an answer did not end: " + raw[-300:])
    said = "".join(c["delta"].get("content") or "" for e in found for c in e["choices"])
    return said, found[-1]["timings"]["predicted_n"]


class Load:
    """Clients that ask again and again until told to stop."""

    def __init__(self, s, n_client, wanted):
        self.s, self.wanted, self.stop = s, wanted, threading.Event()
        self.done = [0] * n_client
        self.tokens = [0] * n_client
        self.seconds = [[] for _ in range(n_client)]
        self.wrong, self.errors = [], []
        self.threads = [threading.Thread(target=self.client, args=(i,)) for i in range(n_client)]

    def client(self, i):
        order = list(self.wanted)
        k = i
        while not self.stop.is_set():
            job = order[k % len(order)]
            k += 1
            start = time.time()
            try:
                said, n = answer(self.s, job)
            except Exception as e:  # noqa: BLE001
                self.errors.append(repr(e))
                return
            self.seconds[i].append(time.time() - start)
            if said != self.wanted[job]:
                self.wrong.append((job, said))
            self.done[i] += 1
            self.tokens[i] += n

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


def main():
    a = argparse.ArgumentParser()
    a.add_argument("--clients", type=int, default=64)
    a.add_argument("--seconds", type=float, default=60)
    a.add_argument("--tokens", type=int, default=24)
    a.add_argument("--model", default=MODEL)
    o = a.parse_args()
    with Server("-q", model=o.model) as s:
        wanted = {job: answer(s, job)[0] for job in jobs(o.tokens)}
        check("alone, the same twice", all(answer(s, job)[0] == text for job, text in wanted.items()))
        one = Load(s, 1, wanted).run(o.seconds / 6)
        sixteen = Load(s, 16, wanted).run(o.seconds / 6)

        stop, out = multiprocessing.Event(), multiprocessing.Queue()
        health = multiprocessing.Process(target=ask_health, args=(s.port, stop, out))
        health.start()
        load, memory = Load(s, o.clients, wanted), []
        rate = load.run(o.seconds, lambda t: memory.append((t, s.rss())))
        stop.set()
        times = sorted(out.get())
        health.join()

        settled = [b for t, b in memory if t > o.seconds / 4]
        growth = settled[-1] / settled[0] - 1
        p99 = times[int(len(times) * 0.99)]
        mean = statistics.mean(statistics.mean(x) for x in load.seconds if x)
        slowest = max(statistics.mean(x) for x in load.seconds if x)
        print(json.dumps({
            "model": o.model, "clients": o.clients, "seconds": o.seconds, "answers": sum(load.done),
            "tokens_per_second": {"1": round(one, 1), "16": round(sixteen, 1), str(o.clients): round(rate, 1)},
            "rss_mb": [round(settled[0] / 2**20, 1), round(settled[-1] / 2**20, 1)],
            "client_seconds": {"mean": round(mean, 3), "slowest": round(slowest, 3)},
            "health_ms": {"p50": round(1e3 * times[len(times) // 2], 2), "p99": round(1e3 * p99, 2), "n": len(times)}}))
        check("no error", not load.errors, load.errors[:3])
        check("every answer as it is alone", not load.wrong and sum(load.done) > 0, load.wrong[:3])
        check("memory is flat within 2 %", growth < 0.02, growth)
        check("16 clients get as much as one", sixteen >= one, (one, sixteen))
        check("every client was served", all(load.done), load.done)
        check("the slowest client is within twice the mean", slowest <= 2 * mean, (slowest, mean))
        check("health within 50 ms", p99 < 0.05, p99)
    finish()


if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(__file__))
    main()
