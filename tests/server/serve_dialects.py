"""The other dialects without their clients: what is refused, how errors look, what a stream is made of. The same question
must get the same answer in all of them."""
import base64
import json
import re
import struct
import zlib

from serving import ENDLESS, Server, check, events, finish, read_all, run

RESPONSES, MESSAGES, COUNT = "/v1/responses", "/v1/messages", "/v1/messages/count_tokens"
CHAT, GENERATE, SHOW = "/api/chat", "/api/generate", "/api/show"
OPENAI, OLD = "/v1/chat/completions", "/v1/completions"
USER = [{"role": "user", "content": "Hello"}]
FUNCTION = {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}}
TOOL = {"name": "f", "input_schema": {"type": "object", "properties": {}}}


def responses(**fields):
    return {"input": "Hello", "max_output_tokens": 8, "seed": 1, **fields}


def items(*given, **fields):
    return responses(input=list(given), **fields)


def message(**fields):
    return {"messages": USER, "max_tokens": 8, "seed": 1, **fields}


def blocks(*given, role="user", **fields):
    return message(messages=[{"role": role, "content": list(given)}], **fields)


def chat(options=None, **fields):
    return {"messages": USER, "stream": False, "options": {"num_predict": 8, "seed": 1, **(options or {})}, **fields}


def said(**fields):
    return chat(messages=[{"role": "user", "content": "Hello", **fields}])


def prompt(options=None, **fields):
    return {"prompt": "Hello", "stream": False, "options": {"num_predict": 8, "seed": 1, **(options or {})}, **fields}


CALL = {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"}
RESULT = {"type": "function_call_output", "call_id": "1", "output": "x"}
PNG = "data:image/png;base64,"

# name, path, body, status, a word of the answer
STATUS = [
    ("a response", RESPONSES, responses(), 200, '"object":"response"'),
    ("no JSON", RESPONSES, "hello", 400, "not JSON"),
    ("no input", RESPONSES, {}, 400, "input"),
    ("input that is none", RESPONSES, responses(input=5), 400, "input"),
    ("empty input", RESPONSES, responses(input=[]), 400, "input"),
    ("an item that is none", RESPONSES, items(1), 400, "input[0]"),
    ("an unknown item", RESPONSES, items({"type": "item_reference", "id": "x"}), 400, "input[0].type"),
    ("an item without a role", RESPONSES, items({"content": "x"}), 400, "role"),
    ("an unknown role", RESPONSES, items({"role": "god", "content": "x"}), 400, "role"),
    ("content that is none", RESPONSES, items({"role": "user", "content": 5}), 400, "content"),
    ("an unknown part", RESPONSES, items({"role": "user", "content": [{"type": "input_file"}]}), 400, "content"),
    ("a picture without data", RESPONSES, items({"role": "user", "content": [{"type": "input_image", "file_id": "x"}]}), 400,
     "image_url"),
    ("a link for a picture", RESPONSES, items({"role": "user", "content": [
        {"type": "input_image", "image_url": "http://127.0.0.1/x"}]}), 400, "data URL"),
    ("too many pictures", RESPONSES, items({"role": "user", "content": [
        {"type": "input_image", "image_url": PNG}] * 17}), 400, "too_many_images"),
    ("a call that is none", RESPONSES, items({"type": "function_call", "name": "f"}), 400, "call_id"),
    ("a call without JSON", RESPONSES, items(*USER, {**CALL, "arguments": "x"}, RESULT), 400, "arguments"),
    ("a result that is none", RESPONSES, items({"type": "function_call_output", "call_id": "1"}), 400, "output"),
    ("a call and its result", RESPONSES, items(*USER, CALL, RESULT), 200, "output"),
    ("thoughts sent back", RESPONSES, items(*USER, {"type": "reasoning", "summary": [], "content": [
        {"type": "reasoning_text", "text": "hm"}]}, {"role": "assistant", "content": "x"}, *USER), 200, "output"),
    ("thoughts that are none", RESPONSES, items({"type": "reasoning", "summary": [1]}), 400, "reasoning"),
    ("an earlier response", RESPONSES, responses(previous_response_id="resp_1"), 400, "previous_response_id"),
    ("a conversation of the server's", RESPONSES, responses(conversation="c"), 400, "conversation"),
    ("in the background", RESPONSES, responses(background=True), 400, "background"),
    ("a hosted tool", RESPONSES, responses(tools=[{"type": "web_search"}, FUNCTION]), 200, '"object":"response"'),
    ("a hosted tool that is wanted", RESPONSES, responses(tools=[{"type": "web_search"}], tool_choice="required"), 400,
     "tool_choice"),
    ("a tool without a type", RESPONSES, responses(tools=[{"name": "f"}]), 400, "tools[0].type"),
    ("a tool without a name", RESPONSES, responses(tools=[{"type": "function"}]), 400, "tools[0].name"),
    ("a tool that is not there", RESPONSES, responses(tools=[FUNCTION], tool_choice={"type": "function", "name": "g"}), 400,
     "tool_choice"),
    ("a schema that cannot be held to", RESPONSES, responses(text={"format": {"type": "json_schema", "name": "x",
                                                                              "schema": {"not": {}}}}), 400, "unsupported_schema"),
    ("effort that is none", RESPONSES, responses(reasoning={"effort": 3}), 400, "effort"),
    ("an unknown effort", RESPONSES, responses(reasoning={"effort": "enormous"}), 400, '"param":"reasoning.effort"'),
    ("an unknown member of diffusion", RESPONSES, responses(diffusion={"stepz": 3}), 400, '"param":"diffusion.stepz"'),
    ("without /v1", "/responses", responses(), 200, '"object":"response"'),
    ("max_output_tokens 0", RESPONSES, responses(max_output_tokens=0), 400, "max_output_tokens"),
    ("include that is none", RESPONSES, responses(include="all"), 400, "include"),
    ("instructions that are none", RESPONSES, responses(instructions=[1]), 400, "instructions"),
    ("what does nothing", RESPONSES, responses(store=True, metadata={"a": "b"}, user="me", truncation="auto",
                                               include=["reasoning.encrypted_content"], service_tier="auto"), 200, '"a":"b"'),

    ("a message", MESSAGES, message(), 200, '"type":"message"'),
    ("no JSON", MESSAGES, "hello", 400, "not JSON"),
    ("no max_tokens", MESSAGES, {"messages": USER}, 400, "max_tokens"),
    ("max_tokens 0", MESSAGES, message(max_tokens=0), 400, "max_tokens"),
    ("no messages", MESSAGES, {"max_tokens": 8}, 400, "messages"),
    ("only a system prompt", MESSAGES, message(messages=[], system="x"), 400, "messages"),
    ("a message that is none", MESSAGES, message(messages=[1]), 400, "messages.0.role"),
    ("an unknown role", MESSAGES, message(messages=[{"role": "tool", "content": "x"}]), 400, "messages.0.role"),
    ("content that is none", MESSAGES, message(messages=[{"role": "user", "content": 5}]), 400, "messages.0.content"),
    ("a system prompt that is none", MESSAGES, message(system=5), 400, "system"),
    ("a block of it that is none", MESSAGES, message(system=[{"type": "image"}]), 400, "system.0"),
    ("an unknown block", MESSAGES, blocks({"type": "document"}), 400, "messages.0.content.0"),
    ("a call of the user's", MESSAGES, blocks({"type": "tool_use", "id": "1", "name": "f", "input": {}}), 400, "content.0"),
    ("a call without a name", MESSAGES, blocks({"type": "tool_use", "input": {}}, role="assistant"), 400, "content.0"),
    ("input that is none", MESSAGES, blocks({"type": "tool_use", "name": "f", "input": "x"}, role="assistant"), 400, "input"),
    ("a link for a picture", MESSAGES, blocks({"type": "image", "source": {"type": "url", "url": "http://127.0.0.1/"}}), 400,
     "base64"),
    ("a picture without data", MESSAGES, blocks({"type": "image", "source": {"type": "base64"}}), 400, "media_type"),
    ("a picture that is none", MESSAGES, blocks({"type": "image", "source": {
        "type": "base64", "media_type": "image/png", "data": "AAAA"}}), 400, "error"),
    ("a result without an id", MESSAGES, blocks({"type": "tool_result", "content": "x"}), 400, "tool_use_id"),
    ("a result that is none", MESSAGES, blocks({"type": "tool_result", "tool_use_id": "1", "content": 5}), 400, "content"),
    ("an unknown block in a result", MESSAGES, blocks({"type": "tool_result", "tool_use_id": "1", "content": [
        {"type": "document"}]}), 400, "content.0"),
    ("a failed call", MESSAGES, message(messages=USER + [
        {"role": "assistant", "content": [{"type": "text", "text": "a"}, {"type": "tool_use", "id": "1", "name": "f", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "is_error": True, "content": "no"},
                                     {"type": "text", "text": "go on"}]}]), 200, "content"),
    ("a tool of the service", MESSAGES, message(tools=[{"type": "bash_20250124", "name": "bash"}]), 400, "tools.0.type"),
    ("a tool without a name", MESSAGES, message(tools=[{}]), 400, "tools.0.name"),
    ("an unknown tool_choice", MESSAGES, message(tools=[TOOL], tool_choice={"type": "perhaps"}), 400, "tool_choice"),
    ("tool_choice as a word", MESSAGES, message(tools=[TOOL], tool_choice="auto"), 400, "tool_choice"),
    ("a tool that is not there", MESSAGES, message(tools=[TOOL], tool_choice={"type": "tool", "name": "g"}), 400, "tool_choice"),
    ("unknown thinking", MESSAGES, message(thinking={"type": "deep"}), 400, "thinking"),
    ("a budget that is none", MESSAGES, message(thinking={"type": "enabled", "budget_tokens": 0}), 400, "budget_tokens"),
    ("stops that are none", MESSAGES, message(stop_sequences=[1]), 400, "stop_sequences"),
    ("an empty stop", MESSAGES, message(stop_sequences=[""]), 400, "stop_sequences"),
    ("what does nothing", MESSAGES, message(metadata={"user_id": "x"}, service_tier="auto",
                                            system=[{"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}]),
     200, "usage"),
    ("a count", COUNT, {"messages": USER}, 200, "input_tokens"),
    ("a count of nothing", COUNT, {}, 400, "messages"),
    ("a count of too much", COUNT, {"messages": [{"role": "user", "content": "ab" * 300000}]}, 400, "prompt is too long"),
    ("instructions in the middle", MESSAGES, message(messages=USER + [{"role": "system", "content": "x"}] + USER), 200, "usage"),
    ("a picture as instructions", MESSAGES, blocks({"type": "image"}, role="system"), 400, "type: text is known"),
    ("a document that is no text", MESSAGES, blocks({"type": "document", "source": {"type": "base64", "data": "AAAA"}}), 400,
     "documents of text"),
    ("a schema that cannot be held to", MESSAGES, message(output_config={"format": {"type": "json_schema", "schema": {"not": {}}}}),
     400, "output_config.format.schema"),
    ("an unknown effort", MESSAGES, message(output_config={"effort": "enormous"}), 400, "effort"),
    ("an effort", MESSAGES, message(output_config={"effort": "max"}), 200, "usage"),
    ("an unknown member of diffusion", MESSAGES, message(diffusion={"stepz": 3}), 400, "diffusion.stepz"),
    ("half an emoji", MESSAGES, '{"max_tokens":8,"messages":[{"role":"user","content":"a\\ud83d\\u0000"}]}', 200, "usage"),

    ("a chat", CHAT, chat(), 200, '"done":true'),
    ("no JSON", CHAT, "hello", 400, "not JSON"),
    ("messages that are none", CHAT, chat(messages="x"), 400, "messages"),
    ("a message without a role", CHAT, chat(messages=[{"content": "x"}]), 400, "role"),
    ("an unknown role", CHAT, chat(messages=[{"role": "god", "content": "x"}]), 400, "role"),
    ("content in parts", CHAT, chat(messages=[{"role": "user", "content": []}]), 400, "content"),
    ("pictures that are none", CHAT, said(images="x"), 400, "images"),
    ("a picture that is none", CHAT, said(images=[5]), 400, "images[0]"),
    ("a picture that is no base64", CHAT, said(images=["?"]), 400, "base64"),
    ("too many pictures", CHAT, said(images=["AAAA"] * 17), 400, "pictures"),
    ("calls that are none", CHAT, chat(messages=[{"role": "assistant", "tool_calls": [{}]}]), 400, "tool_calls[0]"),
    ("options that are none", CHAT, {"messages": USER, "options": 5}, 400, "options"),
    ("num_predict that is none", CHAT, chat(options={"num_predict": "x"}), 400, "num_predict"),
    ("temperature too high", CHAT, chat(options={"temperature": 9}), 400, "temperature"),
    ("stops that are none", CHAT, chat(options={"stop": [1]}), 400, "stop"),
    ("a schema that cannot be held to", CHAT, chat(format={"type": "object", "not": {}}), 400, "format"),
    ("think that is none", CHAT, chat(think=5), 400, "think"),
    ("an unknown effort", CHAT, chat(think="enormous"), 400, "think"),
    ("an effort", CHAT, chat(think="high"), 200, '"done":true'),
    ("what does nothing", CHAT, chat(keep_alive="5m", options={"num_ctx": 512, "repeat_penalty": 1.1}), 200, '"done":true'),
    ("nothing to say", CHAT, {"model": "x", "stream": False}, 200, '"done_reason":"load"'),
    ("a generation", GENERATE, prompt(), 200, '"response"'),
    ("a prompt that is none", GENERATE, prompt(prompt=5), 400, "prompt"),
    ("a system prompt that is none", GENERATE, prompt(system=5), 400, "system"),
    ("a suffix", GENERATE, prompt(suffix="x"), 200, '"done":true'),
    ("a template", GENERATE, prompt(template="x"), 400, "template"),
    ("an old context", GENERATE, prompt(context=[1]), 400, "context"),
    ("a raw prompt", GENERATE, prompt(raw=True), 200, '"response"'),
    ("a raw prompt with pictures", GENERATE, prompt(raw=True, images=["AAAA"]), 400, "images"),
    ("nothing to say", GENERATE, {"stream": False}, 200, '"done_reason":"load"'),
    ("what the model is", SHOW, {"model": "test"}, 200, "capabilities"),
    ("under its old name", SHOW, {"name": "test:latest"}, 200, "capabilities"),
    ("what another model is", SHOW, {"model": "other"}, 404, "not found"),
    ("what no model is", SHOW, {}, 400, "model"),
]


def error_form(path, data):
    """Whether an error looks as this dialect's clients expect."""
    body = json.loads(data)
    if path.startswith("/api/"):
        return set(body) == {"error"} and isinstance(body["error"], str) and body["error"]
    if path.startswith(MESSAGES):
        return body["type"] == "error" and set(body["error"]) == {"type", "message"}
    return set(body["error"]) == {"message", "type", "param", "code"}


def status_table():
    with Server("-q") as s:
        for name, path, body, want, word in STATUS:
            status, headers, data = s.request("POST", path, body)
            name = f"{path}: {name}"
            check(name, status == want and word.encode() in data, f"{status} {data[:300]}")
            if status >= 400:
                check(name + ": the dialect's error", error_form(path, data), data)
                check(name + ": no use in trying again", headers.get("x-should-retry") == "false", headers)
        for path, word in (("/api/tags", "models"), ("/api/ps", "models"), ("/api/version", "version")):
            check(path, word in s.json("GET", path)[1])
        shown = s.json("GET", "/api/ps")[1]["models"][0]
        for told in (shown, s.json("GET", "/api/tags")[1]["models"][0], s.json("POST", SHOW, {"model": "test"})[1]):
            check("a folder is of safetensors", told["details"]["format"] == "safetensors", told)
        check("a digest that can be cut", re.fullmatch("[0-9a-f]{64}", shown["digest"]) and shown["expires_at"], shown)
        for method, path in (("GET", "/api/nothing"), ("POST", "/api/embed"), ("DELETE", "/api/delete"),
                             ("POST", MESSAGES + "/batches"), ("GET", MESSAGES + "/batches/1"), ("GET", "/v1/nothing")):
            status, _, data = s.request(method, path, "{}" if method == "POST" else None)
            check(f"{method} {path}", status == 404 and error_form(path, data) and path.encode() in data, (status, data))
        check("the server lived through it", s.request("GET", "/health")[0] == 200)


# path, body, what the error says is wrong
PARAMS = [
    (OPENAI, message(messages=[{"role": "god", "content": "x"}]), "messages"),
    (OPENAI, message(messages=[{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]), "messages"),
    (OPENAI, message(temperature=1e-9), "temperature"),
    (OPENAI, message(top_p=0), "top_p"),
    (OPENAI, message(stop=""), "stop"),
    (OPENAI, message(tools=[{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": 5}}}]), "tools"),
    (OPENAI, message(logit_bias={"07": 1}), "logit_bias"),
    (OPENAI, message(diffusion={"t_min": 2, "t_max": 1}), "diffusion.t_min"),
    (OPENAI, message(diffusion={"canvas_length": 100000}), "diffusion.canvas_length"),
    (OPENAI, message(diffusion={"nothing": None}), "diffusion.nothing"),
    (OPENAI, message(reasoning_effort="enormous"), "reasoning_effort"),
    (OLD, {"prompt": [[]]}, "prompt"),
    (RESPONSES, items({"role": "god", "content": "x"}), "input"),
    (RESPONSES, items({"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}), "input"),
    (RESPONSES, responses(top_p=0), "top_p"),
    ("/tokenize", {}, "content"),
    ("/detokenize", {"tokens": [-1]}, "tokens"),
]


def params():
    """An error names the field that is wrong, also where the library found it."""
    with Server("-q") as s:
        for path, body, param in PARAMS:
            status, answer = s.json("POST", path, body)
            check(f"{path}: {param}", status == 400 and answer["error"]["param"] == param, (status, answer))


def too_long():
    """Agents shorten what does not fit when they read the words they know, and nothing else is called that."""
    text = "one two three " * 300000
    with Server("-q", "--context", "256") as s:
        n = s.json("GET", "/v1/models")[1]["data"][0]["max_model_len"]
        said = [{"role": "user", "content": text}]
        for path, body, param in ((OPENAI, message(messages=said), "messages"), (OLD, {"prompt": text}, "prompt"),
                                  (OLD, {"prompt": [5] * 400}, "prompt"), (RESPONSES, responses(input=text), "input")):
            status, answer = s.json("POST", path, body)
            error = answer["error"]
            found = re.match(r"This model's maximum context length is (\d+) tokens\. However, your request has (?:at least )?(\d+) "
                             r"tokens", error["message"])
            check(f"{path}: too long", status == 400 and error["code"] == "context_length_exceeded" and error["param"] == param
                  and found and int(found[1]) == n == 256 and int(found[2]) >= n, answer)
        status, answer = s.json("POST", MESSAGES, message(messages=said))
        found = re.fullmatch(r"prompt is too long: (\d+) tokens > (\d+) maximum", answer["error"]["message"])
        check("in Anthropic's words", status == 400 and found and int(found[1]) > int(found[2]) == n - 1, answer)
        for path, body in ((CHAT, chat(messages=said)), (GENERATE, prompt(prompt=text)), (GENERATE, prompt(prompt=text, raw=True))):
            status, answer = s.json("POST", path, body)
            check(f"{path}: too long", status == 400 and answer["error"].startswith("the input length exceeds the context length")
                  and f"maximum context length is {n} tokens" in answer["error"], answer)
        for name, body in (("deep JSON", '{"messages":' + "[" * 200 + "]" * 200 + "}"),
                           ("deep arguments", message(messages=USER + [{"role": "assistant", "tool_calls": [{"id": "1", "function": {
                               "name": "f", "arguments": '{"a":' * 150 + "1" + "}" * 150}}]}])),
                           ("a large picture", message(messages=[{"role": "user", "content": [
                               {"type": "image_url", "image_url": {"url": PNG + huge_png()}}]}]))):
            status, answer = s.json("POST", OPENAI, body)
            check(f"{name} is something else", status == 400 and answer["error"]["code"] != "context_length_exceeded"
                  and "context length" not in answer["error"]["message"], answer)


def huge_png():
    """The head of a picture that says it is far too large."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    head = struct.pack(">IIBBBBB", 60000, 60000, 8, 2, 0, 0, 0)
    return base64.b64encode(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"\0" * 1000))
                            + chunk(b"IEND", b"")).decode()


def refusals():
    """What is refused before the body is read has the dialect's form too."""
    with Server("-q", "--api-key", "key", "--max-active", "1", "--max-body", "1") as s:
        keyed = {"Authorization": "Bearer key"}
        for path, body in ((RESPONSES, responses()), (MESSAGES, message()), (CHAT, chat()), (GENERATE, prompt())):
            status, _, data = s.request("POST", path, body)
            check(f"{path} without a key", status == 401 and error_form(path, data), data)
            status, _, data = s.request("POST", path, b" " * (2 << 20), keyed)
            check(f"{path} with too much", status == 413 and error_form(path, data), data)
            status, _, data = s.request("GET", path, headers=keyed)
            check(f"GET {path}", status == 405 and error_form(path, data), data)
            status, _, data = s.request("POST", path, body, {**keyed, "Origin": "https://evil.example"})
            check(f"{path} from another site", status == 403 and error_form(path, data), data)
            status, _, data = s.request("POST", path, body, {"X-Api-Key": "key"})
            check(f"{path} with a key", status == 200, (status, data))


def same_answers():
    """One question in every dialect, whole and streamed."""
    with Server("-q") as s:
        for seed in range(1, 5):
            wanted = s.chat(seed=seed, max_tokens=40)[1]["choices"][0]["message"]["content"]

            def streamed(path, **fields):
                return events(read_all(s.open_stream(path=path, seed=seed, prompt=None, **fields)))[0]

            def lines(path, body):
                raw = s.request("POST", path, {**body, "stream": True})[2].decode()
                return [json.loads(x) for x in raw.splitlines()]

            r = s.json("POST", RESPONSES, responses(seed=seed, max_output_tokens=40))[1]
            check("a response says the same", "".join(i["content"][0]["text"] for i in r["output"]
                                                       if i["type"] == "message") == wanted, r)
            found = streamed(RESPONSES, input="Hello", max_output_tokens=40)
            check("also in a stream", "".join(e["delta"] for e in found if e["type"] == "response.output_text.delta") == wanted
                  and [e["sequence_number"] for e in found] == list(range(len(found))), found)
            m = s.json("POST", MESSAGES, message(seed=seed, max_tokens=40))[1]
            check("a message says the same", "".join(b["text"] for b in m["content"]) == wanted, m)
            found = streamed(MESSAGES, max_tokens=40)
            check("also in a stream", "".join(e["delta"]["text"] for e in found if e["type"] == "content_block_delta") == wanted
                  and found[-1]["type"] == "message_stop", found)
            for path, body, text in ((CHAT, chat({"seed": seed, "num_predict": 40}), lambda x: x["message"]["content"]),
                                     (GENERATE, prompt({"seed": seed, "num_predict": 40}), lambda x: x["response"])):
                check(f"{path} says the same", text(s.json("POST", path, body)[1]) == wanted)
                got = lines(path, body)
                check("also in a stream", "".join(map(text, got)) == wanted
                      and [x["done"] for x in got] == [False] * (len(got) - 1) + [True], got)


def cut_items():
    """Where a response is cut, its last item is not complete."""
    with Server("-q") as s:
        for n in (2, 40):
            body = responses(max_output_tokens=n)
            whole = s.json("POST", RESPONSES, body)[1]
            found = events(read_all(s.open_stream(path=RESPONSES, prompt=None, **body)))[0]
            for r in (whole, found[-1]["response"]):
                statuses = [i["status"] for i in r["output"]]
                check("the last item is as complete as the response", r["output"]
                      and statuses == ["completed"] * (len(statuses) - 1) + [r["status"]], r)
            done = [e["item"]["status"] for e in found if e["type"] == "response.output_item.done"]
            check("also when it ends", done == [i["status"] for i in found[-1]["response"]["output"]], found)
            check("some are cut", n > 2 or whole["status"] == "incomplete", whole)


def silence():
    """Streams that have nothing to say say so in their own way, and end when the client goes."""
    endless = {"diffusion": ENDLESS["diffusion"]}
    with Server("-q", "--ping", "1") as s:
        for n, (path, fields, sign) in enumerate((
                (RESPONSES, {"input": "Hello", "prompt": None, "max_output_tokens": 16}, b": ping\n\n"),
                (MESSAGES, {"max_tokens": 16}, b'event: ping\ndata: {"type":"ping"}\n\n'),
                (CHAT, {"options": {"num_predict": 16}}, b'"content":""},"done":false}\n'))):
            c, data = s.open_stream(path=path, **endless, **fields), b""
            while data.count(sign) < 2:
                piece = c.recv(65536)
                if not piece:
                    break
                data += piece
            c.close()
            check(f"{path} is never silent for long", data.count(sign) >= 2, data)
            check("a client that goes ends its answer", s.wait_metric(
                'vllm:request_success_total{finished_reason="abort"}', lambda x, n=n: x == n + 1))


def dashboard():
    """Every metric that the dashboard asks for is one that the server has."""
    with open("docs/grafana.json") as f:
        board = json.load(f)
    queries = [t["expr"] for p in board["panels"] for t in p.get("targets", [])]
    names = {n for q in queries for n in re.findall(r"\b(?:vllm|llamacpp|dgemma):\w+", q)}
    check("a dashboard with something on it", len(queries) >= 10 and len(names) >= 10, names)
    check("each panel has its place", len({(p["gridPos"]["x"], p["gridPos"]["y"]) for p in board["panels"]})
          == len(board["panels"]) == len({p["id"] for p in board["panels"]}))
    with Server("-q") as s:
        s.chat()
        s.wait_metric("dgemma:http_requests_total", lambda n: n > 0)  # counted when the answer is sent
        page = s.request("GET", "/metrics")[2].decode()
    printed = {re.split(r"[{ ]", line, maxsplit=1)[0] for line in page.splitlines() if not line.startswith("#")}
    with open("server/metrics.c") as f:  # a GPU's are there where there is one
        printed |= set(re.findall(r'"(dgemma:(?:gpu|device)_\w+)"', f.read()))
    check("every metric is there", names <= printed, names - printed)
    labels = {w for q in queries for group in re.findall(r"\bby \(([^)]*)\)", q) for w in re.split(r",\s*", group)}
    check("every label is there", all(f'{w}="' in page for w in labels), labels)


run([status_table, params, too_long, refusals, same_answers, cut_items, silence, dashboard])
finish()
