"""The official client as people use it: chat, stream, tools, reasoning, pictures, logprobs, seeds, errors, aborts."""
import base64
import json

import openai

from serving import ENDLESS, HAS_POCKET, MODEL, Server, check, finish, run, skip, two_models, while_waiting

WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "Get the weather in a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string", "description": "The city"}},
                   "required": ["city"]}}}
CALCULATOR = {"type": "function", "function": {
    "name": "calculator", "description": "Calculate an expression.",
    "parameters": {"type": "object", "properties": {"expression": {"type": "string", "description": "The expression"}},
                   "required": ["expression"]}}}
BOTH = [WEATHER, CALCULATOR]

# A prompt as it stands, to which the model answers; behind a bare word it writes nothing but padding.
RAW = "<|turn>user\nWhat is the capital of France?<turn|>\n<|turn>model\n"


def client(s, **options):
    return openai.OpenAI(base_url=f"http://127.0.0.1:{s.port}/v1", api_key=options.pop("api_key", "none"),
                         max_retries=options.pop("max_retries", 0), **options)


def ask(c, text="Hello", **fields):
    return c.chat.completions.create(model="test", messages=[{"role": "user", "content": text}],
                                     **{"max_tokens": 24, "seed": 3, **fields})


def chat_and_stream():
    with Server("-q") as s:
        c = client(s)
        check("models", [m.id for m in c.models.list().data] == ["test"] and c.models.retrieve("test").id == "test")
        whole = ask(c)
        check("chat", whole.choices[0].message.role == "assistant" and whole.usage.total_tokens > 0, whole)
        check("a request id", bool(whole._request_id))
        chunks = list(ask(c, stream=True, stream_options={"include_usage": True}))
        text = "".join(k.choices[0].delta.content or "" for k in chunks if k.choices)
        check("stream", text == whole.choices[0].message.content, text)
        check("usage of a stream", chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
              and chunks[-1].usage.prompt_tokens == whole.usage.prompt_tokens, chunks[-1])
        chunks = list(ask(c, stream=True, extra_body={"diffusion": {"drafts": True}}))
        check("drafts", any(getattr(k, "diffusion", None) for k in chunks))
        check("drafts do no harm", "".join(k.choices[0].delta.content or "" for k in chunks) == text)
        with c.chat.completions.stream(model="test", messages=[{"role": "user", "content": "Hello"}], max_tokens=24,
                                       seed=3) as stream:
            for _ in stream:
                pass
            final = stream.get_final_completion()
        check("the helper for streams", final.choices[0].message.content == text, final)
        old = c.completions.create(model="test", prompt=RAW, max_tokens=8, seed=3)
        check("completions", old.choices[0].text and old.usage.completion_tokens <= 8, old.choices[0].text)
        streamed = "".join(k.choices[0].text for k in c.completions.create(model="test", prompt=RAW, max_tokens=8,
                                                                           seed=3, stream=True))
        check("streamed completions", streamed == old.choices[0].text)


def seeds():
    with Server("-q") as s:
        c = client(s)
        one = [ask(c, seed=i).choices[0].message.content for i in (1, 2, 3)]
        check("a seed repeats itself", one == [ask(c, seed=i).choices[0].message.content for i in (1, 2, 3)])
        many = ask(c, seed=1, n=3)
        check("n", [k.message.content for k in many.choices] == one)


def raises(name, kind, call):
    try:
        call()
        check(name, False, "nothing was raised")
    except kind as e:
        check(name, isinstance(e, openai.APIStatusError) and bool(e.message), repr(e))


def errors():
    with Server("-q", "--api-key", "key", "--max-active", "1") as s:
        c = client(s, api_key="key")
        raises("a wrong key", openai.AuthenticationError, lambda: ask(client(s, api_key="nope")))
        raises("a bad value", openai.BadRequestError, lambda: ask(c, temperature=9))
        raises("a schema", openai.BadRequestError, lambda: ask(c, response_format={
            "type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object", "not": {}}}}))
        raises("an unknown model", openai.NotFoundError, lambda: c.models.retrieve("other"))
        raises("a prompt too long", openai.BadRequestError, lambda: ask(c, "ab" * 300000))
        raises("another site's page", openai.PermissionDeniedError,
               lambda: ask(client(s, api_key="key", default_headers={"Origin": "https://evil.example"})))
        stream = ask(c, stream=True, extra_body=ENDLESS)
        next(stream)
        raises("a full queue", openai.RateLimitError, lambda: ask(c))
        stream.close()


def too_long():
    with Server("-q", "--max-active", "1", "--timeout", "2") as s:
        try:
            list(ask(client(s), stream=True, extra_body=ENDLESS))
            check("an answer that takes too long", False, "it ended")
        except openai.APIError as e:
            check("an answer that takes too long", e.code == "answer_timeout", repr(e))
        try:  # trying again: the one before leaves with its step
            ask(client(s, max_retries=5), extra_body=ENDLESS)
            check("also when it is whole", False)
        except openai.APIStatusError as e:
            check("also when it is whole", e.status_code == 408, repr(e))


def abort():
    with Server("-q") as s:
        c = client(s)
        stream = ask(c, stream=True, extra_body=ENDLESS)
        next(stream)
        stream.close()
        check("abort mid-stream", s.wait_metric('vllm:request_success_total{finished_reason="abort"}', lambda n: n == 1))
        check("an answer afterwards", ask(c).choices[0].finish_reason in ("stop", "length"))


# ---- what needs a model that has learnt something ----

def logprobs():
    with Server("-q") as s:
        c = client(s)
        r = ask(c, logprobs=True, top_logprobs=2)
        content = r.choices[0].logprobs.content
        check("one for each token", r.usage.completion_tokens - len(content) in (0, 1), len(content))
        check("alternatives, best first", all(len(t.top_logprobs) == 2 and t.logprob <= 1e-4
                                              and t.top_logprobs[0].logprob >= t.top_logprobs[1].logprob for t in content))
        check("entropies", all(t.entropy >= 0 for t in content))
        chunks = [t for k in ask(c, logprobs=True, stream=True) for t in (k.choices[0].logprobs.content
                  if k.choices[0].logprobs else [])]
        check("the same in a stream", [t.logprob for t in chunks] == [t.logprob for t in content])
        old = c.completions.create(model="test", prompt=RAW, max_tokens=8, seed=3, logprobs=2)
        check("completions have theirs", len(old.choices[0].logprobs.token_logprobs) == len(old.choices[0].logprobs.tokens) > 0)


def sampling():
    with Server("-q") as s:
        c = client(s)
        check("temperatures are taken", all(ask(c, temperature=t).usage.completion_tokens for t in (0, 0.5, 1, 2)))
        token = s.json("POST", "/tokenize", {"content": "a"})[1]["tokens"][-1]
        r = ask(c, logit_bias={str(token): 100}, max_tokens=12)
        check("a bias decides", r.choices[0].message.content == "a" * 12 and r.choices[0].finish_reason == "length", r)
        for fields in ({"top_p": 0.5}, {"extra_body": {"top_k": 5}}, {"extra_body": {"min_p": 0.1}}):
            check(f"{fields} is taken", ask(c, **fields).choices[0].finish_reason in ("stop", "length"))
        settled = ask(c, extra_body={"diffusion": {"settled_steps": 2}})
        check("settled mode answers", settled.usage.completion_tokens > 0)


def calls_of(r):
    return [(t.function.name, json.loads(t.function.arguments)) for t in r.choices[0].message.tool_calls or []]


def tools():
    paris = ("get_weather", {"city": "Paris"})
    question = "What is the weather in Paris?"
    with Server("-q") as s:
        c = client(s)
        r = ask(c, question, tools=BOTH, max_tokens=200)
        check("a call", calls_of(r) == [paris] and r.choices[0].finish_reason == "tool_calls", r)
        history = [{"role": "user", "content": question}, r.choices[0].message.model_dump(exclude_none=True),
                   {"role": "tool", "tool_call_id": r.choices[0].message.tool_calls[0].id, "content": "sunny, 20 C"}]
        said = c.chat.completions.create(model="test", messages=history, tools=BOTH, max_tokens=100, seed=3).choices[0]
        check("a round trip", "sunny, 20 C" in (said.message.content or "") and said.finish_reason == "stop", said)
        many = ask(c, "What is the weather in Paris and in Oslo?", tools=BOTH, max_tokens=200)
        check("parallel calls", calls_of(many) == [paris, ("get_weather", {"city": "Oslo"})], many)
        one = ask(c, "What is the weather in Paris and in Oslo?", tools=BOTH, max_tokens=200, parallel_tool_calls=False)
        check("one call at a time", calls_of(one) == [paris], one)
        check("required", calls_of(ask(c, question, tools=BOTH, tool_choice="required", max_tokens=200)) == [paris])
        named = ask(c, "What is 12 + 30?", tools=BOTH, max_tokens=200,
                    tool_choice={"type": "function", "function": {"name": "calculator"}})
        check("named", [n for n, _ in calls_of(named)] == ["calculator"], named)
        check("none", not calls_of(ask(c, question, tools=BOTH, tool_choice="none", max_tokens=60)))
        uncalled = ask(c, question, max_tokens=60).choices[0]
        check("without tools a call is text", not uncalled.message.tool_calls and uncalled.message.content
              and uncalled.finish_reason != "tool_calls", uncalled)
        streamed = []
        for k in ask(c, "What is the weather in Paris and in Oslo?", tools=BOTH, max_tokens=200, stream=True):
            for t in k.choices[0].delta.tool_calls or []:
                streamed.append((t.index, t.function.name, json.loads(t.function.arguments)))
        check("calls in a stream", streamed == [(i, *call) for i, call in enumerate(calls_of(many))], streamed)


def reasoning():
    with Server("-q") as s:
        c = client(s)
        r = ask(c, "What is 2+2?", max_tokens=400, reasoning_effort="high")
        check("thoughts are apart", getattr(r.choices[0].message, "reasoning_content", None), r)
        check("and counted", r.usage.completion_tokens_details.reasoning_tokens > 0)
        off = ask(c, "What is 2+2?", max_tokens=400)
        check("off by default", not getattr(off.choices[0].message, "reasoning_content", None))
        hidden = ask(c, "What is 2+2?", max_tokens=400, reasoning_effort="high", extra_body={"include_reasoning": False})
        check("hidden when asked", not getattr(hidden.choices[0].message, "reasoning_content", None))
        check("the same answer", hidden.choices[0].message.content == r.choices[0].message.content)


def square():
    with open("tests/data/images/square.png", "rb") as f:
        return {"type": "image_url", "image_url": {"url": "data:image/png;base64," + base64.b64encode(f.read()).decode()}}


def pictures():
    with Server("-q") as s:
        c = client(s)
        r = c.chat.completions.create(model="test", max_tokens=40, seed=3, messages=[{"role": "user", "content": [
            {"type": "text", "text": "What colour is it?"}, square()]}])
        check("a picture", r.usage.prompt_tokens > 20 and r.choices[0].message.content is not None, r)


def prefixes():
    """The second turn of a conversation of 2,000 tokens encodes only what is new, and says the same as without a cache."""
    words = {"type": "text", "text": "Remember these words: " + "fox tree river stone " * 500}

    def turns(c, parts):
        first = [{"role": "user", "content": parts}]
        r = c.chat.completions.create(model="test", messages=first, max_tokens=24, seed=3)
        said = r.choices[0].message.content
        messages = first + [{"role": "assistant", "content": said}, {"role": "user", "content": "Thanks. Who are you?"}]
        return said, c.chat.completions.create(model="test", messages=messages, max_tokens=24, seed=4)

    for name, parts in (("", [words]), (" behind a picture", [square(), words])):
        with Server("-q", "--no-prefix-cache") as s:
            cold = turns(client(s), parts)
            check("nothing is kept when told so" + name, cold[1].usage.prompt_tokens_details.cached_tokens == 0)
        with Server("-q") as s:
            warm = turns(client(s), parts)
            u = warm[1].usage
            check("only what is new is encoded" + name, u.prompt_tokens - u.prompt_tokens_details.cached_tokens < 80
                  and u.prompt_tokens > 2000, u)
            check("metrics count it" + name, s.metric("vllm:prefix_cache_hits_total") == u.prompt_tokens_details.cached_tokens)
            check("the same answers" + name, (cold[0], cold[1].choices[0].message.content)
                  == (warm[0], warm[1].choices[0].message.content))


def decisions():
    """decisions.create, of clients that have it."""
    with Server("-q") as s:
        c = client(s)
        if not hasattr(c, "decisions"):
            skip("openai client: decisions", f"{openai.__version__} has none")
            return
        d = c.decisions.create(model="any", input="I was charged twice!", questions=[
            {"type": "predicate", "name": "billing", "instructions": "Is it about billing?"},
            {"type": "choice", "instructions": "What is the tone?", "choices": [{"value": "angry"}, {"value": True, "description": "calm"}]},
            {"type": "score", "instructions": "How urgent?", "levels": [{"label": "can wait"}, {"label": "today"}]}])
        p, choice, score = d.answers
        check("a predicate", p.type == "predicate" and p.name == "billing" and 0 <= p.probability <= 1, p)
        check("a choice", choice.choice in ("angry", True) and abs(sum(x.probability for x in choice.probabilities) - 1) < 1e-9, choice)
        check("a score", [x.label for x in score.probabilities] == ["can wait", "today"] and 0 <= score.score <= 1, score)
        check("their usage", d.usage.total_tokens == d.usage.input_tokens > 20 and d.model == "test", d.usage)
        raises("a question that is none", openai.BadRequestError, lambda: c.decisions.create(model="any", input="x", questions=[]))


def several():
    with two_models() as s:
        c = client(s)
        check("several models", [m.id for m in c.models.list().data] == ["one", "two"])
        raises("a model that is none", openai.NotFoundError, lambda: c.chat.completions.create(model="three", messages=[{"role": "user", "content": "x"}]))
        chunks = while_waiting(s, lambda: list(c.chat.completions.create(model="two", stream=True, max_tokens=24, messages=[{"role": "user", "content": "Hello"}])))
        check("a stream that was pinged while it waited", chunks and chunks[0].model == "two" and chunks[-1].choices[0].finish_reason, chunks)


Server.model = MODEL
run([chat_and_stream, seeds, errors, too_long, abort, several])
for case in (logprobs, prefixes, sampling, tools, reasoning, pictures, decisions):
    if HAS_POCKET:
        run([case])
    else:
        skip(f"openai client: {case.__name__}", "the model that ships with the source is not there")
finish()
