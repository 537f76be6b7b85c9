"""What web processes tell each other, through the database that is there anyway: Channels' groups on LISTEN and NOTIFY.

Nothing is stored. Whoever listens hears it; what cannot be sent at the moment is not sent later.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import deque
from itertools import count
from typing import Any
from uuid import uuid4

import psycopg
from channels.layers import InMemoryChannelLayer
from django.core.exceptions import ImproperlyConfigured
from django.db import connection
from django.db.utils import Error as DatabaseError

from agentbridge.database import in_database

logger = logging.getLogger(__name__)

NAME = "evi_live"
# PostgreSQL takes less than 8000 bytes, the part's own head among them.
PART_CHARS = 7900
# While the database is away or slow, the newest are worth more than the oldest.
MOST_WAITING = 2000
SENT_AT_ONCE = 200
FIRST_PAUSE, LONGEST_PAUSE = 0.25, 10.0
# A database that goes without a word, as at the other end of a cable, is noticed within a minute.
KEEPALIVES = {"keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3}


class PostgresLayer(InMemoryChannelLayer):  # type: ignore[misc]  # Channels has no types
    """Groups for all processes on one database. Each keeps who is in a group of its own, and one connection to listen.

    What is sent to a channel by its name stays in the process.
    """

    def __init__(self, **config: Any) -> None:
        super().__init__(**config)
        self._origin = uuid4().hex
        self._numbers = count()
        self._waiting: deque[str] = deque(maxlen=MOST_WAITING)
        self._sender: asyncio.Task[None] | None = None
        self._listener: asyncio.Task[None] | None = None
        # The message of each process that has not come in whole yet.
        self._parts: dict[str, tuple[str, list[str]]] = {}

    async def group_add(self, group: str, channel: str) -> None:
        if not _runs(self._listener):
            self._listener = asyncio.create_task(self._listen())
        await super().group_add(group, channel)

    async def group_send(self, group: str, message: dict[str, Any]) -> None:
        await super().group_send(group, message)
        text = json.dumps([group, message])
        number = next(self._numbers)
        parts = -(-len(text) // PART_CHARS)
        for part in range(parts):
            chunk = text[part * PART_CHARS : (part + 1) * PART_CHARS]
            self._waiting.append(f"{self._origin} {number} {part} {parts} {chunk}")
        if not _runs(self._sender):
            self._sender = asyncio.create_task(self._send())

    async def _send(self) -> None:
        while self._waiting:
            batch = [self._waiting.popleft() for _ in range(min(SENT_AT_ONCE, len(self._waiting)))]
            try:
                await in_database(_notify, batch)
            except (DatabaseError, ImproperlyConfigured) as error:
                logger.warning("Other processes were not told what happened: %s", error)

    async def _listen(self) -> None:
        pause = FIRST_PAUSE
        while True:
            try:
                async with await psycopg.AsyncConnection.connect(
                    **await in_database(_address), autocommit=True
                ) as listening:
                    await listening.execute(f"LISTEN {NAME}")
                    pause = FIRST_PAUSE
                    async for heard in listening.notifies():
                        try:
                            await self._hear(heard.payload)
                        except (ValueError, TypeError) as error:
                            # Whoever may use the database may send anything by this name.
                            logger.warning("What another process told was not understood: %r", error)
            except (psycopg.Error, ImproperlyConfigured) as error:
                logger.warning("Live updates from other processes wait for the database: %s", error)
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    async def _hear(self, payload: str) -> None:
        origin, number, part, parts, chunk = payload.split(" ", 4)
        if origin == self._origin:
            # Those of this process have it already.
            return
        begun, chunks = self._parts.pop(origin, (number, []))
        # They come in order; a message whose rest was lost is followed by the next one.
        chunks = chunks if begun == number and int(part) else []
        if len(chunks) != int(part):
            return
        chunks.append(chunk)
        if len(chunks) < int(parts):
            self._parts[origin] = (number, chunks)
            return
        group, message = json.loads("".join(chunks))
        await super().group_send(group, message)


def _runs(task: asyncio.Task[None] | None) -> bool:
    """Whether it does, in this loop: commands make loops of their own, and end them."""
    return bool(task and not task.done() and task.get_loop() is asyncio.get_running_loop())


def _address() -> dict[str, Any]:
    parameters = connection.get_connection_params()
    # They are Django's, and do not fit an asynchronous connection.
    return KEEPALIVES | {name: value for name, value in parameters.items() if name not in ("cursor_factory", "context")}


def _notify(payloads: list[str]) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_notify(%s, payload) FROM unnest(%s::text[]) WITH ORDINALITY AS sent (payload, number) "
            "ORDER BY number",
            [NAME, payloads],
        )
