"""What makes chunks and products findable, and finds out which score is too low."""

import logging
from collections.abc import Callable
from importlib.resources import files

import numpy as np

from agentbridge.database import advisory_lock
from agentbridge.embeddings import Embedder, current_embedder
from agentbridge.indexing import SHELVES, Shelf, count_waiting, count_words, embed_batch, index_vectors, take_in_words
from agentbridge.lexical import understand
from agentbridge.models import Threshold
from agentbridge.question_vectors import sum_of
from agentbridge.retrieval import weigh, wordings
from agentbridge.synonyms import official_words

logger = logging.getLogger(__name__)

# Any number that nothing else in this database locks.
LOCK = 7_310_452
# So many of the questions about other things get no hit.
OFF_TOPIC_REFUSED = 0.93


def make_searchable(*, progress: Callable[[int, int], None] | None = None) -> int:
    """Index what is not indexed yet, or not by the current model; `progress(done, total)`. How many rows were done.

    Every batch is committed, so what was done stays done. A second caller waits for the first. With another model
    the old vectors are not compared any more: a row is found by its words until it has a new one.
    """
    embedder = current_embedder()
    done = 0
    with advisory_lock(LOCK):
        total = sum(count_waiting(shelf, embedder=embedder) for shelf in SHELVES)
        # First, because it is quick and needs no model: by their words all rows can be found at once.
        for shelf in SHELVES:
            take_in_words(shelf)
        if total:
            count_words()
        for shelf in SHELVES:
            while embedded := embed_batch(shelf, embedder=embedder):
                done += embedded
                if progress:
                    progress(done, total)
            index_vectors(shelf)
        if total or not Threshold.objects.filter(embedding_model=embedder.name).exists():
            for shelf in SHELVES:
                _measure_threshold(shelf, embedder=embedder)
    return done


def _measure_threshold(shelf: Shelf, *, embedder: Embedder) -> None:
    """What is too low a score depends on the model and on how much there is to find, so it is tried out."""
    questions = (files("agentbridge") / "off_topic.txt").read_text().splitlines()
    worded = [wordings(question) for question in questions]
    try:
        embedded = iter(embedder.embed([text for texts in worded for text in texts]))
    except Exception:
        # Better none than one that is measured by words alone.
        logger.exception("What is too low a score by %s was not measured", embedder.name)
        return
    vectors = [sum_of([next(embedded) for _ in texts]) for texts in worded]
    if any(vector is None for vector in vectors):
        return
    best = []
    for question, vector in zip(questions, vectors, strict=True):
        asked = understand(question, also=official_words(question))
        hits = weigh(shelf, asked, vector=vector, model=embedder.name, limit=1)
        best.append(hits[0]["score"] if hits else 0)
    if not any(best):
        # There is nothing on this shelf.
        return
    Threshold.objects.update_or_create(
        searched=shelf.table,
        embedding_model=embedder.name,
        defaults={"score": float(np.quantile(best, OFF_TOPIC_REFUSED))},
    )
