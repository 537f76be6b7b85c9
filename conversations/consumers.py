"""`ws/chat/`: the same turn over a WebSocket. The protocol is in docs/websocket.md."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, ClassVar
from uuid import UUID

from channels.exceptions import StopConsumer
from channels.generic.websocket import AsyncWebsocketConsumer
from django.conf import settings
from django.core.handlers.asgi import ASGIRequest
from django.db import InterfaceError, OperationalError

from agentbridge.database import in_database
from agentbridge.said import HistoryItem
from conversations.api.access import Client, Person, authenticate, caller_from_session, count, person_of
from conversations.branches import thread_up_to
from conversations.errors import (
    BadRequestError,
    DatabaseAwayError,
    EviError,
    NotAuthenticatedError,
    NotFoundError,
    OwnFaultError,
    TooManyRequestsError,
)
from conversations.frames import Ask, Authenticate, Cancel, Frame, Resume, Telling, error_frame, id_in, read_frame
from conversations.handshake import Pace, is_welcome, request_of, signed_in
from conversations.models import Channel, Message, MessageQuerySet
from conversations.openings import TurnRequest
from conversations.turns import StoredTurn, Turn, turn_for

logger = logging.getLogger(__name__)

SIGN_IN_SECONDS = 10
MAX_SOCKETS = 1000
MAX_SOCKETS_OF_A_CALLER = 50
MAX_TURNS_OF_A_SOCKET = 4
# A client that has got so many frames wrong in a row does not learn from being told.
MAX_MISTAKES = 100
# HTTP's, in the room that WebSocket has for applications.
UNACCEPTABLE, NOT_SIGNED_IN, TRY_LATER = 4400, 4401, 4429


@dataclass(frozen=True)
class Asked:
    """A question of this socket: its turn, once there is one, and the task that tells it."""

    turn: asyncio.Task[Turn | StoredTurn]
    telling: asyncio.Task[None]


class ChatConsumer(AsyncWebsocketConsumer):  # type: ignore[misc]  # Channels has no types
    # Nobody sends anything to a chat but its client.
    channel_layer_alias = ""
    open_sockets: ClassVar[Counter[tuple[int | None, str]]] = Counter()
    # All there are, also those that have not signed in.
    connected: ClassVar[set[ChatConsumer]] = set()
    # Turns whose client has gone and may come back.
    left: ClassVar[set[asyncio.Task[None]]] = set()

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        self.pace = Pace.of(send)
        self.request = request_of(scope)
        self.user: str | None = None
        self.caller: tuple[int | None, str] | None = None
        self.asked: dict[str, Asked] = {}
        self.tasks: set[asyncio.Task[None]] = set()
        self.mistakes = 0
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._is(None)
            self.connected.discard(self)

    async def connect(self) -> None:
        if not is_welcome(self.request):
            # Refused as a page of another site is, with a status of HTTP.
            await self.close()
            return
        await self.accept()
        if len(self.connected) >= MAX_SOCKETS:
            await self._turn_away("There are too many connections at the moment. Try again in a minute.")
            return
        self.connected.add(self)
        try:
            await self._identify()
        except NotAuthenticatedError:
            self._start(self._wait_for_key())
        except (EviError, OperationalError, InterfaceError) as error:
            await self._refuse(error)
            await self.close(TRY_LATER)

    async def disconnect(self, code: int) -> None:
        for asked in self.asked.values():
            asked.telling.cancel()
            leaving = asyncio.create_task(_leave_later(asked))
            self.left.add(leaving)
            leaving.add_done_callback(self.left.discard)

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        try:
            frame = read_frame(text_data)
            await self._do(frame)
            self.mistakes = 0
        except (EviError, OperationalError, InterfaceError) as error:
            self.mistakes += 1
            await self._refuse(error, about=id_in(text_data))

    async def _do(self, frame: Frame) -> None:
        match frame:
            case Authenticate():
                if self.asked:
                    raise BadRequestError("Authenticate before the first question, not while one is being answered.")
                self.request = request_of(self.scope, key=frame.key)
                self.user = frame.user
                await self._identify()
            case Cancel():
                asked = self.asked.get(str(frame.id))
                if asked is None:
                    raise NotFoundError("No such question is being answered on this connection.")
                self._start(self._cancel(str(frame.id), asked))
            case Ask():
                await self._ask(frame)

    async def _ask(self, frame: Ask) -> None:
        about = str(frame.id)
        if about in self.asked:
            raise BadRequestError("This question is being answered already. Give each one an id of its own.")
        if len(self.asked) >= MAX_TURNS_OF_A_SOCKET:
            raise TooManyRequestsError(retry_after=1)
        # A key that was revoked meanwhile opens nothing any more.
        client, person = await in_database(_caller, self.request, user=self.user)
        said_before = frame.said_before
        if frame.after and frame.session_id:
            mine = Message.objects.for_owner(client.owner_id, user_id=person.user_id).in_session(frame.session_id)
            said_before = await in_database(_said_up_to, frame.after, messages=mine)
        request = TurnRequest(
            prompt=frame.text,
            session_id=frame.session_id,
            owner_id=client.owner_id,
            user_id=person.user_id,
            person=person.about,
            in_line=client.in_line,
            channel=Channel.WEB,
            create_unknown=settings.EVI.unknown_session == "create",
            history=said_before,
            is_whole_thread=frame.history is not None or frame.names_place,
            idempotency_key=about,
        )
        telling = Telling(about)
        if isinstance(frame, Resume):
            telling = Telling(about, received=frame.received, answer_id=frame.message_id)
        turn = asyncio.create_task(_listened(request))
        self.asked[about] = Asked(turn, asyncio.create_task(self._tell(turn, telling)))

    async def _tell(self, opening: asyncio.Task[Turn | StoredTurn], telling: Telling) -> None:
        """A turn's events, each when the one before it has been taken in."""
        about = telling.about
        try:
            turn = await asyncio.shield(opening)
            async for event in turn.events():
                for frame in telling.frames(event):
                    await self.pace.free()
                    await self._say(frame)
            await turn.leave()
        except (EviError, OperationalError, InterfaceError) as error:
            await self._refuse(error, about=about)
        except Exception:
            logger.exception("A turn could not be told")
            await self._refuse(OwnFaultError(), about=about)
        # Whoever cancels this has taken the question over.
        self.asked.pop(about, None)

    async def _cancel(self, about: str, asked: Asked) -> None:
        self.asked.pop(about, None)
        await _break_off(asked)
        await self._say({"type": "cancelled", "id": about})

    async def _identify(self) -> None:
        client, person = await in_database(_caller, self.request, user=self.user)
        self._is((client.owner_id, person.user_id))
        if self.open_sockets[client.owner_id, person.user_id] > MAX_SOCKETS_OF_A_CALLER:
            await self._turn_away(f"One person can have {MAX_SOCKETS_OF_A_CALLER} connections. Close some first.")
        else:
            await self._say({"type": "ready"})

    def _is(self, caller: tuple[int | None, str] | None) -> None:
        if self.caller:
            self.open_sockets[self.caller] -= 1
            if not self.open_sockets[self.caller]:
                del self.open_sockets[self.caller]
        self.caller = caller
        if caller:
            self.open_sockets[caller] += 1

    async def _wait_for_key(self) -> None:
        await asyncio.sleep(SIGN_IN_SECONDS)
        if self.caller is None:
            await self._refuse(
                NotAuthenticatedError('Sign in, or send {"type": "authenticate", "key": "evi_…"} as the first frame.')
            )
            await self.close(NOT_SIGNED_IN)

    async def _turn_away(self, why: str) -> None:
        frame = error_frame(TooManyRequestsError(retry_after=60)) | {"code": "too_many_connections", "message": why}
        await self._say(frame)
        await self.close(TRY_LATER)

    async def _refuse(self, error: Exception, *, about: str | None = None) -> None:
        if not isinstance(error, EviError):
            logger.error("The database is away: %s", error)
            error = DatabaseAwayError()
        if self.mistakes >= MAX_MISTAKES or self.pace.is_held_up:
            # It writes without reading what it is told.
            await self.close(UNACCEPTABLE)
        else:
            await self._say(error_frame(error, about=about))

    async def _say(self, frame: dict[str, Any]) -> None:
        await self.send(text_data=json.dumps(frame))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)


class NowhereConsumer(AsyncWebsocketConsumer):  # type: ignore[misc]
    """Refuses what has no address."""

    channel_layer_alias = ""

    async def connect(self) -> None:
        await self.close()
        raise StopConsumer


def _caller(request: ASGIRequest, *, user: str | None) -> tuple[Client, Person]:
    """Who asks: by their key, by the cookie of the page they signed in on, or open on this machine."""
    if "Authorization" not in request.headers and (account := signed_in(request)).is_authenticated:
        client = caller_from_session(account)
        count(client)
        return client, Person()
    return authenticate(request), person_of(request, user=user)


def _said_up_to(message_id: UUID, *, messages: MessageQuerySet) -> tuple[HistoryItem, ...]:
    """The thread up to and including the message that a question comes after."""
    message = messages.select_related("session").filter(id=message_id).first()
    if message is None:
        raise NotFoundError("This session has no such message.")
    return tuple(HistoryItem(said.role, said.content) for said in thread_up_to(message))


async def _listened(request: TurnRequest) -> Turn | StoredTurn:
    turn = await turn_for(request)
    turn.listeners += 1
    return turn


async def _leave_later(asked: Asked) -> None:
    """Keep a turn going for a client that may come back to it."""
    await asyncio.wait([asked.turn])
    if asked.turn.exception() is None:
        await asyncio.sleep(settings.EVI.reconnect_seconds)
        await asked.turn.result().leave()


async def _break_off(asked: Asked) -> None:
    asked.telling.cancel()
    await asyncio.wait([asked.turn])
    if asked.turn.exception() is None:
        turn = asked.turn.result()
        turn.listeners -= 1
        await turn.break_off()
