"""Decisions per second, alone and beside chats:

    bench/decide.py [--dgemma PROGRAM] [--seconds N] [--chats N] [-- OPTION...]

Starts `dgemma serve` with the options behind `--` and asks it questions from 1, 4, 16 and 64 clients at a time: one question of four
options about a text that is different each time, behind questions that stay, so that the system turn is known and the state is new. The
second half has so many chats beside it. Prints a table in Markdown. Before it, one question about a text that is known, over and over:
how long it takes on one connection, and how much of that is the pass of the model.
"""
import argparse
import http.client
import json
import re
import subprocess
import threading
import time

CLIENTS = (1, 4, 16, 64)


def post(port, path, body):
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    c.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
    r = c.getresponse()
    data = r.read()
    c.close()
    return r.status, data


def decide(port, i):
    return post(port, "/v1/systemone", {"state": f"Message {i}: the parcel with number {i * 7919 % 10007} has not come yet.", "questions": {
        "about": {"type": "choice", "instructions": "What is it about?",
                  "criteria": {"delivery": None, "payment": None, "praise": None, "other": None}}}})[0]


def chat(port, i):
    return post(port, "/v1/chat/completions", {"messages": [{"role": "user", "content": "Tell me a story."}], "seed": i,
                                               "max_tokens": 256})[0]


def known(port, times=200):
    """Medians in ms of a question about a known text: as the client sees it, in the server, in the model's pass."""
    c, found = http.client.HTTPConnection("127.0.0.1", port, timeout=120), []
    body = json.dumps({"state": "The parcel has not come yet.", "questions": {"late": {"type": "noul", "instructions": "Is it late?"}}})
    for _ in range(times + 1):
        start = time.perf_counter()
        c.request("POST", "/v1/systemone", body, {"Content-Type": "application/json"})
        r = c.getresponse()
        r.read()
        seen = 1e3 * (time.perf_counter() - start)
        told = dict(re.findall(r"(\w+);dur=([0-9.]+)", r.getheader("Server-Timing")))
        found.append((seen, float(told["total"]), float(told["model"])))
    c.close()
    return [sorted(x)[times // 2] for x in zip(*found[1:])]


class Crowd:
    """Clients that ask one after another until they are told to stop."""

    def __init__(self, port, n, ask):
        self.times, self.failed, self.running, self.lock = [], 0, True, threading.Lock()
        self.threads = [threading.Thread(target=self.go, args=(port, k, ask)) for k in range(n)]
        for t in self.threads:
            t.start()

    def go(self, port, k, ask):
        i = k
        while self.running:
            start = time.perf_counter()
            try:
                ok = ask(port, i) == 200
            except OSError:
                ok = False
            with self.lock:
                self.failed += not ok
                self.times.append(time.perf_counter() - start)
            i += 1000

    def stop(self):
        self.running = False
        for t in self.threads:
            t.join()


def measure(port, n, chats, seconds):
    others = Crowd(port, chats, chat)
    warm = Crowd(port, n, decide)
    time.sleep(min(1, seconds / 2))
    warm.stop()
    before, start = len(others.times), time.perf_counter()
    crowd = Crowd(port, n, decide)
    time.sleep(seconds)
    took = time.perf_counter() - start
    done, said = len(crowd.times), len(others.times) - before
    crowd.stop()
    others.stop()
    times = sorted(crowd.times)
    return (done / took, 1e3 * times[len(times) // 2], 1e3 * times[min(len(times) - 1, len(times) * 99 // 100)], said / took,
            crowd.failed + others.failed)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dgemma", default="build/release/dgemma")
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--chats", type=int, default=4)
    parser.add_argument("options", nargs="*")
    a = parser.parse_args()
    server = subprocess.Popen([a.dgemma, "serve", "--port", "0", "--quiet", *a.options], stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL)
    try:
        port = int(re.search(r":(\d+)$", server.stdout.readline().decode().strip()).group(1))
        seen, total, model = known(port)
        print(f"a question about a known text: {seen:.2f} ms, {total:.2f} of them in the server, {model:.2f} in the pass: "
              f"{total / model:.2f} times the pass, {seen / model:.2f} with the client\n")
        print("| clients | chats beside | decisions/s | median ms | p99 ms | chats/s | failed |\n| --: | --: | --: | --: | --: | --: | --: |")
        for chats in (0, a.chats):
            for n in CLIENTS:
                rate, median, worst, said, failed = measure(port, n, chats, a.seconds)
                print(f"| {n} | {chats} | {rate:.1f} | {median:.0f} | {worst:.0f} | {said:.2f} | {failed} |", flush=True)
    finally:
        server.terminate()
        server.wait()


if __name__ == "__main__":
    main()
