"""Search over what was said with one person: their messages, the summaries of their sessions, facts about them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from agentbridge.embeddings import readable
from agentbridge.question_vectors import Embedding
from agentbridge.understanding import asks_for_the_past
from conversations.candidates import Candidate, Field, Filters, Kind, Question, candidates, embedding_of, understood
from conversations.models import Fact, Message, Role, Session
from conversations.snippets import Snippet, SnippetMaker

# A question longer than this is a text; its beginning says what it is about.
MOST_CHARACTERS = 2000
# What the words count beside the meaning.
WORDS_WEIGHT = 0.9
# A word that is only part of another one, or has it as a part, says half as much; one that is asked for in other words
# nearly as much.
PART = 0.5
OTHER_WORD = 0.8
# How much a text that is longer than others has to make up for having more words: BM25's two numbers.
SATURATION, LENGTH = 1.2, 0.6
# Of what else its session has on the question, a message is given so much.
CONTEXT = 0.2
# What has less than that is about something else.
WORTH_SHOWING = 0.42
# For a text without a vector, or a moment without a model: what its words suggest.
MEANING_OF_WORDS = 0.4
# More are read than shown, because some may be gone by then.
SPARE = 5


NO_SNIPPET = Snippet("")
Numbers = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Recalled:
    """Something that was found, and where it was said."""

    kind: Kind
    id: UUID
    session_id: UUID | None
    title: str
    channel: str
    role: str
    text: str
    at: datetime
    score: float = 1
    snippet: Snippet = NO_SNIPPET


def recall(
    query: str,
    *,
    owner_id: int | None,
    user_id: str = "",
    limit: int = 10,
    filters: Filters | None = None,
    min_score: float = WORTH_SHOWING,
    embedding: Embedding | None = None,
) -> list[Recalled]:
    """What fits best of what was said with this person, and with no other; nothing where nothing fits."""
    query = _shortened(query)
    if not query or limit < 1:
        return []
    filters = filters or Filters()
    question = understood(query, embedding=embedding)
    field = candidates(question, owner_id=owner_id, user_id=user_id, filters=filters)
    if not field.candidates:
        return []
    scores = _scores(question, field)
    best = [place for place in np.argsort(-scores, kind="stable") if scores[place] >= min_score]
    told: list[Recalled] = []
    # Rarely more than once round: some may be gone, or be echoes.
    for start in range(0, len(best), limit + SPARE):
        some = best[start : start + limit + SPARE]
        read = _read([field.candidates[place] for place in some], owner_id=owner_id, user_id=user_id, filters=filters)
        told += [replace(found, score=float(scores[some[number]])) for number, found in read]
        if len(told) >= limit:
            break
    shown = SnippetMaker(question.stems)
    return [replace(found, snippet=shown.of(found.text)) for found in told[:limit]]


def embedding_for(query: str) -> Embedding:
    """A question on its way to a vector, for a search that is to come."""
    return embedding_of(_shortened(query))


def _shortened(query: str) -> str:
    return readable(query)[:MOST_CHARACTERS].strip()


def latest(
    *,
    owner_id: int | None,
    user_id: str = "",
    limit: int = 5,
    known_session: UUID | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
) -> list[Recalled]:
    """What the last conversations with this person were about: their summaries, or else how they began."""
    mine = Session.objects.for_owner(owner_id, user_id=user_id).filter(message_count__gt=0)
    if known_session:
        mine = mine.exclude(id=known_session)
    if since:
        mine = mine.filter(last_accessed__gte=since)
    if until:
        mine = mine.filter(last_accessed__lt=until)
    shown = SnippetMaker(())
    found = []
    for session in mine.select_related("summary").order_by("-last_accessed", "-id")[:limit]:
        summary = getattr(session, "summary", None)
        said = Message.objects.active().in_session(session.id).filter(role=Role.USER)
        if text := summary.text if summary else said.values_list("content", flat=True).first():
            found.append(
                Recalled(
                    kind="summary" if summary else "message",
                    id=session.id,
                    session_id=session.id,
                    title=session.title,
                    channel=session.channel,
                    role="" if summary else Role.USER,
                    text=text,
                    at=session.last_accessed,
                    snippet=shown.of(text),
                )
            )
    return found


def _scores(question: Question, field: Field) -> Numbers:
    """Meaning and words in one number; words count the more, the fewer texts have them, as in BM25."""
    found = field.candidates
    places = np.arange(len(question.terms))
    exact, partly = (
        (np.array([each[mask] for each in found], dtype=np.int64)[:, None] >> places & 1).astype(float)
        for mask in (EXACT, PARTLY)
    )
    asked = np.array([term.asked for term in question.terms], dtype=bool)
    # Of the common words not all are among the candidates.
    shares = np.array([field.share(term) for term in question.terms])
    every = max(field.rows, len(found))
    have_it = np.maximum(exact.sum(axis=0), shares * field.rows)
    worth = np.log(1 + (np.maximum(every - have_it, 0) + 0.5) / (have_it + 0.5)) * np.where(asked, 1, OTHER_WORD)
    # What a text with every word would have.
    whole = worth[asked].sum() or worth.sum() or 1
    has = np.maximum(exact, PART * partly) * worth
    # Other words for what was asked never make up for all of it.
    words = np.maximum(has[:, asked].sum(axis=1), np.minimum(0.99 * whole, has.sum(axis=1))) / whole
    lengths = np.array([each.length for each in found], dtype=float)
    words *= (SATURATION + 1) / (SATURATION * (1 - LENGTH + LENGTH * lengths / (lengths.mean() or 1)) + 1)
    similar = np.array([np.nan if each.similarity is None else each.similarity for each in found])
    own: Numbers = np.where(np.isnan(similar), MEANING_OF_WORDS * words, similar) + WORDS_WEIGHT * words
    return own + CONTEXT * _best_of_the_others(own, found)


def _best_of_the_others(own: Numbers, found: Sequence[Candidate]) -> Numbers:
    """For each message the best score of another one in its session."""
    sessions: dict[UUID, list[int]] = {}
    for place, each in enumerate(found):
        if each.kind == "message" and each.session_id:
            sessions.setdefault(each.session_id, []).append(place)
    others = np.zeros(len(own))
    for places in sessions.values():
        if len(places) > 1:
            best, second = sorted(places, key=lambda place: own[place], reverse=True)[:2]
            others[places] = own[best]
            others[best] = own[second]
    return others


def _read(
    some: Sequence[Candidate], *, owner_id: int | None, user_id: str, filters: Filters
) -> Iterator[tuple[int, Recalled]]:
    """What the candidates say, as far as they are this person's and still there; each with its place among them."""
    ids: dict[Kind, list[UUID]] = {"message": [], "summary": [], "fact": []}
    for each in some:
        ids[each.kind].append(each.id)
    mine: dict[tuple[Kind, UUID], Recalled] = {}
    if ids["message"]:
        messages = Message.objects.active().for_owner(owner_id, user_id=user_id).filter(id__in=ids["message"])
        for row in messages.values_list(*MESSAGE_FIELDS, "metadata__search_results__searches"):
            *fields, searches = row
            found = Recalled(kind="message", **dict(zip(FIELDS, fields, strict=True)))
            if not (filters.leaves_out_echoes and _is_echo(found, searches)):
                mine["message", found.id] = found
    if ids["summary"]:
        sessions = Session.objects.for_owner(owner_id, user_id=user_id).filter(id__in=ids["summary"])
        for row in sessions.values_list(*SUMMARY_FIELDS):
            found = Recalled(kind="summary", role="", **dict(zip(FIELDS_OF_SUMMARY, row, strict=True)))
            mine["summary", found.id] = found
    if ids["fact"]:
        facts = Fact.objects.for_owner(owner_id, user_id=user_id).approved().filter(id__in=ids["fact"])
        for fact_id, text, at in facts.values_list("id", "text", "created_at"):
            mine["fact", fact_id] = Recalled(
                kind="fact", id=fact_id, session_id=None, title="", channel="", role="", text=text, at=at
            )
    for place, each in enumerate(some):
        if told := mine.get((each.kind, each.id)):
            yield place, told


def _is_echo(found: Recalled, searches: object) -> bool:
    if found.role == Role.USER:
        return asks_for_the_past(found.text)
    return isinstance(searches, list) and any(
        isinstance(search, dict) and search.get("tool") == "search_sessions" for search in searches
    )


EXACT, PARTLY = Candidate._fields.index("exact"), Candidate._fields.index("partly")
FIELDS = ("id", "session_id", "title", "channel", "role", "text", "at")
MESSAGE_FIELDS = ("id", "session_id", "session__title", "session__channel", "role", "content", "created_at")
FIELDS_OF_SUMMARY = ("id", "session_id", "title", "channel", "text", "at")
SUMMARY_FIELDS = ("id", "id", "title", "channel", "summary__text", "last_accessed")
