"""A session as a conversation to read: the last messages, and earlier ones on demand."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from conversations.models import Message, Session

SHOWN_MESSAGES = 50


@dataclass(frozen=True)
class Entry:
    """A message with what is told of it."""

    message: Message
    citations: list[dict[str, Any]]
    raw_metadata: str
    model: str
    tokens: int | None
    seconds: float | None


@dataclass(frozen=True)
class Stretch:
    """A part of a conversation, oldest first, and whether there is more before it."""

    entries: list[Entry]
    has_earlier: bool

    # What was replaced as a whole is folded as a whole.
    @property
    def groups(self) -> list[tuple[bool, list[Entry]]]:
        groups: list[tuple[bool, list[Entry]]] = []
        for entry in self.entries:
            is_superseded = entry.message.superseded_by is not None
            if groups and groups[-1][0] and is_superseded:
                groups[-1][1].append(entry)
            else:
                groups.append((is_superseded, [entry]))
        return groups

    @property
    def first_id(self) -> UUID | None:
        return self.entries[0].message.pk if self.entries else None


def stretch_of(session: Session, *, before: UUID | None = None) -> Stretch:
    """The last messages, or the last before one of them. An unknown one is no message of this session."""
    bound = session.messages.filter(pk=before).first() if before else None
    if before and bound is None:
        raise Message.DoesNotExist(f"Message not found: {before}")
    messages = Message.objects.last_in_session(session.pk, limit=SHOWN_MESSAGES + 1, before=bound)
    return Stretch([entry_of(message) for message in messages[-SHOWN_MESSAGES:]], len(messages) > SHOWN_MESSAGES)


def entry_of(message: Message) -> Entry:
    known = message.details
    return Entry(
        message=message,
        citations=[cited for cited in message.citations if cited.get("source")],
        raw_metadata=json.dumps(message.metadata, ensure_ascii=False, indent=2) if message.metadata else "",
        model=known["model"] if isinstance(known.get("model"), str) else "",
        tokens=known["tokens_used"] if isinstance(known.get("tokens_used"), int) else None,
        seconds=_seconds(known.get("duration_ms")),
    )


def _seconds(milliseconds: object) -> float | None:
    # An imported message may bring any number, also one that is too large to divide.
    return max(0, min(milliseconds, 1e9)) / 1000 if isinstance(milliseconds, int | float) else None
