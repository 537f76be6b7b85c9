"""An answer as Telegram takes it: plain text with entities, in pieces that are not too long.

With entities nothing has to be escaped, so no answer can be refused for its characters, and Telegram's limit counts the
very text that is sent.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from aiogram.types import MessageEntity
from markdown_it import MarkdownIt
from markdown_it.token import Token

# In units of UTF-16, as Telegram counts.
MOST_UNITS = 4096
MOST_ENTITIES = 100
# Where a text is best cut, in this order; the cut is after what matches.
SEAMS = [re.compile(pattern) for pattern in (r"\n\n", r"\n", r"[.!?…:;][\"'”’)\]]*\s", r"\s")]
# Before a piece is this full, a less pretty cut further on is better.
WORTH_A_PIECE = 0.5
INLINE = {"strong": "bold", "em": "italic", "s": "strikethrough"}
LINK = re.compile(r"https?://[^\s/]+", re.IGNORECASE)

_markdown = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])


@dataclass(frozen=True)
class Span:
    """From which character to which a text is bold, a link, …"""

    begin: int
    end: int
    kind: str
    url: str | None = None


@dataclass(frozen=True)
class Piece:
    """One message."""

    text: str
    spans: tuple[Span, ...] = ()

    @property
    def entities(self) -> list[MessageEntity]:
        return [
            MessageEntity(
                type=span.kind,
                offset=units(self.text[: span.begin]),
                length=units(self.text[span.begin : span.end]),
                url=span.url,
            )
            for span in self.spans[:MOST_ENTITIES]
        ]


def units(text: str) -> int:
    return len(text.encode("utf-16-le", errors="replace")) // 2


def answer_in_pieces(markdown: str, citations: Sequence[Mapping[str, Any]] = ()) -> list[Piece]:
    """An answer with its sources, as messages."""
    written = Written()
    written.blocks(_markdown.parse(markdown))
    if citations:
        written.paragraph()
        written.styled("Bronnen", "bold")
        for citation in citations:
            written.line()
            _add_source(written, citation)
    return in_pieces(Piece(written.text, tuple(written.spans)))


def in_pieces(whole: Piece, *, most: int = MOST_UNITS) -> list[Piece]:
    """A text as messages that are not too long, each a whole number of paragraphs, or else of sentences or words."""
    pieces, begin = [], 0
    while begin < len(whole.text):
        end = begin + _fitting(whole.text[begin:], most)
        piece = _cut(whole, begin, end)
        if piece.text:
            pieces.append(piece)
        begin = end
    return pieces


def _fitting(text: str, most: int) -> int:
    """How many characters come into the next piece."""
    if units(text) <= most:
        return len(text)
    end = min(len(text), most)
    while units(text[:end]) > most:
        end -= max(1, (units(text[:end]) - most) // 2)
    for seam in SEAMS:
        last = max((found.end() for found in seam.finditer(text, 0, end)), default=0)
        if last >= end * WORTH_A_PIECE:
            return last
    return end


def _cut(whole: Piece, begin: int, end: int) -> Piece:
    # Telegram takes white space off the ends, and the entities would no longer be where they belong.
    text = whole.text[begin:end]
    begin, end = begin + len(text) - len(text.lstrip()), end - len(text) + len(text.rstrip())
    spans = (
        replace(span, begin=max(span.begin, begin) - begin, end=min(span.end, end) - begin)
        for span in whole.spans
        if span.begin < end and span.end > begin
    )
    return Piece(whole.text[begin:end] if begin < end else "", tuple(spans))


@dataclass
class Written:
    """Text as it grows, with what is bold or a link in it."""

    text: str = ""
    spans: list[Span] = field(default_factory=list)
    _lists: list[int | None] = field(default_factory=list)

    def add(self, text: str) -> None:
        self.text += text

    def styled(self, text: str, kind: str, *, url: str | None = None) -> None:
        begin = len(self.text)
        self.add(text)
        self._span(begin, kind, url)

    def line(self) -> None:
        if self.text and not self.text.endswith("\n"):
            self.text += "\n"

    def paragraph(self) -> None:
        self.text = self.text.rstrip("\n")
        if self.text:
            self.text += "\n\n"

    def blocks(self, tokens: Sequence[Token]) -> None:
        begun: list[int] = []
        for token in tokens:
            match token.type:
                case "paragraph_open" if not self._lists:
                    self.paragraph()
                case "heading_open":
                    self.paragraph()
                    begun.append(len(self.text))
                case "heading_close":
                    self._span(begun.pop(), "bold")
                case "blockquote_open":
                    self.paragraph()
                    begun.append(len(self.text))
                case "blockquote_close":
                    self._span(begun.pop(), "blockquote")
                case "bullet_list_open" | "ordered_list_open":
                    if self._lists:
                        self.line()
                    else:
                        self.paragraph()
                    self._lists.append(int(token.attrGet("start") or 1) if token.type.startswith("ordered") else None)
                case "bullet_list_close" | "ordered_list_close":
                    self._lists.pop()
                case "list_item_open":
                    self.line()
                    self._bullet()
                case "fence" | "code_block":
                    self.paragraph()
                    self.styled(token.content.rstrip("\n"), "pre")
                case "hr" | "table_open":
                    self.paragraph()
                case "tr_open":
                    self.line()
                case "td_open" | "th_open" if self.text.rstrip(" ") and not self.text.endswith("\n"):
                    self.add(" | ")
                case "inline":
                    # A second paragraph in an item begins on a line of its own.
                    if self._lists and not self._at_beginning_of_item():
                        self.line()
                    self._inline(token.children or ())

    def _bullet(self) -> None:
        number = self._lists[-1]
        self.add("  " * (len(self._lists) - 1) + (f"{number}. " if number is not None else "• "))
        if number is not None:
            self._lists[-1] = number + 1

    def _at_beginning_of_item(self) -> bool:
        return bool(re.search(r"(?:^|\n) *(?:• |\d+\. )$", self.text))

    def _inline(self, tokens: Iterable[Token]) -> None:
        begun: list[tuple[int, str | None]] = []
        for token in tokens:
            kind, _, edge = token.type.rpartition("_")
            if token.type in ("softbreak", "hardbreak"):
                self.add("\n")
            elif token.type == "code_inline":
                self.styled(token.content, "code")
            elif token.type == "image":
                self.add(token.content)
            elif edge == "open":
                begun.append((len(self.text), str(token.attrGet("href") or "")))
            elif edge == "close":
                begin, url = begun.pop()
                if kind in INLINE:
                    self._span(begin, INLINE[kind])
                elif url and LINK.match(url):
                    self._span(begin, "text_link", url)
            else:
                self.add(token.content)

    def _span(self, begin: int, kind: str, url: str | None = None) -> None:
        end = len(self.text)
        if self.text[begin:end].strip():
            self.spans.append(Span(begin, end, kind, url))


def _add_source(written: Written, citation: Mapping[str, Any]) -> None:
    title, section, norm, url = (str(citation.get(name) or "") for name in ("document_title", "section", "norm", "url"))
    written.add(f"[{citation.get('marker')}] ")
    if LINK.match(url):
        written.styled(title or url, "text_link", url=url)
    else:
        written.add(title)
    written.add("".join(part for part in (f" – {section}" if section else "", f" ({norm})" if norm else "")))
