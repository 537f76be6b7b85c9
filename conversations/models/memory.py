"""What EVI keeps of a conversation beside its messages: a summary, and facts about the person."""

from __future__ import annotations

from typing import ClassVar

from django.conf import settings
from django.contrib.postgres.functions import RandomUUID
from django.contrib.postgres.indexes import GinIndex
from django.contrib.postgres.search import SearchVectorField
from django.db import models
from django.db.models import F
from django.db.models.functions import Length, Now
from django.db.models.lookups import Range
from pgvector.django import HalfVectorField, VectorField

from agentbridge.memory import MAX_FACT_CHARS as MAX_FACT_CHARS
from conversations.models.messages import Message
from conversations.models.sessions import Session
from conversations.models.statements import MOST_FACTS_TOLD


class Recallable(models.Model):
    """A text that is found again by its words and by its meaning. The worker sees to that, and no turn does."""

    text = models.TextField("tekst")
    # As with what EVI knows: no fixed number of dimensions, because the model can be changed by a setting.
    embedding = VectorField(null=True, editable=False)
    embedding_model = models.TextField(blank=True, db_default="", editable=False)
    terms = SearchVectorField(null=True, editable=False)

    class Meta:
        abstract = True


class Summary(Recallable):
    """What a session was about, written when nobody was using it any more."""

    # The database deletes it with its session.
    session = models.OneToOneField(
        Session, models.DO_NOTHING, primary_key=True, related_name="summary", db_constraint=False, editable=False
    )
    message_count = models.IntegerField("berichten", editable=False)
    # The last message that it covers: with a later one the session went on.
    last_seq = models.BigIntegerField(editable=False)
    created_at = models.DateTimeField("gemaakt", db_default=Now(), editable=False)
    summarized_at = models.DateTimeField("samengevat", db_default=Now(), editable=False)

    class Meta:
        db_table = "summaries"
        verbose_name = "samenvatting"
        verbose_name_plural = "samenvattingen"
        indexes: ClassVar = [GinIndex(name="idx_summaries_terms", fields=["terms"], fastupdate=False)]

    def __str__(self) -> str:
        return self.text[:60]


class FactStatus(models.TextChoices):
    PROPOSED = "proposed", "voorgesteld"
    APPROVED = "approved", "goedgekeurd"


class FactQuerySet(models.QuerySet["Fact"]):
    def for_owner(self, owner_id: int | None, *, user_id: str = "") -> FactQuerySet:
        """The facts about one person behind one client; both must match."""
        return self.filter(owner_id=owner_id, user_id=user_id)

    def approved(self) -> FactQuerySet:
        return self.filter(status=FactStatus.APPROVED)

    def told(self) -> tuple[str, ...]:
        """As many as a model is told, the newest first."""
        newest = self.approved().order_by(F("decided_at").desc(nulls_last=True), "-created_at")
        return tuple(newest.values_list("text", flat=True)[:MOST_FACTS_TOLD])


class Fact(Recallable):
    """Something to remember about a person. The agent proposes it, and a person approves it."""

    id = models.UUIDField(primary_key=True, db_default=RandomUUID(), editable=False)
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        models.PROTECT,
        null=True,
        blank=True,
        related_name="+",
        db_index=False,
        verbose_name="client",
    )
    user_id = models.TextField("persoon", blank=True, db_default="")
    status = models.TextField(choices=FactStatus, db_default=FactStatus.PROPOSED)
    created_at = models.DateTimeField("voorgesteld", db_default=Now(), editable=False)
    decided_at = models.DateTimeField("beoordeeld", null=True, editable=False)
    # Where it was said. A fact that its person or staff wrote down has none.
    sources = models.ManyToManyField(Message, through="FactSource", related_name="+")

    objects = FactQuerySet.as_manager()

    class Meta:
        db_table = "facts"
        verbose_name = "feit"
        verbose_name_plural = "feiten"
        ordering: ClassVar = ["-created_at", "-id"]
        constraints: ClassVar = [
            models.CheckConstraint(name="facts_status_check", condition=models.Q(status__in=FactStatus.values)),
            models.CheckConstraint(name="facts_text_check", condition=Range(Length("text"), (1, MAX_FACT_CHARS))),
            # The same thing said twice is one fact with two sources.
            models.UniqueConstraint(name="facts_unique", fields=["owner", "user_id", "text"], nulls_distinct=False),
        ]

    def __str__(self) -> str:
        return self.text[:60]


class FactSource(models.Model):
    """A message in which a fact was said. With its last source goes the fact, in the database itself."""

    fact = models.ForeignKey(Fact, models.DO_NOTHING, db_constraint=False)
    message = models.ForeignKey(Message, models.DO_NOTHING, related_name="+", db_constraint=False)

    class Meta:
        db_table = "fact_sources"
        constraints: ClassVar = [models.UniqueConstraint(name="fact_sources_unique", fields=["fact", "message"])]

    def __str__(self) -> str:
        return f"{self.fact_id} ← {self.message_id}"


class MessageEmbedding(models.Model):
    """What a message is found by. The worker writes it after the turn, and the table that turns use stays slim."""

    # The database deletes it with its message, and also when the message is superseded or changed.
    message = models.OneToOneField(
        Message, models.DO_NOTHING, primary_key=True, related_name="+", db_constraint=False, editable=False
    )
    session = models.ForeignKey(
        Session, models.DO_NOTHING, related_name="+", db_constraint=False, db_index=False, editable=False
    )
    # Owner and person in one number, which the database keeps true. It finds candidates; whose they are, their
    # session says.
    person = models.BigIntegerField(editable=False)
    channel = models.TextField(editable=False)
    role = models.TextField(editable=False)
    said_at = models.DateTimeField(editable=False)
    # Two bytes a number are enough to tell texts apart, and half as much to read.
    # None for a text that the model refuses.
    embedding = HalfVectorField(null=True, editable=False)
    embedding_model = models.TextField(editable=False)
    terms = SearchVectorField(editable=False)

    class Meta:
        db_table = "message_embeddings"
        indexes: ClassVar = [
            # Both at once, or a common word would have to be read for everybody.
            GinIndex(name="idx_message_embeddings_terms", fields=["person", "terms"], fastupdate=False),
        ]

    def __str__(self) -> str:
        return str(self.message_id)


class EmbeddingProgress(models.Model):
    """Up to where all messages are embedded, so that nobody has to look through a million of them every minute."""

    embedding_model = models.TextField(primary_key=True)
    through_seq = models.BigIntegerField(db_default=0)
    # How far it will be when nobody is writing any more who was writing at that time.
    next_seq = models.BigIntegerField(db_default=0)
    next_xid = models.BigIntegerField(null=True)

    class Meta:
        db_table = "embedding_progress"

    def __str__(self) -> str:
        return f"{self.embedding_model}: {self.through_seq}"
