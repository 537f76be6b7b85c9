"""The turn as clients see it: the official OpenAI SDK and plain HTTP against a real server, model and database."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any, Protocol
from uuid import UUID, uuid4

import httpx
import openai
import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from conversations.accounts import create_api_key
from conversations.models import ApiKey, Message, Session
from evi_site.environment import BASE_DIR
from tests.processes import coverage_variables, free_port, wait_for
from tests.stub_model import StubModel

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(scope="module")
def stub() -> Iterator[StubModel]:
    stub = StubModel()
    yield stub
    stub.shutdown()
    stub.server_close()


class Model(Protocol):
    """Whatever answers over HTTP as OpenAI does."""

    @property
    def base_url(self) -> str: ...


class Site:
    """A web process of EVI on the test database, with the stub as its model."""

    def __init__(self, database_url: str, stub: Model, **variables: str) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.environment = {
            "PATH": os.environ["PATH"],
            "EVI_DATA_DIR": os.environ["EVI_DATA_DIR"],
            "DATABASE_URL": database_url,
            "EVI_MODEL": "stub",
            "EVI_MODEL_BASE_URL": stub.base_url,
            "EVI_RATE_LIMIT": "100000",
            **coverage_variables(),
            **variables,
        }
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", "daphne", "-v", "0", "-p", str(self.port), "evi_site.asgi:application"]
        self.process = subprocess.Popen(command, cwd=BASE_DIR, env=self.environment)
        # Much else may be running on this machine.
        wait_for(lambda: self.answers("/healthz"), seconds=120)

    def answers(self, path: str) -> bool:
        try:
            return httpx.get(self.url + path, timeout=5).status_code == 200
        except httpx.TransportError:
            return False

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        self.process.send_signal(how)
        self.process.wait(30)


@pytest.fixture(scope="module")
def site(stub: StubModel, database_url: str) -> Iterator[Site]:
    site = Site(database_url, stub)
    yield site
    site.stop()


@pytest.fixture
def key() -> str:
    return create_api_key(name="test", client="client")


@pytest.fixture
def client(site: Site, key: str, stub: StubModel) -> Iterator[openai.OpenAI]:
    stub.reset()
    with openai.OpenAI(base_url=f"{site.url}/v1", api_key=key, max_retries=0) as client:
        yield client
    stub.go_on.set()


def ask(client: openai.OpenAI, text: str, session_id: str = "", **options: Any) -> tuple[str, str]:
    """One question by SDK; the answer and the session's id."""
    raw = client.chat.completions.with_raw_response.create(
        model="evi",
        messages=[{"role": "user", "content": text}],
        extra_headers={"X-Session-ID": session_id, **options.pop("headers", {})},
        **options,
    )
    return raw.parse().choices[0].message.content or "", raw.headers["X-Session-ID"]


def said_in(session_id: str) -> list[tuple[str, str, str]]:
    return [(m.role, m.content, m.status) for m in Message.objects.in_session(UUID(session_id))]


def given_to(stub: StubModel) -> list[str]:
    """What the model was given last, without EVI's own instructions."""
    return [m["content"] for m in stub.requests[-1]["messages"] if m["role"] != "system"]


class TestMemory:
    @pytest.mark.ac("AC-FEAT-008-102")
    def test_without_an_id_a_session_is_made_and_named(self, client: openai.OpenAI) -> None:
        answer, session_id = ask(client, "hello")
        assert answer.strip() == "You said: hello"
        assert said_in(session_id) == [("user", "hello", "complete"), ("assistant", "You said: hello ", "complete")]

    @pytest.mark.ac("AC-FEAT-008-003")
    def test_the_same_session_goes_on_and_the_model_is_given_what_was_said(
        self, client: openai.OpenAI, stub: StubModel
    ) -> None:
        _, session_id = ask(client, "one")
        _, again = ask(client, "two", session_id)
        assert again == session_id
        assert given_to(stub) == ["one", "You said: one ", "two"]

    @pytest.mark.ac("AC-FEAT-008-104")
    def test_the_model_is_given_the_last_ten_messages_and_no_more(
        self, client: openai.OpenAI, stub: StubModel, make_session: Callable[..., Session]
    ) -> None:
        owner = User.objects.get(username="client")
        session = make_session(messages=150, owner=owner)
        ask(client, "and now?", str(session.id))
        assert given_to(stub) == [*(f"message {number}" for number in range(140, 150)), "and now?"]

    @pytest.mark.ac("AC-FEAT-008-105")
    def test_a_session_without_messages_has_no_context(
        self, client: openai.OpenAI, stub: StubModel, make_session: Callable[..., Session]
    ) -> None:
        session = make_session(owner=User.objects.get(username="client"))
        ask(client, "hello", str(session.id))
        assert given_to(stub) == ["hello"]

    @pytest.mark.ac("AC-FEAT-008-204")
    def test_what_does_not_fit_the_budget_is_left_out_in_whole_turns(
        self, client: openai.OpenAI, stub: StubModel, make_session: Callable[..., Session]
    ) -> None:
        session = make_session(owner=User.objects.get(username="client"))
        for number in range(3):
            session.messages.create(role="user", content=f"question {number} " + "veilig " * 2200)
            session.messages.create(role="assistant", content=f"answer {number} " + "veilig " * 2200)
        ask(client, "and now?", str(session.id))
        assert [text[:10] for text in given_to(stub)] == ["question 2", "answer 2 v", "and now?"]
        answer = Message.objects.in_session(session.id).last()
        assert answer
        assert answer.metadata["messages_in_context"] == 2
        assert 4000 < answer.metadata["context_tokens"] <= 8000

    def test_an_upper_case_id_is_the_same_session(self, client: openai.OpenAI) -> None:
        _, session_id = ask(client, "one")
        assert ask(client, "two", session_id.upper())[1] == session_id

    def test_not_storing_leaves_no_trace_and_uses_the_given_history(
        self, client: openai.OpenAI, stub: StubModel
    ) -> None:
        raw = client.chat.completions.with_raw_response.create(
            model="evi",
            store=False,
            messages=[
                {"role": "user", "content": "one"},
                {"role": "assistant", "content": "1"},
                {"role": "user", "content": "two"},
            ],
        )
        assert "X-Session-ID" not in raw.headers
        assert given_to(stub) == ["one", "1", "two"]
        assert not Session.objects.exists()

    def test_a_history_without_a_session_becomes_one(self, client: openai.OpenAI, stub: StubModel) -> None:
        raw = client.chat.completions.with_raw_response.create(
            model="evi",
            messages=[
                {"role": "developer", "content": "be brief"},
                {"role": "user", "content": "one"},
                {"role": "assistant", "content": "1"},
                {"role": "user", "content": [{"type": "text", "text": "two"}]},
            ],
        )
        # The model is told what the client tells it; but nobody said it.
        assert [text for _, text, _ in said_in(raw.headers["X-Session-ID"])] == ["one", "1", "two", "You said: two "]
        assert given_to(stub) == ["one", "1", "two"]
        assert "be brief" in [each["content"] for each in stub.requests[-1]["messages"] if each["role"] == "system"]


class TestStreaming:
    def test_the_answer_comes_word_by_word_in_openais_shape(self, client: openai.OpenAI, stub: StubModel) -> None:
        with client.chat.completions.create(
            model="evi",
            messages=[{"role": "user", "content": "wait here"}],
            stream=True,
            stream_options={"include_usage": True},
        ) as stream:
            first = next(stream)
            assert (first.choices[0].delta.role, first.choices[0].delta.content) == ("assistant", "")
            # The model has said two words and waits: they are here already.
            assert next(stream).choices[0].delta.content == "You "
            stub.go_on.set()
            rest = list(stream)
        assert rest[-1].choices == []
        assert rest[-1].usage
        assert (rest[-1].usage.prompt_tokens, rest[-1].usage.completion_tokens) == (11, 7)
        assert rest[-2].choices[0].finish_reason == "stop"
        assert len({chunk.id for chunk in [first, *rest]}) == 1

    def test_the_end_is_marked(self, site: Site, key: str) -> None:
        body = {"messages": [{"role": "user", "content": "hello"}], "stream": True}
        response = httpx.post(f"{site.url}/v1/chat/completions", json=body, headers={"Authorization": f"Bearer {key}"})
        assert response.headers["Content-Type"].startswith("text/event-stream")
        assert response.text.endswith("data: [DONE]\n\n")
        chunks = [json.loads(line[6:]) for line in response.text.splitlines()[:-2] if line]
        assert all(chunk["choices"] for chunk in chunks)

    def test_a_stream_and_a_plain_answer_store_the_same(self, client: openai.OpenAI) -> None:
        raw = client.chat.completions.with_raw_response.create(
            model="evi", messages=[{"role": "user", "content": "hello"}], stream=True
        )
        list(raw.parse())
        _, plain = ask(client, "hello")
        assert said_in(raw.headers["X-Session-ID"]) == said_in(plain)

    def test_a_model_that_breaks_off_is_an_error_event_and_the_words_are_kept(self, client: openai.OpenAI) -> None:
        raw = client.chat.completions.with_raw_response.create(
            model="evi", messages=[{"role": "user", "content": "break please"}], stream=True
        )
        session_id = raw.headers["X-Session-ID"]
        with pytest.raises(openai.APIError, match="model"):
            list(raw.parse())
        assert said_in(session_id) == [("user", "break please", "complete"), ("assistant", "You said: ", "interrupted")]
        assert ask(client, "still there?", session_id)[0].strip() == "You said: still there?"


class TestLeaving:
    def test_leaving_a_stream_keeps_the_words_as_interrupted(self, client: openai.OpenAI, stub: StubModel) -> None:
        raw = client.chat.completions.with_raw_response.create(
            model="evi", messages=[{"role": "user", "content": "wait for me"}], stream=True
        )
        stream = raw.parse()
        assert [next(stream).choices[0].delta.content for _ in range(3)] == ["", "You ", "said: "]
        stream.close()
        session_id = raw.headers["X-Session-ID"]
        wait_for(lambda: len(said_in(session_id)) == 2)
        assert said_in(session_id)[1] == ("assistant", "You said: ", "interrupted")

    def test_leaving_a_plain_request_keeps_the_whole_answer(self, client: openai.OpenAI, stub: StubModel) -> None:
        with pytest.raises(openai.APITimeoutError):
            ask(client, "wait for me", timeout=1)
        stub.go_on.set()
        wait_for(lambda: Message.objects.filter(role="assistant").exists())
        session_id = str(Session.objects.get().id)
        assert said_in(session_id)[1] == ("assistant", "You said: wait for me ", "complete")


class TestModelFailures:
    @pytest.mark.parametrize(
        ("asked", "status"), [("fail with 500", 502), ("fail with 503", 503), ("fail with 400", 502)]
    )
    @pytest.mark.parametrize("stream", [False, True])
    def test_a_failing_model_is_said_and_the_question_is_kept(
        self, asked: str, status: int, stream: bool, client: openai.OpenAI
    ) -> None:
        with pytest.raises(openai.APIStatusError) as refusal:
            client.chat.completions.create(model="evi", messages=[{"role": "user", "content": asked}], stream=stream)
        assert refusal.value.status_code == status
        session_id = str(Session.objects.get().id)
        assert said_in(session_id) == [("user", asked, "complete"), ("assistant", "", "failed")]
        assert ask(client, "and now?", session_id)[0].strip() == "You said: and now?"

    def test_answers_that_failed_take_no_place_in_the_context(
        self, client: openai.OpenAI, stub: StubModel, make_session: Callable[..., Session]
    ) -> None:
        session = make_session(messages=12, owner=User.objects.get(username="client"))
        for _ in range(3):
            with pytest.raises(openai.InternalServerError):
                ask(client, "fail with 500", str(session.id))
        ask(client, "and now?", str(session.id))
        assert given_to(stub)[0] == "message 5"


class TestRetries:
    def test_the_same_key_gets_the_stored_answer(self, client: openai.OpenAI, stub: StubModel) -> None:
        first = ask(client, "hello", headers={"Idempotency-Key": "k1"})
        assert ask(client, "hello", headers={"Idempotency-Key": "k1"}) == first
        assert stub.calls["hello"] == 1
        assert Message.objects.count() == 2

    def test_a_key_for_another_question_is_refused(self, client: openai.OpenAI) -> None:
        ask(client, "hello", headers={"Idempotency-Key": "k1"})
        with pytest.raises(openai.BadRequestError, match="another question"):
            ask(client, "goodbye", headers={"Idempotency-Key": "k1"})
        assert Message.objects.count() == 2

    def test_two_at_once_with_one_key_are_one_turn(self, client: openai.OpenAI, stub: StubModel) -> None:
        with ThreadPoolExecutor(6) as pool:
            asked = [pool.submit(ask, client, "wait", headers={"Idempotency-Key": "k1"}) for _ in range(6)]
            wait_for(lambda: stub.calls["wait"])
            stub.go_on.set()
            answers = {done.result() for done in asked}
        assert len(answers) == 1
        assert stub.calls["wait"] == 1
        assert Message.objects.count() == 2

    def test_the_sdks_own_retry_joins_the_turn_that_runs(self, site: Site, key: str, stub: StubModel) -> None:
        stub.reset()
        with openai.OpenAI(base_url=f"{site.url}/v1", api_key=key, max_retries=2, timeout=1.5) as client:
            threading.Timer(2.5, stub.go_on.set).start()
            answer, session_id = ask(client, "wait for the retry")
        assert answer.strip() == "You said: wait for the retry"
        assert stub.calls["wait for the retry"] == 1
        assert len(said_in(session_id)) == 2
        assert Session.objects.count() == 1

    def test_after_a_failure_a_retry_asks_the_model_again_but_stores_no_second_question(
        self, client: openai.OpenAI, stub: StubModel
    ) -> None:
        for count in ("0", "1"):
            with pytest.raises(openai.InternalServerError):
                ask(client, "fail with 500", headers={"X-Stainless-Retry-Count": count})
        assert Message.objects.filter(role="user").count() == 1
        assert Session.objects.count() == 1

    def test_after_a_failure_several_retries_at_once_are_one_turn(self, client: openai.OpenAI, stub: StubModel) -> None:
        question, headers = "fail with 500 at first", {"Idempotency-Key": "k1"}
        with pytest.raises(openai.InternalServerError):
            ask(client, question, headers=headers)
        stub.go_on.set()
        before = stub.calls[question]
        with ThreadPoolExecutor(6) as pool:
            answers = list(pool.map(lambda _: ask(client, question, headers=headers), range(6)))
        assert len(set(answers)) == 1
        assert stub.calls[question] == before + 1
        assert Message.objects.active().count() == 2

    def test_a_key_of_another_question_does_not_continue_an_answer(self, client: openai.OpenAI) -> None:
        ask(client, "hello", headers={"Idempotency-Key": "k1"})
        said = [{"role": "user", "content": "one"}, {"role": "assistant", "content": "You"}]
        with pytest.raises(openai.BadRequestError, match="another question"):
            client.chat.completions.create(model="evi", messages=said, extra_headers={"Idempotency-Key": "k1"})  # type: ignore[arg-type]
        assert Message.objects.count() == 2

    def test_the_same_words_without_a_retry_are_a_new_question(self, client: openai.OpenAI) -> None:
        _, session_id = ask(client, "hello")
        ask(client, "hello", session_id)
        assert len(said_in(session_id)) == 4


class TestTwoAtOnce:
    @pytest.mark.ac("AC-FEAT-008-103")
    def test_turns_at_once_in_one_session_lose_and_mix_nothing(self, client: openai.OpenAI) -> None:
        _, session_id = ask(client, "first")
        with ThreadPoolExecutor(10) as pool:
            answers = list(pool.map(lambda n: ask(client, f"question {n}", session_id)[0], range(30)))
        assert [answer.strip() for answer in answers] == [f"You said: question {n}" for n in range(30)]
        stored = Message.objects.in_session(UUID(session_id))
        questions = {m.id: m.content for m in stored if m.role == "user"}
        assert len(stored) == 62
        for message in stored:
            if message.role == "assistant":
                assert message.content == f"You said: {questions[message.reply_to]} "  # type: ignore[index]


class TestInLine:
    """A client whose key says so has its questions answered one after the other."""

    @pytest.fixture
    def key(self) -> str:
        return create_api_key(name="test", client="client", in_line=True)

    def test_a_question_waits_for_the_answer_before_it(self, client: openai.OpenAI, stub: StubModel) -> None:
        _, session_id = ask(client, "first")
        with ThreadPoolExecutor(3) as pool:
            asked = [pool.submit(ask, client, "wait one", session_id)]
            wait_for(lambda: stub.calls["wait one"] == 1)
            asked.append(pool.submit(ask, client, "two", session_id))
            # Another session is another line.
            assert ask(client, "elsewhere")[0]
            assert [text for _, text, _ in said_in(session_id)] == ["first", "You said: first ", "wait one"]
            stub.go_on.set()
            answers = [future.result()[0].strip() for future in asked]
        assert answers == ["You said: wait one", "You said: two"]
        assert [text.strip() for _, text, _ in said_in(session_id)[2:]] == ["wait one", answers[0], "two", answers[1]]
        # It was given the answer it waited for.
        assert "You said: wait one " in given_to(stub)

    def test_many_are_answered_one_by_one(self, client: openai.OpenAI) -> None:
        session_id = ask(client, "first")[1]
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda n: ask(client, f"question {n}", session_id), range(8)))
        said = said_in(session_id)
        assert [role for role, _, _ in said] == ["user", "assistant"] * 9
        for (_, question, _), (_, answer, _) in zip(said[::2], said[1::2], strict=True):
            assert answer.strip() == f"You said: {question}"

    def test_the_line_is_one_for_all_processes(
        self, client: openai.OpenAI, site: Site, stub: StubModel, key: str
    ) -> None:
        second = Site(site.environment["DATABASE_URL"], stub)
        session_id = str(uuid4())
        chat = {"X-Session-ID": session_id, "Authorization": f"Bearer {key}"}

        def ask_at(url: str, text: str) -> httpx.Response:
            return httpx.post(f"{url}/chat", json={"query": text}, headers=chat, timeout=60)

        try:
            with ThreadPoolExecutor(2) as pool:
                # Neither process has seen this session before.
                first = pool.submit(ask_at, site.url, "wait one")
                wait_for(lambda: stub.calls["wait one"] == 1)
                next_one = pool.submit(ask_at, second.url, "two")
                time.sleep(1)
                assert len(said_in(session_id)) == 1
                stub.go_on.set()
                assert first.result().status_code == next_one.result().status_code == 200
        finally:
            second.stop()
        assert [role for role, _, _ in said_in(session_id)] == ["user", "assistant"] * 2

    def test_a_line_that_does_not_move_is_said_so(self, site: Site, stub: StubModel, key: str) -> None:
        stub.reset()
        impatient = Site(site.environment["DATABASE_URL"], stub, EVI_MODEL_TIMEOUT="1")
        session_id = str(uuid4())
        # Two processes that do not agree on how long an answer may take: the longer one is still at it.
        chat = {"X-Session-ID": session_id, "Authorization": f"Bearer {key}"}
        try:
            with ThreadPoolExecutor(1) as pool:
                slow = pool.submit(httpx.post, f"{site.url}/chat", json={"query": "wait one"}, headers=chat, timeout=60)
                wait_for(lambda: stub.calls["wait one"] == 1)
                Message.objects.filter(session_id=session_id).update(created_at=timezone.now() + timedelta(minutes=1))
                refused = httpx.post(f"{impatient.url}/chat", json={"query": "two"}, headers=chat, timeout=60)
                stub.go_on.set()
                assert slow.result().status_code == 200
        finally:
            impatient.stop()
        assert refused.status_code == 429
        assert refused.headers["Retry-After"] == "1"
        assert "still being answered" in refused.json()["detail"]
        assert len(said_in(session_id)) == 2

    def test_a_question_that_a_dead_process_left_does_not_hold_the_line_up_for_ever(
        self, client: openai.OpenAI
    ) -> None:
        _, session_id = ask(client, "first")
        Message.objects.create(session_id=session_id, role="user", content="left behind")
        Message.objects.filter(session_id=session_id).update(created_at=timezone.now() - timedelta(minutes=2))
        assert ask(client, "next", session_id)[0].strip() == "You said: next"


class TestWhoMay:
    def test_another_clients_session_is_not_found_in_the_same_words(self, client: openai.OpenAI, site: Site) -> None:
        _, session_id = ask(client, "mine")
        with openai.OpenAI(
            base_url=f"{site.url}/v1", api_key=create_api_key(name="other", client="other"), max_retries=0
        ) as other:
            unknown = str(uuid4())
            texts = []
            for attempt in (session_id, unknown):
                with pytest.raises(openai.NotFoundError) as refusal:
                    ask(other, "yours?", attempt)
                texts.append(refusal.value.response.text.replace(attempt, "ID"))
        assert texts[0] == texts[1]
        assert len(said_in(session_id)) == 2

    @pytest.mark.parametrize("how", ["body", "header"])
    def test_another_persons_session_is_not_found(self, how: str, client: openai.OpenAI) -> None:
        def as_person(name: str) -> dict[str, Any]:
            return {"user": name} if how == "body" else {"headers": {"X-OpenWebUI-User-Id": name}}

        _, session_id = ask(client, "mine", **as_person("anna"))
        with pytest.raises(openai.NotFoundError):
            ask(client, "yours?", session_id, **as_person("bram"))
        with pytest.raises(openai.NotFoundError):
            ask(client, "nobody's?", session_id)
        ask(client, "mine again", session_id, **as_person("anna"))

    def test_a_revoked_key_opens_nothing(self, client: openai.OpenAI) -> None:
        ask(client, "hello")
        ApiKey.objects.all().delete()
        with pytest.raises(openai.AuthenticationError):
            ask(client, "hello")

    def test_a_client_that_is_switched_off_is_refused(self, client: openai.OpenAI) -> None:
        User.objects.filter(username="client").update(is_active=False)
        with pytest.raises(openai.AuthenticationError):
            ask(client, "hello")

    def test_the_use_of_a_key_is_noted(self, client: openai.OpenAI) -> None:
        ask(client, "hello")
        assert ApiKey.objects.get().last_used_at

    def test_on_this_machine_in_development_no_key_is_needed(self, site: Site) -> None:
        response = httpx.post(f"{site.url}/chat", json={"query": "hello"})
        assert response.json()["answer"].strip() == "You said: hello"
        assert Session.objects.get().owner is None


class TestSessionIds:
    @pytest.mark.ac("AC-FEAT-008-101")
    @pytest.mark.ac("AC-FEAT-008-302")
    @pytest.mark.parametrize(
        "session_id",
        [
            "not-a-uuid",
            "123",
            "{550e8400-e29b-41d4-a716-446655440000}",
            "550e8400e29b41d4a716446655440000",
            "550e8400-e29b-11d4-a716-446655440000",
            "550e8400-e29b-41d4-c716-446655440000",
            "550e8400-e29b-41d4-a716-446655440000; DROP TABLE sessions",
        ],
    )
    def test_anything_but_a_uuid_of_version_four_is_refused(
        self, session_id: str, client: openai.OpenAI, site: Site
    ) -> None:
        with pytest.raises(openai.BadRequestError) as refusal:
            ask(client, "hello", session_id)
        assert refusal.value.response.json()["error"] == {
            "message": "Invalid session ID format: must be valid UUID",
            "type": "invalid_request_error",
            "param": "X-Session-ID",
            "code": "invalid_session_id",
        }
        plain = httpx.post(f"{site.url}/chat", json={"query": "hello"}, headers={"X-Session-ID": session_id})
        assert (plain.status_code, plain.json()) == (
            400,
            {"error": "Invalid session_id format", "detail": "session_id must be a valid UUID"},
        )
        assert not Session.objects.exists()

    @pytest.mark.ac("AC-FEAT-008-106")
    def test_an_unknown_id_is_not_found_by_v1_and_created_by_chat(self, client: openai.OpenAI, site: Site) -> None:
        unknown = str(uuid4())
        with pytest.raises(
            openai.NotFoundError, match=f"Session not found: {unknown}.*Leave the X-Session-ID header out"
        ):
            ask(client, "hello", unknown)
        assert not Session.objects.exists()
        created = httpx.post(f"{site.url}/chat", json={"query": "hello"}, headers={"X-Session-ID": unknown})
        assert created.headers["X-Session-ID"] == created.json()["metadata"]["session_id"] == unknown


class TestRestart:
    @pytest.fixture
    def site(self, database_url: str, stub: StubModel) -> Iterator[Site]:
        """One of its own: what is killed does not tell what it covered."""
        site = Site(database_url, stub)
        yield site
        site.stop()

    @pytest.mark.ac("AC-FEAT-008-007")
    @pytest.mark.ac("AC-FEAT-008-402")
    def test_a_kill_in_mid_stream_keeps_the_question_and_the_session_goes_on(
        self, client: openai.OpenAI, site: Site, stub: StubModel
    ) -> None:
        _, session_id = ask(client, "one")
        stream = client.chat.completions.create(
            model="evi",
            messages=[{"role": "user", "content": "wait for it"}],
            stream=True,
            extra_headers={"X-Session-ID": session_id},
        )
        next(stream)
        site.stop(signal.SIGKILL)
        with pytest.raises((openai.APIError, httpx.TransportError)):
            list(stream)
        stub.go_on.set()
        site.start()
        assert said_in(session_id)[2:] == [("user", "wait for it", "complete")]
        ask(client, "two", session_id)
        assert given_to(stub)[:2] == ["one", "You said: one "]
        assert "wait for it" in given_to(stub)[2]

    def test_a_server_that_is_stopped_lets_an_answer_come_to_its_end(
        self, client: openai.OpenAI, database_url: str, stub: StubModel
    ) -> None:
        site = Site(database_url, stub)
        with ThreadPoolExecutor(1) as waiting:
            question = {"query": "wait for it"}
            waiting.submit(httpx.post, f"{site.url}/chat", json=question, timeout=30)
            wait_for(lambda: stub.calls["wait for it"])
            site.process.terminate()
            # Long enough for a server that does not wait to be gone.
            time.sleep(2)
            stub.go_on.set()
            assert site.process.wait(30) is not None
        assert said_in(str(Session.objects.get().id))[1:] == [("assistant", "You said: wait for it ", "complete")]


class TestSettings:
    def ask_with(self, database_url: str, stub: StubModel, key: str, text: str, **variables: str) -> httpx.Response:
        stub.reset()
        site = Site(database_url, stub, **variables)
        try:
            return httpx.post(
                f"{site.url}/v1/chat/completions",
                json={"messages": [{"role": "user", "content": text}]},
                headers={"Authorization": f"Bearer {key}"},
                timeout=30,
            )
        finally:
            stub.go_on.set()
            site.stop()

    def test_a_model_that_takes_too_long_is_a_504(self, database_url: str, stub: StubModel, key: str) -> None:
        response = self.ask_with(database_url, stub, key, "wait", EVI_MODEL_TIMEOUT="3")
        assert (response.status_code, response.json()["error"]["code"]) == (504, "model_timeout")
        assert [m.status for m in Message.objects.order_by("seq")] == ["complete", "interrupted"]

    def test_a_fallback_takes_over(self, database_url: str, stub: StubModel, key: str) -> None:
        response = self.ask_with(database_url, stub, key, "fail with 500", EVI_MODEL_FALLBACKS="echo")
        assert response.json()["choices"][0]["message"]["content"] == "Je vroeg: fail with 500"
        assert Message.objects.get(role="assistant").metadata["model"] == "echo"

    def test_a_model_that_is_not_there_is_a_503(self, database_url: str, stub: StubModel, key: str) -> None:
        nowhere = f"http://127.0.0.1:{free_port()}/v1"
        response = self.ask_with(database_url, stub, key, "hello", EVI_MODEL_BASE_URL=nowhere)
        assert (response.status_code, response.json()["error"]["code"]) == (503, "model_unavailable")

    def test_unknown_sessions_can_be_created_by_v1_too(self, database_url: str, stub: StubModel, key: str) -> None:
        site = Site(database_url, stub, EVI_UNKNOWN_SESSION="create")
        try:
            with openai.OpenAI(base_url=f"{site.url}/v1", api_key=key, max_retries=0) as client:
                unknown = str(uuid4())
                assert ask(client, "hello", unknown)[1] == unknown
        finally:
            site.stop()


@pytest.mark.ac("AC-FEAT-008-206")
def test_two_hundred_streams_at_once_on_a_pool_of_twenty(client: openai.OpenAI, stub: StubModel) -> None:
    def stream(number: int) -> str:
        chunks = client.chat.completions.create(
            model="evi", messages=[{"role": "user", "content": f"wait {number}"}], stream=True
        )
        return "".join(chunk.choices[0].delta.content or "" for chunk in chunks)

    with ThreadPoolExecutor(200) as pool:
        answers = [pool.submit(stream, number) for number in range(200)]
        # All of them are under way before the model goes on with any.
        wait_for(lambda: len(stub.requests) == 200, seconds=60)
        stub.go_on.set()
        assert [done.result().strip() for done in answers] == [f"You said: wait {number}" for number in range(200)]
    assert Session.objects.count() == 200
    assert Message.objects.filter(status="complete").count() == 400


class TestReplaysOfWhatFailed:
    """OpenWebUI keeps the question of a turn that failed, and as much of its answer as it got."""

    CHAT = "9c3fd53e-5d0a-4b43-9c0c-3c1f9cf0a001"

    def send(self, site: Site, key: str, *said: str) -> httpx.Response:
        # Who says what: a text that the model gave begins so.
        roles = ["assistant" if text.startswith("You said:") else "user" for text in said]
        return httpx.post(
            f"{site.url}/v1/chat/completions",
            json={"messages": [{"role": role, "content": text} for role, text in zip(roles, said, strict=True)]}
            | {"stream": True},
            headers={"Authorization": f"Bearer {key}", "X-OpenWebUI-Chat-Id": self.CHAT},
            timeout=30,
        )

    def stored(self) -> list[tuple[str, str]]:
        assert not Message.objects.exclude(superseded_by=None).exclude(content="").exists()
        return [(m.content.strip(), m.status) for m in Message.objects.active().in_session(UUID(self.CHAT))]

    @pytest.mark.usefixtures("client")
    def test_questions_stand_in_a_row(self, site: Site, key: str, stub: StubModel) -> None:
        asked = ["fail with 400", "fail with 422", "say three"]
        statuses = [self.send(site, key, *asked[:number]).status_code for number in (1, 2, 3)]
        assert statuses == [502, 502, 200]
        assert given_to(stub) == asked
        first, second, third = [(text, "complete") for text in asked]
        failed = ("", "failed")
        assert self.stored() == [first, failed, second, failed, third, ("You said: say three", "complete")]

    @pytest.mark.usefixtures("client")
    def test_a_question_asked_again_is_answered(self, site: Site, key: str, stub: StubModel) -> None:
        question = "fail with 400 at first"
        assert self.send(site, key, question).status_code == 502
        stub.go_on.set()
        assert self.send(site, key, question).status_code == 200
        assert self.stored() == [(question, "complete"), (f"You said: {question}", "complete")]

    @pytest.mark.usefixtures("client")
    def test_an_answer_that_broke_off_is_known(self, site: Site, key: str) -> None:
        broken = self.send(site, key, "break please")
        assert '"error"' in broken.text
        self.send(site, key, "break please", "You said:", "say more")
        assert self.stored() == [
            ("break please", "complete"),
            ("You said:", "interrupted"),
            ("say more", "complete"),
            ("You said: say more", "complete"),
        ]
