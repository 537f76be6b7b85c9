from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management import BaseCommand, CommandError
from rich.progress import Progress

from agentbridge.embeddings import EmbeddingAwayError
from agentbridge.ingest import IngestBusyError, Stage, ingest


class Command(BaseCommand):
    help = "Take in guidelines (Markdown, text, HTML, Word, PDF) and products (CSV, JSON), as far as they changed."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("paths", nargs="+", type=Path, metavar="PATH", help="a file, or a folder with all below it")
        parser.add_argument("--keep", action="store_true", help="do not retire what is gone from a folder")
        parser.add_argument("--dry-run", action="store_true", help="only say what would change")

    def handle(self, *args: Any, paths: list[Path], keep: bool, dry_run: bool, **options: Any) -> None:
        with Progress(transient=True, disable=not self.stdout.isatty()) as bar:
            tasks = {stage: bar.add_task(stage, total=None) for stage in Stage}
            try:
                report = ingest(
                    paths,
                    keep=keep,
                    dry_run=dry_run,
                    progress=lambda stage, done, total: bar.update(tasks[stage], completed=done, total=total),
                )
            except IngestBusyError as error:
                raise CommandError("Another ingest is running; try again when it is done.") from error
            except EmbeddingAwayError as error:
                raise CommandError(f"All is stored and found by its words, but {error}. Later: reembed") from error
        self.stdout.write(f"{report}\nNothing was changed: this was a dry run." if dry_run else str(report))
        if report.failures:
            raise CommandError(f"{len(report.failures)} of the files could not be taken in.")
