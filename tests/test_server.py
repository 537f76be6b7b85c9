"""`script/server` as people use it: started from a shell, stopped with Ctrl-C, killed at bad moments."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

import psycopg
import pytest
from django.test import Client

from evi_site import health
from evi_site.environment import BASE_DIR
from evi_site.postgres.cluster import Cluster
from tests.processes import free_port, wait_for


def processes(data_dir: Path) -> dict[int, str]:
    """All that runs for one data folder: process numbers with what they were started as."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            environment = (folder / "environ").read_bytes().split(b"\0")
            command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
        except OSError:
            continue
        database = str((data_dir / "postgres" / "data").resolve())
        if command and (f"EVI_DATA_DIR={data_dir}".encode() in environment or database in command):
            found[int(folder.name)] = command
    return found


class Server:
    """One `script/server` in a data folder of its own."""

    started: ClassVar[list["Server"]] = []

    def __init__(self, data_dir: Path, *arguments: str, cwd: Path, **variables: str) -> None:
        self.data_dir = data_dir
        self.port = free_port()
        self.process = subprocess.Popen(
            [BASE_DIR / "script" / "server", *(arguments or ("--port", str(self.port)))],
            env={
                "PATH": os.environ["PATH"],
                "HOME": str(cwd),
                "EVI_DATA_DIR": str(data_dir),
                # It takes a few seconds, and few of these tests ask for anything that it knows.
                "EVI_SAMPLE": "false",
                **variables,
            },
            cwd=cwd,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.said = ""
        self.started.append(self)

    def wait_until_announced(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            self.said += line
            if "Press Ctrl-C" in line:
                return
        pytest.fail(f"The server ended before it was ready: {self.said}")

    def get(self, path: str) -> int:
        try:
            straight = urllib.request.build_opener(urllib.request.ProxyHandler({}))
            with straight.open(f"http://127.0.0.1:{self.port}{path}", timeout=10) as response:
                return int(response.status)
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return 0

    def chat(self, query: str) -> int:
        body = json.dumps({"query": query}).encode()
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/chat", body, headers={"Content-Type": "application/json"}
        )
        try:
            with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=20) as response:
                return int(response.status)
        except (OSError, urllib.error.HTTPError):
            return 0

    def stop(self, how: signal.Signals = signal.SIGINT) -> int:
        self.process.send_signal(how)
        rest, _ = self.process.communicate(timeout=180)
        self.said += rest
        return self.process.returncode

    def connect(self) -> psycopg.Connection:
        at = Cluster(self.data_dir / "postgres").address()
        return psycopg.connect(
            host=at.host, port=at.port, user=at.user, password=at.password, dbname="evi", autocommit=True
        )

    def pid_of(self, what: str) -> int:
        # A forked child has its parent's command line; the parent leads their group.
        found = processes(self.data_dir).items()
        [leader] = [pid for pid, command in found if what in command and os.getpgid(pid) == pid]
        return leader

    def runs(self, what: str, *, other_than: int = 0) -> bool:
        # A leader, because what it forked lives on for a moment.
        found = processes(self.data_dir).items()
        return any(what in command and pid != other_than and _leads(pid) for pid, command in found)


def _leads(pid: int) -> bool:
    try:
        return os.getpgid(pid) == pid
    except ProcessLookupError:
        return False


@pytest.fixture
def data_dir(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "data folder"
    yield folder
    # After a failure: what it left running, and the pipes of it.
    for pid in processes(folder):
        os.kill(pid, signal.SIGKILL)
    for server in Server.started:
        if server.process.stdout and not server.process.stdout.closed:
            server.process.communicate()
    Server.started.clear()
    Cluster(folder / "postgres").erase()


def test_it_answers_announces_itself_and_stops_without_a_trace(data_dir: Path, tmp_path: Path) -> None:
    first = Server(data_dir, cwd=tmp_path)
    first.wait_until_announced()
    assert [first.get(path) for path in ("/healthz", "/readyz", "/", "/api/docs/", "/admin/login/")] == [200] * 5
    secrets = {path.name: path.read_text() for path in (data_dir / "secrets").iterdir()}
    assert secrets["EVI_ADMIN_PASSWORD"] in first.said
    assert secrets["EVI_API_KEY"] in first.said
    assert f"http://127.0.0.1:{first.port}/admin/" in first.said
    assert all(first.runs(what) for what in ("daphne", "qcluster", "postgres"))
    assert all(first.runs(f"--websocket-max-{what}-size=20000000") for what in ("message", "frame"))
    # Who presses again while it stops leaves no more behind.
    threading.Timer(0.3, first.process.send_signal, [signal.SIGINT]).start()
    assert first.stop(signal.SIGINT) == 0
    assert first.said.rstrip().endswith("EVI has stopped.")
    assert processes(data_dir) == {}

    # The second time it tells where the secrets are instead, and SIGTERM is as good as Ctrl-C.
    second = Server(data_dir, cwd=tmp_path)
    second.wait_until_announced()
    assert secrets["EVI_ADMIN_PASSWORD"] not in second.said
    assert f"{data_dir}/secrets/EVI_ADMIN_PASSWORD" in second.said
    assert second.stop(signal.SIGTERM) == 0
    assert processes(data_dir) == {}


@pytest.mark.ac("AC-FEAT-008-006")
@pytest.mark.ac("AC-FEAT-008-203")
def test_every_acknowledged_row_survives_a_kill_of_everything_in_mid_write(data_dir: Path, tmp_path: Path) -> None:
    server = Server(data_dir, cwd=tmp_path)
    server.wait_until_announced()
    acknowledged = []
    # They write until the server is dead, so the kill comes in mid-write.
    insert = "INSERT INTO sessions (user_id) VALUES ('kept') RETURNING id"

    def write() -> None:
        with suppress(psycopg.OperationalError), server.connect() as connection:
            while row := connection.execute(insert).fetchone():
                acknowledged.append(row[0])

    writers = [threading.Thread(target=write) for _ in range(4)]
    for writer in writers:
        writer.start()
    wait_for(lambda: len(acknowledged) > 500)
    for pid in processes(data_dir):
        os.kill(pid, signal.SIGKILL)
    for writer in writers:
        writer.join()
    server.process.communicate()
    wait_for(lambda: not processes(data_dir))

    again = Server(data_dir, cwd=tmp_path)
    again.wait_until_announced()
    with again.connect() as connection:
        kept = {row[0] for row in connection.execute("SELECT id FROM sessions")}
    assert kept.issuperset(acknowledged)
    assert again.stop() == 0


def test_a_model_that_does_not_exist_is_named_at_the_start(data_dir: Path, tmp_path: Path) -> None:
    server = Server(data_dir, cwd=tmp_path, EVI_MODEL="nonsense")
    said, _ = server.process.communicate(timeout=60)
    assert server.process.returncode == 1
    assert said.splitlines()[-1].startswith("EVI cannot run: EVI_MODEL=nonsense cannot be used")


def test_what_dies_is_started_again(data_dir: Path, tmp_path: Path) -> None:
    server = Server(data_dir, cwd=tmp_path)
    server.wait_until_announced()
    for what in ("daphne", "qcluster", "postgres"):
        killed = server.pid_of(what)
        os.kill(killed, signal.SIGKILL)
        wait_for(lambda killed=killed, what=what: server.runs(what, other_than=killed))  # type: ignore[misc]
        wait_for(lambda: server.get("/readyz") == 200)
    wait_for(lambda: server.get("/readyz") == 200)
    assert server.stop() == 0
    assert processes(data_dir) == {}
    # The database may be started again by whoever misses it first.
    assert set(re.findall(r"The (\S+).* stopped", server.said)) >= {"web", "worker"}


def test_a_database_that_comes_back_on_another_port_is_found(data_dir: Path, tmp_path: Path) -> None:
    server = Server(data_dir, cwd=tmp_path)
    server.wait_until_announced()
    assert server.chat("hallo") == 200
    # Everything stands still while the database dies and somebody takes its port.
    standing = [pid for pid, command in processes(data_dir).items() if "postgres" not in command]
    for pid in standing:
        os.kill(pid, signal.SIGSTOP)
    killed = server.pid_of("postgres")
    os.kill(killed, signal.SIGKILL)
    wait_for(lambda: killed not in processes(data_dir))
    with socket.socket() as squatter:
        squatter.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        squatter.bind(("127.0.0.1", int((data_dir / "postgres" / "port").read_text())))
        squatter.listen()
        for pid in standing:
            os.kill(pid, signal.SIGCONT)
        wait_for(lambda: server.chat("nog eens") == 200, seconds=60)
    assert server.stop() == 0


def test_a_worker_whose_inside_was_killed_is_started_again_as_a_whole(data_dir: Path, tmp_path: Path) -> None:
    server = Server(data_dir, cwd=tmp_path)
    server.wait_until_announced()
    before = {pid for pid, command in processes(data_dir).items() if "qcluster" in command}
    # All are there, and the server has seen them.
    wait_for(lambda: len([c for c in processes(data_dir).values() if "qcluster" in c]) >= 6)
    time.sleep(1)
    inside = [pid for pid, c in processes(data_dir).items() if "qcluster" in c and os.getpgid(pid) != pid]
    os.kill(max(inside), signal.SIGKILL)
    wait_for(lambda: server.runs("qcluster") and not before & processes(data_dir).keys(), seconds=60)
    assert server.stop() == 0
    assert "The worker lost a process and is stopped; starting it again." in server.said
    assert processes(data_dir) == {}


def test_when_the_server_itself_is_killed_its_processes_end_too(data_dir: Path, tmp_path: Path) -> None:
    server = Server(data_dir, cwd=tmp_path)
    server.wait_until_announced()
    server.process.kill()
    server.process.communicate()
    wait_for(lambda: not processes(data_dir))


def test_of_two_servers_on_one_port_the_second_says_that_it_is_taken(data_dir: Path, tmp_path: Path) -> None:
    port = str(free_port())
    servers = [Server(data_dir, "--port", port, cwd=tmp_path) for _ in range(2)]
    wait_for(lambda: any(server.process.poll() is not None for server in servers))
    [refused] = [server for server in servers if server.process.poll() is not None]
    [other] = [server for server in servers if server is not refused]
    assert f"Port {port} is in use" in refused.process.communicate()[0]
    other.wait_until_announced()
    assert other.stop() == 0


def test_two_servers_on_one_data_folder_share_the_database(data_dir: Path, tmp_path: Path) -> None:
    servers = [Server(data_dir, cwd=tmp_path), Server(data_dir, cwd=tmp_path)]
    for server in servers:
        server.wait_until_announced()
    assert servers[0].stop() == 0
    assert servers[1].get("/readyz") == 200
    assert servers[1].stop() == 0
    assert processes(data_dir) == {}


def test_a_port_that_is_taken_is_one_clear_sentence(data_dir: Path, tmp_path: Path) -> None:
    with socket.socket() as squatter:
        squatter.bind(("127.0.0.1", 0))
        squatter.listen()
        port = squatter.getsockname()[1]
        server = Server(data_dir, "--port", str(port), cwd=tmp_path)
        said, _ = server.process.communicate(timeout=60)
    assert server.process.returncode == 1
    assert said == (
        f"EVI cannot run: Port {port} is in use. Stop what uses it, "
        f"or choose another: script/server --port {port % 65535 + 1}\n"
    )
    assert processes(data_dir) == {}


def test_a_database_that_cannot_be_started_again_ends_the_server_with_a_sentence(
    data_dir: Path, tmp_path: Path
) -> None:
    server = Server(data_dir, cwd=tmp_path)
    server.wait_until_announced()
    killed = server.pid_of("postgres")
    shutil.rmtree(data_dir / "postgres" / "data" / "global")
    os.kill(killed, signal.SIGKILL)
    said, _ = server.process.communicate(timeout=60)
    assert server.process.returncode == 1
    assert "EVI cannot run: The embedded PostgreSQL failed" in said
    assert "global" in said.splitlines()[-1]
    assert processes(data_dir) == {}


@pytest.mark.parametrize("arguments", [("--port", "http"), ("--port", "0"), ("--port", ""), ("--fast",), ("more",)])
def test_a_wrong_argument_is_refused_before_anything_starts(
    arguments: tuple[str, ...], data_dir: Path, tmp_path: Path
) -> None:
    server = Server(data_dir, *arguments, cwd=tmp_path)
    said, _ = server.process.communicate(timeout=60)
    assert server.process.returncode == 2
    assert "argument --port: " in said or "unrecognized arguments" in said
    assert "Traceback" not in said
    assert not (data_dir / "postgres").exists()


def test_a_database_that_is_away_is_one_clear_sentence(data_dir: Path, tmp_path: Path) -> None:
    url = f"postgresql://evi:nowhere@127.0.0.1:{free_port()}/evi"
    server = Server(data_dir, cwd=tmp_path, DATABASE_URL=url)
    said, _ = server.process.communicate(timeout=60)
    assert server.process.returncode == 1
    assert "Traceback" not in said
    assert said.splitlines()[-1].startswith("EVI cannot run: the database does not answer")


def test_readyz_tells_when_the_database_is_away_and_healthz_does_not_care(data_dir: Path, tmp_path: Path) -> None:
    cluster = Cluster(data_dir / "postgres")
    at = cluster.ensure_running()
    server = Server(
        data_dir, cwd=tmp_path, DATABASE_URL=f"postgresql://{at.user}:{at.password}@{at.host}:{at.port}/evi"
    )
    server.wait_until_announced()
    assert (server.get("/healthz"), server.get("/readyz")) == (200, 200)
    cluster.leave()
    assert (server.get("/healthz"), server.get("/readyz")) == (200, 503)
    cluster.ensure_running()
    assert (server.get("/healthz"), server.get("/readyz")) == (200, 200)
    assert server.stop() == 0
    cluster.leave()


@pytest.mark.django_db
def test_readyz_tells_when_the_database_is_not_up_to_date(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    assert client.get("/readyz").status_code == 200
    monkeypatch.setattr(health, "_needed_migrations", lambda: {("conversations", "9999_of_tomorrow")})
    response = client.get("/readyz")
    assert response.status_code == 503
    assert response.json()["detail"] == "The database is not up to date: manage.py prepare_database"
