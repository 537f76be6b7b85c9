"""`script/server`: the database, the web server and the worker together, until Ctrl-C."""

import argparse
import os
import signal
import socket
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

import django
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import connection
from pydantic_ai.exceptions import UserError

from evi_site.postgres.cluster import ClusterError
from evi_site.processes import Child, KeepsStoppingError, Worker, interrupt, say

if TYPE_CHECKING:
    from conversations.accounts import FirstAccounts

HOST = "127.0.0.1"
START_SECONDS = 120


class ServerError(Exception):
    """EVI cannot run; the message says why and what to do."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="script/server", description="Start EVI and keep it running until Ctrl-C.")
    parser.add_argument("--port", type=port_number, help="where to listen on this machine (default: EVI_PORT, or 8000)")
    arguments = parser.parse_args()
    if arguments.port is not None:
        os.environ["EVI_PORT"] = str(arguments.port)
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "evi_site.settings")
    # A shell that starts EVI in the background has it ignore Ctrl-C, and the one who sends it means it.
    for meant in (signal.SIGINT, signal.SIGTERM):
        signal.signal(meant, interrupt)
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        # Not under nohup.
        signal.signal(signal.SIGHUP, interrupt)
    try:
        django.setup()
        run(port=settings.EVI.port)
    except KeyboardInterrupt:
        say("EVI has stopped.")
    except (ServerError, KeepsStoppingError, ClusterError, ImproperlyConfigured) as error:
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
        worker = Worker()
        children = [stack.enter_context(worker), stack.enter_context(web)]
        wait_until_ready(web, port=port)
        announce(port=port, made=accounts)
        stack.callback(begin_to_stop, children)
        while True:
            time.sleep(0.5)
            if cluster and not cluster.is_running():
                say("The database stopped; starting it again.")
                cluster.ensure_running()
            for child in children:
                child.keep_alive()


def begin_to_stop(children: Sequence[Child]) -> None:
    """Tell all of them at once, and the person who waits."""
    say("Stopping; answers under way have some seconds to come to their end …")
    for child in children:
        child.process.terminate()


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


if __name__ == "__main__":
    main()
