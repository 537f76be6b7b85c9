from argparse import ArgumentParser
from typing import Any

from django.core.management import BaseCommand
from rich.progress import Progress

from conversations.management.arguments import whole_number
from conversations.retention import BATCH_SIZE, delete_expired_sessions, preview_cleanup


class Command(BaseCommand):
    # They would read every view, which takes seconds.
    requires_system_checks = ()
    help = "Delete the sessions that nobody touched for EVI_RETENTION_DAYS; pinned ones stay."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--days", type=whole_number(most=36500), help="untouched this long (default: EVI_RETENTION_DAYS)"
        )
        parser.add_argument(
            "--batch-size", type=whole_number(most=10000), default=BATCH_SIZE, help="sessions in one transaction"
        )
        parser.add_argument("--dry-run", action="store_true", help="only say what would be deleted")

    def handle(self, *args: Any, days: int | None, batch_size: int, dry_run: bool, **options: Any) -> None:
        found = preview_cleanup(days=days)
        if dry_run:
            self.stdout.write(f"Would delete {found.sessions} sessions with {found.messages} messages.")
            return
        with Progress(transient=True, disable=not self.stdout.isatty()) as bar:
            task = bar.add_task("Deleting sessions", total=found.sessions)
            deleted = delete_expired_sessions(
                days=days,
                batch_size=batch_size,
                by="manage.py cleanup_sessions",
                on_batch=lambda batch: bar.advance(task, batch.sessions),
            )
        self.stdout.write(f"Deleted {deleted.sessions} sessions with {deleted.messages} messages.")
