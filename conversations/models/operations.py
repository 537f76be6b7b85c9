"""What staff see of the whole: figures for each day, and clean-ups under way."""

from __future__ import annotations

from typing import ClassVar

from django.conf import settings
from django.contrib.postgres.functions import RandomUUID
from django.db import models
from django.db.models.functions import Now


class DailyFigures(models.Model):
    """What happened on a day, counted once when it was over. It stays when the sessions go."""

    day = models.DateField("dag", primary_key=True)
    sessions = models.IntegerField("gesprekken")
    persons = models.IntegerField("personen")
    messages = models.IntegerField("berichten")
    answers = models.IntegerField("antwoorden")
    interrupted = models.IntegerField("afgebroken")
    failed = models.IntegerField("mislukt")
    # Milliseconds, of the answers that were timed.
    answer_p50 = models.FloatField("antwoordtijd p50", null=True)
    answer_p95 = models.FloatField("antwoordtijd p95", null=True)
    tokens = models.JSONField("tokens per model", default=dict)
    counted_at = models.DateTimeField("geteld", db_default=Now())

    class Meta:
        db_table = "daily_figures"
        verbose_name = "dagcijfer"
        verbose_name_plural = "dagcijfers"
        ordering: ClassVar = ["day"]

    def __str__(self) -> str:
        return self.day.isoformat()


class CleanupRun(models.Model):
    """A clean-up that somebody of the staff started; the worker carries it out, and tells here how far it is."""

    id = models.UUIDField(primary_key=True, db_default=RandomUUID(), editable=False)
    started_by = models.ForeignKey(settings.AUTH_USER_MODEL, models.SET_NULL, null=True, related_name="+")
    asked_at = models.DateTimeField(db_default=Now())
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)
    expected_sessions = models.IntegerField()
    sessions = models.IntegerField(db_default=0)
    messages = models.IntegerField(db_default=0)
    failed = models.BooleanField(db_default=False)

    class Meta:
        db_table = "cleanup_runs"
        ordering: ClassVar = ["-asked_at"]

    def __str__(self) -> str:
        return f"{self.asked_at:%Y-%m-%d %H:%M}: {self.sessions}"
