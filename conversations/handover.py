"""Going on somewhere else: a code that gives a session to another person of the same client, once.

A session is moved, not shared. It belongs to one person, and every question that EVI asks of its tables goes by that:
who may read it, what a search finds, whose facts it supports, what goes when a person is forgotten. Two owners would
make each of these a question of its own, and two people writing in one thread would each have a history that the other
changes. So whoever has the code takes the session over, and who gave it away has it no more.

Hashes of branches begin with the person, so those that were stored before no longer match. Nothing depends on them
alone: a client that names the session is compared with it word by word and gets new ones, and one that knows it only by
what was said in it begins a new session with that.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Func
from django.utils import timezone
from django.utils.crypto import salted_hmac

from conversations.errors import NotFoundError
from conversations.limits import count
from conversations.models import Action, AuditEntry, FactSource, Handover, Session

# 32 characters that nobody takes for one another: 8 of them are 40 bits.
ALPHABET = "23456789ABCDEFGHJKLMNPQRSTUVWXYZ"
CODE_CHARS = 8
VALID_FOR = timedelta(minutes=10)
# In a minute, by all persons of a client. People mistype a code now and then; who guesses needs some 10^11 tries.
MOST_TRIES = 20


class UnknownCodeError(NotFoundError):
    """For every code that opens nothing, whatever the reason: nobody learns which codes there are."""

    code = "handover_not_found"
    in_dutch = "Deze code klopt niet, of is al gebruikt. Een code werkt één keer en tien minuten lang."

    def __init__(self) -> None:
        super().__init__("This code is not valid. A code works once and for ten minutes; ask for a new one.")


@dataclass(frozen=True)
class Offer:
    """A code, which is known only here: what is stored is its hash."""

    code: str
    expires_at: datetime


def offer(session_id: UUID) -> Offer:
    """A new code for a session. The one before it is not valid any more."""
    code = "".join(secrets.choice(ALPHABET) for _ in range(CODE_CHARS))
    expires_at = timezone.now() + VALID_FOR
    Handover.objects.update_or_create(
        session_id=session_id, defaults={"digest": _digest(code), "expires_at": expires_at}
    )
    return Offer(f"{code[:4]}-{code[4:]}", expires_at)


def is_code(text: str) -> bool:
    """Whether a text looks like a code."""
    code = _plain(text)
    return len(code) == CODE_CHARS and set(code) <= set(ALPHABET)


def take_over(
    code: str, *, owner_id: int | None, user_id: str, by: User | str, person: Mapping[str, str] | None = None
) -> Session:
    """The session that the code stands for, which is this person's from now on."""
    count(f"handover:{owner_id}", most=MOST_TRIES)
    session = _moved(_digest(_plain(code)), owner_id=owner_id, user_id=user_id, person=person or {}, by=by)
    if session is None:
        raise UnknownCodeError
    return session


@transaction.atomic
def _moved(
    digest: str, *, owner_id: int | None, user_id: str, person: Mapping[str, str], by: User | str
) -> Session | None:
    offered = Handover.objects.open().filter(digest=digest)
    session = (
        Session.objects.filter(owner_id=owner_id, id__in=offered.values("session_id"))
        .select_for_update(no_key=True)
        .first()
    )
    # Of two at once the second finds the code gone when it has the lock.
    if session is None or not offered.filter(session_id=session.id).delete()[0]:
        return None
    _give(session, user_id=user_id, person=person)
    AuditEntry.objects.record(
        Action.HANDED_OVER, by=by, subject=str(session.id), counts={"messages": session.message_count}
    )
    return session


def _give(session: Session, *, user_id: str, person: Mapping[str, str]) -> None:
    if session.user_id != user_id:
        # Whoever gives it away keeps what was remembered of them, whatever becomes of the session.
        FactSource.objects.filter(message__session=session).delete()
        # What the other client told about its person is not about this one.
        others = session.metadata if isinstance(session.metadata, dict) else {}
        about: dict[str, Any] = {name: value for name, value in others.items() if name != "person"}
        session.metadata = about | ({"person": dict(person)} if person else {})
    session.user_id = user_id
    # The thread it was there begins anew.
    session.external_id = ""
    # What the database keeps itself is not written back: a turn may be under way.
    Session.objects.filter(id=session.id).update(
        user_id=session.user_id,
        external_id="",
        metadata=session.metadata,
        last_accessed=Func(function="clock_timestamp"),
    )
    session.refresh_from_db(fields=["updated_at", "last_accessed"])


def _plain(code: str) -> str:
    return "".join(code.upper().replace("-", " ").split())


def _digest(code: str) -> str:
    # With the site's key: 40 bits are too few to keep a plain hash of.
    return salted_hmac("conversations.handover", code, algorithm="sha256").hexdigest()
