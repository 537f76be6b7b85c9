"""The opening of a turn: where a question belongs, and what was said before it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import UUID, uuid4
from weakref import WeakValueDictionary

from django.conf import settings
from django.db import connection, transaction
from django.utils import timezone

from agentbridge.database import in_database
from agentbridge.history import HistoryItem
from agentbridge.tokens import within_budget
from conversations.errors import SessionBusyError, SessionNotFoundError
from conversations.models import Channel, Message, Role, Session
from conversations.retries import request_key

# How often those who wait for another process look whether it is done.
LOOK_AGAIN_SECONDS = 0.25


@dataclass(frozen=True)
class TurnRequest:
    """One question, and everything that decides where it belongs."""

    prompt: str
    session_id: UUID | None = None
    owner_id: int | None = None
    user_id: str = ""
    channel: Channel = Channel.API
    create_unknown: bool = True
    # What the client says was said before. It begins a session that EVI does not have yet, and it is all there is
    # when nothing is to be stored.
    history: tuple[HistoryItem, ...] = ()
    store: bool = True
    # A repeated request is known by its key, or by being called one.
    idempotency_key: str = ""
    is_retry: bool = False
    # Whether it waits for its turn while another question in the same session is being answered.
    in_line: bool = False
    model_settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def request_key(self) -> str:
        return request_key(owner_id=self.owner_id, user_id=self.user_id, idempotency_key=self.idempotency_key)


@dataclass(frozen=True)
class Opening:
    """A question in its place, ready for the agent."""

    session_id: UUID | None
    question_id: UUID | None
    context: list[HistoryItem]
    context_tokens: int


# Who waits in this process for which session; a lock lets them through in the order they came.
_lines: WeakValueDictionary[UUID, asyncio.Lock] = WeakValueDictionary()


async def open_in_line(request: TurnRequest, *, session_id: UUID) -> Opening:
    """Open a turn when the question before it has its answer."""
    line = _lines.setdefault(session_id, asyncio.Lock())
    deadline = time.monotonic() + settings.EVI.model_timeout
    async with line:
        while (opening := await in_database(_open_if_free, request, session_id=session_id)) is None:
            if time.monotonic() > deadline:
                raise SessionBusyError(retry_after=round(settings.EVI.model_timeout))
            await asyncio.sleep(LOOK_AGAIN_SECONDS)
        return opening


@transaction.atomic
def _open_if_free(request: TurnRequest, *, session_id: UUID) -> Opening | None:
    """Open a turn, unless the session's last word is a question that may still be getting its answer."""
    with connection.cursor() as cursor:
        # From here to the end of the transaction nobody else in line looks at this session, which may not exist yet.
        cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [str(session_id)])
    mine = Session.objects.for_owner(request.owner_id, user_id=request.user_id).filter(id=session_id)
    last = Message.objects.filter(session__in=mine).order_by("-created_at", "-seq").first()
    # A question older than that was left behind by a process that died.
    patience = timedelta(seconds=settings.EVI.model_timeout)
    if last and last.role == Role.USER and last.created_at > timezone.now() - patience:
        return None
    return open_turn(request)


def open_turn(request: TurnRequest) -> Opening:
    """Store the question and load what came before it."""
    session_id = request.session_id or uuid4()
    begin = partial(
        Session.objects.begin_turn,
        session_id=session_id,
        content=request.prompt,
        owner_id=request.owner_id,
        user_id=request.user_id,
        channel=request.channel,
        create=request.create_unknown or request.session_id is None,
        request_key=request.request_key,
    )
    try:
        if request.history and request.session_id is None:
            with transaction.atomic():
                Session.objects.take_in(
                    session_id=session_id,
                    owner_id=request.owner_id,
                    user_id=request.user_id,
                    channel=request.channel,
                    said=[(item.role, item.content) for item in request.history],
                )
                start = begin()
        else:
            start = begin()
    except Session.DoesNotExist:
        raise SessionNotFoundError(session_id) from None
    return opening_of(request, _history(start.context), session_id=session_id, question_id=start.question_id)


def reopen_turn(question: Message, request: TurnRequest) -> Opening:
    """A stored question once more, with what came before it."""
    context = Message.objects.last_in_session(question.session_id, limit=settings.EVI.context_messages, before=question)
    return opening_of(request, _history(context), session_id=question.session_id, question_id=question.id)


def opening_of(
    request: TurnRequest,
    said: Sequence[HistoryItem],
    *,
    session_id: UUID | None = None,
    question_id: UUID | None = None,
) -> Opening:
    context, tokens = within_budget(said, question=request.prompt, budget=settings.EVI.context_tokens)
    return Opening(session_id, question_id, context, tokens)


def _history(messages: Sequence[Message]) -> list[HistoryItem]:
    return [HistoryItem(role=message.role, content=message.content) for message in messages]
