"""What may be found: candidates by meaning and by words, out of PostgreSQL, before anybody weighs them."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache
from typing import Literal, LiteralString, NamedTuple
from uuid import UUID

from psycopg.sql import SQL, Composed

from agentbridge.database import prepared
from agentbridge.embeddings import Vector, current_embedder
from agentbridge.lexical import Term, understand
from agentbridge.question_vectors import Embedding
from agentbridge.synonyms import official_words

Kind = Literal["message", "summary", "fact"]

# Of so many messages all are compared by their sketches; of more, those that the index of sketches leads to.
FEW = 10_000
# And of so many sessions all summaries are read.
FEW_SESSIONS = 200
# So many are weighed at most: those nearest by their sketches, and those with words of the question.
NEAREST = 100
WORDED = 150
SUMMARIES_OF_EACH = 40
# Words that more of a person's messages have lead nowhere, and cost.
MOST_ROWS = 2500
# Of the words that too many have, so many are looked for together.
TOGETHER = 4
# A search has room for so many words; a few sizes, so that each is planned once and not for every question.
SLOTS = (4, 8, 16)


@dataclass(frozen=True, kw_only=True)
class Filters:
    """What is not looked at."""

    kind: Kind | None = None
    channel: str | None = None
    role: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    # The messages that whoever asks has before them, and the session that they are in.
    known: Collection[UUID] = ()
    known_session: UUID | None = None
    # Questions about what was said before, and the answers to them, which say it once more.
    leaves_out_echoes: bool = False

    def looks_at(self, kind: Kind) -> bool:
        """Only a message was said by somebody, and a fact belongs to no channel."""
        if (self.role and kind != "message") or (self.channel and kind == "fact"):
            return False
        return self.kind in (None, kind)


@dataclass(frozen=True)
class Question:
    terms: Sequence[Term]
    vector: Vector | None
    model: str

    @property
    def stems(self) -> frozenset[str]:
        return frozenset(stem for term in self.terms for stem in _stems(f"{term.exact} {term.parts}"))


class Candidate(NamedTuple):
    kind: Kind
    id: UUID
    session_id: UUID | None
    # None where there is no vector to compare.
    similarity: float | None
    # Which of the terms it has, bit by bit: the word itself, or one that has a part in common with it.
    exact: int
    partly: int
    # In different words.
    length: int


@dataclass(frozen=True)
class Field:
    """All candidates, and among how many."""

    candidates: Sequence[Candidate]
    # This person's messages, counted no further than needed; and everybody's, about.
    rows: int
    everybodys: float
    # The share of all messages that have a word, of those that many have.
    commonness: Mapping[str, float]

    @property
    def most(self) -> float:
        """How many messages this person can have at most."""
        return self.rows if self.rows <= FEW else self.everybodys

    def share(self, term: Term) -> float:
        return max((self.commonness.get(stem, 0) for stem in _stems(term.exact)), default=0)


def understood(query: str, *, embedding: Embedding | None = None) -> Question:
    embedding = embedding or embedding_of(query)
    embedding.wait_if_remote()
    terms = sorted(understand(query, also=official_words(query)).terms, key=lambda term: not term.asked)
    return Question(terms[: SLOTS[-1]], embedding.vector(), embedding.embedder.name)


def embedding_of(query: str) -> Embedding:
    """A question on its way to a vector."""
    return Embedding.of([query], embedder=current_embedder())


def candidates(question: Question, *, owner_id: int | None, user_id: str, filters: Filters) -> Field:
    """Of one person behind one client. Whose a find really is, its session says when it is read."""
    [size] = prepared(
        SQL(SIZE).format(mine=_mine(owner_id)),
        {
            "owner": owner_id,
            "user": user_id,
            "few": FEW + 1,
            "few_sessions": FEW_SESSIONS + 1,
            "stems": sorted(question.stems),
        },
    )
    field = Field((), rows=size["rows"], everybodys=size["everybodys"], commonness=size["commonness"])
    slots = next(number for number in SLOTS if number >= len(question.terms))
    dimensions = 1 if question.vector is None else len(question.vector)
    parameters = {
        **_in_slots(question.terms, slots=slots),
        **_leading(question.terms, field),
        "owner": owner_id,
        "user": user_id,
        "person": size["person"],
        "model": question.model,
        "vector": None if question.vector is None else f"[{','.join(f'{n:.5g}' for n in question.vector.tolist())}]",
        "nearest": NEAREST,
        "worded": WORDED,
        "summaries": SUMMARIES_OF_EACH,
        "channel": filters.channel,
        "role": filters.role,
        "since": filters.since,
        "until": filters.until,
        "known": list(filters.known),
        "known_session": filters.known_session,
    }
    are_few = {"message": size["rows"] <= FEW, "summary": size["sessions"] <= FEW_SESSIONS, "fact": True}
    found: list[Candidate] = []
    for kind in KINDS:
        if filters.looks_at(kind):
            statement = _statement(
                kind,
                is_few=are_few[kind],
                has_owner=owner_id is not None,
                conditions=_conditions(kind, filters),
                dimensions=dimensions,
                slots=slots,
            )
            settings = FEW_ROWS if are_few[kind] else MANY
            found += [Candidate(kind, **row) for row in prepared(statement, parameters, settings=settings)]
    return replace(field, candidates=found)


def _stems(query: str) -> list[str]:
    return re.findall(r"'([^']+)'", query)


def _in_slots(terms: Sequence[Term], *, slots: int) -> dict[str, str]:
    padded = [*((term.exact, term.parts) for term in terms), *[("", "")] * slots]
    return {
        f"{name}{slot}": query
        for slot, queries in enumerate(padded[:slots])
        for name, query in zip(("exact", "parts"), queries, strict=True)
    }


def _leading(terms: Sequence[Term], field: Field) -> dict[str, str]:
    """Which words lead to candidates: those that few messages have, and of the common ones several together."""
    rare, common = [], []
    rows = 0.0
    for term in sorted(terms, key=field.share):
        rows += field.share(term) * field.most
        if rows > MOST_ROWS:
            common.append(f"({term.exact})")
        else:
            rare.append(" | ".join(filter(None, (term.exact, term.parts))))
    return {"rare": " | ".join(rare), "together": " & ".join(common[:TOGETHER]) if len(common) > 1 else ""}


def _conditions(kind: Kind, filters: Filters) -> tuple[str, ...]:
    """By name, because a statement is planned once for each set of them."""
    wanted = [name for name in ("channel", "role", "since", "until", "known") if getattr(filters, name)]
    if kind == "summary" and filters.known_session:
        wanted.append("known_session")
    return tuple(name for name in wanted if name in CONDITIONS[kind])


@cache
def _statement(
    kind: Kind, *, is_few: bool, has_owner: bool, conditions: Sequence[str], dimensions: int, slots: int
) -> Composed:
    statements: dict[tuple[Kind, bool], LiteralString] = {
        ("message", True): MESSAGES,
        ("message", False): MESSAGES,
        ("summary", True): FEW_SUMMARIES,
        ("summary", False): SUMMARIES,
        ("fact", True): FACTS,
    }
    where = SQL(" AND ").join([SQL("true"), *(SQL(CONDITIONS[kind][name]) for name in conditions)])
    masks = {
        name: SQL(" + ").join(
            SQL(f"CASE WHEN words @@ %({name}{slot})s::tsquery THEN {1 << slot} ELSE 0 END") for slot in range(slots)
        )
        for name in ("exact", "parts")
    }
    bits = SQL(f"bit({dimensions})")
    weighed = SQL(WEIGHED).format(dimensions=SQL(str(dimensions)), **masks)
    return SQL(statements[kind, is_few]).format(
        where=where,
        mine=_mine(0 if has_owner else None),
        weighed=weighed,
        dimensions=SQL(str(dimensions)),
        sketch=SQL("sketch::{}" if is_few else "binary_quantize(embedding)::{}").format(bits),
        asked=SQL("binary_quantize(%(vector)s::text::halfvec)::{}").format(bits),
        # The index of sketches is one of vectors with so many dimensions; one person's rows are found without it.
        sized=SQL("true") if is_few else SQL(f"vector_dims(embedding) = {dimensions}"),
    )


def _mine(owner_id: int | None) -> SQL:
    """Two ways to say it, because PostgreSQL looks up neither NULL nor IS NOT DISTINCT FROM in the same index."""
    return SQL("owner_id IS NULL AND user_id = %(user)s" if owner_id is None else MINE)


KINDS: tuple[Kind, ...] = ("message", "summary", "fact")
MINE: LiteralString = "owner_id = %(owner)s::int AND user_id = %(user)s"
# Which way is best depends on the person and on the words: the plan for any of them takes ten times as long as one that
# is made for these.
FEW_ROWS: Mapping[LiteralString, LiteralString] = {"plan_cache_mode": "force_custom_plan"}
# The index of sketches has everybody's in it, and goes on until it has enough of this person's.
MANY: Mapping[LiteralString, LiteralString] = {
    **FEW_ROWS,
    "hnsw.iterative_scan": "relaxed_order",
    "hnsw.ef_search": "100",
    "enable_seqscan": "off",
}

CONDITIONS: dict[Kind, dict[str, LiteralString]] = {
    "message": {
        "channel": "channel = %(channel)s",
        "role": "role = %(role)s",
        "since": "said_at >= %(since)s::timestamptz",
        "until": "said_at < %(until)s::timestamptz",
        "known": "message_id <> ALL(%(known)s::uuid[])",
    },
    "summary": {
        "channel": "sessions.channel = %(channel)s",
        "since": "summarized_at >= %(since)s::timestamptz",
        "until": "summarized_at < %(until)s::timestamptz",
        "known_session": "session_id <> %(known_session)s::uuid",
    },
    "fact": {
        "since": "created_at >= %(since)s::timestamptz",
        "until": "created_at < %(until)s::timestamptz",
    },
}

SIZE = """
    SELECT person_number(%(owner)s::bigint, %(user)s) AS person,
        (SELECT count(*) FROM (
            SELECT FROM message_embeddings WHERE person = person_number(%(owner)s::bigint, %(user)s) LIMIT %(few)s
        ) AS counted) AS rows,
        (SELECT count(*) FROM (SELECT FROM sessions WHERE {mine} LIMIT %(few_sessions)s) AS counted) AS sessions,
        (SELECT greatest(reltuples, 0) FROM pg_class WHERE oid = 'message_embeddings'::regclass) AS everybodys,
        -- As PostgreSQL counted them when it last looked at the table, for its own plans.
        (SELECT coalesce(json_object_agg(lexeme, share), '{{}}')
            FROM pg_stats, unnest(most_common_elems::text::text[], most_common_elem_freqs) AS common (lexeme, share)
            WHERE schemaname = current_schema() AND tablename = 'message_embeddings' AND attname = 'terms'
                AND lexeme = ANY(%(stems)s)) AS commonness
"""

# Stripped for a copy that is unpacked once, not for every word; OFFSET 0 keeps both from being worked out again at
# every mention.
WEIGHED: LiteralString = """
    CASE WHEN embedding_model = %(model)s AND vector_dims(embedding) = {dimensions}
        THEN nullif(1 - (embedding::halfvec <=> %(vector)s::text::halfvec), 'NaN') END AS similarity,
    exact, partly, length(words) AS length
    FROM row, LATERAL (SELECT strip(terms) AS words OFFSET 0) AS stripped,
        LATERAL (SELECT {exact} AS exact, {parts} AS partly OFFSET 0) AS mask
"""

MESSAGES: LiteralString = """
    WITH nearest AS MATERIALIZED (
        SELECT message_id FROM message_embeddings
        WHERE person = %(person)s AND {where} AND embedding_model = %(model)s AND {sized}
            AND %(vector)s::text IS NOT NULL
        ORDER BY {sketch} <~> {asked} LIMIT %(nearest)s
    ), worded AS MATERIALIZED (
        SELECT message_id FROM message_embeddings
        WHERE person = %(person)s AND {where} AND terms @@ %(rare)s::tsquery LIMIT %(worded)s
    ), together AS MATERIALIZED (
        SELECT message_id FROM message_embeddings
        WHERE person = %(person)s AND {where} AND terms @@ %(together)s::tsquery LIMIT %(worded)s
    ), row AS MATERIALIZED (
        SELECT message_id AS id, session_id, embedding, embedding_model, terms
        FROM (TABLE nearest UNION TABLE worded UNION TABLE together) AS found
        JOIN message_embeddings USING (message_id)
    )
    SELECT id, session_id, {weighed}
"""

FEW_SUMMARIES: LiteralString = """
    WITH row AS (
        SELECT session_id AS id, session_id, embedding, embedding_model, terms
        FROM summaries JOIN sessions ON sessions.id = session_id
        WHERE {mine} AND {where}
    )
    SELECT id, session_id, {weighed}
"""

SUMMARIES: LiteralString = """
    WITH nearest AS MATERIALIZED (
        SELECT session_id FROM summaries JOIN sessions ON sessions.id = session_id
        WHERE {mine} AND {where} AND embedding_model = %(model)s AND {sized} AND %(vector)s::text IS NOT NULL
        ORDER BY {sketch} <~> {asked} LIMIT %(summaries)s
    ), worded AS MATERIALIZED (
        SELECT session_id FROM summaries JOIN sessions ON sessions.id = session_id
        WHERE {mine} AND {where} AND terms @@ %(rare)s::tsquery LIMIT %(summaries)s
    ), row AS MATERIALIZED (
        SELECT session_id AS id, session_id, embedding, embedding_model, terms
        FROM (TABLE nearest UNION TABLE worded) AS found JOIN summaries USING (session_id)
    )
    SELECT id, session_id, {weighed}
"""

FACTS: LiteralString = """
    WITH row AS (
        SELECT id, NULL::uuid AS session_id, embedding, embedding_model, terms FROM facts
        WHERE {mine} AND status = 'approved' AND {where}
    )
    SELECT id, session_id, {weighed}
"""
