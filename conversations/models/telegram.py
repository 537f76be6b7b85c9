"""What Telegram brought: remembered before it is acknowledged, because Telegram does not bring it again after that."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, ClassVar

from django.db import models, transaction
from django.db.models import Exists, F, Min, OuterRef, Q
from django.db.models.functions import Now

from conversations.models.messages import without_unstorable

# How long a process has an update for itself without saying that it is still at it.
LEASE = timedelta(seconds=30)
# Messages can be edited for two days, and Telegram repeats what was not acknowledged for one.
KEEP = timedelta(days=3)
CLAIM_LIMIT = 50


class TelegramUpdateQuerySet(models.QuerySet["TelegramUpdate"]):
    def receive(
        self,
        content: Mapping[str, Any],
        *,
        bot_id: int,
        update_id: int,
        chat_id: int,
        thread_id: int = 0,
        message_id: int | None = None,
    ) -> None:
        """Remember an update; one that came before stays as it is."""
        update = TelegramUpdate(
            bot_id=bot_id,
            update_id=update_id,
            chat_id=chat_id,
            thread_id=thread_id,
            message_id=message_id,
            content=without_unstorable(dict(content)),
        )
        self.bulk_create([update], ignore_conflicts=True)

    @transaction.atomic
    def claim(self, *, bot_id: int) -> list[TelegramUpdate]:
        """What waits for an answer, for this process alone: of each thread the oldest, so that each keeps its order."""
        earlier = TelegramUpdate.objects.filter(
            bot_id=bot_id,
            chat_id=OuterRef("chat_id"),
            thread_id=OuterRef("thread_id"),
            update_id__lt=OuterRef("update_id"),
            done_at=None,
        )
        is_free = Q(claimed_until=None) | Q(claimed_until__lt=Now())
        waiting = self.filter(is_free, ~Exists(earlier), bot_id=bot_id, done_at=None).order_by("id")
        claimed = list(waiting.select_for_update(skip_locked=True)[:CLAIM_LIMIT])
        ids = [update.id for update in claimed]
        self.filter(id__in=ids).update(claimed_until=Now() + LEASE, attempts=F("attempts") + 1)
        for update in claimed:
            update.attempts += 1
        return claimed

    def free_in(self, *, bot_id: int) -> float | None:
        """How many seconds from now the first of what is held, or has to wait, is free; None when nothing is."""
        held = self.filter(bot_id=bot_id, done_at=None, claimed_until__gte=Now())
        soonest = held.aggregate(soonest=Min(F("claimed_until") - Now()))["soonest"]
        return None if soonest is None else float(soonest.total_seconds())

    def keep(self, update_id: int, *, seconds: float = LEASE.total_seconds()) -> None:
        """Nobody else takes this up for so long."""
        self.filter(id=update_id).update(claimed_until=Now() + timedelta(seconds=seconds))

    def finish(self, update_id: int) -> None:
        """It is answered, or needs no answer. What was said is in its session; here it is only known again."""
        self.filter(id=update_id).update(done_at=Now(), content={})

    def forget_old(self) -> None:
        self.filter(received_at__lt=Now() - KEEP).delete()


class TelegramUpdate(models.Model):
    """One update of one bot. Its contents go as soon as it is answered."""

    # Another bot's updates have numbers of their own.
    bot_id = models.BigIntegerField(editable=False)
    update_id = models.BigIntegerField(editable=False)
    chat_id = models.BigIntegerField(editable=False)
    # Of a topic in a group; 0 for a chat without topics.
    thread_id = models.BigIntegerField(db_default=0, editable=False)
    # An edited message has the number of the message it was.
    message_id = models.BigIntegerField(null=True, editable=False)
    content = models.JSONField(editable=False)
    # A long answer is several messages. Those that arrived are not sent again.
    pieces_sent = models.IntegerField(db_default=0, editable=False)
    attempts = models.IntegerField(db_default=0, editable=False)
    received_at = models.DateTimeField(db_default=Now(), editable=False)
    claimed_until = models.DateTimeField(null=True, editable=False)
    done_at = models.DateTimeField(null=True, editable=False)

    objects = TelegramUpdateQuerySet.as_manager()

    class Meta:
        db_table = "telegram_updates"
        verbose_name = "Telegrambericht"
        verbose_name_plural = "Telegramberichten"
        constraints: ClassVar = [
            models.UniqueConstraint(name="telegram_updates_unique", fields=["bot_id", "update_id"])
        ]
        indexes: ClassVar = [
            models.Index(
                name="idx_telegram_updates_waiting",
                fields=["bot_id", "chat_id", "thread_id", "update_id"],
                condition=Q(done_at=None),
            ),
            models.Index(name="idx_telegram_updates_message", fields=["chat_id", "message_id"]),
            models.Index(name="idx_telegram_updates_received", fields=["received_at"]),
        ]

    def __str__(self) -> str:
        return f"{self.bot_id}:{self.update_id}"
