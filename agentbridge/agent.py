"""The agent: a question and what was said before it go in, an answer comes out piece by piece."""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any, cast

from pydantic_ai import Agent, AgentRunResultEvent
from pydantic_ai.messages import PartDeltaEvent, PartStartEvent, TextPart, TextPartDelta
from pydantic_ai.models import Model
from pydantic_ai.settings import ModelSettings

from agentbridge.history import HistoryItem, to_model_messages


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


@cache
def specialist() -> Agent[None, str]:
    return Agent(instructions=(files("agentbridge") / "prompts" / "assistant.md").read_text())


async def answer(
    question: str,
    *,
    history: Sequence[HistoryItem],
    model: Model,
    model_settings: Mapping[str, Any] = MappingProxyType({}),
) -> AsyncIterator[Piece | Answer]:
    """Answer `question`; streaming or not is the caller's choice, the model runs the same way."""
    run = specialist().run_stream_events(
        question,
        message_history=to_model_messages(history),
        model=model,
        model_settings=cast(ModelSettings, dict(model_settings)),
    )
    async with run as events:
        async for event in events:
            match event:
                case PartStartEvent(part=TextPart(content=text)) if text:
                    yield Piece(text)
                case PartDeltaEvent(delta=TextPartDelta(content_delta=text)) if text:
                    yield Piece(text)
                case AgentRunResultEvent(result=result):
                    yield Answer(
                        text=result.output,
                        model=result.response.model_name or model.model_name,
                        input_tokens=result.usage.input_tokens,
                        output_tokens=result.usage.output_tokens,
                    )
