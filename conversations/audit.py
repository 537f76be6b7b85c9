"""What staff look at, written down."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

from django.contrib.auth.models import User
from django.utils import timezone

from conversations.models import Action, AuditEntry

# A page, its earlier messages and its live connection are one opening; so is a look again a moment later.
SEEN_AGAIN_AFTER = timedelta(hours=1)


def record_opening(user: User, session_id: UUID) -> None:
    """Write down who reads what was said in a session, by whatever road; once an hour."""
    seen = AuditEntry.objects.filter(
        at__gte=timezone.now() - SEEN_AGAIN_AFTER, action=Action.OPENED, user=user, subject=str(session_id)
    )
    if not seen.exists():
        AuditEntry.objects.record(Action.OPENED, by=user, subject=str(session_id))
