from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management import BaseCommand, CommandError

from agentbridge.evaluation import UnusableSetError, evaluate, load, report


class Command(BaseCommand):
    help = "Measure retrieval on questions with known answers, apart from what EVI knows."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", type=Path, help="JSON with passages, queries and relevance")
        parser.add_argument("--json", action="store_true", help="figures instead of tables")
        parser.add_argument("--svg", type=Path, help="save the tables as a picture")

    def handle(self, *args: Any, file: Path, json: bool, svg: Path | None, **options: Any) -> None:
        try:
            evaluation = evaluate(load(file))
        except UnusableSetError as error:
            raise CommandError(str(error)) from error
        self.stdout.write(evaluation.as_json() if json else report(evaluation, title=file.name, svg=svg))
