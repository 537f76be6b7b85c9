"""The agent: a question and what was said before it go in, an answer comes out piece by piece."""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any, cast

from django.conf import settings
from django.utils import timezone
from pydantic_ai import Agent, AgentRunResultEvent, RunContext
from pydantic_ai.messages import (
    FunctionToolCallEvent,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ToolCallPart,
    UserContent,
)
from pydantic_ai.models import Model
from pydantic_ai.settings import ModelSettings
from pydantic_ai.usage import UsageLimits

from agentbridge import extracts, offline
from agentbridge.citations import Citing
from agentbridge.history import to_model_messages, to_prompt
from agentbridge.injection import safe
from agentbridge.memory import Memory, as_instructions
from agentbridge.said import HistoryItem, Image
from agentbridge.telemetry import instrumentation
from agentbridge.tools import Findings, toolset
from agentbridge.understanding import language_of

# The text of a message that is nothing but an image, or a file.
IMAGE_ALONE = "(afbeelding)"
FILE_ALONE = "(bestand)"
# What a person sees while a tool is at work, and when it is done.
DOING = {
    "search_guidelines": ("Zoekt in richtlijnen…", "In richtlijnen gezocht"),
    "search_products": ("Zoekt in producten…", "In producten gezocht"),
    "list_subjects": ("Kijkt welke onderwerpen er zijn…", "Onderwerpen bekeken"),
    "remember": ("Stelt voor om dit te onthouden…", "Voorgesteld om te onthouden"),
    "search_sessions": ("Zoekt in eerdere gesprekken…", "In eerdere gesprekken gezocht"),
}
DOING_SOMETHING = ("Zoekt het op…", "Opgezocht")
# A model that has not answered by then is going in circles.
LIMITS = UsageLimits(request_limit=8, tool_calls_limit=12)


@dataclass(frozen=True)
class Question:
    """What is asked, with all that came along."""

    text: str
    images: Sequence[Image] = ()
    # Files by name, and as much of their text as the client handed over.
    files: tuple[str, ...] = ()
    attached_text: str = ""
    # What the client tells the model on its own account.
    instructions: str = ""
    # The end of the history, where that is an answer to be gone on with, and what it cites.
    so_far: str = ""
    citations: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True)
class Progress:
    """What the agent is doing, in words for the person who waits; and in words for when it is done."""

    text: str
    done: str


@dataclass(frozen=True)
class Piece:
    """Some more of the answer, and all that it cites by now."""

    text: str
    citations: Sequence[dict[str, Any]] = ()


@dataclass(frozen=True)
class Answer:
    """The whole answer, at the end."""

    text: str
    model: str
    input_tokens: int
    output_tokens: int
    citations: list[dict[str, Any]] = field(default_factory=list)
    search_results: dict[str, Any] = field(default_factory=dict)


@cache
def specialist(*, telemetry_url: str, telemetry_content: bool) -> Agent[Findings, str]:
    agent = Agent(
        deps_type=Findings,
        instructions=[(files("agentbridge") / "prompts" / "assistant.md").read_text(), _today, _remembered],
        toolsets=[toolset],
        name="specialist",
    )
    agent.instrument = instrumentation(telemetry_url, include_content=telemetry_content)
    return agent


async def _today(context: RunContext[Findings]) -> str:
    # To look up what was said last week, a model has to know when that was.
    return f"Vandaag is het {timezone.localdate()}." if context.deps.memory.recall else ""


# Asynchronous, or each turn would have a thread for it, which a server that stops in the middle of the turn waits for.
async def _remembered(context: RunContext[Findings]) -> str:
    # Whoever approved it, and whatever it says: no fact gives orders.
    return as_instructions([fact for fact in context.deps.memory.facts if safe(fact) == fact])


async def answer(
    question: Question,
    *,
    history: Sequence[HistoryItem],
    model: Model,
    memory: Memory | None = None,
    model_settings: Mapping[str, Any] = MappingProxyType({}),
) -> AsyncIterator[Progress | Piece | Answer]:
    """Answer `question`; streaming or not is the caller's choice, the model runs the same way."""
    evi = settings.EVI
    findings = Findings(memory=memory or Memory(), said=question.text)
    citing = Citing(findings.sources, question.so_far, question.citations)
    said = _said_of_attachments(question, sees_images=evi.model_sees_images, reads_files=evi.model != offline.NAME)
    if said:
        yield Piece(said)
        if question.text in (IMAGE_ALONE, FILE_ALONE):
            # There is nothing left to answer.
            yield Answer(text=said, model=model.model_name, input_tokens=0, output_tokens=0)
            return
    agent = specialist(telemetry_url=evi.telemetry_url, telemetry_content=evi.telemetry_content)
    run = agent.run_stream_events(
        _prompt(question, sees_images=evi.model_sees_images),
        deps=findings,
        message_history=to_model_messages([HistoryItem("system", question.instructions), *history]),
        model=model,
        model_settings=cast(ModelSettings, dict(model_settings)),
        usage_limits=LIMITS,
    )
    # The offline model knows where exactly an answer broke off. Others go on with a new word.
    is_new_word = bool(question.so_far) and model.model_name != offline.NAME
    async with run as events:
        async for event in events:
            match event:
                case FunctionToolCallEvent(part=ToolCallPart(tool_name=tool)):
                    yield Progress(*DOING.get(tool, DOING_SOMETHING))
                    continue
                case PartStartEvent(part=TextPart(content=text)):
                    # What a model says before it uses a tool stands apart from what it says after.
                    shown = citing.feed(f"\n\n{text}" if said else text)
                case PartDeltaEvent(delta=TextPartDelta(content_delta=text)):
                    shown = citing.feed(text)
                case AgentRunResultEvent(result=result):
                    shown = citing.rest()
                case _:
                    continue
            if shown and is_new_word:
                shown, is_new_word = f" {shown.lstrip()}", False
            if shown:
                said += shown
                yield Piece(shown, citing.citations)
    yield Answer(
        text=said,
        model=result.response.model_name or model.model_name,
        input_tokens=result.usage.input_tokens,
        output_tokens=result.usage.output_tokens,
        citations=citing.citations,
        search_results=findings.search_results(),
    )


def _prompt(question: Question, *, sees_images: bool) -> str | list[UserContent]:
    if question.so_far:
        return offline.CONTINUE
    text = question.text
    if question.attached_text:
        text = f"{text}\n\n<bijlage>\n{safe(question.attached_text)}\n</bijlage>"
    return to_prompt(text, question.images if sees_images else ())


def _said_of_attachments(question: Question, *, sees_images: bool, reads_files: bool) -> str:
    """What a person is told of what the model cannot see; nothing where it sees all."""
    if question.so_far:
        return ""
    language = language_of(question.text) or "nl"
    said = []
    if any(not (sees_images and image.is_readable) for image in question.images):
        said.append(extracts.phrase("image_alone" if question.text == IMAGE_ALONE else "unseen", language=language))
    if question.files and not (question.attached_text and reads_files):
        said.append(extracts.phrase("unread", language=language, name=", ".join(question.files)))
    return " ".join(said)
