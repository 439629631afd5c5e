"""The official anthropic client: messages, stream, tools, thinking, pictures, counting, stops, errors, abort."""
import anthropic

from dialect_cases import (CAPITAL, SUM, SUM_SCHEMA, SUM_TEXT, TWO, WEATHER, WEATHER_SCHEMA, WEATHER_TEXT, as_chat, picture,
                           user)
from serving import ENDLESS, HAS_POCKET, MODEL, Server, check, finish, run, skip, two_models, while_waiting

TOOLS = [{"name": "get_weather", "description": WEATHER_TEXT, "input_schema": WEATHER_SCHEMA},
         {"name": "calculator", "description": SUM_TEXT, "input_schema": SUM_SCHEMA}]
THINK = {"type": "enabled", "budget_tokens": 1024}


def client(s, **options):
    return anthropic.Anthropic(base_url=f"http://127.0.0.1:{s.port}", api_key=options.pop("api_key", "none"),
                               max_retries=0, **options)


def given(messages, seed=3, **fields):
    if isinstance(messages, str):
        messages = user(messages)
    extra = {"seed": seed, **fields.pop("extra_body", {})}
    return {"model": "test", "messages": messages, "max_tokens": 200, "extra_body": extra, **fields}


def ask(c, messages, **fields):
    return c.messages.create(**given(messages, **fields))


def text_of(m):
    return "".join(b.text for b in m.content if b.type == "text")


def streamed(c, messages, **fields):
    with c.messages.stream(**given(messages, **fields)) as stream:
        kinds = [e.type for e in stream]
        return kinds, stream.get_final_message()


def messages():
    with Server("-q") as s:
        c = client(s)
        m = ask(c, CAPITAL)
        wanted = as_chat(s, user(CAPITAL))["content"]
        check("a message", text_of(m) == wanted and m.stop_reason == "end_turn" and m.role == "assistant"
              and m.usage.output_tokens > 0, m)
        check("a request id", m._request_id and m.id == "msg_" + m._request_id, m._request_id)
        check("the same from blocks", text_of(ask(c, user([{"type": "text", "text": CAPITAL}]))) == wanted)
        n = c.messages.count_tokens(model="test", messages=user(CAPITAL)).input_tokens
        check("tokens are counted", n == m.usage.input_tokens + m.usage.cache_read_input_tokens, (n, m.usage))
        system = c.messages.count_tokens(model="test", messages=user(CAPITAL), tools=TOOLS,
                                         system=[{"type": "text", "text": "Be brief."}]).input_tokens
        check("with a system prompt and tools", system > n + 20, system)
        kinds, final = streamed(c, CAPITAL)
        check("a stream", text_of(final) == wanted and final.stop_reason == "end_turn", final)
        check("in its order", kinds[0] == "message_start" and kinds[-1] == "message_stop"
              and kinds.index("content_block_start") < kinds.index("content_block_delta") < kinds.index("content_block_stop")
              < kinds.index("message_delta"), kinds)
        check("usage of a stream", final.usage.output_tokens == m.usage.output_tokens
              and final.usage.input_tokens + final.usage.cache_read_input_tokens == n, final.usage)
        with c.messages.stream(**given(CAPITAL)) as stream:
            check("text as it comes", "".join(stream.text_stream) == wanted)
        cut = ask(c, CAPITAL, max_tokens=2)
        check("cut", cut.stop_reason == "max_tokens" and cut.usage.output_tokens == 2, cut)
        if len(wanted) > 8:
            stop = wanted[4:7]
            m = ask(c, CAPITAL, stop_sequences=["\x01never", stop])
            check("a stop sequence", m.stop_reason == "stop_sequence" and m.stop_sequence == stop
                  and text_of(m) == wanted[:wanted.index(stop)], m)
            _, m = streamed(c, CAPITAL, stop_sequences=[stop])
            check("and in a stream", m.stop_reason == "stop_sequence" and m.stop_sequence == stop, m)
            begun = user(CAPITAL) + [{"role": "assistant", "content": wanted[:4]}]
            same = as_chat(s, begun, continue_final_message=True)["content"]
            check("an answer goes on from its beginning", text_of(ask(c, begun)) == same)


def raises(name, kind, call, word):
    try:
        call()
        check(name, False, "nothing was raised")
    except kind as e:
        check(name, isinstance(e.body, dict) and e.body["type"] == "error" and e.body["error"]["type"] == word
              and bool(e.body["error"]["message"]), (repr(e), getattr(e, "body", None)))


def errors():
    with Server("-q", "--api-key", "key") as s:
        c = client(s, api_key="key")
        check("x-api-key is a key", ask(c, CAPITAL, max_tokens=4).usage.output_tokens > 0)
        raises("a wrong key", anthropic.AuthenticationError, lambda: ask(client(s, api_key="nope"), CAPITAL),
               "authentication_error")
        raises("a bad value", anthropic.BadRequestError, lambda: ask(c, CAPITAL, extra_body={"temperature": 9}),
               "invalid_request_error")
        raises("a link for a picture", anthropic.BadRequestError, lambda: ask(c, user([
            {"type": "image", "source": {"type": "url", "url": "http://127.0.0.1/x.png"}}])), "invalid_request_error")
        raises("a tool of the service", anthropic.BadRequestError, lambda: ask(c, CAPITAL, tools=[
            {"type": "web_search_20250305", "name": "web_search"}]), "invalid_request_error")
        raises("a prompt too long", anthropic.BadRequestError, lambda: ask(c, "ab" * 300000), "invalid_request_error")
    with Server("-q", "--timeout", "2") as s:
        c = client(s)
        raises("an answer that takes too long", anthropic.APIStatusError,
               lambda: ask(c, CAPITAL, max_tokens=16, extra_body={"diffusion": ENDLESS["diffusion"]}), "timeout_error")
        raises("also in a stream", anthropic.APIStatusError,
               lambda: streamed(c, CAPITAL, max_tokens=16, extra_body={"diffusion": ENDLESS["diffusion"]}), "timeout_error")


def abort():
    with Server("-q") as s:
        stream = ask(client(s), CAPITAL, stream=True, max_tokens=16, extra_body={"diffusion": ENDLESS["diffusion"]})
        check("a message begins before its text", next(iter(stream)).type == "message_start")
        stream.close()
        check("abort mid-stream", s.wait_metric('vllm:request_success_total{finished_reason="abort"}', lambda n: n == 1))


# ---- what needs a model that has learnt something ----

def calls_of(m):
    return [(b.name, b.input) for b in m.content if b.type == "tool_use"]


def tools():
    paris = ("get_weather", {"city": "Paris"})
    with Server("-q") as s:
        c = client(s)
        m = ask(c, WEATHER, tools=TOOLS)
        check("a call", calls_of(m) == [paris] and m.stop_reason == "tool_use", m)
        use = next(b for b in m.content if b.type == "tool_use")
        for content in ("sunny, 20 C", [{"type": "text", "text": "sunny, 20 C"}]):
            history = user(WEATHER) + [{"role": "assistant", "content": m.content}] + user([
                {"type": "tool_result", "tool_use_id": use.id, "content": content}])
            end = ask(c, history, tools=TOOLS)
            check("a round trip", "sunny, 20 C" in text_of(end) and end.stop_reason == "end_turn", end)
        _, final = streamed(c, TWO, tools=TOOLS)
        check("calls in a stream", calls_of(final) == [paris, ("get_weather", {"city": "Oslo"})]
              and final.stop_reason == "tool_use", final)
        one = ask(c, TWO, tools=TOOLS, tool_choice={"type": "auto", "disable_parallel_tool_use": True})
        check("one at a time", calls_of(one) == [paris], one)
        check("any", calls_of(ask(c, WEATHER, tools=TOOLS, tool_choice={"type": "any"})) == [paris])
        named = ask(c, "What is 12 + 30?", tools=TOOLS, tool_choice={"type": "tool", "name": "calculator"})
        check("by name", [n for n, _ in calls_of(named)] == ["calculator"], named)
        check("none", not calls_of(ask(c, WEATHER, tools=TOOLS, tool_choice={"type": "none"})))


def thinking():
    with Server("-q") as s:
        c = client(s)
        m = ask(c, SUM, max_tokens=2000, thinking=THINK)
        check("thoughts are a block", [b.type for b in m.content] == ["thinking", "text"] and m.content[0].thinking, m)
        check("off by default", [b.type for b in ask(c, SUM).content] == ["text"])
        _, final = streamed(c, SUM, max_tokens=2000, thinking=THINK)
        check("the same in a stream", final.content[0].thinking == m.content[0].thinking
              and text_of(final) == text_of(m), final)
        history = user(SUM) + [{"role": "assistant", "content": m.content}] + user(CAPITAL)
        check("thoughts may be sent back", ask(c, history).stop_reason == "end_turn")


def pictures():
    kind, data, question = picture()
    with Server("-q") as s:
        wanted = as_chat(s, user([{"type": "image_url", "image_url": {"url": f"data:{kind};base64,{data}"}},
                                  {"type": "text", "text": question}]))["content"]
        blocks = [{"type": "image", "source": {"type": "base64", "media_type": kind, "data": data}},
                  {"type": "text", "text": question}]
        c = client(s)
        m = ask(c, user(blocks))
        check("a picture", text_of(m) == wanted, (wanted, m))
        n = c.messages.count_tokens(model="test", messages=user(blocks)).input_tokens
        check("it counts", n == m.usage.input_tokens + m.usage.cache_read_input_tokens > 50, (n, m.usage))


def several():
    with two_models() as s:
        c = client(s)
        raises("a model that is none", anthropic.NotFoundError, lambda: ask(c, "x", model="three"), "not_found_error")
        kinds, message = while_waiting(s, lambda: streamed(c, "Hello", model="two", max_tokens=24))
        check("a stream that was pinged while it waited", kinds[0] == "message_start" and message.model == "two" and message.stop_reason, (kinds, message))


Server.model = MODEL
run([messages, errors, abort, several])
for case in (tools, thinking, pictures):
    if HAS_POCKET:
        run([case])
    else:
        skip(f"anthropic client: {case.__name__}", "the model that ships with the source is not there")
finish()
