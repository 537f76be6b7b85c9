"""The scripts before there is an environment, and the commands that stand on it."""

import os
import re
import shutil
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest

from evi_site.environment import BASE_DIR
from evi_site.postgres.cluster import Cluster


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of what the set-up needs, in a folder with a space in its name."""
    root = tmp_path / "my projects" / "evi"
    shutil.copytree(BASE_DIR / "script", root / "script", ignore=shutil.ignore_patterns("__pycache__"))
    (root / "requirements.txt").write_text("")
    return root


def run(*command: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": os.environ["PATH"], **variables}
    return subprocess.run(command, env=environment, cwd="/", capture_output=True, text=True, timeout=120)


def load_set_up(project: Path) -> ModuleType:
    spec = spec_from_file_location("set_up", project / "script" / "environment.py")
    assert spec
    assert spec.loader
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("script", ["server", "test"])
def test_without_a_new_enough_python_there_is_one_clear_sentence(script: str, project: Path, tmp_path: Path) -> None:
    for name in ("dirname", "sh"):
        (tmp_path / name).symlink_to(str(shutil.which(name)))
    old = tmp_path / "python3"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    result = run(project / "script" / script, PATH=str(tmp_path))
    assert result.returncode == 1
    assert result.stderr.startswith("EVI needs Python 3.11 or newer and found none.")
    assert result.stderr.count("\n") == 1
    assert not (project / ".venv").exists()


def test_the_environment_is_made_once_and_is_quick_afterwards(project: Path) -> None:
    first = run(project / "script" / "setup", EVI_PYTHON=sys.executable)
    assert first.returncode == 0, first.stderr
    assert run(project / ".venv" / "bin" / "python", "-c", "import pip").returncode == 0
    second = run(project / "script" / "setup", EVI_PYTHON=sys.executable)
    assert (second.returncode, second.stderr) == (0, "")


def test_two_set_ups_at_once_end_with_one_environment(project: Path) -> None:
    together = [
        subprocess.Popen([project / "script" / "setup"], stderr=subprocess.PIPE, text=True, cwd="/") for _ in range(2)
    ]
    said = [process.communicate(timeout=120)[1] for process in together]
    assert [process.returncode for process in together] == [0, 0]
    assert sorted(text.count("Making the virtual environment") for text in said) == [0, 1]


def test_a_package_that_cannot_be_installed_is_named(project: Path) -> None:
    (project / "requirements.txt").write_text("no-such-package-of-evi @ file:///nowhere --hash=sha256:" + "0" * 64)
    result = run(project / "script" / "setup", EVI_PYTHON=sys.executable)
    assert result.returncode == 1
    assert "Could not install the dependencies: ERROR: " in result.stderr
    assert "Traceback" not in result.stderr
    # Nothing counts as installed, so the next start tries again.
    assert not list((project / ".venv").glob("*.installed"))


def test_a_full_disk_is_one_clear_sentence(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Usage(NamedTuple):
        free: int

    set_up = load_set_up(project)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(free=12 * 2**20))
    monkeypatch.setattr(sys, "argv", ["setup"])
    with pytest.raises(SystemExit, match=r"Not enough disk space: EVI needs 700 MB in .*, 12 MB are free") as end:
        set_up.main()
    assert "\n" not in str(end.value)


def test_stop_has_nothing_to_do_where_evi_never_ran(project: Path) -> None:
    result = run(project / "script" / "stop")
    assert (result.returncode, result.stdout) == (0, "Nothing to stop: EVI was never started here.\n")


def test_stop_ends_a_database_that_was_left_behind(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path / "postgres")
    start_and_die = (
        "import os, pathlib, sys; from evi_site.postgres.cluster import Cluster;"
        "Cluster(pathlib.Path(sys.argv[1])).ensure_running(); os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", start_and_die, cluster.folder], cwd=BASE_DIR)
    try:
        assert cluster.is_running()
        result = run(BASE_DIR / "script" / "stop", EVI_DATA_DIR=str(tmp_path))
        assert (result.returncode, result.stdout) == (0, "Stopped the embedded database.\n")
        assert not cluster.is_running()
        result = run(BASE_DIR / "script" / "stop", EVI_DATA_DIR=str(tmp_path))
        assert (result.returncode, result.stdout) == (0, "The embedded database is not running.\n")
    finally:
        cluster.erase()


def test_stop_leaves_somebody_elses_database_alone(tmp_path: Path) -> None:
    result = run(
        BASE_DIR / "script" / "stop", EVI_DATA_DIR=str(tmp_path), DATABASE_URL="postgresql://evi:x@127.0.0.1:1/evi"
    )
    assert result.returncode == 1
    assert "EVI does not manage the database" in result.stderr


def test_manage_py_starts_and_stops_the_database_by_itself(tmp_path: Path) -> None:
    manage = [BASE_DIR / ".venv" / "bin" / "python", BASE_DIR / "manage.py"]
    try:
        prepared = run(*manage, "prepare_database", "-v0", EVI_DATA_DIR=str(tmp_path), EVI_SAMPLE="false")
        assert (prepared.returncode, prepared.stdout) == (0, "The database is ready.\n")
        shell = run(*manage, "dbshell", "--", "-tAc", "SELECT count(*) FROM sessions", EVI_DATA_DIR=str(tmp_path))
        assert (shell.stdout, shell.stderr) == ("0\n", "")
        assert not Cluster(tmp_path / "postgres").is_running()
    finally:
        Cluster(tmp_path / "postgres").erase()


@pytest.mark.parametrize("command", [["prepare_database"], ["cleanup_sessions"]])
def test_a_command_without_its_database_says_so(command: list[str], tmp_path: Path) -> None:
    manage = [BASE_DIR / ".venv" / "bin" / "python", BASE_DIR / "manage.py"]
    url = "postgresql://evi:x@127.0.0.1:1/evi"
    result = run(*manage, *command, EVI_DATA_DIR=str(tmp_path), DATABASE_URL=url)
    assert result.returncode == 1
    assert re.search("the database does not answer|The database cannot be used", result.stderr)
    assert "Traceback" not in result.stderr
