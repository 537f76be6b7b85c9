"""Deleting means deleting: a session, and a person, with all that goes with them."""

from collections.abc import Callable
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import Client
from django.utils import timezone

from conversations.forgetting import Receipt, digest_of, forget_person, owners_of, preview_forgetting
from conversations.handover import offer
from conversations.models import (
    Action,
    ApiKey,
    Attachment,
    AuditEntry,
    Fact,
    FactSource,
    FactStatus,
    Handover,
    Message,
    MessageEmbedding,
    Session,
    Summary,
    TelegramUpdate,
)
from conversations.remembering import make_findable
from conversations.retention import delete_expired_sessions
from conversations.tasks import cleanup_sessions

pytestmark = pytest.mark.django_db

MakeSession = Callable[..., Session]
# What `known_session` makes, all of which goes with it.
ALL_OF_IT = {
    "sessions": 1,
    "messages": 2,
    "message_embeddings": 2,
    "attachments": 1,
    "summaries": 1,
    "facts": 1,
    "handovers": 1,
}
# Said nowhere but in a known session, and so to be found nowhere when it is gone.
WORD = "zwenkwiel"


def run(*arguments: str) -> str:
    out = StringIO()
    call_command("forget_user", *arguments, stdout=out)
    return out.getvalue()


def fact_from(*messages: Message, text: str, **fields: Any) -> Fact:
    fact = Fact.objects.create(text=text, **fields)
    for message in messages:
        FactSource.objects.create(fact=fact, message=message)
    return fact


@pytest.fixture
def known_session(make_session: MakeSession) -> Callable[..., Session]:
    """A session of which something is known in every table."""

    def make(*, days_old: float = 0, **fields: Any) -> Session:
        session = make_session(messages=1, **{"title": f"Een {WORD}"} | fields)
        session.messages.create(role="assistant", content=f"Een {WORD} draait.", metadata={"citations": [WORD]})
        question = session.messages.order_by("seq")[0]
        fact_from(question, text=f"{WORD} uit {session.id}", owner=session.owner, user_id=session.user_id)
        Summary.objects.create(session=session, text=f"Over een {WORD}", message_count=2, last_seq=question.seq)
        Attachment.objects.create(
            session=session, digest="x", media_type="text/plain", size=9, content=WORD.encode(), name=WORD
        )
        make_findable(thorough=True)
        offer(session.id)
        Session.objects.filter(id=session.id).update(last_accessed=timezone.now() - timedelta(days=days_old))
        return session

    return make


def nothing_is_left() -> bool:
    gone = (Session, Message, MessageEmbedding, Attachment, Summary, Fact, FactSource, Handover)
    return not any(model._default_manager.exists() for model in gone) and not still_written(WORD)


def still_written(word: str) -> list[str]:
    """The tables with the word in any of their rows, whoever made them."""
    with connection.cursor() as cursor:

        def has_it(table: str) -> bool:
            cursor.execute(f'SELECT 1 FROM "{table}" AS row WHERE row::text ~* %s LIMIT 1', [word])
            return cursor.fetchone() is not None

        return [table for table in connection.introspection.table_names(cursor) if has_it(table)]


class TestSession:
    @pytest.mark.parametrize("road", ["orm", "api", "sql", "clean-up", "admin"])
    def test_all_that_is_known_from_it_goes_with_it(
        self, road: str, known_session: MakeSession, admin_client: Client
    ) -> None:
        session = known_session(days_old=31)
        assert {"sessions", "messages", "message_embeddings", "summaries", "facts"} <= set(still_written(WORD))
        match road:
            case "orm":
                session.delete()
            case "api":
                assert Client().delete(f"/api/sessions/{session.id}").status_code == 204
            case "sql":
                with connection.cursor() as cursor:
                    cursor.execute("DELETE FROM sessions WHERE id = %s", [session.id])
            case "clean-up":
                delete_expired_sessions()
            case "admin":
                page = f"/admin/conversations/session/{session.id}/delete/"
                assert admin_client.post(page, {"post": "yes"}).status_code == 302
        assert nothing_is_left()

    def test_a_fact_that_was_said_elsewhere_too_stays_until_that_goes(self, make_session: MakeSession) -> None:
        sessions = [make_session(messages=1) for _ in range(2)]
        fact = fact_from(*(session.messages.get() for session in sessions), text="Ik werk op daken")
        sessions[0].delete()
        assert list(Fact.objects.all()) == [fact]
        sessions[1].delete()
        assert not Fact.objects.exists()

    def test_a_fact_that_somebody_wrote_down_stays(self, known_session: MakeSession) -> None:
        written = Fact.objects.create(text="Ik werk op daken")
        known_session().delete()
        assert list(Fact.objects.all()) == [written]

    def test_a_message_takes_its_facts_along(self, known_session: MakeSession) -> None:
        known_session().messages.order_by("seq")[0].delete()
        assert not Fact.objects.exists()
        assert Session.objects.exists()

    def test_deleting_through_the_api_is_in_the_audit_trail(self, known_session: MakeSession) -> None:
        client = User.objects.create_user("client")
        ApiKey.objects.store("evi_key", name="key", client=client)
        session = known_session(owner=client)
        headers = {"Authorization": "Bearer evi_key"}
        Client().delete(f"/api/sessions/{session.id}", headers=headers)
        entry = AuditEntry.objects.get()
        assert (entry.action, entry.user, entry.subject) == (Action.DELETED, client, str(session.id))
        assert entry.counts == ALL_OF_IT
        assert Client().delete(f"/api/sessions/{session.id}", headers=headers).status_code == 404
        assert AuditEntry.objects.count() == 1


class TestCleanup:
    def test_a_run_is_one_entry(self, make_session: MakeSession) -> None:
        for _ in range(5):
            make_session(messages=2, days_old=31)
        delete_expired_sessions(batch_size=2)
        entry = AuditEntry.objects.get()
        assert (entry.action, entry.actor) == (Action.CLEANED_UP, "schedule")
        assert entry.counts == {"sessions": 5, "messages": 10}

    def test_a_run_that_was_stopped_tells_what_went(self, make_session: MakeSession) -> None:
        for _ in range(5):
            make_session(days_old=31)

        def stop(batch: object) -> None:
            raise InterruptedError

        with pytest.raises(InterruptedError):
            delete_expired_sessions(batch_size=2, on_batch=stop)
        assert AuditEntry.objects.get().counts == {"sessions": 2, "messages": 0}

    def test_a_run_without_anything_to_do_is_none(self, make_session: MakeSession) -> None:
        make_session()
        cleanup_sessions()
        assert not AuditEntry.objects.exists()

    def test_the_command_says_that_it_was_one(self, make_session: MakeSession) -> None:
        make_session(days_old=31)
        call_command("cleanup_sessions", stdout=StringIO())
        assert AuditEntry.objects.get().actor == "manage.py cleanup_sessions"


class TestPerson:
    def test_everything_goes_and_nobody_elses_does(self, known_session: MakeSession) -> None:
        client = User.objects.create_user("client")
        for _ in range(3):
            known_session(owner=client, user_id="anna", metadata={"person": {"name": "Anna"}})
        Fact.objects.create(owner=client, user_id="anna", text="Ik werk op daken", status=FactStatus.APPROVED)
        others = [known_session(owner=client, user_id="bram"), known_session(user_id="anna"), known_session()]
        preview = preview_forgetting(owner_id=client.id, user_id="anna")
        receipt = forget_person(owner_id=client.id, user_id="anna", by="test", batch_size=2)
        expected = {table: 3 * number for table, number in ALL_OF_IT.items()} | {"facts": 4}
        assert dict(receipt.counts) == dict(preview.counts) == expected
        assert set(Session.objects.all()) == set(others)
        assert Fact.objects.count() == Summary.objects.count() == 3

    def test_what_telegram_brought_from_their_chat_goes_too(self, known_session: MakeSession) -> None:
        known_session(user_id="telegram:7")
        for number, chat_id in enumerate((7, 7, 8)):
            content = {"message": {"text": f"{WORD} {chat_id}"}}
            TelegramUpdate.objects.receive(content, bot_id=1, update_id=number, chat_id=chat_id)
        preview = preview_forgetting(owner_id=None, user_id="telegram:7")
        receipt = forget_person(owner_id=None, user_id="telegram:7", by="test")
        assert dict(receipt.counts) == dict(preview.counts) == ALL_OF_IT | {"telegram_updates": 2}
        assert TelegramUpdate.objects.get().chat_id == 8
        assert still_written(f"{WORD} 7") == []

    def test_a_chat_that_has_no_session_yet_can_be_forgotten(self) -> None:
        TelegramUpdate.objects.receive({}, bot_id=1, update_id=1, chat_id=-100)
        assert "telegram updates" in run("telegram:-100", "--yes")
        assert not TelegramUpdate.objects.exists()

    def test_facts_alone_go_too(self) -> None:
        Fact.objects.create(user_id="anna", text="Ik werk op daken", decided_at=timezone.now())
        assert forget_person(owner_id=None, user_id="anna", by="test").counts == {"facts": 1}

    def test_the_audit_trail_names_nobody(self, known_session: MakeSession) -> None:
        known_session(user_id="anna@example.nl", title="Annas ladder")
        forget_person(owner_id=None, user_id="anna@example.nl", by="test")
        entry = AuditEntry.objects.get()
        assert entry.subject == digest_of(owner_id=None, user_id="anna@example.nl")
        assert (entry.action, entry.counts) == (Action.FORGOTTEN, ALL_OF_IT)
        assert "anna" not in str(list(AuditEntry.objects.values())).casefold()

    def test_nobody_is_no_entry(self) -> None:
        assert forget_person(owner_id=None, user_id="anna", by="test") == Receipt()
        assert not AuditEntry.objects.exists()

    def test_the_digest_is_of_client_and_person(self) -> None:
        whose = [(None, "anna"), (1, "anna"), (1, "bram")]
        assert len({digest_of(owner_id=owner, user_id=user) for owner, user in whose}) == 3

    def test_where_a_person_is_known(self, make_session: MakeSession) -> None:
        client, other = User.objects.create_user("client"), User.objects.create_user("other")
        make_session(owner=client, user_id="anna")
        make_session(user_id="anna")
        make_session(owner=client, user_id="bram")
        Fact.objects.create(owner=other, user_id="anna", text="Ik werk op daken")
        assert owners_of("anna") == [None, client.id, other.id]
        assert owners_of("anna", client="client") == [client.id]


class TestCommand:
    def test_it_prints_a_receipt(self, known_session: MakeSession) -> None:
        known_session(user_id="anna")
        known_session(owner=User.objects.create_user("client"), user_id="anna")
        told = run("anna", "--yes")
        receipt = [line.rsplit(maxsplit=1) for line in told[told.index("Forgotten:") :].splitlines()[1:]]
        assert receipt[0] == ["  sessions", "2"]
        assert {table.strip().replace(" ", "_"): int(number) for table, number in receipt} == {
            table: 2 * number for table, number in ALL_OF_IT.items()
        }
        assert nothing_is_left()

    def test_only_as_one_client_knows_them(self, make_session: MakeSession) -> None:
        kept = make_session(user_id="anna")
        make_session(owner=User.objects.create_user("client"), user_id="anna")
        run("anna", "--client", "client", "--yes")
        assert list(Session.objects.all()) == [kept]

    def test_a_dry_run_changes_nothing(self, known_session: MakeSession) -> None:
        known_session(user_id="anna")
        assert "Would forget:" in run("anna", "--dry-run")
        assert Session.objects.exists()
        assert not AuditEntry.objects.exists()

    @pytest.mark.parametrize("user", ["bram", ""])
    def test_somebody_unknown_is_an_error(self, user: str, make_session: MakeSession) -> None:
        make_session(user_id="anna")
        make_session()
        with pytest.raises(CommandError, match="Nobody here"):
            run(user, "--yes")
        assert Session.objects.count() == 2

    @pytest.mark.parametrize(("typed", "is_gone"), [("yes\n", True), ("no\n", False), ("", False)])
    def test_it_asks_first(
        self, typed: str, is_gone: bool, make_session: MakeSession, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        make_session(user_id="anna")
        monkeypatch.setattr("sys.stdin", StringIO(typed))
        if is_gone:
            run("anna")
        else:
            with pytest.raises(CommandError, match="Nothing was changed"):
                run("anna")
        assert Session.objects.exists() is not is_gone
