"""A model that shows what it was given, for tests and for whoever connects a client."""

from collections.abc import AsyncIterator

from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, SystemPromptPart, TextPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

NAME = "echo"


def echo_model() -> FunctionModel:
    return FunctionModel(stream_function=_echo, model_name=NAME)


async def _echo(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
    *earlier, question = _said(messages)
    yield f"Je vroeg: {question}"
    if earlier:
        yield f"\n\nDaarvoor ({len(earlier)}):"
    for text in earlier:
        yield f"\n- {text}"


def _said(messages: list[ModelMessage]) -> list[str]:
    """Each thing that was said, in order."""
    said = []
    for message in messages:
        match message:
            case ModelRequest(parts=parts):
                said += [str(part.content) for part in parts if isinstance(part, UserPromptPart | SystemPromptPart)]
            case ModelResponse(parts=parts):
                said += [part.content for part in parts if isinstance(part, TextPart)]
    return said
