"""Accounts, groups and the worker's tasks in the admin, in the same style as the rest."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.contrib.auth import admin as auth_admin
from django.contrib.auth.models import Group, User
from django.db import models
from django.http import HttpRequest
from django.utils import timezone
from django.utils.formats import date_format, number_format
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django_q import admin as queue_admin
from django_q.models import Failure, OrmQ, Schedule, Success, Task
from unfold.forms import AdminPasswordChangeForm, UserChangeForm, UserCreationForm

from agentbridge.staff import ReadOnlyAdmin, StaffAdmin
from conversations.schedules import in_dutch

for model in (User, Group, Schedule, Success, Failure, OrmQ):
    admin.site.unregister(model)


@admin.register(User)
class UserAdmin(auth_admin.UserAdmin, StaffAdmin):  # type: ignore[type-arg]  # generic in the stubs alone
    form = UserChangeForm
    add_form = UserCreationForm
    change_password_form = AdminPasswordChangeForm
    list_display = ("username", "email", "roles", "is_staff", "is_active", "last_login")
    list_filter = ("is_staff", "is_active", "groups")

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
class GroupAdmin(auth_admin.GroupAdmin, StaffAdmin):
    pass


def _result(task: Task) -> str:
    """What a task gave back, or what it failed of, in one line."""
    return " ".join(str(task.result if task.result is not None else "–").split())[:200]


@admin.register(Success, Failure)
class TaskAdmin(ReadOnlyAdmin):
    """What the worker did. A failure may be cleared away by who may delete it, or be tried again."""

    list_display = ("func", "name", "started", "took", "short_result")
    search_fields = ("name", "func", "group")
    fields = ("func", "name", "group", "started", "stopped", "took", "attempt_count", "args", "kwargs", "whole_result")
    readonly_fields = fields

    @admin.display(description="duur", ordering="stopped")
    def took(self, task: Task) -> str:
        return f"{number_format((task.stopped - task.started).total_seconds(), 1)} s"

    @admin.display(description="resultaat")
    def short_result(self, task: Task) -> str:
        return _result(task)

    @admin.display(description="resultaat")
    def whole_result(self, task: Task) -> SafeString:
        return format_html('<pre class="evi-pre">{}</pre>', "–" if task.result is None else str(task.result))

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

    list_display = ("in_dutch", "func", "schedule_type", "when_next", "last_result")
    search_fields = ("name", "func")
    fields = ("name", "func", "schedule_type", "minutes", "cron", "repeats", "next_run", "last_result")
    readonly_fields = ("name", "func", "last_result")

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

    @admin.display(description="taak", ordering="name")
    def in_dutch(self, schedule: Schedule) -> str:
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
    list_display = ("id", "func", "name", "lock")
    fields = ("id", "func", "name", "args", "kwargs", "lock")
    readonly_fields = fields
