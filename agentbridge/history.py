"""The only converter between stored messages and PydanticAI's."""

from collections.abc import Iterable, Sequence

from pydantic_ai.messages import (
    BinaryContent,
    ImageUrl,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    UserContent,
    UserPromptPart,
)

from agentbridge.said import ADDRESS, HistoryItem, Image


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
        elif item.role == "system":
            _add_request(messages, SystemPromptPart(item.content))
        else:
            _add_request(messages, UserPromptPart(to_prompt(item.content, item.images)))
    return messages


def to_prompt(text: str, images: Sequence[Image]) -> str | list[UserContent]:
    """A question with its images, as a model takes it."""
    seen = [_seen(image) for image in images if image.is_readable]
    return [text, *seen] if seen else text


def _seen(image: Image) -> ImageUrl | BinaryContent:
    if image.media_type == ADDRESS:
        return ImageUrl(image.content.decode(errors="replace"))
    return BinaryContent(image.content, media_type=image.kind)


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
