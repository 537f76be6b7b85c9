"""What a search over everything that was said costs: one person has it all, and a thousand share it."""

import random
import sys
from argparse import ArgumentParser
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from time import perf_counter

from django.db import connection, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from pgvector import Vector as VectorText
from psycopg.sql import SQL, Identifier
from rich.progress import track
from rich.table import Table

from agentbridge.embeddings import current_embedder
from agentbridge.lexical import DICTIONARIES, TERMS, words
from bench import MESSAGES_A_SESSION, Latency, Promise, console, make_tables, throwaway_cluster, verdict
from bench.retrieval import QUESTIONS, make_texts, make_vocabulary
from conversations.recall import recall

MESSAGES_A_STATEMENT = 100_000
TEXTS = 5000
WARM_UP_ROUNDS = 20
# Made again when all rows are there: row by row it takes many times as long.
INDEXES = (
    "idx_message_embeddings_512",
    "idx_message_embeddings_terms",
    "idx_message_embeddings_person",
    "idx_summaries_512",
    "idx_summaries_terms",
)


@dataclass
class Share:
    """How the messages are shared out, in a database of its own."""

    persons: int
    django: BaseDatabaseWrapper
    seconds: dict[str, list[float]] = field(default_factory=dict)

    def latency(self, work: str) -> Latency:
        return Latency.of(self.seconds[work][WARM_UP_ROUNDS:])


def make_share(persons: int, *, messages: int, texts: Sequence[str]) -> Share:
    name = f"shared_by_{persons}"
    with connections["default"].cursor() as cursor:
        cursor.execute(SQL("CREATE DATABASE {}").format(Identifier(name)))
    connections.databases[name] = {**connections.databases["default"], "NAME": name}
    connections["default"] = connections[name]
    make_tables()
    embedder = current_embedder()
    # A vector for each message would take a quarter of an hour; three real ones in each are as different.
    pool = embedder.embed(texts[:500])
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE TABLE pool AS SELECT n, v::vector FROM unnest(%s::text[]) WITH ORDINALITY AS p (v, n)",
            [[VectorText(vector).to_text() for vector in pool]],
        )
        cursor.execute(
            f"CREATE TABLE texts AS SELECT id AS n, text, ({TERMS}) AS terms "  # noqa: S608
            "FROM unnest(%s::int[], %s::text[], %s::text[], %s::text[]) AS row (id, text, words, dictionary)",
            [
                list(range(len(texts))),
                list(texts),
                [" ".join(dict.fromkeys(words(text))) for text in texts],
                [DICTIONARIES["nl"]] * len(texts),
            ],
        )
        cursor.execute("CREATE INDEX ON texts (n); CREATE INDEX ON pool (n); ANALYZE texts, pool")
        definitions = []
        for index in INDEXES:
            cursor.execute("SELECT pg_get_indexdef(%s::regclass)", [index])
            definitions += [row[0] for row in cursor.fetchall()]
            cursor.execute(SQL("DROP INDEX {}").format(Identifier(index)))
        cursor.execute(SESSIONS, [persons, messages // MESSAGES_A_SESSION])
        for _ in track(range(0, messages, MESSAGES_A_STATEMENT), f"{persons:,} persons", console=console):
            sessions = min(messages, MESSAGES_A_STATEMENT) // MESSAGES_A_SESSION
            cursor.execute(MESSAGES, {"sessions": sessions, "each": MESSAGES_A_SESSION, "texts": len(texts)})
        cursor.execute(EMBEDDINGS, [embedder.name])
        cursor.execute(SUMMARIES, [embedder.name, len(texts)])
        cursor.execute("SET maintenance_work_mem = '2GB'")
        started = perf_counter()
        for definition in definitions:
            cursor.execute(definition)
        console.print(f"Indexes in {perf_counter() - started:.0f} s")
        cursor.execute("VACUUM (ANALYZE) sessions, messages, message_embeddings, summaries")
        cursor.execute("CHECKPOINT")
    return Share(persons, connections[name])


# Each takes a connection out of the pool and hands it back, as a tool of the agent does.
def search(question: str, person: str) -> None:
    with closing(connection):
        recall(question, owner_id=None, user_id=person)


def by_hand(question: str, person: str) -> None:
    """What somebody would write who wants the nearest and the worded of one person, and weighs nothing."""
    [vector] = current_embedder().embed([question])
    with closing(connection), connection.cursor() as cursor:
        cursor.execute("BEGIN; SET LOCAL hnsw.iterative_scan = 'relaxed_order'")
        cursor.execute(NEAREST, [person, VectorText(vector).to_text()])
        cursor.fetchall()
        cursor.execute("COMMIT")


WORKS: dict[str, Callable[[str, str], None]] = {"search": search, "nearest messages, by hand": by_hand}


def measure(shares: Sequence[Share], *, rounds: int) -> None:
    """Everything once a round, in an order of its own, so that a busy moment of the machine falls on all alike."""
    tasks = [(share, name) for share in shares for name in WORKS]
    for _ in track(range(rounds + WARM_UP_ROUNDS), "Measuring", console=console, refresh_per_second=1):
        random.shuffle(tasks)
        for share, name in tasks:
            connections["default"] = share.django
            question, person = random.choice(QUESTIONS), f"person {random.randrange(share.persons)}"
            started = perf_counter()
            WORKS[name](question, person)
            share.seconds.setdefault(name, []).append(perf_counter() - started)


def main() -> int:
    parser = ArgumentParser(prog="python -m bench.recall", description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000, help="how many (default: %(default)s)")
    parser.add_argument("--persons", default="1,1000", help="who share them (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=200, help="measurements of each (default: %(default)s)")
    options = parser.parse_args()
    texts = make_texts(make_vocabulary(), count=TEXTS)
    with throwaway_cluster():
        shares = [
            make_share(int(persons), messages=options.messages, texts=texts) for persons in options.persons.split(",")
        ]
        measure(shares, rounds=options.rounds)
    table = Table("persons", "work", "median", "p95", title=f"Milliseconds among {options.messages:,} messages")
    for share in shares:
        for name in WORKS:
            latency = share.latency(name)
            table.add_row(f"{share.persons:,}", name, f"{latency.median:.2f}", f"{latency.p95:.2f}")
    console.print(table)
    return verdict(
        [
            Promise(f"search, messages of {share.persons:,}", share.latency("search").median, 30, " ms")
            for share in shares
        ]
    )


SESSIONS = """
    INSERT INTO sessions (user_id, channel)
    SELECT 'person ' || (n %% %s), 'api' FROM generate_series(0, %s - 1) AS n
"""

# The sessions that have none yet. A message's number chooses its text.
MESSAGES = """
    INSERT INTO messages (session_id, role, content)
    SELECT session_id, CASE number %% 2 WHEN 1 THEN 'user' ELSE 'assistant' END, text
    FROM (
        SELECT chosen.id AS session_id, number, floor(random() * %(texts)s)::int AS n
        FROM (SELECT id FROM sessions WHERE message_count = 0 LIMIT %(sessions)s) AS chosen
            CROSS JOIN generate_series(1, %(each)s) AS number
        ORDER BY number
    ) AS said JOIN texts USING (n)
"""

EMBEDDINGS = """
    INSERT INTO message_embeddings
        (message_id, session_id, person, channel, role, said_at, embedding, embedding_model, terms)
    SELECT messages.id, session_id, person_number(owner_id, user_id), channel, role, messages.created_at,
        l2_normalize(a.v + b.v + c.v)::halfvec, %s, terms
    FROM (SELECT *, 1 + seq %% 499 AS one, 1 + (seq * 7) %% 491 AS two, 1 + (seq * 13) %% 487 AS three
        FROM messages) AS messages
    JOIN sessions ON sessions.id = session_id JOIN texts ON text = content
    JOIN pool AS a ON a.n = one JOIN pool AS b ON b.n = two JOIN pool AS c ON c.n = three
"""

SUMMARIES = """
    INSERT INTO summaries (session_id, text, message_count, last_seq, embedding, embedding_model, terms)
    SELECT sessions.id, text, message_count, 0, v, %s, terms
    FROM (SELECT *, row_number() OVER () AS number FROM sessions) AS sessions
    JOIN texts ON texts.n = number %% %s JOIN pool ON pool.n = 1 + number %% 499
"""

NEAREST = """
    SELECT message_id, content FROM message_embeddings JOIN messages ON messages.id = message_id
    WHERE person = person_number(NULL, %s) AND vector_dims(embedding) = 512
    ORDER BY binary_quantize(embedding)::bit(512) <~> binary_quantize(%s::halfvec(512))::bit(512) LIMIT 10
"""

if __name__ == "__main__":
    sys.exit(main())
