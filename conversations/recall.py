"""Search over what was said with one person: their messages, the summaries of their sessions, facts about them."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

from agentbridge.embeddings import readable
from conversations.candidates import Candidate, Field, Filters, Kind, Question, candidates, understood
from conversations.models import Fact, Message, Role, Session, Summary
from conversations.snippets import Snippet, snippet_of

# A question longer than this is a text; its beginning says what it is about.
MOST_CHARACTERS = 2000
# What the words count beside the meaning.
WORDS_WEIGHT = 0.6
# A word that is only part of another one, or has it as a part, says half as much; one that is asked for in other words
# nearly as much.
PART = 0.5
OTHER_WORD = 0.8
# How much a text that is longer than others has to make up for having more words: BM25's two numbers.
SATURATION, LENGTH = 1.2, 0.6
# Of what else its session has on the question, a message is given so much.
CONTEXT = 0.1
# What has less than that is about something else.
WORTH_SHOWING = 0.42
# For a text without a vector, or a moment without a model: what its words suggest.
MEANING_OF_WORDS = 0.4
# More are read than shown, because some may be gone by then.
SPARE = 10


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
    snippet: Snippet
    score: float
    at: datetime


def recall(
    query: str,
    *,
    owner_id: int | None,
    user_id: str = "",
    limit: int = 10,
    filters: Filters | None = None,
    min_score: float = WORTH_SHOWING,
) -> list[Recalled]:
    """What fits best of what was said with this person, and with no other; nothing where nothing fits."""
    query = readable(query)[:MOST_CHARACTERS].strip()
    if not query or limit < 1:
        return []
    question = understood(query)
    field = candidates(question, owner_id=owner_id, user_id=user_id, filters=filters or Filters())
    scores = _scores(question, field)
    best = sorted(scores, key=lambda each: scores[each], reverse=True)
    worth = {each: scores[each] for each in best[: limit + SPARE] if scores[each] >= min_score}
    return _read(worth, owner_id=owner_id, user_id=user_id, question=question)[:limit]


def latest(
    *, owner_id: int | None, user_id: str = "", limit: int = 5, known_session: UUID | None = None
) -> list[Recalled]:
    """What the last conversations with this person were about: their summaries, or else how they began."""
    mine = Session.objects.for_owner(owner_id, user_id=user_id).exclude(id=known_session).filter(message_count__gt=0)
    found = []
    for session in mine.select_related("summary").order_by("-last_accessed", "-id")[:limit]:
        summary = getattr(session, "summary", None)
        if summary:
            found.append(_summary(summary, session=session))
        elif question := Message.objects.active().in_session(session.id).filter(role=Role.USER).first():
            found.append(_message(question, session=session))
    return found


def _scores(question: Question, field: Field) -> dict[Candidate, float]:
    worth = [_rarity(number, field=field, question=question) for number in range(len(question.terms))]
    asked = [weight if term.asked else 0 for weight, term in zip(worth, question.terms, strict=True)]
    # What a text with every word would have.
    whole = sum(asked) or sum(worth) or 1
    usual = sum(each.length for each in field.candidates) / (len(field.candidates) or 1)
    own = {}
    for each in field.candidates:
        # Other words for what was asked never make up for all of it.
        words = max(_words(each, asked), min(0.99 * whole, _words(each, worth))) / whole
        words *= (SATURATION + 1) / (SATURATION * (1 - LENGTH + LENGTH * each.length / (usual or 1)) + 1)
        own[each] = (MEANING_OF_WORDS * words if each.similarity is None else each.similarity) + WORDS_WEIGHT * words
    return {each: score + CONTEXT * others for each, score, others in _in_context(own)}


def _rarity(number: int, *, field: Field, question: Question) -> float:
    """How much a word says: the fewer have it, the more. Of the common ones not all are among the candidates."""
    have_it = sum(bool(each.exact >> number & 1) for each in field.candidates)
    have_it = max(have_it, round(field.share(question.terms[number]) * field.rows))
    every = max(field.rows, len(field.candidates))
    worth = 1 if question.terms[number].asked else OTHER_WORD
    return worth * math.log(1 + (max(every - have_it, 0) + 0.5) / (have_it + 0.5))


def _words(candidate: Candidate, worth: Sequence[float]) -> float:
    return sum(
        weight if candidate.exact >> number & 1 else PART * weight if candidate.partly >> number & 1 else 0
        for number, weight in enumerate(worth)
    )


def _in_context(own: Mapping[Candidate, float]) -> Iterable[tuple[Candidate, float, float]]:
    """Each with its score, and the best score of what else was said in its session."""
    best: dict[UUID, list[float]] = {}
    for each, score in own.items():
        if each.session_id and each.kind == "message":
            best[each.session_id] = sorted([*best.get(each.session_id, []), score], reverse=True)[:2]
    for each, score in own.items():
        scores = best.get(each.session_id, []) if each.session_id and each.kind == "message" else []
        others = scores[1:] if scores and scores[0] == score else scores
        yield each, score, others[0] if others else 0


def _read(
    worth: Mapping[Candidate, float], *, owner_id: int | None, user_id: str, question: Question
) -> list[Recalled]:
    """What the candidates say, as far as they are this person's and still there."""
    ids: dict[Kind, list[UUID]] = {"message": [], "summary": [], "fact": []}
    for each in worth:
        ids[each.kind].append(each.id)
    mine: dict[tuple[Kind, UUID], Recalled] = {}
    if ids["message"]:
        messages = Message.objects.active().for_owner(owner_id, user_id=user_id).filter(id__in=ids["message"])
        for message in messages.select_related("session"):
            mine["message", message.id] = _message(message, session=message.session)
    if ids["summary"]:
        sessions = Session.objects.for_owner(owner_id, user_id=user_id)
        for summary in Summary.objects.filter(session__in=sessions, pk__in=ids["summary"]).select_related("session"):
            mine["summary", summary.pk] = _summary(summary, session=summary.session)
    if ids["fact"]:
        facts = Fact.objects.for_owner(owner_id, user_id=user_id).approved().filter(id__in=ids["fact"])
        mine |= {("fact", fact.id): _fact(fact) for fact in facts}
    return [
        replace(found, score=score, snippet=snippet_of(found.text, stems=question.stems))
        for each, score in worth.items()
        if (found := mine.get((each.kind, each.id)))
    ]


def _message(message: Message, *, session: Session) -> Recalled:
    return Recalled(
        kind="message",
        id=message.id,
        session_id=session.id,
        title=session.title,
        channel=session.channel,
        role=message.role,
        text=message.content,
        snippet=snippet_of(message.content, stems=()),
        score=1,
        at=message.created_at,
    )


def _summary(summary: Summary, *, session: Session) -> Recalled:
    return Recalled(
        kind="summary",
        id=session.id,
        session_id=session.id,
        title=session.title,
        channel=session.channel,
        role="",
        text=summary.text,
        snippet=snippet_of(summary.text, stems=()),
        score=1,
        at=session.last_accessed,
    )


def _fact(fact: Fact) -> Recalled:
    return Recalled(
        kind="fact",
        id=fact.id,
        session_id=None,
        title="",
        channel="",
        role="",
        text=fact.text,
        snippet=snippet_of(fact.text, stems=()),
        score=1,
        at=fact.created_at,
    )
