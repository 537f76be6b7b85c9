"""The vector of a question: made while the database looks up its words, or before that by a model that is far away."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from agentbridge.embeddings import Embedder, RemoteEmbedder, Vector, current_embedder

logger = logging.getLogger(__name__)

# A model that has not answered by then is done without: the words still find something.
PATIENCE_SECONDS = 10

# For the model that is here. One that is far away keeps no thread waiting, however many questions it leaves open.
_aside = ThreadPoolExecutor(4, thread_name_prefix="embedding")


@dataclass(frozen=True)
class Embedding:
    """A question on its way to a vector."""

    embedder: Embedder
    _vectors: Future[list[Vector]]

    @classmethod
    def of(cls, texts: Sequence[str], *, embedder: Embedder) -> Embedding:
        """Of a question in several wordings, which weigh as much."""
        if isinstance(embedder, RemoteEmbedder):
            return cls(embedder, embedder.ask(texts, seconds=PATIENCE_SECONDS))
        return cls(embedder, _aside.submit(embedder.embed, texts))

    def wait_if_remote(self) -> None:
        """Called before anything is asked of the database, so that no connection is held meanwhile."""
        if not self.embedder.is_local:
            wait([self._vectors])

    async def arrives(self) -> None:
        # Its error is told where the vector is used. Whoever leaves meanwhile takes the question back.
        with suppress(Exception):
            await asyncio.wrap_future(self._vectors)

    def vector(self) -> Vector | None:
        """None where the model does not answer: the words still find something."""
        try:
            vectors = self._vectors.result()
        except Exception:
            logger.exception("No embedding of a question by %s; it is answered by its words", self.embedder.name)
            return None
        return sum_of(vectors)


async def ahead(begin: Callable[[str], Embedding | None], query: str) -> Embedding | None:
    """The vector by a model far away, before the search takes one of the few threads that lead to the database.

    None yet by the model that is here: it works beside the search.
    """
    if current_embedder().is_local or not query.strip():
        return None
    embedding = await asyncio.to_thread(begin, query)
    if embedding:
        await embedding.arrives()
    return embedding


def sum_of(vectors: Sequence[Vector]) -> Vector | None:
    """What texts mean together, each weighing as much; None where that is nothing."""
    vector: Vector = np.sum([each / np.float32(np.linalg.norm(each) or 1) for each in vectors], axis=0)
    return vector if np.isfinite(vector).all() and vector.any() else None
