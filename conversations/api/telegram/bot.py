"""The bot: how it is reached, and what Telegram is told about it."""

from __future__ import annotations

from functools import cache

from aiogram import Bot
from aiogram.client.session.aiohttp import AiohttpSession
from aiogram.client.telegram import TelegramAPIServer
from aiogram.types import BotCommand
from django.conf import settings

from conversations.api.telegram.setup import COMMANDS, UPDATES, webhook_secret


def telegram_bot() -> Bot:
    """The bot of this process."""
    return _bot(settings.EVI.telegram_token, settings.EVI.telegram_api_url)


@cache
def _bot(token: str, api_url: str) -> Bot:
    return Bot(token, session=AiohttpSession(api=TelegramAPIServer.from_base(api_url)))


async def set_webhook(bot: Bot, url: str) -> None:
    """Have Telegram bring messages to this address, and show people what they can ask for."""
    await bot.set_webhook(url, secret_token=webhook_secret(), allowed_updates=UPDATES)
    await set_commands(bot)


async def set_commands(bot: Bot) -> None:
    await bot.set_my_commands([BotCommand(command=name, description=about) for name, about in COMMANDS.items()])
