"""What EVI reads from the environment, and what it says when something there is wrong."""

import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from evi_site.environment import BASE_DIR, Environment, make_secrets

SECRET = "jH3nVb-5cKq8ZtYw2LrPxGm7DsFa9QeUo4TiBv6NhXy1CzRk0"
SAFE = {
    "EVI_ENV": "production",
    "EVI_SECRET_KEY": SECRET + "EW",
    "EVI_ALLOWED_HOSTS": "evi.example.nl",
    "DATABASE_URL": "postgresql://evi:q8ZtYw2LrPxGm7@127.0.0.1:5432/evi",
}


def manage(*arguments: str, data_dir: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """`manage.py` on a machine with just these variables."""
    environment = {"PATH": os.environ["PATH"], "EVI_DATA_DIR": str(data_dir), **variables}
    return subprocess.run(
        [sys.executable, BASE_DIR / "manage.py", *arguments], env=environment, capture_output=True, text=True
    )


def test_development_needs_no_variable(tmp_path: Path) -> None:
    assert manage("check", data_dir=tmp_path).returncode == 0


def test_production_with_everything_set_is_clean(tmp_path: Path) -> None:
    result = manage("check", "--deploy", "--fail-level", "WARNING", data_dir=tmp_path, **SAFE)
    assert result.returncode == 0, result.stderr
    assert "no issues" in result.stdout


def test_production_says_everything_that_is_missing_at_once(tmp_path: Path) -> None:
    result = manage("check", data_dir=tmp_path, EVI_ENV="production")
    assert result.returncode == 1
    assert [line.split(":")[0] for line in result.stderr.splitlines()] == [
        "EVI cannot start. Put this right",
        "  - EVI_SECRET_KEY",
        "  - EVI_ALLOWED_HOSTS",
        "  - DATABASE_URL",
    ]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("EVI_SECRET_KEY", "short"),
        ("EVI_SECRET_KEY", "a" * 60),
        ("EVI_SECRET_KEY", f"django-insecure-{SECRET}"),
        ("EVI_ALLOWED_HOSTS", "*"),
        ("EVI_ALLOWED_HOSTS", "evi.example.nl,*"),
        ("EVI_ALLOWED_HOSTS", ".nl"),
        ("EVI_ALLOWED_HOSTS", " , "),
        ("EVI_ALLOWED_HOSTS", "127.0.0.1"),
        ("EVI_ALLOWED_HOSTS", "https://evi.example.nl"),
        ("EVI_ALLOWED_HOSTS", "evi.example.nl:443"),
        ("EVI_DEBUG", "true"),
        ("DATABASE_URL", "postgresql://evi:evi@db/evi"),
        ("DATABASE_URL", "postgresql://evi:postgres@db/evi"),
        ("EVI_ADMIN_PASSWORD", "admin"),
        ("EVI_API_KEY", "evi_short"),
    ],
)
def test_production_refuses_what_is_weak_or_open(name: str, value: str, tmp_path: Path) -> None:
    result = manage("check", data_dir=tmp_path, **{**SAFE, name: value})
    assert result.returncode == 1
    assert f"  - {name}: " in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("EVI_ENV", "staging"),
        ("EVI_PORT", "http"),
        ("EVI_PORT", "70000"),
        ("EVI_RETENTION_DAYS", "-1"),
        ("EVI_DEBUG", "perhaps"),
        ("EVI_TIME_ZONE", "Mars/Olympus"),
        ("DATABASE_URL", "mysql://evi@db/evi"),
        ("DATABASE_URL", "postgresql://evi@db:port/evi"),
        ("DATABASE_URL", "postgresql://evi@db/"),
        ("DATABASE_URL", "nonsense"),
    ],
)
def test_a_value_that_makes_no_sense_is_named(name: str, value: str, tmp_path: Path) -> None:
    result = manage("check", data_dir=tmp_path, **{name: value})
    assert result.returncode == 1
    assert f"  - {name}: " in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("url", ["mysql://evi:topsecret-word@db/evi", "postgresql://evi:topsecret/word@db/evi"])
def test_secrets_are_never_repeated_in_a_message(url: str, tmp_path: Path) -> None:
    result = manage("check", data_dir=tmp_path, DATABASE_URL=url)
    assert "topsecret" not in result.stderr


def test_an_empty_variable_is_as_good_as_none(tmp_path: Path) -> None:
    empty = {
        str(field.validation_alias or f"EVI_{name.upper()}"): "" for name, field in Environment.model_fields.items()
    }
    del empty["EVI_DATA_DIR"]
    assert manage("check", data_dir=tmp_path, **empty).returncode == 0


def test_a_home_folder_is_understood_for_data_and_secrets_alike(tmp_path: Path) -> None:
    result = manage("check", data_dir=Path("~/evi"), HOME=str(tmp_path))
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "evi" / "secrets" / "EVI_SECRET_KEY").exists()


def test_a_data_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = manage("check", data_dir=tmp_path / "file" / "data")
    assert result.returncode == 1
    assert result.stderr == f"EVI cannot use its data folder: Not a directory ({tmp_path}/file/data/secrets).\n"


def test_a_file_in_the_secrets_folder_is_as_good_as_a_variable(tmp_path: Path) -> None:
    for name, value in SAFE.items():
        if name != "EVI_ENV":
            (tmp_path / name).write_text(value + "\n")
    result = manage("check", data_dir=tmp_path / "data", EVI_ENV="production", EVI_SECRETS_DIR=str(tmp_path))
    assert result.returncode == 0, result.stderr


def test_production_does_not_use_the_secrets_that_development_left(tmp_path: Path) -> None:
    manage("check", data_dir=tmp_path)
    assert (tmp_path / "secrets" / "EVI_SECRET_KEY").exists()
    result = manage("check", data_dir=tmp_path, **{**SAFE, "EVI_SECRET_KEY": ""})
    assert "  - EVI_SECRET_KEY: " in result.stderr


def test_production_makes_no_secrets_of_its_own(tmp_path: Path) -> None:
    manage("check", data_dir=tmp_path / "data", **SAFE)
    assert not (tmp_path / "data").exists()


def test_first_run_secrets_stay_and_are_private(tmp_path: Path) -> None:
    make_secrets(tmp_path / "secrets")
    first = {path.name: path.read_text() for path in (tmp_path / "secrets").iterdir()}
    make_secrets(tmp_path / "secrets")
    assert {path.name: path.read_text() for path in (tmp_path / "secrets").iterdir()} == first
    assert set(first) == {"EVI_SECRET_KEY", "EVI_ADMIN_PASSWORD", "EVI_API_KEY"}
    assert all(path.stat().st_mode & 0o077 == 0 for path in (tmp_path / "secrets").iterdir())


def test_processes_starting_at_once_agree_on_the_secrets(tmp_path: Path) -> None:
    def make_and_read(_: int) -> str:
        make_secrets(tmp_path)
        return (tmp_path / "EVI_SECRET_KEY").read_text()

    for round_ in range(20):
        with ThreadPoolExecutor(8) as pool:
            assert len(set(pool.map(make_and_read, range(8)))) == 1, f"round {round_}"
        (tmp_path / "EVI_SECRET_KEY").unlink()


def test_the_example_names_every_variable_with_its_default() -> None:
    example = dict(
        line[1:].split("=", 1)
        for line in (BASE_DIR / ".env.example").read_text().splitlines()
        if re.match(r"#[A-Z]", line)
    )
    defaults = {}
    for name, field in Environment.model_fields.items():
        default = field.default
        if isinstance(default, list):
            default = ",".join(default)
        elif isinstance(default, Path):
            default = default.relative_to(BASE_DIR)
        elif isinstance(default, float):
            default = f"{default:g}"
        elif isinstance(default, bool):
            default = str(default).lower()
        defaults[str(field.validation_alias or f"EVI_{name.upper()}")] = "" if default is None else str(default)
    assert example == defaults


def test_every_variable_in_the_example_is_explained() -> None:
    lines = (BASE_DIR / ".env.example").read_text().splitlines()
    unexplained = [
        line
        for before, line in zip(["", *lines], lines, strict=False)
        if re.match(r"#[A-Z]", line) and not before.startswith("# ")
    ]
    assert unexplained == []


def test_only_the_settings_read_the_environment() -> None:
    readers = {
        str(path.relative_to(BASE_DIR))
        for package in ("evi_site", "conversations", "agentbridge")
        for path in (BASE_DIR / package).rglob("*.py")
        if re.search(r"os\.environ|getenv", path.read_text())
    }
    # The programs that start others hand the environment on; they do not look into it.
    hand_on = {"evi_site/asgi.py", "evi_site/server.py", "evi_site/postgres/cluster.py"}
    assert readers == hand_on


@pytest.mark.parametrize(
    ("package", "above"), [("agentbridge", "conversations|evi_site"), ("conversations", "evi_site")]
)
def test_imports_go_one_way(package: str, above: str) -> None:
    backwards = rf"^\s*(from|import) ({above})\b"
    files = (BASE_DIR / package).rglob("*.py")
    assert [path.name for path in files if re.search(backwards, path.read_text(), re.MULTILINE)] == []


def test_the_database_url_replaces_the_embedded_database(tmp_path: Path, database_url: str) -> None:
    code = (
        "from django.db import connection; cursor = connection.cursor();"
        "cursor.execute('SHOW application_name'); print(cursor.fetchone()[0])"
    )
    result = manage(
        "shell", "-v0", "-c", code, data_dir=tmp_path, DATABASE_URL=f"{database_url}?application_name=elsewhere"
    )
    assert result.stdout.strip() == "elsewhere", result.stderr
    assert not (tmp_path / "postgres").exists()
