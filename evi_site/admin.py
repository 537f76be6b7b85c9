"""Accounts, groups and the worker's tasks in the admin, in the same style as the rest."""

from __future__ import annotations

import re
from typing import Any

from django import forms
from django.contrib import admin
from django.contrib.auth import admin as auth_admin
from django.contrib.auth.models import Group, Permission, User
from django.db import models
from django.http import HttpRequest
from django.utils import timezone
from django.utils.formats import date_format, number_format
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django_q import admin as queue_admin
from django_q.models import Failure, OrmQ, Schedule, Success, Task
from unfold.forms import AdminPasswordChangeForm, UserChangeForm, UserCreationForm
from unfold.widgets import UnfoldAdminSelect2MultipleWidget

from agentbridge.staff import ReadOnlyAdmin, StaffAdmin
from conversations.roles import may_read_contents
from conversations.schedules import IN_DUTCH, in_dutch

for model in (User, Group, Schedule, Success, Failure, OrmQ):
    admin.site.unregister(model)


VERBS = {"view": "bekijken", "add": "toevoegen", "change": "wijzigen", "delete": "verwijderen"}


class RightField(forms.ModelMultipleChoiceField):  # type: ignore[type-arg]  # generic in the stubs alone
    """Rights in words: Django names them in English, around a name in Dutch."""

    def label_from_instance(self, obj: models.Model) -> str:
        assert isinstance(obj, Permission)
        kind, verb = obj.content_type, VERBS.get(obj.codename.partition("_")[0])
        about = f"{kind.app_labeled_name}"
        return f"{about}: {verb}" if verb and obj.name.startswith("Can ") else obj.name


class RightsAdmin(StaffAdmin):
    """Rights and roles are chosen by typing a part of their name."""

    def formfield_for_manytomany(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        kwargs["widget"] = UnfoldAdminSelect2MultipleWidget(attrs={"style": "width: 100%"})
        kwargs["help_text"] = ""
        if db_field.related_model is Permission:
            kwargs["form_class"] = RightField
            kwargs["queryset"] = Permission.objects.select_related("content_type")
        return db_field.formfield(**kwargs)


@admin.register(User)
class UserAdmin(auth_admin.UserAdmin, RightsAdmin):  # type: ignore[type-arg]  # generic in the stubs alone
    form = UserChangeForm
    add_form = UserCreationForm
    change_password_form = AdminPasswordChangeForm
    list_display = ("username", "email", "roles", "is_staff", "is_active", "last_login")
    list_filter = ("is_staff", "is_active", "groups")
    filter_horizontal = ()

    @admin.display(description="rollen")
    def roles(self, user: User) -> str:
        groups = [group.name for group in user.groups.all()]
        return ", ".join(["alles", *groups] if user.is_superuser else groups) or "–"

    def get_queryset(self, request: HttpRequest) -> models.QuerySet[User]:
        users: models.QuerySet[User] = super().get_queryset(request).prefetch_related("groups")
        return users

    def get_readonly_fields(self, request: HttpRequest, obj: User | None = None) -> Any:
        # Rights go by roles; single ones, and all of them, are for who has all of them.
        return () if request.user.is_superuser else ("is_superuser", "user_permissions", "last_login", "date_joined")

    def has_change_permission(self, request: HttpRequest, obj: User | None = None) -> bool:
        is_allowed = super().has_change_permission(request, obj)
        return is_allowed and (not obj or not obj.is_superuser or bool(request.user.is_superuser))

    def has_delete_permission(self, request: HttpRequest, obj: User | None = None) -> bool:
        is_allowed = super().has_delete_permission(request, obj)
        return is_allowed and (not obj or not obj.is_superuser or bool(request.user.is_superuser))


@admin.register(Group)
class GroupAdmin(auth_admin.GroupAdmin, RightsAdmin):
    filter_horizontal = ()


# Headings, confirmations and notices name a task as its list does.
Task.__str__ = in_dutch
Schedule.__str__ = in_dutch

# What tasks count.
COUNTED = {
    "sessions": "gesprekken",
    "messages": "berichten",
    "days": "dagen",
    "summarized": "samengevat",
    "failed": "mislukt",
    "left": "blijft over",
}


def _result(task: Task) -> str:
    """What a task gave back in words, or what it failed of, without the way there."""
    if isinstance(task.result, dict):
        return ", ".join(f"{COUNTED.get(name, name)}: {value}" for name, value in task.result.items())
    told = "–" if task.result is None else str(task.result)
    # django-q2 puts one before the other.
    return " ".join(told.partition(" : Traceback")[0].split())[:200]


@admin.register(Success, Failure)
class TaskAdmin(ReadOnlyAdmin):
    """What the worker did. A failure may be cleared away by who may delete it, or be tried again."""

    list_display = ("task", "started", "took", "short_result")
    list_display_links = ("task",)
    search_fields = ("name", "func", "group")
    fields = (
        "task",
        "func",
        "arguments",
        "started",
        "stopped",
        "took",
        "attempt_count",
        "short_result",
        "whole_result",
    )
    readonly_fields = ("task", "arguments", "took", "short_result", "kind", "whole_result")

    @admin.display(description="taak", ordering="func")
    def task(self, task: Task) -> str:
        return in_dutch(task)

    @admin.display(description="argumenten")
    def arguments(self, task: Task) -> str:
        named = [f"{name}={value!r}" for name, value in (task.kwargs or {}).items()]
        return ", ".join([*map(repr, task.args or ()), *named]) or "–"

    @admin.display(description="duur", ordering="stopped")
    def took(self, task: Task) -> str:
        return f"{number_format((task.stopped - task.started).total_seconds(), 1)} s"

    @admin.display(description="resultaat")
    def short_result(self, task: Task) -> str:
        return _result(task)

    @admin.display(description="soort")
    def kind(self, task: Task) -> str:
        """Which error it was, and nothing of what it said: a database tells of the row that it refused."""
        found = re.findall(r"^(\w[\w.]*)(?=:|$)", str(task.result), re.MULTILINE)
        return found[-1] if found else "–"

    @admin.display(description="volledig")
    def whole_result(self, task: Task) -> SafeString:
        return format_html(
            '<pre class="evi-pre" tabindex="0">{}</pre>', "–" if task.result is None else str(task.result)
        )

    def get_list_display(self, request: HttpRequest) -> Any:
        return self._shown_to(request, super().get_list_display(request))

    def get_fields(self, request: HttpRequest, obj: models.Model | None = None) -> Any:
        return self._shown_to(request, super().get_fields(request, obj))

    def _shown_to(self, request: HttpRequest, columns: Any) -> Any:
        if self.model is Success or may_read_contents(request.user):
            return columns
        return ["kind" if column == "short_result" else column for column in columns if column != "whole_result"]

    def has_delete_permission(self, request: HttpRequest, obj: models.Model | None = None) -> bool:
        return StaffAdmin.has_delete_permission(self, request, obj)

    def get_actions(self, request: HttpRequest) -> Any:
        actions: dict[str, Any] = super().get_actions(request)
        if self.model is Failure and request.user.has_perm("django_q.change_failure"):
            actions |= {"resubmit": (resubmit, "resubmit", "Selectie opnieuw proberen")}
        return actions


def resubmit(model_admin: TaskAdmin, request: HttpRequest, queryset: models.QuerySet[Failure]) -> None:
    queue_admin.resubmit_task(model_admin, request, queryset)
    queryset.delete()
    model_admin.message_user(request, "In de wachtrij gezet.")


@admin.register(Schedule)
class ScheduleAdmin(StaffAdmin):
    """EVI registers its own schedules at every start; here one sees that they run, and when."""

    # Not “task”: the model has a field of that name, the id of its last task, and Django would show that.
    list_display = ("what", "schedule_type", "when_next", "last_result")
    search_fields = ("name", "func")
    fields = ("what", "func", "schedule_type", "minutes", "cron", "repeats", "next_run", "last_result")
    readonly_fields = ("what", "func", "last_result")

    def get_queryset(self, request: HttpRequest) -> models.QuerySet[Schedule]:
        last = Task.objects.filter(id=models.OuterRef("task"))
        schedules: models.QuerySet[Schedule] = (
            super()
            .get_queryset(request)
            .annotate(
                last_success=models.Subquery(last.values("success")),
                last_stopped=models.Subquery(last.values("stopped")),
            )
        )
        return schedules

    @admin.display(description="taak", ordering="func")
    def what(self, schedule: Schedule) -> str:
        return in_dutch(schedule)

    @admin.display(description="volgende keer", ordering="next_run")
    def when_next(self, schedule: Schedule) -> str:
        return date_format(timezone.localtime(schedule.next_run), "SHORT_DATETIME_FORMAT")

    @admin.display(description="laatste keer")
    def last_result(self, schedule: Any) -> str:
        if schedule.last_stopped is None:
            return "nog niet"
        moment = date_format(timezone.localtime(schedule.last_stopped), "SHORT_DATETIME_FORMAT")
        return f"{'gelukt' if schedule.last_success else 'mislukt'}, {moment}"

    def has_add_permission(self, request: HttpRequest) -> bool:
        # A schedule calls any function by its name.
        return False


@admin.register(OrmQ)
class QueueAdmin(ReadOnlyAdmin):
    list_display = ("task", "lock")
    fields = ("task", "func", "args", "kwargs", "lock")
    readonly_fields = fields

    @admin.display(description="taak")
    def task(self, waiting: OrmQ) -> str:
        return IN_DUTCH.get(str(waiting.func()), str(waiting.name()))
