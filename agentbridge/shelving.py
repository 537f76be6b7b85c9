"""Where what was read is stored: rows keep their id as long as they say the same, and are retired, never deleted."""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from django.db import models, transaction
from django.db.models import QuerySet
from django.utils import timezone
from pydantic import TypeAdapter

from agentbridge.catalogues import ProductRow
from agentbridge.chunks import cut
from agentbridge.models import Chunk, Document, Product
from agentbridge.readers import READERS_VERSION, Guideline
from agentbridge.sections import Section

Row = TypeVar("Row", bound=models.Model)

BATCH_SIZE = 500
# Where the origin of a file that came with a form begins.
UPLOADS = "upload"
# A change of these means that the row is indexed anew.
SEARCHED_OF_DOCUMENT = ("title", "norm", "subjects", "language")
SEARCHED_OF_PRODUCT = ("name", "category", "norm", "description", "subjects")


class Verdict(models.TextChoices):
    """What became of a document or a product."""

    NEW = "new", "nieuw"
    CHANGED = "changed", "gewijzigd"
    REVIVED = "revived", "weer actueel"
    UNCHANGED = "unchanged", "ongewijzigd"
    RETIRED = "retired", "vervallen"
    # Not taken in, because a person retired it.
    WITHDRAWN = "left withdrawn", "met de hand ingetrokken"


def shelve_guideline(origin: str, data: bytes, *, read: Callable[[], Guideline]) -> Verdict:
    """Store the guideline that `read` makes of this file, unless its bytes are known already."""
    content_hash = _hash(str(READERS_VERSION), data)
    document = _known_document(origin, content_hash=content_hash)
    if document and document.withdrawn and not _is_upload(origin):
        return Verdict.WITHDRAWN
    if document and (document.origin, document.content_hash) == (origin, content_hash):
        return Verdict.REVIVED if revive(Document.objects.filter(pk=document.pk)) else Verdict.UNCHANGED
    # Before the transaction, because it may take a while.
    guideline = read()
    verdict = Verdict.CHANGED if document else Verdict.NEW
    document = document or Document()
    for name, value in guideline.metadata:
        setattr(document, name, value)
    document.origin = origin
    document.content = [asdict(section) for section in guideline.sections]
    document.content_hash = content_hash
    document.ingested_at = timezone.now()
    document.retired_at, document.withdrawn = None, False
    with transaction.atomic():
        document.save()
        _shelve_chunks(document, guideline.sections)
    return verdict


def _known_document(origin: str, *, content_hash: str) -> Document | None:
    documents = Document.objects.defer("content")
    if document := documents.filter(origin=origin).first():
        return document
    # A file that was renamed or moved: the same bytes, and the file they were in is gone.
    twins = documents.filter(content_hash=content_hash, origin__startswith="/") if origin.startswith("/") else []
    return next((twin for twin in twins if _is_gone(twin.origin)), None)


def _is_upload(origin: str) -> bool:
    return origin.startswith(f"{UPLOADS}/")


def _is_gone(origin: str) -> bool:
    try:
        return not Path(origin).exists()
    except OSError:
        return False


@transaction.atomic
def cut_again(document: Document) -> None:
    """Make the chunks anew from the sections that were read, and have them all indexed anew."""
    _shelve_chunks(document, TypeAdapter(list[Section]).validate_python(document.content))
    document.chunks.update(indexed_hash="")


def _shelve_chunks(document: Document, sections: Sequence[Section]) -> None:
    known: defaultdict[tuple[str, str], list[Chunk]] = defaultdict(list)
    rows = document.chunks.only("section", "text", "position", "content_hash", "retired_at", "document_id")
    # The last is taken first: that one should be live, and the foremost of those that say the same.
    for chunk in rows.order_by(models.F("retired_at").asc(nulls_last=True), "-position"):
        known[chunk.section, chunk.text].append(chunk)
    about = [str(getattr(document, name)) for name in SEARCHED_OF_DOCUMENT]
    new, kept = [], []
    for position, piece in enumerate(cut(sections, title=document.title)):
        values = {
            "position": position,
            "content_hash": _hash(*about, piece.section, piece.text),
            "retired_at": document.retired_at,
        }
        if same := known[piece.section, piece.text]:
            chunk = same.pop()
            if any(getattr(chunk, name) != value for name, value in values.items()):
                kept.append(_with(chunk, values))
        else:
            new.append(Chunk(document=document, section=piece.section, text=piece.text, **values))
    gone = [chunk.pk for chunks in known.values() for chunk in chunks if not chunk.retired_at]
    Chunk.objects.filter(pk__in=gone).update(retired_at=timezone.now())
    Chunk.objects.bulk_update(kept, ["position", "content_hash", "retired_at"], batch_size=BATCH_SIZE)
    Chunk.objects.bulk_create(new, batch_size=BATCH_SIZE)


@transaction.atomic
def shelve_products(origin: str, rows: Sequence[ProductRow]) -> Counter[Verdict]:
    """Store the products of a catalogue, and retire those that it had before."""
    verdicts: Counter[Verdict] = Counter()
    known = Product.objects.in_bulk([row.sku for row in rows], field_name="sku")
    new, changed = [], []
    for row in rows:
        values = {**row.model_dump(), "origin": origin, "retired_at": None, "withdrawn": False}
        values["content_hash"] = _hash(*(str(values[name]) for name in SEARCHED_OF_PRODUCT))
        product = known.get(row.sku)
        if product and product.withdrawn and not _is_upload(origin):
            verdicts[Verdict.WITHDRAWN] += 1
            continue
        if not product:
            new.append(Product(**values))
            verdicts[Verdict.NEW] += 1
            continue
        different = [name for name, value in values.items() if getattr(product, name) != value]
        if different:
            changed.append(_with(product, {**values, "updated_at": timezone.now()}))
            verdicts[Verdict.REVIVED if {*different} <= {"retired_at", "withdrawn"} else Verdict.CHANGED] += 1
        else:
            verdicts[Verdict.UNCHANGED] += 1
    Product.objects.bulk_create(new, batch_size=BATCH_SIZE)
    fields = [*ProductRow.model_fields, "origin", "retired_at", "withdrawn", "content_hash", "updated_at"]
    Product.objects.bulk_update(changed, fields, batch_size=BATCH_SIZE)
    gone = Product.objects.filter(origin=origin, retired_at=None).exclude(sku__in=[row.sku for row in rows])
    verdicts[Verdict.RETIRED] += retire(gone)
    return verdicts


@transaction.atomic
def retire(rows: QuerySet[Any], *, by_hand: bool = False) -> int:
    """No longer find these documents or products; answers that cite them can still show them.

    What is retired by hand stays so, whatever is ingested, until somebody revives it or uploads it again.
    """
    now = timezone.now()
    live = list(rows.filter(retired_at=None).values_list("pk", flat=True))
    if rows.model is Document:
        # The same moment marks the chunks that go with their document, not those that went before it.
        Chunk.objects.filter(document__in=live, retired_at=None).update(retired_at=now)
    return int(rows.model._default_manager.filter(pk__in=live).update(retired_at=now, withdrawn=by_hand))


@transaction.atomic
def revive(rows: QuerySet[Any]) -> int:
    """Find these documents or products again."""
    retired = list(rows.exclude(retired_at=None).values_list("pk", flat=True))
    if rows.model is Document:
        Chunk.objects.filter(document__in=retired, retired_at=models.F("document__retired_at")).update(retired_at=None)
    return int(rows.model._default_manager.filter(pk__in=retired).update(retired_at=None, withdrawn=False))


def _with(row: Row, values: dict[str, Any]) -> Row:
    for name, value in values.items():
        setattr(row, name, value)
    return row


def _hash(*parts: str | bytes) -> str:
    digest = hashlib.sha256()
    for part in parts:
        encoded = part.encode() if isinstance(part, str) else part
        # With its length, or “ab”, “c” would be the same as “a”, “bc”.
        digest.update(b"%d:" % len(encoded) + encoded)
    return digest.hexdigest()
