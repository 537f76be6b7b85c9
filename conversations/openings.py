"""The opening of a turn: where a question belongs, and what was said before it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cached_property
from typing import Any
from uuid import UUID, uuid4
from weakref import WeakValueDictionary

from django.conf import settings
from django.db import IntegrityError, connection, transaction
from django.utils import timezone

from agentbridge.database import in_database
from agentbridge.said import HistoryItem, Image
from agentbridge.tokens import count_tokens, within_budget
from conversations import attachments
from conversations.branches import Branch, find_thread, reconcile
from conversations.errors import SessionBusyError, SessionNotFoundError
from conversations.models import Beginning, Channel, DivergedError, Fact, Message, Role, Session
from conversations.retries import request_key
from conversations.summaries import summary_before

# What was really said goes before what it is summarised to.
MOST_FOR_SUMMARY = 3
# How often those who wait for another process look whether it is done.
LOOK_AGAIN_SECONDS = 0.25


@dataclass(frozen=True)
class TurnRequest:
    """One question, and everything that decides where it belongs."""

    prompt: str
    images: Sequence[Image] = ()
    # What came along with the question: files by name, and as much of their text as the client hands over.
    files: tuple[str, ...] = ()
    attached_text: str = ""
    # What the client tells the model on its own account.
    instructions: str = ""
    session_id: UUID | None = None
    # What the channel itself calls the thread.
    external_id: str = ""
    # How long a thread is kept that its person does not want to keep.
    lifetime: timedelta | None = None
    owner_id: int | None = None
    user_id: str = ""
    # What the client tells about the person.
    person: Mapping[str, str] = field(default_factory=dict)
    channel: Channel = Channel.API
    create_unknown: bool = True
    # What the client says was said before. Of a whole thread it also says what was edited away or deleted.
    history: tuple[HistoryItem, ...] = ()
    is_whole_thread: bool = False
    # Whether the history ends with an answer that is to be gone on with. The prompt is then the question it answers.
    continues: bool = False
    store: bool = True
    # A repeated request is known by its key, or by being called one.
    idempotency_key: str = ""
    is_retry: bool = False
    # Whether it waits for its turn while another question in the same session is being answered.
    in_line: bool = False
    model_settings: Mapping[str, Any] = field(default_factory=dict)
    # What the surface wants kept with the answer.
    answer_metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def request_key(self) -> str:
        return request_key(owner_id=self.owner_id, user_id=self.user_id, idempotency_key=self.idempotency_key)

    @cached_property
    def branch(self) -> Branch:
        return Branch.of(self.history, owner_id=self.owner_id, user_id=self.user_id)

    @property
    def question_metadata(self) -> dict[str, Any]:
        return attachments.references(self.images) | ({"files": list(self.files)} if self.files else {})


@dataclass(frozen=True)
class Unfinished:
    """An answer that is to be gone on with."""

    text: str
    message_id: UUID | None = None
    citations: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True)
class Opening:
    """A question in its place, ready for the agent."""

    session_id: UUID | None
    question_id: UUID | None
    context: list[HistoryItem]
    context_tokens: int
    # Of all that was said, the question included; None where that is not known.
    branch_hash: UUID | None = None
    unfinished: Unfinished | None = None
    # Whether the question was stored before, and is asked again.
    is_repeated: bool = False
    # What is known of the person, the newest first.
    facts: tuple[str, ...] = ()
    # What was said before the context, in short.
    summary: tuple[HistoryItem, ...] = ()


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
    last = Message.objects.active().filter(session__in=mine).order_by("-created_at", "-seq").first()
    # A question older than that was left behind by a process that died.
    patience = timedelta(seconds=settings.EVI.model_timeout)
    if last and last.role == Role.USER and last.created_at > timezone.now() - patience:
        return None
    return open_turn(request)


def open_turn(request: TurnRequest) -> Opening:
    """Store the question in its place, and load what came before it."""
    session_id = _session_of(request)
    try:
        return _open(request, session_id=session_id)
    except IntegrityError as error:
        if not _is_of_thread(error):
            raise
        # There is a thread of that name: from a moment ago, or because its id was somebody else's then.
        request = replace(request, session_id=None)
        return _open(request, session_id=_session_of(request))
    except Session.DoesNotExist:
        if not request.external_id or request.session_id is None:
            raise SessionNotFoundError(session_id) from None
        # Somebody else has a session of this id. Theirs is a thread of its own.
        return open_turn(replace(request, session_id=None))


def _session_of(request: TurnRequest) -> UUID:
    """The session that the request names, or is about; an unused id where there is none."""
    if request.session_id:
        return request.session_id
    found: UUID | None = None
    if request.external_id:
        found = (
            Session.objects.for_owner(request.owner_id, user_id=request.user_id)
            .filter(channel=request.channel, external_id=request.external_id)
            .values_list("id", flat=True)
            .first()
        )
    elif request.is_whole_thread and request.history:
        found = find_thread(request.branch, question=request.prompt, owner_id=request.owner_id, user_id=request.user_id)
    return found or uuid4()


def _open(request: TurnRequest, *, session_id: UUID) -> Opening:
    create = request.create_unknown or request.session_id is None
    beginning = Beginning(
        external_id=request.external_id,
        expires_at=timezone.now() + request.lifetime if request.lifetime else None,
        metadata={"person": dict(request.person)} if request.person else {},
    )
    place = request.branch.place_of(request.prompt)
    # A client without a history of its own says nothing about what came before; only a new session is known to be one.
    knows_place = request.is_whole_thread or (request.session_id is None and not request.external_id)
    if not request.continues:
        # A thread that is not at its beginning is not begun here, but taken in as a whole below.
        begin_it = create and (place.is_first or not request.is_whole_thread)
        try:
            with transaction.atomic() if request.images or connection.in_atomic_block else nullcontext():
                start = Session.objects.begin_turn(
                    session_id=session_id,
                    owner_id=request.owner_id,
                    user_id=request.user_id,
                    channel=request.channel,
                    beginning=beginning,
                    create=begin_it,
                    content=request.prompt,
                    metadata=request.question_metadata,
                    request_key=request.request_key,
                    place=place if knows_place else None,
                )
                attachments.store(request.images, session_id)
            branch_hash = place.branch_hash if knows_place else None
            return opening_of(
                request,
                _history(start.context),
                session_id=session_id,
                question_id=start.question_id,
                branch_hash=branch_hash,
                facts=start.facts,
                summary=summary_before(start.context, session_id=session_id),
            )
        except Session.DoesNotExist:
            if begin_it:
                raise
        except DivergedError:
            if (again := _session_of(request)) != session_id:
                # It was found by what was said in it, and meanwhile somebody else went on there.
                return _open(request, session_id=again)
    with transaction.atomic():
        Session.objects.touch(
            session_id=session_id,
            owner_id=request.owner_id,
            user_id=request.user_id,
            channel=request.channel,
            beginning=beginning,
            create=create,
        )
        return _reconciled(request, session_id=session_id)


def _reconciled(request: TurnRequest, *, session_id: UUID) -> Opening:
    attachments.store(request.images, session_id)
    reconciled = reconcile(
        request.branch,
        session_id=session_id,
        question=request.prompt,
        question_metadata=request.question_metadata,
        request_key=request.request_key,
        continues=request.continues,
    )
    question, unfinished = reconciled.question, reconciled.unfinished
    context = (
        Message.objects.active()
        .with_words()
        .last_in_session(session_id, limit=settings.EVI.context_messages, before=None if unfinished else question)
    )
    return opening_of(
        request,
        _history(context),
        session_id=session_id,
        question_id=question.id,
        branch_hash=question.branch_hash,
        # As the client has it: of an answer that broke off, the last words may not have reached it.
        unfinished=Unfinished(request.branch.said[-1].content, unfinished.id, unfinished.citations)
        if unfinished
        else None,
        is_repeated=reconciled.is_repeated,
        facts=_facts_of(request),
        summary=summary_before(context, session_id=session_id),
    )


def reopen_turn(question: Message, request: TurnRequest) -> Opening:
    """A stored question once more, with what came before it."""
    # What was said to it before is not what it is told in the end.
    Message.objects.active().filter(reply_to=question.id).update(superseded_by=question.id)
    context = (
        Message.objects.active()
        .with_words()
        .last_in_session(question.session_id, limit=settings.EVI.context_messages, before=question)
    )
    return opening_of(
        request,
        _history(context),
        session_id=question.session_id,
        question_id=question.id,
        branch_hash=question.branch_hash,
        facts=_facts_of(request),
        summary=summary_before(context, session_id=question.session_id),
    )


def open_unstored(request: TurnRequest) -> Opening:
    """A turn of which nothing is kept: the request is all there is."""
    history = request.history
    recent = history[-settings.EVI.context_messages :] if settings.EVI.context_messages else ()
    if not settings.EVI.model_sees_images:
        recent = tuple(replace(item, images=()) for item in recent)
    unfinished = Unfinished(history[-1].content) if request.continues else None
    return opening_of(request, recent, unfinished=unfinished)


def opening_of(
    request: TurnRequest,
    said: Sequence[HistoryItem],
    *,
    session_id: UUID | None = None,
    question_id: UUID | None = None,
    branch_hash: UUID | None = None,
    unfinished: Unfinished | None = None,
    is_repeated: bool = False,
    facts: tuple[str, ...] = (),
    summary: str = "",
) -> Opening:
    budget = settings.EVI.context_tokens
    in_short = (HistoryItem(Role.SYSTEM, summary),) if summary else ()
    for_summary = sum(count_tokens(item.content) for item in in_short)
    if for_summary > budget / MOST_FOR_SUMMARY:
        in_short, for_summary = (), 0
    context, tokens = within_budget(said, question=request.prompt, budget=budget - for_summary)
    if unfinished and [item.content for item in context[-1:]] != [unfinished.text]:
        # However little fits: who goes on with an answer has to know it, and what it answers.
        context = [HistoryItem(Role.USER, request.prompt), HistoryItem(Role.ASSISTANT, unfinished.text)]
    return Opening(
        session_id, question_id, context, tokens + for_summary, branch_hash, unfinished, is_repeated, facts, in_short
    )


def _facts_of(request: TurnRequest) -> tuple[str, ...]:
    return Fact.objects.for_owner(request.owner_id, user_id=request.user_id).told()


def _history(messages: Sequence[Message]) -> list[HistoryItem]:
    # A model that cannot see images is not sent any.
    images = attachments.images_of(messages) if settings.EVI.model_sees_images else {}
    return [HistoryItem(message.role, message.content, images.get(message.id, ())) for message in messages]


def _is_of_thread(error: IntegrityError) -> bool:
    diagnosis = getattr(error.__cause__, "diag", None)
    return bool(diagnosis and diagnosis.constraint_name == "sessions_external_id_unique")
