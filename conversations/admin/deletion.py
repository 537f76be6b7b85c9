"""What goes with a session when it is deleted."""

from __future__ import annotations

from collections.abc import Collection
from uuid import UUID

from django.db.models import Exists, OuterRef

from conversations.models import Attachment, Fact, FactSource, Summary


def goes_along(session_ids: Collection[UUID]) -> dict[str, int]:
    """How many rows of each kind the database deletes along, by their name; messages are counted by the sessions."""
    said = FactSource.objects.filter(fact=OuterRef("pk"))
    counts = {
        Summary: Summary.objects.filter(session_id__in=session_ids).count(),
        # Those that were said nowhere else.
        Fact: Fact.objects.filter(
            Exists(said.filter(message__session_id__in=session_ids)),
            ~Exists(said.exclude(message__session_id__in=session_ids)),
        ).count(),
        Attachment: Attachment.objects.filter(session_id__in=session_ids).count(),
    }
    return {str(model._meta.verbose_name_plural): count for model, count in counts.items() if count}
