"""Responses that are kept: chains of them, keys, limits, kills, a disk that is full."""
import http.client
import json
import random
import resource
import signal
import threading

from serve_files import bearer, run_with_state
from serving import Server, check, events, finish, read_all, run

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
        for name, fields in {"another type": {"previous_response_id": 1}, "none": {"previous_response_id": "resp_none"}, "a long one": {"previous_response_id": "x" * 9999},
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


def limits(folder):
    """Half of all room is for responses, and the older ones make room."""
    with Server("-q", "--state", folder, "--state-size", "1", "--max-body", "1") as s:
        made = [respond(s, [{"role": "user", "content": "x"}, {"role": "user", "content": "y" * 100, "note": "z" * 120000}])[1] for _ in range(6)]
        there = [kept(s, r)[0] for r in made]
        check("older ones make room", there == [404, 404, 200, 200, 200, 200] and all(r["store"] for r in made), there)
        huge = [{"role": "user", "content": "x", "note": "z" * 600000}]
        status, loose = respond(s, huge)
        check("too large to keep", status == 200 and loose["store"] is False, loose)
        status, body = respond(s, huge, store=True)
        check("unless it has to be", status == 507 and body["error"]["code"] == "insufficient_storage", body)
    with Server("-q", "--state", folder, "--max-body", "1") as s:
        previous = None
        for i in range(6):
            status, body = respond(s, [{"role": "user", "content": "x", "note": "z" * 300000}], **({"previous_response_id": previous} if previous else {}))
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

    for _ in range(6):
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
        check("without --state nothing is kept", r["store"] is False and kept(s, r)[0] == 501)
        status, body = respond(s, "Hello", previous_response_id=r["id"])
        check("which a request is told", status == 400 and "--state" in body["error"]["message"], json.dumps(body))


if __name__ == "__main__":
    run([without_state])
    run_with_state(chains, refused, keys, limits, killed, full)
    finish()
