"""What goes wrong seldom: half-dead processes, a database that is away, settings that name no model."""

import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import httpx
import pytest
from django.core.exceptions import ValidationError
from django.test import Client
from django.utils import timezone
from pytest_django import Settings

from conversations.accounts import create_api_key
from conversations.models import Message, Session
from conversations.retries import request_key
from conversations.tasks import cleanup_sessions
from tests.processes import free_port, wait_for
from tests.stub_model import StubModel
from tests.test_turns import Site, said_in

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def stub() -> Iterator[StubModel]:
    stub = StubModel()
    yield stub
    stub.go_on.set()
    stub.shutdown()
    stub.server_close()


def ask(text: str, *earlier: tuple[str, str], session: str = "", retry: str = "0", key: str = "", **more: Any) -> Any:
    """A question to /v1 from this machine, in this process; `earlier` is the history that the client sends."""
    said = [{"role": role, "content": content} for role, content in earlier]
    body = {"messages": [*said, {"role": "user", "content": text}], **more}
    headers = {"X-Session-ID": session, "X-Stainless-Retry-Count": retry, "Idempotency-Key": key}
    return Client().post("/v1/chat/completions", json.dumps(body), content_type="application/json", headers=headers)


class TestRepeatedQuestions:
    """A client that had no answer asks again, and says that it does."""

    HISTORY = (("user", "one"), ("assistant", "1"))

    def test_the_same_place_in_the_same_history_is_the_same_question(self) -> None:
        first = ask("two", *self.HISTORY)
        again = ask("two", *self.HISTORY, retry="1")
        assert again["X-Session-ID"] == first["X-Session-ID"]
        assert Message.objects.filter(content="two").count() == 1

    def test_the_same_words_at_another_place_are_another_question(self) -> None:
        first = ask("two", *self.HISTORY)
        again = ask("two", retry="1")
        assert again["X-Session-ID"] != first["X-Session-ID"]

    def test_in_a_session_only_its_last_question_can_be_meant(self) -> None:
        session = ask("one")["X-Session-ID"]
        ask("two", session=session)
        ask("one", session=session, retry="1")
        assert [text for role, text, _ in said_in(session) if role == "user"] == ["one", "two", "one"]
        ask("one", session=session, retry="2")
        assert len(said_in(session)) == 6

    def test_a_question_whose_process_died_is_answered_when_it_is_asked_again(self) -> None:
        session = Session.objects.create()
        asked = request_key(owner_id=None, user_id="", idempotency_key="k1")
        long_ago = timezone.now() - timedelta(minutes=5)
        session.messages.create(role="user", content="hello", request_key=asked, created_at=long_ago)
        response = ask("hello", key="k1")
        assert response["X-Session-ID"] == str(session.id)
        assert [(role, status) for role, _, status in said_in(str(session.id))] == [
            ("user", "complete"),
            ("assistant", "complete"),
        ]


def test_one_question_at_two_processes_is_answered_by_one_of_them(database_url: str, stub: StubModel) -> None:
    sites = [Site(database_url, stub) for _ in range(2)]
    body = {"messages": [{"role": "user", "content": "wait for the other"}]}

    def post(site: Site) -> httpx.Response:
        url = f"{site.url}/v1/chat/completions"
        return httpx.post(url, json=body, headers={"Idempotency-Key": "k1"}, timeout=30)

    try:
        with ThreadPoolExecutor(4) as pool:
            asked = [pool.submit(post, site) for site in sites * 2]
            wait_for(lambda: stub.calls["wait for the other"])
            # Long enough for the others to look, and look again.
            threading.Timer(1, stub.go_on.set).start()
            answers = [done.result() for done in asked]
    finally:
        stub.go_on.set()
        for site in sites:
            site.stop()
    assert {answer.json()["choices"][0]["message"]["content"] for answer in answers} == {
        "You said: wait for the other "
    }
    assert len({answer.headers["X-Session-ID"] for answer in answers}) == 1
    assert stub.calls["wait for the other"] == 1
    assert Message.objects.count() == 2


def test_one_question_sent_twice_to_one_chat_has_one_answer(database_url: str, stub: StubModel) -> None:
    """A double click: both requests get the answer that is under way."""
    site = Site(database_url, stub)
    body = {"messages": [{"role": "user", "content": "wait for both"}]}
    headers = {"X-OpenWebUI-Chat-Id": "c3ee88b6-3b52-4cee-adf2-15b629bf60a8"}

    def post() -> httpx.Response:
        return httpx.post(f"{site.url}/v1/chat/completions", json=body, headers=headers, timeout=30)

    try:
        with ThreadPoolExecutor(4) as pool:
            asked = [pool.submit(post)]
            wait_for(lambda: stub.calls["wait for both"])
            asked += [pool.submit(post) for _ in range(3)]
            # Long enough for the others to come in.
            threading.Timer(1, stub.go_on.set).start()
            answers = [done.result() for done in asked]
    finally:
        stub.go_on.set()
        site.stop()
    assert [answer.status_code for answer in answers] == [200] * 4
    assert stub.calls["wait for both"] == 1
    assert Message.objects.count() == 2


def test_who_joins_a_stream_with_a_plain_request_is_answered_when_the_stream_hangs_up(
    database_url: str, stub: StubModel
) -> None:
    site = Site(database_url, stub)
    url, headers = f"{site.url}/v1/chat/completions", {"Idempotency-Key": "k1"}
    body = {"messages": [{"role": "user", "content": "wait for both"}]}
    try:
        with ThreadPoolExecutor(1) as pool:
            with httpx.stream("POST", url, json={**body, "stream": True}, headers=headers, timeout=30) as streamed:
                # Kept, because an iterator that nobody holds closes the connection.
                lines = streamed.iter_lines()
                next(lines)
                plain = pool.submit(httpx.post, url, json=body, headers=headers, timeout=30)
                # Time to join; it would be one more question otherwise, and that is looked at below.
                time.sleep(1)
            time.sleep(0.5)
            stub.go_on.set()
            answer = plain.result()
    finally:
        stub.go_on.set()
        site.stop()
    assert answer.json()["choices"][0]["message"]["content"] == "You said: wait for both "
    assert (stub.calls["wait for both"], Message.objects.count()) == (1, 2)


def test_a_database_that_is_away_is_a_503_in_each_surfaces_own_shape(stub: StubModel) -> None:
    site = Site(f"postgresql://evi:secret-secret@127.0.0.1:{free_port()}/evi", stub)
    question = {"messages": [{"role": "user", "content": "hello"}]}
    requests = [
        ("POST", "/v1/chat/completions", question),
        ("POST", "/v1/chat/completions", {**question, "stream": True}),
        ("POST", "/chat", {"query": "hello"}),
        ("GET", "/api/sessions", None),
    ]
    try:
        with ThreadPoolExecutor(4) as pool:
            answers = list(
                pool.map(lambda ask: httpx.request(ask[0], site.url + ask[1], json=ask[2], timeout=60), requests)
            )
    finally:
        site.stop()
    assert [answer.status_code for answer in answers] == [503] * 4
    for_openai = [answer.json()["error"] for answer in answers[:2]]
    assert {error["code"] for error in for_openai} == {"database_unavailable"}
    assert {answer.json()["error"] for answer in answers[2:]} == {"Database unavailable"}
    assert all("try again" in answer.text for answer in answers)


class TestWithoutAModel:
    @pytest.mark.parametrize("stream", [False, True])
    def test_settings_that_name_no_model_are_said_to_be_evis_fault(self, stream: bool, settings: Settings) -> None:
        settings.EVI = settings.EVI.model_copy(update={"model": "nonsense:model"})
        response = ask("hello", stream=stream)
        assert response.status_code == 500
        assert response.json()["error"] == {
            "message": "Something went wrong on EVI's side. Please try again.",
            "type": "server_error",
            "param": None,
            "code": "internal_error",
        }
        # Whoever sets it right finds the question; and that it came to nothing, so that nobody waits for its answer.
        assert Message.objects.get(role="user").content == "hello"
        assert Message.objects.get(role="assistant").status == "failed"

    def test_when_every_fallback_fails_the_last_failure_is_told(self, database_url: str, stub: StubModel) -> None:
        second = {"OPENAI_API_KEY": "none", "OPENAI_BASE_URL": stub.base_url}
        site = Site(database_url, stub, EVI_MODEL_FALLBACKS="openai-chat:second", **second)
        try:
            response = httpx.post(f"{site.url}/chat", json={"query": "fail with 503"}, timeout=30)
        finally:
            site.stop()
        assert (response.status_code, response.json()["error"]) == (503, "Model unavailable")
        assert {request["model"] for request in stub.requests} == {"stub", "second"}


@pytest.mark.parametrize("path", ["/v1/models", "/v1/models/evi"])
def test_a_wrong_method_is_a_405_in_openais_shape(path: str) -> None:
    response = Client(enforce_csrf_checks=True).post(path)
    assert (response.status_code, response["Allow"]) == (405, "GET")
    assert response.json()["error"]["message"] == "Use GET here."


def test_the_page_of_the_api_has_nothing_to_say_about_itself() -> None:
    assert Client(raise_request_exception=False).options("/api/docs/").status_code == 405


@pytest.mark.parametrize("address", ["", "unix:", "10.0.0.7"])
def test_whoever_is_not_known_to_be_on_this_machine_needs_a_key(address: str) -> None:
    response = Client().post("/chat", '{"query": "hello"}', content_type="application/json", REMOTE_ADDR=address)
    assert response.status_code == 401
    assert not Session.objects.exists()


def test_a_client_that_is_switched_off_gets_no_new_key(django_user_model: Any) -> None:
    django_user_model.objects.create_user("closed", is_active=False)
    with pytest.raises(ValidationError, match="switched off"):
        create_api_key(name="new", client="closed")


def test_the_scheduled_clean_up_says_what_it_did() -> None:
    session = Session.objects.create()
    Session.objects.filter(id=session.id).update(last_accessed=timezone.now() - timedelta(days=31))
    assert cleanup_sessions()["sessions"] == 1
