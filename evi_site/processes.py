"""EVI's processes, each started again when it dies."""

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Self

from evi_site.environment import BASE_DIR

STOP_SECONDS = 15
# A process that keeps ending this soon after its start has a problem that another start does not mend.
SHORT_LIFE_SECONDS = 10
MOST_SHORT_LIVES = 3


class KeepsStoppingError(Exception):
    """A process does not live; what it said says why."""


class Child:
    """One of EVI's processes, started anew when it dies."""

    def __init__(self, name: str, *arguments: str, files: tuple[int, ...] = (), patience: float = STOP_SECONDS) -> None:
        self.name = name
        self.command = [sys.executable, *arguments]
        self.files = files
        # How long it may take to finish what it has in hand, when all of EVI stops.
        self.patience = patience
        self.short_lives = 0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop(patience=self.patience)

    def stop(self, *, patience: float = STOP_SECONDS) -> None:
        self.process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(patience)
        self.end_group()
        self.process.wait()

    def start(self) -> None:
        self.started = time.monotonic()
        # In a group of its own, because Ctrl-C reaches the whole group of the terminal and each child is
        # stopped in order instead.
        with _uninterrupted():
            self.process = subprocess.Popen(
                self.command,
                cwd=BASE_DIR,
                start_new_session=True,
                preexec_fn=_end_with_parent,
                pass_fds=self.files,
            )

    def keep_alive(self) -> None:
        if self.process.poll() is None:
            return
        lived = time.monotonic() - self.started
        self.short_lives = self.short_lives + 1 if lived < SHORT_LIFE_SECONDS else 0
        if self.short_lives >= MOST_SHORT_LIVES:
            raise KeepsStoppingError(f"The {self.name} keeps stopping right after its start; what it said is above.")
        say(f"The {self.name} stopped (exit code {self.process.returncode}); starting it again.")
        self.end_group()
        self.start()

    def end_group(self) -> None:
        """End what the process left behind; it leads a group, so nothing else is in it."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)


class Worker(Child):
    """django-q2's cluster: a guard with processes of its own, which it replaces when one dies.

    Not all die well. One that is killed while it takes a task from their queue leaves the queue locked for ever, and
    the cluster looks alive and does nothing. So the whole of it is started again.
    """

    inside: frozenset[int] = frozenset()

    def __init__(self, *, patience: float = STOP_SECONDS) -> None:
        super().__init__("worker", "manage.py", "qcluster", patience=patience)

    def keep_alive(self) -> None:
        inside = processes_below(self.process.pid)
        if self.process.poll() is None and not inside >= self.inside:
            say("The worker lost a process and is stopped; starting it again.")
            self.stop()
            self.start()
            inside = frozenset()
        self.inside = inside
        super().keep_alive()


def say(text: str) -> None:
    print(text, flush=True)


def interrupt(signum: int, frame: FrameType | None) -> None:
    # Once is enough. Who asks again would break off the stopping, and leave processes behind.
    for meant in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(meant, signal.SIG_IGN)
    raise KeyboardInterrupt


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """A wish to stop is heard afterwards: a start that is broken off leaves a process that nobody knows of."""
    came: list[int] = []
    handlers = {
        meant: signal.signal(meant, lambda number, frame: came.append(number))
        for meant in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for meant, handler in handlers.items():
            signal.signal(meant, handler)
    if came:
        interrupt(came[0], None)


def processes_below(pid: int) -> frozenset[int]:
    """The children of a process and theirs; none where the system does not tell."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return frozenset()
    return frozenset().union(map(int, children), *(processes_below(int(child)) for child in children))


def _end_with_parent() -> None:
    """Ask Linux to end this child when EVI itself is killed and cannot."""
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGTERM)
