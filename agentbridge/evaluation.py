"""How well retrieval finds, measured on questions of which the answers are known."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.resources import files
from io import StringIO
from pathlib import Path
from statistics import mean
from typing import Any, Self
from uuid import uuid4

from django.db import connection, transaction
from psycopg.sql import SQL, Identifier
from pydantic import BaseModel, ValidationError, model_validator
from rich.bar import Bar
from rich.console import Console
from rich.table import Table

from agentbridge.embeddings import current_embedder
from agentbridge.models import Chunk, Document, Language, Threshold
from agentbridge.retrieval import FUSED, GuidelineHit, Weights, search_guidelines, worth_showing
from agentbridge.searchable import make_searchable

WAYS = {
    "both": FUSED,
    "embedding alone": Weights(words=0, synonyms=False),
    "words alone": Weights(similarity=0, synonyms=False),
}
TABLES = ("documents", "chunks", "products", "words", "thresholds")
# Around the threshold that is in force, what others would do.
TRIED = (0.6, 0.8, 0.9, 1.0, 1.1, 1.2, 1.4)


class Passage(BaseModel):
    id: str
    title: str = ""
    text: str


class Query(BaseModel):
    id: str
    lang: str = ""
    text: str


class RetrievalSet(BaseModel):
    """Passages, queries, and which passages answer which query: none for a query about something else."""

    language: Language = Language.DUTCH
    passages: list[Passage]
    queries: list[Query]
    relevance: dict[str, list[str]]

    @model_validator(mode="after")
    def agrees_with_itself(self) -> Self:
        passages, queries = [each.id for each in self.passages], [each.id for each in self.queries]
        if len(set(passages)) < len(passages) or len(set(queries)) < len(queries):
            raise ValueError("an id occurs twice")
        if missing := {*queries} - {*self.relevance}:
            raise ValueError(f"no relevance for {', '.join(sorted(missing))}")
        answers = {answer for answers in self.relevance.values() for answer in answers}
        if unknown := {*self.relevance} - {*queries} | answers - {*passages}:
            raise ValueError(f"relevance of what is not there: {', '.join(sorted(unknown))}")
        if not any(self.relevance.values()):
            raise ValueError("no query has an answer")
        return self


@dataclass(frozen=True)
class Score:
    way: str
    kind: str
    queries: int
    recall_at_1: float
    recall_at_5: float
    mrr: float


@dataclass(frozen=True)
class TradeOff:
    """What a threshold refuses: of what is off topic all of it is meant to go, of the answers nothing."""

    threshold: float
    in_force: bool
    off_topic_refused: float
    questions_refused: float
    answers_lost: float


@dataclass(frozen=True)
class Evaluation:
    scores: list[Score]
    trade_offs: list[TradeOff]
    off_topic: int

    def score(self, kind: str, *, way: str = "both") -> Score:
        return next(score for score in self.scores if (score.way, score.kind) == (way, kind))

    def as_json(self) -> str:
        return json.dumps(asdict(self), indent=1)


class UnusableSetError(Exception):
    """The file says nothing that can be measured."""


def load(path: Path) -> RetrievalSet:
    try:
        return RetrievalSet.model_validate_json(path.read_bytes())
    except OSError as error:
        raise UnusableSetError(f"{path} cannot be read: {error.strerror}.") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise UnusableSetError(f"{path}{where and f', {where}'}: {first['msg']}.") from error


def evaluate(given: RetrievalSet) -> Evaluation:
    """Retrieval as it is, on the passages of this set alone."""
    with _apart():
        names = _store(given)
        make_searchable()
        asked = [query for query in given.queries if given.relevance[query.id]]
        found = {(way, query.id): _ask(query.text, weights=weights) for way, weights in WAYS.items() for query in asked}
        others = [query.text for query in given.queries if not given.relevance[query.id]]
        others = others or (files("agentbridge") / "off_topic.txt").read_text().splitlines()
        strange = [_ask(text) for text in others]
        [in_force] = Threshold.objects.filter(searched="chunks", embedding_model=current_embedder().name).values_list(
            "score", flat=True
        )

    def rank(hits: Sequence[GuidelineHit], query: Query) -> int | None:
        order = [names[hit.chunk_id] for hit in hits]
        return min((order.index(each) + 1 for each in given.relevance[query.id] if each in order), default=None)

    scores = []
    for way in WAYS:
        for kind in dict.fromkeys(query.lang for query in asked):
            ranks = [rank(found[way, query.id], query) for query in asked if query.lang == kind]
            scores.append(
                Score(
                    way,
                    kind,
                    len(ranks),
                    mean(place == 1 for place in ranks),
                    mean(place is not None and place <= 5 for place in ranks),
                    mean(1 / place if place else 0 for place in ranks),
                )
            )

    def trade_off(threshold: float) -> TradeOff:
        five = {query.id: found["both", query.id][:5] for query in asked}
        shown = {name: worth_showing(hits, min_score=threshold) for name, hits in five.items()}
        answered = [query for query in asked if rank(five[query.id], query)]
        return TradeOff(
            threshold,
            threshold == in_force,
            mean(not worth_showing(hits[:5], min_score=threshold) for hits in strange),
            mean(not hits for hits in shown.values()),
            mean(rank(shown[query.id], query) is None for query in answered) if answered else 0,
        )

    return Evaluation(scores, [trade_off(in_force * each) for each in TRIED], len(strange))


def _ask(text: str, *, weights: Weights = FUSED) -> list[GuidelineHit]:
    hits = search_guidelines(text, limit=100, min_score=-2, weights=weights)
    # By words alone a row without any of them is not found, only listed.
    return [hit for hit in hits if weights.similarity or hit.lexical]


@contextmanager
def _apart() -> Iterator[None]:
    """Tables of the same names before the real ones, for this transaction and for nobody else."""
    with transaction.atomic():
        with connection.cursor() as cursor:
            for table in TABLES:
                statement = "CREATE TEMP TABLE {name} (LIKE {name} INCLUDING ALL) ON COMMIT DROP"
                cursor.execute(SQL(statement).format(name=Identifier(table)))
            # A prepared statement would go on with the table that it knows by the name.
            cursor.execute("DISCARD PLANS")
        yield
        transaction.set_rollback(True)


def _store(given: RetrievalSet) -> dict[Any, str]:
    """The passages, each as a document of one chunk; which chunk is which."""
    documents = [
        Document(id=uuid4(), origin=each.id, title=each.title, language=given.language, content_hash=each.id)
        for each in given.passages
    ]
    chunks = [
        Chunk(id=uuid4(), document=document, position=0, text=each.text, content_hash=each.id)
        for document, each in zip(documents, given.passages, strict=True)
    ]
    Document.objects.bulk_create(documents)
    Chunk.objects.bulk_create(chunks)
    return {chunk.id: each.id for chunk, each in zip(chunks, given.passages, strict=True)}


def report(evaluation: Evaluation, *, title: str, svg: Path | None = None) -> str:
    """Tables and bars for a terminal; also saved as a picture if a file is given."""
    written = StringIO()
    console = Console(file=written, record=True, width=110, force_terminal=sys.stdout.isatty())
    table = Table("kind", "queries", "way", "recall@1", "recall@5", "MRR", "", title=title)
    kinds = list(dict.fromkeys(score.kind for score in evaluation.scores))
    for kind in kinds:
        for score in (score for score in evaluation.scores if score.kind == kind):
            first = score.way == "both"
            table.add_row(
                kind if first else "",
                str(score.queries) if first else "",
                score.way,
                f"{score.recall_at_1:.3f}",
                f"{score.recall_at_5:.3f}",
                f"{score.mrr:.3f}",
                Bar(1, 0, score.mrr, width=30, color="green" if first else "blue"),
                end_section=score.way == list(WAYS)[-1],
            )
    console.print(table)
    trade = Table(
        "threshold",
        f"off topic refused (of {evaluation.off_topic})",
        "questions refused",
        "answers lost",
        title="What a threshold does",
    )
    for each in evaluation.trade_offs:
        shares = (each.off_topic_refused, each.questions_refused, each.answers_lost)
        trade.add_row(
            f"{each.threshold:.3f}", *(f"{share:.0%}" for share in shares), style="bold" if each.in_force else ""
        )
    console.print(trade)
    if svg:
        console.save_svg(str(svg), title=f"Retrieval: {title}")
    return written.getvalue()
