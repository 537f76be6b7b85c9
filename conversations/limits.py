"""How often something may be done, counted for each process in windows of a minute."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from threading import Lock

from django.utils import timezone

from conversations.errors import TooManyRequestsError


class Window:
    """What was done in this minute. Not in a cache: that forgets some when there are many, and so limits nobody."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._minute: datetime | None = None
        self._done: Counter[str] = Counter()

    def add(self, name: str) -> tuple[int, int]:
        """Once more; how often that is by now, and how many seconds the minute still has."""
        with self._lock:
            now = timezone.now()
            if (minute := now.replace(second=0, microsecond=0)) != self._minute:
                self._minute = minute
                self._done.clear()
            self._done[name] += 1
            return self._done[name], 60 - now.second

    def clear(self) -> None:
        with self._lock:
            self._done.clear()


window = Window()


def count(name: str, *, most: int) -> None:
    """Once more; refused when that is too often."""
    times, seconds_left = window.add(name)
    if times > most:
        raise TooManyRequestsError(retry_after=seconds_left)
