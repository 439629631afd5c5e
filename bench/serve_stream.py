#!/usr/bin/env python3
"""What a client of `dgemma serve` gets, by its own clock: streamed answers of a fixed length in fixed steps.

    serve_stream.py [--program build/dgemma] (-m MODEL | --synthetic TYPE [--shape NAME] [--layers N] [--folder DIR])
                    [--prompt 512] [--tokens 2048] [--steps 16] [--clients 1] [--rounds 3] [--least RATE]
                    [--with NAME=VALUE ...]
                    [-- OPTIONS OF dgemma serve]

Prompts are random token ids, so that no prefix is found in the cache. A canvas runs all its steps, as weights that are
random would have it anyway. --synthetic writes a model with `dgemma synth` into the folder, and removes it at the end. The
first round, in which memory is touched and passes are recorded, does not count. Every stream is held against the protocol:
lines of JSON in UTF-8, the counts that were asked for, an end. With --least the best round must have so many tokens a
second. --with sets a field of the request or, as diffusion.NAME, of its diffusion; a comma begins another round, so that
rounds can be compared: --with diffusion.t_max=0.8,0.4 --with temperature=1,0. Python's own library is all that is needed."""

import argparse
import http.client
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

SEEDS = 8  # random words may end an answer early; another seed then


def fail(text):
    sys.exit("serve_stream.py: " + text)


def options():
    own, served = sys.argv[1:], []
    if "--" in own:
        at = own.index("--")
        own, served = own[:at], own[at + 1:]
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--program", default="build/dgemma")
    p.add_argument("-m", "--model")
    p.add_argument("--synthetic", metavar="TYPE")
    p.add_argument("--shape", default="26b-a4b")
    p.add_argument("--layers", type=int)
    p.add_argument("--folder", help="for the synthetic model's file (a temporary one)")
    p.add_argument("--prompt", type=int, default=512)
    p.add_argument("--tokens", type=int, default=2048)
    p.add_argument("--steps", type=int, default=16)
    p.add_argument("--clients", type=int, default=1)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--least", type=float, default=0, metavar="RATE")
    p.add_argument("--with", dest="fields", action="append", default=[], metavar="NAME=VALUE")
    a = p.parse_args(own)
    if any("=" not in f for f in a.fields):
        p.error("--with NAME=VALUE")
    a.fields = [(name, value.split(",")) for name, value in (f.split("=", 1) for f in a.fields)]
    if bool(a.model) == bool(a.synthetic):
        p.error("say which model: -m MODEL or --synthetic TYPE")
    a.served = served
    return a


def synthesise(a, folder):
    path = os.path.join(folder, "synthetic.gguf")
    command = [a.program, "synth", "--type", a.synthetic, "--shape", a.shape, "-o", path]
    if a.layers:
        command += ["--layers", str(a.layers)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        fail("dgemma synth failed")
    print(done.stdout.strip(), flush=True)
    return path


class Server:
    def __init__(self, a, model):
        start = time.monotonic()
        self.process = subprocess.Popen([a.program, "serve", "-m", model, "--port", "0", "-q"] + a.served,
                                        stdout=subprocess.PIPE, text=True)
        where = re.search(r"://(.*):(\d+)", self.process.stdout.readline())
        if not where:
            fail("the server did not start")
        self.host, self.port = where.group(1), int(where.group(2))
        print(f"listening after {time.monotonic() - start:.2f} s", flush=True)

    def busy(self):
        """Seconds in which the engine worked, and of those its GPU; 0: it has none."""
        sums = dict(re.findall(r"^dgemma:(busy|device)_seconds_total\{.*\} (\S+)", self.fetch("/metrics"), re.M))
        return float(sums["busy"]), float(sums.get("device", 0))

    def get(self, path):
        return json.loads(self.fetch(path))

    def fetch(self, path):
        c = http.client.HTTPConnection(self.host, self.port, timeout=60)
        c.request("GET", path)
        body = c.getresponse().read().decode("utf-8")
        c.close()
        return body

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()


def events(response):
    """The stream's events, each with the time at which it had come."""
    done = False
    for line in response:
        now = time.monotonic()
        text = line.decode("utf-8")  # strict: an answer is never half a character
        if not text.strip() or text.startswith(":"):
            continue
        if not text.startswith("data: "):
            fail(f"a line of the stream that is no event: {text!r}")
        if text.strip() == "data: [DONE]":
            done = True
            continue
        if done:
            fail("something behind the stream's end")
        event = json.loads(text[6:])
        if "error" in event:
            fail(f"the server says: {event['error']['message']}")
        yield now, event
    if not done:
        fail("the stream broke off")


def ask(server, body):
    """One answer: when it was asked for, when text came, when it was whole, and what the server says of it."""
    start = time.monotonic()
    c = http.client.HTTPConnection(server.host, server.port, timeout=600)
    c.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    response = c.getresponse()
    if response.status != 200:
        fail(f"status {response.status}: {response.read()[:300]!r}")
    found = {"start": start, "texts": [], "usage": None, "reason": None, "timings": {}}
    for now, event in events(response):
        found["usage"] = event.get("usage") or found["usage"]
        found["timings"] = event.get("timings") or found["timings"]
        for choice in event["choices"]:
            if choice["text"]:
                found["texts"].append(now)
            found["reason"] = choice["finish_reason"] or found["reason"]
    found["end"] = time.monotonic()
    c.close()
    if not found["usage"] or not found["texts"]:
        fail("an answer without text or usage")
    return found


def chosen_fields(a, index):
    """What --with says of this round; of several values each has its turn."""
    return [(name, values[max(index - 1, 0) % len(values)]) for name, values in a.fields]


def add_fields(body, fields):
    for name, value in fields:
        where, _, field = name.rpartition(".")
        (body[where] if where else body)[field] = json.loads(value)
    return body


def whole_answer(server, a, n_vocab, index, client):
    """An answer of the full length: words are random, and one of them may be the one that ends it."""
    for attempt in range(SEEDS):
        seed = (index * a.clients + client) * SEEDS + attempt
        words = random.Random(seed)
        found = ask(server, add_fields({
            "prompt": [words.randrange(n_vocab * 2 // 3, n_vocab) for _ in range(a.prompt)], "seed": seed,
            "max_tokens": a.tokens, "stream": True, "stream_options": {"include_usage": True},
            "diffusion": {"steps": a.steps, "stability_threshold": a.steps + 1}}, chosen_fields(a, index)))
        if found["reason"] != "length":
            continue
        if found["usage"]["completion_tokens"] != a.tokens:
            fail(f"{found['usage']['completion_tokens']} tokens where {a.tokens} were asked for")
        return found
    fail(f"{SEEDS} answers ended early")


def run_round(server, a, n_vocab, index):
    busy, device = server.busy()
    with ThreadPoolExecutor(a.clients) as pool:
        found = list(pool.map(lambda client: whole_answer(server, a, n_vocab, index, client), range(a.clients)))
    seconds = max(f["end"] for f in found) - min(f["start"] for f in found)
    rate = a.clients * a.tokens / seconds
    first = max(f["texts"][0] - f["start"] for f in found)
    step = max(f["timings"].get("diffusion", {}).get("ms_per_step", 0) for f in found)
    print(f"{'warm-up' if not index else f'round {index}'}: {a.clients} x {a.tokens} tokens in {seconds:.3f} s, "
          f"{rate:.0f} tokens/s; first text after {first:.3f} s, then {blocks(found)}; a step of the server "
          f"{step:.3f} ms{host(busy, device, *server.busy())}"
          + "".join(f"; {name}={value}" for name, value in chosen_fields(a, index)), flush=True)
    return rate


def host(busy_before, device_before, busy, device):
    if not device:
        return ""
    return f"; the GPU waits {100 - 100 * (device - device_before) / (busy - busy_before):.2f} % of the time"


def blocks(found):
    gaps = sorted(b - a for f in found for a, b in zip(f["texts"], f["texts"][1:]))
    return f"some every {1e3 * gaps[len(gaps) // 2]:.1f} ms" if gaps else "nothing more"


def main():
    a = options()
    with tempfile.TemporaryDirectory(dir=a.folder) as folder:
        model = a.model or synthesise(a, folder)
        server = Server(a, model)
        try:
            meta = server.get("/v1/models")["data"][0]["meta"]
            rates = [run_round(server, a, meta["n_vocab"], i) for i in range(a.rounds + 1)][1:]
        finally:
            server.stop()
    best = max(rates)
    print(f"prompt {a.prompt}, {a.steps} steps a block of {meta['canvas_length']}, {a.clients} clients: "
          f"{best:.0f} tokens/s")
    if best < a.least:
        fail(f"that is less than {a.least:.0f}")


if __name__ == "__main__":
    main()
