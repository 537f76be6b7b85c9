from argparse import ArgumentParser
from typing import Any

from django.core.management import BaseCommand, CommandError

from evi_site.postgres.base import embedded_cluster
from evi_site.postgres.cluster import ClusterError


class Command(BaseCommand):
    # They would read every view, which takes seconds.
    requires_system_checks = ()
    help = "Stop an embedded database that was left behind, for example by a process that was killed."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--erase", action="store_true", help="and remove it with everything in it")
        parser.add_argument("--no-input", action="store_true", help="do not ask before erasing")

    def handle(self, *args: Any, erase: bool, no_input: bool, **options: Any) -> None:
        cluster = embedded_cluster()
        if cluster is None:
            raise CommandError("DATABASE_URL is set, so EVI does not manage the database. Stop it where it runs.")
        try:
            stopped = cluster.stop()
        except ClusterError as error:
            raise CommandError(str(error)) from error
        self.stdout.write("Stopped the embedded database." if stopped else "The embedded database is not running.")
        if erase:
            if not no_input and not _agreed(f"Remove all conversations in {cluster.folder}? Type yes: "):
                raise CommandError("Nothing was removed. Without a keyboard, say --no-input.")
            cluster.erase()
            self.stdout.write("Removed it.")


def _agreed(question: str) -> bool:
    try:
        return input(question) == "yes"
    except EOFError:
        return False
