"""What takes seconds to load, loaded before anybody waits for it."""

import threading

from django.conf import settings

from agentbridge import offline
from agentbridge.embeddings import BUNDLED, embedder_for
from agentbridge.tokens import count_tokens


def warm_up() -> threading.Thread:
    thread = threading.Thread(target=_load, name="warming up", daemon=True)
    thread.start()
    return thread


def _load() -> None:
    count_tokens("hallo")
    if settings.EVI.embedding_model == BUNDLED or settings.EVI.model == offline.NAME:
        embedder_for(BUNDLED).embed(["hallo"])
