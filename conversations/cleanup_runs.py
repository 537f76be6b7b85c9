"""A clean-up that staff start and the worker carries out, so that nobody waits for a page."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from uuid import UUID

from django.contrib.auth.models import User
from django.db import connection, transaction
from django.db.models import F
from django.utils import timezone
from django_q.tasks import async_task

from conversations import retention
from conversations.models import CleanupRun

# A run that began longer ago was lost with its worker.
LOST_AFTER = timedelta(hours=2)
# Any number that nothing else in this database locks.
LOCK = 0x4556490003


def start_cleanup(*, by: User) -> CleanupRun:
    """Hand a clean-up to the worker, or return the one that is under way."""
    with transaction.atomic(), connection.cursor() as cursor:
        # Of two who start one at once, the second finds that of the first.
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [LOCK])
        if running := current_run():
            return running
        run = CleanupRun.objects.create(
            started_by=by, expected_sessions=retention.preview_cleanup().sessions, asked_at=timezone.now()
        )
        transaction.on_commit(partial(async_task, "conversations.tasks.run_cleanup", str(run.pk)))
    return run


def current_run() -> CleanupRun | None:
    return CleanupRun.objects.filter(finished_at=None, asked_at__gt=timezone.now() - LOST_AFTER).first()


def carry_out(run_id: UUID) -> None:
    """Clean up and tell the run how far it is. A run that is gone or done ends quietly."""
    run = CleanupRun.objects.filter(pk=run_id, finished_at=None)
    if not run.update(started_at=timezone.now()):
        return

    def told(batch: retention.CleanupReport) -> None:
        run.update(sessions=F("sessions") + batch.sessions, messages=F("messages") + batch.messages)

    try:
        retention.delete_expired_sessions(on_batch=told, by=run.get().started_by or "beheer")
    except Exception:
        run.update(failed=True, finished_at=timezone.now())
        raise
    run.update(finished_at=timezone.now())
