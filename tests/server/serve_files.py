"""What --state keeps: files over HTTP. Forms of all kinds, keys, limits, kills, a full disk."""
import http.client
import json
import os
import random
import resource
import shutil
import signal
import sqlite3
import subprocess
import tempfile
import threading
import time

from serving import PATIENCE, Server, check, finish, run, skip

EDGE = "----edge"


def form(*parts, edge=EDGE):
    """The bytes of a form; a part is (name, data) or (name, data, filename)."""
    out = b""
    for name, data, *filename in parts:
        disposition = f'form-data; name="{name}"' + (f'; filename="{filename[0]}"' if filename else "")
        out += f"--{edge}\r\nContent-Disposition: {disposition}\r\n\r\n".encode() + data + b"\r\n"
    return out + f"--{edge}--\r\n".encode()


def send(s, body, headers=None, content_type=f"multipart/form-data; boundary={EDGE}"):
    status, _, data = s.request("POST", "/v1/files", body, {"Content-Type": content_type, **(headers or {})})
    return status, json.loads(data)


def upload(s, data, name="lines.jsonl", headers=None):
    return send(s, form(("purpose", b"batch"), ("file", data, name)), headers)


def content(s, file_id, headers=None):
    status, _, data = s.request("GET", f"/v1/files/{file_id}/content", None, headers)
    return data if status == 200 else None


def listed(s, query="", headers=None):
    return [f["id"] for f in s.json("GET", f"/v1/files{query}", headers=headers)[1]["data"]]


def bearer(key):
    return {"Authorization": f"Bearer {key}"}


def refusal(folder):
    """What a server says that cannot use the folder."""
    done = subprocess.run([os.environ["DGEMMA"], "serve", "-m", Server.model, "--port", "0", "--state", folder],
                          capture_output=True, text=True, timeout=PATIENCE)
    return done.stderr if done.returncode else ""


def without_state():
    with Server("-q") as s:
        for method, path in (("POST", "/v1/files"), ("GET", "/v1/files"), ("GET", "/v1/files/x"), ("DELETE", "/v1/files/x")):
            status, body = s.json(method, path)
            check(f"{method} {path} without --state", status == 501 and "--state" in body["error"]["message"], (status, body))


def files(folder):
    os.mkdir(folder, 0o755)
    with Server("-q", "--state", folder) as s:
        check("others cannot look into it", all(os.stat(f"{folder}/{name}").st_mode & 0o77 == 0 for name in os.listdir(folder)), os.listdir(folder))
        data = os.urandom(300000)
        status, made = upload(s, data)
        check("a file is taken", status == 200 and made["object"] == "file" and made["bytes"] == len(data)
              and made["filename"] == "lines.jsonl" and made["purpose"] == "batch" and made["id"].startswith("file-"), made)
        check("and given back", content(s, made["id"]) == data)
        check("its object", s.json("GET", f"/v1/files/{made['id']}") == (200, made))
        ids = [made["id"]] + [upload(s, b"x" * n, f"{n}.jsonl")[1]["id"] for n in range(1, 6)]
        check("the newest is first", listed(s) == ids[::-1])
        seen, after, more = [], "", True
        while more:
            _, page = s.json("GET", f"/v1/files?limit=4&order=asc{after}")
            seen += [f["id"] for f in page["data"]]
            after, more = f"&after={page['last_id']}", page["has_more"]
        check("pages", seen == ids, seen)
        check("of a purpose", listed(s, "?purpose=batch_output") == [])
        for query in ("limit=0", "limit=x", "limit=99999", "order=up", "after=%zz", "after=" + "x" * 99):
            check(f"?{query}", s.json("GET", f"/v1/files?{query}")[0] == 400)
        status, gone = s.json("DELETE", f"/v1/files/{ids[0]}")
        check("a file is deleted", status == 200 and gone == {"id": ids[0], "object": "file", "deleted": True}, gone)
        check("and is gone", s.json("GET", f"/v1/files/{ids[0]}")[0] == 404 and content(s, ids[0]) is None
              and s.json("DELETE", f"/v1/files/{ids[0]}")[0] == 404 and not os.path.exists(f"{folder}/files/{ids[0]}"))
        status, headers, _ = s.request("PUT", f"/v1/files/{ids[1]}")
        check("other methods", status == 405 and headers["allow"] == "GET, HEAD, DELETE, OPTIONS", headers)
        status, soon = send(s, form(("purpose", b"batch"), ("file", b"x", "a"), ("expires_after[anchor]", b"created_at"),
                                    ("expires_after[seconds]", b"3600")))
        check("it may go sooner", status == 200 and soon["expires_at"] == soon["created_at"] + 3600, soon)
    with Server("-q", "--state", folder) as s:
        check("after a restart", listed(s) == [soon["id"]] + ids[:0:-1])
        check("a folder is one server's", "another process" in refusal(folder))
    with open(f"{folder}/state.db", "wb") as f:
        f.write(b"not a database" * 1000)
    check("a database that is none", "state.db" in refusal(folder))


def hostile(folder):
    good = form(("purpose", b"batch"), ("file", b"data", "a.jsonl"))
    kind, edge = "multipart/form-data", EDGE.encode()
    bodies = {
        "nothing": b"", "no boundary": b"hello", "half of it": good[:-20], "no end": good[:-4], "more behind it": good + b"x",
        "text before it": b"preamble\r\n" + good, "only its end": b"--" + edge + b"--\r\n",
        "no headers": b"--" + edge + b"\r\n\r\ndata\r\n--" + edge + b"--\r\n", "bare line ends": good.replace(b"\r\n", b"\n"),
        "a boundary in the data": form(("purpose", b"batch"), ("file", b"\r\n--" + edge + b"x", "a")),
        "two files": form(("purpose", b"batch"), ("file", b"1", "a"), ("file", b"2", "b")),
        "many parts": form(*[(f"expires_after[{i}]", b"") for i in range(40)]),
        "many headers": b"--" + edge + b"\r\n" + b"X-A: b\r\n" * 50 + b"\r\n\r\n--" + edge + b"--",
        "a long header": b"--" + edge + b"\r\nX-A: " + b"b" * 5000 + b"\r\n\r\n\r\n--" + edge + b"--",
        "a long name": form(("x" * 200, b"")), "a long filename": form(("purpose", b"batch"), ("file", b"1", "a" * 5000)),
        "no purpose": form(("file", b"1", "a")), "another purpose": form(("purpose", b"vision"), ("file", b"1", "a")),
        "no filename": form(("purpose", b"batch"), ("file", b"1")), "an empty file": form(("purpose", b"batch"), ("file", b"", "a")),
        "an unknown field": form(("purpose", b"batch"), ("file", b"1", "a"), ("path", b"/etc/passwd")),
        "a name with a control in it": form(("purpose", b"batch"), ("file", b"1", "a\x01b")),
        "a name with a line in it": form(("purpose", b"batch"), ("file", b"1", "a\rb")),
        "a name that is no text": form(("purpose", b"batch"), ("file", b"1", "@")).replace(b"@", b"\xff\xfe"),
        "dots for a name": form(("purpose", b"batch"), ("file", b"1", "..")), "a folder": form(("purpose", b"batch"), ("file", b"1", "a/")),
        "an encoded part": good.replace(b"\r\n\r\ndata", b"\r\nContent-Transfer-Encoding: base64\r\n\r\ndata"),
    }
    with Server("-q", "--state", folder, "--max-body", "1") as s:
        for name, body in bodies.items():
            status, answer = send(s, body)
            check(f"a form with {name}", status == 400 and answer["error"]["message"], (status, answer))
        for content_type in ("", "application/json", "application/x-www-form-urlencoded"):
            check(f"{content_type} for a form", send(s, good, content_type=content_type)[0] == 415)
        for rest in ("", "; boundary=", "; boundary=\"", f"; boundary={'x' * 71}", f"; boundary={EDGE}; boundary=b", "; boundary=\"a b\"",
                     f" boundary={EDGE}", f";;boundary={EDGE}"):
            check(f"Content-Type {kind}{rest[:40]}", send(s, good, content_type=kind + rest)[0] == 400)
        check("a boundary in quotes", send(s, good, content_type=f'{kind}; charset=utf-8; boundary="{EDGE}"')[0] == 200)
        for name, kept in {"../../etc/passwd": "passwd", "C:\\\\temp\\\\x.jsonl": "x.jsonl", "/abs": "abs", "a b ü.jsonl": "a b ü.jsonl",
                           "'; DROP TABLE files; --": "'; DROP TABLE files; --"}.items():
            status, made = upload(s, b"data", name)
            check(f"a file called {name}", status == 200 and made["filename"] == kept, (status, made))
        known = listed(s)
        check("files have our names", set(os.listdir(f"{folder}/files")) == set(known))
        for path in ("../state.db", "..%2fstate.db", "%2e%2e/state.db", "../state.db/content", "..%2Fstate.db/content", "file-%27%20OR%201=1--",
                     "x" * 5000, "", "/", "/content", known[0] + "/content/more", known[0] + "/", known[0].upper()):
            for method in ("GET", "DELETE"):
                check(f"{method} {path[:40]}", s.json(method, f"/v1/files/{path}")[0] == 404)
        check("nothing was deleted", listed(s) == known)
        check("a body that is too large", upload(s, b"x" * (1 << 20))[0] == 413)
        rng = random.Random(5)
        for _ in range(200):
            body = bytearray(good)
            for _ in range(rng.randrange(1, 4)):
                at = rng.randrange(len(body))
                body[at:at + rng.randrange(3)] = rng.randbytes(rng.randrange(3))
            status, _ = send(s, bytes(body))
            if status not in (200, 400):
                check("a damaged form", False, (status, bytes(body)))
        check("and it lives", s.request("GET", "/health")[0] == 200)


def keys(folder):
    with Server("-q", "--state", folder, "--api-key", "first-key", "--api-key", "second-key") as s:
        mine = upload(s, b"mine", headers=bearer("first-key"))[1]["id"]
        other = upload(s, b"other", headers=bearer("second-key"))[1]["id"]
        check("a key's own", content(s, mine, bearer("first-key")) == b"mine" and content(s, other, bearer("second-key")) == b"other")
        for method, path in (("GET", f"/v1/files/{mine}"), ("GET", f"/v1/files/{mine}/content"), ("DELETE", f"/v1/files/{mine}")):
            check(f"another key's: {method}", s.json(method, path, headers=bearer("second-key"))[0] == 404)
            check(f"without a key: {method}", s.json(method, path)[0] == 401)
        check("lists are apart", listed(s, "", bearer("first-key")) == [mine])
        check("nothing is after another's", listed(s, f"?after={other}", bearer("first-key")) == [])
    with Server("-q", "--state", folder, "--api-key", "zeroth-key", "--api-key", "second-key", "--api-key", "first-key") as s:
        check("keys are known by what they are", content(s, mine, bearer("first-key")) == b"mine" and content(s, mine, bearer("zeroth-key")) is None)
    with open(f"{folder}/state.db", "rb") as f:
        check("and not written down", b"first-key" not in f.read())
    with Server("-q", "--state", folder) as s:
        check("nor is anything given to all", content(s, mine) is None)


def limits(folder):
    with Server("-q", "--state", folder, "--state-size", "1") as s:
        big = upload(s, b"x" * 700000)[1]["id"]
        status, answer = upload(s, b"x" * 400000)
        check("all bytes together", status == 507 and "delete" in answer["error"]["message"], (status, answer))
        check("nothing of it is left", os.listdir(f"{folder}/files") == [big])
        s.json("DELETE", f"/v1/files/{big}")
        check("room again", upload(s, b"x" * 700000)[0] == 200)
    with Server("-q", "--state", folder, "--state-size", "1") as s:
        check("and after a restart", upload(s, b"x" * 400000)[0] == 507)


def killed(folder):
    """What was acknowledged is there; what was not is there whole or not at all."""
    rng = random.Random(11)
    kept, gone = {}, set()

    def work(s, seed):
        mine = random.Random(seed)
        try:
            while True:
                data = mine.randbytes(mine.randrange(1, 60000))
                status, made = upload(s, data)
                if status == 200:
                    kept[made["id"]] = data
                if mine.random() < 0.4:
                    victim = mine.choice(sorted(kept))
                    gone.add(victim)  # from here on either is right
                    s.json("DELETE", f"/v1/files/{victim}")
        except (OSError, ValueError, http.client.HTTPException):
            return

    turn = 0
    while turn < 8 or (len(kept) <= 10 and turn < 80):  # a slow machine keeps few at a time
        turn += 1
        s = Server("-q", "--state", folder)
        threads = [threading.Thread(target=work, args=(s, 100 * turn + i)) for i in range(3)]
        for t in threads:
            t.start()
        threads[0].join(rng.uniform(0.05, 0.5))
        s.process.send_signal(signal.SIGKILL)
        s.process.wait()
        for t in threads:
            t.join()
    with Server("-q", "--state", folder) as s:
        found = {f["id"]: f["bytes"] for f in s.json("GET", "/v1/files")[1]["data"]}
        check("what was acknowledged is there", set(kept) - gone <= set(found) and len(kept) > 10, (len(kept), len(found)))
        check("as it was", all(content(s, i) == kept[i] for i in found if i in kept))
        check("others are whole", all(len(content(s, i)) == n for i, n in found.items()))
        check("no strays", set(os.listdir(f"{folder}/files")) == set(found))


def expired(folder):
    """Many whose time is up go with few commits, at the next upload."""
    with Server("-q", "--state", folder) as s:
        for i in range(120):
            upload(s, b"x")
    db = sqlite3.connect(f"{folder}/state.db")
    until = int(time.time()) + 4
    db.execute("UPDATE files SET expires=?", (until,))
    db.commit()
    db.close()
    with Server("-q", "--state", folder) as s:
        there = len(os.listdir(f"{folder}/files"))
        while time.time() < until + 0.5:  # the server's clock has whole seconds
            time.sleep(0.1)
        status, last = upload(s, b"y")
        written = os.path.getsize(f"{folder}/state.db-wal")
        check("old files go", status == 200 and os.listdir(f"{folder}/files") == [last["id"]] == listed(s), (last, listed(s)))
        check("with few commits", written < 300000, (there, written))


def fill(folder):
    """Uploads until there is no room; all that was taken is there then, and can be deleted."""
    kept = {}
    with Server("-q", "--state", folder) as s:
        for size in (60000, 5000, 1):  # to its last page
            status = 200
            while status == 200 and len(kept) < 1000:
                data = os.urandom(size)
                status, answer = upload(s, data)
                if status == 200:
                    kept[answer["id"]] = data
        check("a full disk: an error says so", status == 507 and answer["error"]["code"] == "insufficient_storage", (status, answer, len(kept)))
        check("a full disk: what was taken is there", len(kept) > 3 and all(content(s, i) == d for i, d in kept.items()))
        check("a full disk: and nothing else", set(os.listdir(f"{folder}/files")) == set(kept))
    with Server("-q", "--state", folder) as s:
        check("a full disk: after a restart", set(listed(s)) == set(kept) and upload(s, os.urandom(60000))[0] == 507)
        first = next(iter(kept))
        status, body = s.json("DELETE", f"/v1/files/{first}")
        check("a full disk: one can be deleted", status == 200, (status, body))
        check("a full disk: which makes room", upload(s, b"small")[0] == 200)
        check("a full disk: it still answers", s.chat()[0] == 200)
        while upload(s, os.urandom(4000))[0] == 200:
            pass
    s = Server("-q", "--state", folder)
    s.process.kill()
    s.process.wait()
    with Server("-q", "--state", folder) as s:
        kept.pop(first)
        check("a full disk: after another", all(content(s, i) == d for i, d in kept.items()))


def full_disk(folder):
    os.makedirs(folder)
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", folder], capture_output=True).returncode:
        skip("a full disk", "no file system can be mounted here")
        return
    try:
        fill(os.path.join(folder, "state"))
    finally:
        subprocess.run(["umount", "-l", folder], check=False)


def short_files(folder):
    """Files that cannot grow: the disk's error, without a disk of our own."""
    no_limit = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    with Server("-q", "--state", folder) as s:
        data = os.urandom(30000)
        kept = upload(s, data)[1]["id"]
        resource.prlimit(s.process.pid, resource.RLIMIT_FSIZE, (50000, resource.RLIM_INFINITY))
        status, answer = upload(s, os.urandom(90000))
        check("a file that cannot grow", status == 507 and os.listdir(f"{folder}/files") == [kept], (status, answer))
        check("the folder is not told", folder not in answer["error"]["message"] and "file-" in answer["error"]["message"], answer)
        resource.prlimit(s.process.pid, resource.RLIMIT_FSIZE, (100, resource.RLIM_INFINITY))
        status, answer = upload(s, b"x")
        check("a database that cannot grow", status in (500, 507) and "kept" in answer["error"]["message"] and folder not in answer["error"]["message"], (status, answer))
        check("reads go on", content(s, kept) == data)
        resource.prlimit(s.process.pid, resource.RLIMIT_FSIZE, no_limit)
        check("and later writes", upload(s, b"x")[0] == 200)


def in_folder(case):
    def go():
        folder = tempfile.mkdtemp()
        try:
            case(os.path.join(folder, "state"))
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    go.__name__ = case.__name__
    return go


def has_sqlite():
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/state.db", "wb") as f:  # so that no server starts, whatever it was built with
            f.write(b"none" * 1000)
        return "without SQLite" not in refusal(folder)


def run_with_state(*cases):
    if has_sqlite():
        run([in_folder(c) for c in cases])
    else:
        skip("what --state keeps", "dgemma was built without SQLite")


if __name__ == "__main__":
    run([without_state])
    run_with_state(files, hostile, keys, limits, killed, expired, full_disk, short_files)
    finish()
