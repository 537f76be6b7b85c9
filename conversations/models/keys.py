"""API keys."""

from __future__ import annotations

import hashlib
from typing import ClassVar

from django.conf import settings
from django.contrib.auth.models import User
from django.db import models
from django.db.models.functions import Now


class ApiKeyQuerySet(models.QuerySet["ApiKey"]):
    def store(self, token: str, *, name: str, client: User, in_line: bool = False) -> ApiKey:
        """Keep a key as its hash, and as much of its beginning as lets people tell keys apart."""
        return self.create(name=name, client=client, in_line=in_line, prefix=token[:12], digest=self.digest(token))

    def opened_by(self, token: str) -> ApiKey | None:
        """The key that `token` is, if its client may come in."""
        return self.filter(digest=self.digest(token), client__is_active=True).first()

    @staticmethod
    def digest(token: str) -> str:
        # A key is 32 random bytes: there is nothing to guess, so a fast hash is enough, and every request needs one.
        return hashlib.sha256(token.encode()).hexdigest()


class ApiKey(models.Model):
    """One key of a client, which may have several; deleting a key revokes it and the client's sessions stay."""

    client = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="api_keys")
    name = models.TextField("naam")
    prefix = models.TextField("begin", editable=False)
    digest = models.TextField(editable=False)
    in_line = models.BooleanField(
        "vragen op hun beurt",
        db_default=False,
        help_text="Een vraag wacht tot de vorige in hetzelfde gesprek beantwoord is. Anders lopen ze naast elkaar.",
    )
    created_at = models.DateTimeField("gemaakt", db_default=Now(), editable=False)
    last_used_at = models.DateTimeField("laatst gebruikt", null=True, editable=False)

    objects = ApiKeyQuerySet.as_manager()

    class Meta:
        db_table = "api_keys"
        verbose_name = "API-sleutel"
        verbose_name_plural = "API-sleutels"
        ordering: ClassVar = ["client__username", "name"]
        constraints: ClassVar = [models.UniqueConstraint(name="api_keys_digest_unique", fields=["digest"])]

    def __str__(self) -> str:
        return f"{self.name} ({self.prefix}…)"
