"""Fetching messages instead of having them brought: for development, where Telegram cannot reach the machine."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from aiogram import Bot
from aiogram.exceptions import TelegramNetworkError, TelegramRetryAfter, TelegramServerError
from django.db import InterfaceError, OperationalError

from conversations.api.telegram import inbox
from conversations.api.telegram.bot import set_commands
from conversations.api.telegram.setup import UPDATES

logger = logging.getLogger(__name__)

# Telegram answers when there is something, or after so long.
WAIT_SECONDS = 25
PAUSE_SECONDS = 3


async def poll(bot: Bot, *, announce: Callable[[str], object]) -> None:
    """Fetch what there is and answer it, until somebody stops it."""
    me = await bot.me()
    await set_commands(bot)
    announce(f"Fetching what people send to @{me.username}. Press Ctrl-C to stop.")
    offset: int | None = None
    while True:
        # Also what was left over from before, and what had to wait.
        inbox.begin()
        try:
            updates = await bot.get_updates(
                offset=offset, timeout=WAIT_SECONDS, allowed_updates=UPDATES, request_timeout=WAIT_SECONDS + 10
            )
        except TelegramRetryAfter as error:
            await asyncio.sleep(error.retry_after)
            continue
        except (TelegramNetworkError, TelegramServerError) as error:
            logger.warning("Telegram cannot be reached: %s", error)
            await asyncio.sleep(PAUSE_SECONDS)
            continue
        try:
            for update in updates:
                await inbox.receive(update.model_dump(mode="json", exclude_unset=True, by_alias=True))
                # With the next request this one counts as brought. It is kept by now.
                offset = update.update_id + 1
        except (OperationalError, InterfaceError) as error:
            logger.warning("The database is away: %s", error)
            await asyncio.sleep(PAUSE_SECONDS)
