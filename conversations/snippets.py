"""The sentence of a text that fits a question, as plain text, with the places of the question's words in it."""

import re
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache

from agentbridge.chunks import sentences
from agentbridge.citations import without_markers
from agentbridge.lexical import words

MOST_CHARACTERS = 240
# Of a long sentence, so much is shown before its first word that counts.
BEFORE = 60
# What stands further back in a text is not looked for.
MOST_READ = 20_000
WORD = re.compile(r"[^\W_]+")
MARKUP = re.compile(r"\*\*|__|`+|^#{1,6} |^[-*•] |^> ", re.MULTILINE)
# A shorter stem is the beginning of too many words.
SHORTEST_BEGINNING = 4


@dataclass(frozen=True)
class Snippet:
    text: str
    # From, and up to, in characters of the text.
    marks: tuple[tuple[int, int], ...] = ()


class SnippetMaker:
    """Makes the snippets of one question, whose words have these stems."""

    def __init__(self, stems: Collection[str]) -> None:
        self._whole = frozenset(stems)
        # English stems end in another letter than their words do: happi, happy.
        self._beginnings = tuple(
            stem.removesuffix("i") if len(stem) > SHORTEST_BEGINNING else stem
            for stem in stems
            if len(stem) >= SHORTEST_BEGINNING
        )
        # Most words of a text come again in the next one.
        self._is_asked = cache(self._has_stem)

    def of(self, text: str) -> Snippet:
        """The first of the sentences with most of the stems in it; the beginning, where no sentence has any."""
        plain = MARKUP.sub("", without_markers(text[:MOST_READ]))
        candidates = [" ".join(each.split()) for line in plain.split("\n") for each in sentences(line) if each.strip()]
        if not candidates:
            return Snippet("")
        found = [self._found(sentence) for sentence in candidates]
        best = max(range(len(found)), key=lambda number: len({word for word, _, _ in found[number]}))
        return _cut(candidates[best], [(begin, end) for _, begin, end in found[best]])

    def _found(self, sentence: str) -> list[tuple[str, int, int]]:
        every = ((match[0].lower(), match.start(), match.end()) for match in WORD.finditer(sentence))
        return [found for found in every if self._is_asked(found[0])] if self._whole else []

    def _has_stem(self, word: str) -> bool:
        return any(each in self._whole or each.startswith(self._beginnings) for each in words(word))


def _cut(sentence: str, marks: list[tuple[int, int]]) -> Snippet:
    start = 0
    if len(sentence) > MOST_CHARACTERS and marks and marks[0][0] > BEFORE:
        start = sentence.rfind(" ", 0, marks[0][0] - BEFORE // 2) + 1
    end = start + MOST_CHARACTERS
    before, after = "…" if start else "", "…" if len(sentence) > end else ""
    moved = len(before) - start
    return Snippet(
        f"{before}{sentence[start:end]}{after}",
        tuple((begin + moved, stop + moved) for begin, stop in marks if start <= begin and stop <= end),
    )
