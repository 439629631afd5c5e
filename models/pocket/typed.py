"""What people type: the families of knowledge.py, sums.py, letters.py, everyday.py and chatter.py as examples, alone and mixed in conversations.

What is asked in eval/people.txt in four words or more is never trained on; of everything else one question in 40 is held back, by a
hash of its text, for a look at each family while training."""
import json
import os
import re
import zlib

import chatter
import everyday
import knowledge
import letters
import recall
import sums
from knowledge import KNOWN, WEIGHTS
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
    if value is not None and 0 <= value < 5000:
        return Turn(q, a, thought, ("value", value))
    two = re.fullmatch(r"(?:Yes, |No, )?(\d+) is (?:larger|smaller) than (\d+)\.", a)
    return Turn(q, a, thought, list(two.groups()) if two else None)


def words(rng):
    q, a, thought = letters.ask(rng)
    about, word, row = None, re.search("letters of ([a-z]+) are|^([A-Za-z]+) is spelled|letter of ([a-z]+) is", a), re.match(r"(?:Sorted|Reversed): (.+)\.$", a)
    if word:
        about = ("word", next(g for g in word.groups() if g).lower())
    elif row:
        about = row[1].split(", ")
    elif " rhymes with " in a and not a.startswith("Yes"):
        about = ("rhymed", a.split(" ")[0].lower(), 2)
    return Turn(q, a, thought, about)


def small_task(rng):
    return Turn(*everyday.ask(rng))


def talk(rng):
    if rng.random() < 0.12:  # the first words of somebody who will refer to them
        return Turn(*rng.choice([recall.tell, recall.tell_two])(rng, {})) if rng.random() < 0.65 else Turn(*recall.given(rng))
    q, a, thought = chatter.talk(rng)
    return Turn(q, a, thought, ("joke", 0) if a == recall.JOKES[0] else ("fun", 0) if a == recall.FUN[0] else None)


def dunno(rng):
    return Turn(*chatter.unknown(rng))


def tale(rng):
    from families import STORY
    return Turn(*chatter.story(rng, STORY), "tale")


def poem(rng):
    return Turn(*chatter.rhyme(rng), "poem")


SINGLE = {"ask": (fact, 30), "calc": (calculation, 26), "letters": (words, 38), "lists": (small_task, 26), "chat": (talk, 9), "dunno": (dunno, 18), "tale": (tale, 8), "poem": (poem, 7)}


# what is asked of the conversation itself, and answered so only where nothing was said before
OF_BEFORE = re.compile(r"\b(my name|who am i|did i (say|ask|tell)|remember|my age|how old am i|where am i|again|more|go on|continue|repeat)\b")


def short_turn(rng, first=True):
    while True:
        family = rng.choices(["ask", "calc", "letters", "lists", "chat", "dunno"], [32, 18, 18, 14, 12, 11])[0]
        turn = SINGLE[family][0](rng)
        if first or family not in ("chat", "dunno") or not OF_BEFORE.search(turn.question):
            return turn


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


def next_turn(rng, turns, memory):
    """A turn that refers to what was said, or None. turns: [(what was typed, Turn)]"""
    if memory and rng.random() < 0.35:
        return recall.remember(rng, memory)
    last = turns[-1][1]
    if len(turns) > 1 and rng.random() < 0.05:  # the same once more, after something else
        q, before = rng.choice(turns[:-1])
        if before.answer != last.answer and before.thought.startswith(("I know this one.", "I work out")):
            return say(rng, "[again[:]|so|ok|once more[:]|i asked:|but] ") + " " + keep(q), before.answer, before.thought, before.about
    if last.about is None and last.thought == "Small talk." and len(turns) > 1 and rng.random() < 0.7:
        last = turns[-2][1]  # "thanks. now double it"
        return recall.go_on(rng, last.about) if last.about not in ("poem", "tale") else None
    if len(turns) > 1 and isinstance(turns[-2][1].about, list) and not isinstance(last.about, list) and rng.random() < 0.3:
        return recall.of_list(rng, turns[-2][1].about, them=True)  # "add them up", after "which is the biggest"
    if rng.random() < (0.07 if last.about else 0.25):
        return recall.said_before(rng, [(q, t.answer) for q, t in turns])
    if last.about in ("poem", "tale"):
        ask = say(rng, recall.ANOTHER + ("|another (poem|rhyme|verse)|(one more|write another) (rhyme|poem)" if last.about == "poem" else "|(another|one more) (story|tale)|tell me another story"))
        again = (poem if last.about == "poem" else tale)(rng)
        return ask, again.answer, again.thought, last.about
    return recall.go_on(rng, last.about)


def opening(rng, memory):
    """A turn to which the next ones will refer."""
    kind = rng.random()
    if kind < 0.3:
        return Turn(*(recall.tell_two if rng.random() < 0.25 else recall.tell)(rng, memory))
    if kind < 0.4:
        return Turn(*recall.given(rng))
    if kind < 0.5:
        return poem(rng) if rng.random() < 0.7 else talk(rng)
    if kind < 0.52:
        return tale(rng)
    return short_turn(rng)


def conversation(family, referring):
    """Turns that change the subject or go on with it; `referring`: the last one refers to what was said before."""
    def make(rng, split):
        from families import Example, plain, said, user
        while True:
            turns, memory = [], {}
            n = rng.choice([2, 2, 2, 3, 3, 4, 5]) if referring else rng.choice([2, 2, 3, 3, 4, 5])
            while len(turns) < n:
                last, turn = len(turns) == n - 1, None
                if turns and (referring and last or rng.random() < 0.5):
                    for _ in range(6):
                        turn = turn or next_turn(rng, turns, memory)
                    if turn is None and referring and last:
                        break
                    turn = turn and Turn(*turn)
                if turn is None and referring:
                    turn = opening(rng, memory)
                if turn is None and rng.random() < 0.06:
                    turn = Turn(*recall.tell(rng, memory)) if rng.random() < 0.5 else tale(rng) if last else poem(rng)
                turn = turn or short_turn(rng, not turns)
                q = as_typed(rng, turn.question, polite=not isinstance(turn.about, str))
                if bare(q) in PEOPLE or last and not allowed(str([t[0] for t in turns[-1:]]) + q, split):
                    break
                turns.append((q, turn))
            if len(turns) == n:
                messages = [m for q, t in turns[:-1] for m in (user(q), said(plain(t.answer)))]
                q, turn = turns[-1]
                return Example(family, messages + [user(q)], turn.answer, turn.thought, check={"kind": turn.about} if turn.about in OPEN else None, think=THINK)
    return make


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


# what the server says to the model where an answer is held to a form (server/constraint_request.c)
WISH = "Answer with JSON that this schema describes and nothing else: no explanation, no code fence.\n"
ANY_OBJECT = "Answer with one JSON object and nothing else: no explanation, no code fence."
MEMBERS = {"name": "name name name person first_name who", "age": "age age age years", "city": "city city city town home location", "food": "food food meal likes", "animal": "animal animal pet"}
TOLD = {"age": "is {v}|is {v} years old|is {v} years old|age is {v}|age {v}", "city": "lives in {v}|lives in {v}|is from {v}|comes from {v}", "food": "likes {v}|eats {v}|loves {v}", "animal": "has a {v}|has a pet {v}|owns a {v}"}


def person(rng):
    """A text about somebody, and what it says by member, in the order of the text."""
    from words import ANIMALS, FOODS
    values = {"age": rng.randrange(1, 99), "city": rng.choice(CITIES), "food": rng.choice(FOODS), "animal": rng.choice(ANIMALS)}
    chosen = rng.sample(list(values), rng.choice([1, 2, 2, 2, 3]))
    name = rng.choice(NAMES + ["Bob", "Peter", "Alice", "Maria", "John", "Mary"])
    parts = [rng.choice(TOLD[k].split("|")).format(v=values[k]) for k in chosen]
    text = name + " " + (", ".join(parts[:-1]) + " and " + parts[-1] if len(parts) > 1 else parts[0])
    return text, {"name": name, **{k: values[k] for k in chosen}}


def schema_of(rng, members):
    """members: [(name, value)] -> a schema as its writer would put it down."""
    kinds = {str: "string", int: rng.choice(["integer", "integer", "number"]), bool: "boolean"}
    properties = {k: {"type": "array", "items": {"type": kinds[type(v[0])]}} if isinstance(v, list) else {"type": kinds[type(v)]} for k, v in members}
    for k, p in properties.items():
        if rng.random() < 0.1:
            p["description"] = "the " + k
    out = {"type": "object", "properties": properties}
    if rng.random() < 0.85:
        out["required"] = [k for k, _ in members]
    if rng.random() < 0.4:
        out["additionalProperties"] = False
    if rng.random() < 0.1:
        out = {"title": rng.choice(["Answer", "Person", "Result", "Record"]), **out}
    return out


def wanted(rng):
    """(question, [(member, value)]): what somebody asks who holds the answer to a form."""
    kind = rng.random()
    if kind < 0.45:
        text, told = person(rng)
        members = [(rng.choice(MEMBERS[k].split()), v) for k, v in told.items()]
        if rng.random() < 0.4:
            rng.shuffle(members)
        q = say(rng, "{t}|{t}|(turn this into json|extract the data|as json|json|extract the person|who is this|read this|fill in the form)[:] {t}|[extract the data from:] {t}", t=keep(text))
        return q, members
    if kind < 0.7:
        known = rng.choices(KNOWN, WEIGHTS)[0]
        x = known.pick(rng)
        if known.key.isalpha() and isinstance(known.table[x], str) and known.table[x].replace(" ", "").isalpha() and rng.random() < 0.6:
            return known.ask(rng, x), [(rng.choice([known.key, "answer"]), known.table[x])]
        return known.ask(rng, x), [("answer", plain_text(known.say(x)))]
    if kind < 0.85:
        q, _, _, value = sums.ask(rng)
        return (q, [(rng.choice(["answer", "result", "value", "sum"]), value)]) if value is not None else wanted(rng)
    if kind < 0.93:
        q, a = knowledge.yes_or_no(rng)[:2]
        return (q, [(rng.choice(["answer", "yes", "correct", "true"]), a.startswith("Yes"))]) if a.startswith(("Yes", "No")) else wanted(rng)
    items = [letters.a_word(rng) for _ in range(rng.randrange(2, 5))]
    return say(rng, "(sort|order|put in order|sort these words)[:] {l}", l=keep(", ".join(items))), [(rng.choice(["words", "items", "list", "sorted"]), sorted(items))]


def plain_text(text):
    return re.sub("[\x01-\x06]", "", text)


def in_form(rng, split):
    """JSON whose members are named beforehand: by the schema that the server puts into the system turn, or in the question."""
    from families import Example, SYSTEMS, dump, user
    while True:
        q, members = wanted(rng)
        if len({k for k, _ in members}) < len(members):
            continue
        v, way, system = dict(members), rng.random(), None
        if way < 0.7:
            system = WISH + json.dumps(schema_of(rng, members), separators=(",", ":"))
        elif way < 0.85 and len(members) == 1:
            v, system = {"answer": members[0][1]}, ANY_OBJECT
        else:
            names = [k for k, _ in members]
            listed = ", ".join(names) if rng.random() < 0.5 or len(names) == 1 else ", ".join(names[:-1]) + " and " + names[-1]
            q = say(rng, "(answer|reply|write|give me|as|in|make) json with [the] (keys|fields|members|key|field) {n}[:] {q}|{q} (answer|reply) in json with [the] (keys|fields|key) {n}", n=keep(listed), q=q.rstrip("?.! ") + ".")
        if system and rng.random() < 0.15:
            system = rng.choice(SYSTEMS) + "\n\n" + system
        q = as_typed(rng, q, polite=False) if rng.random() < 0.5 else plain_text(q)[:1].upper() + plain_text(q)[1:]
        if allowed(q, split):
            return Example("json", ([{"role": "system", "content": system}] if system else []) + [user(q)], dump(v), "The answer must be JSON.", check={"kind": "json", "value": v})


FAMILIES = {name: (single(name), weight) for name, (_, weight) in SINGLE.items()}
FAMILIES.update(mixed=(conversation("mixed", False), 38), recall=(conversation("recall", True), 30), typed_tools=(tool_call, 6), typed_json=(as_json, 6), typed_form=(in_form, 7))
OPEN = ("tale", "poem")
