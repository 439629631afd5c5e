"""Decisions through the libraries that were written for them: OpenAI's and TypeSafe's. What is not installed is skipped by name."""
import base64
import importlib.util
import math

from serving import MODEL, Server, check, finish, run, skip

STATE = "I was charged twice this month, and nobody answers!"


def ask_openai(s):
    import openai
    c = openai.OpenAI(base_url=f"http://127.0.0.1:{s.port}/v1", api_key="x", max_retries=0)
    questions = [{"type": "predicate", "instructions": "Is it spam?", "name": "spam"},
                 {"type": "choice", "instructions": "Which department?", "choices": [{"value": "billing"}, {"value": True, "description": "others"}]},
                 {"type": "score", "instructions": "How upset?", "levels": [{"label": "calm"}, {"label": "cross"}, {"label": "furious"}]}]
    d = c.decisions.create(model="any", input=STATE, questions=questions)
    check("openai, its kinds", [a.type for a in d.answers] == ["predicate", "choice", "score"] and d.answers[0].name == "spam", d)
    check("openai, a predicate", 0 <= d.answers[0].probability <= 1, d.answers[0])
    p = d.answers[1].probabilities
    check("openai, a choice", [x.value for x in p] == ["billing", True] and math.isclose(sum(x.probability for x in p), 1), d.answers[1])
    check("openai, a score", math.isclose(d.answers[2].score, sum(x.value * x.probability for x in d.answers[2].probabilities)), d.answers[2])
    check("openai, usage", d.usage.total_tokens == d.usage.input_tokens > 0, d.usage)
    with open("examples/picture.png", "rb") as f:
        url = "data:image/png;base64," + base64.b64encode(f.read()).decode()
    said = [{"role": "user", "content": [{"type": "input_text", "text": "Look."}, {"type": "input_image", "image_url": url, "detail": "auto"}]}]
    d = c.decisions.create(model="any", input=said, questions=questions[:1], safety_identifier="u", prompt_cache_key="k")
    check("openai, a picture", 0 <= d.answers[0].probability <= 1 and d.usage.input_tokens > 50, d)
    try:
        c.decisions.create(model="any", input=STATE, questions=[])
        check("openai, no question", False)
    except openai.BadRequestError as e:
        check("openai, no question", "questions" in e.message, e.message)


def ask_typesafe(s):
    from typesafe_sdk import Choice, Noul, Score, TypeSafeBadRequestError, TypeSafeClient
    with TypeSafeClient(api_key="k", base_url=f"http://127.0.0.1:{s.port}") as c:
        r = c.system_one(state={"document": STATE}, questions={
            "category": Choice(instructions="What is it about?", criteria={"billing": None, "technical": "it is broken", "other": None}),
            "spam": Noul(instructions="Is it spam?"), "upset": Score(instructions="How upset?", criteria=["calm", "cross", "furious"])})
        a = r.answers
        check("typesafe, a choice", a["category"].choice in a["category"].probabilities and math.isclose(sum(a["category"].probabilities.values()), 1), a)
        check("typesafe, a noul", 0 <= a["spam"].noul <= 1, a)
        check("typesafe, a score", 0 <= a["upset"].score <= 2 and a["upset"].legend[2] == "furious", a)
        check("typesafe, models", [m.name for m in c.models.list().models] == ["test"])
        try:
            c.system_one(state="x", questions={"q": Choice(instructions="?", criteria={str(i): None for i in range(300)})})
            check("typesafe, too many options", False)
        except TypeSafeBadRequestError as e:
            check("typesafe, too many options", "255" in str(e), e)


def is_there(module):
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def every_client():
    with Server("-q", model=MODEL) as s:
        for module, ask in (("openai.resources.decisions", ask_openai), ("typesafe_sdk", ask_typesafe)):
            if is_there(module):
                ask(s)
            else:
                skip(f"decisions with {module}", "it is not installed")


run([every_client])
finish()
