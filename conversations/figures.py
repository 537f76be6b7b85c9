"""What happened on a day, in numbers: counted once for the days that are over, and on the spot for today."""

from __future__ import annotations

import json
from datetime import date, datetime, time, timedelta
from typing import Any

from django.db import connection
from django.utils import timezone

from conversations.models import DailyFigures

DAYS = 30

# Once through the day's messages, of which idx_messages_created_brin knows where they lie.
COUNT = """
    WITH said AS MATERIALIZED (
        SELECT session_id, role, status,
            CASE WHEN jsonb_typeof(metadata) = 'object' THEN metadata->>'model' END AS model,
            -- An imported message may bring any number, also one that nothing can be added to.
            CASE WHEN jsonb_typeof(metadata->'tokens_used') = 'number'
                THEN least(greatest((metadata->>'tokens_used')::numeric, 0), 1e9)::float END AS tokens,
            CASE WHEN jsonb_typeof(metadata->'duration_ms') = 'number'
                THEN least(greatest((metadata->>'duration_ms')::numeric, 0), 1e9)::float END AS duration
        FROM messages WHERE created_at >= %s AND created_at < %s
    ), talked AS (
        SELECT DISTINCT session_id FROM said
    )
    SELECT
        (SELECT count(*) FROM talked),
        (SELECT count(DISTINCT (owner_id, user_id)) FROM sessions JOIN talked ON talked.session_id = sessions.id),
        count(*),
        count(*) FILTER (WHERE role = 'assistant'),
        count(*) FILTER (WHERE status = 'interrupted'),
        count(*) FILTER (WHERE status = 'failed'),
        percentile_cont(0.5) WITHIN GROUP (ORDER BY duration) FILTER (WHERE status = 'complete'),
        percentile_cont(0.95) WITHIN GROUP (ORDER BY duration) FILTER (WHERE status = 'complete'),
        (SELECT coalesce(jsonb_object_agg(model, total), '{}') FROM (
            SELECT model, sum(tokens)::bigint AS total FROM said WHERE model <> '' AND tokens > 0 GROUP BY model
        ) AS by_model)
    FROM said
"""


def count_day(day: date) -> DailyFigures:
    """The figures of one day here; nothing is stored."""
    with connection.cursor() as cursor:
        cursor.execute(COUNT, [midnight(day), midnight(day + timedelta(days=1))])
        sessions, persons, messages, answers, interrupted, failed, p50, p95, tokens = cursor.fetchone()
    return DailyFigures(
        day=day,
        sessions=sessions,
        persons=persons,
        messages=messages,
        answers=answers,
        interrupted=interrupted,
        failed=failed,
        answer_p50=p50,
        answer_p95=p95,
        tokens=json.loads(tokens) if isinstance(tokens, str) else tokens,
    )


def keep_figures(*, today: date | None = None) -> int:
    """Count and store each of the last days that was not counted since it ended; how many that were."""
    today = today or timezone.localdate()
    wanted = [today - timedelta(days=back) for back in range(1, DAYS)]
    known = {
        figures.day
        for figures in DailyFigures.objects.filter(day__gte=wanted[-1])
        if figures.counted_at >= midnight(figures.day + timedelta(days=1))
    }
    missing = [day for day in wanted if day not in known]
    for day in missing:
        figures = count_day(day)
        figures.counted_at = timezone.now()
        figures.save()
    return len(missing)


def last_days(*, today: date | None = None) -> list[DailyFigures]:
    """The figures of the last days, the oldest first, with zeros where nothing was counted; today's are of now.

    In the hour after midnight, until the worker has counted yesterday, that is counted here too.
    """
    today = today or timezone.localdate()
    past = [today - timedelta(days=back) for back in range(DAYS - 1, 0, -1)]
    kept = DailyFigures.objects.in_bulk(past)
    older = [kept.get(day) or _nothing(day) for day in past[:-1]]
    return [*older, kept.get(past[-1]) or count_day(past[-1]), count_day(today)]


def _nothing(day: date) -> DailyFigures:
    zeros: dict[str, Any] = dict.fromkeys(("sessions", "persons", "messages", "answers", "interrupted", "failed"), 0)
    return DailyFigures(day=day, **zeros)


def midnight(day: date) -> datetime:
    return timezone.make_aware(datetime.combine(day, time.min))
