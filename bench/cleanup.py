"""Whether the clean-up of many sessions disturbs those who are talking, and how much memory it takes."""

import multiprocessing
import resource
import signal
import sys
from argparse import ArgumentParser
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import cycle
from time import perf_counter, sleep
from uuid import UUID

from django.db import connection
from django.db.models import F
from rich.table import Table

from bench import Latency, Promise, console, fill, make_tables, settle, throwaway_cluster, verdict
from conversations.models import Session
from conversations.retention import BATCH_SIZE, CleanupReport, delete_expired_sessions

LIVE_MESSAGES = 40_000
QUIET_SECONDS = 10
# Pauses for a model that thinks: what is measured is the waiting for the clean-up, not for a core.
THINKING_SECONDS = 0.01
# Milliseconds times this much go unnoticed before an answer that takes a model a second.
MOST_MEDIAN = 2
MOST_P95 = 3
# A batch of ids and not a table of them.
MOST_MEGABYTES = 32


@dataclass(frozen=True)
class Deletion:
    report: CleanupReport
    seconds: float
    megabytes: float


def fill_expired(messages: int) -> None:
    fill(messages=messages, description=f"{messages:,} expired messages")
    with connection.cursor() as cursor:
        cursor.execute("UPDATE sessions SET last_accessed = now() - interval '60 days' - random() * interval '1 day'")


def delete(batch_size: int) -> Deletion:
    """The clean-up, in a process of its own as it has in the worker."""
    # Connected and warm: only what the deleting adds is of interest.
    Session.objects.expired().first()
    before = peak_megabytes()
    started = perf_counter()
    report = delete_expired_sessions(batch_size=batch_size)
    return Deletion(report, perf_counter() - started, peak_megabytes() - before)


def peak_megabytes() -> float:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # Bytes on macOS, kilobytes elsewhere.
    return peak / 1024**2 if sys.platform == "darwin" else peak / 1024


def talk(sessions: Iterator[UUID], *, until: Callable[[], bool]) -> list[float]:
    """Turn after turn; what each cost in the database, in seconds."""
    seconds = []
    while not until():
        session_id = next(sessions)
        started = perf_counter()
        # A turn holds no connection while the model thinks, so each phase takes one from the pool.
        with closing(connection):
            Session.objects.begin_turn(session_id=session_id, content="Moet ik een helm dragen op de steiger?")
        with closing(connection):
            Session.objects.finish_turn(session_id=session_id, content="Ja, iedereen draagt er een helm. " * 10)
        seconds.append(perf_counter() - started)
        sleep(THINKING_SECONDS)
    return seconds


def main() -> int:
    parser = ArgumentParser(prog="python -m bench.cleanup", description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000, help="to delete (default: %(default)s)")
    parser.add_argument("--batch-size", type=int, default=BATCH_SIZE, help="sessions a batch (default: %(default)s)")
    options = parser.parse_args()
    # Forked before there is a server, a pool or a thread. Ctrl-C is for this process, which then ends the other.
    workers = multiprocessing.get_context("fork").Pool(1, signal.signal, (signal.SIGINT, signal.SIG_IGN))
    with workers, throwaway_cluster():
        make_tables()
        fill_expired(options.messages)
        fill(messages=LIVE_MESSAGES, description=f"{LIVE_MESSAGES:,} live messages")
        settle()
        live = cycle(Session.objects.filter(last_accessed__gte=F("created_at")).values_list("id", flat=True))
        start = perf_counter()
        console.print(f"Talking for {QUIET_SECONDS} s, then on while {options.messages:,} messages are deleted")
        quiet = talk(live, until=lambda: perf_counter() - start > QUIET_SECONDS)
        deleting = workers.apply_async(delete, [options.batch_size])
        busy = talk(live, until=deleting.ready)
        deletion = deleting.get()
    before, during = Latency.of(quiet), Latency.of(busy)
    table = Table("turns", "median", "p95", title="Milliseconds")
    table.add_row("before", f"{before.median:.2f}", f"{before.p95:.2f}")
    table.add_row("during", f"{during.median:.2f}", f"{during.p95:.2f}")
    console.print(table)
    deleted = deletion.report.messages
    console.print(f"{deleted:,} messages in {deletion.seconds:.1f} s, {deleted / deletion.seconds:,.0f} a second")
    return verdict(
        [
            Promise("median turn during the clean-up", during.median / before.median, MOST_MEDIAN),
            Promise("p95 turn during the clean-up", during.p95 / before.p95, MOST_P95),
            Promise("memory of the clean-up", deletion.megabytes, MOST_MEGABYTES, " MB"),
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
