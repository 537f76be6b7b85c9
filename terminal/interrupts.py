"""Ctrl-C, heard only while something is waited for: never halfway through what has to be finished."""

import signal
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

Item = TypeVar("Item")


class Interrupts:
    def __init__(self) -> None:
        self._is_waiting = False
        self._is_due = False

    def listen(self) -> None:
        """From now on; what was typed before is forgotten."""
        self._is_due = False
        signal.signal(signal.SIGINT, self._hear)

    def _hear(self, *_: object) -> None:
        if not self._is_waiting:
            self._is_due = True
            return
        self._is_waiting = False
        raise KeyboardInterrupt

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Where Ctrl-C may end things; also one that came a moment ago."""
        if threading.current_thread() is not threading.main_thread():
            # What goes on behind the prompt is nobody's to interrupt.
            yield
            return
        self._is_waiting = True
        try:
            if self._is_due:
                self._is_due = False
                raise KeyboardInterrupt
            yield
        finally:
            self._is_waiting = False

    def each(self, items: Iterable[Item]) -> Iterator[Item]:
        """Items that have to be waited for, one by one."""
        iterator = iter(items)
        while True:
            with self.waiting():
                try:
                    item = next(iterator)
                except StopIteration:
                    return
            yield item
