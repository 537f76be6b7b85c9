"""Everyday words for what guidelines call by another name: `synonyms.txt`, to be edited by whoever knows the trade."""

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

WORD = re.compile(r"[^\W_]+(?:[-'&][^\W_]+)*")
LONGEST_PHRASE = 3


@dataclass(frozen=True)
class _Line:
    everyday: tuple[str, ...] = ()
    official: tuple[str, ...] = ()


_NOTHING = _Line()


def official_words(text: str, *, about: Collection[str] | None = None) -> list[str]:
    """What guidelines say where `text` says it in everyday words; each once, in the order of the text.

    With `about`, only for phrases that have one of these words in them.
    """
    known = _lines()
    return list(
        dict.fromkeys(
            official
            for phrase in _phrases(text)
            if about is None or not {*phrase.split()}.isdisjoint(about)
            for official in known.get(phrase, _NOTHING).official
        )
    )


def everyday_words(text: str) -> list[str]:
    """What else people say for what `text` says in everyday words."""
    known = _lines()
    return list(dict.fromkeys(other for phrase in _phrases(text) for other in known.get(phrase, _NOTHING).everyday))


@cache
def words_of_the_trade() -> frozenset[str]:
    """All that guidelines call things by."""
    return frozenset(word for line in _lines().values() for official in line.official for word in official.split())


def _phrases(text: str) -> Iterator[str]:
    words = WORD.findall(text.lower())
    return (
        " ".join(words[start : start + length])
        for start in range(len(words))
        for length in range(LONGEST_PHRASE, 0, -1)
    )


@cache
def _lines() -> dict[str, _Line]:
    """The line that each everyday phrase is in."""
    lines: dict[str, _Line] = {}
    for line in (files("agentbridge") / "synonyms.txt").read_text().splitlines():
        everyday, _, official = line.partition("#")[0].partition(":")
        both = _Line(*(tuple(filter(None, map(str.strip, side.split(",")))) for side in (everyday, official)))
        lines |= dict.fromkeys(both.everyday, both)
    return lines
