"""What storing and loading cost: EVI's way beside hand-written psycopg, among few messages and among many."""

import random
import sys
from argparse import ArgumentParser
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from itertools import cycle
from time import perf_counter
from uuid import UUID

from django.db import connection, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from psycopg import Connection
from psycopg.sql import SQL, Identifier
from psycopg.types.json import Jsonb
from psycopg_pool import ConnectionPool
from rich.progress import track
from rich.table import Table

from agentbridge.said import HistoryItem
from bench import (
    FILLED_WITH,
    MESSAGES_A_SESSION,
    Latency,
    Promise,
    console,
    fill,
    make_tables,
    settle,
    throwaway_cluster,
    verdict,
)
from conversations.branches import Branch, follow
from conversations.models import Message, Session
from conversations.openings import TurnRequest, open_turn

CONTEXT_MESSAGES = 10
QUESTION = "Moet ik een helm dragen op de steiger?"
ANSWER = "Ja. Op en onder een steiger draagt iedereen een helm. " * 10
WARM_UP_ROUNDS = 20
THREAD = tuple(HistoryItem(("user", "assistant")[n % 2], FILLED_WITH) for n in range(MESSAGES_A_SESSION))


@dataclass
class Database:
    """One size of EVI; Django and psycopg each have a pool to it."""

    messages: int
    django: BaseDatabaseWrapper
    pool: ConnectionPool[Connection]
    sessions: Iterator[UUID]
    seconds: dict["Work", list[float]] = field(default_factory=dict)

    def latency(self, work: "Work") -> Latency:
        return Latency.of(self.seconds[work][WARM_UP_ROUNDS:])


Work = Callable[[Database, UUID], object]


# Each database phase takes a connection out of the pool and hands it back, here and by hand, as a turn does: it
# holds none while the model thinks.
def turn_by_evi(database: Database, session_id: UUID) -> None:
    with closing(connection):
        Session.objects.begin_turn(session_id=session_id, content=QUESTION, context_messages=CONTEXT_MESSAGES)
    with closing(connection):
        Session.objects.finish_turn(session_id=session_id, content=ANSWER, metadata={"model": "offline"})


def replayed_turn_by_evi(database: Database, session_id: UUID) -> None:
    """The same for a client that sends the whole thread along, as OpenWebUI does."""
    request = TurnRequest(QUESTION, session_id=session_id, history=THREAD, is_whole_thread=True)
    with closing(connection):
        opening = open_turn(request)
    assert opening.branch_hash
    with closing(connection):
        Session.objects.finish_turn(
            session_id=session_id,
            content=ANSWER,
            metadata={"model": "offline"},
            branch_hash=follow(opening.branch_hash, "assistant", ANSWER),
        )


def turn_by_hand(database: Database, session_id: UUID) -> None:
    with database.pool.connection() as raw:
        _, *context = raw.execute(BEGIN, {"session": session_id, "text": QUESTION, "n": CONTEXT_MESSAGES}).fetchall()
        context.reverse()
    with database.pool.connection() as raw:
        raw.execute(FINISH, [ANSWER, Jsonb({"model": "offline"}), session_id]).fetchone()


def context_by_evi(database: Database, session_id: UUID) -> None:
    with closing(connection):
        Message.objects.last_in_session(session_id, limit=CONTEXT_MESSAGES)


def context_by_hand(database: Database, session_id: UUID) -> None:
    with database.pool.connection() as raw:
        raw.execute(LOAD, [session_id, CONTEXT_MESSAGES]).fetchall().reverse()


PAIRS: tuple[tuple[str, Work, Work], ...] = (
    ("turn", turn_by_evi, turn_by_hand),
    ("context", context_by_evi, context_by_hand),
)
WORKS: list[Work] = [*(work for _, *pair in PAIRS for work in pair), replayed_turn_by_evi]


def make_database(messages: int, *, rounds: int) -> Database:
    name = f"messages_{messages}"
    with connections["default"].cursor() as cursor:
        cursor.execute(SQL("CREATE DATABASE {}").format(Identifier(name)))
    connections.databases[name] = {**connections.databases["default"], "NAME": name}
    connections["default"] = connections[name]
    make_tables()
    fill(messages=messages, description=f"{messages:,} messages")
    settle()
    with connection.cursor() as cursor:
        cursor.execute("SELECT id FROM sessions ORDER BY random() LIMIT %s", [rounds * len(WORKS)])
        sessions = [row[0] for row in cursor]
        branch = Branch.of(THREAD, owner_id=None, user_id="")
        cursor.execute(LAST_MESSAGES, [branch.end, sessions])
    at = connection.get_connection_params()
    # Set as Django's is, or the two would not do the same work.
    pool = ConnectionPool(
        kwargs={**{key: at[key] for key in ("host", "port", "user", "password", "dbname")}, "autocommit": True},
        min_size=0,
        max_size=20,
        check=ConnectionPool.check_connection,
        open=True,
    )
    return Database(messages=messages, django=connections[name], pool=pool, sessions=cycle(sessions))


def measure(databases: list[Database], *, rounds: int) -> None:
    """Everything once a round, in an order of its own, so that a busy moment of the machine falls on all alike."""
    tasks = [(database, work) for database in databases for work in WORKS]
    for _ in track(range(rounds + WARM_UP_ROUNDS), "Measuring", console=console, refresh_per_second=1):
        random.shuffle(tasks)
        for database, work in tasks:
            connections["default"] = database.django
            session_id = next(database.sessions)
            started = perf_counter()
            work(database, session_id)
            database.seconds.setdefault(work, []).append(perf_counter() - started)


def table_of(databases: list[Database]) -> Table:
    table = Table("messages", "work", "EVI", "p95", "psycopg", "p95", "EVI ÷ psycopg", title="Milliseconds, median")
    for database in databases:
        for label, ours, theirs in PAIRS:
            evi, hand = database.latency(ours), database.latency(theirs)
            numbers = (evi.median, evi.p95, hand.median, hand.p95, evi.median / hand.median)
            table.add_row(f"{database.messages:,}", label, *(f"{number:.2f}" for number in numbers))
        replayed = database.latency(replayed_turn_by_evi)
        table.add_row(
            f"{database.messages:,}", "turn, replayed", f"{replayed.median:.2f}", f"{replayed.p95:.2f}", "", "", ""
        )
    return table


def promises_of(databases: list[Database]) -> list[Promise]:
    small, large = databases[0], databases[-1]
    context = small.latency(context_by_evi).median
    return [
        Promise(f"context, {small.messages:,} messages", context, 3, " ms"),
        Promise(
            f"context, {large.messages:,} ÷ {small.messages:,}", large.latency(context_by_evi).median / context, 1.5
        ),
        *(
            Promise(
                f"{label}, {database.messages:,} messages, EVI ÷ psycopg",
                database.latency(ours).median / database.latency(theirs).median,
                2,
            )
            # The promise is about a turn, which stores and loads. A plain queryset spends more than its share in
            # Django's compiler; the table shows it.
            for label, ours, theirs in PAIRS[:1]
            for database in databases
        ),
        Promise(
            f"turn, {large.messages:,} messages, with its thread of {MESSAGES_A_SESSION} ÷ without",
            large.latency(replayed_turn_by_evi).median / large.latency(turn_by_evi).median,
            1.5,
        ),
    ]


def main() -> int:
    parser = ArgumentParser(prog="python -m bench.turn_writes", description=__doc__)
    parser.add_argument("--messages", default="40000,1000000", help="sizes to compare (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=500, help="measurements of each (default: %(default)s)")
    options = parser.parse_args()
    sizes = sorted({int(size) for size in options.messages.split(",")})
    with throwaway_cluster():
        databases = [make_database(size, rounds=options.rounds) for size in sizes]
        measure(databases, rounds=options.rounds)
        for database in databases:
            database.pool.close()
    console.print(table_of(databases))
    return verdict(promises_of(databases))


# What somebody would write who has psycopg and the same rules: whose session it is, and an answer to a session that
# was deleted is dropped. The first row is the question.
BEGIN = """
    WITH touched AS (
        INSERT INTO sessions (id, owner_id, user_id) VALUES (%(session)s, NULL, '')
        ON CONFLICT (id) DO UPDATE SET last_accessed = clock_timestamp()
            WHERE sessions.owner_id IS NULL AND sessions.user_id = ''
        RETURNING id
    ), question AS (
        INSERT INTO messages (session_id, role, content) SELECT id, 'user', %(text)s FROM touched
        RETURNING id, role, content, status, metadata, created_at, seq
    )
    SELECT * FROM question
    UNION ALL (
        SELECT id, role, content, status, metadata, created_at, seq FROM messages
        WHERE session_id = %(session)s ORDER BY created_at DESC, seq DESC LIMIT %(n)s
    )
"""

FINISH = """
    INSERT INTO messages (session_id, role, content, status, metadata)
    SELECT id, 'assistant', %s, 'complete', %s FROM sessions WHERE id = %s FOR NO KEY UPDATE
    RETURNING id
"""

# Every thread of the fill has the same words, and so the same hash at its end.
LAST_MESSAGES = """
    UPDATE messages SET branch_hash = %s WHERE id IN (
        SELECT DISTINCT ON (session_id) id FROM messages WHERE session_id = ANY(%s)
        ORDER BY session_id, created_at DESC, seq DESC
    )
"""

LOAD = """
    SELECT id, session_id, role, content, status, metadata, created_at, seq FROM messages
    WHERE session_id = %s ORDER BY created_at DESC, seq DESC LIMIT %s
"""

if __name__ == "__main__":
    sys.exit(main())
