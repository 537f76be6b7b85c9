from typing import Any

from django.core.management import BaseCommand, CommandError
from rich.progress import Progress

from agentbridge.embeddings import EmbeddingAwayError
from agentbridge.searchable import make_searchable


class Command(BaseCommand):
    help = "Make what EVI knows findable with EVI_EMBEDDING_MODEL; what already is, stays. It may be stopped and go on."

    def handle(self, *args: Any, **options: Any) -> None:
        with Progress(transient=True, disable=not self.stdout.isatty()) as bar:
            task = bar.add_task("Embedding", total=None)
            try:
                done = make_searchable(progress=lambda done, total: bar.update(task, completed=done, total=total))
            except EmbeddingAwayError as error:
                raise CommandError(f"Stopped, because {error}. What was done stays done.") from error
        self.stdout.write(f"Embedded {done} rows.")
