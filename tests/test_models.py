"""Questions about sessions and messages, and the two writes of a turn."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Barrier
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.contrib.auth.models import User
from django.db import connection, models, transaction
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from conversations.models import Message, Session, Status, TurnStart
from tests.processes import wait_for

pytestmark = pytest.mark.django_db

MakeSession = Callable[..., Session]


def contents(messages: list[Message]) -> list[str]:
    return [message.content for message in messages]


class TestLastMessages:
    @pytest.mark.ac("AC-FEAT-008-108")
    def test_the_last_ones_come_oldest_first(self, make_session: MakeSession) -> None:
        session = make_session(messages=5)
        last = Message.objects.last_in_session(session.id, limit=3)
        assert contents(last) == ["message 2", "message 3", "message 4"]

    def test_those_before_a_message_end_right_before_it(self, make_session: MakeSession) -> None:
        session = make_session(messages=5)
        fourth = session.messages.get(content="message 3")
        earlier = Message.objects.last_in_session(session.id, limit=2, before=fourth)
        assert contents(earlier) == ["message 1", "message 2"]

    def test_messages_of_one_microsecond_keep_the_order_they_were_written_in(self, make_session: MakeSession) -> None:
        session = make_session()
        now = timezone.now()
        Message.objects.bulk_create(
            Message(session=session, role="user", content=str(number), created_at=now) for number in range(50)
        )
        assert contents(list(Message.objects.in_session(session.id))) == [str(number) for number in range(50)]
        assert contents(Message.objects.last_in_session(session.id, limit=2)) == ["48", "49"]

    def test_other_sessions_stay_out_of_it(self, make_session: MakeSession) -> None:
        session, _ = make_session(messages=1), make_session(messages=5)
        assert len(Message.objects.last_in_session(session.id, limit=10)) == 1

    @pytest.mark.ac("AC-FEAT-008-107")
    @pytest.mark.ac("AC-FEAT-008-301")
    @pytest.mark.parametrize("limit", ["10; DROP TABLE messages;", "10", -1, 1001, 2.5, None, True])
    def test_a_limit_that_is_no_number_is_an_error_and_not_sql(self, limit: object, make_session: MakeSession) -> None:
        session = make_session(messages=1)
        with pytest.raises(ValueError, match="limit must be a whole number"):
            Message.objects.last_in_session(session.id, limit=limit)  # type: ignore[arg-type]
        if limit is not None:
            with pytest.raises(ValueError, match="limit must be a whole number"):
                Session.objects.begin_turn(session_id=session.id, content="x", context_messages=limit)  # type: ignore[arg-type]
        assert Message.objects.count() == 1

    @pytest.mark.ac("AC-FEAT-008-301")
    def test_text_that_looks_like_sql_is_text(self, make_session: MakeSession) -> None:
        nasty = "'); DROP TABLE messages; -- %s {resolve} $1"
        session = make_session(user_id=nasty)
        Session.objects.begin_turn(session_id=session.id, user_id=nasty, content=nasty)
        Session.objects.finish_turn(session_id=session.id, content=nasty, metadata={nasty: nasty})
        assert contents(list(Message.objects.in_session(session.id))) == [nasty, nasty]


class TestWhoseSessions:
    def test_a_person_sees_only_their_own(self, make_session: MakeSession) -> None:
        client, other = User.objects.create_user("client"), User.objects.create_user("other")
        mine = make_session(owner=client, user_id="anna")
        make_session(owner=client, user_id="bram")
        make_session(owner=other, user_id="anna")
        make_session(user_id="anna")
        assert list(Session.objects.for_owner(client.id, user_id="anna")) == [mine]

    def test_without_a_client_only_the_sessions_without_one_are_seen(self, make_session: MakeSession) -> None:
        make_session(owner=User.objects.create_user("client"))
        nobodys = make_session()
        assert list(Session.objects.for_owner(None)) == [nobodys]

    def test_a_client_with_sessions_cannot_be_deleted_by_accident(self, make_session: MakeSession) -> None:
        client = User.objects.create_user("client")
        make_session(owner=client)
        with pytest.raises(models.ProtectedError):
            client.delete()

    def test_pinned(self, make_session: MakeSession) -> None:
        make_session()
        pinned = make_session(pinned=True)
        assert list(Session.objects.pinned()) == [pinned]


class TestExpired:
    def test_a_session_expires_after_the_retention(self, make_session: MakeSession) -> None:
        make_session(days_old=29.9)
        old = make_session(days_old=30.1)
        assert list(Session.objects.expired(days=30)) == [old]

    def test_a_pinned_session_never_expires(self, make_session: MakeSession) -> None:
        make_session(days_old=1000, pinned=True, expires_at=timezone.now() - timedelta(days=1))
        assert not Session.objects.expired(days=30).exists()

    def test_an_end_date_in_the_past_counts_even_when_all_is_kept(self, make_session: MakeSession) -> None:
        make_session(days_old=1000)
        make_session(expires_at=timezone.now() + timedelta(minutes=1))
        over = make_session(expires_at=timezone.now() - timedelta(seconds=1))
        assert list(Session.objects.expired(days=0)) == [over]


class TestBeginTurn:
    @pytest.mark.ac("AC-FEAT-008-105")
    def test_a_new_session_has_an_empty_context(self) -> None:
        start = Session.objects.begin_turn(session_id=uuid4(), content="Hallo", user_id="anna")
        assert start.is_new
        assert start.context == []
        stored = Message.objects.get(id=start.question_id)
        assert (stored.session_id, stored.role, stored.content) == (start.session_id, "user", "Hallo")

    @pytest.mark.ac("AC-FEAT-008-104")
    def test_of_150_messages_the_last_ten_are_the_context(self, make_session: MakeSession) -> None:
        session = make_session(messages=150)
        start = Session.objects.begin_turn(session_id=session.id, content="Hallo")
        assert contents(start.context) == [f"message {number}" for number in range(140, 150)]

    @pytest.mark.ac("AC-FEAT-008-002")
    def test_a_known_session_goes_on(self, make_session: MakeSession) -> None:
        session = make_session(messages=5, days_old=2)
        start = Session.objects.begin_turn(session_id=session.id, content="Hallo")
        assert not start.is_new
        assert len(start.context) == 5
        assert [message.role for message in start.context] == ["user", "assistant", "user", "assistant", "user"]
        session.refresh_from_db()
        assert session.message_count == 6
        assert timezone.now() - session.last_accessed < timedelta(minutes=1)

    def test_the_context_carries_status_metadata_and_time(self, make_session: MakeSession) -> None:
        session = make_session()
        asked = Session.objects.begin_turn(session_id=session.id, content="Vraag")
        Session.objects.finish_turn(
            session_id=session.id, content="Ant", status=Status.INTERRUPTED, metadata={"model": "offline"}
        )
        question, answer = Session.objects.begin_turn(session_id=session.id, content="En?").context
        assert question.id == asked.question_id
        assert (answer.status, answer.metadata) == ("interrupted", {"model": "offline"})
        assert question.created_at < answer.created_at
        assert question.seq < answer.seq

    def test_the_whole_start_is_one_statement(
        self, make_session: MakeSession, django_assert_num_queries: DjangoAssertNumQueries
    ) -> None:
        session = make_session(messages=20)
        with django_assert_num_queries(1):
            Session.objects.begin_turn(session_id=session.id, content="Hallo")

    @pytest.mark.parametrize("create", [True, False])
    def test_somebody_elses_session_is_as_unknown_as_an_unknown_one(
        self, create: bool, make_session: MakeSession
    ) -> None:
        client = User.objects.create_user("client")
        theirs = make_session(owner=client, user_id="anna", days_old=2)
        for owner_id, user_id in [(None, "anna"), (client.id, "bram"), (client.id, "")]:
            with pytest.raises(Session.DoesNotExist, match=str(theirs.id)):
                Session.objects.begin_turn(
                    session_id=theirs.id, owner_id=owner_id, user_id=user_id, content="Hallo", create=create
                )
        before, theirs = theirs, Session.objects.get(id=theirs.id)
        assert theirs.last_accessed == before.last_accessed
        assert theirs.message_count == 0

    @pytest.mark.ac("AC-FEAT-008-106")
    def test_an_unknown_session_is_not_created_when_that_is_not_wanted(self) -> None:
        with pytest.raises(Session.DoesNotExist):
            Session.objects.begin_turn(session_id=uuid4(), content="Hallo", create=False)
        assert not Session.objects.exists()


class TestFinishTurn:
    @pytest.mark.ac("AC-FEAT-008-207")
    def test_the_answer_is_stored_and_moves_the_session(self, make_session: MakeSession) -> None:
        session = make_session(days_old=2)
        answer = Session.objects.finish_turn(session_id=session.id, content="Ja.", metadata={"model": "offline"})
        assert answer
        stored = Message.objects.get(id=answer)
        assert (stored.role, stored.content, stored.status) == ("assistant", "Ja.", "complete")
        assert stored.metadata == {"model": "offline"}
        before, session = session, Session.objects.get(id=session.id)
        assert session.last_accessed > before.last_accessed

    def test_an_answer_with_characters_that_postgresql_refuses_is_not_lost(self, make_session: MakeSession) -> None:
        session = make_session()
        answer = Session.objects.finish_turn(session_id=session.id, content="a\0b", metadata={"model": "c\0d"})
        stored = Message.objects.get(id=answer)  # type: ignore[misc]
        assert (stored.content, stored.metadata) == ("ab", {"model": "cd"})

    def test_an_answer_to_a_deleted_session_goes_nowhere(self) -> None:
        assert Session.objects.finish_turn(session_id=uuid4(), content="Ja.") is None
        assert not Message.objects.exists()


@pytest.mark.django_db(transaction=True)
class TestTwoAtOnce:
    def run_together(self, *turns: Callable[[], TurnStart | UUID | None]) -> None:
        together = Barrier(len(turns))

        def run(turn: Callable[[], object]) -> None:
            together.wait()
            try:
                turn()
            finally:
                connection.close()

        with ThreadPoolExecutor(len(turns)) as pool:
            for done in [pool.submit(run, turn) for turn in turns]:
                done.result()

    @pytest.mark.ac("AC-FEAT-008-103")
    def test_turns_at_the_same_moment_in_one_session_are_all_stored_once(self) -> None:
        session_id = uuid4()

        def turn(number: int) -> UUID | None:
            Session.objects.begin_turn(session_id=session_id, content=f"vraag {number}")
            return Session.objects.finish_turn(session_id=session_id, content=f"antwoord {number}")

        for round_ in range(5):
            self.run_together(*(lambda number=round_ * 8 + i: turn(number) for i in range(8)))
        stored = contents(list(Message.objects.in_session(session_id)))
        assert sorted(stored) == sorted(f"{kind} {i}" for i in range(40) for kind in ("vraag", "antwoord"))
        for number in range(40):
            assert stored.index(f"vraag {number}") < stored.index(f"antwoord {number}")
        session = Session.objects.get()
        assert session.message_count == 80

    def begin_while_locked(self, session_id: UUID, meanwhile: Callable[[], object], **begin: Any) -> TurnStart:
        """Begin a turn while another transaction holds the session and does `meanwhile`."""

        def begin_turn() -> TurnStart:
            try:
                return Session.objects.begin_turn(session_id=session_id, content="vraag 2", **begin)
            finally:
                connection.close()

        with ThreadPoolExecutor(1) as pool:
            with transaction.atomic():
                Session.objects.select_for_update().get(id=session_id)
                turn = pool.submit(begin_turn)
                wait_for(lambda: self.waiting_for_a_lock())
                meanwhile()
            return turn.result()

    def waiting_for_a_lock(self) -> bool:
        with connection.cursor() as cursor:
            cursor.execute("SELECT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock')")
            return bool(cursor.fetchone()[0])

    @pytest.mark.ac("AC-FEAT-008-103")
    def test_an_answer_that_a_question_waited_for_is_in_its_context(self) -> None:
        session_id = uuid4()
        Session.objects.begin_turn(session_id=session_id, content="vraag 1")
        start = self.begin_while_locked(
            session_id, lambda: Session.objects.finish_turn(session_id=session_id, content="antwoord 1")
        )
        assert contents(start.context) == ["vraag 1", "antwoord 1"]
        assert contents(list(Message.objects.in_session(session_id))) == ["vraag 1", "antwoord 1", "vraag 2"]

    def test_what_was_said_in_a_session_deleted_that_moment_reaches_nobody(self) -> None:
        session_id = uuid4()
        Session.objects.begin_turn(session_id=session_id, user_id="anna", content="geheim")
        start = self.begin_while_locked(
            session_id, lambda: Session.objects.filter(id=session_id).delete(), user_id="bram"
        )
        assert start.is_new
        assert start.context == []

    @pytest.mark.ac("AC-FEAT-008-103")
    def test_last_accessed_is_the_latest_request(self) -> None:
        session_id = uuid4()
        self.run_together(
            *(lambda: Session.objects.begin_turn(session_id=session_id, content="Hallo") for _ in range(8))
        )
        session = Session.objects.get()
        # A question is written a moment after its session was touched: the last touch lies between the last two.
        *_, second_last, last = Message.objects.in_session(session_id)
        assert second_last.created_at < session.last_accessed < last.created_at
