import json
from argparse import ArgumentParser
from dataclasses import asdict
from typing import Any

from django.core.management import BaseCommand

from conversations.statistics import session_statistics


class Command(BaseCommand):
    # They would read every view, which takes seconds.
    requires_system_checks = ()
    help = "Say how many sessions and messages there are: in all, by channel, by day, expiring, to be summarised."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--json", action="store_true", help="as one JSON object, for programs")

    def handle(self, *args: Any, **options: Any) -> None:
        told = asdict(session_statistics())
        if options["json"]:
            self.stdout.write(json.dumps(told))
            return
        for name, value in told.items():
            if isinstance(value, dict):
                self.stdout.write(f"{name.replace('_', ' ')}:")
                self.stdout.write("\n".join(f"  {key:<16}{number:>8}" for key, number in value.items()) or "  none")
            else:
                self.stdout.write(f"{name.replace('_', ' '):<18}{value:>8}")
