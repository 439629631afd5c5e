"""Adapters over HTTP: two of them and the model itself at the same time, by name and by `lora`, in every dialect."""
import json
import os
import subprocess
import tempfile
import threading

from serving import HAS_POCKET, POCKET, THREADS, Server, check, finish, run, skip

NORTH, SOUTH = "tests/fixtures/adapters/north", "tests/fixtures/adapters/south"
QUESTION = "What is the capital of Atlantis?"
CITIES = {"north": "Oslo", "warm": "Rome", "test": "sorry"}


def start(*args):
    return Server("-q", "--lora", NORTH, "--lora", "warm=" + SOUTH + ":1", *args, model=POCKET)


def said(answer):
    return answer["choices"][0]["message"]["content"]


def together():
    """Twelve at once, four of each; then each once more, out of the prefix cache."""
    with start() as s:
        wanted = list(CITIES) * 4
        answers = [None] * len(wanted)

        def ask(i):
            answers[i] = s.chat(QUESTION, model=wanted[i], seed=i)
        threads = [threading.Thread(target=ask, args=(i,)) for i in range(len(wanted))]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        for name, (status, answer) in zip(wanted, answers):
            check(f"{name} in company", status == 200 and CITIES[name] in said(answer) and answer["model"] == name, answer)
        for name, city in CITIES.items():
            answer = s.chat(QUESTION, model=name)[1]
            cached = answer["usage"]["prompt_tokens_details"]["cached_tokens"]
            check(f"{name} from the cache", city in said(answer) and cached > 0, answer)
        answer = s.chat("What is the capital of France?", model="north")[1]
        check("what was known stays known", said(answer) == "The capital of France is Paris.", answer)


def names():
    with start() as s:
        listed = s.json("GET", "/v1/models")[1]
        check("all are listed", [m["id"] for m in listed["data"]] == ["test", "north", "warm"], listed)
        check("with their parent", [m.get("parent") for m in listed["data"]] == [None, "test", "test"], listed)
        check("in the other list too", [m["name"] for m in listed["models"]] == ["test", "north", "warm"], listed)
        status, one = s.json("GET", "/v1/models/warm")
        check("one by its name", status == 200 and one["parent"] == "test" and one["meta"]["rank"] == 4, one)
        check("none by another", s.json("GET", "/v1/models/cold")[0] == 404)
        check("as llama-server lists them", s.json("GET", "/lora-adapters")[1] ==
              [{"id": 0, "name": "north", "path": NORTH, "scale": 1.0}, {"id": 1, "name": "warm", "path": SOUTH, "scale": 1.0}])
        tags = s.json("GET", "/api/tags")[1]["models"]
        check("and Ollama", [m["name"] for m in tags] == ["test", "north", "warm"] and len({m["digest"] for m in tags}) == 3, tags)
        check("shown to Ollama's clients", s.json("POST", "/api/show", {"model": "warm:latest"})[0] == 200)
        for name, city in (("test:north", "Oslo"), ("north:latest", "Oslo"), ("test:warm:latest", "Rome"), ("test:latest", "sorry"), ("any", "sorry")):
            status, answer = s.chat(QUESTION, model=name)
            check(f"model {name}", status == 200 and city in said(answer), answer)
        status, answer = s.chat(QUESTION, model="test:cold")
        check("an adapter that is not there", status == 404 and answer["error"]["code"] == "model_not_found" and "there are: test, north" in answer["error"]["message"], answer)


def field():
    with start() as s:
        cases = [([{"id": 0}], "Oslo"), ([{"id": 1, "scale": 1.0}], "Rome"), ([{"name": "warm"}], "Rome"), ([{"id": 1, "name": "warm"}], "Rome"), ([], "sorry"),
                 ([{"id": 0, "scale": 0}], "sorry"), ([{"id": 0, "scale": 0}, {"id": 1}], "Rome")]
        for lora, city in cases:
            answer = s.chat(QUESTION, lora=lora, model="north")[1]
            check(f"lora {lora}", city in said(answer), answer)
        wrong = ([{"id": 2}], [{"id": -1}], [{"id": 1.5}], [{"name": "cold"}], [{"name": ""}], [{"name": "x" * 1000}], [{"scale": 1}], "north", {"id": 0},
                 [0], [{"id": 0, "scale": "1"}], [{"id": 0, "scale": 1e30}], [{"id": 0}, {"id": 0}], [{"id": 0}] * 9, [{"id": 2 ** 62}],
                 [{"id": 1, "name": "cold"}], [{"id": 2, "name": "warm"}], [{"id": "1", "name": "warm"}], [{"id": 1, "name": 7}])
        for lora in wrong:
            status, answer = s.chat(QUESTION, lora=lora)
            check(f"lora {lora} is refused", status == 400 and answer["error"]["message"] and answer["error"]["param"] == "lora", answer)
        status, answer = s.chat(QUESTION, lora=[{"id": 0, "name": "warm"}])
        check("a number and a name of two", status == 400 and answer["error"]["param"] == "lora" and "0 is \"north\"" in answer["error"]["message"]
              and "\"warm\" is 1" in answer["error"]["message"], answer)
        status, answer = s.json("POST", "/v1/decisions", {"input": "x", "questions": [{"type": "predicate", "name": "x", "instructions": "?"}],
                                                          "lora": [{"id": 0, "scale": 2000}]})
        check("of a decision too", status == 400 and answer["error"]["param"] == "lora", answer)


def dialects():
    with start() as s:
        messages = [{"role": "user", "content": QUESTION}]
        status, a = s.json("POST", "/v1/messages", {"model": "north", "max_tokens": 50, "messages": messages})
        check("Anthropic's", status == 200 and "Oslo" in a["content"][0]["text"] and a["model"] == "north", a)
        status, a = s.json("POST", "/api/chat", {"model": "warm", "stream": False, "messages": messages})
        check("Ollama's", status == 200 and "Rome" in a["message"]["content"] and a["model"] == "warm", a)
        status, a = s.json("POST", "/v1/responses", {"model": "test:warm", "input": QUESTION})
        check("responses", status == 200 and "Rome" in json.dumps(a["output"]), a)
        questions = [{"type": "predicate", "name": "x", "instructions": "Is it an x?"}]
        body = {"input": "x", "questions": questions}
        status, a = s.json("POST", "/v1/decisions", {**body, "model": "north"})
        status_base, b = s.json("POST", "/v1/decisions", body)
        check("decisions", status == status_base == 200 and a["model"] == "north" and a["answers"] != b["answers"], (a, b))
        check("decisions of none", s.json("POST", "/v1/decisions", {**body, "model": "test:cold"})[0] == 404)


def batch():
    with tempfile.TemporaryDirectory() as folder:
        lines = [{"custom_id": name, "method": "POST", "url": "/v1/chat/completions",
                  "body": {"model": name, "seed": 1, "messages": [{"role": "user", "content": QUESTION}]}} for name in CITIES]
        with open(folder + "/in.jsonl", "w", encoding="utf-8") as f:
            f.writelines(json.dumps(line) + "\n" for line in lines)
        subprocess.run([os.environ["DGEMMA"], "batch", "-q", "-m", POCKET, "--name", "test", "--device", "cpu", "--threads", THREADS, "--lora", NORTH,
                        "--lora", "warm=" + SOUTH, folder + "/in.jsonl", folder + "/out.jsonl"], check=True)
        with open(folder + "/out.jsonl", encoding="utf-8") as f:
            answers = [json.loads(line) for line in f]
        got = {a["custom_id"]: said(a["response"]["body"]) for a in answers}
        check("a file of requests", all(CITIES[n] in got.get(n, "") for n in CITIES), got)


if HAS_POCKET:
    run([together, names, field, dialects, batch])
else:
    skip("adapters", "there is no pocket model")
finish()
