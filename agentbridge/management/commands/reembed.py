from typing import Any

from django.core.management import BaseCommand
from rich.progress import Progress

from agentbridge.retrieval import make_searchable


class Command(BaseCommand):
    help = "Make what EVI knows findable with EVI_EMBEDDING_MODEL; what already is, stays. It may be stopped and go on."

    def handle(self, *args: Any, **options: Any) -> None:
        with Progress(transient=True, disable=not self.stdout.isatty()) as bar:
            task = bar.add_task("Embedding", total=None)
            done = make_searchable(progress=lambda done, total: bar.update(task, completed=done, total=total))
        self.stdout.write(f"Embedded {done} rows.")
