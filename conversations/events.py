"""What happens in a turn, as those who listen are told."""

from dataclasses import dataclass, field
from typing import Any
from uuid import UUID


@dataclass(frozen=True)
class Started:
    """The question is stored; the answer follows."""

    session_id: UUID | None
    messages_in_context: int
    # What the answer will be called, also where it is not stored.
    message_id: UUID


@dataclass(frozen=True)
class Progress:
    """What EVI is doing while there is nothing to read yet, and how to say that it is done."""

    text: str
    done: str


@dataclass(frozen=True)
class Delta:
    """Some more of the answer."""

    text: str


@dataclass(frozen=True)
class Reply:
    """The end of a turn."""

    session_id: UUID | None
    text: str
    model: str
    messages_in_context: int
    input_tokens: int
    output_tokens: int
    message_id: UUID
    citations: list[dict[str, Any]] = field(default_factory=list)
    search_results: dict[str, Any] = field(default_factory=dict)


Event = Started | Progress | Delta | Reply
