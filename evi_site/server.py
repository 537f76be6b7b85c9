"""`script/server`: the database, the web server and the worker together, until Ctrl-C."""

import argparse
import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Self

import django
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import connection
from pydantic_ai.exceptions import UserError

from evi_site.environment import BASE_DIR
from evi_site.postgres.cluster import ClusterError

if TYPE_CHECKING:
    from conversations.accounts import FirstAccounts

HOST = "127.0.0.1"
START_SECONDS = 120
STOP_SECONDS = 15
# A process that keeps ending this soon after its start has a problem that another start does not mend.
SHORT_LIFE_SECONDS = 10
MOST_SHORT_LIVES = 3


class ServerError(Exception):
    """EVI cannot run; the message says why and what to do."""


class Child:
    """One of EVI's processes, started anew when it dies."""

    def __init__(self, name: str, *arguments: str, files: tuple[int, ...] = ()) -> None:
        self.name = name
        self.command = [sys.executable, *arguments]
        self.files = files
        self.short_lives = 0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def stop(self) -> None:
        self.process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(STOP_SECONDS)
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
            raise ServerError(f"The {self.name} keeps stopping right after its start; what it said is above.")
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

    def keep_alive(self) -> None:
        inside = _processes_below(self.process.pid)
        if self.process.poll() is None and not inside >= self.inside:
            say("The worker lost a process and is stopped; starting it again.")
            self.stop()
            self.start()
            inside = frozenset()
        self.inside = inside
        super().keep_alive()


def main() -> None:
    parser = argparse.ArgumentParser(prog="script/server", description="Start EVI and keep it running until Ctrl-C.")
    parser.add_argument("--port", type=port_number, help="where to listen on this machine (default: EVI_PORT, or 8000)")
    arguments = parser.parse_args()
    if arguments.port is not None:
        os.environ["EVI_PORT"] = str(arguments.port)
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "evi_site.settings")
    # A shell that starts EVI in the background has it ignore Ctrl-C, and the one who sends it means it.
    for meant in (signal.SIGINT, signal.SIGTERM):
        signal.signal(meant, _interrupt)
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        # Not under nohup.
        signal.signal(signal.SIGHUP, _interrupt)
    try:
        django.setup()
        run(port=settings.EVI.port)
    except KeyboardInterrupt:
        say("EVI has stopped.")
    except (ServerError, ClusterError, ImproperlyConfigured) as error:
        sys.exit(f"EVI cannot run: {error}")


def port_number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= 65535):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to 65535")
    return int(text)


def run(*, port: int) -> None:
    from agentbridge.providers import configured_model
    from evi_site.postgres.base import embedded_cluster
    from evi_site.preparation import DatabaseAwayError, prepare_database

    try:
        configured_model()
    except UserError as error:
        raise ServerError(f"EVI_MODEL={settings.EVI.model} cannot be used: {error}") from error
    listener = listen(port)
    say("Preparing the database …")
    try:
        accounts = prepare_database(verbosity=0)
    except DatabaseAwayError as error:
        raise ServerError(str(error)) from error
    # This process only watches from here on.
    connection.close()
    connection.close_pool()  # type: ignore[attr-defined]  # only EVI's engine has one
    cluster = embedded_cluster()
    verbosity = "1" if settings.EVI.log_level == "DEBUG" else "0"
    with ExitStack() as stack:
        if cluster:
            # Processes of the worker that had to be killed may take a moment to let go.
            stack.callback(cluster.leave, patience=1)
        socket_number = str(listener.fileno())
        web = Child(
            "web server",
            *("-m", "daphne", "-v", verbosity, "--fd", socket_number),
            # Else daphne hangs up at a megabyte, whatever may be sent to the other surfaces.
            *(f"--websocket-max-{what}-size={settings.EVI.max_body_bytes}" for what in ("message", "frame")),
            "evi_site.asgi:application",
            files=(listener.fileno(),),
        )
        worker = Worker("worker", "manage.py", "qcluster")
        children = [stack.enter_context(worker), stack.enter_context(web)]
        wait_until_ready(web, port=port)
        announce(port=port, made=accounts)
        while True:
            time.sleep(0.5)
            if cluster and not cluster.is_running():
                say("The database stopped; starting it again.")
                cluster.ensure_running()
            for child in children:
                child.keep_alive()


def listen(port: int) -> socket.socket:
    """Take the port. It stays taken while the web server is started again: who calls in between waits a moment."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((HOST, port))
        listener.listen(128)
    except PermissionError:
        raise ServerError(f"Port {port} is reserved for root. Choose another: script/server --port 8000") from None
    except OSError:
        raise ServerError(
            f"Port {port} is in use. Stop what uses it, or choose another: script/server --port {port % 65535 + 1}"
        ) from None
    return listener


def wait_until_ready(web: Child, *, port: int) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        web.keep_alive()
        try:
            # Straight to this machine, whatever proxy the environment names.
            opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
            opener.open(f"http://{HOST}:{port}/readyz", timeout=5).close()
        except urllib.error.HTTPError as error:
            if error.code >= 500 and error.code != 503:
                raise ServerError("The web server fails; what it said is above.") from error
            time.sleep(0.1)
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise ServerError(f"The web server did not become ready within {START_SECONDS} seconds.")


def announce(*, port: int, made: "FirstAccounts") -> None:
    base = f"http://{HOST}:{port}"
    evi = settings.EVI
    kept = evi.secrets_dir or evi.data_dir / "secrets"
    password = f"password: {evi.admin_password}" if made.admin_made else f"first password in {kept}/EVI_ADMIN_PASSWORD"
    api_key = evi.api_key if made.api_key_made else f"first one in {kept}/EVI_API_KEY; more: manage.py create_api_key"
    if evi.env == "production":
        # A log is no place for secrets.
        password, api_key = "the password is yours", "make one with manage.py create_api_key NAME"
    say(
        f"""
EVI is running.

  Start      {base}/
  Admin      {base}/admin/      user: admin, {password}
  API docs   {base}/api/docs/
  API key    {api_key}
  Data       {evi.data_dir}

Press Ctrl-C to stop."""
    )


def say(text: str) -> None:
    print(text, flush=True)


def _interrupt(signum: int, frame: FrameType | None) -> None:
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
        raise KeyboardInterrupt


def _processes_below(pid: int) -> frozenset[int]:
    """The children of a process and theirs; none where the system does not tell."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return frozenset()
    return frozenset().union(map(int, children), *(_processes_below(int(child)) for child in children))


def _end_with_parent() -> None:
    """Ask Linux to end this child when EVI itself is killed and cannot."""
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGTERM)


if __name__ == "__main__":
    main()
