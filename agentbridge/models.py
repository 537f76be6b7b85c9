"""What EVI knows: documents in chunks, and products."""

from __future__ import annotations

from typing import ClassVar

from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.functions import RandomUUID
from django.contrib.postgres.indexes import GinIndex
from django.contrib.postgres.search import SearchVectorField
from django.db import models
from django.db.models.functions import Now
from pgvector.django import VectorField


class Language(models.TextChoices):
    DUTCH = "nl", "Nederlands"
    ENGLISH = "en", "Engels"


LIVE = models.Q(retired_at__isnull=True)


class Searchable(models.Model):
    """A row that can be found by its words and by its meaning.

    It is never deleted when its file goes: an old answer may cite it. It is retired instead, and no longer found.
    """

    id = models.UUIDField(primary_key=True, db_default=RandomUUID(), editable=False)
    # Of what is searched. A row whose hash stays is not embedded again.
    content_hash = models.TextField(editable=False)
    # Without a fixed number of dimensions, because the model that makes it can be changed by a setting.
    embedding = VectorField(null=True, editable=False)
    embedding_model = models.TextField("ingebed met", blank=True, db_default="", editable=False)
    # The stems of its words, and the hash of the content that they were taken from.
    terms = SearchVectorField(null=True, editable=False)
    indexed_hash = models.TextField(db_default="", editable=False)
    retired_at = models.DateTimeField("vervallen", null=True, blank=True, editable=False)

    class Meta:
        abstract = True


class Document(models.Model):
    """A guideline, as one file holds it."""

    id = models.UUIDField(primary_key=True, db_default=RandomUUID(), editable=False)
    # The file's whole path, or upload/ or sample/ and its name: by it the document is known again.
    origin = models.TextField("bestand", editable=False)
    title = models.TextField("titel")
    source = models.TextField("bron", blank=True, db_default="")
    norm = models.TextField("norm", blank=True, db_default="")
    version = models.TextField("versie", blank=True, db_default="")
    valid_from = models.DateField("geldig vanaf", null=True, blank=True)
    url = models.URLField("adres", blank=True, db_default="", max_length=2000)
    language = models.TextField("taal", choices=Language, db_default=Language.DUTCH)
    subjects = ArrayField(models.TextField(), verbose_name="onderwerpen", blank=True, db_default=[])
    # The sections as they were read, so that they can be cut into chunks again without the file.
    content = models.JSONField(editable=False, db_default=[])
    content_hash = models.TextField(editable=False)
    ingested_at = models.DateTimeField("ingelezen", db_default=Now(), editable=False)
    retired_at = models.DateTimeField("vervallen", null=True, blank=True, editable=False)
    # Retired by a person, so that no ingest of its folder brings it back.
    withdrawn = models.BooleanField("ingetrokken", db_default=False, editable=False)

    class Meta:
        db_table = "documents"
        verbose_name = "richtlijn"
        verbose_name_plural = "richtlijnen"
        ordering: ClassVar = ["title", "origin"]
        constraints: ClassVar = [
            models.UniqueConstraint(name="documents_origin_unique", fields=["origin"]),
            models.CheckConstraint(name="documents_language_check", condition=models.Q(language__in=Language.values)),
        ]

    def __str__(self) -> str:
        return self.title


class Chunk(Searchable):
    """As much of a section as is found and cited at once."""

    document = models.ForeignKey(Document, models.CASCADE, related_name="chunks", verbose_name="richtlijn")
    position = models.IntegerField("plaats")
    section = models.TextField("paragraaf", blank=True, db_default="")
    text = models.TextField("tekst")

    class Meta:
        db_table = "chunks"
        verbose_name = "fragment"
        verbose_name_plural = "fragmenten"
        ordering: ClassVar = ["document", "position"]
        indexes: ClassVar = [GinIndex(name="idx_chunks_terms", fields=["terms"], condition=LIVE)]

    def __str__(self) -> str:
        return self.section or self.text[:60]


class Product(Searchable):
    """Something that serves a subject."""

    # By it the product is known again.
    sku = models.TextField("artikelnummer")
    origin = models.TextField("bestand", blank=True, db_default="", editable=False)
    name = models.TextField("naam")
    category = models.TextField("categorie")
    norm = models.TextField("norm", blank=True, db_default="")
    description = models.TextField("omschrijving")
    url = models.URLField("adres", blank=True, db_default="", max_length=2000)
    price = models.DecimalField("prijs", max_digits=10, decimal_places=2, null=True, blank=True)
    currency = models.TextField("valuta", db_default="EUR")
    subjects = ArrayField(models.TextField(), verbose_name="onderwerpen", blank=True, db_default=[])
    updated_at = models.DateTimeField("gewijzigd", db_default=Now(), editable=False)
    withdrawn = models.BooleanField("ingetrokken", db_default=False, editable=False)

    class Meta:
        db_table = "products"
        verbose_name = "product"
        verbose_name_plural = "producten"
        ordering: ClassVar = ["category", "name"]
        constraints: ClassVar = [models.UniqueConstraint(name="products_sku_unique", fields=["sku"])]
        indexes: ClassVar = [GinIndex(name="idx_products_terms", fields=["terms"], condition=LIVE)]

    def __str__(self) -> str:
        return self.name


class Word(models.Model):
    """A stem that occurs in what is searched: how rare it is, and which words are made with it."""

    lexeme = models.TextField(primary_key=True)
    rows = models.IntegerField()

    class Meta:
        db_table = "words"
        indexes: ClassVar = [GinIndex(name="idx_words_lexeme", fields=["lexeme"], opclasses=["gin_trgm_ops"])]

    def __str__(self) -> str:
        return self.lexeme


class Threshold(models.Model):
    """The score that questions about other things reach by chance, in one table and with one model."""

    searched = models.TextField()
    embedding_model = models.TextField()
    score = models.FloatField()

    class Meta:
        db_table = "thresholds"
        constraints: ClassVar = [
            models.UniqueConstraint(name="thresholds_unique", fields=["searched", "embedding_model"])
        ]

    def __str__(self) -> str:
        return f"{self.searched}, {self.embedding_model}: {self.score:.2f}"
