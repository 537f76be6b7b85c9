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
from contextlib import ExitStack, suppress
from types import FrameType
from typing import Self

import django
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import connections

from evi_site.environment import BASE_DIR

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

    def __init__(self, name: str, *arguments: str) -> None:
        self.name = name
        self.command = [sys.executable, *arguments]
        self.short_lives = 0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(STOP_SECONDS)
        self.end_group()
        self.process.wait()

    def start(self) -> None:
        self.started = time.monotonic()
        # In a group of its own, because Ctrl-C reaches the whole group of the terminal and each child is
        # stopped in order instead.
        self.process = subprocess.Popen(
            self.command,
            cwd=BASE_DIR,
            start_new_session=True,
            preexec_fn=_end_with_parent,
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


def main() -> None:
    parser = argparse.ArgumentParser(prog="script/server", description="Start EVI and keep it running until Ctrl-C.")
    parser.add_argument("--port", help="where to listen on this machine (default: EVI_PORT, or 8000)")
    arguments = parser.parse_args()
    if arguments.port is not None:
        os.environ["EVI_PORT"] = arguments.port
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "evi_site.settings")
    signal.signal(signal.SIGTERM, _interrupt)
    signal.signal(signal.SIGHUP, _interrupt)
    try:
        django.setup()
        run(port=settings.EVI.port)
    except KeyboardInterrupt:
        say("EVI has stopped.")
    except (ServerError, ImproperlyConfigured) as error:
        sys.exit(f"EVI cannot run: {error}")


def run(*, port: int) -> None:
    from evi_site.postgres.base import embedded_cluster
    from evi_site.preparation import DatabaseAwayError, prepare_database

    check_port_is_free(port)
    say("Preparing the database …")
    try:
        accounts = prepare_database(verbosity=0)
    except DatabaseAwayError as error:
        raise ServerError(str(error)) from error
    # This process only watches from here on.
    connections.close_all()
    cluster = embedded_cluster()
    verbosity = "1" if settings.EVI.log_level == "DEBUG" else "0"
    with ExitStack() as stack:
        if cluster:
            stack.callback(cluster.leave)
        web = Child(
            "web server", "-m", "daphne", "-v", verbosity, "-b", HOST, "-p", str(port), "evi_site.asgi:application"
        )
        worker = Child("worker", "manage.py", "qcluster")
        children = [stack.enter_context(worker), stack.enter_context(web)]
        wait_until_ready(web, port=port)
        announce(port=port, show_secrets=accounts.admin_made or accounts.api_key_made)
        while True:
            time.sleep(0.5)
            if cluster and not cluster.is_running():
                say("The database stopped; starting it again.")
                cluster.ensure_running()
            for child in children:
                child.keep_alive()


def check_port_is_free(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except PermissionError:
            raise ServerError(f"Port {port} is reserved for root. Choose another: script/server --port 8000") from None
        except OSError:
            raise ServerError(
                f"Port {port} is in use. Stop what uses it, or choose another: script/server --port {port % 65535 + 1}"
            ) from None


def wait_until_ready(web: Child, *, port: int) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        web.keep_alive()
        try:
            # Straight to this machine, whatever proxy the environment names.
            opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
            opener.open(f"http://{HOST}:{port}/readyz", timeout=5).close()
        except (OSError, urllib.error.HTTPError):
            time.sleep(0.1)
        else:
            return
    raise ServerError(f"The web server did not become ready within {START_SECONDS} seconds.")


def announce(*, port: int, show_secrets: bool) -> None:
    base = f"http://{HOST}:{port}"
    kept = settings.EVI.secrets_dir or settings.EVI.data_dir / "secrets"
    password = settings.EVI.admin_password if show_secrets else f"the password is in {kept / 'EVI_ADMIN_PASSWORD'}"
    api_key = settings.EVI.api_key if show_secrets else f"in {kept / 'EVI_API_KEY'}"
    say(
        f"""
EVI is running.

  Start      {base}/
  Admin      {base}/admin/      user: admin, {"password: " if show_secrets else ""}{password}
  API docs   {base}/api/docs/
  API key    {api_key}
  Data       {settings.EVI.data_dir}

Press Ctrl-C to stop."""
    )


def say(text: str) -> None:
    print(text, flush=True)


def _interrupt(signum: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _end_with_parent() -> None:
    """Ask Linux to end this child when EVI itself is killed and cannot."""
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGTERM)


if __name__ == "__main__":
    main()
