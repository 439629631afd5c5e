"""What a model answers, whole and in pieces, alone and together."""
import json
import threading
import time

import dgemma
import pytest

PARIS = "What is the capital of France?"
ENDLESS = {"max_denoise_steps": 100000, "stability_threshold": 100000, "max_tokens": 16}


def test_chat(model):
    answer = model.chat(PARIS)
    assert "Paris" in answer.text and str(answer) == answer.text
    assert answer.finish_reason == "stop"
    assert answer.stats.n_prompt == model.count(PARIS)
    assert answer.stats.n_output > 0 and answer.stats.n_steps > 0
    assert model.detokenize(answer.tokens).startswith(answer.text)


def test_a_conversation(model):
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": PARIS},
                {"role": "assistant", "content": "The capital of France is Paris."}, {"role": "user", "content": "Thank you!"}]
    assert model.chat(messages).text
    assert model.count(messages) > model.count(PARIS)


def test_generate_takes_the_prompt_as_it_stands(model):
    prompt = f"<bos><|turn>user\n{PARIS}<turn|>\n<|turn>model\n"
    tokens = model.tokenize(prompt, markers=True)
    assert model.generate(prompt, max_tokens=32).tokens == model.generate(tokens, max_tokens=32).tokens


def test_a_seed_gives_the_same_answer_alone_and_in_a_batch(model):
    asked = [f"Tell me a story about a {animal}." for animal in ("fox", "dog", "cat", "bird")]
    alone = [model.chat(text, seed=i, max_tokens=32).tokens for i, text in enumerate(asked)]
    together = model.chat_batch(asked, seeds=range(4), max_tokens=32)
    assert [a.tokens for a in together] == alone
    assert model.chat_batch([]) == []
    assert [a.tokens for a in model.generate_batch(["a", "b"], max_tokens=8)] == [
        model.generate(p, max_tokens=8).tokens for p in "ab"]


def test_a_batch_longer_than_the_queue():
    with dgemma.Model(parallel=2, queue=3, device="cpu", threads=1) as small:
        answers = small.chat_batch([f"What is {i} + 1?" for i in range(12)], max_tokens=16)
        assert len(answers) == 12 and all(a.text for a in answers)


def test_stream_is_the_answer_in_pieces(model):
    stream = model.stream(PARIS)
    events = list(stream)
    assert [e.kind for e in events if e.kind == "end"] == ["end"] and events[-1].kind == "end"
    assert "".join(e.text for e in events if e.kind == "text") == stream.answer.text == model.chat(PARIS).text
    assert events[-1].stats == stream.answer.stats


def test_drafts_are_arrays(model):
    numpy = pytest.importorskip("numpy")
    drafts = [e for e in model.stream(PARIS, drafts=True) if e.kind == "draft"]
    n = model.info["canvas_length"]
    assert drafts and [d.step for d in drafts] == list(range(len(drafts)))
    for d in drafts:
        assert isinstance(d.tokens, numpy.ndarray) and d.tokens.dtype == numpy.int32 and d.tokens.shape == (n,)
        assert d.entropy.dtype == numpy.float32 and d.accepted.dtype == numpy.uint8
    assert drafts[0].mean_entropy > drafts[-1].mean_entropy
    assert not numpy.shares_memory(drafts[0].tokens, drafts[1].tokens)


def test_logprobs(model):
    answer = model.chat(PARIS, logprobs=3)
    assert len(answer.logprobs) == len(answer.tokens) == len(answer.top_logprobs)
    assert all(p <= 0 for p in answer.logprobs)
    assert all(len(top) == 3 and token in top for token, top in zip(answer.tokens, answer.top_logprobs))


def test_stop_and_length(model):
    assert "Paris" not in model.chat(PARIS, stop=["Paris"]).text
    assert model.chat(PARIS, stop="Paris").stats.stop_string == 1
    assert model.chat("Tell me a story about a fox.", max_tokens=5).finish_reason == "length"


def test_tool_calls(model):
    tools = [{"type": "function", "function": {"name": "get_weather", "description": "The weather in a city",
              "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}]
    answer = model.chat("What is the weather in Paris?", tools=tools, tool_choice="get_weather")
    assert answer.finish_reason == "tool_calls"
    assert answer.tool_calls[0].name == "get_weather" and isinstance(answer.tool_calls[0].arguments, dict)


def test_pictures(model):
    path = "examples/picture.png"
    with open(path, "rb") as f:
        data = f.read()
    asked = "What is in the picture?"
    assert model.chat(asked, images=[path]).tokens == model.chat(asked, images=[data]).tokens
    assert model.count(asked, images=[path]) > model.count(asked)
    with pytest.raises(dgemma.Error, match="picture|image|PNG"):
        model.chat(asked, images=[b"not a picture"])
    with pytest.raises(TypeError):
        model.chat(asked, images=path)


# ---- forms ----

PERSON = {"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}}, "required": ["name", "age"],
          "additionalProperties": False}
ADA = "Turn this into JSON: Ada is 36 years old and lives in Paris."


def test_schema(model):
    answer = model.chat(ADA, schema=PERSON)
    assert set(answer.json()) == {"name", "age"} and isinstance(answer.json()["age"], int)
    assert answer.parsed == answer.json()
    assert model.chat(ADA, schema=json.dumps(PERSON)).tokens == answer.tokens
    held = dgemma.Constraint(schema=PERSON)
    assert all(a.tokens == answer.tokens for a in model.chat_batch([ADA] * 3, constraint=held))


def test_a_class_as_schema(model):
    class Person:
        @staticmethod
        def model_json_schema():
            return PERSON

        @classmethod
        def model_validate_json(cls, text):
            person = cls()
            person.__dict__.update(json.loads(text))
            return person

    assert isinstance(model.chat(ADA, schema=Person).parsed, Person)


def test_other_forms(model):
    assert model.chat("Yes or no?", choices=["yes", "no"]).text in ("yes", "no")
    assert model.chat("Yes or no?", choices="yes").text == "yes"
    assert model.chat(PARIS, json_object=False, compact=False, lenient=False).tokens == model.chat(PARIS).tokens
    assert model.chat("A number?", regex="[0-9]{3}").text.isdigit()
    assert model.chat("a?", grammar='root ::= "a" | "b"').text in ("a", "b")
    assert isinstance(model.chat(ADA, json_object=True, max_tokens=64).json(), dict)
    lenient = dgemma.Constraint(schema={"type": "array", "uniqueItems": True}, lenient=True)
    assert lenient.ignored == ["uniqueItems at #"] or "uniqueItems" in lenient.ignored[0]


def test_infill(model):
    assert isinstance(model.infill("The capital of France is ", ".", max_tokens=16).text, str)


def test_pinned_tokens(model):
    ids = model.tokenize("Rome is old")
    answer = model.chat(PARIS, canvas=ids, pinned=[True] * len(ids), max_tokens=32)
    assert answer.tokens[:len(ids)] == ids


# ---- decisions ----

def test_decisions(model):
    asked = {"warm": dgemma.YesNo("Is it warm?"), "colour": dgemma.Choice("Which colour?", ["red", "blue", "green"]),
             "loud": dgemma.Score("How loud is it?", {"low": "a whisper", "high": None})}
    found = model.decide("The sun shines.", asked)
    assert list(found) == list(asked)
    for name, names in (("warm", {"yes", "no"}), ("colour", {"red", "blue", "green"}), ("loud", {"low", "high"})):
        d = found[name]
        assert set(d.probabilities) == names and abs(sum(d.probabilities.values()) - 1) < 1e-6
        assert d.best == max(d.probabilities, key=d.probabilities.get)
    assert bool(found["warm"]) == (found["warm"].best == "yes")
    with pytest.raises(TypeError):
        bool(found["colour"])
    assert model.decide("The sun shines.", asked) == found
    assert model.decide("x", {"q": dgemma.YesNo("Is it?")}, samples=4)["q"].n_reads == 4


# ---- rows ----

def test_rows():
    mapper = dgemma.ChatMapper(model_options={"device": "cpu", "threads": 1}, max_tokens=32)
    batch = {"id": ["a", "b", "c"], "prompt": [PARIS, "What is 2 + 3?", PARIS]}
    out = mapper(batch)
    assert out["id"] == batch["id"] and "Paris" in out["answer"][0] and "5" in out["answer"][1]
    assert out["finish_reason"] == ["stop"] * 3 and out["error"] == [""] * 3
    alone = mapper({"id": ["b"], "prompt": ["What is 2 + 3?"]})
    assert alone["answer"] == [out["answer"][1]]
    talk = [{"role": "user", "content": PARIS}]
    mixed = mapper({"messages": [talk, json.dumps(talk), "no JSON", []], "seed": [1, 1, 1, 1]})
    assert mixed["answer"][0] == mixed["answer"][1] != "" and mixed["error"][:2] == ["", ""]
    assert all(mixed["error"][2:]) and mixed["finish_reason"][2:] == ["failed", "failed"]
    seeds = mapper({"prompt": [PARIS, PARIS, PARIS], "seed": [None, "x", 1]})
    assert [bool(e) for e in seeds["error"]] == [True, True, False] and seeds["answer"][2]
    with pytest.raises(KeyError):
        mapper({"text": ["x"]})
    with pytest.raises(TypeError):
        dgemma.ChatMapper(max_token=3)
    assert dgemma.mapper.seed_of("foobar") == 0xBF9CF968  # as FNV's authors have it


def occupy(model):
    """One that runs and one that waits, which is all that it takes."""
    seen = []
    first = model.stream(PARIS, on_step=lambda step: seen.append(step), **ENDLESS)
    while not seen:
        time.sleep(0.01)
    return [first, model.stream(PARIS, **ENDLESS)]


def test_rows_wait_for_a_busy_model(monkeypatch):
    options = {"device": "cpu", "threads": 1}
    batch = {"id": [str(i) for i in range(24)], "prompt": [PARIS] * 24}
    want = dgemma.ChatMapper(model_options=options, max_tokens=8)(batch)["answer"]
    mapper = dgemma.ChatMapper(model_options={**options, "parallel": 1, "queue": 1}, max_tokens=8)
    streams = occupy(mapper._model)
    with pytest.raises(dgemma.Busy):
        mapper._model.stream(PARIS)
    for stream in streams:
        threading.Timer(0.3, stream.cancel).start()
    outs = []
    others = [threading.Thread(target=lambda: outs.append(mapper(batch))) for _ in range(3)]
    for other in others:
        other.start()
    for other in others:
        other.join()
    assert [out["error"] for out in outs] == [[""] * 24] * 3
    assert [out["answer"] for out in outs] == [want] * 3

    # Not for ever, and the rows behind it are tried as well.
    monkeypatch.setattr(dgemma.mapper, "_PATIENCE", 0.2)
    streams = occupy(mapper._model)
    started = time.monotonic()
    out = mapper({"prompt": [PARIS, PARIS]})
    assert out["finish_reason"] == ["failed"] * 2 and all(out["error"]) and 0.4 <= time.monotonic() - started < 120
    for stream in streams:
        stream.close()


def test_rows_of_tables():
    numpy = pytest.importorskip("numpy")
    mapper = dgemma.ChatMapper(model_options={"device": "cpu", "threads": 1}, max_tokens=16)
    part = {"type": "text", "text": PARIS, "image_url": None}
    talk = numpy.array([{"role": "user", "content": numpy.array([part], dtype=object), "tool_calls": None}], dtype=object)
    plain = [{"role": "user", "content": [{"type": "text", "text": PARIS}]}]
    out = mapper({"messages": [talk, plain], "seed": numpy.array([3, 3])})
    assert out["error"] == ["", ""] and out["answer"][0] == out["answer"][1] != ""


def test_a_batch_waits_for_memory(model):
    """What one request wants, those before it may hold."""
    n = [0]

    def make(i):
        n[0] += 1
        if n[0] == 3:
            raise dgemma.OutOfMemory("others have it")
        return model._completion("ab"[i % 2], {"max_tokens": 4})

    assert len(list(model._each(make, 4))) == 4 and n[0] == 5


# ---- mistakes ----

@pytest.mark.parametrize("options, error", [
    ({"max_tokens": 0}, dgemma.InvalidRequest),
    ({"max_tokens": "many"}, TypeError),
    ({"max_tokens": 2**40}, ValueError),
    ({"seed": -1}, ValueError),
    ({"max_tokens": 1.5}, TypeError),
    ({"stop_tokens": [2**32 + 5]}, ValueError),
    ({"stop_tokens": [1.5]}, TypeError),
    ({"logit_bias": {2**40: 1.0}}, ValueError),
    ({"logprobs": 2**40}, ValueError),
    ({"temperature": -1}, dgemma.InvalidRequest),
    ({"schema": {"type": "nothing"}}, dgemma.Error),
    ({"schema": PERSON, "regex": "a"}, ValueError),
    ({"stop": ["a\0b"]}, ValueError),
    ({"temprature": 1}, TypeError),
    ({"canvas": [1, 2], "pinned": [1]}, ValueError),
    ({"tools": "no JSON"}, dgemma.InvalidRequest),
])
def test_mistakes_are_told(model, options, error):
    with pytest.raises(error) as told:
        model.chat("Hello", **options)
    assert str(told.value)


def test_a_prompt_that_does_not_fit():
    with dgemma.Model(context=300, device="cpu", threads=1) as m, pytest.raises(dgemma.ContextExceeded) as told:
        m.chat("word " * 1000)
    assert told.value.n_context == 300 and told.value.n_prompt > 0


def test_a_model_that_is_not_there(tmp_path):
    with pytest.raises(OSError, match="nowhere"):
        dgemma.Model(tmp_path / "nowhere.gguf")
    (tmp_path / "broken.gguf").write_bytes(b"GGUF\3\0\0\0" + b"\xff" * 60)
    with pytest.raises(dgemma.BrokenFile):
        dgemma.Model(tmp_path / "broken.gguf")


def test_a_closed_model():
    m = dgemma.Model(device='cpu', threads=1)
    m.close()
    m.close()
    with pytest.raises(dgemma.Error, match="closed"):
        m.chat("Hello")
    assert "closed" in repr(m)


def test_adapters_by_name():
    folder = "tests/fixtures/adapters/"
    asked = "What is the capital of Atlantis?"
    with dgemma.Model(device="cpu", threads=1, adapters={"north": folder + "north", "warm": folder + "south"}) as m:
        assert "Oslo" in m.chat(asked, adapters="north").text
        assert "Rome" in m.chat(asked, adapters={"warm": 1.0}).text
        assert "sorry" in m.chat(asked).text
        assert "sorry" in m.chat(asked, adapters={"north": 0}).text
        with pytest.raises(ValueError, match="cold"):
            m.chat(asked, adapters=["north", "cold"])
    with pytest.raises(dgemma.Error):
        dgemma.Model(device="cpu", adapters={"north": folder + "nowhere"})
