"""The embedded PostgreSQL, on its own: no Django here."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from evi_site.postgres.cluster import Address, Cluster, ClusterError


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path / "a folder" / "postgres")
    yield cluster
    cluster.erase()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A running server, for tests that only look."""
    cluster = Cluster(tmp_path_factory.mktemp("shared") / "postgres")
    cluster.ensure_running()
    yield cluster
    cluster.erase()


def connect(at: Address, **changes: str) -> psycopg.Connection:
    return psycopg.connect(make_conninfo(at.url(), **changes), autocommit=True)


def pid_of(cluster: Cluster) -> int:
    assert cluster.pid
    return cluster.pid


def in_a_process(cluster: Cluster, code: str) -> subprocess.Popen[str]:
    """Run `code` in a Python of its own, with `cluster` at hand."""
    start = "import pathlib, sys, time; from evi_site.postgres.cluster import Cluster; "
    start += "cluster = Cluster(pathlib.Path(sys.argv[1])); "
    return subprocess.Popen(
        [sys.executable, "-c", start + code, cluster.folder], stdout=subprocess.PIPE, text=True, stdin=subprocess.PIPE
    )


def wait_for_end(pid: int) -> None:
    """Wait until a process is gone or a zombie that nobody has collected."""
    for _ in range(200):
        try:
            if Path(f"/proc/{pid}/cmdline").read_bytes() == b"":
                return
        except FileNotFoundError:
            return
        time.sleep(0.05)
    pytest.fail(f"process {pid} did not end")


def test_a_new_folder_becomes_a_server_with_a_database(shared: Cluster) -> None:
    with connect(shared.ensure_running()) as connection:
        assert connection.execute("SELECT current_database()").fetchone() == ("evi",)
        assert connection.execute("SELECT 'ÉÉN' ILIKE 'één'").fetchone() == (True,)


def test_the_extensions_that_search_needs_are_there(shared: Cluster) -> None:
    with connect(shared.ensure_running()) as connection:
        for extension in ("vector", "pg_trgm", "unaccent"):
            connection.execute(f"CREATE EXTENSION {extension}")
        assert connection.execute("SELECT to_tsvector('dutch', 'valbeveiligingen')::text").fetchone() == (
            "'valbeveil':1",
        )


def test_the_password_is_needed(shared: Cluster) -> None:
    at = shared.ensure_running()
    with pytest.raises(psycopg.OperationalError, match="password"):
        connect(at, password="something else")


def test_the_server_listens_on_loopback_alone(shared: Cluster) -> None:
    with connect(shared.ensure_running()) as connection:
        assert connection.execute("SHOW listen_addresses").fetchone() == ("127.0.0.1",)
        assert connection.execute("SHOW unix_socket_directories").fetchone() == ("",)


def test_the_password_file_is_private(shared: Cluster) -> None:
    shared.ensure_running()
    assert (shared.folder / "password").stat().st_mode & 0o077 == 0
    assert (shared.folder / "data").stat().st_mode & 0o077 == 0


def test_a_second_process_finds_the_same_server(cluster: Cluster) -> None:
    at = cluster.ensure_running()
    other = in_a_process(cluster, "print(cluster.ensure_running().port)")
    assert other.communicate(timeout=60)[0].strip() == str(at.port)


def test_the_server_outlives_all_but_the_last_process(cluster: Cluster) -> None:
    """`manage.py` beside a running server must not take its database away, nor leave one behind."""
    first = in_a_process(cluster, "cluster.ensure_running(); print('up', flush=True); sys.stdin.read()")
    assert first.stdout
    assert first.stdout.readline() == "up\n"
    second = in_a_process(cluster, "cluster.ensure_running()")
    second.communicate(timeout=60)
    assert cluster.is_running()
    first.communicate(timeout=60)
    assert not cluster.is_running()


def test_five_processes_starting_at_once_end_with_one_server(cluster: Cluster) -> None:
    code = "cluster.ensure_running(); print((cluster.folder / 'data' / 'postmaster.pid').read_text().split()[0]); "
    together = [in_a_process(cluster, code + "sys.stdout.flush(); sys.stdin.read()") for _ in range(5)]
    pids = {process.stdout.readline().strip() for process in together if process.stdout}
    for process in together:
        process.communicate(timeout=60)
    assert len(pids) == 1
    assert pids != {""}


def test_what_was_committed_survives_a_kill(cluster: Cluster) -> None:
    with connect(cluster.ensure_running()) as connection:
        connection.execute("CREATE TABLE kept (number int)")
        connection.execute("INSERT INTO kept SELECT generate_series(1, 1000)")
        killed = pid_of(cluster)
        os.kill(killed, signal.SIGKILL)
    wait_for_end(killed)
    with connect(cluster.ensure_running()) as connection:
        assert connection.execute("SELECT count(*) FROM kept").fetchone() == (1000,)


def test_the_port_stays_the_same_over_restarts(cluster: Cluster) -> None:
    """A web process that lost its server finds it again where it was."""
    port = cluster.ensure_running().port
    killed = pid_of(cluster)
    os.kill(killed, signal.SIGKILL)
    wait_for_end(killed)
    assert cluster.ensure_running().port == port


def test_another_port_is_taken_when_the_old_one_is_gone(cluster: Cluster) -> None:
    port = cluster.ensure_running().port
    cluster.leave()
    with socket.socket() as squatter:
        squatter.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        squatter.bind(("127.0.0.1", port))
        squatter.listen()
        assert cluster.ensure_running().port != port


def test_a_pid_file_of_before_a_power_cut_is_no_obstacle(cluster: Cluster) -> None:
    cluster.ensure_running()
    lines = (cluster.folder / "data" / "postmaster.pid").read_text().splitlines()
    cluster.leave()
    # After a reboot the number of the old server belongs to some other program: here, to this one.
    lines[0] = str(os.getpid())
    (cluster.folder / "data" / "postmaster.pid").write_text("\n".join(lines) + "\n")
    assert not cluster.is_running()
    connect(cluster.ensure_running()).close()


def test_a_start_that_was_killed_half_way_is_taken_up_again(cluster: Cluster) -> None:
    (cluster.folder / "data.new").mkdir(parents=True)
    (cluster.folder / "data.new" / "PG_VERSION").write_text("18\n")
    connect(cluster.ensure_running()).close()


def test_stop_leaves_a_server_in_use_alone(shared: Cluster) -> None:
    with pytest.raises(ClusterError, match="in use"):
        Cluster(shared.folder).stop()
    assert shared.is_running()


def test_stop_stops_a_server_left_behind(cluster: Cluster) -> None:
    owner = in_a_process(cluster, "cluster.ensure_running(); print('up', flush=True); sys.stdin.read()")
    assert owner.stdout
    owner.stdout.readline()
    owner.kill()
    owner.communicate()
    assert cluster.is_running()
    assert cluster.stop()
    assert not cluster.is_running()
    assert not cluster.stop()


def test_a_server_that_is_just_stopping_is_started_again(cluster: Cluster) -> None:
    with connect(cluster.ensure_running()):
        # It waits for this connection to end, and takes no others meanwhile.
        os.kill(pid_of(cluster), signal.SIGTERM)
        waiting = in_a_process(cluster, "print(cluster.ensure_running().port)")
        with pytest.raises(subprocess.TimeoutExpired):
            waiting.wait(1)
    assert waiting.communicate(timeout=60)[0].strip() == str(cluster.address().port)


def test_a_forked_child_makes_its_own_claim_and_blocks_nobody(cluster: Cluster) -> None:
    fork = (
        "import os; cluster.ensure_running(); child = os.fork()\n"
        # Without the parent's output, or whoever reads that waits for the child as well.
        "if not child: os.close(1); os.close(2); time.sleep(30); os._exit(0)\n"
        "print(child, flush=True)"
    )
    parent = in_a_process(cluster, fork)
    child = int(parent.communicate(timeout=60)[0])
    assert not cluster.is_running()
    cluster.ensure_running()
    os.kill(child, signal.SIGKILL)


def test_the_locks_are_private(shared: Cluster) -> None:
    """Or any account on the machine could take them and keep EVI waiting."""
    assert [(shared.folder / name).stat().st_mode & 0o077 for name in ("lock", "users")] == [0, 0]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a small disk")
def test_a_full_disk_is_one_clear_sentence(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=20m", "tmpfs", disk], capture_output=True).returncode:
        pytest.skip("this machine lets nobody mount a disk")
    tmp_path.chmod(0o711)
    for parent in tmp_path.parents:
        # Folders of this run; with several processes there is one more between them.
        if parent.name.startswith(("pytest-", "popen-")):
            parent.chmod(0o711)
    cluster = Cluster(disk / "postgres")
    try:
        with pytest.raises(ClusterError) as problem:
            cluster.ensure_running()
        assert str(problem.value) == f"The disk that holds {cluster.folder} is full. Make room, then start again."
    finally:
        cluster.erase()
        subprocess.run(["umount", "--lazy", disk], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="as another user there is nothing to gain")
def test_a_link_in_the_place_of_the_pid_file_leads_nowhere(cluster: Cluster, tmp_path: Path) -> None:
    cluster.ensure_running()
    cluster.leave()
    precious = tmp_path / "of root"
    precious.write_text("precious\n" * 8)
    (cluster.folder / "data" / "postmaster.pid").symlink_to(precious)
    with pytest.raises(OSError, match="symbolic links"):
        cluster.ensure_running()
    assert precious.read_text() == "precious\n" * 8
    (cluster.folder / "data" / "postmaster.pid").unlink()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can hand a folder to somebody else")
def test_a_folder_of_another_user_is_refused(cluster: Cluster) -> None:
    cluster.folder.mkdir(parents=True)
    os.chown(cluster.folder, 12345, 12345)
    with pytest.raises(ClusterError, match="belongs to another user"):
        cluster.ensure_running()
    os.chown(cluster.folder, 0, 0)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has to become somebody else")
class TestAsRoot:
    def test_the_server_runs_as_nobody(self, shared: Cluster) -> None:
        assert Path(f"/proc/{pid_of(shared)}").stat().st_uid != 0

    def test_below_a_private_folder_the_files_go_elsewhere_and_nothing_is_opened(
        self, cluster: Cluster, tmp_path: Path
    ) -> None:
        tmp_path.chmod(0o700)
        cluster.ensure_running()
        elsewhere = (cluster.folder / "data").resolve()
        assert elsewhere.is_relative_to("/var/lib/evi")
        assert tmp_path.stat().st_mode & 0o077 == 0
        cluster.erase()
        assert not elsewhere.exists()
