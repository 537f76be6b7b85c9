"""What EVI promises in numbers, measured on a throw-away database: `python -m bench.turn_writes --help`."""

import os
import signal
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import django
from django.core.management import call_command
from django.db import connection, connections
from rich.console import Console
from rich.progress import Progress

from evi_site.environment import Environment

MESSAGES_A_SESSION = 20
MESSAGES_A_STATEMENT = 200_000
FILLED_WITH = "Wat moet ik meenemen? " * 10

# A fresh checkout's settings, whatever this machine's environment says; the scripts can import models at once.
for name in [name for name in os.environ if name.startswith("EVI_") or name in ("DATABASE_URL", "REDIS_URL")]:
    del os.environ[name]
Environment.model_config["env_file"] = None
scratch = tempfile.TemporaryDirectory(prefix="evi-bench-")
os.environ["EVI_DATA_DIR"] = str(Path(scratch.name).resolve())
os.environ["DJANGO_SETTINGS_MODULE"] = "evi_site.settings"
django.setup()

console = Console()


@dataclass(frozen=True)
class Latency:
    """Milliseconds."""

    median: float
    p95: float

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Self:
        return cls(statistics.median(seconds) * 1000, statistics.quantiles(seconds, n=20)[-1] * 1000)


@dataclass(frozen=True)
class Promise:
    """A number with the most that it may be."""

    what: str
    value: float
    most: float
    unit: str = "×"

    @property
    def kept(self) -> bool:
        return self.value <= self.most

    def __str__(self) -> str:
        mark = "[green]kept  [/]" if self.kept else "[red]BROKEN[/]"
        return f"{mark} {self.what}: {self.value:.2f}{self.unit} (at most {self.most:g}{self.unit})"


def verdict(promises: Sequence[Promise]) -> int:
    """Print what was kept and what was not; the exit code that says the same."""
    for promise in promises:
        console.print(str(promise), highlight=False)
    return 0 if all(promise.kept for promise in promises) else 1


@contextmanager
def throwaway_cluster() -> Iterator[None]:
    """Erase the embedded server and all of its files in the end, however the end comes."""
    from evi_site.postgres.base import embedded_cluster

    signal.signal(signal.SIGTERM, signal.default_int_handler)
    cluster = embedded_cluster()
    assert cluster
    try:
        yield
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    finally:
        for each in connections.all(initialized_only=True):
            each.close()
            each.close_pool()  # type: ignore[attr-defined]  # missing in the stubs
        cluster.erase()


def make_tables() -> None:
    call_command("migrate", verbosity=0)


def fill(*, messages: int, description: str) -> None:
    """Add sessions of 20 messages, at least as many messages as asked for."""
    with connection.cursor() as cursor, Progress(console=console) as bar:
        task = bar.add_task(description, total=messages)
        while not bar.finished:
            batch = min(MESSAGES_A_STATEMENT, messages - int(bar.tasks[task].completed))
            cursor.execute(FILL, [-(-batch // MESSAGES_A_SESSION), FILLED_WITH, MESSAGES_A_SESSION])
            bar.advance(task, batch)


def settle() -> None:
    """Do now what PostgreSQL would do after a fill, at a moment of its own choice."""
    with connection.cursor() as cursor:
        cursor.execute("VACUUM (ANALYZE) sessions, messages")
        cursor.execute("CHECKPOINT")


# Message by message and not session by session: people talk at the same time, so that the messages of one session
# lie on as many pages as there are messages.
FILL = """
    WITH added AS (INSERT INTO sessions (channel) SELECT 'api' FROM generate_series(1, %s) RETURNING id)
    INSERT INTO messages (session_id, role, content)
    SELECT added.id, CASE number %% 2 WHEN 1 THEN 'user' ELSE 'assistant' END, %s
    FROM generate_series(1, %s) AS number CROSS JOIN added
    ORDER BY number
"""
