"""Going on somewhere else with a code: who may, once, and what becomes of the thread."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.utils import timezone

from conversations import handover
from conversations.accounts import create_api_key
from conversations.facts import propose
from conversations.limits import window
from conversations.models import Action, AuditEntry, Fact, Handover, Message, Session

pytestmark = pytest.mark.django_db


@pytest.fixture
def key() -> str:
    return create_api_key(name="test", client="client")


@pytest.fixture
def session(key: str, make_session: Callable[..., Session]) -> Session:
    """Anna's, with a thread's name and what her client told about her."""
    owner = User.objects.get(username="client")
    about = {"person": {"name": "Anna"}, "kept": 1}
    return make_session(messages=4, owner=owner, user_id="anna", channel="telegram", external_id="7:0", metadata=about)


def post(path: str, key: str, body: Any = None) -> tuple[int, Any]:
    response = Client().post(
        path, body or {}, content_type="application/json", headers={"Authorization": f"Bearer {key}"}
    )
    return response.status_code, response.json()


def offer(session: Session, key: str, *, user: str = "anna") -> str:
    status, said = post(f"/api/sessions/{session.id}/handover?user={user}", key)
    assert status == 201, said
    return str(said["code"])


def take(code: object, key: str, *, user: str = "bert") -> tuple[int, Any]:
    return post(f"/api/handover?user={user}", key, {"code": code})


def test_a_code_gives_the_session_to_another_person(session: Session, key: str) -> None:
    status, said = take(offer(session, key), key)
    assert (status, said["id"], said["message_count"]) == (200, str(session.id), 4)
    session.refresh_from_db()
    assert (session.user_id, session.channel, session.external_id) == ("bert", "telegram", "")


def test_who_gave_it_away_has_it_no_more(session: Session, key: str) -> None:
    take(offer(session, key), key)
    read = Client().get(f"/api/sessions/{session.id}?user=anna", headers={"Authorization": f"Bearer {key}"})
    assert read.status_code == 404


def test_what_was_told_about_the_one_person_is_not_kept_for_the_other(session: Session, key: str) -> None:
    take(offer(session, key), key)
    session.refresh_from_db()
    assert session.metadata == {"kept": 1}


def test_what_is_remembered_of_the_one_person_stays_theirs_whatever_becomes_of_the_session(
    session: Session, key: str
) -> None:
    question = session.messages.filter(role="user").first()
    assert question
    propose("Werkt op daken.", owner_id=session.owner_id, user_id="anna", question_id=question.id)
    take(offer(session, key), key)
    Session.objects.filter(id=session.id).delete()
    assert [(fact.user_id, fact.sources.count()) for fact in Fact.objects.all()] == [("anna", 0)]


def test_a_code_has_forty_bits_and_no_characters_that_look_alike() -> None:
    assert len(handover.ALPHABET) ** handover.CODE_CHARS == 2**40
    assert not set("01IO") & set(handover.ALPHABET)


def test_a_code_is_typed_as_people_type(session: Session, key: str) -> None:
    code = offer(session, key)
    assert take(f" {code.lower().replace('-', ' ')} ", key)[0] == 200


def test_only_a_hash_is_stored(session: Session, key: str) -> None:
    code = offer(session, key).replace("-", "")
    with connection.cursor() as cursor:
        cursor.execute("SELECT row_to_json(handovers)::text FROM handovers")
        (row,) = cursor.fetchone()
    assert code not in row


class TestRefusals:
    @pytest.fixture
    def unknown(self, key: str) -> tuple[int, Any]:
        """What a code is answered that never was."""
        refused = take("AAAA-AAAA", key)
        assert refused[0] == 404
        return refused

    def test_a_code_works_once(self, session: Session, key: str, unknown: tuple[int, Any]) -> None:
        code = offer(session, key)
        take(code, key)
        assert take(code, key, user="carla") == unknown

    def test_a_late_code_opens_nothing(self, session: Session, key: str, unknown: tuple[int, Any]) -> None:
        code = offer(session, key)
        Handover.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
        assert take(code, key) == unknown

    def test_a_code_is_valid_for_ten_minutes(self, session: Session, key: str) -> None:
        offer(session, key)
        left = Handover.objects.get().expires_at - timezone.now()
        assert timedelta(minutes=9) < left <= timedelta(minutes=10)

    def test_a_new_code_replaces_the_old(self, session: Session, key: str, unknown: tuple[int, Any]) -> None:
        old, new = offer(session, key), offer(session, key)
        assert take(old, key) == unknown
        assert take(new, key)[0] == 200

    def test_another_owner_cannot_use_it(self, session: Session, key: str, unknown: tuple[int, Any]) -> None:
        code = offer(session, key)
        assert take(code, create_api_key(name="other", client="other")) == unknown
        assert take(code, key)[0] == 200

    def test_only_its_person_can_give_a_session_away(self, session: Session, key: str) -> None:
        status, _ = post(f"/api/sessions/{session.id}/handover?user=bert", key)
        assert (status, Handover.objects.count()) == (404, 0)

    @pytest.mark.parametrize("code", [None, 5, "", ["A"], "A" * 41])
    def test_what_is_no_text_is_refused_as_such(self, code: object, key: str) -> None:
        assert take(code, key)[0] == 400

    @pytest.mark.parametrize("code", ["AAAA", "\u00e9\u00df\u00df\u2028", "' OR 1=1 --"])
    def test_any_other_text_is_a_wrong_code(self, code: str, key: str, unknown: tuple[int, Any]) -> None:
        assert take(code, key) == unknown

    def test_guessing_is_slow(self, session: Session, key: str, monkeypatch: pytest.MonkeyPatch) -> None:
        code = offer(session, key)
        # The count begins anew with each minute, and this one does not end.
        moment = timezone.now()
        monkeypatch.setattr("conversations.limits.timezone", SimpleNamespace(now=lambda: moment))
        tries = [take("AAAA-AAAA", key, user=f"guesser {number}")[0] for number in range(handover.MOST_TRIES)]
        assert set(tries) == {404}
        assert take(code, key)[0] == 429
        moment += timedelta(minutes=1)
        assert take(code, key)[0] == 200


def test_it_is_written_down_without_contents(session: Session, key: str) -> None:
    take(offer(session, key), key)
    entry = AuditEntry.objects.get()
    assert (entry.action, entry.actor, entry.subject, entry.counts) == (
        Action.HANDED_OVER,
        "client",
        str(session.id),
        {"messages": 4},
    )


def test_the_code_goes_with_its_session(session: Session, key: str) -> None:
    offer(session, key)
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM sessions WHERE id = %s", [session.id])
    assert not Handover.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_of_two_at_once_one_gets_it(session: Session, key: str) -> None:
    def try_it(user: str) -> int:
        try:
            return take(code, key, user=user)[0]
        finally:
            connection.close()

    with ThreadPoolExecutor(8) as pool:
        for _ in range(5):
            window.clear()
            code = offer(session, key, user=Session.objects.get().user_id)
            statuses = list(pool.map(try_it, [f"person {number}" for number in range(8)]))
            assert sorted(statuses) == [200, *[404] * 7]


@pytest.mark.django_db(transaction=True)
class TestGoingOn:
    """A turn after a hand-over: what the hashes of the thread begin with is another person now."""

    @pytest.fixture
    def thread(self, key: str) -> list[dict[str, str]]:
        """What a client without ids has said so far; EVI knows it again by its words."""
        thread: list[dict[str, str]] = []
        for question in ("een", "twee"):
            thread.append({"role": "user", "content": question})
            answer, _ = self.complete(thread, key, user="anna")
            thread.append({"role": "assistant", "content": answer})
        assert Session.objects.count() == 1
        return thread

    def complete(self, messages: list[dict[str, str]], key: str, *, user: str, session_id: str = "") -> tuple[str, str]:
        response = Client().post(
            "/v1/chat/completions",
            {"model": "evi", "messages": messages, "user": user},
            content_type="application/json",
            headers={"Authorization": f"Bearer {key}", "X-Session-ID": session_id},
        )
        assert response.status_code == 200, response.content
        return str(response.json()["choices"][0]["message"]["content"]), response.headers["X-Session-ID"]

    def active(self, session_id: str) -> list[str]:
        return [message.content for message in Message.objects.active().in_session(UUID(session_id))]

    def test_a_client_that_names_the_session_goes_on_in_it(self, thread: list[dict[str, str]], key: str) -> None:
        session = Session.objects.get()
        take(offer(session, key), key)
        question = [{"role": "user", "content": "drie"}]
        _, session_id = self.complete(question, key, user="bert", session_id=str(session.id))
        assert session_id == str(session.id)
        assert self.active(session_id)[:5] == [*(message["content"] for message in thread), "drie"]

    def test_a_client_that_replays_it_and_names_it_goes_on_in_it(self, thread: list[dict[str, str]], key: str) -> None:
        session = Session.objects.get()
        take(offer(session, key), key)
        replayed = [*thread, {"role": "user", "content": "drie"}]
        _, session_id = self.complete(replayed, key, user="bert", session_id=str(session.id))
        assert session_id == str(session.id)
        assert self.active(session_id)[:-1] == [message["content"] for message in replayed]

    def test_whoever_gave_it_away_and_replays_it_begins_anew(self, thread: list[dict[str, str]], key: str) -> None:
        session = Session.objects.get()
        take(offer(session, key), key)
        _, session_id = self.complete([*thread, {"role": "user", "content": "drie"}], key, user="anna")
        assert session_id != str(session.id)
        assert Message.objects.active().in_session(session.id).count() == 4
