"""The schedules EVI needs, kept in the database for django-q2."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from django.db import connection, transaction
from django.utils import timezone
from django_q.models import Schedule, Task

# Any number that nothing else in this database locks.
LOCK = 0x4556490001


def at_night() -> datetime:
    """The next 03:00 here, when hardly anyone talks with EVI."""
    now = timezone.localtime()
    tonight = now.replace(hour=3, minute=0, second=0, microsecond=0)
    return tonight if tonight > now else tonight + timedelta(days=1)


def first_run(wanted: Mapping[str, Any]) -> datetime:
    """What happens every day happens at night, and what happens more often begins at once."""
    return at_night() if wanted["schedule_type"] == Schedule.DAILY else timezone.now()


SCHEDULES: dict[str, dict[str, Any]] = {
    "evi: clean up sessions": {"func": "conversations.tasks.cleanup_sessions", "schedule_type": Schedule.DAILY},
    "evi: summarize sessions": {
        "func": "conversations.tasks.summarize_sessions",
        "schedule_type": Schedule.MINUTES,
        "minutes": 5,
    },
    "evi: embed messages": {
        "func": "conversations.tasks.embed_messages",
        "schedule_type": Schedule.MINUTES,
        "minutes": 1,
    },
    "evi: answer Telegram": {
        "func": "conversations.tasks.answer_telegram",
        "schedule_type": Schedule.MINUTES,
        "minutes": 1,
        # Its results are of no interest, and would push those of the others out of the list.
        "kwargs": "q_options={'save': False}",
    },
    "evi: keep the figures of the day": {"func": "conversations.tasks.keep_figures", "schedule_type": Schedule.HOURLY},
}


# As staff read them.
IN_DUTCH = {
    "conversations.tasks.answer_telegram": "Telegram beantwoorden",
    "conversations.tasks.cleanup_sessions": "Gesprekken opschonen",
    "conversations.tasks.run_cleanup": "Gesprekken opschonen, op verzoek",
    "conversations.tasks.keep_figures": "Dagcijfers bijhouden",
    "conversations.tasks.summarize_sessions": "Gesprekken samenvatten",
    "conversations.tasks.embed_messages": "Berichten doorzoekbaar maken",
}


def in_dutch(work: Schedule | Task) -> str:
    return IN_DUTCH.get(work.func, str(work.name or work.func))


@transaction.atomic
def register_schedules() -> None:
    """Make each schedule exist once. One that exists keeps its next run, or restarts would put it off for ever."""
    with connection.cursor() as cursor:
        # A schedule's name is not unique in its table, so two machines starting at once take turns.
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [LOCK])
    for name, wanted in SCHEDULES.items():
        first, *surplus = Schedule.objects.filter(name=name).order_by("id") or [
            Schedule(name=name, next_run=first_run(wanted), repeats=-1)
        ]
        for field, value in wanted.items():
            setattr(first, field, value)
        first.save()
        Schedule.objects.filter(id__in=[schedule.id for schedule in surplus]).delete()
