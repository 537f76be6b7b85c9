"""What clients ask for their own use: answered, and no part of any conversation. A title is kept with its session."""

import asyncio
import json
from collections.abc import AsyncGenerator
from dataclasses import replace
from uuid import UUID, uuid4

from django.db import transaction
from django.db.models import Q
from django.db.models.fields.json import KeyTextTransform

from agentbridge import offline
from agentbridge.background import TASKS, conversation_in, merged_question, perform
from agentbridge.database import in_database
from agentbridge.providers import configured_model
from agentbridge.said import HistoryItem
from conversations.branches import Branch
from conversations.events import Delta, Event, Reply, Started
from conversations.models import Message, Session
from conversations.models.statements import MADE_TITLE
from conversations.openings import TurnRequest
from conversations.turns import stream_turn

MAX_TITLE_CHARS = 200
# In a session's metadata: the title that it was given here.
GIVEN = "given_title"
# A title can be there a moment before the first question is stored; a real model may still be answering it.
LOOK_AGAIN_AFTER = (0, 0.1, 0.3, 1, 3, 10)

_waiting: set[asyncio.Task[None]] = set()


async def performed(task: str, turn: TurnRequest) -> AsyncGenerator[Event]:
    """Do a client's task; nothing of it is stored."""
    model = configured_model()
    if task not in TASKS:
        # Whatever it is: an answer to what it asks for. By rules answers cannot be merged, but the question answered.
        question = merged_question(turn.prompt) if model.model_name == offline.NAME else ""
        async for event in stream_turn(replace(turn, prompt=question or turn.prompt, store=False)):
            yield event
        return
    message_id = uuid4()
    yield Started(None, messages_in_context=0, message_id=message_id)
    answer = await perform(task, turn.prompt, instructions=turn.instructions, model=model)
    if task == "title_generation":
        keep_title(answer, prompt=turn.prompt, request=turn)
    yield Delta(answer)
    yield Reply(
        session_id=None,
        text=answer,
        model=model.model_name,
        messages_in_context=0,
        input_tokens=0,
        output_tokens=0,
        message_id=message_id,
    )


def keep_title(answer: str, *, prompt: str, request: TurnRequest) -> None:
    """Give the session the title that its client was given, as soon as there is one; without waiting for it here."""
    try:
        title = str(json.loads(answer)["title"])
    except (ValueError, KeyError, TypeError):
        return
    title = " ".join(title.replace("\0", "").split())[:MAX_TITLE_CHARS]
    if not title or not request.store:
        return
    task = asyncio.create_task(_keep(title, prompt=prompt, request=request))
    _waiting.add(task)
    task.add_done_callback(_waiting.discard)


async def _keep(title: str, *, prompt: str, request: TurnRequest) -> None:
    said = await asyncio.to_thread(conversation_in, prompt)
    for seconds in LOOK_AGAIN_AFTER:
        await asyncio.sleep(seconds)
        if await in_database(_entitle, title, said=said, request=request):
            return


@transaction.atomic
def _entitle(title: str, *, said: list[HistoryItem], request: TurnRequest) -> bool:
    """Whether there is such a session. Only a title is replaced that a turn made or that was given in the same way: who
    edits or asks again their first question gets another one, and others were chosen by a person.
    """
    mine = Session.objects.for_owner(request.owner_id, user_id=request.user_id)
    if not request.external_id and not request.session_id:
        found = _begun_with(said[0], request=request) if said else None
    else:
        of_thread = Q(channel=request.channel, external_id=request.external_id) if request.external_id else Q()
        found = mine.filter(Q(id=request.session_id) | of_thread).values_list("id", flat=True).first()
    session = mine.select_for_update().filter(id=found).first() if found else None
    if not session:
        return False
    about = session.metadata if isinstance(session.metadata, dict) else {}
    if session.title in ("", about.get(GIVEN), about.get(MADE_TITLE)) and session.title != title:
        session.title, session.metadata = title, about | {GIVEN: title}
        session.save(update_fields=["title", "metadata"])
    return True


def _begun_with(first: HistoryItem, *, request: TurnRequest) -> UUID | None:
    """The newest session without a title of a client that begins with this question, for a client that names none."""
    branch = Branch.of([first], owner_id=request.owner_id, user_id=request.user_id)
    return (
        Message.objects.for_owner(request.owner_id, user_id=request.user_id)
        .filter(branch_hash=branch.end)
        .filter(Q(session__title="") | Q(session__title=KeyTextTransform(MADE_TITLE, "session__metadata")))
        .order_by("-created_at")
        .values_list("session_id", flat=True)
        .first()
    )
