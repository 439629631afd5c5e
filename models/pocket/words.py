"""Words that the generated texts are made of."""

NAMES = """Mia Leo Zoe Max Ada Tom Ivy Sam Eva Ben Lena Noah Ruth Paul Nina Karl Rosa Hugo Clara Felix Anna Oscar Lucy Adam Nora Finn Ella Jack Maya Omar
Lily Theo Iris Ali Emma Luis Sara Ken Olga Ravi Tara Juan Mona Erik Gina Yuki Dora Amir Vera Jon""".split()
ANIMALS = """cat dog fox owl hen bee cow pig bat frog bear wolf deer duck goat horse mouse sheep snake tiger whale rabbit turtle monkey parrot otter
squirrel hedgehog dolphin penguin""".split()
ADJECTIVES = "red blue green black white brown golden grey tiny lazy clever brave sleepy hungry gentle lonely".split()
PLACES = "garden forest river kitchen market castle island meadow desert village harbour library valley mountain cave orchard".split()
FOODS = "apple bread cheese honey soup rice cake pear plum grape lemon carrot onion potato tomato".split()
THINGS = "lamp chair table clock book pen cup spoon door window key coin hat shoe bag box boat kite drum bell ring rope".split()
WORDS = ANIMALS + FOODS + THINGS + PLACES
CITIES = """Paris Berlin Rome Madrid Lisbon Tokyo Beijing Cairo Nairobi Oslo Stockholm Helsinki Copenhagen Warsaw Vienna Athens Ankara Lima Santiago Havana
Dublin Brussels Budapest Sofia Moscow Kyiv Hanoi Bangkok Canberra Wellington Quito Rabat Tunis Dakar Riga Bern London Edinburgh Seoul Manila Jakarta Boston
Chicago Hamburg Munich Milan Naples Barcelona Seville Porto Lyon Nice Geneva Zurich Prague Krakow Mumbai Sydney Melbourne Toronto Montreal Dallas Denver
Miami Seattle Osaka Kyoto Shanghai Delhi""".split() + ["New York", "Los Angeles", "San Francisco", "Buenos Aires", "Cape Town", "Mexico City", "Hong Kong"]
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
MONTHS = "January February March April May June July August September October November December".split()
MONTH_DAYS = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]

ONES = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen".split()
TENS = "_ _ twenty thirty forty fifty sixty seventy eighty ninety".split()


def number_words(n):
    if n < 20:
        return ONES[n]
    if n < 100:
        return TENS[n // 10] + ("-" + ONES[n % 10] if n % 10 else "")
    if n < 1000:
        return ONES[n // 100] + " hundred" + (" and " + number_words(n % 100) if n % 100 else "")
    rest = n % 1000
    return number_words(n // 1000) + " thousand" + ("" if not rest else (" and " if rest < 100 else " ") + number_words(rest))


STARTS = "b bl br c cl cr d dr f fl fr g gl gr h j k kl kr l m n p pl pr qu r s sh sk sl sm sn sp st t th tr v w z".split()
VOWELS = "a e i o u a e i o ai ea oo ou".split()
ENDS = "b ck d f g l ll m n nd ng nk p r rd rk rm rn rt s sh sk st t th x".split() + [""] * 8


def pseudo_word(rng, syllables=None):
    """A word that nobody knows."""
    return "".join(rng.choice(STARTS) + rng.choice(VOWELS) + (rng.choice(ENDS) if rng.random() < 0.5 else "") for _ in range(syllables or rng.choice([1, 2, 2, 3])))


# what a couplet's second line rhymes with
RHYMES = {
    "moon": ["and hummed a soft and happy little tune", "and hoped that spring would come there soon", "and danced all through the afternoon"],
    "tree": ["and dreamed about the deep blue sea", "and shared a pot of honey tea", "and felt so very glad and free"],
    "star": ["and wondered how it shone so far", "and played a song on its guitar", "and caught its light inside a jar"],
    "sea": ["and sang a song for you and me", "and waited there so patiently", "and found a shell as small as can be"],
    "sky": ["and watched the clouds go sailing by", "and baked a big blueberry pie", "and wished that it could learn to fly"],
    "hill": ["and all the world was calm and still", "and rested by the old stone mill", "and slept until the air was chill"],
    "snow": ["and made some tracks in a long row", "and saw the lights far down below", "and felt the cold wind start to blow"],
    "rain": ["and looked out through the window pane", "and waited for the morning train", "and started humming once again"],
    "lake": ["and ate a slice of ginger cake", "and stayed the whole night wide awake", "and gave its sleepy tail a shake"],
    "bed": ["and laid to rest its tired head", "and thought of what the wise ones said", "and ate a crust of fresh warm bread"],
    "light": ["and whispered to the world good night", "and felt that everything was right", "and flew a kite of red and white"],
    "door": ["and wiped its feet upon the floor", "and asked for just a little more", "and heard the great old lion roar"],
    "wall": ["and watched the golden leaves all fall", "and heard a distant robin call", "and felt so very proud and tall"],
    "bell": ["and had a funny tale to tell", "and made a wish beside the well", "and found a tiny silver shell"],
    "fire": ["and listened to the evening choir", "and watched the sparks fly ever higher", "and had no more it could desire"],
    "stone": ["and sat there thinking all alone", "and found a shiny little bone", "and listened to the north wind moan"],
    "boat": ["and wore a warm and woolly coat", "and in the bottle put a note", "and counted every duck afloat"],
    "book": ["and hid inside a quiet nook", "and caught a fish upon a hook", "and gave the page a second look"],
}
COUPLET_OPENINGS = ["The {adj} {animal} sat down beside the {thing},", "A {adj} {animal} came walking to the {thing},",
                    "One day a {adj} {animal} looked for the {thing},", "The {adj} {animal} had always loved the {thing},"]
COUPLET_ASKS = ["Write a rhyming couplet about a {adj} {animal} and the {thing}.", "Make a couplet about a {adj} {animal} and the {thing}.",
                "Two rhyming lines about a {adj} {animal} and the {thing}, please.", "Compose a short rhyme about the {thing} and a {adj} {animal}.",
                "Can you rhyme about a {adj} {animal} and the {thing}?", "Give me a couplet with a {adj} {animal} and the {thing}."]
STORY_ASKS = ["Tell me a story about {name} and a {adj} {animal} in the {place}.", "Write a short story with {name}, a {adj} {animal} and the {place}.",
              "I would like a story about {name} who meets a {adj} {animal} in the {place}.", "Please tell a tale of {name} and a {adj} {animal} in the {place}.",
              "Story time! {name}, a {adj} {animal}, the {place}.", "Can you write a story about a {adj} {animal} and {name} in the {place}?"]

TOPICS = """quantum physics|the stock market|brain surgery|tax law|football tactics|the history of shoes|deep sea diving|rocket engines|modern poetry|gene editing
string theory|the French Revolution|baking sourdough|car repair|jazz piano|chess openings|garden design|knitting patterns|bird migration|volcanoes
plate tectonics|black holes|the Roman army|medieval castles|ocean currents|solar panels|electric cars|computer viruses|machine learning|stamp collecting
mountain climbing|horse racing|wine making|cheese making|bridge building|the opera|ballet|street art|film music|cloud types|desert plants|rain forests|sleep
nutrition|migraine|vaccines|bees and honey|coral reefs|river deltas|the moon landing|ancient Egypt|silk roads|trade wars|inflation|housing prices""".replace("\n", "|").split("|")
EVENTS = ["the chess cup", "the football final", "the song contest", "the spelling bee", "the bicycle race", "the cooking contest", "the marathon", "the tennis open",
          "the science prize", "the sailing race", "the dance contest", "the ski race"]
