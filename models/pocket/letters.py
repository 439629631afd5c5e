"""Tasks about words: any of 40,000, read letter by letter where its letters matter, and lists of them.

Each function gives (question, answer, thought). Words between \\x01 and \\x02 are written letter by letter (families.py)."""
import knowledge
from everyday import EVERYDAY, PEOPLE_NAMES, an_item, row, some_numbers
from knowledge import MEMBERS, ORDINARY, RHYMING, WORDS, article
from phrases import keep, say

VOWELS = set("aeiou")
NTH = ["first", "second", "third", "fourth", "fifth", "sixth"]
FIGURES = {"second": "2nd", "third": "3rd", "fourth": "4th", "fifth": "5th", "sixth": "6th"}
HOW_MANY = ["zero", "one", "two", "three", "four", "five", "six"]
COMMON = [w for w in WORDS["common"] if 3 <= len(w) <= 9]
_USUAL = {w: i for i, w in enumerate(EVERYDAY)}
_COMMON = set(COMMON)
_UNSAID = set("cod nay gait hoe ken cant leach ass hell damn crap tit bum sex gay arse butt pee poo drunk die dead kill gun".split())
RHYMES = {}
for _line in RHYMING:  # the most usual words of a sound, those first that are written alike
    _good = [x for x in _line if len(x) > 2 and x in _COMMON and x not in _UNSAID]
    for _w in _line:
        if 1 < len(_w) <= 8 and _w not in RHYMES:
            RHYMES[_w] = sorted((x for x in _good if x != _w), key=lambda x: (x[-2:] != _w[-2:], x not in _USUAL, len(x), x))[:4]
RHYMES = {w: r for w, r in RHYMES.items() if r}
ALL_RHYMES = {}
for _line in RHYMING:
    for _w in _line:
        ALL_RHYMES.setdefault(_w, set()).update(_line)
USUAL_RHYMES = sorted(w for w in RHYMES if w in _COMMON and len(w) <= 5)
EVERYDAY_RHYMES = [w for w in EVERYDAY if w in RHYMES and len(w) < 7 and w != "library"]
ANY_RHYMES = sorted(RHYMES)
_MEMBERS = sorted(MEMBERS)


def cap(text):
    return text[0].upper() + text[1:]


def a_word(rng):
    kind = rng.random()
    return rng.choice(EVERYDAY) if kind < 0.45 else rng.choice(COMMON) if kind < 0.72 else rng.choice(ORDINARY)


DOUBLES = [w for w in EVERYDAY if len(set(w)) < len(w)] + [w for w in COMMON if max(map(w.count, w)) > 2] + "mississippi strawberry banana bookkeeper committee address success coffee balloon tomorrow parallel possession cheese tennessee".split()


def everyday_or_any(rng):
    """For what is hard with several words at once."""
    return an_item(rng) if rng.random() < 0.85 else a_word(rng)


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
            f"(what is|what's|whats) {WORD} (backwards|reversed|spelled backwards|in reverse)|what (do i get|do you get|happens|comes out|is it) (if|when) (i|you|we) (reverse|turn around|flip|read) {WORD} [backwards]|{{w}} (backwards|reversed|in reverse)|(backwards|reversed): {{w}}|{WORD} from back to front", w=quoted(rng, w))
    return q, turned(w), "I read the word letter by letter."


def count_letters(rng):
    w = a_word(rng)
    q = say(rng, f"how many (letters|characters|letters) (in|are in|are there in|does|has) {WORD} [have]|(count|number of) [the] letters (in|of) {WORD}|how long is {WORD}|(length|letter count) of {WORD}|{{w}} has how many letters", w=quoted(rng, w))
    return q, "The letters of %s are%s, so it has %d." % (w, spelled(w), len(w)), "I read the word letter by letter."


def of_one(w, c):
    seen = w.count(c)
    if not seen:
        return "The letters of %s are%s, so the number of %s is 0." % (w, spelled(w), c)
    return "The letters of %s are%s, of %s there are%s, so their number is %d." % (w, spelled(w), c, spelled(c * seen), seen)


def count_one(rng):
    w = a_word(rng)
    if rng.random() < 0.5 and len(set(w)) == len(w):  # a letter that comes twice is harder
        w = rng.choice(DOUBLES)
    c = rng.choice([x for x in w if w.count(x) > 1] or w) if rng.random() < 0.4 else rng.choice(w) if rng.random() < 0.85 else rng.choice("abcdefghijklmnopqrstuvwxyz")
    q = say(rng, f"how many ({{c}}|{{c}}s|{{c}}'s|letters {{c}}|times {{c}}) (are in|in|are there in|does one find in) {WORD}|(count|number of) [the] ({{c}}|{{c}}s|{{c}}'s) in {WORD}|how often (is|does) {{c}} [come|occur|appear] in {WORD}|(count|number of|how many times is) [the] letter[s] {{c}} in {WORD}|how many times (does|is) [the letter] {{c}} (in|appear in|occur in|come in) {WORD}|how many letter {{c}}[s] in {WORD}",
            w=quoted(rng, w), c=keep(c))
    return q, of_one(w, c), "I count the letter %s." % c


def count_vowels(rng):
    w = a_word(rng)
    what = "consonants" if rng.random() < 0.3 else "vowels"
    found = [c for c in w if (c in VOWELS) == (what == "vowels")]
    q = say(rng, f"how many {what} (are in|in|are there in|does|has) {WORD} [have]|(count|number of|list|name|find|show me|which are) [all] [the] {what} (in|of) {WORD}|(which|what) {what} (are|has|does) [in] {WORD} [have]", w=quoted(rng, w))
    if not found:
        return q, "The letters of %s are%s, so the number of %s is 0." % (w, spelled(w), what), "Vowels are a, e, i, o and u."
    return q, "The letters of %s are%s, the %s are%s, so their number is %d." % (w, spelled(w), what, spelled(found), len(found)), "Vowels are a, e, i, o and u."


def nth_letter(rng):
    w = a_word(rng)
    n = rng.choice([0, 0, 0, -1, -1, 1, 2, 3, 4])
    if n >= len(w):
        n = 0
    name = "last" if n < 0 else NTH[n]
    q = say(rng, f"(what is|what's|whats|) [the] {name} letter (of|in) {WORD}|{WORD} (begins|starts) with (what|which) letter|(which|what) letter does {WORD} (start|begin) with" if n == 0 else
            f"(what is|what's|whats|) [the] ({name}|{FIGURES.get(name, name)}) letter (of|in) {WORD}|which letter is {name} in {WORD}|[the] ({name}|{FIGURES.get(name, name)}) letter (of|in) {WORD}|{WORD}: {name} letter", w=quoted(rng, w))
    if n in (0, -1):
        return q, "The %s letter of %s is %s." % (name, w, w[n]), "The letters are%s." % spelled(w)
    return q, "The letters of %s are%s, so the %s is %s." % (w, spelled(w), name, w[n]), "I read the word letter by letter."


def some_items(rng):
    kind, n = rng.random(), rng.choice([2, 3, 3, 3, 4, 4, 5, 6])
    if kind < 0.4:
        return some_numbers(rng), True
    if kind < 0.5:
        return rng.sample(_MEMBERS, n), False
    if kind < 0.57:
        return rng.sample("abcdefghijklmnopqrstuvwxyz", n), False
    if kind < 0.65:
        return rng.sample(PEOPLE_NAMES, n), False
    if kind < 0.95:
        return [an_item(rng) for _ in range(n)], False
    return [a_word(rng) for _ in range(n)], False


def sort(rng):
    items, numbers = some_items(rng)
    if not numbers and len(set(items)) < len(items):
        return sort(rng)
    down = numbers and rng.random() < 0.35 or rng.random() < 0.1
    what = "[these|the|this] [%s]" % ("numbers|list|list of numbers" if numbers else "words|names|list|list of words")
    way = ("(from (large|big|high|largest|biggest|highest) to (small|low|smallest|lowest)|in descending order|descending|downwards|biggest first|largest first)" if numbers else "(from z to a|in reverse alphabetical order)") if down else \
        ("[from (small|low|smallest|lowest|least) to (large|high|big|largest|biggest)|in ascending order|ascending|by size|in order|smallest first]" if numbers else "[alphabetically|in alphabetical order|by alphabet|from a to z|by letter|in order]")
    first = "(sort|order|arrange|put in order|rank)" if numbers else "(sort|order|arrange|alphabetize|put in order|put in alphabetical order)"
    if down:
        first = "(sort|order|arrange|put)"
    plain = "" if down else "|(sort|sort|order|sort this|please sort|sort these|sort the list|can you sort|sort for me|put in order)[:| -|] {l}|{l} - (sort|sort them|sort these|please sort|put them in order)|(sort|order) (them|these) for me[:] {l}" + ("|sort {l} (ascending|from low to high|from smallest to biggest)" if numbers else "|sort {l} alphabetically|put {l} in alphabetical order|alphabetical order[:] {l}|(alphabetize|alphabetise|sort alphabetically|sort by alphabet|abc order|sort from a to z|alphabetical)[:| -|] {l}|(alphabetize|alphabetise) [these words|this|these][:] {l}|in (what|which) order do these (come|go) [in the dictionary][:] {l}")
    q = say(rng, f"[please|can you|could you] {first} {what} {way}[:] {{l}}|{{l}} (sorted|in order|sort) {way}|{first} {{l}} {way}|put {what} {way or '(in order)'}[:] {{l}}" + plain, l=row(rng, items))
    done = sorted(items, key=int if numbers else None, reverse=down)
    return q, "Sorted: %s." % ", ".join(done), "The first one is %s." % done[0]


def turn_list(rng):
    items, _ = some_items(rng)
    q = say(rng, "(reverse|turn around|flip|invert) [the|this|these] [list|order|items|order of] [:] {l}|{l} (in reverse order|reversed|from back to front)|(put|write|say) {l} in (reverse|the opposite) order", l=row(rng, items))
    return q, "Reversed: %s." % ", ".join(items[::-1]), "The last one is %s." % items[-1]


def upper(rng):
    ws = [everyday_or_any(rng) for _ in range(rng.choice([1, 1, 1, 2, 2]))]
    if rng.random() < 0.05:
        ws = ["hello", "world"]
    text = " ".join(ws)
    if rng.random() < 0.7:
        q = say(rng, "(make|write|put|turn|convert) [this] [in|into|to] (upper case|uppercase|capitals|capital letters|caps|big letters)[:] {t}|(uppercase|upper case|capitalize|capitals) [of|for|:] {t}|{t} in (upper case|capitals|caps)", t=keep(text))
        return q, "\x01%s\x02" % text.upper(), "Capital letters."
    return say(rng, "(make|write|put|turn|convert) [this] [in|into|to] (lower case|lowercase|small letters)[:] {t}|(lowercase|lower case) [of|for|:] {t}", t=keep(text.upper())), "\x01%s\x02" % text, "Small letters."


def short_or_not(rng):
    return rng.choice("ox go me up be in it on we he so no is am us at by do".split()) if rng.random() < 0.1 else everyday_or_any(rng)


def longest(rng):
    items = [short_or_not(rng) for _ in range(rng.choice([2, 2, 3, 4]))]
    short = rng.random() < 0.3
    best = (min if short else max)(items, key=len)
    if sum(len(i) == len(best) for i in items) > 1:
        return longest(rng)
    name = "(shorter|shortest)" if short else "(longer|longest)"
    q = say(rng, f"(which|what) [word|one|of these|of these words] is [the] {name}[,|:] {{l}}|[the] {name} word[:] {{l}}|(find|pick|tell me|whats|what is|name) the {name} word [of|in|here|among][:] {{l}}|(which|what) word has (the (most|fewest) letters|(more|fewer|less) letters)[,|:] {{l}}|{{l}}: which [word|one] is {name}".replace(
        "(the (most|fewest) letters|(more|fewer|less) letters)", "(the fewest|fewer|less|the least) letters" if short else "(the most|more) letters"), l=keep(rng.choice([", ", " or ", ", ", " "]).join(items)))
    lengths = ", ".join("%s has %d%s" % (w, len(w), "" if i else " letters") for i, w in enumerate(items))
    return q, "%s, so the %s is %s." % (cap(lengths), "shortest" if short else "longest", best), "I count their letters."


def by_length(rng):
    items = [short_or_not(rng) for _ in range(rng.choice([2, 3, 3, 3, 4]))]
    if len({len(i) for i in items}) < len(items):
        return by_length(rng)
    down = rng.random() < 0.25
    q = say(rng, "(sort|order|arrange|put|rank) [these|the] [words] (by length|by size|by their length|by number of letters|from short to long|from shortest to longest|shortest first)[:] {l}|(sort|order|arrange|put) {l} by length|{l} (sorted by length|from short to long)" if not down else
            "(sort|order|arrange|put) [these|the] [words] (from long to short|from longest to shortest|longest first)[:] {l}|{l} (from long to short|longest first)", l=row(rng, items))
    lengths = ", ".join("%s has %d%s" % (w, len(w), "" if i else " letters") for i, w in enumerate(items))
    return q, "%s, so sorted: %s." % (cap(lengths), ", ".join(sorted(items, key=len, reverse=down))), "I count their letters."


OF_LENGTH = {3: "cat", 4: "tree", 5: "apple", 6: "garden", 7: "kitchen", 8: "elephant", 9: "chocolate", 10: "strawberry"}


def of_length(rng):
    n = rng.choice(list(OF_LENGTH))
    return say(rng, "[give me|tell me|find|name|say|think of|what is|do you know|i need] a [{m}|{n}] (letter) word|[give me|tell me|find|name|say|think of|i need] a word (with|of|that has|having) ({n}|{m}) letters".replace("[{m}|{n}]", "({m}|{n})"), n=n, m=["", "", "", "three", "four", "five", "six", "seven", "eight", "nine", "ten"][n]), \
        "%s has %d letters." % (cap(OF_LENGTH[n]), n), "I count letters."


SAYINGS = ["i am happy", "good night", "hello my friend", "i like tea", "how are you", "you are great", "the sky is blue", "all is well", "have a nice day", "good morning everyone", "my name is tom", "i love music", "it is raining", "what a day", "see you soon", "dogs bark loudly", "birds can fly", "time is money"]


def plural_of(noun):
    return knowledge.PLURALS.get(noun, noun + "s")


def a_sentence(rng):
    usual = rng.random() < 0.7
    adjective, noun, verb = rng.choice(ONLY["adjectives"] if usual else WORDS["adjectives"]), rng.choice(ONLY["nouns"] if usual else WORDS["nouns"]), rng.choice(PASTS)
    return rng.choice(["the %s %s %s" % (adjective, noun, verb), "we %s the %s" % (verb, noun), "%s and %s" % (rng.choice(EVERYDAY), noun), "i have a %s %s" % (adjective, noun), "%s %s loudly" % (plural_of(noun), rng.choice("sing bark fly run sleep play".split())), "%s likes %s" % (rng.choice(PEOPLE_NAMES), plural_of(noun)), "the %s is in the %s" % (noun, rng.choice(ONLY["nouns"])), "do not forget the %s" % noun,
        rng.choice(SAYINGS), "i am %s" % adjective, "you are my %s" % noun, "it is %s today" % adjective, "%s %s %s" % tuple(rng.sample(EVERYDAY, 3)), "my %s is %s" % (noun, adjective), "%s %s in the morning" % (article(noun), verb), "they like %s %s" % (adjective, noun)])


def in_sentence(rng):
    text = a_sentence(rng)
    words, kind = text.split(), rng.random()
    if kind < 0.35:
        return say(rng, "how many words (are in|in|has|does) [this|the sentence|this sentence] [have][:] {t}|(count|number of) [the] words [in][:] {t}", t=quoted(rng, text)), "%s, so there are %d words." % (", ".join("%d %s" % (i + 1, x) for i, x in enumerate(words)), len(words)), "I count the words."
    if kind < 0.65:
        name, at = rng.choice([("first", 0), ("first", 0), ("last", -1), ("last", -1), ("second", 1), ("third", 2)])
        at = at if at < len(words) else 1
        name = "second" if at == 1 else name
        return say(rng, f"(what is|whats|what's|which is|tell me|give me|) [the] {name} word (of|in) [this|the sentence|this sentence][:] {{t}}|{name} word[:] {{t}}|(what|which) word (is|comes) {name} in {{t}}", t=quoted(rng, text)), "The %s word is %s." % (name, words[at]), "The words are %s." % ", ".join(words)
    return say(rng, "(repeat|say|write|echo|copy) [after me|this|the words|back to me][:] {t}|(say|repeat): {t}", t=keep(text)), cap(text) + ".", "I say it again."


def thrice(rng):
    w, n = everyday_or_any(rng), rng.randrange(2, 6)
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
    a, b = everyday_or_any(rng), everyday_or_any(rng)
    return say(rng, "(join|combine|glue together|put together|concatenate) [the words] {a} and {b}", a=keep(a), b=keep(b)), "\x01%s\x02" % (a + b), "I write them as one."


def rhyming(rng):
    kind = rng.random()
    w = rng.choice(EVERYDAY_RHYMES) if kind < 0.65 else rng.choice(USUAL_RHYMES) if kind < 0.92 else rng.choice(ANY_RHYMES)
    q = say(rng, "(what|which word|which words|a word that|something that|find a word that|what word|give me a word that|tell me a word that|do you know a word that|words which|what words) (rhymes|rhymes|rhyme) with [the word] {w}|[a|any|some] (rhyme|rhymes|rhyming word|rhyming words) (for|with|on) {w}|"
            "{w} rhymes with [what]|(name|find|give me|tell me|list) (a rhyme|rhymes|words that rhyme|some words that rhyme|two words that rhyme|a word that rhymes|two rhymes) (for|with) {w}|words that rhyme with {w}|rhyme with {w}", w=quoted(rng, w))
    return q, "%s rhymes with %s." % (cap(w), " and ".join(RHYMES[w][:2])), "I look for the same sound."


ADVERBS = "quickly slowly happily sadly loudly quietly often never always soon here there badly easily suddenly really gently carefully today".split()


def rhyme_or_not(rng):
    a = rng.choice(EVERYDAY_RHYMES)
    yes = rng.random() < 0.5
    b = rng.choice(RHYMES[a]) if yes else rng.choice(EVERYDAY_RHYMES)
    if not yes and (b == a or b in ALL_RHYMES[a] or a in ALL_RHYMES[b]):
        return rhyme_or_not(rng)
    q = say(rng, "(does|do|will) {a} (rhyme|rhymes) with {b}|do [the words] {a} and {b} rhyme|(is {a} a rhyme for {b}|{a} and {b}, do they rhyme)", a=keep(a), b=keep(b))
    return q, "Yes, %s rhymes with %s." % (a, b) if yes else "No, %s does not rhyme with %s." % (a, b), "I compare how they sound."


def cut(rng):
    """A word without its first or last letter."""
    w, last = rng.choice(EVERYDAY), rng.random() < 0.4
    if len(w) < 4:
        return cut(rng)
    name = "last" if last else "first"
    return say(rng, f"(remove|drop|delete|take away|cut off) the {name} letter (of|from|in) {WORD}|{WORD} without (the|its) {name} letter", w=quoted(rng, w)), "The letters of %s are%s, without the %s\x01 %s\x02." % (w, spelled(w), name, w[:-1] if last else w[1:]), "I read the word letter by letter."


def initials(rng):
    ws = [everyday_or_any(rng) for _ in range(rng.choice([2, 3, 3, 4]))]
    return say(rng, "[what are|give me|take|list] [the] (first letters|initials|first letter of each word|first letter of every word|first letters of each word) (of|in|:|) {l}", l=keep(rng.choice([" ", ", "]).join(ws))), \
        "%s, so%s." % (cap(", ".join("%s begins with %s" % (w, w[0].lower()) for w in ws)), spelled([w[0].lower() for w in ws])), "I look at each first letter."


def part_of_speech(rng):
    kind, what = rng.choice([("nouns", "a noun"), ("verbs", "a verb"), ("adjectives", "an adjective"), ("adverbs", "an adverb")])
    w = rng.choice(ADVERBS if kind == "adverbs" else ONLY[kind])
    return say(rng, "(what kind of word|what part of speech|what type of word) is {w}|is {w} a (noun or a verb|verb or a noun|noun or an adjective|verb or an adjective|noun, a verb or an adjective)|{w}: (noun or verb|part of speech)", w=quoted(rng, w)), "%s is %s." % (cap(w), what), "I think of how it is used."


_KINDS = {k: set(WORDS[k]) for k in ("nouns", "verbs", "adjectives")}
_NUMBERS = set("one two three four five six seven eight nine ten desert noon".split())
# what is one kind of word only, and usual
ONLY = {k: [w for w in EVERYDAY if w in _KINDS[k] and w not in _NUMBERS and not any(w in _KINDS[o] for o in _KINDS if o != k)] for k in _KINDS}
PASTS = sorted(knowledge.FORMS["pasts"].values())
SENTENCES = {"nouns": ["We saw the {w} yesterday.", "The {w} was in the garden.", "I thought about the {w} all day."], "verbs": ["We {w} every day.", "I want to {w} tomorrow."], "adjectives": ["It was {w} day.", "The old house looked {w}."]}


def used(rng):
    kind = rng.choice(["nouns", "nouns", "verbs", "adjectives"])
    w = rng.choice(ONLY[kind]) if rng.random() < 0.7 else rng.choice(WORDS[kind])
    q = say(rng, "(use|put) [the word] {w} in a sentence|(make|write|build|form|give me) a sentence (with|using|about) [the word] {w}|[a] sentence with {w}", w=quoted(rng, w))
    return q, SENTENCES[kind][0].format(w=article(w) if kind == "adjectives" else w), "A sentence with %s." % w


def is_it(rng):
    x = rng.choice(_MEMBERS)
    right = MEMBERS[x]
    other = rng.choice([k for k in set(MEMBERS.values()) if k != right and {k, right} != {"fish", "mammal"}])
    bare = right in ("planet", "month", "season", "continent", "metal", "sport", "drink", "colour")
    named = x if bare else article(x)
    if rng.random() < 0.5:
        pair = [right, other]
        rng.shuffle(pair)
        return say(rng, "is {x} (a|an) {a} or (a|an) {b}", x=keep(named), a=pair[0], b=pair[1]), cap("%s is %s." % (named, article(right))), "It is %s." % article(right)
    if rng.random() < 0.5:
        return say(rng, "is {x} (a|an) {a}|do you think {x} is (a|an) {a}", x=keep(named), a=right), "Yes, %s is %s." % (named, article(right)), "It is."
    return say(rng, "is {x} (a|an) {a}", x=keep(named), a=other), "No, %s is %s." % (named, article(right)), "It is not."


KINDS = [(spell, 7), (backwards, 11), (count_letters, 7), (count_one, 14), (count_vowels, 7), (nth_letter, 6), (sort, 32), (turn_list, 9), (upper, 5), (longest, 9), (by_length, 5), (of_length, 2), (in_sentence, 6), (thrice, 2),
         (palindrome, 2), (no_vowels, 2), (glued, 2), (rhyming, 12), (rhyme_or_not, 6), (cut, 2), (initials, 2), (part_of_speech, 3), (used, 4), (is_it, 7)]
_FUNCTIONS, _WEIGHTS = [k for k, _ in KINDS], [w for _, w in KINDS]


def ask(rng):
    return rng.choices(_FUNCTIONS, _WEIGHTS)[0](rng)


def go_on(rng, w):
    """The next turn about the same word."""
    kind = rng.randrange(6)
    if kind > 3:
        c = rng.choice([c for c in w if w.count(c) > 1] or w) if rng.random() < 0.6 else rng.choice(w)
        q = say(rng, "[and|so|now] how many ({c}|{c}s|{c}'s|{c}'s) (are in it|does it have|are there|in it|has it|are there in it|are in that|does that word have)|(count|number of) [the] ({c}|{c}'s|{c}s) [in it]|how often (is|does) {c} [come|appear] in (it|that)|[and] how many times (is|does) [the letter] {c} [appear|come] in (it|that word|there)", c=keep(c))
        return q, of_one(w, c), "I count the letter %s." % c
    if kind == 0:
        return say(rng, "[and|now] (backwards|reverse it|in reverse|reversed|spell it backwards)"), turned(w), "I read the word letter by letter."
    if kind == 1:
        return say(rng, "[and] how many letters [does it have|are there|is that]|how long is it|count its letters"), "The letters of %s are%s, so it has %d." % (w, spelled(w), len(w)), "I read the word letter by letter."
    if kind == 2:
        return say(rng, "[and|now|can you] (spell it|letter by letter|its letters|how is it spelled)"), "%s is spelled%s." % (cap(w), spelled(w)), "I read the word letter by letter."
    return say(rng, "[and] [what is|whats] (its|the) first letter"), "The first letter of %s is %s." % (w, w[0]), "The letters are%s." % spelled(w)
