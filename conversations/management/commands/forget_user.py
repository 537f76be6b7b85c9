from argparse import ArgumentParser
from typing import Any

from django.core.management import BaseCommand, CommandError
from rich.progress import Progress

from conversations.forgetting import Receipt, forget_person, owners_of, preview_forgetting
from conversations.management.arguments import is_confirmed


class Command(BaseCommand):
    help = "Forget a person everywhere: sessions, messages, attachments, summaries, facts. It cannot be undone."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("user", metavar="USER", help="the person, as their client names them")
        parser.add_argument("--client", help="only as this client knows them (default: everywhere)")
        parser.add_argument("--dry-run", action="store_true", help="only say what would go")
        parser.add_argument("--yes", action="store_true", help="do not ask first")

    def handle(self, *args: Any, user: str, client: str | None, dry_run: bool, yes: bool, **options: Any) -> None:
        owners = owners_of(user, client=client) if user else []
        if not owners:
            raise CommandError("Nobody here is called so. A person is called what their client calls them.")
        receipt = sum((preview_forgetting(owner_id=owner, user_id=user) for owner in owners), Receipt())
        if dry_run:
            self.stdout.write(f"Would forget:\n{receipt}")
            return
        self.stdout.write(f"To be forgotten:\n{receipt}")
        if not yes and not is_confirmed("Forget this person for good?"):
            raise CommandError("Nothing was changed. With --yes nobody is asked.")
        with Progress(transient=True, disable=not self.stdout.isatty()) as bar:
            task = bar.add_task("Forgetting", total=receipt.counts["sessions"])
            gone = Receipt()
            for owner in owners:
                gone += forget_person(
                    owner_id=owner,
                    user_id=user,
                    by="manage.py forget_user",
                    on_batch=lambda batch: bar.advance(task, batch.counts["sessions"]),
                )
        self.stdout.write(f"Forgotten:\n{gone}")
