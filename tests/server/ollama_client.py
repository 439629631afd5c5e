"""The official ollama client: chat, generate, stream, tools, thinking, pictures, models, errors, abort."""
import base64
import json

import httpx
import ollama

from dialect_cases import (CAPITAL, JSON, SUM, SUM_SCHEMA, SUM_TEXT, TWO, WEATHER, WEATHER_SCHEMA, WEATHER_TEXT,
                           as_chat, picture, user)
from serving import ENDLESS, HAS_POCKET, MODEL, PATIENCE, Server, check, finish, run, skip, two_models, while_waiting

TOOLS = [{"type": "function", "function": {"name": "get_weather", "description": WEATHER_TEXT, "parameters": WEATHER_SCHEMA}},
         {"type": "function", "function": {"name": "calculator", "description": SUM_TEXT, "parameters": SUM_SCHEMA}}]


def client(s, **options):
    return ollama.Client(host=f"http://127.0.0.1:{s.port}", **options)


def ask(c, messages, options=None, **fields):
    if isinstance(messages, str):
        messages = user(messages)
    return c.chat(model="test", messages=messages, options={"seed": 3, "num_predict": 200, **(options or {})}, **fields)


def generate(c, prompt, options=None, **fields):
    return c.generate(model="test", prompt=prompt, options={"seed": 3, "num_predict": 200, **(options or {})}, **fields)


def chat_and_generate():
    with Server("-q") as s:
        c = client(s)
        wanted = as_chat(s, user(CAPITAL))["content"]
        r = ask(c, CAPITAL)
        check("chat", r.message.content == wanted and r.done and r.done_reason == "stop" and r.eval_count > 0
              and r.prompt_eval_count > 0 and r.total_duration >= r.eval_duration > 0, r)
        lines = list(ask(c, CAPITAL, stream=True))
        check("chat in a stream", "".join(x.message.content for x in lines) == wanted
              and [x.done for x in lines] == [False] * (len(lines) - 1) + [True], lines)
        check("counts in a stream", lines[-1].eval_count == r.eval_count and lines[-1].done_reason == "stop")
        g = generate(c, CAPITAL)
        check("generate", g.response == wanted and g.done, g)
        check("generate in a stream", "".join(x.response for x in generate(c, CAPITAL, stream=True)) == wanted)
        check("a system prompt", generate(c, CAPITAL, system="Be brief.").prompt_eval_count
              == ask(c, [{"role": "system", "content": "Be brief."}] + user(CAPITAL)).prompt_eval_count > r.prompt_eval_count)
        check("a raw prompt", generate(c, CAPITAL, raw=True, options={"num_predict": 4}).prompt_eval_count
              < r.prompt_eval_count)
        cut = ask(c, CAPITAL, options={"num_predict": 2})
        check("cut", cut.done_reason == "length" and cut.eval_count == 2, cut)
        if len(wanted) > 8:
            check("a stop", ask(c, CAPITAL, options={"stop": [wanted[4:7]]}).message.content
                  == wanted[:wanted.index(wanted[4:7])])
        check("options are taken", all(ask(c, CAPITAL, options=o).eval_count for o in (
            {"temperature": 0}, {"top_k": 5}, {"top_p": 0.5}, {"min_p": 0.1}, {"num_predict": -1}, {"num_ctx": 4096})))
        check("loading", generate(c, "").done_reason == "load" and c.chat(model="test", messages=[]).done_reason == "load")
        check("log-probabilities", len(ask(c, CAPITAL, logprobs=True, top_logprobs=2).logprobs[0].top_logprobs) == 2)


def models():
    with Server("-q") as s:
        c = client(s)
        check("tags", [m.model for m in c.list().models] == ["test"])
        check("ps", [m.model for m in c.ps().models] == ["test"])
        shown = c.show("test")
        check("show", "completion" in shown.capabilities and shown.modelinfo["general.architecture"] == "diffusion-gemma", shown)
        check("show of latest", c.show("test:latest").details.format == "gguf")


def raises(name, status, call, word):
    try:
        call()
        check(name, False, "nothing was raised")
    except ollama.ResponseError as e:
        check(name, e.status_code == status and word in e.error, (e.status_code, e.error))


def errors():
    with Server("-q", "--api-key", "key") as s:
        c = client(s, headers={"Authorization": "Bearer key"})
        raises("no key", 401, lambda: ask(client(s), CAPITAL), "key")
        raises("a bad value", 400, lambda: ask(c, CAPITAL, options={"temperature": 9}), "temperature")
        raises("a schema", 400, lambda: ask(c, CAPITAL, format={"type": "object", "not": {}}), "format")
        raises("a bad value in a stream", 400, lambda: list(ask(c, CAPITAL, stream=True, options={"top_p": 9})), "top_p")
        raises("a model that is not there", 404, lambda: c.show("other"), "not found")
        raises("a picture that is none", 400, lambda: generate(c, CAPITAL, images=[base64.b64encode(b"no").decode()]), "")
    # options that the client does not know do not get through it, so the rest is said without it
    with Server("-q", "--timeout", "2") as s:
        body = {"messages": user(CAPITAL), "diffusion": ENDLESS["diffusion"], "options": {"num_predict": 16}}
        r = httpx.post(f"http://127.0.0.1:{s.port}/api/chat", json={**body, "stream": False}, timeout=PATIENCE)
        check("an answer that takes too long", r.status_code == 408 and "longer" in r.json()["error"], r.text)
        for _ in range(5):  # if all of its time goes by before it begins, no stream does
            r = httpx.post(f"http://127.0.0.1:{s.port}/api/chat", json=body, timeout=PATIENCE)
            if r.status_code == 200:
                break
        check("also in a stream", r.status_code == 200 and "longer" in r.text.splitlines()[-1], r.text)


def abort():
    with Server("-q") as s:
        with httpx.stream("POST", f"http://127.0.0.1:{s.port}/api/chat", timeout=PATIENCE, json={
                "messages": user(CAPITAL), "diffusion": ENDLESS["diffusion"], "options": {"num_predict": 16}}) as r:
            check("a stream of lines", r.headers["content-type"] == "application/x-ndjson", r.headers)
        check("abort mid-stream", s.wait_metric('vllm:request_success_total{finished_reason="abort"}', lambda n: n == 1))


# ---- what needs a model that has learnt something ----

def calls_of(message):
    return [(t.function.name, dict(t.function.arguments)) for t in message.tool_calls or []]


def tools():
    paris = ("get_weather", {"city": "Paris"})
    with Server("-q") as s:
        c = client(s)
        r = ask(c, WEATHER, tools=TOOLS)
        check("a call", calls_of(r.message) == [paris], r)
        history = user(WEATHER) + [r.message, {"role": "tool", "tool_name": "get_weather", "content": "sunny, 20 C"}]
        check("a round trip", "sunny, 20 C" in ask(c, history, tools=TOOLS).message.content)
        streamed = [call for x in ask(c, TWO, tools=TOOLS, stream=True) for call in calls_of(x.message)]
        check("calls in a stream", streamed == [paris, ("get_weather", {"city": "Oslo"})], streamed)

        def get_weather(city: str) -> str:
            """Get the weather in a city.

            Args:
              city: The city
            """
            return city

        check("a function as a tool", calls_of(ask(c, WEATHER, tools=[get_weather]).message) == [paris])


def thinking():
    with Server("-q") as s:
        c = client(s)
        r = ask(c, SUM, think=True)
        check("thoughts are apart", r.message.thinking and "thought" not in r.message.content, r)
        check("off by default", not ask(c, SUM).message.thinking)
        check("a level", ask(c, SUM, think="high").message.thinking == r.message.thinking)
        lines = list(ask(c, SUM, think=True, stream=True))
        check("the same in a stream", "".join(x.message.thinking or "" for x in lines) == r.message.thinking
              and "".join(x.message.content for x in lines) == r.message.content)
        check("in generate too", generate(c, SUM, think=True).thinking == r.message.thinking)


def pictures():
    kind, data, question = picture()
    with Server("-q") as s:
        c = client(s)
        wanted = as_chat(s, user([{"type": "image_url", "image_url": {"url": f"data:{kind};base64,{data}"}},
                                  {"type": "text", "text": question}]))["content"]
        said = ask(c, [{"role": "user", "content": question, "images": [base64.b64decode(data)]}])
        check("a picture", said.message.content == wanted, (wanted, said))
        check("in generate too", generate(c, question, images=[data]).response == wanted)


def json_answers():
    with Server("-q") as s:
        c = client(s)
        wanted = as_chat(s, user(JSON), response_format={"type": "json_object"})["content"]
        said = ask(c, JSON, format="json").message.content
        check("JSON", said == wanted and json.loads(said)["age"] == 59, said)
        said = "".join(x.response for x in generate(c, JSON, format="json", stream=True))
        check("JSON in a stream", said == wanted, said)


def several():
    with two_models() as s:
        c = client(s)
        raises("a model that is none", 404, lambda: c.chat(model="three", messages=user("x")), "three")
        check("several models", [m.model for m in c.list().models] == ["one", "two"] and not c.ps().models)
        parts = while_waiting(s, lambda: list(c.chat(model="two", stream=True, messages=user("Hello"), options={"num_predict": 24}, keep_alive="5m")))
        check("a stream that was pinged while it waited", len(parts) > 1 and parts[-1].done and all(p.model == "two" for p in parts), parts)
        check("the one that is there", [m.model for m in c.ps().models] == ["two"] and c.show("one").modelinfo["general.basename"] == "one")
        check("and that goes", c.generate(model="two", keep_alive=0).done_reason == "unload" and s.wait_metric("dgemma:model_loaded", lambda n: n == 0))


Server.model = MODEL
run([chat_and_generate, models, errors, abort, several])
for case in (tools, thinking, pictures, json_answers):
    if HAS_POCKET:
        run([case])
    else:
        skip(f"ollama client: {case.__name__}", "the model that ships with the source is not there")
finish()
