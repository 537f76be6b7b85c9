"""Messages, what comes with them, and how text becomes storable."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, ClassVar, TypeVar
from uuid import UUID

from django.contrib.postgres.functions import RandomUUID
from django.contrib.postgres.indexes import BrinIndex, GinIndex
from django.contrib.postgres.search import SearchVector
from django.db import models
from django.db.models import Func, Q, Value
from django.db.models.expressions import RawSQL
from django.db.models.functions import Left, Now

MAX_CONTEXT_MESSAGES = 1000
# A megabyte of words is more than PostgreSQL indexes, and nobody's question.
MOST_SEARCHED_CHARS = 100_000
NEWEST = 1000
SENSIBLE_TIMES = (datetime(1970, 1, 1, tzinfo=UTC), datetime(9000, 1, 1, tzinfo=UTC))

Detail = TypeVar("Detail")


class Role(models.TextChoices):
    USER = "user", "Gebruiker"
    ASSISTANT = "assistant", "Assistent"
    SYSTEM = "system", "Systeem"


class Status(models.TextChoices):
    COMPLETE = "complete", "volledig"
    INTERRUPTED = "interrupted", "afgebroken"
    FAILED = "failed", "mislukt"


# A word that everybody uses is looked for in the newest messages alone: to read a million of them helps nobody. The
# planner has no idea how many messages have a word that begins so, and so it is not asked.
SAID = f"to_tsvector('simple'::regconfig, COALESCE(LEFT(content, {MOST_SEARCHED_CHARS}), ''))"
WORDS = "(nullif(phraseto_tsquery('simple'::regconfig, %s)::text, '') || ':*')::tsquery"
SAYING = f"""
    WITH newest AS MATERIALIZED (
        SELECT id, session_id, seq, content FROM messages ORDER BY seq DESC LIMIT {NEWEST}
    ), among_newest AS MATERIALIZED (
        SELECT id, session_id, seq FROM newest WHERE {SAID} @@ {WORDS}
    ), found AS (
        SELECT * FROM among_newest
        UNION
        SELECT id, session_id, seq FROM messages WHERE {SAID} @@ {WORDS}
            AND (SELECT count(*) FROM among_newest) < {NEWEST // 10}
    )
    SELECT {{column}} FROM found ORDER BY seq DESC LIMIT {{most}}
"""  # noqa: S608 - all that is put in are constants


class MessageQuerySet(models.QuerySet["Message"]):
    def active(self) -> MessageQuerySet:
        """Without what was edited away, regenerated or deleted by its person."""
        return self.filter(superseded_by=None)

    def with_words(self) -> MessageQuerySet:
        """Without answers that failed before their first word."""
        return self.exclude(role=Role.ASSISTANT, content="")

    def for_owner(self, owner_id: int | None, *, user_id: str = "") -> MessageQuerySet:
        """What was said with one person behind one client; both must match."""
        return self.filter(session__owner_id=owner_id, session__user_id=user_id)

    def saying(self, words: str) -> MessageQuerySet:
        """The newest thousand in which the words stand in this order, the last of them perhaps only in part."""
        return self.filter(pk__in=RawSQL(SAYING.format(column="id", most=1000), [words, words]))  # noqa: S611

    def in_session(self, session_id: UUID) -> MessageQuerySet:
        """One session's messages, oldest first."""
        return self.filter(session_id=session_id).order_by("created_at", "seq")

    def last_in_session(self, session_id: UUID, *, limit: int, before: Message | None = None) -> list[Message]:
        """The last `limit` messages, or the last before one of them, oldest first."""
        found = self.filter(session_id=session_id)
        if before is not None:
            found = found.filter(
                Q(created_at__lt=before.created_at) | Q(created_at=before.created_at, seq__lt=before.seq)
            )
        return list(reversed(found.order_by("-created_at", "-seq")[: checked_limit(limit)]))


class Message(models.Model):
    id = models.UUIDField(primary_key=True, db_default=RandomUUID(), editable=False)
    # The database deletes the messages of a session, whoever deletes it; Django stays out of it. The index that
    # serves the context serves the cascade too.
    session = models.ForeignKey(
        "Session",
        models.DO_NOTHING,
        related_name="messages",
        db_constraint=False,
        db_index=False,
        verbose_name="gesprek",
    )
    role = models.TextField("rol", choices=Role)
    content = models.TextField("tekst")
    status = models.TextField(choices=Status, db_default=Status.COMPLETE)
    metadata = models.JSONField(blank=True, db_default={})
    # The time of the row, not of its transaction: two messages of one transaction keep their order.
    created_at = models.DateTimeField(
        "tijd", db_default=Func(function="clock_timestamp", output_field=models.DateTimeField()), editable=False
    )
    # The question that an answer answers: with two turns at once it need not be the one right before it.
    reply_to = models.UUIDField(null=True, editable=False)
    # What a repeated request is known by; empty for most.
    request_key = models.TextField(blank=True, db_default="", editable=False)
    # The question whose turn took its place, when its person edited it away, regenerated or deleted it.
    superseded_by = models.UUIDField("vervangen door", null=True, editable=False)
    # Of all that was said up to here, where that is known: by it a client that replays its history is recognised.
    branch_hash = models.UUIDField(null=True, editable=False)
    # Orders what has the same microsecond, by insertion.
    seq = models.BigIntegerField(db_default=Func(Value("messages_seq"), function="nextval"), editable=False)

    objects = MessageQuerySet.as_manager()

    class Meta:
        db_table = "messages"
        verbose_name = "bericht"
        verbose_name_plural = "berichten"
        constraints: ClassVar = [
            models.CheckConstraint(name="messages_role_check", condition=Q(role__in=Role.values)),
            models.CheckConstraint(name="messages_status_check", condition=Q(status__in=Status.values)),
            models.CheckConstraint(name="messages_time_check", condition=Q(created_at__range=SENSIBLE_TIMES)),
            models.UniqueConstraint(
                name="messages_request_key_unique", fields=["request_key"], condition=~Q(request_key="")
            ),
        ]
        indexes: ClassVar = [
            models.Index(name="idx_messages_session_created_desc", fields=["session", "-created_at", "-seq"]),
            # For the lists of staff: the newest messages of all, and sessions in which something broke off.
            models.Index(name="idx_messages_newest", fields=["-seq"]),
            models.Index(name="idx_messages_broken", fields=["session"], condition=~Q(status="complete")),
            # For the day's figures. Rows lie in the order of their times, so that a few pages say which rows to read.
            BrinIndex(name="idx_messages_created_brin", fields=["created_at"], pages_per_range=32),
            # For the search of staff: words by their beginning.
            GinIndex(SearchVector(Left("content", MOST_SEARCHED_CHARS), config="simple"), name="idx_messages_words"),
            models.Index(name="idx_messages_reply_to", fields=["reply_to"], condition=Q(reply_to__isnull=False)),
            models.Index(name="idx_messages_branch", fields=["branch_hash"], condition=Q(branch_hash__isnull=False)),
        ]

    def __str__(self) -> str:
        return f"{self.get_role_display()}: {self.content[:60]}"

    @property
    def details(self) -> dict[str, Any]:
        """The metadata, where it is what EVI writes; `psql` and imports may write anything."""
        return self.metadata if isinstance(self.metadata, dict) else {}

    def detail(self, name: str, default: Detail) -> Detail:
        """One of the details; the default where it is missing, or of another kind."""
        value = self.details.get(name)
        return value if type(value) is type(default) else default

    @property
    def citations(self) -> tuple[dict[str, Any], ...]:
        return tuple(each for each in self.detail("citations", list[Any]()) if isinstance(each, dict))


class Attachment(models.Model):
    """An image that came with a message. It is kept once in a session, however often a client sends it again."""

    id = models.UUIDField(primary_key=True, db_default=RandomUUID(), editable=False)
    # As with messages, the database deletes it with its session.
    session = models.ForeignKey(
        "Session", models.DO_NOTHING, related_name="attachments", db_constraint=False, db_index=False
    )
    digest = models.TextField(editable=False)
    media_type = models.TextField("soort")
    name = models.TextField("naam", blank=True, db_default="")
    size = models.IntegerField("bytes")
    content = models.BinaryField(editable=False)
    created_at = models.DateTimeField("tijd", db_default=Now(), editable=False)

    class Meta:
        db_table = "attachments"
        verbose_name = "bijlage"
        verbose_name_plural = "bijlagen"
        constraints: ClassVar = [models.UniqueConstraint(name="attachments_unique", fields=["session", "digest"])]

    def __str__(self) -> str:
        return f"{self.name or self.media_type} ({self.size} bytes)"


def storable(metadata: Mapping[str, Any] | None) -> str:
    return json.dumps(without_unstorable(dict(metadata or {})))


def without_unstorable(value: Any) -> Any:
    """The same without what PostgreSQL does not keep. An answer that cost money is not lost for a NUL character."""
    match value:
        case str():
            return value.replace("\0", "").encode(errors="replace").decode()
        case dict():
            return {without_unstorable(key): without_unstorable(item) for key, item in value.items()}
        case list() | tuple():
            return [without_unstorable(item) for item in value]
    return value


def checked_limit(limit: object) -> int:
    """`limit` itself, or a ValueError: a number of messages is a whole number, whatever a caller was handed."""
    if isinstance(limit, bool) or not isinstance(limit, int) or not 0 <= limit <= MAX_CONTEXT_MESSAGES:
        raise ValueError(f"limit must be a whole number from 0 to {MAX_CONTEXT_MESSAGES}, not {limit!r}")
    return limit
