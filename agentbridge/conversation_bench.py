"""Whole conversations with what is expected of each answer, held with a model."""

import asyncio
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from io import TextIOBase
from pathlib import Path
from typing import IO, Annotated, Any, Literal, Self, cast

import yaml
from asgiref.sync import async_to_sync
from django.conf import settings
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator
from pydantic_ai import exceptions as model_errors
from pydantic_ai.models import Model
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from rich.text import Text

from agentbridge import agent
from agentbridge.said import HistoryItem
from agentbridge.tokens import within_budget

# Words that nearly every sentence has and that the other language does not.
FUNCTION_WORDS = {
    "nl": "aan als bij dat de deze dit een en er geen het hoe ik je kan maar met moet naar niet ook te u uit van voor "
    "wat worden wordt zijn zonder",
    "en": "a an and are as at be by can do does for from has how if it must not that the there they this to what when "
    "which with without you your",
}


class BenchFileError(Exception):
    """A file that holds no conversations, with the place where it goes wrong."""


def _every_alternative_says_something(item: str) -> str:
    if not all(alternative.strip() for alternative in item.split("|")):
        raise ValueError("each side of | must hold some text")
    return item


Wanted = Annotated[str, AfterValidator(_every_alternative_says_something)]


class Turn(BaseModel):
    """A question and what is expected of its answer; in an expectation `a|b` means one of the two."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    ask: str = Field(pattern=r"\S")
    says: list[Wanted] = []
    never_says: list[Wanted] = []
    # In the title or the source of a guideline that is cited.
    cites: list[Wanted] = []
    # The category of a product that is cited.
    products: list[Wanted] = []
    cites_nothing: bool = False
    asks_back: bool = False
    language: Literal["nl", "en"] | None = None

    @model_validator(mode="after")
    def _can_be_met(self) -> Self:
        if (self.cites_nothing or self.asks_back) and (self.cites or self.products):
            raise ValueError("an answer that cites nothing cannot cite something as well")
        return self


class Conversation(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(pattern=r"\S")
    turns: list[Turn] = Field(min_length=1)


@dataclass(frozen=True)
class Outcome:
    """How one turn went."""

    conversation: str
    turn: int
    ask: str
    answer: str
    citations: list[dict[str, Any]]
    failures: list[str]


@dataclass(frozen=True)
class Report:
    outcomes: list[Outcome]

    @property
    def failed(self) -> list[Outcome]:
        return [outcome for outcome in self.outcomes if outcome.failures]

    @property
    def summary(self) -> str:
        conversations = {outcome.conversation for outcome in self.outcomes}
        good = conversations - {outcome.conversation for outcome in self.failed}
        turns = len(self.outcomes)
        return (
            f"{len(good)} of {len(conversations)} conversations and "
            f"{turns - len(self.failed)} of {turns} turns went as expected."
        )

    def print(self, file: TextIOBase, *, as_json: bool = False) -> None:
        if as_json:
            document = {
                "turns": len(self.outcomes),
                "failed": len(self.failed),
                "outcomes": [asdict(outcome) for outcome in self.outcomes],
            }
            file.write(json.dumps(document, ensure_ascii=False, indent=2, default=str) + "\n")
            return
        table = Table("Conversation", "Turn", "Asked", "Outcome")
        for outcome in self.outcomes:
            # As texts, because brackets in what people and models say are no markup.
            found = Text("\n".join(outcome.failures), "red") if outcome.failures else Text("ok", "green")
            table.add_row(Text(outcome.conversation), str(outcome.turn), Text(outcome.ask), found)
        Console(file=cast(IO[str], file)).print(table, self.summary)


def load_conversations(path: Path, *, only: str = "") -> list[Conversation]:
    """The conversations of a YAML file, or the one called `only`."""
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        conversations = TypeAdapter(list[Conversation]).validate_python(content)
    except yaml.MarkedYAMLError as error:
        line = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise BenchFileError(f"{path}{line}: {error.problem or error.context}") from error
    except ValidationError as error:
        first = error.errors()[0]
        raise BenchFileError(f"{path}, {_place(first['loc'], content)}: {first['msg']}") from error
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise BenchFileError(f"{path}: {error}") from error
    names = [conversation.name for conversation in conversations]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise BenchFileError(f"{path}: two conversations are called {twice}")
    chosen = [conversation for conversation in conversations if only in {"", conversation.name}]
    if not chosen:
        raise BenchFileError(f"{path}: there is no conversation{f' called {only}' if only else ''}")
    return chosen


def _place(location: tuple[int | str, ...], content: Any) -> str:
    """Where in the file, in the words of someone who reads it."""
    match location:
        case (int(number), *rest):
            entry = content[number]
            name = entry.get("name") if isinstance(entry, Mapping) else None
            words = [f"conversation {number + 1}" + (f" ({name})" if name else "")]
        case _:
            return "the file as a whole"
    match rest:
        case ("turns", int(turn), *rest):
            words.append(f"turn {turn + 1}")
    return ", ".join([*words, *(str(word if isinstance(word, str) else word + 1) for word in rest)])


def evaluate(conversations: Sequence[Conversation], *, model: Model, progress: bool = False) -> Report:
    """Hold each conversation from its beginning, one after the other."""
    # On the other stream, so that what is printed can be piped.
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not (progress and console.is_terminal)) as bar:
        task = bar.add_task("Holding conversations", total=sum(len(one.turns) for one in conversations))
        return async_to_sync(_hold)(conversations, model=model, on_turn=lambda: bar.advance(task))


async def _hold(conversations: Sequence[Conversation], *, model: Model, on_turn: Callable[[], None]) -> Report:
    outcomes: list[Outcome] = []
    for conversation in conversations:
        said: list[HistoryItem] = []
        for number, turn in enumerate(conversation.turns, start=1):
            text, citations, failures = await _take_turn(turn, said=said, model=model)
            said += [HistoryItem("user", turn.ask), HistoryItem("assistant", text)]
            outcomes.append(Outcome(conversation.name, number, turn.ask, text, citations, failures))
            on_turn()
    return Report(outcomes)


async def _take_turn(
    turn: Turn, *, said: Sequence[HistoryItem], model: Model
) -> tuple[str, list[dict[str, Any]], list[str]]:
    """The answer, what it cites and what is wrong with it."""
    evi = settings.EVI
    recent = said[-evi.context_messages :] if evi.context_messages else []
    history, _ = within_budget(recent, question=turn.ask, budget=evi.context_tokens)
    answer = None
    try:
        async with asyncio.timeout(evi.model_timeout):
            async for event in agent.answer(agent.Question(turn.ask), history=history, model=model):
                if isinstance(event, agent.Answer):
                    answer = event
    except (model_errors.AgentRunError, model_errors.FallbackExceptionGroup, TimeoutError, OSError) as error:
        return "", [], [f"the model failed: {error!r}"]
    assert answer
    return answer.text, answer.citations, failures_of(turn, text=answer.text, citations=answer.citations)


def failures_of(turn: Turn, *, text: str, citations: Sequence[Mapping[str, Any]]) -> list[str]:
    """What the answer does not do that it should, and the other way round."""
    if not text.strip():
        return ["the answer is empty"]
    # A marker is no fact: [23] does not say 23.
    plain = " ".join(re.sub(r"\[\d+\]|\*", "", text).split()).casefold()
    guidelines = [f"{c['document_title']}\n{c['source']}".casefold() for c in citations if c["kind"] == "guideline"]
    categories = [str(c["category"]).casefold() for c in citations if c["kind"] == "product"]
    failures = [f"does not say: {item}" for item in turn.says if not _says(plain, item)]
    failures += [f"says: {item}" for item in turn.never_says if _says(plain, item)]
    for item in turn.cites:
        if not any(part in guideline for part in _parts(item) for guideline in guidelines):
            failures.append(f"does not cite: {item}")
    for item in turn.products:
        if not any(part in categories for part in _parts(item)):
            failures.append(f"names no product of: {item}")
    if (turn.cites_nothing or turn.asks_back) and citations:
        failures.append(f"cites: {', '.join(str(c['document_title']) for c in citations)}")
    if turn.asks_back and not plain.rstrip(" _\"'”’)").endswith("?"):
        failures.append("does not end in a question")
    if turn.language and (spoken := _language(plain)) != turn.language:
        failures.append(f"is in {spoken or 'no clear language'}, not {turn.language}")
    markers = sorted({int(number) for number in re.findall(r"\[(\d+)\]", text)})
    listed = sorted(c["marker"] for c in citations)
    if not markers == listed == list(range(1, len(citations) + 1)):
        failures.append(f"has the markers {markers} and the citations {listed}")
    return failures


def _parts(item: str) -> list[str]:
    return [" ".join(part.split()).casefold() for part in item.split("|")]


def _says(plain: str, item: str) -> bool:
    return any(re.search(_not_inside_a_number(part), plain) for part in _parts(item))


def _not_inside_a_number(part: str) -> str:
    """So that 5 is not found in 2,5 nor 23 in 2023."""
    before = r"(?<!\d)(?<!\d[.,])" if part[0].isdigit() else ""
    after = r"(?!\d|[.,]\d)" if part[-1].isdigit() else ""
    return before + re.escape(part) + after


def _language(plain: str) -> str | None:
    words = re.findall(r"[^\W\d_]+", plain)
    counts = {language: sum(map(words.count, known.split())) for language, known in FUNCTION_WORDS.items()}
    if counts["nl"] == counts["en"]:
        return None
    return max(counts, key=counts.__getitem__)
