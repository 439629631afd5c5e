"""What the tests of official clients share: questions that the small model can answer, and a picture it knows."""
import json

CAPITAL = "What is the capital of France?"
WEATHER = "What is the weather in Paris?"
TWO = "What is the weather in Paris and in Oslo?"
SUM = "What is 2+2?"
JSON = "Extract the data as JSON. Felix is 59 years old and likes pear."
WEATHER_SCHEMA = {"type": "object", "properties": {"city": {"type": "string", "description": "The city"}},
                  "required": ["city"]}
SUM_SCHEMA = {"type": "object", "properties": {"expression": {"type": "string", "description": "The expression"}},
              "required": ["expression"]}
WEATHER_TEXT, SUM_TEXT = "Get the weather in a city.", "Calculate an expression."


def picture():
    """A picture of the evaluation: its type, its data as base64, a question, and a word of the answer."""
    with open("models/pocket/eval/pictures.jsonl") as f:
        case = json.loads(f.readline())
    url = text = None
    for part in case["messages"][0]["content"]:
        if part["type"] == "text":
            text = part["text"]
        else:
            url = part["image_url"]["url"]
    head, data = url.split(",", 1)
    return head[5:].split(";")[0], data, text


def as_chat(s, messages, **fields):
    """The same question to /v1/chat/completions: dialects must not change what is said."""
    body = {"messages": messages, "seed": 3, "max_tokens": 200, **fields}
    return s.json("POST", "/v1/chat/completions", body)[1]["choices"][0]["message"]


def user(content):
    return [{"role": "user", "content": content}]
