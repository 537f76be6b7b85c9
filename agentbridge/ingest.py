"""Files become what EVI knows: documents in chunks, and products. One way in, for the command and the admin."""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path, PurePath
from typing import Any

from django.core.files.uploadedfile import UploadedFile
from django.db import DataError, transaction
from django.db.models import QuerySet

from agentbridge import searchable
from agentbridge.catalogues import FORMATS as CATALOGUES
from agentbridge.catalogues import read_catalogue
from agentbridge.database import advisory_lock
from agentbridge.models import Document, Product
from agentbridge.readers import GUIDELINES, Problem, UnreadableError, read_guideline
from agentbridge.shelving import UPLOADS, Verdict, cut_again, retire, shelve_guideline, shelve_products

SAMPLE = Path(__file__).parent / "sample"
MOST_BYTES = 50_000_000
# Any number that nothing else in this database locks.
LOCK = 0x455649


class Stage(StrEnum):
    FILES = "Reading files"
    INDEX = "Indexing"


Progress = Callable[[Stage, int, int], None]


class IngestBusyError(Exception):
    """Another ingest is at work."""


@dataclass(frozen=True)
class Failure:
    """A file that was left out. What an earlier version of it said stays as it was."""

    origin: str
    problem: Problem
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.origin} {self.problem.value}" + (f" ({self.detail})" if self.detail else "")


@dataclass(frozen=True)
class IngestReport:
    documents: Counter[Verdict] = field(default_factory=Counter)
    products: Counter[Verdict] = field(default_factory=Counter)
    failures: Sequence[Failure] = ()
    indexed: int = 0

    def __str__(self) -> str:
        lines = [
            f"{kind}: " + ", ".join(f"{counts[verdict]} {verdict}" for verdict in Verdict)
            for kind, counts in (("Documents", self.documents), ("Products", self.products))
        ]
        return "\n".join([*lines, *(f"Failed: {failure}" for failure in self.failures)])


@dataclass(frozen=True)
class File:
    """Something to read, wherever its bytes are. Its document or products are known again by `origin`."""

    origin: str
    load: Callable[[], bytes]


def ingest(
    paths: Iterable[Path | str], *, keep: bool = False, dry_run: bool = False, progress: Progress = lambda *step: None
) -> IngestReport:
    """Take in these files and folders, and retire what came from the folders before and is there no longer.

    With `keep` nothing is retired. With `dry_run` the report is the same, but nothing is changed.
    """
    run = _Run()
    files: dict[str, File] = {}
    folders = []
    for path in map(_absolute, paths):
        if path.is_dir():
            folders.append(path)
            found = _files_below(path, on_error=run.leave_alone)
        else:
            found = iter([path])
        files |= {_origin(file): File(_origin(file), _loader(file)) for file in found}
    with _alone(), _undone() if dry_run else nullcontext():
        run.take_all(files.values(), progress=progress)
        if not keep:
            run.retire_missing(map(_origin, folders))
        indexed = 0 if dry_run else _index(progress)
    return run.report(indexed=indexed)


def ingest_uploads(uploads: Iterable[UploadedFile[Any]], *, formats: Iterable[str]) -> IngestReport:
    """Take in files of these formats that came with a form; one of the same name takes the place of the earlier one."""
    run = _Run(formats=frozenset(formats))
    with _alone():
        run.take_all(File(f"{UPLOADS}/{upload.name}", _uploaded(upload)) for upload in uploads)
        return run.report(indexed=_index())


def load_sample(*, announce: Callable[[], None] = lambda: None) -> IngestReport | None:
    """Take in the sample that EVI brings, if nothing was taken in yet; it takes some seconds."""
    if Document.objects.exists() or Product.objects.exists():
        return None
    announce()
    try:
        return ingest([SAMPLE])
    except IngestBusyError:
        # Another process starts at the same time, and is doing just this.
        return None


def reindex(documents: QuerySet[Document]) -> int:
    """Cut the documents into chunks again, without their files, and index what came of it."""
    with _alone():
        for document in documents.iterator(chunk_size=10):
            cut_again(document)
        return _index()


class _Run:
    """One ingest: what it came across, and what became of it."""

    def __init__(self, *, formats: frozenset[str] = frozenset([*GUIDELINES, *CATALOGUES])) -> None:
        self._formats = formats
        self._documents: Counter[Verdict] = Counter()
        self._products: Counter[Verdict] = Counter()
        self._failures: list[Failure] = []
        self._seen: set[str] = set()
        self._unseen: list[str] = []
        self._skus: dict[str, str] = {}

    def report(self, *, indexed: int) -> IngestReport:
        return IngestReport(self._documents, self._products, tuple(self._failures), indexed)

    def leave_alone(self, error: OSError) -> None:
        """A folder that cannot be opened may still hold what came from it before."""
        origin = _origin(Path(str(error.filename)))
        self._unseen.append(origin)
        self._failures.append(Failure(origin, Problem.UNREADABLE, error.strerror or ""))

    def take_all(self, files: Iterable[File], *, progress: Progress = lambda *step: None) -> None:
        files = list(files)
        for done, file in enumerate(files):
            progress(Stage.FILES, done, len(files))
            self._seen.add(file.origin)
            try:
                self._take(file)
            except UnreadableError as error:
                self._failures.append(Failure(file.origin, error.problem, error.detail))
            except DataError as error:
                self._failures.append(Failure(file.origin, Problem.BROKEN, str(error).splitlines()[0]))
        progress(Stage.FILES, len(files), len(files))

    def _take(self, file: File) -> None:
        suffix = PurePath(file.origin).suffix.lower()
        data = file.load()
        if suffix not in self._formats:
            raise UnreadableError(Problem.UNKNOWN)
        if not data.strip():
            raise UnreadableError(Problem.EMPTY)
        if suffix in GUIDELINES:
            read = lambda: read_guideline(PurePath(file.origin).name, data)  # noqa: E731
            self._documents[shelve_guideline(file.origin, data, read=read)] += 1
            return
        rows = read_catalogue(file.origin, data)
        if taken := [row.sku for row in rows if row.sku in self._skus]:
            raise UnreadableError(Problem.TAKEN, f"{', '.join(taken[:5])} in {self._skus[taken[0]]}")
        self._products += shelve_products(file.origin, rows)
        self._skus |= {row.sku: file.origin for row in rows}

    def retire_missing(self, folders: Iterable[str]) -> None:
        for folder in folders:
            below = f"{folder.rstrip('/')}/"
            self._documents[Verdict.RETIRED] += self._retire_missing(Document, below)
            self._products[Verdict.RETIRED] += self._retire_missing(Product, below)

    def _retire_missing(self, model: type[Document] | type[Product], below: str) -> int:
        known = model._default_manager.filter(retired_at=None, origin__startswith=below)
        gone = [
            origin
            for origin in set(known.values_list("origin", flat=True))
            if origin not in self._seen and not any(origin.startswith(f"{folder}/") for folder in self._unseen)
        ]
        return retire(known.filter(origin__in=gone))


@contextmanager
def _alone() -> Iterator[None]:
    with advisory_lock(LOCK, wait=False) as is_ours:
        if not is_ours:
            raise IngestBusyError
        yield


@contextmanager
def _undone() -> Iterator[None]:
    with transaction.atomic():
        yield
        transaction.set_rollback(True)


def _index(progress: Progress = lambda *step: None) -> int:
    # Always, because an earlier run may have been broken off before it came to this.
    return searchable.make_searchable(progress=lambda done, total: progress(Stage.INDEX, done, total))


def _absolute(path: Path | str) -> Path:
    # The folder's links are followed, so that it has one name, and the file keeps its own.
    path = Path(path).absolute()
    return path.resolve() if path.is_dir() else path.parent.resolve() / path.name


def _origin(path: Path) -> str:
    """The whole path: two folders may have the same name. EVI's own sample is at home wherever EVI is installed."""
    if path == SAMPLE or SAMPLE in path.parents:
        path = Path("sample") / path.relative_to(SAMPLE)
    # A name need not be UTF-8, but what is stored must be.
    return os.fspath(path).encode(errors="backslashreplace").decode()


def _files_below(folder: Path, *, on_error: Callable[[OSError], None]) -> Iterator[Path]:
    """What EVI reads, not what is hidden. Links to folders are not followed: they may lead in a circle."""
    for parent, folders, names in os.walk(folder, onerror=on_error):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            # Word keeps a file like this next to one that is open.
            if not name.startswith((".", "~$")) and PurePath(name).suffix.lower() in {*GUIDELINES, *CATALOGUES}:
                yield Path(parent, name)


def _loader(path: Path) -> Callable[[], bytes]:
    def load() -> bytes:
        try:
            status = path.stat()
            if not stat.S_ISREG(status.st_mode):
                raise UnreadableError(Problem.UNKNOWN)
            if status.st_size > MOST_BYTES:
                raise UnreadableError(Problem.TOO_LARGE, f"{status.st_size // 1_000_000} MB")
            return path.read_bytes()
        except FileNotFoundError as error:
            raise UnreadableError(Problem.MISSING) from error
        except OSError as error:
            raise UnreadableError(Problem.UNREADABLE, error.strerror or "") from error

    return load


def _uploaded(upload: UploadedFile[Any]) -> Callable[[], bytes]:
    def load() -> bytes:
        if (upload.size or 0) > MOST_BYTES:
            raise UnreadableError(Problem.TOO_LARGE, f"{(upload.size or 0) // 1_000_000} MB")
        return bytes(upload.read())

    return load
