"""What Telegram brought is answered: threads side by side, each in order, and whatever happens to a process meanwhile.

An update is stored before it is acknowledged. Whoever takes it up holds it for half a minute at a time and says that it
is still at it. When a process dies, another takes the update up after that: a web process looks when it starts, and
again when the half minute of what it found held is over, and the worker looks every minute. The turn knows the update
again and asks nothing twice; an answer that was stored and did not arrive is sent. A process that is told to stop first
notes what it has said, and lets go of what it has not. Between a message's arrival at Telegram and the note of it here
lies a moment in which a crash means that this one message comes twice.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Coroutine
from typing import Any

from aiogram.exceptions import (
    TelegramBadRequest,
    TelegramForbiddenError,
    TelegramMigrateToChat,
    TelegramNetworkError,
    TelegramRetryAfter,
    TelegramServerError,
)
from aiogram.types import Update
from django.db import DataError
from pydantic import ValidationError

from agentbridge.database import in_database
from conversations.api.telegram import replies
from conversations.api.telegram.bot import telegram_bot
from conversations.api.telegram.messages import Place, is_beginning, place_of
from conversations.api.telegram.setup import bot_id, is_allowed, owner_id
from conversations.errors import BadRequestError
from conversations.farewell import PATIENCE_SECONDS
from conversations.models import TelegramUpdate

logger = logging.getLogger(__name__)

KEEP_EVERY_SECONDS = 10
# With a pause that doubles after each, from 40 seconds on: some three hours. Then nobody waits for it any more.
MAX_ATTEMPTS = 8
PAUSE_SECONDS = 20
# How long a process that is told to stop goes on with what it has begun: until shortly before its turns are broken off,
# because whoever asked shall hear of the whole answer from another process instead.
LAST_SECONDS = PATIENCE_SECONDS - 1

_under_way: set[asyncio.Task[None]] = set()
# When this process looks again, because something is held now or has to wait.
_next_look: asyncio.TimerHandle | None = None
_is_stopping = False
# The worker's. One for good, because the model's connections belong to the loop that they were made in.
_runner = asyncio.Runner()


async def receive(content: dict[str, Any]) -> None:
    """Keep an update, however it came. What EVI has no answer to is not kept."""
    try:
        update = Update.model_validate(content)
    except ValidationError as error:
        # Telegram would bring it again for a day, and it would be as strange then.
        logger.warning("Telegram brought an update that EVI does not understand: %d problems", error.error_count())
        return
    place = place_of(update)
    # Strangers learn how to come in, and otherwise leave nothing behind.
    if place and (is_allowed(place.chat_id) or is_beginning(update)):
        await in_database(_store, content, update_id=update.update_id, place=place)


def _store(content: dict[str, Any], *, update_id: int, place: Place) -> None:
    # Better to find out that there is no such client while Telegram still has it.
    owner_id()
    try:
        TelegramUpdate.objects.receive(
            content,
            bot_id=bot_id(),
            update_id=update_id,
            chat_id=place.chat_id,
            thread_id=place.thread_id,
            message_id=place.message_id,
        )
    except DataError:
        raise BadRequestError("The update has numbers that Telegram does not use.") from None


def begin() -> None:
    """Answer what waits, without waiting for it."""
    if not _is_stopping:
        _start(_take_up())


async def stop() -> None:
    """Before this process goes: what is under way is said and noted, or left to another process with all that waits."""
    global _is_stopping
    _is_stopping = True
    deadline = time.monotonic() + LAST_SECONDS
    # What is being taken up at this moment begins only now, and is waited for as well.
    while _under_way and (left := deadline - time.monotonic()) > 0:
        await asyncio.wait(_under_way, timeout=left)
    if unfinished := set(_under_way):
        for task in unfinished:
            task.cancel()
        await asyncio.wait(unfinished)
    await telegram_bot().session.close()


def answer_what_was_left() -> int:
    """What the worker does each minute: answer what no web process is at any more. Returns how many it took up."""
    TelegramUpdate.objects.forget_old()
    return _runner.run(_answer_all())


async def _answer_all() -> int:
    claimed = await _take_up()
    while _under_way:
        await asyncio.wait(_under_way)
    if claimed:
        await telegram_bot().session.close()
    if _next_look:
        # The worker looks every minute anyway.
        _next_look.cancel()
    return claimed


def _start(work: Coroutine[None, None, object]) -> None:
    async def watched() -> None:
        try:
            await work
        except Exception:
            # The lease ends by itself, and then it is tried again.
            logger.exception("Telegram: something was not answered")

    task = asyncio.create_task(watched())
    _under_way.add(task)
    task.add_done_callback(_under_way.discard)


async def _take_up() -> int:
    global _next_look
    claimed, free_in = await in_database(_claim)
    for update in claimed:
        _start(_answer(update))
    if _next_look:
        _next_look.cancel()
    # Whoever holds something now may be gone by then, and no update may come that says so.
    _next_look = asyncio.get_running_loop().call_later(free_in, begin) if free_in is not None else None
    return len(claimed)


def _claim() -> tuple[list[TelegramUpdate], float | None]:
    updates = TelegramUpdate.objects
    return updates.claim(bot_id=bot_id()), updates.free_in(bot_id=bot_id())


async def _answer(update: TelegramUpdate) -> None:
    keeping = asyncio.create_task(_keep(update))
    pause: float | None = None
    try:
        if update.attempts > MAX_ATTEMPTS:
            logger.error("Telegram: update %s was given up after %d attempts", update, MAX_ATTEMPTS)
        else:
            await replies.respond(update)
    except (TelegramForbiddenError, TelegramMigrateToChat) as error:
        logger.info("Telegram: chat %d is closed to EVI: %s", update.chat_id, error.message)
    except TelegramBadRequest as error:
        # It would be refused the next time as well.
        logger.error("Telegram refused an answer in chat %d: %s", update.chat_id, error.message)
    except TelegramRetryAfter as error:
        pause = error.retry_after
    except (TelegramNetworkError, TelegramServerError) as error:
        pause = PAUSE_SECONDS * 2**update.attempts
        logger.warning("Telegram cannot be reached (%s); update %s waits %.0f seconds", error.label, update, pause)
    except asyncio.CancelledError:
        # Nobody has to wait until this process's half minute is over.
        await in_database(TelegramUpdate.objects.keep, update.id, seconds=0)
        raise
    except Exception:
        pause = PAUSE_SECONDS * 2**update.attempts
        logger.exception("Telegram: update %s failed; it waits %.0f seconds", update, pause)
    finally:
        keeping.cancel()
    if pause is None:
        await in_database(TelegramUpdate.objects.finish, update.id)
        # The next one in this thread waited for this one.
        begin()
    else:
        await in_database(TelegramUpdate.objects.keep, update.id, seconds=pause)


async def _keep(update: TelegramUpdate) -> None:
    while True:
        await asyncio.sleep(KEEP_EVERY_SECONDS)
        try:
            await in_database(TelegramUpdate.objects.keep, update.id)
        except Exception:
            logger.warning("Telegram: the lease of update %s was not renewed", update, exc_info=True)
