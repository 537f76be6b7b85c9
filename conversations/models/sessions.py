"""Sessions, and the two writes of a turn."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, ClassVar
from uuid import UUID, uuid4

from django.conf import settings
from django.contrib.postgres.functions import RandomUUID
from django.db import connection, models
from django.db.models import F, Q
from django.db.models.expressions import RawSQL
from django.db.models.functions import Now
from django.utils import timezone

from conversations.models.messages import (
    SAYING,
    SENSIBLE_TIMES,
    Message,
    Status,
    checked_limit,
    storable,
    without_unstorable,
)
from conversations.models.statements import (
    AT_ITS_PLACE,
    BEGIN_TURN,
    CREATE_OR_TOUCH,
    FINISH_TURN,
    LOCK,
    MOST_FACTS_TOLD,
    TOUCH,
)

LOWEST_ID, HIGHEST_ID = str(UUID(int=0)), str(UUID(int=2**128 - 1))


class Channel(models.TextChoices):
    API = "api", "API"
    OPENWEBUI = "openwebui", "OpenWebUI"
    CLI = "cli", "Terminal"
    TELEGRAM = "telegram", "Telegram"
    WEB = "web", "Webpagina"


@dataclass(frozen=True)
class TurnStart:
    """What a turn needs to know before the agent runs."""

    session_id: UUID
    question_id: UUID
    is_new: bool
    context: list[Message]
    # What is known of the person, the newest first.
    facts: tuple[str, ...] = ()


@dataclass(frozen=True)
class Beginning:
    """What a session is given when it begins; how long it lasts is set anew with every question."""

    external_id: str = ""
    expires_at: datetime | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Place:
    """Where in a conversation a question belongs, by the hashes of what was said."""

    # Of all that was said before it, and of that and the question.
    after: UUID
    branch_hash: UUID
    is_first: bool


class DivergedError(Exception):
    """The conversation that the client replays is not the stored one."""


class SessionQuerySet(models.QuerySet["Session"]):
    def for_owner(self, owner_id: int | None, *, user_id: str = "") -> SessionQuerySet:
        """The sessions of one person behind one client; both must match."""
        return self.filter(owner_id=owner_id, user_id=user_id)

    def id_begins_with(self, prefix: str) -> SessionQuerySet:
        """Those whose id, as it is written, begins so; as a range, because the index on ids knows no text."""
        first, last = prefix + LOWEST_ID[len(prefix) :], prefix + HIGHEST_ID[len(prefix) :]
        try:
            is_beginning = str(UUID(first)) == first
        except ValueError:
            is_beginning = False
        return self.filter(id__range=(first, last)) if is_beginning else self.none()

    def titled(self, words: str) -> SessionQuerySet:
        return self.filter(title__icontains=words)

    def saying(self, words: str) -> SessionQuerySet:
        """Those in which somebody says this, in this order; the last word perhaps only in part."""
        return self.filter(pk__in=RawSQL(SAYING.format(column="session_id", most=20_000), [words, words]))  # noqa: S611

    def pinned(self) -> SessionQuerySet:
        return self.filter(pinned=True)

    def expired(self, *, now: datetime | None = None, days: int | None = None) -> SessionQuerySet:
        """What the clean-up may delete; `days` untouched, 0 for never. A pinned session never expires."""
        now = now or timezone.now()
        days = settings.EVI.retention_days if days is None else days
        over = Q(expires_at__lt=now)
        if days:
            over |= Q(last_accessed__lt=now - timedelta(days=days))
        return self.filter(over, pinned=False)

    def to_summarize(self, *, now: datetime | None = None) -> SessionQuerySet:
        """Those that nobody uses any more, and that have no summary or went on since they got one."""
        if not settings.EVI.idle_minutes:
            return self.none()
        idle_since = (now or timezone.now()) - timedelta(minutes=settings.EVI.idle_minutes)
        went_on = Q(summary=None) | Q(summary__summarized_at__lt=F("updated_at"))
        return self.filter(went_on, last_accessed__lt=idle_since, message_count__gt=0)

    def begin_turn(
        self,
        *,
        session_id: UUID,
        content: str,
        owner_id: int | None = None,
        user_id: str = "",
        channel: Channel = Channel.API,
        create: bool = True,
        context_messages: int | None = None,
        request_key: str = "",
        metadata: Mapping[str, Any] | None = None,
        beginning: Beginning | None = None,
        place: Place | None = None,
    ) -> TurnStart:
        """Touch or create the session, store the question and return what is known before it, in one round trip.

        Another owner's or person's session raises `Session.DoesNotExist`, exactly as an unknown one does. With a
        `place` nothing is stored unless the question belongs right there, and `DivergedError` is raised otherwise.
        """
        limit = checked_limit(settings.EVI.context_messages if context_messages is None else context_messages)
        question_id = uuid4()
        resolve, resolve_params = self._resolving(
            session_id, owner_id=owner_id, user_id=user_id, channel=channel, create=create, beginning=beginning
        )
        question: list[Any] = [question_id, content, storable(metadata), request_key]
        with connection.cursor() as cursor:
            cursor.execute(
                BEGIN_TURN.format(
                    first=LOCK if place else "",
                    resolve=resolve,
                    at_its_place=AT_ITS_PLACE if place else "true",
                    mine="owner_id IS NULL" if owner_id is None else "owner_id = %s",
                ),
                [
                    *([session_id] if place else []),
                    *resolve_params,
                    *question,
                    *([place.branch_hash, session_id, place.after, place.is_first] if place else [None]),
                    session_id,
                    question_id,
                    question_id,
                    limit,
                    *([] if owner_id is None else [owner_id]),
                    user_id,
                    MOST_FACTS_TOLD,
                ],
            )
            if place:
                cursor.nextset()
            resolved = cursor.fetchone()
            if not resolved:
                raise self.model.DoesNotExist(f"Session not found: {session_id}")
            if not resolved[2]:
                raise DivergedError
            cursor.nextset()
            fields = [column.name for column in cursor.description]
            earlier = [Message.from_db(connection.alias, fields, row) for row in reversed(cursor.fetchall())]
            cursor.nextset()
            facts = tuple(text for (text,) in cursor.fetchall())
        for message in earlier:
            # A cursor hands JSON out as text; only a queryset converts it.
            message.metadata = json.loads(message.metadata)
        return TurnStart(
            session_id=resolved[0], question_id=question_id, is_new=resolved[1], context=earlier, facts=facts
        )

    def touch(
        self,
        *,
        session_id: UUID,
        owner_id: int | None,
        user_id: str,
        channel: Channel,
        create: bool,
        beginning: Beginning | None = None,
    ) -> None:
        """Touch or create the session, and keep others from it to the end of the transaction."""
        resolve, parameters = self._resolving(
            session_id, owner_id=owner_id, user_id=user_id, channel=channel, create=create, beginning=beginning
        )
        with connection.cursor() as cursor:
            cursor.execute(resolve, parameters)
            if not cursor.fetchone():
                raise self.model.DoesNotExist(f"Session not found: {session_id}")

    def _resolving(
        self,
        session_id: UUID,
        *,
        owner_id: int | None,
        user_id: str,
        channel: Channel,
        create: bool,
        beginning: Beginning | None,
    ) -> tuple[str, list[Any]]:
        beginning = beginning or Beginning()
        if not create:
            return TOUCH, [beginning.expires_at, session_id, owner_id, user_id]
        about = [beginning.external_id, beginning.expires_at, storable(beginning.metadata)]
        return CREATE_OR_TOUCH, [session_id, owner_id, user_id, channel, *about]

    def finish_turn(
        self,
        *,
        session_id: UUID,
        content: str,
        status: Status = Status.COMPLETE,
        metadata: Mapping[str, Any] | None = None,
        reply_to: UUID | None = None,
        branch_hash: UUID | None = None,
        message_id: UUID | None = None,
        instead_of: UUID | None = None,
        title: str = "",
    ) -> UUID | None:
        """Store the answer, as far as it got; None when the session was deleted in the meantime.

        `instead_of` is the answer that this one goes on with, and whose place it takes. The answer to a question that
        was left meanwhile is left with it. A session without a title gets this one.
        """
        with connection.cursor() as cursor:
            cursor.execute(
                FINISH_TURN,
                [
                    session_id,
                    message_id or uuid4(),
                    without_unstorable(content),
                    status,
                    storable(metadata),
                    reply_to,
                    branch_hash,
                    reply_to,
                    session_id,
                    reply_to,
                    instead_of,
                    reply_to,
                    bool(content),
                    without_unstorable(title),
                ],
            )
            cursor.nextset()
            row = cursor.fetchone()
        return row[0] if row else None


class Session(models.Model):
    id = models.UUIDField(primary_key=True, db_default=RandomUUID(), editable=False)
    # A client with conversations cannot be deleted by accident: its sessions go first, on purpose.
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        models.PROTECT,
        null=True,
        blank=True,
        related_name="+",
        db_index=False,
        verbose_name="client",
    )
    user_id = models.TextField("persoon", blank=True, db_default="")
    channel = models.TextField("kanaal", choices=Channel, db_default=Channel.API)
    external_id = models.TextField("naam in het kanaal", blank=True, db_default="")
    title = models.TextField("titel", blank=True, db_default="")
    pinned = models.BooleanField("vastgezet", db_default=False)
    metadata = models.JSONField(blank=True, db_default={})
    created_at = models.DateTimeField("begonnen", db_default=Now(), editable=False)
    updated_at = models.DateTimeField("gewijzigd", db_default=Now(), editable=False)
    last_accessed = models.DateTimeField("laatst gebruikt", db_default=Now(), editable=False)
    expires_at = models.DateTimeField("verloopt", null=True, blank=True)
    message_count = models.IntegerField("berichten", db_default=0, editable=False)

    objects = SessionQuerySet.as_manager()

    class Meta:
        db_table = "sessions"
        verbose_name = "gesprek"
        verbose_name_plural = "gesprekken"
        ordering: ClassVar = ["-last_accessed", "-id"]
        permissions: ClassVar = [
            ("read_hidden_contents", "Mag gesprekken lezen waar EVI_ADMIN_HIDE_CONTENT ze verbergt"),
            ("forget_person", "Mag een persoon vergeten"),
        ]
        constraints: ClassVar = [
            models.CheckConstraint(name="sessions_channel_check", condition=Q(channel__in=Channel.values)),
            # PostgreSQL knows years that Python does not; one such row would break every list it is in.
            models.CheckConstraint(
                name="sessions_times_check",
                condition=Q(
                    created_at__range=SENSIBLE_TIMES,
                    updated_at__range=SENSIBLE_TIMES,
                    last_accessed__range=SENSIBLE_TIMES,
                ),
            ),
            models.CheckConstraint(
                name="sessions_expires_at_check",
                condition=Q(expires_at=None) | Q(expires_at__range=SENSIBLE_TIMES),
                violation_error_message="Deze datum ligt te ver in het verleden of in de toekomst.",
            ),
            models.UniqueConstraint(
                name="sessions_external_id_unique",
                fields=["owner", "channel", "user_id", "external_id"],
                condition=~Q(external_id=""),
                # A missing owner is a value here: open development mode has one thread per name as well.
                nulls_distinct=False,
            ),
        ]
        indexes: ClassVar = [
            models.Index(name="idx_sessions_last_accessed", fields=["last_accessed"]),
            models.Index(name="idx_sessions_owner_recent", fields=["owner", "user_id", "-last_accessed", "-id"]),
            models.Index(name="idx_sessions_expiring", fields=["expires_at"], condition=Q(expires_at__isnull=False)),
        ]

    def __str__(self) -> str:
        return self.title or str(self.pk)
