"""Makes .venv hold what the lock file says; standard library only, because nothing else is there yet."""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
NEEDED_MB = 700


class SetupError(Exception):
    """Something only a person can put right; the message says what."""


def main() -> None:
    lock_file = ROOT / ("requirements-dev.txt" if "--dev" in sys.argv[1:] else "requirements.txt")
    try:
        # Two commands started at once share one environment: the second waits for the first.
        with (ROOT / ".venv.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not is_installed(lock_file):
                make_room()
                make_venv()
                install(lock_file)
    except SetupError as problem:
        sys.exit(str(problem))
    except KeyboardInterrupt:
        sys.exit("Interrupted. The next start goes on with it.")
    except OSError as problem:
        sys.exit(f"Cannot set up {ROOT}: {problem.strerror} ({problem.filename or VENV}).")


def stamp(lock_file: Path) -> Path:
    return VENV / f"{lock_file.stem}.installed"


def fingerprint(lock_file: Path) -> str:
    return hashlib.sha256(lock_file.read_bytes()).hexdigest()


def is_installed(lock_file: Path) -> bool:
    try:
        if stamp(lock_file).read_text() != fingerprint(lock_file):
            return False
    except FileNotFoundError:
        return False
    return venv_runs()


def venv_runs() -> bool:
    """Whether .venv still works: it breaks when the Python it was made from goes, and when the project moves."""
    check = "import sys, pip; sys.exit(sys.version_info < (3, 11))"
    pip = VENV / "bin" / "pip"
    return (
        pip.exists()
        and str(VENV) in pip.read_text()
        and subprocess.run([PYTHON, "-c", check], capture_output=True).returncode == 0
    )


def make_room() -> None:
    free_mb = shutil.disk_usage(ROOT).free // 2**20
    if free_mb < NEEDED_MB:
        raise SetupError(f"Not enough disk space: EVI needs {NEEDED_MB} MB in {ROOT}, {free_mb} MB are free.")


def make_venv() -> None:
    if venv_runs():
        return
    say("Making the virtual environment …")
    made = subprocess.run([sys.executable, "-m", "venv", "--clear", VENV], capture_output=True, text=True)
    if made.returncode:
        raise SetupError(
            f"{sys.executable} could not make a virtual environment. On Debian and Ubuntu: "
            f"apt install python3-venv. It said: {last_line(made.stdout + made.stderr)}"
        )


def install(lock_file: Path) -> None:
    total = sum("==" in line for line in lock_file.read_text().splitlines())
    say(f"Installing {total} packages (the first time takes a minute or two) …")
    pip_install = [str(PYTHON), "-m", "pip", "install", "--disable-pip-version-check", "--require-hashes"]
    pip_install += ["-r", str(lock_file)]
    with subprocess.Popen(pip_install, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as pip:
        assert pip.stdout
        said = []
        found = 0
        for line in pip.stdout:
            said.append(line)
            if line.startswith(("Collecting ", "Requirement already satisfied")):
                found += 1
                progress(f"{found}/{total}")
            elif line.startswith("Installing collected"):
                progress("unpacking …")
    progress("")
    if pip.returncode:
        problem = next((line.strip() for line in reversed(said) if "ERROR" in line), last_line("".join(said)))
        raise SetupError(f"Could not install the dependencies: {problem}")
    # The lock file for developing holds all of the one for running.
    for installed in {lock_file, ROOT / "requirements.txt"}:
        stamp(installed).write_text(fingerprint(installed))


def last_line(text: str) -> str:
    return text.strip().rpartition("\n")[2]


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def progress(text: str) -> None:
    if sys.stderr.isatty():
        # Wide enough for what is written here, on any terminal.
        print(f"\r{text:20}\r", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
