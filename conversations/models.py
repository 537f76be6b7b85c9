"""Conversations as rows. The rules live in the database, so that they hold for `psql` as well."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar
from uuid import UUID, uuid4

from django.conf import settings
from django.contrib.auth.models import User
from django.contrib.postgres.functions import RandomUUID
from django.db import connection, models
from django.db.models import Func, Q, Value
from django.db.models.functions import Now
from django.utils import timezone

MAX_CONTEXT_MESSAGES = 1000
SENSIBLE_TIMES = (datetime(1970, 1, 1, tzinfo=UTC), datetime(9000, 1, 1, tzinfo=UTC))


class Channel(models.TextChoices):
    API = "api", "API"
    OPENWEBUI = "openwebui", "OpenWebUI"
    CLI = "cli", "Terminal"
    TELEGRAM = "telegram", "Telegram"
    WEB = "web", "Webpagina"


class Role(models.TextChoices):
    USER = "user", "Gebruiker"
    ASSISTANT = "assistant", "Assistent"
    SYSTEM = "system", "Systeem"


class Status(models.TextChoices):
    COMPLETE = "complete", "volledig"
    INTERRUPTED = "interrupted", "afgebroken"
    FAILED = "failed", "mislukt"


@dataclass(frozen=True)
class TurnStart:
    """What a turn needs to know before the agent runs."""

    session_id: UUID
    question_id: UUID
    is_new: bool
    context: list[Message]


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
        """Touch or create the session, store the question and return what was said before it, in one round trip.

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
                    first=LOCK if place else "", resolve=resolve, at_its_place=AT_ITS_PLACE if place else "true"
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
        for message in earlier:
            # A cursor hands JSON out as text; only a queryset converts it.
            message.metadata = json.loads(message.metadata)
        return TurnStart(session_id=resolved[0], question_id=question_id, is_new=resolved[1], context=earlier)

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
    ) -> UUID | None:
        """Store the answer, as far as it got; None when the session was deleted in the meantime.

        `instead_of` is the answer that this one goes on with, and whose place it takes. The answer to a question that
        was left meanwhile is left with it.
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


class MessageQuerySet(models.QuerySet["Message"]):
    def active(self) -> MessageQuerySet:
        """Without what was edited away, regenerated or deleted by its person."""
        return self.filter(superseded_by=None)

    def for_owner(self, owner_id: int | None, *, user_id: str = "") -> MessageQuerySet:
        """What was said with one person behind one client; both must match."""
        return self.filter(session__owner_id=owner_id, session__user_id=user_id)

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
        Session, models.DO_NOTHING, related_name="messages", db_constraint=False, db_index=False, verbose_name="gesprek"
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
            models.Index(name="idx_messages_reply_to", fields=["reply_to"], condition=Q(reply_to__isnull=False)),
            models.Index(name="idx_messages_branch", fields=["branch_hash"], condition=Q(branch_hash__isnull=False)),
        ]

    def __str__(self) -> str:
        return f"{self.get_role_display()}: {self.content[:60]}"

    @property
    def details(self) -> dict[str, Any]:
        """The metadata, where it is what EVI writes; `psql` and imports may write anything."""
        return self.metadata if isinstance(self.metadata, dict) else {}

    @property
    def citations(self) -> tuple[dict[str, Any], ...]:
        cited = self.details.get("citations")
        return tuple(each for each in cited if isinstance(each, dict)) if isinstance(cited, list) else ()


class Attachment(models.Model):
    """An image that came with a message. It is kept once in a session, however often a client sends it again."""

    id = models.UUIDField(primary_key=True, db_default=RandomUUID(), editable=False)
    # As with messages, the database deletes it with its session.
    session = models.ForeignKey(
        Session, models.DO_NOTHING, related_name="attachments", db_constraint=False, db_index=False
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


class ApiKeyQuerySet(models.QuerySet["ApiKey"]):
    def store(self, token: str, *, name: str, client: User, in_line: bool = False) -> ApiKey:
        """Keep a key as its hash, and as much of its beginning as lets people tell keys apart."""
        return self.create(name=name, client=client, in_line=in_line, prefix=token[:12], digest=self.digest(token))

    def opened_by(self, token: str) -> ApiKey | None:
        """The key that `token` is, if its client may come in."""
        return self.filter(digest=self.digest(token), client__is_active=True).first()

    @staticmethod
    def digest(token: str) -> str:
        # A key is 32 random bytes: there is nothing to guess, so a fast hash is enough, and every request needs one.
        return hashlib.sha256(token.encode()).hexdigest()


class ApiKey(models.Model):
    """One key of a client, which may have several; deleting a key revokes it and the client's sessions stay."""

    client = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="api_keys")
    name = models.TextField("naam")
    prefix = models.TextField("begin", editable=False)
    digest = models.TextField(editable=False)
    in_line = models.BooleanField(
        "vragen op hun beurt",
        db_default=False,
        help_text="Een vraag wacht tot de vorige in hetzelfde gesprek beantwoord is. Anders lopen ze naast elkaar.",
    )
    created_at = models.DateTimeField("gemaakt", db_default=Now(), editable=False)
    last_used_at = models.DateTimeField("laatst gebruikt", null=True, editable=False)

    objects = ApiKeyQuerySet.as_manager()

    class Meta:
        db_table = "api_keys"
        verbose_name = "API-sleutel"
        verbose_name_plural = "API-sleutels"
        ordering: ClassVar = ["client__username", "name"]
        constraints: ClassVar = [models.UniqueConstraint(name="api_keys_digest_unique", fields=["digest"])]

    def __str__(self) -> str:
        return f"{self.name} ({self.prefix}…)"


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


CREATE_OR_TOUCH = """
    INSERT INTO sessions (id, owner_id, user_id, channel, external_id, expires_at, metadata)
    VALUES (%s, %s, %s, %s, %s, %s::timestamptz, %s::jsonb)
    ON CONFLICT (id) DO UPDATE SET last_accessed = greatest(sessions.last_accessed, clock_timestamp()),
            expires_at = coalesce(EXCLUDED.expires_at, sessions.expires_at)
        WHERE sessions.owner_id IS NOT DISTINCT FROM EXCLUDED.owner_id AND sessions.user_id = EXCLUDED.user_id
    RETURNING id, xmax = 0 AS is_new
"""

TOUCH = """
    UPDATE sessions SET last_accessed = greatest(last_accessed, clock_timestamp()),
        expires_at = coalesce(%s::timestamptz, expires_at)
    WHERE id = %s AND owner_id IS NOT DISTINCT FROM %s AND user_id = %s
    RETURNING id, false AS is_new
"""

# Two statements in one message are one transaction. They are two, because a statement sees the database as it was when
# it began: the second begins when the first has the session's lock, and so sees all that was said before the question.
BEGIN_TURN = """
    {first}
    WITH resolved AS ({resolve})
    , question AS (
        INSERT INTO messages (id, session_id, role, content, metadata, request_key, branch_hash)
        SELECT %s, id, 'user', %s, %s::jsonb, %s, %s::uuid FROM resolved WHERE {at_its_place}
        RETURNING id
    )
    SELECT id, is_new, EXISTS (SELECT FROM question) FROM resolved;

    SELECT id, session_id, role, content, status, metadata, created_at, seq FROM messages
    WHERE session_id = %s AND id <> %s AND superseded_by IS NULL
        -- Where there is no question the session is somebody else's.
        AND EXISTS (SELECT FROM messages WHERE id = %s)
    ORDER BY created_at DESC, seq DESC LIMIT %s
"""

# First of all, so that what follows sees what those did who had the session before.
LOCK = "SELECT FROM sessions WHERE id = %s FOR NO KEY UPDATE;"

# Whether the last thing said is what the client believes it to be. An answer that failed without a word was never seen.
AT_ITS_PLACE = """
    (SELECT coalesce((
        SELECT branch_hash IS NOT DISTINCT FROM wanted.hash FROM messages
        WHERE session_id = wanted.session AND superseded_by IS NULL AND content <> ''
        ORDER BY created_at DESC, seq DESC LIMIT 1
    ), wanted.is_first AND resolved.is_new)
    FROM (VALUES (%s::uuid, %s::uuid, %s::boolean)) AS wanted (session, hash, is_first))
"""

# Two statements here too: whether the question was left meanwhile is seen when nobody else has the session.
FINISH_TURN = """
    SELECT FROM sessions WHERE id = %s FOR NO KEY UPDATE;

    WITH answer AS (
        INSERT INTO messages (id, session_id, role, content, status, metadata, reply_to, branch_hash, superseded_by)
        SELECT %s, id, 'assistant', %s, %s, %s::jsonb, %s, %s::uuid,
            (SELECT superseded_by FROM messages WHERE id = %s)
        FROM sessions WHERE id = %s
        RETURNING id, session_id
    ), superseded AS (
        -- Another process may have answered the same question meanwhile; the last word is the answer.
        UPDATE messages SET superseded_by = %s FROM answer
        WHERE messages.session_id = answer.session_id AND messages.superseded_by IS NULL AND (
            messages.id = %s OR (messages.reply_to = %s AND messages.content <> '' AND %s)
        )
    )
    SELECT id FROM answer
"""
