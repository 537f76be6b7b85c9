"""The turn, once, for every surface: resolve the session → store and load → run the agent → store."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Any, ClassVar
from uuid import UUID

from django.conf import settings
from django.db import IntegrityError, InterfaceError, OperationalError
from pydantic_ai import exceptions as model_errors

from agentbridge import agent
from agentbridge.database import in_database
from agentbridge.providers import configured_model
from conversations.errors import (
    BadRequestError,
    DatabaseAwayError,
    EviError,
    ModelFailedError,
    ModelTimeoutError,
    ModelUnavailableError,
)
from conversations.models import Message, Session, Status
from conversations.openings import (
    LOOK_AGAIN_SECONDS,
    Opening,
    TurnRequest,
    open_in_line,
    open_turn,
    opening_of,
    reopen_turn,
)
from conversations.retries import Attempt, find_by_key, find_repeated

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Started:
    """The question is stored; the answer follows."""

    session_id: UUID | None
    messages_in_context: int


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
    citations: list[dict[str, Any]] = field(default_factory=list)
    search_results: dict[str, Any] = field(default_factory=dict)


Event = Started | Delta | Reply


async def run_turn(request: TurnRequest) -> Reply:
    """The whole answer. A client that leaves meanwhile finds it in the session."""
    turn = await _turn_for(request)
    # For good: whoever else listens and leaves, this answer is made to its end.
    turn.listeners += 1
    async for event in turn.events():
        if isinstance(event, Reply):
            return event
    raise AssertionError("a turn ends with a reply or an error")


async def stream_turn(request: TurnRequest) -> AsyncGenerator[Event]:
    """The answer as it comes. When the last listener leaves, what was said so far is kept as interrupted."""
    turn = await _turn_for(request)
    turn.listeners += 1
    try:
        async for event in turn.events():
            yield event
    finally:
        turn.listeners -= 1
        if not turn.listeners:
            await turn.break_off()


class Turn:
    """A turn under way, in a task of its own: its clients come and go, its writes are never torn."""

    # Those of this process, by question: a repeated request joins the one that runs.
    under_way: ClassVar[dict[UUID, Turn]] = {}

    def __init__(self, opening: Opening, request: TurnRequest) -> None:
        self.opening = opening
        self.request = request
        self.listeners = 0
        self._events: list[Event | EviError] = [Started(opening.session_id, len(opening.context))]
        self._more = asyncio.Event()
        self._task = asyncio.create_task(self._run())
        if question_id := opening.question_id:
            self.under_way[question_id] = self
            self._task.add_done_callback(lambda task: self.under_way.pop(question_id, None))

    async def events(self) -> AsyncGenerator[Event]:
        """All of it from the beginning, whenever the listener came."""
        position = 0
        while True:
            more = self._more
            while position < len(self._events):
                event = self._events[position]
                position += 1
                if isinstance(event, EviError):
                    raise event
                yield event
                if isinstance(event, Reply):
                    return
            await more.wait()

    async def break_off(self) -> None:
        """End a turn that still runs, and wait until what it said is stored."""
        self._task.cancel()
        await asyncio.shield(asyncio.wait([self._task]))

    def _emit(self, event: Event | EviError) -> None:
        self._events.append(event)
        self._more.set()
        self._more = asyncio.Event()

    async def _run(self) -> None:
        try:
            self._emit(await self._answer())
        except EviError as error:
            self._emit(error)
        except (OperationalError, InterfaceError):
            logger.exception("A turn lost the database")
            self._emit(DatabaseAwayError())
        except asyncio.CancelledError:
            # Somebody may have come to listen in the last moment.
            self._emit(EviError("The answer was broken off. Please ask again."))
            raise

    async def _answer(self) -> Reply:
        said = ""
        answer = None
        try:
            async with asyncio.timeout(settings.EVI.model_timeout):
                async for event in agent.answer(
                    self.request.prompt,
                    history=self.opening.context,
                    model=configured_model(),
                    model_settings=self.request.model_settings,
                ):
                    if isinstance(event, agent.Piece):
                        said += event.text
                        self._emit(Delta(event.text))
                    else:
                        answer = event
        except asyncio.CancelledError:
            await self._store(said, status=Status.INTERRUPTED)
            raise
        except (model_errors.AgentRunError, model_errors.FallbackExceptionGroup, TimeoutError, OSError) as error:
            logger.warning("The model failed: %r", error)
            # What was said before it failed is worth keeping; a failure without a word is kept as just that.
            status = Status.INTERRUPTED if said else Status.FAILED
            await self._store(said, status=status, metadata={"error": type(error).__name__})
            raise _explained(error) from error
        except Exception as error:
            # EVI's own fault. The question has its end all the same, and the next one does not wait for it.
            logger.exception("A turn failed")
            await self._store(said, status=Status.FAILED, metadata={"error": type(error).__name__})
            raise EviError("Something went wrong on EVI's side. Please try again.") from error
        assert answer
        reply = Reply(
            session_id=self.opening.session_id,
            text=answer.text,
            model=answer.model,
            messages_in_context=len(self.opening.context),
            input_tokens=answer.input_tokens,
            output_tokens=answer.output_tokens,
            citations=answer.citations,
            search_results=answer.search_results,
        )
        await self._store(answer.text, status=Status.COMPLETE, metadata=_metadata(reply, self.opening))
        return reply

    async def _store(self, text: str, *, status: Status, metadata: dict[str, Any] | None = None) -> None:
        opening = self.opening
        if opening.session_id is None:
            return
        write = in_database(
            Session.objects.finish_turn,
            session_id=opening.session_id,
            content=text,
            status=status,
            metadata=metadata,
            reply_to=opening.question_id,
        )
        # Whoever leaves at this moment, the write goes on to its end.
        await asyncio.shield(asyncio.ensure_future(write))


class StoredTurn:
    """A turn that ended before, for those who ask again."""

    def __init__(self, reply: Reply) -> None:
        self.reply = reply
        self.listeners = 0

    async def events(self) -> AsyncGenerator[Event]:
        yield Started(self.reply.session_id, self.reply.messages_in_context)
        yield Delta(self.reply.text)
        yield self.reply

    async def break_off(self) -> None:
        pass


async def _turn_for(request: TurnRequest) -> Turn | StoredTurn:
    """A new turn, or the one that this request asks for again."""
    if not request.store:
        recent = request.history[-settings.EVI.context_messages :] if settings.EVI.context_messages else ()
        return Turn(opening_of(request, recent), request)
    # A client that leaves while its question is being stored has asked it all the same.
    return await asyncio.shield(asyncio.ensure_future(_stored_turn(request)))


async def _stored_turn(request: TurnRequest) -> Turn | StoredTurn:
    if attempt := await _earlier_attempt(request):
        return await _take_up(attempt, request)
    try:
        if request.in_line and request.session_id:
            opening = await open_in_line(request, session_id=request.session_id)
        else:
            opening = await in_database(open_turn, request)
    except IntegrityError:
        # The same key, a moment ago.
        attempt = await _earlier_attempt(request)
        if attempt is None:
            raise
        return await _take_up(attempt, request)
    return Turn(opening, request)


async def _earlier_attempt(request: TurnRequest) -> Attempt | None:
    if request.idempotency_key:
        return await in_database(find_by_key, request.request_key)
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


async def _take_up(attempt: Attempt, request: TurnRequest) -> Turn | StoredTurn:
    """Join the turn that answers this question, wait for it, or answer the question anew if that came to nothing."""
    question = attempt.question
    if question.content != request.prompt:
        raise BadRequestError("This Idempotency-Key was used for another question.", param="Idempotency-Key")
    deadline = question.created_at.timestamp() + settings.EVI.model_timeout
    while attempt.answer is None:
        if running := Turn.under_way.get(question.id):
            return running
        if time.time() > deadline:
            break
        # Another process may be at it.
        await asyncio.sleep(LOOK_AGAIN_SECONDS)
        attempt = await in_database(Attempt.of, question)
    if attempt.answer and attempt.answer.status == Status.COMPLETE:
        return StoredTurn(_stored_reply(attempt.answer))
    return Turn(await in_database(reopen_turn, question, request), request)


def _metadata(reply: Reply, opening: Opening) -> dict[str, Any]:
    return {
        "citations": reply.citations,
        "search_results": reply.search_results,
        "model": reply.model,
        "tokens_used": reply.input_tokens + reply.output_tokens,
        "input_tokens": reply.input_tokens,
        "output_tokens": reply.output_tokens,
        "messages_in_context": reply.messages_in_context,
        "context_tokens": opening.context_tokens,
    }


def _stored_reply(answer: Message) -> Reply:
    known = answer.metadata
    return Reply(
        session_id=answer.session_id,
        text=answer.content,
        model=known.get("model", ""),
        messages_in_context=known.get("messages_in_context", 0),
        input_tokens=known.get("input_tokens", 0),
        output_tokens=known.get("output_tokens", 0),
        citations=known.get("citations", []),
        search_results=known.get("search_results", {}),
    )


def _explained(error: BaseException) -> EviError:
    """A model's failure in words for the client, who can do no more than wait or ask again."""
    if isinstance(error, model_errors.FallbackExceptionGroup):
        return _explained(error.exceptions[-1])
    if isinstance(error, TimeoutError | model_errors.ModelTimeoutError | model_errors.ModelRequestTimeout):
        return ModelTimeoutError("The model took too long to answer. Please try again.")
    unreachable = (
        model_errors.ModelUnavailableError,
        model_errors.ModelConnectionError,
        model_errors.ModelRateLimitError,
        OSError,
    )
    if isinstance(error, unreachable):
        return ModelUnavailableError("The model cannot be reached at the moment. Please try again in a minute.")
    return ModelFailedError("The model could not answer this question. Please try again.")
