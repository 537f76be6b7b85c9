"""Everyday words for what guidelines call by another name: `synonyms.txt`, to be edited by whoever knows the trade."""

import re
from functools import cache
from importlib.resources import files

WORD = re.compile(r"[^\W_]+(?:[-'&][^\W_]+)*")
LONGEST_PHRASE = 3


def official_words(text: str) -> list[str]:
    """What guidelines say where `text` says it in everyday words; each once, in the order of the text."""
    words = WORD.findall(text.lower())
    phrases = (
        " ".join(words[start : start + length])
        for start in range(len(words))
        for length in range(LONGEST_PHRASE, 0, -1)
    )
    known = _synonyms()
    return list(dict.fromkeys(official for phrase in phrases for official in known.get(phrase, ())))


@cache
def _synonyms() -> dict[str, tuple[str, ...]]:
    synonyms = {}
    for line in (files("agentbridge") / "synonyms.txt").read_text().splitlines():
        everyday, _, official = line.partition("#")[0].partition(":")
        for phrase in filter(None, map(str.strip, everyday.split(","))):
            synonyms[phrase] = tuple(word.strip() for word in official.split(","))
    return synonyms
