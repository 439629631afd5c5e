"""Told to stop under load: what runs ends properly, what comes is refused, the exit is clean."""
import signal
import threading
import time

from serving import ENDLESS, SLOW, Server, check, events, finish, read_all, run

LONG = {"diffusion": {"steps": 150 // SLOW ** 2, "stability_threshold": 100000}, "max_tokens": 16}


def drain_under_load():
    s = Server("-q")
    whole = s.chat(**LONG)[1]["choices"][0]["message"]["content"]
    answers = []
    sockets = [s.open_stream(**LONG) for _ in range(8)]
    threads = [threading.Thread(target=lambda c=c: answers.append(read_all(c))) for c in sockets]
    statuses = []
    one = threading.Thread(target=lambda: statuses.append(s.chat(**LONG)))
    for t in threads + [one]:
        t.start()
    s.wait_metric("dgemma:http_requests_active", lambda n: n == 10)
    s.process.send_signal(signal.SIGTERM)
    time.sleep(0.3)
    status, headers, data = s.request("POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]})
    check("new ones get 503", status == 503 and headers.get("retry-after"), data)
    check("health says so", s.request("GET", "/health")[0] == 503)
    for t in threads + [one]:
        t.join()
    texts = ["".join(c["delta"].get("content") or "" for e in events(a)[0] for c in e["choices"]) for a in answers]
    check("running answers end properly", all(b"[DONE]" in a for a in answers) and texts == [whole] * 8, texts)
    check("whole ones too", statuses[0][0] == 200)
    check("exit 0", s.process.wait(20 * SLOW) == 0, s.output())


def second_signal():
    s = Server("-q")
    c = s.open_stream(**ENDLESS)
    s.wait_metric("dgemma:http_requests_active", lambda n: n == 2)
    s.process.send_signal(signal.SIGTERM)
    time.sleep(0.5)
    check("it waits for the first", s.process.poll() is None)
    s.process.send_signal(signal.SIGTERM)
    found, _ = events(read_all(c))
    check("a second signal ends answers with a word", found[-1]["error"]["code"] == "shutting_down", found[-1])
    check("exit 0 again", s.process.wait(20 * SLOW) == 0, s.output())


def deadline():
    s = Server("-q", "--drain-timeout", "1")
    c = s.open_stream(**ENDLESS)
    s.wait_metric("dgemma:http_requests_active", lambda n: n == 2)
    s.process.send_signal(signal.SIGINT)
    found, _ = events(read_all(c))
    check("the time to finish is bounded", found[-1]["error"]["code"] == "shutting_down", found[-1])
    check("exit 0 after it", s.process.wait(20 * SLOW) == 0, s.output())


def idle():
    s = Server("-q")
    keep = s.connect()
    keep.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
    keep.recv(1000)
    start = time.time()
    s.process.send_signal(signal.SIGTERM)
    check("an idle server goes at once", s.process.wait(20 * SLOW) == 0 and (time.time() - start < 3 or SLOW > 1))


run([drain_under_load, second_signal, deadline, idle])
finish()
