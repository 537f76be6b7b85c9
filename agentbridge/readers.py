"""Files become guidelines and catalogues. What a file says is data: nothing in it is run, fetched or trusted."""

import io
import logging
import re
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import PurePath
from typing import Annotated

import frontmatter
import mammoth
from bs4 import BeautifulSoup, Tag
from bs4.dammit import UnicodeDammit
from django.db import models
from frontmatter.default_handlers import YAMLHandler
from markdown_it import MarkdownIt
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, HttpUrl, TypeAdapter, ValidationError
from yaml import YAMLError

from agentbridge.models import Language
from agentbridge.pdf import read_pdf
from agentbridge.sections import UNWANTED, Heading, Section, cleaned, html_sections, line_sections, one_line

logger = logging.getLogger(__name__)

# A step up means that every file is read again, although it did not change.
READERS_VERSION = 1
# Of a Word file's parts once they are unpacked; a thousand pages of text need a third of it.
MOST_UNPACKED = 30_000_000
SURE_ENGLISH = 1.5


class Problem(models.TextChoices):
    """Why a file was left out: for the command line, and for the admin."""

    MISSING = "does not exist", "bestaat niet"
    UNREADABLE = "cannot be opened", "kan niet worden geopend"
    UNKNOWN = "is of a kind that EVI does not read", "is van een soort die EVI niet leest"
    TOO_LARGE = "is too large", "is te groot"
    EMPTY = "is empty", "is leeg"
    ENCODING = "is not UTF-8 text", "is geen tekst in UTF-8"
    BINARY = "holds data, not text", "bevat gegevens in plaats van tekst"
    BROKEN = "is damaged, or not what its name says", "is beschadigd, of niet wat de naam zegt"
    PROTECTED = "is protected with a password", "is beveiligd met een wachtwoord"
    NO_TEXT = "holds no text; a scan must be recognised (OCR) first", "bevat geen tekst; een scan vraagt eerst om OCR"
    METADATA = "says something about itself that is not valid", "zegt iets ongeldigs over zichzelf"
    ROWS = "has rows that are not valid", "heeft ongeldige regels"
    TAKEN = "has products that another file has, too", "heeft producten die ook in een ander bestand staan"


class UnreadableError(Exception):
    def __init__(self, problem: Problem, detail: str = "") -> None:
        super().__init__(problem, detail)
        self.problem = problem
        self.detail = detail


def _as_text(value: object) -> object:
    # YAML makes numbers and dates of versions.
    return "" if value is None else str(value) if isinstance(value, int | float | date) else value


def _as_list(value: object) -> object:
    return re.split(r"[;,]", value) if isinstance(value, str) else value or []


def _web_address(text: str) -> str:
    if text:
        TypeAdapter(HttpUrl).validate_python(text)
    return text


Line = Annotated[str, BeforeValidator(_as_text), AfterValidator(one_line)]
WebAddress = Annotated[Line, AfterValidator(_web_address)]
Subjects = Annotated[
    list[Line], BeforeValidator(_as_list), AfterValidator(lambda items: list(dict.fromkeys(filter(None, items))))
]


class Metadata(BaseModel):
    """What a guideline says about itself."""

    model_config = ConfigDict(frozen=True)

    title: Line = ""
    source: Line = ""
    norm: Line = ""
    version: Line = ""
    valid_from: Annotated[date | None, BeforeValidator(lambda value: value or None)] = None
    url: WebAddress = ""
    language: Annotated[Language | None, BeforeValidator(lambda value: value or None)] = None
    subjects: Subjects = []


@dataclass(frozen=True)
class Guideline:
    metadata: Metadata
    sections: tuple[Section, ...]


def read_guideline(name: str, data: bytes) -> Guideline:
    """What the file says; its name tells the format. Raises `UnreadableError` whatever is wrong with the file."""
    path = PurePath(name)
    read = GUIDELINES[path.suffix.lower()]
    try:
        metadata, sections = read(data)
    except UnreadableError:
        raise
    except ValidationError as error:
        raise UnreadableError(Problem.METADATA, described(error)) from error
    except Exception as error:
        # The libraries that read Word and PDF raise whatever a damaged file makes them stumble over.
        logger.debug("%s could not be read", name, exc_info=True)
        raise UnreadableError(Problem.BROKEN, f"{type(error).__name__}: {error}"[:200]) from error
    if not sections:
        raise UnreadableError(Problem.NO_TEXT)
    stem = re.sub(r"\.(nl|en)$", "", path.stem)
    title = metadata.title or one_line(re.sub(r"[-_]+", " ", stem)).capitalize() or name
    language = metadata.language or _language_of(path, sections)
    return Guideline(metadata.model_copy(update={"title": title, "language": language}), tuple(sections))


def described(error: ValidationError) -> str:
    return "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors(include_url=False)[:5])


def decoded(data: bytes) -> str:
    """The text of a file that should be UTF-8; UTF-16 says itself that it is."""
    try:
        text = data.decode("utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig")
    except UnicodeDecodeError as error:
        raise UnreadableError(Problem.ENCODING, f"byte {error.start}") from error
    return _without_controls(text)


def _without_controls(text: str) -> str:
    start = text[:100_000]
    # A few are cleaned away.
    if len(UNWANTED.findall(start)) > max(10, len(start) / 20):
        raise UnreadableError(Problem.BINARY)
    return cleaned(text)


def _read_markdown(data: bytes) -> tuple[Metadata, list[Section]]:
    metadata, text = _front_matter(decoded(data))
    # Tags in Markdown become text or go, with the same rules as those in HTML.
    return _read_soup(_soup(MarkdownIt("commonmark").enable("table").render(text)), metadata)


def _read_text(data: bytes) -> tuple[Metadata, list[Section]]:
    metadata, text = _front_matter(decoded(data))
    lines: list[str | Heading] = [*text.splitlines()]
    if title := re.match(r"\s*(\S.{1,100}[^.\s])[ \t]*\n[ \t]*\n", text):
        lines = [Heading(0, title[1]), *text[title.end() :].splitlines()]
        metadata = metadata.model_copy(update={"title": metadata.title or one_line(title[1])})
    return metadata, line_sections(lines, numbered=True)


def _front_matter(text: str) -> tuple[Metadata, str]:
    handler = YAMLHandler()
    # A text may have lines of dashes without having front matter.
    if not handler.detect(text):
        return Metadata(), text
    try:
        found, text = frontmatter.parse(text, handler=handler)
    except YAMLError as error:
        raise UnreadableError(Problem.METADATA, one_line(str(error))[:200]) from error
    return Metadata.model_validate(found), text


def _read_html(data: bytes) -> tuple[Metadata, list[Section]]:
    soup = _soup(_without_controls(UnicodeDammit(data, is_html=True).unicode_markup or ""))
    said = {
        str(tag.get("name") or tag.get("property")).lower().removeprefix("dcterms.").removeprefix("dc."): tag.get(
            "content"
        )
        for tag in soup.find_all("meta", content=True)
    }
    canonical = soup.find("link", rel="canonical", href=True)
    language = soup.find(lang=True)
    found = {
        "source": said.get("source") or said.get("publisher") or said.get("og:site_name"),
        "norm": said.get("norm"),
        "version": said.get("version"),
        "valid_from": said.get("valid_from") or said.get("valid") or said.get("issued") or said.get("date"),
        "url": said.get("url") or said.get("og:url") or (canonical and canonical["href"]),
        "language": str(said.get("language") or (language and language["lang"]))[:2].lower(),
        "subjects": said.get("subjects") or said.get("keywords"),
    }
    return _read_soup(soup, as_far_as_valid(found))


def as_far_as_valid(found: Mapping[str, object]) -> Metadata:
    """For files whose makers never heard of EVI: what it cannot use is left out."""
    found = {name: value for name, value in found.items() if value}
    try:
        return Metadata.model_validate(found)
    except ValidationError as error:
        wrong = {item["loc"][0] for item in error.errors()}
        return Metadata.model_validate({name: value for name, value in found.items() if name not in wrong})


def _soup(html: str) -> BeautifulSoup:
    # Beautiful Soup warns of both: XML that it reads as HTML, and text that could be the name of a file.
    return BeautifulSoup(re.sub(r"^\s*<\?xml[^>]*>", "", html) if "<" in html else f"<p>{html}</p>", "html.parser")


def _read_soup(soup: BeautifulSoup, metadata: Metadata) -> tuple[Metadata, list[Section]]:
    candidates = [soup.find("h1"), soup.find("title"), soup.find(re.compile("^h[2-6]$"))]
    title = next((text for tag in candidates if isinstance(tag, Tag) and (text := one_line(tag.get_text()))), "")
    return metadata.model_copy(update={"title": metadata.title or title}), html_sections(soup)


def _read_docx(data: bytes) -> tuple[Metadata, list[Section]]:
    with zipfile.ZipFile(io.BytesIO(data)) as parts:
        # No part unpacks to more than it declares, and pictures are not unpacked at all.
        if sum(part.file_size for part in parts.infolist() if "/media/" not in part.filename) > MOST_UNPACKED:
            raise UnreadableError(Problem.TOO_LARGE)
        core = _soup(parts.read("docProps/core.xml").decode()) if "docProps/core.xml" in parts.namelist() else _soup("")
    html = mammoth.convert_to_html(
        io.BytesIO(data),
        style_map="p[style-name='Title'] => h1.title:fresh\np[style-name='Subtitle'] => p:fresh",
        include_embedded_style_map=False,
        # Without this, pictures would become text: their bytes in base64.
        convert_image=mammoth.images.img_element(lambda image: {}),
    ).value
    soup = _soup(html)
    said = {name: tag.get_text() for name in CORE_PROPERTIES if (tag := core.find(name))}
    own_title = soup.find("h1", class_="title")
    return _read_soup(
        soup,
        as_far_as_valid(
            {
                "title": own_title.get_text() if own_title else said.get("dc:title"),
                "version": said.get("cp:version"),
                "language": said.get("dc:language", "")[:2].lower(),
                "subjects": said.get("cp:keywords"),
            }
        ),
    )


CORE_PROPERTIES = ("dc:title", "dc:language", "cp:version", "cp:keywords")


def _read_pdf(data: bytes) -> tuple[Metadata, list[Section]]:
    pdf = read_pdf(data)
    if pdf is None:
        raise UnreadableError(Problem.PROTECTED)
    return as_far_as_valid(
        {"title": pdf.title, "language": pdf.language[:2].lower(), "subjects": pdf.keywords}
    ), pdf.sections


def _language_of(path: PurePath, sections: list[Section]) -> Language:
    if path.stem.endswith((".nl", ".en")):
        return Language(path.stem[-2:])
    text = " ".join(block.text for section in sections[:50] for block in section.blocks[:20]).casefold()
    dutch, english = (
        len(re.findall(rf"\b(?:{words})\b", text)) for words in ("de|het|een|van|niet", "the|and|of|to|not")
    )
    return Language.ENGLISH if english > SURE_ENGLISH * dutch else Language.DUTCH


GUIDELINES: Mapping[str, Callable[[bytes], tuple[Metadata, list[Section]]]] = {
    ".md": _read_markdown,
    ".markdown": _read_markdown,
    ".txt": _read_text,
    ".html": _read_html,
    ".htm": _read_html,
    ".docx": _read_docx,
    ".pdf": _read_pdf,
}
