"""What EVI remembers of the person who asks: facts that somebody approved, a way to propose another, and what was said.

Where all this is kept, and whose it is, others settle.
"""

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib.resources import files
from typing import Literal

from agentbridge.patterns import WORD
from agentbridge.periods import Period
from agentbridge.words import FILLERS, OWN_VERBS

MAX_FACT_CHARS = 500
# What turns a sentence into its opposite is no filler here.
NEGATIONS = frozenset(["niet", "geen", "nooit", "zonder", "not", "no", "never", "without", "don't", "doesn't"])
# Models write about the person where the person writes "ik".
THE_PERSON = frozenset(["gebruiker", "persoon", "user", "person"])
STEM = 6
# A word of three letters or fewer is the beginning of too many others.
SHORT = 3
PROMPT = (files("agentbridge") / "prompts" / "memory.md").read_text()
FACTS = re.compile(r"^<onthouden>\n(.*?)^</onthouden>$", re.DOTALL | re.MULTILINE)


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
    """The memory that a turn is given; of a turn that is not stored nothing is remembered, and nothing is known."""

    # Approved ones only, the newest first.
    facts: tuple[str, ...] = ()
    # Proposes a fact, and says whether it is a new one.
    remember: Callable[[str], Awaitable[bool]] | None = None
    # What fits a question best, or the latest conversations where the question is empty; of a period, if any.
    recall: Callable[[str, Period | None], Awaitable[Sequence[Recollection]]] | None = None


@dataclass(frozen=True)
class Proposal:
    """What became of a fact that was to be remembered."""

    outcome: Literal["proposed", "known", "refused"]
    fact: str
    explanation: str


def in_one_line(text: str) -> str:
    return " ".join(text.split())


def is_said(fact: str, *, said: str) -> bool:
    """Whether a fact says nothing but what the person said: whatever else a model has read is not theirs."""
    told = {word.casefold() for word in WORD.findall(said)}
    content = {word for word in map(str.casefold, WORD.findall(fact)) if word not in FILLERS or word in NEGATIONS}
    return bool(content - NEGATIONS - THE_PERSON - OWN_VERBS) and all(
        any(_are_alike(word, other) for other in told) for word in content - THE_PERSON
    )


def _are_alike(one: str, other: str) -> bool:
    shorter = min(len(one), len(other), STEM)
    return one == other or (shorter > SHORT and one[:shorter] == other[:shorter])


def as_instructions(facts: Sequence[str]) -> str:
    """What a model is told of the facts: that they are information, and no orders."""
    # Without angle brackets a fact cannot end the block that it stands in.
    lines = "".join(f"- {in_one_line(fact).translate({ord('<'): '‹', ord('>'): '›'})}\n" for fact in facts)
    return PROMPT.format(facts=lines) if lines else ""


def facts_in(instructions: str) -> tuple[str, ...]:
    """The facts that were told in instructions, for the model that goes by rules."""
    told = FACTS.search(instructions)
    return tuple(line.removeprefix("- ") for line in told[1].splitlines()) if told else ()
