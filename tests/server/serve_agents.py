"""Short agent loops: a question, the model's calls, their results, its answer; each compared with the raw tokens, so that
what the model did is told apart from what the engine or the parser made of it.

    serve_agents.py [LOOPS] [SEED]
"""
import json
import random
import sys

from serving import HAS_POCKET, MODEL, Server, check, finish, skip

CITIES = ["Paris", "Oslo", "Rome", "Berlin", "Madrid", "London", "Vienna", "Lisbon"]


def tool(name, description, key, what):
    return {"type": "function", "function": {"name": name, "description": description, "parameters": {
        "type": "object", "properties": {key: {"type": "string", "description": what}}, "required": [key]}}}


TOOLS = [tool("get_weather", "Get the weather in a city.", "city", "The city"),
         tool("calculator", "Calculate an expression.", "expression", "The expression"),
         tool("search", "Search the web.", "query", "The query")]


def question(r):
    a, b = r.sample(CITIES, 2)
    x, y = r.randrange(1000), r.randrange(1000)
    return r.choice([(f"What is the weather in {a}?", 1), (f"What is the weather in {a} and in {b}?", 2),
                     (f"What is {x} + {y}?", 1), (f"What is the weather in {a}? And: What is {x} * {y}?", 2)])


def raw_text(choice):
    return "".join(t["token"] for t in (choice["logprobs"] or {"content": []})["content"])


def faults(choice):
    """What the events say that the tokens do not, or the other way round."""
    message, raw = choice["message"], raw_text(choice)
    calls = message.get("tool_calls") or []
    found = []
    if len(calls) != raw.count("<|tool_call>"):
        found.append("calls were lost or made up")
    for call in calls:
        if f"call:{call['function']['name']}{{" not in raw or not isinstance(json.loads(call["function"]["arguments"]), dict):
            found.append("a call is not what was written")
    if not calls and (message["content"] or "") != raw.removesuffix("<turn|>"):
        found.append("the text is not what was written")
    if "<|" in (message["content"] or ""):
        found.append("a marker leaked")
    if choice["finish_reason"] != ("tool_calls" if calls else "stop") and choice["finish_reason"] != "length":
        found.append("a wrong finish_reason: " + choice["finish_reason"])
    return found


def loop(s, r, tally):
    text, n_call = question(r)
    messages = [{"role": "user", "content": text}]
    for turn in range(3):
        status, body = s.json("POST", "/v1/chat/completions", {
            "messages": messages, "tools": TOOLS, "seed": r.randrange(1 << 30), "max_tokens": 200, "logprobs": True})
        if status != 200:
            return [f"status {status}: {body}"]
        choice = body["choices"][0]
        wrong = faults(choice)
        if wrong:
            return [f"{w}: {choice['message']} from {raw_text(choice)!r}" for w in wrong]
        calls = choice["message"].get("tool_calls")
        if turn == 0:
            tally["calls"] += len(calls or []) == n_call
        if not calls:
            tally["answers"] += turn > 0 and choice["finish_reason"] == "stop"
            break
        messages.append({k: v for k, v in choice["message"].items() if v is not None})
        messages += [{"role": "tool", "tool_call_id": c["id"], "content": "sunny, 20 C" if "weather" in c["function"]["name"]
                      else str(r.randrange(100))} for c in calls]
    return []


def main():
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 60
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else random.SystemRandom().randrange(1 << 30)
    if not HAS_POCKET:
        skip("agent loops", "the model that ships with the source is not there")
        finish()
    tally, wrong = {"calls": 0, "answers": 0}, []
    r = random.Random(seed)
    with Server("-q", model=MODEL) as s:
        for _ in range(n):
            wrong += loop(s, r, tally)
    print(f"{n} loops, seed {seed}: {tally['calls']} called as asked, {tally['answers']} answered from the results")
    check("no loop failed because of the engine or the parser", not wrong, f"seed {seed}: {wrong[:3]}")
    check("most loops come to their end", tally["answers"] >= 0.8 * n, tally)
    finish()


main()
