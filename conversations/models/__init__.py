"""Conversations as rows. The rules live in the database, so that they hold for `psql` as well."""

from conversations.models.audit import Action, AuditEntry
from conversations.models.handovers import Handover, HandoverQuerySet
from conversations.models.keys import ApiKey, ApiKeyQuerySet
from conversations.models.memory import (
    MAX_FACT_CHARS,
    EmbeddingProgress,
    Fact,
    FactQuerySet,
    FactSource,
    FactStatus,
    MessageEmbedding,
    Summary,
)
from conversations.models.messages import (
    MAX_CONTEXT_MESSAGES,
    SENSIBLE_TIMES,
    Attachment,
    Message,
    MessageQuerySet,
    Role,
    Status,
    checked_limit,
    storable,
    without_unstorable,
)
from conversations.models.operations import CleanupRun, DailyFigures
from conversations.models.sessions import (
    Beginning,
    Channel,
    DivergedError,
    Place,
    Session,
    SessionQuerySet,
    TurnStart,
)
from conversations.models.telegram import TelegramUpdate, TelegramUpdateQuerySet

__all__ = [
    "MAX_CONTEXT_MESSAGES",
    "MAX_FACT_CHARS",
    "SENSIBLE_TIMES",
    "Action",
    "ApiKey",
    "ApiKeyQuerySet",
    "Attachment",
    "AuditEntry",
    "Beginning",
    "Channel",
    "CleanupRun",
    "DailyFigures",
    "DivergedError",
    "EmbeddingProgress",
    "Fact",
    "FactQuerySet",
    "FactSource",
    "FactStatus",
    "Handover",
    "HandoverQuerySet",
    "Message",
    "MessageEmbedding",
    "MessageQuerySet",
    "Place",
    "Role",
    "Session",
    "SessionQuerySet",
    "Status",
    "Summary",
    "TelegramUpdate",
    "TelegramUpdateQuerySet",
    "TurnStart",
    "checked_limit",
    "storable",
    "without_unstorable",
]
