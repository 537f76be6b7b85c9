import asyncio
from argparse import ArgumentParser
from collections.abc import Awaitable
from typing import Any
from urllib.parse import urlsplit

from aiogram import Bot
from aiogram.exceptions import TelegramAPIError, TelegramConflictError, TelegramNotFound, TelegramUnauthorizedError
from django.core.management import BaseCommand, CommandError
from django.urls import reverse

from conversations.api.telegram.bot import set_webhook, telegram_bot
from conversations.api.telegram.polling import poll
from conversations.api.telegram.setup import BotSettingsError, check_settings


class Command(BaseCommand):
    help = "Connect EVI's bot with Telegram; docs/telegram.md says how to get one."

    def add_arguments(self, parser: ArgumentParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True, metavar="set-webhook | delete-webhook | poll")
        to_set = actions.add_parser("set-webhook", help="have Telegram bring messages to EVI")
        to_set.add_argument("url", metavar="URL", help="where people reach EVI, such as https://evi.example.nl")
        actions.add_parser("delete-webhook", help="have Telegram keep messages until they are fetched")
        actions.add_parser("poll", help="fetch messages and answer them, for development; until Ctrl-C")

    def handle(self, *args: Any, action: str, **options: Any) -> None:
        try:
            check_settings()
            asyncio.run(self._perform(action, options.get("url", "")))
        except KeyboardInterrupt:
            self.stdout.write("Stopped.")
        except BotSettingsError as error:
            raise CommandError(str(error)) from error
        except (TelegramUnauthorizedError, TelegramNotFound) as error:
            raise CommandError("Telegram does not know EVI_TELEGRAM_TOKEN. @BotFather shows the right one.") from error
        except TelegramConflictError as error:
            raise CommandError(
                f"Telegram gives messages to one taker ({error.message}). If a webhook is set, remove it with: "
                "manage.py telegram delete-webhook"
            ) from error
        except TelegramAPIError as error:
            raise CommandError(f"Telegram refused: {error.message}") from error

    async def _perform(self, action: str, url: str) -> None:
        bot = telegram_bot()
        try:
            await self._action(action, url, bot)
        finally:
            await bot.session.close()

    def _action(self, action: str, url: str, bot: Bot) -> Awaitable[None]:
        match action:
            case "set-webhook":
                return self._set_webhook(url, bot)
            case "delete-webhook":
                return self._delete_webhook(bot)
        return poll(bot, announce=self.stdout.write)

    async def _set_webhook(self, url: str, bot: Bot) -> None:
        address = webhook_address(url)
        await set_webhook(bot, address)
        self.stdout.write(f"Telegram brings what people send to @{(await bot.me()).username} to {address}")

    async def _delete_webhook(self, bot: Bot) -> None:
        await bot.delete_webhook()
        self.stdout.write(f"Telegram keeps what people send to @{(await bot.me()).username} until it is fetched.")


def webhook_address(url: str) -> str:
    """The webhook of the site at `url`, which may also name it in full."""
    parts = urlsplit(url)
    if parts.scheme != "https" or not parts.hostname:
        raise CommandError("Telegram brings messages to addresses that begin with https:// only.")
    path = reverse("telegram-webhook")
    return url if parts.path.rstrip("/").endswith(path) else url.rstrip("/") + path
