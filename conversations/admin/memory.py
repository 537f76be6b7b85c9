"""The admin of what EVI remembers: staff approve, edit and forget facts, and read summaries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import admin, messages
from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from django.forms import ModelForm
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.text import Truncator

from conversations import facts
from conversations.admin.base import ContentsAdmin, staff
from conversations.models import AuditEntry, Fact, FactQuerySet, FactSource, FactStatus, Summary

if TYPE_CHECKING:
    FactModelForm = ModelForm[Fact]
else:
    # Django's own takes no type parameter while it runs.
    FactModelForm = ModelForm


class FactForm(FactModelForm):
    class Meta:
        model = Fact
        fields = ("text",)

    def clean_text(self) -> str:
        try:
            text = facts.fit(self.cleaned_data["text"])
        except facts.UnfitFactError as error:
            raise ValidationError("Een feit heeft 1 tot 500 tekens en geeft de assistent geen opdrachten.") from error
        mine = Fact.objects.for_owner(self.instance.owner_id, user_id=self.instance.user_id)
        if mine.filter(text=text).exclude(pk=self.instance.pk).exists():
            raise ValidationError("Zo'n feit is er al over deze persoon.")
        return text


@admin.register(Fact)
class FactAdmin(ContentsAdmin):
    """Saving changes the words; the actions decide."""

    form = FactForm
    list_display = ("excerpt", "status", "user_id", "owner", "created_at", "decided_at")
    list_filter = ("status",)
    list_select_related = ("owner",)
    show_full_result_count = False
    search_fields = ("text", "user_id")
    actions = ("approve", "forget")
    fields = ("text", "status", "user_id", "owner", "created_at", "decided_at", "said_in")
    # Whose fact it is stays: nobody is told what is known about somebody else by a slip of the mouse.
    readonly_fields = ("status", "user_id", "owner", "created_at", "decided_at", "said_in")

    @admin.display(description="tekst")
    def excerpt(self, fact: Fact) -> str:
        return Truncator(fact.text).chars(120)

    @admin.display(description="gezegd in")
    def said_in(self, fact: Fact) -> SafeString | str:
        sources = FactSource.objects.filter(fact=fact).select_related("message__session")
        links = {
            (reverse("admin:conversations_session_change", args=[said.message.session_id]), said.message.session)
            for said in sources
        }
        listed = format_html_join(", ", '<a href="{}">{}</a>', sorted(links, key=str))
        return listed or "opgeschreven, niet in een gesprek gezegd"

    @admin.action(permissions=["change"], description="Geselecteerde feiten goedkeuren")
    def approve(self, request: HttpRequest, queryset: QuerySet[Fact]) -> None:
        proposed = list(queryset.filter(status=FactStatus.PROPOSED).values_list("pk", flat=True))
        done = [facts.decide(Fact.objects.filter(pk=pk), by=staff(request), approve=True) for pk in proposed]
        self.message_user(request, f"{counted(len(list(filter(None, done))))} goedgekeurd.", messages.SUCCESS)

    @admin.action(permissions=["delete"], description="Geselecteerde feiten vergeten")
    def forget(self, request: HttpRequest, queryset: QuerySet[Fact]) -> None:
        self.message_user(request, f"{counted(self._forget(request, queryset))} vergeten.", messages.SUCCESS)

    def save_model(self, request: HttpRequest, obj: Fact, form: Any, change: bool) -> None:
        facts.decide(Fact.objects.filter(pk=obj.pk), by=staff(request), text=form.cleaned_data["text"])

    def delete_model(self, request: HttpRequest, obj: Fact) -> None:
        self._forget(request, Fact.objects.filter(pk=obj.pk))

    def _forget(self, request: HttpRequest, queryset: QuerySet[Fact]) -> int:
        doomed = Fact.objects.filter(pk__in=list(queryset.values_list("pk", flat=True)))
        assert isinstance(doomed, FactQuerySet)
        return facts.forget(doomed, by=staff(request))

    def get_actions(self, request: HttpRequest) -> dict[str, Any]:
        # Forgetting is what deletes here, and says so in the audit trail.
        return {name: action for name, action in super().get_actions(request).items() if name != "delete_selected"}

    def has_add_permission(self, request: HttpRequest) -> bool:
        # The agent proposes facts, and persons write down their own.
        return False


@admin.register(Summary)
class SummaryAdmin(ContentsAdmin):
    list_display = ("excerpt", "session_link", "message_count", "summarized_at")
    list_select_related = ("session",)
    show_full_result_count = False
    search_fields = ("text",)
    ordering = ("-summarized_at",)
    fields = ("text", "session_link", "message_count", "created_at", "summarized_at")
    readonly_fields = ("session_link",)

    @admin.display(description="tekst")
    def excerpt(self, summary: Summary) -> str:
        return Truncator(summary.text).chars(160)

    @admin.display(description="gesprek")
    def session_link(self, summary: Summary) -> SafeString:
        address = reverse("admin:conversations_session_change", args=[summary.session_id])
        return format_html('<a href="{}">{}</a>', address, Truncator(str(summary.session)).chars(60))

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any
    ) -> HttpResponse:
        AuditEntry.objects.record_opening(context["original"].session_id, by=staff(request))
        return super().render_change_form(request, context, *args, **kwargs)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any | None = None) -> bool:
        # It goes with its session.
        return False


def counted(number: int) -> str:
    return f"{number} {'feit' if number == 1 else 'feiten'}"
