"""The clean-up: one function for the schedule, the command and the admin."""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Sum
from django.utils import timezone

from conversations.models import Action, AuditEntry, Session, SessionQuerySet

# Small, and each batch is followed by a pause as long as it took: measured by bench/cleanup.py, this is what the
# people who are talking meanwhile do not notice.
BATCH_SIZE = 100


@dataclass(frozen=True)
class CleanupReport:
    """How much was deleted, or would be."""

    sessions: int = 0
    messages: int = 0

    def __add__(self, other: "CleanupReport") -> "CleanupReport":
        return CleanupReport(self.sessions + other.sessions, self.messages + other.messages)


def preview_cleanup(*, days: int | None = None) -> CleanupReport:
    """What a clean-up would delete now."""
    expired = Session.objects.expired(days=days)
    return CleanupReport(expired.count(), expired.aggregate(total=Sum("message_count", default=0))["total"])


def delete_expired_sessions(
    *,
    days: int | None = None,
    batch_size: int = BATCH_SIZE,
    by: User | str = "schedule",
    on_batch: Callable[[CleanupReport], object] = lambda deleted: None,
) -> CleanupReport:
    """Delete what has expired, a batch to a transaction, so that nobody waits for long and memory stays small."""
    if batch_size < 1:
        raise ValueError("batch_size must be 1 or more")
    expired = Session.objects.expired(now=timezone.now(), days=days)
    total = CleanupReport()
    started = time.monotonic()
    try:
        while batch := _delete_batch(expired.order_by("last_accessed")[:batch_size]):
            total += batch
            on_batch(batch)
            time.sleep(time.monotonic() - started)
            started = time.monotonic()
    finally:
        # Also of a run that somebody stopped: what went is gone.
        if total.sessions:
            AuditEntry.objects.record(Action.CLEANED_UP, by=by, counts=asdict(total))
    return total


@transaction.atomic
def _delete_batch(expired: SessionQuerySet) -> CleanupReport | None:
    # A locked session is being used at this moment and stays; one that was used since is no longer expired,
    # because taking the lock looks at the row again.
    doomed = dict(expired.select_for_update(skip_locked=True).values_list("id", "message_count"))
    if not doomed:
        return None
    Session.objects.filter(id__in=doomed).delete()
    return CleanupReport(len(doomed), sum(doomed.values()))
