"""The audit trail in the admin: nobody adds to it, changes it or takes from it by hand."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.apps import apps
from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html
from unfold.contrib.filters.admin import FieldTextFilter

from agentbridge.staff import ReadOnlyAdmin
from conversations.models import Action, AuditEntry

ABOUT_SESSIONS = {Action.OPENED, Action.PINNED, Action.EXPORTED, Action.ANSWER_DELETED}
# What is counted that staff know by no page of the admin.
NAMES = {
    "message_embeddings": ("doorzoekbaar bericht", "doorzoekbare berichten"),
    "keys": ("sleutel", "sleutels"),
    "approved": ("goedgekeurd", "goedgekeurd"),
    "edited": ("gewijzigd", "gewijzigd"),
    "forgotten": ("vergeten", "vergeten"),
    "written": ("opgeschreven", "opgeschreven"),
}


class WhenFilter(admin.SimpleListFilter):
    title = "wanneer"
    parameter_name = "when"
    DAYS = {"today": 1, "week": 7, "month": 30}  # noqa: RUF012

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("today", "afgelopen 24 uur"), ("week", "afgelopen 7 dagen"), ("month", "afgelopen 30 dagen")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[AuditEntry]) -> QuerySet[AuditEntry]:
        days = self.DAYS.get(self.value() or "")
        return queryset.filter(at__gte=timezone.now() - timedelta(days=days)) if days else queryset


@admin.register(AuditEntry)
class AuditEntryAdmin(ReadOnlyAdmin):
    list_display = ("at", "action", "actor", "about", "how_much")
    list_filter = ("action", ("actor", FieldTextFilter), WhenFilter)
    list_display_links = ("at",)
    list_per_page = 50
    search_fields = ("actor", "subject")
    search_help_text = "Zoek op wie het deed, of op een id"
    fields = ("at", "action", "actor", "about", "how_much")
    readonly_fields = fields

    @admin.display(description="betreft")
    def about(self, entry: AuditEntry) -> str:
        if entry.action in ABOUT_SESSIONS and entry.subject:
            address = reverse("admin:conversations_session_change", args=[entry.subject])
            return format_html('<a href="{}">{}</a>', address, entry.subject[:8])
        return entry.subject[:12] or "–"

    @admin.display(description="aantallen")
    def how_much(self, entry: AuditEntry) -> str:
        counts = entry.counts if isinstance(entry.counts, dict) else {}
        return ", ".join(_counted(name, number) for name, number in counts.items()) or "–"


def _counted(name: str, number: object) -> str:
    models = apps.get_app_config("conversations").get_models()
    known = {model._meta.db_table: (model._meta.verbose_name, model._meta.verbose_name_plural) for model in models}
    one, many = (known | NAMES).get(name, (name, name))
    return f"{number} {one if number == 1 else many}"
