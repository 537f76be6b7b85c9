"""Sessions as files for those who keep EVI running: out with owner and person, and back in where they are missing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal
from uuid import UUID

from django.contrib.auth.models import User
from django.db import DatabaseError, transaction
from pydantic import AfterValidator, AwareDatetime, BaseModel, Field, ValidationError

from conversations.branches import with_hashes
from conversations.models import (
    SENSIBLE_TIMES,
    Channel,
    Message,
    Role,
    Session,
    SessionQuerySet,
    Status,
    without_unstorable,
)
from conversations.transcripts import BATCH, every_message, export_json

STDOUT = "-"


def _sensible(moment: datetime) -> datetime:
    if not SENSIBLE_TIMES[0] <= moment <= SENSIBLE_TIMES[1]:
        raise ValueError("this moment lies too far away")
    return moment


Text = Annotated[str, AfterValidator(without_unstorable)]
Moment = Annotated[AwareDatetime, AfterValidator(_sensible)]


class ArchivedMessage(BaseModel):
    id: UUID
    role: Role
    content: Text
    status: Status = Status.COMPLETE
    metadata: dict[str, Any] = {}
    created_at: Moment


class ArchivedSession(BaseModel):
    id: UUID
    owner: str | None
    user_id: Text = ""
    channel: Channel = Channel.API
    external_id: Text = ""
    title: Text = ""
    pinned: bool = False
    metadata: dict[str, Any] = {}
    created_at: Moment
    expires_at: Moment | None = None


class Archive(BaseModel):
    version: Literal[1]
    session: ArchivedSession
    messages: list[ArchivedMessage] = Field(default_factory=list)


@dataclass(frozen=True)
class ImportReport:
    """What came of the files: sessions taken in, those that were here already, and what is wrong with the others."""

    imported: int
    known: int
    problems: tuple[str, ...]


def sessions_to_export(
    *,
    client: str | None = None,
    user_id: str | None = None,
    session_id: UUID | None = None,
    since: datetime | None = None,
) -> SessionQuerySet:
    """Those that fit all of what is given; without any, all there are."""
    wanted = {"owner__username": client, "user_id": user_id, "id": session_id, "last_accessed__gte": since}
    return Session.objects.filter(**{name: value for name, value in wanted.items() if value is not None})


def export_sessions(
    sessions: SessionQuerySet,
    *,
    to: str,
    write: Callable[[str], object],
    on_session: Callable[[], object] = lambda: None,
) -> int:
    """Write each session to a file of its own in a folder, or as a line of JSON; how many there were."""
    folder = None if to == STDOUT else Path(to)
    if folder:
        folder.mkdir(parents=True, exist_ok=True)
    number = 0
    for session in sessions.select_related("owner").order_by("created_at", "id").iterator(chunk_size=BATCH):
        about = {
            "owner": session.owner and session.owner.get_username(),
            "user_id": session.user_id,
            "external_id": session.external_id,
            "metadata": session.metadata,
        }
        pieces = export_json(session, every_message(session.id), more=about)
        if folder:
            # Whole or not at all: what is stopped halfway leaves no file that looks like one.
            draft = folder / f".{session.id}.part"
            with draft.open("w", encoding="utf-8") as file:
                file.writelines(pieces)
            draft.replace(folder / f"{session.id}.json")
        else:
            # Within a JSON text a line ends nowhere else than between its parts.
            write("".join(piece.replace("\n", "") for piece in pieces) + "\n")
        number += 1
        on_session()
    return number


def import_sessions(paths: list[Path], *, on_document: Callable[[], object] = lambda: None) -> ImportReport:
    """Take in what `export_sessions` wrote, as far as it is not here; a broken document is reported and skipped."""
    imported = known = 0
    problems: list[str] = []
    for name, text in _documents(paths, problems):
        try:
            archive = Archive.model_validate_json(text)
            if _take_in(archive):
                imported += 1
            else:
                known += 1
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"]))
            problems.append(": ".join(filter(None, [name, place, first["msg"]])))
        except User.DoesNotExist:
            problems.append(f"{name}: there is no client called {archive.session.owner!r} here")
        except DatabaseError as error:
            problems.append(f"{name}: {str(error).splitlines()[0]}")
        on_document()
    return ImportReport(imported, known, tuple(problems))


def _documents(paths: list[Path], problems: list[str]) -> Iterator[tuple[str, str]]:
    """Each document with its name: a file of its own, or a line of a file with several."""
    for file in [file for path in paths for file in (sorted(path.glob("*.json*")) if path.is_dir() else [path])]:
        try:
            text = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            problems.append(f"{file}: {error}")
            continue
        if file.suffix != ".jsonl":
            yield str(file), text
            continue
        for number, line in enumerate(text.split("\n"), start=1):
            if line.strip():
                yield f"{file}, line {number}", line


@transaction.atomic
def _take_in(archive: Archive) -> bool:
    """Whether it is new here. Its clock starts anew, or the next clean-up would take what somebody wanted back."""
    about = archive.session
    owner = User.objects.get(username=about.owner) if about.owner is not None else None
    if Session.objects.filter(id=about.id).exists():
        return False
    session = Session.objects.create(
        id=about.id,
        owner=owner,
        user_id=about.user_id,
        channel=about.channel,
        external_id=about.external_id,
        title=about.title,
        pinned=about.pinned,
        metadata=without_unstorable(about.metadata),
        created_at=about.created_at,
        expires_at=about.expires_at,
    )
    thread = (
        Message(
            id=said.id,
            session=session,
            role=said.role,
            content=said.content,
            status=said.status,
            metadata=without_unstorable(said.metadata),
            created_at=said.created_at,
        )
        for said in archive.messages
    )
    rows = with_hashes(thread, owner_id=session.owner_id, user_id=session.user_id)
    Message.objects.bulk_create(rows, batch_size=BATCH)
    return True
