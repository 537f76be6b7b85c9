"""The agent's tools: what a model may ask of the knowledge base, and what came of it in one turn."""

import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any, Literal, TypeVar
from uuid import UUID

from django.utils import timezone
from django.utils.text import Truncator
from pydantic_ai import RunContext
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import FunctionToolset

from agentbridge import retrieval
from agentbridge.database import in_database
from agentbridge.injection import safe
from agentbridge.memory import MAX_FACT_CHARS, Memory, Proposal, in_one_line, is_said
from agentbridge.models import Document
from agentbridge.periods import Period
from agentbridge.question_vectors import Embedding, ahead
from agentbridge.retrieval import MOST_RESULTS, GuidelineHit, ProductHit
from agentbridge.translations import in_language

logger = logging.getLogger(__name__)
T = TypeVar("T")

# As much of a source as shows what it says.
EXCERPT_CHARS = 300


@dataclass(frozen=True, kw_only=True)
class Guideline:
    """A piece of a guideline, as a model sees it; it is cited by its number."""

    number: int
    title: str
    section: str
    source: str
    norm: str
    language: str
    text: str
    score: float


@dataclass(frozen=True, kw_only=True)
class Product:
    """A product, as a model sees it; it is cited by its number."""

    number: int
    name: str
    category: str
    norm: str
    description: str
    price: str
    subjects: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Remembered:
    """Something of an earlier conversation, as a model sees it. It is no source, and has no number."""

    kind: Literal["message", "summary", "fact"]
    date: str
    role: str
    text: str


@dataclass
class Findings:
    """What the tools found in one turn, and what they go by. Only what was found here can be cited."""

    # Where they may look beside the knowledge base, and what is known of the person.
    memory: Memory = field(default_factory=Memory)
    # The person's own words in this turn.
    said: str = ""
    sources: dict[int, dict[str, Any]] = field(default_factory=dict)
    searches: list[dict[str, Any]] = field(default_factory=list)
    _numbers: dict[UUID, int] = field(default_factory=dict)

    def number(self, source_id: UUID, citation: dict[str, Any]) -> int:
        """The number of a source, the same one when it is found again."""
        number = self._numbers.setdefault(source_id, len(self._numbers) + 1)
        self.sources[number] = citation
        return number

    def search_results(self) -> dict[str, Any]:
        if not self.searches:
            return {}
        return {
            "query": self.searches[-1]["query"],
            "results_count": sum(search["results_count"] for search in self.searches),
            "search_time_ms": round(sum(search["search_time_ms"] for search in self.searches), 1),
            "searches": self.searches,
        }


toolset: FunctionToolset[Findings] = FunctionToolset()


@toolset.tool
async def search_guidelines(
    context: RunContext[Findings], query: str, language: Literal["nl", "en"] = "nl"
) -> list[Guideline] | str:
    """Zoek in de richtlijnen. Geef als vraag een zin of trefwoorden die op zichzelf staan.

    Args:
        query: waarnaar te zoeken, zonder verwijzing naar eerdere berichten.
        language: de taal waarin het antwoord komt; richtlijnen in die taal gaan voor.
    """
    found = _in_knowledge(_search_in_language, query, language=language)
    hits = await _search(context.deps, "search_guidelines", query, found)
    return hits if isinstance(hits, str) else [_guideline(hit, context.deps) for hit in hits]


@toolset.tool
async def search_products(context: RunContext[Findings], query: str) -> list[Product] | str:
    """Zoek producten die bij een onderwerp passen: valbeveiliging, gehoorbescherming, tillen.

    Args:
        query: het onderwerp of het soort product.
    """
    found = _in_knowledge(retrieval.search_products, query, limit=MOST_RESULTS)
    hits = await _search(context.deps, "search_products", query, found)
    return hits if isinstance(hits, str) else [_product(hit, context.deps) for hit in hits]


@toolset.tool
async def list_subjects(context: RunContext[Findings], language: Literal["nl", "en"] = "nl") -> list[str]:
    """De onderwerpen waarover richtlijnen zijn, om te zeggen waarover vragen gesteld kunnen worden.

    Args:
        language: de taal waarin het antwoord komt.
    """
    return await in_database(_titles, language=language)


async def _where_something_can_be_remembered(
    context: RunContext[Findings], tool: ToolDefinition
) -> ToolDefinition | None:
    return tool if context.deps.memory.remember else None


@toolset.tool(prepare=_where_something_can_be_remembered)
async def remember(context: RunContext[Findings], fact: str) -> Proposal:
    """Stel voor om iets te onthouden dat de persoon in deze vraag over zichzelf of het eigen werk zegt.

    Args:
        fact: een korte zin in de woorden van de persoon, zonder iets dat die nu niet zelf zegt.
    """
    fact, propose = in_one_line(fact), context.deps.memory.remember
    if propose is None or not fact or len(fact) > MAX_FACT_CHARS:
        return Proposal("refused", fact[:MAX_FACT_CHARS], f"Onthoud hooguit {MAX_FACT_CHARS} tekens.")
    if safe(fact) != fact:
        return Proposal("refused", "", "Dit spreekt de assistent toe; zoiets wordt niet onthouden.")
    if not is_said(fact, said=context.deps.said):
        return Proposal("refused", fact, "Onthoud alleen wat de persoon in deze vraag zelf zegt.")
    try:
        is_new = await propose(fact)
    except Exception:
        # What a person asked besides is answered all the same.
        logger.exception("A fact was not proposed")
        return Proposal("refused", fact, "Onthouden lukt op dit moment niet.")
    if not is_new:
        return Proposal("known", fact, "Dit was al voorgesteld of goedgekeurd.")
    return Proposal("proposed", fact, "Het is voorgesteld, en geldt als het is goedgekeurd.")


def _where_there_is_a_past(context: RunContext[Findings], tool: ToolDefinition) -> ToolDefinition | None:
    return tool if context.deps.memory.recall else None


@toolset.tool(prepare=_where_there_is_a_past)
async def search_sessions(
    context: RunContext[Findings], query: str = "", since: date | None = None, until: date | None = None
) -> list[Remembered] | str:
    """Zoek in eerdere gesprekken met deze persoon: wat die vroeg of vertelde, en wat jij antwoordde.

    Args:
        query: waarover het ging, in trefwoorden of een zin. Leeg: waarover de laatste gesprekken gingen.
        since: de eerste dag waarop het gezegd is, als de persoon een tijd noemt ("vorige week", "in maart").
        until: de laatste dag daarvan.
    """
    recall = context.deps.memory.recall
    assert recall
    period = Period(since or date.min, until or date.max) if since or until else None
    hits = await _search(context.deps, "search_sessions", query, recall(query, period))
    if isinstance(hits, str):
        return hits
    return [
        Remembered(kind=hit.kind, date=f"{timezone.localdate(hit.at)}", role=hit.role, text=told)
        for hit in hits
        if (told := safe(hit.text))
    ]


async def _search(findings: Findings, tool: str, query: str, found: Awaitable[Sequence[T]]) -> Sequence[T] | str:
    started = time.perf_counter()
    hits: Sequence[T] = []
    try:
        hits = await found
    except Exception:
        # Whatever is wrong with the knowledge base, the person still gets an answer, if only that it is so.
        logger.exception("A tool failed")
        return "Zoeken lukt op dit moment niet."
    finally:
        findings.searches.append(
            {
                "tool": tool,
                "query": query,
                "results_count": len(hits),
                "search_time_ms": round((time.perf_counter() - started) * 1000, 1),
            }
        )
    return hits


async def _in_knowledge(search: Callable[..., Sequence[T]], query: str, **options: Any) -> Sequence[T]:
    embedding = await ahead(retrieval.embedding_of, query)
    return await in_database(search, query, embedding=embedding, **options)


def _search_in_language(query: str, *, language: str, embedding: Embedding | None) -> Sequence[GuidelineHit]:
    hits = retrieval.search_guidelines(query, limit=MOST_RESULTS, language=language, embedding=embedding)
    return in_language(hits, language=language)


def _guideline(hit: GuidelineHit, findings: Findings) -> Guideline:
    citation = {
        "kind": "guideline",
        "source": hit.source or hit.norm or hit.title,
        "chunk_id": str(hit.chunk_id),
        "similarity": round(hit.score if hit.similarity is None else hit.similarity, 3),
        "document_title": hit.title,
        "section": hit.section,
        "norm": hit.norm,
        "version": hit.version,
        "url": hit.url,
        "language": hit.language,
        "excerpt": Truncator(safe(hit.text)).chars(EXCERPT_CHARS),
    }
    return Guideline(
        number=findings.number(hit.chunk_id, citation),
        title=safe(hit.title),
        section=safe(hit.section),
        source=safe(hit.source),
        norm=safe(hit.norm),
        language=hit.language,
        text=safe(hit.text),
        score=round(hit.score, 3),
    )


def _product(hit: ProductHit, findings: Findings) -> Product:
    citation = {
        "kind": "product",
        "source": hit.name,
        "chunk_id": str(hit.product_id),
        "similarity": round(hit.score if hit.similarity is None else hit.similarity, 3),
        "document_title": hit.name,
        "category": hit.category,
        "norm": hit.norm,
        "url": hit.url,
        "excerpt": Truncator(safe(hit.description)).chars(EXCERPT_CHARS),
    }
    return Product(
        number=findings.number(hit.product_id, citation),
        name=safe(hit.name),
        category=safe(hit.category),
        norm=safe(hit.norm),
        description=safe(hit.description),
        price="" if hit.price is None else f"{hit.price:.2f} {hit.currency}",
        subjects=tuple(map(safe, hit.subjects)),
    )


def _titles(*, language: str) -> list[str]:
    live = Document.objects.filter(retired_at=None).order_by("title")
    titles = (live.filter(language=language) or live).values_list("title", flat=True)
    return [safe(title) for title in titles[:60]]
