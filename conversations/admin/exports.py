"""Sessions as files: one as it is, several in a ZIP."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from io import BytesIO

from django.db.models import F, Func, IntegerField, QuerySet, Sum, TextField
from django.db.models.expressions import Combinable
from django.db.models.functions import Cast
from django.http import HttpResponse

from conversations.models import Message, Session
from conversations.transcripts import every_message, export_csv, export_json, render_markdown

# What is built in memory.
MOST_MESSAGES = 100_000
MOST_BYTES = 100_000_000


@dataclass(frozen=True)
class Format:
    suffix: str
    media_type: str
    write: Callable[[Session, Iterable[Message]], Iterator[str]]


FORMATS = {
    "json": Format("json", "application/json", export_json),
    "markdown": Format("md", "text/markdown; charset=utf-8", render_markdown),
    "csv": Format("csv", "text/csv; charset=utf-8", export_csv),
}


def size_of(sessions: QuerySet[Session]) -> int:
    """How many bytes their messages are, with what is kept of each."""
    size = _bytes(F("content")) + _bytes(Cast("metadata", TextField()))
    messages = Message.objects.filter(session__in=sessions.values("pk"))
    return int(messages.aggregate(total=Sum(size, default=0))["total"])


def _bytes(text: Combinable) -> Func:
    return Func(text, function="octet_length", output_field=IntegerField())


def as_file(session: Session, form: Format) -> HttpResponse:
    return _download(
        content_of(session, form), media_type=form.media_type, name=f"gesprek-{str(session.pk)[:8]}.{form.suffix}"
    )


def as_zip(sessions: Iterable[Session], form: Format) -> HttpResponse:
    packed = BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for session in sessions:
            archive.writestr(f"gesprek-{session.pk}.{form.suffix}", content_of(session, form))
    return _download(packed.getvalue(), media_type="application/zip", name=f"gesprekken-{form.suffix}.zip")


def content_of(session: Session, form: Format) -> bytes:
    return "".join(form.write(session, every_message(session.pk))).encode()


def _download(content: bytes, *, media_type: str, name: str) -> HttpResponse:
    return HttpResponse(
        content, content_type=media_type, headers={"Content-Disposition": f'attachment; filename="{name}"'}
    )
