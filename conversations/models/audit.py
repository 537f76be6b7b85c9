"""Who did what to whose conversations. It holds no contents, and outlives what it is about."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import ClassVar
from uuid import UUID

from django.conf import settings
from django.contrib.auth.models import User
from django.contrib.postgres.functions import RandomUUID
from django.db import models
from django.db.models.functions import Now
from django.utils import timezone

SEEN_AGAIN_AFTER = timedelta(hours=1)


class Action(models.TextChoices):
    OPENED = "opened", "gesprek geopend"
    EXPORTED = "exported", "gesprekken uitgevoerd"
    DELETED = "deleted", "gesprekken verwijderd"
    ANSWER_DELETED = "answer_deleted", "antwoord verwijderd"
    CLEANED_UP = "cleaned_up", "opgeschoond"
    FORGOTTEN = "forgotten", "persoon vergeten"
    PINNED = "pinned", "vastgezet of losgemaakt"
    HANDED_OVER = "handed_over", "gesprek overgedragen"
    FACT_DECIDED = "fact_decided", "feit beoordeeld"
    KEY_REVOKED = "key_revoked", "sleutel ingetrokken"


class AuditEntryQuerySet(models.QuerySet["AuditEntry"]):
    def record(
        self, action: Action, *, by: User | str, subject: str = "", counts: Mapping[str, int] | None = None
    ) -> AuditEntry:
        """Write down an action. `by` is a member of staff, or what acted by itself: a command, the API, a schedule."""
        user, name = (by, by.get_username()) if isinstance(by, User) else (None, by)
        return self.create(action=action, user=user, actor=name, subject=subject, counts=dict(counts or {}))

    def record_opening(self, session_id: UUID, *, by: User) -> None:
        """Write down that somebody reads a session, by whatever road; who goes on reading is not written down again."""
        known = self.filter(
            at__gte=timezone.now() - SEEN_AGAIN_AFTER, action=Action.OPENED, user=by, subject=str(session_id)
        )
        if not known.exists():
            self.record(Action.OPENED, by=by, subject=str(session_id))


class AuditEntry(models.Model):
    id = models.UUIDField(primary_key=True, db_default=RandomUUID(), editable=False)
    at = models.DateTimeField("tijd", db_default=Now(), editable=False)
    action = models.TextField("handeling", choices=Action, editable=False)
    # The account may go; its name stays.
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.SET_NULL, null=True, related_name="+", editable=False, verbose_name="account"
    )
    actor = models.TextField("door", editable=False)
    # The id of a session or a fact, or the digest of a person: never a name.
    subject = models.TextField("betreft", db_default="", editable=False)
    counts = models.JSONField("aantallen", db_default={}, editable=False)

    objects = AuditEntryQuerySet.as_manager()

    class Meta:
        db_table = "audit_entries"
        verbose_name = "handeling"
        verbose_name_plural = "handelingen"
        ordering: ClassVar = ["-at", "-id"]
        indexes: ClassVar = [models.Index(name="idx_audit_entries_newest", fields=["-at", "-id"])]

    def __str__(self) -> str:
        return f"{self.get_action_display()}: {self.actor}"
