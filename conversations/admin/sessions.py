"""Sessions in the admin: found, read, pinned, exported, deleted and cleaned up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

from django.contrib import admin, messages
from django.contrib.admin.actions import delete_selected
from django.core.exceptions import PermissionDenied
from django.db import models
from django.db.models import QuerySet, Sum
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import URLPattern, path
from django.utils import timezone
from django.utils.formats import date_format
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.text import Truncator
from django.utils.timesince import timesince
from unfold.contrib.filters.admin import FieldTextFilter
from unfold.widgets import UnfoldAdminSplitDateTimeVerticalWidget, UnfoldAdminTextInputWidget

from agentbridge.staff import counted
from conversations.admin.base import DiscreetAdmin, record_each, staff
from conversations.admin.cleanup import CleanupPages
from conversations.admin.conversation import stretch_of
from conversations.admin.deletion import goes_along
from conversations.admin.exports import FORMATS, MOST_BYTES, MOST_MESSAGES, as_file, as_zip, size_of
from conversations.admin.filters import BrokenOffFilter, ExpiryFilter, LastUsedFilter
from conversations.admin.forgetting import PERMISSION, ForgetPages
from conversations.admin.listing import SessionList, searched, sizes_of, without_contents
from conversations.forgetting import delete_sessions
from conversations.models import Action, AuditEntry, Message, Session
from conversations.roles import may_read_contents

# The confirmation page posts every id, and Django refuses a form of more than a thousand fields.
MAX_DELETED_AT_ONCE = 900
OTHERWISE = "Kies minder, of laat gesprekken op de server naar een map schrijven met ‘manage.py export_sessions’."
TOO_MANY = f"Dat zijn te veel berichten voor één keer. {OTHERWISE}"
TOO_LARGE = f"Dat is {{size}}, en een download is hooguit {{most}}. {OTHERWISE}"


@admin.register(Session)
class SessionAdmin(CleanupPages, ForgetPages, DiscreetAdmin):
    list_display = ("name", "last_used", "who", "channel", "message_count", "size", "pin_mark")
    list_filter = (
        "channel",
        LastUsedFilter,
        BrokenOffFilter,
        ExpiryFilter,
        "pinned",
        ("user_id", FieldTextFilter),
    )
    list_select_related = ("owner",)
    list_per_page = 50
    # Makes the search box appear; `get_search_results` does the searching.
    search_fields = ("title",)
    search_help_text = "Zoek in titels, personen, berichten en ids"
    actions = ("pin", "unpin", "export_as_json", "export_as_markdown", "export_as_csv", "delete_selected")
    readonly_fields = ("id", "owner", "person", "channel", "external_id", "metadata", "created_at", "updated_at")
    compressed_fields = False
    formfield_overrides = {  # noqa: RUF012
        models.TextField: {"widget": UnfoldAdminTextInputWidget},
        # Beside the conversation there is no room for a date and a time side by side.
        models.DateTimeField: {"widget": UnfoldAdminSplitDateTimeVerticalWidget},
    }
    change_form_template = "admin/conversations/session/change_form.html"

    @admin.display(description="titel", ordering="title")
    def name(self, session: Session) -> str:
        return Truncator(session.title).chars(80) or str(session.pk)[:8]

    @admin.display(description="laatst gebruikt", ordering="last_accessed")
    def last_used(self, session: Session) -> SafeString:
        moment = date_format(timezone.localtime(session.last_accessed), "SHORT_DATETIME_FORMAT")
        return format_html('<span title="{}">{} geleden</span>', moment, timesince(session.last_accessed, depth=1))

    @admin.display(description="persoon", ordering="user_id")
    def who(self, session: Session) -> SafeString:
        client = session.owner.get_username() if session.owner else "zonder sleutel"
        return format_html('{}<small class="evi-sub">{}</small>', Truncator(session.user_id).chars(40) or "–", client)

    @admin.display(description="vast", ordering="pinned")
    def pin_mark(self, session: Session) -> SafeString | str:
        # A cross in each row of the many that are not would look like something wrong.
        return format_html('<span class="evi-state evi-warn">{}</span>', "vastgezet") if session.pinned else ""

    @admin.display(description="omvang")
    def size(self, session: Any) -> str:
        return bytes_of(session.size)

    @admin.display(description="persoon")
    def person(self, session: Session) -> str:
        """As the client tells, where it tells more than an id."""
        about = session.metadata.get("person") if isinstance(session.metadata, dict) else None
        parts = ("name", "email", "role")
        told = [str(about[part]) for part in parts if part in about] if isinstance(about, dict) else []
        # Many a client knows a person by the same address that it tells.
        return " · ".join(dict.fromkeys([*told, session.user_id] if session.user_id else told)) or "–"

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        reads = may_read_contents(request.user)
        technical = ("id", "person", "owner", "channel", "external_id", "created_at", "updated_at")
        return (
            (None, {"fields": ("title", "pinned", "expires_at") if reads else ("pinned", "expires_at")}),
            ("Technisch", {"fields": (*technical, *(("metadata",) if reads else ())), "classes": ("collapse",)}),
        )

    def lookup_allowed(self, lookup: str, value: Any, request: HttpRequest | None = None) -> bool:
        # What somebody may not read they may not guess either, a letter at a time.
        if lookup.split("__")[0] in ("title", "metadata") and not (request and may_read_contents(request.user)):
            return False
        return bool(request and super().lookup_allowed(lookup, value, request))

    def get_sortable_by(self, request: HttpRequest) -> Any:
        every = super().get_sortable_by(request)
        return every if may_read_contents(request.user) else [name for name in every if name != "name"]

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[SessionList]:
        return SessionList

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Session | None:
        session: Session | None = super().get_object(request, object_id, from_field)
        return session and without_contents(session, unless=may_read_contents(request.user))

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Session], search_term: str
    ) -> tuple[QuerySet[Session], bool]:
        return searched(queryset, search_term, in_contents=may_read_contents(request.user)), False

    def has_add_permission(self, request: HttpRequest) -> bool:
        # Conversations begin in a chat.
        return False

    def has_export_permission(self, request: HttpRequest) -> bool:
        return self.has_view_permission(request) and may_read_contents(request.user)

    def save_model(self, request: HttpRequest, obj: Session, form: Any, change: bool) -> None:
        # The conversation may go on meanwhile: a whole row would put back its old count and times.
        obj.save(update_fields=form.changed_data)
        if "pinned" in form.changed_data:
            record_each(Action.PINNED, by=staff(request), sessions=[obj])

    def render_change_form(
        self,
        request: HttpRequest,
        context: dict[str, Any],
        add: bool = False,
        change: bool = False,
        form_url: str = "",
        obj: Session | None = None,
    ) -> HttpResponse:
        assert obj
        context["may_read_messages"] = may_read_contents(request.user)
        context["size"] = bytes_of(sizes_of([obj.pk]).get(obj.pk, 0))
        context["person"] = self.person(obj)
        context["may_forget"] = bool(obj.user_id) and staff(request).has_perm(PERMISSION)
        if context["may_read_messages"]:
            context["stretch"] = stretch_of(obj)
            context["export_formats"] = list(FORMATS)
            AuditEntry.objects.record_opening(obj.pk, by=staff(request))
        return super().render_change_form(request, context, add, change, form_url, obj)

    # Deleting

    def get_deleted_objects(self, objs: Any, request: HttpRequest) -> tuple[list[Any], dict[str, int], set[str], Any]:
        """The database deletes what belongs to a session, so Django does not know of it."""
        sessions = list(objs)
        for session in sessions:
            without_contents(session, unless=may_read_contents(request.user))
        lacking = set() if self.has_delete_permission(request) else {str(self.opts.verbose_name)}
        counts = {
            str(self.opts.verbose_name_plural): len(sessions),
            str(Message._meta.verbose_name_plural): sum(session.message_count for session in sessions),
            **goes_along([session.pk for session in sessions]),
        }
        return [f"{session} ({counted(Message, session.message_count)})" for session in sessions], counts, lacking, []

    def delete_model(self, request: HttpRequest, obj: Session) -> None:
        # Past the title that may have been taken off.
        delete_sessions(Session.objects.filter(pk=obj.pk), by=staff(request))

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Session]) -> None:
        delete_sessions(Session.objects.filter(pk__in=queryset.values("pk")), by=staff(request))

    @admin.action(permissions=["delete"], description="Verwijderen")
    def delete_selected(self, request: HttpRequest, queryset: QuerySet[Session]) -> HttpResponse | None:
        if queryset.count() > MAX_DELETED_AT_ONCE:
            text = f"Verwijder hooguit {MAX_DELETED_AT_ONCE} gesprekken tegelijk, of gebruik ‘Opschonen’."
            self.message_user(request, text, messages.ERROR)
            return None
        return delete_selected(self, request, queryset)

    # Pinning

    @admin.action(permissions=["change"], description="Vastzetten")
    def pin(self, request: HttpRequest, queryset: QuerySet[Session]) -> None:
        self._set_pinned(request, queryset, pinned=True)

    @admin.action(permissions=["change"], description="Losmaken")
    def unpin(self, request: HttpRequest, queryset: QuerySet[Session]) -> None:
        self._set_pinned(request, queryset, pinned=False)

    def _set_pinned(self, request: HttpRequest, queryset: QuerySet[Session], *, pinned: bool) -> None:
        record_each(Action.PINNED, by=staff(request), sessions=queryset)
        number = counted(Session, queryset.update(pinned=pinned))
        self.message_user(request, f"{number} {'vastgezet' if pinned else 'losgemaakt'}.", messages.SUCCESS)

    # Exporting

    @admin.action(permissions=["export"], description="Exporteren als JSON")
    def export_as_json(self, request: HttpRequest, queryset: QuerySet[Session]) -> HttpResponse | None:
        return self._export(request, queryset, "json")

    @admin.action(permissions=["export"], description="Exporteren als Markdown")
    def export_as_markdown(self, request: HttpRequest, queryset: QuerySet[Session]) -> HttpResponse | None:
        return self._export(request, queryset, "markdown")

    @admin.action(permissions=["export"], description="Exporteren als CSV")
    def export_as_csv(self, request: HttpRequest, queryset: QuerySet[Session]) -> HttpResponse | None:
        return self._export(request, queryset, "csv")

    def _export(self, request: HttpRequest, queryset: QuerySet[Session], name: str) -> HttpResponse | None:
        if refusal := self._too_much_in(queryset):
            self.message_user(request, refusal, messages.ERROR)
            return None
        sessions = list(queryset)
        record_each(Action.EXPORTED, by=staff(request), sessions=sessions)
        return as_file(sessions[0], FORMATS[name]) if len(sessions) == 1 else as_zip(sessions, FORMATS[name])

    def _too_much_in(self, queryset: QuerySet[Session]) -> str:
        if queryset.aggregate(total=Sum("message_count", default=0))["total"] > MOST_MESSAGES:
            return TOO_MANY
        size = size_of(queryset)
        return TOO_LARGE.format(size=bytes_of(size), most=bytes_of(MOST_BYTES)) if size > MOST_BYTES else ""

    def export_view(self, request: HttpRequest, session_id: UUID, name: str) -> HttpResponse:
        session = self._readable(request, session_id)
        if name not in FORMATS:
            raise Http404
        if refusal := self._too_much_in(Session.objects.filter(pk=session.pk)):
            self.message_user(request, refusal, messages.ERROR)
            return redirect("admin:conversations_session_change", session.pk)
        record_each(Action.EXPORTED, by=staff(request), sessions=[session])
        return as_file(session, FORMATS[name])

    def messages_view(self, request: HttpRequest, session_id: UUID, message_id: UUID) -> HttpResponse:
        """What was said before a message, to be put above it."""
        session = self._readable(request, session_id)
        AuditEntry.objects.record_opening(session_id, by=staff(request))
        try:
            stretch = stretch_of(session, before=message_id)
        except Message.DoesNotExist as error:
            raise Http404 from error
        return render(request, "admin/conversations/session/stretch.html", {"stretch": stretch, "original": session})

    def _readable(self, request: HttpRequest, session_id: UUID) -> Session:
        if not self.has_export_permission(request):
            raise PermissionDenied
        session = Session.objects.filter(pk=session_id).first()
        if session is None:
            raise Http404
        return session

    def get_urls(self) -> list[URLPattern]:
        def page(route: str, view: Callable[..., HttpResponse], name: str) -> URLPattern:
            return path(route, self.admin_site.admin_view(view), name=f"conversations_session_{name}")

        return [
            *self.cleanup_urls(),
            *self.forget_urls(),
            page("<uuid:session_id>/export/<str:name>/", self.export_view, "export"),
            page("<uuid:session_id>/before/<uuid:message_id>/", self.messages_view, "before"),
            *super().get_urls(),
        ]


def bytes_of(number: int) -> str:
    """A size in the largest unit that it has."""
    if number < 1000:
        return f"{number} B"
    if number < 1_000_000:
        return f"{number / 1000:.0f} kB"
    return f"{number / 1_000_000:.1f} MB".replace(".", ",")
