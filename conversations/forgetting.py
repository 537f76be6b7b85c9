"""Deleting means deleting: sessions and persons with all that goes with them, and a note of how much that was."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from uuid import UUID

from django.apps import apps
from django.contrib.auth.models import User
from django.db import models, transaction
from django.db.models import Exists, OuterRef
from django.utils.crypto import salted_hmac

from conversations.models import (
    Action,
    AuditEntry,
    Channel,
    Fact,
    FactSource,
    Message,
    Session,
    SessionQuerySet,
    TelegramUpdate,
)

BATCH_SIZE = 100
FACTS = Fact._meta.db_table
# As Telegram numbers chats; those of groups are negative.
CHAT_ID = re.compile(r"-?[0-9]{1,18}")


@dataclass(frozen=True)
class Receipt:
    """How many rows went, or would go, by the name of their table."""

    counts: Counter[str] = field(default_factory=Counter)

    def __add__(self, other: Receipt) -> Receipt:
        return Receipt(self.counts + other.counts)

    def __bool__(self) -> bool:
        return bool(self.counts)

    def __str__(self) -> str:
        """As a table, for people."""
        rows = sorted(self.counts.items(), key=lambda row: (row[0] != "sessions", row[0]))
        return "\n".join(f"  {table.replace('_', ' '):<24}{number:>8}" for table, number in rows) or "  nothing"


@transaction.atomic
def delete_sessions(sessions: SessionQuerySet, *, by: User | str) -> Receipt:
    """Delete sessions with all that goes with them. Whoever is using one at this moment is waited for."""
    receipt, ids = _delete(sessions)
    if receipt:
        subject = str(ids[0]) if len(ids) == 1 else ""
        AuditEntry.objects.record(Action.DELETED, by=by, subject=subject, counts=receipt.counts)
    return receipt


@transaction.atomic
def delete_answer(answer: Message, *, by: User | str) -> Receipt:
    """Delete one answer with what goes with it. Its question stays: what was said after it goes on from there."""
    if not Message.objects.select_for_update(of=("self",)).filter(id=answer.id).exists():
        # Somebody else deleted it a moment ago.
        return Receipt()
    counts = Counter({Message._meta.db_table: 1})
    for model, path in _dependents():
        if path != (of_message := path.removesuffix("__session")):
            counts[model._meta.db_table] += model._default_manager.filter(**{of_message: answer}).count()
    Message.objects.filter(id=answer.id).delete()
    AuditEntry.objects.record(Action.ANSWER_DELETED, by=by, subject=str(answer.session_id), counts=+counts)
    return Receipt(+counts)


def owners_of(user_id: str, *, client: str | None = None) -> list[int | None]:
    """The clients that know this person; None among them is the open one of development.

    Of a chat there may be no more than what Telegram brought, which belongs to no client.
    """
    of_client = {"owner__username": client} if client else {}
    known = Session.objects.filter(user_id=user_id, **of_client).order_by().values_list("owner_id").distinct()
    written = Fact.objects.filter(user_id=user_id, **of_client).order_by().values_list("owner_id").distinct()
    owners: set[int | None] = {owner for (owner,) in [*known, *written]}
    if not owners and not client and _brought_from(user_id).exists():
        owners = {None}
    return sorted(owners, key=lambda owner: owner or 0)


def preview_forgetting(*, owner_id: int | None, user_id: str) -> Receipt:
    """What would go."""
    sessions = Session.objects.for_owner(owner_id, user_id=user_id)
    # Those that come from a session and those that somebody wrote down.
    facts = Counter({FACTS: Fact.objects.for_owner(owner_id, user_id=user_id).count()})
    return Receipt(rows_of(sessions) | facts | _counted(_brought_from(user_id).count()))


def preview_forgetting_everywhere(user_id: str, *, client: str | None = None) -> Receipt | None:
    """What would go of this person with every client, or with this one; None where nobody is called so."""
    owners = owners_of(user_id, client=client) if user_id else []
    if not owners:
        return None
    return sum((preview_forgetting(owner_id=owner, user_id=user_id) for owner in owners), Receipt())


def forget_everywhere(
    user_id: str, *, client: str | None = None, by: User | str, on_batch: Callable[[Receipt], object]
) -> Receipt:
    """Delete all that is known of this person with every client, or with this one."""
    owners = owners_of(user_id, client=client)
    return sum(
        (forget_person(owner_id=owner, user_id=user_id, by=by, on_batch=on_batch) for owner in owners), Receipt()
    )


def forget_person(
    *,
    owner_id: int | None,
    user_id: str,
    by: User | str,
    batch_size: int = BATCH_SIZE,
    on_batch: Callable[[Receipt], object] = lambda receipt: None,
) -> Receipt:
    """Delete all that is known of a person behind a client, a batch to a transaction."""
    sessions = Session.objects.for_owner(owner_id, user_id=user_id)
    total = Receipt()
    try:
        while batch := _forget_batch(sessions, Fact.objects.for_owner(owner_id, user_id=user_id), size=batch_size):
            total += batch
            on_batch(batch)
        total += _forget_chat(user_id)
    finally:
        # Also of a run that somebody stopped: what went is gone.
        if total:
            subject = digest_of(owner_id=owner_id, user_id=user_id)
            AuditEntry.objects.record(Action.FORGOTTEN, by=by, subject=subject, counts=total.counts)
    return total


def _forget_chat(user_id: str) -> Receipt:
    number, _ = _brought_from(user_id).delete()
    return Receipt(_counted(number))


def _brought_from(user_id: str) -> models.QuerySet[TelegramUpdate]:
    """What Telegram brought from this person's chat, and is kept for a while so that it is answered once."""
    channel, _, chat_id = user_id.partition(":")
    if channel != Channel.TELEGRAM or not CHAT_ID.fullmatch(chat_id):
        return TelegramUpdate.objects.none()
    return TelegramUpdate.objects.filter(chat_id=int(chat_id))


def _counted(updates: int) -> Counter[str]:
    return +Counter({TelegramUpdate._meta.db_table: updates})


def digest_of(*, owner_id: int | None, user_id: str) -> str:
    """What a person is called in the audit trail: whoever has the secret can tell whether it is somebody they name."""
    return salted_hmac("conversations.person", repr((owner_id, user_id)), algorithm="sha256").hexdigest()


@transaction.atomic
def _forget_batch(sessions: SessionQuerySet, facts: models.QuerySet[Fact], *, size: int) -> Receipt:
    # With the first batch: what is known goes first. And with each, since somebody may still be talking.
    doomed = list(facts.select_for_update().values_list("id", flat=True))
    Fact.objects.filter(id__in=doomed).delete()
    receipt, _ = _delete(sessions.order_by("id")[:size])
    return receipt + Receipt(Counter({FACTS: len(doomed)}))


def _delete(sessions: SessionQuerySet) -> tuple[Receipt, list[UUID]]:
    ids: list[UUID] = list(sessions.select_for_update().values_list("id", flat=True))
    doomed = Session.objects.filter(id__in=ids)
    counts = rows_of(doomed)
    doomed.delete()
    return Receipt(counts), ids


def rows_of(sessions: SessionQuerySet) -> Counter[str]:
    """The sessions' rows, in every table that goes with a session or a message."""
    counts = Counter({Session._meta.db_table: sessions.count()})
    if not counts.total():
        return Counter()
    for model, path in _dependents():
        found = model._default_manager.filter(**{f"{path}__in": sessions.order_by().values("id")})
        counts[model._meta.db_table] += found.count()
    elsewhere = FactSource.objects.filter(fact=OuterRef("pk")).exclude(message__session__in=sessions.order_by())
    told_here = Fact.objects.filter(sources__session__in=sessions.order_by()).exclude(Exists(elsewhere))
    counts[FACTS] = told_here.distinct().count()
    return +counts


def _dependents() -> Iterator[tuple[type[models.Model], str]]:
    """Each table that the database empties along with sessions, and the way from there to the session."""
    for model in apps.get_app_config("conversations").get_models():
        if model is FactSource:
            # It is counted as the fact that it leads to.
            continue
        ways = {relation.related_model: relation.name for relation in model._meta.concrete_fields}
        # By its message where it has both: that way there is always an index.
        if Message in ways:
            yield model, f"{ways[Message]}__session"
        elif Session in ways:
            yield model, ways[Session]
