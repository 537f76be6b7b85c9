from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management import BaseCommand, CommandError
from rich.progress import Progress

from conversations.archives import import_sessions


class Command(BaseCommand):
    help = "Take in what export_sessions wrote, as far as it is not here. A broken file is reported and skipped."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("paths", nargs="+", type=Path, metavar="PATH", help="a file or a folder of files")

    def handle(self, *args: Any, paths: list[Path], **options: Any) -> None:
        with Progress(transient=True, disable=not self.stdout.isatty()) as bar:
            task = bar.add_task("Taking in sessions", total=None)
            report = import_sessions(paths, on_document=lambda: bar.advance(task))
        self.stdout.write(f"Took in {report.imported} sessions; {report.known} were here already.")
        for problem in report.problems:
            self.stderr.write(problem)
        if report.problems:
            raise CommandError(f"{len(report.problems)} could not be taken in.")
