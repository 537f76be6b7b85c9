from typing import Any

from django.core.management import BaseCommand

from evi_site.preparation import prepare_database


class Command(BaseCommand):
    help = "Bring the database up to date: tables, schedules, first accounts. Safe at any time, also twice at once."

    def handle(self, *args: Any, verbosity: int, **options: Any) -> None:
        prepare_database(verbosity=verbosity)
        self.stdout.write("The database is ready.")
