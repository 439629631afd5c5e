"""What people type: the families of knowledge.py, sums.py, letters.py and chatter.py as examples, alone and mixed in conversations.

What is asked in eval/people.txt in four words or more is never trained on; of everything else one question in 40 is held back, by a
hash of its text, for a look at each family while training."""
import os
import re
import zlib

import chatter
import knowledge
import letters
import sums
from knowledge import BY_KEY, COUNTRY_KEYS, FOLLOW, KNOWN, THERE, WEIGHTS
from phrases import as_typed, keep, say
from words import CITIES, NAMES

THINK = 0.1  # of the examples with thinking on: people seldom turn it on
HERE = os.path.dirname(os.path.abspath(__file__))


def bare(text):
    return " ".join(re.findall("[a-z0-9]+", text.lower()))


def read_people(path=os.path.join(HERE, "eval", "people.txt")):
    asked = set()
    with open(path, encoding="utf-8") as f:
        for line in f:
            text = bare(re.sub(r"^[+*] ", "", line.split(" => ")[0]))
            if not line.startswith("#") and len(text.split()) >= 4:
                asked.add(text)
    return asked


PEOPLE = read_people()


def allowed(question, split):
    """On the wanted side of the split."""
    text = bare(question)
    return text not in PEOPLE and (zlib.crc32(text.encode()) % 40 == 0) == (split == "eval")


class Turn:
    """What is typed, what is answered, and what the next turn may refer to."""

    def __init__(self, question, answer, thought, about=None):
        self.question, self.answer, self.thought, self.about = question, answer, thought, about


def fact(rng):
    other = rng.random()
    if other < 0.1:
        return Turn(*(knowledge.yes_or_no if other < 0.06 else knowledge.about)(rng))
    known = rng.choices(KNOWN, WEIGHTS)[0]
    x = known.pick(rng)
    about = ("fact", known, x)
    return Turn(known.ask(rng, x), known.say(x), "I know this one.", about)


def calculation(rng):
    q, a, thought, value = sums.ask(rng)
    return Turn(q, a, thought, ("value", value) if value is not None and 0 <= value < 5000 else None)


def words(rng):
    kind = rng.random()
    if kind < 0.25:
        task = rng.choice([letters.spell, letters.backwards, letters.count_letters])
        q, a, thought = task(rng)
        found = re.search("letters of ([a-z]+) are|word ([a-z]+) backwards|^([A-Za-z]+) is spelled", a)
        return Turn(q, a, thought, ("word", next(g for g in found.groups() if g).lower()))
    return Turn(*letters.ask(rng))


def talk(rng):
    return Turn(*chatter.talk(rng))


def dunno(rng):
    return Turn(*chatter.unknown(rng))


def tale(rng):
    from families import STORY
    return Turn(*chatter.story(rng, STORY))


def poem(rng):
    return Turn(*chatter.rhyme(rng))


SINGLE = {"ask": (fact, 30), "calc": (calculation, 22), "letters": (words, 26), "chat": (talk, 12), "dunno": (dunno, 14), "tale": (tale, 14), "poem": (poem, 8)}


def go_on(rng, before):
    """A turn that refers to the one before, or None."""
    if before is None:
        return None
    if before[0] == "value":
        q, a, thought, value = sums.go_on(rng, before[1])
        return Turn(q, a, thought, ("value", value) if 0 <= value < 5000 else None)
    if before[0] == "word":
        return Turn(*letters.go_on(rng, before[1]), ("word", before[1]))
    _, known, x = before
    if known.key in COUNTRY_KEYS and rng.random() < 0.5:
        other = BY_KEY[rng.choice([k for k in COUNTRY_KEYS if k != known.key])]
        if x in other.table:
            return Turn(say(rng, rng.choice(THERE[other.key])), other.say(x), "The same country.", ("fact", other, x))
    tongue = known.key.capitalize()
    if tongue in knowledge.TONGUES and rng.random() < 0.6:
        other = BY_KEY[rng.choice([t.lower() for t in knowledge.TONGUES if t != tongue])]
        if x in other.table:
            return Turn(say(rng, "[and|now] in {t}|and {t}|{t}", t=other.key.capitalize()), other.say(x), "The same word.", ("fact", other, x))
    y = known.pick(rng)
    return Turn(say(rng, rng.choice(FOLLOW), x=keep(y)), known.say(y), "The same question about something else.", ("fact", known, y))


def short_turn(rng):
    family = rng.choices(["ask", "calc", "letters", "chat", "dunno"], [34, 22, 22, 14, 8])[0]
    return SINGLE[family][0](rng)


def typed_turn(rng, turn, split):
    """The question as it is typed, on the wanted side; None: try again."""
    text = as_typed(rng, turn.question)
    return text if allowed(text, split) else None


def single(family):
    def make(rng, split):
        from families import Example, user
        while True:
            turn = SINGLE[family][0](rng)
            q = typed_turn(rng, turn, split)
            if q:
                return Example(family, [user(q)], turn.answer, turn.thought, check={"kind": family} if family in OPEN else None, think=THINK)
    return make


def conversation(rng, split):
    """Two to five turns that change the subject, or go on with it."""
    from families import Example, plain, said, user
    messages, before = [], None
    n = rng.choice([2, 2, 3, 3, 4, 5])
    for i in range(n):
        last = i == n - 1
        for _ in range(50):
            turn = go_on(rng, before) if before and rng.random() < 0.5 else None
            if turn is None and rng.random() < 0.04:
                turn = tale(rng) if last else poem(rng)
            turn = turn or short_turn(rng)
            q = as_typed(rng, turn.question)
            if bare(q) not in PEOPLE and (not last or allowed(str(messages[-2:]) + q, split)):
                break
        if last:
            return Example("mixed", messages + [user(q)], turn.answer, turn.thought, think=THINK)
        messages += [user(q), said(plain(turn.answer))]
        before = turn.about
    raise AssertionError


# ---- tools and JSON ----

ASK_TOOLS = {
    "weather": "(what is|what's|whats|how is|how's|hows|) [the] weather [like] (in|at|for) {c} [today|now|right now|tomorrow]|(is it|will it be) (raining|sunny|cold|warm|snowing|hot) in {c} [now|today|right now]|weather {c}|{c} weather|do i need an umbrella in {c}|temperature in {c}",
    "time": "what time is it in {c} [now|right now]|[the|current|local] time in {c}|{c} time|how late is it in {c}|what's the time in {c}",
    "timer": "(set|start|make) [me] a timer (for|of) {n} (minutes|min)|timer [for] {n} (minutes|min)|{n} (minute|minutes|min) timer|wake me [up] in {n} (minutes|min)|(remind|call) me in {n} minutes",
    "calculator": "(what is|whats|calculate|compute|how much is|) {e}|{e} = ?|use the calculator for {e}",
}


def tool_call(rng, split):
    from families import KINDS, Example, call_thought, declare, user
    while True:
        kind = rng.choice(list(ASK_TOOLS))
        kinds = list({kind, *rng.sample(KINDS, rng.choice([0, 0, 1, 2]))})
        rng.shuffle(kinds)
        declared = {k: declare(rng, k) for k in kinds}
        if rng.random() < 0.4:  # as a bare declaration says it
            for d in declared.values():
                for p in d["function"]["parameters"]["properties"].values():
                    p.pop("description", None)
        if rng.random() < 0.25:  # no tool is of any use for this
            turn = short_turn(rng) if rng.random() < 0.6 else talk(rng)
            if turn.answer == chatter.UNKNOWN or "*" in turn.question or "+" in turn.answer or "=" in turn.answer or "time" in turn.question:
                continue
            q = typed_turn(rng, turn, split)
            if q:
                return Example("results", [user(q)], turn.answer, "No tool is needed.", tools=list(declared.values()))
            continue
        city, n = rng.choice(CITIES), rng.randrange(1, 120)
        a, b, op = rng.randrange(10 ** rng.randrange(1, 5)), rng.randrange(1, 10 ** rng.randrange(1, 4)), rng.choice("+-*/")
        e = "%d %s %d" % (a, op, b)
        arguments = {"weather": {"city": city}, "time": {"city": city}, "timer": {"minutes": n}, "calculator": {"expression": e}}[kind]
        q = as_typed(rng, say(rng, ASK_TOOLS[kind], c=keep(city), n=keep(str(n)), e=keep(e)))
        if allowed(q, split):
            calls = [(declared[kind]["function"]["name"], arguments)]
            return Example("tools", [user(q)], "", call_thought([calls[0][0]]), calls, list(declared.values()),
                           check={"kind": "calls", "calls": [{"name": m, "arguments": x} for m, x in calls]})


def as_json(rng, split):
    from families import Example, dump, user
    while True:
        if rng.random() < 0.5:
            items = [rng.randrange(1000) for _ in range(rng.randrange(2, 6))] if rng.random() < 0.5 else [letters.a_word(rng) for _ in range(rng.randrange(2, 6))]
            text = [str(i) for i in items]
            joined = rng.choice([", ".join(text), " ".join(text), ", ".join(text[:-1]) + " and " + text[-1]])
            q = say(rng, "(make|write|give me|create|build) [me] a json (array|list) (of|with|from) [these] {l}|json (array|list) [of|with|:] {l}|{l} (as|in) [a] json [array|list]|(turn|put|convert) {l} (into|to|in) [a] json [array|list]", l=keep(joined))
            v = items
        else:
            name, age, city, food = rng.choice(NAMES + ["Bob", "Peter", "Alice", "Maria"]), rng.randrange(1, 99), rng.choice(CITIES), rng.choice("soup bread rice cheese cake apples fish tea".split())
            parts = {"age": rng.choice(["is %d [years old]", "age is %d", "is %d years old", "age %d"]).replace("[years old]", "").strip() % age, "city": rng.choice(["lives in %s", "is from %s", "city is %s"]) % city, "food": rng.choice(["likes %s", "eats %s"]) % food}
            chosen = rng.sample(list(parts), rng.choice([1, 2, 2]))
            first = rng.choice(["%s ", "name is %s, ", "name: %s, "]) % name
            values = {"age": age, "city": city, "food": food}
            v = {"name": name, **{k: values[k] for k in chosen}}
            q = say(rng, "(json|as json|in json|to json|make json|json please|turn this into json [please]|give me this as json|json object)[:] {t}|{t} (as|in|to) json", t=keep(first + rng.choice([" and ", ", "]).join(parts[k] for k in chosen)))
        q = q.replace("\x05", "").replace("\x06", "")
        if rng.random() < 0.5:
            q = q[0].upper() + q[1:]
        if allowed(q, split):
            return Example("json", [user(q)], dump(v), "The answer must be JSON.", check={"kind": "json", "value": v})


FAMILIES = {name: (single(name), weight) for name, (_, weight) in SINGLE.items()}
FAMILIES.update(mixed=(conversation, 34), typed_tools=(tool_call, 5), typed_json=(as_json, 5))
OPEN = ("tale", "poem")
