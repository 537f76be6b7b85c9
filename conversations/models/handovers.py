"""Codes that hand a session over."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.db.models.functions import Now

from conversations.models.sessions import Session


class HandoverQuerySet(models.QuerySet["Handover"]):
    def open(self) -> HandoverQuerySet:
        """Those whose code may still be used."""
        return self.filter(expires_at__gt=Now())


class Handover(models.Model):
    """A session that waits to be taken over. It goes when its code is used; a new code takes its place."""

    # The database deletes it with its session.
    session = models.OneToOneField(
        Session, models.DO_NOTHING, primary_key=True, related_name="handover", db_constraint=False, editable=False
    )
    digest = models.TextField(editable=False)
    expires_at = models.DateTimeField("verloopt", editable=False)

    objects = HandoverQuerySet.as_manager()

    class Meta:
        db_table = "handovers"
        verbose_name = "overdracht"
        verbose_name_plural = "overdrachten"
        constraints: ClassVar = [models.UniqueConstraint(name="handovers_digest_unique", fields=["digest"])]

    def __str__(self) -> str:
        return str(self.session_id)
