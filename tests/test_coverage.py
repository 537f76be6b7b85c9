"""How much of the session code the tests run: measured by `script/test`, in their own process and in EVI's."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from evi_site.environment import BASE_DIR


def said_to_pytest(project: Path, *arguments: str) -> list[str]:
    """What `script/test` hands to pytest, in a project whose checks all pass."""
    (project / "script").mkdir()
    shutil.copy(BASE_DIR / "script" / "test", project / "script")
    programs = project / ".venv" / "bin"
    programs.mkdir(parents=True)
    for path in [project / "script" / "setup", *(programs / name for name in ("ruff", "mypy", "python", "pytest"))]:
        path.write_text('#!/bin/sh\n[ "${0##*/}" != pytest ] || echo "$@"\n')
        path.chmod(0o755)
    ran = subprocess.run([project / "script" / "test", *arguments], capture_output=True, text=True, check=True)
    return ran.stdout.split()


@pytest.mark.ac("AC-FEAT-008-401")
def test_all_tests_together_fail_below_90_percent(tmp_path: Path) -> None:
    assert "--cov-fail-under=90" in said_to_pytest(tmp_path)


def test_some_of_the_tests_are_not_measured(tmp_path: Path) -> None:
    assert said_to_pytest(tmp_path, "-k", "cleanup") == ["-k", "cleanup"]


@pytest.mark.ac("AC-FEAT-008-401")
def test_what_runs_in_another_process_counts_too(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'import conversations.errors'])\n"
    )
    report = tmp_path / "report.json"
    environment = {"PATH": os.environ["PATH"], "COVERAGE_FILE": str(tmp_path / "data")}
    for arguments in (["run", str(program)], ["combine"], ["json", "-o", str(report)]):
        subprocess.run([sys.executable, "-m", "coverage", *arguments], cwd=BASE_DIR, env=environment, check=True)
    assert json.loads(report.read_text())["files"]["conversations/errors.py"]["summary"]["covered_lines"] > 0
