"""What every page of the admin has in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib.admin.utils import model_ngettext
from django.core.exceptions import ValidationError
from django.db import DataError, models
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.text import capfirst
from unfold import admin as unfold
from unfold.views import ChangeList

if TYPE_CHECKING:
    from django.contrib import admin

    ModelAdmin = admin.ModelAdmin[Any]
else:
    ModelAdmin = unfold.ModelAdmin


class StaffList(ChangeList):  # type: ignore[misc]  # Unfold has no types
    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        if not self.query and not self.has_active_filters:
            # Nothing is left out, so there is no “show all”.
            self.full_result_count = self.result_count


class StaffAdmin(ModelAdmin):
    """A list and a page in EVI's style. Garbage in an address leads back to the list, as where Django recognises it."""

    show_full_result_count = False
    list_max_show_all = 0
    list_fullwidth = True
    list_filter_sheet = True
    list_filter_submit = True
    compressed_fields = True
    warn_unsaved_form = True

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[Any]:
        return StaffList

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        try:
            # Not “select one to change”: most who look do not change anything.
            title = {"title": capfirst(str(self.opts.verbose_name_plural))}
            return super().changelist_view(request, title | (extra_context or {}))
        except (DataError, ValidationError, ValueError):
            return redirect(f"{request.path}?e=1")


class ReadOnlyAdmin(StaffAdmin):
    """Rows that nobody makes, changes or deletes by hand."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: models.Model | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: models.Model | None = None) -> bool:
        return False


def counted(model: type[models.Model], number: int) -> str:
    """A number with the model's name: 1 gesprek, 2 gesprekken."""
    return f"{number} {model_ngettext(model._meta, number)}"
