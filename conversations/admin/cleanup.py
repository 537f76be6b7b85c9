"""The clean-up in the admin: what it would delete, starting it, and watching the worker do it."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.conf import settings
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404, redirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path

from agentbridge.staff import counted
from conversations import cleanup_runs, retention
from conversations.admin.base import staff
from conversations.models import CleanupRun, Message, Session

NAME = "conversations_session_cleanup"


class CleanupPages:
    """Pages of the session admin; whoever may delete sessions may clean up."""

    def cleanup_urls(self: Any) -> list[URLPattern]:
        site = self.admin_site
        return [
            path("cleanup/", site.admin_view(self.cleanup_view), name="conversations_session_cleanup"),
            path(
                "cleanup/<uuid:run_id>/",
                site.admin_view(self.cleanup_run_view),
                name="conversations_session_cleanup_run",
            ),
            path(
                "cleanup/<uuid:run_id>/progress/",
                site.admin_view(self.cleanup_progress_view),
                name="conversations_session_cleanup_progress",
            ),
        ]

    def cleanup_view(self: Any, request: HttpRequest) -> HttpResponse:
        """Say what a clean-up would delete; have the worker delete it when that is posted."""
        if not self.has_delete_permission(request):
            raise PermissionDenied
        if request.method == "POST":
            run = cleanup_runs.start_cleanup(by=staff(request))
            return redirect("admin:conversations_session_cleanup_run", run.pk)
        if running := cleanup_runs.current_run():
            return redirect("admin:conversations_session_cleanup_run", running.pk)
        preview = retention.preview_cleanup()
        context = {
            **self.admin_site.each_context(request),
            "title": "Opschonen",
            "doomed": preview.sessions and described(preview.sessions, preview.messages),
            "retention_days": settings.EVI.retention_days,
        }
        return TemplateResponse(request, "admin/conversations/session/cleanup.html", context)

    def cleanup_run_view(self: Any, request: HttpRequest, run_id: UUID) -> HttpResponse:
        if not self.has_delete_permission(request):
            raise PermissionDenied
        run = get_object_or_404(CleanupRun, pk=run_id)
        context = {
            **self.admin_site.each_context(request),
            "title": "Opschonen",
            "run": run,
            "progress": progress_of(run),
        }
        return TemplateResponse(request, "admin/conversations/session/cleanup_run.html", context)

    def cleanup_progress_view(self: Any, request: HttpRequest, run_id: UUID) -> JsonResponse:
        if not self.has_delete_permission(request):
            raise PermissionDenied
        return JsonResponse(progress_of(get_object_or_404(CleanupRun, pk=run_id)))


def progress_of(run: CleanupRun) -> dict[str, Any]:
    """How far a clean-up is, in a sentence and as a part of the whole."""
    done = described(run.sessions, run.messages)
    if run.failed:
        told = f"Het opschonen is mislukt na {done}. De oorzaak staat bij de mislukte taken."
    elif run.finished_at:
        told = f"{done} verwijderd."
    elif run.started_at:
        told = f"{done} verwijderd van ongeveer {counted(Session, run.expected_sessions)}…"
    else:
        told = "Wacht op de worker, die het opschonen uitvoert…"
    whole = max(run.expected_sessions, run.sessions)
    percent = 100 if run.finished_at else round(100 * run.sessions / whole) if whole else 0
    return {"told": told, "percent": percent, "finished": run.finished_at is not None, "failed": run.failed}


def described(sessions: int, messages: int) -> str:
    return f"{counted(Session, sessions)} en {counted(Message, messages)}"
