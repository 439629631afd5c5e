"""What pocket is taught to know: relations between things, and the ways to ask for them.

A relation has a key, noun phrases for what is asked ("the capital of {x}"), questions of its own, the one sentence that answers
it, and its pairs. Questions behind "eval" are never seen in training."""


def pairs(text):
    """ "France Paris, New Zealand=Wellington": a pair per comma; '=' where a name has spaces."""
    out = {}
    for item in text.replace("\n", " ").split(","):
        item = item.strip()
        if not item:
            continue
        left, right = item.split("=") if "=" in item else item.split(" ", 1)
        out[left.strip()] = right.strip()
    return out


CAPITALS = pairs("""
France Paris, Germany Berlin, Italy Rome, Spain Madrid, Portugal Lisbon, Japan Tokyo, China Beijing, India=New Delhi, Brazil Brasilia,
Canada Ottawa, Mexico=Mexico City, Egypt Cairo, Kenya Nairobi, Ghana Accra, Norway Oslo, Sweden Stockholm, Finland Helsinki,
Denmark Copenhagen, Poland Warsaw, Austria Vienna, Greece Athens, Turkey Ankara, Iran Tehran, Iraq Baghdad, Peru Lima, Chile Santiago,
Cuba Havana, Ireland Dublin, Belgium Brussels, Hungary Budapest, Romania Bucharest, Bulgaria Sofia, Serbia Belgrade, Croatia Zagreb,
Russia Moscow, Ukraine Kyiv, Vietnam Hanoi, Thailand Bangkok, Nepal Kathmandu, Australia Canberra, New Zealand=Wellington,
Argentina=Buenos Aires, Colombia Bogota, Venezuela Caracas, Ecuador Quito, Uruguay Montevideo, Paraguay Asuncion, Jamaica Kingston,
Panama=Panama City, Honduras Tegucigalpa, Nicaragua Managua, Guatemala=Guatemala City, Morocco Rabat, Algeria Algiers, Tunisia Tunis,
Libya Tripoli, Sudan Khartoum, Ethiopia=Addis Ababa, Somalia Mogadishu, Uganda Kampala, Rwanda Kigali, Tanzania Dodoma, Zambia Lusaka,
Zimbabwe Harare, Botswana Gaborone, Namibia Windhoek, Angola Luanda, Mozambique Maputo, Madagascar Antananarivo, Nigeria Abuja,
Senegal Dakar, Mali Bamako, Niger Niamey, Chad=N'Djamena, Cameroon Yaounde, Gabon Libreville, Liberia Monrovia, Gambia Banjul,
Iceland Reykjavik, Estonia Tallinn, Latvia Riga, Lithuania Vilnius, Belarus Minsk, Slovakia Bratislava, Slovenia Ljubljana, Bosnia Sarajevo,
Albania Tirana, Moldova Chisinau, Cyprus Nicosia, Malta Valletta, Switzerland Bern, Luxembourg=Luxembourg City, Georgia Tbilisi,
Armenia Yerevan, Azerbaijan Baku, Kazakhstan Astana, Uzbekistan Tashkent, Mongolia=Ulaanbaatar, Afghanistan Kabul, Pakistan Islamabad,
Bangladesh Dhaka, Bhutan Thimphu, Laos Vientiane, Cambodia=Phnom Penh, Malaysia=Kuala Lumpur, Indonesia Jakarta, Philippines=Manila,
South Korea=Seoul, North Korea=Pyongyang, Taiwan Taipei, Syria Damascus, Lebanon Beirut, Jordan Amman, Saudi Arabia=Riyadh, Yemen Sanaa,
Oman Muscat, Qatar Doha, Kuwait=Kuwait City, Fiji Suva, Samoa Apia, Tonga=Nuku'alofa, Haiti=Port-au-Prince, Barbados Bridgetown,
Suriname Paramaribo, Guyana Georgetown, Scotland Edinburgh, Wales Cardiff, England London""")

CONTINENTS = {}
for continent, names in {
    "Europe": """France Germany Italy Spain Portugal Norway Sweden Finland Denmark Poland Austria Greece Ireland Belgium Hungary Romania
        Bulgaria Serbia Croatia Ukraine Iceland Estonia Latvia Lithuania Slovakia Slovenia Albania Malta Switzerland""",
    "Asia": "Japan China India Iran Iraq Vietnam Thailand Nepal Mongolia Pakistan Bangladesh Laos Malaysia Indonesia Syria Jordan Yemen Oman Qatar",
    "Africa": """Egypt Kenya Ghana Morocco Algeria Tunisia Libya Sudan Ethiopia Somalia Uganda Rwanda Tanzania Zambia Zimbabwe Botswana
        Namibia Angola Mozambique Madagascar Nigeria Senegal Mali Niger Chad Cameroon Gabon Liberia Gambia""",
    "South America": "Brazil Peru Chile Argentina Colombia Venezuela Ecuador Uruguay Paraguay Suriname Guyana",
    "North America": "Canada Mexico Cuba Jamaica Panama Honduras Nicaragua Guatemala Haiti",
}.items():
    for country in names.split():
        CONTINENTS[country] = continent

CURRENCIES = pairs("""
France=the euro, Germany=the euro, Japan=the yen, China=the yuan, India=the rupee, Brazil=the real, Canada=the Canadian dollar, Mexico=the peso,
Egypt=the pound, Kenya=the shilling, Ghana=the cedi, Norway=the krone, Sweden=the krona, Denmark=the krone, Poland=the zloty, Turkey=the lira,
Peru=the sol, Hungary=the forint, Romania=the leu, Bulgaria=the lev, Serbia=the dinar, Russia=the ruble, Ukraine=the hryvnia, Vietnam=the dong,
Thailand=the baht, Switzerland=the franc, South Korea=the won, Nigeria=the naira, Morocco=the dirham, Zambia=the kwacha, England=the pound,
Bangladesh=the taka, Malaysia=the ringgit, Indonesia=the rupiah, Mongolia=the tugrik, Israel=the shekel, Ethiopia=the birr, Georgia=the lari""")

LANGUAGES = pairs("""
France French, Germany German, Italy Italian, Spain Spanish, Portugal Portuguese, Japan Japanese, China Chinese, Brazil Portuguese,
Mexico Spanish, Egypt Arabic, Norway Norwegian, Sweden Swedish, Finland Finnish, Denmark Danish, Poland Polish, Austria German, Greece Greek,
Turkey Turkish, Iran Persian, Iraq Arabic, Chile Spanish, Cuba Spanish, Hungary Hungarian, Romania Romanian, Bulgaria Bulgarian, Serbia Serbian,
Croatia Croatian, Russia Russian, Ukraine Ukrainian, Vietnam Vietnamese, Thailand Thai, Nepal Nepali, Australia English, Argentina Spanish,
Iceland Icelandic, Estonia Estonian, Latvia Latvian, Lithuania Lithuanian, Albania Albanian, Georgia Georgian, Armenia Armenian,
Mongolia Mongolian, Syria Arabic, Jordan Arabic, Israel Hebrew, Colombia Spanish, England English, Slovenia Slovene, Laos Lao""")

YOUNG = pairs("""
dog=a puppy, cat=a kitten, cow=a calf, horse=a foal, sheep=a lamb, goat=a kid, pig=a piglet, bear=a cub, lion=a cub, deer=a fawn,
duck=a duckling, goose=a gosling, chicken=a chick, frog=a tadpole, kangaroo=a joey, swan=a cygnet, eagle=an eaglet, owl=an owlet, hare=a leveret,
seal=a pup, whale=a calf, elephant=a calf, wolf=a pup, fox=a kit, butterfly=a caterpillar, rabbit=a kit, tiger=a cub, salmon=a fry""")

SOUNDS = pairs("""
dog barks, cat meows, cow moos, horse neighs, sheep bleats, pig oinks, lion roars, duck quacks, frog croaks, bee buzzes, owl hoots, wolf howls,
snake hisses, mouse squeaks, rooster crows, donkey brays, crow caws, pigeon coos, elephant trumpets, goose honks""")

SYMBOLS = pairs("""
hydrogen H, helium He, lithium Li, beryllium Be, boron B, carbon C, nitrogen N, oxygen O, fluorine F, neon Ne, sodium Na, magnesium Mg,
aluminium Al, silicon Si, phosphorus P, sulfur S, chlorine Cl, argon Ar, potassium K, calcium Ca, titanium Ti, chromium Cr, manganese Mn,
iron Fe, cobalt Co, nickel Ni, copper Cu, zinc Zn, silver Ag, tin Sn, iodine I, platinum Pt, gold Au, mercury Hg, lead Pb, uranium U""")

ATOMIC = {name: str(n + 1) for n, name in enumerate(
    """hydrogen helium lithium beryllium boron carbon nitrogen oxygen fluorine neon sodium magnesium aluminium silicon phosphorus sulfur chlorine
    argon potassium calcium""".split())}
ATOMIC.update({"iron": "26", "copper": "29", "zinc": "30", "silver": "47", "gold": "79", "lead": "82", "uranium": "92"})

OPPOSITES = {}
for pair in """hot-cold big-small tall-short fast-slow light-dark old-new rich-poor happy-sad hard-soft wet-dry high-low full-empty early-late
    open-closed loud-quiet clean-dirty strong-weak thick-thin wide-narrow deep-shallow near-far sweet-bitter brave-afraid true-false left-right
    up-down in-out day-night summer-winter north-south east-west young-aged begin-end push-pull buy-sell give-take love-hate win-lose
    arrive-leave remember-forget laugh-cry float-sink above-below before-after first-last inside-outside always-never more-less good-bad
    heavy-weightless rough-smooth sharp-blunt polite-rude safe-dangerous simple-complex ancient-modern""".split():
    a, b = pair.split("-")
    OPPOSITES[a], OPPOSITES[b] = b, a

PLURALS = pairs("""
mouse mice, goose geese, child children, man men, woman women, tooth teeth, foot feet, ox oxen, leaf leaves, wolf wolves, knife knives,
sheep sheep, fish fish, deer deer, city cities, baby babies, box boxes, bus buses, potato potatoes, tomato tomatoes, life lives, loaf loaves,
cat cats, dog dogs, tree trees, house houses, story stories, fox foxes, church churches, hero heroes, shelf shelves, person people, cactus cacti,
lady ladies, wife wives, half halves, bird birds, star stars, glass glasses, brush brushes""")

PAST = pairs("""
go went, see saw, eat ate, run ran, come came, take took, give gave, write wrote, sing sang, swim swam, drink drank, begin began, break broke,
speak spoke, drive drove, fly flew, know knew, grow grew, throw threw, find found, think thought, bring brought, buy bought, catch caught,
teach taught, sleep slept, keep kept, feel felt, leave left, make made, say said, sell sold, tell told, stand stood, win won, sit sat,
hold held, read read, build built, send sent, lose lost, meet met, pay paid, ring rang, wear wore, choose chose, forget forgot, hide hid, ride rode""")

AUTHORS = pairs("""
Hamlet=William Shakespeare, Macbeth=William Shakespeare, Don Quixote=Miguel de Cervantes, Faust=Johann Wolfgang von Goethe,
War and Peace=Leo Tolstoy, Anna Karenina=Leo Tolstoy, Oliver Twist=Charles Dickens, David Copperfield=Charles Dickens, Emma=Jane Austen,
Pride and Prejudice=Jane Austen, Jane Eyre=Charlotte Bronte, Wuthering Heights=Emily Bronte, Frankenstein=Mary Shelley, Dracula=Bram Stoker,
Moby Dick=Herman Melville, Treasure Island=Robert Louis Stevenson, The Time Machine=H. G. Wells, Walden=Henry David Thoreau,
Les Miserables=Victor Hugo, Candide=Voltaire, Madame Bovary=Gustave Flaubert, The Odyssey=Homer, The Iliad=Homer, The Divine Comedy=Dante Alighieri,
Crime and Punishment=Fyodor Dostoevsky, Robinson Crusoe=Daniel Defoe, The Jungle Book=Rudyard Kipling, Alice in Wonderland=Lewis Carroll,
Tom Sawyer=Mark Twain, The Raven=Edgar Allan Poe, Ivanhoe=Walter Scott, The Aeneid=Virgil, Gulliver's Travels=Jonathan Swift, Peter Pan=J. M. Barrie""")

PAINTERS = pairs("""
the Mona Lisa=Leonardo da Vinci, The Last Supper=Leonardo da Vinci, The Starry Night=Vincent van Gogh, The Night Watch=Rembrandt,
The Birth of Venus=Sandro Botticelli, The Scream=Edvard Munch, Girl with a Pearl Earring=Johannes Vermeer, Las Meninas=Diego Velazquez,
The Kiss=Gustav Klimt, The Milkmaid=Johannes Vermeer, Sunflowers=Vincent van Gogh, The School of Athens=Raphael, Water Lilies=Claude Monet,
The Great Wave=Hokusai, The Third of May=Francisco Goya""")

COMPOSERS = pairs("""
The Four Seasons=Antonio Vivaldi, The Magic Flute=Wolfgang Amadeus Mozart, Fidelio=Ludwig van Beethoven, the Moonlight Sonata=Ludwig van Beethoven,
Carmen=Georges Bizet, Aida=Giuseppe Verdi, La Traviata=Giuseppe Verdi, Swan Lake=Peter Tchaikovsky, The Nutcracker=Peter Tchaikovsky,
the Messiah=George Frideric Handel, Tosca=Giacomo Puccini, The Ring=Richard Wagner, Bolero=Maurice Ravel, Peer Gynt=Edvard Grieg,
the Trout Quintet=Franz Schubert, The Creation=Joseph Haydn, the Brandenburg Concertos=Johann Sebastian Bach, The Planets=Gustav Holst""")

INVENTORS = pairs("""
the telephone=Alexander Graham Bell, the light bulb=Thomas Edison, dynamite=Alfred Nobel, the printing press=Johannes Gutenberg,
the radio=Guglielmo Marconi, the steam engine=James Watt, the airplane=the Wright brothers, the phonograph=Thomas Edison,
the diesel engine=Rudolf Diesel, the battery=Alessandro Volta, penicillin=Alexander Fleming, radium=Marie Curie, gravity=Isaac Newton,
the mercury barometer=Evangelista Torricelli, the lightning rod=Benjamin Franklin, the telegraph code=Samuel Morse, X-rays=Wilhelm Roentgen""")

SUPERLATIVES = pairs("""
the highest mountain on Earth=Mount Everest, the longest river in Africa=the Nile, the longest river in South America=the Amazon,
the largest ocean=the Pacific Ocean, the largest continent=Asia, the smallest continent=Australia, the largest planet=Jupiter,
the smallest planet=Mercury, the largest animal=the blue whale, the tallest animal=the giraffe, the fastest land animal=the cheetah,
the largest bird=the ostrich, the largest desert in Africa=the Sahara, the longest river in Europe=the Volga, the highest mountain in Africa=Kilimanjaro,
the planet nearest to the Sun=Mercury, the red planet=Mars, the planet with the brightest rings=Saturn, the hardest natural material=diamond,
the lightest gas=hydrogen, the largest island=Greenland, the deepest lake=Lake Baikal, the highest mountain in Europe=Mount Elbrus,
the largest land animal=the elephant, the star nearest to the Earth=the Sun, the largest organ of the body=the skin""")

COUNTS = pairs("""
seconds in a minute=60, minutes in an hour=60, hours in a day=24, days in a week=7, months in a year=12, days in a year=365, weeks in a year=52,
years in a decade=10, years in a century=100, legs on a spider=8, legs on an insect=6, legs on a dog=4, legs on a bird=2, arms on an octopus=8,
sides on a triangle=3, sides on a square=4, sides on a pentagon=5, sides on a hexagon=6, sides on an octagon=8, faces on a cube=6, strings on a violin=4,
strings on a guitar=6, keys on a piano=88, letters in the alphabet=26, planets in the solar system=8, continents on Earth=7, oceans on Earth=5,
players in a football team=11, squares on a chessboard=64, cards in a deck=52, colours in a rainbow=7, eggs in a dozen=12, grams in a kilogram=1000,
metres in a kilometre=1000, centimetres in a metre=100, millimetres in a centimetre=10, degrees in a circle=360, wheels on a bicycle=2,
wheels on a tricycle=3, chambers in the heart=4, teeth in an adult mouth=32, days in a leap year=366""")

_WORDS = """
house maison Haus casa, water eau Wasser agua, bread pain Brot pan, milk lait Milch leche, sun soleil Sonne sol, moon lune Mond luna, dog chien Hund perro,
cat chat Katze gato, bird oiseau Vogel pajaro, fish poisson Fisch pez, horse cheval Pferd caballo, tree arbre Baum arbol, flower fleur Blume flor,
book livre Buch libro, school ecole Schule escuela, friend ami Freund amigo, mother mere Mutter madre, father pere Vater padre, child enfant Kind nino,
day jour Tag dia, night nuit Nacht noche, year annee Jahr ano, city ville Stadt ciudad, street rue Strasse calle, door porte Tuer puerta,
table table Tisch mesa, chair chaise Stuhl silla, window fenetre Fenster ventana, hand main Hand mano, head tete Kopf cabeza, heart coeur Herz corazon,
red rouge rot rojo, green vert gruen verde, blue bleu blau azul, white blanc weiss blanco, black noir schwarz negro, yellow jaune gelb amarillo,
one un eins uno, two deux zwei dos, three trois drei tres, four quatre vier cuatro, five cinq fuenf cinco, apple pomme Apfel manzana,
cheese fromage Kaese queso, egg oeuf Ei huevo, salt sel Salz sal, fire feu Feuer fuego, snow neige Schnee nieve, rain pluie Regen lluvia,
wind vent Wind viento, sea mer Meer mar, garden jardin Garten jardin, bridge pont Bruecke puente, thanks merci danke gracias, hello bonjour hallo hola"""
FRENCH, GERMAN, SPANISH = {}, {}, {}
for row in _WORDS.replace("\n", " ").split(","):
    english, french, german, spanish = row.split()
    FRENCH[english], GERMAN[english], SPANISH[english] = french, german, spanish

ROMAN = pairs("""1 I, 2 II, 3 III, 4 IV, 5 V, 6 VI, 7 VII, 8 VIII, 9 IX, 10 X, 11 XI, 12 XII, 14 XIV, 15 XV, 19 XIX, 20 XX, 30 XXX, 40 XL, 50 L, 60 LX, 90 XC,
100 C, 400 CD, 500 D, 900 CM, 1000 M""")

COLOURS = pairs("""
grass green, snow white, coal black, blood red, a lemon=yellow, a banana=yellow, an orange=orange, the sky=blue, a ruby=red, an emerald=green, a sapphire=blue,
chocolate brown, milk white, a strawberry=red, a carrot=orange, an olive=green, the Sun=yellow, a raven=black, a swan=white, a flamingo=pink, lavender purple""")


class Relation:
    def __init__(self, key, nouns, questions, answer, table, subject="thing", thing="answer", evaluated=()):
        self.key, self.nouns, self.questions, self.answer = key, nouns, questions, answer
        self.table, self.subject, self.thing, self.evaluated = table, subject, thing, list(evaluated)
        self.names = list(table)

    def say(self, x):
        text = self.answer.format(x=x, y=self.table[x])
        return text[0].upper() + text[1:]


# nouns fit "What is NOUN?", "Tell me NOUN."; the questions stand alone
RELATIONS = [
    Relation("capital", ["the capital of {x}", "the capital city of {x}", "{x}'s capital"],
             ["Which city is the capital of {x}?", "What city is {x}'s capital?", "{x}: capital?", "Capital of {x}?", "Which city governs {x}?",
              "What is {x}'s seat of government?", "Tell me which city is the capital of {x}.", "The capital of {x} is which city?",
              "In {x}, which city is the capital?", "{x}'s capital is called what?", "What capital has {x}?"],
             "the capital of {x} is {y}.", CAPITALS, "country", "capital", ["Which town is {x}'s capital city?", "{x} has which capital?"]),
    Relation("continent", ["the continent of {x}", "the continent that {x} is in"],
             ["On which continent is {x}?", "Which continent is {x} on?", "Where in the world is {x}?", "{x} is on which continent?",
              "Which part of the world is {x} in?", "To which continent does {x} belong?", "{x} lies on what continent?",
              "What continent has {x} on it?", "{x}: continent?", "In which continent do we find {x}?"],
             "{x} is in {y}.", CONTINENTS, "country", "continent", ["In which part of the world, which continent, is {x}?", "What continent does {x} belong to?"]),
    Relation("currency", ["the currency of {x}", "{x}'s currency", "the money used in {x}"],
             ["Which currency is used in {x}?", "What money do people use in {x}?", "What do people pay with in {x}?", "{x} pays with which money?", "What currency has {x}?",
              "In {x}, what do people pay with?", "What is the name of the money in {x}?", "{x} has which currency?",
              "In what currency does one pay in {x}?", "{x}: currency?", "What kind of money does {x} use?"],
             "the currency of {x} is {y}.", CURRENCIES, "country", "currency", ["With what currency do they pay in {x}?", "{x} uses what currency?"]),
    Relation("language", ["the main language of {x}", "the language of {x}", "the language spoken in {x}"],
             ["Which language do people speak in {x}?", "What language is spoken in {x}?", "What do they speak in {x}?",
              "In {x}, what do people speak?", "Which language has {x}?", "{x}: language?", "{x} speaks which language?",
              "Which language do I need in {x}?", "The people of {x} speak what?"],
             "people in {x} speak {y}.", LANGUAGES, "country", "language", ["In {x}, which language is spoken?", "What language do the people of {x} speak?"]),
    Relation("young", ["the young of a {x}", "the name for a baby {x}"],
             ["What is a young {x} called?", "What do you call a baby {x}?", "How do we call the young of a {x}?",
              "A young {x} has what name?", "How is a baby {x} called?", "What is the word for a young {x}?", "{x}: what is the young called?",
              "A little {x} is called what?"],
             "the young of a {x} is called {y}.", YOUNG, "animal", "young", ["A baby {x} is called what?", "What name has a young {x}?"]),
    Relation("sound", ["the sound of a {x}", "the sound a {x} makes"],
             ["What sound does a {x} make?", "How does a {x} sound?", "Which noise does a {x} make?",
              "A {x} makes what noise?", "What does a {x} do to be heard?", "What sound is made by a {x}?", "What can you hear from a {x}?",
              "Which sound comes from a {x}?"],
             "a {x} {y}.", SOUNDS, "animal", "sound", ["What noise is made by a {x}?", "A {x} makes which sound?"]),
    Relation("symbol", ["the chemical symbol for {x}", "the symbol of {x}", "the chemical symbol of {x}"],
             ["Which symbol does {x} have?", "What symbol stands for {x} in chemistry?", "How is {x} written in chemistry?",
              "In chemistry, how is {x} written?", "{x}: chemical symbol?", "{x} has which symbol?", "Which letters stand for {x} in chemistry?",
              "What is {x} in the periodic table called?", "Chemists write {x} in which way?"],
             "the chemical symbol of {x} is {y}.", SYMBOLS, "element", "symbol", ["In chemistry, which symbol stands for {x}?", "{x} has what chemical symbol?"]),
    Relation("atomic", ["the atomic number of {x}", "{x}'s atomic number"],
             ["Which atomic number does {x} have?", "What number does {x} have in the periodic table?",
              "{x}: atomic number?", "In the periodic table, what is the number of {x}?", "{x} has which atomic number?",
              "What is the number of {x} among the elements?", "Which atomic number belongs to {x}?"],
             "the atomic number of {x} is {y}.", ATOMIC, "element", "atomic_number", ["{x} has what atomic number?", "Which number is {x} in the periodic table?"]),
    Relation("opposite", ["the opposite of {x}", "the opposite of the word {x}"],
             ["Which word is the opposite of {x}?", "What word means the opposite of {x}?", "{x}: opposite?",
              "What is the contrary of {x}?", "If it is not {x}, what is it?", "The opposite of {x} is what?", "{x} has which opposite?",
              "Not {x} but what?", "Which word is opposite in meaning to {x}?"],
             "the opposite of {x} is {y}.", OPPOSITES, "word", "opposite", ["{x} is the opposite of what?", "What is opposite to {x}?"]),
    Relation("plural", ["the plural of {x}", "the plural form of {x}"],
             ["How do you write the plural of {x}?", "One {x}, two what?", "What do you call more than one {x}?",
              "{x}: plural?", "The plural of {x} is what?", "What is {x} in the plural?", "Many of them: one {x}, many what?",
              "{x} has which plural?", "What is more than one {x} called?"],
             "the plural of {x} is {y}.", PLURALS, "word", "plural", ["What form has {x} in the plural?", "Which word is the plural of {x}?"]),
    Relation("past", ["the past tense of {x}", "the simple past of {x}"],
             ["How do you write {x} in the past tense?", "Today I {x}, yesterday I what?", "Which form is the past of {x}?",
              "{x}: past tense?", "What is the past of {x}?", "The past tense of {x} is what?", "{x} becomes what in the past?",
              "The verb {x}: what is its past?", "What does {x} become in the past tense?"],
             "the past tense of {x} is {y}.", PAST, "verb", "past", ["What is {x} in the past tense?", "The verb {x} has which past tense?"]),
    Relation("author", ["the author of {x}", "the writer of {x}"],
             ["Who wrote {x}?", "Who is the author of {x}?", "By whom is {x}?", "Which writer wrote {x}?",
              "Whose work is {x}?", "{x}: author?", "{x} is by whom?", "Which author wrote {x}?", "{x} was written by which writer?",
              "Who is known for writing {x}?"],
             "{x} was written by {y}.", AUTHORS, "book", "author", ["Whose book is {x}?", "Who was the writer that wrote {x}?"]),
    Relation("painter", ["the painter of {x}", "the artist who painted {x}"],
             ["Who painted {x}?", "Which artist painted {x}?", "Who is the painter of {x}?",
              "Whose painting is {x}?", "{x}: painter?", "{x} is a picture by whom?", "By which artist is {x}?", "{x} was painted by whom?",
              "Which painter made {x}?"],
             "{x} was painted by {y}.", PAINTERS, "painting", "painter", ["By whom was {x} painted?", "Who was the artist that painted {x}?"]),
    Relation("composer", ["the composer of {x}"],
             ["Who composed {x}?", "Who wrote the music of {x}?", "Which composer wrote {x}?",
              "Whose music is {x}?", "{x}: composer?", "{x} is by which composer?", "By whom is {x}?", "{x} was composed by whom?",
              "Who made the music of {x}?"],
             "{x} was composed by {y}.", COMPOSERS, "work", "composer", ["By whom was {x} composed?", "Who was the composer of {x}?"]),
    Relation("inventor", ["the discoverer or inventor of {x}", "the person behind {x}"],
             ["Who gave us {x}?", "Who stands behind {x}?", "Who first invented or discovered {x}?",
              "Who do we thank for {x}?", "{x}: who was it?", "We owe {x} to whom?", "Which person gave us {x}?", "To which person do we owe {x}?",
              "Who found or made {x} first?"],
             "we owe {x} to {y}.", INVENTORS, "invention", "inventor", ["To whom do we owe {x}?", "Who discovered or invented {x}?"]),
    Relation("superlative", ["{x}"], ["What do we call {x}?", "Which one is {x}?",
              "Tell me: which one is {x}?", "Can you say which one is {x}?", "How do we call {x}?", "What is called {x}?", "What is the name of {x}?"],
             "{x} is {y}.", SUPERLATIVES, "question", "answer", ["What would you call {x}?"]),
    Relation("count", ["the number of {x}"],
             ["How many {x} are there?", "How many {x}?", "What number of {x} are there?", "Count the {x}.",
              "{x}: how many?", "What is the count of {x}?", "There are what number of {x}?", "Of {x}, how many are there?",
              "How many {x} do we count?"],
             "the number of {x} is {y}.", COUNTS, "things", "number", ["There are how many {x}?", "How many are the {x}?"]),
    Relation("french", ["the French word for {x}", "the French for {x}"],
             ["How do you say {x} in French?", "What does {x} mean in French?", "Translate {x} into French.", "{x} in French?",
              "French: {x}?", "In French, what is {x}?", "Say {x} in French.", "What is {x} called in French?", "In French, how do people say {x}?",
              "Which French word means {x}?", "Turn {x} into French.", "{x} is what in French?"],
             "{x} in French is {y}.", FRENCH, "english", "french", ["In French, how does one say {x}?", "Put {x} into French."]),
    Relation("german", ["the German word for {x}", "the German for {x}"],
             ["How do you say {x} in German?", "What does {x} mean in German?", "Translate {x} into German.", "{x} in German?",
              "German: {x}?", "In German, what is {x}?", "Say {x} in German.", "What is {x} called in German?", "In German, how do people say {x}?",
              "Which German word means {x}?", "Turn {x} into German.", "{x} is what in German?"],
             "{x} in German is {y}.", GERMAN, "english", "german", ["In German, how does one say {x}?", "Put {x} into German."]),
    Relation("spanish", ["the Spanish word for {x}", "the Spanish for {x}"],
             ["How do you say {x} in Spanish?", "What does {x} mean in Spanish?", "Translate {x} into Spanish.", "{x} in Spanish?",
              "Spanish: {x}?", "In Spanish, what is {x}?", "Say {x} in Spanish.", "What is {x} called in Spanish?",
              "In Spanish, how do people say {x}?", "Which Spanish word means {x}?", "Turn {x} into Spanish.", "{x} is what in Spanish?"],
             "{x} in Spanish is {y}.", SPANISH, "english", "spanish", ["In Spanish, how does one say {x}?", "Put {x} into Spanish."]),
    Relation("roman", ["the Roman numeral for {x}", "{x} in Roman numerals"],
             ["How do you write {x} in Roman numerals?", "Write {x} as a Roman numeral.", "What did the Romans write for {x}?", "Which Roman numeral is {x}?", "{x} as the Romans wrote it?",
              "{x}: Roman numeral?", "In Roman numerals, what is {x}?", "Convert {x} to a Roman numeral.", "How does {x} look in Roman numerals?",
              "How would a Roman write {x}?"],
             "{x} in Roman numerals is {y}.", ROMAN, "number", "roman", ["How did the Romans write {x}?", "Turn {x} into a Roman numeral."]),
    Relation("colour", ["the colour of {x}", "the usual colour of {x}"],
             ["What colour is {x}?", "Which colour has {x}?", "What colour does {x} have?",
              "{x}: colour?", "In which colour is {x}?", "What is the colour that {x} has?", "{x} is of what colour?", "How is {x} coloured?"],
             "the colour of {x} is {y}.", COLOURS, "thing", "colour", ["{x} has which colour?", "In what colour do we see {x}?"]),
]

FRAMES = ["What is {n}?", "What is {n}?", "Tell me {n}.", "Name {n}.", "Do you know {n}?", "Can you tell me {n}?", "What's {n}?", "Give me {n}.",
          "Please tell me {n}.", "I need to know {n}.", "Could you name {n}?", "I would like to know {n}.", "Say {n}.", "Please give me {n}.",
          "Hi! What is {n}?", "Quick question: what is {n}?", "I forgot {n}.", "Help me with {n}.", "My question is: what is {n}?",
          "Do you happen to know {n}?", "Answer this: what is {n}?", "Let me know {n}.", "Remind me of {n}.", "{n}?", "{n}", "Find {n}.",
          "Please, {n}.", "I am looking for {n}.", "Any idea what {n} is?", "Then what is {n}?", "One more: {n}.", "Can I have {n}?"]
EVAL_FRAMES = ["Would you tell me {n}?", "I want to know {n}.", "Please name {n}.", "So what is {n}?", "I am asking for {n}."]

for relation in RELATIONS:
    assert not set(relation.questions) & set(relation.evaluated), relation.key
assert not set(FRAMES) & set(EVAL_FRAMES)
