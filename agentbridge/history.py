"""The only converter between stored messages and PydanticAI's."""

from collections.abc import Iterable
from dataclasses import dataclass

from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, SystemPromptPart, TextPart, UserPromptPart


@dataclass(frozen=True)
class HistoryItem:
    """One thing that was said: by the `user`, the `assistant` or the `system`."""

    role: str
    content: str


def to_model_messages(items: Iterable[HistoryItem]) -> list[ModelMessage]:
    """What was said, as a model takes it: requests and responses in turn, whatever happened in between.

    A question that was never answered is joined with the next one, because providers refuse two requests in a row.
    An answer that broke off before its first word is left out. Only text is stored, so no tool call can be left
    without its result, which providers refuse as well.
    """
    messages: list[ModelMessage] = []
    for item in items:
        if not item.content.strip():
            continue
        if item.role == "assistant":
            _add_response(messages, item.content)
        else:
            part = SystemPromptPart(item.content) if item.role == "system" else UserPromptPart(item.content)
            _add_request(messages, part)
    return messages


def _add_request(messages: list[ModelMessage], part: SystemPromptPart | UserPromptPart) -> None:
    if messages and isinstance(messages[-1], ModelRequest):
        messages[-1] = ModelRequest(parts=[*messages[-1].parts, part])
    else:
        messages.append(ModelRequest(parts=[part]))


def _add_response(messages: list[ModelMessage], text: str) -> None:
    if messages and isinstance(messages[-1], ModelResponse):
        messages[-1] = ModelResponse(parts=[*messages[-1].parts, TextPart(text)])
    else:
        messages.append(ModelResponse(parts=[TextPart(text)]))
