"""API keys in the admin."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.contrib import admin
from django.db import models
from django.db.models import QuerySet
from django.http import HttpRequest
from unfold.widgets import UnfoldAdminTextInputWidget

from agentbridge.staff import StaffAdmin
from conversations.admin.base import staff
from conversations.models import Action, ApiKey, AuditEntry


@admin.register(ApiKey)
class ApiKeyAdmin(StaffAdmin):
    """Deleting a key revokes it."""

    list_display = ("name", "client", "prefix", "in_line", "created_at", "last_used_at")
    list_select_related = ("client",)
    search_fields = ("name", "prefix", "client__username")
    search_help_text = "Zoek op naam, begin of client"
    fields = ("name", "in_line", "client", "prefix", "created_at", "last_used_at")
    # Whose key it is stays: another client's sessions are not opened by a slip of the mouse.
    readonly_fields = ("client", "prefix", "created_at", "last_used_at")
    formfield_overrides = {models.TextField: {"widget": UnfoldAdminTextInputWidget}}  # noqa: RUF012

    def has_add_permission(self, request: HttpRequest) -> bool:
        # `manage.py create_api_key` makes them, and shows them once.
        return False

    def delete_model(self, request: HttpRequest, obj: ApiKey) -> None:
        self._record(request, [obj])
        super().delete_model(request, obj)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        self._record(request, queryset)
        super().delete_queryset(request, queryset)

    def _record(self, request: HttpRequest, keys: Iterable[ApiKey]) -> None:
        for key in keys:
            AuditEntry.objects.record(Action.KEY_REVOKED, by=staff(request), subject=key.prefix, counts={"keys": 1})
