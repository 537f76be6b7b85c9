"""`/api/sessions` over HTTP, and the description of every route at `/api/schema/`."""

import base64
import json
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any, cast
from urllib.parse import quote, urlencode
from uuid import UUID

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import connection
from django.test import AsyncClient, Client
from django.test.utils import CaptureQueriesContext
from django.urls import URLPattern, URLResolver, get_resolver
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries, Settings

from agentbridge.said import HistoryItem
from conversations.api import openai
from conversations.models import ApiKey, Message, Session
from conversations.openings import TurnRequest, open_turn

pytestmark = pytest.mark.django_db

MakeSession = Callable[..., Session]
UNKNOWN = "3f0c5f6e-7f0b-4d3e-9b1a-0a1b2c3d4e5f"


def call(method: str, path: str, body: Any = None, *, key: str = "", **extra: Any) -> tuple[int, Any, Any]:
    """Status, JSON and headers."""
    headers = {**extra.pop("headers", {}), **({"Authorization": f"Bearer {key}"} if key else {})}
    data = body if isinstance(body, str | bytes) else json.dumps(body) if body is not None else ""
    content_type = extra.pop("content_type", "application/json")
    response = Client().generic(method, path, data, content_type=content_type, headers=headers)
    return response.status_code, response.json() if response.content else None, response.headers


def get(path: str, **query: Any) -> Any:
    status, said, _ = call("GET", f"{path}?{urlencode(query)}" if query else path)
    assert status == 200, said
    return said


def download(path: str, *, key: str = "") -> tuple[int, str, Any]:
    """A streamed response, asked for as the server does: asynchronously."""

    async def ask() -> tuple[int, str, Any]:
        response = await AsyncClient().get(path, headers={"Authorization": f"Bearer {key}"} if key else {})
        body = [piece async for piece in cast(Any, response)] if response.streaming else [response.content]
        return response.status_code, b"".join(body).decode(), response.headers

    return async_to_sync(ask)()


@pytest.fixture
def client_key() -> str:
    """The key of a client that is not the open one of development."""
    ApiKey.objects.store("evi_other", name="other", client=User.objects.create(username="other"))
    return "evi_other"


def document(*messages: dict[str, Any], **session: Any) -> dict[str, Any]:
    return {"version": 1, "session": session, "messages": list(messages)}


def message(content: str | None = "hallo", **fields: Any) -> dict[str, Any]:
    return {"role": "user", "content": content, "created_at": "2026-01-01T10:00:00Z", **fields}


def plan_of(queries: CaptureQueriesContext, table: str) -> str:
    """How PostgreSQL goes about the last query on a table."""
    sql = [query["sql"] for query in queries if f'FROM "{table}"' in query["sql"]][-1]
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN {sql}")
        return "\n".join(row[0] for row in cursor.fetchall())


class TestList:
    def test_the_one_used_last_comes_first(self, make_session: MakeSession) -> None:
        old, new, middle = (make_session(days_old=days) for days in (3, 1, 2))
        listed = get("/api/sessions")["results"]
        assert [session["id"] for session in listed] == [str(session.id) for session in (new, middle, old)]

    def test_it_tells_what_a_list_needs(self, make_session: MakeSession) -> None:
        make_session(title="Ladders", pinned=True, messages=2)
        (session,) = get("/api/sessions")["results"]
        assert (session["title"], session["pinned"], session["message_count"]) == ("Ladders", True, 2)
        assert set(session) == {
            "id",
            "title",
            "channel",
            "pinned",
            "message_count",
            "created_at",
            "updated_at",
            "last_accessed",
            "expires_at",
            "summary",
        }

    def test_twenty_make_a_page(self, make_session: MakeSession) -> None:
        for _ in range(21):
            make_session()
        assert len(get("/api/sessions")["results"]) == 20

    def walk(self, path: str, direction: str = "next") -> Iterator[Any]:
        while path:
            page = get(path)
            yield page
            path = page[direction]

    def test_the_pages_hold_each_session_once(self, make_session: MakeSession) -> None:
        made = [str(make_session(days_old=days).id) for days in range(7)]
        pages = [page["results"] for page in self.walk("/api/sessions?limit=3")]
        assert [session["id"] for page in pages for session in page] == made

    def test_the_pages_go_back_as_they_came(self, make_session: MakeSession) -> None:
        for days in range(7):
            make_session(days_old=days)
        forward = [page["results"] for page in self.walk("/api/sessions?limit=3")]
        *_, last = self.walk("/api/sessions?limit=3")
        back = [page["results"] for page in self.walk(last["previous"], "previous")]
        assert back == forward[1::-1]

    def test_sessions_of_one_moment_are_all_found(self, filled_database: UUID, settings: Settings) -> None:
        """More than DRF's own cut-off, as an import of an old database leaves them."""
        settings.EVI = settings.EVI.model_copy(update={"rate_limit": 1000})
        seen = {session["id"] for page in self.walk("/api/sessions?limit=100") for session in page["results"]}
        assert len(seen) == 2000

    def test_another_person_and_another_client_are_left_out(self, make_session: MakeSession, client_key: str) -> None:
        make_session(user_id="bob")
        make_session(owner=User.objects.get(username="other"))
        assert get("/api/sessions")["results"] == []

    def test_a_key_opens_its_own_clients_sessions(self, make_session: MakeSession, client_key: str) -> None:
        make_session()
        mine = make_session(owner=User.objects.get(username="other"), user_id="anna")
        _, said, _ = call("GET", "/api/sessions?user=anna", key=client_key)
        assert [session["id"] for session in said["results"]] == [str(mine.id)]

    def test_more_sessions_take_no_more_queries(
        self, make_session: MakeSession, django_assert_num_queries: DjangoAssertNumQueries
    ) -> None:
        for _ in range(30):
            make_session(messages=1)
        with django_assert_num_queries(1):
            get("/api/sessions", limit=30)

    @pytest.mark.parametrize("turned_to", ["first", "next"])
    def test_the_index_serves_a_client(self, filled_database: UUID, turned_to: str, client_key: str) -> None:
        """A client with a key: PostgreSQL takes no order from an index behind a column that IS NULL."""
        with connection.cursor() as cursor:
            cursor.execute(
                """
                UPDATE sessions SET owner_id = (SELECT id FROM auth_user WHERE username = 'other'),
                    user_id = 'person ' || floor(random() * 10),
                    last_accessed = now() - random() * interval '30 days'
                """
            )
            cursor.execute("ANALYZE sessions")
        path = "/api/sessions?user=person+7"
        if turned_to == "next":
            path = call("GET", path, key=client_key)[1]["next"]
        with CaptureQueriesContext(connection) as queries:
            call("GET", path, key=client_key)
        plan = plan_of(queries, "sessions")
        assert "idx_sessions_owner_recent" in plan
        assert "Sort" not in plan

    @pytest.mark.parametrize("limit", ["0", "-1", "101", "x", "", "1.5", "9" * 5000, "\0", "٣", "1e1"])
    def test_a_limit_that_is_none_is_refused(self, limit: str) -> None:
        status, said, _ = call("GET", f"/api/sessions?limit={quote(limit)}")
        assert (status, said["error"]) == (400, "Invalid request")

    @pytest.mark.parametrize(
        "cursor",
        [
            "x",
            "é",
            "p=yesterday",
            "p=\0",
            "p=2026-01-01 10:00",
            "p=0001-01-01 00:00:00+14:00",
            "p=9999-99-99 00:00:00+00:00",
            "o=-1",
            "o=x",
            "r=x",
        ],
    )
    def test_a_cursor_that_is_none_is_refused(self, cursor: str) -> None:
        packed = base64.b64encode(cursor.encode()).decode() if "=" in cursor else cursor
        status, said, _ = call("GET", f"/api/sessions?cursor={quote(packed)}")
        assert (status, said["error"]) == (400, "Invalid request")

    @pytest.mark.parametrize("cursor", ["", "\0", "o=" + "9" * 4000, "p=9999-12-31 23:59:59-14:00", "o=1&r=1"])
    def test_a_strange_cursor_finds_a_page(self, cursor: str) -> None:
        packed = base64.b64encode(cursor.encode()).decode() if "=" in cursor else cursor
        assert get("/api/sessions", cursor=packed)["results"] == []


class TestFilter:
    ID = UUID("3f2a1b0c-5d6e-4f70-8a9b-0c1d2e3f4a5b")

    @pytest.mark.parametrize("prefix", ["3f2a", "3F2A", "3f2a1b0c-5", "3f2a1b0c-5d6e-4f70-8a9b-0c1d2e3f4a5b"])
    def test_the_beginning_of_an_id_finds_it(self, prefix: str, make_session: MakeSession) -> None:
        make_session()
        make_session(id=self.ID)
        assert [session["id"] for session in get("/api/sessions", prefix=prefix)["results"]] == [str(self.ID)]

    @pytest.mark.parametrize("prefix", ["3f2b", "3f2a-1b0c", "3f2a1b0c5", "----", "f2a1"])
    def test_what_no_id_begins_with_finds_none(self, prefix: str, make_session: MakeSession) -> None:
        make_session(id=self.ID)
        assert get("/api/sessions", prefix=prefix)["results"] == []

    def test_the_first_and_the_last_of_a_beginning_are_found(self, make_session: MakeSession) -> None:
        ends = [UUID("3f2a0000-0000-4000-8000-000000000000"), UUID("3f2affff-ffff-4fff-bfff-ffffffffffff")]
        for end in ends:
            make_session(id=end)
        found = get("/api/sessions", prefix="3f2a")["results"]
        assert sorted(session["id"] for session in found) == [str(end) for end in ends]

    def test_a_title_is_found_by_its_words(self, make_session: MakeSession) -> None:
        make_session(title="Over steigers")
        ladders = make_session(title="Werken op LADDERS, 100% veilig")
        for words in ("ladders", "100% v"):
            assert [session["id"] for session in get("/api/sessions", q=words)["results"]] == [str(ladders.id)]

    def test_nothing_said_finds_everything(self, make_session: MakeSession) -> None:
        make_session(title="Ladders")
        assert len(get("/api/sessions", q="", prefix="", channel="")["results"]) == 1

    def test_a_channel_has_its_own(self, make_session: MakeSession) -> None:
        make_session()
        terminal = make_session(channel="cli")
        assert [session["id"] for session in get("/api/sessions", channel="cli")["results"]] == [str(terminal.id)]

    def test_the_pages_keep_to_what_was_asked(self, make_session: MakeSession) -> None:
        for days in range(6):
            make_session(title="Ladders" if days % 2 else "Steigers", days_old=days)
        first = get("/api/sessions", q="ladders", limit=2)
        second = get(first["next"])
        assert [len(page["results"]) for page in (first, second)] == [2, 1]
        assert second["next"] is None
        assert {each["title"] for page in (first, second) for each in page["results"]} == {"Ladders"}

    def test_anothers_are_not_found(self, make_session: MakeSession, client_key: str) -> None:
        make_session(id=self.ID, user_id="bob", title="Ladders")
        for query in ({"prefix": "3f2a"}, {"q": "ladders"}, {"prefix": "3f2a", "user": "anna"}):
            assert get("/api/sessions", **query)["results"] == []
        assert call("GET", "/api/sessions?prefix=3f2a&user=bob", key=client_key)[1]["results"] == []

    @pytest.mark.parametrize(
        "query",
        ["prefix=3f2", "prefix=3f2g", f"prefix={'a' * 37}", "prefix=3f2a%00", "q=%00", f"q={'x' * 201}", "channel=x"],
    )
    def test_what_makes_no_sense_is_refused(self, query: str) -> None:
        status, said, _ = call("GET", f"/api/sessions?{query}")
        assert (status, said["error"]) == (400, "Invalid request")
        assert said["detail"].startswith(query.split("=")[0])

    def test_a_beginning_is_looked_up_in_an_index(self, filled_database: UUID, client_key: str) -> None:
        with connection.cursor() as cursor:
            cursor.execute("UPDATE sessions SET owner_id = (SELECT id FROM auth_user WHERE username = 'other')")
            cursor.execute("ANALYZE sessions")
        with CaptureQueriesContext(connection) as queries:
            call("GET", "/api/sessions?prefix=3f2a", key=client_key)
        assert "sessions_pkey" in plan_of(queries, "sessions")


class TestRead:
    def test_it_is_told_by_its_id(self, make_session: MakeSession) -> None:
        session = make_session(title="Ladders")
        assert get(f"/api/sessions/{session.id}")["title"] == "Ladders"

    def test_upper_case_is_the_same_id(self, make_session: MakeSession) -> None:
        session = make_session()
        assert get(f"/api/sessions/{str(session.id).upper()}")["id"] == str(session.id)

    def test_reading_is_no_use_of_it(self, make_session: MakeSession) -> None:
        session = make_session(days_old=5)
        get(f"/api/sessions/{session.id}")
        get(f"/api/sessions/{session.id}/messages")
        assert Session.objects.get().last_accessed == session.last_accessed


ROUTES = [
    ("GET", "", None),
    ("PATCH", "", {"title": "x"}),
    ("DELETE", "", None),
    ("GET", "/messages", None),
    ("GET", "/export", None),
]


@pytest.mark.parametrize(("method", "rest", "body"), ROUTES)
class TestWhoMay:
    def test_anothers_session_is_as_unknown_as_none(
        self, method: str, rest: str, body: Any, make_session: MakeSession, client_key: str
    ) -> None:
        owned = make_session(owner=User.objects.get(username="other"), messages=1)
        status, said, _ = call(method, f"/api/sessions/{owned.id}{rest}", body)
        unknown_status, unknown, _ = call(method, f"/api/sessions/{UNKNOWN}{rest}", body)
        assert (status, unknown_status, said["error"]) == (404, 404, "Session not found")
        assert said["detail"].replace(str(owned.id), UNKNOWN) == unknown["detail"]

    def test_another_persons_session_is_unknown(
        self, method: str, rest: str, body: Any, make_session: MakeSession
    ) -> None:
        session = make_session(user_id="bob", messages=1)
        status, _, _ = call(method, f"/api/sessions/{session.id}{rest}?user=anna", body)
        assert status == 404

    def test_the_refused_leaves_it_as_it_was(
        self, method: str, rest: str, body: Any, make_session: MakeSession
    ) -> None:
        session = make_session(user_id="bob", title="Ladders", messages=1)
        call(method, f"/api/sessions/{session.id}{rest}", body)
        assert Session.objects.values().get() == {
            **Session.objects.filter(id=session.id).values().get(),
            "title": "Ladders",
            "updated_at": session.updated_at,
        }

    @pytest.mark.parametrize("session_id", ["1", "x" * 300, "%00", str(UUID(int=1)), UNKNOWN.replace("-", ""), "é"])
    def test_what_is_no_uuid_is_refused_before_any_query(
        self, method: str, rest: str, body: Any, session_id: str, django_assert_num_queries: DjangoAssertNumQueries
    ) -> None:
        with django_assert_num_queries(0):
            status, said, _ = call(method, f"/api/sessions/{session_id}{rest}", body)
        assert status == 400
        assert said == {"error": "Invalid session_id format", "detail": "session_id must be a valid UUID"}

    def test_a_wrong_key_is_refused(self, method: str, rest: str, body: Any, make_session: MakeSession) -> None:
        status, said, _ = call(method, f"/api/sessions/{make_session().id}{rest}", body, key="evi_nobody")
        assert (status, said["error"]) == (401, "Invalid api key")


class TestChange:
    def test_a_session_is_renamed(self, make_session: MakeSession) -> None:
        session = make_session(title="Ladders", pinned=True)
        status, said, _ = call("PATCH", f"/api/sessions/{session.id}", {"title": "Steigers"})
        assert (status, said["title"], said["pinned"]) == (200, "Steigers", True)

    def test_a_session_is_pinned(self, make_session: MakeSession) -> None:
        session = make_session(title="Ladders")
        call("PATCH", f"/api/sessions/{session.id}", {"pinned": True})
        assert Session.objects.values_list("title", "pinned").get() == ("Ladders", True)

    def test_a_title_can_be_taken_away(self, make_session: MakeSession) -> None:
        session = make_session(title="Ladders")
        call("PATCH", f"/api/sessions/{session.id}", {"title": ""})
        assert Session.objects.get().title == ""

    def test_a_change_moves_updated_at(self, make_session: MakeSession) -> None:
        session = make_session()
        call("PATCH", f"/api/sessions/{session.id}", {"title": "x"})
        assert Session.objects.get().updated_at > session.updated_at

    def test_only_what_changed_is_written(self, make_session: MakeSession) -> None:
        session = make_session()
        with CaptureQueriesContext(connection) as queries:
            call("PATCH", f"/api/sessions/{session.id}", {"title": "x"})
        (update,) = [query["sql"] for query in queries if query["sql"].startswith("UPDATE")]
        columns = update.split(" SET ")[1].split(" WHERE ")[0]
        assert columns == "\"title\" = 'x'"

    def test_nothing_to_change_writes_nothing(self, make_session: MakeSession) -> None:
        session = make_session()
        status, said, _ = call("PATCH", f"/api/sessions/{session.id}", {})
        assert (status, datetime.fromisoformat(said["updated_at"])) == (200, session.updated_at)

    @pytest.mark.parametrize(
        "field", ["id", "owner", "user_id", "channel", "message_count", "last_accessed", "expires_at", "x", "\0"]
    )
    def test_the_rest_cannot_be_changed(self, field: str, make_session: MakeSession) -> None:
        session = make_session()
        status, said, _ = call("PATCH", f"/api/sessions/{session.id}", {"title": "x", field: "1"})
        assert (status, said["detail"]) == (400, f"{field}: Only title and pinned can be changed.")
        assert Session.objects.get().title == ""

    @pytest.mark.parametrize(
        "body",
        [
            {"title": "x" * 201},
            {"title": "a\0b"},
            '{"title": "\\ud800"}',
            {"title": None},
            {"title": ["x"]},
            {"pinned": None},
            {"pinned": "perhaps"},
            {"pinned": []},
            [],
            "null",
            "5",
            "nonsense",
            b"\xff",
            "[" * 100_000,
        ],
    )
    def test_a_bad_change_is_refused(self, body: Any, make_session: MakeSession) -> None:
        status, said, _ = call("PATCH", f"/api/sessions/{make_session().id}", body)
        assert (status, said["error"]) == (400, "Invalid request")

    def test_two_hundred_characters_fit(self, make_session: MakeSession) -> None:
        status, _, _ = call("PATCH", f"/api/sessions/{make_session().id}", {"title": "x" * 200})
        assert status == 200


class TestDelete:
    def test_its_messages_go_with_it(self, make_session: MakeSession) -> None:
        session, other = make_session(messages=3), make_session(messages=1)
        status, said, _ = call("DELETE", f"/api/sessions/{session.id}")
        assert (status, said) == (204, None)
        assert list(Message.objects.values_list("session_id", flat=True)) == [other.id]

    def test_the_database_does_it_however_much_was_said(self, make_session: MakeSession) -> None:
        statements = []
        for messages in (1, 30):
            session = make_session(messages=messages)
            with CaptureQueriesContext(connection) as queries:
                call("DELETE", f"/api/sessions/{session.id}")
            statements.append(len(queries))
            assert len([query for query in queries if query["sql"].startswith("DELETE")]) == 1
        assert statements[0] == statements[1]

    def test_the_second_time_it_is_unknown(self, make_session: MakeSession) -> None:
        session = make_session()
        call("DELETE", f"/api/sessions/{session.id}")
        assert call("DELETE", f"/api/sessions/{session.id}")[0] == 404


class TestMessages:
    def contents(self, page: Any) -> list[str]:
        return [message["content"] for message in page["results"]]

    def test_the_last_page_comes_first_and_the_oldest_in_it(self, make_session: MakeSession) -> None:
        page = get(f"/api/sessions/{make_session(messages=5).id}/messages", limit=2)
        assert self.contents(page) == ["message 3", "message 4"]

    def test_fifty_make_a_page(self, make_session: MakeSession) -> None:
        assert len(get(f"/api/sessions/{make_session(messages=51).id}/messages")["results"]) == 50

    def test_they_tell_who_said_what_and_how_it_went(self, make_session: MakeSession) -> None:
        session = make_session()
        session.messages.create(role="assistant", content="Een har", status="interrupted", metadata={"model": "echo"})
        (said,) = get(f"/api/sessions/{session.id}/messages")["results"]
        assert set(said) == {"id", "role", "content", "status", "metadata", "created_at"}
        assert (said["role"], said["status"], said["metadata"]) == ("assistant", "interrupted", {"model": "echo"})

    @pytest.mark.parametrize(("direction", "start"), [("before", "last"), ("after", "first")])
    @pytest.mark.parametrize("same_moment", [False, True])
    def test_pages_hold_each_message_once(
        self, direction: str, start: str, same_moment: bool, make_session: MakeSession
    ) -> None:
        session = make_session(messages=7)
        if same_moment:
            session.messages.update(created_at=timezone.now())
        first = Message.objects.in_session(session.id).first()
        assert first
        path, query = f"/api/sessions/{session.id}/messages", {"limit": 2}
        pages = [get(path, **query)] if start == "last" else [get(path, **query, after=first.id)]
        while pages[-1]["has_more"]:
            pages.append(get(path, **query, **{direction: pages[-1][direction]}))
        if direction == "before":
            pages.reverse()
        walked = [content for page in pages for content in self.contents(page)]
        assert walked == [f"message {number}" for number in range(0 if direction == "before" else 1, 7)]

    def test_has_more_ends_exactly_at_the_end(self, make_session: MakeSession) -> None:
        session = make_session(messages=4)
        page = get(f"/api/sessions/{session.id}/messages", limit=4)
        assert (len(page["results"]), page["has_more"]) == (4, False)

    def test_an_empty_page_is_where_one_goes_on_waiting(self, make_session: MakeSession) -> None:
        session = make_session(messages=1)
        last = get(f"/api/sessions/{session.id}/messages")["after"]
        page = get(f"/api/sessions/{session.id}/messages", after=last)
        assert page == {"results": [], "has_more": False, "before": None, "after": last}

    def test_a_session_without_messages_is_an_empty_page(self, make_session: MakeSession) -> None:
        page = get(f"/api/sessions/{make_session().id}/messages")
        assert page == {"results": [], "has_more": False, "before": None, "after": None}

    @pytest.mark.parametrize("direction", ["before", "after"])
    def test_a_message_of_another_session_is_no_place(self, direction: str, make_session: MakeSession) -> None:
        session, other = make_session(messages=1), make_session(messages=1)
        place = other.messages.get().id
        status, said, _ = call("GET", f"/api/sessions/{session.id}/messages?{direction}={place}")
        assert (status, said["error"]) == (404, "Message not found")

    @pytest.mark.parametrize(
        "query",
        [
            "before=x",
            "before=",
            "after=%00",
            "after=" + "9" * 5000,
            f"before={UNKNOWN}&after={UNKNOWN}",
            "limit=0",
            "limit=101",
            "limit=%00",
            "user=%00",
            "user=" + "x" * 256,
        ],
    )
    def test_a_bad_question_is_refused(self, query: str, make_session: MakeSession) -> None:
        status, said, _ = call("GET", f"/api/sessions/{make_session().id}/messages?{query}")
        assert (status, said["error"]) == (400, "Invalid request")

    @pytest.mark.parametrize(("query", "number"), [({}, 2), ({"after": True}, 3), ({"before": True}, 3)])
    def test_more_messages_take_no_more_queries(
        self,
        query: dict[str, bool],
        number: int,
        make_session: MakeSession,
        django_assert_num_queries: DjangoAssertNumQueries,
    ) -> None:
        session = make_session(messages=30)
        middle = list(Message.objects.in_session(session.id))[15].id
        with django_assert_num_queries(number):
            get(f"/api/sessions/{session.id}/messages", limit=10, **dict.fromkeys(query, middle))

    @pytest.mark.parametrize("direction", ["", "before", "after"])
    def test_the_index_serves_it(self, direction: str, filled_database: UUID) -> None:
        middle = list(Message.objects.in_session(filled_database))[10].id
        with CaptureQueriesContext(connection) as queries:
            get(f"/api/sessions/{filled_database}/messages", limit=5, **({direction: middle} if direction else {}))
        plan = plan_of(queries, "messages")
        assert "idx_messages_session_created_desc" in plan
        assert "Sort" not in plan
        # Far into a long session, too: the place is where the index is entered, not where a filter begins to let pass.
        assert ("created_at" in plan.split("Index Cond")[1].split("\n")[0]) == bool(direction)


@pytest.mark.django_db(transaction=True)
class TestExport:
    def test_json_is_a_download(self, make_session: MakeSession) -> None:
        session = make_session(messages=2)
        status, text, headers = download(f"/api/sessions/{session.id}/export")
        assert (status, headers["Content-Type"]) == (200, "application/json")
        assert headers["Content-Disposition"] == f'attachment; filename="evi-{session.id}.json"'
        assert [message["content"] for message in json.loads(text)["messages"]] == ["message 0", "message 1"]

    def test_markdown_is_a_download(self, make_session: MakeSession) -> None:
        session = make_session(messages=1, title="Ladders")
        status, text, headers = download(f"/api/sessions/{session.id}/export?format=markdown")
        assert (status, headers["Content-Type"]) == (200, "text/markdown; charset=utf-8")
        assert headers["Content-Disposition"] == f'attachment; filename="evi-{session.id}.md"'
        assert text.startswith("# Ladders\n")
        assert '**Eerdere gesprek:**\n\nGebruiker: "message 0"' in text

    def test_a_long_session_comes_whole(self, make_session: MakeSession) -> None:
        session = make_session()
        Message.objects.bulk_create(Message(session=session, role="user", content=str(n)) for n in range(1234))
        _, text, _ = download(f"/api/sessions/{session.id}/export?format=json")
        assert [message["content"] for message in json.loads(text)["messages"]] == [str(n) for n in range(1234)]

    @pytest.mark.parametrize("format", ["xml", "", "%00", "api"])
    def test_another_format_is_refused(self, format: str, make_session: MakeSession) -> None:
        status, text, _ = download(f"/api/sessions/{make_session().id}/export?format={format}")
        assert (status, json.loads(text)["error"]) == (400, "Invalid request")

    def test_what_went_out_comes_back_the_same(self, make_session: MakeSession) -> None:
        session = make_session(title="Ladders", pinned=True, channel="cli", messages=3)
        # More than a question may have.
        session.messages.create(role="assistant", content="Lang. " * 8_000)
        session.messages.create(
            role="assistant", content=' "Een\r\n har\t', status="interrupted", metadata={"citations": [{"n": 1.5}]}
        )
        _, text, _ = download(f"/api/sessions/{session.id}/export")
        status, made, _ = call("POST", "/api/sessions/import", text)
        assert status == 201
        _, again, _ = download(f"/api/sessions/{made['id']}/export")
        out, back = json.loads(text), json.loads(again)
        kept = ["title", "pinned", "channel", "created_at", "message_count"]
        assert [out["session"][name] for name in kept] == [back["session"][name] for name in kept]
        for said in out["messages"] + back["messages"]:
            del said["id"]
        assert out["messages"] == back["messages"]


class TestImport:
    def test_it_makes_a_session_that_can_be_read(self) -> None:
        status, made, headers = call("POST", "/api/sessions/import", document(message(), message("dag"), title="Oud"))
        assert (status, made["title"], made["message_count"]) == (201, "Oud", 2)
        assert get(headers["Location"]) == made

    def test_messages_of_one_moment_keep_their_order(self) -> None:
        contents = [str(number) for number in range(1200)]
        _, made, _ = call("POST", "/api/sessions/import", document(*map(message, contents)))
        stored = Message.objects.in_session(made["id"]).values_list("content", flat=True)
        assert list(stored) == contents

    def test_it_never_writes_into_a_session_that_is_there(self, make_session: MakeSession, client_key: str) -> None:
        theirs = make_session(owner=User.objects.get(username="other"), messages=1)
        there = theirs.messages.get()
        body = document(
            message(id=str(there.id), session_id=str(theirs.id)), id=str(theirs.id), owner_id=theirs.owner_id
        )
        _, made, _ = call("POST", "/api/sessions/import", body)
        assert made["id"] != str(theirs.id)
        assert list(theirs.messages.values_list("id", "content")) == [(there.id, "message 0")]

    def test_it_belongs_to_the_caller(self, client_key: str) -> None:
        body = document(user_id="bob", owner=None, external_id="chat-1")
        _, made, _ = call("POST", "/api/sessions/import?user=anna", body, key=client_key)
        session = Session.objects.get(id=made["id"])
        assert session.owner == User.objects.get(username="other")
        assert (session.user_id, session.external_id) == ("anna", "")

    def test_a_client_that_replays_it_goes_on_in_it(self) -> None:
        _, made, _ = call("POST", "/api/sessions/import", document(message("hallo"), message("dag", role="assistant")))
        history = (HistoryItem("user", "hallo"), HistoryItem("assistant", "dag"))
        assert str(open_turn(TurnRequest("en nu?", history=history, is_whole_thread=True)).session_id) == made["id"]

    def test_it_counts_as_used_now(self) -> None:
        _, made, _ = call("POST", "/api/sessions/import", document(message(), last_accessed="2020-01-01T00:00:00Z"))
        assert timezone.now() - datetime.fromisoformat(made["last_accessed"]) < timedelta(minutes=1)

    def test_it_takes_few_queries(self, django_assert_num_queries: DjangoAssertNumQueries) -> None:
        # In the test's own transaction: a savepoint and its release, the session, its messages, the session again.
        body = document(*[message()] * 400)
        with django_assert_num_queries(5):
            call("POST", "/api/sessions/import", body)

    @pytest.mark.parametrize(
        ("body", "where"),
        [
            ({}, "version"),
            ({**document(), "version": 2}, "version"),
            ({**document(), "version": True}, "version"),
            ({**document(), "version": "9" * 5000}, "version"),
            ({"version": 1, "messages": []}, "session"),
            ({"version": 1, "session": {}}, "messages"),
            ({"version": 1, "session": [], "messages": []}, "session"),
            ({"version": 1, "session": {}, "messages": {}}, "messages"),
            ({"version": 1, "session": {}, "messages": [1]}, "messages.0"),
            (document(title="x" * 201), "session.title"),
            (document(title="\0"), "session.title"),
            (document(channel="fax"), "session.channel"),
            (document(channel=[]), "session.channel"),
            (document(pinned="perhaps"), "session.pinned"),
            (document(created_at="2999-01-01T00:00:00Z"), "session.created_at"),
            (document(message(), message(role="king")), "messages.1.role"),
            (document(message(role=None)), "messages.0.role"),
            (document(message(status="lost")), "messages.0.status"),
            (document(message(content=None)), "messages.0.content"),
            (document(message(content="a\0b")), "messages.0.content"),
            (document(message(content="\ud800")), "messages.0.content"),
            (document(message(metadata=[])), "messages.0.metadata"),
            (document(message(metadata={"a": ["\0"]})), "messages.0.metadata"),
            (document(message(metadata={"a\0": 1})), "messages.0.metadata"),
            (document(message(metadata={"a": {"b": "\ud800"}})), "messages.0.metadata"),
            (document(message(created_at=None)), "messages.0.created_at"),
            (document(message(created_at="yesterday")), "messages.0.created_at"),
            (document(message(created_at=5)), "messages.0.created_at"),
            (document(message(created_at="0001-01-01T00:00:00+14:00")), "messages.0.created_at"),
            (document(message(created_at="0001-01-01T00:00:00Z")), "messages.0.created_at"),
            (document(message(created_at="9999-12-31T23:59:59-14:00")), "messages.0.created_at"),
            (document(message(), message(created_at="2025-01-01T10:00:00Z")), "messages"),
        ],
    )
    def test_a_bad_document_is_refused_where_it_is_bad(self, body: Any, where: str) -> None:
        status, said, _ = call("POST", "/api/sessions/import", body)
        assert (status, said["error"], said["detail"].split(": ")[0]) == (400, "Invalid request", where)
        assert not Session.objects.exists()

    @pytest.mark.parametrize("metadata", ['{"a": 1e999}', "[" * 100_000, '{"a": ' * 60 + "1" + "}" * 60, '{"a": NaN}'])
    def test_json_that_the_database_cannot_keep_is_refused(self, metadata: str) -> None:
        text = json.dumps(document(message(metadata="HERE"))).replace('"HERE"', metadata)
        status, said, _ = call("POST", "/api/sessions/import", text)
        assert (status, said["error"]) == (400, "Invalid request")

    def test_it_takes_as_many_messages_as_a_session_has(self, settings: Settings) -> None:
        settings.EVI = settings.EVI.model_copy(update={"max_body_bytes": 10_000_000})
        settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 10_000_000
        status, made, _ = call("POST", "/api/sessions/import", document(*[message("a")] * 10_001))
        assert (status, made["message_count"]) == (201, 10_001)

    def test_a_body_that_is_too_large_is_refused(self, settings: Settings) -> None:
        settings.EVI = settings.EVI.model_copy(update={"max_body_bytes": 100_000})
        body = document(*[message("x" * 30_000)] * 4)
        status, said, _ = call("POST", "/api/sessions/import", body)
        assert (status, said["error"]) == (413, "Request too large")

    def test_a_wrong_key_imports_nothing(self) -> None:
        status, _, _ = call("POST", "/api/sessions/import", document(message()), key="evi_nobody")
        assert (status, Session.objects.count()) == (401, 0)

    def test_a_person_whose_name_cannot_be_kept_is_refused(self) -> None:
        headers = {"X-OpenWebUI-User-Id": "x" * 4000}
        status, said, _ = call("POST", "/api/sessions/import", document(), headers=headers)
        assert (status, said["error"]) == (400, "Invalid request")


class TestRefusals:
    @pytest.mark.parametrize(
        ("method", "path", "allowed"),
        [
            ("POST", "/api/sessions", "GET, HEAD, OPTIONS"),
            ("PUT", f"/api/sessions/{UNKNOWN}", "GET, PATCH, DELETE, HEAD, OPTIONS"),
            ("POST", f"/api/sessions/{UNKNOWN}/messages", "GET, HEAD, OPTIONS"),
            ("DELETE", f"/api/sessions/{UNKNOWN}/export", "GET, HEAD, OPTIONS"),
            ("GET", "/api/sessions/import", "POST, OPTIONS"),
            ("GET", "/chat", "POST, OPTIONS"),
        ],
    )
    def test_a_wrong_method_is_told_the_right_ones(self, method: str, path: str, allowed: str) -> None:
        status, said, headers = call(method, path)
        assert (status, said["error"], said["detail"]) == (
            405,
            "Method not allowed",
            f'Method "{method}" not allowed.',
        )
        assert sorted(headers["Allow"].split(", ")) == sorted(allowed.split(", "))

    @pytest.mark.parametrize("content_type", ["text/plain", "multipart/form-data; boundary=x", "nonsense"])
    @pytest.mark.parametrize(("method", "path"), [("PATCH", f"/api/sessions/{UNKNOWN}"), ("POST", "/chat")])
    def test_what_is_not_json_is_refused(self, method: str, path: str, content_type: str) -> None:
        status, said, _ = call(method, path, "{}", content_type=content_type)
        assert (status, said["error"]) == (415, "Unsupported media type")
        assert said["detail"] == f'Unsupported media type "{content_type}" in request.'

    @pytest.mark.parametrize("charset", ["latin-1", "zlib", "nonsense", "hex"])
    def test_json_is_utf8_whatever_the_header_says(self, charset: str, make_session: MakeSession) -> None:
        content_type = f"application/json; charset={charset}"
        path = f"/api/sessions/{make_session().id}"
        body = json.dumps({"title": "Één"}, ensure_ascii=False).encode()

        async def ask() -> Any:
            return await AsyncClient().generic("PATCH", path, body, content_type=content_type)

        assert async_to_sync(ask)().json()["title"] == "Één"

    def test_the_site_speaks_dutch_and_the_api_english(self) -> None:
        _, said, _ = call("POST", "/chat", {})
        assert said["detail"] == "query: This field is required."

    @pytest.mark.parametrize("accept", ["text/html", "application/xml", "nonsense"])
    def test_json_is_the_answer_to_whatever_is_accepted(self, accept: str) -> None:
        status, said, _ = call("GET", "/api/sessions", headers={"Accept": accept})
        assert (status, said["results"]) == (200, [])

    def test_too_many_parameters_are_refused(self) -> None:
        status, said, _ = call("GET", "/api/sessions?" + "&".join(f"a{n}=1" for n in range(1001)))
        assert (status, said["error"]) == (400, "Invalid request")

    def test_too_many_requests_are_told_when_to_come_back(self, settings: Settings) -> None:
        settings.EVI = settings.EVI.model_copy(update={"rate_limit": 1})
        call("GET", "/api/sessions")
        status, said, headers = call("GET", "/api/sessions")
        # At the turn of a minute the count begins anew.
        if status == 200:
            status, said, headers = call("GET", "/api/sessions")
        assert (status, said["error"]) == (429, "Rate limit exceeded")
        assert 0 < int(headers["Retry-After"]) <= 60


def routes(patterns: list[URLPattern | URLResolver], prefix: str = "/") -> Iterator[str]:
    """The paths where something is; below /v1, all others lead to a refusal in OpenAI's shape."""
    for pattern in patterns:
        path = prefix + str(pattern.pattern)
        if isinstance(pattern, URLResolver):
            yield from routes(pattern.url_patterns, path)
        elif pattern.callback is not openai.unknown:
            yield path.replace("<str:", "{").replace(">", "}")


class TestSchema:
    @pytest.fixture
    def schema(self) -> Any:
        return Client().get("/api/schema/?format=json").json()

    def test_it_is_valid_and_without_warnings(self, capsys: pytest.CaptureFixture[str]) -> None:
        call_command("spectacular", validate=True, fail_on_warn=True)
        assert capsys.readouterr().out.startswith("openapi: 3.1")

    def test_every_route_is_in_it(self, schema: Any) -> None:
        paths = [path for path in routes(get_resolver().url_patterns) if not path.startswith("/admin/")]
        assert sorted(schema["paths"]) == sorted(paths)

    def test_every_route_of_the_api_tells_its_refusals(self, schema: Any) -> None:
        for path, operations in schema["paths"].items():
            if path.startswith(("/api/facts", "/api/sessions", "/chat", "/v1")):
                for operation in operations.values():
                    assert {"401", "429"} <= set(operation["responses"]), path

    @pytest.mark.parametrize("path", ["/chat", "/v1/chat/completions"])
    def test_the_session_header_goes_both_ways(self, path: str, schema: Any) -> None:
        operation = schema["paths"][path]["post"]
        assert "X-Session-ID" in [parameter["name"] for parameter in operation["parameters"]]
        assert "X-Session-ID" in operation["responses"]["200"]["headers"]

    def test_the_key_is_a_bearer(self, schema: Any) -> None:
        (name,) = schema["security"][0]
        scheme = schema["components"]["securitySchemes"][name]
        assert (scheme["type"], scheme["scheme"]) == ("http", "bearer")

    def test_the_body_of_completions_is_the_one_that_is_read(self, schema: Any) -> None:
        body = schema["paths"]["/v1/chat/completions"]["post"]["requestBody"]["content"]["application/json"]["schema"]
        name = body["$ref"].rsplit("/", 1)[-1]
        assert {"messages", "stream", "store"} <= set(schema["components"]["schemas"][name]["properties"])

    def test_every_reference_leads_somewhere(self, schema: Any) -> None:
        def references(value: Any) -> Iterator[str]:
            if isinstance(value, dict):
                yield from [value["$ref"]] if isinstance(value.get("$ref"), str) else []
                value = list(value.values())
            for item in value if isinstance(value, list) else []:
                yield from references(item)

        known = {f"#/components/schemas/{name}" for name in schema["components"]["schemas"]}
        assert set(references(schema)) <= known

    def test_the_page_shows_it(self) -> None:
        assert Client().get("/api/docs/").status_code == 200
