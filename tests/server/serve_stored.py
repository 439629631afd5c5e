"""Responses that are kept: chains of them, keys, limits, kills, a disk that is full."""
import http.client
import json
import os
import random
import resource
import signal
import sqlite3
import threading
import time

from serve_files import bearer, run_with_state, upload
from serving import ENDLESS, SLOW, Server, check, events, finish, read_all, run, skip

RESPONSES = "/v1/responses"


def respond(s, text, headers=None, **fields):
    return s.json("POST", RESPONSES, {"input": text, "seed": 3, "max_output_tokens": 24, **fields}, headers)


def kept(s, response, headers=None, rest=""):
    return s.json("GET", f"{RESPONSES}/{response['id']}{rest}", headers=headers)


def output(response):
    """What was said, without names that differ each time."""
    return [{k: v for k, v in item.items() if k not in ("id", "call_id")} for item in response["output"]]


def chains(folder):
    with Server("-q", "--state", folder) as s:
        status, first = respond(s, "Hello")
        check("kept unless it is not to be", status == 200 and first["store"] is True and first["previous_response_id"] is None, first)
        check("it can be had again", kept(s, first) == (200, first))
        _, loose = respond(s, "Hello", store=False)
        check("not kept", loose["store"] is False and kept(s, loose)[0] == 404 and output(loose) == output(first))
        status, second = respond(s, [{"role": "user", "content": "And then?"}], previous_response_id=first["id"], instructions="Be brief.")
        check("one goes on from another", status == 200 and second["previous_response_id"] == first["id"], second)
        _, third = respond(s, "And then?", previous_response_id=second["id"])
        said = [{"role": "user", "content": "Hello"}, *first["output"], {"role": "user", "content": "And then?"}]
        _, whole = respond(s, said, instructions="Be brief.", store=False)
        check("as if all had been sent", output(whole) == output(second) and whole["usage"]["input_tokens"] == second["usage"]["input_tokens"])
        _, whole = respond(s, said + second["output"] + [{"role": "user", "content": "And then?"}], store=False)
        check("and so on, without old instructions", output(whole) == output(third) and whole["usage"]["input_tokens"] == third["usage"]["input_tokens"])
        _, branch = respond(s, "And then?", previous_response_id=first["id"], instructions="Be brief.")
        check("a second one from the same", output(branch) == output(second))
        opened = s.open_stream(path=RESPONSES, prompt=None, input="And then?", max_output_tokens=24, previous_response_id=first["id"], instructions="Be brief.")
        stream = events(read_all(opened))[0]
        done = stream[-1]["response"]
        check("a stream is kept too", stream[-1]["type"] in ("response.completed", "response.incomplete") and stream[0]["response"]["store"] is True
              and output(done) == output(second) and kept(s, done) == (200, done), stream[-1])
        status, items = kept(s, second, rest="/input_items")
        check("its input", status == 200 and [i["content"] for i in items["data"]] == [[{"type": "input_text", "text": "And then?"}]]
              and items["data"][0]["type"] == "message" and items["first_id"] == items["data"][0]["id"], items)
        many = [{"role": "user", "content": f"n{i}"} for i in range(5)]
        _, five = respond(s, many)
        page = kept(s, five, rest="/input_items?limit=2")[1]
        rest = kept(s, five, rest=f"/input_items?limit=9&after={page['last_id']}")[1]
        check("in pages", [i["content"][0]["text"] for i in page["data"] + rest["data"]] == ["n4", "n3", "n2", "n1", "n0"]
              and page["has_more"] and not rest["has_more"], (page, rest))
        check("or from the first", [i["content"][0]["text"] for i in kept(s, five, rest="/input_items?order=asc")[1]["data"]] == [f"n{i}" for i in range(5)])
        status, gone = s.json("DELETE", f"{RESPONSES}/{first['id']}")
        check("one is deleted", status == 200 and gone == {"id": first["id"], "object": "response", "deleted": True}, gone)
        check("and gone", kept(s, first)[0] == 404 and s.json("DELETE", f"{RESPONSES}/{first['id']}")[0] == 404)
        status, body = respond(s, "x", previous_response_id=second["id"])
        check("nothing goes on from a chain with a gap", status == 400 and body["error"]["code"] == "previous_response_not_found", body)
        _, call = respond(s, [{"role": "user", "content": "Weather?"}, {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"}])
        status, after = respond(s, [{"type": "function_call_output", "call_id": "c1", "output": "sunny"}], previous_response_id=call["id"])
        check("results of calls", status == 200, after)
    with Server("-q", "--state", folder) as s:
        check("after a restart", kept(s, five) == (200, five) and respond(s, "x", previous_response_id=call["id"])[0] == 200)


def refused(folder):
    with Server("-q", "--state", folder) as s:
        first = respond(s, "Hello")[1]
        for name, fields in {"another type": {"previous_response_id": 1}, "none": {"previous_response_id": "resp_none"}, "an empty one": {"previous_response_id": ""}, "a long one": {"previous_response_id": "x" * 9999},
                             "store": {"store": "yes"}, "conversation": {"conversation": "c"}, "background": {"background": True}, "no input": {"input": None},
                             "no input behind another": {"input": None, "previous_response_id": first["id"]}, "an item": {"input": [1], "previous_response_id": first["id"]},
                             "a path": {"previous_response_id": "../../state.db"}, "SQL": {"previous_response_id": "' OR 1=1 --"}}.items():
            status, body = respond(s, "x", **fields)
            check(f"refused: {name}", status == 400 and body["error"]["message"], (status, body))
        for path in ("x", "", "../state.db", f"{first['id']}/other", f"{first['id']}/input_items/x", f"{first['id']}/"):
            check(f"no response {path}", s.json("GET", f"{RESPONSES}/{path}")[0] == 404)
        for query in ("limit=0", "limit=101", "order=up", "after=%zz"):
            check(f"?{query}", kept(s, first, rest=f"/input_items?{query}")[0] == 400)
        check("other methods", s.request("PUT", f"{RESPONSES}/x")[1]["allow"] == "GET, HEAD, DELETE, OPTIONS")


def keys(folder):
    one, two = bearer("first-key"), bearer("second-key")
    with Server("-q", "--state", folder, "--api-key", "first-key", "--api-key", "second-key") as s:
        mine = respond(s, "Hello", one)[1]
        check("a key's own", kept(s, mine, one) == (200, mine))
        check("another's", kept(s, mine, two)[0] == 404 and kept(s, mine, two, "/input_items")[0] == 404
              and s.json("DELETE", f"{RESPONSES}/{mine['id']}", headers=two)[0] == 404
              and respond(s, "x", two, previous_response_id=mine["id"])[0] == 400)
        check("it is still there", kept(s, mine, one)[0] == 200)


def fields(folder):
    """Of items that is kept which is read."""
    with Server("-q", "--state", folder) as s:
        item = {"role": "user", "content": [{"type": "input_text", "text": "x", "note": "y"}], "note": "y", "status": "completed", "id": "msg_mine"}
        long_id = {"role": "user", "content": "x", "id": "i" * 99, "status": "s" * 99}
        _, r = respond(s, [item, long_id])
        first, second = kept(s, r, rest="/input_items?order=asc")[1]["data"]
        check("fields that nobody reads are not kept", first == {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "x"}],
              "status": "completed", "id": "msg_mine"}, first)
        check("nor words that are none", len(second["id"]) < 64 and set(second) == {"type", "role", "content", "id"}, second)
        with Server("-q") as other:
            for name, wrong in {"no content": {"role": "user"}, "null": {"role": "user", "content": None}, "a number": 5, "a list": [], "no role": {"content": "x"},
                                "a type": {"type": 5, "role": "user", "content": "x"}, "a reference": {"type": "item_reference", "id": "msg_1"}}.items():
                got, want = respond(s, [wrong]), respond(other, [wrong])
                check(f"an item that is wrong: {name}", got == want and got[0] == 400, (got, want))
                check(f"behind another: {name}", respond(s, [wrong], previous_response_id=r["id"])[0] == 400)


def long_chain(folder):
    """A long conversation takes its time from nobody else."""
    one, two = bearer("first-key"), bearer("second-key")
    args = ("-q", "--state", folder, "--api-key", "first-key", "--api-key", "second-key")
    with Server(*args) as s:
        last = respond(s, "Hello", one)[1]["id"]
    db = sqlite3.connect(f"{folder}/state.db")
    owner, created, expires = db.execute("SELECT owner, created, expires FROM responses").fetchone()
    text = '[{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "a"}]%s}]'
    for i in range(990):
        db.execute("INSERT INTO responses(id, owner, previous, bytes, created, expires, body, input, output) VALUES(?, ?, ?, 100, ?, ?, '{}', ?, ?)",
                   (f"resp_{i}", owner, f"resp_{i - 1}" if i else None, created, expires, text % (', "note": "' + "z" * 20000000 + '"' if i == 989 else ""), text % ""))
    db.execute("UPDATE responses SET previous='resp_989' WHERE id=?", (last,))
    db.commit()
    db.close()
    with Server(*args) as s:
        for _ in range(5):  # the machine may stand still for another reason: not each time
            status, took, longest = go_on(s, last, one, two)
            if took < 8 * SLOW and longest < 2 * SLOW:
                break
        check("a long chain", status in (200, 400) and took < 8 * SLOW, (status, took))
        check("holds nobody up", longest < 2 * SLOW, longest)


def go_on(s, last, one, two):
    """The status of an answer to a chain, how long it takes, and how long another waits at most meanwhile."""
    got, longest, begin = [], 0, time.time()
    thread = threading.Thread(target=lambda: got.append(respond(s, "x", one, previous_response_id=last)))
    thread.start()
    while thread.is_alive():
        asked = time.time()
        s.request("GET", "/v1/files", None, two)
        longest = max(longest, time.time() - asked)
    thread.join()
    return got[0][0], time.time() - begin, longest


def others_room(folder):
    """Where another key has the room, what there is stays, and the new one is not kept."""
    one, two = bearer("first-key"), bearer("second-key")
    with Server("-q", "--state", folder, "--state-size", "1", "--api-key", "first-key", "--api-key", "second-key") as s:
        mine = [respond(s, f"n{i}", two)[1] for i in range(3)]
        for n in (900000, 100000, 20000, 5000, 1000, 200):
            while upload(s, b"x" * n, headers=one)[0] == 200:
                pass
        large = {"metadata": {f"k{i}": "v" * 500 for i in range(16)}}
        status, loose = respond(s, "x", two, **large)
        check("no room that one's own could make", status == 200 and loose["store"] is False, loose)
        check("an error where it has to be kept", respond(s, "x", two, store=True, **large)[0] == 507)
        check("and nothing is deleted for it", [kept(s, r, two)[0] for r in mine] == [200, 200, 200])
        status, small = respond(s, "n3", two)
        check("one's own make room", small["store"] is True and kept(s, small, two)[0] == 200 and kept(s, mine[0], two)[0] == 404
              and kept(s, mine[2], two)[0] == 200, small)


def memory(folder):
    """What will not be kept is not held while an answer is made."""
    def held(path, body):
        with Server("-q", "--state", folder, "--parallel", "1") as s:
            data = json.dumps({**body, **ENDLESS}).encode()
            open_ones = [s.connect() for _ in range(5)]
            for c in open_ones:
                c.sendall(f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data)
            s.wait_metric("vllm:num_requests_waiting", lambda v: v == 4)
            with open(f"/proc/{s.process.pid}/status") as f:
                size = next(int(line.split()[1]) for line in f if line.startswith("VmRSS"))
            for c in open_ones:
                c.close()
            return size >> 10
    if os.environ.get("SAN"):
        skip("memory of requests", "a sanitizer has its own")
        return
    item = {"role": "user", "content": "x", "note": "z" * 20000000}
    chat = held("/v1/chat/completions", {"messages": [item]})
    loose = held(RESPONSES, {"input": [item], "store": False})
    strict = held(RESPONSES, {"input": [item]})
    check("responses hold no more than chats", max(loose, strict) < chat + 50, (chat, loose, strict))


def limits(folder):
    """Half of all room is for responses, and the older ones make room."""
    def large(n):
        return [{"role": "user", "content": "x"}, {"type": "function_call", "call_id": "z" * n, "name": "f", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "z" * n, "output": "y"}]
    with Server("-q", "--state", folder, "--state-size", "1", "--max-body", "1") as s:
        made = [respond(s, large(60000))[1] for _ in range(6)]
        there = [kept(s, r)[0] for r in made]
        check("older ones make room", there == [404, 404, 200, 200, 200, 200] and all(r["store"] for r in made), there)
        huge = large(300000)
        status, loose = respond(s, huge)
        check("too large to keep", status == 200 and loose["store"] is False, loose)
        status, body = respond(s, huge, store=True)
        check("unless it has to be", status == 507 and body["error"]["code"] == "insufficient_storage", body)
    with Server("-q", "--state", folder, "--max-body", "1") as s:
        previous = None
        for i in range(6):
            status, body = respond(s, large(150000), **({"previous_response_id": previous} if previous else {}))
            if status != 200:
                break
            previous = body["id"]
        check("a chain has the size of a request", status == 413 and i >= 3, (i, status, body))


def killed(folder):
    """What was answered as kept is there."""
    rng, made = random.Random(4), []

    def work(s):
        previous = None
        try:
            while True:
                status, r = respond(s, f"n{len(made)}", **({"previous_response_id": previous} if previous else {}))
                if status == 200:
                    made.append(r)
                    previous = r["id"]
        except (OSError, ValueError, http.client.HTTPException):
            return

    turn = 0
    while turn < 6 or (turn < 60 and not (len(made) > 5 and any(r["previous_response_id"] for r in made))):  # a slow machine makes few at a time
        turn += 1
        s = Server("-q", "--state", folder)
        threads = [threading.Thread(target=work, args=(s,)) for _ in range(3)]
        for t in threads:
            t.start()
        threads[0].join(rng.uniform(0.1, 0.6))
        s.process.send_signal(signal.SIGKILL)
        s.process.wait()
        for t in threads:
            t.join()
    with Server("-q", "--state", folder) as s:
        check("killed at random: all are there", len(made) > 5 and all(kept(s, r) == (200, r) for r in made), len(made))
        last = [r for r in made if r["previous_response_id"]][-1]
        check("killed at random: chains too", respond(s, "x", previous_response_id=last["id"])[0] == 200)


def full(folder):
    with Server("-q", "--state", folder) as s:
        first = respond(s, "Hello")[1]
        resource.prlimit(s.process.pid, resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
        status, loose = respond(s, "Hello")
        check("no room: an answer all the same", status == 200 and loose["store"] is False and output(loose) == output(first), loose)
        status, body = respond(s, "Hello", store=True)
        check("no room: an error where it has to be kept", status in (500, 507), (status, body))
        stream = events(read_all(s.open_stream(path=RESPONSES, prompt=None, input="Hello", max_output_tokens=24, store=True)))[0]
        check("no room: the end of a stream", stream[-1]["type"] == "error" and stream[-2]["type"] == "response.failed", stream[-1])
        check("no room: what is there is there", kept(s, first) == (200, first) and respond(s, "x", previous_response_id=first["id"])[0] == 200)
        resource.prlimit(s.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        check("room again", respond(s, "Hello", store=True)[0] == 200)


def without_state():
    with Server("-q") as s:
        r = respond(s, "Hello", store=True)[1]
        check("without --state nothing is kept", r["store"] is False and kept(s, r)[0] == 404)
        status, body = respond(s, "Hello", previous_response_id=r["id"])
        check("which a request is told", status == 400 and "--state" in body["error"]["message"], json.dumps(body))


if __name__ == "__main__":
    run([without_state])
    run_with_state(chains, refused, keys, fields, long_chain, others_room, memory, limits, killed, full)
    finish()
