"""A conversation as a file: a Dutch transcript for people, JSON for elsewhere and back, CSV for a spreadsheet."""

import csv
import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from io import StringIO
from types import MappingProxyType
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import Q
from django.utils import timezone, translation
from django.utils.formats import date_format

from conversations.branches import with_hashes
from conversations.models import Channel, Message, Role, Session, Status

VERSION = 1
BATCH = 500


def page_of_messages(
    session_id: UUID, *, limit: int, before: Message | None = None, after: Message | None = None
) -> list[Message]:
    """The first messages after one, or the last before one, or simply the last; oldest first.

    As the person sees the conversation: without what they edited away or had answered again.
    """
    found = Message.objects.active().filter(session_id=session_id)
    # The bound in time is where the index is entered; the other condition settles equal times.
    if after:
        found = found.filter(
            Q(created_at__gt=after.created_at) | Q(seq__gt=after.seq), created_at__gte=after.created_at
        )
        return list(found.order_by("created_at", "seq")[:limit])
    if before:
        found = found.filter(
            Q(created_at__lt=before.created_at) | Q(seq__lt=before.seq), created_at__lte=before.created_at
        )
    return list(found.order_by("-created_at", "-seq")[:limit])[::-1]


def every_message(session_id: UUID) -> Iterator[Message]:
    """All messages, oldest first, a batch at a time: no long session fills the memory or keeps a connection."""
    batch = list(Message.objects.active().in_session(session_id)[:BATCH])
    while batch:
        yield from batch
        batch = page_of_messages(session_id, limit=BATCH, after=batch[-1])


def render_markdown(session: Session, messages: Iterable[Message]) -> Iterator[str]:
    """The transcript in Dutch, in pieces."""
    title = " ".join(session.title.split()) or "Gesprek"
    yield f"# {title}\n\n{_dutch_date(session.created_at)}\n\n**Eerdere gesprek:**\n"
    for message in messages:
        status = "" if message.status == Status.COMPLETE else f" *({Status(message.status).label})*"
        yield f'\n{Role(message.role).label}: "{_indented(message.content)}"{status}\n'


def export_json(
    session: Session, messages: Iterable[Message], *, more: Mapping[str, Any] = MappingProxyType({})
) -> Iterator[str]:
    """The session and its messages as one JSON document, in pieces; `more` is told of the session besides."""
    about = {
        "id": str(session.id),
        "title": session.title,
        "channel": session.channel,
        "pinned": session.pinned,
        "message_count": session.message_count,
        "created_at": session.created_at.isoformat(),
        "updated_at": session.updated_at.isoformat(),
        "last_accessed": session.last_accessed.isoformat(),
        "expires_at": session.expires_at and session.expires_at.isoformat(),
        **more,
    }
    yield f'{{"version": {VERSION}, "session": {_json(about)}, "messages": ['
    separator = "\n"
    for message in messages:
        said = {
            "id": str(message.id),
            "role": message.role,
            "content": message.content,
            "status": message.status,
            "metadata": message.metadata,
            "created_at": message.created_at.isoformat(),
        }
        yield separator + _json(said)
        separator = ",\n"
    yield "\n]}\n"


def export_csv(session: Session, messages: Iterable[Message]) -> Iterator[str]:
    """The messages as a table that a Dutch spreadsheet opens with a double click, in pieces."""
    yield "\ufeff" + _row("gesprek", "tijd", "rol", "status", "tekst", "model", "tokens")
    for message in messages:
        known = message.details
        yield _row(
            str(session.id),
            timezone.localtime(message.created_at).isoformat(timespec="seconds"),
            Role(message.role).label,
            Status(message.status).label,
            message.content,
            str(known.get("model", "")),
            str(known.get("tokens_used", "")),
        )


@transaction.atomic
def import_json(data: Mapping[str, Any], *, owner_id: int | None, user_id: str) -> Session:
    """A new session with what an export tells; ids, owner and expiry in it are somebody else's and are not taken over.

    `data` is the checked document: times are datetimes, messages come oldest first.
    """
    about = data["session"]
    session = Session.objects.create(
        owner_id=owner_id,
        user_id=user_id,
        title=about.get("title", ""),
        channel=about.get("channel", Channel.API),
        pinned=about.get("pinned", False),
        created_at=about.get("created_at") or timezone.now(),
    )
    thread = (
        Message(
            session=session,
            role=said["role"],
            content=said["content"],
            status=said["status"],
            metadata=said["metadata"],
            created_at=said["created_at"],
        )
        for said in data["messages"]
    )
    Message.objects.bulk_create(with_hashes(thread, owner_id=owner_id, user_id=user_id), batch_size=BATCH)
    return Session.objects.select_related("summary").get(id=session.id)


def _dutch_date(moment: datetime) -> str:
    with translation.override("nl"):
        return date_format(timezone.localtime(moment), r"j F Y, H:i")


def _indented(text: str) -> str:
    # Only a real turn begins at the start of a line: nobody can write a turn of the other into their own.
    first, *rest = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return "\n".join([first, *(line and f"  {line}" for line in rest)])


def _row(*cells: str) -> str:
    line = StringIO()
    # A spreadsheet takes a cell that begins so for a formula, and runs it.
    csv.writer(line, delimiter=";").writerow(f"'{cell}" if cell[:1] in "=+-@\t\r" else cell for cell in cells)
    return line.getvalue()


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
