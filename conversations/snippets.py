"""The sentence of a text that fits a question, as plain text, with the places of the question's words in it."""

import re
from collections.abc import Collection
from dataclasses import dataclass

from agentbridge.chunks import sentences
from agentbridge.citations import without_markers
from agentbridge.lexical import words

MOST_CHARACTERS = 240
# Of a long sentence, so much is shown before its first word that counts.
BEFORE = 60
WORD = re.compile(r"[^\W_]+")
MARKUP = re.compile(r"\*\*|__|`+|^#{1,6} |^[-*•] |^> ", re.MULTILINE)
# A shorter stem is the beginning of too many words.
SHORTEST_BEGINNING = 4


@dataclass(frozen=True)
class Snippet:
    text: str
    # From, and up to, in characters of the text.
    marks: tuple[tuple[int, int], ...] = ()


def snippet_of(text: str, *, stems: Collection[str]) -> Snippet:
    """The first of the sentences with most of these stems in it; the beginning, where no sentence has any."""
    plain = MARKUP.sub("", without_markers(text))
    candidates = [" ".join(each.split()) for line in plain.split("\n") for each in sentences(line) if each.strip()]
    if not candidates:
        return Snippet("")
    best = max(candidates, key=lambda sentence: len({word for word, _, _ in _found(sentence, stems)}))
    found = _found(best, stems)
    start = 0
    if len(best) > MOST_CHARACTERS and found and found[0][1] > BEFORE:
        start = best.rfind(" ", 0, found[0][1] - BEFORE // 2) + 1
    shown = best[start : start + MOST_CHARACTERS]
    before = "…" if start else ""
    marks = tuple(
        (len(before) + begin - start, len(before) + end - start)
        for _, begin, end in found
        if start <= begin and end <= start + MOST_CHARACTERS
    )
    after = "…" if len(best) > start + MOST_CHARACTERS else ""
    return Snippet(f"{before}{shown}{after}", marks)


def _found(sentence: str, stems: Collection[str]) -> list[tuple[str, int, int]]:
    return [
        (match[0].casefold(), match.start(), match.end())
        for match in WORD.finditer(sentence)
        if any(_is_of(word, stems) for word in words(match[0]))
    ]


def _is_of(word: str, stems: Collection[str]) -> bool:
    # English stems end in another letter than their words do: happi, happy.
    return any(
        word == stem or (len(stem) >= SHORTEST_BEGINNING and word.startswith(stem[:-1] if stem[-1] == "i" else stem))
        for stem in stems
    )
