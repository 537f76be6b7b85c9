"""Citations: the markers in an answer, and the sources they stand for."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

# As EVI writes them, and as models do.
MARKER = re.compile(r"\[(\d{1,2})\]")
WRITTEN = re.compile(r"(\s?)\[\s*(\d{1,2}(?:\s*[,;]\s*\d{1,2})*)\s*\]")
# The end of a piece that may turn out to be a marker.
BEGUN = re.compile(r"\s?\[[\d\s,;]{0,20}$")


@dataclass
class Citing:
    """Passes an answer on as it comes, with its markers numbered in the order of their appearance.

    A model may write any number. One that no tool has given out is taken away, with the space before it where that
    is still here, so that every marker a reader sees leads to a source that was really found.
    """

    sources: Mapping[int, dict[str, Any]]
    # The text that this one goes on with, and what it cites: its markers stay, and the new ones come after them.
    so_far: str = ""
    earlier: Sequence[dict[str, Any]] = ()
    citations: list[dict[str, Any]] = field(default_factory=list)
    _markers: dict[int, int] = field(default_factory=dict)
    _held: str = ""

    def feed(self, text: str) -> str:
        """What can be shown now that `text` has come in."""
        text = self._held + text
        begun = BEGUN.search(text)
        self._held = text[begun.start() :] if begun else ""
        return self._renumbered(text.removesuffix(self._held))

    def rest(self) -> str:
        """What was held back for a marker that did not come."""
        held, self._held = self._held, ""
        return self._renumbered(held)

    def _renumbered(self, text: str) -> str:
        return WRITTEN.sub(self._marked, text)

    def _marked(self, match: re.Match[str]) -> str:
        numbers = [int(number) for number in re.findall(r"\d+", match[2])]
        markers = [self._marker(number) for number in numbers if number in self.sources]
        return match[1] + "".join(f"[{marker}]" for marker in markers) if markers else ""

    def _marker(self, number: int) -> int:
        if number not in self._markers:
            source = self.sources[number]
            known = [one.get("marker") for one in self.earlier if one.get("chunk_id") == source.get("chunk_id", number)]
            if known and isinstance(known[0], int):
                self._markers[number] = known[0]
            else:
                self._markers[number] = self._taken() + len(self.citations) + 1
                self.citations.append({"marker": self._markers[number], **source})
        return self._markers[number]

    def _taken(self) -> int:
        return max([len(self.earlier), *(int(match[1]) for match in MARKER.finditer(self.so_far))])


def without_markers(text: str) -> str:
    return WRITTEN.sub("", text)
