"""The bot: how it is reached, and what Telegram is told about it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from urllib.parse import urlsplit

from aiogram import Bot
from aiogram.client.session.aiohttp import AiohttpSession
from aiogram.client.telegram import TelegramAPIServer
from aiogram.exceptions import TelegramAPIError, TelegramConflictError, TelegramNotFound, TelegramUnauthorizedError
from aiogram.types import BotCommand
from django.conf import settings
from django.urls import reverse

from conversations.api.telegram.setup import COMMANDS, UPDATES, BotSettingsError, webhook_secret


def telegram_bot() -> Bot:
    """The bot of this process."""
    return _bot(settings.EVI.telegram_token, settings.EVI.telegram_api_url)


@cache
def _bot(token: str, api_url: str) -> Bot:
    return Bot(token, session=AiohttpSession(api=TelegramAPIServer.from_base(api_url)))


async def set_webhook(bot: Bot, url: str, *, announce: Callable[[str], object]) -> None:
    """Have Telegram bring messages to the site at this address, and show people what they can ask for."""
    address = webhook_address(url)
    await bot.set_webhook(address, secret_token=webhook_secret(), allowed_updates=UPDATES)
    await set_commands(bot)
    announce(f"Telegram brings what people send to @{(await bot.me()).username} to {address}")


async def delete_webhook(bot: Bot, *, announce: Callable[[str], object]) -> None:
    """Have Telegram keep messages until they are fetched."""
    await bot.delete_webhook()
    announce(f"Telegram keeps what people send to @{(await bot.me()).username} until it is fetched.")


def webhook_address(url: str) -> str:
    """The webhook of the site at `url`, which may also name it in full."""
    parts = urlsplit(url)
    if parts.scheme != "https" or not parts.hostname:
        raise BotSettingsError("Telegram brings messages to addresses that begin with https:// only.")
    path = reverse("telegram-webhook")
    return url if parts.path.rstrip("/").endswith(path) else url.rstrip("/") + path


def explained(error: TelegramAPIError) -> str:
    """What Telegram has against it, and what to do, for those who keep EVI running."""
    if isinstance(error, TelegramUnauthorizedError | TelegramNotFound):
        return "Telegram does not know EVI_TELEGRAM_TOKEN. @BotFather shows the right one."
    if isinstance(error, TelegramConflictError):
        return (
            f"Telegram gives messages to one taker ({error.message}). If a webhook is set, remove it with: "
            "manage.py telegram delete-webhook"
        )
    return f"Telegram refused: {error.message}"


async def set_commands(bot: Bot) -> None:
    await bot.set_my_commands([BotCommand(command=name, description=about) for name, about in COMMANDS.items()])
