"""What a document says, in sections: the headings that lead to a text, and the text in blocks."""

import re
import unicodedata
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass

from bs4 import BeautifulSoup, Tag
from bs4.element import NavigableString, PageElement


@dataclass(frozen=True)
class Block:
    """A paragraph; or, as a `whole`, an item of a list or a row of a table, which says nothing by halves."""

    text: str
    whole: bool = False


@dataclass(frozen=True)
class Section:
    headings: tuple[str, ...]
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Heading:
    level: int
    text: str


HEADING_LEVELS = {f"h{level}": level for level in range(1, 7)}
# What a browser does not show either, or what leads about the site rather than through the document.
DROPPED = {"script", "style", "noscript", "template", "head", "nav", "footer", "iframe", "object", "svg", "button"}
INLINE = {
    *("a", "abbr", "acronym", "b", "bdi", "bdo", "big", "cite", "code", "data", "del", "dfn", "em", "font", "i"),
    *("ins", "kbd", "label", "mark", "q", "s", "samp", "small", "span", "strong", "sub", "sup", "time", "tt", "u"),
    *("var", "wbr", "img", "input"),
}
# Tabs and line ends stay. Direction marks can make a text read otherwise than it is; a soft hyphen splits a word
# for whoever searches it; half a surrogate pair cannot be stored.
UNWANTED = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\xad\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"
)
LIGATURES = str.maketrans({"ﬀ": "ff", "ﬁ": "fi", "ﬂ": "fl", "ﬃ": "ffi", "ﬄ": "ffl", "\xa0": " "})

NUMBERED = re.compile(r"(\d{1,3}(?:\.\d{1,3}){0,4})\.?\s+[A-ZÀ-Þ(‘“\"'].*")
# A sentence that begins a line goes on in small letters.
TITLED = r"(?:$|[.:]? [–-]?\s?[A-ZÀ-Þ])"
CHAPTER = re.compile(rf"(?:Hoofdstuk|Deel|Bijlage|Chapter|Part|Annex|Appendix) (\d{{1,3}}|[A-Z]){TITLED}")
ARTICLE = re.compile(rf"(?:Artikel|Paragraaf|Article|Section) \d[\d.]*[a-z]?{TITLED}")
# Dots that lead to a page's number, or the number alone; but EN 361 is a name.
CONTENTS_LINE = re.compile(r"(\.\s?){4,}|(?<![A-Z])\s\d{1,3}$")
LEADER = re.compile(r"(\.\s?){4,}\s*\d+$")
ITEM = re.compile(r"(?:[•▪●◦‣·–*-]|(\d{1,2})[.)])\s+(?=\S)")
LONGEST_HEADING = 100
MOST_MISSED = 2


def cleaned(text: str) -> str:
    """The text without what no reader sees and no database takes."""
    return unicodedata.normalize("NFC", UNWANTED.sub("", text.translate(LIGATURES)))


def one_line(text: str) -> str:
    return " ".join(cleaned(text).split())


class Outline:
    """Takes headings and blocks in the order of reading, and hands out sections."""

    def __init__(self) -> None:
        self._headings: list[tuple[int, str]] = []
        self._blocks: list[Block] = []
        self._sections: list[Section] = []

    def heading(self, text: str, *, level: int) -> None:
        if not (text := one_line(text)):
            return
        self._close()
        self._headings = [(above, title) for above, title in self._headings if above < level]
        self._headings.append((level, text))

    def block(self, text: str, *, whole: bool = False) -> None:
        if text.strip():
            self._blocks.append(Block(text, whole))

    def sections(self) -> list[Section]:
        self._close()
        return self._sections

    def _close(self) -> None:
        if self._blocks:
            self._sections.append(Section(tuple(title for _, title in self._headings), tuple(self._blocks)))
            self._blocks = []


def html_sections(soup: BeautifulSoup) -> list[Section]:
    outline = Outline()
    _read_blocks(soup.find("main") or soup.find("body") or soup, outline)
    return outline.sections()


def _read_blocks(parent: PageElement, outline: Outline) -> None:
    assert isinstance(parent, Tag)
    run: list[PageElement] = []

    def end_paragraph() -> None:
        outline.block(one_line("".join(map(_text, run))))
        run.clear()

    for child in parent.children:
        if not isinstance(child, Tag) or (child.name in INLINE and not child.find(_is_block)):
            run.append(child)
            continue
        end_paragraph()
        if child.name in DROPPED or child.has_attr("hidden"):
            continue
        if child.name in HEADING_LEVELS:
            outline.heading(_text(child), level=HEADING_LEVELS[child.name])
        elif child.name in {"ul", "ol"}:
            _read_list(child, outline)
        elif child.name == "table" and not child.find([*HEADING_LEVELS, "table"]):
            _read_table(child, outline)
        elif child.name == "pre":
            outline.block(cleaned(_text(child)).strip("\n"), whole=True)
        else:
            _read_blocks(child, outline)
    end_paragraph()


def _is_block(tag: Tag) -> bool:
    return tag.name not in INLINE and tag.name != "br"


# In the two below, an item or a cell that was never closed, as HTML allows, holds the next one.


def _read_list(parent: Tag, outline: Outline, *, depth: int = 0) -> None:
    items = [item for item in parent.find_all("li") if item.find_parent(["ul", "ol"]) is parent]
    for number, item in enumerate(items, 1):
        mark = f"{number}." if parent.name == "ol" else "-"
        if text := one_line(_text(item, without={"ul", "ol", "li"})):
            outline.block(f"{'  ' * depth}{mark} {text}", whole=True)
        for nested in item.find_all(["ul", "ol"]):
            if nested.find_parent("li") is item:
                _read_list(nested, outline, depth=depth + 1)


def _read_table(table: Tag, outline: Outline) -> None:
    """Each row with the heads of its columns, so that it can be read without the rows above it."""
    heads: list[str] = []
    for row in table.find_all("tr"):
        tags = [cell for cell in row.find_all(["td", "th"]) if cell.find_parent("tr") is row]
        cells = [one_line(_text(cell, without={"td", "th", "tr"})) for cell in tags]
        if not heads and tags and all(cell.name == "th" for cell in tags):
            heads = cells
            continue
        if len(cells) == len(heads):
            cells = [f"{head}: {cell}" if head else cell for head, cell in zip(heads, cells, strict=True) if cell]
        outline.block("; ".join(filter(None, cells)), whole=True)


def _text(element: PageElement, *, without: Set[str] = frozenset()) -> str:
    if not isinstance(element, Tag):
        # Comments and the like are strings of other classes.
        return str(element) if type(element) is NavigableString else ""
    if element.name in DROPPED or element.has_attr("hidden"):
        return ""
    text = "".join(
        _text(child, without=without)
        for child in element.children
        if not (isinstance(child, Tag) and child.name in without)
    )
    return text if element.name in INLINE else f" {text} "


def line_sections(lines: Iterable[str | Heading], *, numbered: bool = False) -> list[Section]:
    """Sections of plain lines below the given headings and, where asked, the lines that read as numbered ones."""
    outline = Outline()
    paragraph: list[str] = []
    whole = False
    number: tuple[int, ...] = ()

    def end_paragraph() -> None:
        outline.block(_joined(paragraph), whole=whole)
        paragraph.clear()

    for raw in lines:
        if isinstance(raw, Heading):
            heading: Heading | None = raw
            line = ""
        else:
            line = one_line(raw)
            heading = None
            if numbered and (found := _numbered_heading(line, after=number)):
                heading, number = found
        if heading:
            end_paragraph()
            outline.heading(heading.text, level=heading.level)
            whole = False
        elif not re.search(r"\w", line) or LEADER.search(line):
            end_paragraph()
            whole = False
        elif item := ITEM.match(line):
            end_paragraph()
            whole = True
            paragraph.append(f"{item[1]}. {line[item.end() :]}" if item[1] else f"- {line[item.end() :]}")
        else:
            paragraph.append(line)
    end_paragraph()
    return outline.sections()


def _numbered_heading(line: str, *, after: tuple[int, ...]) -> tuple[Heading, tuple[int, ...]] | None:
    """The heading and its number, if the line reads as one that may follow the one numbered `after`."""
    if not line or len(line) > LONGEST_HEADING or line[-1] in ".,;:" or CONTENTS_LINE.search(line):
        return None
    if chapter := CHAPTER.match(line):
        return Heading(1, line), (int(chapter[1]),) if chapter[1].isdigit() else ()
    if ARTICLE.match(line):
        return Heading(2, line), after
    if not (match := NUMBERED.match(line)):
        return None
    number = tuple(map(int, match[1].split(".")))
    # The items of a numbered list look the same, but begin again at 1.
    return (Heading(len(number), line), number) if _may_follow(number, after) else None


def _may_follow(number: tuple[int, ...], after: tuple[int, ...]) -> bool:
    """Whether it counts on from the number before, where one or two headings may have been missed in between."""
    same = 0
    while same < min(len(number), len(after)) and number[same] == after[same]:
        same += 1
    if same == len(number):
        return False
    step = number[same] - (after[same] if same < len(after) else 0)
    return (0 < step <= MOST_MISSED + 1 or number == (0,)) and all(
        part <= 1 + MOST_MISSED for part in number[same + 1 :]
    )


def _joined(lines: Sequence[str]) -> str:
    """One paragraph of lines; a word that was broken at a line's end is whole again."""
    text = ""
    for line in lines:
        if text.endswith("-") and text[-2:-1].isalpha() and line[:1].islower():
            text = text[:-1] + line
        else:
            text = f"{text} {line}" if text else line
    return text
