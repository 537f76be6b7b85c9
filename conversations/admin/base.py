"""What holds for every page about what people said."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from django.contrib.admin.models import CHANGE, DELETION, LogEntry
from django.contrib.auth.models import User
from django.contrib.contenttypes.models import ContentType
from django.db import models
from django.http import HttpRequest

from agentbridge.staff import StaffAdmin
from conversations.models import Action, AuditEntry, Session
from conversations.roles import may_read_contents


class DiscreetAdmin(StaffAdmin):
    """Django's own log of changes outlives what it is about, so it is given ids and no texts."""

    def log_change(self, request: HttpRequest, obj: models.Model, message: Any) -> LogEntry:
        return self._log(request, obj, CHANGE, message)

    def log_deletions(self, request: HttpRequest, queryset: Iterable[models.Model]) -> None:  # type: ignore[override]
        for row in queryset:
            self._log(request, row, DELETION, [])

    def _log(self, request: HttpRequest, row: models.Model, flag: int, message: Any) -> LogEntry:
        return LogEntry.objects.create(
            user_id=staff(request).pk,
            content_type=ContentType.objects.get_for_model(row, for_concrete_model=False),
            object_id=str(row.pk),
            object_repr=str(row.pk),
            action_flag=flag,
            # The names of fields, never what is in them.
            change_message=json.dumps(message),
        )


class ContentsAdmin(DiscreetAdmin):
    """Rows that are all contents: who may not read contents does not get here."""

    def has_view_permission(self, request: HttpRequest, obj: models.Model | None = None) -> bool:
        return may_read_contents(request.user) and super().has_view_permission(request, obj)

    def has_change_permission(self, request: HttpRequest, obj: models.Model | None = None) -> bool:
        return may_read_contents(request.user) and super().has_change_permission(request, obj)

    def has_delete_permission(self, request: HttpRequest, obj: models.Model | None = None) -> bool:
        return may_read_contents(request.user) and super().has_delete_permission(request, obj)

    def has_module_permission(self, request: HttpRequest) -> bool:
        return may_read_contents(request.user) and super().has_module_permission(request)


def staff(request: HttpRequest) -> User:
    assert isinstance(request.user, User)
    return request.user


def record_each(action: Action, *, by: User, sessions: Iterable[Session]) -> None:
    """One entry for each session, so that the trail of a session is complete."""
    AuditEntry.objects.bulk_create(
        AuditEntry(
            action=action,
            user=by,
            actor=by.get_username(),
            subject=str(session.pk),
            counts={"messages": session.message_count},
        )
        for session in sessions
    )
