"""Sections become chunks: small enough to find and to cite, large enough to be understood."""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from agentbridge.sections import Block, Section

MOST_WORDS = 180
FEWEST_WORDS = 80
# Longer than this is no sentence or row that anybody wrote, but data.
LONGEST_WHOLE = 600

SENTENCE_END = re.compile(r"[.!?…][)\"'’”»]*\s+(?=[\"'‘“«(\[]*[A-ZÀ-Þ0-9])")
# After these a dot ends no sentence. One too many costs nothing: two sentences stay together.
ABBREVIATIONS = re.compile(
    r"aant|afb|art|bijl|bijv|blz|bv|ca|cf|dhr|div|drs?|eg|enz|etc|evt|excl|fig|gem|hfst|ing?|incl|ir|jl|lid|max|mevr|min"
    r"|mrs?|ms|no|nrs?|par|pag?|pct|prof|resp|sect?|st|tab|tel|temp|vgl|vol|vs|zgn"
)
LAST_WORD = re.compile(r"[^\s(\[\"'‘“]*$")


@dataclass(frozen=True)
class Piece:
    """The text of a chunk, and the headings above it."""

    section: str
    text: str


@dataclass(frozen=True)
class _Unit:
    """What is never cut, and what stands between it and the unit before."""

    text: str
    before: str


def cut(sections: Sequence[Section], *, title: str = "") -> list[Piece]:
    """A section that fits is one piece; a longer one becomes pieces of about the same size."""
    pieces = []
    for section in sections:
        # The document's title is known from the document.
        headings = section.headings[1:] if section.headings[:1] == (title,) else section.headings
        path = " › ".join(headings)
        pieces += [Piece(path, text) for text in _packed(list(_units(section.blocks)))]
    return pieces


def sentences(text: str) -> list[str]:
    found = []
    start = 0
    for match in SENTENCE_END.finditer(text):
        if text[match.start()] == "." and _abbreviated(text[start : match.start()]):
            continue
        found.append(text[start : match.end()].rstrip())
        start = match.end()
    return [*found, text[start:]] if text[start:] else found


def size(text: str) -> int:
    """In words; text without spaces counts by its length."""
    return max(len(text.split()), len(text) // 12)


def _abbreviated(before: str) -> bool:
    match = LAST_WORD.search(before)
    word = match[0].casefold() if match else ""
    if len(word) == 1 or ABBREVIATIONS.fullmatch(word):
        return True
    # As in o.a. or m.b.t., and unlike 3.16.
    return "." in word and not word[-1].isdigit()


def _units(blocks: Sequence[Block]) -> Iterator[_Unit]:
    lead = ""
    previous: Block | None = None
    for block in blocks:
        before = "\n" if block.whole and previous and previous.whole else "\n\n"
        previous = block
        # What announces the next block is nothing without it.
        text = f"{lead}{before}{block.text}" if lead else block.text
        lead = ""
        if block.text.endswith(":") and size(text) < FEWEST_WORDS and block is not blocks[-1]:
            lead = text
        elif size(text) <= MOST_WORDS or (block.whole and size(text) <= LONGEST_WHOLE):
            yield _Unit(text, before)
        else:
            for number, sentence in enumerate(sentences(text)):
                yield from _of_bearable_length(_Unit(sentence, " " if number else before))


def _of_bearable_length(unit: _Unit) -> Iterator[_Unit]:
    if size(unit.text) <= LONGEST_WHOLE:
        yield unit
        return
    words = re.findall(r"\S{1,1000}", unit.text)
    group: list[str] = []
    for word in words:
        if group and size(" ".join([*group, word])) > MOST_WORDS:
            yield _Unit(" ".join(group), " ")
            group = []
        group.append(word)
    yield _Unit(" ".join(group), " ")


def _packed(units: Sequence[_Unit]) -> list[str]:
    total = sum(size(unit.text) for unit in units)
    # Equal shares, so that no piece is left with just the last sentence.
    share = total / max(1, math.ceil(total / MOST_WORDS))
    texts: list[str] = []
    filled = 0
    for unit in units:
        words = size(unit.text)
        full = filled + words > MOST_WORDS or filled + words / 2 > share
        bearable = min(filled, words) < FEWEST_WORDS / 2 and filled + words <= MOST_WORDS + FEWEST_WORDS / 2
        if texts and (not full or (bearable and (filled < words or unit is units[-1]))):
            texts[-1] += unit.before + unit.text
            filled += words
        else:
            texts.append(unit.text)
            filled = words
    return texts
