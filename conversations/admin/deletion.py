"""What goes with a session when it is deleted."""

from __future__ import annotations

from collections.abc import Collection
from uuid import UUID

from conversations.forgetting import rows_of
from conversations.models import Attachment, Fact, Session, Summary

# What people made, and not what EVI keeps beside it.
SHOWN = (Summary, Fact, Attachment)


def goes_along(session_ids: Collection[UUID]) -> dict[str, int]:
    """How many rows of each kind the database deletes along, by their name; messages are counted by the sessions."""
    rows = rows_of(Session.objects.filter(id__in=session_ids))
    counts = {str(model._meta.verbose_name_plural): rows[model._meta.db_table] for model in SHOWN}
    return {name: count for name, count in counts.items() if count}
