"""The admin's first page: how EVI is used, how it is doing, and what it will do next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone
from django.utils.formats import date_format, number_format
from django.utils.timesince import timesince
from django_q.models import Failure, OrmQ, Schedule, Task

from agentbridge.embeddings import current_embedder
from agentbridge.indexing import SHELVES, count_waiting
from agentbridge.staff import counted
from conversations import remembering, retention
from conversations.admin.charts import Chart, Series, bars, lines
from conversations.figures import DAYS, last_days
from conversations.models import DailyFigures, Message, Session
from conversations.roles import may_read_contents
from conversations.schedules import in_dutch

# A schedule may fire half a minute late; one that is later than this has no worker.
LATE = timedelta(minutes=2)
# After chats were taken in, or with another model, a million messages may wait to be embedded.
MOST_COUNTED = 10_000
# The address of the messages behind a figure, by what narrows them down.
Rows = Callable[..., str]


@dataclass(frozen=True)
class Tile:
    """A figure with what it means, and where the rows behind it are."""

    title: str
    value: str
    told: str
    link: str = ""
    is_alarming: bool = False


def dashboard(request: HttpRequest, context: dict[str, Any]) -> dict[str, Any]:
    """What the page shows; each part to those who may see the rows behind it."""
    tiles: list[Tile] = []
    charts: list[tuple[Chart, str]] = []
    if request.user.has_perm("conversations.view_session"):
        days = last_days()
        # The rows behind a figure are messages, and for who may not read those the sessions that they are of.
        rows = _messages if may_read_contents(request.user) else _sessions_with
        tiles += [*_use(days, rows=rows), *_trouble(days, rows=rows), _next_cleanup()]
        charts = _charts(days, rows=rows)
        context["token_rows"] = _tokens_by_model(days)
        context["token_link"] = _sessions(used="month")
    if request.user.has_perm("django_q.view_schedule"):
        tiles += [_worker(), _failures(), embedding_backlog()]
        context["schedules"] = _schedules()
    return {**context, "tiles": tiles, "charts": charts, "days": DAYS}


def _use(days: list[DailyFigures], *, rows: Rows) -> list[Tile]:
    today = days[-1]
    timed = next((day for day in reversed(days) if day.answer_p50 is not None), None)
    when = "vandaag" if timed is today else f"op {date_format(timed.day, 'j F')}" if timed else ""
    return [
        Tile(
            "Gesprekken vandaag",
            _number(today.sessions),
            f"hoogste in {DAYS} dagen: {_number(max(day.sessions for day in days))}",
            _sessions(used="today"),
        ),
        Tile(
            "Berichten vandaag",
            _number(today.messages),
            f"hoogste in {DAYS} dagen: {_number(max(day.messages for day in days))}",
            rows(when="today"),
        ),
        Tile(
            "Actieve personen vandaag",
            _number(today.persons),
            f"hoogste in {DAYS} dagen: {_number(max(day.persons for day in days))}",
            _sessions(used="today"),
        ),
        Tile(
            "Antwoordtijd",
            f"{_seconds(timed.answer_p50)}" if timed else "–",
            f"p50 {when}; p95 {_seconds(timed.answer_p95)}" if timed else "nog geen antwoorden gemeten",
            rows(when="today", role__exact="assistant"),
        ),
    ]


def _trouble(days: list[DailyFigures], *, rows: Rows) -> list[Tile]:
    interrupted = sum(day.interrupted for day in days)
    failed = sum(day.failed for day in days)
    return [
        Tile(
            "Afgebroken antwoorden",
            _number(interrupted),
            f"in {DAYS} dagen",
            rows(when="month", status__exact="interrupted"),
        ),
        Tile(
            "Mislukte antwoorden",
            _number(failed),
            f"in {DAYS} dagen",
            rows(when="month", status__exact="failed"),
            is_alarming=failed > 0,
        ),
    ]


def _next_cleanup() -> Tile:
    preview = retention.preview_cleanup()
    schedule = Schedule.objects.filter(func="conversations.tasks.cleanup_sessions").first()
    when = f"volgende keer {_moment(schedule.next_run)}" if schedule else "staat niet ingepland"
    sessions, messages = counted(Session, preview.sessions), counted(Message, preview.messages)
    told = f"{sessions.partition(' ')[2]} met {messages}; {when}"
    return Tile("Nu op te schonen", _number(preview.sessions), told, _sessions(expiry="expired"))


def _charts(days: list[DailyFigures], *, rows: Rows) -> list[tuple[Chart, str]]:
    dates = [day.day for day in days]
    return [
        (
            bars("Gesprekken per dag", dates, Series("Gesprekken", [day.sessions for day in days])),
            _sessions(used="month"),
        ),
        (
            bars("Berichten per dag", dates, Series("Berichten", [day.messages for day in days])),
            # Of a month there may be a million, which takes long to count.
            rows(when="week"),
        ),
        (
            bars("Actieve personen per dag", dates, Series("Personen", [day.persons for day in days])),
            _sessions(used="month"),
        ),
        (
            lines(
                "Antwoordtijd per dag",
                dates,
                Series("p50", [_in_seconds(day.answer_p50) for day in days]),
                Series("p95", [_in_seconds(day.answer_p95) for day in days], tone="b"),
                unit="\N{NO-BREAK SPACE}s",
            ),
            _sessions(used="month"),
        ),
        (
            bars(
                "Afgebroken en mislukt per dag",
                dates,
                Series("Afgebroken", [day.interrupted for day in days], tone="b"),
                Series("Mislukt", [day.failed for day in days], tone="c"),
            ),
            _sessions(broken="yes", used="month"),
        ),
    ]


def _tokens_by_model(days: list[DailyFigures]) -> list[tuple[str, str, int]]:
    """Each model with its tokens, and how long its bar is in percents."""
    totals: Counter[str] = Counter()
    for day in days:
        totals.update(day.tokens)
    most = max([*totals.values(), 1])
    return [(model, _number(tokens), round(100 * tokens / most)) for model, tokens in totals.most_common(8)]


def _worker() -> Tile:
    """Whether anybody does what is planned: the queue lives in the database, so its backlog tells."""
    late = Schedule.objects.filter(next_run__lt=timezone.now() - LATE).count()
    waiting = OrmQ.objects.count()
    last = Task.objects.order_by("-stopped").values_list("stopped", flat=True).first()
    told = f"laatste taak {_ago(last)}" if last else "nog geen taak gedaan"
    if waiting:
        told += f"; {waiting} in de wachtrij"
    value = "Loopt niet" if late else "Loopt" if last else "Nog niet gezien"
    return Tile("Worker", value, told, reverse("admin:django_q_schedule_changelist"), is_alarming=late > 0)


def _failures() -> Tile:
    since = timezone.now() - timedelta(days=7)
    failed = Failure.objects.filter(stopped__gte=since).count()
    return Tile(
        "Mislukte taken",
        _number(failed),
        "in 7 dagen",
        reverse("admin:django_q_failure_changelist"),
        is_alarming=failed > 0,
    )


def embedding_backlog() -> Tile:
    """What cannot be found by its meaning yet."""
    embedder = current_embedder()
    knowledge = sum(count_waiting(shelf, embedder=embedder) for shelf in SHELVES)
    memory = remembering.backlog(most_messages=MOST_COUNTED)
    more = "meer dan " if memory >= MOST_COUNTED else ""
    told = f"{_number(knowledge)} uit de kennisbank, {more}{_number(memory)} uit gesprekken"
    value = f"{more}{_number(knowledge + memory)}"
    return Tile("Nog in te bedden", value.capitalize(), told, reverse("admin:django_q_schedule_changelist"))


def _schedules() -> list[dict[str, Any]]:
    schedules = list(Schedule.objects.order_by("next_run"))
    tasks = Task.objects.in_bulk([schedule.task for schedule in schedules if schedule.task])
    now = timezone.now()
    return [
        {
            "name": in_dutch(schedule),
            "next_run": _moment(schedule.next_run),
            "is_late": schedule.next_run < now - LATE,
            "last": tasks.get(schedule.task or ""),
            "link": reverse("admin:django_q_schedule_change", args=[schedule.pk]),
        }
        for schedule in schedules
    ]


def _sessions(**query: str) -> str:
    return f"{reverse('admin:conversations_session_changelist')}?{urlencode(query)}"


def _messages(**query: str) -> str:
    return f"{reverse('admin:conversations_message_changelist')}?{urlencode(query)}"


def _sessions_with(**query: str) -> str:
    """The sessions in which such messages are, as nearly as their own filters say it."""
    broken = {"broken": query["status__exact"]} if "status__exact" in query else {}
    return _sessions(used=query["when"], **broken)


def _in_seconds(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else round(milliseconds / 1000, 1)


def _seconds(milliseconds: float | None) -> str:
    return "–" if milliseconds is None else f"{number_format(milliseconds / 1000, 1)}\N{NO-BREAK SPACE}s"


def _number(value: int) -> str:
    return number_format(value, 0, force_grouping=True)


def _moment(moment: datetime) -> str:
    return date_format(timezone.localtime(moment), "j b H:i")


def _ago(moment: datetime) -> str:
    return f"{timesince(moment, depth=1)} geleden"
