"""What EVI refuses, and how it says so: a clear error in the surface's own shape, and nothing changed."""

import json
import logging
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest
from django.core.exceptions import RequestAborted
from django.test import Client
from django.utils import timezone
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pytest_django import Settings

from conversations.errors import TooManyRequestsError
from conversations.limits import count, window
from conversations.models import Message, Session
from evi_site.logs import NoGoodbyes

pytestmark = pytest.mark.django_db


def limits(settings: Settings, **changes: Any) -> None:
    settings.EVI = settings.EVI.model_copy(update=changes)


def post(path: str, body: Any, **extra: Any) -> tuple[int, Any, Any]:
    """Status, JSON and headers of a request with a JSON body, or with text as it is."""
    text = body if isinstance(body, str | bytes) else json.dumps(body)
    response = Client().post(path, text, content_type=extra.pop("content_type", "application/json"), **extra)
    return response.status_code, response.json(), response.headers


def question(text: Any = "hallo", **fields: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}], **fields}


@pytest.mark.parametrize(
    "body",
    [
        "",
        "nonsense",
        "[]",
        "null",
        '{"query": ""}',
        '{"query": "   "}',
        '{"query": null}',
        '{"query": 5e999}',
        '{"query": ["a"]}',
        '{"query": "a\\u0000b"}',
        '{"query": "a", "user": "a\\u0000b"}',
        '{"question": "a"}',
        b'{"query": "\xff"}',
    ],
)
def test_chat_refuses_what_is_no_question(body: Any) -> None:
    status, said, _ = post("/chat", body)
    assert status == 400
    assert set(said) == {"error", "detail"}
    assert not Session.objects.exists()


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (" ", None),
        ("nonsense", None),
        ("[]", None),
        ({}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": "hallo"}, "messages"),
        ({"messages": [{"role": "king", "content": "hallo"}]}, "messages.0.role"),
        ({"messages": [{"content": "hallo"}]}, "messages.0.role"),
        (question(""), "messages"),
        (question(None), "messages"),
        (question([]), "messages"),
        (question("a\0b"), "messages"),
        ({"messages": [{"role": "assistant", "content": "hallo"}]}, "messages"),
        (question(n=2), "n"),
        (question(response_format={"type": "json_object"}), "response_format"),
        (question(temperature=9), "temperature"),
        (question(user="x" * 256), "user"),
        (question(stream="perhaps"), "stream"),
    ],
)
def test_v1_refuses_what_it_cannot_answer_and_names_the_field(body: Any, param: str | None) -> None:
    status, said, _ = post("/v1/chat/completions", body)
    assert status == 400
    assert set(said["error"]) == {"message", "type", "param", "code"}
    assert said["error"]["param"] == param
    assert not Session.objects.exists()


@pytest.mark.parametrize("path", ["/chat", "/api/sessions", "/v1/models", "/v1/chat/completions"])
def test_a_host_that_evi_does_not_go_by_is_refused_in_the_surfaces_own_shape(
    path: str, caplog: pytest.LogCaptureFixture
) -> None:
    response = Client(HTTP_HOST="evil.example").get(path)
    told = response.json()["error"]["message"] if path.startswith("/v1") else response.json()["detail"]
    assert (response.status_code, "EVI_ALLOWED_HOSTS" in told) == (400, True)
    [logged] = [record for record in caplog.records if record.name == "django.security.DisallowedHost"]
    assert "evil.example" in logged.message
    assert logged.exc_info is None


@pytest.mark.parametrize(("path", "shape"), [("/api/nowhere", {"error", "detail"}), ("/v1nowhere", {"error"})])
def test_where_nothing_is_programs_are_told_so_in_json(path: str, shape: set[str]) -> None:
    response = Client().get(path)
    assert (response.status_code, set(response.json())) == (404, shape)


def test_where_nothing_is_people_are_shown_a_page() -> None:
    response = Client().get("/nergens")
    assert (response.status_code, "Niet gevonden" in response.content.decode()) == (404, True)


def test_who_signs_in_from_a_page_that_is_too_old_is_told_what_to_do() -> None:
    response = Client(enforce_csrf_checks=True).post("/login/", {"username": "anna", "password": "x"})
    assert (response.status_code, "Laad haar opnieuw" in response.content.decode()) == (403, True)


def test_a_client_that_is_gone_when_the_server_stops_is_no_failure() -> None:
    def record(error: Exception) -> logging.LogRecord:
        return logging.LogRecord("asyncio", logging.ERROR, "", 0, "never retrieved", (), (type(error), error, None))

    assert [NoGoodbyes().filter(record(error)) for error in (RequestAborted(), ValueError())] == [False, True]


@pytest.mark.parametrize("path", ["/chat", "/v1/chat/completions"])
class TestLimits:
    def body(self, path: str, text: str) -> dict[str, Any]:
        return {"query": text} if path == "/chat" else question(text)

    def test_a_body_that_is_too_large_is_a_413(self, path: str, settings: Settings) -> None:
        limits(settings, max_body_bytes=1000)
        status, said, _ = post(path, self.body(path, "x" * 2000))
        assert status == 413
        assert "at most 1000 bytes" in json.dumps(said)

    def test_a_message_that_is_too_long_is_a_400(self, path: str, settings: Settings) -> None:
        limits(settings, max_message_chars=10)
        status, said, _ = post(path, self.body(path, "x" * 11))
        assert status == 400
        assert "10 characters" in json.dumps(said)

    def test_something_that_is_not_json_is_a_415(self, path: str) -> None:
        assert post(path, "query=hallo", content_type="application/x-www-form-urlencoded")[0] == 415

    def test_another_method_is_a_405_in_json(self, path: str) -> None:
        response = Client().get(path)
        assert response.status_code == 405
        assert response.json()

    @pytest.mark.django_db(transaction=True)
    def test_too_many_requests_are_a_429_that_says_when_to_come_back(self, path: str, settings: Settings) -> None:
        limits(settings, rate_limit=2)
        answers = [post(path, self.body(path, "hallo")) for _ in range(5)]
        # A minute may begin in between, and with it a new count.
        assert [status for status, _, _ in answers].count(429) >= 1
        assert Session.objects.count() <= 4
        _, _, headers = next(answer for answer in answers if answer[0] == 429)
        assert 1 <= int(headers["Retry-After"]) <= 60

    def test_without_a_key_from_elsewhere_is_a_401(self, path: str) -> None:
        assert post(path, self.body(path, "hallo"), REMOTE_ADDR="192.0.2.7")[0] == 401

    def test_a_wrong_key_is_a_401_even_on_this_machine(self, path: str) -> None:
        for value in ("Bearer nonsense", "Basic YTpi", "Token é"):
            assert post(path, self.body(path, "hallo"), headers={"Authorization": value})[0] == 401

    def test_in_production_a_key_is_needed_on_this_machine_too(self, path: str, settings: Settings) -> None:
        limits(settings, env="production")
        assert post(path, self.body(path, "hallo"))[0] == 401
        assert not Message.objects.exists()


def test_too_many_messages_are_a_400(settings: Settings) -> None:
    limits(settings, max_messages=3)
    status, said, _ = post("/v1/chat/completions", {"messages": question()["messages"] * 4})
    assert status == 400
    assert "at most 3 messages" in said["error"]["message"]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
fields = st.sampled_from(["messages", "stream", "user", "store", "n", "stop", "seed", "tools", "query", "metadata"])
messages = st.lists(
    st.fixed_dictionaries(
        {}, optional={"role": st.sampled_from(["user", "assistant", "system", "tool", "king"]), "content": json_values}
    ),
    max_size=3,
)
header_values = st.text(st.characters(min_codepoint=32, max_codepoint=255, exclude_characters="\x7f"), max_size=60)


@pytest.mark.django_db(transaction=True)
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    path=st.sampled_from(["/chat", "/v1/chat/completions"]),
    body=st.dictionaries(fields, json_values, max_size=4) | st.fixed_dictionaries({"messages": messages}) | json_values,
    headers=st.dictionaries(
        st.sampled_from(["X-Session-ID", "Authorization", "Idempotency-Key", "X-OpenWebUI-User-Id", "Accept"]),
        header_values,
        max_size=3,
    ),
)
def test_no_body_and_no_header_is_a_failure_of_ours(path: str, body: Any, headers: dict[str, str]) -> None:
    window.clear()
    response = Client(raise_request_exception=False).post(
        path, json.dumps(body), content_type="application/json", headers=headers
    )
    assert response.status_code in (200, 400, 401, 404, 413)


class TestCounting:
    @pytest.fixture(autouse=True)
    def _one_minute(self, monkeypatch: pytest.MonkeyPatch) -> None:
        moment = timezone.now()
        monkeypatch.setattr("conversations.limits.timezone", SimpleNamespace(now=lambda: moment))

    def test_however_many_others_there_are_each_has_a_limit(self) -> None:
        names = [f"client:{number}" for number in range(1000)]
        for _ in range(2):
            for name in names:
                count(name, most=2)
        for name in names:
            with pytest.raises(TooManyRequestsError):
                count(name, most=2)

    def test_of_many_at_once_none_is_forgotten(self) -> None:
        def try_it(number: int) -> bool:
            try:
                count(f"client:{number % 100}", most=10)
            except TooManyRequestsError:
                return False
            return True

        with ThreadPoolExecutor(16) as pool:
            assert sum(pool.map(try_it, range(4000))) == 1000


def test_an_unknown_model_is_not_found() -> None:
    response = Client().get("/v1/models/gpt-9")
    assert response.status_code == 404
    assert response.json()["error"]["message"] == "The model 'gpt-9' does not exist. EVI has one model: evi."


def test_the_models_are_listed_as_openai_does() -> None:
    [card] = Client().get("/v1/models").json()["data"]
    assert (card["id"], card["object"]) == ("evi", "model")
    assert Client().get("/v1/models/evi").json() == card


def test_what_nobody_foresaw_is_told_to_programs_in_json(settings: Settings) -> None:
    limits(settings, model="no-such-provider:model")
    status, said, _ = post(
        "/v1/chat/completions", question("### Task:\nGenerate a title"), HTTP_X_TASK="title_generation"
    )
    assert (status, said["error"]["type"]) == (500, "server_error")
    assert "Please try again" in said["error"]["message"]
