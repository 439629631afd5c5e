"""Batches over HTTP: states, files, gaps between others' requests, keys, kills, a disk that is full."""
import contextlib
import json
import os
import random
import resource
import signal
import sqlite3
import subprocess
import time

from serve_files import bearer, content, listed, run_with_state, upload
from serving import ENDLESS, PATIENCE, Server, check, finish, run, wait_until

CHAT = "/v1/chat/completions"
FINAL = ("completed", "failed", "cancelled", "expired")


def line(name, url=CHAT, **fields):
    body = {"max_tokens": 24, **fields}
    body.setdefault({CHAT: "messages", "/v1/responses": "input"}.get(url, "prompt"), [{"role": "user", "content": f"Say {name}"}] if url == CHAT else f"Say {name}")
    if url == "/v1/responses":
        body.pop("max_tokens")
        body["max_output_tokens"] = 24
    return json.dumps({"custom_id": name, "method": "POST", "url": url, "body": body})


def create(s, lines, endpoint=CHAT, headers=None, window="24h", **fields):
    """The batch of these lines."""
    status, file = upload(s, "\n".join(lines).encode() + b"\n", headers=headers)
    assert status == 200, file
    status, batch = s.json("POST", "/v1/batches", {"input_file_id": file["id"], "endpoint": endpoint, "completion_window": window, **fields}, headers)
    assert status == 200, batch
    return batch


def look(s, batch, headers=None):
    return s.json("GET", f"/v1/batches/{batch['id']}", headers=headers)[1]


def wait(s, batch, wanted=FINAL, headers=None, when=lambda b: True):
    until = time.time() + PATIENCE
    while time.time() < until:
        now = look(s, batch, headers)
        if now["status"] in wanted and when(now):
            return now
        time.sleep(0.05)
    raise TimeoutError(f"the batch is {now}")


def answers(s, file_id, headers=None):
    """Lines of a file by their names; each is there once."""
    found = {}
    for text in (content(s, file_id, headers) or b"").decode().splitlines():
        one = json.loads(text)
        assert one["custom_id"] not in found, "an answer twice"
        found[one["custom_id"]] = one
    return found


def said(one):
    return one["response"]["body"]["choices"][0]["message"]["content"]


def asked(names):
    return [line(n) for n in names]


def whole(folder):
    names = [f"n{i}" for i in range(12)]
    with Server("-q", "--state", folder) as s:
        made = create(s, asked(names) + [""] + [line("bad", temperature="hot")], metadata={"for": "tests"})
        check("a batch", made["object"] == "batch" and made["status"] == "validating" and made["completion_window"] == "24h"
              and made["expires_at"] == made["created_at"] + 86400 and made["metadata"] == {"for": "tests"} and made["output_file_id"] is None, made)
        done = wait(s, made)
        check("it is completed", done["status"] == "completed" and done["request_counts"] == {"total": 13, "completed": 12, "failed": 1}
              and done["errors"] is None and done["in_progress_at"] <= done["finalizing_at"] <= done["completed_at"], done)
        got = answers(s, done["output_file_id"])
        check("every line has an answer", set(got) == set(names))
        error = answers(s, done["error_file_id"])
        check("or an error", set(error) == {"bad"} and error["bad"]["response"]["status_code"] == 400, error)
        file = s.json("GET", f"/v1/files/{done['output_file_id']}")[1]
        check("the files are files", file["purpose"] == "batch_output" and file["bytes"] == len(content(s, file["id"])), file)
        check("which others cannot look into", all(os.stat(f"{folder}/files/{name}").st_mode & 0o77 == 0 for name in listed(s)))
        check("and are listed", set(listed(s, "?purpose=batch_output")) == {done["output_file_id"], done["error_file_id"]})
        with open(f"{folder}/in.jsonl", "w") as f:
            f.write("\n".join(asked(names)))
        subprocess.run([os.environ["DGEMMA"], "batch", "-q", "-m", Server.model, "--device", "cpu", "--threads", "1", "--name", "test",
                        f"{folder}/in.jsonl", f"{folder}/out.jsonl"], check=True, timeout=PATIENCE)
        with open(f"{folder}/out.jsonl") as f:
            there = {o["custom_id"]: o for o in map(json.loads, f)}
        check("as dgemma batch answers", all(said(there[n]) == said(got[n]) and there[n]["id"] == got[n]["id"] for n in names))
        for endpoint in ("/v1/completions", "/v1/responses"):
            other = wait(s, create(s, [line("x", endpoint)], endpoint))
            check(f"of {endpoint}", other["status"] == "completed" and other["request_counts"]["completed"] == 1, other)
        ids = [b["id"] for b in s.json("GET", "/v1/batches")[1]["data"]]
        first = s.json("GET", "/v1/batches?limit=2")[1]
        second = s.json("GET", f"/v1/batches?limit=2&after={first['last_id']}")[1]
        check("lists and pages", [b["id"] for b in first["data"] + second["data"]] == ids and first["has_more"] and not second["has_more"] and len(ids) == 3, ids)
        oldest = s.json("GET", "/v1/batches?limit=2&order=asc")[1]
        newest = s.json("GET", f"/v1/batches?limit=2&order=asc&after={oldest['last_id']}")[1]
        check("the oldest first, if asked", [b["id"] for b in oldest["data"] + newest["data"]] == ids[::-1], oldest)
        check("one that is over is not cancelled", s.json("POST", f"/v1/batches/{done['id']}/cancel")[0] == 409)
    with Server("-q", "--state", folder) as s:
        check("it is there after a restart", look(s, made) == done and answers(s, done["output_file_id"]) == got)


def refused(folder):
    with Server("-q", "--state", folder) as s:
        file = upload(s, line("a").encode())[1]["id"]
        good = {"input_file_id": file, "endpoint": CHAT, "completion_window": "24h"}
        for name, change in {"no file": {"input_file_id": None}, "a path": {"input_file_id": "../state.db"}, "another's endpoint": {"endpoint": "/v1/embeddings"},
                             "no endpoint": {"endpoint": None}, "no window": {"completion_window": None}, "a window": {"completion_window": "1y"},
                             "a long window": {"completion_window": "169h"}, "metadata": {"metadata": {"a": 1}},
                             "much metadata": {"metadata": {str(i): "" for i in range(17)}}}.items():
            status, body = s.json("POST", "/v1/batches", {**good, **change})
            check(f"refused: {name}", status == (404 if name == "a path" else 400), (status, body))
        for path in ("x", "x/cancel", f"{file}/cancel", "../files/cancel", "%27"):
            check(f"no batch {path}", s.json("POST", f"/v1/batches/{path}")[0] == 404 and s.json("GET", f"/v1/batches/{path}")[0] == 404)
        cases = {"no JSON": ["{"], "no name": ['{"method": "POST"}'], "a name twice": asked("aa"), "another url": [line("a", "/v1/completions")],
                 "a url that is none": [line("a", "/v1/files")], "nothing": ["  "]}
        for name, lines in cases.items():
            batch = wait(s, create(s, lines))
            check(f"a file with {name} fails", batch["status"] == "failed" and batch["errors"]["data"][0]["message"] and batch["output_file_id"] is None, batch)
        check("and says where", wait(s, create(s, asked("abca")))["errors"]["data"] == [
            {"code": "duplicate_custom_id", "line": 4, "message": "custom_id: line 1 has the same", "param": "custom_id"}])
        many = wait(s, create(s, ["{"] * 5000))
        check("not everything is told", many["status"] == "failed" and len(many["errors"]["data"]) == 100)


def cancelled(folder):
    with Server("-q", "--state", folder) as s:
        names = [f"n{i}" for i in range(6)]
        running = create(s, asked(names) + [line("endless", **ENDLESS), line("after", **ENDLESS)])
        waiting = create(s, asked("ab"))
        wait(s, running, ("in_progress",), when=lambda b: b["request_counts"]["completed"] >= 6)
        status, body = s.json("DELETE", f"/v1/files/{running['input_file_id']}")
        check("a file in use is not deleted", status == 409 and body["error"]["code"] == "file_in_use", body)
        status, b = s.json("POST", f"/v1/batches/{waiting['id']}/cancel")
        check("one that waits is cancelled at once", status == 200 and b["status"] == "cancelled" and b["cancelled_at"] and not b["output_file_id"], b)
        status, b = s.json("POST", f"/v1/batches/{running['id']}/cancel")
        check("one that runs soon", status == 200 and b["status"] in ("cancelling", "cancelled"), b)
        b = wait(s, running)
        check("with what it had", b["status"] == "cancelled" and set(answers(s, b["output_file_id"])) == set(names) and b["cancelling_at"]
              and b["request_counts"] == {"total": 8, "completed": 6, "failed": 0}, b)
        check("then its file can go", s.json("DELETE", f"/v1/files/{running['input_file_id']}")[0] == 200)
        for window in (3, 12, 48):  # in which a machine that stands still may answer nothing
            b = wait(s, create(s, asked("ab") + [line("endless", **ENDLESS)], window=f"{window}s"))
            if b["request_counts"]["completed"] == 2:
                break
        check("one whose time is up", b["status"] == "expired" and b["expired_at"] and set(answers(s, b["output_file_id"])) == {"a", "b"}, b)
        check("others go on", wait(s, create(s, asked("ab")))["status"] == "completed")


def gaps(folder):
    """While somebody is being answered, no line is asked."""
    with Server("-q", "--state", folder) as s:
        stream = s.open_stream(**ENDLESS)
        check("somebody is being answered", s.wait_metric("vllm:num_requests_running", lambda v: v == 1))
        batch = create(s, asked([f"n{i}" for i in range(8)]))
        wait(s, batch, ("in_progress",))
        time.sleep(1.5)
        check("the batch waits", look(s, batch)["request_counts"]["completed"] == 0 and s.metric("vllm:num_requests_running") == 1)
        check("others do not", s.chat()[0] == 200)
        stream.close()
        check("and goes on in the gap", wait(s, batch)["request_counts"]["completed"] == 8)


def keys(folder):
    one, two = bearer("first-key"), bearer("second-key")
    with Server("-q", "--state", folder, "--api-key", "first-key", "--api-key", "second-key") as s:
        mine = create(s, asked("ab"), headers=one)
        for method, path in (("GET", ""), ("POST", "/cancel")):
            check(f"another key's batch: {method}", s.json(method, f"/v1/batches/{mine['id']}{path}", headers=two)[0] == 404)
        check("another key's file", s.json("POST", "/v1/batches", {"input_file_id": mine["input_file_id"], "endpoint": CHAT, "completion_window": "24h"}, two)[0] == 404)
        check("lists are apart", s.json("GET", "/v1/batches", headers=two)[1]["data"] == [])
        done = wait(s, mine, headers=one)
        check("its output is its own", content(s, done["output_file_id"], two) is None and len(answers(s, done["output_file_id"], one)) == 2)


def kill_often(folder, batch, rng):
    """A server, again and again, until this batch is over; how often."""
    def written():
        size = 0
        for name in os.listdir(f"{folder}/files"):
            with contextlib.suppress(FileNotFoundError):  # a file for errors without any is removed
                size += os.path.getsize(f"{folder}/files/{name}")
        return size

    n_killed = 0
    while True:
        s = Server("-q", "--state", folder)
        enough = written() + rng.randrange(3000)  # a few answers
        while written() < enough and look(s, batch)["status"] not in FINAL:
            time.sleep(0.005)
        done = look(s, batch)["status"] in FINAL
        if n_killed % 3 == 2:
            check("told to stop, it stops", s.stop() == 0)
        else:
            s.process.send_signal(signal.SIGKILL)
            s.process.wait()
        n_killed += 1
        if done or n_killed > 60:
            return n_killed


def killed(folder):
    """While answers come: every line is answered once, as without. A server that answers a great deal while nobody looks
    is given more to do."""
    rng = random.Random(3)
    for n in (80, 400, 2000):
        names = [f"n{i}" for i in range(n)]
        with Server("-q", "--state", folder) as s:
            want = answers(s, wait(s, create(s, asked(names)))["output_file_id"])
            batch = create(s, asked(names) + [line("bad", temperature="hot")])
        n_killed = kill_often(folder, batch, rng)
        if n_killed > 3:
            break
    with Server("-q", "--state", folder) as s:
        done = wait(s, batch)
        got = answers(s, done["output_file_id"])
        check("killed at random: all answered, each once", done["status"] == "completed" and set(got) == set(names) and n_killed > 3, (done, n_killed))
        check("killed at random: the same answers", all(said(got[n]) == said(want[n]) for n in names))
        check("killed at random: counted", done["request_counts"] == {"total": n + 1, "completed": n, "failed": 1}
              and set(answers(s, done["error_file_id"])) == {"bad"}, done)
        check("killed at random: no strays", set(os.listdir(f"{folder}/files")) == set(listed(s)))


def full(folder):
    """A disk that has no room for a while: the batch waits for it."""
    names = [f"n{i}" for i in range(10)]
    no_limit = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    with Server("--state", folder) as s:
        stream = s.open_stream(**ENDLESS)  # so that it does not begin yet
        check("no room: somebody is being answered", s.wait_metric("vllm:num_requests_running", lambda v: v == 1))
        batch = create(s, asked(names))
        wait(s, batch, ("in_progress",))
        resource.prlimit(s.process.pid, resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
        stream.close()
        check("no room: lines are asked", s.wait_metric("vllm:request_success_total", lambda v: v > 1))
        check("no room: the log says so", wait_until(lambda: f"{batch['id']} waits: " in s.output()), s.output()[-500:])
        check("no room: it is not over", look(s, batch)["status"] == "in_progress", look(s, batch))
        resource.prlimit(s.process.pid, resource.RLIMIT_FSIZE, no_limit)
        done = wait(s, batch)
        check("room again: all are answered", done["status"] == "completed" and set(answers(s, done["output_file_id"])) == set(names), done)


def leave_half(folder):
    """A batch of six answers and one that will not end, killed; and the file that has the six."""
    with_log = Server("-q", "--state", folder)
    batch = create(with_log, asked([f"n{i}" for i in range(6)]) + [line("endless", **ENDLESS)])
    wait(with_log, batch, ("in_progress",), when=lambda b: b["request_counts"]["completed"] >= 6)
    known = listed(with_log)
    with_log.process.send_signal(signal.SIGKILL)
    with_log.process.wait()
    half = [f"{folder}/files/{name}" for name in os.listdir(f"{folder}/files") if name not in known]
    return batch, max(half, key=os.path.getsize)


def counted(folder):
    """What a batch has written takes room while nobody works at it."""
    batch, half = leave_half(folder)
    with open(half) as f:
        answer = f.readlines()[0]
    name = json.loads(answer)["custom_id"]
    with open(half, "a") as f:
        for i in range(900000 // len(answer)):
            f.write(answer.replace(f'"{name}"', f'"old{i}"', 1))
    with Server("-q", "--state", folder, "--state-size", "1") as s:
        check("half a batch takes room", upload(s, b"x" * 300000)[0] == 507)
        s.json("POST", f"/v1/batches/{batch['id']}/cancel")
        done = wait(s, batch)
        check("and so does its file", upload(s, b"x" * 300000)[0] == 507)
        check("until it goes", s.json("DELETE", f"/v1/files/{done['output_file_id']}")[0] == 200 and upload(s, b"x" * 900000)[0] == 200)
        check("counted once", upload(s, b"x" * 300000)[0] == 507)


def measured(folder):
    """While the files of a batch are read at its end, others have their turn. Whoever looks may have to stand still
    for another reason: not each time."""
    for _ in range(5):
        longest, took = end_large(folder)
        if longest < took / 2:
            break
    check("a large batch ends without others waiting", longest < took / 2, (longest, took))


def end_large(folder):
    """How long one who looks waits at most, and how long it is until the end."""
    batch, half = leave_half(folder)
    os.truncate(half, 1 << 30)  # with nothing in it: as long to read as any
    db = sqlite3.connect(f"{folder}/state.db")
    db.execute("UPDATE batches SET status='cancelling' WHERE id=?", (batch["id"],))
    db.commit()
    db.close()
    with Server("-q", "--state", folder) as s:
        begin, longest, done = time.time(), 0, None
        while not done or done["status"] != "cancelled":
            asked_at = time.time()
            done = look(s, batch)
            longest = max(longest, time.time() - asked_at)
        took = time.time() - begin
        s.json("DELETE", f"/v1/files/{done['output_file_id']}")
    return longest, took


def stuck(folder):
    """A batch that cannot be worked at, nor ended, waits alone."""
    batch, half = leave_half(folder)
    os.rename(half, f"{folder}/half")
    os.mkdir(half)
    with Server("-q", "--state", folder) as s:
        check("others go on", wait(s, create(s, asked("ab")))["status"] == "completed" and look(s, batch)["status"] == "in_progress")
        status, body = s.json("POST", f"/v1/batches/{batch['id']}/cancel")
        check("it cannot be ended", status in (200, 500) and look(s, batch)["status"] == "cancelling", (status, body))
        check("which is told without the folder", folder not in json.dumps(body), body)
        check("and others go on", wait(s, create(s, asked("ab")))["status"] == "completed")
    os.rmdir(half)
    os.rename(f"{folder}/half", half)
    with Server("-q", "--state", folder) as s:
        done = wait(s, batch)
        check("until it can", done["status"] == "cancelled" and len(answers(s, done["output_file_id"])) == 6, done)


def without_state():
    with Server("-q") as s:
        for method, path in (("POST", "/v1/batches"), ("GET", "/v1/batches"), ("GET", "/v1/batches/x"), ("POST", "/v1/batches/x/cancel")):
            check(f"{method} {path} without --state", s.json(method, path)[0] == 501)


if __name__ == "__main__":
    run([without_state])
    run_with_state(whole, refused, cancelled, gaps, keys, killed, full, counted, measured, stuck)
    finish()
