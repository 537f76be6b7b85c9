"""What staff see as it happens: a web process that answers, and another one that is looked at."""

import asyncio
import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import aiohttp
import httpx
import pytest
from django.conf import settings
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import Client
from playwright.sync_api import Browser, Page, WebSocketRoute, expect, sync_playwright

from agentbridge.database import in_database
from conversations.models import Action, AuditEntry, Session
from evi_site.postgres.layer import PostgresLayer, _notify
from tests.openwebui import launch_chromium
from tests.processes import free_port
from tests.sockets import Socket, Sockets
from tests.stub_model import StubModel
from tests.test_turns import Site

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(scope="module")
def stub() -> Iterator[StubModel]:
    stub = StubModel()
    yield stub
    stub.shutdown()
    stub.server_close()


@pytest.fixture(scope="module")
def site(stub: StubModel, database_url: str) -> Iterator[Site]:
    site = Site(database_url, stub)
    yield site
    site.stop()


@pytest.fixture(scope="module")
def elsewhere(stub: StubModel, database_url: str) -> Iterator[Site]:
    """The process that staff are connected with."""
    site = Site(database_url, stub)
    yield site
    site.stop()


@pytest.fixture(scope="module")
def sockets() -> Iterator[Sockets]:
    sockets = Sockets()
    yield sockets
    sockets.close()


@pytest.fixture(scope="module")
def browser(database_url: str) -> Iterator[Browser]:
    with pytest.MonkeyPatch.context() as patch:
        # Its loop belongs to this thread, and Django takes the thread for an asynchronous one.
        patch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "true")
        with sync_playwright() as playwright, launch_chromium(playwright) as browser:
            yield browser
            connection.close()


@pytest.fixture(autouse=True)
def quiet(stub: StubModel) -> Iterator[None]:
    stub.reset()
    yield
    stub.go_on.set()


def staff(*permissions: str, **fields: Any) -> User:
    user = User.objects.create_user(f"staff-{uuid4().hex[:6]}", password="geheim", **{"is_staff": True, **fields})
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    return user


def cookie_of(user: User) -> str:
    client = Client()
    client.force_login(user)
    return f"{settings.SESSION_COOKIE_NAME}={client.cookies[settings.SESSION_COOKIE_NAME].value}"


def watch(sockets: Sockets, site: Site, path: str, user: User) -> Socket:
    return sockets.open(f"{site.url}/ws/admin/{path}", Cookie=cookie_of(user), Origin=site.url)


def begin(sockets: Sockets, site: Site, text: str, **more: Any) -> tuple[Socket, str]:
    """Ask a question; the socket and the session's id."""
    chat = sockets.open(f"{site.url}/ws/chat/")
    chat.next()
    chat.send(type="ask", id=str(uuid4()), text=text, **more)
    start = chat.next()
    assert start["type"] == "start", start
    return chat, start["session_id"]


def turns_when(watching: Socket, *, count: int) -> list[dict[str, Any]]:
    while len(turns := watching.until("now")[-1]["turns"]) != count:
        pass
    return list(turns)


class TestSession:
    @pytest.mark.parametrize("where", ["site", "elsewhere"])
    def test_an_open_page_sees_the_question_the_answer_as_it_grows_and_its_end(
        self, where: str, request: pytest.FixtureRequest, sockets: Sockets, site: Site, stub: StubModel
    ) -> None:
        chat, session_id = begin(sockets, site, "one")
        chat.until("done")
        watched_at = request.getfixturevalue(where)
        watching = watch(sockets, watched_at, f"sessions/{session_id}/", staff("view_session", "view_message"))
        chat.send(type="ask", id=str(uuid4()), text="wait for two", session_id=session_id)
        # The end of the first answer may still be on its way.
        while watching.until("message")[-1]["message"]["content"] != "wait for two":
            pass
        said = ""
        while said != "You said: ":
            piece = watching.next()
            assert (piece["type"], piece["at"]) == ("text", len(said))
            said += piece["text"]
        stub.go_on.set()
        frames = watching.until("end")
        said += "".join(frame["text"] for frame in frames if frame["type"] == "text")
        assert said == "You said: wait for two "
        answer = [frame["message"] for frame in frames if frame["type"] == "message"][-1]
        assert (answer["content"], answer["status"]) == (said, "complete")
        assert answer["id"] == frames[-1]["answer_id"]
        watching.close()
        chat.close()

    def test_who_comes_in_the_middle_is_told_all_that_was_said(
        self, sockets: Sockets, site: Site, elsewhere: Site, stub: StubModel
    ) -> None:
        chat, session_id = begin(sockets, site, "wait for me")
        assert "".join(chat.next()["text"] for _ in range(2)) == "You said: "
        watching = watch(sockets, elsewhere, f"sessions/{session_id}/", staff("view_session", "view_message"))
        piece = watching.until("text")[-1]
        assert (piece["at"], piece["text"]) == (0, "You said: ")
        watching.send_text("again")
        assert watching.until("text")[-1]["text"] == "You said: "
        watching.close()
        chat.close()

    def test_what_came_while_nobody_was_connected_is_told_on_asking(self, sockets: Sockets, site: Site) -> None:
        session = Session.objects.create()
        first, second = (session.messages.create(role=role, content=role) for role in ("user", "assistant"))
        watching = watch(sockets, site, f"sessions/{session.id}/", staff("view_session", "view_message"))
        watching.send_text(str(first.id))
        assert watching.next()["message"]["id"] == str(second.id)
        watching.close()

    def test_other_sessions_are_not_told_of(self, sockets: Sockets, site: Site, stub: StubModel) -> None:
        chat, session_id = begin(sockets, site, "one")
        chat.until("done")
        watching = watch(sockets, site, f"sessions/{session_id}/", staff("view_session", "view_message"))
        other, _ = begin(sockets, site, "wait elsewhere")
        other.until("delta")
        chat.send(type="ask", id=str(uuid4()), text="two", session_id=session_id)
        stub.go_on.set()
        # The end of the first answer may still be on its way.
        ends = [json.dumps(watching.until("end"))]
        if "two" not in ends[0]:
            ends.append(json.dumps(watching.until("end")))
        told = "".join(ends)
        assert "two" in told
        assert "elsewhere" not in told
        for each in (watching, other, chat):
            each.close()


class TestNow:
    def test_turns_of_all_processes_are_listed_while_they_last(
        self, sockets: Sockets, site: Site, elsewhere: Site, stub: StubModel
    ) -> None:
        watching = watch(sockets, elsewhere, "now/", staff("view_session", "view_message"))
        first, session_id = begin(sockets, site, "wait here")
        second, _ = begin(sockets, elsewhere, "wait there")
        turns = turns_when(watching, count=2)
        assert turns[0]["session_id"] == session_id
        assert {(turn["channel"], turn["model"]) for turn in turns} == {("Webpagina", "stub")}
        stub.go_on.set()
        assert turns_when(watching, count=0) == []
        for each in (watching, first, second):
            each.close()

    @pytest.mark.parametrize(
        ("permissions", "person"), [(("view_session", "view_message"), "anna"), (("view_session",), None)]
    )
    def test_the_person_is_shown_to_those_who_may_read_what_they_say(
        self, permissions: tuple[str, ...], person: str | None, sockets: Sockets, site: Site, stub: StubModel
    ) -> None:
        watching = watch(sockets, site, "now/", staff(*permissions))
        with httpx.Client(base_url=site.url, timeout=30) as client:
            body = {"messages": [{"role": "user", "content": "wait"}], "user": "anna", "stream": True}
            with client.stream("POST", "/v1/chat/completions", json=body):
                assert turns_when(watching, count=1)[0]["person"] == person
        watching.close()


class TestWhoMay:
    @pytest.fixture
    def paths(self, site: Site) -> list[str]:
        return ["now/", f"sessions/{Session.objects.create().id}/"]

    def status(self, sockets: Sockets, site: Site, path: str, **headers: str) -> int:
        try:
            sockets.open(f"{site.url}/ws/admin/{path}", **headers).close()
        except aiohttp.WSServerHandshakeError as refusal:
            return refusal.status
        return 101

    def statuses(self, sockets: Sockets, site: Site, paths: list[str], user: User) -> list[int]:
        cookie = cookie_of(user)
        return [self.status(sockets, site, path, Cookie=cookie, Origin=site.url) for path in paths]

    def test_who_may_read_contents_may_look_on(self, sockets: Sockets, site: Site, paths: list[str]) -> None:
        assert self.statuses(sockets, site, paths, staff("view_session", "view_message")) == [101, 101]

    def test_who_may_not_look_on_did_not(self, sockets: Sockets, site: Site, paths: list[str]) -> None:
        self.statuses(sockets, site, paths, staff("view_session"))
        assert not AuditEntry.objects.exists()

    def test_who_may_not_read_contents_sees_the_numbers_alone(
        self, sockets: Sockets, site: Site, paths: list[str]
    ) -> None:
        assert self.statuses(sockets, site, paths, staff("view_session")) == [101, 403]

    @pytest.mark.parametrize("fields", [{"is_staff": False}, {"is_active": False}])
    def test_who_is_no_staff_sees_nothing(
        self, fields: dict[str, bool], sockets: Sockets, site: Site, paths: list[str]
    ) -> None:
        user = staff("view_session", "view_message")
        cookie = cookie_of(user)
        User.objects.filter(id=user.id).update(**fields)
        assert [self.status(sockets, site, path, Cookie=cookie, Origin=site.url) for path in paths] == [403, 403]

    def test_a_stranger_sees_nothing(self, sockets: Sockets, site: Site, paths: list[str]) -> None:
        assert [self.status(sockets, site, path, Origin=site.url) for path in paths] == [403, 403]

    def test_a_page_of_another_site_or_of_none_sees_nothing(
        self, sockets: Sockets, site: Site, paths: list[str]
    ) -> None:
        cookie = cookie_of(staff("view_session", "view_message"))
        for path in paths:
            assert self.status(sockets, site, path, Cookie=cookie, Origin="http://evil.example") == 403
            assert self.status(sockets, site, path, Cookie=cookie) == 403

    def test_who_looks_on_is_recorded_once(self, sockets: Sockets, site: Site, paths: list[str]) -> None:
        user = staff("view_session", "view_message")
        assert self.statuses(sockets, site, [paths[1], paths[1], paths[0]], user) == [101, 101, 101]
        assert self.statuses(sockets, site, [paths[1]], staff("view_session")) == [403]
        opened = [(entry.action, entry.user, entry.subject) for entry in AuditEntry.objects.all()]
        assert opened == [(Action.OPENED, user, str(Session.objects.get().id))]

    def test_an_unknown_session_is_refused(self, sockets: Sockets, site: Site) -> None:
        user = staff("view_session", "view_message")
        assert self.statuses(sockets, site, [f"sessions/{uuid4()}/"], user) == [403]

    def test_who_loses_the_right_is_disconnected(self, sockets: Sockets, site: Site, paths: list[str]) -> None:
        user = staff("view_session", "view_message")
        watching = watch(sockets, site, paths[1], user)
        user.user_permissions.clear()
        assert watching.end() == 4403


class TestLayer:
    """Two layers are two processes: they share nothing but the database."""

    def test_messages_of_any_size_reach_others_whole_once_and_in_order(self) -> None:
        messages = [{"number": number, "text": "é€👷" * size} for number, size in enumerate([1, 5000, 0, 40_000, 2])]

        async def talk() -> tuple[list[Any], list[Any]]:
            near, far = PostgresLayer(), PostgresLayer()
            names = [await layer.new_channel() for layer in (near, far)]
            for layer, name in zip((near, far), names, strict=True):
                await layer.group_add("group", name)
            await _hears(far, near)
            for message in messages:
                await near.group_send("group", message)
            heard = [await asyncio.wait_for(far.receive(names[1]), 20) for _ in messages]
            own = [await asyncio.wait_for(near.receive(names[0]), 20) for _ in messages]
            await _stop(near, far)
            return heard, own

        heard, own = asyncio.run(talk())
        assert heard == messages
        assert own == messages

    def test_a_lost_connection_is_replaced(self) -> None:
        async def talk() -> Any:
            near, far = PostgresLayer(), PostgresLayer()
            name = await far.new_channel()
            await far.group_add("group", name)
            await _hears(far, near)
            await asyncio.to_thread(_kill_listeners)
            await _hears(far, near)
            await near.group_send("group", {"text": "again"})
            while (heard := await asyncio.wait_for(far.receive(name), 20)) == {}:
                pass
            await _stop(near, far)
            return heard

        assert asyncio.run(talk()) == {"text": "again"}

    def test_what_cannot_be_read_does_not_end_it(self, caplog: pytest.LogCaptureFixture) -> None:
        nonsense = ["", "a b c", "else 1 first 1 []", "else 1 0 1 {", "else 1 0 1 5", 'else 1 0 1 ["no group!", {}]']

        async def talk() -> Any:
            near, far = PostgresLayer(), PostgresLayer()
            name = await far.new_channel()
            await far.group_add("group", name)
            await _hears(far, near)
            await in_database(_notify, nonsense)
            await near.group_send("group", {"text": "still there"})
            heard = await asyncio.wait_for(far.receive(name), 20)
            await _stop(near, far)
            return heard

        assert asyncio.run(talk()) == {"text": "still there"}
        assert caplog.text.count("not understood") == len(nonsense)


async def _hears(far: PostgresLayer, near: PostgresLayer) -> None:
    """Wait until one layer hears the other, which takes a connection."""
    probe = await far.new_channel()
    await far.group_add("probe", probe)
    for _ in range(100):
        await near.group_send("probe", {})
        try:
            await asyncio.wait_for(far.receive(probe), 0.2)
        except TimeoutError:
            continue
        # What was sent too often is on its way still.
        await asyncio.sleep(0.3)
        return
    pytest.fail("it hears nothing")


async def _stop(*layers: PostgresLayer) -> None:
    for layer in layers:
        for task in (layer._listener, layer._sender):
            if task:
                task.cancel()
                await asyncio.wait([task])


def _kill_listeners() -> None:
    try:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE query LIKE 'LISTEN evi_live%%' AND datname = current_database()"
            )
    finally:
        connection.close()


@pytest.mark.skipif(not shutil.which("chromium"), reason="apt-get install chromium")
class TestPages:
    """The same in a browser."""

    def open(
        self,
        browser: Browser,
        site: Site,
        path: str,
        user: User,
        *,
        lines: Callable[[WebSocketRoute], None] | None = None,
    ) -> Page:
        """A page of somebody who signed in; `lines` is given each WebSocket that it opens."""
        name, _, value = cookie_of(user).partition("=")
        context = browser.new_context(reduced_motion="reduce")
        context.add_cookies([{"name": name, "value": value, "url": site.url}])
        page = context.new_page()
        page.set_default_timeout(20_000)
        if lines:
            page.route_web_socket(re.compile("/ws/"), lines)
        page.goto(site.url + path)
        return page

    def test_an_answer_grows_on_an_open_page_and_nothing_in_it_becomes_markup(
        self, browser: Browser, sockets: Sockets, site: Site, elsewhere: Site, stub: StubModel
    ) -> None:
        chat, session_id = begin(sockets, site, "one")
        chat.until("done")
        user = staff("view_session", "view_message")
        page = self.open(browser, elsewhere, f"/admin/conversations/session/{session_id}/change/", user)
        conversation = page.locator("#conversation")
        expect(conversation).to_have_attribute("data-live-state", "connected")
        expect(conversation.locator(".evi-message")).to_have_count(2)
        chat.send(type="ask", id=str(uuid4()), text="wait <img src=x onerror=alert(1)>", session_id=session_id)
        expect(conversation.locator("li.growing .evi-text")).to_have_text("You said: ")
        stub.go_on.set()
        expect(conversation.locator("li.growing")).to_have_count(0)
        expect(conversation.locator(".evi-text")).to_have_text(
            ["one", "You said: one", "wait <img src=x onerror=alert(1)>", "You said: wait <img src=x onerror=alert(1)>"]
        )
        assert conversation.locator("img").count() == 0
        page.context.close()
        chat.close()

    def test_what_is_edited_is_folded_on_an_open_page(
        self, browser: Browser, sockets: Sockets, site: Site, elsewhere: Site
    ) -> None:
        chat, session_id = begin(sockets, site, "one")
        chat.until("done")
        user = staff("view_session", "view_message")
        page = self.open(browser, elsewhere, f"/admin/conversations/session/{session_id}/change/", user)
        conversation = page.locator("#conversation")
        expect(conversation).to_have_attribute("data-live-state", "connected")
        chat.send(type="ask", id=str(uuid4()), text="two", session_id=session_id, history=[])
        chat.until("done")
        expect(conversation.locator("summary", has_text="2 vervangen berichten")).to_be_visible()
        expect(conversation.locator(".evi-text:visible")).to_have_text(["two", "You said: two"])
        expect(conversation.locator(".evi-meta:visible span").first).to_have_text("stub")
        page.context.close()
        chat.close()

    def test_a_page_that_lost_its_connection_catches_up(
        self, browser: Browser, sockets: Sockets, site: Site, elsewhere: Site
    ) -> None:
        chat, session_id = begin(sockets, site, "one")
        chat.until("done")
        is_away = False
        lines: list[WebSocketRoute] = []

        def connect(line: WebSocketRoute) -> None:
            if is_away:
                line.close()
                return
            line.connect_to_server()
            lines.append(line)

        user = staff("view_session", "view_message")
        path = f"/admin/conversations/session/{session_id}/change/"
        page = self.open(browser, elsewhere, path, user, lines=connect)
        conversation = page.locator("#conversation")
        expect(conversation).to_have_attribute("data-live-state", "connected")
        is_away = True
        lines[0].close()
        expect(conversation).to_have_attribute("data-live-state", "away")
        chat.send(type="ask", id=str(uuid4()), text="two", session_id=session_id)
        chat.until("done")
        is_away = False
        said = ["one", "You said: one", "two", "You said: two"]
        expect(conversation.locator(".evi-text")).to_have_text(said, timeout=40_000)
        page.context.close()
        chat.close()

    def test_the_panel_lists_what_is_being_answered(
        self, browser: Browser, sockets: Sockets, site: Site, elsewhere: Site, stub: StubModel
    ) -> None:
        user = staff("view_session", "view_message")
        page = self.open(browser, elsewhere, "/admin/", user)
        expect(page.locator("#now")).to_have_attribute("data-live-state", "connected")
        chat, session_id = begin(sockets, site, "wait")
        expect(page.locator("#now p")).to_have_text("Nu één antwoord onderweg.")
        expect(page.locator("#now td").nth(1)).to_have_text("Webpagina")
        expect(page.locator("#now a")).to_have_attribute("href", f"/admin/conversations/session/{session_id}/change/")
        stub.go_on.set()
        expect(page.locator("#now tr")).to_have_count(1)
        expect(page.locator("#now p")).to_have_text("Nu geen antwoorden onderweg.")
        page.context.close()
        chat.close()


@pytest.mark.skipif(not shutil.which("redis-server"), reason="apt-get install redis-server")
def test_with_redis_two_processes_tell_each_other_as_well(sockets: Sockets, stub: StubModel, database_url: str) -> None:
    port = free_port()
    redis = subprocess.Popen(
        ["redis-server", "--port", str(port), "--save", "", "--bind", "127.0.0.1"], stdout=subprocess.DEVNULL
    )
    url = f"redis://127.0.0.1:{port}/0"
    first, second = (Site(database_url, stub, REDIS_URL=url) for _ in range(2))
    try:
        chat, session_id = begin(sockets, first, "wait for redis")
        watching = watch(sockets, second, f"sessions/{session_id}/", staff("view_session", "view_message"))
        assert watching.until("text")[-1]["at"] == 0
        stub.go_on.set()
        assert "You said: wait for redis " in json.dumps(watching.until("end"))
        watching.close()
        chat.close()
        # Turns go on without it.
        redis.terminate()
        redis.wait()
        assert httpx.post(f"{first.url}/chat", json={"query": "hello"}, timeout=30).status_code == 200
    finally:
        for site in (first, second):
            site.stop()
        redis.kill()
        redis.wait()
