"""What pocket knows, asked as people ask: relations with ways to name what is wanted, the ways around that, and lists of things.

The tables are those of facts.py, widened by tables.json.xz; answers have the sentences of facts.py where a relation is there."""
import json
import lzma
import os
import re

import facts
from phrases import keep, say

HERE = os.path.dirname(os.path.abspath(__file__))
with lzma.open(os.path.join(HERE, "tables.json.xz")) as _f:
    TABLES = json.load(_f)
WORDS, FORMS, WORLD = TABLES["words"], TABLES["forms"], TABLES["world"]
with open(os.path.join(HERE, "grammar", "words.txt"), encoding="ascii") as _f:
    ORDINARY = [w for w in _f.read().split() if 3 <= len(w) <= 12]
with open(os.path.join(HERE, "grammar", "rhymes.txt"), encoding="ascii") as _f:
    RHYMING = [line.split() for line in _f]

# ways around a noun phrase {n} that stands for what is wanted
AROUND = ["(what is|what's|whats|what is|what are|wat is|what was) {n}", "{n}", "{n}", "(tell|give|show) me {n}", "(do|would) you [happen to] know {n}",
          "(can|could|would|will) you [please] (tell me|say|name|give me) {n}", "i [really] (need|want|wanted) (to know|to find out) {n}", "i'd like to know {n}",
          "(name|say|state) {n}", "i (forgot|forget|can't remember|do not know|always forget) {n}", "any idea (what|about) {n} [is]", "[so] what would be {n}",
          "(and|so|ok|now|then) what is {n}", "(remind|inform) me (of|about) {n}", "{n} is (what|which)", "[a] question: what is {n}", "(find|look up|get) [me] {n}",
          "(what do you know about|help me with|i was asked for|i am looking for|my teacher asked me) {n}", "what (might|could) be {n}", "is there {n}, and what is it",
          "hey what's {n}", "{n}, (what is it|do you know it|please)"]
FOLLOW = ["and {x}", "(and|what|how) about {x}", "what about {x}", "(and|now) for {x}", "(ok|now|then) {x}", "{x}", "{x} (too|as well|then)", "same (for|with|question for) {x}", "and (in|of|for) {x}",
          "and what about {x}", "also {x}", "do {x}", "next: {x}"]


class Known:
    """A relation: noun phrases, questions of its own, the answer, its pairs. `typed`: how its things are typed ({x} as it is)."""

    def __init__(self, key, answer, table, nouns=(), questions=(), weight=1.0, often=()):
        self.key, self.answer, self.table, self.nouns, self.questions, self.weight = key, answer, table, list(nouns), list(questions), weight
        self.names = list(table)
        self.often = [n for n in often if n in table]

    def pick(self, rng):
        return rng.choice(self.often) if self.often and rng.random() < 0.5 else rng.choice(self.names)

    def say(self, x):
        text = self.answer.format(x=x, y=self.table[x])
        return text[0].upper() + text[1:]

    def ask(self, rng, x):
        if self.key == "count" and rng.random() < 0.4:  # "legs on a spider"
            parts, has = re.split(" (?:on|in) ", x, maxsplit=1), "(does {b} have|has {b}|are (in|on) {b}|can you find (in|on) {b})"
            if len(parts) == 2:
                return say(rng, "how many {a} " + has, a=keep(parts[0]), b=keep(parts[1]))
        if x.startswith("the ") and rng.random() < 0.4:
            x = x[4:]
        at = rng.random() * (len(self.nouns) + len(self.questions))
        if at < len(self.nouns):
            n = say(rng, self.nouns[int(at)], x=keep(x))
            return say(rng, rng.choice(AROUND), n=n)
        return say(rng, self.questions[int(at) - len(self.nouns)], x=keep(x))


def world(field, article=""):
    return {name: article + c[field] for name, c in WORLD["countries"].items() if c[field]}


def small(table):
    """Currencies: all words but names of peoples in small letters."""
    return {k: " ".join(w.lower() if w.lower() in ("dollar", "pound", "peso", "franc", "dinar", "the") else w for w in v.split()) for k, v in table.items()}


OLD = {r.key: r for r in facts.RELATIONS}
USUAL = """France Germany Italy Spain Portugal Japan China India Brazil Canada Mexico Egypt Kenya Norway Sweden Finland Denmark Poland Austria Greece Turkey Peru Chile
Cuba Ireland Belgium Hungary Russia Ukraine Australia Argentina Switzerland""".split() + ["New Zealand", "South Korea", "United States", "United Kingdom", "England"]


def widened(key, more):
    return {**more, **OLD[key].table}


def the(name):
    return "the " + name if name in ("United States", "United Kingdom", "Netherlands", "Philippines") else name


CAPITALS = widened("capital", world("capital"))
COUNTRY_OF = {}
for _country, _city in CAPITALS.items():
    COUNTRY_OF.setdefault(_city, _country)
CURRENCIES = widened("currency", small(world("currency", "the ")))
LANGUAGES = widened("language", world("language"))
CONTINENTS = widened("continent", world("continent"))
SYMBOLS = widened("symbol", {n: s for n, (s, _) in TABLES["elements"].items()})
ATOMIC = widened("atomic", {n: str(z) for n, (_, z) in TABLES["elements"].items()})
ELEMENT_OF = {}
for _name, _symbol in SYMBOLS.items():
    ELEMENT_OF.setdefault(_symbol, _name)
OPPOSITES = widened("opposite", WORDS["opposites"])
_LISTED_WORDS = set(ORDINARY)


def usual(table):
    """What is answered with words of the list only: rules of grammar make others ("blueer")."""
    return {x: y for x, y in table.items() if all(len(w) < 3 or len(w) > 12 or w in _LISTED_WORDS for w in re.findall("[a-z]+", y))}


PLURALS = widened("plural", usual(FORMS["plurals"]))
PASTS = widened("past", FORMS["pasts"])
MORE_WORDS = """bear ours Bear oso, wolf loup Wolf lobo, mouse souris Maus raton, cow vache Kuh vaca, pig cochon Schwein cerdo, sheep mouton Schaf oveja, duck canard Ente pato,
rabbit lapin Kaninchen conejo, lion lion Loewe leon, apple pomme Apfel manzana, orange orange Orange naranja, lemon citron Zitrone limon, potato pomme-de-terre Kartoffel patata,
rice riz Reis arroz, meat viande Fleisch carne, sugar sucre Zucker azucar, coffee cafe Kaffee cafe, tea the Tee te, wine vin Wein vino, beer biere Bier cerveza,
butter beurre Butter mantequilla, cake gateau Kuchen pastel, soup soupe Suppe sopa, knife couteau Messer cuchillo, spoon cuillere Loeffel cuchara, plate assiette Teller plato,
bed lit Bett cama, room chambre Zimmer habitacion, kitchen cuisine Kueche cocina, car voiture Auto coche, train train Zug tren, ship bateau Schiff barco, plane avion Flugzeug avion,
bicycle velo Fahrrad bicicleta, road route Weg camino, mountain montagne Berg montana, river fleuve Fluss rio, forest foret Wald bosque, island ile Insel isla, star etoile Stern estrella,
sky ciel Himmel cielo, cloud nuage Wolke nube, stone pierre Stein piedra, gold or Gold oro, money argent Geld dinero, work travail Arbeit trabajo, time temps Zeit tiempo, week semaine Woche semana,
month mois Monat mes, morning matin Morgen manana, man homme Mann hombre, woman femme Frau mujer, boy garcon Junge chico, girl fille Maedchen chica, brother frere Bruder hermano,
sister soeur Schwester hermana, king roi Koenig rey, eye oeil Auge ojo, ear oreille Ohr oreja, nose nez Nase nariz, mouth bouche Mund boca, foot pied Fuss pie, arm bras Arm brazo,
love amour Liebe amor, life vie Leben vida, world monde Welt mundo, word mot Wort palabra, letter lettre Brief carta, name nom Name nombre, music musique Musik musica, song chanson Lied cancion,
six six sechs seis, seven sept sieben siete, eight huit acht ocho, nine neuf neun nueve, ten dix zehn diez, big grand gross grande, small petit klein pequeno, good bon gut bueno,
bad mauvais schlecht malo, new nouveau neu nuevo, old vieux alt viejo, hot chaud heiss caliente, cold froid kalt frio, happy heureux gluecklich feliz, yes oui ja si, no non nein no,
goodbye au-revoir auf-Wiedersehen adios, please s'il-vous-plait bitte por-favor"""
TONGUES = {"French": dict(facts.FRENCH), "German": dict(facts.GERMAN), "Spanish": dict(facts.SPANISH)}
for _row in MORE_WORDS.replace("\n", " ").split(","):
    _english, *_rest = _row.split()
    for _tongue, _word in zip(TONGUES, _rest):
        TONGUES[_tongue].setdefault(_english, _word.replace("-", " "))

MORE_AUTHORS = facts.pairs("""Romeo and Juliet=William Shakespeare, King Lear=William Shakespeare, Othello=William Shakespeare, The Tempest=William Shakespeare,
A Christmas Carol=Charles Dickens, Great Expectations=Charles Dickens, Sense and Sensibility=Jane Austen, The Trial=Franz Kafka, The Metamorphosis=Franz Kafka, Ulysses=James Joyce,
Heidi=Johanna Spyri, Pinocchio=Carlo Collodi, Huckleberry Finn=Mark Twain, Little Women=Louisa May Alcott, Winnie the Pooh=A. A. Milne, The Little Prince=Antoine de Saint-Exupery,
1984=George Orwell, Animal Farm=George Orwell, The Hobbit=J. R. R. Tolkien, Sherlock Holmes=Arthur Conan Doyle, The Three Musketeers=Alexandre Dumas, Around the World in Eighty Days=Jules Verne,
The Ugly Duckling=Hans Christian Andersen, The Little Mermaid=Hans Christian Andersen, Black Beauty=Anna Sewell, The Secret Garden=Frances Hodgson Burnett""")
MORE_INVENTORS = facts.pairs("""the bicycle=Karl von Drais, the car=Carl Benz, the zip=Whitcomb Judson, the piano=Bartolomeo Cristofori, the thermometer=Galileo Galilei, vaccination=Edward Jenner,
oxygen=Joseph Priestley, the theory of relativity=Albert Einstein, evolution=Charles Darwin, the World Wide Web=Tim Berners-Lee, the laws of heredity=Gregor Mendel, the periodic table=Dmitri Mendeleev""")
MORE_SUPERLATIVES = facts.pairs("""the tallest mountain in the world=Mount Everest, the highest mountain=Mount Everest, the longest river=the Nile, the longest river in the world=the Nile,
the biggest country=Russia, the largest country=Russia, the smallest country=Vatican City, the biggest city in Japan=Tokyo, the biggest ocean=the Pacific Ocean, the biggest desert=Antarctica,
the largest hot desert=the Sahara, the biggest animal=the blue whale, the biggest animal in the world=the blue whale, the fastest animal=the peregrine falcon, the fastest animal on land=the cheetah,
the slowest animal=the sloth, the tallest tree=the redwood, the biggest planet=Jupiter, the biggest planet in the solar system=Jupiter, the hottest planet=Venus, the coldest planet=Uranus,
the farthest planet=Neptune, the planet closest to the Sun=Mercury, the closest planet to the Sun=Mercury, the closest star=the Sun, the smallest bird=the hummingbird, the fastest bird=the peregrine falcon,
the biggest fish=the whale shark, the largest fish=the whale shark, the king of animals=the lion, the biggest continent=Asia, the most common gas in the air=nitrogen, the lightest element=hydrogen,
the shortest month=February, the first month of the year=January, the last month of the year=December, the first day of the week=Monday, the longest bone=the thigh bone, the biggest island=Greenland,
the smallest ocean=the Arctic Ocean, the longest river in Asia=the Yangtze, the biggest lake=the Caspian Sea, the hardest mineral=diamond, the first man on the Moon=Neil Armstrong,
the first person on the Moon=Neil Armstrong, the first woman in space=Valentina Tereshkova, the first man in space=Yuri Gagarin, the coldest continent=Antarctica, the first letter of the alphabet=A,
the last letter of the alphabet=Z""")
MORE_COUNTS = facts.pairs("""legs on a cat=4, legs on a horse=4, legs on a cow=4, legs on a chicken=2, legs on an ant=6, legs on a bee=6, legs on a human=2, legs on a crab=10, legs on a table=4,
wings on a bird=2, wings on a bee=4, eyes on a spider=8, fingers on a hand=5, toes on a foot=5, fingers on two hands=10, ears on a rabbit=2, bones in the human body=206, wheels on a car=4, wheels on a truck=6,
sides on a heptagon=7, sides on a rectangle=4, corners on a square=4, corners on a triangle=3, corners on a cube=8, edges on a cube=12, minutes in half an hour=30, minutes in a quarter of an hour=15,
seconds in an hour=3600, minutes in a day=1440, hours in a week=168, months in half a year=6, quarters in a year=4, seasons in a year=4, days in January=31, days in February=28, days in March=31, days in April=30,
days in May=31, days in June=30, days in July=31, days in August=31, days in September=30, days in October=31, days in November=30, days in December=31, years in a millennium=1000, cents in a dollar=100,
cents in a euro=100, pence in a pound=100, vowels in the alphabet=5, consonants in the alphabet=21, planets=8, continents=7, oceans=5, seasons=4, players in a basketball team=5, players in a volleyball team=6,
dots on a die=21, sides on a die=6, items in a dozen=12, items in a pair=2, pieces on a chess board=32, meters in a kilometer=1000, centimeters in a meter=100, millimeters in a meter=1000, kilograms in a ton=1000,
milliliters in a liter=1000, inches in a foot=12, feet in a yard=3, states in the United States=50, stripes on the flag of the United States=13, hearts on an octopus=3, stomachs on a cow=4, noses on a face=1""")
MORE_COLOURS = facts.pairs("""the sea=blue, the night=black, fire=red, a tomato=red, a cherry=red, an apple=red, an elephant=grey, a crow=black, a frog=green, a leaf=green, a cucumber=green, ice=white, cheese=yellow,
a pumpkin=orange, a rose=red, salt=white, sugar=white, coffee=brown, a polar bear=white, a pig=pink, a plum=purple, a cloud=white, gold=yellow, silver=grey, a mouse=grey, sand=yellow, wood=brown, a fire engine=red""")
NEXT = {}
for _list, _what in ((facts.pairs("""Monday Tuesday, Tuesday Wednesday, Wednesday Thursday, Thursday Friday, Friday Saturday, Saturday Sunday, Sunday Monday"""), "day"),
                     (facts.pairs("""January February, February March, March April, April May, May June, June July, July August, August September, September October,
                      October November, November December, December January"""), "month"),
                     (facts.pairs("spring summer, summer autumn, autumn winter, winter spring"), "season")):
    NEXT.update(_list)
BEFORE = {b: a for a, b in NEXT.items()}
ROMAN = {}
for _n in list(range(1, 51)) + [60, 70, 80, 90, 99, 100, 400, 500, 900, 1000, 2000]:
    _left, _text = _n, ""
    for _v, _s in ((1000, "M"), (900, "CM"), (500, "D"), (400, "CD"), (100, "C"), (90, "XC"), (50, "L"), (40, "XL"), (10, "X"), (9, "IX"), (5, "V"), (4, "IV"), (1, "I")):
        while _left >= _v:
            _text, _left = _text + _s, _left - _v
    ROMAN[str(_n)] = _text


def article(word):
    return ("an " if word[0] in "aeiou" else "a ") + word



# what things are: of each the list in its order, and names for one and for many
LISTS = {
    ("fruit", "fruits"): "apple, pear, plum, banana, cherry, orange, grape, lemon, peach, mango, melon, strawberry, fig, kiwi, apricot",
    ("vegetable", "vegetables"): "carrot, potato, onion, cabbage, pea, bean, spinach, leek, cucumber, lettuce, garlic, celery, turnip, broccoli, pumpkin",
    ("animal", "animals"): "dog, cat, horse, cow, lion, bear, wolf, fox, sheep, goat, pig, elephant, mouse, rabbit, deer",
    ("bird", "birds"): "owl, eagle, robin, sparrow, duck, goose, swan, crow, parrot, penguin, pigeon, hawk, ostrich, stork, hen",
    ("fish", "fish"): "salmon, trout, herring, cod, carp, tuna, pike, eel, shark, perch",
    ("insect", "insects"): "bee, ant, fly, beetle, butterfly, wasp, moth, cricket, mosquito, flea",
    ("mammal", "mammals"): "whale, dolphin, bat, human, camel, kangaroo, giraffe, zebra, tiger, monkey, hedgehog, squirrel, otter, seal, panda",
    ("reptile", "reptiles"): "snake, lizard, turtle, crocodile, tortoise",
    ("colour", "colours"): "red, blue, green, yellow, orange, purple, black, white, brown, pink, grey",
    ("tool", "tools"): "hammer, saw, screwdriver, axe, drill, wrench, rake, spade, chisel, pliers",
    ("piece of furniture", "pieces of furniture"): "table, chair, bed, sofa, desk, wardrobe, shelf, cupboard, stool, bench",
    ("tree", "trees"): "oak, birch, pine, beech, maple, willow, elm, ash, fir, palm",
    ("flower", "flowers"): "rose, tulip, daisy, lily, sunflower, poppy, violet, daffodil, orchid, iris",
    ("garment", "clothes"): "shirt, coat, hat, dress, sock, shoe, scarf, glove, skirt, jacket, trousers, sweater",
    ("part of the body", "parts of the body"): "head, arm, leg, hand, foot, nose, ear, eye, mouth, knee, shoulder, finger",
    ("vehicle", "vehicles"): "car, bus, train, bicycle, truck, ship, plane, boat, motorcycle",
    ("musical instrument", "musical instruments"): "piano, violin, guitar, flute, drum, trumpet, harp, cello, organ, clarinet",
    ("drink", "drinks"): "water, milk, tea, coffee, juice, lemonade, cocoa, wine, beer",
    ("job", "jobs"): "teacher, doctor, baker, farmer, nurse, pilot, cook, painter, carpenter, sailor, lawyer, tailor",
    ("sport", "sports"): "football, tennis, swimming, running, hockey, skiing, boxing, rowing, cycling, chess",
    ("metal", "metals"): "iron, gold, silver, copper, zinc, tin, lead, nickel, aluminium, platinum",
    ("planet", "planets"): "Mercury, Venus, Earth, Mars, Jupiter, Saturn, Uranus, Neptune",
    ("month", "months"): "January, February, March, April, May, June, July, August, September, October, November, December",
    ("day of the week", "days of the week"): "Monday, Tuesday, Wednesday, Thursday, Friday, Saturday, Sunday",
    ("season", "seasons"): "spring, summer, autumn, winter",
    ("continent", "continents"): "Africa, Asia, Europe, North America, South America, Australia, Antarctica",
    ("ocean", "oceans"): "the Pacific Ocean, the Atlantic Ocean, the Indian Ocean, the Arctic Ocean, the Southern Ocean",
    ("country in Europe", "countries in Europe"): "France, Germany, Italy, Spain, Portugal, Poland, Norway, Sweden, Greece, Ireland, Austria, Hungary",
    ("country in Africa", "countries in Africa"): "Egypt, Kenya, Ghana, Morocco, Nigeria, Tunisia, Mali, Uganda, Angola, Ethiopia",
    ("country in Asia", "countries in Asia"): "Japan, China, India, Thailand, Vietnam, Nepal, Iran, Mongolia, Pakistan",
    ("country in South America", "countries in South America"): "Brazil, Peru, Chile, Argentina, Colombia, Ecuador, Bolivia, Uruguay",
    ("country", "countries"): "France, Japan, Brazil, Egypt, Canada, India, Italy, Kenya, Mexico, Norway",
    ("city", "cities"): "Paris, London, Rome, Tokyo, Cairo, Berlin, Madrid, Oslo, Vienna, Lisbon",
    ("language", "languages"): "English, French, German, Spanish, Italian, Chinese, Arabic, Russian, Greek, Japanese",
    ("shape", "shapes"): "circle, square, triangle, rectangle, oval, star, pentagon, hexagon",
    ("number", "numbers"): "one, two, three, four, five, six, seven, eight, nine, ten",
    ("vowel", "vowels"): "a, e, i, o, u",
    ("element", "elements"): "hydrogen, helium, carbon, oxygen, nitrogen, iron, copper, silver, gold, sodium",
    ("food", "foods"): "bread, cheese, rice, soup, egg, cake, honey, butter, meat, noodles",
    ("river", "rivers"): "the Nile, the Amazon, the Rhine, the Danube, the Thames, the Volga, the Seine",
    ("school subject", "school subjects"): "history, music, art, science, geography, English, sport",
    ("farm animal", "farm animals"): "cow, pig, sheep, goat, hen, horse, duck, donkey",
    ("pet", "pets"): "dog, cat, hamster, rabbit, parrot, goldfish",
    ("weather", "kinds of weather"): "rain, snow, wind, sun, fog, hail, storm",
}
LISTS = {k: v.split(", ") for k, v in LISTS.items()}
WHOLE = {"planet", "month", "day of the week", "season", "continent", "ocean", "vowel"}  # lists that are complete, in their order
MEMBERS = {}
for (_one, _), _items in LISTS.items():
    if _one in ("fruit", "vegetable", "bird", "fish", "insect", "mammal", "reptile", "colour", "tool", "tree", "flower", "vehicle", "musical instrument", "drink", "metal",
                "planet", "month", "season", "continent", "shape", "sport", "garment", "piece of furniture", "part of the body", "job"):
        for _x in _items:
            MEMBERS.setdefault(_x, _one)

_NOUNS = set(WORDS["nouns"])
# What things are, in few kinds: a kind that has many members is learned, and what is said of something else by mistake is at least made of words.
THINGS = """machine: computer, engine, robot, turbine, printer, tractor, dishwasher, washing machine, mixer, calculator, pump, fridge
device: phone, telephone, camera, radio, television, clock, watch, lamp, laptop, tablet, microwave, key, keyboard, battery, thermometer, compass, telescope, microscope, remote control, alarm clock
building: house, school, church, hospital, hotel, castle, tower, library, museum, palace, temple, cathedral, factory, barn, lighthouse, mosque, pyramid, skyscraper, theatre, station, airport, bank, prison
container: box, bottle, bag, cup, basket, bucket, bowl, jar, barrel, suitcase, vase, wallet, pocket, glass, mug, pot, drawer
room: kitchen, bedroom, bathroom, cellar, attic, hall, garage, office, classroom
animal: cat, dog, horse, cow, pig, lion, fox, wolf, bear, mouse, frog, sheep, goat, rabbit, deer, elephant, hen, pet, dinosaur, octopus, spider, snail, crab, worm, bird, fish, insect, reptile, mammal
plant: tree, bush, flower, grass, cactus, moss, fern, herb, weed, ivy, bamboo, mushroom
person: king, queen, friend, boy, girl, man, woman, child, baby, hero, neighbour, writer, singer, artist, soldier, prince, princess, thief, scientist, actor, dentist, chef, judge, student, president, author, astronaut, wizard, guest, twin
relative: mother, father, brother, sister, uncle, aunt, cousin, grandmother, grandfather, son, daughter
food: pizza, pasta, salad, chocolate, yogurt, toast, sushi, jam, ice cream, porridge, bacon
meal: breakfast, lunch, dinner, supper, picnic
place: city, town, village, farm, garden, park, zoo, beach, market, playground, harbour, street, road, field, desert, forest, island, mountain, hill, valley, cave, jungle, volcano, shop, cafe, restaurant
body of water: river, lake, sea, ocean, pond, stream, canal, bay
feeling: joy, fear, anger, love, hope, sadness, happiness, hate, jealousy, pride, surprise, pain
game: poker, hangman, bingo, chess, ludo
toy: ball, doll, kite, puppet, balloon
weapon: sword, gun, bow, spear, cannon, dagger, shield, bomb, rifle
text: story, letter, poem, novel, book, diary, recipe, fairy tale, newspaper, essay, dictionary, note, email
time: day, night, week, year, hour, minute, second, morning, evening, noon, midnight, century, decade, weekend
weather: rain, snow, wind, fog, hail, storm, thunderstorm, hurricane, tornado, blizzard
illness: cold, flu, fever, cough, headache, measles, asthma
substance: stone, wood, glass, paper, sand, plastic, oil, salt, sugar, wool, cotton, rubber, steel, concrete, clay, wax, ice, marble
piece of jewellery: ring, necklace, earring, bracelet, crown
dance: waltz, tango, ballet, polka, salsa
part of a house: door, window, wall, roof, floor, ceiling, chimney, balcony, staircase
part of a plant: leaf, root, branch, seed, stem, petal
monster: dragon, vampire, troll, giant, ghost, witch, zombie, werewolf
number: dozen, hundred, thousand, million, billion, zero
word: verb, noun, adjective, adverb, pronoun, preposition, synonym, name
science: biology, physics, chemistry, mathematics, geology, astronomy, medicine, psychology
religion: christianity, islam, buddhism, hinduism, judaism
music: jazz, rock music, pop music, blues, opera, techno, hip hop
fuel: petrol, gas, coal, diesel
cloth: silk, linen, denim, velvet
sport: golf, baseball, basketball, rugby, cricket, volleyball, judo, surfing, karate, badminton, gymnastics
money: coin, euro, dollar, yen, pound"""
DEFINED = {w: d for w, d in usual(WORDS["defined"]).items() if w not in MEMBERS and len(d.split()) <= 3 and not w.endswith(("ed", "ly", "ing", "er", "est", "s"))}  # what is long is not learned
KINDS_OF = {w: kind for line in THINGS.split("\n") for kind, ws in [line.split(": ")] for w in ws.split(", ") if w not in MEMBERS}
DEFINED = {w: d for w, d in DEFINED.items() if w not in KINDS_OF}
UNCOUNTED = ("substance", "weather", "feeling", "game", "dance", "food", "science", "religion", "music", "fuel", "cloth", "sport")  # these things come without "a"


def yes_or_no(rng):
    """Whether something is so: (question, answer)."""
    known = rng.choice([BY_KEY[k] for k in ("capital", "capital", "currency", "opposite", "plural", "past", "superlative", "symbol", "young", "synonym", "author", "language", "continent")])
    x = known.pick(rng)
    right = known.table[x]
    y = right if rng.random() < 0.5 else known.table[known.pick(rng)]
    ask = {"author": "(did {y} write {x}|was {x} written by {y}|is {x} by {y})", "language": "(do they|do people) speak {y} in {x}", "continent": "is {x} (in|part of) {y}",
           "young": "is a (baby|young) {x} [called] {y}"}.get(known.key)
    if not ask:
        ask = "(is|isn't) {y} " + say(rng, rng.choice(known.nouns), x="{x}")
    text = known.say(x)
    if text.split()[0] in ("The", "A", "An", "People", "Another", "We"):
        text = text[0].lower() + text[1:]
    return say(rng, ask, x=keep(x), y=keep(y)), ("Yes, " if y == right else "No, ") + text, "I know this one."


def about(rng):
    """What can be said of a country, or of a thing in a list."""
    way = "(tell me|say) [something|more|a bit] about {x}|what (do|can) you (know|say|tell me) about {x}|describe {x}|(facts|information|info) (about|on) {x}|do you know {x}|have you heard of {x}"
    if rng.random() < 0.6:
        x = rng.choice(USUAL) if rng.random() < 0.5 else rng.choice(sorted(WORLD["countries"]))
        if x in CAPITALS and x in CONTINENTS:
            return say(rng, way, x=keep(x)), "%s is in %s. The capital of %s is %s." % (x, CONTINENTS[x], x, CAPITALS[x]), "I know this country."
    known = BY_KEY["member"]
    x = rng.choice(known.names)
    return say(rng, way, x=keep(rng.choice([x, article(x)]))), known.say(x), "I know what this is."


C = "(capital|capital|capital|capital city|capitol|captial|capital town|main city)"
KNOWN = [
    Known("capital", "the capital of {x} is {y}.", CAPITALS, [f"[the] {C} of {{x}}", f"{{x}}'s {C}", f"{{x}}s {C}", f"{C} (for|in) {{x}}", f"the name of the {C} of {{x}}"],
          [f"(what|which) (city|town) is the {C} of {{x}}", f"{{x}} {C}", f"{{x}}: {C}", f"{{x}} has (what|which) {C}", "where does the government of {x} sit", f"what {C} does {{x}} have"], 5, USUAL),
    Known("country of", "{x} is the capital of {y}.", COUNTRY_OF, ["the country (with the capital|whose capital is) {x}"],
          ["{x} is the (capital|capital city|capitol) of (what|which country|what country|where)", "(what|which) country is {x} the capital of", "of (what|which) country is {x} the capital",
           "(what|which) country has [the capital] {x} [as its capital]", "(what|which) country is {x} in", "where is {x}", "in (what|which) country is {x}"], 2,
          [CAPITALS[u] for u in USUAL if u in CAPITALS]),
    Known("continent", "{x} is in {y}.", CONTINENTS, ["the continent (of|that has) {x}", "{x}'s continent"],
          ["(what|which) continent is {x} (in|on|part of)", "(on|in) (what|which) continent is {x}", "where [in the world] is {x}", "{x} is (on|in) (what|which) continent", "where (is|can i find|do i find) {x}",
           "(what|which) continent does {x} belong to", "{x} continent", "is {x} in (africa|asia|europe) or (asia|europe|south america|north america)", "what part of the world is {x} in", "{x} is where"], 2, USUAL),
    Known("currency", "the currency of {x} is {y}.", CURRENCIES, ["[the] (currency|money) (of|in|used in|for) {x}", "{x}'s (currency|money)", "the name of the money (in|of) {x}"],
          ["(what|which) (currency|money) (do they|do people|does one|do you) (use|have|need|pay with|spend) in {x}", "(what|which) (currency|money) does {x} (use|have)", "what do (people|they|you) pay with in {x}",
           "{x} (currency|money)", "what is the money called in {x}", "(what|which) money do i need (in|for) {x}", "how do i pay in {x}", "what coins do they have in {x}"], 2, USUAL),
    Known("language", "people in {x} speak {y}.", LANGUAGES, ["[the] [main|official] language (of|in|spoken in) {x}", "{x}'s language"],
          ["(what|which) language (do they|do people|is|does one) (speak|spoken|talk) in {x}", "what do (they|people) speak in {x}", "(what|which) language is spoken in {x}", "(what|which) languages are spoken in {x}",
           "{x} language", "what does a person from {x} speak", "what language should i learn for {x}", "what tongue do people use in {x}"], 2, USUAL),
    Known("city", "{x} is in {y}.", {c: k for c, k in WORLD["cities"].items() if c not in COUNTRY_OF}, ["the country of {x}"], ["(what|which) country is {x} in", "where is {x}", "in (what|which) country (is|lies) {x}", "{x} is in (what|which) country", "which country does {x} belong to"], 1),
    Known("young", "the young of a {x} is called {y}.", OLD["young"].table, ["the (name|word) (for|of) a (baby|young|little) {x}", "a (baby|young) {x}'s name", "(a|the) (baby|young) of a {x}"],
          ["what is a (baby|young|little|small) {x} called", "what do (you|we|people) call a (baby|young|little) {x}", "whats a (baby|young) {x} called", "(baby|young) {x} (name|called)", "how do you call (a baby|the baby of a|the young of a) {x}",
           "what is the (baby|young|child) of a {x} [called]", "a (baby|young) {x} is called", "baby {x}"], 2),
    Known("sound", "a {x} {y}.", OLD["sound"].table, ["the (sound|noise) (of|made by) a {x}"],
          ["(what|which) (sound|noise) does (a|the) {x} make", "what does (a|the) {x} say", "what (sound|noise) do {x}s make", "how does a {x} (go|sound)", "{x} (sound|noise)", "what does the {x} do when it is loud"], 2),
    Known("symbol", "the chemical symbol of {x} is {y}.", SYMBOLS, ["[the] [chemical] symbol (for|of) {x}", "{x}'s [chemical] symbol", "the (short form|abbreviation|letters) (of|for) {x} in chemistry"],
          ["what [chemical] symbol does {x} have", "how is {x} written in chemistry", "{x} [chemical] symbol", "what stands for {x} in the periodic table", "(what|which) letters stand for {x}"], 2, list(facts.SYMBOLS)),
    Known("element of", "{x} is the chemical symbol of {y}.", ELEMENT_OF, ["the element (with the symbol|called|written) {x}", "the meaning of {x} in chemistry"],
          ["(what|which) element (is|has the symbol|is written) {x}", "what does {x} (stand for|mean) in chemistry", "{x} is the symbol (of|for) (what|which element)", "which element's symbol is {x}", "{x} in the periodic table"], 1.5,
          list(facts.SYMBOLS.values())),
    Known("atomic", "the atomic number of {x} is {y}.", ATOMIC, ["[the] atomic (number|no) of {x}", "{x}'s atomic number"],
          ["(what|which) atomic number does {x} have", "{x} atomic number", "what number is {x} [in the periodic table]", "how many protons does {x} have"], 1, list(facts.ATOMIC)),
    Known("opposite", "the opposite of {x} is {y}.", OPPOSITES, ["[the] (opposite|antonym|contrary|reverse) (of|to|for) [the word] {x}", "(an antonym|a word that is the opposite) (of|for) {x}", "{x}'s opposite"],
          ["(what|which) word (means the opposite|is the opposite) of {x}", "{x} (opposite|antonym)", "not {x} but", "what is the word that is not {x}", "{x} and its opposite"], 3, list(OLD["opposite"].table)),
    Known("plural", "the plural of {x} is {y}.", PLURALS, ["[the] plural [form] (of|for) [the word] {x}", "the word for (many|several|more than one) {x}"],
          ["one {x}, two [what]", "{x} plural", "(what|how) do you (call|say|write) more than one {x}", "more than one {x} [is]", "how do you (write|say|spell) the plural of {x}", "what is {x} in the plural", "many of {x}", "make {x} plural",
           "one {x} many"], 3, list(OLD["plural"].table)),
    Known("past", "the past tense of {x} is {y}.", PASTS, ["[the] [simple] past [tense] [form] (of|for) [the verb] [to] {x}"],
          ["(today|now) i {x}, yesterday i [what]", "yesterday i [did] {x}: what is the right form", "{x} past [tense]", "how do you (say|write|put) {x} in the past [tense]", "what is {x} in the past [tense]", "put {x} in[to] the past [tense]",
           "yesterday i ... ({x})", "{x} in past tense"], 3, list(OLD["past"].table)),
    Known("third", "he or she {y}.", {w: f for w, f in FORMS["thirds"].items()}, ["the (he|she|third person) form of {x}"], ["i {x}, (he|she) [what]", "he or she (form of {x}|...({x}))", "third person of {x}"], 0.7),
    Known("ing", "the form of {x} with -ing is {y}.", FORMS["ings"], ["the (-ing|ing) form of {x}", "the present participle of {x}"], ["{x} with ing", "add ing to {x}"], 0.6),
    Known("more", "the comparative of {x} is {y}.", {**usual(FORMS["more"]), "good": "better", "bad": "worse", "far": "farther", "much": "more", "little": "less"}, ["[the] comparative [form] (of|for) {x}"],
          ["{x}, (then|and even) [what]", "{x} comparative", "how do you compare {x}"], 0.8, ["good", "bad", "big", "small", "fast", "happy"]),
    Known("most", "the superlative of {x} is {y}.", {**usual(FORMS["most"]), "good": "best", "bad": "worst", "far": "farthest", "much": "most", "little": "least"}, ["[the] superlative [form] (of|for) {x}"],
          ["{x} superlative", "the most {x} is called [what]"], 0.8, ["good", "bad", "big", "small", "fast", "happy"]),
    Known("author", "{x} was written by {y}.", widened("author", MORE_AUTHORS), ["the (author|writer) of {x}", "the (person|man or woman) who wrote {x}"],
          ["who (wrote|is the author of|was the author of|penned|has written) {x}", "(which|what) (author|writer) wrote {x}", "{x} (author|writer)", "{x} was written by", "by whom is {x}", "{x} is by (who|whom)", "whose (book|work) is {x}"], 2),
    Known("painter", "{x} was painted by {y}.", OLD["painter"].table, ["the (painter|artist) (of|behind) {x}"], ["who (painted|made|is the painter of) {x}", "(which|what) (artist|painter) (painted|made) {x}", "{x} (painter|artist)", "{x} was painted by"], 1.5),
    Known("composer", "{x} was composed by {y}.", OLD["composer"].table, ["the composer of {x}"], ["who (composed|wrote the music of|is the composer of) {x}", "(which|what) composer (wrote|made) {x}", "{x} composer"], 1),
    Known("inventor", "we owe {x} to {y}.", widened("inventor", MORE_INVENTORS), ["the (inventor|discoverer|maker|father) of {x}"],
          ["who (invented|discovered|made|found|came up with|built the first|thought of) {x}", "(which|what) (person|scientist) (invented|discovered) {x}", "{x} (inventor|discovered by|invented by)", "{x} was (invented|discovered) by (who|whom)"], 1.5),
    Known("superlative", "{x} is {y}.", widened("superlative", MORE_SUPERLATIVES), ["{x}", "{x}", "the name of {x}"], ["(what|which|who) is {x}", "(which|what) one is {x}", "{x} (name|is)"], 3),
    Known("count", "the number of {x} is {y}.", widened("count", MORE_COUNTS), ["the (number|count|amount) of {x}"], ["how many {x} [are there]", "how many {x} (do we have|are known|exist)", "(number|no) of {x}", "how much {x}", "{x}: how many"], 4),
    Known("roman", "{x} in Roman numerals is {y}.", {**ROMAN, **OLD["roman"].table}, ["{x} in roman numerals", "the roman (numeral|number) (for|of) {x}"],
          ["how do you write {x} in roman numerals", "{x} (to|as) roman [numerals|numeral|number]", "convert {x} to roman [numerals]", "roman (numeral|number) {x}"], 1),
    Known("colour", "the colour of {x} is {y}.", widened("colour", MORE_COLOURS), ["[the] (color|colour) of {x}"], ["(what|which) (color|colour) (is|has) {x}", "what (color|colour) does {x} have", "{x} (color|colour)", "tell me what (color|colour) {x} is"], 2),
    Known("next", "after {x} comes {y}.", NEXT, ["the (day|month|season) after {x}"], ["what (comes|is|follows) (after|behind) {x}", "what follows {x}", "(which|what) (day|month|season) (comes|is) after {x}", "after {x} (comes|is)"], 1),
    Known("before", "before {x} comes {y}.", BEFORE, ["the (day|month|season) before {x}"], ["what (comes|is) before {x}", "(which|what) (day|month|season) (comes|is) before {x}", "before {x} (comes|is)"], 1),
    Known("definition", "{x} means: {y}.", DEFINED, ["[the] (meaning|definition|sense) of [the word] {x}", "a definition (of|for) {x}"],
          ["what does [the word] {x} mean", "what is [the] meant by {x}", "define {x}", "(explain|describe) the word {x}", "{x} (meaning|definition|means)", "what is {x}", "what's {x}"], 3),
    Known("kind", "{y}", {w: "%s is a %s." % (w if k in UNCOUNTED else article(w), k if " of " in k else "kind of " + k) for w, k in KINDS_OF.items()}, ["a {x}"], ["what is (a|an|the) {x}", "what (kind|sort|type) of thing is (a|an) {x}", "what's a {x}", "(explain|describe) (a|what a) {x} [is]"], 2),
    Known("member", "{y}", {w: "%s is %s." % (article(w) if one not in ("planet", "month", "season", "continent", "metal", "sport", "drink", "colour") else w, article(one)) for w, one in MEMBERS.items()}, [],
          ["what is (a|an|the) {x}", "(is|are) (a|an) {x} (a|an) (fruit|vegetable|bird|fish|insect|mammal|tool|tree|flower|plant|thing|animal) or (a|an) (fruit|vegetable|bird|fish|insect|mammal|tool|tree|flower|plant)",
           "what (kind|sort|type) of (thing|word|animal|plant) is [a|an] {x}", "{x} is a", "what group does {x} belong to"], 2),
    Known("synonym", "another word for {x} is {y}.", {w: s[0] for w, s in WORDS["synonyms"].items()} | dict(big="large", happy="glad", fast="quick", small="little", smart="clever", begin="start", end="finish", pretty="beautiful",
          angry="mad", house="home", sad="unhappy", rich="wealthy", hard="difficult", quiet="silent", scared="afraid", funny="amusing", large="big", shut="close", fearless="brave", brave="bold", tiny="small"),
          ["a (synonym|similar word|word like) (for|of) {x}", "another word for {x}", "(synonyms|a different word|other words) (for|of) {x}"],
          ["{x} synonym", "what else can i say (for|instead of) {x}", "(which|what) [word] means the same as {x}", "say {x} in another way", "what is a synonym (for|of) {x}", "(which|what) word is like {x}", "a word (that means|meaning) the same as {x}", "(give me|tell me|find|name) (a synonym|another word) (for|of) {x}"], 3,
          "big happy fast small smart begin end pretty angry house sad rich hard quiet scared funny large shut brave tiny start nice old cold hot good bad beautiful strong easy".split()),
]
for _tongue, _table in TONGUES.items():
    KNOWN.append(Known(_tongue.lower(), "{x} in %s is {y}." % _tongue, _table, [f"[the] {_tongue} [word] for {{x}}", f"{{x}} in {_tongue}", f"the {_tongue} translation of {{x}}"],
                       [f"how do (you|i|we|they) say {{x}} in {_tongue}", f"translate {{x}} [in|into|to] {_tongue}", f"{{x}} (in|to|into) {_tongue}", f"(what does|what is|say) {{x}} [mean] in {_tongue}", f"{_tongue} for {{x}}",
                        f"how (would|does) a {_tongue} person say {{x}}", f"in {_tongue} {{x}} is"], 1.5))
    KNOWN.append(Known("from " + _tongue.lower(), "{x} in English is {y}.", {f: e for e, f in _table.items()}, ["{x} in English", f"the English [word] for the {_tongue} [word] {{x}}"],
                       [f"what does [the {_tongue} word] {{x}} mean [in english]", "{x} means what in english", "translate {x} [in|into|to] english", f"what is {{x}} [in {_tongue}]"], 0.7))
BY_KEY = {k.key: k for k in KNOWN}
WEIGHTS = [k.weight for k in KNOWN]
COUNTRY_KEYS = ["capital", "continent", "currency", "language"]
# asked of the country that was spoken of
THERE = {"capital": ["(and|what is) the capital [there]", "(what|which) city is the capital [there]", "its capital", "capital"],
         "continent": ["(what|which) continent is (that|it) [on|in]", "where is (that|it)", "and the continent", "on which continent [is it]"],
         "currency": ["(and|what is) the currency [there]", "what (money|currency) do they use [there]", "currency", "how do i pay there", "and the money"],
         "language": ["what (language|) do they speak [there]", "(and|what is) the language", "language", "which language is spoken there"]}
