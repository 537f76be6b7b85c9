"""The only converter between stored messages and PydanticAI's."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

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

ADDRESS = "text/uri-list"
# What models look at, by its first bytes. A client may call anything an image; a model that refuses one would refuse
# every later question of its chat too.
BEGINNINGS = {b"\x89PNG": "image/png", b"\xff\xd8\xff": "image/jpeg", b"GIF8": "image/gif"}


@dataclass(frozen=True)
class Image:
    """An image, or the address of one."""

    media_type: str
    content: bytes
    name: str = ""

    @property
    def is_readable(self) -> bool:
        return self.media_type == ADDRESS or bool(self._kind)

    def for_model(self) -> ImageUrl | BinaryContent:
        if self.media_type == ADDRESS:
            return ImageUrl(self.content.decode(errors="replace"))
        return BinaryContent(self.content, media_type=self._kind)

    @property
    def _kind(self) -> str:
        if self.content[:4] == b"RIFF" and self.content[8:12] == b"WEBP":
            return "image/webp"
        return next((kind for beginning, kind in BEGINNINGS.items() if self.content.startswith(beginning)), "")


@dataclass(frozen=True)
class HistoryItem:
    """One thing that was said: by the `user`, the `assistant` or the `system`."""

    role: str
    content: str
    images: Sequence[Image] = ()


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
    seen = [image.for_model() for image in images if image.is_readable]
    return [text, *seen] if seen else text


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
