"""A PDF has no paragraphs and seldom headings, only marks on pages; this makes sections of them."""

import io
import logging
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pypdf import PdfReader
from pypdf.errors import PdfStreamError
from pypdf.generic import Destination

from agentbridge.sections import Heading, Section, line_sections, one_line

# It tells of every oddity that it works around.
logging.getLogger("pypdf").setLevel(logging.ERROR)

# How far from a page's edge a running head or foot is looked for.
EDGE_LINES = 2
SENTENCE_END = re.compile(r"[.!?:][)\"'’”]*(?:\s|$)")
# A sentence that has not ended by then was none: a title, or a table.
MOST_LINES_OVER = 6


@dataclass(frozen=True)
class Pdf:
    title: str
    language: str
    keywords: str
    sections: list[Section]


def read_pdf(data: bytes) -> Pdf | None:
    """What it says; None if it takes a password."""
    if b"%%EOF" not in data[-2048:]:
        # pypdf would make do with the pages that are there.
        raise PdfStreamError("cut off before its end")
    reader = PdfReader(io.BytesIO(data))
    # Many can be read by anybody, and are only protected against changes.
    if reader.is_encrypted and not reader.decrypt(""):
        return None
    pages = _without_running_lines([_lines(page.extract_text()) for page in reader.pages])
    marked = list(_outline(reader, reader.outline)) if any(pages) else []
    if len(marked) > 1:
        sections = line_sections(_with_outline(pages, marked))
    else:
        sections = line_sections((line for page in pages for line in page), numbered=True)
        if len(sections) < 3:
            sections = line_sections(_with_page_numbers(pages))
    said = reader.metadata
    title = one_line((said and said.title) or "")
    return Pdf(
        # Word's printer prefixes its own name and leaves the file's extension.
        title="" if title.casefold() in {"untitled", "document"} else re.sub(r"^Microsoft Word - |\.docx?$", "", title),
        language=str(reader.root_object.get("/Lang", "")),
        keywords=(said and said.keywords) or "",
        sections=sections,
    )


def _lines(text: str) -> list[str]:
    lines = [one_line(line) for line in text.splitlines()]
    return lines if any(lines) else []


def _without_running_lines(pages: list[list[str]]) -> list[list[str]]:
    """The pages without the lines that are at the edge of most of them, the same but for their numbers."""
    shapes = Counter(shape for page in pages for shape in {_shape(line) for line in _edges(page)})
    running = {shape for shape, count in shapes.items() if count > max(2, len(pages) / 2)}
    return [
        [
            line
            for number, line in enumerate(page)
            if EDGE_LINES <= number < len(page) - EDGE_LINES or _shape(line) not in running
        ]
        for page in pages
    ]


def _edges(page: Sequence[str]) -> Iterator[str]:
    yield from page[:EDGE_LINES]
    yield from page[-EDGE_LINES:]


def _shape(line: str) -> str:
    return re.sub(r"\d+", "#", line)


def _outline(reader: PdfReader, entries: Sequence[object], level: int = 1) -> Iterator[tuple[int, Heading]]:
    for entry in entries:
        if isinstance(entry, list):
            yield from _outline(reader, entry, level + 1)
        elif isinstance(entry, Destination) and (title := one_line(entry.title or "")):
            page = reader.get_destination_page_number(entry)
            if page is not None and page >= 0:
                yield page, Heading(level, title)


def _with_outline(pages: Sequence[Sequence[str]], marked: Sequence[tuple[int, Heading]]) -> Iterator[str | Heading]:
    for number, page in enumerate(pages):
        rest = list(page)
        for heading in (heading for at, heading in marked if at == number):
            line = next((i for i, line in enumerate(rest) if _bare(line) == _bare(heading.text)), None)
            # A title that the page writes otherwise begins where the page does.
            if line is not None:
                yield from rest[:line]
                rest = rest[line + 1 :]
            yield heading
        yield from rest


def _bare(line: str) -> str:
    """A title without its number and its punctuation."""
    return re.sub(r"^[\d.]+\s+|\W", "", line).casefold() or line


def _with_page_numbers(pages: Sequence[Sequence[str]]) -> Iterator[str | Heading]:
    unfinished = False
    for number, page in enumerate(pages, 1):
        lines = list(page)
        if unfinished:
            # A sentence belongs to the page that it begins on.
            end = next((i for i, line in enumerate(lines[:MOST_LINES_OVER]) if SENTENCE_END.search(line)), None)
            if end is not None and (match := SENTENCE_END.search(lines[end])):
                yield from [*lines[:end], lines[end][: match.end()]]
                lines = [lines[end][match.end() :], *lines[end + 1 :]]
        if any(lines):
            yield Heading(1, f"Pagina {number}")
            yield from lines
            unfinished = not re.search(r"[.!?:][)\"'’”]*$", lines[-1])
