"""What people really ask that a model of this size cannot know or do: (question, answer, thought). Every answer begins with the same
sentence; a second one follows only for illness and for what is no question: with more of them to choose from, they mixed ("I canstand only English")."""
import everyday
import knowledge
import letters
from phrases import keep, say
from words import CITIES, NAMES, pseudo_word

UNKNOWN = "I am sorry, I do not know that."
DOCTOR, MEANING = UNKNOWN + " Please ask a doctor.", UNKNOWN + " Please ask me in other words."
THOUGHT = "I have not learned about this."


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
        return keep(rng.choice(SNIPPETS)), UNKNOWN, "That is a program."
    if kind < 0.5:
        return say(rng, "(what does this do|fix this|fix this code|why does this not work|debug this|explain this code|what is wrong here|what is the output of|refactor this|run this)[:] {s}", s=keep(rng.choice(SNIPPETS))), UNKNOWN, "That is a program."
    return say(rng, "(write|make|create|give me|show me|can you write|code|generate|implement|i need|help me write) [me] (a|an) [simple|small|short|] {l} (program|function|script|class|code|app) (that|which) {t}|(how do i|how to|how can i) write a {l} (program|function|script) that {t}|{l} (code|script|function) that {t}|"
               "(can you|do you|please|) (code|program|write code|write programs) [in {l}] [for me]|write [some] {l} code|{l} (hello world|for loop|tutorial|error|exception|syntax error in line 3)", l=keep(rng.choice(LANGUAGES)), t=rng.choice(CODE)), UNKNOWN, "That is a program."


def long_text(rng):
    return say(rng, "(write|compose|draft|create|generate|make|can you write|please write|i need|help me write|give me) [me] {t} (about|on|for|of) {s}|{t} (about|on) {s}|write {n} (words|pages|paragraphs) (about|on) {s}|(summarize|rewrite|proofread|translate) (this article|my essay|this book|the following text|this page|my thesis)|"
               "write {t} [for me]|i have to hand in {t} (about|on) {s} tomorrow", t=rng.choice(TEXTS), s=rng.choice(SUBJECTS), n=rng.choice(["500", "1000", "200", "two", "five", "ten"])), UNKNOWN, "That is too long for me."


def foreign(rng):
    text = rng.choice(FOREIGN)
    return text + rng.choice(["", "", "?", "!"]), UNKNOWN, "That is not English."


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
    return say(rng, rng.choice(OPEN_PATTERNS), s=rng.choice(SUBJECTS), q=rng.choice(SUBJECTS), a=rng.choice(ACTIVITIES), p=rng.choice(SOMEBODY), t=rng.choice(TEAMS), f=rng.choice(FILMS), c=rng.choice(CITIES), d=rng.choice(CITIES), n=rng.choice(NAMES), y=rng.randrange(1900, 2031), x=rng.choice(TEXTS)), UNKNOWN, THOUGHT


# relations of which somebody may ask for more than it was told; of those about words only their own table counts
_OF_WORDS = "opposite synonym french german spanish plural past third ing more most".split()
_ASKED = [k for k in knowledge.KNOWN if k.key in ("capital continent currency language city young sound symbol author painter composer inventor colour definition kind member".split() + ["country of", "element of"] + _OF_WORDS)]
_WEIGHTS_ASKED = [9 if k.key in ("definition", "kind") else 4 if k.key in ("capital", "sound", "plural", "past") else 1.5 for k in _ASKED]
_TOLD = {x.lower() for k in knowledge.KNOWN if k in _ASKED and k.key not in _OF_WORDS for x in k.table} | {x.lower() for items in knowledge.LISTS.values() for x in items} | set(knowledge.DEFINED) | set(knowledge.KINDS_OF) | set(knowledge.MEMBERS)
_UNTOLD = [w for w in knowledge.ORDINARY if w not in _TOLD and len(w) > 3]
_UNTOLD_NOUNS = [w for w in knowledge.WORDS["nouns"] if w not in _TOLD and len(w) > 2]
_SHORT = [w for w in knowledge.WORDS["nouns"] if 3 <= len(w) <= 5]
PLACES = split("the moon, mars, the sun, the sea, atlantis, narnia, gotham, the internet, my house, heaven, hogwarts, middle earth, the north pole, the world, the universe, my street, disneyland, wakanda, mordor, the forest, my heart")
NEW = split("blockchain, podcast, selfie, iphone, youtube, hashtag, smartphone, netflix, wifi, meme, vlog, app, chatbot, cyborg, startup, laptop, router, firewall, webcam, emoji, spotify, tiktok, drone, hologram, yolo, lol, omg, btw, brb, tbh, afk, asap, gpu, cpu, usb, sql, html, gpt, llm, nft, cgi, dvd, fifa, nba, ufo, vip")


_NARROW = "young sound symbol author painter composer inventor colour".split()
_ANIMALS = sorted({x for (one, _), items in knowledge.LISTS.items() if one in ("animal", "bird", "mammal", "insect", "reptile", "fish") for x in items})
_OTHERS = _ANIMALS * 3 + sorted(knowledge.MEMBERS) + sorted(knowledge.CAPITALS)
_LISTED = {many for table in (knowledge.LISTS, everyday.MORE_LISTS) for _, many in table}
_WHOSE = split("""greek, roman, french, russian, american, chinese, german, famous, shakespeare, disney, marvel, star wars, pixar, beatles, classic, modern, ancient, medieval, japanese, british, popular, unusual, scary, english, olympic,
harry potter, agatha christie, mozart, netflix, apple, google, board, card, computer, rock, jazz, pop, horror, science fiction, street, winter, family, luxury, electric, wild, poisonous, extinct, rare, healthy, spicy, vegan, cheap""")
_LISTS_OF = split("""philosophers, viruses, diseases, actors, actresses, bands, films, movies, car brands, companies, software, gods, goddesses, kings, presidents, wars, poems, dances, religions, constellations, phones, laptops, stocks, vitamins, mushrooms, snakes,
cocktails, universities, airlines, football teams, video games, operating systems, martial arts, yoga poses, chess openings, pop stars, memes, laws, crimes, plays, songs, albums, characters, villains, heroes, books, paintings, singers, rappers,
emperors, battles, treaties, dynasties, empires, scientists from india, nobel prize winners, dishes, recipes, sauces, pasta shapes, spices, dog breeds, cat breeds, brands, websites, apps, podcasts, magazines, newspapers, museums, theorems,
equations, particles, galaxies, moons of jupiter, enzymes, bones, muscles, organs, nerves, chemicals, acids, medicines, symptoms, ideas, hobbies, jobs in tech, gifts, baby names from italy, excuses, compliments, insults, proverbs, idioms,
tongue twisters, riddles, facts about rome, tips, reasons to live, goals, quotes, headlines, hashtags, slogans, palindromes, anagrams, acronyms, homonyms, states, provinces, counties, islands, volcanoes, deserts, caves, castles, bridges""")


def mislisted(rng):
    """Some of a kind of which it knows none."""
    n, way = rng.choice(_UNTOLD_NOUNS), rng.random()
    many = rng.choice(_LISTS_OF) if way < 0.55 else knowledge.PLURALS.get(n, n + "s")
    if many in _LISTED:
        return mislisted(rng)
    if way > 0.3 and rng.random() < 0.5:
        many = (rng.choice(_WHOSE) if rng.random() < 0.7 else rng.choice(knowledge.WORDS["adjectives"])) + " " + many
    few = "(a few|some|two|three|3|four|five|5|ten|10|the best|all|popular|famous)"
    return say(rng, f"(name|list|tell me|give me|i need|can you name|show me|write down) {few} {{m}} [please|from {{c}}|of the 90s|in the world]|{few} {{m}} [please]|(what are|which are) (some|the best|the most famous|three|five) {{m}}|(types|kinds|examples|a list) of {{m}}|(which|what) {{m}} (are there|do you know|exist|are good)|(name|tell me) (a|one|any) (of the|) {{m}}", m=many, c=rng.choice(CITIES)), UNKNOWN, THOUGHT


_UNRHYMED = [w for w in knowledge.ORDINARY if w not in letters.ALL_RHYMES and len(w) > 3]
_UNRHYMED_EVERYDAY = [w for w in everyday.EVERYDAY if w not in letters.ALL_RHYMES]


def misspelled(rng):
    """Of words, what was never shown to it: rhymes where there are none, syllables, riddles of letters."""
    w = rng.choice(_UNRHYMED_EVERYDAY) if rng.random() < 0.3 else rng.choice(_UNRHYMED) if rng.random() < 0.7 else pseudo_word(rng, 2)
    if rng.random() < 0.45:
        return say(rng, "(what|which word|which words|a word that|something that|find a word that|give me a word that|do you know a word that|what words) (rhymes|rhymes|rhyme) with [the word] {w}|[a|any|some] (rhyme|rhymes|rhyming word) (for|with) {w}|{w} rhymes with [what]|(name|find|give me) (a rhyme|rhymes|words that rhyme|a word that rhymes) with {w}|rhyme with {w}", w=keep(w)), UNKNOWN, THOUGHT
    return say(rng, "how many syllables (are in|does|has|in) {w} [have]|syllables (of|in) {w}|(an anagram|anagrams) (of|for) {w}|(unscramble|unjumble|solve the anagram) {w}|(what|which) words can (i|you) make (from|out of|with the letters of) {w}|(what is|what's|) [an] (acronym|abbreviation|short form|initialism) (for|of) {n} {n2}|(what does|what is) {n} {n2} (stand for|short for)|"
               "a ({d}|{e}) letter word (ending|that ends) (in|with) {c}|[a] word (ending|that ends) (in|with) {c}[{c}]|words (ending|that end) in {c}|[what is|whats] the (longest|shortest|hardest|oldest|most used|rarest) word (in|of) (english|the english language|the dictionary|german|the world)|{w} in (morse code|pig latin|braille|binary|sign language|ascii|hexadecimal|emoji)|(write|say) {w} in (morse code|pig latin|braille)|"
               "(check|correct|fix|improve) (my|the|this) (spelling|grammar|punctuation|english|essay|letter) [in this letter|please|of this text]|is (it|this) spelled (right|correctly)|(which|what) is (correct|right)[,|:] {w} or {n}|(pronounce|how do you pronounce|how do i pronounce|pronunciation of|where does the word come from:|etymology of|origin of the word) {w}|crossword clue[:] {n} {n2} ({d}|{e}) letters|(what is|find) the (subject|object|predicate|tense) (of|in) [the sentence] the {n} is in the {n2}|"
               "(wordle|scrabble|hangman|crossword) (help|hint|word|answer) [for {w}]|(homonym|homophone|hyphenation|prefix|suffix|stem|root|gerund|participle|imperative|subjunctive|passive) (of|for) {w}|(a tongue twister|an idiom|a proverb|a pun) (with|about) {n}|how many words (start|end|begin) with {c}|how many words (are there|exist) in english|translate {w} (to|into) (latin|dutch|japanese|klingon|swedish|polish|turkish|greek|arabic|hindi)|{n} in (dutch|japanese|latin|russian|chinese|portuguese|korean|swedish|welsh|irish)|how do you say {n} in (dutch|japanese|italian|latin|chinese|russian|polish)",
               w=keep(w), n=rng.choice(knowledge.WORDS["nouns"]), n2=rng.choice(knowledge.WORDS["nouns"]), c=rng.choice("abcdefghijklmnopqrstuvwxyz"), d=rng.randrange(3, 12), e=rng.choice("three four five six seven eight nine".split())), UNKNOWN, THOUGHT


def miscalculated(rng):
    """Numbers of kinds that it cannot work with: broken, negative, huge, unknown, in other units, in no sum."""
    a, b, n = rng.randrange(3, 30), rng.randrange(2, 12), rng.randrange(2, 2000)
    broken = "%d.%d" % (rng.randrange(0, 40), rng.randrange(1, 100))
    fraction = "%d/%d" % (rng.randrange(1, 9), rng.choice([3, 4, 5, 6, 7, 8, 9, 12]))
    huge = str(rng.randrange(10 ** 6, 10 ** rng.randrange(7, 13)))
    return say(rng, "[what is|whats|calculate|how much is] ({f} (+|-|*|times|plus|minus|divided by|x) ({f2}|{a}|{f3})|{a} (times|plus|minus|*|+|divided by) {f}|{k} (+|-|*|plus|minus) {k2}|{g} (times|*|+|plus|divided by) (-{b}|{b}|{huge})|-{a} (plus|+|times|*) (-{b}|{b}))|"
               "[what is|whats|calculate] ({b} to the power of (3|4|5|{a}|ten)|{b}^{a}|{b}**{a}|the (cube|cube root|fourth root|factorial) of {a}|{b}!|{b} factorial|{a} cubed|{a} (mod|modulo|%) {b}|log (of |) {n}|ln {a}|log2({n})|sin {a}|cos({a})|tan {a} degrees|the (reciprocal|inverse|logarithm|absolute value) of {n}|e to the {b}|pi times {a}|{a} choose {b})|"
               "(simplify|reduce|expand|factor) ({k}|{a}/{n}|(x + {a})(x - {b})|{a}x + {b}x)|(solve|solve for x[:]|find x[:]|what is x if) {b}x (+|-) {a} = {n}|(solve|graph|plot|derive) (y = {b}x + {a}|x^2 - {n} = 0|f(x) = x^{b})|{n} in (binary|hex|hexadecimal|octal|base {b}|scientific notation)|(convert|change|translate) {n} to (binary|hex|hexadecimal)|"
               "{n} (fahrenheit|celsius|miles|km|kilos|pounds|lbs|stone|gallons|pints|ounces|acres|mph|knots|watts|usd|euros) (in|to|into) (celsius|fahrenheit|kilometers|miles|pounds|kg|liters|grams|hectares|km/h|yen|dollars)|convert {n} (miles|fahrenheit|celsius|pounds|ounces|inches|feet) to (km|celsius|fahrenheit|kg|grams|cm|meters)|"
               "(what day|which weekday|what day of the week) (was|is|will be) [the] {a} (january|july|march|october|december) {y}|how many days (between|from|until|since|are there between) (january|may|june|august) {b} [and|to] (november|december) {b}|(what is|how much is) (a|the) (tip|tax|vat|interest|discount) (on|of|for) {n} [dollars|euros] [at {a} percent]|"
               "(is {n} a (prime|perfect|lucky|fibonacci|square) number|is {n} divisible by {b}|prime factors of {n}|(gcd|lcm|greatest common divisor|least common multiple) of {n} and {a}|(the {a}th|{a}th|the next) (prime|fibonacci number|digit of pi)|(median|mode|variance|standard deviation|product) of {a}, {b}, {n}|(area|volume|circumference|surface|perimeter) of a (circle|sphere|cube|cylinder|triangle) (with|of) (radius|side|height) {a})|"
               "(roll|throw) {b} dice|(odds|probability|chance) of (rolling|drawing|getting|winning) {a} [in {n}]|{huge}|{f}|-{n}|{n}|{a}:{b}|{n}%|${n}|{a}/{b}/{y}|{h}|#{n}|{b}x|call {huge}".replace("(x + {a})(x - {b})", "x * x - {b}"),
               a=a, b=b, n=n, f=keep(broken), f2=keep("%.1f" % (rng.random() * 20)), f3=keep(fraction), k=keep(fraction), k2=keep("%d/%d" % (rng.randrange(1, 9), rng.choice([3, 4, 5, 7, 8]))), g=keep(huge), huge=keep(huge), y=rng.randrange(1500, 2100), h=keep("%d:%02d" % (rng.randrange(24), rng.randrange(60)))), UNKNOWN, THOUGHT


_USUAL = [w for w in knowledge.WORDS["common"] if w.isalpha() and len(w) > 2]


def bare(rng):
    """A word or a choice, and nothing that is asked of it."""
    a, b = rng.choice(_USUAL), rng.choice(_USUAL)
    return say(rng, "{a} or {b}|{a} or {b}, (pick one|which one|choose|you choose)|(either|neither) {a} (or|nor) {b}|(choose|pick|decide)[:| between] {a} (or|and) {b}|yes or no[,|:] {a} {b}|{a} {b}|{l}|the {a}|an|a|{a} of {b}|just {a}|only {b}|so {a}|very {a}|{a}!|not {a}|no {a}, no {b}|(the|this|that|these|his|her|our) {a}|to {a}|{a} is {b}|{a} means {b}|(i|we|they|he) {a}|{a} me|{a} you|(always|never) {a}|every {a}|first {a} then {b}|{a} is the new {b}|more {a} less {b}|{a} now",
               a=a, b=b, l=keep(rng.choice("abcdefghijlmopqrstuvwxyz"))), UNKNOWN, THOUGHT


_FOREIGN_WORDS = sorted({w for text in FOREIGN for w in text.split() if w.isascii() and w.isalpha() and len(w) > 3 and w not in knowledge.ORDINARY} - {w for t in knowledge.TONGUES.values() for w in t.values()})
_ANY_WORDS = sorted(set(knowledge.WORDS["adjectives"]) | set(knowledge.WORDS["nouns"]) | set(knowledge.MEMBERS) | set(knowledge.WORDS["common"]))


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
    if kind < 0.76:
        return rng.choice(_FOREIGN_WORDS)
    if kind < 0.84:
        return pseudo_word(rng, rng.choice([2, 2, 3, 4]))
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
        return known.ask(rng, x), UNKNOWN, THOUGHT
    x = rng.choice(_ANY_WORDS) if known.key in _OF_WORDS and rng.random() < 0.6 else untold(rng)
    if known.key not in _OF_WORDS and {x.lower(), x.removeprefix("the ")} & _TOLD or x.removeprefix("the ") in known.table:
        return mistaken(rng)
    return known.ask(rng, x), UNKNOWN, THOUGHT


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
        return say(rng, "how many {a} (are|are there|fit|do you find|can you find|) (in|on|in|per) (a|the|one|) {b}|how many {a} (does|has|is) (a|the|one) {b} [have|long|in all]|(the number of|number of|count of) {a} (in|on) (a|the) {b}|how many {a} (live|die|work|exist) in {b}", a=a, b=b), UNKNOWN, THOUGHT
    if kind < 0.75:
        n = rng.choice(_UNTOLD_NOUNS) if rng.random() < 0.7 else rng.choice(split("building, river in texas, person, woman alive, car, movie, restaurant, phone, language, dinosaur, snake, tree in england, bridge, train, song, city in japan, spider, company, football player, dog, king, war, book, word, school, beach, airport, museum"))
        best = rng.choice(_BEST)
        if any(best + " " + n in x or x in best + " " + n for x in _SUPERLATIVES):
            return miscounted(rng)
        return say(rng, "(what is|whats|which is|who is|what was|name|tell me|where is) the {b} {n} [in the world|ever|of all time|on earth|in {c}|in history|right now|today]|the {b} {n} [in the world|in {c}|ever]|(which|what) {n} is [the] {b}", b=best, n=n, c=rng.choice(CITIES)), UNKNOWN, THOUGHT
    a, b = untold(rng), untold(rng)
    if a in _TOLD or b in _TOLD:
        return miscounted(rng)
    return say(rng, "is (a|an|the|) {a} (a|an|the|a kind of|a type of|better than|bigger than|the same as|related to|part of) (a|an|the|) {b}|is (a|an|) {a} (a|an) {b} or (a|an) {d}|(which|what) is (better|bigger|older|faster|heavier|more expensive)[,|:] (a|the|) {a} or (a|the|) {b}|(a|the|) {a} or (a|the|) {b}|(do|does|can|did) (a|the|) {a} (need|have|make|eat|use|beat) (a|the|) {b}", a=a, b=b, d=rng.choice(_UNTOLD_NOUNS)), UNKNOWN, THOUGHT


KINDS = [(anything, 40), (mistaken, 52), (miscounted, 20), (mislisted, 24), (misspelled, 20), (miscalculated, 16), (bare, 9), (medical, 9), (code, 9), (long_text, 8), (foreign, 7), (noise, 11)]
_FUNCTIONS, _WEIGHTS = [k for k, _ in KINDS], [w for _, w in KINDS]


def ask(rng):
    return rng.choices(_FUNCTIONS, _WEIGHTS)[0](rng)
