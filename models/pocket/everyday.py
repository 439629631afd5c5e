"""Small tasks with everyday words and numbers: lists of things, ranges, letters of the alphabet, months, the largest of some numbers.

Each function gives (question, answer, thought, items): what the next turn may refer to, or None. An answer is written everywhere at
once, so nothing has to be chosen unseen: what a choice hangs on is written first, in the order of the question."""
from knowledge import LISTS, PLURALS, WORDS, article
from phrases import keep, say
from words import DAYS, MONTHS, MONTH_DAYS, number_words

LETTERS = "abcdefghijklmnopqrstuvwxyz"
NTH = ["first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth", "eleventh", "twelfth"]
HOW_MANY = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]

# what people type when they need a word
EVERYDAY = sorted(set("""
apple pear plum banana cherry orange grape lemon peach mango melon strawberry fig kiwi lime coconut raspberry blueberry carrot potato onion cabbage pea bean tomato pepper cucumber lettuce garlic corn mushroom pumpkin
dog cat horse cow lion bear wolf fox sheep goat pig elephant mouse rabbit deer tiger zebra monkey giraffe camel whale shark dolphin snake frog turtle duck goose owl eagle hen bird fish bee ant spider butterfly penguin parrot
red blue green yellow purple black white brown pink grey gold silver table chair bed sofa desk lamp clock door window wall floor roof room house home garden kitchen bathroom stairs mirror carpet shelf box bag cup plate bowl spoon fork knife bottle glass
book pen pencil paper letter word story song music picture phone computer radio camera key coin money ring watch hat coat shirt shoe sock dress glove scarf belt pocket button needle thread hammer nail saw rope ladder wheel engine
car bus train plane boat ship bicycle truck rocket road street bridge station airport city town village market shop school library hospital church castle tower farm field forest tree flower rose leaf grass seed root branch
sun moon star sky cloud rain snow wind storm thunder fire water ice sea ocean river lake island beach sand stone rock mountain hill valley desert cave earth world morning evening night day week month year summer winter spring autumn
bread butter cheese milk egg rice soup cake honey sugar salt tea coffee juice meat chicken pizza pasta salad sandwich chocolate cookie candy dinner lunch breakfast man woman boy girl baby child mother father brother sister friend teacher doctor nurse farmer baker
king queen prince princess knight pirate soldier sailor pilot cook painter singer dancer writer student neighbour uncle aunt head hair face eye ear nose mouth tooth tongue neck arm hand finger leg foot knee heart back bone skin
hello world love peace hope dream fun joy time life light dark sound silence question answer number name game ball doll toy kite drum guitar piano violin flute bell
run walk jump swim fly sing dance play read write draw eat drink sleep wake talk listen look see hear think know learn teach help give take make break build cut open close push pull throw catch carry climb ride drive buy sell
big small tall short long wide narrow fast slow hot cold warm cool new old young good bad happy sad angry hungry tired busy clean dirty wet dry hard soft heavy loud quiet rich poor strong weak brave kind clever funny pretty sweet sour
one two three four five six seven eight nine ten alpha beta delta level radar noon kayak racecar mississippi banana umbrella elephant hippopotamus alphabet orange keyboard language python monday friday january december
""".split()))
PEOPLE_NAMES = "anna bob tim zoe tom mia leo max eva sam ben nina paul karl rosa lucy jack emma ali olga ken ravi peter maria john lisa kate david julia mark laura alice chris mary kim dan amy joe eric sara".split()
_LISTED = sorted({x for items in LISTS.values() for x in items if " " not in x and x.isalpha()})

MORE_LISTS = {
    ("wild animal", "wild animals"): "lion, tiger, bear, wolf, elephant, giraffe, zebra, monkey, fox, deer",
    ("sea animal", "sea animals"): "whale, shark, dolphin, octopus, crab, seal, turtle, starfish",
    ("zoo animal", "zoo animals"): "lion, elephant, giraffe, monkey, zebra, tiger, penguin, camel",
    ("animal that can fly", "animals that can fly"): "eagle, bat, bee, owl, butterfly, duck",
    ("animal that can swim", "animals that can swim"): "fish, duck, dolphin, frog, penguin, seal",
    ("animal with four legs", "animals with four legs"): "dog, cat, horse, cow, sheep, lion",
    ("dog breed", "dog breeds"): "poodle, beagle, bulldog, collie, dachshund, terrier",
    ("dinosaur", "dinosaurs"): "stegosaurus, triceratops, diplodocus, velociraptor",
    ("amphibian", "amphibians"): "frog, toad, newt",
    ("berry", "berries"): "strawberry, raspberry, blueberry, blackberry, cranberry",
    ("nut", "nuts"): "walnut, almond, peanut, cashew",
    ("spice", "spices"): "pepper, cinnamon, ginger, paprika, vanilla, saffron",
    ("herb", "herbs"): "mint, basil, parsley, thyme, sage, dill",
    ("sweet", "sweets"): "chocolate, candy, cookie, cake, ice cream",
    ("dessert", "desserts"): "cake, ice cream, pudding, pie, fruit salad",
    ("breakfast food", "breakfast foods"): "bread, egg, cereal, yogurt, pancake",
    ("hot drink", "hot drinks"): "tea, coffee, cocoa, mulled wine",
    ("cold drink", "cold drinks"): "water, juice, lemonade, milk, iced tea",
    ("dish", "dishes"): "pizza, soup, pasta, salad, curry, omelette",
    ("room in a house", "rooms in a house"): "kitchen, bathroom, bedroom, living room, hall",
    ("thing in a kitchen", "things in a kitchen"): "stove, sink, oven, pan, plate, spoon",
    ("thing in a bathroom", "things in a bathroom"): "bath, towel, soap, mirror, toothbrush",
    ("thing in a bedroom", "things in a bedroom"): "bed, pillow, blanket, lamp, wardrobe",
    ("thing in a school bag", "things in a school bag"): "book, pencil, ruler, eraser, pen",
    ("thing in the sky", "things in the sky"): "sun, moon, star, cloud, bird",
    ("thing in a garden", "things in a garden"): "flower, tree, grass, bench, pond",
    ("building", "buildings"): "house, school, church, castle, tower, hospital",
    ("family member", "family members"): "mother, father, brother, sister, aunt, uncle",
    ("feeling", "feelings"): "joy, anger, fear, sadness, love, surprise",
    ("toy", "toys"): "ball, doll, kite, puzzle, train",
    ("game", "games"): "chess, cards, hide and seek, dominoes, tag",
    ("board game", "board games"): "chess, checkers, backgammon",
    ("ball game", "ball games"): "football, tennis, basketball, volleyball, golf",
    ("winter sport", "winter sports"): "skiing, skating, ice hockey, curling",
    ("water sport", "water sports"): "swimming, rowing, sailing, surfing, diving",
    ("hobby", "hobbies"): "reading, painting, cooking, singing, gardening, chess",
    ("gas", "gases"): "oxygen, hydrogen, nitrogen, helium, neon",
    ("gemstone", "gemstones"): "diamond, ruby, emerald, sapphire, opal",
    ("material", "materials"): "wood, glass, metal, paper, stone, plastic",
    ("fabric", "fabrics"): "cotton, wool, silk, linen",
    ("primary colour", "primary colours"): "red, blue, yellow",
    ("colour of the rainbow", "colours of the rainbow"): "red, orange, yellow, green, blue, indigo, violet",
    ("sense", "senses"): "sight, hearing, smell, taste, touch",
    ("finger", "fingers"): "thumb, index finger, middle finger, ring finger, little finger",
    ("organ", "organs"): "heart, liver, lung, kidney, brain, stomach",
    ("bone", "bones"): "skull, rib, spine, jaw",
    ("unit of time", "units of time"): "second, minute, hour, day, week, month, year",
    ("unit of length", "units of length"): "metre, kilometre, centimetre, inch, foot, mile",
    ("unit of weight", "units of weight"): "gram, kilogram, ton, pound, ounce",
    ("compass direction", "compass directions"): "north, east, south, west",
    ("summer month", "summer months"): "June, July, August",
    ("winter month", "winter months"): "December, January, February",
    ("spring month", "spring months"): "March, April, May",
    ("autumn month", "autumn months"): "September, October, November",
    ("month with 30 days", "months with 30 days"): "April, June, September, November",
    ("working day", "working days"): "Monday, Tuesday, Wednesday, Thursday, Friday",
    ("weekend day", "days of the weekend"): "Saturday, Sunday",
    ("European capital", "European capitals"): "Paris, London, Rome, Berlin, Madrid, Vienna",
    ("capital city", "capital cities"): "Paris, London, Rome, Tokyo, Cairo, Lima",
    ("city in Italy", "cities in Italy"): "Rome, Milan, Naples, Venice, Florence",
    ("city in Germany", "cities in Germany"): "Berlin, Hamburg, Munich, Cologne, Frankfurt",
    ("city in France", "cities in France"): "Paris, Lyon, Nice, Marseille, Bordeaux",
    ("city in England", "cities in England"): "London, Manchester, Liverpool, Leeds, Oxford",
    ("American city", "American cities"): "New York, Chicago, Boston, Dallas, Seattle",
    ("American state", "American states"): "Texas, California, Florida, Ohio, Alaska, Nevada",
    ("island", "islands"): "Iceland, Ireland, Cuba, Malta, Cyprus, Crete",
    ("mountain", "mountains"): "Mount Everest, Mont Blanc, the Matterhorn, Mount Fuji",
    ("desert", "deserts"): "the Sahara, the Gobi, the Kalahari, the Namib",
    ("sea", "seas"): "the North Sea, the Baltic Sea, the Black Sea, the Red Sea",
    ("lake", "lakes"): "Lake Victoria, Lake Baikal, Lake Superior, Lake Geneva",
    ("currency", "currencies"): "euro, dollar, pound, yen, franc, peso",
    ("painter", "painters"): "Vincent van Gogh, Pablo Picasso, Claude Monet, Rembrandt",
    ("composer", "composers"): "Mozart, Bach, Beethoven, Chopin, Vivaldi",
    ("scientist", "scientists"): "Albert Einstein, Isaac Newton, Marie Curie, Charles Darwin",
    ("writer", "writers"): "William Shakespeare, Charles Dickens, Jane Austen, Leo Tolstoy",
    ("inventor", "inventors"): "Thomas Edison, Alexander Graham Bell, Carl Benz, James Watt",
    ("play by Shakespeare", "plays by Shakespeare"): "Hamlet, Macbeth, Othello, King Lear",
    ("fairy tale", "fairy tales"): "Cinderella, Snow White, Hansel and Gretel, Rapunzel",
    ("holiday", "holidays"): "Christmas, Easter, Halloween, New Year",
    ("boy's name", "boys' names"): "Tom, Max, Ben, Paul, Jack, Leo",
    ("girl's name", "girls' names"): "Anna, Mia, Emma, Lucy, Rosa, Zoe",
    ("name", "names"): "Anna, Tom, Mia, Max, Lucy, Ben",
    ("adjective", "adjectives"): "big, small, happy, fast, old, green",
    ("verb", "verbs"): "run, eat, sleep, write, sing, think",
    ("noun", "nouns"): "house, tree, dog, table, river, friend",
    ("pronoun", "pronouns"): "I, you, he, she, it, we, they",
    ("preposition", "prepositions"): "in, on, under, behind, with, for",
    ("punctuation mark", "punctuation marks"): "comma, full stop, question mark, colon, dash",
    ("Greek letter", "Greek letters"): "alpha, beta, gamma, delta, omega",
    ("programming language", "programming languages"): "C, Python, Java, Rust, Lisp",
    ("even number", "even numbers"): "2, 4, 6, 8, 10",
    ("odd number", "odd numbers"): "1, 3, 5, 7, 9",
    ("prime number", "prime numbers"): "2, 3, 5, 7, 11, 13",
    ("square number", "square numbers"): "1, 4, 9, 16, 25, 36",
    ("consonant", "consonants"): "b, c, d, f, g",
    ("letter", "letters"): "a, b, c, d, e",
    ("kind of cheese", "kinds of cheese"): "cheddar, gouda, feta, brie, parmesan",
    ("kind of bread", "kinds of bread"): "rye bread, white bread, toast, baguette",
    ("kitchen tool", "kitchen tools"): "knife, spoon, pan, whisk, grater",
    ("red thing", "things that are red"): "a tomato, a cherry, blood, a fire engine",
    ("yellow thing", "things that are yellow"): "a banana, a lemon, the sun, butter",
    ("green thing", "things that are green"): "grass, a frog, a leaf, a cucumber",
    ("blue thing", "things that are blue"): "the sky, the sea, a blueberry, jeans",
    ("black thing", "things that are black"): "coal, the night, a raven, pepper",
    ("white thing", "things that are white"): "snow, milk, salt, a cloud",
    ("round thing", "things that are round"): "a ball, a wheel, a coin, the moon",
    ("cold thing", "things that are cold"): "ice, snow, winter, ice cream",
    ("hot thing", "things that are hot"): "fire, the sun, soup, an oven",
    ("sweet thing", "things that are sweet"): "honey, sugar, candy, cake",
    ("thing made of wood", "things made of wood"): "a table, a chair, a door, a pencil",
    ("thing made of glass", "things made of glass"): "a window, a bottle, a mirror, a lens",
}
MORE_LISTS = {k: v.split(", ") for k, v in MORE_LISTS.items()}
COMPLETE = {"primary colour", "colour of the rainbow", "sense", "compass direction", "summer month", "winter month", "spring month", "autumn month", "month with 30 days", "working day", "weekend day", "finger"}


def cap(text):
    return text[0].upper() + text[1:]


def listed(items):
    return items[0] if len(items) == 1 else ", ".join(items[:-1]) + " and " + items[-1]


def amount(rng, n):
    return HOW_MANY[n] if rng.random() < 0.6 else str(n)


# ---- lists of things ----

SOME = "(name|list|tell me|give me|say|write|show me|i need|think of|can you name|could you list|can you give me|do you know|please name|name me|list me|tell) {n} {m}|{n} {m} [please]|(what are|which are) {n} {m}|{n} (examples of|different|common|well known) {m}|(name|give me|list) {n} (different|common|random|well known) {m}"
ONE = "(name|tell me|give me|say|think of|i need|can you name|name me|do you know|pick|choose) (a|one|any|another|some) {m}|(an example of|example for|example of) a {m}|(a|any|one) {m} [please]|(which|what) is one {m}"
ALL = "(name|list|say|tell me|give me|what are|which are|write) [all] [of] the {m} [in order]|(what|which) {m} (are there|exist|do you know)|all [the] {m}|the {m} [in order]|{m} [in order|list]|list of [all] [the] {m}"


def name_some(rng, lists, complete):
    (one, many), items = rng.choice(lists)
    if one in complete and rng.random() < 0.6:
        return say(rng, ALL, m=keep(many)), cap(listed(items)) + ".", "I name them all.", items
    n = min(rng.choice([1, 1, 2, 3, 3, 3, 3, 4, 5]), len(items))
    if n == 1:
        return say(rng, ONE, m=keep(one)), "One is %s." % items[0], "I name one of them.", ("more", one, many, items, 1)
    count = rng.choice(["some", "a few", "a couple of", "several", ""]) if n == 3 and rng.random() < 0.35 else amount(rng, n)
    return say(rng, SOME, n=count, m=keep(many)), "Some are %s." % listed(items[:n]), "I name %d of them." % n, ("more", one, many, items, n)


_PLAIN, _MORE = sorted(LISTS.items()), sorted(MORE_LISTS.items())
_WHOLE = {"planet", "month", "day of the week", "season", "continent", "ocean", "vowel"}


def name_things(rng):
    q, a, thought, items = name_some(rng, _PLAIN, _WHOLE) if rng.random() < 0.55 else name_some(rng, _MORE, COMPLETE)
    if "colour" in q and rng.random() < 0.5:
        q = q.replace("colour", "color")
    return q, a, thought, items


_BY_LETTER = {}
for (_one, _many), _items in _PLAIN:
    if _one in ("fruit", "vegetable", "animal", "bird", "colour", "tool", "tree", "flower", "vehicle", "musical instrument", "drink", "job", "metal", "month", "day of the week", "country", "city", "food", "sport", "planet", "garment", "language"):
        for _x in (x for x in _items if x not in ("trousers", "pliers")):
            _BY_LETTER.setdefault((_one, _many), {}).setdefault(_x[0].lower(), []).append(_x)
_BY_LETTER[("name", "names")] = {c: [cap(n) for n in PEOPLE_NAMES if n[0] == c] for c in LETTERS if any(n[0] == c for n in PEOPLE_NAMES)}
_BY_LETTER[("animal", "animals")] = {c: ws for c in LETTERS if (ws := sorted({x for k in ("animal", "bird", "mammal", "insect", "reptile", "fish", "farm animal") for (o, _), v in LISTS.items() if o == k for x in v if x[0] == c}))}
_GROUPS = sorted(_BY_LETTER.items())
_WORDS_BY_LETTER = {c: [w for w in EVERYDAY if w[0] == c and len(w) > 2] for c in LETTERS}
for _c, _w in zip("qxzvj", ["quilt quiet queue", "xylophone", "zebra zoo zip", "vase van violet", "jam jump joke"]):
    _WORDS_BY_LETTER[_c] = sorted(set(_WORDS_BY_LETTER[_c]) | set(_w.split()))
BEGIN = "(that starts with|starting with|that begins with|beginning with|with|that start with|which starts with)"


def with_letter(rng):
    if rng.random() < 0.55:
        (one, many), by = rng.choice(_GROUPS)
        c = rng.choice(sorted(by))
        words = by[c]
    else:
        one, many = "word", "words"
        c = rng.choice("abcdefghijklmnoprstuvwyzqx" if rng.random() < 0.5 else "abcdefghlmnoprstw")
        words = _WORDS_BY_LETTER[c]
    n = min(len(words), rng.choice([1, 1, 1, 2, 3, 3]))
    letter = keep(c if rng.random() < 0.7 else c.upper())
    if n == 1:
        return say(rng, f"[give me|tell me|find|name|i need|say|think of|can you name|what is] (a|an|one) {{m}} {BEGIN} [the letter|an|a] {{c}}|{{m}} {BEGIN} {{c}}", m=keep(one), c=letter), "%s begins with %s." % (cap(words[0]), c), "It has to begin with %s." % c, ("word", words[0].lower()) if words[0].isalpha() else None
    return say(rng, f"[give me|tell me|find|name|i need|say|list|can you name] {{n}} {{m}} {BEGIN} [the letter|an|a] {{c}}", n=amount(rng, n), m=keep(many), c=letter), "%s begin with %s." % (cap(listed(words[:n])), c), "They have to begin with %s." % c, words[:n]


ODD = [k for k in LISTS if k[0] in ("fruit", "vegetable", "bird", "colour", "tool", "vehicle", "metal", "planet", "month", "tree", "flower", "musical instrument", "drink", "insect", "garment", "part of the body", "fish", "country", "city", "sport", "job", "piece of furniture", "day of the week", "animal")]
_NO_ARTICLE = {"colour", "planet", "month", "drink", "metal", "country", "city", "sport", "day of the week"}


def odd_one(rng):
    """What each is comes first, in the order of the question."""
    first, second = rng.sample(ODD, 2)
    items, odd = rng.sample(LISTS[first], rng.choice([2, 3, 3])), rng.choice(LISTS[second])
    if odd in LISTS[first] or {first[0], second[0]} in ({"fruit", "colour"}, {"animal", "bird"}, {"animal", "fish"}, {"animal", "insect"}, {"flower", "colour"}, {"fruit", "tree"}, {"metal", "colour"}, {"flower", "tree"}, {"city", "country"}):
        return odd_one(rng)
    items.insert(rng.randrange(len(items) + 1), odd)
    q = say(rng, "(odd one out|which is the odd one out|find the odd one [out]|which (one|word) does not (fit|belong)|what does not belong|what doesn't belong|which one is different|which doesnt fit|odd word out|the odd one)[:|,] {l}|"
            "(which|what) [one|of these|word] is not (a|an) {k}[:|,] {l}", l=keep(rng.choice([", ", ", ", " ", " or "]).join(items)), k=first[0])
    return q, "%s, so %s does not fit." % (", ".join("%s is %s" % (cap(x) if not i else x, article(second[0] if x == odd else first[0])) for i, x in enumerate(items)), odd), "I look what each of them is.", None


def which_is(rng):
    """Which of these is of some kind."""
    right, *others = rng.sample(ODD, rng.choice([2, 3, 3, 4]))
    items = [(rng.choice(LISTS[right]), right)] + [(rng.choice(LISTS[k]), k) for k in others]
    if len({x for x, _ in items}) < len(items) or any(items[0][0] in LISTS[k] or x in LISTS[right] for x, k in items[1:]) or "animal" in (k[0] for _, k in items) and {"bird", "fish", "insect"} & {k[0] for _, k in items}:
        return which_is(rng)
    one = items[0][0]
    rng.shuffle(items)
    q = say(rng, "(which|what) [one|word|of these|of them|of these words] is (a|an|the) {k}[:|,] {l}|(find|pick|choose|tell me|show me) the {k}[:| in] {l}|{l}[:|,] which [one|of these] is (a|an|the) {k}", k=right[0], l=keep(rng.choice([", ", ", ", " ", " or "]).join(x for x, _ in items)))
    return q, "%s, so it is %s." % (", ".join("%s is %s" % (cap(x) if not i else x, article(k[0])) for i, (x, k) in enumerate(items)), one), "I look what each of them is.", ("word", one) if one.isalpha() else None


# ---- numbers ----

def some_numbers(rng):
    top = rng.choice([10, 10, 20, 100, 100, 100, 1000])
    return [str(rng.randrange(1 if top == 10 else 0, top)) for _ in range(rng.choice([3, 3, 4, 4, 5, 6]))]


def row(rng, items):
    way = rng.random()
    if way < 0.4:
        return keep(", ".join(items))
    if way < 0.65:
        return keep(" ".join(items))
    if way < 0.75:
        return keep(",".join(items))
    if way < 0.9:
        return keep(", ".join(items[:-1]) + " and " + items[-1])
    if way < 0.94:
        return keep("\n".join(items))
    return keep(" and ".join(items) if len(items) < 5 else rng.choice(["; ", " / ", " | ", " - "]).join(items))


def largest(rng):
    items = some_numbers(rng)
    if len(set(items)) < len(items):
        return largest(rng)
    low = rng.random() < 0.4
    name = "(smallest|lowest|least|minimum|min|smallest number|lowest number)" if low else "(largest|biggest|highest|greatest|maximum|max|biggest number|largest number|highest number)"
    q = say(rng, f"[what is|whats|find|which is|tell me|give me] [the] {name} (of|in|among|from|:|) [these|the numbers|these numbers] [:] {{l}}|which [one|number|of these] is [the] {name}[:|,] {{l}}|{{l}} which [one] is [the] {name}|{name}: {{l}}", l=row(rng, items))
    best = (min if low else max)(items, key=int)
    return q, "The %s is %s." % ("smallest" if low else "largest", best), "I compare them.", items


def number(rng, n):
    return keep(number_words(n) if n <= 20 and rng.random() < 0.15 else str(n))


def ranges(rng):
    """Numbers in a row, up, down or in steps."""
    kind = rng.random()
    if kind < 0.45:
        low = rng.choice([1, 1, 0, rng.randrange(1, 12), rng.randrange(1, 60)])
        high = low + rng.randrange(2, 10)
        q = say(rng, "(count|count up|numbers|list the numbers|list numbers|say the numbers|all numbers|give me the numbers|write the numbers|can you count|please count|the numbers) from {a} (to|until|up to|till|through) {b}|numbers {a} to {b}|{a} to {b}|count {a} to {b}|"
                "count to {b} (starting at|from|beginning at) {a}", a=number(rng, low), b=number(rng, high))
        items = range(low, high + 1)
        if low == 1 and rng.random() < 0.5:
            q = say(rng, "(count|count up|can you count|please count|count for me|now count|lets count|count slowly) (to|till|until|up to) {b}|(the first {b} numbers|numbers (up to|until|to) {b})", b=number(rng, high))
    elif kind < 0.65:
        high, low = rng.randrange(3, 13), rng.choice([1, 1, 1, 0])
        if rng.random() < 0.5:
            low = rng.randrange(1, 20)
            high = low + rng.randrange(2, 10)
            q = say(rng, "(count|count down|count backwards|count back|numbers|numbers backwards) from {b} (to|down to) {a}|{b} to {a} (backwards|counting down)|countdown from {b} to {a}", a=number(rng, low), b=number(rng, high))
        else:
            low = 1
            q = say(rng, "(count|count down|count backwards|can you count down|do a countdown|countdown|count back) from {b}|countdown {b}|{b} countdown|count backwards starting at {b}", b=number(rng, high))
        items = range(high, low - 1, -1)
    elif kind < 0.8:
        even = rng.random() < 0.5
        high = rng.randrange(6, 21)
        name = "even" if even else "odd"
        q = say(rng, "[name|list|give me|what are|write|say|tell me|which are] [all] [the] {k} numbers (from 1 to|up to|until|below|between 1 and|to|from 0 to) {b}", k=name, b=number(rng, high))
        items = [i for i in range(1, high if "below" in q else high + 1) if (i % 2 == 0) == even]
    elif kind < 0.9:
        step = rng.choice([2, 2, 3, 4, 5, 5, 10, 10])
        n = rng.randrange(3, 8)
        q = say(rng, "count (by|in steps of|in) {s}[s] (to|up to|until) {b}|count to {b} (by|in steps of|in) {s}|[the] multiples of {s} (to|up to|until) {b}", s=keep(str(step) if step > 10 or rng.random() < 0.5 else HOW_MANY[step]), b=keep(str(step * n)))
        items = range(step, step * n + 1, step)
    else:
        what, first = rng.choice([("even", "2 4 6 8 10 12 14 16 18 20"), ("odd", "1 3 5 7 9 11 13 15 17 19"), ("prime", "2 3 5 7 11 13 17 19 23 29"), ("square", "1 4 9 16 25 36 49 64 81 100")])
        n = rng.randrange(2, 8)
        q = say(rng, "[what are|name|list|give me|tell me] [the] first {n} {k} numbers", n=amount(rng, n), k=what)
        items = first.split()[:n]
    items = [str(i) for i in items]
    return q, ", ".join(items) + ".", "I count.", items


def between(rng):
    a = rng.randrange(1, 90)
    n = rng.choice([1, 1, 2, 3, 4])
    items = [str(i) for i in range(a + 1, a + n + 1)]
    if n == 1:
        return say(rng, "(what|which) number (is|comes|lies) between {a} and {b}|[the] number between {a} and {b}", a=keep(str(a)), b=keep(str(a + 2))), "Between %d and %d comes %d." % (a, a + 2, a + 1), "One more.", None
    return say(rng, "[what|which|name|list] [are] [the] numbers [are|come|lie] between {a} and {b}", a=keep(str(a)), b=keep(str(a + n + 1))), "Between %d and %d come %s." % (a, a + n + 1, listed(items)), "I count.", items


def add_up(rng):
    items = [rng.randrange(1, rng.choice([10, 10, 20, 50])) for _ in range(rng.choice([2, 3, 3, 4, 5]))]
    parts, total = [], items[0]
    for x in items[1:]:
        parts.append("%d + %d = %d" % (total, x, total + x))
        total += x
    l = row(rng, [str(i) for i in items])
    if rng.random() < 0.3:
        n = len(items)
        short = (n - total % n) % n
        if not short or rng.random() < 0.9:
            items[-1] += short
            total += short
            parts[-1] = "%d + %d = %d" % (total - items[-1], items[-1], total)
            l = row(rng, [str(i) for i in items])
            return say(rng, "[what is|whats|find|calculate] [the] (average|mean) of {l}|average [of|:] {l}", l=l), "%s, and %d / %d = %d." % (", ".join(parts), total, n, total // n), "I add them up and divide.", None
    return say(rng, "(add|sum|add up|total|add together|sum up) [the numbers|these|these numbers] [:] {l}|[what is|whats] [the] (sum|total) of {l}|(sum|total)[:] {l}", l=l), ", ".join(parts) + ".", "I add them one by one.", None


# ---- the alphabet, months and days ----

def alphabet(rng):
    kind = rng.randrange(9)
    if kind == 0:
        n = rng.randrange(12)
        return say(rng, "(what is|whats|which is|what's|) [the] {n} letter (of|in) the alphabet|which letter [of the alphabet] (is|comes) {n}|letter number {m} (of|in) the alphabet", n=NTH[n] if rng.random() < 0.7 else "%d%s" % (n + 1, ["st", "nd", "rd"][n] if n < 3 else "th"), m=n + 1), "The %s letter of the alphabet is %s." % (NTH[n], LETTERS[n].upper()), "I say the alphabet.", None
    if kind == 1:
        return say(rng, "(what is|whats|which is|) [the] last letter (of|in) the alphabet|how does the alphabet end"), "The last letter of the alphabet is Z.", "I say the alphabet.", None
    if kind == 2:
        return say(rng, "(say|recite|write|tell me|give me|list|sing|type|do you know|) [the] (alphabet|abc|abcs|a b c|letters of the alphabet)|alphabet [please]|what are the letters of the alphabet"), "a b c d e f g h i j k l m n o p q r s t u v w x y z.", "The alphabet.", None
    if kind == 3:
        return say(rng, "(say|write|recite|tell me|) [the] (alphabet|abc) (backwards|in reverse|from z to a|backward|reversed)"), "z y x w v u t s r q p o n m l k j i h g f e d c b a.", "The alphabet, from its end.", None
    if kind == 4:
        at = rng.randrange(20)
        n = rng.randrange(2, 6)
        a, b = LETTERS[at], LETTERS[at + n]
        return say(rng, "[the] letters from {a} to {b}|[the] alphabet from {a} to {b}|{a} to {b} [in the alphabet]|(say|write|list) the letters from {a} (to|until) {b}", a=keep(a), b=keep(b)), " ".join(LETTERS[at:at + n + 1]) + ".", "I say the alphabet.", None
    if kind == 5:
        n = rng.randrange(2, 8)
        return say(rng, "[what are|name|list|give me|tell me] [the] first {n} letters of the alphabet|[the] first {n} letters", n=amount(rng, n)), " ".join(LETTERS[:n]) + ".", "I say the alphabet.", None
    c = rng.choice(LETTERS)
    if kind == 6:
        vowel = c in "aeiou"
        q = say(rng, "is [the letter] {c} a (vowel|consonant|vowel or a consonant|vowel or consonant|consonant or a vowel)|is {c} a vowel", c=keep(c))
        name = "vowel" if vowel else "consonant"
        if " or " in q:
            return q, "The letter %s is a %s." % (c, name), "Vowels are a, e, i, o and u.", None
        return q, "%s, the letter %s is a %s." % ("Yes" if name in q else "No", c, name), "Vowels are a, e, i, o and u.", None
    at = rng.randrange(1, 25)
    c = LETTERS[at]
    if kind == 7:
        n = rng.choice([1, 1, 1, 2, 3])
        if n == 1 or at + n > 25:
            after = rng.random() < 0.6
            return say(rng, "(which|what) [letter] (comes|is|stands|goes) [right|directly] {s} [the letter] {c} [in the alphabet|in the abc]|[the] [next] letter {s} {c}|letter {s} {c}", s="after" if after else "before", c=keep(c)), "%s %s comes %s." % ("After" if after else "Before", c, LETTERS[at + (1 if after else -1)]), "I say the alphabet.", None
        return say(rng, "(which|what) [{n}] letters (come|follow) after {c}|[the] next {n} letters after {c}", n=HOW_MANY[n], c=keep(c)), "After %s come %s." % (c, listed(list(LETTERS[at + 1:at + n + 1]))), "I say the alphabet.", None
    start = rng.randrange(20)
    return say(rng, "what (comes next|is next|follows|letter is next)[:|] {l}|(continue|go on|next letter)[:] {l}|{l} what (comes next|is next)", l=keep(rng.choice([" ", ", "]).join(LETTERS[start:start + 3]))), "After %s comes %s." % (LETTERS[start + 2], LETTERS[start + 3]), "I say the alphabet.", None


def series(rng):
    """How a row of numbers goes on."""
    step, first = rng.choice([1, 2, 2, 3, 4, 5, 5, 10, 10, -1, -2, -5]), rng.randrange(1, 30)
    if step < 0:
        first += 30
    items = [first + step * i for i in range(rng.choice([3, 4, 4]))]
    return say(rng, "what (comes next|is next|number comes next|is the next number|number is next|follows) [in]?[:|] {l}|(continue|go on|next number|complete|continue the series|continue the sequence)[:] {l}|{l} what (comes next|is next)|{l} ...".replace("?", ""), l=keep(", ".join(map(str, items)) if rng.random() < 0.6 else " ".join(map(str, items)))), \
        "After %d comes %d." % (items[-1], items[-1] + step), "The steps are %d." % step, None


def calendar(rng):
    kind = rng.randrange(7)
    if kind == 0:
        n = rng.randrange(12)
        return say(rng, "(what is|which is|whats|) [the] {n} month [of the year]|which month (is|comes) {n}|(what|which) month is number {m}|month [number] {m}", n=NTH[n] if n < 11 or rng.random() < 0.5 else "last", m=n + 1), "The %s month is %s." % (NTH[n], MONTHS[n]), "I count the months.", None
    if kind == 1:
        n = rng.randrange(7)
        return say(rng, "(what is|which is|whats|) [the] {n} day of the week|which day of the week (is|comes) {n}|day number {m} of the week", n=NTH[n] if n < 6 or rng.random() < 0.5 else "last", m=n + 1), "The %s day of the week is %s." % (NTH[n], DAYS[n]), "I count the days.", None
    if kind == 2:
        c = rng.choice("JFMASOND")
        items = [m for m in MONTHS if m[0] == c]
        return say(rng, "(which|what|name|list) [the|all] months [that] (start|begin) with [the letter|an|a] {c}|months (starting|beginning) with {c}", c=keep(c)), listed(items) + (" begins" if len(items) == 1 else " begin") + " with %s." % c.lower(), "I go through the months.", None
    if kind == 3:
        c = rng.choice("MTWFS")
        items = [d for d in DAYS if d[0] == c]
        return say(rng, "(which|what|name|list) [the|all] days [of the week] [that] (start|begin) with [the letter|an|a] {c}|days (starting|beginning) with {c}", c=keep(c)), listed(items) + (" begins" if len(items) == 1 else " begin") + " with %s." % c.lower(), "I go through the days.", None
    if kind == 4:
        a = rng.randrange(0, 10)
        b = rng.randrange(a + 1, min(12, a + 6))
        return say(rng, "[name|list|say|what are|give me] [the] months from {a} to {b}|{a} to {b} [months]", a=keep(MONTHS[a]), b=keep(MONTHS[b])), listed(MONTHS[a:b + 1]) + ".", "I say the months.", MONTHS[a:b + 1]
    if kind == 5:
        a = rng.randrange(0, 6)
        b = rng.randrange(a + 1, 7)
        return say(rng, "[name|list|say|what are|give me] [the] days from {a} to {b}|{a} to {b}", a=keep(DAYS[a]), b=keep(DAYS[b])), listed(DAYS[a:b + 1]) + ".", "I say the days.", DAYS[a:b + 1]
    back, days = rng.random() < 0.5, rng.random() < 0.5
    names = DAYS if days else MONTHS
    if back:
        return say(rng, "[name|list|say] [the] {k} (in reverse|backwards|in reverse order|from last to first)", k="days of the week" if days else "months [of the year]".replace("[of the year]", "").strip()), listed(names[::-1]) + ".", "From the end.", None
    return say(rng, "how many {k} [are there] in a {y}", k="days" if days else "months", y="week" if days else "year"), "The number of %s is %d." % ("days in a week" if days else "months in a year", len(names)), "I count them.", ("value", len(names))


def days_in(rng):
    n = rng.randrange(12)
    if rng.random() < 0.3:
        d = rng.choice([28, 28, 30, 31])
        return say(rng, "(which|what) month[s] (has|have) [only] {d} days|(name|list) [the|all] months (with|that have) {d} days|months (with|of) {d} days", d=keep(str(d))), "%s %s %d days." % (listed([m for m, k in zip(MONTHS, MONTH_DAYS) if k == d]), "has" if d == 28 else "have", d), "I know this one.", None
    return say(rng, "how many days (has|does|are in|are there in|in) {m} [have]|[number of] days in {m}|how long is {m}", m=keep(MONTHS[n])), "The number of days in %s is %d." % (MONTHS[n], MONTH_DAYS[n]), "I know this one.", ("value", MONTH_DAYS[n])


# ---- words ----

_PLURAL = {w: m for w, m in PLURALS.items() if w in EVERYDAY}
_MANY = sorted(_PLURAL.values())


def an_item(rng):
    if rng.random() < 0.12:
        return rng.choice(_MANY)
    return rng.choice(EVERYDAY) if rng.random() < 0.75 else rng.choice(_LISTED) if rng.random() < 0.6 else rng.choice(COMMON)


COMMON = [w for w in WORDS["common"] if 3 <= len(w) <= 9]


SOMETHING = {k[0].split()[0]: v for k, v in MORE_LISTS.items() if k[0].endswith(" thing")}


def something(rng):
    """Something red."""
    what = rng.choice(sorted(SOMETHING))
    items = SOMETHING[what]
    n = rng.choice([1, 1, 1, 2, 3])
    if n == 1:
        return say(rng, "(name|tell me|give me|say|think of|find|what is|can you name) [me] (something|a thing|one thing) [that is|which is] {w}|something [that is] {w}", w=what), cap(items[0]) + ".", "I think of what is %s." % what, ("more", what + " thing", "things that are " + what, items, 1)
    return say(rng, "(name|list|give me|tell me|what are) {n} {w} things|(name|list|give me) {n} things (that are|which are) {w}|{n} {w} things", n=amount(rng, n), w=what), cap(listed(items[:n])) + ".", "I think of what is %s." % what, items[:n]


def first_of(rng):
    """Which comes first in the alphabet."""
    a, b = an_item(rng).lower(), an_item(rng).lower()
    if a == b:
        return first_of(rng)
    first, last = min(a, b), max(a, b)
    if rng.random() < 0.5:
        return say(rng, "(which|what) [word] comes first [in the alphabet|alphabetically|in the dictionary][:|,] {a} or {b}|(does|is) {a} [come] before {b} [in the alphabet] or after", a=keep(a), b=keep(b)), "%s comes before %s." % (cap(first), last), "I compare the first letters.", None
    return say(rng, "does {a} come before {b} [in the alphabet|alphabetically|in the dictionary]", a=keep(a), b=keep(b)), "%s comes before %s, so %s." % (cap(first), last, "yes" if a < b else "no"), "I compare the first letters.", None


def no_doubles(rng):
    items = [an_item(rng) for _ in range(rng.choice([2, 3, 3]))] if rng.random() < 0.5 else [str(rng.randrange(10)) for _ in range(rng.choice([2, 3, 4]))]
    if rng.random() < 0.3:
        items = rng.sample(LETTERS[:8] if rng.random() < 0.6 else LETTERS, rng.choice([2, 3, 3]))
    items = list(dict.fromkeys(items))
    more = items + [rng.choice(items) for _ in range(rng.choice([1, 1, 2]))]
    rng.shuffle(more)
    return say(rng, "(remove|delete|drop) [the] (duplicates|doubles|repeated words|repeats) (from|in|:) {l}|{l} without duplicates|unique (words|items|values) [of|in|:] {l}", l=row(rng, more)), "Without doubles: %s." % ", ".join(dict.fromkeys(more)), "I keep each of them once.", None


def how_many_items(rng):
    items = [an_item(rng) for _ in range(rng.randrange(2, 7))]
    n = len(items)
    return say(rng, "how many (words|items|things) (are here|are in this list|are there|in this list|is this)[:|] {l}|count (the|these) (words|items|things)[:] {l}", l=keep(rng.choice([", ", " "]).join(items))), "%s, so there are %d." % (", ".join("%d %s" % (i + 1, x) for i, x in enumerate(items)), n), "I count them.", items


def letters_at(rng):
    w = rng.choice(EVERYDAY)
    n = rng.choice([2, 2, 3, 3, 4])
    if len(w) <= n:
        return letters_at(rng)
    last = rng.random() < 0.35
    part = w[-n:] if last else w[:n]
    return say(rng, "(what are|whats|give me|tell me|) [the] {s} {n} letters (of|in) [the word] {w}", s="last" if last else "first", n=amount(rng, n), w=keep(w)), "The letters of %s are%s, so the %s %s are%s." % (w, "".join(" " + c for c in w), "last" if last else "first", HOW_MANY[n], "".join(" " + c for c in part)), "I read the word letter by letter.", ("word", w)


KINDS = [(name_things, 24), (with_letter, 12), (odd_one, 6), (which_is, 5), (largest, 14), (ranges, 22), (between, 4), (add_up, 7), (alphabet, 10), (series, 5), (calendar, 8), (days_in, 3), (something, 4), (first_of, 5), (no_doubles, 4), (how_many_items, 3), (letters_at, 4)]
_FUNCTIONS, _WEIGHTS = [k for k, _ in KINDS], [w for _, w in KINDS]


def ask(rng):
    return rng.choices(_FUNCTIONS, _WEIGHTS)[0](rng)
