"""What the agent knows in a turn, may look up and may propose: about this person, and no other."""

from collections.abc import Sequence
from datetime import date, datetime, time, timedelta
from uuid import UUID

from django.utils import timezone

from agentbridge.database import in_database
from agentbridge.memory import Memory, Recollection
from agentbridge.periods import Period
from agentbridge.question_vectors import Embedding, ahead
from conversations.candidates import Filters
from conversations.facts import propose
from conversations.models import Message
from conversations.openings import Opening, TurnRequest
from conversations.recall import Recalled, embedding_for, latest, recall

MOST_RECALLED = 5
# A whole answer would crowd out what else was found.
MOST_CHARACTERS = 600


def memory_of(request: TurnRequest, opening: Opening) -> Memory:
    """What there is of whoever asks; nothing for a turn of which nothing is kept."""
    question_id = opening.question_id
    if not request.store or question_id is None:
        return Memory()

    async def remember(text: str) -> bool:
        return await in_database(
            propose, text, owner_id=request.owner_id, user_id=request.user_id, question_id=question_id
        )

    async def look_up(query: str, period: Period | None) -> Sequence[Recollection]:
        embedding = await ahead(embedding_for, query)
        found = await in_database(_look_up, query, embedding, period=period, request=request, opening=opening)
        return [_recollection(each) for each in found]

    return Memory(facts=opening.facts, remember=remember, recall=look_up)


def _look_up(
    query: str, embedding: Embedding | None, *, period: Period | None, request: TurnRequest, opening: Opening
) -> list[Recalled]:
    since = _midnight(period.since) if period and period.since > date.min else None
    until = _midnight(period.until + timedelta(days=1)) if period and period.until < date.max else None
    if not query.strip():
        return latest(
            owner_id=request.owner_id,
            user_id=request.user_id,
            limit=MOST_RECALLED,
            known_session=opening.session_id,
            since=since,
            until=until,
        )
    filters = Filters(
        known=_known(opening), known_session=opening.session_id, leaves_out_echoes=True, since=since, until=until
    )
    return recall(
        query,
        owner_id=request.owner_id,
        user_id=request.user_id,
        limit=MOST_RECALLED,
        filters=filters,
        embedding=embedding,
    )


def _midnight(day: date) -> datetime:
    return timezone.make_aware(datetime.combine(day, time.min))


def _known(opening: Opening) -> tuple[UUID, ...]:
    """What the agent has before it anyhow: the end of its session, and the question."""
    if opening.session_id is None:
        return ()
    last = Message.objects.active().with_words().last_in_session(opening.session_id, limit=len(opening.context) + 1)
    return tuple(message.id for message in last)


def _recollection(found: Recalled) -> Recollection:
    text = found.snippet.text if len(found.text) > MOST_CHARACTERS else found.text
    return Recollection(kind=found.kind, at=found.at, role=found.role, text=text)
