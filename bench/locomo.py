"""How well what was said is found again, on the LoCoMo conversations (`locomo10.json`), beside a plain BM25."""

import json
import math
import re
import sys
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.progress import track
from rich.table import Table

from bench import Promise, console, make_tables, throwaway_cluster, verdict
from conversations.candidates import Filters
from conversations.models import Message, Role, Session
from conversations.recall import recall
from conversations.remembering import make_findable

DEPTHS = (5, 10, 20)
SESSIONS_DEPTH = 5
MOST = 60
# Questions that the conversation does not answer.
ADVERSARIAL = 5
TURN = re.compile(r"D\d+:\d+")


@dataclass(frozen=True)
class Turn:
    id: str
    speaker: str
    text: str

    @property
    def session(self) -> str:
        return self.id.partition(":")[0]


@dataclass(frozen=True)
class Conversation:
    name: str
    turns: Sequence[Turn]
    # With the turns that have the answer.
    questions: Sequence[tuple[str, frozenset[str]]]


@dataclass
class Recall:
    """What share of the evidence was among the first so many, over all questions."""

    turns: dict[int, list[float]] = field(default_factory=lambda: {depth: [] for depth in DEPTHS})
    sessions: list[float] = field(default_factory=list)

    def count(self, found: Sequence[str], evidence: frozenset[str]) -> None:
        for depth, shares in self.turns.items():
            shares.append(len(evidence.intersection(found[:depth])) / len(evidence))
        wanted = {turn.partition(":")[0] for turn in evidence}
        first = list(dict.fromkeys(turn.partition(":")[0] for turn in found))[:SESSIONS_DEPTH]
        self.sessions.append(len(wanted.intersection(first)) / len(wanted))

    @property
    def means(self) -> list[float]:
        return [sum(shares) / (len(shares) or 1) for shares in (*self.turns.values(), self.sessions)]


def load(path: Path) -> list[Conversation]:
    return [_conversation(sample) for sample in json.loads(path.read_text(encoding="utf-8"))]


def _conversation(sample: dict[str, Any]) -> Conversation:
    held = sample["conversation"]
    names = sorted((name for name in held if re.fullmatch(r"session_\d+", name)), key=lambda name: int(name[8:]))
    turns = [Turn(said["dia_id"], said["speaker"], _text(said)) for name in names for said in held[name]]
    known = {turn.id for turn in turns}
    questions = []
    for asked in sample["qa"]:
        # Some name several turns in one string, and some a turn that there is not.
        evidence = frozenset(TURN.findall(" ".join(asked.get("evidence", ())))) & known
        if asked["category"] != ADVERSARIAL and evidence:
            questions.append((str(asked["question"]), evidence))
    return Conversation(str(sample["sample_id"]), turns, questions)


def _text(said: dict[str, Any]) -> str:
    """What was said, by whom, and what the picture shows that came with it."""
    shown = f" [{said['blip_caption']}]" if said.get("blip_caption") else ""
    return f"{said['speaker']}: {said['text']}{shown}"


def take_in(conversation: Conversation) -> dict[Any, str]:
    """Store a conversation as one person's sessions, and make it findable; the turn of each message."""
    first = conversation.turns[0].speaker
    turns: dict[Any, str] = {}
    sessions: dict[str, Session] = {}
    for turn in conversation.turns:
        if turn.session not in sessions:
            sessions[turn.session] = Session.objects.create(user_id=conversation.name)
        role = Role.USER if turn.speaker == first else Role.ASSISTANT
        message = Message.objects.create(session=sessions[turn.session], role=role, content=turn.text)
        turns[message.pk] = turn.id
    make_findable()
    return turns


class BM25:
    """As the textbook has it, over lower-case words."""

    def __init__(self, texts: Sequence[str], *, k: float = 1.5, b: float = 0.75) -> None:
        self._counts = [Counter(re.findall(r"\w+", text.lower())) for text in texts]
        usual = sum(map(Counter.total, self._counts)) / len(texts)
        self._norms = [k * (1 - b + b * counts.total() / usual) for counts in self._counts]
        self._k = k
        self._frequencies = Counter(word for counts in self._counts for word in counts)

    def best(self, query: str, *, most: int) -> list[int]:
        scores = [0.0] * len(self._counts)
        for word in re.findall(r"\w+", query.lower()):
            number = self._frequencies[word]
            rarity = math.log(1 + (len(scores) - number + 0.5) / (number + 0.5))
            for place, counts in enumerate(self._counts):
                if counts[word]:
                    scores[place] += rarity * counts[word] * (self._k + 1) / (counts[word] + self._norms[place])
        return sorted(range(len(scores)), key=lambda place: -scores[place])[:most]


def measure(conversations: Sequence[Conversation]) -> dict[str, Recall]:
    measured = {"plain BM25": Recall(), "EVI": Recall()}
    for conversation in track(conversations, "Asking", console=console):
        turns = take_in(conversation)
        bm25 = BM25([turn.text for turn in conversation.turns])
        searches: dict[str, Callable[[str], list[str]]] = {
            "plain BM25": lambda query, bm25=bm25, said=conversation.turns: [  # type: ignore[misc]
                said[place].id for place in bm25.best(query, most=MOST)
            ],
            "EVI": lambda query, name=conversation.name, turns=turns: [  # type: ignore[misc]
                turns[found.id]
                for found in recall(
                    query, owner_id=None, user_id=name, limit=MOST, filters=Filters(kind="message"), min_score=0
                )
            ],
        }
        for question, evidence in conversation.questions:
            for name, search in searches.items():
                measured[name].count(search(question), evidence)
    return measured


def main() -> int:
    parser = ArgumentParser(prog="python -m bench.locomo", description=__doc__)
    parser.add_argument("file", type=Path, help="the conversations, as LoCoMo publishes them")
    conversations = load(parser.parse_args().file)
    with throwaway_cluster():
        make_tables()
        measured = measure(conversations)
    questions = sum(len(conversation.questions) for conversation in conversations)
    table = Table(
        "search",
        *(f"recall@{depth}" for depth in DEPTHS),
        f"sessions@{SESSIONS_DEPTH}",
        title=f"Evidence found, of {questions:,} answerable questions",
    )
    for name, found in measured.items():
        table.add_row(name, *(f"{mean:.3f}" for mean in found.means))
    console.print(table)
    pairs = zip(measured["plain BM25"].means, measured["EVI"].means, strict=True)
    names = [*(f"recall@{depth}" for depth in DEPTHS), f"sessions@{SESSIONS_DEPTH}"]
    return verdict(
        [
            Promise(f"{name}: BM25 beside EVI", bm25 / (evi or 1e-9), 1)
            for name, (bm25, evi) in zip(names, pairs, strict=True)
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
