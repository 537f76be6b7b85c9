from argparse import ArgumentParser
from typing import Any

from django.core.management import BaseCommand, CommandError
from rich.progress import Progress

from agentbridge.embeddings import EmbeddingAwayError
from conversations.remembering import backlog, make_findable


class Command(BaseCommand):
    help = "Make what was said findable; the worker does so every minute. It may be stopped and go on."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--dry-run", action="store_true", help="only say how much there is to do")

    def handle(self, *args: Any, dry_run: bool, **options: Any) -> None:
        waiting = backlog(thorough=True)
        if dry_run:
            self.stdout.write(f"Would embed {waiting} texts.")
            return
        with Progress(transient=True, disable=not self.stdout.isatty()) as bar:
            task = bar.add_task("Embedding", total=waiting)
            try:
                done = make_findable(thorough=True, on_batch=lambda stored: bar.advance(task, stored))
            except EmbeddingAwayError as error:
                raise CommandError(f"Stopped, because {error}. What was done stays done.") from error
        self.stdout.write(f"Embedded {done} texts.")
