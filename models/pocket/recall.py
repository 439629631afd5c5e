"""Turns that refer to turns before: to a list, a result, a word, to what was said of oneself, to the question or the answer itself.

Each function gives (question, answer, thought, what the next turn may refer to), or None where there is nothing to go on with."""
import re

import everyday
import knowledge
import letters
import sums
from everyday import NTH, cap, listed
from knowledge import BY_KEY, COUNTRY_KEYS, FOLLOW, THERE
from phrases import keep, say
from words import ANIMALS, CITIES, FOODS, NAMES, number_words

JOKES = ["Why do bees hum? Because they do not know the words.", "What is brown and sticky? A stick.", "Why did the book go to the doctor? It had a broken spine.",
         "What do you call a sleeping dragon? A drag-on.", "Why is six afraid of seven? Because seven ate nine.", "Which key opens no door? A monkey."]
FUN = ["Did you know that an octopus has three hearts?", "Did you know that honey keeps for hundreds of years?", "Did you know that a day on Venus is longer than its year?",
       "Did you know that the Eiffel Tower grows in summer?", "Did you know that sharks are older than trees?"]
ANOTHER = "(another|another one|one more|and another|another one please|next one|more|again|give me another|give me another one|can i have another one|can you give me another|one more please|next|a different one|tell me another one|do another one|more please|and one more)"
MORE_NAMES = NAMES + ["Peter", "Maria", "John", "Lisa", "Kate", "David", "Julia", "Mark", "Laura", "Tim", "Bob", "Alice", "Chris", "Jan", "Daniel", "Sophie"]
FAVOURITES = {"colour": "red blue green yellow black white pink orange".split(), "animal": ANIMALS, "food": FOODS + ["pizza", "pasta"], "fruit": "apple pear plum banana cherry mango".split(), "number": [str(i) for i in range(1, 30)],
              "city": CITIES, "season": "spring summer autumn winter".split(), "sport": "football tennis swimming running".split(), "drink": "tea coffee milk water juice".split(), "day": "Monday Friday Saturday Sunday".split()}
JOBS = "teacher doctor baker farmer nurse pilot cook painter carpenter sailor lawyer tailor student".split()


# ---- what people say of themselves, and ask for later ----

def tell(rng, memory):
    """Somebody says something of himself, and `memory` keeps it: (question, answer, thought, about)."""
    kind = rng.choices(["name", "home", "age", "pet", "favourite", "like", "number", "job"], [34, 10, 10, 9, 14, 8, 7, 8])[0]
    if kind == "name":
        n = rng.choice(MORE_NAMES)
        memory["name"] = n
        return say(rng, "[hi|hello|hey] (my name is|i am|i'm|im|call me|people call me|this is|i am called|my name's|you can call me) {n} [nice to meet you|by the way|remember that|and you]", n=keep(n)), "Hello %s, nice to meet you." % n, "Somebody gives a name.", None
    if kind == "home":
        c = rng.choice(CITIES)
        memory["home"] = c
        return say(rng, "(i live in|i am from|i'm from|i come from|my home is|my city is|i am living in|we live in) {c} [now|by the way]", c=keep(c)), "Good to know that you live in %s." % c, "Somebody says where home is.", None
    if kind == "age":
        n = rng.randrange(5, 90)
        memory["age"] = n
        return say(rng, "(i am|i'm|im) {n} years old|my age is {n}|(i am|i'm) {n}", n=keep(str(n))), "Good to know that you are %d years old." % n, "Somebody gives an age.", None
    if kind == "pet":
        a, n = rng.choice("dog cat horse rabbit parrot hamster turtle mouse".split()), rng.choice(MORE_NAMES + ["Rex", "Bello", "Luna", "Milo", "Bella", "Coco"])
        memory["pet"] = (a, n)
        return say(rng, "i have a {a} (called|named) {n}|my {a} is (called|named) {n}|my {a}'s name is {n}|the name of my {a} is {n}", a=keep(a), n=keep(n)), "Good to know that your %s is called %s." % (a, n), "Somebody has a pet.", None
    if kind == "favourite":
        what = rng.choice(list(FAVOURITES))
        x = rng.choice(FAVOURITES[what])
        memory["favourite"] = (what, x)
        return say(rng, "my favo(u|)rite {w} is {x}|the {w} i like (best|most) is {x}", w="color" if what == "colour" and rng.random() < 0.5 else what, x=keep(x)), "Good to know that your favourite %s is %s." % (what, x), "Somebody likes something.", None
    if kind == "like":
        x = rng.choice(FOODS + ["music", "football", "cats", "dogs", "books", "pizza", "chess", "tea"])
        memory["like"] = x
        return say(rng, "i (like|love|really like|enjoy) {x} [a lot|very much]", x=keep(x)), "Good to know that you like %s." % x, "Somebody likes something.", None
    if kind == "number":
        n = rng.randrange(1, rng.choice([10, 100, 1000]))
        memory["number"] = n
        return say(rng, "(remember the number|keep the number|my number is|my lucky number is|i think of the number|please remember the number|my secret number is) {n}", n=keep(str(n))), "Good to know that your number is %d." % n, "A number to keep in mind.", ("value", n)
    j = rng.choice(JOBS)
    memory["job"] = j
    return say(rng, "(i am|i'm|i work as|my job is) (a|an) {j}", j=keep(j)), "Good to know that you are %s." % knowledge.article(j), "Somebody says what they do.", None


def tell_two(rng, memory):
    """Two things in one sentence."""
    first = tell(rng, memory)
    known = set(memory)
    for _ in range(8):
        other = {}
        second = tell(rng, other)
        if not known & set(other) and "name" not in other:
            memory.update(other)
            q = first[0].rstrip("?.! ") + rng.choice([" and ", " and ", ", ", ", and ", ". "]) + second[0]
            if first[1].startswith("Hello"):
                return q, first[1], first[2], None
            return q, first[1][:-1] + " and" + second[1].removeprefix("Good to know"), first[2], None
    return first


def remember(rng, memory):
    """One of the things that were said."""
    kind = rng.choice(list(memory))
    v = memory[kind]
    if kind == "name":
        return say(rng, "[and|so|ok|now|hey|but] (what is my name|whats my name|what's my name|who am i|do you (know|remember) my name|what am i called|say my name|my name|tell me my name|do you remember who i am|can you remember my name|how am i called|what was my name) [again|now]"), "Your name is %s." % v, "It was said before.", None
    if kind == "home":
        return say(rng, "[and|so|ok] (where do i live|where am i from|which city do i live in|where is my home|where do i come from|what is my city|do you remember where i live)"), "You live in %s." % v, "It was said before.", None
    if kind == "age":
        return say(rng, "[and|so|ok] (how old am i|what is my age|whats my age|do you remember my age|do you know how old i am)"), "You are %d years old." % v, "It was said before.", ("value", v)
    if kind == "pet":
        return say(rng, "[and|so|ok] (what is my {a} called|what is the name of my {a}|whats my {a}'s name|my {a}'s name|do you remember the name of my {a}|who is {n}|how is my {a} called)", a=keep(v[0]), n=keep(v[1])), "Your %s is called %s." % v, "It was said before.", None
    if kind == "favourite":
        return say(rng, "[and|so|ok] (what is my favo(u|)rite {w}|whats my favo(u|)rite {w}|which {w} do i like (best|most)|do you remember my favo(u|)rite {w})", w="color" if v[0] == "colour" and rng.random() < 0.5 else v[0]), "Your favourite %s is %s." % v, "It was said before.", None
    if kind == "like":
        return say(rng, "[and|so|ok] (what do i like|what did i say i like|do you remember what i like|what do i love)"), "You like %s." % v, "It was said before.", None
    if kind == "number":
        return say(rng, "[and|so|ok] (what is my number|what was my number|what was the number|which number did i say|do you remember my number|tell me my number|what is my lucky number)"), "Your number is %d." % v, "It was said before.", ("value", v)
    return say(rng, "[and|so|ok] (what is my job|what do i do|what do i work as|what am i|do you remember my job)"), "You are %s." % knowledge.article(v), "It was said before.", None


def quotable(text):
    return len(text) < 60 and '"' not in text and text.isascii() and text.isprintable()


def said_before(rng, turns):
    """About the conversation itself. turns: [(what was typed, the answer as it was written)]"""
    asked, answer = turns[-1]
    kind = rng.random()
    if kind < 0.4 and quotable(asked):
        return say(rng, "what did i [just] (ask|say|type|write|ask you|tell you) [before|just now|a moment ago]|what was my [last|previous] (question|message)|(repeat|say|read) my [last] question|what was that i (asked|said)|what have i [just] asked [you]|do you remember what i [just] (asked|said)"), \
            'You said: "%s"' % asked, "I read it again.", None
    if kind < 0.55 and len(turns) > 1 and quotable(turns[0][0]):
        return say(rng, "what was my first (question|message)|what did i (ask|say) (first|at first|in the beginning|at the beginning)|what did i ask you first|my first question"), 'You said first: "%s"' % turns[0][0], "I read it again.", None
    if "\x01" in answer or len(answer) > 110:
        return None
    return say(rng, "what did you [just] (say|answer|tell me)|what was your [last] answer|(repeat|say) that [again|please|once more]|repeat [please|your answer|it]|can you (repeat|say) that [again|please]|(pardon|sorry, what|come again|say again|again please|once more|what was that|one more time)|i did not (hear|read|get) that"), \
        answer, "I say it again.", None


# ---- lists ----

def given(rng):
    """Somebody brings a list."""
    items, numbers = letters.some_items(rng)
    if len(set(items)) < len(items):
        return given(rng)
    what = "numbers" if numbers else rng.choice(["words", "items", "things"])
    l = everyday.row(rng, items)
    bare = "|{l}" * (2 if " and " not in l else 0)  # "cats and dogs" alone may mean anything
    return say(rng, "(here are|take|remember|look at|i have|these are|consider|think of) (some|these|my|the|) {k}[:] {l}|(my list|the list|my {k}) (is|are|:) {l}|i have (a list|{k})[:|,] {l}|(i need|i bought|i see|my favourite {k} are|today i have) {l}" + bare, k=what, l=l), "All right: %s." % ", ".join(items), "I keep them in mind.", items


def of_list(rng, items, them=False):
    """`them`: in words that mean the list, though something else was said since."""
    numbers, plain = all(x.isdigit() for x in items), all(x.isalpha() for x in items)
    n = len(items)
    if plain and rng.random() < 0.08:
        last = rng.random() < 0.3
        x = (max if last else min)(items, key=str.lower)
        return say(rng, "(which|what) [one|of them|word|of these] (is|comes) {n} (in the alphabet|alphabetically|in the dictionary|in alphabetical order)|[and] the {n} in the alphabet", n="last" if last else "first"), "The %s in the alphabet is %s." % ("last" if last else "first", x), "I compare the first letters.", ("word", x.lower())
    kind = rng.choice([3, 4, 5, 9]) if them else rng.randrange(10)
    if kind < 3:
        at = rng.choice([0, 0, 1, 1, min(2, n - 1), n - 1])
        name = "last" if at == n - 1 and rng.random() < 0.7 else NTH[at] if at < len(NTH) else "last"
        if NTH.index(name) >= n if name in NTH else False:
            return None
        x = items[at] if name in NTH else items[-1]
        about = ("word", x.lower()) if x.isalpha() and len(x) > 1 else ("value", int(x)) if x.isdigit() else None
        way = rng.random()
        if way < 0.5 or not x.isalpha() or len(x) < 3:
            return say(rng, "[and|so|ok|now] [what is|which is|what was|which was|whats|tell me] the {n} [one|item|of them]|(which|what) [one|of them] (is|was|comes) {n}|[and] the {n} [one]|{n} one", n=name), "The %s one is %s." % (name, x), "I look at the list.", about
        w = x.lower()
        if way < 0.7:
            return say(rng, "[now|and|can you|please] spell the {n} [one|word]|how do you spell the {n} [one]|(letters of|spelling of) the {n} one", n=name), "%s is spelled%s." % (cap(w), letters.spelled(w)), "The %s one is %s." % (name, w), ("word", w)
        if way < 0.9:
            return say(rng, "[now|and|can you|please] (spell|write|say|read) the {n} [one|word] (backwards|in reverse|reversed)|(reverse|turn around|flip) the {n} [one|word]|the {n} [one] backwards", n=name), letters.turned(w), "The %s one is %s." % (name, w), ("word", w)
        return say(rng, "[and] how many letters (has|does|are in) the {n} [one|word] [have]", n=name), "The letters of %s are%s, so it has %d." % (w, letters.spelled(w), len(w)), "The %s one is %s." % (name, w), ("word", w)
    if kind == 3:
        return say(rng, "how many (did i (say|name|list|write|give you)|words did i say|things did i name|of them did i say|are there|are they|is that|was that|are that|items are there|of them are there|words are there|did you name)|count them|how many"), "%s, so there are %d." % (", ".join("%d %s" % (i + 1, x) for i, x in enumerate(items)), n), "I count them.", items
    if kind == 4:
        down = numbers and rng.random() < 0.3
        q = say(rng, "[now|and|please|ok] (sort|order|arrange) (them|it|these|that|the list) (from large to small|descending|from high to low)" if down else
                "[now|and|please|ok|can you] (sort|order|arrange|alphabetize) (them|it|these|that|the list) [please]|[now] (sorted|in order|put them in order|in the right order)" + ("|from small to large" if numbers else "|alphabetically|in alphabetical order|from a to z"))
        done = sorted(items, key=int if numbers else None, reverse=down)
        return q, "Sorted: %s." % ", ".join(done), "The first one is %s." % done[0], done
    if kind == 5:
        return say(rng, "[now|and|please|ok|can you] (reverse|turn around|flip) (them|it|these|that|the list|the order) [please]|[now|and] (backwards|in reverse|in reverse order|the other way round|from back to front|reversed)"), "Reversed: %s." % ", ".join(items[::-1]), "The last one is %s." % items[-1], items[::-1]
    if kind == 6 and n > 2:
        last = rng.random() < 0.5
        left = items[:-1] if last else items[1:]
        return say(rng, "(remove|drop|without|leave out|delete|take away) the {n} [one|item]", n="last" if last else "first"), "That leaves %s." % ", ".join(left), "I leave one out.", left
    if numbers:
        if kind < 9:
            low = rng.random() < 0.4
            best = (min if low else max)(items, key=int)
            name = ("(smaller|lower|less|smallest)" if low else "(bigger|larger|greater|higher|biggest)") if n == 2 else ("(smallest|lowest|least|smallest one)" if low else "(biggest|largest|highest|greatest|biggest one)")
            return say(rng, f"[and|so|ok] (which|what) [one|of them|of these|number] is [the] {name}|[and] the {name}|which of them is {name}", n=1), "The %s is %s." % (("smaller" if low else "larger") if n == 2 else ("smallest" if low else "largest"), best), "I compare them.", ("value", int(best))
        if n > 4:
            return None
        parts, total = [], int(items[0])
        for x in items[1:]:
            parts.append("%d + %s = %d" % (total, x, total + int(x)))
            total += int(x)
        return say(rng, "[and|now|please] (add them|add them up|sum them|sum them up|what is the sum|their sum|the total|add these|what do they make together|add all of them)"), ", ".join(parts) + ".", "I add them one by one.", ("value", total)
    if plain and n <= 4:
        short = rng.random() < 0.35
        best = (min if short else max)(items, key=len)
        if sum(len(x) == len(best) for x in items) > 1:
            return None
        name = "(shorter|shortest)" if short else "(longer|longest)"
        lengths = ", ".join("%s has %d%s" % (w, len(w), "" if i else " letters") for i, w in enumerate(items))
        return say(rng, f"[and|so|ok] (which|what) [one|of them|word|of these] is [the] {name}|[and] the {name} [one]", n=1), "%s, so the %s is %s." % (cap(lengths), "shortest" if short else "longest", best), "I count their letters.", ("word", best.lower())
    return None


def of_more(rng, about):
    _, one, many, items, n = about
    kind = rng.random()
    if n > 1 and kind < 0.35:
        return of_list(rng, items[:n])
    if kind < 0.75:
        if n < len(items):
            more = rng.choice([1, 1, 1, 2])
            if more == 2 and n + 2 <= len(items):
                return say(rng, "(two|2) more [{m}] [please]|[give me|name|tell me] (two|2) (more|others)|another (two|2)", m=keep(many)), "Two more are %s." % listed(items[n:n + 2]), "I name two more.", ("more", one, many, items, n + 2)
            return say(rng, ANOTHER + "|(another|one more) {m} [please]|(name|give me|tell me) (another|one more) [{m}]|something else", m=keep(one)), "Another is %s." % items[n], "I name one more.", ("more", one, many, items, n + 1)
        return None
    (one, many), items = rng.choice(everyday._PLAIN)
    n = min(n, len(items))
    return say(rng, "[and|now|ok] (what about|how about|and|now) {m}|[and] {m}|the same (for|with) {m}" + ("" if n > 1 else "|[and|now|ok] (a|one|name a|give me a) {m}"), m=keep(many if n > 1 else one)), ("Some are %s." if n > 1 else "One is %s.") % listed(items[:n]), "The same with something else.", ("more", one, many, items, n)


# ---- results, words, facts ----

def of_value(rng, v):
    kind = rng.random()
    if kind < 0.4:
        q, a, thought, value = sums.go_on(rng, v)
        return q, a, thought, ("value", value) if 0 <= value < 5000 else None
    if kind < 0.58:
        n, pattern = rng.choice([(2, "(double|twice) (it|that)|[and|now] (double it|double that|times two|doubled|twice as much|the double of that|double)|what is (twice that|the double)|multiply it by two"), (2, "(double it|double that|[and] doubled|now double it|can you double (it|that))"),
                                 (3, "(triple|treble) (it|that)|[and|now] (three times (that|it)|triple it|tripled|times three)"), (10, "[and|now] (ten times (that|it)|times ten)")])
        return say(rng, pattern), sums.worked(v, "*", n), "I go on with %d." % v, ("value", v * n) if v * n < 5000 else None
    if kind < 0.7 and v and v % 2 == 0:
        return say(rng, "[and|now|what is] (half of (it|that)|half it|half that|halve (it|that)|divided by two|the half|half)|(divide|split) (it|that) (by|in) two"), sums.worked(v, "/", 2), "I go on with %d." % v, ("value", v // 2)
    if kind < 0.8:
        even = v % 2 == 0
        q = say(rng, "is (it|that|this) [an] (even or odd|odd or even|even|odd|even number|odd number)")
        if " or " in q:
            return q, "%d is %s." % (v, "even" if even else "odd"), "I look at the last digit.", ("value", v)
        return q, "%s, %d is %s." % ("Yes" if even == ("even" in q) else "No", v, "even" if even else "odd"), "I look at the last digit.", ("value", v)
    if kind < 0.88:
        b = max(0, v + rng.randrange(-20, 20)) if rng.random() < 0.5 else rng.randrange(10, 200)
        if b == v:
            b += 1
        return say(rng, "is (that|it|this) (bigger|larger|more|greater|higher) than {b}", b=keep(str(b))), ("Yes, %d is larger than %d." if v > b else "No, %d is smaller than %d.") % (v, b), "I compare.", ("value", v)
    if kind < 0.95:
        return say(rng, "[and|now] [write] (it|that) in words|[and|now] (in words|as a word)|(write|spell|say) (it|that) out"), "%d in words is %s." % (v, number_words(v)), "The digits are %s." % " ".join(str(v)), ("value", v)
    after = rng.random() < 0.6
    return say(rng, "(what|which number) (comes|is) {s} (it|that)|[and] the [next] number {s} (it|that)", s="after" if after else "before"), "%s %d comes %d." % ("After" if after else "Before", v, v + 1 if after else v - 1), "One %s." % ("more" if after else "less"), ("value", v + 1 if after else v - 1) if v else None


def of_word(rng, w):
    kind = rng.random()
    if kind < 0.55:
        return *letters.go_on(rng, w), ("word", w)
    if kind < 0.65:
        return say(rng, "[and] [what is|whats] (its|the) last letter|what letter does it end with|its last letter"), "The last letter of %s is %s." % (w, w[-1]), "The letters are%s." % letters.spelled(w), ("word", w)
    if kind < 0.8 and w in letters.RHYMES:
        return say(rng, "[and|now] (what rhymes with (it|that)|a rhyme for (it|that)|what rhymes|a word that rhymes with (it|that)|does anything rhyme with it)"), "%s rhymes with %s." % (cap(w), " and ".join(letters.RHYMES[w][:2])), "I look for the same sound.", ("word", w)
    for key in ("plural", "opposite", "past", "synonym", "french", "german", "spanish"):
        known = BY_KEY[key]
        if w in known.table and rng.random() < 0.4:
            name = {"plural": "[and] [what is] (its|the) plural|[and] the plural [of it]|make it plural", "opposite": "[and] [what is] (its|the) opposite|[and] the opposite [of it|of that]", "past": "[and] (its|the) past tense|in the past|the past tense of it",
                    "synonym": "[and] (a synonym|another word for it|a synonym for it)"}.get(key, "[and|now] in %s|how do you say (that|it) in %s|translate it (to|into) %s" % ((cap(key),) * 3))
            return say(rng, name), known.say(w), "The same word.", ("fact", known, w)
    found = [c for c in w if c in "aeiou"]
    if not found:
        return None
    return say(rng, "[and] how many vowels [does it have|are there|has it]|count its vowels|and the vowels"), "The letters of %s are%s, the vowels are%s, so their number is %d." % (w, letters.spelled(w), letters.spelled(found), len(found)), "Vowels are a, e, i, o and u.", ("word", w)


_LEGS = {a: n for t, n in BY_KEY["count"].table.items() if t.startswith("legs on ") for a in [t.split(" ", 3)[3]]}
BEYOND = "(why is that|how do you know (that|this)|who told you (that|this)|since when|who decided that|how many people live there|what is it famous for|who is the (president|king|mayor) (there|of it)|what is the weather like there|how far is (it|that)|how old is it|when was it (founded|built|made)|can i (go|fly|drive) there|is it (nice|safe|expensive|big) [there]|what can i do there|how do i get there|who (found that out|said that)|what does it (cost|weigh|look like|smell like))"


_COUNTED = {}  # "legs on a spider": what is counted, and of what
for _x in BY_KEY["count"].table:
    _parts = re.split(" (?:on|in) ", _x, maxsplit=1)
    if len(_parts) == 2:
        _COUNTED[_x] = tuple(_parts)
_MOST = {x: m.groups() for x in BY_KEY["superlative"].table if (m := re.fullmatch(r"the (\w+est|most \w+) (.+)", x))}
HE = "(when was (he|she) born|when did (he|she) (die|live)|is (he|she) (still alive|famous|dead|married|rich)|where (did|does) (he|she) live|what else did (he|she) (write|paint|make|do|invent)|did (he|she) [also] (write|paint|invent|make) (anything else|other things|more|something else)|how old (was|is) (he|she)|who was (he|she)|tell me more about (him|her)|what was (his|her) first name)"
THAT = "(it|that|this|that word|this word|that name|the answer|that one)"


def nearby(rng, known, x):
    """The same question with only that changed which differs, as people shorten it; None where it is none of these."""
    if x in _COUNTED:
        a, b = _COUNTED[x]
        near = [k for k, (c, d) in _COUNTED.items() if k != x and (c == a or d == b)]
        if not near:
            return None
        z = rng.choice(near)
        c, d = _COUNTED[z]
        if c == a:
            return say(rng, "[and|ok|now] (on|in|of|for|what about|how about|and) {d}|and {d}|{d}|how many (on|in|has|for) {d}|and how many does {d} have", d=keep(d)), z
        return say(rng, "[and|ok|now] how many {c}|and {c}|what about [the] {c}|and the number of {c}", c=keep(c)), z
    if x in _MOST:
        a, b = _MOST[x]
        near = [k for k, (c, d) in _MOST.items() if k != x and (d == b or c == a)]
        if not near:
            return None
        z = rng.choice(near)
        c, d = _MOST[z]
        if d == b:
            return say(rng, "[and|ok|now] the {c} [one]|[and|so] (which|what) [one] is the {c}|and the {c} [one]|what about the {c} [one]", c=keep(c)), z
        return say(rng, "[and|ok|now] [what is] the {c} {d}|and {d}|what about {d}s|and the {d}", c=keep(c), d=keep(d)), z
    return None


def of_fact(rng, known, x):
    y = known.table[x]
    if known.key in ("author", "painter", "composer", "inventor") and rng.random() < 0.2:
        return say(rng, "[and|but|so|ok] " + HE), "I am sorry, I do not know that.", "I have not learned about this.", None
    if known.key in ("count", "superlative") and rng.random() < 0.55:
        near = nearby(rng, known, x)
        if near:
            return near[0], known.say(near[1]), "The same question about something else.", ("fact", known, near[1])
    if rng.random() < 0.06:  # something else was meant
        z = known.pick(rng)
        return say(rng, "(no|sorry|oops|wait|no wait|oh) [sorry] (i meant|i mean|i wanted|not that, but|i was thinking of) {z}|(i meant|i mean|rather|make that|i meant to say) {z}|not {x}, {z}|no, {z}|{z} (i meant|instead|i mean)", x=keep(x), z=keep(z)), known.say(z), "The same question about something else.", ("fact", known, z)
    if rng.random() < 0.07:
        return say(rng, "[and|but|so|ok] " + BEYOND), "I am sorry, I do not know that.", "I have not learned about this.", None
    if x in _LEGS and rng.random() < 0.5:
        return say(rng, "[and] how many legs (does it have|has it|are there)|its legs, how many"), BY_KEY["count"].say("legs on %s" % knowledge.article(x)), "I know this one.", ("value", int(_LEGS[x]))
    w = y.removeprefix("the ").lower()
    if rng.random() < 0.24 and w.isalpha() and len(w) > 2:
        if rng.random() < 0.5:
            return say(rng, "[and|now|ok|please] (how do you spell %s|spell %s|spell %s|how is %s spelled|can you spell %s|%s letter by letter)" % ((THAT,) * 6)), "%s is spelled%s." % (cap(w), letters.spelled(w)), "I read the word letter by letter.", ("word", w)
        if rng.random() < 0.25:
            return say(rng, "[and|now|ok] how many letters (does %s have|has %s|are in %s|are there in %s)" % ((THAT,) * 4)), "The letters of %s are%s, so it has %d." % (w, letters.spelled(w), len(w)), "I read the word letter by letter.", ("word", w)
        return say(rng, "[and|now|ok|please] (spell %s (backwards|in reverse|the other way round)|spell %s backwards|%s backwards|(reverse|turn around|flip) %s|write %s backwards|backwards|and backwards)" % ((THAT,) * 5)), letters.turned(w), "I read the word letter by letter.", ("word", w)
    if known.key in COUNTRY_KEYS and rng.random() < 0.5:
        other = BY_KEY[rng.choice([k for k in COUNTRY_KEYS if k != known.key])]
        if x in other.table:
            return say(rng, rng.choice(THERE[other.key])), other.say(x), "The same country.", ("fact", other, x)
    tongue = known.key.capitalize()
    if tongue in knowledge.TONGUES and rng.random() < 0.6:
        other = BY_KEY[rng.choice([t.lower() for t in knowledge.TONGUES if t != tongue])]
        if x in other.table:
            return say(rng, "[and|now] in {t}|and {t}|{t}", t=other.key.capitalize()), other.say(x), "The same word.", ("fact", other, x)
    y = known.pick(rng)
    if known.key in ("young", "sound", "kind", "member") and rng.random() < 0.6:  # "and a baby cat"
        a = knowledge.article(y) if known.key != "young" or rng.random() < 0.4 else rng.choice(["a ", "the ", ""]) + rng.choice(["baby ", "young "]) + y
        return say(rng, rng.choice(FOLLOW), x=keep(a)), known.say(y), "The same question about something else.", ("fact", known, y)
    return say(rng, rng.choice(FOLLOW), x=keep(y)), known.say(y), "The same question about something else.", ("fact", known, y)


def go_on(rng, about):
    """A turn that refers to what the last one was about, or None."""
    if about is None:
        return None
    if isinstance(about, list):
        return of_list(rng, about)
    kind = about[0]
    if kind == "value":
        return of_value(rng, about[1])
    if kind == "word":
        return of_word(rng, about[1])
    if kind == "more":
        return of_more(rng, about)
    if kind == "fact":
        return of_fact(rng, about[1], about[2])
    if kind == "rhymed":
        _, w, at = about
        if rng.random() < 0.4:
            w = rng.choice(letters.EVERYDAY_RHYMES)
            return say(rng, "[and|ok|now] (one|a rhyme|a word|what|something) (for|with) {w}|and [with] {w}|what about {w}|and what rhymes with {w}|and for {w}|now {w}", w=keep(w)), "%s rhymes with %s." % (cap(w), " and ".join(letters.RHYMES[w][:2])), "I look for the same sound.", ("rhymed", w, 2)
        if at < len(letters.RHYMES[w]):
            return say(rng, ANOTHER + "|(another|one more) (rhyme|word) [please]|what else [rhymes with it]|anything else"), "%s rhymes with %s." % (cap(w), letters.RHYMES[w][at]), "The next one.", ("rhymed", w, at + 1)
        return None
    ring = JOKES if kind == "joke" else FUN  # one after the other
    at = (about[1] + 1) % len(ring)
    what = "joke" if kind == "joke" else "fact"
    return say(rng, ANOTHER + "|(another|one more) {w} [please]|(tell me|do you know) (another|one more) {w}", w=what), ring[at], "The next one.", (kind, at)
