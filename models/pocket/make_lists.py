"""Writes grammar/words.txt and grammar/rhymes.txt, which answers are held to.

    python3 make_lists.py SCOWL_FOLDER     Debian's scowl: /usr/share/dict/scowl

words.txt: ordinary words of English (SCOWL up to size 35), and the names that the facts are made of; a word a line, small letters,
sorted by bytes. rhymes.txt: of the common and the short ones those that rhyme, by the pronunciations of the CMU dictionary (package
pronouncing), a line of each sound."""
import os
import re
import sys

import pronouncing

import everyday
import facts
import knowledge
import words

HERE = os.path.dirname(os.path.abspath(__file__))


def scowl(folder, sizes, kinds=("english-words", "american-words", "british-words")):
    out = set()
    for kind in kinds:
        for size in sizes:
            path = os.path.join(folder, "%s.%d" % (kind, size))
            if os.path.exists(path):
                with open(path, encoding="latin-1") as f:
                    out |= {w for w in f.read().split() if re.fullmatch("[A-Za-z]+", w)}
    return out


# relations whose answers are names, not forms or translations of words, signs or numerals
NAMED = "capital,country of,continent,currency,language,city,element of,author,painter,composer,inventor,superlative,member".split(",")


def names():
    """All words of facts, lists and stories."""
    text = []
    for relation in facts.RELATIONS:
        text += list(relation.table) + list(relation.table.values())
    for relation in knowledge.KNOWN:
        if relation.key in NAMED:
            text += list(relation.table) + list(relation.table.values())
    for items in list(knowledge.LISTS.values()) + list(everyday.MORE_LISTS.values()):
        text += items
    text += words.NAMES + words.CITIES + words.WORDS + words.DAYS + words.MONTHS + everyday.PEOPLE_NAMES
    return {w for t in text for w in re.findall("[A-Za-z]+", t)}


def rhymes(common):
    classes = {}
    for w in sorted(common):
        for phones in pronouncing.phones_for_word(w):
            classes.setdefault(pronouncing.rhyming_part(phones), set()).add(w)
    return sorted({" ".join(sorted(c)) for c in classes.values() if len(c) > 1})


def main(folder):
    common = {w.lower() for w in scowl(folder, (10, 20))}
    upper = scowl(folder, (10, 35), ("english-upper", "american-upper", "british-upper"))
    short = {w.lower() for w in scowl(folder, (35,)) | upper if len(w) <= 6}
    known = {w.lower() for w in scowl(folder, (10, 20, 35)) | upper | names() | {"dgemma", "diffusiongemma", "gemma"} if len(w) > 1}
    # every two letters are a word to somebody: of these only the common ones
    known = {w for w in known if len(w) > 2 or w in common}
    for name, lines in (("words", sorted(known)), ("rhymes", rhymes(common | short))):
        with open(os.path.join(HERE, "grammar", name + ".txt"), "w", encoding="ascii") as f:
            f.write("\n".join(lines) + "\n")
        print(name, len(lines), "lines")


if __name__ == "__main__":
    main(sys.argv[1])
