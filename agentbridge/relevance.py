"""Whether what was found is about what was asked, as far as words can tell."""

import re
from collections.abc import Sequence
from functools import cache, lru_cache

from agentbridge.chunks import sentences
from agentbridge.lexical import SHORTEST_MISTYPED, meant_by, words
from agentbridge.patterns import WORD
from agentbridge.synonyms import everyday_words, official_words, words_of_the_trade
from agentbridge.tools import Guideline, Product
from agentbridge.understanding import Understanding
from agentbridge.words import ASPECTS, EVERYWHERE, FILLERS

# What hardly any of the sample's own questions stays below, and none without a word of its subject.
WEAK = 0.36
FAIR = 0.45
HALF = 0.5
STEM = 6
SHORT = 3
ENDING = re.compile(r"(?<=...)(?:en|es|e|s|n|t)$")
# What a compound ends in says what it is; what it begins with has to be longer, or "auto" would be in "automatisch".
SHORTEST_HEAD = 4
SHORTEST_BEGINNING = 5
# "Veiligheidsschoenen" are shoes, and have nothing to do with "veilig hijsen".
GENERIC_BEGINNING = re.compile(r"^(?:veiligheids|arbeids|bedrijfs|gezondheids|beschermings)(?=\w{4})")
# What is done with a thing: "gekeurd", "bedienen", "inspected".
VERB = re.compile(r"ge\w{3,}[dt]|\w{3,}(?:en|ed)")
# Asks for a height, and not about it.
WANTED = re.compile(r"\b(?:vanaf|bij|tot|from|at) (?:welke?|what|which) \w+")
MODALS = frozenset(["moet", "moeten", "mag", "mogen", "must", "may", "should"])
KNOWN_WORDS = 10_000


def is_coincidence(meant: Understanding, found: Sequence[Guideline]) -> bool:
    """Whether nothing was found, or something else: it is weak, and says too little of what the question is about."""
    if not found:
        return True
    # The words of a question are not to be found in a text of another language.
    if meant.translated:
        return False
    found = in_own_language(meant, found)
    best = found[0]
    asked = _asked(meant)
    told = words(" ".join(f"{one.title} {one.section} {one.text}" for one in found))
    told_by_best = words(f"{best.title} {best.section} {best.text}")
    names = words(" ".join(f"{one.title} {one.section}" for one in found))
    # Each word of the question with what guidelines say for it.
    ways = [{word, *_in_other_words(word, meant)} for word in asked]
    together = set(_in_other_words(meant.query, meant))
    is_told = [shares(way, told) for way in ways]
    is_mistyped = _is_mistyped(asked, names)
    if not any(is_told) and not shares(together, told) and not is_mistyped:
        return bool(asked)
    if best.score >= FAIR or is_mistyped:
        return False
    told_together = sum(shares(way, told_by_best) for way in ways)
    is_named = any(shares(way, names) for way in ways)
    is_of_the_trade = any(_is_of_the_trade(word) for word, told in zip(asked, is_told, strict=True) if told)
    # The words that the trade has for it, in a heading, are no coincidence.
    if shares(together, names) and any(is_told):
        return False
    if best.score >= WEAK:
        return not (is_named or is_of_the_trade or sum(is_told) > 1 or told_together == len(ways))
    if is_named:
        return not (all(is_told) or told_together > 1)
    return not (is_of_the_trade and told_together >= HALF * len(ways))


def about_the_thing(meant: Understanding, found: Sequence[Guideline]) -> Sequence[Guideline]:
    """For who asks what is to be done with one thing ("Hoe vaak moet een harnas gekeurd worden?"), what is about that.

    What is done with another thing is no answer, however well the verb fits.
    """
    asked = [word for word in WORD.findall(meant.query.casefold()) if word not in FILLERS]
    verbs = {word for word in asked if VERB.fullmatch(word)}
    things = [word for word in asked if word not in verbs and word not in ASPECTS and word in meant.topic]
    is_asked_of_it = bool(asked) and asked[-1] in verbs and not MODALS.isdisjoint(WORD.findall(meant.query.casefold()))
    if (
        not is_asked_of_it
        or WANTED.search(meant.query.casefold())
        or len(things) != 1
        or meant.translated
        or not found
        or found[0].language != meant.language
    ):
        return found
    if _is_mistyped(things, words(" ".join(f"{one.title} {one.section}" for one in found))):
        return found
    ways = [{things[0]}, *({word} for word in _in_other_words(things[0], meant) if word not in ASPECTS)]

    def names(text: str) -> int:
        told = words(text)
        return len(ways) if shares(ways[0], told) else sum(shares(way, told) for way in ways[1:])

    named = [names(f"{one.title} {one.section}") for one in found]
    named = [
        max(name, names(one.text) if shares(verbs, words(one.section)) else 0)
        for name, one in zip(named, found, strict=True)
    ]
    if most := max(named):
        return [one for one, name in zip(found, named, strict=True) if name == most]
    # Elsewhere it has to be said of the thing itself.
    return [
        one
        for one in found
        if any(names(sentence) and shares(verbs, words(sentence)) for sentence in sentences(one.text))
    ]


def are_others(meant: Understanding, found: Sequence[Product]) -> bool:
    """Whether products were found that have no more than a word in common with what was asked for."""
    asked = _asked(meant)
    if not asked or meant.language != "nl" or meant.translated:
        # The catalogue is in Dutch.
        return False
    told = words(" ".join(f"{one.name} {one.category} {one.norm} {one.description} {one.subjects}" for one in found))
    if shares(set(_in_other_words(meant.query, meant)), told):
        return False
    found_words = [word for word in asked if shares({word}, told)]
    return len(found_words) <= HALF * len(asked) and not any(map(_is_of_the_trade, found_words))


def fitting(meant: Understanding, found: Sequence[Product]) -> Sequence[Product]:
    """The products that say something of what was asked for, or all where none does or no word tells."""
    if meant.language != "nl" or meant.translated:
        return found
    asked = {*_asked(meant), *_in_other_words(meant.query, meant)}
    return [
        one for one in found if shares(asked, words(f"{one.name} {one.category} {one.description} {one.subjects}"))
    ] or found


def _asked(meant: Understanding) -> list[str]:
    """The words that say what a question is about."""
    asked = [
        word
        for each in meant.topic or WORD.findall(meant.query.casefold())
        for word in words(each)
        if word not in FILLERS and word not in ASPECTS
    ]
    # "Alleen werken" is about working all the same.
    return list(dict.fromkeys(word for word in asked if word not in EVERYWHERE)) or asked


def _in_other_words(text: str, meant: Understanding) -> list[str]:
    """What guidelines say for it; in English they have to be found by what people say, as the thesaurus is Dutch."""
    phrases = official_words(text, about=_asked(meant))
    if meant.language == "en":
        phrases += everyday_words(text)
    return [word for word in words(" ".join(phrases)) if word not in FILLERS]


def _is_of_the_trade(word: str) -> bool:
    # The number of a norm is, too.
    return _root(word) in _roots_of_the_trade() or (len(word) >= SHORT and word[-1].isdigit())


@cache
def _roots_of_the_trade() -> frozenset[str]:
    return frozenset(map(_root, words(" ".join(words_of_the_trade()))))


def _is_mistyped(asked: Sequence[str], told: Sequence[str]) -> bool:
    alike = sorted(set(told))
    return any(
        meant_by(word, alike=alike) for word in asked if len(word) >= SHORTEST_MISTYPED and not shares({word}, alike)
    )


def mentions(meant: Understanding, text: str) -> bool:
    """Whether a text has a word of what the question is about, or what guidelines say for one."""
    subject = " ".join(word for word in meant.topic if word not in ASPECTS)
    asked = {*words(f"{subject} {' '.join(official_words(meant.query))}")} - FILLERS
    return shares(asked, words(text))


def in_own_language(meant: Understanding, found: Sequence[Guideline]) -> Sequence[Guideline]:
    """What needs no translation, or all where everything does."""
    return [guideline for guideline in found if guideline.language == meant.language] or found


def shares(asked: set[str], told: Sequence[str]) -> bool:
    """Whether a text has one of these words, with another ending or in a compound."""
    each = set(told)
    return any(_is_same(one, other) for one in asked for other in each)


def _is_same(asked: str, told: str) -> bool:
    if _stem(asked) == _stem(told):
        return True
    # Who asks for "gordel" means a "heupgordel" as well, and who asks for "steiger" a "steigervloer". The other way
    # round it is chance: "Nachtwacht" has nothing to do with the "nacht".
    asked, told = _root(asked), _root(told)
    return (len(asked) >= SHORTEST_HEAD and told.endswith(asked)) or (
        len(asked) >= SHORTEST_BEGINNING and told.startswith(asked)
    )


@lru_cache(KNOWN_WORDS)
def _root(word: str) -> str:
    return ENDING.sub("", GENERIC_BEGINNING.sub("", word))


def stems(text: str) -> set[str]:
    """The words without their endings: "spoelen" is "spoel"; and norms however they are written."""
    return {_stem(word) for word in words(text)}


@lru_cache(KNOWN_WORDS)
def _stem(word: str) -> str:
    word = GENERIC_BEGINNING.sub("", word)
    return ENDING.sub("", word[:STEM]) if len(word) > SHORT else word


NO_SUBJECT = stems(" ".join(FILLERS))
