from typing import Any

from django.core.management import BaseCommand, CommandError

from evi_site.preparation import DatabaseAwayError, prepare_database


class Command(BaseCommand):
    # They would read every view, which takes seconds.
    requires_system_checks = ()
    help = "Bring the database up to date: tables, schedules, accounts, sample. Safe at any time, also twice at once."

    def handle(self, *args: Any, verbosity: int, **options: Any) -> None:
        try:
            prepare_database(verbosity=verbosity)
        except DatabaseAwayError as error:
            raise CommandError(str(error)) from error
        self.stdout.write("The database is ready.")
