"""Replicas behind HAProxy and nginx, as examples/ has them: one is killed and one told to stop while many ask."""
import contextlib
import http.client
import http.server
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time

import serving
from serving import Server, check, finish, run

N_CLIENT = 32
N_TURN = 14  # after an accident a conversation is new to another replica: for one turn


def program(name):
    return shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def filled(name, port, servers):
    """A configuration of examples/ with ports of ours."""
    with open(f"examples/{name}", encoding="utf-8") as f:
        text = f.read()
    for there, here in zip((8080, 8081, 8082, 8083), (port, *(s.port for s in servers))):
        text = re.sub(rf"127\.0\.0\.1:{there}\b", f"127.0.0.1:{here}", text)
    return text


@contextlib.contextmanager
def proxy(kind, servers):
    """The address of a proxy in front of these."""
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        if kind == "haproxy":
            text, command = filled("haproxy.cfg", port, servers), ["-db", "-q", "-f"]
        else:
            places = "".join(f"{n}_temp_path {folder}/{n};" for n in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
            text = (f"daemon off; pid {folder}/pid; error_log stderr crit; worker_processes 1; events {{}} http {{ access_log off; {places}\n"
                    + filled("nginx.conf", port, servers) + "}")
            command = ["-c"]
        path = os.path.join(folder, "proxy.conf")
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        process = subprocess.Popen([program(kind), *command, path], stderr=subprocess.PIPE, text=True)
        try:
            wait_for(port, process)
            yield port
        finally:
            process.terminate()
            process.communicate(timeout=serving.PATIENCE)


def wait_for(port, process):
    until = time.time() + serving.PATIENCE
    while time.time() < until:
        assert process.poll() is None, process.communicate()[1]
        with contextlib.suppress(OSError):
            c = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
            c.request("GET", "/health")
            if c.getresponse().status == 200:
                return
        time.sleep(0.05)
    raise TimeoutError("the proxy does not answer")


class Talk:
    """A client with a conversation that grows; what came of each turn."""

    def __init__(self, number, port, streams):
        self.number, self.port, self.streams = number, port, streams
        self.prompt = self.cached = self.done = 0
        self.failed, self.cut = [], 0  # cut: after their first byte

    def ask(self, messages):
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=serving.PATIENCE)
        body = {"messages": messages, "max_tokens": 8, "seed": self.number, "stream": self.streams, "diffusion": {"steps": 2}}
        if self.streams:
            body["stream_options"] = {"include_usage": True}
        begun = False
        try:
            c.request("POST", "/v1/chat/completions", json.dumps(body), {"x-session-id": f"talk-{self.number}"})
            r = c.getresponse()
            begun = r.status == 200
            data = r.read()
            if r.status != 200:
                self.failed.append((r.status, data[:200]))
                return None
            if not self.streams:
                return json.loads(data)["usage"]
            if b"data: [DONE]" not in data:
                raise http.client.IncompleteRead(data)
            return next(u for u in (json.loads(line[6:]).get("usage") for line in data.decode().splitlines()
                                    if line.startswith("data: {")) if u)
        except (OSError, http.client.HTTPException) as e:
            if begun and self.streams:
                self.cut += 1
            else:
                self.failed.append(repr(e))
            return None
        finally:
            c.close()

    def run(self, turns):
        messages = [{"role": "system", "content": f"You are number {self.number}. " + "Say it plainly. " * 6}]
        for turn in range(turns):
            messages.append({"role": "user", "content": f"Question {turn} of {self.number}: " + "what is it? " * 4})
            usage = self.ask(messages)
            messages.append({"role": "assistant", "content": f"Answer {turn}."})
            if usage:
                self.done += 1
                self.prompt += usage["prompt_tokens"]
                self.cached += usage["prompt_tokens_details"]["cached_tokens"]


def talk_all(port, streams, meanwhile=None):
    talks = [Talk(i, port, streams) for i in range(N_CLIENT)]
    threads = [threading.Thread(target=t.run, args=(N_TURN,)) for t in talks]
    for t in threads:
        t.start()
    if meanwhile:
        meanwhile(talks)
    for t in threads:
        t.join()
    return talks


def hit_rate(talks):
    return sum(t.cached for t in talks) / max(1, sum(t.prompt for t in talks))


def have_accidents(kind, streams):
    """What came of each talk, and how the replica ended that was told to stop."""
    with contextlib.ExitStack() as stack:
        servers = [Server("-q", "--drain-delay", "2") for _ in range(3)]
        for s in servers:
            stack.callback(s.process.kill)
        port = stack.enter_context(proxy(kind, servers))
        dice = random.Random(7)

        def accidents(talks):
            def wait_for_turns(n):
                while sum(t.done for t in talks) < n and any(t.done < N_TURN for t in talks):
                    time.sleep(0.01)
            wait_for_turns(N_CLIENT * 2)
            time.sleep(dice.random() / 10)
            servers[0].process.kill()
            wait_for_turns(N_CLIENT * 8)
            servers[1].process.send_signal(signal.SIGTERM)

        talks = talk_all(port, streams, accidents)
        status = servers[1].process.wait(serving.PATIENCE)
        servers[2].stop()
    return talks, status


def replicas(kind, streams):
    if not program(kind):
        return serving.skip(f"replicas behind {kind}", "it is not installed")
    with Server("-q") as alone:
        single = hit_rate(talk_all(alone.port, streams))
    for _ in range(3):  # for a proxy, a machine that stands still for a second has no replica at all: not each time
        talks, status = have_accidents(kind, streams)
        failed, cut, done = [f for t in talks for f in t.failed], sum(t.cut for t in talks), sum(t.done for t in talks)
        rate = hit_rate(talks)
        if not failed and rate > 0.9 * single:
            break
    check(f"{kind}: the one that was told to stop has ended well", status == 0, status)
    print(f"   {kind}: {done} answers, {cut} streams cut, prefix cache {rate:.3f}, one server alone {single:.3f}")
    check(f"{kind}: nothing failed that could be asked again", not failed, failed[:3])
    check(f"{kind}: all else was answered", done + cut == N_CLIENT * N_TURN, (done, cut))
    check(f"{kind}: conversations find their beginnings", rate > 0.9 * single, (rate, single))


def haproxy_whole():
    replicas("haproxy", False)


def nginx_streams():
    replicas("nginx", True)


class Refusing(http.server.BaseHTTPRequestHandler):
    """A replica that has too much to do for now."""

    refuses, names = 0, []

    def do_GET(self):  # noqa: N802 - the library calls it so
        Refusing.names.append(self.headers["x-request-id"])
        self.send_response(Refusing.refuses or 200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format, *args):
        pass


def nginx_refusals():
    """What all replicas refuse arrives as they said it, and the next request finds them there."""
    if not program("nginx"):
        return serving.skip("refusals behind nginx", "it is not installed")

    def ask(**headers):
        c = http.client.HTTPConnection("127.0.0.1", port, timeout=serving.PATIENCE)
        c.request("GET", "/health", headers=headers)
        return c.getresponse().status

    stubs = [http.server.ThreadingHTTPServer(("127.0.0.1", 0), Refusing) for _ in range(3)]
    for s in stubs:
        s.port = s.server_address[1]
        threading.Thread(target=s.serve_forever, daemon=True).start()
    with proxy("nginx", stubs) as port:
        for refusal, tries in ((503, 3), (429, 1)):
            Refusing.refuses, Refusing.names = refusal, []
            first, n = ask(), len(Refusing.names)
            Refusing.refuses = 0
            check(f"nginx: {refusal} of all of them", (first, n) == (refusal, tries) and ask() == 200, (first, n))
        Refusing.names = []
        ask(**{"x-request-id": "mine"})
        ask()
        check("nginx: a request keeps its name, and has one", Refusing.names[0] == "mine" and len(Refusing.names[1]) == 32, Refusing.names)
    for s in stubs:
        s.shutdown()


run([haproxy_whole, nginx_streams, nginx_refusals])
finish()
