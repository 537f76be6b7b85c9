"""What tests need that start processes: ports, and patience with an end."""

import os
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest

needs_proc = pytest.mark.skipif(not Path("/proc/self").exists(), reason="asks Linux about processes, as the image does")


def coverage_variables() -> dict[str, str]:
    """What a process with an environment of its own needs to be measured with the rest, if anything is."""
    return {name: value for name, value in os.environ.items() if name.startswith("COVERAGE_PROCESS_")}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(condition: Callable[[], object], *, seconds: float = 90) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail(f"waited {seconds} seconds in vain")
        time.sleep(0.1)
