"""Whether what was found is about what was asked, as far as words can tell."""

import re
from collections.abc import Sequence

from agentbridge.lexical import SHORTEST_MISTYPED, meant_by, words
from agentbridge.patterns import WORD
from agentbridge.synonyms import official_words
from agentbridge.tools import Guideline
from agentbridge.understanding import Understanding
from agentbridge.words import ASPECTS, FILLERS

# What hardly any of the sample's own questions stays below, and none without a word of its subject.
WEAK = 0.36
FAIR = 0.45
HALF = 0.5
STEM = 6
SHORT = 3
ENDING = re.compile(r"(?<=...)(?:en|es|e|s|n|t)$")


def is_coincidence(meant: Understanding, found: Sequence[Guideline]) -> bool:
    """Whether nothing was found, or something else: it is weak, and says too little of what the question is about."""
    if not found:
        return True
    found = in_own_language(meant, found)
    best = found[0]
    # The words of a question are not to be found in a text of another language.
    if meant.translated or best.score >= FAIR:
        return False
    asked = [word for word in meant.topic or WORD.findall(meant.query.casefold()) if word not in FILLERS]
    told = stems(" ".join(f"{one.title} {one.section} {one.text}" for one in found))
    told_by_best = stems(f"{best.title} {best.section} {best.text}")
    names = stems(" ".join(f"{one.title} {one.section}" for one in found))
    # Each word of the question with what guidelines say for it.
    ways = [stems(word) | stems(" ".join(official_words(word))) for word in asked]
    together = stems(" ".join(official_words(meant.query)))
    if best.score >= WEAK:
        return (
            bool(ways)
            and not any(way & told for way in ways)
            and not together & told
            and not _is_mistyped(asked, found)
        )
    share = sum(bool(way & told_by_best) for way in ways) / len(ways) if ways else 1
    return share <= HALF or not any(way & names for way in [*ways, together])


def _is_mistyped(asked: Sequence[str], found: Sequence[Guideline]) -> bool:
    told = sorted(set(words(" ".join(f"{one.title} {one.section} {one.text}" for one in found))))
    return any(meant_by(word, alike=told) for word in asked if len(word) >= SHORTEST_MISTYPED)


def mentions(meant: Understanding, text: str) -> bool:
    """Whether a text has a word of what the question is about, or what guidelines say for one."""
    subject = " ".join(word for word in meant.topic if word not in ASPECTS)
    return bool((stems(f"{subject} {' '.join(official_words(meant.query))}") - NO_SUBJECT) & stems(text))


def in_own_language(meant: Understanding, found: Sequence[Guideline]) -> Sequence[Guideline]:
    """What needs no translation, or all where everything does."""
    return [guideline for guideline in found if guideline.language == meant.language] or found


def stems(text: str) -> set[str]:
    """The words without their endings: "spoelen" is "spoel"; and norms however they are written."""
    return {ENDING.sub("", word[:STEM]) if len(word) > SHORT else word for word in words(text)}


NO_SUBJECT = stems(" ".join(FILLERS))
