from argparse import ArgumentParser
from typing import Any

from django.core.management import BaseCommand, CommandError
from rich.progress import Progress

from conversations.forgetting import Receipt, forget_everywhere, preview_forgetting_everywhere
from conversations.management.arguments import is_confirmed


class Command(BaseCommand):
    help = "Forget a person everywhere: sessions, messages, attachments, summaries, facts. It cannot be undone."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("user", metavar="USER", help="the person, as their client names them")
        parser.add_argument("--client", help="only as this client knows them (default: everywhere)")
        parser.add_argument("--dry-run", action="store_true", help="only say what would go")
        parser.add_argument("--yes", action="store_true", help="do not ask first")

    def handle(self, *args: Any, user: str, client: str | None, dry_run: bool, yes: bool, **options: Any) -> None:
        receipt = preview_forgetting_everywhere(user, client=client)
        if receipt is None:
            raise CommandError("Nobody here is called so. A person is called what their client calls them.")
        self.stdout.write(f"{'Would forget' if dry_run else 'To be forgotten'}:\n{receipt}")
        if dry_run:
            return
        if not yes and not is_confirmed("Forget this person for good?"):
            raise CommandError("Nothing was changed. With --yes nobody is asked.")
        with Progress(transient=True, disable=not self.stdout.isatty()) as bar:
            task = bar.add_task("Forgetting", total=receipt.counts["sessions"])

            def advance(batch: Receipt) -> None:
                bar.advance(task, batch.counts["sessions"])

            gone = forget_everywhere(user, client=client, by="manage.py forget_user", on_batch=advance)
        self.stdout.write(f"Forgotten:\n{gone}")
