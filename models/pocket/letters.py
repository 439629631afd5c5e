"""Tasks about words: any of 40,000, read letter by letter where its letters matter, and lists of them.

Each function gives (question, answer, thought). Words between \\x01 and \\x02 are written letter by letter (families.py)."""
import knowledge
from knowledge import LISTS, MEMBERS, ORDINARY, RHYMING, WHOLE, WORDS, article
from phrases import keep, say

VOWELS = set("aeiou")
NTH = ["first", "second", "third", "fourth", "fifth", "sixth"]
HOW_MANY = ["zero", "one", "two", "three", "four", "five", "six"]
COMMON = [w for w in WORDS["common"] if 3 <= len(w) <= 9]
RHYMES = {}
for _line in RHYMING:
    for _w in _line:
        if len(_w) > 1:
            RHYMES.setdefault(_w, [x for x in _line if x != _w and len(x) > 2][:8])
RHYMES = {w: r for w, r in RHYMES.items() if r and len(w) <= 8}
USUAL_RHYMES = [w for w in RHYMES if w in set(COMMON) and len(w) <= 5]


def cap(text):
    return text[0].upper() + text[1:]


def a_word(rng):
    return rng.choice(COMMON) if rng.random() < 0.5 else rng.choice(ORDINARY)


def spelled(word):
    return "".join(" " + c for c in word)


def times(n):
    return "once" if n == 1 else "%d times" % n


def quoted(rng, w):
    return keep(rng.choice(["%s", "%s", "%s", "%s", '"%s"', "'%s'"]) % w)


WORD = "([the] word {w}|{w}|{w}|{w})"


def spell(rng):
    w = a_word(rng)
    q = say(rng, f"(spell|please spell|can you spell|how do you spell|how is|how do i write) {WORD} [spelled|for me]|spelling of {WORD}|(letters|the letters) (of|in) {WORD}|{{w}} letter by letter", w=quoted(rng, w))
    return q, "%s is spelled%s." % (cap(w), spelled(w)), "I read the word letter by letter."


def turned(w):
    """Backwards, after reading it forwards."""
    return "The letters of %s are%s, so backwards it is\x01 %s\x02." % (w, spelled(w), w[::-1])


def backwards(rng):
    w = a_word(rng)[:10]
    q = say(rng, f"(reverse|flip|turn around|invert|mirror) {WORD}|(spell|write|say|type|read|put) {WORD} (backwards|backward|in reverse|the other way round|from the end|reversed)|"
            f"(what is|what's|whats) {WORD} (backwards|reversed|spelled backwards|in reverse)|{{w}} (backwards|reversed|in reverse)|(backwards|reversed): {{w}}|{WORD} from back to front", w=quoted(rng, w))
    return q, turned(w), "I read the word letter by letter."


def count_letters(rng):
    w = a_word(rng)
    q = say(rng, f"how many (letters|characters|letters) (in|are in|are there in|does|has) {WORD} [have]|(count|number of) [the] letters (in|of) {WORD}|how long is {WORD}|(length|letter count) of {WORD}|{{w}} has how many letters", w=quoted(rng, w))
    return q, "The letters of %s are%s, so it has %d." % (w, spelled(w), len(w)), "I read the word letter by letter."


def count_one(rng):
    w = a_word(rng)
    c = rng.choice(w) if rng.random() < 0.85 else rng.choice("abcdefghijklmnopqrstuvwxyz")
    q = say(rng, f"how many ({{c}}|{{c}}s|{{c}}'s|letters {{c}}|times {{c}}) (are in|in|are there in|does one find in) {WORD}|(count|number of) [the] ({{c}}|{{c}}s|{{c}}'s) in {WORD}|how often (is|does) {{c}} [come|occur] in {WORD}",
            w=quoted(rng, w), c=keep(c))
    return q, "The letters of %s are%s, so it has %s %d %s." % (w, spelled(w), c, w.count(c), "time" if w.count(c) == 1 else "times"), "I count the letter %s." % c


def count_vowels(rng):
    w = a_word(rng)
    n, what = sum(c in VOWELS for c in w), "vowels"
    if rng.random() < 0.3:
        n, what = len(w) - n, "consonants"
    q = say(rng, f"how many {what} (are in|in|are there in|does|has) {WORD} [have]|(count|number of) [the] {what} in {WORD}", w=quoted(rng, w))
    return q, "The letters of %s are%s, so the number of %s is %d." % (w, spelled(w), what, n), "Vowels are a, e, i, o and u."


def nth_letter(rng):
    w = a_word(rng)
    n = rng.choice([0, 0, 0, -1, -1, 1, 2, 3, 4])
    if n >= len(w):
        n = 0
    name = "last" if n < 0 else NTH[n]
    q = say(rng, f"(what is|what's|whats|) [the] {name} letter (of|in) {WORD}|{WORD} (begins|starts) with (what|which) letter|(which|what) letter does {WORD} (start|begin) with" if n == 0 else
            f"(what is|what's|whats|) [the] {name} letter (of|in) {WORD}|which letter is {name} in {WORD}", w=quoted(rng, w))
    if n in (0, -1):
        return q, "The %s letter of %s is %s." % (name, w, w[n]), "The letters are%s." % spelled(w)
    return q, "The letters of %s are%s, so the %s is %s." % (w, spelled(w), name, w[n]), "I read the word letter by letter."


def neighbour(rng):
    at, after = rng.randrange(26), rng.random() < 0.6
    c, d = "abcdefghijklmnopqrstuvwxyz"[at], "abcdefghijklmnopqrstuvwxyz"[(at + (1 if after else -1)) % 26]
    if (at == 25 and after) or (at == 0 and not after):
        return "say the alphabet", "a b c d e f g h i j k l m n o p q r s t u v w x y z.", "The alphabet."
    side = "after" if after else "before"
    q = say(rng, "(which|what) letter (comes|is|follows|stands) %s {c} [in the alphabet]|(what|) comes %s [the letter] {c}|the letter %s {c}" % (side, side, side), c=keep(c))
    return q, "%s %s comes %s." % (cap(side), c, d), "I say the alphabet."


def joined(rng, items):
    return keep(rng.choice([", ", ", ", " ", ",", " and ", "; "]).join(items))


def some_items(rng):
    kind, n = rng.random(), rng.randrange(3, 7)
    if kind < 0.35:
        return [str(rng.randrange(rng.choice([10, 100, 100, 1000]))) for _ in range(n)], True
    if kind < 0.5:
        return rng.sample(sorted(MEMBERS), n), False
    if kind < 0.58:
        return rng.sample("abcdefghijklmnopqrstuvwxyz", n), False
    if kind < 0.68:
        return rng.sample("anna bob tim zoe tom mia leo max eva sam ben nina paul karl rosa lucy jack emma ali olga ken ravi".split(), n), False
    return [a_word(rng) for _ in range(n)], False


def sort(rng):
    items, numbers = some_items(rng)
    if len(set(items)) < len(items):
        return sort(rng)
    down = numbers and rng.random() < 0.35 or rng.random() < 0.06
    what = "[these|the|this] [%s]" % ("numbers|list|list of numbers" if numbers else "words|names|list|list of words")
    way = ("(from (large|big|high|largest|biggest|highest) to (small|low|smallest|lowest)|in descending order|descending|downwards|biggest first|largest first)" if numbers else "(from z to a|in reverse alphabetical order)") if down else \
        ("[from (small|low|smallest|lowest|least) to (large|high|big|largest|biggest)|in ascending order|ascending|by size|in order|smallest first]" if numbers else "[alphabetically|in alphabetical order|by alphabet|from a to z|by letter|in order]")
    first = "(sort|order|arrange|put in order|rank)" if numbers else "(sort|order|arrange|alphabetize|put in order|put in alphabetical order)"
    if down:
        first = "(sort|order|arrange|put)"
    q = say(rng, f"[please|can you|could you] {first} {what} {way}[:] {{l}}|{{l}} (sorted|in order|sort) {way}|{first} {{l}} {way}|put {what} {way or '(in order)'}[:] {{l}}", l=joined(rng, items))
    done = sorted(items, key=int if numbers else None, reverse=down)
    return q, "Sorted: %s." % ", ".join(done), "The first one is %s." % done[0]


def turn_list(rng):
    items, _ = some_items(rng)
    q = say(rng, "(reverse|turn around|flip|invert) [the|this|these] [list|order|items|order of] [:] {l}|{l} (in reverse order|reversed|from back to front)|(put|write|say) {l} in (reverse|the opposite) order", l=joined(rng, items))
    return q, "Reversed: %s." % ", ".join(items[::-1]), "The last one is %s." % items[-1]


def upper(rng):
    ws = [a_word(rng) for _ in range(rng.choice([1, 1, 2]))]
    text = " ".join(ws)
    if rng.random() < 0.7:
        q = say(rng, "(make|write|put|turn|convert) [this] [in|into|to] (upper case|uppercase|capitals|capital letters|caps|big letters)[:] {t}|(uppercase|upper case|capitalize|capitals) [of|for|:] {t}|{t} in (upper case|capitals|caps)", t=keep(text))
        return q, "\x01%s\x02" % text.upper(), "Capital letters."
    return say(rng, "(make|write|put|turn|convert) [this] [in|into|to] (lower case|lowercase|small letters)[:] {t}|(lowercase|lower case) [of|for|:] {t}", t=keep(text.upper())), "\x01%s\x02" % text, "Small letters."


def longest(rng):
    items = [a_word(rng) for _ in range(rng.choice([2, 2, 3, 4]))]
    short = rng.random() < 0.3
    best = (min if short else max)(items, key=len)
    if sum(len(i) == len(best) for i in items) > 1:
        return longest(rng)
    name = "(shorter|shortest)" if short else "(longer|longest)"
    q = say(rng, f"(which|what) [word|one] is {name}[,|:] {{l}}|{name} word[:] {{l}}|(find|pick|tell me) the {name} word[:] {{l}}", l=keep(rng.choice([", ", " or "]).join(items)))
    return q, "The %s word is %s." % ("shortest" if short else "longest", best), "I compare their letters."


def a_sentence(rng):
    adjective, noun, verb = rng.choice(WORDS["adjectives"]), rng.choice(WORDS["nouns"]), rng.choice(sorted(knowledge.FORMS["pasts"].values()))
    return rng.choice(["the %s %s %s" % (adjective, noun, verb), "we %s the %s" % (verb, noun), "my %s is %s" % (noun, adjective), "a %s %s in the morning" % (noun, verb), "they like %s %s" % (adjective, noun)])


def in_sentence(rng):
    text = a_sentence(rng)
    words, kind = text.split(), rng.random()
    if kind < 0.35:
        return say(rng, "how many words (are in|in|has|does) [this|the sentence|this sentence] [have][:] {t}|(count|number of) [the] words [in][:] {t}", t=quoted(rng, text)), "That has %d words." % len(words), "I count the words."
    if kind < 0.65:
        last = rng.random() < 0.5
        name = "last" if last else "first"
        return say(rng, f"(what is|whats|) [the] {name} word (of|in) [this|the sentence|this sentence][:] {{t}}|{name} word[:] {{t}}", t=quoted(rng, text)), "The %s word is %s." % (name, words[-1 if last else 0]), "The words are %s." % ", ".join(words)
    return say(rng, "(repeat|say|write|echo|copy) [after me|this|the words|back to me][:] {t}|(say|repeat): {t}", t=keep(text)), cap(text) + ".", "I say it again."


def thrice(rng):
    w, n = rng.choice(COMMON), rng.randrange(2, 6)
    return say(rng, "(say|write|repeat|print) [the word] {w} ({n}|{m}) times", w=keep(w), n=n, m=HOW_MANY[n]), cap(", ".join([w] * n)) + ".", "I say it %d times." % n


def palindrome(rng):
    w = rng.choice("radar level noon civic refer kayak madam deed peep rotor stats tenet".split()) if rng.random() < 0.5 else a_word(rng)
    yes = w == w[::-1]
    return say(rng, "is {w} a palindrome|is {w} the same backwards|does {w} read the same backwards", w=quoted(rng, w)), ("The letters of %s are%s, backwards\x01 %s\x02, so " % (w, spelled(w), w[::-1])) + ("yes, it is a palindrome." if yes else "no, it is not."), "I read it backwards."


def no_vowels(rng):
    w = a_word(rng)
    left = "".join(c for c in w if c not in VOWELS)
    if not left:
        return no_vowels(rng)
    return say(rng, f"(remove|delete|drop|take out) (the|all) vowels (from|in|of) {WORD}|{WORD} without [the] vowels", w=quoted(rng, w)), "The letters of %s are%s, without vowels\x01 %s\x02." % (w, spelled(w), left), "Vowels are a, e, i, o and u."


def glued(rng):
    a, b = rng.choice(COMMON), rng.choice(COMMON)
    return say(rng, "(join|combine|glue together|put together|concatenate) [the words] {a} and {b}", a=keep(a), b=keep(b)), "\x01%s\x02" % (a + b), "I write them as one."


def rhyming(rng):
    w = rng.choice(USUAL_RHYMES) if rng.random() < 0.7 else rng.choice(sorted(RHYMES))
    q = say(rng, "(what|which word|a word that|something that|find a word that|what word|give me a word that) rhymes with {w}|[a] rhyme (for|with|on) {w}|{w} rhymes with [what]|(name|find) a rhyme (for|with) {w}|words that rhyme with {w}", w=quoted(rng, w))
    good = sorted(RHYMES[w], key=lambda x: (x not in USUAL_RHYMES, x))[:2]
    return q, "%s rhymes with %s." % (cap(w), " and ".join(good)), "I look for the same sound."


def starting(rng):
    c = rng.choice("abcdefghijklmnoprstuvwyz")
    ws = [w for w in USUAL_NOUNS if w[0] == c]
    if not ws:
        return starting(rng)
    return say(rng, "[give me|tell me|find|name|i need] (a word|a noun|something) (that starts with|starting with|that begins with|with|beginning with) [the letter] {c}", c=keep(c)), "%s begins with %s." % (cap(ws[0]), c), "A word with %s." % c


USUAL_NOUNS = sorted({x for items in LISTS.values() for x in items if x.islower() and " " not in x and len(x) > 2} | {"jam", "quilt", "umbrella", "vase", "zebra", "yard", "key", "igloo", "ear", "nut", "xylophone"})


def part_of_speech(rng):
    kind, what = rng.choice([("nouns", "a noun"), ("verbs", "a verb"), ("adjectives", "an adjective")])
    w = rng.choice([x for x in WORDS[kind] if x in COMMON_SET] or WORDS[kind])
    return say(rng, "(what kind of word|what part of speech|what type of word|what) is {w}|is {w} a (noun|verb) or (a verb|an adjective|a noun)|{w}: (noun or verb|part of speech)", w=quoted(rng, w)), "%s is %s." % (cap(w), what), "I think of how it is used."


COMMON_SET = set(COMMON)
SENTENCES = {"nouns": ["We saw the {w} yesterday.", "The {w} was in the garden.", "I thought about the {w} all day."], "verbs": ["We {w} every day.", "I want to {w} tomorrow."], "adjectives": ["It was a {w} day.", "The old house looked {w}."]}


def used(rng):
    kind = rng.choice(["nouns", "nouns", "verbs", "adjectives"])
    w = rng.choice([x for x in WORDS[kind] if x in COMMON_SET] or WORDS[kind])
    q = say(rng, "(use|put) [the word] {w} in a sentence|(make|write|build|form|give me) a sentence (with|using|about) [the word] {w}|[a] sentence with {w}", w=quoted(rng, w))
    return q, SENTENCES[kind][0].format(w=w), "A sentence with %s." % w


# ---- lists of things ----

COUNTS = {1: "(a|one|1|any|some)", 2: "(two|2|a pair of|a couple of)", 3: "(three|3|some|a few|)", 4: "(four|4)", 5: "(five|5)"}


def listed(items):
    return items[0] if len(items) == 1 else ", ".join(items[:-1]) + " and " + items[-1]


def name_some(rng):
    (one, many), items = rng.choice(sorted(LISTS.items()))
    if one in WHOLE and rng.random() < 0.5:
        q = say(rng, "(name|list|say|tell me|give me|what are|which are|) [all] [of] [the] {m}|(what|which) {m} (are there|exist|do you know)|the {m} [in order]", m=keep(many))
        return q, cap(listed(items)) + ".", "I name them all."
    n = rng.choice([1, 1, 2, 3, 3, 3, 4, 5])
    n = min(n, len(items))
    what = one if n == 1 else many
    if n == 1:
        q = say(rng, "(name|tell me|give me|say|think of|list) (a|one|any|some) {m}|(an example of|example for) a {m}|what is a {m}, for example|do you know a {m}|a {m}", m=keep(what))
    else:
        q = say(rng, f"(name|list|tell me|give me|say|show me|i need|write) {COUNTS[n]} {{m}}|{COUNTS[n]} {{m}} please|(can you|could you) (name|list) {COUNTS[n]} {{m}}|do you know {COUNTS[n]} {{m}}", m=keep(what))
    if "colour" in what and rng.random() < 0.5:
        q = q.replace("colour", "color")
    return q, cap(listed(items[:n])) + ".", "I name %d of them." % n


def odd_one(rng):
    first, second = rng.sample(["fruit", "bird", "colour", "tool", "vehicle", "metal", "planet", "month", "tree", "musical instrument", "drink", "insect", "garment", "part of the body"], 2)
    group = [(k, v) for k, v in LISTS.items() if k[0] == first][0]
    other = [v for k, v in LISTS.items() if k[0] == second][0]
    items, odd = rng.sample(group[1], rng.choice([2, 3])), rng.choice(other)
    if MEMBERS.get(odd) == first:
        return odd_one(rng)
    items.insert(rng.randrange(len(items) + 1), odd)
    q = say(rng, "(odd one out|which is the odd one out|find the odd one|which one does not (fit|belong)|what does not belong|which one is different)[:|,] {l}|(which|what) [one|of these] is not (a|an) {k}[:|,] {l}", l=keep(", ".join(items)), k=first)
    return q, "%s is not %s." % (cap(odd), article(first)), "The others are %s." % group[0][1]


def is_it(rng):
    x = rng.choice(sorted(MEMBERS))
    right = MEMBERS[x]
    other = rng.choice([k for k in set(MEMBERS.values()) if k != right and {k, right} != {"fish", "mammal"}])
    bare = right in ("planet", "month", "season", "continent", "metal", "sport", "drink", "colour")
    named = x if bare else article(x)
    if rng.random() < 0.5:
        pair = [right, other]
        rng.shuffle(pair)
        return say(rng, "is {x} (a|an) {a} or (a|an) {b}", x=keep(named), a=pair[0], b=pair[1]), cap("%s is %s." % (named, article(right))), "It is %s." % article(right)
    if rng.random() < 0.5:
        return say(rng, "is {x} (a|an) {a}", x=keep(named), a=right), "Yes, %s is %s." % (named, article(right)), "It is."
    return say(rng, "is {x} (a|an) {a}", x=keep(named), a=other), "No, %s is %s." % (named, article(right)), "It is not."


KINDS = [(spell, 6), (backwards, 11), (count_letters, 8), (count_one, 8), (count_vowels, 3), (nth_letter, 6), (neighbour, 3), (sort, 18), (turn_list, 4), (upper, 4), (longest, 4), (in_sentence, 5), (thrice, 1),
         (palindrome, 2), (no_vowels, 2), (glued, 2), (rhyming, 5), (starting, 2), (part_of_speech, 3), (used, 4), (name_some, 12), (odd_one, 3), (is_it, 5)]
_FUNCTIONS, _WEIGHTS = [k for k, _ in KINDS], [w for _, w in KINDS]


def ask(rng):
    return rng.choices(_FUNCTIONS, _WEIGHTS)[0](rng)


def go_on(rng, w):
    """The next turn about the same word."""
    kind = rng.randrange(4)
    if kind == 0:
        return say(rng, "[and|now] (backwards|reverse it|in reverse|reversed|spell it backwards)"), "The word %s backwards is\x01 %s\x02." % (w, w[::-1]), "The letters are%s." % spelled(w)
    if kind == 1:
        return say(rng, "[and] how many letters [does it have|are there|is that]|how long is it|count its letters"), "The letters of %s are%s, so it has %d." % (w, spelled(w), len(w)), "I read the word letter by letter."
    if kind == 2:
        return say(rng, "[and|now|can you] (spell it|letter by letter|its letters|how is it spelled)"), "%s is spelled%s." % (cap(w), spelled(w)), "I read the word letter by letter."
    return say(rng, "[and] [what is|whats] (its|the) first letter"), "The first letter of %s is %s." % (w, w[0]), "The letters are%s." % spelled(w)
