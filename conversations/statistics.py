"""What the sessions add up to, for those who keep EVI running."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.db.models import Count, Q, QuerySet, Sum
from django.db.models.functions import TruncDate
from django.utils import timezone

from conversations.models import Fact, FactStatus, Message, Session, Summary
from conversations.retention import preview_cleanup
from conversations.summaries import summaries_waiting

DAYS = 7


@dataclass(frozen=True)
class Statistics:
    """In the order in which they are of interest."""

    sessions: int
    messages: int
    pinned: int
    persons: int
    summaries: int
    facts: int
    facts_proposed: int
    # By channel, and by day, today last.
    channels: Mapping[str, int]
    sessions_begun: Mapping[str, int]
    messages_said: Mapping[str, int]
    # What the next clean-up deletes, and what one in a week from now would delete besides.
    expired: int
    expiring: int
    to_summarize: int


def session_statistics(*, now: datetime | None = None) -> Statistics:
    now = now or timezone.now()
    sessions = Session.objects.order_by()
    totals = sessions.aggregate(
        number=Count("id"),
        messages=Sum("message_count", default=0),
        pinned=Count("id", filter=Q(pinned=True)),
    )
    expired = preview_cleanup().sessions
    return Statistics(
        sessions=totals["number"],
        messages=totals["messages"],
        pinned=totals["pinned"],
        # As figures.py counts them: the same name behind two clients is two persons.
        persons=sessions.values("owner_id", "user_id").distinct().count(),
        summaries=Summary.objects.count(),
        facts=Fact.objects.approved().count(),
        facts_proposed=Fact.objects.filter(status=FactStatus.PROPOSED).count(),
        channels=dict(sessions.values_list("channel").annotate(number=Count("id")).order_by("channel")),
        sessions_begun=_by_day(Session.objects.all(), now=now),
        messages_said=_by_day(Message.objects.all(), now=now),
        expired=expired,
        expiring=sessions.expired(now=now + timedelta(days=DAYS)).count() - expired,
        to_summarize=summaries_waiting(now=now) if settings.EVI.idle_minutes else 0,
    )


def _by_day(rows: QuerySet[Session] | QuerySet[Message], *, now: datetime) -> dict[str, int]:
    """How many were made on each of the last days, those without any too."""
    today = timezone.localtime(now).date()
    days = [today - timedelta(days=ago) for ago in reversed(range(DAYS))]
    begin = timezone.localtime(now).replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=DAYS - 1)
    counted = dict(
        rows.filter(created_at__gte=begin)
        .order_by()
        .annotate(day=TruncDate("created_at"))
        .values_list("day")
        .annotate(number=Count("pk"))
    )
    return {day.isoformat(): counted.get(day, 0) for day in days}
