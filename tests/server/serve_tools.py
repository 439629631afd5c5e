"""Tools that must be called, may be called, or were called functions once: in every dialect, whole and streamed."""
import json
import re

from serving import HAS_POCKET, MODEL, Server, check, events, finish, read_all, run, skip

CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"
SCHEMA = {"type": "object", "properties": {"city": {"type": "string", "description": "The city"}}, "required": ["city"]}
CAPITAL, WEATHER = "What is the capital of France?", "What is the weather in Paris?"


def flat(name, **fields):
    return {"name": name, "description": "Get the weather in a city.", **fields}


def forced(path, question, names, which, **fields):
    """A body that forces a call: of `which`, or of any of `names`."""
    if path == CHAT:
        return {"messages": [{"role": "user", "content": question}], "max_tokens": 60, "seed": 3,
                "tools": [{"type": "function", "function": flat(n, parameters=SCHEMA)} for n in names],
                "tool_choice": {"type": "function", "function": {"name": which}} if which else "required", **fields}
    if path == RESPONSES:
        return {"input": question, "max_output_tokens": 60, "seed": 3,
                "tools": [{"type": "function", **flat(n, parameters=SCHEMA)} for n in names],
                "tool_choice": {"type": "function", "name": which} if which else "required", **fields}
    return {"messages": [{"role": "user", "content": question}], "max_tokens": 60, "seed": 3,
            "tools": [flat(n, input_schema=SCHEMA) for n in names],
            "tool_choice": {"type": "tool", "name": which} if which else {"type": "any"}, **fields}


def calls_of(path, body):
    """Names and arguments of an answer's calls, and its text."""
    if path == CHAT:
        m = body["choices"][0]["message"]
        return [(c["function"]["name"], json.loads(c["function"]["arguments"])) for c in m.get("tool_calls", [])], m["content"]
    if path == RESPONSES:
        return ([(i["name"], json.loads(i["arguments"])) for i in body["output"] if i["type"] == "function_call"],
                "".join(p["text"] for i in body["output"] if i["type"] == "message" for p in i["content"]))
    return ([(b["name"], b["input"]) for b in body["content"] if b["type"] == "tool_use"],
            "".join(b["text"] for b in body["content"] if b["type"] == "text"))


def streamed(s, path, body):
    raw = json.dumps({**body, "stream": True}).encode()
    c = s.connect()
    c.sendall(b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % (path.encode(), len(raw)) + raw)
    return events(read_all(c))


def no_call():
    """A call is forced where the model would rather answer: it comes, nothing else does, and the model is asked once."""
    with Server("-q", model=MODEL) as s:
        for path in (CHAT, RESPONSES, MESSAGES):
            for names, which in ((["Capital"], "Capital"), (["Capital"], None), (["Capital", "Country"], None)):
                body = forced(path, CAPITAL, names, which)
                before = s.metric("vllm:request_success_total")
                status, answer = s.json("POST", path, body)
                calls, text = calls_of(path, answer) if status == 200 else ([], "")
                check(f"{path} {names} {which}: a call", calls and not text and {n for n, _ in calls} <= set(names)
                      and all(list(a) == ["city"] for _, a in calls), answer)
                check("at once", s.metric("vllm:request_success_total") - before == 1)
                found, raw = streamed(s, path, body)
                check("in a stream too", calls and calls[0][0] in raw and "call:" not in raw and "error" not in found[-1], raw)
        for n in range(2, 16):  # however few tokens there are
            status, answer = s.json("POST", CHAT, forced(CHAT, CAPITAL, ["get_weather"], None, max_tokens=n))
            if status == 200:
                calls, text = calls_of(CHAT, answer)
                check(f"{n} tokens: a whole call", calls and not text, answer)
            else:
                check(f"{n} tokens: too few", status == 400 and answer["error"]["code"] == "max_tokens_too_small", answer)


def broken_calls():
    """Where the model may call, a call that it opens can be read: of a tool that is declared, with arguments by its schema."""
    names = ["final_result", "get_weather"]

    def good(calls):
        return all(n in names and list(a) == ["city"] and isinstance(a["city"], str) for n, a in calls)
    with Server("-q", model=MODEL) as s:
        n_call = 0
        for path in (CHAT, RESPONSES, MESSAGES):
            for seed in range(2):
                body = forced(path, WEATHER, names, None, seed=seed)
                del body["tool_choice"]
                before = s.metric("vllm:request_success_total")
                status, answer = s.json("POST", path, body)
                calls = calls_of(path, answer)[0] if status == 200 else []
                n_call += len(calls)
                check(f"{path}: calls that can be read", status == 200 and good(calls), answer)
                check("at once", s.metric("vllm:request_success_total") - before == 1)
                found, raw = streamed(s, path, body)
                check(f"{path}: in a stream too", all(n in raw for n, _ in calls) and "error" not in found[-1], raw)
        check("some are made", n_call > 0)
        body = {"messages": [{"role": "user", "content": WEATHER}], "stream": False, "options": {"seed": 3},
                "tools": [{"type": "function", "function": flat(n, parameters=SCHEMA)} for n in names]}
        status, answer = s.json("POST", "/api/chat", body)
        message = answer.get("message", {})
        calls = [(c["function"]["name"], c["function"]["arguments"]) for c in message.get("tool_calls", [])]
        check("/api/chat: calls that can be read", status == 200 and calls and good(calls), answer)


def gibberish():
    """A model that has learnt nothing calls what it must, with arguments by the schema, the same ones for the same seed."""
    with Server("-q") as s:
        for path in (CHAT, RESPONSES, MESSAGES):
            for seed in range(2):
                body = forced(path, "Hello", ["f", "g"], None, seed=seed)
                status, answer = s.json("POST", path, body)
                calls, text = calls_of(path, answer) if status == 200 else ([], "")
                check("calls, whatever the model knows", calls and not text and {n for n, _ in calls} <= {"f", "g"}
                      and all(list(a) == ["city"] and isinstance(a["city"], str) for _, a in calls), answer)
                check("the same again", calls == calls_of(path, s.json("POST", path, body)[1])[0])


ORDER = {"type": "object", "properties": {"size": {"enum": ["small", "large"]}, "count": {"type": "integer", "minimum": 1,
                                                                                     "maximum": 9}},
         "required": ["size", "count"]}


def held():
    """Calls that the model would not make, or not so: held to tools and schemas."""
    with Server("-q", model=MODEL) as s:
        for path in (CHAT, RESPONSES, MESSAGES):
            short = forced(path, WEATHER, ["get_weather"], "get_weather",
                           **{"max_output_tokens" if path == RESPONSES else "max_tokens": 2})
            status, answer = s.json("POST", path, short)
            check(f"{path}: too few tokens", status == 400 and "max_tokens is 2: the shortest" in answer["error"]["message"], answer)
        for fields in ({"tool_choice": "required"}, {"tool_choice": "required", "parallel_tool_calls": False},
                       {"tool_choice": "required", "enable_thinking": True, "max_tokens": 400}):
            body = forced(CHAT, CAPITAL, ["order"], None, **fields)
            body["tools"][0]["function"].update(parameters=ORDER, strict=True)
            status, answer = s.json("POST", CHAT, body)
            calls, text = calls_of(CHAT, answer) if status == 200 else ([], "")
            check(f"arguments by the schema: {fields}", calls and not text and all(
                list(a) == ["count", "size"] and a["size"] in ("small", "large") and a["count"] in range(1, 10)
                for _, a in calls) and (len(calls) == 1 or "parallel_tool_calls" not in fields), answer)
        body = forced(CHAT, CAPITAL, ["f"], None, tool_choice="auto", response_format={
            "type": "json_schema", "json_schema": {"name": "x", "schema": ORDER}})
        status, answer = s.json("POST", CHAT, body)
        calls, text = calls_of(CHAT, answer) if status == 200 else ([], "")
        check("a schema beside tools", calls or set(json.loads(text)) == {"size", "count"}, answer)
        loose = {"type": "object", "properties": {"tags": {"type": "array", "uniqueItems": True}}}
        for strict in (False, True):
            body = forced(CHAT, CAPITAL, ["f"], "f")
            body["tools"][0]["function"].update(parameters=loose, strict=strict)
            status, answer = s.json("POST", CHAT, body)
            if strict:
                check("a strict tool is refused", status == 400 and answer["error"]["code"] == "unsupported_schema"
                      and answer["error"]["param"] == "/tools/0/function/parameters/properties/tags", answer)
            else:
                check("what is not held to is told", answer["timings"]["diffusion"]["constraint"]["ignored"]
                      == ["uniqueItems at #/0/function/parameters/properties/tags"], answer)
        violations(s)


def violations(s):
    """Answers that have no choice but to violate what they are not held to, or not to."""
    def told(answer):
        constraint = answer["timings"]["diffusion"]["constraint"]
        return constraint["ignored"], constraint.get("violated")
    for name, second, violated in (("violated", 1, ["uniqueItems at #/properties/two"]), ("kept", 2, [])):
        two = {"type": "array", "prefixItems": [{"const": 1}, {"const": second}], "minItems": 2, "items": False, "uniqueItems": True}
        schema = {"type": "object", "properties": {"two": two}, "required": ["two"]}
        form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema, "strict": False}}
        ignored = ["uniqueItems at #/properties/two"]
        status, answer = s.chat(response_format=form, max_tokens=100)
        check(f"a keyword that is not held to, {name}", status == 200 and told(answer) == (ignored, violated), answer)
        check("how much the model resists is told", answer["timings"]["diffusion"]["constraint"]["resistance"] > 0, answer)
        stream = read_all(s.open_stream(response_format=form, max_tokens=100, diffusion={"drafts": True})).decode()
        check("in a stream too", f'"violated":{json.dumps(violated)}' in stream, name)
        drafts = re.findall(r'"type": ?"draft".*?"resistance": ?([0-9.e-]+)', stream)
        check("and in each draft", drafts and max(map(float, drafts)) > 0, stream[:2000])
        body = forced(CHAT, CAPITAL, ["f"], "f")
        body["tools"][0]["function"].update(parameters=schema)
        status, answer = s.json("POST", CHAT, body)
        inside = [line.replace("#", "#/0/function/parameters") for line in violated]
        check(f"and in a call, {name}", status == 200 and told(answer)[1] == inside, answer)
    form["json_schema"]["schema"] = {"type": "integer"}
    check("nothing is looked at where nothing was left out", told(s.chat(response_format=form)[1]) == ([], None))


def calls():
    paris = [("get_weather", {"city": "Paris"})]
    with Server("-q", model=MODEL) as s:
        for path in (CHAT, RESPONSES, MESSAGES):
            for names, which in ((["get_weather"], "get_weather"), (["get_weather"], None), (["get_weather", "search"], None)):
                body = forced(path, WEATHER, names, which)
                status, answer = s.json("POST", path, body)
                check(f"{path} {names} {which}: a call", status == 200 and calls_of(path, answer)[0] == paris, answer)
                found, raw = streamed(s, path, body)
                check("in a stream too", raw.count("get_weather") >= 1 and "Paris" in raw and "call:" not in raw
                      and "error" not in found[-1], raw)
        many = "What is the weather in Paris and in Oslo?"
        two = calls_of(CHAT, s.json("POST", CHAT, forced(CHAT, many, ["get_weather"], None))[1])[0]
        one = calls_of(CHAT, s.json("POST", CHAT, forced(CHAT, many, ["get_weather"], None, parallel_tool_calls=False))[1])[0]
        check("one at a time", len(two) == 2 and one == two[:1], (one, two))
        body = forced(MESSAGES, many, ["get_weather"], None)
        body["tool_choice"]["disable_parallel_tool_use"] = True
        check("in Anthropic's words", calls_of(MESSAGES, s.json("POST", MESSAGES, body)[1])[0] == two[:1])


def no_tools():
    """A call where there are no tools to call comes as text: the prompt of a completion declares what it likes."""
    q = '<|"|>'
    prompt = (f"<|turn>system\n<|tool>declaration:get_weather{{description:{q}Get the weather in a city.{q},parameters:{{properties:"
              f"{{city:{{description:{q}The city{q},type:{q}STRING{q}}}}},required:[{q}city{q}],type:{q}OBJECT{q}}}}}<tool|><turn|>\n"
              f"<|turn>user\n{WEATHER}<turn|>\n<|turn>model\n")
    with Server("-q", model=MODEL) as s:
        status, answer = s.json("POST", "/v1/completions", {"prompt": prompt, "seed": 3})
        choice = answer["choices"][0] if status == 200 else {}
        check("a call without tools is text", choice.get("text") == '{"name": "get_weather", "arguments": {"city":"Paris"}}'
              and choice["finish_reason"] == "stop", answer)


def allowed():
    """Of the tools that are declared some may be called."""
    with Server("-q", model=MODEL) as s:
        def ask(path, mode, *names):
            body = forced(path, WEATHER, ["search", "get_weather"], None)
            tools = [{"type": "function", **({"function": {"name": n}} if path == CHAT else {"name": n})} for n in names]
            inner = {"mode": mode, "tools": tools}
            body["tool_choice"] = {"type": "allowed_tools", **({"allowed_tools": inner} if path == CHAT else inner)}
            return s.json("POST", path, body)
        for path in (CHAT, RESPONSES):
            for mode in ("auto", "required"):
                status, answer = ask(path, mode, "get_weather")
                check(f"{path}: allowed, {mode}", status == 200 and calls_of(path, answer)[0]
                      == [("get_weather", {"city": "Paris"})], answer)
            status, answer = ask(path, "auto", "search")
            check("no other is called", status == 200 and all(n == "search" for n, _ in calls_of(path, answer)[0]), answer)
            for mode, names in (("auto", ["nobody"]), ("required", []), ("perhaps", ["search"]), (None, ["search"])):
                status, answer = ask(path, mode, *names)
                check(f"{path}: refused: {mode} {names}", status == 400 and answer["error"]["param"] == "tool_choice", answer)
        status, answer = s.json("POST", CHAT, {**forced(CHAT, "x", ["f"], None), "tool_choice": {"type": "allowed_tools"}})
        check("without a list", status == 400 and answer["error"]["param"] == "tool_choice", answer)


def functions():
    """What tools were before they were tools."""
    with Server("-q", model=MODEL) as s:
        def ask(messages, **fields):
            return s.json("POST", CHAT, {"messages": messages, "functions": [flat("get_weather", parameters=SCHEMA)],
                                         "max_tokens": 60, "seed": 3, **fields})
        question = [{"role": "user", "content": WEATHER}]
        for choice in ("auto", {"name": "get_weather"}):
            status, answer = ask(question, function_call=choice)
            c = answer["choices"][0]
            check("a function call", status == 200 and c["finish_reason"] == "function_call" and "tool_calls" not in c["message"]
                  and c["message"]["function_call"] == {"name": "get_weather", "arguments": '{"city":"Paris"}'}, answer)
        said = c["message"]
        found, _ = streamed(s, CHAT, {"messages": question, "functions": [flat("get_weather", parameters=SCHEMA)], "seed": 3})
        deltas = [c["delta"]["function_call"] for e in found for c in e["choices"] if "function_call" in c["delta"]]
        check("in a stream", deltas == [said["function_call"]]
              and found[-1]["choices"][0]["finish_reason"] == "function_call", found)
        status, answer = ask(question + [said, {"role": "function", "name": "get_weather", "content": "sunny, 20 C"}])
        check("and its result", status == 200 and "sunny, 20 C" in answer["choices"][0]["message"]["content"], answer)
        check("none", "function_call" not in ask(question, function_call="none")[1]["choices"][0]["message"])
        for fields, param in (({"function_call": "maybe"}, "function_call"), ({"function_call": {"name": "f"}}, "tool_choice"),
                              ({"functions": "x"}, "functions"), ({"functions": [{}]}, "tools")):
            status, answer = ask(question, **fields)
            check(f"refused: {fields}", status == 400 and answer["error"]["param"] == param, answer)
        status, answer = ask([{"role": "assistant", "function_call": "x"}])
        check("a call that is none", status == 400 and answer["error"]["param"] == "messages", answer)
        status, answer = ask(question, parallel_tool_calls="no")
        check("a switch that is none", status == 400 and answer["error"]["param"] == "parallel_tool_calls", answer)


run([gibberish])
for case in (no_call, no_tools, broken_calls, held, calls, allowed, functions):
    if HAS_POCKET:
        run([case])
    else:
        skip(f"tools: {case.__name__}", "the model that ships with the source is not there")
finish()
