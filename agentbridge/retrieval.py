"""Hybrid search: what was meant and the words that were used, weighed together in PostgreSQL."""

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any, LiteralString, TypeVar
from uuid import UUID

import numpy as np
from psycopg.sql import Composed

from agentbridge.database import advisory_lock, prepared
from agentbridge.embeddings import Embedder, Vector, current_embedder, readable
from agentbridge.indexing import (
    GUIDELINES,
    PRODUCTS,
    SHELVES,
    Shelf,
    count_waiting,
    count_words,
    embed_batch,
    index_vectors,
    indexed,
    take_in_words,
)
from agentbridge.lexical import Question, Term, understand
from agentbridge.models import Threshold
from agentbridge.question_vectors import Embedding, sum_of
from agentbridge.synonyms import official_words

logger = logging.getLogger(__name__)

# A question longer than this is a text; its beginning says what it is about.
MOST_CHARACTERS = 2000
# So many rows are weighed at most of each: those nearest in meaning, those with the rarest word and another, and those
# with the rarest words.
NEAREST = 40
WORDED = 60
# How many words a statement has room for; a few sizes, so that each is planned once and not for every question.
SLOTS = (4, 8, 16, 32, 64, 128, 512)
# Beside the rarest word, so many are looked for together with it.
BESIDES = 4
# A word that more rows have leads nowhere, and costs.
MOST_ROWS = 5000
# A model is given so many.
MOST_RESULTS = 5
# Between hits that are as good, the language that was asked for comes first.
PREFERENCE = 0.05
# Beside a good hit, one that is much worse is noise.
MUCH_WORSE = 0.6
# What only questions on the subject reach by words alone, for a row or a moment without a vector.
WORDS_ALONE = 0.25
EVERY_WORD = 0.999
# Any number that nothing else in this database locks.
LOCK = 7_310_452
# So many of the questions about other things get no hit, as measured by make_searchable …
OFF_TOPIC_REFUSED = 0.93
# … and until it has.
UNMEASURED = 0.18


@dataclass(frozen=True)
class Weights:
    similarity: float = 1
    words: float = 0.25
    # Whether everyday words are searched as what guidelines call them.
    synonyms: bool = True


FUSED = Weights()


@dataclass(frozen=True, kw_only=True)
class Ranking:
    """Why a hit stands where it stands."""

    # The similarity and a part of the words' share; what is too low depends on the model, and is measured.
    score: float
    # The cosine; None for a row that was not embedded yet.
    similarity: float | None
    # How much of the question's words the row has, rare words counting most, from 0 to 1.
    lexical: float
    similarity_rank: int | None
    lexical_rank: int | None
    # Of the question's words, those that were found.
    matched: tuple[str, ...]


Hit = TypeVar("Hit", bound=Ranking)


@dataclass(frozen=True, kw_only=True)
class GuidelineHit(Ranking):
    chunk_id: UUID
    document_id: UUID
    title: str
    source: str
    norm: str
    version: str
    url: str
    language: str
    subjects: tuple[str, ...]
    section: str
    text: str


@dataclass(frozen=True, kw_only=True)
class ProductHit(Ranking):
    product_id: UUID
    sku: str
    name: str
    category: str
    norm: str
    description: str
    url: str
    price: Decimal | None
    currency: str
    subjects: tuple[str, ...]


def search_guidelines(
    query: str,
    *,
    limit: int = MOST_RESULTS,
    language: str | None = None,
    only_language: bool = False,
    subjects: Sequence[str] = (),
    min_score: float | None = None,
    weights: Weights = FUSED,
    embedding: Embedding | None = None,
) -> list[GuidelineHit]:
    """The best chunks first; none where nothing fits. `language` is preferred, or with `only_language` kept to."""
    return _search(
        GUIDELINES,
        GuidelineHit,
        query,
        limit=limit,
        filters={"documents.language =": only_language and language, "documents.subjects &&": list(subjects)},
        language=language,
        min_score=min_score,
        weights=weights,
        embedding=embedding,
    )


def search_products(
    query: str,
    *,
    limit: int = MOST_RESULTS,
    category: str | None = None,
    subjects: Sequence[str] = (),
    min_score: float | None = None,
    weights: Weights = FUSED,
    embedding: Embedding | None = None,
) -> list[ProductHit]:
    """The best products first; none where nothing fits."""
    return _search(
        PRODUCTS,
        ProductHit,
        query,
        limit=limit,
        filters={"products.category =": category, "products.subjects &&": list(subjects)},
        min_score=min_score,
        weights=weights,
        embedding=embedding,
    )


def embedding_of(query: str, *, synonyms: bool = True) -> Embedding:
    """What was asked and the same as a guideline puts it, on its way to a vector."""
    return Embedding.of(_wordings(_shortened(query), synonyms=synonyms), embedder=current_embedder())


def _wordings(query: str, *, synonyms: bool = True) -> list[str]:
    return [query, official] if synonyms and (official := " ".join(official_words(query))) else [query]


def _shortened(query: str) -> str:
    return readable(query)[:MOST_CHARACTERS].strip()


def _search(
    shelf: Shelf,
    kind: Callable[..., Hit],
    query: str,
    *,
    limit: int,
    filters: Mapping[str, Any],
    language: str | None = None,
    min_score: float | None,
    weights: Weights,
    embedding: Embedding | None,
) -> list[Hit]:
    query = _shortened(query)
    if not query or limit < 1:
        return []
    embedding = embedding or embedding_of(query, synonyms=weights.synonyms)
    embedding.wait_if_remote()
    question = understand(query, also=official_words(query) if weights.synonyms else ())
    if question.corrections:
        query = question.corrected(query)
        question = understand(query, also=official_words(query) if weights.synonyms else ())
        if embedding.embedder.is_local:
            # A bigger model makes sense of what was mistyped, and is not asked twice.
            embedding = embedding_of(query, synonyms=weights.synonyms)
    rows = _weigh(
        shelf,
        question,
        vector=embedding.vector(),
        model=embedding.embedder.name,
        limit=limit,
        filters=filters,
        language=language,
        weights=weights,
    )
    measured = [row.pop("threshold") for row in rows]
    if min_score is None and rows:
        min_score = measured[0] or UNMEASURED
    return worth_showing([kind(**row) for row in rows], min_score=min_score or 0)


def _weigh(
    shelf: Shelf,
    question: Question,
    *,
    vector: Vector | None,
    model: str,
    limit: int,
    filters: Mapping[str, Any] = MappingProxyType({}),
    language: str | None = None,
    weights: Weights = FUSED,
) -> list[dict[str, Any]]:
    wanted = {condition: value for condition, value in filters.items() if value}
    dimensions = 1 if vector is None else len(vector)
    slots = next(number for number in SLOTS if number >= len(question.terms))
    rarest, together = _rarest(question.terms)
    rows = prepared(
        _search_statement(shelf, tuple(wanted), dimensions=dimensions, slots=slots),
        {
            **{str(n): value for n, value in enumerate(wanted.values())},
            **_in_slots(question, slots=slots),
            "searched": shelf.table,
            "model": model,
            "vector": None if vector is None else f"[{','.join(f'{each:.7g}' for each in vector.tolist())}]",
            "rarest": rarest,
            "together": together,
            "similarity_weight": weights.similarity,
            "words_weight": weights.words,
            "language": language,
            "preference": PREFERENCE,
            "nearest": NEAREST,
            "worded": WORDED,
            "limit": limit,
        },
        settings=PLANNING | ({"hnsw.iterative_scan": "relaxed_order"} if wanted else {}),
    )
    return [
        {name: tuple(value) if isinstance(value, list) else value for name, value in row.items()}
        | {"matched": tuple(term.word for term, found in zip(question.terms, row["matched"], strict=False) if found)}
        for row in rows
    ]


def _in_slots(question: Question, *, slots: int) -> dict[str, Any]:
    """The terms as parameters: in each slot what finds a word and what that is worth, the worthier first."""
    parameters: dict[str, Any] = {}
    empty = ("", 0.0)
    for slot in range(slots):
        ways, asked = [empty, empty], False
        if slot < len(question.terms):
            term = question.terms[slot]
            ways = [(term.exact, term.exact_weight), (term.parts, term.parts_weight)]
            ways.sort(key=lambda way: way[1], reverse=True)
            asked = term.asked
        (first, first_weight), (second, second_weight) = ways
        parameters |= {
            f"first{slot}": first,
            f"first_weight{slot}": first_weight / (question.weight or 1),
            f"second{slot}": second,
            f"second_weight{slot}": second_weight / (question.weight or 1),
            f"asked{slot}": float(asked),
        }
    return parameters


@cache
def _search_statement(shelf: Shelf, conditions: Sequence[str], *, dimensions: int, slots: int) -> Composed:
    return shelf.compose(
        SEARCH,
        # A document and its chunks are retired together, so only a filter needs both to find candidates.
        candidates=shelf.source if conditions else shelf.table,
        where=" AND ".join(
            [
                f"{shelf.table}.retired_at IS NULL",
                *(f"{condition} %({n})s" for n, condition in enumerate(conditions)),
            ]
        ),
        weights=", ".join(WEIGHT.format(slot=slot) for slot in range(slots)),
        asked=" + ".join(f"weight{slot} * %(asked{slot})s::float8" for slot in range(slots)),
        every=" + ".join(f"weight{slot}" for slot in range(slots)),
        matched=", ".join(f"weight{slot} > 0" for slot in range(slots)),
        kind=indexed(dimensions),
        dimensions=str(dimensions),
    )


def make_searchable(*, progress: Callable[[int, int], None] | None = None) -> int:
    """Index what is not indexed yet, or not by the current model; `progress(done, total)`. How many rows were done.

    Every batch is committed, so what was done stays done. A second caller waits for the first. With another model
    the old vectors are not compared any more: a row is found by its words until it has a new one.
    """
    embedder = current_embedder()
    done = 0
    with advisory_lock(LOCK):
        total = sum(count_waiting(shelf, embedder=embedder) for shelf in SHELVES)
        # First, because it is quick and needs no model: by their words all rows can be found at once.
        for shelf in SHELVES:
            take_in_words(shelf)
        if total:
            count_words()
        for shelf in SHELVES:
            while embedded := embed_batch(shelf, embedder=embedder):
                done += embedded
                if progress:
                    progress(done, total)
            index_vectors(shelf)
        if total or not Threshold.objects.filter(embedding_model=embedder.name).exists():
            for shelf in SHELVES:
                _measure_threshold(shelf, embedder=embedder)
    return done


def _measure_threshold(shelf: Shelf, *, embedder: Embedder) -> None:
    """What is too low a score depends on the model and on how much there is to find, so it is tried out."""
    questions = (files("agentbridge") / "off_topic.txt").read_text().splitlines()
    wordings = [_wordings(question) for question in questions]
    try:
        embedded = iter(embedder.embed([text for texts in wordings for text in texts]))
    except Exception:
        # Better none than one that is measured by words alone.
        logger.exception("What is too low a score by %s was not measured", embedder.name)
        return
    vectors = [sum_of([next(embedded) for _ in texts]) for texts in wordings]
    if any(vector is None for vector in vectors):
        return
    best = []
    for question, vector in zip(questions, vectors, strict=True):
        asked = understand(question, also=official_words(question))
        hits = _weigh(shelf, asked, vector=vector, model=embedder.name, limit=1)
        best.append(hits[0]["score"] if hits else 0)
    if not any(best):
        # There is nothing on this shelf.
        return
    Threshold.objects.update_or_create(
        searched=shelf.table,
        embedding_model=embedder.name,
        defaults={"score": float(np.quantile(best, OFF_TOPIC_REFUSED))},
    )


def _rarest(terms: Sequence[Term]) -> tuple[str, str]:
    """What to look for in the index of words: the rarest, because a common word is in most rows; and the rarest of all
    together with any other, because of the many rows that have it these are the best."""
    found = sorted(
        [(term.exact_rows, term.exact) for term in terms]
        + [(term.parts_rows, term.parts) for term in terms if term.parts]
    )
    chosen: list[str] = []
    rows = 0
    for count, query in found:
        rows += count
        if rows > (WORDED if chosen else MOST_ROWS):
            break
        chosen.append(query)
    others = " | ".join(query for _, query in sorted((term.exact_rows, term.exact) for term in terms)[1:BESIDES])
    return " | ".join(chosen), f"({chosen[0]}) & ({others})" if chosen and others else ""


def worth_showing(hits: Sequence[Hit], *, min_score: float) -> list[Hit]:
    def fits(hit: Hit) -> bool:
        if hit.similarity is None and hit.lexical >= WORDS_ALONE:
            return True
        return hit.score >= min_score or hit.lexical >= EVERY_WORD

    best = max((hit.score for hit in hits if fits(hit)), default=math.inf)
    return [hit for hit in hits if fits(hit) or hit.score >= MUCH_WORSE * best]


# What one word of the question adds to a row. A list of words would be unpacked anew for every row, which takes five
# times as long as this.
WEIGHT = """
    CASE WHEN words @@ %(first{slot})s::tsquery THEN %(first_weight{slot})s::float8
        WHEN words @@ %(second{slot})s::tsquery THEN %(second_weight{slot})s::float8 ELSE 0 END AS weight{slot}
"""

# A word is looked up in its index, however common the planner believes it to be: reading all rows instead takes fifty
# times as long, and its guess is wrong for every word that it keeps no count of. Where the guesses say nothing, one
# plan for all questions is as good as one for each, and saves making it.
PLANNING: dict[LiteralString, LiteralString] = {"enable_seqscan": "off", "plan_cache_mode": "force_generic_plan"}

# The dimensions are part of the statement, as they are of the index. Without a vector nothing is near, and every
# similarity is unknown; in its place stands what the words suggest.
SEARCH = """
    WITH nearest AS MATERIALIZED (
        SELECT {table}.id FROM {candidates}
        WHERE {where} AND {table}.embedding_model = %(model)s::text AND vector_dims({table}.embedding) = {dimensions}
            AND %(vector)s::vector IS NOT NULL
        ORDER BY {table}.embedding::{kind} <=> %(vector)s::{kind} LIMIT %(nearest)s::int
    ), worded AS MATERIALIZED (
        SELECT {table}.id FROM {candidates}
        WHERE {where} AND {table}.terms @@ %(together)s::tsquery LIMIT %(worded)s::int
    ), worded_once AS MATERIALIZED (
        SELECT {table}.id FROM {candidates}
        WHERE {where} AND {table}.terms @@ %(rarest)s::tsquery LIMIT %(worded)s::int
    ), by_words AS MATERIALIZED (
        SELECT id, is_near, lexical, matched, rank() OVER (ORDER BY lexical DESC) AS lexical_rank
        FROM (
            SELECT {table}.id, is_near, ARRAY[{matched}] AS matched,
                -- Other words for what was asked never make up for all of it.
                greatest({asked}, least(0.99::float8, {every})) AS lexical
            FROM (
                SELECT id, bool_or(is_near) AS is_near FROM (
                    SELECT id, true AS is_near FROM nearest
                    UNION ALL SELECT id, false FROM worded UNION ALL SELECT id, false FROM worded_once
                ) AS found GROUP BY id
            ) AS candidate
            JOIN {table} ON {table}.id = candidate.id,
            -- Stripped for a copy that is unpacked once, not for every word; OFFSET 0 keeps both from being worked out
            -- again at every mention.
            LATERAL (SELECT strip({table}.terms) AS words OFFSET 0) AS row,
            LATERAL (SELECT {weights} OFFSET 0) AS term
        ) AS worded_so
    ), weighed AS MATERIALIZED (
        SELECT {table}.id, lexical, matched, lexical_rank, CASE
            WHEN {language} = %(language)s::text THEN %(preference)s::float8 ELSE 0
        END AS preference, CASE
            WHEN {table}.embedding_model = %(model)s::text AND vector_dims({table}.embedding) = {dimensions}
            THEN nullif(1 - ({table}.embedding <=> %(vector)s::vector), 'NaN')
        END AS similarity
        -- Reading a vector costs more than reading the words, so it is done for the most promising alone.
        FROM {source} JOIN by_words ON by_words.id = {table}.id
        WHERE {live} AND (is_near OR lexical_rank <= %(nearest)s::int)
    ), ranked AS MATERIALIZED (
        SELECT *,
            CASE WHEN similarity IS NOT NULL THEN rank() OVER (ORDER BY similarity DESC NULLS LAST) END
                AS similarity_rank
        FROM weighed, LATERAL (
            SELECT %(similarity_weight)s::float8 * coalesce(similarity, lexical * 0.4)
                + %(words_weight)s::float8 * lexical AS score
        ) AS sum
        ORDER BY score + preference DESC, id LIMIT %(limit)s::int
    )
    SELECT {columns}, score, similarity, lexical, matched, similarity_rank,
        CASE WHEN lexical > 0 THEN lexical_rank END AS lexical_rank,
        (SELECT score FROM thresholds WHERE searched = %(searched)s AND embedding_model = %(model)s::text) AS threshold
    FROM {source} JOIN ranked ON ranked.id = {table}.id
    ORDER BY score + preference DESC, {table}.id
"""
