from argparse import ArgumentParser
from typing import Any

from django.core.exceptions import ValidationError
from django.core.management import BaseCommand, CommandError
from django.core.management.base import no_translations

from conversations.accounts import create_api_key


class Command(BaseCommand):
    # They would read every view, which takes seconds.
    requires_system_checks = ()
    help = "Make an API key and print it, once: only its hash is stored. Revoke it in the admin."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("name", help="what the key is for, such as openwebui")
        parser.add_argument("--client", help="whose sessions it opens (default: a client called like the key)")
        parser.add_argument("--in-line", action="store_true", help="a question waits for the one before it")

    @no_translations
    def handle(self, *args: Any, name: str, client: str | None, in_line: bool, **options: Any) -> None:
        try:
            token = create_api_key(name=name, client=name if client is None else client, in_line=in_line)
        except ValidationError as error:
            raise CommandError(" ".join(error.messages)) from error
        self.stdout.write(token)
