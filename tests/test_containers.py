"""The image and docker-compose.yml: read as files, and their commands run without Docker."""

import fnmatch
import importlib.util
import json
import os
import re
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
import yaml
from django.core.management import get_commands

from evi_site.container_secrets import make_container_secrets
from evi_site.environment import BASE_DIR, Environment

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
# Made by the Dockerfile; all others come from elsewhere.
IMAGE = "evi:local"
SECRETS = {"EVI_SECRET_KEY", "EVI_ADMIN_PASSWORD", "EVI_API_KEY", "DATABASE_URL"}


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


def test_openwebui_is_wired_to_evi() -> None:
    told = SERVICES["openwebui"]["environment"]
    port = SERVICES["web"]["ports"][0].rsplit(":")[-1]
    assert told["OPENAI_API_BASE_URL"] == f"http://web:{port}/v1"
    [connection] = json.loads(told["OPENAI_API_CONFIGS"]).values()
    assert connection["headers"]["X-Task"] == "{{TASK}}"
    assert told["ENABLE_FORWARD_USER_INFO_HEADERS"] == "true"
    # Both have the same secret or neither, or EVI would refuse everybody.
    assert told["FORWARD_USER_INFO_HEADER_JWT_SECRET"] == "${EVI_OPENWEBUI_JWT_SECRET:-}"
    assert "EVI_OPENWEBUI_JWT_SECRET" in SERVICES["web"]["environment"]


def test_one_service_builds_the_image_and_the_others_wait_for_it() -> None:
    ours = {name: service for name, service in SERVICES.items() if service["image"] == IMAGE}
    assert set(ours) == {"secrets", "web", "worker"}
    assert [name for name, service in SERVICES.items() if "build" in service] == ["secrets"]
    # Nobody looks for it elsewhere.
    assert {service["pull_policy"] for service in ours.values()} == {"never"}

    def waits_for(name: str) -> set[str]:
        return set().union(*({other} | waits_for(other) for other in SERVICES[name].get("depends_on", ())))

    assert all("secrets" in waits_for(name) for name in ours if name != "secrets")


def test_volumes_that_belong_together_are_named() -> None:
    told, _, _ = COMPOSE_TEXT.partition("\nx-")
    assert all(f"`{volume}`" in told for volume in ("secrets", "postgres_data", "openwebui_data"))
    assert SERVICES["openwebui"]["environment"]["OPENAI_API_BASE_URL"] in told


@pytest.mark.parametrize("text", [COMPOSE_TEXT, DOCKERFILE_TEXT], ids=["docker-compose.yml", "Dockerfile"])
def test_every_variable_is_one_that_evi_reads(text: str) -> None:
    assert set(re.findall(r"\b(?:EVI_[A-Z][A-Z_]*|DATABASE_URL)\b", text)) <= variables()


@pytest.mark.parametrize("service", ["web", "worker"])
def test_every_setting_can_be_set_from_outside(service: str) -> None:
    decided_here = SECRETS | {"EVI_DEBUG", "EVI_DATA_DIR", "EVI_PORT"}
    # A provider's own variable, which EVI does not read itself.
    of_providers = {"OPENAI_API_KEY"}
    assert variables() - decided_here | of_providers == set(SERVICES[service]["environment"])


def test_no_secret_is_written_down() -> None:
    for name, service in SERVICES.items():
        for variable, value in service.get("environment", {}).items():
            assert variable not in SECRETS, name
            # Without a value it is handed on from outside, as is what another variable holds.
            if value is not None and re.search("PASSWORD|SECRET|KEY|TOKEN", variable):
                assert re.match(r"/run/|/app/|\$\{[A-Z_]+:-\}$", str(value)), f"{name}: {variable}"
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
    assert managed == {"prepare_database", "collectstatic"}
    assert managed <= set(get_commands())
    modules = set(re.findall(r"python -m ([\w.]+)", commands()))
    assert modules == {"daphne", "evi_site.container_secrets", "evi_site.worker"}
    assert [module for module in modules if not importlib.util.find_spec(module)] == []
    assert all((BASE_DIR / script).is_file() for script in re.findall(r"script/\S+", commands()))


def test_secrets_lie_where_the_settings_look_and_belong_to_evi() -> None:
    (making,) = [run for run in instructions("RUN") if "install --directory" in run]
    assert "--owner=evi" in making
    mounts = [v.split(":")[1] for service in SERVICES.values() if service["image"] == IMAGE for v in service["volumes"]]
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
