"""The bot: who it is, what it may, and how it is reached."""

from __future__ import annotations

import asyncio
import atexit
import logging
from functools import cache

from aiogram import Bot
from aiogram.client.session.aiohttp import AiohttpSession
from aiogram.client.telegram import TelegramAPIServer
from aiogram.types import BotCommand
from django.conf import settings
from django.contrib.auth.models import User
from django.utils.crypto import salted_hmac

from conversations.accounts import FIRST_CLIENT

logger = logging.getLogger(__name__)

# What Telegram is asked to bring; everything else would be dropped here.
UPDATES = ["message", "edited_message", "callback_query"]
COMMANDS = {
    "new": "Een nieuw gesprek beginnen",
    "sessions": "Je laatste gesprekken",
    "resume": "Verder met een eerder gesprek, of met een code",
    "handover": "Een code om ergens anders verder te gaan",
    "help": "Wat je hier kunt doen",
}
EVERYBODY = "*"


class BotSettingsError(Exception):
    """Telegram cannot be used as it is set up; the message says what to put right."""


def telegram_bot() -> Bot:
    """The bot of this process."""
    return _bot(settings.EVI.telegram_token, settings.EVI.telegram_api_url)


@cache
def _bot(token: str, api_url: str) -> Bot:
    bot = Bot(token, session=AiohttpSession(api=TelegramAPIServer.from_base(api_url)))
    loop = asyncio.get_running_loop()
    # The web server tells nobody that it stops, apart from the interpreter.
    atexit.register(lambda: None if loop.is_closed() else loop.run_until_complete(bot.session.close()))
    return bot


def webhook_secret() -> str:
    """What Telegram proves itself with. All processes of a site know the same one, whether it was chosen or not."""
    evi = settings.EVI
    return str(
        evi.telegram_secret
        or salted_hmac("conversations.telegram.webhook", evi.telegram_token, algorithm="sha256").hexdigest()
    )


def bot_id() -> int:
    return int(settings.EVI.telegram_token.partition(":")[0])


def is_allowed(chat_id: int) -> bool:
    return not {EVERYBODY, str(chat_id)}.isdisjoint(settings.EVI.telegram_chats)


def owner_id() -> int | None:
    """The client whose sessions these are. Without a first client there are no clients, as in open development."""
    name = settings.EVI.telegram_client
    owner = User.objects.filter(username=name).values_list("id", flat=True).first()
    if owner is None and name != FIRST_CLIENT:
        raise BotSettingsError(
            f"EVI_TELEGRAM_CLIENT: there is no client {name!r}. Make it with: "
            f"manage.py create_api_key {name} --client {name}"
        )
    return owner


def check_settings() -> None:
    """Refuse to begin without what Telegram needs; and say what nobody would notice otherwise."""
    if not settings.EVI.telegram_token:
        raise BotSettingsError("EVI_TELEGRAM_TOKEN is not set. @BotFather gives you a token; see docs/telegram.md.")
    owner_id()
    if not settings.EVI.telegram_chats:
        logger.warning(
            "EVI_TELEGRAM_CHATS is empty: nobody may talk with EVI in Telegram. "
            "A chat finds its number with /start; * lets everybody in."
        )


async def set_webhook(bot: Bot, url: str) -> None:
    """Have Telegram bring messages to this address, and show people what they can ask for."""
    await bot.set_webhook(url, secret_token=webhook_secret(), allowed_updates=UPDATES)
    await set_commands(bot)


async def set_commands(bot: Bot) -> None:
    await bot.set_my_commands([BotCommand(command=name, description=about) for name, about in COMMANDS.items()])
