"""What was said, as plain values: what the database holds and what a model is given come from these."""

from collections.abc import Sequence
from dataclasses import dataclass

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
        return self.media_type == ADDRESS or bool(self.kind)

    @property
    def kind(self) -> str:
        """The media type that its bytes tell of."""
        if self.content[:4] == b"RIFF" and self.content[8:12] == b"WEBP":
            return "image/webp"
        return next((kind for beginning, kind in BEGINNINGS.items() if self.content.startswith(beginning)), "")


@dataclass(frozen=True)
class HistoryItem:
    """One thing that was said: by the `user`, the `assistant` or the `system`."""

    role: str
    content: str
    images: Sequence[Image] = ()
