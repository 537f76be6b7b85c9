"""What the agent can ask about earlier conversations. Where those are kept, and whose they are, others settle."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class Recollection:
    """Something of an earlier conversation: what was said, what it was about, or what is to be remembered."""

    kind: Literal["message", "summary", "fact"]
    at: datetime
    # Who said it: "user" or "assistant"; empty where nobody said it in so many words.
    role: str
    text: str


@dataclass(frozen=True)
class Memory:
    """What an agent may ask of it; nothing, where a turn has no past."""

    # What fits a question best, or the latest conversations where the question is empty.
    recall: Callable[[str], Awaitable[Sequence[Recollection]]] | None = None
