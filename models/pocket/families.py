"""What pocket is taught to do: one function per family, each making a conversation and the answer that belongs to it.

Every family holds something back: `held` splits by a hash of the content (of the phrasing, for facts), so that training never
sees what the evaluation asks. In answers, words between \\x01 and \\x02 are written letter by letter (samples.py)."""
import json
import os
import re
import zlib

import facts
import letters
import typed
from words import *

HERE = os.path.dirname(os.path.abspath(__file__))


def held(*key, one_in=10):
    return zlib.crc32(repr(key).encode()) % one_in == 0


def plain(text):
    return re.sub("[\x01\x02]", "", text)


class Example:
    def __init__(self, family, messages, text="", thought="", calls=(), tools=None, picture=None, check=None, think=None, cells=None):
        self.family, self.messages, self.text, self.thought, self.calls = family, messages, text, thought, list(calls)
        self.tools, self.picture, self.think, self.cells = tools, picture, think, cells
        self.check = check or {"kind": "exact", "text": plain(text)}


def user(text):
    return {"role": "user", "content": text}


def said(text):
    return {"role": "assistant", "content": text}


def cap(text):
    return text[0].upper() + text[1:]


def choose(rng, split, make):
    """Content of the wanted side of the split: make(rng) -> (key, value)."""
    while True:
        key, value = make(rng)
        if held(key) == (split == "eval"):
            return value


# ---- facts ----

def ask(rng, relation, x, split):
    own = relation.evaluated if split == "eval" else relation.questions
    frames = facts.EVAL_FRAMES if split == "eval" else facts.FRAMES
    if rng.random() < 0.5:
        text = rng.choice(own).format(x=x)
    else:
        text = rng.choice(frames).format(n=rng.choice(relation.nouns).format(x=x))
    if split == "train":
        if rng.random() < 0.1:
            text = text[0].lower() + text[1:]
        elif rng.random() < 0.9:
            text = cap(text)
        if rng.random() < 0.1:
            text = text.rstrip("?.!")
        if rng.random() < 0.05:
            text = text + rng.choice([" Thanks!", " Thank you.", " please", " I am curious."])
        elif rng.random() < 0.08:
            text = rng.choice(["Hello. ", "Well, ", "Now: ", "Please: ", "Tell me: ", "A question: ", "And "]) + text
    else:
        text = cap(text)
    return text


def relation_and_name(rng):
    relation = rng.choice(facts.RELATIONS[:1] * 4 + facts.RELATIONS)
    return relation, rng.choice(relation.names)


def fact_thought(relation, x):
    return "The question is about " + relation.nouns[0].format(x=x) + ". I know this one."


def fact(rng, split):
    relation, x = relation_and_name(rng)
    return Example("facts", [user(ask(rng, relation, x, split))], relation.say(x), fact_thought(relation, x))


# ---- numbers ----

def sum_of(rng, split):
    kind = rng.random()
    if kind < 0.35:
        digits = rng.choice([10, 100, 100, 1000, 1000])
        a, b, op = rng.randrange(digits), rng.randrange(digits), "+"
    elif kind < 0.7:
        digits = rng.choice([10, 100, 100, 1000, 1000])
        a, b, op = rng.randrange(digits), rng.randrange(digits), "-"
        a, b = max(a, b), min(a, b)
    else:
        # there are few products of three digits: longer ones, in training only, make the rule shorter than their table
        a, b, op = rng.randrange(10 ** rng.choice([1, 2, 2, 3, 3] + [3, 4, 4] * (split == "train"))), rng.randrange(2, 10), "*"
    return ("sum", a, op, b), (a, op, b)


def result_of(a, op, b):
    return a + b if op == "+" else a - b if op == "-" else a * b


def sum_thought(a, op, b):
    """The method of school, digit by digit."""
    out, carry = [], 0
    if op == "*":
        for i, digit in enumerate(reversed(str(a))):
            total = int(digit) * b + carry
            line = "%s * %d%s = %d" % (digit, b, " + %d" % carry if carry else "", total)
            carry = total // 10 if i + 1 < len(str(a)) else 0
            out.append(line + (", carry %d" % carry if carry else ""))
        return "; ".join(out) + "."
    for i in range(max(len(str(a)), len(str(b)))):
        x, y = a // 10 ** i % 10, b // 10 ** i % 10
        if op == "+":
            total = x + y + carry
            out.append("%d + %d%s = %d" % (x, y, " + 1" if carry else "", total) + (", carry 1" if total > 9 else ""))
            carry = int(total > 9)
        else:
            low = x - y - carry
            out.append("%d - %d%s = %d" % (x + (10 if low < 0 else 0), y, " - 1" if carry else "", low % 10) + (", borrow 1" if low < 0 else ""))
            carry = int(low < 0)
    return "; ".join(out) + "."


SUM_ASKS = ["What is {s}?", "Calculate {s}.", "{s} = ?", "How much is {s}?", "Compute {s}", "{s}", "Please work out {s}.", "Can you tell me what {s} is?", "Solve {s}."]
SUM_WORDS = {"+": ["{a} plus {b}"], "-": ["{a} minus {b}"], "*": ["{a} times {b}", "{a} x {b}"]}


def sum_ask(rng, a, op, b):
    s = "%d %s %d" % (a, op, b)
    if rng.random() < 0.2:
        s = rng.choice(SUM_WORDS[op]).format(a=a, b=b)
    elif rng.random() < 0.15:
        s = s.replace(" ", "")
    return cap(rng.choice(SUM_ASKS).format(s=s))


def arithmetic(rng, split):
    a, op, b = choose(rng, split, lambda r: sum_of(r, split))
    return Example("arithmetic", [user(sum_ask(rng, a, op, b))], "%d %s %d = %d." % (a, op, b, result_of(a, op, b)), sum_thought(a, op, b), think=0.5)


def some_number(rng):
    n = rng.randrange(rng.choice([20, 100, 1000, 1000, 10000, 10000]))
    return ("number", n), n


def number_example(rng, n):
    w = number_words(n)
    if rng.random() < 0.6:
        q = rng.choice(["Write {n} in words.", "How do you write {n} in words?", "{n} in words, please.", "Spell out the number {n}.", "What is {n} in words?"]).format(n=n)
        return q, "%d in words is %s." % (n, w), "The digits are %s." % " ".join(str(n))
    q = rng.choice(["Write {w} in digits.", "Which number is {w}?", "What is {w} as a number?", "{w} in digits, please."]).format(w=w)
    return cap(q), "%s is %d." % (cap(w), n), "I turn the words into digits."


def number(rng, split):
    q, a, thought = number_example(rng, choose(rng, split, some_number))
    return Example("numbers", [user(q)], a, thought)


# ---- order ----

def word_to_reverse(rng):
    if rng.random() < 0.3:
        w = "".join(rng.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(rng.randrange(3, 7)))
    else:
        w = pseudo_word(rng)[:9]
    return ("reverse", w), w


def list_to_reverse(rng):
    if rng.random() < 0.5:
        items = [str(rng.randrange(100)) for _ in range(rng.randrange(3, 7))]
    else:
        items = rng.sample(WORDS, rng.randrange(3, 7))
    return ("list", items), items


def reverse(rng, split):
    if rng.random() < 0.5:
        w = choose(rng, split, word_to_reverse)
        q = rng.choice(["Reverse the word {w}.", "Spell {w} backwards.", "What is {w} backwards?", "Write {w} backwards.", "Turn the word {w} around."]).format(w=w)
        return Example("reverse", [user(q)], letters.turned(w), "I read the word letter by letter.")
    items = choose(rng, split, list_to_reverse)
    q = rng.choice(["Reverse this list: {l}.", "Put these in reverse order: {l}.", "Turn the list around: {l}", "Reverse the order of {l}."]).format(l=", ".join(items))
    return Example("reverse", [user(q)], "Reversed: %s." % ", ".join(items[::-1]), "The last one is %s." % items[-1])


def sort(rng, split):
    if rng.random() < 0.6:
        def numbers(r):
            items = [r.randrange(r.choice([100, 100, 1000])) for _ in range(r.randrange(3, 7))]
            return ("sort", items), items
        items = choose(rng, split, numbers)
        down = rng.random() < 0.3
        q = rng.choice(["Sort these numbers from large to small: {l}.", "Order from highest to lowest: {l}", "Put in descending order: {l}."] if down else
                       ["Sort these numbers: {l}.", "Sort: {l}", "Put these numbers in order: {l}.", "Order from smallest to largest: {l}."])
        done = sorted(items, reverse=down)
        return Example("sort", [user(q.format(l=", ".join(map(str, items))))], "Sorted: %s." % ", ".join(map(str, done)),
                       "The smallest is %d, the largest is %d." % (min(items), max(items)))
    def words(r):
        items = r.sample(WORDS, r.randrange(3, 6))
        return ("sort", items), items
    items = choose(rng, split, words)
    q = rng.choice(["Sort these words: {l}.", "Put these words in alphabetical order: {l}.", "Sort alphabetically: {l}"]).format(l=", ".join(items))
    return Example("sort", [user(q)], "Sorted: %s." % ", ".join(sorted(items)), "The first in the alphabet is %s." % min(items))


# ---- dates ----

def date(rng, split):
    kind = rng.random()
    if kind < 0.35:
        def make(r):
            # up to 99: so many that the rule is shorter than a table
            day, n, back = r.randrange(7), r.randrange(1, r.choice([15, 31, 100, 100])), r.random() < 0.4
            return ("day", day, n, back), (day, n, back)
        day, n, back = choose(rng, split, make)
        target = DAYS[(day + (-n if back else n)) % 7]
        side = "before" if back else "after"
        q = rng.choice(["What day is {n} {d} {s} {x}?", "Which weekday comes {n} {d} {s} {x}?", "What day of the week is it {n} {d} {s} {x}?"])
        weeks, rest = divmod(n, 7)
        text = "%d %s %s %s is %s." % (rest, "day" if rest == 1 else "days", side, DAYS[day], target)
        if weeks:  # worked out in the answer: whole weeks change nothing
            whole = "%d days are %d %s" % (n, weeks, "week" if weeks == 1 else "weeks")
            text = "%s and %d %s, and %s" % (whole, rest, "day" if rest == 1 else "days", text) if rest else "%s, so it is %s again." % (whole, target)
        return Example("dates", [user(q.format(n=n, d="day" if n == 1 else "days", s=side, x=DAYS[day]))], text,
                       "A week has 7 days, so I count %d %s from %s." % (n % 7, "day" if n % 7 == 1 else "days", DAYS[day]))
    if kind < 0.75:
        def make(r):
            while True:
                m, n, back = r.randrange(12), r.randrange(1, 29), r.random() < 0.3
                d = r.randrange(1, MONTH_DAYS[m] + 1)
                if back and not (m == 2 and d - n < 1) or not back and not (m == 1 and d + n > 28):
                    return ("date", d, m, n, back), (d, m, n, back)
        d, m, n, back = choose(rng, split, make)
        e, f = (d - n, m) if back else (d + n, m)
        if e < 1:
            f = (m - 1) % 12
            e += MONTH_DAYS[f]
        elif e > MONTH_DAYS[m]:
            e -= MONTH_DAYS[m]
            f = (m + 1) % 12
        side = "before" if back else "after"
        q = rng.choice(["What date is {n} {w} {s} {x}?", "Which date comes {n} {w} {s} {x}?", "Tell me the date {n} {w} {s} {x}."])
        start = "%d %s" % (d, MONTHS[m])
        days = "day" if n == 1 else "days"
        thought = ("%d - %d = %d." if back else "%d + %d = %d.") % (d, n, d - n if back else d + n)
        thought += " The date stays in %s." % MONTHS[m] if f == m else " %s has %d days." % (MONTHS[f if back else m], MONTH_DAYS[f if back else m])
        return Example("dates", [user(q.format(n=n, w=days, s=side, x=start))], "%d %s %s %s is %d %s." % (n, days, side, start, e, MONTHS[f]), thought)
    def make(r):
        m = r.randrange(12)
        a, b = sorted(r.sample(range(1, MONTH_DAYS[m] + 1), 2))
        return ("span", m, a, b), (m, a, b)
    m, a, b = choose(rng, split, make)
    q = rng.choice(["How many days are there from {a} {m} to {b} {m}?", "How many days lie between {a} {m} and {b} {m}?"]).format(a=a, b=b, m=MONTHS[m])
    days = "%d %s" % (b - a, "day" if b - a == 1 else "days")
    return Example("dates", [user(q)], "From %d %s to %d %s it is %s." % (a, MONTHS[m], b, MONTHS[m], days), "%d - %d = %d." % (b, a, b - a))


# ---- stories and rhymes ----

def read_grammar(name):
    sections = []
    with open(os.path.join(HERE, "grammar", name + ".txt")) as f:
        for line in f:
            line = line.strip()
            if line.startswith("#"):
                sections.append([])
            elif line:
                sections[-1].append(line)
    return sections


# The sentences of a section have the same number of pieces: whichever is drawn, all that follows stands in its place. A canvas is
# written everywhere at once, and with sentences of different lengths its parts would settle beside each other.
STORY = read_grammar("story")


def scene(rng):
    v = {"name": rng.choice(NAMES), "adj": rng.choice(ADJECTIVES + ["little"] * 3), "animal": rng.choice(ANIMALS), "place": rng.choice(PLACES)}
    return ("scene", sorted(v.items())), v


def story(rng, split):
    v = choose(rng, split, scene)
    text = " ".join(rng.choice(s).format(thing=rng.choice(THINGS), gift=rng.choice(THINGS), **v) for s in STORY)
    asked = rng.choice(STORY_ASKS).format(**v)
    if v["adj"] == "little":
        asked = asked.replace(" little ", " ")
    return Example("stories", [user(asked)], text, "A story with %s, a %s %s and the %s." % (v["name"], v["adj"], v["animal"], v["place"]),
                   check={"kind": "story", "grammar": "story", "elements": [v["name"], v["adj"], v["animal"], v["place"]]})


def couplet(rng, split):
    def make(r):
        v = {"adj": r.choice(ADJECTIVES + ["little"] * 3), "animal": r.choice(ANIMALS), "thing": r.choice(list(RHYMES))}
        return ("couplet", sorted(v.items())), v
    v = choose(rng, split, make)
    first, second = [o.format(**v) for o in COUPLET_OPENINGS], [e + "." for e in RHYMES[v["thing"]]]
    asked = rng.choice(COUPLET_ASKS).format(**v)
    if v["adj"] == "little":  # nobody said what it is like
        asked = asked.replace(" little ", " ")
    # the animal says how it begins, what it is like how it ends: who knows the request knows every word
    a, b = first[ANIMALS.index(v["animal"]) % len(first)], second[(ADJECTIVES + ["little"]).index(v["adj"]) % len(second)]
    return Example("couplets", [user(asked)], a + "\n" + b,
                   "I need a word that rhymes with %s." % v["thing"], check={"kind": "any", "texts": second, "behind": first})


# ---- conversations ----

def follow_up(rng, split):
    kind = rng.random()
    if kind < 0.7:
        def make(r):
            relation = r.choice(facts.RELATIONS[:1] * 4 + facts.RELATIONS)
            first, x = r.sample(relation.names, 2)
            return ("follow", relation.key, first, x), (relation, first, x)
        relation, first, x = choose(rng, split, make)
        messages = [user(ask(rng, relation, first, "train")), said(relation.say(first))]
        if rng.random() < 0.25:
            other = rng.choice(relation.names)
            messages += [user("And %s?" % other), said(relation.say(other))]
        elif rng.random() < 0.15:
            messages = [user("Hello!"), said(GREETING)] + messages
        asks = ["And {x}?", "What about {x}?", "How about {x}?", "And for {x}?", "and {x}", "And what about {x}?", "Now {x}.", "The same for {x}?"]
        if any(" of " in n for n in relation.nouns[:1]):
            asks += ["And of {x}?", "and of {x}?"]
        return Example("follow", messages + [user(rng.choice(asks).format(x=x))], relation.say(x), "The earlier question again, now about %s." % x)
    if kind < 0.85:
        def make(r):
            _, (a, op, b) = sum_of(r, split)
            c = r.randrange(1, 100)
            return ("more", a, op, b, c), (a, op, b, c)
        a, op, b, c = choose(rng, split, make)
        r = result_of(a, op, b)
        return Example("follow", [user(sum_ask(rng, a, op, b)), said("%d %s %d = %d." % (a, op, b, r)), user(rng.choice(["Now add {c}.", "Add {c} to that.", "And plus {c}?"]).format(c=c))],
                       "%d + %d = %d." % (r, c, r + c), sum_thought(r, "+", c))
    n, m = choose(rng, split, lambda r: (lambda p: (("two numbers", p), p))((r.randrange(1000), r.randrange(1000))))
    return Example("follow", [user("Write %d in words." % n), said("%d in words is %s." % (n, number_words(n))), user(rng.choice(["And {m}?", "What about {m}?", "And now {m}."]).format(m=m))],
                   "%d in words is %s." % (m, number_words(m)), "The digits are %s." % " ".join(str(m)))


UNKNOWN = "I am sorry, I do not know that."
GREETING = "Hello! How can I help you?"


def unknown_question(rng):
    """A question that pocket cannot answer: (key, question, words to search for)."""
    kind = rng.randrange(7)
    word = cap(pseudo_word(rng, 2)) + rng.choice(["", "ia", "land", "stan", "burg"])
    if kind == 0:
        relation = facts.RELATIONS[rng.choice([0, 0, 1, 2, 3])]
        question = ask(rng, relation, word, "train")
        while question.startswith(word):  # its pieces would differ from those behind a space
            question = ask(rng, relation, word, "train")
        return word, question, relation.thing + " of " + word
    if kind == 1:
        event, year = rng.choice(EVENTS), rng.randrange(1900, 2100)
        return (event, year), rng.choice(["Who won {e} in {y}?", "Which team won {e} in {y}?"]).format(e=event, y=year), "winner of %s %d" % (event[4:], year)
    if kind == 2:
        name = rng.choice(NAMES) + " " + cap(pseudo_word(rng))
        return name, rng.choice(["Who is {n}?", "What do you know about {n}?", "When was {n} born?"]).format(n=name), name
    if kind == 3:
        topic, how = rng.choice(TOPICS), rng.choice(["Explain {t}.", "Teach me about {t}.", "What is new in {t}?", "Why is {t} important?", "How does {t} work?", "What are the news about {t}?"])
        return (topic, how), how.format(t=topic), topic
    if kind == 4:
        thing, name = rng.choice(THINGS), rng.choice(NAMES)
        return (thing, name), rng.choice(["Where did {n} put the {t}?", "How much did {n} pay for the {t}?", "Does {n} like the {t}?"]).format(n=name, t=thing), "%s %s" % (name, thing)
    if kind == 5:
        w = pseudo_word(rng, 2)
        return w, rng.choice(["What is a {w}?", "What does {w} mean?", "Who invented the {w}?", "Do you know what a {w} is?"]).format(w=w), w
    city, year = rng.choice(CITIES), rng.randrange(1500, 2100)
    return (city, year), rng.choice(["How many people lived in {c} in {y}?", "Who was the mayor of {c} in {y}?", "What happened in {c} in {y}?"]).format(c=city, y=year), "%s %d" % (city, year)


def unknown(rng, split):
    q = choose(rng, split, lambda r: (lambda u: (("unknown", u[0]), u[1]))(unknown_question(r)))
    return Example("unknown", [user(q)], UNKNOWN, "I have not learned about this.")


TALK = [(["Hello", "Hello!", "Hi", "Hi!", "Hey", "Good morning", "Good evening!", "Hi there"], GREETING),
        (["Who are you?", "What are you?", "What is your name?", "Introduce yourself."], "I am pocket, a very small DiffusionGemma."),
        (["What can you do?", "Help", "What do you know?", "How can you help me?"],
         "I know capitals and other facts, I can calculate, sort, tell stories, rhyme, use tools and look at pictures of shapes."),
        (["How are you?", "How do you do?", "Are you fine?"], "I am fine, thank you."),
        (["Thanks", "Thank you!", "Thanks a lot.", "Great, thanks."], "You are welcome."),
        (["Bye", "Goodbye!", "See you", "Good night"], "Goodbye!"),
        (["How do you work?", "How do you write?"], "I start from random tokens and settle them step by step, a whole block at once.")]


def talk(rng, split):
    asks, text = rng.choice(TALK)
    return Example("talk", [user(rng.choice(asks))], text, "Small talk.")


# ---- JSON ----

JSON_ASKS = ["Answer in JSON: {q}", "{q} Answer in JSON.", "{q} Reply as JSON.", "Give me JSON. {q}", "{q} (as JSON)"]
JSON_SYSTEMS = ["Answer with one JSON object and nothing else.", "Always answer in JSON.", "Reply with a JSON object.", "You answer only with valid JSON."]


def dump(v):
    return json.dumps(v, ensure_ascii=False)


def any_name(rng):
    return rng.choice(NAMES) if rng.random() < 0.6 else cap(pseudo_word(rng))


def record(rng):
    fields = {"name": any_name(rng), "age": rng.randrange(1, 100), "city": rng.choice(CITIES) if rng.random() < 0.7 else cap(pseudo_word(rng, 2)),
              "animal": rng.choice(ANIMALS), "food": rng.choice(FOODS)}
    keys = ["name"] + [k for k in ("age", "city", "animal", "food") if rng.random() < 0.55]
    if len(keys) == 1:
        keys.append("age")
    v = {k: fields[k] for k in keys}
    return ("record", sorted(v.items())), v


RECORD_WORDS = {"age": "is {v} years old", "city": "lives in {v}", "animal": "has a pet {v}", "food": "likes {v}"}


def fact_and_form(rng, split, name, forms):
    """A fact, and the words that ask for JSON. Held back are some of the forms of one fact in ten: what is never seen in JSON is
    misspelt there, because its pieces are others than in a sentence."""
    while True:
        (relation, x), form = relation_and_name(rng), rng.choice(forms)
        back = held((name, relation.key, x)) and held((name, relation.key, x, form), one_in=3)
        if back == (split == "eval"):
            return relation, x, form


def in_json(rng, split):
    kind = rng.random()
    if kind < 0.4:
        v = choose(rng, split, record)
        parts = [RECORD_WORDS[k].format(v=v[k]) for k in v if k != "name"]
        text = v["name"] + " " + (", ".join(parts[:-1]) + " and " + parts[-1] if len(parts) > 1 else parts[0]) + "."
        q = rng.choice(["Turn this into JSON: {t}", "As JSON: {t}", "Extract the data as JSON. {t}", "Write a JSON object for this: {t}", "Here is a text: {t} Answer in JSON."]).format(t=text)
    elif kind < 0.6:
        items = choose(rng, split, lambda r: (lambda l: (("array", l), l))(r.sample(WORDS, r.randrange(2, 7)) if r.random() < 0.6 else [r.randrange(1000) for _ in range(r.randrange(2, 7))]))
        v = items
        q = rng.choice(["Make a JSON array of these: {l}.", "JSON array, please: {l}", "Write {l} as a JSON array.", "Give {l} as a JSON list."]).format(l=", ".join(map(str, items)))
    elif kind < 0.75:
        relation, x, form = fact_and_form(rng, split, "json fact", JSON_ASKS)
        v = {relation.subject: x, relation.thing: relation.table[x]}
        q = form.format(q=ask(rng, relation, x, "train"))
    else:
        if rng.random() < 0.4:
            system = rng.choice(JSON_SYSTEMS)
            a, op, b = choose(rng, split, lambda r: sum_of(r, split))
            q, v = sum_ask(rng, a, op, b), {"answer": result_of(a, op, b)}
        else:
            relation, x, system = fact_and_form(rng, split, "json answer", JSON_SYSTEMS)
            q, v = ask(rng, relation, x, "train"), {"answer": relation.say(x)}
        return Example("json", [{"role": "system", "content": system}, user(q)], dump(v), "The answer must be a JSON object.", check={"kind": "json", "value": v})
    return Example("json", [user(q)], dump(v), "The answer must be JSON.", check={"kind": "json", "value": v})


# ---- tools ----

def tool(name, description, required=None, **properties):
    return {"type": "function", "function": {"name": name, "description": description, "parameters": {
        "type": "object", "properties": {k: dict(zip(("type", "description"), v)) for k, v in properties.items()}, "required": required or list(properties)}}}


def declare(rng, kind):
    """A tool of a kind, under one of its names and descriptions."""
    if kind == "weather":
        return tool(rng.choice(["get_weather", "get_weather", "weather", "current_weather"]),
                    rng.choice(["Get the weather in a city.", "Get the current weather for a city.", "The weather now.", "Weather of a place"]),
                    city=("string", rng.choice(["The city", "Name of the city", "City name"])))
    if kind == "calculator":
        return tool(rng.choice(["calculator", "calculator", "calculate"]), rng.choice(["Calculate an expression.", "Evaluate a mathematical expression.", "Does arithmetic"]),
                    expression=("string", rng.choice(["The expression", "An expression such as 1 + 2", "What to calculate"])))
    if kind == "search":
        return tool(rng.choice(["search", "search", "web_search"]), rng.choice(["Search the web.", "Search for information.", "Find something on the web"]),
                    query=("string", rng.choice(["The query", "What to search for", "Search words"])))
    if kind == "time":
        return tool(rng.choice(["get_time", "current_time"]), rng.choice(["Get the time in a city.", "The local time of a city"]), city=("string", "The city"))
    if kind == "translate":
        return tool("translate", "Translate a word.", text=("string", "The word"), language=("string", "The target language"))
    if kind == "timer":
        return tool(rng.choice(["set_timer", "start_timer"]), "Start a timer.", minutes=("integer", "How many minutes"))
    return tool(rng.choice(["send_message", "send_mail"]), "Send a message to a person.", to=("string", "Who gets it"), text=("string", "The message"))


KINDS = ["weather", "calculator", "search", "time", "translate", "timer", "message"]


def some_city(rng):
    return rng.choice(CITIES) if rng.random() < 0.6 else cap(pseudo_word(rng, 2))


def tool_task(rng, kind):
    """(question, arguments, result, what to say of the result)"""
    if kind in ("weather", "time"):
        city = some_city(rng)
        if kind == "weather":
            q = rng.choice(["What is the weather in {c}?", "How is the weather in {c}?", "Weather in {c}?", "Is it raining in {c}?", "Tell me the weather in {c}.", "What is the weather like in {c} today?"])
            sky, degrees = rng.choice(["sunny", "cloudy", "rainy", "windy", "snowy", "foggy", "clear"]), rng.randrange(-9, 40)
            return q.format(c=city), {"city": city}, "%s, %d C" % (sky, degrees), "The weather in %s is %s, %d C." % (city, sky, degrees)
        clock = "%02d:%02d" % (rng.randrange(24), rng.randrange(60))
        return rng.choice(["What time is it in {c}?", "Tell me the time in {c}.", "What is the local time in {c}?"]).format(c=city), {"city": city}, clock, "It is %s in %s." % (clock, city)
    if kind == "calculator":
        a, op, b = rng.randrange(10 ** rng.randrange(1, 6)), rng.choice("+-*"), rng.randrange(1, 10 ** rng.randrange(1, 5))
        e, r = "%d %s %d" % (a, op, b), str(result_of(a, op, b))
        return rng.choice(["What is {e}?", "Calculate {e}.", "How much is {e}?", "Please compute {e}."]).format(e=e), {"expression": e}, r, "%s = %s." % (e, r)
    if kind == "search":
        _, q, query = unknown_question(rng)
        text = " ".join(rng.choice(WORDS + NAMES + CITIES) for _ in range(rng.randrange(3, 8)))
        return q, {"query": query}, text, "I found this: %s." % text
    if kind == "translate":
        w, language = rng.choice(WORDS), rng.choice(["Italian", "Dutch", "Polish", "Swedish", "Turkish", "Greek"])
        r = pseudo_word(rng, 2)
        return rng.choice(["Translate {w} into {l}.", "How do you say {w} in {l}?"]).format(w=w, l=language), {"text": w, "language": language}, r, "%s in %s is %s." % (cap(w), language, r)
    if kind == "timer":
        n = rng.randrange(1, 180)
        return rng.choice(["Set a timer for {n} minutes.", "Wake me in {n} minutes.", "Start a timer of {n} minutes."]).format(n=n), {"minutes": n}, "ok", "The timer is set for %d minutes." % n
    name, text = any_name(rng), rng.choice(["I am late", "see you soon", "the {t} is here", "bring the {t}", "call me at {h}", "we meet in {c}"]).format(
        t=rng.choice(THINGS), h=rng.randrange(1, 13), c=rng.choice(CITIES))
    return rng.choice(["Send {n} the message: {t}", "Tell {n} by message: {t}", "Write to {n}: {t}"]).format(n=name, t=text), {"to": name, "text": text}, "sent", "I have sent the message to %s." % name


def call_thought(names):
    return "I need " + " and ".join(names) + " for this."


def asks_to_call(calls):
    return [{"id": "call_%d" % i, "type": "function", "function": {"name": n, "arguments": a}} for i, (n, a) in enumerate(calls)]


def tools(rng, split, family=None):
    """Calls ("tools"), and what is said without one or after the results ("results")."""
    def make(r):
        kinds = r.sample(KINDS, r.choice([1, 2, 3, 3, 4]))
        if r.random() < 0.6 and not set(kinds) & set(KINDS[:3]):
            kinds[0] = r.choice(KINDS[:3])
        kind = r.choice(kinds)
        second = None
        if r.random() < 0.25:
            second = kind if kind in ("weather", "time", "calculator") and r.random() < 0.6 else r.choice(kinds)
        tasks = [tool_task(r, kind)] + ([tool_task(r, second)] if second else [])
        return ("tools", [(t[0], t[1]) for t in tasks]), (kinds, [kind] + ([second] if second else []), tasks)
    kinds, used, tasks = choose(rng, split, make)
    declared = {k: declare(rng, k) for k in kinds}
    calls = [(declared[k]["function"]["name"], t[1]) for k, t in zip(used, tasks)]
    listed = list(declared.values())
    rng.shuffle(listed)
    question = tasks[0][0]
    if len(tasks) == 2:
        if used[0] == used[1] and used[0] in ("weather", "time") and calls[0] != calls[1]:
            what = "What is the weather" if used[0] == "weather" else "What time is it"
            question = "%s in %s and in %s?" % (what, calls[0][1]["city"], calls[1][1]["city"])
        else:
            question = tasks[0][0].rstrip(".") + (" " if tasks[0][0][-1] in "?." else ", ") + rng.choice(["And: ", "Also: ", ""]) + tasks[1][0]
            if tasks[0][0][-1] == ".":
                question = tasks[0][0] + " " + rng.choice(["And: ", "Also: ", ""]) + tasks[1][0]
    messages = [user(question)]
    names = [n for n, _ in calls]
    stage = rng.random() if family is None else {"tools": 0.5, "results": rng.choice([0, 1, 1])}[family]
    if stage < 0.12:  # no tool is needed
        relation, x = relation_and_name(rng)
        if relation.key in ("french", "german", "spanish") and "translate" in kinds:
            relation, x = facts.RELATIONS[0], rng.choice(facts.RELATIONS[0].names)
        none = "No tool is needed."
        kind = rng.random()
        if kind < 0.15 and split == "train":  # of small talk nothing is held back
            t = talk(rng, split)
            return Example("results", t.messages, t.text, none, tools=listed)
        if kind < 0.4 and "search" not in kinds:
            return Example("results", unknown(rng, split).messages, UNKNOWN, "No tool can help.", tools=listed)
        if kind < 0.6 and "calculator" not in kinds:
            t = arithmetic(rng, split)
            return Example("results", t.messages, t.text, t.thought, tools=listed)
        return Example("results", [user(ask(rng, relation, x, split))], relation.say(x), none, tools=listed)
    if stage < 0.67:
        return Example("tools", messages, "", call_thought(names), calls, listed, check={"kind": "calls", "calls": [{"name": n, "arguments": a} for n, a in calls]})
    asked = {"role": "assistant", "content": None, "tool_calls": asks_to_call(calls)}
    if rng.random() < 0.3:
        asked["reasoning_content"] = call_thought(names)
    messages.append(asked)
    messages += [{"role": "tool", "tool_call_id": "call_%d" % i, "content": t[2]} for i, t in enumerate(tasks)]
    return Example("results", messages, " ".join(t[3] for t in tasks), None, tools=listed)


# ---- pictures ----

def picture(rng, split):
    import pictures  # only here: all other families do without NumPy and Pillow
    while True:
        rgb, what = pictures.draw(rng, split)
        made = pictures.question_answer(rng, what, split)
        if made:
            break
    question, text = made
    return Example("pictures", [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": question}]}], text, "I look at the picture.", picture=rgb, cells=what["cells"])


FAMILIES = {"facts": (fact, 6), "arithmetic": (arithmetic, 8), "numbers": (number, 3), "reverse": (reverse, 4), "sort": (sort, 4), "dates": (date, 6),
            "stories": (story, 8), "couplets": (couplet, 6), "follow": (follow_up, 4), "json": (in_json, 10),
            "tools": (lambda r, s: tools(r, s, "tools"), 8), "results": (lambda r, s: tools(r, s, "results"), 8), "pictures": (picture, 11),
            "unknown": (unknown, 3), "talk": (talk, 1)}
EVALUATED = [f for f in FAMILIES if f != "talk"]  # what make_eval.py writes
FAMILIES.update(typed.FAMILIES)
OPEN = ("stories",) + typed.OPEN  # a question has many right answers

SYSTEMS = ["You are a helpful assistant.", "You are a friendly assistant.", "Answer briefly.", "You are pocket, a small model.", "Be polite.", "You help people.",
           "Keep your answers short and correct."]


def example(rng, split, family=None):
    """One example; e.thinking says whether thinking is on."""
    if family is None:
        family = rng.choices(list(FAMILIES), [w for _, w in FAMILIES.values()])[0]
    e = FAMILIES[family][0](rng, split)
    if e.messages[0]["role"] != "system" and rng.random() < 0.2:
        e.messages.insert(0, {"role": "system", "content": rng.choice(SYSTEMS)})
    e.thinking = rng.random() < (e.think or 0.25)
    if not e.thinking:
        e.thought = None  # where it is None already, after a tool's result, the model does not think again
    return e


def judge(e, text, thought=None, calls=None):
    """Whether an answer is right; the C program's checks, for use while training."""
    c = e.check
    if c["kind"] == "exact":
        return text == c["text"]
    if c["kind"] == "any":
        return text in [b + "\n" + t for b in c["behind"] for t in c["texts"]] if "behind" in c else text in c["texts"]
    if c["kind"] == "json":
        try:
            return json.loads(plain(text)) == c["value"]
        except ValueError:
            return False
    if c["kind"] == "calls":
        return calls is not None and sorted(map(repr, calls)) == sorted(repr((k["name"], k["arguments"])) for k in c["calls"])
    if c["kind"] == "poem":
        lines = re.fullmatch(r"[A-Z].* the (\w+),\n(.+)\.", text)
        return bool(lines) and lines[2] in [r.replace(" its ", " my ") for r in RHYMES.get(lines[1], ())]
    at = 0
    if c["kind"] == "tale":
        first = re.match(r"This is a story about [\w -]+\. ", text)
        at = first.end() if first else 0
    for section in STORY:
        for template in section:
            pattern = re.sub(r"\\\{\w+\\\}", r"[\\w-]+(?: [\\w-]+){0,2}", re.escape(template)) + " ?"
            m = re.compile(pattern).match(text, at)
            if m:
                at = m.end()
                break
        else:
            return False
    return at == len(text) and all(x in text for x in c.get("elements", ()))
