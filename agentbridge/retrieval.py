"""Hybrid search: what was meant and the words that were used, weighed together in PostgreSQL."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from types import MappingProxyType
from typing import Any, TypeVar
from uuid import UUID

from agentbridge.database import prepared
from agentbridge.embeddings import Vector, current_embedder, readable
from agentbridge.indexing import (
    GUIDELINES,
    PRODUCTS,
    Shelf,
)
from agentbridge.lexical import Question, Term, understand
from agentbridge.question_vectors import Embedding
from agentbridge.search_statement import PLANNING, SLOTS, in_slots, search_statement
from agentbridge.synonyms import official_words

# A question longer than this is a text; its beginning says what it is about.
MOST_CHARACTERS = 2000
# So many rows are weighed at most of each: those nearest in meaning, those with the rarest word and another, and those
# with the rarest words.
NEAREST = 40
WORDED = 60
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
# What is too low a score until that was measured.
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
    return Embedding.of(wordings(_shortened(query), synonyms=synonyms), embedder=current_embedder())


def wordings(query: str, *, synonyms: bool = True) -> list[str]:
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
    rows = weigh(
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


def weigh(
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
        search_statement(shelf, tuple(wanted), dimensions=dimensions, slots=slots),
        {
            **{str(n): value for n, value in enumerate(wanted.values())},
            **in_slots(question, slots=slots),
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
