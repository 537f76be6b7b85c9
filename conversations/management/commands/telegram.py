import asyncio
from argparse import ArgumentParser
from typing import Any

from aiogram.exceptions import TelegramAPIError
from django.core.management import BaseCommand, CommandError

from conversations.api.telegram.bot import delete_webhook, explained, set_webhook, telegram_bot
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
            asyncio.run(self._perform(action, **options))
        except KeyboardInterrupt:
            self.stdout.write("Stopped.")
        except BotSettingsError as error:
            raise CommandError(str(error)) from error
        except TelegramAPIError as error:
            raise CommandError(explained(error)) from error

    async def _perform(self, action: str, url: str = "", **options: Any) -> None:
        bot = telegram_bot()
        try:
            match action:
                case "set-webhook":
                    await set_webhook(bot, url, announce=self.stdout.write)
                case "delete-webhook":
                    await delete_webhook(bot, announce=self.stdout.write)
                case "poll":
                    await poll(bot, announce=self.stdout.write)
        finally:
            await bot.session.close()
