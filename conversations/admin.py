"""The admin, where staff read, pin and delete conversations, clean up and revoke API keys."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any
from uuid import UUID

from django.conf import settings
from django.contrib import admin, messages
from django.contrib.admin.actions import delete_selected
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.utils import model_ngettext
from django.contrib.admin.widgets import AdminTextInputWidget
from django.core.exceptions import PermissionDenied, ValidationError
from django.db import DataError, models
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.formats import date_format
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.text import Truncator, smart_split, unescape_string_literal
from django.utils.timesince import timesince

from conversations import retention
from conversations.models import ApiKey, Message, Session, SessionQuerySet, Status

if TYPE_CHECKING:
    ModelAdmin = admin.ModelAdmin[Any]
else:
    # Django's own takes no type parameter while it runs.
    ModelAdmin = admin.ModelAdmin

admin.site.site_header = "EVI-beheer"
admin.site.site_title = "EVI-beheer"
admin.site.index_title = "Overzicht"
# The list of sessions needs the width.
admin.site.enable_nav_sidebar = False

SHOWN_MESSAGES = 100
# Every word costs a look at all messages.
MAX_SEARCH_WORDS = 10
# The confirmation page posts every id, and Django refuses a form of more than a thousand fields.
MAX_DELETED_AT_ONCE = 900
# Shorter ones are more often words or numbers than the beginning of an id.
ID_PREFIX = re.compile(r"[0-9a-f-]{4,36}", re.IGNORECASE)


class TolerantAdmin(ModelAdmin):
    """Garbage in an address or a form leads back to the list, as it does where Django itself recognises it."""

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        try:
            return super().changelist_view(request, extra_context)
        except (DataError, ValidationError, ValueError):
            return redirect(f"{request.path}?e=1")


class LastUsedFilter(admin.SimpleListFilter):
    title = "laatst gebruikt"
    parameter_name = "used"

    def lookups(self, request: HttpRequest, model_admin: ModelAdmin) -> list[tuple[str, str]]:
        return [("today", "vandaag"), ("week", "afgelopen 7 dagen"), ("expired", "op te schonen")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Session]) -> QuerySet[Session]:
        assert isinstance(queryset, SessionQuerySet)
        now = timezone.localtime()
        match self.value():
            case "today":
                return queryset.filter(last_accessed__gte=now.replace(hour=0, minute=0, second=0, microsecond=0))
            case "week":
                return queryset.filter(last_accessed__gte=now - timedelta(days=7))
            case "expired":
                return queryset.expired()
        return queryset


class BrokenOffFilter(admin.SimpleListFilter):
    title = "volledigheid"
    parameter_name = "broken"

    def lookups(self, request: HttpRequest, model_admin: ModelAdmin) -> list[tuple[str, str]]:
        return [("yes", "afgebroken of mislukt bericht"), ("no", "alles volledig")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Session]) -> QuerySet[Session]:
        broken = Exists(
            Message.objects.filter(session=OuterRef("pk"), status__in=[Status.INTERRUPTED, Status.FAILED]),
        )
        match self.value():
            case "yes":
                return queryset.filter(broken)
            case "no":
                return queryset.filter(~broken)
        return queryset


@admin.register(Session)
class SessionAdmin(TolerantAdmin):
    list_display = ("name", "last_used", "user_id", "owner", "channel", "message_count", "pinned")
    list_filter = ("channel", "pinned", LastUsedFilter, BrokenOffFilter)
    list_select_related = ("owner",)
    show_full_result_count = False
    # Makes the search box appear; `get_search_results` does the searching.
    search_fields = ("title",)
    search_help_text = "Zoek in titels, personen, berichten, namen in het kanaal en het begin van een id."
    actions = ("pin", "unpin", "delete_selected")
    fieldsets = (
        (None, {"fields": ("title", "pinned", "expires_at")}),
        (None, {"fields": (("person", "owner", "channel"), ("message_count", "created_at", "last_used"))}),
        ("Technisch", {"fields": ("id", "external_id", "updated_at", "metadata"), "classes": ("collapse",)}),
    )
    readonly_fields = (
        "id",
        "owner",
        "person",
        "channel",
        "external_id",
        "metadata",
        "created_at",
        "updated_at",
        "last_used",
        "message_count",
    )
    formfield_overrides = {models.TextField: {"widget": AdminTextInputWidget({"class": "vLargeTextField"})}}  # noqa: RUF012

    @admin.display(description="titel", ordering="title")
    def name(self, session: Session) -> str:
        return Truncator(session.title).chars(80) or str(session.pk)[:8]

    @admin.display(description="laatst gebruikt", ordering="last_accessed")
    def last_used(self, session: Session) -> SafeString:
        moment = date_format(timezone.localtime(session.last_accessed), "SHORT_DATETIME_FORMAT")
        return format_html("{} geleden<br><small>{}</small>", timesince(session.last_accessed, depth=1), moment)

    def has_add_permission(self, request: HttpRequest) -> bool:
        # Conversations begin in a chat.
        return False

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Session], search_term: str
    ) -> tuple[QuerySet[Session], bool]:
        """Every word must occur somewhere; words between quotes count as one."""
        for word in islice(smart_split(search_term), MAX_SEARCH_WORDS):
            if word[0] in "\"'" and word[0] == word[-1]:
                word = unescape_string_literal(word)
            found = Q(title__icontains=word) | Q(user_id__icontains=word) | Q(external_id__icontains=word)
            if ID_PREFIX.fullmatch(word):
                found |= Q(id__startswith=word.lower())
            if self.may_read_messages(request):
                found |= Q(Exists(Message.objects.filter(session=OuterRef("pk"), content__icontains=word)))
            queryset = queryset.filter(found)
        return queryset, False

    def may_read_messages(self, request: HttpRequest) -> bool:
        return self.admin_site.get_model_admin(Message).has_view_permission(request)

    def save_model(self, request: HttpRequest, obj: Session, form: Any, change: bool) -> None:
        # The conversation may go on meanwhile: a whole row would put back its old count and times.
        obj.save(update_fields=form.changed_data)

    def render_change_form(
        self,
        request: HttpRequest,
        context: dict[str, Any],
        add: bool = False,
        change: bool = False,
        form_url: str = "",
        obj: Session | None = None,
    ) -> HttpResponse:
        context["may_read_messages"] = self.may_read_messages(request)
        if obj and context["may_read_messages"]:
            context["conversation"] = [
                {
                    "message": message,
                    "citations": citations_in(message.metadata),
                    "raw_metadata": message.metadata and pretty_json(message.metadata),
                    "superseded_by": message.superseded_by,
                }
                for message in Message.objects.last_in_session(obj.pk, limit=SHOWN_MESSAGES)
            ]
        return super().render_change_form(request, context, add, change, form_url, obj)

    @admin.display(description="persoon")
    def person(self, session: Session) -> str:
        """As the client tells, where it tells more than an id."""
        about = session.metadata.get("person") if isinstance(session.metadata, dict) else None
        told = [str(about[part]) for part in ("name", "email", "role") if part in about] if about else []
        return " · ".join([*told, session.user_id] if session.user_id else told) or "-"

    def get_deleted_objects(self, objs: Any, request: HttpRequest) -> tuple[list[str], dict[str, int], set[str], Any]:
        deleted, counts, lacking, protected = super().get_deleted_objects(objs, request)
        # The database deletes the messages, so Django does not know of them.
        counts[str(Message._meta.verbose_name_plural)] = sum(session.message_count for session in objs)
        return deleted, counts, lacking, protected

    @admin.action(permissions=["delete"], description="Geselecteerde gesprekken verwijderen")
    def delete_selected(self, request: HttpRequest, queryset: QuerySet[Session]) -> HttpResponse | None:
        if queryset.count() > MAX_DELETED_AT_ONCE:
            text = f"Verwijder hooguit {MAX_DELETED_AT_ONCE} gesprekken tegelijk, of gebruik ‘Opschonen’."
            self.message_user(request, text, messages.ERROR)
            return None
        return delete_selected(self, request, queryset)

    @admin.action(permissions=["change"], description="Geselecteerde gesprekken vastzetten")
    def pin(self, request: HttpRequest, queryset: QuerySet[Session]) -> None:
        self.message_user(request, f"{counted(Session, queryset.update(pinned=True))} vastgezet.", messages.SUCCESS)

    @admin.action(permissions=["change"], description="Geselecteerde gesprekken losmaken")
    def unpin(self, request: HttpRequest, queryset: QuerySet[Session]) -> None:
        self.message_user(request, f"{counted(Session, queryset.update(pinned=False))} losgemaakt.", messages.SUCCESS)

    def get_urls(self) -> list[URLPattern]:
        cleanup = self.admin_site.admin_view(self.cleanup_view)
        return [path("cleanup/", cleanup, name="conversations_session_cleanup"), *super().get_urls()]

    def cleanup_view(self, request: HttpRequest) -> HttpResponse:
        """Say what a clean-up would delete; delete it when that is posted."""
        if not self.has_delete_permission(request):
            raise PermissionDenied
        if request.method == "POST":
            self.message_user(
                request, f"{described(retention.delete_expired_sessions())} verwijderd.", messages.SUCCESS
            )
            return redirect("admin:conversations_session_changelist")
        preview = retention.preview_cleanup()
        context = {
            **self.admin_site.each_context(request),
            "title": "Opschonen",
            "opts": self.opts,
            "doomed": preview.sessions and described(preview),
            "retention_days": settings.EVI.retention_days,
        }
        return TemplateResponse(request, "admin/conversations/session/cleanup.html", context)


class SessionFilter(admin.SimpleListFilter):
    """Appears when the list is opened from a session, which it then shows as a conversation."""

    title = "gesprek"
    parameter_name = "session"

    def lookups(self, request: HttpRequest, model_admin: ModelAdmin) -> list[tuple[str, str]]:
        return [(session_id, "dit gesprek")] if (session_id := request.GET.get("session")) else []

    def queryset(self, request: HttpRequest, queryset: QuerySet[Message]) -> QuerySet[Message]:
        if not (session_id := self.value()):
            return queryset
        try:
            return queryset.filter(session_id=UUID(session_id))
        except ValueError as error:
            raise IncorrectLookupParameters(error) from error


@admin.register(Message)
class MessageAdmin(TolerantAdmin):
    list_display = ("excerpt", "session_link", "role", "status", "is_active", "created_at")
    list_filter = (SessionFilter, "role", "status")
    list_select_related = ("session",)
    show_full_result_count = False
    search_fields = ("content",)
    fields = ("session", "role", "status", "superseded_by", "created_at", "content", "metadata")

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

    def get_ordering(self, request: HttpRequest) -> tuple[str, ...]:
        return ("created_at", "seq") if request.GET.get("session") else ("-seq",)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Message | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Message | None = None) -> bool:
        return False


@admin.register(ApiKey)
class ApiKeyAdmin(TolerantAdmin):
    """Deleting a key revokes it."""

    list_display = ("name", "client", "prefix", "in_line", "created_at", "last_used_at")
    list_select_related = ("client",)
    search_fields = ("name", "prefix", "client__username")
    fields = ("name", "in_line", "client", "prefix", "created_at", "last_used_at")
    # Whose key it is stays: another client's sessions are not opened by a slip of the mouse.
    readonly_fields = ("client", "prefix", "created_at", "last_used_at")

    def has_add_permission(self, request: HttpRequest) -> bool:
        # `manage.py create_api_key` makes them, and shows them once.
        return False


def citations_in(metadata: object) -> list[dict[str, Any]]:
    """The citations among whatever was stored with a message."""
    citations = metadata.get("citations") if isinstance(metadata, dict) else None
    if not isinstance(citations, list):
        return []
    return [citation for citation in citations if isinstance(citation, dict) and citation.get("source")]


def pretty_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2)


def described(report: retention.CleanupReport) -> str:
    return f"{counted(Session, report.sessions)} en {counted(Message, report.messages)}"


def counted(model: type[models.Model], number: int) -> str:
    """A number with the model's name: 1 gesprek, 2 gesprekken."""
    return f"{number} {model_ngettext(model._meta, number)}"


from conversations import memory_admin  # noqa: E402, F401  # its classes register themselves
