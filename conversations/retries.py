"""Repeated requests: which question was asked before, and what became of it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING
from uuid import UUID

from django.utils import timezone

from agentbridge.database import in_database
from conversations.errors import SessionNotFoundError
from conversations.models import Message, Role

if TYPE_CHECKING:
    from conversations.openings import TurnRequest

# Clients give up repeating long before; a later request with the same words is meant anew.
RETRY_WINDOW = timedelta(minutes=10)


@dataclass(frozen=True)
class Attempt:
    """A question that was stored, with its answer if there is one."""

    question: Message
    answer: Message | None

    @classmethod
    def of(cls, question: Message) -> Attempt:
        answer = Message.objects.active().filter(reply_to=question.id).order_by("created_at", "seq").last()
        return cls(question, answer)


def request_key(*, owner_id: int | None, user_id: str, idempotency_key: str) -> str:
    """What a question with an Idempotency-Key is known by; keys of two people never meet."""
    if not idempotency_key:
        return ""
    return hashlib.sha256(f"{owner_id}\0{user_id}\0{idempotency_key}".encode()).hexdigest()


async def earlier_attempt(request: TurnRequest) -> Attempt | None:
    """What became of this question, if it was asked before."""
    if request.continues:
        # More of an answer is wanted, and not the answer once more.
        return None
    if request.idempotency_key:
        return await in_database(find_by_key, request.request_key, owner_id=request.owner_id, user_id=request.user_id)
    if not request.is_retry:
        return None
    return await in_database(
        find_repeated,
        owner_id=request.owner_id,
        user_id=request.user_id,
        session_id=request.session_id,
        prompt=request.prompt,
        position=len(request.history),
    )


def find_by_key(key: str, *, owner_id: int | None, user_id: str) -> Attempt | None:
    question = Message.objects.filter(request_key=key).select_related("session").first()
    if question and (question.session.owner_id, question.session.user_id) != (owner_id, user_id):
        # The session was handed over, and its questions went along.
        raise SessionNotFoundError(question.session_id)
    return Attempt.of(question) if question else None


def find_repeated(
    *, owner_id: int | None, user_id: str, session_id: UUID | None, prompt: str, position: int
) -> Attempt | None:
    """The same question at the same place, asked a moment ago: at the end of its session, or of a new one.

    `position` is how many messages the client says came before it, which tells the place where there is no session id.
    """
    questions = (
        Message.objects.active()
        .for_owner(owner_id, user_id=user_id)
        .filter(role=Role.USER, created_at__gt=timezone.now() - RETRY_WINDOW)
    )
    if session_id:
        last = questions.filter(session_id=session_id).order_by("-created_at", "-seq").first()
        return Attempt.of(last) if last and last.content == prompt else None
    for question in questions.filter(content=prompt).order_by("-created_at", "-seq")[:10]:
        earlier = Message.objects.active().with_words()
        before = earlier.last_in_session(question.session_id, limit=position + 1, before=question)
        if len(before) == position:
            return Attempt.of(question)
    return None
