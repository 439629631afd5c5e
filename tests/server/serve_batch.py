"""dgemma batch: a file of requests, answered once each, whatever happens meanwhile."""
import json
import os
import random
import resource
import signal
import subprocess
import tempfile
import time

import serving
from serving import check, finish, run

CHAT = "/v1/chat/completions"
FOLDER = tempfile.TemporaryDirectory()
LIMIT = serving.PATIENCE


def path(name):
    return os.path.join(FOLDER.name, name)


def chat(custom_id, text="Hello", **body):
    messages = [{"role": "user", "content": text}]
    return {"custom_id": custom_id, "method": "POST", "url": CHAT,
            "body": {"messages": messages, "max_tokens": 16, **body}}


def write(name, lines):
    """Objects become lines; bytes are lines as they are."""
    with open(path(name), "wb") as f:
        for line in lines:
            f.write(line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n")
    return path(name)


def read(name):
    if not os.path.exists(path(name)):
        return []
    with open(path(name), "rb") as f:
        text = f.read()
    assert not text or text.endswith(b"\n"), f"{name} has no line's end at its end"
    return [json.loads(line) for line in text.splitlines()]


def command(source, out, *args):
    return [os.environ["DGEMMA"], "batch", "-m", serving.FIXTURE, "-t", serving.THREADS, *args, source, path(out)]


def batch(source, out, *args, **kw):
    return subprocess.run(command(source, out, *args), capture_output=True, timeout=LIMIT, text=True, check=False, **kw)


def answers(name):
    """What does not depend on the clock or on what the prefix cache happens to hold, by custom_id."""
    found = {}
    for line in read(name):
        body = line["response"]["body"]
        for key in ("created", "created_at", "completed_at", "timings"):
            body.pop(key, None)
        for key in ("prompt_tokens_details", "input_tokens_details"):
            body.get("usage", {}).pop(key, None)
        assert line["custom_id"] not in found, f"{name}: two answers for {line['custom_id']}"
        found[line["custom_id"]] = line
    return found


def every_url():
    lines = [
        chat("chat"),
        {"custom_id": "text", "method": "POST", "url": "/v1/completions", "body": {"prompt": "ab", "max_tokens": 8, "n": 2}},
        {"custom_id": "responses", "method": "POST", "url": "/v1/responses", "body": {"input": "Hi", "max_output_tokens": 8}},
        {"custom_id": "messages", "method": "POST", "url": "/v1/messages",
         "body": {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 8}},
    ]
    r = batch(write("urls.jsonl", lines), "urls.out.jsonl")
    found = answers("urls.out.jsonl")
    check("every url is answered", r.returncode == 0 and len(found) == 4, r.stderr)
    check("no file of errors where there are none", not os.path.exists(path("urls.out.errors.jsonl")))
    one = found["chat"]
    check("the line has OpenAI's shape", set(one) == {"id", "custom_id", "response", "error"} and one["error"] is None
          and set(one["response"]) == {"status_code", "request_id", "body"} and one["response"]["status_code"] == 200
          and one["response"]["body"]["object"] == "chat.completion", one)
    check("two choices", len(found["text"]["response"]["body"]["choices"]) == 2)


def decisions():
    body = {"input": "The sun shines.", "questions": [{"type": "predicate", "instructions": "Is it warm?"}]}
    lines = [{"custom_id": "d", "method": "POST", "url": "/v1/decisions", "body": body}]
    if not serving.HAS_POCKET:
        return serving.skip("decisions in a batch", "there is no pocket model")
    r = batch(write("decide.jsonl", lines), "decide.out.jsonl", "-m", serving.POCKET)
    check("a decision", r.returncode == 0 and len(answers("decide.out.jsonl")) == 1, r.stderr + str(read("decide.out.errors.jsonl")))


def many(n=250):
    return [chat(f"request {i}", f"Number {i}", temperature=1, max_tokens=16 + i % 50) for i in range(n)]


def fnv(text):
    h = 2166136261
    for byte in text.encode():
        h = (h ^ byte) * 16777619 % 2**32
    return h


def company_changes_nothing():
    lines = many()
    batch(write("many.jsonl", lines), "many.out.jsonl")
    batch(write("back.jsonl", reversed(lines)), "back.out.jsonl", "--parallel", "1")
    there, back = answers("many.out.jsonl"), answers("back.out.jsonl")
    check("all are answered", len(there) == len(lines))
    check("alone or together, first or last, an answer is the same", there == back)
    with serving.Server() as server:
        line = lines[7]
        got = server.json("POST", CHAT, {**line["body"], "seed": fnv(line["custom_id"])})[1]
        want = there[line["custom_id"]]["response"]["body"]["choices"]
        check("a server gives the same with the seed that the name makes", got["choices"] == want, got)


def size_of(name):
    return os.path.getsize(path(name)) if os.path.exists(path(name)) else 0


def kill_often(source, out, took, draw):
    """Up to twenty times, every other time at a random moment, the others while answers come; within half of `took`, so that
    there is something left to be killed at. How often, and how often the file had grown."""
    n = n_grown = 0
    while n < 20:
        before = size_of(out)
        process = subprocess.Popen(command(source, out, "--parallel", "4", "-q"), stderr=subprocess.DEVNULL)
        try:
            while n % 2 and size_of(out) <= before and process.poll() is None:
                time.sleep(0.001)
            process.wait(timeout=draw.uniform(0, took / (40 if n % 2 else 20)))
            break
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            n += 1
            n_grown += size_of(out) > before
    return n, n_grown


def killed_twenty_times():
    seed = random.randrange(2**32)
    draw = random.Random(seed)
    source = write("killed.jsonl", many())
    start = time.time()
    batch(source, "whole.out.jsonl", "--parallel", "4")
    took = time.time() - start
    for _ in range(6):
        n, n_grown = kill_often(source, "killed.out.jsonl", took, draw)
        if n == 20:
            break
        os.remove(path("killed.out.jsonl"))  # the machine has more time for it than it had before: all anew, and faster
        took /= 3
    check("it was killed on the way", n == 20, f"{n} times, seed {seed}")
    check("and while the file grew", n_grown >= 5, f"{n_grown} times, seed {seed}")
    batch(source, "killed.out.jsonl")
    check(f"killed {n} times, the same answers as in one run", answers("killed.out.jsonl") == answers("many.out.jsonl"), f"seed {seed}")
    check("no error was left behind", not os.path.exists(path("killed.out.errors.jsonl")))


def stopped_by_a_signal():
    lines = [chat("first")] + [chat(f"endless {i}", **serving.ENDLESS) for i in range(4)]
    process = subprocess.Popen(command(write("endless.jsonl", lines), "endless.out.jsonl"), stderr=subprocess.PIPE, text=True)
    until = time.time() + LIMIT
    while time.time() < until and not size_of("endless.out.jsonl"):
        time.sleep(0.02)
    busy = batch(path("endless.jsonl"), "endless.out.jsonl")
    check("two at a time do not write to one file", busy.returncode == 1 and "another batch" in busy.stderr, busy.stderr)
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=LIMIT)[1]
    check("Ctrl-C ends it", process.returncode == 130 and "goes on from here" in said, said)
    check("what was answered stays", list(answers("endless.out.jsonl")) == ["first"])


def stopped_at_any_moment():
    lines = [chat("first")] + [chat(f"endless {i}", **serving.ENDLESS) for i in range(2)]
    source, codes = write("moment.jsonl", lines), []
    for i in range(13):
        out = f"moment{i}.out.jsonl"
        process = subprocess.Popen(command(source, out), stderr=subprocess.DEVNULL)
        if i < 12:
            time.sleep(0.005 * i * serving.SLOW)
        else:  # on a slow machine none of these was at work
            serving.wait_until(lambda: size_of(out))
        process.send_signal(signal.SIGINT)
        codes.append(process.wait(timeout=LIMIT))
    check("Ctrl-C is never taken for a failure", set(codes) <= {130, -signal.SIGINT} and codes[-1] == 130, codes)


def a_pipe_that_stays_open():
    os.mkfifo(path("fifo"))
    process = subprocess.Popen(command(path("fifo"), "fifo.out.jsonl"), stderr=subprocess.PIPE, text=True)
    with open(path("fifo"), "w", encoding="utf-8") as pipe:
        until = time.time() + LIMIT
        for n in (1, 2):
            pipe.write(json.dumps(chat(f"line {n}")) + "\n")
            pipe.flush()
            while time.time() < until and not (os.path.exists(path("fifo.out.jsonl")) and len(read("fifo.out.jsonl")) == n):
                time.sleep(0.02)
        check("lines of a pipe are answered while it is open", len(answers("fifo.out.jsonl")) == 2)
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=LIMIT)[1]
    check("Ctrl-C is heard while nothing comes", process.returncode == 130 and "goes on from here" in said, said)
    nobody = subprocess.Popen(command(path("fifo"), "nobody.out.jsonl"), stderr=subprocess.PIPE)
    time.sleep(0.3)
    nobody.send_signal(signal.SIGTERM)
    nobody.communicate(timeout=LIMIT)
    check("and while nobody has opened the pipe", nobody.returncode == -signal.SIGTERM, nobody.returncode)


def two_names_of_one_file():
    source = write("alias.jsonl", [chat("a"), b"no JSON\n"])
    other = os.path.join(FOLDER.name, ".", "alias.out.jsonl")
    for when in ("before it is there", "when it is there"):
        r = batch(source, "alias.out.jsonl", "--errors", other)
        check(f"errors do not go where answers go, {when}", r.returncode == 2 and "errors alone" in r.stderr, r.stderr)
        batch(source, "alias.out.jsonl")
        check("and the answers are there", len(answers("alias.out.jsonl")) == 1)
    told = read("alias.out.errors.jsonl")
    r = batch(source, "alias.out.jsonl", "-m", path("nowhere.gguf"))
    check("errors stay until a run begins", r.returncode == 1 and told and read("alias.out.errors.jsonl") == told, r.stderr)
    r = subprocess.run([os.environ["DGEMMA"], "batch", source, "-"], capture_output=True, text=True, timeout=LIMIT, check=False)
    check("answers do not go to standard output", r.returncode == 2, r.stderr)


def torn_files():
    source = write("torn.jsonl", [chat("a"), chat("b")])
    batch(source, "torn.out.jsonl", "--parallel", "1")
    with open(path("torn.out.jsonl"), "rb") as f:
        whole = f.read()
    last = len(whole.splitlines(True)[-1])
    want = answers("torn.out.jsonl")
    for cut in (1, 2, 3, last // 2, last - 1):
        with open(path("torn.out.jsonl"), "wb") as f:
            f.write(whole[:len(whole) - cut])
        r = batch(source, "torn.out.jsonl")
        check(f"a line without its last {cut} bytes", r.returncode == 0 and answers("torn.out.jsonl") == want, r.stderr)
    with open(path("torn.out.jsonl"), "ab") as f:
        f.write(b"\0" * 4096)
    r = batch(source, "torn.out.jsonl")
    check("zeros where the power went", r.returncode == 0 and answers("torn.out.jsonl") == want, r.stderr)


def not_our_files():
    source = write("mine.jsonl", [chat("a")])
    for name, text in (("notes.txt", b"my notes\n"), ("tail.txt", b"my notes"), ("asked.jsonl", json.dumps(chat("a")).encode() + b"\n")):
        with open(path(name), "wb") as f:
            f.write(text)
        r = batch(source, name)
        with open(path(name), "rb") as f:
            check(f"{name} is not touched", r.returncode == 1 and f.read() == text and "no answer of a batch" in r.stderr, r.stderr)
    for what, args in (("the requests", [source, "mine.jsonl"]), ("a folder", [source, "."]),
                       ("nothing", [path("nowhere.jsonl"), "x.jsonl"]),
                       ("errors over requests", [source, "x.jsonl", "--errors", source])):
        r = batch(*args)
        check(f"refused: {what}", r.returncode in (1, 2) and r.stderr, r.stderr)
    check("the requests are still there", read("mine.jsonl") == [chat("a")])
    r = subprocess.run([os.environ["DGEMMA"], "batch", source], capture_output=True, check=False)
    check("one file is too few", r.returncode == 2)


def hostile_lines():
    huge = chat("huge", "x" * (1 << 20))
    good = [chat("good 1"), chat("ü \"quoted\" \\"), chat("good 3")]
    bad = [
        (b"this is no JSON\n", "invalid_json", None),
        (b"[1, 2]\n", "invalid_json", None),
        (b"{\"custom_id\": \"cut\n", "invalid_json", None),
        (b"\0\0\0\xff\xfe\n", "invalid_json", None),
        (b"[" * 5000 + b"\n", None, None),
        (huge, "line_too_long", None),
        ({k: v for k, v in chat("x").items() if k != "custom_id"}, "missing_custom_id", None),
        ({**chat("x"), "custom_id": 7}, "missing_custom_id", None),
        ({**chat("x"), "custom_id": "x" * 257}, "invalid_value", None),
        ({**chat("get"), "method": "GET"}, "invalid_method", "get"),
        ({**chat("url"), "url": "/v1/embeddings"}, "invalid_url", "url"),
        ({**chat("models"), "url": "/v1/models"}, "invalid_url", "models"),
        ({**chat("page"), "url": "/"}, "invalid_url", "page"),
        ({**chat("list"), "body": []}, "missing_body", "list"),
        ({k: v for k, v in chat("bodiless").items() if k != "body"}, "missing_body", "bodiless"),
        (chat("good 1", "other words"), "duplicate_custom_id", "good 1"),
    ]
    refused = [chat("wrong", temperature="hot"), chat("stream", stream=True), {**chat("empty"), "body": {}}]
    lines = [b"\xef\xbb\xbf", good[0], *[line for line, _, _ in bad], b"\r\n", b"   \n", good[1], *refused, json.dumps(good[2]).encode()]
    r = batch(write("hostile.jsonl", lines), "hostile.out.jsonl", "--max-body", "1")
    found, errors = answers("hostile.out.jsonl"), read("hostile.out.errors.jsonl")
    check("what is well is answered", set(found) == {line["custom_id"] for line in good}, r.stderr)
    check("the exit says that something failed", r.returncode == 1 and "see " in r.stderr, r.stderr)
    check("each other line is an error", len(errors) == len(bad) + len(refused), len(errors))
    for (_, code, name), error in zip(bad, errors):
        check(f"{code} is told", error["response"] is None and error["custom_id"] == name
              and (code is None or error["error"]["code"] == code), error)
    check("errors name their lines", [e["error"]["line"] for e in errors if e["error"]] == list(range(2, 2 + len(bad))), errors)
    by_name = {e["custom_id"]: e["response"] for e in errors if e["response"]}
    check("what the server would refuse is told as the server would", {n: by_name[n]["status_code"] for n in by_name} ==
          {"wrong": 400, "stream": 400, "empty": 400} and by_name["wrong"]["body"]["error"]["param"] == "temperature", by_name)

    again = batch(path("hostile.jsonl"), "hostile.out.jsonl", "--max-body", "1")
    check("again: the same errors, none twice", read("hostile.out.errors.jsonl") == errors and answers("hostile.out.jsonl") == found
          and "3 before" in again.stderr, again.stderr)
    mended = batch(write("mended.jsonl", [*good, chat("wrong", temperature=1)]), "hostile.out.jsonl")
    check("mended lines are all that is asked", mended.returncode == 0 and "1 line answered" in mended.stderr, mended.stderr)
    changed = batch(write("changed.jsonl", [chat("good 1", "other words"), good[1]]), "hostile.out.jsonl")
    errors = read("hostile.out.errors.jsonl")
    check("a line that was changed is not taken for answered", changed.returncode == 1 and errors[0]["error"]["code"] == "changed", errors)
    check("answers that nobody asks for are told", "2 answers that no line" in changed.stderr, changed.stderr)


def a_full_disk():
    def small_files():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (6000, 6000))
    source = write("full.jsonl", many(24))
    r = batch(source, "full.out.jsonl", preexec_fn=small_files)
    kept = answers("full.out.jsonl")
    check("a file that cannot grow is told", r.returncode == 1 and "cannot be written" in r.stderr, r.stderr)
    check("what was written before is whole", 0 < len(kept) < 24)
    r = batch(source, "full.out.jsonl")
    everything = answers("full.out.jsonl")
    check("with room again, it goes on", r.returncode == 0 and len(everything) == 24 and f"{len(kept)} before" in r.stderr, r.stderr)


def from_a_pipe():
    text = "".join(json.dumps(chat(f"p{i}")) + "\n" for i in range(3))
    r = batch("-", "pipe.out.jsonl", input=text)
    check("standard input", r.returncode == 0 and len(answers("pipe.out.jsonl")) == 3, r.stderr)
    with open(write("rest.jsonl", [chat("read before"), chat("rest")]), "rb", buffering=0) as f:
        f.seek(len(json.dumps(chat("read before"))) + 1)
        r = batch("-", "rest.out.jsonl", stdin=f)
    check("what was read of standard input before is not asked", list(answers("rest.out.jsonl")) == ["rest"], r.stderr)


run([every_url, decisions, company_changes_nothing, killed_twenty_times, stopped_by_a_signal, stopped_at_any_moment, a_pipe_that_stays_open,
     two_names_of_one_file, torn_files, not_our_files, hostile_lines,
     a_full_disk, from_a_pipe])
finish()
