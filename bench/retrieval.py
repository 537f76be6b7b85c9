"""What a search costs among few chunks and among many, and beside a bare search for the nearest vectors."""

import random
import re
import sys
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from time import perf_counter

import numpy as np
from django.db import connection, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from pgvector import Vector as VectorText
from psycopg.sql import SQL, Identifier
from rich.progress import track
from rich.table import Table

from agentbridge.embeddings import current_embedder
from agentbridge.indexing import GUIDELINES, count_words, index_vectors, take_in_words
from agentbridge.lexical import understand
from agentbridge.retrieval import search_guidelines
from bench import Latency, Promise, console, make_tables, throwaway_cluster, verdict
from evi_site.environment import BASE_DIR

CHUNKS_A_STATEMENT = 10_000
WORDS_A_CHUNK = 50
WARM_UP_ROUNDS = 20
VOCABULARY = 20_000
SAMPLE = [
    path.read_text() for path in sorted((BASE_DIR / "agentbridge" / "sample").rglob("*.md")) if ".en" not in path.name
]
QUESTIONS = re.findall(r"^## (.+)$", "\n".join(SAMPLE), re.MULTILINE)


@dataclass
class Size:
    """One size of the knowledge base, in a database of its own."""

    chunks: int
    django: BaseDatabaseWrapper
    seconds: dict[str, list[float]] = field(default_factory=dict)

    def latency(self, work: str) -> Latency:
        return Latency.of(self.seconds[work][WARM_UP_ROUNDS:])


def make_vocabulary() -> list[str]:
    """The words of the sample, the common ones first; then compounds of them, as Dutch makes its rare words."""
    counts = Counter(re.findall(r"[^\W\d_]{2,}", " ".join(SAMPLE).lower()))
    words = [word for word, _ in counts.most_common()]
    parts = [word for word in words if 4 <= len(word) <= 9]
    compounds = (random.choice(parts) + random.choice(parts) for _ in range(2 * VOCABULARY))
    return list(dict.fromkeys([*words, *compounds]))[:VOCABULARY]


def make_texts(vocabulary: Sequence[str], *, count: int) -> list[str]:
    ranks = np.random.zipf(1.15, size=(count, WORDS_A_CHUNK)) % len(vocabulary)
    return [" ".join(vocabulary[rank] for rank in row) for row in ranks]


def make_size(chunks: int, *, vocabulary: Sequence[str]) -> Size:
    name = f"chunks_{chunks}"
    with connections["default"].cursor() as cursor:
        cursor.execute(SQL("CREATE DATABASE {}").format(Identifier(name)))
    connections.databases[name] = {**connections.databases["default"], "NAME": name}
    connections["default"] = connections[name]
    make_tables()
    embedder = current_embedder()
    # A vector for each would take minutes; three real ones in each are as different.
    pool = embedder.embed(make_texts(vocabulary, count=500))
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE TABLE pool AS SELECT n, v::vector FROM unnest(%s::text[]) WITH ORDINALITY AS p (v, n)",
            [[VectorText(vector).to_text() for vector in pool]],
        )
        cursor.execute(DOCUMENTS, [max(1, chunks // 20)])
        for start in track(range(0, chunks, CHUNKS_A_STATEMENT), f"{chunks:,} chunks", console=console):
            cursor.execute(CHUNKS, [make_texts(vocabulary, count=min(CHUNKS_A_STATEMENT, chunks - start))])
        take_in_words(GUIDELINES)
        count_words()
        # Made again below: row by row it takes many times as long.
        cursor.execute("DROP INDEX idx_chunks_embedding_512")
        cursor.execute(VECTORS, [embedder.name])
        cursor.execute("SET maintenance_work_mem = '512MB'")
        started = perf_counter()
        index_vectors(GUIDELINES)
        console.print(f"Index of {chunks:,} vectors in {perf_counter() - started:.0f} s")
        cursor.execute("VACUUM (ANALYZE) documents, chunks, words")
        cursor.execute("CHECKPOINT")
    return Size(chunks, connections[name])


# Each takes a connection out of the pool and hands it back, as a tool of the agent does.
def embedding(question: str) -> None:
    current_embedder().embed([question])


def understanding(question: str) -> None:
    with closing(connection):
        understand(question)


def nearest(question: str) -> None:
    """What somebody would write who has vectors and nothing else."""
    [vector] = current_embedder().embed([question])
    with closing(connection), connection.cursor() as cursor:
        cursor.execute(NEAREST, [VectorText(vector).to_text()])
        cursor.fetchall()


def search(question: str) -> None:
    with closing(connection):
        search_guidelines(question)


WORKS: dict[str, Callable[[str], None]] = {
    "embedding": embedding,
    "understanding the words": understanding,
    "nearest vectors alone": nearest,
    "search": search,
}


def measure(sizes: Sequence[Size], *, rounds: int) -> None:
    """Everything once a round, in an order of its own, so that a busy moment of the machine falls on all alike."""
    tasks = [(size, name) for size in sizes for name in WORKS]
    for _ in track(range(rounds + WARM_UP_ROUNDS), "Measuring", console=console, refresh_per_second=1):
        random.shuffle(tasks)
        for size, name in tasks:
            connections["default"] = size.django
            question = random.choice(QUESTIONS)
            started = perf_counter()
            WORKS[name](question)
            size.seconds.setdefault(name, []).append(perf_counter() - started)


def main() -> int:
    parser = ArgumentParser(prog="python -m bench.retrieval", description=__doc__)
    parser.add_argument("--chunks", default="1000,100000", help="sizes to compare (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=200, help="measurements of each (default: %(default)s)")
    options = parser.parse_args()
    vocabulary = make_vocabulary()
    with throwaway_cluster():
        sizes = [make_size(int(size), vocabulary=vocabulary) for size in options.chunks.split(",")]
        measure(sizes, rounds=options.rounds)
    table = Table("chunks", "work", "median", "p95", title="Milliseconds")
    for size in sizes:
        for name in WORKS:
            latency = size.latency(name)
            table.add_row(f"{size.chunks:,}", name, f"{latency.median:.2f}", f"{latency.p95:.2f}")
    console.print(table)
    small, large = sizes[0], sizes[-1]
    median = large.latency("search").median
    bare = large.latency("nearest vectors alone").median
    return verdict(
        [
            Promise(f"search among {large.chunks:,}", median, 15, " ms"),
            Promise(f"search among {large.chunks:,} ÷ {small.chunks:,}", median / small.latency("search").median, 3),
            Promise(f"search among {large.chunks:,} ÷ the nearest vectors alone", median / bare, 4),
        ]
    )


DOCUMENTS = """
    INSERT INTO documents (origin, title, content_hash, language)
    SELECT 'file ' || n, 'Richtlijn ' || n, n::text, 'nl' FROM generate_series(1, %s) AS n
"""

CHUNKS = """
    INSERT INTO chunks (document_id, position, text, content_hash)
    SELECT documents.id, text.n, text.text, md5(text.text)
    FROM unnest(%s::text[]) WITH ORDINALITY AS text (text, n)
    JOIN (SELECT id, row_number() OVER () - 1 AS n, count(*) OVER () AS all FROM documents) AS documents
        ON documents.n = text.n %% documents.all
"""

VECTORS = """
    UPDATE chunks SET embedding_model = %s, embedding = l2_normalize(a.v + b.v + c.v)
    FROM (
        SELECT id, ceil(random() * 500) AS a, ceil(random() * 500) AS b, ceil(random() * 500) AS c FROM chunks
    ) AS chosen
    JOIN pool AS a ON a.n = chosen.a JOIN pool AS b ON b.n = chosen.b JOIN pool AS c ON c.n = chosen.c
    WHERE chosen.id = chunks.id
"""

NEAREST = """
    SELECT id, text FROM chunks WHERE retired_at IS NULL AND vector_dims(embedding) = 512
    ORDER BY embedding::halfvec(512) <=> %s::halfvec(512) LIMIT 5
"""

if __name__ == "__main__":
    sys.exit(main())
