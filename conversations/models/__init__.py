"""Conversations as rows. The rules live in the database, so that they hold for `psql` as well."""

from conversations.models.audit import Action, AuditEntry
from conversations.models.keys import ApiKey, ApiKeyQuerySet
from conversations.models.memory import MAX_FACT_CHARS, Fact, FactQuerySet, FactSource, FactStatus, Summary
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
    "Fact",
    "FactQuerySet",
    "FactSource",
    "FactStatus",
    "Message",
    "MessageQuerySet",
    "Place",
    "Role",
    "Session",
    "SessionQuerySet",
    "Status",
    "Summary",
    "TurnStart",
    "checked_limit",
    "storable",
    "without_unstorable",
]
