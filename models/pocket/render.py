"""Conversations as the model sees them: revision A of Gemma's chat format, for the shapes that pocket is trained on.

The engine's src/text/chat_template.c is the authority: the evaluation compares the lengths of the prompts."""

QUOTE = '<|"|>'


def value(v):
    """A value inside a call or a result: bare keys, strings in the string marker."""
    if isinstance(v, bool):
        return "true" if v else "false"
    if isinstance(v, str):
        return QUOTE + v + QUOTE
    if isinstance(v, dict):
        return "{" + ",".join(k + ":" + value(v[k]) for k in sorted(v, key=str.lower)) + "}"
    if isinstance(v, list):
        return "[" + ",".join(value(x) for x in v) + "]"
    return str(v)


def call(name, arguments):
    return "<|tool_call>call:" + name + value(arguments) + "<tool_call|>"


def declaration(tool):
    f = tool["function"]
    properties = f["parameters"]["properties"]
    parts = []
    for key in sorted(properties, key=str.lower):
        p, inner = properties[key], []
        if "description" in p:
            inner.append("description:" + QUOTE + p["description"] + QUOTE)
        if "enum" in p:
            inner.append("enum:[" + ",".join(QUOTE + e + QUOTE for e in p["enum"]) + "]")
        inner.append("type:" + QUOTE + p["type"].upper() + QUOTE)
        parts.append(key + ":{" + ",".join(inner) + "}")
    required = ",".join(QUOTE + r + QUOTE for r in f["parameters"]["required"])
    return ("<|tool>declaration:" + f["name"] + "{description:" + QUOTE + f["description"] + QUOTE + ",parameters:{properties:{" + ",".join(parts)
            + "},required:[" + required + "],type:" + QUOTE + "OBJECT" + QUOTE + "}}<tool|>")


def prompt(messages, tools=None, thinking=False, image_tokens=()):
    """The prompt of a conversation in OpenAI's form, ready for the model's answer."""
    out = ["<bos>"]
    images = iter(image_tokens)
    messages = list(messages)
    system = messages.pop(0)["content"] if messages and messages[0]["role"] == "system" else None
    if thinking or tools or system is not None:
        out.append("<|turn>system\n")
        if thinking:
            out.append("<|think|>\n")
        out.append((system or "").strip())
        out.extend(declaration(t) for t in tools or [])
        out.append("<turn|>\n")
    last_user = max([i for i, m in enumerate(messages) if m["role"] == "user"], default=-1)
    open_turn = False  # a call was made and its results follow in the same turn
    for i, m in enumerate(messages):
        if m["role"] == "tool":
            name = next(c["function"]["name"] for k in messages for c in k.get("tool_calls", []) if c["id"] == m["tool_call_id"])
            out.append("<|tool_response>response:" + name + "{value:" + value(m["content"]) + "}<tool_response|>")
            open_turn = True
            continue
        if m["role"] == "user":
            out.append("<|turn>user\n")
            if isinstance(m["content"], str):
                out.append(m["content"].strip())
            else:
                for part in m["content"]:
                    if part["type"] == "text":
                        out.append(part["text"].strip())
                    else:
                        out.append("<|image>" + "<|image|>" * next(images) + "<image|>")
            out.append("<turn|>\n")
            open_turn = False
            continue
        if not open_turn:
            out.append("<|turn>model\n")
        if m.get("tool_calls"):
            if m.get("reasoning_content") and i > last_user:
                out.append("<|channel>thought\n" + m["reasoning_content"] + "\n<channel|>")
            out.extend(call(c["function"]["name"], c["function"]["arguments"]) for c in m["tool_calls"])
            open_turn = True
        else:
            out.append(m["content"].strip() + "<turn|>\n")
            open_turn = False
    if not open_turn:
        out.append("<|turn>model\n")
        if not thinking:
            out.append("<|channel>thought\n<channel|>")
    return "".join(out)


def answer(text="", thought=None, calls=()):
    """What the model writes after the prompt, up to its stop token."""
    out = "<|channel>thought\n" + thought + "\n<channel|>" if thought is not None else ""
    out += text + "".join(call(name, arguments) for name, arguments in calls)
    return out + ("<|tool_response>" if calls else "<turn|>")
