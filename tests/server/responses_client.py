"""The official openai client's Responses calls: text, stream, tools, thoughts, pictures, JSON, errors, abort."""
import json

import openai

from dialect_cases import (CAPITAL, JSON, SUM, SUM_SCHEMA, SUM_TEXT, TWO, WEATHER, WEATHER_SCHEMA, WEATHER_TEXT,
                           as_chat, picture, user)
from serving import ENDLESS, HAS_POCKET, MODEL, Server, check, finish, run, skip

TOOLS = [{"type": "function", "name": "get_weather", "description": WEATHER_TEXT, "parameters": WEATHER_SCHEMA,
          "strict": False},
         {"type": "function", "name": "calculator", "description": SUM_TEXT, "parameters": SUM_SCHEMA, "strict": False}]


def client(s, **options):
    return openai.OpenAI(base_url=f"http://127.0.0.1:{s.port}/v1", api_key=options.pop("api_key", "none"),
                         max_retries=0, **options)


def ask(c, given, seed=3, diffusion=None, **fields):
    extra = {"seed": seed, **({"diffusion": diffusion} if diffusion else {})}
    return c.responses.create(model="test", input=given, max_output_tokens=fields.pop("max_output_tokens", 200),
                              extra_body=extra, **fields)


def streamed(c, given, **fields):
    found = list(ask(c, given, stream=True, **fields))
    check("events are numbered", [e.sequence_number for e in found] == list(range(len(found))))
    check("a stream begins and ends", [e.type for e in found[:2]] == ["response.created", "response.in_progress"]
          and found[-1].type in ("response.completed", "response.incomplete"), [e.type for e in found])
    return found


def items_agree(found):
    """What was streamed piece by piece is what the last event says."""
    items = {}
    for e in found:
        if e.type == "response.output_item.added":
            items[e.output_index] = [e.item.type, ""]
        elif e.type in ("response.output_text.delta", "response.reasoning_text.delta",
                        "response.function_call_arguments.delta"):
            items[e.output_index][1] += e.delta
    said = [[i.type, i.arguments if i.type == "function_call" else i.content[0].text] for i in found[-1].response.output]
    done = [e.item.id for e in found if e.type == "response.output_item.done"]
    check("pieces make the whole", [items[k] for k in sorted(items)] == said, (items, said))
    check("each item ends once", done == [i.id for i in found[-1].response.output])


def text():
    with Server("-q") as s:
        c = client(s)
        r = ask(c, CAPITAL)
        wanted = as_chat(s, user(CAPITAL))["content"]
        check("text", r.output_text == wanted and r.status == "completed" and r.usage.total_tokens
              == r.usage.input_tokens + r.usage.output_tokens > 0, r)
        check("the same from items", ask(c, user(CAPITAL)).output_text == wanted)
        check("the same from parts", ask(c, user([{"type": "input_text", "text": CAPITAL}])).output_text == wanted)
        system = [{"role": "system", "content": "Be brief."}] + user(CAPITAL)
        check("instructions", ask(c, CAPITAL, instructions="Be brief.").usage.input_tokens
              == ask(c, system).usage.input_tokens > r.usage.input_tokens)
        found = streamed(c, CAPITAL)
        items_agree(found)
        check("streamed text", found[-1].response.output_text == wanted)
        check("usage of a stream", found[-1].response.usage.output_tokens == r.usage.output_tokens)
        with c.responses.stream(model="test", input=CAPITAL, max_output_tokens=200, extra_body={"seed": 3}) as stream:
            for _ in stream:
                pass
            check("the helper for streams", stream.get_final_response().output_text == wanted)
        cut = ask(c, CAPITAL, max_output_tokens=2)
        check("cut", cut.status == "incomplete" and cut.incomplete_details.reason == "max_output_tokens", cut)
        check("cut in a stream", streamed(c, CAPITAL, max_output_tokens=2)[-1].type == "response.incomplete")
        history = user(CAPITAL) + r.output + user("Thanks. " + CAPITAL)
        check("a conversation goes on", ask(c, history).usage.input_tokens > r.usage.input_tokens + r.usage.output_tokens)
        with_logprobs = ask(c, CAPITAL, include=["message.output_text.logprobs"], top_logprobs=2)
        entries = with_logprobs.output[0].content[0].logprobs
        check("log-probabilities", entries and all(len(t.top_logprobs) == 2 for t in entries), with_logprobs)


def raises(name, kind, call):
    try:
        call()
        check(name, False, "nothing was raised")
    except kind as e:
        check(name, isinstance(e, openai.APIError) and bool(e.message), repr(e))


def errors():
    with Server("-q", "--api-key", "key") as s:
        c = client(s, api_key="key")
        raises("a wrong key", openai.AuthenticationError, lambda: ask(client(s, api_key="nope"), CAPITAL))
        raises("a bad value", openai.BadRequestError, lambda: ask(c, CAPITAL, temperature=9))
        raises("an earlier response", openai.BadRequestError, lambda: ask(c, CAPITAL, previous_response_id="resp_1"))
        check("a hosted tool is left out", ask(c, CAPITAL, tools=[{"type": "web_search"}]).output_text)
        raises("a response that was not kept", openai.NotFoundError, lambda: c.responses.retrieve("resp_1"))
    with Server("-q", "--timeout", "2") as s:
        c, slow = client(s), {"diffusion": ENDLESS["diffusion"], "max_output_tokens": 16}
        raises("an answer that takes too long", openai.APIStatusError, lambda: ask(c, CAPITAL, **slow))
        raises("also in a stream", openai.APIError, lambda: list(ask(c, CAPITAL, stream=True, **slow)))


def abort():
    with Server("-q") as s:
        c = client(s)
        stream = ask(c, CAPITAL, stream=True, diffusion=ENDLESS["diffusion"], max_output_tokens=16)
        next(iter(stream))
        stream.close()
        check("abort mid-stream", s.wait_metric('vllm:request_success_total{finished_reason="abort"}', lambda n: n == 1))


# ---- what needs a model that has learnt something ----

def calls_of(output):
    return [(i.name, json.loads(i.arguments)) for i in output if i.type == "function_call"]


def tools():
    paris = ("get_weather", {"city": "Paris"})
    with Server("-q") as s:
        c = client(s)
        r = ask(c, WEATHER, tools=TOOLS)
        check("a call", calls_of(r.output) == [paris], r)
        history = user(WEATHER) + r.output + [{"type": "function_call_output", "output": "sunny, 20 C",
                                               "call_id": r.output[-1].call_id}]
        check("a round trip", "sunny, 20 C" in ask(c, history, tools=TOOLS).output_text)
        found = streamed(c, TWO, tools=TOOLS)
        items_agree(found)
        check("calls in a stream", calls_of(found[-1].response.output) == [paris, ("get_weather", {"city": "Oslo"})])
        check("one at a time", calls_of(ask(c, TWO, tools=TOOLS, parallel_tool_calls=False).output) == [paris])
        check("required", calls_of(ask(c, WEATHER, tools=TOOLS, tool_choice="required").output) == [paris])
        named = ask(c, "What is 12 + 30?", tools=TOOLS, tool_choice={"type": "function", "name": "calculator"})
        check("named", [n for n, _ in calls_of(named.output)] == ["calculator"], named)
        check("none", not calls_of(ask(c, WEATHER, tools=TOOLS, tool_choice="none").output))


def reasoning():
    with Server("-q") as s:
        c = client(s)
        r = ask(c, SUM, reasoning={"effort": "high"})
        check("thoughts are an item", [i.type for i in r.output] == ["reasoning", "message"] and r.output[0].content[0].text, r)
        check("and counted", r.usage.output_tokens_details.reasoning_tokens > 0)
        check("off by default", [i.type for i in ask(c, SUM).output] == ["message"])
        found = streamed(c, SUM, reasoning={"effort": "high"})
        items_agree(found)
        check("the same in a stream", found[-1].response.output_text == r.output_text)
        check("thoughts may be sent back", ask(c, user(SUM) + r.output + user(CAPITAL)).status == "completed")


def pictures():
    kind, data, question = picture()
    with Server("-q") as s:
        parts = [{"type": "input_image", "image_url": f"data:{kind};base64,{data}", "detail": "auto"},
                 {"type": "input_text", "text": question}]
        wanted = as_chat(s, user([{"type": "image_url", "image_url": {"url": f"data:{kind};base64,{data}"}},
                                  {"type": "text", "text": question}]))["content"]
        r = ask(client(s), user(parts))
        check("a picture", r.output_text == wanted and r.usage.input_tokens > 50, (wanted, r))


def json_answers():
    with Server("-q") as s:
        c = client(s)
        wish = {"format": {"type": "json_object"}}
        wanted = as_chat(s, user(JSON), response_format={"type": "json_object"})["content"]
        said = ask(c, JSON, text=wish).output_text
        check("JSON", said == wanted and json.loads(said)["age"] == 59, said)
        found = streamed(c, JSON, text=wish)
        items_agree(found)
        check("JSON in a stream", found[-1].response.output_text == wanted, found[-1])


Server.model = MODEL
run([text, errors, abort])
for case in (tools, reasoning, pictures, json_answers):
    if HAS_POCKET:
        run([case])
    else:
        skip(f"Responses: {case.__name__}", "the model that ships with the source is not there")
finish()
