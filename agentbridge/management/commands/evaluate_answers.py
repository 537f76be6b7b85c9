from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management import BaseCommand, CommandError

from agentbridge.conversation_bench import BenchFileError, evaluate, load_conversations
from agentbridge.providers import configured_model


class Command(BaseCommand):
    help = "Hold the conversations of a YAML file with EVI's model and say which answers are not as expected."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", type=Path, help="such as agentbridge/sample/conversations.yaml")
        parser.add_argument("--json", action="store_true", help="every answer with its citations, as JSON")
        parser.add_argument("--only", default="", metavar="NAME", help="only the conversation with this name")

    def handle(self, *args: Any, file: Path, json: bool, only: str, **options: Any) -> None:
        try:
            report = evaluate(load_conversations(file, only=only), model=configured_model(), progress=True)
        except BenchFileError as error:
            raise CommandError(str(error)) from error
        report.print(self.stdout, as_json=json)
        if report.failed:
            raise CommandError("Not every answer is as expected.")
