#!/usr/bin/env python3
"""Compares the library's chat prompts with those of the Jinja templates on random conversations.

    jinja_chat.py RENDER_CHAT A|B COUNT SEED
    jinja_chat.py --record COUNT SEED > tests/data/chat_template/random.jsonl

RENDER_CHAT is the program made from render_chat.c. The templates are run as the transformers library
runs them. A conversation passes when both give the same text or both refuse it; the first that does not
is printed, and the status is 1. What is recorded, short ones of both templates, the unit tests compare
where there is no Jinja.
"""
import json
import random
import subprocess
import sys

import jinja2.sandbox

TEMPLATES = {"A": "gemma-4-31B-it.jinja", "B": "diffusion_gemma.jinja"}
FOLDER = "tests/data/chat_template/"

# ---- the templates ----


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def load_template(revision):
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
    env.filters["tojson"] = lambda x, indent=None: json.dumps(x, ensure_ascii=False, indent=indent)
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda fmt: fmt
    with open(FOLDER + TEMPLATES[revision], encoding="utf-8") as f:
        return env.from_string(f.read())


KINDS = {"image": "image", "audio": "audio", "video": "video", "text": "text"}


def normalise(conversation):
    """What servers do before they call a template: one name for each kind of part, arguments as
    objects, every tool in its envelope."""
    for message in conversation["messages"]:
        if isinstance(message.get("content"), list):
            for part in message["content"]:
                part["type"] = next(KINDS[k] for k in KINDS if k in part["type"])
        for call in message.get("tool_calls") or []:
            arguments = call["function"].get("arguments")
            if isinstance(arguments, str):
                call["function"]["arguments"] = json.loads(arguments) if arguments else None
            call["function"].setdefault("arguments", None)
    if conversation.get("tools"):
        conversation["tools"] = [t if "function" in t else {"type": "function", "function": t}
                                 for t in conversation["tools"]]
    return conversation


def render(template, line):
    try:
        return template.render(bos_token="<bos>", **normalise(json.loads(line)))
    except Exception as error:  # whatever goes wrong in Python, the template refuses
        return {"refused": repr(error)}


# ---- random conversations ----

WORDS = ["Paris", "21C", "it's", 'say "hi"', "a\\b", "line\nbreak", "tab\t", "héllo", "Ünïcode", "日本語", "🦙",
         "<turn|>", "<|turn>user\n", '<|"|>', "<|channel>", "<channel|>", "<|channel>thought\nhm\n<channel|>",
         "<|image|>", "{", "}", ":", ",", "call:x{}", "None", "<bos>", "\u00ad", "\x7f", "\u200b"]
SPACES = [" ", "  ", "\n", "\t", "\u00a0", "\u2003", "\u3000", "\x1c", "\x1f", "\x85", "\u2028", "\r\n", "\v"]
KEYS = ["a", "A", "b", "B", "city", "City", "CITY", "days", "unit_2", "user-id", "x.y", "@id", "Äpfel", "äpfel", "Zoë",
        "ключ", "Ключ", "type", "description", "properties", "required", "nullable", "items", "enum", "", "a b"]
NUMBERS = ["0", "-0", "7", "-12", "1.0", "-0.0", "1e3", "1E-7", "1e16", "1.5E+20", "0.0001", "0.00001", "123456789.125",
           "1e400", "-1e400", "5e-324", "12345678901234567890", "-99999999999999999999999999", "0.1", "3.14159", "1e15",
           "9007199254740993", "2.5e-10"]
TYPES = ["string", "String", "STRING", "array", "object", "integer", "number", "boolean", "null", "Straße"]


class Maker:
    """Numbers stand in the tree as strings between marks, and are unquoted in the text: so they keep
    their spelling."""

    def __init__(self, seed, revision):
        self.r = random.Random(seed)
        self.revision = revision

    def chance(self, p):
        return self.r.random() < p

    def text(self):
        n = self.r.choice([0, 1, 1, 2, 3, 5])
        body = self.r.choice(["", " "]).join(self.r.choice(WORDS) for _ in range(n))
        pad = ["".join(self.r.choices(SPACES, k=self.r.randrange(3))) for _ in range(2)]
        return pad[0] + body + pad[1] if self.chance(0.4) else body

    def number(self):
        return "\ue000" + self.r.choice(NUMBERS) + "\ue001"

    def value(self, depth=0):
        kind = self.r.randrange(8 if depth < 3 else 5)
        if kind < 2:
            return self.text()
        if kind == 2:
            return self.number()
        if kind == 3:
            return self.chance(0.5)
        if kind == 4:
            return None
        if kind == 5:
            return [self.value(depth + 1) for _ in range(self.r.randrange(4))]
        return self.object(depth + 1)

    def object(self, depth=0):
        keys = [self.r.choice(KEYS) for _ in range(self.r.randrange(5))]
        return {key: self.value(depth + 1) for key in keys}

    # -- tools --

    def type(self):
        if self.chance(0.1):
            return self.r.choice([["string", "null"], [], None, self.number(), {"a": 1}, "", True, ["it's", None, 1.5]])
        return self.r.choice(TYPES)

    def required(self):
        if self.chance(0.1):
            return self.r.choice(["city", True, False, None, self.number(), {"a": 1}, [], [None, 1, ["x"]]])
        return [self.r.choice(KEYS) for _ in range(self.r.randrange(3))]

    def schema(self, depth=0):
        if self.chance(0.03):
            return self.value(2)
        s = {}
        if self.chance(0.9):
            s["type"] = self.type()
        if self.chance(0.6):
            s["description"] = self.text() if self.chance(0.9) else self.value(2)
        if self.chance(0.2):
            s["enum"] = [self.value(2) for _ in range(self.r.randrange(4))] if self.chance(0.9) else self.value(2)
        if self.chance(0.2):
            s["nullable"] = self.r.choice([True, False, None, self.number()])
        if depth < 3:
            if self.chance(0.3):
                s["items"] = self.schema(depth + 1) if self.chance(0.9) else self.value(2)
            if self.chance(0.3):
                s["properties"] = self.properties(depth + 1)
            if self.chance(0.3):
                s["required"] = self.required()
        if self.chance(0.1):
            s[self.r.choice(KEYS)] = self.value(1)
        return self.shuffled(s)

    def properties(self, depth):
        if self.chance(0.02):
            return self.value(2)
        return {self.r.choice(KEYS): self.schema(depth) for _ in range(self.r.randrange(5))}

    def shuffled(self, d):
        items = list(d.items()) if isinstance(d, dict) else None
        if items is None:
            return d
        self.r.shuffle(items)
        return dict(items)

    def tool(self):
        f = {"name": self.r.choice(["get_weather", "f", "a.b-c", "naïve"])}
        if self.chance(0.9):
            f["description"] = self.text() if self.chance(0.95) else self.value(1)
        if self.chance(0.9):
            f["parameters"] = {"type": "object", "properties": self.properties(0), "required": self.required()}
            for key in list(f["parameters"]):
                if self.chance(0.1):
                    del f["parameters"][key]
        if self.chance(0.15):
            f["response"] = {"description": self.text(), "type": self.r.choice(["object", "string", None])}
        return f if self.chance(0.2) else {"type": "function", "function": f}

    # -- messages --

    def part(self):
        if self.chance(0.6):
            return {"type": self.r.choice(["text", "text", "input_text"]), "text": self.text()}
        return {"type": self.r.choice(["image", "image_url", "input_image", "audio", "input_audio", "video", "video_url"])}

    def content(self):
        kind = self.r.randrange(10)
        if kind == 0:
            return None
        if kind < 4:
            return [self.part() for _ in range(self.r.randrange(4))]
        return self.text()

    def system(self):
        # revision A prints a list or null as Python does; the library does not follow it there
        content = self.text() if self.revision == "A" else self.content()
        return {"role": self.r.choice(["system", "developer"]), "content": content}

    def call(self, i):
        arguments = self.object() if self.chance(0.9) else None
        if arguments is not None and self.chance(0.3):
            arguments = self.r.choice(["", self.dump(arguments)])
        call = {"type": "function", "function": {"name": self.r.choice(["get_weather", "f", ""]), "arguments": arguments}}
        if self.chance(0.9):
            call["id"] = "c%d" % (i if self.chance(0.9) else 0)
        if self.chance(0.05):
            del call["function"]["arguments"]
        return call

    def assistant(self):
        m = {"role": "assistant"}
        if self.chance(0.9):
            m["content"] = self.r.choice(["", None, self.content()])
        if self.chance(0.4):
            m[self.r.choice(["reasoning", "reasoning_content"])] = self.r.choice([None, "", self.text(), "hm"])
        if self.chance(0.6):
            m["tool_calls"] = [self.call(i) for i in range(self.r.randrange(4))]
        if self.chance(0.15):
            m["tool_responses"] = [{"name": self.r.choice(["f", ""]), "response": self.value()} for _ in range(2)]
            if self.chance(0.3):
                del m["tool_responses"][0]["name"]
        return self.shuffled(m)

    def tool_message(self):
        m = {"role": "tool"}
        if self.chance(0.9):
            m["tool_call_id"] = "c%d" % self.r.randrange(3)
        if self.chance(0.8 if self.revision == "A" else 0.4):
            m["name"] = self.r.choice(["f", "get_weather"])
        if self.chance(0.95):
            m["content"] = self.content() if self.chance(0.9) else self.r.choice([self.number(), True])
        return m

    def messages(self):
        out = [self.system()] if self.chance(0.4) else []
        for _ in range(self.r.randrange(5)):
            kind = self.r.randrange(10)
            if kind < 4:
                out.append({"role": "user", "content": self.content()})
            elif kind < 8:
                out.append(self.assistant())
                while self.chance(0.5):
                    out.append(self.tool_message())
            elif kind == 8:
                out.append(self.tool_message())
            elif out:
                out.append({"role": self.r.choice(["system", "developer"]), "content": self.content()})
        return out

    def dump(self, value):
        text = json.dumps(value, ensure_ascii=self.chance(0.5))
        for start, end in (('"\ue000', '\ue001"'), ('"\\ue000', '\\ue001"')):
            text = text.replace(start, "").replace(end, "")
        return text

    def conversation(self):
        c = {"messages": self.messages()}
        if self.chance(0.5):
            c["tools"] = [self.tool() for _ in range(self.r.randrange(3))]
        for flag in ("enable_thinking", "preserve_thinking", "add_generation_prompt"):
            if self.chance(0.7):
                c[flag] = self.chance(0.5)
        c.setdefault("add_generation_prompt", True)
        return self.dump(self.shuffled(c))


# ---- comparing ----


def chosen():
    """What chance seldom brings."""
    def call(name, i="c1"):
        return {"id": i, "type": "function", "function": {"name": name, "arguments": {"b": {"c": [1, {"d": None}]}, "A": True}}}

    def tool(parameters):
        return {"type": "function", "function": {"name": "f", "description": "F.", "parameters": parameters}}

    def result(content):
        return {"role": "tool", "tool_call_id": "c1", "content": content}

    user, other = {"role": "user", "content": "Hello"}, {"role": "user", "content": "Go on"}
    thought = {"role": "assistant", "reasoning": "hm", "content": "Yes"}
    thought_call = {"role": "assistant", "reasoning": "hm", "content": "", "tool_calls": [call("f")]}
    for preserve in (False, True):
        for old in (thought, thought_call):
            yield {"messages": [user, old, other], "preserve_thinking": preserve}
            yield {"messages": [user, old, other, old], "preserve_thinking": preserve, "add_generation_prompt": False}
            yield {"messages": [user, old, result("1"), other], "preserve_thinking": preserve, "enable_thinking": True}
    twice = {"role": "assistant", "content": None, "tool_calls": [call("first"), call("second")]}
    yield {"messages": [user, twice, result("1"), result("2")]}
    yield {"messages": [user, twice, result("1"), {"role": "assistant", "content": "Done."}, other]}
    yield {"messages": [user, dict(twice, content="So:"), result("1"), dict(twice, content=" "), result({"a": 1}["a"])]}
    yield {"messages": [user, thought, thought, thought_call, thought, result("1"), thought]}
    deep = {"type": "object", "properties": {"k": {"type": "string", "enum": [{"b": {"c": 1}, "A": [{"d": 2}]}]}}}
    items = {"type": "object", "properties": {
        "a": {"type": "array", "items": {}}, "b": {"type": "array", "items": {"type": "string", "format": None}},
        "c": {"type": "array", "items": {"format": None}}, "d": {"type": "array", "items": {"default": {"x": {"y": 1}}}},
        "e": {"type": "integer", "enum": [1, 2]}, "f": {"type": "string", "nullable": False}}}
    for schema in (deep, items):
        yield {"messages": [user], "tools": [tool(schema)]}


def record(count, seed):
    for revision in "AB":
        template = load_template(revision)
        lines = [json.dumps(dict({"add_generation_prompt": True}, **c)) for c in chosen()]
        n = i = 0
        while n < count:
            line = lines.pop(0) if lines else Maker(seed * 1000003 + i, revision).conversation()
            i += 1
            rendered = render(template, line)
            if isinstance(rendered, dict) or len(line) > 1200:
                continue
            print(json.dumps({"template": TEMPLATES[revision], "input": line, "rendered": rendered}, ensure_ascii=False))
            n += 1


def main():
    if sys.argv[1] == "--record":
        record(int(sys.argv[2]), int(sys.argv[3]))
        return
    program, revision, count, seed = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    template = load_template(revision)
    lines = [Maker(seed * 1000003 + i, revision).conversation() for i in range(count)]
    run = subprocess.run([program, revision], input="\n".join(lines) + "\n", capture_output=True, encoding="utf-8")
    if run.returncode != 0:
        sys.exit("%s ended with status %d\n%s" % (program, run.returncode, run.stderr))
    ours = [json.loads(line) for line in run.stdout.splitlines()]
    if len(ours) != count:
        sys.exit("%d renderings for %d conversations" % (len(ours), count))
    refused = 0
    for line, got in zip(lines, ours):
        want = render(template, line)
        if isinstance(want, dict) and isinstance(got, dict):
            refused += 1
        elif want != got:
            sys.exit("seed %d, revision %s\nconversation %s\njinja  %r\nours   %r" % (seed, revision, line, want, got))
    print("%d equal, %d refused by both" % (count - refused, refused))
    if refused > count // 2:
        sys.exit("more than half were refused: this compares too little")


main()
