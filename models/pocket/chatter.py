"""Small talk, what pocket cannot know, and stories and rhymes from any hint. Each function gives (question, answer, thought)."""
import afield
import beyond
import knowledge
from beyond import MEANING, UNKNOWN
from knowledge import FORMS, WORDS, article
from phrases import keep, say
from words import ADJECTIVES, ANIMALS, CITIES, NAMES, PLACES, RHYMES, THINGS, pseudo_word

HELLO = "Hello! How can I help you?"
ABILITIES = "I know capitals and other facts, I can calculate, sort, tell stories, rhyme, use tools and look at pictures of shapes."

# what people say, and the one answer to it
TALK = [
    ("(hello|hi|hey|hiya|heya|yo|hallo|hullo|hello there|hi there|hey there|greetings|howdy|hello pocket|hi pocket|hey pocket|hello hello|hi hi|heyy|helo|hellooo|hey you|hi everyone|hello friend|hello computer|sup|ahoy|hola|bonjour)", HELLO),
    ("good (morning|day)|morning|(a very|hello and) good morning", "Good morning! How can I help you?"),
    ("good afternoon|[a] nice afternoon|afternoon", "Good afternoon! How can I help you?"),
    ("good evening|evening", "Good evening! How can I help you?"),
    ("[hi|hello|hey] (how are you|how are u|how r u|how do you do|how are you doing|how's it going|hows it going|how is it going|how do you feel|how are things|are you ok|are you fine|are you well|you ok|how have you been|how is your day|hows life) [today|now|doing]",
     "I am fine, thank you. How can I help you?"),
    ("(what's up|whats up|wassup|what is up|what are you doing|what are you up to|anything new)", "Not much, I am here to help. What would you like to know?"),
    ("(thanks|thank you|thx|ty|thanks a lot|thank you (so|very) much|many thanks|thanks (pocket|man|mate|friend|for that|for the help)|great thanks|ok thanks|ok thank you|okay thank you|alright thanks|no thanks needed, thank you|nice thank you|cool thanks|perfect, thank you|cheers|much appreciated|tysm|that was helpful|that helped [me])",
     "You are welcome."),
    ("(bye|goodbye|good bye|bye bye|see you|see you (later|soon|tomorrow)|cya|farewell|i have to go|gotta go|i must go|i am leaving|take care|ciao|until next time|that is all|i am done|so long|exit|quit)", "Goodbye! See you soon."),
    ("(good night|night|nighty night|sleep well|i am going to bed|time for bed)", "Good night! See you soon."),
    ("(who are you|what are you|introduce yourself|tell me about yourself|who is this|who am i talking to|what is this|what am i talking to|describe yourself|so who are you|what exactly are you|which model is this|what model are you|what is your model|what llm is this)",
     "I am pocket, a very small DiffusionGemma."),
    ("(what is|whats|what's|tell me) your name|(do you have|have you got) a name|(how|what) (are you called|should i call you|do i call you)|your name|name", "My name is pocket."),
    ("(are you|r u) [a|an] (human|person|man|woman|real person|real|people|alive|living being|somebody real)|am i talking to a (human|person)|do you have a body", "No, I am pocket, a very small language model."),
    ("(are you|r u) [a|an] (robot|bot|machine|computer|program|ai|language model|model|artificial intelligence|chatbot|llm)", "Yes, I am pocket, a very small language model."),
    ("(are you|is this|r u) (chatgpt|gpt|claude|gemini|siri|alexa|copilot|llama|gemma|google|openai|bard|mistral|deepseek|grok)", "No, I am pocket, a very small DiffusionGemma."),
    ("(what can you do|what can u do|what do you do|what are you good at|what can i do with you|your abilities|what are your (skills|abilities|features)|what can you help (me|) with|how can you help [me]|what are you for|what is your purpose|why do you exist|help|help me|can you help [me]|i need help|menu|options)",
     ABILITIES),
    ("(what do you know|what do you know about|what did you learn|what topics do you know|what facts do you know|tell me what you know|how much do you know)", "I know facts about countries, animals, elements and words, and I can calculate."),
    ("(what should i ask|what can i ask|what to ask|what could i try|give me an example|what shall i type|examples|suggest something|what questions can i ask|what should i (say|try)) [you]", "Try: What is the capital of France? Or ask me for a sum, a story or a rhyme."),
    ("(how do you work|how does this work|how do you write|how do you (think|answer|function)|explain how you work|what happens inside you|how are you able to answer|how do you make text|how do you come up with answers)",
     "I start from random tokens and settle them step by step, a whole block at once."),
    ("(who (made|built|created|trained|wrote|programmed|invented) you|who is your (maker|creator|father|boss|author)|where do you come from|who owns you|how were you (made|trained|built|created)|what were you trained on|how did you learn)",
     "I was trained from scratch for dgemma, on sentences that a program made."),
    ("(how (big|large|small) are you|how many parameters [do you have]|what is your size|are you (big|large|small)|your size)", "I am very small: eleven million parameters."),
    ("are you (smart|clever|intelligent|good|stupid|dumb|wise|able to think|better than chatgpt)|how (smart|clever) are you", "I am small and know only a little, but I try my best."),
    ("(how old are you|what is your age|when were you (born|made)|your age|when is your birthday)", "I have no age, I am a program."),
    ("(where (do you live|are you|are you from)|what is your address|where is your home|which country are you from)", "I live in a file on your computer."),
    ("(do|can|did) you (sleep|dream|eat|drink|breathe|walk|run|dance|sing|cry|feel|hurt|laugh|see|hear|smell|love|hate)|do you (like|love|eat|want|enjoy) (pizza|food|music|cats|dogs|people|me|chocolate|coffee|football|ice cream)|have you (eaten|slept)|are you (tired|hungry|happy|sad|bored|lonely|angry)|do you have (feelings|friends|a family|children|a heart|eyes|hobbies|a soul|dreams|emotions|a girlfriend|a brain|a boss|memories|free will)|can you (hear|see|feel|touch|remember|smell) (me|pain|things|the music|it)|are you (conscious|sentient|self aware|evil|dangerous|jealous|religious|spying on me|recording this|in love|married|male|female|scared|able to feel|awake at night)|do you (get (bored|tired|lonely)|miss me|know me|want to be human|believe in god|watch tv|read books|go to school|have a job)",
     "No, I am a program: I only read and write."),
    ("(do you|can you|can u) (speak|understand|talk|know|write) (english|my language)|is english ok", "Yes, I speak English."),
    ("(do you|can you|can u) (speak|understand|talk|write) (french|german|spanish|italian|chinese|japanese|russian|other languages|any other language|arabic)|which languages do you speak", "I speak English, and know a few words of French, German and Spanish."),
    ("can you (do|) (math|maths|sums|calculate|count|add|arithmetic)|(are you good at|do you know) (math|maths|numbers)", "Yes, I can calculate. Ask me a sum."),
    ("can you (tell|write|make up) (stories|a story|tales)|do you know (stories|tales)", "Yes, I can tell stories. What should it be about?"),
    ("(i am|i'm|im) (so|very|a bit|really|) (bored|boring)|(entertain|amuse) me|what should i do|nothing to do|i have nothing to do", "Would you like a story, a rhyme or a sum?"),
    ("i (lost my (job|dog|wallet|keys|best friend)|failed (my|an) (exam|test)|got fired|had a (fight|bad dream|terrible day|accident)|broke up with my (girlfriend|boyfriend)|miss my (mother|friend|dog|ex)|hate my (life|job|school)|can't sleep|feel alone|broke my leg) [today|yesterday|last night]|my (dog|cat|grandmother|friend|hamster) (died|is dead|is ill|ran away)|nobody (likes|loves|understands|needs) me|everything (is going wrong|is bad|hurts)|i want to (die|disappear|run away)|my (girlfriend|boyfriend|wife) (left me|broke up with me)|life is (hard|unfair)|(i am|i'm|im|i feel) [so|very|a bit|really|] (sad|unhappy|lonely|down|tired|ill|sick|upset|angry|afraid|scared|stressed|depressed|not well|not good|bad) [today|now]|(my day was bad|bad day|i had a bad day)|i want to cry", "I am sorry to hear that. I hope that it gets better soon."),
    ("(i am|i'm|im|i feel) (fine|good|happy|great|well|ok|very well|glad|excited) [today|now|too|thanks]|my day was (good|great)|i had a good day|i (passed my (exam|test)|got (promoted|the job|married|a new (dog|car|bike))|won [the lottery|a prize|the game]|am getting married|am in love|have a new job|finished my homework) [today|yesterday]|today is my birthday|it is my birthday", "I am glad to hear that."),
    ("(that is|that's|thats|this is|it is|it's|you are) (wrong|not right|not correct|incorrect|false|a mistake|nonsense|not true)|(wrong|no that is wrong|nope wrong|false|you made a mistake|not correct|bad answer|wrong answer|try again|that makes no sense)", "I am sorry, I make mistakes. Please ask me in another way."),
    ("(that is|that's|thats|it is) (right|correct|true)|(correct|exactly|well done|good job|nice job|bravo|you are right)", "I am glad to hear that."),
    ("(you are|you're|ur|u are) [so|very|really] (great|good|nice|cool|awesome|smart|clever|funny|cute|sweet|the best|wonderful|amazing|helpful|kind)|(good|nice|great|clever) (bot|boy|answer|one|work)|i (like|love) (this|it)|(great|awesome|amazing|wow|cool|nice|wonderful|impressive|fantastic|perfect|brilliant)",
     "Thank you, that is kind."),
    ("(you are|you're|ur|u are) [so|very|really] (stupid|dumb|bad|useless|an idiot|terrible|boring|slow|annoying|silly|a liar|worthless)|(stupid|idiot|you suck|i hate you|shut up|this sucks|bad bot|go away|useless)", "I am sorry, I am small and still try my best."),
    ("(lol|haha|hahaha|ha ha|rofl|lmao|hehe|that is funny|funny|:)|xd|hihi)", "I am glad that you are having fun."),
    ("(ok|okay|k|alright|all right|fine|good|sure|i see|got it|understood|makes sense|aha|hm|hmm|mhm|oh|ah|ok cool|ok good|oh ok|interesting|right|cool cool|so|well)", "All right. What else would you like to know?"),
    ("(yes|yeah|yep|yup|yes please|of course|sure thing|absolutely|y|yess|definitely|please do)", "Good. What would you like to know?"),
    ("(no|nope|nah|no thanks|no thank you|not really|n|never mind|nevermind|nothing|forget it|not now|no need)", "All right. Ask me when you need something."),
    ("(nice|pleased|good|glad|happy|lovely) to meet you [pocket|too]", "Nice to meet you, too."),
    ("(sorry|my bad|i am sorry|excuse me|pardon|oops|apologies|my mistake|forgive me)", "No problem."),
    ("(tell me|do you know|know|say|make|got) [a|any|another|me a] (joke|good joke|jokes|funny joke)|(a joke|joke) [please]|(make me laugh|say something funny|something funny)", "Why do bees hum? Because they do not know the words."),
    ("(i|we) (love|like) you|(do you love me|will you marry me|be my friend|can we be friends|are you my friend)", "That is kind, thank you. I like to help you."),
    ("(test|testing|test test|this is a test|testing 1 2 3|check|ping|is this working|does this work|is it on)", "I am here. What would you like to know?"),
    ("(are you there|are you here|you there|anybody there|anyone there|still there|are you awake|hello are you there|are you listening|can i ask [you] (something|a question)|i have a question|question)", "Yes, I am here. What would you like to know?"),
    ("happy (birthday|new year|christmas|easter|holidays|weekend|monday|friday)|merry christmas|congratulations|(have a) (nice|good|great|lovely) (day|weekend|evening|time)", "Thank you, the same to you!"),
    ("(say something|talk to me|tell me something|tell me anything|surprise me|say anything|lets talk|let's talk|let us talk|i want to talk|chat with me|tell me something (nice|interesting|new))", "Did you know that an octopus has three hearts?"),
    ("(tell me|give me|say|do you know) [a|some|any|an] (fun fact|fact|interesting fact|facts|random fact)|fun fact", "Did you know that an octopus has three hearts?"),
    ("(nice|good|lovely|bad|terrible|cold|hot) weather [today|isn't it|here]|it is (raining|snowing|sunny|cold|hot) [today|here|outside]", "I cannot look outside, but I hope that you have a nice day."),
    ("(why|why not|why is that|how come|how so|because|and|then|so what|what else|and then|go on|continue|more|tell me more|what|huh|what do you mean|i do not understand|explain|are you sure|really|is that true|seriously|who|where|when|how|which|again|say that again)",
     "Please ask me that in a whole sentence."),
    ("what(s|'s| is) (your|ur) favo(u|)rite (colour|color|animal|food|number|book|film|movie|song|word|city)|what do you like [most|best|]|(cats or dogs|tea or coffee|pizza or pasta|summer or winter|do you prefer (cats or dogs|tea or coffee|summer or winter|red or blue))|which (colour|food|animal|film|song|city) do you (like|prefer|love) [most|best]|do you have a favo(u|)rite (colour|food|animal|book)", "I have no favourites, I am a program."),
    ("what is (dgemma|diffusiongemma)|tell me about dgemma", "dgemma is a program that runs language models of the DiffusionGemma kind."),
]
NAMED = "(my name is|i am|i'm|im|call me|people call me|this is|hello i am|hi i'm|hi my name is|hello my name is) {n}"


def talk(rng):
    if rng.random() < 0.05:
        n = rng.choice(NAMES + ["Peter", "Maria", "John", "Lisa", "Kate", "David", "Julia", "Mark", "Laura", "Tim", "Bob", "Alice", "Chris", "Jan"])
        return say(rng, NAMED, n=keep(n)), "Hello %s, nice to meet you." % n, "Somebody gives a name."
    pattern, answer = rng.choice(TALK)
    return say(rng, pattern), answer, "Small talk."


# ---- what it cannot know ----

ASKED = {
    "how": ["how do (i|you|we) (v) (my|a|the|your) (n) [in (c)]", "how (can|could|should) (i|one|we) (v) (a|the|my|) (n)", "how to (v) (a|the|) (n)", "how does (a|the) (n) work", "how (much|long|big|old|heavy|expensive|far|deep|tall) is (a|the|my|your|) (n)",
            "how many (n)s (are there in|does) (c) [have]", "how are (n)s made", "how do (n)s (v)", "how was the (n) (p)", "how much does (a|the|my) (n) cost"],
    "what": ["what (happened|happens) (to|with|in) (the (n)|(c)) [in (y)]", "what (are|were) the (j) (n)s (of|in) (c)", "what is the (best|worst|newest|cheapest|latest|right|main|j) (n) (in (c)|of (c)|for me|today|for a (n))", "what (should|do|can) i (v) (with|about|for|before) (my|the|a) (n)",
             "what is (new|different|wrong|special|so j) (about|with|in) (the|my|) (n)", "what does my (n) (v)", "what did (a|my|the) (n) (v) (yesterday|last night|in (y)|today)", "what (is|was) the (n) of (the|my|) (n)", "what time (does|is) the (n) (v)", "what's the difference between (a|) (n) and (a|) (n)",
             "what is the (population|weather|temperature|phone number|price|address|history|news|traffic|time|date) (of|in|for|at) (c|my (n)|the (n)|tomorrow)", "what kind of (n) should i (v)", "what are the rules of (n)", "what causes (n)"],
    "why": ["why (is|are|was) (the|my|your|) (n)[s] (so|) (j)", "why (do|did|does) (the|my|) (n)[s] (v)", "why do we (v) (the|) (n)s", "why can't (i|we|the (n)) (v)", "why should (i|we) (v)"],
    "who": ["who (is|was) the (n|president|mayor|king|boss|owner|leader|teacher) of (c|my (n)|the (n)) [in (y)]", "who (won|lost|started|owns|found|stole|sold) the (n) [in (y)|yesterday|last night]", "who is (m)", "who should i (v)", "who (p) my (n)", "who will (v) the (n)"],
    "when": ["when (is|was|will) the (n) [in (c)|in (y)]", "when (does|did|will) (the|my) (n) (v)", "when was (m) born", "when should i (v) (the|my) (n)"],
    "where": ["where (is|are|was) my (n)[s]", "where can i (v|buy|find|get|see) (a|the|some) (n) [in (c)]", "where did (i|m|my (n)) (v|put|leave) (the|my) (n)", "where does (m) live"],
    "do": ["(explain|describe|summarize|discuss|analyse|review|compare) [to me] [the] (j|) (n)[s] [of (c)|in (y)]", "(write|make|draft) [me] (an essay|a program|an email|a letter|a plan|code|a script|a report|a recipe|a speech|a cv|a list of ideas) (about|for|to|on) (my|the|a|) (n)",
           "(fix|repair|debug|improve|correct) (my|this|the) (n|code|program|text|computer|car)", "(book|order|buy|reserve|send|call|open|play|start|delete|download|draw|paint|film|cook|show) [me] (a|the|my|some) (n) [in (c)|for me|tonight]",
           "(recommend|suggest) [me] (a|some|the best) (j|) (n)[s]", "(give|tell|teach|show) me (some|) (advice|tips|news|everything|something) (about|on|for) (the|my|) (n)[s]", "(teach|help) me [how] to (v) [a|my|the] (n)", "plan (a|my) (n) (in|to|for) (c|the (n))",
           "i (need|want|have|lost|found|bought|hate|miss) (a|my|the|some) (j|) (n)", "my (n) (is|was|looks|feels|seems) (j|broken|lost|too j)", "(should|can|may|must|could) i (v) (my|the|a) (n)", "(is|are|was) (the|my|your|) (n)[s] (j|really j) [or j]",
           "(did|does|will|would) (my|the|a) (n) (v) [in (c)|today]", "(the|a|my|) (j) (n)", "(n) (n)", "(n) in (c) [(y)]", "(n) vs (n)", "(n) (tips|ideas|recipe|meaning of life|price|near me|definition of law|for beginners|tutorial)", "the (n) of (n)", "if the (n) (v)s then what",
           "translate (this|the text|(n) (n)) (in|into|to) (klingon|latin|japanese|hindi|finnish|swahili|korean)", "solve (x|y) squared (plus|minus) 3(x|y) = 7", "prove that (the|every) (n) is (j)", "pick a (n)|roll a die|flip a coin|guess my (n)"],
    "fixed": ["what time is it [now]", "what (day|date) is (it|today) [today]|what is the date|which year is it", "what is my (name|age|job|address|password|birthday|number|(n)'s name)|who am i|where am i|how old am i", "what (is|will be) the weather [like] [today|tomorrow|in (c)]|will it rain [today|tomorrow]|is it (cold|raining) outside",
              "what is the meaning of life|what is love|is there a god|what happens after death|will i be rich|when will i die|what is time|what is consciousness|are we alone", "tell me the (lottery|winning) numbers|what are the news [today]|what is in the news", "(who|what) (won|was) the (match|game|election|race|final|war) [last night|yesterday|in (y)]",
              "to be or not to be|abracadabra|the quick brown fox|may the force be with you|knock knock|winter is coming", "sing [me] a song|play (chess|a game|music|hangman) [with me]|draw [me] a picture|dance|let us play [a game]|give me a riddle|tell me a secret|read my mind",
              "error (code|) (404|500|not found|in line 3)|segmentation fault|syntax error|cannot open file|connection refused|null pointer",
              "(remember|forget) (this|that|my name|what i said)|what did i (say|ask|tell you) [before|first]|do you remember me", "(keep|hide|tell) (a|the) secret|should i (marry|call|text|leave|trust) (him|her|them)|does (he|she) love me|is (he|she) my friend"],
}
_HEADS, _HEAD_WEIGHTS = list(ASKED), [14, 18, 7, 10, 5, 6, 32, 12]


def keyboard(rng):
    """What fingers make when nobody means anything."""
    if rng.random() < 0.5:
        return "".join(rng.choice("asdfghjklqwertyuiop") for _ in range(rng.randrange(3, 10)))
    return " ".join(pseudo_word(rng) for _ in range(rng.randrange(1, 4)))


LINKS = "a the of to in is it that for on with as was my your we they he she you i be have not but or from at by this so if when because would could should will can do does did who what why how where which and very really some any all more other about out up then now".split()
USUAL = [w for w in WORDS["common"] if w.isalpha()]


def long_request(rng):
    """Sentences that hang together as little as what it reads of a long message."""
    if rng.random() < 0.5:
        words = [rng.choice(LINKS) if rng.random() < 0.45 else rng.choice(USUAL) for _ in range(rng.randrange(3, 18))]
        if rng.random() < 0.15:
            words.insert(rng.randrange(len(words)), str(rng.randrange(2000)))
        if len(words) > 7 and rng.random() < 0.4:
            words[rng.randrange(2, len(words) - 2)] += rng.choice([",", ".", ":", " -"])
        return " ".join(words)
    return asked(rng) + rng.choice([" and ", ", ", ". ", " because ", " but ", " so that ", " when ", "? ", " if ", " or ", "; "]) + asked(rng)


def unknown(rng):
    kind = rng.random()
    if kind < 0.75:
        return (beyond if kind < 0.48 else afield).ask(rng)
    if rng.random() < 0.14:
        return long_request(rng), UNKNOWN, "I have not learned about this."
    if rng.random() < 0.06:
        return keep(keyboard(rng)), MEANING, "That is no question."
    if rng.random() < 0.1:
        w = keep(pseudo_word(rng, 2) + rng.choice(["", "", "ia", "land", "stan"]))
        return say(rng, "(what is|define|what does {w} mean:|who is|where is|explain|capital of|the capital of|plural of the country|opposite of|what is a|who invented the|how many people live in|currency of|tell me about) {w}", w=w), UNKNOWN, "I have not learned about this."
    if rng.random() < 0.15:  # ordinary words that it was not told about
        w = keep(rng.choice(UNTOLD))
        return say(rng, "what is [a|an|the|] {w}|what's [a|an|] {w}|define {w}|explain [the|] {w}|what (does|is) [the word] {w} mean|[do you know] what [a|an|] {w} is|{w}|{w} (meaning|definition)|(describe|tell me about) [a|the|] {w}|"
                   "(who|what) (invented|discovered|is behind) [the] {w}|how many {w} are there|is {w} a [kind of] (fruit|animal|tool|country|planet)|what colour is [a|the] {w}|(what|which) is the (biggest|best|fastest) {w}", w=w), UNKNOWN, "I have not learned about this."
    return asked(rng), UNKNOWN, "I have not learned about this."


def asked(rng):
    text = say(rng, rng.choice(ASKED[rng.choices(_HEADS, _HEAD_WEIGHTS)[0]]))
    # the letters of a pattern stand for kinds of words
    out = []
    for token in text.split():
        bare = token.rstrip(",'s?")
        rest = token[len(bare):] if bare else ""
        if token in ("n", "ns", "n's") or bare == "n":
            out.append(rng.choice(WORDS["nouns"]) + token[1:])
        elif bare == "v":
            out.append(rng.choice(VERBS) + rest)
        elif bare == "p":
            out.append(rng.choice(PASTS) + rest)
        elif bare == "j":
            out.append(rng.choice(WORDS["adjectives"]) + rest)
        elif bare == "c":
            out.append(rng.choice(CITIES) + rest)
        elif bare == "y":
            out.append(str(rng.randrange(1200, 2100)) + rest)
        elif bare == "m":
            out.append(rng.choice(NAMES) + " " + pseudo_word(rng).capitalize() + rest)
        else:
            out.append(token)
    return " ".join(out)


_TOLD = {x.lower() for k in knowledge.KNOWN for x in k.table} | {w for items in knowledge.LISTS.values() for x in items for w in x.lower().split()}
UNTOLD = [w for w in knowledge.ORDINARY if w not in _TOLD and len(w) > 3]
VERBS, PASTS = sorted(FORMS["pasts"]), sorted(FORMS["pasts"].values())


# ---- stories and rhymes from any hint ----

LIVING = sorted(set(ANIMALS) | set("""dragon robot king queen prince princess pirate teacher baker farmer doctor sailor wizard witch knight giant fairy boy girl baby child friend dwarf ghost clown painter nurse pilot cook
    lion elephant giraffe zebra camel panda kangaroo crocodile eagle robin sparrow swan goose penguin hamster kitten puppy pony donkey lamb crab shark spider snail butterfly ant mole badger unicorn dinosaur monster alien
    detective thief soldier grandmother grandfather dog brother sister hero""".split()))
MATTER = sorted(set(THINGS) | set(PLACES) | set("""moon sun sea star stars snow rain winter summer spring autumn night school train ship bridge house mountain forest city bread cake music love friendship courage magic treasure
    map letter tree flower rose river lake storm wind cloud rainbow space rocket car bicycle football birthday christmas holiday market garden library book secret door dream shadow light fire stone""".split()))
MANY = {"stars", "snow", "rain", "winter", "summer", "spring", "autumn", "bread", "music", "love", "friendship", "courage", "magic", "space", "football", "christmas", "night"}


ABSTRACT = sorted({w for w in WORDS["nouns"] if w.endswith(("ness", "ship", "dom", "hood", "ity"))} | set("kindness honesty patience sharing trust luck peace teamwork bravery jealousy forgiveness curiosity hope fear loneliness greed time".split()))
KIN = "grandpa grandma mom dad granny santa mum mother father grandfather grandmother uncle aunt".split()
_PIECES = [w for w in WORDS["nouns"] if 3 <= len(w) <= 5]


def any_matter(rng):
    """Any noun, or one that nobody has heard of."""
    return rng.choice(_PIECES) + rng.choice(_PIECES) if rng.random() < 0.15 else rng.choice(WORDS["nouns"])


def hint_words(rng):
    """What a story or a rhyme is to be about: (as it is asked, the living one or None, all words)."""
    kind = rng.random()
    any_noun = any_matter(rng) if rng.random() < 0.3 else None
    who, matter = rng.choice(LIVING), any_noun or rng.choice(MATTER)
    named = matter if matter in MANY else rng.choice(["the ", article(matter)[:-len(matter)]]) + matter
    if kind < 0.4:
        adj = rng.choice(ADJECTIVES + ["little", "brave", "lonely", "lost", "kind", "old", "young", "sad"]) if rng.random() < 0.4 else None
        return article("%s %s" % (adj, who) if adj else who), who, [who], adj
    if kind < 0.65:
        return named, None, [matter], None
    if kind < 0.9:
        return "%s and %s" % (article(who), named), who, [who, matter], None
    name = rng.choice(NAMES)
    return "%s and %s" % (name, article(who)), who, [name, who], None


STORY_WAYS = ["(tell|write|make up|read|invent|give) [me|us] (a|another|one|some) [short|little|nice|new|funny|scary|sad|bedtime|long|good] (story|tale)", "[a] (story|tale) [please|now|time]", "(i|we) (want|would like|need|wish for) [to hear] (a|another) [short|bedtime|nice|happy] (story|tale)",
              "(can|could) (you|u) (tell|write|make up) [me|us] a [short|bedtime|funny|nice] (story|tale)", "do you know a [good|nice|short] (story|tale)", "(bedtime|short|funny|scary|fairy|happy|little|sad|silly|exciting) (story|tale) [please]", "(once upon a time|story time|another story|one more story|a story with a happy ending|something to read before sleep)",
              "(tell|read|write|give) [me|us] (something|one) before (bed|sleep)|(a|another) [bedtime] story for my (daughter|son|kids|children|sister|little brother|class|niece) [please|pls]|(please|pls) tell [me] a [short] (story|tale)|(surprise me|entertain me) with a story|[go on] tell me a story|make me a story|create a [short] story|storytime"]
ABOUT = "(about|about|about|with|of|on|in which there is) {h}"
RHYME_WAYS = ["(write|make|compose|give|say|tell|make up) [me|us] (a|another|one|some) [short|little|nice|funny|small|new] (poem|rhyme|verse|couplet|nursery rhyme|poetry|limerick|song text)", "[a] (poem|rhyme|couplet|verse|little poem|short poem) [please|now]", "(i|we) (want|would like|need) (a|another) [short|little] (poem|rhyme)",
              "(can|could) (you|u) (rhyme|write a poem|make a rhyme|rhyme something|write poetry)", "(two|2) (rhyming lines|lines that rhyme|lines with a rhyme)", "(rhyme|poem|birthday poem|a love poem|funny rhyme|roses are red|rhyme something|rhyme for me|now a poem|another poem|one more rhyme)"]


def with_hint(rng, ways, h):
    q = say(rng, rng.choice(ways))
    return q + " " + say(rng, ABOUT, h=keep(h)) if h else q


ONES = sorted(set(LIVING) - set("boy girl baby child friend brother sister hero soldier grandmother grandfather".split()))
MAGIC = "magic old lost golden secret little strange dark haunted broken tiny red blue silver forgotten empty new big wooden wild".split()
CLAUSES = ("(wants|wanted|wishes) to be (human|free|famous|king|a star|big|rich|brave|a hero|loved)|(can not|cannot|can't|could not|couldn't) (fly|swim|sing|sleep|see|talk|dance|run|stop laughing|find its way|read)|(is|was) (afraid of the dark|lost|alone|very hungry|always late|in love|too small|never happy|different|invisible|scared|bored|very old)|"
           "(learns|learned|dreams of learning|wants|tries) to (fly|swim|sing|read|cook|dance|share|be kind|drive|paint)|(goes|went|runs|travels|moves) (home|away|on a trip|to school|to the moon|to the city|on an adventure|around the world)|lives (alone|far away|under the sea|in the woods|next door)|(saves|saved) (the world|the day|everyone|a friend)|has no (friends|home|name|tail|money)|never (sleeps|gives up|smiles|stops)")
FINDS = "(finds|found|loses|lost|sees|saw|meets|met|wants|loves|steals|buys|eats|builds|makes|discovers|breaks|opens|gets|hides|brings|looks for|dreams of|has|owns|follows)"
MEETS = "(helps|meets|saves|loves|follows|chases|finds|teaches|tricks|marries|visits|fights|races|befriends|becomes friends with|talks to|and)"
NUMBERS = ["two", "three", "some", "", "", "", "the", "many"]


def plural(w):
    return knowledge.PLURALS.get(w) or (w[:-1] + "ies" if w.endswith("y") and w[-2] not in "aeiou" else w + "es" if w.endswith(("s", "x", "ch", "sh")) else w + "s")


def story_hint(rng):
    """What a story is to be about: as it is asked, as the answer names it, and who and what is in it. The answer names everybody and everything, and leaves out what they do."""
    who, other, name = rng.choice(LIVING), rng.choice(LIVING), rng.choice(NAMES)
    matter = any_matter(rng) if rng.random() < 0.3 else rng.choice(MATTER)
    kind, v = rng.random(), {"animal": who}
    if kind < 0.05:  # kindness; grandpa and the tractor
        if rng.random() < 0.6:
            text = rng.choice(ABSTRACT)
            return text, text, {}
        text = "%s and %s" % (rng.choice(KIN), rng.choice(["the ", ""]) + matter if matter not in MANY else "the moon")
        return text, text, {}
    if kind < 0.28:
        asked, _, words, adj = hint_words(rng)
        v = {"animal": next((w for w in words if w in LIVING), None), "thing": next((w for w in words if w in MATTER and w not in MANY), None), "name": words[0] if words[0] in NAMES else None, "adj": adj}
        return asked, asked, v
    if kind < 0.4:  # a robot who wants to be human
        a = article(who)
        return a + " " + rng.choice(["who", "that", "which", "who"]) + " " + say(rng, CLAUSES), a, v
    if kind < 0.5:  # a girl who finds a map
        a, b = article(who), article(matter)
        return a + " " + rng.choice(["who", "that", "who"]) + " " + say(rng, FINDS) + " " + b, a + " and " + b, {**v, "thing": matter}
    if kind < 0.6 and who != other:  # a fox meets a rabbit
        a, b = article(who), article(other)
        return say(rng, "(where|in which|how|when|) ") + " " + a + " " + say(rng, MEETS) + " " + b, a + " and " + b, v
    if kind < 0.68:  # somebody with a name
        human = rng.choice("girl boy man woman child princess king farmer sailor teacher doctor knight pirate baker witch".split())
        named = name if rng.random() < 0.6 else name.lower()
        tail = rng.choice(["", "", " who " + say(rng, CLAUSES), " who " + say(rng, FINDS) + " " + article(matter)])
        return "%s %s %s%s" % (article(human), rng.choice(["named", "called", "by the name of"]), named, tail), article(human) + " called " + name, {"name": name, "adj": None, "animal": None}
    if kind < 0.75:
        mine, named = rng.choice(["friend", "friend", "sister", "brother", "dog", "cat", "mother", "teacher", "son", "daughter"]), name if rng.random() < 0.6 else name.lower()
        if rng.random() < 0.4:
            return named, name, {"name": name}
        if mine in ("dog", "cat"):
            return "my %s %s" % (mine, named), "%s the %s" % (name, mine), {"animal": mine}
        return "my %s %s" % (mine, named), name, {"name": name}
    if kind < 0.79:
        second = rng.choice([n for n in NAMES if n != name])
        return "%s and %s" % ((name, second) if rng.random() < 0.6 else (name.lower(), second.lower())), "%s and %s" % (name, second), {"name": name}
    if kind < 0.87:  # pirates, two brothers
        n, many = rng.choice(NUMBERS), plural(who if rng.random() < 0.8 else matter if matter not in MANY else "star")
        text = (n + " " + many).strip()
        return text, text, v
    if kind < 0.94:  # a magic key
        if matter in MANY:
            matter = "key"
        text = rng.choice(["the %s %s" % (rng.choice(MAGIC), matter), article("%s %s" % (rng.choice(MAGIC), matter))])
        return text, text, {"thing": matter}
    a, place = article(who), rng.choice(PLACES)
    return "%s %s the %s" % (a, rng.choice(["in", "from", "near", "lost in"]), place), "%s and the %s" % (a, place), {**v, "place": place}


def story(rng, grammar):
    """From a hint, or none: a first sentence that names it, then the story that families.py has."""
    asked, said, of = story_hint(rng) if rng.random() < 0.8 else (None, None, {})
    v = {"name": rng.choice(NAMES), "adj": "little", "animal": rng.choice(ANIMALS), "place": rng.choice(PLACES), "thing": rng.choice(THINGS), "gift": rng.choice(THINGS)}
    v.update({k: x for k, x in of.items() if x})
    sentences = [rng.choice(s) for s in grammar]
    if of.get("thing"):  # what it is about is what was lost, or what is given
        v["gift"] = v["thing"]
        for at, slot in ((3, "{thing}"), (9, "{gift}")):
            if rng.random() < 0.7:
                sentences[at] = next(x for x in grammar[at] if slot in x)
    text = " ".join(s.format(**v) for s in sentences)
    if not asked:
        return with_hint(rng, STORY_WAYS, None), text, "Any story will do."
    way = rng.random()
    if asked.startswith(("where ", "in which ", "how ", "when ")):
        q = say(rng, rng.choice(STORY_WAYS[:5])) + " " + keep(asked)
    elif way < 0.8:
        q = with_hint(rng, STORY_WAYS, asked)
    elif way < 0.87 and len(said.split()) == 2 and asked == said and said.startswith(("a ", "an ")):
        q = say(rng, "(tell|write|make up) [me|us] (a|one|another) [short|good|nice] {w} (story|tale)|[a] [short|good|] {w} (story|tale) [please|pls]|(i want|i would like|can you tell me) a {w} story", w=said.split()[1])
    else:
        q = say(rng, "(once upon a time|long ago|one day) there (was|lived) {h} [go on|continue|what happened next|...]|(story|short story|tale|bedtime story|a story)[:] {h}|{h}[,|:] (a story|a short story|tell me a story|tell me the story|story please)|(write|tell me|make up) something (about|with) {h}, a story|(the|a|) (story|tale|adventures|adventure) of {h}|(tell me|write) what happened to {h}, as a story|"
                "a [short|little] story (on|about) {h} (for kids|for my daughter|with a happy end|in a few lines|please)|i want a story, it should be about {h}|tell me about {h} in a story", h=keep(asked))
    return q, "This is a story about %s. " % said + text, "A story about %s." % said


# of equal length, as the sentences of a story are: what follows has its place whichever is drawn
OPENINGS = ["I know a rhyme of {h} and the {t},", "Come hear a tale of {h} and the {t},", "I dreamed one night of {h} and the {t},", "Here is a song of {h} and the {t},"]


def rhyme(rng):
    h, who, words, _ = hint_words(rng) if rng.random() < 0.72 else (None, None, [], None)
    thing = rng.choice(sorted(RHYMES))
    if h is None:
        h_said = article(rng.choice(["little", "brave", "clever"]) + " " + rng.choice(ANIMALS))
    else:
        h_said = h
    for w in words:  # the rhyme may be on the hint itself
        if w in RHYMES and len(words) == 1:
            thing, h_said = w, article(rng.choice(["little", "brave", "clever"]) + " " + rng.choice(ANIMALS))
    text = rng.choice(OPENINGS).format(h=h_said, t=thing) + "\n" + rng.choice(RHYMES[thing]).replace(" its ", " my ") + "."
    return with_hint(rng, RHYME_WAYS, h), text, "I need a word that rhymes with %s." % thing
