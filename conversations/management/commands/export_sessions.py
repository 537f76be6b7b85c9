from argparse import ArgumentParser
from functools import partial
from typing import Any
from uuid import UUID

from django.core.management import BaseCommand, CommandError
from rich.progress import Progress

from conversations.archives import STDOUT, export_sessions, sessions_to_export
from conversations.management.arguments import day


class Command(BaseCommand):
    help = (
        "Write sessions to files, one for each, or with --to - as lines of JSON; import_sessions takes them in. What "
        "was said is in them; images, left branches, summaries and facts are not: pg_dump keeps everything."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--owner", metavar="CLIENT", help="only those of this client")
        parser.add_argument("--user", help="only those of this person, as their client names them")
        parser.add_argument("--session", type=UUID, metavar="ID", help="only this one")
        parser.add_argument("--since", type=day, metavar="DAY", help="only those used since, such as 2026-01-31")
        parser.add_argument("--to", required=True, metavar="FOLDER", help="a folder, or - for the standard output")

    def handle(self, *args: Any, to: str, **given: Any) -> None:
        sessions = sessions_to_export(
            client=given["owner"], user_id=given["user"], session_id=given["session"], since=given["since"]
        )
        if not (total := sessions.count()):
            raise CommandError("There are no such sessions.")
        with Progress(transient=True, disable=to == STDOUT or not self.stdout.isatty()) as bar:
            task = bar.add_task("Writing sessions", total=total)
            try:
                advance = partial(bar.advance, task)
                written = export_sessions(sessions, to=to, write=self.stdout.write, on_session=advance)
            except OSError as error:
                raise CommandError(f"{to} cannot be written: {error}") from error
        self.stderr.write(f"Wrote {written} sessions.")
