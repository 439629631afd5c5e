"""What people really ask that a model of this size cannot know or do: (question, answer, thought). Every answer begins with the same
sentence; where the subject is plain, a second one says what to do instead."""
import knowledge
from phrases import keep, say
from words import CITIES, NAMES, pseudo_word

UNKNOWN = "I am sorry, I do not know that."
DOCTOR, ENGLISH, PROGRAMS, SHORT, MEANING = (UNKNOWN + s for s in (" Please ask a doctor.", " I understand only English.", " I cannot write programs.", " I can write only a few lines.", " Please ask me in other words."))


def split(text):
    return [x.strip() for x in text.replace("\n", " ").split(",")]


SUBJECTS = split("""quantum computing, black holes, the big bang, evolution, climate change, global warming, the theory of relativity, dark matter, artificial intelligence, machine learning, neural networks, blockchain, bitcoin, crypto,
the stock market, inflation, interest rates, taxes, mortgages, insurance, the economy, capitalism, communism, democracy, the constitution, the cold war, world war two, world war one, the civil war, the roman empire, ancient greece,
the french revolution, the industrial revolution, the middle ages, the renaissance, the vikings, the pyramids, the silk road, the berlin wall, the moon landing, the space race, the titanic, brexit, the european union, the united nations, nato,
the supreme court, human rights, immigration, nuclear energy, solar power, wind energy, electric cars, recycling, plastic waste, deforestation, earthquakes, volcanoes, hurricanes, tsunamis, tides, the ozone layer, photosynthesis, dna,
cell division, the immune system, the nervous system, digestion, sleep, dreams, memory, consciousness, free will, philosophy, stoicism, buddhism, religion, ethics, logic, game theory, probability, statistics, calculus, algebra, geometry,
linear algebra, prime numbers and cryptography, encryption, passwords, the internet, wifi, bluetooth, 5g, gps, satellites, operating systems, compilers, databases, cloud computing, docker, kubernetes, git, linux, open source, web design,
video games, minecraft, chess openings, poker, football rules, the olympics, the world cup, formula one, basketball, yoga, meditation, running a marathon, weight lifting, diets, vegan food, sourdough bread, sushi, coffee beans, wine,
cheese making, gardening, house plants, bonsai trees, bees, whales, dog training, cat behaviour, horse riding, bird watching, fishing, camping, hiking, travel in asia, budget travel, packing for a trip, jet lag, photography, painting, jazz,
classical music, guitar chords, piano lessons, hip hop, movies from the eighties, horror films, anime, comic books, modern art, architecture, fashion, wedding planning, parenting, teaching, job interviews, remote work, leadership, marketing,
startups, project management, time management, stress, friendship, love, marriage, divorce, grief, happiness, the meaning of life, luck, superstition, astrology, tarot, ghosts, aliens, time travel, conspiracy theories, the illuminati,
string theory, gravity waves, antimatter, semiconductors, lasers, batteries, jet engines, bridges, concrete, steel, glass making, paper making, printing, the history of writing, the origin of language, esperanto, sign language, emojis""")
SUBJECTS = [x for x in SUBJECTS if x not in knowledge.DEFINED and x not in knowledge.KINDS_OF and x not in knowledge.MEMBERS]  # those it knows
ACTIVITIES = split("""fix a flat tyre, tie a tie, bake bread, make pancakes, cook rice, boil an egg, make pizza dough, lose weight, gain muscle, quit smoking, fall asleep faster, wake up early, learn to code, learn spanish, learn the guitar,
get a job, write a resume, ask for a raise, start a business, save money, invest money, buy a house, rent a flat, file my taxes, open a bank account, get a visa, book a flight, find cheap hotels, plan a wedding, plan a party,
clean the oven, remove a stain, unclog a drain, paint a wall, hang a picture, build a shelf, grow tomatoes, water a cactus, train a puppy, name my cat, wash a car, change the oil, jump start a car, parallel park, pass my driving test,
install linux, update windows, reset my password, delete my account, back up my phone, connect to wifi, print a document, make a website, edit a video, take better photos, draw a face, write a novel, write a song, make friends,
talk to strangers, get over a breakup, ask someone out, deal with stress, stop worrying, be happy, be more productive, stop procrastinating, study for an exam, memorize a speech, speak in public, play chess better, win at poker,
survive in the wild, make a fire, tie a knot, swim faster, run a marathon, do a handstand, meditate, get rid of ants, catch a mouse, tame a dragon, become famous, become a pilot, travel to mars, hack a computer, get rich quickly""")
SOMEBODY = split("""albert einstein, isaac newton, marie curie, nikola tesla, leonardo da vinci, michelangelo, napoleon, julius caesar, cleopatra, alexander the great, genghis khan, queen victoria, queen elizabeth, king charles, abraham lincoln,
george washington, john f kennedy, barack obama, donald trump, joe biden, vladimir putin, angela merkel, emmanuel macron, elon musk, bill gates, steve jobs, jeff bezos, mark zuckerberg, taylor swift, beyonce, michael jackson, elvis presley,
the beatles, madonna, david bowie, lionel messi, cristiano ronaldo, pele, serena williams, roger federer, usain bolt, michael jordan, tom hanks, brad pitt, meryl streep, charlie chaplin, alfred hitchcock, quentin tarantino, batman, superman,
spiderman, harry potter, sherlock holmes, darth vader, frodo, mickey mouse, socrates, plato, aristotle, immanuel kant, friedrich nietzsche, karl marx, sigmund freud, gandhi, nelson mandela, martin luther king, mother teresa, the pope, the dalai lama,
the president, the prime minister, my neighbour, the mayor, the richest person, the tallest man alive, the fastest runner, the best footballer, the ceo of google, the owner of twitter""")
LANGUAGES = "python java javascript c c++ rust go php ruby sql html css bash swift kotlin typescript haskell perl".split()
CODE = split("""sorts a list, reverses a string, prints hello world, computes prime numbers, reads a file, sends an email, scrapes a website, parses json, connects to a database, counts words, draws a circle, plays tic tac toe, solves sudoku,
finds duplicates, converts celsius to fahrenheit, checks a password, generates random numbers, downloads a picture, renames files, computes fibonacci numbers, implements quicksort, inverts a binary tree""")
SNIPPETS = ["for i in range(10): print(i)", "int main() { return 0; }", "console.log('hi');", "SELECT * FROM users;", "def f(x): return x + 1", "print('hello'", "let x = 5;", "if (a = b) { }", "<div>hello</div>", "public static void main", "import numpy as np", "git push --force",
            "printf(\"%d\\n\", x);", "while True: pass", "sudo apt install gcc", "rm -rf build", "npm install react", "fn main() { println!(\"hi\"); }"]
TEXTS = split("an essay, a long essay, a blog post, an article, a book, a novel, a speech, a letter, a cover letter, an email, a report, a summary, a screenplay, a business plan, a lesson plan, a resume, a thesis, a news article, a review, a presentation, a ten page paper, a wikipedia article")
ILLS = split("a headache, a fever, a cough, a cold, the flu, a sore throat, back pain, stomach pain, chest pain, a rash, a broken arm, a toothache, diarrhea, high blood pressure, diabetes, asthma, an allergy, insomnia, depression, anxiety, a migraine, a sprained ankle, a bee sting, a burn, covid, cancer")
PARTS = split("head, stomach, back, knee, throat, chest, foot, ear, eye, tooth, neck, shoulder, arm, leg, hand")
PILLS = split("aspirin, ibuprofen, paracetamol, antibiotics, vitamin d, sleeping pills, insulin, painkillers, cough syrup, antidepressants")
FOREIGN = split("""wie geht es dir, wo ist der bahnhof, ich habe hunger, guten tag wie heisst du, was ist die hauptstadt von frankreich, kannst du deutsch, erzähl mir eine geschichte, wie spät ist es, ich verstehe nicht, danke schön mein freund,
je ne sais pas, où est la gare, comment ça va, quelle heure est il, parle moi de toi, je voudrais un café, quel temps fait il, raconte moi une histoire, merci beaucoup mon ami, qu'est ce que c'est,
qué hora es, dónde está la casa, cómo te llamas, tengo hambre, cuéntame un cuento, no entiendo nada, cuál es la capital de españa, muchas gracias amigo, quiero aprender inglés,
come stai, quanto costa, dove si trova la stazione, non capisco, che ore sono, come ti chiami, raccontami una storia, hvad hedder du, hur mår du, var är stationen, hoe gaat het met je, waar is het station, ik begrijp het niet,
jak se máš, gdzie jest dworzec, nie rozumiem, como você está, onde fica a praia, não entendo, mitä kuuluu, nasılsın, teşekkür ederim, привет как дела, где вокзал, спасибо, こんにちは, ありがとう, 你好吗, 谢谢你, 안녕하세요, مرحبا كيف حالك, שלום, γεια σου, नमस्ते""")
EMOJI = "😀 😂 😢 ❤️ 👍 🎉 🔥 🍕 🐶 🌞 🤖 🙏 😡 👀 💀 🚀".split()
NOISE = ["asdf", "qwerty", "asdfghjkl", "blah blah", "foo bar baz", "lorem ipsum", "xyz", "aaaaaaa", "hjkl", "zzzzz", "test123", "abc123", "jkjkjk", "qwe", "fhdjskal", "sdfsdf", "wasd", "mmmmm", "gggg", "dfghj", "ooooo", "tttt"]
MARKS = ["???", "!!!", "...", "#", "$$$", "%", "&", ";;", "//", "<>", "@@", "(", "}", "*", "--", "=", "~"]
FILMS = split("star wars, the matrix, titanic, the godfather, inception, frozen, jaws, avatar, the lion king, jurassic park, breaking bad, game of thrones, friends, the office, stranger things, the simpsons")
TEAMS = split("the lakers, manchester united, real madrid, bayern munich, the yankees, germany, brazil, ferrari, the warriors, barcelona, liverpool, chelsea, france, argentina")


def medical(rng):
    return say(rng, "my (p) hurts [a lot|since yesterday|what should i do|when i run]|i have (i) [what should i do|what can i take|should i worry|help me]|(what helps|what to do|what should i take|what is good|is there a cure|any remedy|best medicine) (against|for|about) (i)|"
               "(is|are) (m) (safe|dangerous|good for you|bad for you)|(how much|how many|can i take|should i take|side effects of|dose of|what is the dose of|can i mix alcohol and) (m)|(do|could|can) i have (i)|(symptoms|causes|treatment) of (i)|am i (sick|ill|pregnant|dying)|what are the (symptoms|signs) of (i)|"
               "i (cut|burned|broke|hurt) my (p)|how (do i treat|do i cure|to cure|long does) (i) [last]|diagnose me|i feel (dizzy|sick|nauseous|weak) and my (p) hurts|should i see a doctor".replace("(p)", "{p}").replace("(i)", "{i}").replace("(m)", "{m}"), p=rng.choice(PARTS), i=rng.choice(ILLS), m=rng.choice(PILLS)), DOCTOR, "That is for a doctor."


def code(rng):
    kind = rng.random()
    if kind < 0.3:
        return keep(rng.choice(SNIPPETS)), PROGRAMS, "That is a program."
    if kind < 0.5:
        return say(rng, "(what does this do|fix this|fix this code|why does this not work|debug this|explain this code|what is wrong here|what is the output of|refactor this|run this)[:] {s}", s=keep(rng.choice(SNIPPETS))), PROGRAMS, "That is a program."
    return say(rng, "(write|make|create|give me|show me|can you write|code|generate|implement|i need|help me write) [me] (a|an) [simple|small|short|] {l} (program|function|script|class|code|app) (that|which) {t}|(how do i|how to|how can i) write a {l} (program|function|script) that {t}|{l} (code|script|function) that {t}|"
               "(can you|do you|please|) (code|program|write code|write programs) [in {l}] [for me]|write [some] {l} code|{l} (hello world|for loop|tutorial|error|exception|syntax error in line 3)", l=keep(rng.choice(LANGUAGES)), t=rng.choice(CODE)), PROGRAMS, "That is a program."


def long_text(rng):
    return say(rng, "(write|compose|draft|create|generate|make|can you write|please write|i need|help me write|give me) [me] {t} (about|on|for|of) {s}|{t} (about|on) {s}|write {n} (words|pages|paragraphs) (about|on) {s}|(summarize|rewrite|proofread|translate) (this article|my essay|this book|the following text|this page|my thesis)|"
               "write {t} [for me]|i have to hand in {t} (about|on) {s} tomorrow", t=rng.choice(TEXTS), s=rng.choice(SUBJECTS), n=rng.choice(["500", "1000", "200", "two", "five", "ten"])), SHORT, "That is too long for me."


def foreign(rng):
    text = rng.choice(FOREIGN)
    return text + rng.choice(["", "", "?", "!"]), ENGLISH, "That is not English."


def noise(rng):
    kind = rng.random()
    if kind < 0.25:
        text = rng.choice(NOISE)
    elif kind < 0.4:
        text = " ".join(rng.choice(EMOJI) for _ in range(rng.randrange(1, 4)))
    elif kind < 0.5:
        text = rng.choice(MARKS)
    elif kind < 0.65:
        text = "".join(rng.choice("asdfghjklqwertyuiopzxcvbnm") for _ in range(rng.randrange(3, 14)))
    elif kind < 0.75:
        text = " ".join("".join(rng.choice("asdfghjklqwertyuiop") for _ in range(rng.randrange(2, 7))) for _ in range(rng.randrange(2, 5)))
    elif kind < 0.82:
        text = rng.choice("abcdefghijklmnopqrstuvwxyz") * rng.randrange(3, 15)
    elif kind < 0.9:
        text = " ".join(pseudo_word(rng) for _ in range(rng.randrange(1, 5)))
    else:
        text = "".join(rng.choice("abcdefghijklmnop0123456789-_#./") for _ in range(rng.randrange(6, 24)))
    return keep(text), MEANING, "That is no question."


OPEN_PATTERNS = [
    "(what is|whats|explain|tell me about|what do you know about|teach me [about]|describe|give me an overview of|can you explain|i want to learn about|introduce me to|what do people mean by) {s} [to me|in simple words|like i am five|in detail|briefly|simply]",
    "(how does|how do|why is|why are|when did|where did|who started|what caused|who invented) {s} (work|important|start|begin|happen|so popular|so hard|end)", "(what do you think|what is your opinion|your thoughts|how do you feel) (about|of|on) {s}", "(is|are) {s} (good|bad|dangerous|real|useful|worth it|overrated|the future|boring)",
    "(pros and cons|advantages|history|future|basics|rules|examples|importance|dangers|impact) of {s}", "{s} [explained|for beginners|tutorial|news|facts|in 2024|vs {q}]", "(should i|is it worth) (learn|learning|study|studying|trust|invest in) {s}", "(compare|what is the difference between) {s} and {q}",
    "(how do i|how can i|how to|best way to|tips to|what is the best way to|how should i|can you help me|i want to|i need to|teach me to|show me how to|is it hard to|what do i need to|where can i) {a} [quickly|at home|for free|tonight|without money]", "(why can't i|should i|is it ok to|is it legal to|is it safe to|when should i|do i need to) {a}",
    "(who is|who was|tell me about|what do you know about|do you know|what did|is|where is|how old is|how rich is|when was) {p} [born|famous for|do|still alive|married|now]", "(what would|what did) {p} (say|think|do) [about {s}]", "(write to|call|find|draw|imitate) {p}",
    "(who won|who will win|what was the score of|when is) the (game|match|election|final|world cup|super bowl|champions league|oscar|nobel prize|race|race last sunday) [yesterday|last night|this year|in {y}|tomorrow]", "(did|do|will|when do|how did) {t} (win|play|lose|play next|do yesterday) [yesterday|last night|tonight|today]",
    "(what is|whats|how is) the (news|latest|price of gold|price of oil|bitcoin price|exchange rate|traffic|forecast|score|stock price of apple|lottery result) [today|now|right now|in {c}|this week]|(any|latest|breaking|todays) news [today|about {s}]|what happened (today|yesterday|last night|in the world|in {c})",
    "(what is|how is|hows|whats) the weather [like] [in {c}] [today|tomorrow|this weekend|now]|(will it|is it going to) (rain|snow|be sunny|be hot) [in {c}] [today|tomorrow|on monday]|do i need an umbrella [today]|[the] (weather|temperature|forecast) [in {c}] [today|tomorrow]",
    "what time is it [in {c}|now|right now]|whats the time|what day is (it|today)|what is (the date|todays date|the year)|which (day|year|month) is it|is it (monday|night|summer) [already|now|yet]|how (late|long until christmas|many days until my birthday) [is it]",
    "(recommend|suggest|give me|what is|tell me) [me] (a|some|the best|a good) (book|movie|film|restaurant in {c}|hotel in {c}|song|series|laptop|phone|car|gift for my mother|recipe|recipe for dinner|game|podcast|name for my baby|name for a dog)", "(what should i|what can i|where should i|when should i) (cook|eat|watch|read|wear|do|buy|say|visit|study|go|play) [today|tonight|tomorrow|in {c}|this weekend|next]",
    "(what is|explain|who directed|who plays in|how does|is|when was|should i watch) {f} [about|end|good|released|on netflix]", "(do you like|what do you think of|which is better:|what is better,) {f} [or star trek]",
    "(what is|solve|calculate|find|compute) the (derivative|integral|square root|limit|logarithm|sine|cosine) of (x squared|x|two x|e to the x|x cubed|pi|minus one)|(solve|factor) x^2 + 3x - 4 [= 0]|what is (pi|infinity) (squared|divided by zero|to 20 digits)|integrate sin(x)|prove (that 1 = 2|pythagoras|the riemann hypothesis)",
    "(book|order|buy|reserve|call|send|play|open|turn on|turn off|set|stream|schedule|cancel) (me|) (a pizza|a taxi|a table for two|a flight to {c}|the lights|some music|my mom|an email to my boss|spotify|youtube|a meeting for tomorrow|the heating|my alarm|my appointment)", "(search|google|look up|browse|find|check) (the web|google|the internet|wikipedia|my email|my calendar|online) [for {s}]|open (google|https://example.com|www.example.com|my files)",
    "(i am|i'm|im|i feel) (moving to {c}|looking for a job|going on holiday|learning to drive|worried about {s}|thinking about {s}|writing {x}|having a party|late for work)", "my (boss|girlfriend|boyfriend|wife|husband|mother|son|daughter|cat|dog|car|computer|phone|landlord|teacher) (is angry|does not listen|is broken|is late|hates me|won't start|is the best|forgot my birthday|is driving me crazy)",
    "(does|did) (he|she|my ex|god|anybody|the universe) (love me|exist|miss me|care|hear me)|will (i|we|the world|humanity) (be rich|survive|end|find love|be happy|get the job)|(should|can|must) i (marry|leave|call|trust|forgive|text) (him|her|them|my ex)",
    "(why|how come) (is the sky blue|is grass green|do cats purr|do dogs bark|do we dream|do we sleep|do people lie|is water wet|do birds sing|is the sea salty|do leaves fall|are flamingos pink|do onions make me cry|is it dark at night|do we have seasons|do stars twinkle|do we yawn)",
    "(can you|please|could you) (draw|paint|show|generate|create|make|send) [me] (a picture|an image|a photo|a logo|a video|a meme|a song|a map|a file|a pdf|a chart) [of {p}|of a cat|of {s}]|(draw|paint) [me] (a cat|a house|{p})|sing [me] [a song|happy birthday]|play (chess|a game|hangman|20 questions) [with me]",
    "(is|are) (there|) (life on mars|a god|aliens|ghosts|santa claus|magic|unicorns|vampires) [real|out there]|(what happens|where do we go) (after death|when we die)|what is (the meaning of life|love|time|truth|happiness|beauty|consciousness|nothing)|why (are we here|do we exist|is there something)|who (am i really|created the universe|is god)",
    "how (much|many) (money|people|stars|grains of sand|hours|calories|miles|steps) (is|are|does|do) (there|in {c}|in the sky|in a banana|to the moon|it cost|i need)|(population|size|mayor|history|best restaurants|crime rate|distance) of {c}|how far is {c} [from {d}]|(flights|trains|directions|how do i get) (from {c}|) to {d}",
    "{n} (said|told me|asked|wants|thinks) (that {s} is fake|to {a}|me to {a}|about {s})", "(remember when|last week|yesterday|tomorrow|in {y}) (we|i|they|my friends) (went to {c}|talked about {s}|saw {p}|watched {f}|tried to {a})", "if i (had a million|were you|could fly|go to {c}), (what then|should i {a}|what would happen)",
    "act as (a lawyer|a doctor|a linux terminal|{p}|my girlfriend|a pirate)|pretend (to be|you are) {p}|ignore (all|your) previous instructions|what is your system prompt|(you are|you're) now {p}|(jailbreak|dan mode)", "(make|build|cook|bake) (me|) (a bomb|lasagna|a sandwich|an apple pie|a website|a plan for {s})|(recipe|ingredients) for (pancakes|lasagna|curry|an apple pie|pizza|bread)",
]


def anything(rng):
    return say(rng, rng.choice(OPEN_PATTERNS), s=rng.choice(SUBJECTS), q=rng.choice(SUBJECTS), a=rng.choice(ACTIVITIES), p=rng.choice(SOMEBODY), t=rng.choice(TEAMS), f=rng.choice(FILMS), c=rng.choice(CITIES), d=rng.choice(CITIES), n=rng.choice(NAMES), y=rng.randrange(1900, 2031), x=rng.choice(TEXTS)), UNKNOWN, "I have not learned about this."


# relations of which somebody may ask for more than it was told; of those about words only their own table counts
_OF_WORDS = "opposite synonym french german spanish".split()
_ASKED = [k for k in knowledge.KNOWN if k.key in ("capital continent currency language city young sound symbol author painter composer inventor colour definition kind member".split() + ["country of", "element of"] + _OF_WORDS)]
_WEIGHTS_ASKED = [9 if k.key in ("definition", "kind") else 4 if k.key == "capital" else 1.5 for k in _ASKED]
_TOLD = {x.lower() for k in knowledge.KNOWN if k in _ASKED and k.key not in _OF_WORDS for x in k.table} | {x.lower() for items in knowledge.LISTS.values() for x in items} | set(knowledge.DEFINED) | set(knowledge.KINDS_OF) | set(knowledge.MEMBERS)
_UNTOLD = [w for w in knowledge.ORDINARY if w not in _TOLD and len(w) > 3]
_UNTOLD_NOUNS = [w for w in knowledge.WORDS["nouns"] if w not in _TOLD and len(w) > 2]
_SHORT = [w for w in knowledge.WORDS["nouns"] if 3 <= len(w) <= 5]
PLACES = split("the moon, mars, the sun, the sea, atlantis, narnia, gotham, the internet, my house, heaven, hogwarts, middle earth, the north pole, the world, the universe, my street, disneyland, wakanda, mordor, the forest, my heart")
NEW = split("blockchain, podcast, selfie, iphone, youtube, hashtag, smartphone, netflix, wifi, meme, vlog, app, chatbot, cyborg, startup, laptop, router, firewall, webcam, emoji, spotify, tiktok, drone, hologram, yolo, lol, omg, btw, brb, tbh, afk, asap, gpu, cpu, usb, sql, html, gpt, llm, nft, cgi, dvd, fifa, nba, ufo, vip")


_NARROW = "young sound symbol author painter composer inventor colour".split()
_ANIMALS = sorted({x for (one, _), items in knowledge.LISTS.items() if one in ("animal", "bird", "mammal", "insect", "reptile", "fish") for x in items})
_OTHERS = _ANIMALS * 3 + sorted(knowledge.MEMBERS) + sorted(knowledge.CAPITALS)
_LISTED = {many for _, many in knowledge.LISTS}


def mislisted(rng):
    """Some of a kind of which it knows none."""
    n = rng.choice(_UNTOLD_NOUNS)
    many = rng.choice(split("philosophers, viruses, diseases, actors, bands, films, car brands, companies, software, gods, kings, presidents, wars, poems, dances, religions, constellations, phones, laptops, stocks, vitamins, mushrooms, snakes, cocktails, universities, airlines, football teams, books by stephen king, video games, computer games, operating systems, martial arts, yoga poses, chess openings, greek gods, pop stars, memes, laws, crimes")) if rng.random() < 0.4 else knowledge.PLURALS.get(n, n + "s")
    if many in _LISTED:
        return mislisted(rng)
    return say(rng, "(name|list|tell me|give me|i need|can you name|show me|write down) (a few|some|two|three|3|four|five|5|ten|10|the best|all|popular|famous) {m} [please|from {c}|of the 90s|in the world]|(what are|which are) (some|the best|the most famous|three|five) {m}|(types|kinds|examples|a list) of {m}|(which|what) {m} (are there|do you know|exist|are good)", m=many, c=rng.choice(CITIES)), UNKNOWN, "I have not learned about this."


def untold(rng):
    """Something that it was not told about."""
    kind = rng.random()
    if kind < 0.36:
        return rng.choice(_UNTOLD_NOUNS)
    if kind < 0.5:
        return rng.choice(_UNTOLD)
    if kind < 0.6:
        return rng.choice(_SHORT) + rng.choice(_SHORT)
    if kind < 0.72:
        return rng.choice(NEW)
    if kind < 0.8:
        return pseudo_word(rng, 2)
    if kind < 0.9:
        return rng.choice(PLACES)
    return rng.choice(SOMEBODY if rng.random() < 0.5 else FILMS)


def mistaken(rng):
    """A question as it knows them, about something that it does not."""
    known = rng.choices(_ASKED, _WEIGHTS_ASKED)[0]
    if known.key in _NARROW and rng.random() < 0.5:  # what it knows, but not of this side
        x = rng.choice(_OTHERS)
        if x in known.table or x.lower() in known.table or known.key == "colour" and x not in _ANIMALS:
            return mistaken(rng)
        return known.ask(rng, x), UNKNOWN, "I have not learned about this."
    x = untold(rng)
    if {x.lower(), x.removeprefix("the ")} & _TOLD or x.removeprefix("the ") in known.table:
        return mistaken(rng)
    return known.ask(rng, x), UNKNOWN, "I have not learned about this."


_COUNTS = set(next(k for k in knowledge.KNOWN if k.key == "count").table)
_PLURALS = sorted(knowledge.PLURALS.values())
_BEST = split("tallest, fastest, oldest, biggest, smallest, richest, best, worst, deepest, longest, strongest, cheapest, rarest, loudest, heaviest, most dangerous, most expensive, most famous, most beautiful, most popular, smartest, hottest, coldest")
_UNITS = split("feet, ounces, cups, yards, miles, pints, acres, grams, tablespoons, kilometers, calories, kilos, bytes, pixels, steps, pounds, gallons, volts, hours, years, people, stars, teeth, bones, words, pages, players")
_SUPERLATIVES = {x.removeprefix("the ") for x in next(k for k in knowledge.KNOWN if k.key == "superlative").table}


def miscounted(rng):
    """How many of something there are, which is the most of all, what is what: of things that nobody told it."""
    kind = rng.random()
    if kind < 0.45:
        a, b = rng.choice(_UNITS) if rng.random() < 0.6 else rng.choice(_PLURALS), rng.choice([untold(rng), rng.choice(PLACES), rng.choice(CITIES), rng.choice(split("mile, cup, gallon, marathon, year, lifetime, day, house, city, movie, football game, car, human, elephant, book, slice of pizza, banana, byte, lightyear, ton of bricks, pin"))])
        if "%s in a %s" % (a, b) in _COUNTS or "%s on a %s" % (a, b) in _COUNTS or b in ("year", "day", "human", "elephant", "car"):
            return miscounted(rng)
        return say(rng, "how many {a} (are|are there|fit|do you find|can you find|) (in|on|in|per) (a|the|one|) {b}|how many {a} (does|has|is) (a|the|one) {b} [have|long|in all]|(the number of|number of|count of) {a} (in|on) (a|the) {b}|how many {a} (live|die|work|exist) in {b}", a=a, b=b), UNKNOWN, "I have not learned about this."
    if kind < 0.75:
        n = rng.choice(_UNTOLD_NOUNS) if rng.random() < 0.7 else rng.choice(split("building, river in texas, person, woman alive, car, movie, restaurant, phone, language, dinosaur, snake, tree in england, bridge, train, song, city in japan, spider, company, football player, dog, king, war, book, word, school, beach, airport, museum"))
        best = rng.choice(_BEST)
        if any(best + " " + n in x or x in best + " " + n for x in _SUPERLATIVES):
            return miscounted(rng)
        return say(rng, "(what is|whats|which is|who is|what was|name|tell me|where is) the {b} {n} [in the world|ever|of all time|on earth|in {c}|in history|right now|today]|the {b} {n} [in the world|in {c}|ever]|(which|what) {n} is [the] {b}", b=best, n=n, c=rng.choice(CITIES)), UNKNOWN, "I have not learned about this."
    a, b = untold(rng), untold(rng)
    if a in _TOLD or b in _TOLD:
        return miscounted(rng)
    return say(rng, "is (a|an|the|) {a} (a|an|the|a kind of|a type of|better than|bigger than|the same as|related to|part of) (a|an|the|) {b}|is (a|an|) {a} (a|an) {b} or (a|an) {d}|(which|what) is (better|bigger|older|faster|heavier|more expensive)[,|:] (a|the|) {a} or (a|the|) {b}|(a|the|) {a} or (a|the|) {b}|(do|does|can|did) (a|the|) {a} (need|have|make|eat|use|beat) (a|the|) {b}", a=a, b=b, d=rng.choice(_UNTOLD_NOUNS)), UNKNOWN, "I have not learned about this."


KINDS = [(anything, 40), (mistaken, 52), (miscounted, 20), (mislisted, 14), (medical, 9), (code, 9), (long_text, 8), (foreign, 7), (noise, 11)]
_FUNCTIONS, _WEIGHTS = [k for k, _ in KINDS], [w for _, w in KINDS]


def ask(rng):
    return rng.choices(_FUNCTIONS, _WEIGHTS)[0](rng)
