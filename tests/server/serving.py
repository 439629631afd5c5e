"""What the server's tests share: a server of their own, raw HTTP, and a closing line."""
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

POCKET = "models/pocket/pocket.gguf"
FIXTURE = "tests/fixtures/golden/sampler_finishes/model"
HAS_POCKET = os.path.exists(POCKET)
MODEL = POCKET if HAS_POCKET else FIXTURE
SLOW = 4 if os.environ.get("SAN") else 1  # sanitized programs take their time
# For what must come, and would be waited for in vain: the machine may be slow, or stand still for seconds.
PATIENCE = 120 * SLOW
# Several threads would spin while they wait for each other, and tests run beside others; races need two.
THREADS = "2" if os.environ.get("SAN") == "thread" else "1"

# A block that goes on until somebody stops it.
ENDLESS = {"diffusion": {"steps": 100000, "stability_threshold": 100000}, "max_tokens": 16}

counts = {"passed": 0, "failed": 0, "skipped": 0}


def check(name, ok, detail=""):
    counts["passed" if ok else "failed"] += 1
    if not ok:
        print(f"FAILED: {name} {detail}", flush=True)
    return ok


def skip(name, why):
    counts["skipped"] += 1
    print(f"skipped: {name}: {why}", flush=True)


def run(cases):
    """Each case is a function; one that throws has failed."""
    for case in cases:
        try:
            case()
        except Exception as e:  # noqa: BLE001 - whatever it was, the others go on
            import traceback
            traceback.print_exc()
            check(case.__name__, False, repr(e))


def finish():
    print(f"{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped")
    sys.exit(1 if counts["failed"] else 0)


class Server:
    """dgemma serve on a free port, for the length of a `with`."""

    model = FIXTURE  # fast, and gibberish will do for most; a suite that needs sense sets MODEL
    patience = PATIENCE

    def __init__(self, *args, model=None, models=None, log=None):
        self.log = log or tempfile.TemporaryFile("w+b")
        which = ["--models", models] if models else ["-m", model or self.model, "--name", "test"]
        self.process = subprocess.Popen(
            [os.environ["DGEMMA"], "serve", *which, "--device", "cpu", "--threads", THREADS, "--port", "0", *args],
            stdout=subprocess.PIPE, stderr=self.log)
        line = self.process.stdout.readline().decode()
        found = re.search(r":(\d+)$", line.strip())
        if not found:
            raise RuntimeError("the server did not start: " + self.output())
        self.port = int(found.group(1))

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        status = self.stop()
        check("the server ends well", status == 0, f"status {status}: {self.output()[-2000:]}")

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(10 * SLOW)
            except subprocess.TimeoutExpired:
                self.process.send_signal(signal.SIGTERM)  # a second one ends what is under way
                try:
                    self.process.wait(PATIENCE)
                except subprocess.TimeoutExpired:
                    self.process.kill()
                    self.process.wait()
        return self.process.returncode

    def output(self):
        self.log.seek(0)
        return self.log.read().decode(errors="replace")

    def connect(self):
        return socket.create_connection(("127.0.0.1", self.port), timeout=self.patience)

    def request(self, method, path, body=None, headers=None):
        """Status, headers and body of one request."""
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=self.patience)
        if isinstance(body, (dict, list)):
            body = json.dumps(body)
        c.request(method, path, body, headers or {})
        r = c.getresponse()
        data = r.read()
        c.close()
        return r.status, {k.lower(): v for k, v in r.getheaders()}, data

    def json(self, method, path, body=None, headers=None):
        status, _, data = self.request(method, path, body, headers)
        return status, json.loads(data)

    def chat(self, text="Hello", headers=None, **fields):
        body = {"messages": [{"role": "user", "content": text}], "seed": 3, "max_tokens": 24, **fields}
        return self.json("POST", "/v1/chat/completions", body, headers)

    def open_stream(self, text="Hello", path="/v1/chat/completions", **fields):
        """A socket on which a streamed answer is coming."""
        body = json.dumps({"messages": [{"role": "user", "content": text}], "prompt": text, "seed": 3,
                           "max_tokens": 24, "stream": True, **fields}).encode()
        s = self.connect()
        s.sendall(b"POST " + path.encode() + b" HTTP/1.1\r\nHost: localhost\r\nContent-Length: "
                  + str(len(body)).encode() + b"\r\n\r\n" + body)
        return s

    def metric(self, name):
        _, _, data = self.request("GET", "/metrics")
        total = 0.0
        for line in data.decode().splitlines():
            if re.match(re.escape(name.split("{")[0]) + r"[{ ]", line) and name.split("{")[-1].rstrip("}") in line:
                total += float(line.rsplit(" ", 1)[1])
        return total

    def wait_metric(self, name, wanted):
        until = time.time() + PATIENCE
        while True:
            value = self.metric(name)
            if wanted(value):
                return True
            if time.time() > until:
                print(f"{name} is {value}")
                return False
            time.sleep(0.1)

    def wait_active(self, n):
        """Until n requests besides the asking are being answered. An earlier asking may not have been put away yet
        and would count as one of them: so they are seen twice in a row."""
        seen = []

        def lasting(value):
            seen.append(value == n + 1)
            return seen[-2:] == [True, True]
        return self.wait_metric("dgemma:http_requests_active", lasting)

    def wait_status(self, path, status):
        return wait_until(lambda: self.request("GET", path)[0] == status)

    def rss(self):
        with open(f"/proc/{self.process.pid}/status") as f:
            return int(re.search(r"VmRSS:\s+(\d+)", f.read()).group(1)) * 1024

    def files(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))


def wait_until(happened):
    """Until it has; or false, when that takes so long that it will not."""
    until = time.time() + PATIENCE
    while not happened():
        if time.time() > until:
            return False
        time.sleep(0.05)
    return True


def two_models():
    """A server of two models, "one" and "two", with room for one of them."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as f:
        json.dump({"models": [{"name": name, "path": os.path.abspath(MODEL), "kv_memory": 64} for name in ("one", "two")]}, f)
        f.flush()
        return Server("-q", "--models-max", "1", "--ping", "1", models=f.name)


def while_waiting(s, ask):
    """What `ask` returns, which waits for "two" while "one" has the only place, for longer than a ping takes."""
    running = s.open_stream(model="one", **ENDLESS)
    s.wait_metric('dgemma:model_loaded{model_name="one"}', lambda n: n == 1)
    answers = []
    thread = threading.Thread(target=lambda: answers.append(ask()))
    thread.start()
    check("it waits", s.wait_metric('dgemma:model_waiting{model_name="two"}', lambda n: n == 1))
    time.sleep(1.5)
    running.close()
    thread.join()
    return answers[0] if answers else None


def is_whole(data):
    """Whether an answer is there to its last byte, as far as it says where that is."""
    head, _, body = data.partition(b"\r\n\r\n")
    length = re.search(rb"(?i)\r\ncontent-length: (\d+)", head)
    if length:
        return len(body) >= int(length.group(1))
    return body.endswith(b"0\r\n\r\n")


def read_all(s, data=b""):
    """One answer, or what came of it; `data` is what came before."""
    try:
        while not is_whole(data):
            piece = s.recv(65536)
            if not piece:
                break
            data += piece
    except ConnectionResetError:
        pass
    return data


def status_of(data):
    found = re.match(rb"HTTP/1\.[01] (\d+)", data)
    return int(found.group(1)) if found else 0


def events(data):
    """The JSON of each event in the raw bytes of a streamed answer (chunked)."""
    body = data.split(b"\r\n\r\n", 1)[1]
    text = b""
    while body:
        size, _, body = body.partition(b"\r\n")
        n = int(size, 16)
        if not n:
            break
        text += body[:n]
        body = body[n + 2:]
    return [json.loads(line[6:]) for line in text.decode().split("\n")
            if line.startswith("data: ") and line != "data: [DONE]"], text.decode()
