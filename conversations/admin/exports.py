"""Sessions as files: one as it is, several in a ZIP."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from io import BytesIO

from django.http import HttpResponse

from conversations.models import Message, Session
from conversations.transcripts import every_message, export_csv, export_json, render_markdown

# What is built in memory.
MOST_MESSAGES = 100_000


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
