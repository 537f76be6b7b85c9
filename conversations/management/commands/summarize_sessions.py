from argparse import ArgumentParser
from math import inf
from typing import Any

from asgiref.sync import async_to_sync
from django.core.management import BaseCommand, CommandError
from rich.progress import Progress

from conversations.management.arguments import whole_number
from conversations.summaries import summaries_waiting, summarize_idle_sessions


class Command(BaseCommand):
    help = "Summarise the sessions that nobody used for EVI_IDLE_MINUTES; the worker does so every five minutes."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--limit", type=whole_number(most=1_000_000), help="at most so many (default: all)")
        parser.add_argument("--dry-run", action="store_true", help="only say how many there are")

    def handle(self, *args: Any, limit: int | None, dry_run: bool, **options: Any) -> None:
        waiting = min(summaries_waiting(), limit or inf)
        if dry_run:
            self.stdout.write(f"Would summarise {waiting} sessions.")
            return
        with Progress(transient=True, disable=not self.stdout.isatty()) as bar:
            task = bar.add_task("Summarising sessions", total=waiting)
            run = async_to_sync(summarize_idle_sessions)
            report = run(limit=limit, seconds=inf, on_session=lambda: bar.advance(task))
        self.stdout.write(f"Summarised {report.summarized} sessions; {report.failed} failed, {report.left} were left.")
        if report.failed:
            raise CommandError("Some sessions were not summarised; the log says why. They are tried again.")
