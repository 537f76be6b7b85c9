"""How EVI's Telegram is set up: whose sessions these are, who may come in, and what Telegram proves itself with.

Apart from the rest, because aiogram takes seconds to import, and an EVI without Telegram has no use for it.
"""

from __future__ import annotations

import logging

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
