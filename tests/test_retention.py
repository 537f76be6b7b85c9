"""The clean-up, by all its doors: the function, the command, the schedule and a real worker."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from io import StringIO
from threading import Event

import pytest
from django.core.management import CommandError, call_command
from django.db import connection, transaction
from django.utils import timezone
from django_q.models import Schedule, Success
from pytest_django import Settings

from conversations.models import Message, Session
from conversations.retention import CleanupReport, delete_expired_sessions, preview_cleanup
from conversations.schedules import SCHEDULES, register_schedules
from evi_site.environment import BASE_DIR

MakeSession = Callable[..., Session]


def run_cleanup(*arguments: str) -> str:
    out = StringIO()
    call_command("cleanup_sessions", *arguments, stdout=out)
    return out.getvalue().strip()


@pytest.mark.django_db
class TestFunction:
    @pytest.mark.ac("AC-FEAT-008-205")
    def test_a_session_of_31_days_ago_goes_with_all_its_messages(self, make_session: MakeSession) -> None:
        make_session(messages=4, days_old=31)
        kept = make_session(messages=2, days_old=29)
        assert delete_expired_sessions() == CleanupReport(sessions=1, messages=4)
        assert list(Session.objects.all()) == [kept]
        assert set(Message.objects.values_list("session_id", flat=True)) == {kept.id}

    def test_pinned_sessions_stay(self, make_session: MakeSession) -> None:
        make_session(days_old=400, pinned=True)
        assert delete_expired_sessions() == CleanupReport()

    def test_a_retention_of_zero_keeps_everything(self, make_session: MakeSession, settings: Settings) -> None:
        settings.EVI = settings.EVI.model_copy(update={"retention_days": 0})
        make_session(days_old=4000)
        assert delete_expired_sessions() == CleanupReport()

    def test_what_was_deleted_before_a_failure_stays_deleted(self, make_session: MakeSession) -> None:
        for _ in range(5):
            make_session(messages=1, days_old=40)

        def fail(batch: CleanupReport) -> None:
            raise InterruptedError

        with pytest.raises(InterruptedError):
            delete_expired_sessions(batch_size=2, on_batch=fail)
        assert Session.objects.count() == 3

    def test_all_batches_are_done(self, make_session: MakeSession) -> None:
        for _ in range(7):
            make_session(messages=1, days_old=40)
        batches: list[CleanupReport] = []
        delete_expired_sessions(batch_size=3, on_batch=batches.append)
        assert [batch.sessions for batch in batches] == [3, 3, 1]
        assert not Session.objects.exists()

    def test_the_preview_says_what_will_happen_and_changes_nothing(self, make_session: MakeSession) -> None:
        make_session(messages=3, days_old=40)
        make_session(messages=3)
        preview = preview_cleanup()
        assert Session.objects.count() == 2
        assert delete_expired_sessions() == preview == CleanupReport(sessions=1, messages=3)

    def test_a_batch_of_nothing_is_an_error(self, make_session: MakeSession) -> None:
        make_session(days_old=40)
        with pytest.raises(ValueError, match="batch_size"):
            delete_expired_sessions(batch_size=0)


@pytest.mark.django_db(transaction=True)
def test_a_session_in_use_at_that_moment_stays(make_session: MakeSession) -> None:
    in_use, other = make_session(messages=2, days_old=40), make_session(days_old=40)
    locked, finished = Event(), Event()

    def use() -> None:
        with transaction.atomic():
            Session.objects.begin_turn(session_id=in_use.id, content="Nog een vraag")
            locked.set()
            finished.wait(30)
        connection.close()

    with ThreadPoolExecutor(1) as pool:
        turn = pool.submit(use)
        assert locked.wait(30)
        deleted = delete_expired_sessions()
        finished.set()
        turn.result()
    assert deleted.sessions == 1
    assert list(Session.objects.values_list("id", "message_count")) == [(in_use.id, 3)]
    assert not Session.objects.filter(id=other.id).exists()


@pytest.mark.django_db(transaction=True)
def test_two_cleanups_at_once_share_the_work(make_session: MakeSession) -> None:
    for _ in range(20):
        make_session(days_old=40)

    def clean() -> int:
        try:
            return delete_expired_sessions(batch_size=2).sessions
        finally:
            connection.close()

    with ThreadPoolExecutor(2) as pool:
        deleted = [done.result() for done in [pool.submit(clean), pool.submit(clean)]]
    assert sum(deleted) == 20
    assert not Session.objects.exists()


@pytest.mark.django_db
class TestCommand:
    def test_it_says_what_it_deleted(self, make_session: MakeSession) -> None:
        make_session(messages=2, days_old=40)
        assert run_cleanup() == "Deleted 1 sessions with 2 messages."
        assert not Session.objects.exists()

    def test_a_dry_run_deletes_nothing(self, make_session: MakeSession) -> None:
        make_session(messages=2, days_old=40)
        assert run_cleanup("--dry-run") == "Would delete 1 sessions with 2 messages."
        assert Session.objects.count() == 1

    def test_days_replaces_the_retention(self, make_session: MakeSession) -> None:
        make_session(days_old=8)
        assert run_cleanup("--days", "7", "--batch-size", "1") == "Deleted 1 sessions with 0 messages."

    @pytest.mark.parametrize("option", ["--days", "--batch-size"])
    @pytest.mark.parametrize("value", ["0", "-3", "seven", "1.5", "", "99999999999999999999", "³"])
    def test_a_number_that_is_none_is_refused_and_nothing_is_deleted(
        self, option: str, value: str, make_session: MakeSession
    ) -> None:
        make_session(days_old=10_000)
        with pytest.raises(CommandError, match=r"is not a whole number from 1 to|expected one argument"):
            run_cleanup(option, value)
        assert Session.objects.count() == 1


class TestSchedule:
    @pytest.mark.django_db
    def test_registering_twice_leaves_one(self) -> None:
        register_schedules()
        register_schedules()
        [schedule] = Schedule.objects.filter(name="evi: clean up sessions")
        assert (schedule.func, schedule.schedule_type) == ("conversations.tasks.cleanup_sessions", Schedule.DAILY)
        assert schedule.next_run > timezone.now()

    @pytest.mark.django_db
    def test_migrating_registers(self) -> None:
        Schedule.objects.all().delete()
        call_command("migrate", verbosity=0)
        assert sorted(Schedule.objects.values_list("name", flat=True)) == sorted(SCHEDULES)

    @pytest.mark.django_db
    def test_a_restart_does_not_put_the_next_run_off(self) -> None:
        soon = timezone.now() + timedelta(minutes=5)
        Schedule.objects.update(next_run=soon)
        register_schedules()
        assert {schedule.next_run for schedule in Schedule.objects.all()} == {soon}

    @pytest.mark.django_db
    def test_a_changed_schedule_and_its_doubles_are_put_right(self) -> None:
        Schedule.objects.update(func="something.else")
        Schedule.objects.create(name="evi: clean up sessions", func="something.else")
        register_schedules()
        funcs = sorted(schedule.func for schedule in Schedule.objects.all())
        assert funcs == sorted(wanted["func"] for wanted in SCHEDULES.values())

    @pytest.mark.django_db(transaction=True)
    def test_registering_from_several_places_at_once_leaves_one(self) -> None:
        Schedule.objects.all().delete()

        def register() -> None:
            try:
                register_schedules()
            finally:
                connection.close()

        with ThreadPoolExecutor(8) as pool:
            for done in [pool.submit(register) for _ in range(8)]:
                done.result()
        assert Schedule.objects.count() == len(SCHEDULES)


@pytest.mark.ac("AC-FEAT-008-205")
@pytest.mark.django_db(transaction=True)
def test_a_real_worker_runs_the_schedule_with_the_pool_on(make_session: MakeSession, database_url: str) -> None:
    """django-q2 forks its workers; a pool that came along would garble what they say to the server."""
    register_schedules()
    kept = make_session(messages=2)
    for _ in range(30):
        make_session(messages=2, days_old=31)
    Schedule.objects.update(next_run=timezone.now() - timedelta(seconds=1))
    for number in range(20):
        # Work for every process of the worker, before and after the clean-up.
        Schedule.objects.create(name=f"extra {number}", func="conversations.tasks.cleanup_sessions", repeats=1)

    environment = {
        **os.environ,
        "DATABASE_URL": database_url,
        "DJANGO_SETTINGS_MODULE": "evi_site.settings",
        "EVI_WORKER_PROCESSES": "2",
    }
    # As application code that runs before the fork may.
    open_pool_then_fork = (
        "import django; django.setup();"
        "from django.db import connection; connection.ensure_connection(); assert connection.pool;"
        "from django.core.management import call_command; call_command('qcluster')"
    )
    worker = subprocess.Popen(
        [sys.executable, "-c", open_pool_then_fork],
        cwd=BASE_DIR,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        deadline = time.monotonic() + 90
        while time.monotonic() < deadline and Success.objects.count() < 20 + len(SCHEDULES):
            time.sleep(0.2)
        worker.send_signal(signal.SIGTERM)
        said, _ = worker.communicate(timeout=30)
    finally:
        worker.kill()
    assert "lost synchronization" not in said
    assert "Traceback" not in said
    assert Success.objects.count() == 20 + len(SCHEDULES), said
    assert list(Session.objects.all()) == [kept]
    assert sum(task.result.get("sessions", 0) for task in Success.objects.all()) == 30
