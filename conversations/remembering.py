"""What people said becomes findable: the worker embeds it after the turn, a batch at a time."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, LiteralString

from django.db import connection, transaction
from pgvector import Vector as VectorText
from psycopg.sql import SQL, Identifier, Literal

from agentbridge.database import advisory_lock
from agentbridge.embeddings import Embedder, current_embedder, readable, vectors_of
from agentbridge.lexical import DICTIONARIES, TERMS, words
from agentbridge.understanding import language_of
from conversations.models import EmbeddingProgress

# Small, because a batch keeps its sessions from being handed over while it is stored.
BATCH = 32
# A text's beginning says what it means; its words are taken from all of it.
MOST_CHARACTERS = 2000
# More different words than that has nobody anything to say about.
MOST_WORDS = 5000
# Any number that nothing else in this database locks.
LOCK = 0x4556490002


@dataclass(frozen=True)
class Waiting:
    """A text that is not embedded yet."""

    id: Any
    text: str
    seq: int = 0


def backlog(*, thorough: bool = False, most_messages: int | None = None) -> int:
    """How many texts cannot be found yet: messages, of which at most so many are counted, summaries and facts."""
    model = current_embedder().name
    with connection.cursor() as cursor:
        after = 0 if thorough else _through(model)
        cursor.execute(BACKLOG, {"model": model, "after": after, "most": most_messages})
        [[count]] = cursor.fetchall()
    return int(count)


def make_findable(
    *, thorough: bool = False, rests: bool = False, on_batch: Callable[[int], object] = lambda stored: None
) -> int:
    """Embed what is not embedded yet, or not by the current model; how many texts that were.

    Every batch is committed, so what was done stays done. Only one process is at it; another one has nothing to do.
    A `thorough` search looks at all messages, and not just at those since the last time. Who `rests` does so after each
    batch for as long as it took, and leaves those who are talking their half of the machine.
    """
    embedder = current_embedder()
    started = time.monotonic()

    def after_batch(stored: int) -> None:
        nonlocal started
        on_batch(stored)
        if rests:
            time.sleep(time.monotonic() - started)
        started = time.monotonic()

    with advisory_lock(LOCK, wait=False) as is_ours:
        return _embed_all(embedder, thorough=thorough, on_batch=after_batch) if is_ours else 0


def _embed_all(embedder: Embedder, *, thorough: bool, on_batch: Callable[[int], object]) -> int:
    done = 0
    for table in ("summaries", "facts"):
        while batch := _read(TEXTS[table], model=embedder.name):
            stored = _store(STORE_TEXTS[table], batch, embedder=embedder)
            done += stored
            on_batch(stored)
            if not stored:
                # All of it was changed or deleted this moment.
                break
    moment = _look_at_the_clock(embedder.name)
    after = 0 if thorough else moment.through_seq
    left_out = False
    while batch := _read(MESSAGES, model=embedder.name, after=after):
        stored = _store(STORE_MESSAGES, batch, embedder=embedder)
        # Somebody has its session at this moment, or it is gone.
        left_out = left_out or stored < len(batch)
        after = batch[-1].seq
        done += stored
        on_batch(stored)
    if not left_out:
        _advance(embedder.name, moment)
    return done


@dataclass(frozen=True)
class _Moment:
    """What was known when a search for new messages began."""

    through_seq: int
    # The last number that a message had been given by then.
    head: int
    # Whether all are done who were writing when `next_seq` was noted. A message of theirs may have a lower number than
    # those that could be seen already.
    is_settled: bool


def _look_at_the_clock(model: str) -> _Moment:
    EmbeddingProgress.objects.get_or_create(embedding_model=model)
    with connection.cursor() as cursor:
        cursor.execute(MOMENT, [model])
        [moment] = cursor.fetchall()
    return _Moment(*moment)


def _advance(model: str, moment: _Moment) -> None:
    """Remember how far this search came, as far as that is certain."""
    with connection.cursor() as cursor:
        cursor.execute(ADVANCE, {"model": model, "is_settled": moment.is_settled, "head": moment.head})


def _through(model: str) -> int:
    return EmbeddingProgress.objects.filter(embedding_model=model).values_list("through_seq", flat=True).first() or 0


def _read(statement: str, **parameters: Any) -> list[Waiting]:
    with connection.cursor() as cursor:
        cursor.execute(statement, {**parameters, "batch": BATCH})
        return [Waiting(*row) for row in cursor.fetchall()]


def _store(statement: str, batch: Sequence[Waiting], *, embedder: Embedder) -> int:
    # Without a transaction: a model may take its time.
    vectors = vectors_of([readable(each.text)[:MOST_CHARACTERS] for each in batch], embedder=embedder)
    for dimensions in {len(vector) for vector in vectors if vector is not None}:
        _index_vectors(dimensions)
    parameters: dict[str, Any] = {
        "model": embedder.name,
        "ids": [each.id for each in batch],
        "texts": [each.text for each in batch],
        "vectors": [None if vector is None else VectorText(vector).to_text() for vector in vectors],
        "dictionaries": [DICTIONARIES[language_of(each.text.lower()) or "nl"] for each in batch],
        "words": [" ".join(list(dict.fromkeys(words(each.text)))[:MOST_WORDS]) for each in batch],
    }
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        return int(cursor.rowcount)


@cache
def _index_vectors(dimensions: int) -> None:
    """Make the indexes for so many dimensions, where there are none; those of the bundled model are there."""
    with transaction.atomic(), connection.cursor() as cursor:
        for table in ("message_embeddings", "summaries"):
            name = f"idx_{table}_{dimensions}"
            cursor.execute("SELECT to_regclass(%s) IS NULL", [name])
            if cursor.fetchone() == (True,):
                index = SQL(INDEX_VECTORS).format(
                    name=Identifier(name), table=Identifier(table), dimensions=Literal(dimensions)
                )
                cursor.execute(index)


# What a person could find: not what they edited away, nor an answer that broke off before its first word.
FINDABLE: LiteralString = "superseded_by IS NULL AND role IN ('user', 'assistant') AND content ~ '[[:alnum:]]'"

UNEMBEDDED: LiteralString = (
    "seq > %(after)s AND "
    + FINDABLE
    + """ AND NOT EXISTS (
        SELECT FROM message_embeddings WHERE message_id = messages.id AND embedding_model = %(model)s
    )"""
)

MESSAGES = f"SELECT id, content, seq FROM messages WHERE {UNEMBEDDED} ORDER BY seq LIMIT %(batch)s"  # noqa: S608

TEXTS = {
    table: f"SELECT {key}, text FROM {table} WHERE embedding_model <> %(model)s LIMIT %(batch)s"  # noqa: S608
    for table, key in (("summaries", "session_id"), ("facts", "id"))
}

# The newest first: those wait longest, so whoever wants no more than some has them at once.
BACKLOG = f"""
    SELECT (SELECT count(*) FROM (
            SELECT FROM messages WHERE {UNEMBEDDED} ORDER BY seq DESC LIMIT %(most)s
        ) AS waiting)
        + (SELECT count(*) FROM summaries WHERE embedding_model <> %(model)s)
        + (SELECT count(*) FROM facts WHERE embedding_model <> %(model)s)
"""  # noqa: S608

ROWS: LiteralString = """
    unnest(%(ids)s::uuid[], %(texts)s::text[], %(vectors)s::text[], %(dictionaries)s::text[], %(words)s::text[])
        AS row (id, text, vector, dictionary, words)
"""

# Whoever has the session or the message at this moment may be changing whose it is, or what it says: it waits for the
# next time, and nobody waits for the worker longer than a batch takes to store.
STORE_MESSAGES = f"""
    WITH held AS MATERIALIZED (
        SELECT messages.id, session_id, owner_id, user_id, channel, role, messages.created_at, content
        FROM messages JOIN sessions ON sessions.id = session_id
        WHERE messages.id = ANY(%(ids)s::uuid[]) AND {FINDABLE}
        FOR SHARE SKIP LOCKED
    )
    INSERT INTO message_embeddings
        (message_id, session_id, person, channel, role, said_at, embedding, embedding_model, terms)
    SELECT held.id, session_id, person_number(owner_id, user_id), channel, role, created_at,
        row.vector::halfvec, %(model)s, ({TERMS})
    FROM {ROWS} JOIN held ON held.id = row.id AND held.content = row.text
    ON CONFLICT (message_id) DO UPDATE
        SET embedding = excluded.embedding, embedding_model = excluded.embedding_model, terms = excluded.terms
"""  # noqa: S608

# What was changed in the meantime is left for the next time.
STORE_TEXTS = {
    table: f"""
        UPDATE {table} SET embedding = row.vector::vector, embedding_model = %(model)s, terms = ({TERMS})
        FROM {ROWS} WHERE {table}.{key} = row.id AND {table}.text = row.text
    """  # noqa: S608
    for table, key in (("summaries", "session_id"), ("facts", "id"))
}

MOMENT = """
    SELECT through_seq,
        -- Of a sequence that has given out no number yet, the last one is the first that it will.
        (SELECT CASE WHEN is_called THEN last_value ELSE last_value - 1 END FROM messages_seq),
        coalesce(next_xid <= pg_snapshot_xmin(pg_current_snapshot())::text::bigint, false)
    FROM embedding_progress WHERE embedding_model = %s
"""

# The numbers are read again, because what was taken up again meanwhile lowers them.
ADVANCE = """
    UPDATE embedding_progress SET
        through_seq = CASE WHEN %(is_settled)s THEN greatest(through_seq, next_seq) ELSE through_seq END,
        next_seq = %(head)s,
        next_xid = pg_snapshot_xmax(pg_current_snapshot())::text::bigint
    WHERE embedding_model = %(model)s
"""

INDEX_VECTORS = """
    CREATE INDEX {name} ON {table} USING hnsw ((binary_quantize(embedding)::bit({dimensions})) bit_hamming_ops)
    WHERE vector_dims(embedding) = {dimensions}
"""
