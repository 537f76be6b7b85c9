"""What happens now, for staff who look on from any process.

Turns know nothing of it but that they begin and end. Whoever looks on says so, every few seconds, and only then does
each process look at its turns and tell what is new.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

from channels.layers import get_channel_layer
from django.conf import settings

from conversations.models import Channel

if TYPE_CHECKING:
    from conversations.turns import Turn

logger = logging.getLogger(__name__)

# Those who tell, those who look on, and those among these who look at all turns.
ANNOUNCERS, VIEWERS, NOW = "live.announcers", "live.viewers", "live.now"
# How often what is new is told, how often the numbers of all turns are, and how often it is told that nothing is new.
TICK_SECONDS = 0.2
NUMBERS_SECONDS = 1.0
REPEAT_SECONDS = 5.0
# Who has not said for so long that they look on has gone.
FORGET_SECONDS = 15.0
# Groups may lapse in a layer; joining again costs nothing.
JOIN_AGAIN_SECONDS = 60.0


def session_group(session_id: UUID | str) -> str:
    return f"live.session.{session_id}"


class Announcer:
    """Tells of the turns of this process."""

    def __init__(self) -> None:
        self._process = uuid4().hex
        self._turns: dict[UUID, Turn] = {}
        self._ended: list[Turn] = []
        # Until when which group is looked at.
        self._watched: dict[str, float] = {}
        # How many characters of which answer have been told.
        self._told: dict[UUID, int] = {}
        self._told_now: tuple[float, set[UUID]] | None = None
        self._listener: asyncio.Task[None] | None = None
        self._teller: asyncio.Task[None] | None = None

    def listen(self) -> None:
        """Hear from now on who looks on."""
        if self._listener is None:
            self._listener = asyncio.create_task(self._listen())

    def began(self, turn: Turn) -> None:
        self._turns[turn.answer_id] = turn

    def ended(self, turn: Turn) -> None:
        self._turns.pop(turn.answer_id, None)
        if self._watched:
            self._ended.append(turn)

    async def _listen(self) -> None:
        layer = get_channel_layer()
        channel = await layer.new_channel()
        while True:
            try:
                await layer.group_add(ANNOUNCERS, channel)
                # Whoever looks on already says so at once, and not only the next time.
                await layer.group_send(VIEWERS, {"type": "live.who"})
                await self._hear_from(layer, channel)
            except TimeoutError:
                continue
            except Exception as error:
                # Nothing that happens to what staff see may happen to a turn.
                logger.warning("Live updates are not available: %r", error)
                await asyncio.sleep(REPEAT_SECONDS)

    async def _hear_from(self, layer: Any, channel: str) -> None:
        while True:
            async with asyncio.timeout(JOIN_AGAIN_SECONDS):
                message = await layer.receive(channel)
            group = message["group"]
            self._watched[group] = time.monotonic() + FORGET_SECONDS
            if message["is_new"]:
                self._told_now = None
                for turn in self._turns.values():
                    if group == _group_of(turn):
                        self._told.pop(turn.answer_id, None)
            if self._teller is None or self._teller.done():
                self._teller = asyncio.create_task(self._tell_while_watched(layer))

    async def _tell_while_watched(self, layer: Any) -> None:
        while self._watched:
            try:
                await self._tell(layer)
            except Exception as error:
                logger.warning("Those who look on were not told what happened: %r", error)
            await asyncio.sleep(TICK_SECONDS)
            now = time.monotonic()
            self._watched = {group: until for group, until in self._watched.items() if until > now}
        self._ended.clear()
        self._told.clear()
        self._told_now = None

    async def _tell(self, layer: Any) -> None:
        ended, self._ended = self._ended, []
        for turn in [*self._turns.values(), *ended]:
            if (group := _group_of(turn)) in self._watched:
                await self._tell_text(layer, group, turn)
        for turn in ended:
            self._told.pop(turn.answer_id, None)
            if (group := _group_of(turn)) in self._watched:
                await layer.group_send(group, {"type": "live.end", **_ids(turn)})
        if NOW in self._watched:
            await self._tell_now(layer)

    async def _tell_text(self, layer: Any, group: str, turn: Turn) -> None:
        text, told = text_of(turn), self._told.get(turn.answer_id)
        if told == len(text):
            return
        self._told[turn.answer_id] = len(text)
        at = told or 0
        about = {**_ids(turn), "at": at, "to": len(text), "text": text[at:]}
        await layer.group_send(group, {"type": "live.text", **about})

    async def _tell_now(self, layer: Any) -> None:
        now, turns = time.monotonic(), set(self._turns)
        if self._told_now:
            at, told = self._told_now
            if now - at < (NUMBERS_SECONDS if turns else REPEAT_SECONDS) and turns == told:
                return
        self._told_now = (now, turns)
        shown = [_described(turn) for turn in self._turns.values()]
        await layer.group_send(NOW, {"type": "live.now", "process": self._process, "turns": shown})


announcer = Announcer()


def text_of(turn: Turn) -> str:
    """The answer so far, with what came before it where it is gone on with."""
    unfinished = turn.opening.unfinished
    return (unfinished.text if unfinished else "") + turn.said


def _group_of(turn: Turn) -> str:
    return session_group(turn.opening.session_id) if turn.opening.session_id else ""


def _ids(turn: Turn) -> dict[str, str]:
    return {"answer_id": str(turn.answer_id), "question_id": str(turn.opening.question_id)}


def _described(turn: Turn) -> dict[str, Any]:
    request = turn.request
    return {
        "id": str(turn.answer_id),
        "session_id": str(turn.opening.session_id) if turn.opening.session_id else None,
        "since": turn.began_at.isoformat(),
        "channel": Channel(request.channel).label,
        "person": request.person.get("name") or request.user_id,
        "model": settings.EVI.model,
        "characters": len(turn.said),
    }
