"""What the agent may look up in a turn: what was said with this person, and with no other."""

from collections.abc import Sequence
from uuid import UUID

from agentbridge.database import in_database
from agentbridge.memory import Memory, Recollection
from conversations.candidates import Filters
from conversations.models import Message
from conversations.openings import Opening, TurnRequest
from conversations.recall import Recalled, latest, recall

MOST_RECALLED = 5
# A whole answer would crowd out what else was found.
MOST_CHARACTERS = 600


def memory_of(request: TurnRequest, opening: Opening) -> Memory:
    """The past of whoever asks; none for a turn of which nothing is kept."""
    if not request.store:
        return Memory()

    async def look_up(query: str) -> Sequence[Recollection]:
        found = await in_database(_look_up, query, request=request, opening=opening)
        return [_recollection(each) for each in found]

    return Memory(recall=look_up)


def _look_up(query: str, *, request: TurnRequest, opening: Opening) -> list[Recalled]:
    if not query.strip():
        return latest(
            owner_id=request.owner_id,
            user_id=request.user_id,
            limit=MOST_RECALLED,
            known_session=opening.session_id,
        )
    filters = Filters(known=_known(opening), known_session=opening.session_id, leaves_out_echoes=True)
    return recall(query, owner_id=request.owner_id, user_id=request.user_id, limit=MOST_RECALLED, filters=filters)


def _known(opening: Opening) -> tuple[UUID, ...]:
    """What the agent has before it anyhow: the end of its session, and the question."""
    if opening.session_id is None:
        return ()
    last = Message.objects.active().last_in_session(opening.session_id, limit=len(opening.context) + 1)
    return tuple(message.id for message in last)


def _recollection(found: Recalled) -> Recollection:
    text = found.snippet.text if len(found.text) > MOST_CHARACTERS else found.text
    return Recollection(kind=found.kind, at=found.at, role=found.role, text=text)
