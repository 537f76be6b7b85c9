"""Guidelines in two languages: `tillen.md` and `tillen.en.md` have the same sections in the same order."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import groupby

from agentbridge.models import Chunk, Document
from agentbridge.retrieval import GuidelineHit

NAME = re.compile(r"(?P<name>.*?)(?:\.(?:nl|en))?(?P<ending>\.\w+)$")


def in_language(hits: Sequence[GuidelineHit], *, language: str) -> list[GuidelineHit]:
    """The hits, each in its translation where it has one. What was found in one language answers in the other."""
    foreign = {hit.document_id for hit in hits if hit.language != language}
    if not foreign:
        return list(hits)
    originals = Document.objects.in_bulk(foreign)
    names = {document_id: _names(document.origin, language=language) for document_id, document in originals.items()}
    translations = {
        document.origin: document
        for document in Document.objects.filter(
            origin__in=[name for both in names.values() for name in both], language=language, retired_at=None
        )
    }
    found: dict[object, GuidelineHit] = {}
    for hit in hits:
        known = [translations[name] for name in names.get(hit.document_id, ()) if name in translations]
        translation = known[0] if known else None
        chunk = translation and _same_section(hit, translation=translation)
        if chunk and translation:
            hit = replace(
                hit,
                chunk_id=chunk.id,
                document_id=translation.id,
                title=translation.title,
                source=translation.source,
                norm=translation.norm,
                version=translation.version,
                url=translation.url,
                language=translation.language,
                section=chunk.section,
                text=chunk.text,
            )
        found.setdefault(hit.chunk_id, hit)
    return list(found.values())


def _names(origin: str, *, language: str) -> Sequence[str]:
    """What the file beside this one is called in that language; the language it was first written in needs no mark."""
    match = NAME.fullmatch(origin)
    return (f"{match['name']}.{language}{match['ending']}", f"{match['name']}{match['ending']}") if match else ()


def _same_section(hit: GuidelineHit, *, translation: Document) -> Chunk | None:
    """The beginning of the section at the same place."""
    slim = Chunk.objects.filter(retired_at=None).order_by("position").only("section", "text", "position", "document")
    there = _sections(slim.filter(document=translation))
    own = slim.filter(document_id=hit.document_id)
    here = [chunk.section for chunk in _sections(own)]
    if len(here) != len(there) or hit.section not in here:
        # No translation of this after all, or not yet.
        return None
    return there[here.index(hit.section)]


def _sections(chunks: Iterable[Chunk]) -> list[Chunk]:
    """The first chunk of each."""
    return [next(group) for _, group in groupby(chunks, key=lambda chunk: chunk.section)]
