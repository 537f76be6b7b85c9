"""The turn, once, for every surface: resolve the session → store and load → run the agent → store."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import Any, ClassVar
from uuid import UUID, uuid4

from django.conf import settings
from django.db import IntegrityError, InterfaceError, OperationalError
from django.utils import timezone
from pydantic_ai import exceptions as model_errors

from agentbridge import agent
from agentbridge.background import title_of
from agentbridge.database import in_database
from agentbridge.providers import configured_model
from agentbridge.said import HistoryItem
from conversations.branches import follow, spoken
from conversations.errors import (
    BadRequestError,
    BrokenOffError,
    DatabaseAwayError,
    EviError,
    ModelFailedError,
    ModelTimeoutError,
    ModelUnavailableError,
    OwnFaultError,
)
from conversations.events import Delta, Event, Progress, Reply, Started
from conversations.farewell import PATIENCE_SECONDS
from conversations.live import announcer
from conversations.memory import memory_of
from conversations.models import Message, Role, Session, Status
from conversations.openings import (
    LOOK_AGAIN_SECONDS,
    Opening,
    TurnRequest,
    open_in_line,
    open_turn,
    open_unstored,
    reopen_turn,
)
from conversations.retries import Attempt, earlier_attempt

logger = logging.getLogger(__name__)

KEY_USED = "This Idempotency-Key was used for another question."


async def run_turn(request: TurnRequest) -> Reply:
    """The whole answer. A client that leaves meanwhile finds it in the session."""
    turn = await turn_for(request)
    # For good: whoever else listens and leaves, this answer is made to its end.
    turn.listeners += 1
    return await reply_of(turn.events())


async def reply_of(events: AsyncIterator[Event]) -> Reply:
    async for event in events:
        if isinstance(event, Reply):
            return event
    raise AssertionError("a turn ends with a reply or an error")


async def stream_turn(request: TurnRequest) -> AsyncGenerator[Event]:
    """The answer as it comes. When the last listener leaves, what was said so far is kept as interrupted."""
    turn = await turn_for(request)
    turn.listeners += 1
    try:
        async for event in turn.events():
            yield event
    finally:
        await turn.leave()


class Turn:
    """A turn under way, in a task of its own: its clients come and go, its writes are never torn."""

    # Those of this process, by question: a repeated request joins the one that runs.
    under_way: ClassVar[dict[UUID, Turn]] = {}
    # All of this process, also those that are not stored.
    running: ClassVar[set[Turn]] = set()

    def __init__(self, opening: Opening, request: TurnRequest) -> None:
        self.opening = opening
        self.request = request
        self.listeners = 0
        self.answer_id = uuid4()
        self.began_at = timezone.now()
        self._began = time.monotonic()
        self._timing: dict[str, int] = {}
        self._cited: Sequence[dict[str, Any]] = ()
        self._events: list[Event | EviError] = [Started(opening.session_id, len(opening.context), self.answer_id)]
        self._more = asyncio.Event()
        self._task = asyncio.create_task(self._run())
        if question_id := opening.question_id:
            self.under_way[question_id] = self
            self._task.add_done_callback(lambda task: self._is_over(question_id))
        self.running.add(self)
        self._task.add_done_callback(lambda task: self.running.discard(self))
        announcer.began(self)
        self._task.add_done_callback(lambda task: announcer.ended(self))

    def _is_over(self, question_id: UUID) -> None:
        if self.under_way.get(question_id) is self:
            del self.under_way[question_id]

    @property
    def said(self) -> str:
        """What this turn has said so far."""
        return "".join(event.text for event in self._events if isinstance(event, Delta))

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

    def gives(self, opening: Opening) -> bool:
        """Whether this answer is the one that is asked for again: the whole of it, and one that somebody waits for."""
        return bool(self.listeners) and not self.opening.unfinished and not opening.unfinished

    async def leave(self) -> None:
        """One listener less. When the last one leaves, what was said so far is kept as interrupted."""
        self.listeners -= 1
        if not self.listeners:
            await self.break_off()

    async def break_off(self) -> None:
        """End a turn that still runs, and wait until what it said is stored."""
        self._task.cancel()
        await asyncio.shield(asyncio.wait([self._task]))

    @classmethod
    async def end_all(cls) -> None:
        """Before the process goes: each turn has a moment to come to its end, and is broken off after that."""
        if cls.running:
            await asyncio.wait([turn._task for turn in cls.running], timeout=PATIENCE_SECONDS)
        await asyncio.gather(*[turn.break_off() for turn in cls.running])

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
        except Exception:
            # Whatever it is, nobody waits for an end that does not come.
            logger.exception("A turn was not stored")
            self._emit(OwnFaultError())
        except asyncio.CancelledError:
            # Somebody may have come to listen in the last moment.
            self._emit(BrokenOffError())
            raise

    async def _answer(self) -> Reply:
        answer = None
        try:
            async with asyncio.timeout(settings.EVI.model_timeout):
                async for event in agent.answer(
                    self._question(),
                    history=[*self.opening.summary, *self.opening.context],
                    model=configured_model(),
                    model_settings=self.request.model_settings,
                    memory=memory_of(self.request, self.opening),
                ):
                    match event:
                        case agent.Progress(text=text, done=done):
                            self._emit(Progress(text, done))
                        case agent.Piece(text=text, citations=cited):
                            self._cited = cited
                            if not self._timing:
                                self._time("first_token_ms")
                            self._emit(Delta(text))
                        case agent.Answer():
                            answer = event
        except asyncio.CancelledError:
            await self._store_what_was_said()
            raise
        except (model_errors.AgentRunError, model_errors.FallbackExceptionGroup, TimeoutError, OSError) as error:
            logger.warning("The model failed: %r", error)
            await self._store_what_was_said(error)
            raise _explained(error) from error
        except Exception as error:
            # EVI's own fault. The question has its end all the same, and the next one does not wait for it.
            logger.exception("A turn failed")
            await self._store(self.said, status=Status.FAILED, metadata={"error": type(error).__name__})
            raise OwnFaultError() from error
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
            message_id=self.answer_id,
        )
        await self._store(answer.text, status=Status.COMPLETE, metadata=_metadata(reply, self.opening))
        return reply

    def _question(self) -> agent.Question:
        request, unfinished = self.request, self.opening.unfinished
        return agent.Question(
            text=request.prompt,
            images=request.images,
            files=request.files,
            attached_text=request.attached_text,
            instructions=request.instructions,
            so_far=unfinished.text if unfinished else "",
            citations=unfinished.citations if unfinished else (),
        )

    def _title(self) -> str:
        """What a session is called that nobody named: a few words of the first question that says something."""
        said = (*self.request.history, *self.opening.context, HistoryItem(Role.USER, self.request.prompt))
        titles = (title_of(item.content) for item in said if item.role == Role.USER)
        return next(filter(None, titles), "")

    def _time(self, what: str) -> None:
        self._timing[what] = round((time.monotonic() - self._began) * 1000)

    async def _store_what_was_said(self, error: BaseException | None = None) -> None:
        """What was said before it failed is worth keeping, with its sources; a failure without a word is just that."""
        earlier = self.opening.unfinished.citations if self.opening.unfinished else ()
        metadata: dict[str, Any] = {"citations": [*earlier, *self._cited]}
        if error:
            metadata["error"] = type(error).__name__
        status = Status.INTERRUPTED if self.said or not error else Status.FAILED
        await self._store(self.said, status=status, metadata=metadata)

    async def _store(self, text: str, *, status: Status, metadata: dict[str, Any] | None = None) -> None:
        opening = self.opening
        if opening.session_id is None:
            return
        if opening.unfinished:
            # More of an answer makes a longer one, which takes the place of the shorter.
            text = opening.unfinished.text + text
        self._time("duration_ms")
        branch_hash = opening.branch_hash
        write = in_database(
            Session.objects.finish_turn,
            session_id=opening.session_id,
            message_id=self.answer_id,
            content=text,
            status=status,
            metadata={**(metadata or {}), **self._timing, **self.request.answer_metadata},
            reply_to=opening.question_id,
            branch_hash=follow(branch_hash, Role.ASSISTANT, text) if branch_hash and spoken(text) else None,
            instead_of=opening.unfinished.message_id if opening.unfinished else None,
            title=self._title(),
        )
        # Whoever leaves at this moment, the write goes on to its end.
        await asyncio.shield(asyncio.ensure_future(write))


class StoredTurn:
    """A turn that ended before, for those who ask again."""

    def __init__(self, reply: Reply) -> None:
        self.reply = reply
        self.listeners = 0

    async def events(self) -> AsyncGenerator[Event]:
        yield Started(self.reply.session_id, self.reply.messages_in_context, self.reply.message_id)
        yield Delta(self.reply.text)
        yield self.reply

    async def leave(self) -> None:
        self.listeners -= 1

    async def break_off(self) -> None:
        pass


async def turn_for(request: TurnRequest) -> Turn | StoredTurn:
    """A new turn, or the one that this request asks for again."""
    if not request.store:
        # What a client brings may be long, and counting it keeps nobody else waiting.
        return Turn(await asyncio.to_thread(open_unstored, request), request)
    # A client that leaves while its question is being stored has asked it all the same.
    return await asyncio.shield(asyncio.ensure_future(_stored_turn(request)))


async def _stored_turn(request: TurnRequest) -> Turn | StoredTurn:
    if attempt := await earlier_attempt(request):
        return await _take_up(attempt, request)
    try:
        if request.in_line and request.session_id:
            opening = await open_in_line(request, session_id=request.session_id)
        else:
            opening = await in_database(open_turn, request)
    except IntegrityError:
        # The same key, a moment ago.
        attempt = await earlier_attempt(request)
        if attempt is None and request.continues and request.idempotency_key:
            raise BadRequestError(KEY_USED, param="Idempotency-Key") from None
        if attempt is None:
            raise
        return await _take_up(attempt, request)
    running = Turn.under_way.get(opening.question_id) if opening.question_id and opening.is_repeated else None
    if running and running.gives(opening):
        return running
    if running:
        # Nobody wants that answer any more; what was said of it is superseded as well.
        await running.break_off()
        opening = await in_database(open_turn, request)
    return Turn(opening, request)


async def _take_up(attempt: Attempt, request: TurnRequest) -> Turn | StoredTurn:
    """Join the turn that answers this question, wait for it, or answer the question anew if that came to nothing."""
    question = attempt.question
    if question.content != request.prompt:
        raise BadRequestError(KEY_USED, param="Idempotency-Key")
    deadline = question.created_at.timestamp() + settings.EVI.model_timeout
    while attempt.answer is None and question.id not in Turn.under_way:
        if time.time() > deadline:
            break
        # Another process may be at it.
        await asyncio.sleep(LOOK_AGAIN_SECONDS)
        attempt = await in_database(Attempt.of, question)
    if running := Turn.under_way.get(question.id):
        return running
    if attempt.answer and attempt.answer.status == Status.COMPLETE:
        return StoredTurn(stored_reply(attempt.answer))
    opening = await in_database(reopen_turn, question, request)
    # Of two that ask again at once, one was quicker.
    return Turn.under_way.get(question.id) or Turn(opening, request)


def _metadata(reply: Reply, opening: Opening) -> dict[str, Any]:
    return {
        "citations": [*(opening.unfinished.citations if opening.unfinished else ()), *reply.citations],
        "search_results": reply.search_results,
        "model": reply.model,
        "tokens_used": reply.input_tokens + reply.output_tokens,
        "input_tokens": reply.input_tokens,
        "output_tokens": reply.output_tokens,
        "messages_in_context": reply.messages_in_context,
        "context_tokens": opening.context_tokens,
    }


def stored_reply(answer: Message) -> Reply:
    """An answer of before, as it was given."""
    return Reply(
        session_id=answer.session_id,
        text=answer.content,
        model=answer.detail("model", ""),
        messages_in_context=answer.detail("messages_in_context", 0),
        input_tokens=answer.detail("input_tokens", 0),
        output_tokens=answer.detail("output_tokens", 0),
        citations=list(answer.citations),
        search_results=answer.detail("search_results", {}),
        message_id=answer.id,
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
