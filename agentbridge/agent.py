"""The agent: a question and what was said before it go in, an answer comes out piece by piece."""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any, cast

from django.conf import settings
from pydantic_ai import Agent, AgentRunResultEvent
from pydantic_ai.messages import PartDeltaEvent, PartStartEvent, TextPart, TextPartDelta
from pydantic_ai.models import Model
from pydantic_ai.settings import ModelSettings
from pydantic_ai.usage import UsageLimits

from agentbridge.citations import Citing
from agentbridge.history import HistoryItem, to_model_messages
from agentbridge.telemetry import instrumentation
from agentbridge.tools import Findings, toolset

# A model that has not answered by then is going in circles.
LIMITS = UsageLimits(request_limit=8, tool_calls_limit=12)


@dataclass(frozen=True)
class Piece:
    """Some more of the answer."""

    text: str


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
        instructions=(files("agentbridge") / "prompts" / "assistant.md").read_text(),
        toolsets=[toolset],
        name="specialist",
    )
    agent.instrument = instrumentation(telemetry_url, include_content=telemetry_content)
    return agent


async def answer(
    question: str,
    *,
    history: Sequence[HistoryItem],
    model: Model,
    model_settings: Mapping[str, Any] = MappingProxyType({}),
) -> AsyncIterator[Piece | Answer]:
    """Answer `question`; streaming or not is the caller's choice, the model runs the same way."""
    findings = Findings()
    citing = Citing(findings.sources)
    said = ""
    evi = settings.EVI
    agent = specialist(telemetry_url=evi.telemetry_url, telemetry_content=evi.telemetry_content)
    run = agent.run_stream_events(
        question,
        deps=findings,
        message_history=to_model_messages(history),
        model=model,
        model_settings=cast(ModelSettings, dict(model_settings)),
        usage_limits=LIMITS,
    )
    async with run as events:
        async for event in events:
            match event:
                case PartStartEvent(part=TextPart(content=text)):
                    # What a model says before it uses a tool stands apart from what it says after.
                    shown = citing.feed(f"\n\n{text}" if said else text)
                case PartDeltaEvent(delta=TextPartDelta(content_delta=text)):
                    shown = citing.feed(text)
                case AgentRunResultEvent(result=result):
                    shown = citing.rest()
                case _:
                    continue
            if shown:
                said += shown
                yield Piece(shown)
    yield Answer(
        text=said,
        model=result.response.model_name or model.model_name,
        input_tokens=result.usage.input_tokens,
        output_tokens=result.usage.output_tokens,
        citations=citing.citations,
        search_results=findings.search_results(),
    )
