"""What OpenWebUI exports: a file of chats, each a tree of messages of which one branch is shown."""

from __future__ import annotations

import codecs
import json
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, BinaryIO

from django.utils.text import Truncator
from pydantic import BaseModel, BeforeValidator, Field, ValidationError

from agentbridge.agent import IMAGE_ALONE
from agentbridge.said import Image
from agentbridge.tools import EXCERPT_CHARS
from conversations.api.access import MAX_USER_CHARS, UUID4
from conversations.api.contents import DATA_URI, MAX_NAME_CHARS, Part, read_contents, read_image
from conversations.api.openwebui import MAX_ID_CHARS
from conversations.background import MAX_TITLE_CHARS
from conversations.branches import without_reasoning
from conversations.models import Role, Status

READ_BYTES = 1 << 20
UNTITLED = "New Chat"
# What older versions wrote into an answer and showed folded up.
FOLDED = ("reasoning", "tool_calls", "code_interpreter")
BETWEEN = re.compile(r"[\s,]*")
WEB = re.compile(r"https?://\S{1,2000}")
# Times are in seconds, and in older exports in thousandths, millionths or billionths of them.
LAST_SECOND = 100_000_000_000
# OpenWebUI itself takes no earlier time for one.
FIRST_MOMENT = datetime(2020, 1, 1, tzinfo=UTC)
# How a call of a tool ends.
ENDED = ("completed", "failed", "rejected")
MAX_ERROR_CHARS = 500


class NotAnExportError(Exception):
    """The file is not what OpenWebUI exports; the message says why, in a sentence."""


class BrokenChatError(Exception):
    """One chat that cannot be taken in; the message says why."""


def _moment(value: object) -> datetime | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < LAST_SECOND * 1e9:
        return None
    while value > LAST_SECOND:
        value /= 1000
    moment = datetime.fromtimestamp(value, tz=UTC)
    return moment if moment >= FIRST_MOMENT else None


def _clean(value: object) -> object:
    """Text as PostgreSQL keeps it: without NUL characters and halves of characters."""
    if isinstance(value, str):
        return value.replace("\0", "").encode(errors="replace").decode()
    if isinstance(value, list):
        return [_clean(each) for each in value]
    if isinstance(value, dict):
        return {_clean(key): _clean(each) for key, each in value.items()}
    return value


# Of what is only told about a message, the wrong kind counts as nothing.
Moment = Annotated[datetime | None, BeforeValidator(_moment)]
Text = Annotated[str, BeforeValidator(lambda value: value if isinstance(value, str) else "")]
Objects = Annotated[
    list[dict[str, Any]],
    BeforeValidator(
        lambda value: [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []
    ),
]


class ExportedMessage(BaseModel):
    parent: str | None = Field(None, alias="parentId")
    role: Text = ""
    content: str | list[Part] | None = None
    # Newer versions keep an answer in its parts: thoughts, calls of tools, and what was said between them.
    output: Objects = []
    timestamp: Moment = None
    model: Text = ""
    files: Objects = []
    sources: Objects = []
    citations: Objects = []
    error: Any = None
    done: Any = None


class ExportedHistory(BaseModel):
    messages: dict[str, ExportedMessage] = {}
    current: Text = Field("", alias="currentId")


class ExportedConversation(BaseModel):
    id: Text = ""
    title: Text = ""
    history: ExportedHistory | None = None
    # Where there is no history, which older versions did not have, this is all of it.
    messages: list[ExportedMessage] = []


class ExportedChat(BaseModel):
    id: Text = ""
    user_id: Text = ""
    title: Text = ""
    chat: ExportedConversation
    pinned: Any = False
    created_at: Moment = None
    updated_at: Moment = None


@dataclass(eq=False)
class Said:
    """A message of a chat that says something, or was to say something and failed."""

    key: str
    # What it follows, among those that say something.
    parent: Said | None
    role: Role
    text: str
    # As OpenWebUI replays it: an answer with calls of tools in it comes in several pieces.
    replayed: tuple[str, ...]
    status: Status
    metadata: dict[str, Any]
    images: tuple[Image, ...]
    time: datetime | None
    is_shown: bool = False


@dataclass(frozen=True)
class Chat:
    id: str
    user_id: str
    title: str
    is_pinned: bool
    created_at: datetime | None
    updated_at: datetime | None
    # Each after what it follows.
    said: list[Said] = field(default_factory=list)


def read_export(
    path: Path, *, progress: Callable[[int, int], object] = lambda done, total: None
) -> Iterator[Mapping[str, Any]]:
    """The chats of an export one by one, as they stand there; no more of the file than that is in memory.

    A list, a single chat, and chats one to a line, as OpenWebUI's API hands them out, are all exports.
    """
    is_first = True
    with _opened(path) as file:
        total = os.fstat(file.fileno()).st_size
        for item in _items(file.read):
            if is_first and not _is_chat(item):
                raise NotAnExportError("it is JSON, but not an export of chats. In OpenWebUI: Settings, Data, Export.")
            is_first = False
            progress(file.tell(), total)
            yield item if isinstance(item, dict) else {}


def _opened(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except OSError as error:
        raise NotAnExportError(f"it cannot be read ({error.strerror}).") from error


def _items(read: Callable[[int], bytes]) -> Iterator[Any]:
    decode, parse = codecs.getincrementaldecoder("utf-8-sig")().decode, json.JSONDecoder().raw_decode
    text, at, is_over, is_list, is_begun = "", 0, False, False, False
    while True:
        if between := BETWEEN.match(text, at):
            at = between.end()
        if at < len(text) and not is_begun:
            is_begun, is_list = True, text[at] == "["
            if not is_list and text[at] != "{":
                raise NotAnExportError("it is not JSON.")
            at += is_list
            continue
        if at < len(text) and is_list and text[at] == "]":
            return
        if at < len(text):
            try:
                item, at = parse(text, at)
            except RecursionError:
                raise NotAnExportError("it is nested too deeply.") from None
            except ValueError as error:
                if is_over:
                    raise NotAnExportError(f"it is not JSON, or a part of it is missing ({error}).") from None
            else:
                yield item
                continue
        elif is_over:
            if is_list or not is_begun:
                raise NotAnExportError("a part of it is missing." if is_begun else "it is empty.")
            return
        # A chat that is not complete yet is parsed again; reading as much again as there is keeps that to twice.
        piece = read(max(READ_BYTES, len(text) - at))
        is_over = not piece
        try:
            text, at = text[at:] + decode(piece, is_over), 0
        except UnicodeDecodeError:
            raise NotAnExportError("it is not text in UTF-8.") from None


def _is_chat(item: object) -> bool:
    if not isinstance(item, dict):
        return False
    chat = item.get("chat", item)
    return isinstance(chat, dict) and bool({"history", "messages"} & chat.keys())


def read_chat(item: Mapping[str, Any]) -> Chat:
    """A chat as it is exported, or a `BrokenChatError`."""
    if not _is_chat(item):
        raise BrokenChatError("it is not a chat")
    # Some exports are of what is in a chat alone.
    item = item if "chat" in item else {**item, "chat": item}
    try:
        exported = ExportedChat.model_validate(_clean(item))
    except ValidationError as error:
        problem = error.errors()[0]
        raise BrokenChatError(f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}") from error
    except RecursionError:
        raise BrokenChatError("it is nested too deeply") from None
    conversation = exported.chat
    chat_id = exported.id or conversation.id
    if not chat_id or len(chat_id) > MAX_ID_CHARS or not chat_id.isprintable():
        raise BrokenChatError(f"it has no id of at most {MAX_ID_CHARS} characters")
    if len(exported.user_id) > MAX_USER_CHARS:
        raise BrokenChatError(f"its user_id has more than {MAX_USER_CHARS} characters")
    title = " ".join((exported.title or conversation.title).split())[:MAX_TITLE_CHARS]
    return Chat(
        id=chat_id.lower() if UUID4.fullmatch(chat_id) else chat_id,
        user_id=exported.user_id.strip(),
        title="" if title == UNTITLED else title,
        is_pinned=exported.pinned is True,
        created_at=exported.created_at,
        updated_at=exported.updated_at,
        said=_said_in(conversation),
    )


def _said_in(conversation: ExportedConversation) -> list[Said]:
    history = conversation.history
    if history is None or not history.messages:
        # One after the other.
        keys = [str(number) for number in range(len(conversation.messages))]
        messages = {
            key: message.model_copy(update={"parent": before})
            for key, before, message in zip(keys, [None, *keys], conversation.messages, strict=False)
        }
        return _tree(messages, current=keys[-1] if keys else "")
    return _tree(history.messages, current=history.current)


def _tree(messages: Mapping[str, ExportedMessage], *, current: str) -> list[Said]:
    below: dict[str | None, list[str]] = {}
    for key, message in messages.items():
        # A message that follows one that is gone is a beginning.
        below.setdefault(message.parent if message.parent in messages else None, []).append(key)
    said: dict[str, Said | None] = {}
    reached = list(below.get(None, []))
    for key in reached:
        parent = messages[key].parent
        before = said.get(parent) if parent is not None else None
        # Those that say nothing, or come from tools, are passed over; what follows them follows what they follow.
        said[key] = _read(key, messages[key], parent=before) or before
        reached += below.get(key, [])
    if len(reached) < len(messages):
        raise BrokenChatError("its messages follow each other in a circle")
    found = [one for key in reached if (one := said[key]) and one.key == key]
    last = said.get(current) or _newest_end(found)
    while last:
        last.is_shown, last = True, last.parent
    return found


def _newest_end(found: Sequence[Said]) -> Said | None:
    """As OpenWebUI chooses where a chat does not say which branch is shown."""
    followed = {one.parent for one in found}
    ends = (one for one in found if one not in followed)
    return max(ends, key=lambda one: one.time or FIRST_MOMENT, default=None)


def _read(key: str, message: ExportedMessage, *, parent: Said | None) -> Said | None:
    if message.role == Role.USER:
        return _question(key, message, parent=parent)
    if message.role == Role.ASSISTANT:
        return _answer(key, message, parent=parent)
    return None


def _question(key: str, message: ExportedMessage, *, parent: Said | None) -> Said | None:
    contents = read_contents(message.content)
    names = [str(file.get("name") or "")[:MAX_NAME_CHARS] for file in message.files]
    urls = [str(file.get("url", "")) for file in message.files]
    images = [read_image(url, name=name) for url, name in zip(urls, names, strict=True) if DATA_URI.match(url)]
    # A file that was uploaded is not in the export, be it an image or not; its name is.
    absent = [name for url, name in zip(urls, names, strict=True) if name and not DATA_URI.match(url)]
    files = dict.fromkeys([*contents.files, *absent])
    text = contents.text.strip() or (IMAGE_ALONE if any(map(_is_picture, message.files)) else "")
    if not text:
        return None
    metadata = {"files": list(files)} if files else {}
    came_along = (*contents.images, *images)
    return Said(key, parent, Role.USER, text, (text,), Status.COMPLETE, metadata, came_along, message.timestamp)


def _is_picture(file: Mapping[str, Any]) -> bool:
    return file.get("type") == "image" or str(file.get("content_type", "")).startswith("image/")


def _answer(key: str, message: ExportedMessage, *, parent: Said | None) -> Said:
    replayed = _pieces(message.output) or (read_contents(message.content).text,)
    text = without_reasoning("\n".join(replayed), folded=FOLDED).strip()
    metadata: dict[str, Any] = {"model": message.model} if message.model else {}
    if citations := read_citations(message.sources or message.citations):
        metadata["citations"] = citations
    if message.error:
        metadata["error"] = _reason(message.error)
    is_whole = not message.error and message.done is not False and bool(text)
    status = Status.COMPLETE if is_whole else Status.FAILED if message.error and not text else Status.INTERRUPTED
    return Said(key, parent, Role.ASSISTANT, text, replayed, status, metadata, (), message.timestamp)


def _pieces(output: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """What was said between the calls of tools that came to a result."""
    calls = {str(item.get("call_id")) for item in output if item.get("status") in ENDED}
    pieces = [""]
    for item in output:
        if item.get("type") == "function_call_output" and str(item.get("call_id")) in calls:
            pieces.append("")
        elif item.get("type") == "message":
            said = "".join(str(part.get("text") or "") for part in _list(item.get("content")) if isinstance(part, dict))
            pieces[-1] = "\n".join(filter(None, (pieces[-1], said)))
    return tuple(piece for piece in pieces if piece.strip())


def _reason(error: object) -> str:
    reason = error.get("content", error) if isinstance(error, dict) else error
    return (reason if isinstance(reason, str) else json.dumps(reason))[:MAX_ERROR_CHARS]


def read_citations(sources: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Sources as EVI's own citations. OpenWebUI numbers them by their ids, in the order they come."""
    citations: dict[str, dict[str, Any]] = {}
    for entry in sources:
        source = _object(entry.get("source"))
        documents, details, distances = (_list(entry.get(name)) for name in ("document", "metadata", "distances"))
        for number, document in enumerate(documents or [""]):
            about = _object(details[number] if number < len(details) else None)
            distance = distances[number] if number < len(distances) else None
            source_id = _first(about.get("source"), source.get("id"), source.get("name")) or "N/A"
            url = _first(*(url for url in (source.get("url"), about.get("url"), source_id) if WEB.fullmatch(str(url))))
            name = _first(about.get("name"), source.get("name"), url, source_id)
            # EVI's own say which norm they are from, and name their section after their title.
            title, _, section = name.partition(" – ") if "norm" in about else (name, "", "")
            citations.setdefault(
                source_id,
                {
                    "marker": len(citations) + 1,
                    "source": _first(about.get("norm"), url, name),
                    "chunk_id": source_id,
                    "similarity": distance if isinstance(distance, int | float) and math.isfinite(distance) else None,
                    "document_title": title,
                    "section": section,
                    "norm": _first(about.get("norm")),
                    "version": _first(about.get("version")),
                    "url": url,
                    "excerpt": Truncator(_first(document)).chars(EXCERPT_CHARS),
                },
            )
    return list(citations.values())


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _first(*values: object) -> str:
    return next((value for value in values if isinstance(value, str) and value.strip()), "")
