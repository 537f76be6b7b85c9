from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management import BaseCommand, CommandError
from rich.progress import Progress

from conversations.openwebui_export import NotAnExportError
from conversations.openwebui_import import UnknownClientError, import_openwebui


class Command(BaseCommand):
    help = "Take in the chats of an OpenWebUI (Settings, Data, Export), as far as EVI does not have them."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", type=Path, metavar="FILE", help="the export, as OpenWebUI saves it")
        parser.add_argument("--client", help="whose sessions they become (default: the client of OpenWebUI's key)")
        parser.add_argument("--without-users", action="store_true", help="for a connection that forwards no users")
        parser.add_argument("--original-times", action="store_true", help="count as last used when the chat was")
        parser.add_argument("--dry-run", action="store_true", help="only say what would change")

    def handle(self, *args: Any, file: Path, dry_run: bool, **options: Any) -> None:
        chosen = {name: options[name] for name in ("client", "without_users", "original_times")}
        with Progress(transient=True, disable=not self.stdout.isatty()) as bar:
            task = bar.add_task("Taking in chats", total=None)
            chosen["progress"] = lambda done, total: bar.update(task, completed=done, total=total)
            try:
                report = import_openwebui(file, dry_run=dry_run, **chosen)
            except NotAnExportError as error:
                raise CommandError(f"{file} cannot be taken in: {error}") from error
            except UnknownClientError as error:
                raise CommandError(str(error)) from error
        self.stdout.write(f"{report}\nNothing was changed: this was a dry run." if dry_run else str(report))
        if report.failures:
            raise CommandError(f"{len(report.failures)} of the chats could not be taken in.")
