"""Calls that are asked for are made as asked, whatever the model would rather say:

    DGEMMA=build/dgemma python3 tests/server/tool_runs.py [RUNS] [FIRST]

RUNS runs from number FIRST on, each with tools, a question and a rule of its own: a call is required, or a named one, or one of
those allowed, or just one, or whatever the model likes; strict or not, with a thought or without, whole or streamed, several at a
time. Of every answer: the names are declared and allowed, there are as many calls as there may be, strict arguments validate, and
the call was written as it is told, token by token, so that nothing was repaired."""
import json
import random
import sys
from concurrent.futures import ThreadPoolExecutor

from serving import HAS_POCKET, MODEL, Server, check, events, finish, read_all, skip

CITIES = ["Paris", "Oslo", "Rome", "Lima", "Cairo", "Vienna"]
STRING, CITY = {"type": "string"}, {"type": "string", "enum": CITIES}
COUNT, FLAG = {"type": "integer", "minimum": 1, "maximum": 9}, {"type": "boolean"}
SIZES = {"type": "string", "enum": ["small", "large"]}
# What a tool may take; of each some are required.
SHAPES = {
    "get_weather": {"city": STRING}, "weather_of": {"city": CITY, "unit": {"type": "string", "enum": ["C", "F"]}},
    "calculator": {"expression": STRING}, "search": {"query": STRING, "limit": COUNT},
    "order": {"size": SIZES, "count": COUNT, "gift": FLAG},
    "book": {"trip": {"type": "object", "properties": {"from": CITY, "to": CITY, "days": COUNT}, "required": ["from", "to"],
                      "additionalProperties": False}},
    "tag": {"tags": {"type": "array", "items": STRING, "minItems": 1, "maxItems": 3}}, "now": {},
}
RULES = ["required", "named", "allowed", "one", "auto"]


def tools_of(r):
    tools = []
    for name in r.sample(list(SHAPES), r.randint(1, 4)):
        shape = SHAPES[name]
        schema = {"type": "object", "properties": shape, "required": [k for k in shape if r.random() < 0.8], "additionalProperties": False}
        tools.append({"type": "function", "function": {"name": name, "description": f"The tool {name}.", "strict": r.random() < 0.7,
                                                       "parameters": schema}})
    return tools


def question(r):
    a, b = r.sample(CITIES, 2)
    return r.choice([f"What is the weather in {a}?", f"What is the weather in {a} and in {b}?", f"What is {r.randrange(99)} + {r.randrange(99)}?",
                     "What is the capital of France?", "Hello!", f"Tell me a story about a cat in {a}."])


def body_of(r, number):
    """A request, the names that may be called, and the least and the most calls."""
    tools, rule = tools_of(r), r.choice(RULES)
    names = [t["function"]["name"] for t in tools]
    body = {"messages": [{"role": "user", "content": question(r)}], "tools": tools, "seed": number, "max_tokens": r.choice([80, 120, 200]),
            "logprobs": True}
    least, most = 0 if rule == "auto" else 1, 99
    if rule == "named":
        names = [r.choice(names)]
        body["tool_choice"] = {"type": "function", "function": {"name": names[0]}}
    elif rule == "allowed":
        names, mode = r.sample(names, r.randint(1, len(names))), r.choice(["auto", "required"])
        body["tool_choice"] = {"type": "allowed_tools", "allowed_tools": {
            "mode": mode, "tools": [{"type": "function", "function": {"name": n}} for n in names]}}
        least = int(mode == "required")
    elif rule != "auto":
        body["tool_choice"] = "required"
    if rule == "one" or r.random() < 0.2:
        body["parallel_tool_calls"], most = False, 1
    if r.random() < 0.25:
        body.update(enable_thinking=True, max_tokens=300)
    if r.random() < 0.25:
        body["temperature"] = 2  # what the model would not say otherwise
    return body, names, least, most


def fits(schema, v):
    if "enum" in schema:
        return v in schema["enum"]
    kind = schema["type"]
    if kind == "object":
        return (isinstance(v, dict) and all(k in v for k in schema["required"])
                and all(k in schema["properties"] and fits(schema["properties"][k], x) for k, x in v.items()))
    if kind == "array":
        return isinstance(v, list) and schema["minItems"] <= len(v) <= schema["maxItems"] and all(fits(schema["items"], x) for x in v)
    if kind == "integer":
        return type(v) is int and schema["minimum"] <= v <= schema["maximum"]
    return isinstance(v, {"string": str, "boolean": bool}[kind])


def written(v):
    """Arguments in the model's own syntax, names of members in order."""
    if isinstance(v, str):
        return f'<|"|>{v}<|"|>'
    if isinstance(v, list):
        return "[" + ",".join(map(written, v)) + "]"
    if isinstance(v, dict):
        return "{" + ",".join(f"{k}:{written(x)}" for k, x in v.items()) + "}"
    return json.dumps(v)


def whole(answer):
    """Calls, what was written, and the reason of an answer in one piece."""
    choice = answer["choices"][0]
    calls = [(c["function"]["name"], c["function"]["arguments"]) for c in choice["message"].get("tool_calls") or []]
    return calls, choice["logprobs"], choice["finish_reason"]


def streamed(s, body):
    raw = json.dumps({**body, "stream": True}).encode()
    c = s.connect()
    c.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(raw) + raw)
    calls, tokens, reason = {}, [], None
    for choice in (x for e in events(read_all(c))[0] for x in e["choices"]):
        for part in choice["delta"].get("tool_calls") or []:
            name, said = calls.setdefault(part["index"], ["", ""])
            f = part.get("function", {})
            calls[part["index"]] = [name + f.get("name", ""), said + f.get("arguments", "")]
        tokens += (choice.get("logprobs") or {"content": []})["content"]
        reason = choice.get("finish_reason") or reason
    return [tuple(calls[i]) for i in sorted(calls)], {"content": tokens}, reason


def wrong_with(body, names, least, most, calls, logprobs, reason):
    """What is wrong with an answer; None: nothing."""
    raw = "".join(t["token"] for t in (logprobs or {"content": []})["content"])
    if not least <= len(calls) <= most:
        return f"{len(calls)} calls"
    if len(calls) != raw.count("<|tool_call>") or len(calls) != raw.count("<tool_call|>"):
        return "calls were lost, mended or made up"
    if reason not in ("tool_calls" if calls else "stop", "length"):  # or the tokens have been used up
        return f"finish_reason {reason}"
    for name, text in calls:
        tool = next((t["function"] for t in body["tools"] if t["function"]["name"] == name), None)
        if not tool or name not in names:
            return f"{name} may not be called"
        arguments = json.loads(text)
        if not isinstance(arguments, dict) or tool["strict"] and not fits(tool["parameters"], arguments):
            return f"arguments of {name}: {text}"
        if f"call:{name}{written(arguments)}<tool_call|>" not in raw:
            return f"{name} {text} is not what was written"
    return None


def run_one(s, number):
    r = random.Random(number)
    body, names, least, most = body_of(r, number)
    if r.random() < 0.3:
        found = streamed(s, body)
    else:
        status, answer = s.json("POST", "/v1/chat/completions", body)
        if status != 200:
            return f"run {number}: {status} {answer}", 0
        found = whole(answer)
    wrong = wrong_with(body, names, least, most, *found)
    return wrong and f"run {number}: {wrong}: {found[0]} for {json.dumps(body)}"[:1500], len(found[0])


def main():
    n, first = [int(x) for x in sys.argv[1:]] + [100, 0][len(sys.argv) - 1:]
    if not HAS_POCKET:
        skip("tool runs", "the model that ships with the source is not there")
        finish()
    with Server("-q", "--parallel", "8", model=MODEL) as s, ThreadPoolExecutor(8) as clients:
        told = list(clients.map(lambda i: run_one(s, i), range(first, first + n)))
    wrong = [w for w, _ in told if w]
    print(f"runs {first} to {first + n - 1}: {sum(k for _, k in told)} calls, {len(wrong)} wrong")
    check("every call is as it was asked for", not wrong, "\n".join(wrong[:5]))
    finish()


main()
