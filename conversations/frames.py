"""What goes over `ws/chat/`, as docs/websocket.md describes it: the client's frames, and EVI's events as frames."""

import json
from collections.abc import Iterator
from typing import Annotated, Any, Literal, Self
from uuid import UUID

from django.conf import settings
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Field,
    TypeAdapter,
    ValidationError,
    field_validator,
    model_validator,
)

from agentbridge.said import HistoryItem
from conversations.api.access import UUID4
from conversations.api.openai_shape import usage
from conversations.errors import BadRequestError, EviError, TooLargeError
from conversations.events import Delta, Event, Progress, Reply, Started


def _hyphenated(text: object) -> object:
    if not (isinstance(text, str) and UUID4.fullmatch(text)):
        raise ValueError("it must be a UUID of version 4")
    return text


# A stored answer comes as one event, and is told in as many pieces as its reader takes in.
MOST_CHARS = 4000
Id = Annotated[UUID, BeforeValidator(_hyphenated)]


def _storable(text: str) -> str:
    if "\0" in text:
        raise ValueError("text cannot contain NUL characters")
    return text


def _not_too_long(text: str) -> str:
    if len(text) > settings.EVI.max_message_chars:
        raise ValueError(f"at most {settings.EVI.max_message_chars} characters")
    return text


# What was said before may be longer than a question: an answer has as many characters as a model gives it.
Text = Annotated[str, AfterValidator(_storable)]
Question = Annotated[Text, AfterValidator(_not_too_long)]


class Said(BaseModel):
    role: Literal["user", "assistant"]
    content: Text


class Authenticate(BaseModel):
    type: Literal["authenticate"]
    key: str = Field(min_length=1, max_length=500)
    user: str | None = None


class Ask(BaseModel):
    type: Literal["ask"]
    id: Id
    session_id: Id | None = None
    text: Question
    history: list[Said] | None = None
    # The message that the question comes after; null before the first one, and left out at the end of the session.
    after: UUID | None = None

    @field_validator("text")
    @classmethod
    def _not_blank(cls, text: str) -> str:
        if not text.strip():
            raise ValueError("it is empty")
        return text

    @field_validator("history")
    @classmethod
    def _not_too_many(cls, history: list[Said] | None) -> list[Said] | None:
        if history and len(history) > settings.EVI.max_messages:
            raise ValueError(f"at most {settings.EVI.max_messages} messages")
        return history

    @model_validator(mode="after")
    def _at_one_place(self) -> Self:
        if self.names_place and self.history is not None:
            raise ValueError("send history or after, not both")
        if self.after and not self.session_id:
            raise ValueError("after needs the session_id that the message is in")
        return self

    @property
    def names_place(self) -> bool:
        return "after" in self.model_fields_set

    @property
    def said_before(self) -> tuple[HistoryItem, ...]:
        return tuple(HistoryItem(said.role, said.content) for said in self.history or ())


class Resume(Ask):
    type: Literal["resume"]  # type: ignore[assignment]  # all else is as with a question
    received: int = Field(0, ge=0)
    # The answer that the characters are of.
    message_id: Id | None = None


class Cancel(BaseModel):
    type: Literal["cancel"]
    id: Id


Frame = Authenticate | Ask | Resume | Cancel
_frames: TypeAdapter[Frame] = TypeAdapter(Annotated[Frame, Field(discriminator="type")])


def read_frame(text: str | None) -> Frame:
    if text is None:
        raise BadRequestError("Send JSON in text frames; binary frames are not read.")
    if len(text.encode(errors="replace")) > settings.EVI.max_body_bytes:
        raise TooLargeError(f"The frame is too large. Send at most {settings.EVI.max_body_bytes} bytes.")
    try:
        return _frames.validate_json(text)
    except ValidationError as error:
        problem = error.errors()[0]
        # The first place is the kind of frame.
        where = ".".join(map(str, problem["loc"][1:]))
        raise BadRequestError(f"{where or 'The frame'}: {problem['msg']}") from error


def id_in(text: str | None) -> str | None:
    """Which question a frame is about that cannot be read otherwise."""
    try:
        named = json.loads(text or "")["id"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return named.lower() if isinstance(named, str) and UUID4.fullmatch(named) else None


def error_frame(error: EviError, *, about: str | None = None) -> dict[str, Any]:
    frame: dict[str, Any] = {"type": "error", "status": error.status, "code": error.code, "message": error.message}
    if wait := error.headers.get("Retry-After"):
        frame["retry_after"] = int(wait)
    return frame | ({"id": about} if about else {})


class Telling:
    """A turn's events as frames, without the beginning that the client already has."""

    def __init__(self, about: str, *, received: int = 0, answer_id: UUID | None = None) -> None:
        self.about = about
        self.skipped = received
        self.answer_id = answer_id
        self.sent = 0
        self._when_done = ""

    def frames(self, event: Event) -> Iterator[dict[str, Any]]:
        for frame in self._frames(event):
            yield {"type": frame.pop("type"), "id": self.about, **frame}

    def _frames(self, event: Event) -> Iterator[dict[str, Any]]:
        if self._when_done:
            yield {"type": "status", "text": self._when_done, "done": True}
            self._when_done = ""
        match event:
            case Started():
                if self.answer_id not in (None, event.message_id):
                    # Another answer than the one that broke off: it is told from its beginning.
                    self.skipped = 0
                yield {
                    "type": "start",
                    "session_id": str(event.session_id),
                    "message_id": str(event.message_id),
                    "messages_in_context": event.messages_in_context,
                    "received": self.skipped,
                }
            case Progress(text=text, done=done):
                self._when_done = done
                yield {"type": "status", "text": text, "done": False}
            case Delta(text=text):
                known = min(len(text), max(0, self.skipped - self.sent))
                end = self.sent + len(text)
                self.sent += known
                while self.sent < end:
                    piece = text[len(text) - (end - self.sent) :][:MOST_CHARS]
                    self.sent += len(piece)
                    yield {"type": "delta", "text": piece, "received": self.sent}
            case Reply():
                for citation in event.citations:
                    yield {"type": "citation", "citation": citation}
                yield {
                    "type": "done",
                    "message_id": str(event.message_id),
                    "model": event.model,
                    "usage": usage(event),
                    "status": "complete",
                }
