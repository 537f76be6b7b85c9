"""What a message holds apart from its words: images, files, and what a client wrapped around what was typed."""

import base64
import binascii
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from html import unescape
from itertools import zip_longest
from typing import overload
from urllib.parse import unquote_to_bytes

from pydantic import BaseModel, field_validator

from agentbridge.agent import FILE_ALONE, IMAGE_ALONE
from agentbridge.said import ADDRESS as ADDRESS_ONLY
from agentbridge.said import Image

# As OpenWebUI names the files of a message, before the text.
ATTACHED_FILES = re.compile(r"\s*<attached_files>(.*?)</attached_files>\s*", re.DOTALL)
BETWEEN_FILES = re.compile(r"(?<=/>)\s*(?=<file\b)")
# A name stands there as it is, with whatever signs it has.
AFTER_NAME = re.compile(r'"(?:\s+[\w-]{1,40}="|\s?/?>$)')
ATTRIBUTE = re.compile(r'\b([\w-]{1,40})="([^"]*)"')
# What OpenWebUI puts before a question about a file, and takes away again when it replays the question.
WRAPPED = re.compile(r"\s*### Task:\s*Respond to the user query using the provided context")
CONTEXT, END_OF_CONTEXT = "<context>", "</context>"
DATA_URI = re.compile(r"data:([\w.+-]+/[\w.+-]+)?((?:;[\w=.-]+)*?)(;base64)?,", re.IGNORECASE)
WEB = re.compile(r"https?://.", re.IGNORECASE)
MAX_NAME_CHARS = 200
UNREADABLE = "application/octet-stream"


class ImageUrl(BaseModel):
    url: str = ""


class Part(BaseModel):
    """A part of a message, in the shapes of chat completions and of responses."""

    type: str
    text: str = ""
    image_url: ImageUrl | None = None

    @field_validator("image_url", mode="before")
    @classmethod
    def _as_object(cls, value: object) -> object:
        return {"url": value} if isinstance(value, str) else value

    @field_validator("text", mode="before")
    @classmethod
    def _no_text(cls, value: object) -> object:
        return "" if value is None else value


class ImagesAsSent(Sequence[Image]):
    """Images that are read when somebody looks at them: most are sent again with every turn, and nobody does."""

    def __init__(self, urls: Sequence[str], names: Sequence[str]) -> None:
        self._urls = urls
        self._names = names

    @cached_property
    def _images(self) -> tuple[Image, ...]:
        named = zip_longest(self._urls, self._names[: len(self._urls)], fillvalue="")
        return tuple(read_image(url, name=name) for url, name in named)

    def __len__(self) -> int:
        return len(self._urls)

    @overload
    def __getitem__(self, index: int) -> Image: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Image]: ...

    def __getitem__(self, index: int | slice) -> Image | Sequence[Image]:
        return self._images[index]


@dataclass(frozen=True)
class Contents:
    """What a person said, and what came along with it."""

    text: str
    image_urls: tuple[str, ...] = ()
    image_names: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    attached_text: str = ""

    @property
    def images(self) -> Sequence[Image]:
        return ImagesAsSent(self.image_urls, self.image_names) if self.image_urls else ()


def read_contents(content: str | list[Part] | None) -> Contents:
    parts = content if isinstance(content, list) else [Part(type="text", text=content or "")]
    # An answer in parts is one text; what a person sends in parts is several.
    joint = "" if all(part.type == "output_text" for part in parts) else "\n"
    text = joint.join(part.text for part in parts if part.text)
    image_urls = tuple(part.image_url.url for part in parts if part.image_url)
    attached_text = ""
    begin, end = text.find(CONTEXT), text.rfind(END_OF_CONTEXT)
    if 0 <= begin < end and WRAPPED.match(text):
        attached_text = text[begin + len(CONTEXT) : end].strip()
        text = text[end + len(END_OF_CONTEXT) :].lstrip()
    names: dict[bool, list[str]] = {True: [], False: []}
    if attached := ATTACHED_FILES.match(text):
        for file in BETWEEN_FILES.split(attached[1].strip()):
            if not file.startswith("<file"):
                continue
            is_image = dict(ATTRIBUTE.findall(file)).get("content_type", "").startswith("image/")
            _, _, name = file.partition(' name="')
            name = unescape(AFTER_NAME.split(name, maxsplit=1)[0]).replace("\0", "")[:MAX_NAME_CHARS]
            names[is_image].append(name if name or is_image else FILE_ALONE)
        text = text[attached.end() :]
    if not text.strip():
        text = IMAGE_ALONE if image_urls else FILE_ALONE if names[False] else text
    return Contents(text, image_urls, tuple(names[True]), tuple(names[False]), attached_text)


def read_image(url: str, *, name: str = "") -> Image:
    """The image behind an address: its bytes where they are in it, and the address itself where they are not.

    EVI fetches nothing that a client points at. What cannot be read is kept as it came.
    """
    head = DATA_URI.match(url)
    if not head:
        return Image(ADDRESS_ONLY if WEB.match(url) else UNREADABLE, url.encode(errors="replace"), name)
    data = url[head.end() :]
    try:
        content = base64.b64decode(data, validate=True) if head[3] else unquote_to_bytes(data)
    except (binascii.Error, ValueError):
        return Image(UNREADABLE, data.encode(errors="replace"), name)
    return Image((head[1] or UNREADABLE).lower(), content, name)
