"""Told to stop under load: what runs ends properly, what comes is refused, the exit is clean."""
import http.client
import json
import os
import random
import shutil
import signal
import socket
import tempfile
import threading
import time

from serving import ENDLESS, FIXTURE, PATIENCE, Server, check, events, finish, read_all, run, wait_until


def lasting(s, seconds):
    """A request whose answer takes about that long when it is alone, on a machine of any speed; and the answer."""
    def asked(steps):
        fields = {"diffusion": {"steps": steps, "stability_threshold": 100000}, "max_tokens": 16}
        start = time.time()
        answer = s.chat(**fields)[1]["choices"][0]["message"]["content"]
        return fields, answer, time.time() - start
    steps = 4
    while True:
        fields, answer, took = asked(steps)
        if took >= seconds / 2:
            return fields, answer
        steps = min(4 * steps, 1 + int(steps * seconds / took))


def ask_nine(s, request):
    """Eight streams and one whole answer at a time; what will have come, and who waits for it. None: some ended before all
    had begun, as it happens where whoever asks stands still for a moment."""
    answers, statuses = [], []
    threads = [threading.Thread(target=lambda c=s.open_stream(**request): answers.append(read_all(c))) for _ in range(8)]
    threads.append(threading.Thread(target=lambda: statuses.append(s.chat(**request))))
    for t in threads:
        t.start()
    begun = wait_until(lambda: s.metric("vllm:num_requests_running") == 10 or answers or statuses)
    if not begun or answers or statuses:
        for t in threads:
            t.join()
        return None
    return answers, statuses, threads


def drain_under_load():
    s = Server("-q", "--drain-timeout", "3600")
    for seconds in (1, 4, 16):
        request, whole = lasting(s, seconds)
        endless = s.open_stream(**ENDLESS)  # keeps the server from ending before it was asked everything
        asked = ask_nine(s, request)
        if asked:
            break
        endless.close()
        s.wait_metric("vllm:num_requests_running", lambda n: n == 0)
    if not check("all run", asked):
        s.stop()
        return
    answers, statuses, threads = asked
    s.process.send_signal(signal.SIGTERM)
    check("it drains", s.wait_status("/health", 503))
    status, headers, data = s.request("POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]})
    check("new ones get 503", status == 503 and headers.get("retry-after"), data)
    for t in threads:
        t.join()
    check("it waits for the last one", s.process.poll() is None)
    endless.close()
    texts = ["".join(c["delta"].get("content") or "" for e in events(a)[0] for c in e["choices"]) for a in answers]
    check("running answers end properly", all(b"[DONE]" in a for a in answers) and texts == [whole] * 8, texts)
    check("whole ones too", statuses[0][0] == 200, statuses[0])
    check("exit 0", s.process.wait(PATIENCE) == 0, s.output())


def model_cut_short():
    """A file of the model loses its end: errors that say so, but not where it lies, and a server that still stands."""
    questions = [{"type": "predicate", "name": "x", "instructions": "Is it an x?"}]
    with tempfile.TemporaryDirectory(suffix=" of models") as folder:
        model = shutil.copytree(FIXTURE, folder + "/model")
        weights = model + "/model.safetensors"
        os.chmod(weights, 0o600)
        with Server("-q", model=model) as s:
            check("the model answers", s.chat()[0] == 200 and s.request("GET", "/health")[0] == 200)
            running = s.open_stream(**ENDLESS)
            s.wait_metric("llamacpp:requests_processing", lambda n: n == 1)
            os.truncate(weights, 4096)
            data = read_all(running)
            check("what runs is told", b"\"model.safetensors was cut short" in data and folder.encode() not in data, data[-500:])
            for status, answer in (s.chat(), s.json("POST", "/v1/decisions", {"input": "x", "questions": questions})):
                check("what comes is told", status == 500 and answer["error"]["message"].startswith("model.safetensors was cut short"), answer)
            status, answer = s.json("GET", "/health")
            check("health says so", status == 503 and "cut short" in answer["status"], answer)
            check("the server stands", s.process.poll() is None)


def second_signal():
    s = Server("-q")
    c = s.open_stream(**ENDLESS)
    s.wait_active(1)
    s.process.send_signal(signal.SIGTERM)
    check("it waits for the first", s.wait_status("/health", 503) and s.process.poll() is None)
    s.process.send_signal(signal.SIGTERM)
    found, _ = events(read_all(c))
    check("a second signal ends answers with a word", found[-1]["error"]["code"] == "shutting_down", found[-1])
    check("exit 0 again", s.process.wait(PATIENCE) == 0, s.output())


def delay():
    """Balancers look at /health once in a while: until they have, what they send is answered."""
    s = Server("-q", "--drain-delay", "3")
    start = time.time()
    s.process.send_signal(signal.SIGTERM)
    check("it is told", wait_until(lambda: "stopping" in s.output()))
    for number in (signal.SIGSTOP, signal.SIGCONT):  # by a person or a debugger: no reason to go sooner
        s.process.send_signal(number)
    check("exit 0 when the time is over", s.process.wait(PATIENCE) == 0 and time.time() - start >= 3, s.output())
    s = Server("-q", "--drain-delay", "3600")
    s.process.send_signal(signal.SIGTERM)
    check("health fails long before that", s.wait_status("/health", 503))
    check("requests are answered all the same", s.chat(max_tokens=8)[0] == 200)
    s.process.send_signal(signal.SIGTERM)
    check("a second signal does not wait for it", s.process.wait(PATIENCE) == 0, s.output())


def service_manager():
    """systemd's way: a datagram when requests are answered, and one when it goes."""
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as told:
        told.bind(folder + "/notify")
        told.settimeout(PATIENCE)
        os.environ["NOTIFY_SOCKET"] = folder + "/notify"
        try:
            s = Server("-q")
        finally:
            del os.environ["NOTIFY_SOCKET"]
        check("it is ready", told.recv(100) == b"READY=1" and s.request("GET", "/health")[0] == 200)
        s.process.send_signal(signal.SIGTERM)
        check("it is stopping", told.recv(100) == b"STOPPING=1" and s.process.wait(PATIENCE) == 0)


def deadline():
    s = Server("-q", "--drain-timeout", "1")
    c = s.open_stream(**ENDLESS)
    s.wait_active(1)
    s.process.send_signal(signal.SIGINT)
    found, _ = events(read_all(c))
    check("the time to finish is bounded", found[-1]["error"]["code"] == "shutting_down", found[-1])
    check("exit 0 after it", s.process.wait(PATIENCE) == 0, s.output())


def half_a_body():
    s = Server("-q")
    body = json.dumps({"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 8}).encode()
    c = s.connect()
    c.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: "
              + str(len(body)).encode() + b"\r\n\r\n" + body[:10])
    check("it is on its way", s.wait_active(1))
    s.process.send_signal(signal.SIGTERM)
    check("what was accepted may go on", s.wait_status("/health", 503) and s.process.poll() is None)
    c.sendall(body[10:])
    check("and is answered", b" 200 OK" in read_all(c))
    check("exit 0 behind it", s.process.wait(PATIENCE) == 0, s.output())


def idle():
    for _ in range(10):  # each time it may still be putting the last call away
        s = Server("-q", "--idle-timeout", "3600", "--drain-timeout", "3600")
        keep = s.connect()
        keep.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        keep.recv(1000)
        s.process.send_signal(signal.SIGTERM)
        code = s.process.wait(PATIENCE)
        check("an idle server waits for nobody", code == 0, f"status {code}: {s.output()}")


def visit(s, dice, strange):
    """What a client may be doing when the server is told to stop, over and over until nobody answers."""
    while True:
        what = dice.choice(["look", "whole", "stream", "leave", "half", "connect"])
        try:
            if what == "look":
                status = s.request("GET", "/metrics")[0]
            elif what == "whole":
                status = s.chat(max_tokens=8)[0]
            elif what == "stream":
                status = int(read_all(s.open_stream(max_tokens=8)).split(b" ", 2)[1])
            else:
                c = s.connect()
                if what == "leave":
                    c = s.open_stream(**ENDLESS)
                elif what == "half":
                    c.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n\r\n{")
                time.sleep(dice.random() / 10)
                c.close()
                status = 200
            if status not in (200, 503):
                strange.append((what, status))
        except ConnectionRefusedError:
            return
        except (OSError, http.client.HTTPException, IndexError):
            pass  # cut off in the middle


def any_moment():
    for seed in range(10):
        dice = random.Random(seed)
        s = Server("-q")
        strange = []
        clients = [threading.Thread(target=visit, args=(s, random.Random(100 * seed + i), strange)) for i in range(6)]
        for t in clients:
            t.start()
        time.sleep(dice.random() / 2)
        s.process.send_signal(signal.SIGTERM)
        if seed % 2:
            time.sleep(dice.random() / 4)
            s.process.send_signal(signal.SIGTERM)
        try:
            code = s.process.wait(PATIENCE)
        finally:
            s.process.kill()
            for t in clients:
                t.join()
        check(f"it can be stopped at any moment ({seed})", code == 0, f"status {code}: {s.output()}")
        check(f"nobody gets nonsense meanwhile ({seed})", not strange, strange)


run([drain_under_load, model_cut_short, second_signal, delay, service_manager, deadline, half_a_body, idle, any_moment])
finish()
