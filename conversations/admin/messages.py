"""Messages in the admin: read, never changed."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.contrib import admin
from django.contrib.admin.options import IncorrectLookupParameters
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.text import Truncator, smart_split, unescape_string_literal

from conversations.admin.base import ContentsAdmin, staff
from conversations.admin.filters import MOST_SEARCH_WORDS, SaidFilter
from conversations.models import AuditEntry, Message, MessageQuerySet


class SessionFilter(admin.SimpleListFilter):
    """Appears when the list is opened from a session, which it then shows as a conversation."""

    title = "gesprek"
    parameter_name = "session"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(session_id, "dit gesprek")] if (session_id := request.GET.get("session")) else []

    def queryset(self, request: HttpRequest, queryset: QuerySet[Message]) -> QuerySet[Message]:
        if not (session_id := self.value()):
            return queryset
        try:
            return queryset.filter(session_id=UUID(session_id))
        except ValueError as error:
            raise IncorrectLookupParameters(error) from error


@admin.register(Message)
class MessageAdmin(ContentsAdmin):
    list_display = ("excerpt", "session_link", "role", "status", "is_active", "created_at")
    list_filter = (SessionFilter, SaidFilter, "role", "status")
    list_select_related = ("session",)
    list_per_page = 50
    # Makes the search box appear; `get_search_results` does the searching.
    search_fields = ("content",)
    search_help_text = "Zoek op woorden, of op hun begin"
    fieldsets = (
        (None, {"fields": ("session_link", ("role", "status"), ("created_at", "replaced_by"), "content", "sources")}),
        ("Technisch", {"fields": ("id", "metadata"), "classes": ("collapse",)}),
    )
    readonly_fields = ("session_link", "replaced_by", "sources")

    @admin.display(description="tekst")
    def excerpt(self, message: Message) -> str:
        return Truncator(message.content).chars(120) or "(leeg)"

    @admin.display(description="actueel", boolean=True)
    def is_active(self, message: Message) -> bool:
        return message.superseded_by is None

    @admin.display(description="gesprek")
    def session_link(self, message: Message) -> SafeString:
        address = reverse("admin:conversations_session_change", args=[message.session_id])
        title = Truncator(message.session.title).chars(60) or str(message.session_id)[:8]
        return format_html('<a href="{}">{}</a>', address, title)

    @admin.display(description="vervangen door")
    def replaced_by(self, message: Message) -> SafeString | str:
        if message.superseded_by is None:
            return "–"
        address = reverse("admin:conversations_message_change", args=[message.superseded_by])
        return format_html('<a href="{}">een andere vraag</a>', address)

    @admin.display(description="bronnen")
    def sources(self, message: Message) -> str:
        named = [str(each.get("document_title") or each.get("source") or "") for each in message.citations]
        return ", ".join(filter(None, named)) or "–"

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Message], search_term: str
    ) -> tuple[QuerySet[Message], bool]:
        assert isinstance(queryset, MessageQuerySet)
        for word in words_of(search_term):
            queryset = queryset.saying(word)
        return queryset, False

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        response = super().changelist_view(request, extra_context)
        # A session read as a list is a session that was read, however the address says which.
        if isinstance(response, TemplateResponse) and any(name.startswith("session") for name in request.GET):
            assert response.context_data
            for session_id in {message.session_id for message in response.context_data["cl"].result_list}:
                AuditEntry.objects.record_opening(session_id, by=staff(request))
        return response

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any
    ) -> HttpResponse:
        AuditEntry.objects.record_opening(context["original"].session_id, by=staff(request))
        return super().render_change_form(request, context, *args, **kwargs)

    def get_ordering(self, request: HttpRequest) -> tuple[str, ...]:
        return ("created_at", "seq") if request.GET.get("session") else ("-seq",)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


def words_of(search_term: str) -> list[str]:
    """The words of a search; those between quotes are one."""
    words = [
        unescape_string_literal(word) if word[0] in "\"'" and word[0] == word[-1] and len(word) > 1 else word
        for word in smart_split(search_term)
    ]
    return words[:MOST_SEARCH_WORDS]
