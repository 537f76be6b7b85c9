"""`ws/chat/` as its clients see it: a real WebSocket client against real servers, model and database."""

import json
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import aiohttp
import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.test import Client

from conversations.accounts import create_api_key
from conversations.models import ApiKey, Message, Session
from tests.processes import needs_proc, wait_for
from tests.sockets import Socket, Sockets, deaf, write_text
from tests.stub_model import StubModel
from tests.test_turns import Site

pytestmark = pytest.mark.django_db(transaction=True)

MAX_BYTES = 100_000


@pytest.fixture(scope="module")
def stub() -> Iterator[StubModel]:
    stub = StubModel()
    yield stub
    stub.shutdown()
    stub.server_close()


@pytest.fixture(scope="module")
def site(stub: StubModel, database_url: str) -> Iterator[Site]:
    site = Site(database_url, stub, EVI_RECONNECT_SECONDS="60", EVI_MAX_BODY_BYTES=str(MAX_BYTES))
    yield site
    site.stop()


@pytest.fixture(scope="module")
def impatient(stub: StubModel, database_url: str) -> Iterator[Site]:
    """Another process, which waits for nobody."""
    site = Site(database_url, stub, EVI_RECONNECT_SECONDS="0", EVI_RATE_LIMIT="20")
    yield site
    site.stop()


@pytest.fixture(scope="module")
def sockets() -> Iterator[Sockets]:
    sockets = Sockets()
    yield sockets
    sockets.close()


@pytest.fixture(autouse=True)
def quiet(stub: StubModel) -> Iterator[None]:
    stub.reset()
    yield
    stub.go_on.set()


@pytest.fixture
def key() -> str:
    return create_api_key(name="test", client="client")


@pytest.fixture
def chat(sockets: Sockets, site: Site, key: str) -> Iterator[Socket]:
    chat = signed_in(sockets, site, key)
    yield chat
    chat.close()


def signed_in(sockets: Sockets, site: Site, key: str, **who: str) -> Socket:
    chat = sockets.open(f"{site.url}/ws/chat/", Authorization=f"Bearer {key}")
    assert chat.next() == {"type": "ready"}
    return chat


def ask(chat: Socket, text: str, **more: Any) -> str:
    question_id = str(uuid4())
    chat.send(type="ask", id=question_id, text=text, **more)
    return question_id


def answered(chat: Socket, text: str, **more: Any) -> list[dict[str, Any]]:
    question_id = ask(chat, text, **more)
    frames = chat.until("done", "error")
    assert {frame["id"] for frame in frames} == {question_id}
    return frames


def text_of(frames: list[dict[str, Any]]) -> str:
    return "".join(frame["text"] for frame in frames if frame["type"] == "delta")


def said_in(session_id: str) -> list[tuple[str, str, str]]:
    return [(m.role, m.content, m.status) for m in Message.objects.in_session(UUID(session_id))]


class TestTurn:
    def test_an_answer_comes_in_order_and_is_stored(self, chat: Socket) -> None:
        frames = answered(chat, "hello there")
        assert [frame["type"] for frame in frames] == ["start", "delta", "delta", "delta", "delta", "done"]
        assert text_of(frames) == "You said: hello there "
        assert [frame["received"] for frame in frames[:-1]] == [0, 4, 10, 16, 22]
        start, done = frames[0], frames[-1]
        assert (start["messages_in_context"], done["status"], done["model"]) == (0, "complete", "stub")
        assert done["usage"] == {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}
        stored = Message.objects.get(id=done["message_id"])
        assert start["message_id"] == done["message_id"]
        assert (str(stored.session_id), stored.content) == (start["session_id"], text_of(frames))
        assert stored.session.channel == "web"

    def test_the_session_goes_on(self, chat: Socket, stub: StubModel) -> None:
        session_id = answered(chat, "one")[0]["session_id"]
        second = answered(chat, "two", session_id=session_id.upper())[0]
        assert (second["session_id"], second["messages_in_context"]) == (session_id, 2)

    def test_searching_and_sources_are_told_beside_the_words(self, chat: Socket) -> None:
        frames = answered(chat, "look up ladders")
        # The database of the tests has no guidelines: the search is told, and what the model made up is not cited.
        assert [(frame["done"], bool(frame["text"])) for frame in frames if frame["type"] == "status"] == [
            (False, True),
            (True, True),
        ]
        kinds = [frame["type"] for frame in frames]
        assert kinds.index("status") < kinds.index("delta")

    def test_with_a_history_the_thread_is_what_the_client_says(self, chat: Socket) -> None:
        session_id = answered(chat, "one")[0]["session_id"]
        answered(chat, "two", session_id=session_id)
        first = [{"role": "user", "content": "one"}, {"role": "assistant", "content": "You said: one "}]
        frames = answered(chat, "edited", session_id=session_id, history=first)
        assert frames[0]["messages_in_context"] == 2
        active = Message.objects.in_session(UUID(session_id)).active()
        assert [m.content.strip() for m in active] == ["one", "You said: one", "edited", "You said: edited"]
        assert Message.objects.in_session(UUID(session_id)).count() == 6

    def test_a_question_comes_after_the_message_that_it_names(self, chat: Socket) -> None:
        first = answered(chat, "one")
        session_id, after = first[0]["session_id"], first[-1]["message_id"]
        answered(chat, "two", session_id=session_id)
        frames = answered(chat, "edited", session_id=session_id, after=after)
        assert frames[0]["messages_in_context"] == 2
        active = Message.objects.in_session(UUID(session_id)).active()
        assert [m.content.strip() for m in active] == ["one", "You said: one", "edited", "You said: edited"]
        assert Message.objects.in_session(UUID(session_id)).count() == 6
        # Also where it has been left since.
        left = Message.objects.get(content="You said: two ")
        answered(chat, "three", session_id=session_id, after=str(left.id))
        assert [m.content for m in active.all() if m.role == "user"] == ["one", "two", "three"]

    def test_before_the_first_message_all_is_left(self, chat: Socket) -> None:
        session_id = answered(chat, "one")[0]["session_id"]
        frames = answered(chat, "edited", session_id=session_id, after=None)
        assert (frames[0]["session_id"], frames[0]["messages_in_context"]) == (session_id, 0)
        active = Message.objects.in_session(UUID(session_id)).active()
        assert [m.content.strip() for m in active] == ["edited", "You said: edited"]

    def test_a_long_thread_is_gone_on_with_in_the_middle(self, chat: Socket) -> None:
        session_id = answered(chat, "one")[0]["session_id"]
        roles = ["user", "assistant"] * 1000
        Message.objects.bulk_create(Message(session_id=session_id, role=role, content=role) for role in roles)
        after = Message.objects.in_session(UUID(session_id))[1501]
        frames = answered(chat, "edited", session_id=session_id, after=str(after.id))
        assert frames[-1]["type"] == "done"
        assert Message.objects.in_session(UUID(session_id)).active().count() == 1504

    @pytest.mark.parametrize("whose", ["nobody", "another session", "another person"])
    def test_a_message_that_is_not_of_the_session_is_not_found(
        self, whose: str, chat: Socket, sockets: Sockets, site: Site, key: str
    ) -> None:
        session_id = answered(chat, "one")[0]["session_id"]
        after = str(uuid4())
        if whose == "another session":
            after = answered(chat, "elsewhere")[-1]["message_id"]
        elif whose == "another person":
            other = sockets.open(f"{site.url}/ws/chat/")
            other.send(type="authenticate", key=key, user="anna")
            assert [other.next()["type"], other.next()["type"]] == ["ready", "ready"]
            frames = answered(other, "secret")
            session_id, after = frames[0]["session_id"], frames[-1]["message_id"]
            other.close()
        stored = Message.objects.count()
        assert answered(chat, "edited", session_id=session_id, after=after)[-1]["status"] == 404
        assert Message.objects.count() == stored

    def test_two_questions_at_once_are_told_apart(self, chat: Socket, stub: StubModel) -> None:
        slow = ask(chat, "wait for it")
        wait_for(lambda: stub.calls["wait for it"])
        quick = ask(chat, "hello")
        frames = chat.until("done")
        assert frames[-1]["id"] == quick
        stub.go_on.set()
        frames += chat.until("done")
        assert text_of([frame for frame in frames if frame["id"] == slow]) == "You said: wait for it "
        assert text_of([frame for frame in frames if frame["id"] == quick]) == "You said: hello "

    @pytest.mark.parametrize(("asked", "status", "code"), [("fail with 500", 502, "model_error")])
    def test_a_failing_model_is_said_in_a_frame_and_the_socket_goes_on(
        self, asked: str, status: int, code: str, chat: Socket
    ) -> None:
        error = answered(chat, asked)[-1]
        assert (error["type"], error["status"], error["code"]) == ("error", status, code)
        assert answered(chat, "and now?")[-1]["type"] == "done"


class TestCancel:
    def test_it_ends_the_turn_and_keeps_the_words(self, chat: Socket, stub: StubModel) -> None:
        question_id = ask(chat, "wait for me")
        frames = [chat.next() for _ in range(3)]
        assert text_of(frames) == "You said: "
        chat.send(type="cancel", id=question_id)
        assert chat.next() == {"type": "cancelled", "id": question_id}
        assert said_in(frames[0]["session_id"])[1] == ("assistant", "You said: ", "interrupted")

    def test_what_is_not_being_answered_cannot_be_cancelled(self, chat: Socket) -> None:
        chat.send(type="cancel", id=str(uuid4()))
        assert (error := chat.next())["status"] == 404, error


class TestResume:
    def begin(self, chat: Socket) -> tuple[str, list[dict[str, Any]]]:
        question_id = ask(chat, "wait for the reconnect")
        frames = [chat.next() for _ in range(3)]
        assert text_of(frames) == "You said: "
        return question_id, frames

    def resume(self, chat: Socket, question_id: str, frames: list[dict[str, Any]], received: int) -> None:
        chat.send(
            type="resume",
            id=question_id,
            session_id=frames[0]["session_id"],
            message_id=frames[0]["message_id"],
            text="wait for the reconnect",
            received=received,
        )

    @pytest.mark.parametrize("received", [0, 4, 10])
    def test_in_the_same_process_no_character_is_lost_or_repeated(
        self, received: int, sockets: Sockets, site: Site, key: str, stub: StubModel
    ) -> None:
        chat = signed_in(sockets, site, key)
        question_id, before = self.begin(chat)
        chat.drop()
        again = signed_in(sockets, site, key)
        self.resume(again, question_id, before, received)
        stub.go_on.set()
        after = again.until("done")
        whole = "You said: wait for the reconnect "
        assert whole[:received] + text_of(after) == whole
        assert after[0]["received"] == received
        assert stub.calls["wait for the reconnect"] == 1
        assert said_in(before[0]["session_id"])[1] == ("assistant", whole, "complete")
        again.close()

    def test_in_another_process_no_character_is_lost_or_repeated(
        self, sockets: Sockets, site: Site, impatient: Site, key: str, stub: StubModel
    ) -> None:
        chat = signed_in(sockets, site, key)
        question_id, before = self.begin(chat)
        chat.drop()
        elsewhere = signed_in(sockets, impatient, key)
        self.resume(elsewhere, question_id, before, 10)
        stub.go_on.set()
        after = elsewhere.until("done")
        assert text_of(after) == "wait for the reconnect "
        assert stub.calls["wait for the reconnect"] == 1
        assert Message.objects.count() == 2
        elsewhere.close()

    def test_an_answer_that_was_given_meanwhile_is_told_from_where_it_broke_off(
        self, sockets: Sockets, site: Site, key: str, stub: StubModel
    ) -> None:
        chat = signed_in(sockets, site, key)
        question_id, before = self.begin(chat)
        chat.close()
        stub.go_on.set()
        wait_for(lambda: Message.objects.filter(status="complete", role="assistant").exists())
        again = signed_in(sockets, site, key)
        self.resume(again, question_id, before, 12)
        assert text_of(again.until("done")) == "it for the reconnect "
        again.close()

    def test_who_does_not_come_back_in_time_finds_the_words_as_interrupted_and_another_answer(
        self, sockets: Sockets, impatient: Site, key: str, stub: StubModel
    ) -> None:
        chat = signed_in(sockets, impatient, key)
        question_id, before = self.begin(chat)
        chat.drop()
        session_id = before[0]["session_id"]
        wait_for(lambda: len(said_in(session_id)) == 2)
        assert said_in(session_id)[1] == ("assistant", "You said: ", "interrupted")
        stub.go_on.set()
        again = signed_in(sockets, impatient, key)
        self.resume(again, question_id, before, 10)
        after = again.until("done")
        # It is another answer, so it is told as a whole.
        assert (after[0]["received"], text_of(after)) == (0, "You said: wait for the reconnect ")
        assert after[0]["message_id"] != before[0]["message_id"]
        again.close()

    def test_a_question_that_never_arrived_is_asked(self, chat: Socket) -> None:
        question_id = str(uuid4())
        chat.send(type="resume", id=question_id, text="hello", received=0)
        assert text_of(chat.until("done")) == "You said: hello "

    def test_a_cancel_after_coming_back_ends_the_turn(
        self, sockets: Sockets, site: Site, key: str, stub: StubModel
    ) -> None:
        chat = signed_in(sockets, site, key)
        question_id, before = self.begin(chat)
        chat.drop()
        again = signed_in(sockets, site, key)
        self.resume(again, question_id, before, 10)
        assert again.next()["type"] == "start"
        again.send(type="cancel", id=question_id)
        assert again.until("cancelled")
        assert said_in(before[0]["session_id"])[1] == ("assistant", "You said: ", "interrupted")
        again.close()

    def test_a_server_that_is_stopped_keeps_the_words(
        self, sockets: Sockets, database_url: str, stub: StubModel
    ) -> None:
        site = Site(database_url, stub)
        # The server's own end waits for whichever of them ends first.
        _, chat, _ = (sockets.open(f"{site.url}/ws/chat/") for _ in range(3))
        assert chat.next() == {"type": "ready"}
        _, before = self.begin(chat)
        site.stop(signal.SIGTERM)
        assert said_in(before[0]["session_id"])[1] == ("assistant", "You said: ", "interrupted")


class TestWhoMay:
    def test_on_this_machine_in_development_no_key_is_needed(self, sockets: Sockets, site: Site) -> None:
        chat = sockets.open(f"{site.url}/ws/chat/")
        assert chat.next() == {"type": "ready"}
        answered(chat, "hello")
        assert Session.objects.get().owner is None
        chat.close()

    def test_a_key_in_the_first_frame_names_client_and_person(self, sockets: Sockets, site: Site, key: str) -> None:
        chat = sockets.open(f"{site.url}/ws/chat/")
        chat.next()
        chat.send(type="authenticate", key=key, user="anna")
        assert chat.next() == {"type": "ready"}
        answered(chat, "hello")
        session = Session.objects.get()
        assert session.owner
        assert (session.owner.username, session.user_id) == ("client", "anna")
        chat.close()

    def test_a_wrong_key_is_refused_and_may_be_put_right(self, sockets: Sockets, site: Site, key: str) -> None:
        chat = sockets.open(f"{site.url}/ws/chat/", Authorization="Bearer evi_wrong")
        ask(chat, "hello")
        assert (error := chat.next())["status"] == 401, error
        chat.send(type="authenticate", key=key)
        assert chat.next() == {"type": "ready"}
        chat.close()

    def test_who_does_not_sign_in_is_shown_the_door(self, sockets: Sockets, site: Site) -> None:
        chat = sockets.open(f"{site.url}/ws/chat/", Authorization="Bearer evi_wrong")
        assert chat.next()["status"] == 401
        assert chat.end() == 4401

    def test_a_key_that_is_revoked_meanwhile_opens_nothing(self, chat: Socket) -> None:
        answered(chat, "hello")
        ApiKey.objects.all().delete()
        assert answered(chat, "hello")[-1]["status"] == 401

    def test_who_signed_in_on_a_page_has_sessions_of_their_own(self, sockets: Sockets, site: Site) -> None:
        user = User.objects.create_user("anna", password="geheim")
        page = Client()
        page.force_login(user)
        cookie = f"{settings.SESSION_COOKIE_NAME}={page.cookies[settings.SESSION_COOKIE_NAME].value}"
        chat = sockets.open(f"{site.url}/ws/chat/", Cookie=cookie, Origin=site.url)
        chat.next()
        answered(chat, "hello")
        assert Session.objects.get().owner == user
        page.logout()
        # On this machine in development who has signed out is nobody in particular.
        answered(chat, "hello again")
        assert Session.objects.exclude(owner=user).get().owner is None
        chat.close()

    @pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:1", "https://127.0.0.1"])
    def test_a_page_of_another_site_is_refused(self, origin: str, sockets: Sockets, site: Site, key: str) -> None:
        with pytest.raises(aiohttp.WSServerHandshakeError) as refusal:
            sockets.open(f"{site.url}/ws/chat/", Origin=origin, Authorization=f"Bearer {key}")
        assert refusal.value.status == 403

    def test_a_name_that_is_not_the_sites_is_refused(self, sockets: Sockets, site: Site) -> None:
        with pytest.raises(aiohttp.WSServerHandshakeError) as refusal:
            sockets.open(f"{site.url}/ws/chat/", Host="evil.example", Origin="http://evil.example")
        assert refusal.value.status == 403

    def test_somebody_elses_session_is_not_found_in_the_words_of_an_unknown_one(
        self, chat: Socket, sockets: Sockets, site: Site
    ) -> None:
        mine = answered(chat, "mine")[0]["session_id"]
        other = signed_in(sockets, site, create_api_key(name="other", client="other"))
        texts = []
        for session_id in (mine, str(uuid4())):
            error = answered(other, "yours?", session_id=session_id)[-1]
            assert (error["status"], error["code"]) == (404, "session_not_found")
            texts.append(error["message"].replace(session_id, "ID"))
        assert texts[0] == texts[1]
        other.close()

    def test_somebody_elses_question_is_not_taken_up(self, chat: Socket, sockets: Sockets, site: Site) -> None:
        frames = answered(chat, "mine")
        other = signed_in(sockets, site, create_api_key(name="other", client="other"))
        other.send(type="resume", id=frames[0]["id"], session_id=frames[0]["session_id"], text="mine", received=0)
        assert other.next()["status"] == 404
        other.close()

    def test_somebody_elses_question_is_not_cancelled(
        self, chat: Socket, sockets: Sockets, site: Site, stub: StubModel
    ) -> None:
        question_id = ask(chat, "wait for nobody else")
        frames = [chat.next() for _ in range(3)]
        # With another key, and with the same key on another connection.
        others = [signed_in(sockets, site, create_api_key(name="other", client=name)) for name in ("other", "client")]
        for other in others:
            other.send(type="cancel", id=question_id)
            assert other.next()["status"] == 404
        stub.go_on.set()
        assert text_of([*frames, *chat.until("done")]) == "You said: wait for nobody else "
        for other in others:
            other.close()

    def test_there_is_nothing_elsewhere(self, sockets: Sockets, site: Site) -> None:
        with pytest.raises(aiohttp.WSServerHandshakeError) as refusal:
            sockets.open(f"{site.url}/ws/elsewhere/")
        assert refusal.value.status == 403


class TestLimits:
    @pytest.mark.parametrize(
        "frame",
        [
            "",
            "nonsense",
            "[]",
            "null",
            '"ask"',
            "{}",
            '{"type": "shout"}',
            '{"type": "ask"}',
            '{"type": "ask", "id": "1", "text": "hello"}',
            '{"type": "ask", "id": "ID", "text": " "}',
            '{"type": "ask", "id": "ID", "text": 1}',
            '{"type": "ask", "id": "ID", "text": "a\\u0000b"}',
            '{"type": "ask", "id": "ID", "text": "\\ud800"}',
            '{"type": "ask", "id": "ID", "text": "hello", "session_id": "x"}',
            '{"type": "ask", "id": "ID", "text": "hello", "history": [{"role": "system", "content": "x"}]}',
            '{"type": "ask", "id": "ID", "text": "hello", "history": {"role": "user"}}',
            '{"type": "ask", "id": "ID", "text": "hello", "history": [], "after": null}',
            '{"type": "ask", "id": "ID", "text": "hello", "after": "ID"}',
            '{"type": "ask", "id": "ID", "text": "hello", "after": "nothing"}',
            '{"type": "resume", "id": "ID", "text": "hello", "received": -1}',
            '{"type": "cancel"}',
            '{"type": "authenticate"}',
            "[" * 5000,
            json.dumps({"type": "ask", "id": "ID", "text": "x" * 32_001}),
        ],
    )
    def test_nonsense_is_answered_and_survived(self, frame: str, chat: Socket) -> None:
        frame_id = str(uuid4())
        chat.send_text(frame.replace('"ID"', f'"{frame_id}"'))
        error = chat.next()
        assert (error["type"], error["status"], error["code"]) == ("error", 400, "invalid_request")
        assert error.get("id") == (frame_id if '"ID"' in frame else None)
        assert answered(chat, "hello")[-1]["type"] == "done"
        assert Session.objects.count() == 1

    def test_a_binary_frame_is_answered_and_survived(self, chat: Socket) -> None:
        chat.send_bytes(b"\x00\xff")
        assert chat.next()["status"] == 400
        assert answered(chat, "hello")[-1]["type"] == "done"

    def test_what_was_said_before_may_be_longer_than_a_question(self, chat: Socket) -> None:
        long = "lang " * (settings.EVI.max_message_chars // 4)
        assert answered(chat, "hello", history=[{"role": "assistant", "content": long}])[-1]["type"] == "done"
        assert answered(chat, long)[-1]["status"] == 400

    def test_a_frame_over_the_limit_is_answered_and_survived(self, chat: Socket) -> None:
        said = {"role": "user", "content": "x" * 30_000}
        chat.send(type="ask", id=str(uuid4()), text="hello", history=[said] * 4)
        assert (error := chat.next())["status"] == 413, error
        assert answered(chat, "hello")[-1]["type"] == "done"

    def test_a_frame_that_is_larger_than_the_server_reads_ends_the_connection_and_no_other(
        self, chat: Socket, sockets: Sockets, site: Site, key: str
    ) -> None:
        other = signed_in(sockets, site, key)
        other.send_text("x" * 1_100_000)
        # Daphne hangs up without a word.
        assert other.end() == 1006
        assert answered(chat, "hello")[-1]["type"] == "done"

    def test_who_asks_too_much_in_a_minute_is_told_when_to_come_back(
        self, sockets: Sockets, impatient: Site, key: str
    ) -> None:
        chat = signed_in(sockets, impatient, create_api_key(name="eager", client="eager"))
        ends = [answered(chat, "hello")[-1] for _ in range(41)]
        refused = [end for end in ends if end["type"] == "error"]
        assert {(end["status"], end["code"]) for end in refused} == {(429, "rate_limit_exceeded")}
        assert 1 <= refused[0]["retry_after"] <= 60
        chat.close()

    def test_more_questions_at_once_than_allowed_are_refused(self, chat: Socket, stub: StubModel) -> None:
        for number in range(4):
            ask(chat, f"wait {number}")
        ask(chat, "one too many")
        assert (error := chat.until("error")[-1])["status"] == 429, error

    def test_one_person_can_have_so_many_connections(self, sockets: Sockets, site: Site) -> None:
        key = create_api_key(name="many", client="many")
        opened = [signed_in(sockets, site, key) for _ in range(50)]
        refused = sockets.open(f"{site.url}/ws/chat/", Authorization=f"Bearer {key}")
        assert refused.next()["code"] == "too_many_connections"
        assert refused.end() == 4429
        opened.pop().close()
        wait_for(lambda: _can_open(sockets, site, key))
        for chat in opened:
            chat.close()


def _can_open(sockets: Sockets, site: Site, key: str) -> bool:
    chat = sockets.open(f"{site.url}/ws/chat/", Authorization=f"Bearer {key}")
    try:
        return chat.next() == {"type": "ready"}
    finally:
        chat.close()


@needs_proc
def test_readers_that_do_not_read_cost_no_memory_and_hold_nobody_up(
    chat: Socket, sockets: Sockets, site: Site, key: str, stub: StubModel
) -> None:
    # What a turn of that length costs by itself is paid before.
    answered(chat, "pour out 2000000")
    before = memory_of(site)
    question_id = ask(chat, "wait and pour out 2000000")
    wait_for(lambda: stub.calls["wait and pour out 2000000"])
    resume = json.dumps({"type": "resume", "id": question_id, "text": "wait and pour out 2000000"})
    authenticate = json.dumps({"type": "authenticate", "key": key, "user": ""})
    with ExitStack() as stack:
        # Kept in memory it would be twice what is allowed.
        for _ in range(25):
            connection = stack.enter_context(deaf(site.port, "/ws/chat/"))
            write_text(connection, authenticate.ljust(130))
            write_text(connection, resume.ljust(130))
        stub.go_on.set()
        assert len(text_of(chat.until("done"))) == 2_000_000
        assert memory_of(site) - before < 25_000_000


def memory_of(site: Site) -> int:
    """The bytes that a process has in memory."""
    return int(Path(f"/proc/{site.process.pid}/statm").read_text().split()[1]) * 4096
