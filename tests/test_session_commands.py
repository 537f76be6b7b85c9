"""The commands for those who keep EVI running: statistics, and sessions out to files and back in."""

import json
from collections.abc import Callable
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.utils import timezone

from agentbridge.said import HistoryItem
from conversations.figures import count_day
from conversations.models import Channel, Fact, FactStatus, Message, Session
from conversations.openings import TurnRequest, open_turn
from conversations.statistics import session_statistics

pytestmark = pytest.mark.django_db

MakeSession = Callable[..., Session]


def run(command: str, *arguments: object) -> str:
    out = StringIO()
    call_command(command, *map(str, arguments), stdout=out, stderr=StringIO())
    return out.getvalue()


def contents(session: Session) -> dict[str, Any]:
    session.refresh_from_db()
    told = {name: getattr(session, name) for name in ("owner_id", "user_id", "title", "channel", "pinned", "metadata")}
    said = session.messages.order_by("created_at", "seq").values_list("id", "role", "content", "status", "created_at")
    return {**told, "external_id": session.external_id, "created_at": session.created_at, "messages": list(said)}


@pytest.mark.parametrize(
    "command", ["session_stats", "export_sessions", "import_sessions", "summarize_sessions", "forget_user"]
)
def test_each_command_explains_itself(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        call_command(command, "--help")
    assert ended.value.code == 0
    assert "usage:" in capsys.readouterr().out


class TestStatistics:
    def test_what_the_sessions_add_up_to(self, make_session: MakeSession) -> None:
        make_session(messages=3, channel=Channel.CLI, user_id="anna")
        make_session(messages=2, user_id="anna", pinned=True, days_old=400)
        make_session(messages=2, days_old=31, user_id="bram")
        make_session(messages=1, days_old=25)
        Fact.objects.create(text="a", status=FactStatus.APPROVED)
        Fact.objects.create(text="b")
        told = session_statistics()
        assert (told.sessions, told.messages, told.pinned, told.persons) == (4, 8, 1, 3)
        assert (told.facts, told.facts_proposed, told.summaries) == (1, 1, 0)
        assert told.channels == {"api": 3, "cli": 1}
        assert (told.expired, told.expiring, told.to_summarize) == (1, 1, 3)

    def test_persons_are_those_that_the_dashboard_counts(self, make_session: MakeSession) -> None:
        owners = [User.objects.create(username=name) for name in ("one", "two")]
        for owner in owners:
            for user in ("anna", "anna", "bram", ""):
                make_session(messages=1, owner=owner, user_id=user)
        assert session_statistics().persons == count_day(timezone.localdate()).persons == 6

    def test_the_last_seven_days_are_told_one_by_one(self, make_session: MakeSession) -> None:
        now = timezone.now()
        for days in (0, 2, 2, 6, 8):
            session = make_session(created_at=now - timedelta(days=days))
            session.messages.create(role="user", content="x", created_at=now - timedelta(days=days))
        told = session_statistics(now=now)
        assert list(told.sessions_begun.values()) == list(told.messages_said.values()) == [1, 0, 0, 0, 2, 0, 1]
        assert list(told.sessions_begun)[-1] == timezone.localtime(now).date().isoformat()

    def test_for_programs_it_is_one_json_object(self, make_session: MakeSession) -> None:
        make_session(messages=2)
        told = json.loads(run("session_stats", "--json"))
        assert (told["sessions"], told["messages"], told["channels"]) == (1, 2, {"api": 1})

    def test_for_people_it_is_a_table(self, make_session: MakeSession) -> None:
        make_session(messages=2)
        lines = [line.split() for line in run("session_stats").splitlines()]
        assert ["messages", "2"] in lines
        assert ["api", "1"] in lines


class TestExport:
    def test_each_session_is_a_file(self, make_session: MakeSession, tmp_path: Path) -> None:
        sessions = [make_session(messages=2, title="Ladders") for _ in range(2)]
        run("export_sessions", "--to", tmp_path / "new")
        files = list((tmp_path / "new").iterdir())
        assert {file.name for file in files} == {f"{session.id}.json" for session in sessions}
        assert json.loads(files[0].read_text())["session"]["title"] == "Ladders"

    def test_on_the_standard_output_each_is_a_line(self, make_session: MakeSession) -> None:
        sessions = [make_session(messages=2) for _ in range(2)]
        Message.objects.filter(session=sessions[0]).update(content="twee\nregels")
        lines = [json.loads(line) for line in run("export_sessions", "--to", "-").splitlines()]
        assert {line["session"]["id"] for line in lines} == {str(session.id) for session in sessions}
        assert {message["content"] for message in lines[0]["messages"]} == {"twee\nregels"}

    @pytest.mark.parametrize(
        "choice", [("--owner", "client"), ("--user", "anna"), ("--session", "ID"), ("--since", "DAY")]
    )
    def test_only_those_that_are_meant(self, choice: tuple[str, str], make_session: MakeSession) -> None:
        meant = make_session(owner=User.objects.create_user("client"), user_id="anna")
        make_session(user_id="bram", days_old=10)
        day = (timezone.now() - timedelta(days=5)).date().isoformat()
        value = {"ID": str(meant.id), "DAY": day}.get(choice[1], choice[1])
        [line] = run("export_sessions", choice[0], value, "--to", "-").splitlines()
        assert json.loads(line)["session"]["id"] == str(meant.id)

    def test_none_at_all_is_an_error(self, make_session: MakeSession) -> None:
        make_session(user_id="anna")
        with pytest.raises(CommandError, match="no such sessions"):
            run("export_sessions", "--user", "bram", "--to", "-")

    @pytest.mark.parametrize("since", ["gisteren", "2026-13-01", "0001-01-01"])
    def test_a_day_that_is_none_is_refused(self, since: str) -> None:
        with pytest.raises(CommandError, match="is not a day"):
            run("export_sessions", "--since", since, "--to", "-")

    def test_a_folder_that_cannot_be_is_an_error(self, make_session: MakeSession, tmp_path: Path) -> None:
        make_session()
        (tmp_path / "file").touch()
        with pytest.raises(CommandError, match="cannot be written"):
            run("export_sessions", "--to", tmp_path / "file")


class TestImport:
    @pytest.fixture
    def session(self, make_session: MakeSession) -> Session:
        client = User.objects.create_user("client")
        person = {"person": {"name": "Anna"}}
        return make_session(
            messages=4, owner=client, user_id="anna", title="Ladders", pinned=True, external_id="x", metadata=person
        )

    @pytest.mark.parametrize("road", ["folder", "lines"])
    def test_what_was_exported_comes_back_as_it_was(self, road: str, session: Session, tmp_path: Path) -> None:
        before = contents(session)
        if road == "folder":
            run("export_sessions", "--to", tmp_path)
        else:
            (tmp_path / "all.jsonl").write_text(run("export_sessions", "--to", "-"))
        session.delete()
        assert run("import_sessions", tmp_path).strip() == "Took in 1 sessions; 0 were here already."
        assert contents(Session.objects.get()) == before

    def test_a_second_time_changes_nothing(self, session: Session, tmp_path: Path) -> None:
        run("export_sessions", "--to", tmp_path)
        before = contents(session)
        assert run("import_sessions", tmp_path).strip() == "Took in 0 sessions; 1 were here already."
        assert contents(session) == before

    def test_what_comes_back_is_not_cleaned_up_at_once(self, session: Session, tmp_path: Path) -> None:
        Session.objects.update(pinned=False, last_accessed=timezone.now() - timedelta(days=90))
        run("export_sessions", "--to", tmp_path)
        session.delete()
        run("import_sessions", tmp_path)
        assert not Session.objects.expired().exists()

    def test_a_client_that_replays_its_thread_finds_it_again(self, session: Session, tmp_path: Path) -> None:
        run("export_sessions", "--to", tmp_path)
        session_id = session.id
        session.delete()
        run("import_sessions", tmp_path)
        history = tuple(
            HistoryItem(role, content) for _, role, content, *_ in contents(Session.objects.get())["messages"]
        )
        request = TurnRequest(
            "Nog iets", history=history, is_whole_thread=True, owner_id=session.owner_id, user_id="anna"
        )
        assert open_turn(request).session_id == session_id

    def test_a_broken_file_is_reported_and_the_others_are_taken_in(self, session: Session, tmp_path: Path) -> None:
        run("export_sessions", "--to", tmp_path)
        document = json.loads((tmp_path / f"{session.id}.json").read_text())
        Session.objects.all().delete()
        broken: dict[str, Any] = {
            "half": json.dumps(document)[:50],
            "empty": "",
            "other": "[]",
            "role": document | {"messages": [document["messages"][0] | {"role": "boss"}]},
            "time": document | {"messages": [document["messages"][0] | {"created_at": "9999-12-31T23:59:59Z"}]},
            "client": document | {"session": document["session"] | {"id": str(uuid4()), "owner": "nobody"}},
            "newer": document | {"version": 2},
        }
        for name, content in broken.items():
            (tmp_path / f"{name}.json").write_text(content if isinstance(content, str) else json.dumps(content))
        (tmp_path / "bytes.json").write_bytes(b"\xff\xfe")
        out, errors = StringIO(), StringIO()
        with pytest.raises(CommandError, match="9 could not be taken in"):
            call_command("import_sessions", tmp_path, tmp_path / "missing.json", stdout=out, stderr=errors)
        assert "Took in 1 sessions" in out.getvalue()
        assert all(f"{name}.json" in errors.getvalue() for name in [*broken, "bytes", "missing"])
        assert Session.objects.count() == 1

    def test_messages_that_are_here_in_another_session_are_refused(self, session: Session, tmp_path: Path) -> None:
        run("export_sessions", "--to", tmp_path)
        document = json.loads((tmp_path / f"{session.id}.json").read_text())
        document["session"] |= {"id": str(uuid4()), "external_id": ""}
        (tmp_path / f"{session.id}.json").write_text(json.dumps(document))
        with pytest.raises(CommandError, match="1 could not be taken in"):
            run("import_sessions", tmp_path)
        assert Session.objects.count() == 1
