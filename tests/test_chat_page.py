"""The chat page as people use it: in a real browser, on a real server, with the offline model or the stub."""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from axe_playwright_python.sync_playwright import Axe
from django.contrib.auth.hashers import PBKDF2PasswordHasher
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import connection
from django.urls import Resolver404, resolve
from playwright.sync_api import Browser, Locator, expect, sync_playwright

from agentbridge.ingest import load_sample
from conversations.models import Message, Session
from evi_site.environment import BASE_DIR
from tests.chat_page import HAS_CHROMIUM, ChatTab, eventually, sign_in, stored_messages
from tests.openwebui import launch_chromium
from tests.stub_model import StubModel
from tests.test_turns import Site

pytestmark = [
    pytest.mark.skipif(not HAS_CHROMIUM, reason="needs a browser: apt-get install chromium"),
    # The tests themselves only read. What EVI writes is there for the next one too, as in real life.
    pytest.mark.django_db,
]

REQUIREMENTS = "Wat zijn de vereisten voor valbeveiliging?"
REQUIREMENTS_TITLE = "Vereisten voor valbeveiliging"
PRODUCTS = "Welke producten heb je daarvoor?"
A_PRODUCT = "Allround harnas met twee bevestigingspunten"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
PASSWORD = "a password for tests"
PRODUCTION = {
    "EVI_ENV": "production",
    "EVI_HTTPS": "false",
    "EVI_SECRET_KEY": "made up for the tests alone, and long enough: 0123456789 abcdefghij",
    "EVI_ALLOWED_HOSTS": "127.0.0.1,evi.example",
}
HOSTILE = """<img src=x onerror="window.hacked=1"> </script><script>window.hacked=1</script>

![pixel](http://127.0.0.1:9/pixel.png) [run](javascript:window.hacked=1) [page](//evil.example) <b>bold</b>

[data](data:text/html,<script>window.hacked=1</script>) [fine](https://example.com/a?b=1&c="2)

| <img src=x onerror=window.hacked=1> | b |
|---|---|
| `<svg onload=window.hacked=1>` | **<i>x</i>** |
"""


@pytest.fixture(scope="module")
def knowledge(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch, django_db_blocker.unblock():
        # Playwright has an event loop in the thread that also asks the database.
        patch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "true")
        load_sample()
        # The servers have their own settings, and know nothing of the quick hash of the tests.
        User.objects.create(username="piet", password=PBKDF2PasswordHasher().encode(PASSWORD, "a salt for tests"))
        # Beside an event loop Django keeps another connection, and this one would stay open for ever.
        connection.close()
        yield
        call_command("flush", interactive=False, verbosity=0)


@pytest.fixture(scope="module")
def stub() -> Iterator[StubModel]:
    stub = StubModel()
    yield stub
    stub.go_on.set()
    stub.shutdown()
    stub.server_close()


@pytest.fixture(scope="module")
def evi(knowledge: None, stub: StubModel, database_url: str) -> Iterator[Site]:
    site = Site(database_url, stub, EVI_MODEL="offline", EVI_MODEL_BASE_URL="")
    yield site
    site.stop()


@pytest.fixture(scope="module")
def stub_evi(knowledge: None, stub: StubModel, database_url: str) -> Iterator[Site]:
    """The same database with the stub as its model, which waits and breaks off when it is told to."""
    site = Site(database_url, stub)
    yield site
    site.stop()


@pytest.fixture
def fragile(knowledge: None, stub: StubModel, database_url: str) -> Iterator[Site]:
    """Gives up soon on an answer that a killed process was at."""
    site = Site(database_url, stub, EVI_MODEL_TIMEOUT="10")
    yield site
    site.stop()


@pytest.fixture(scope="module")
def production(knowledge: None, stub: StubModel, database_url: str) -> Iterator[Site]:
    site = Site(database_url, stub, **PRODUCTION)
    yield site
    site.stop()


@pytest.fixture(scope="module")
def browser(knowledge: None) -> Iterator[Browser]:
    with sync_playwright() as playwright, launch_chromium(playwright) as browser:
        yield browser
        connection.close()


@pytest.fixture
def open_tab(browser: Browser, stub: StubModel) -> Iterator[Callable[..., ChatTab]]:
    opened: list[ChatTab] = []
    stub.reset()

    def open_tab(site: Site, path: str = "/", **options: Any) -> ChatTab:
        tab = ChatTab(browser, site.url, **options)
        opened.append(tab)
        tab.open(path)
        return tab

    yield open_tab
    stub.go_on.set()
    for tab in opened:
        tab.close()
    # A page that complains has something wrong with it, whatever the test was about.
    assert [complaint for tab in opened for complaint in tab.complaints] == []


@pytest.fixture
def tab(open_tab: Callable[..., ChatTab], evi: Site) -> ChatTab:
    return open_tab(evi)


def thread(tab: ChatTab) -> list[tuple[str, str, str]]:
    return [(m["role"], m["content"].strip(), m["status"]) for m in stored_messages(tab.url, tab.session_id)]


def has_search() -> bool:
    try:
        return bool(resolve("/api/search"))
    except Resolver404:
        return False


class TestAsking:
    def test_an_example_is_answered_with_chips_that_open_their_source(self, tab: ChatTab) -> None:
        tab.page.get_by_role("button", name=REQUIREMENTS, exact=True).click()
        tab.finished()
        [_, answer] = stored_messages(tab.url, tab.session_id)
        cited = answer["metadata"]["citations"]
        assert tab.chips().all_inner_texts() == re.findall(r"\[(\d+)\]", answer["content"])
        tab.chips().first.click()
        source = tab.page.locator(".source[aria-current]")
        for part in ("document_title", "section", "norm", "excerpt"):
            expect(source).to_contain_text(cited[0][part].strip()[:60])
        expect(source.get_by_role("link")).to_have_attribute("href", cited[0]["url"])
        tab.page.keyboard.press("Escape")
        expect(tab.page.locator("#sources")).to_be_hidden()
        expect(tab.chips().first).to_be_focused()

    def test_a_follow_up_is_understood_in_the_same_session(self, tab: ChatTab) -> None:
        tab.ask(REQUIREMENTS)
        expect(tab.page.locator("#title")).to_have_text(REQUIREMENTS_TITLE)
        session_id = tab.session_id
        assert A_PRODUCT in tab.ask(PRODUCTS)
        assert tab.session_id == session_id
        assert [role for role, _, _ in thread(tab)] == ["user", "assistant"] * 2
        session = Session.objects.get(id=session_id)
        assert (session.title, session.channel) == (REQUIREMENTS_TITLE, "web")

    def test_a_reload_shows_the_same_conversation(self, tab: ChatTab) -> None:
        answer = tab.ask(REQUIREMENTS)
        chips = tab.chips().all_inner_texts()
        tab.reload()
        assert tab.prose() == answer
        assert tab.chips().all_inner_texts() == chips
        expect(tab.page.locator("#title")).to_have_text(REQUIREMENTS_TITLE)
        expect(tab.page.locator(".session a[aria-current=page]")).to_have_text(REQUIREMENTS_TITLE)

    def test_an_edited_question_replaces_the_old_one_and_its_answer(self, tab: ChatTab) -> None:
        tab.ask(REQUIREMENTS)
        tab.ask(PRODUCTS)
        old = thread(tab)
        tab.edit_last_question("Hoe vaak moet die gekeurd worden?")
        new = thread(tab)
        assert new[:2] == old[:2]
        assert new[2][1] == "Hoe vaak moet die gekeurd worden?"
        assert len(new) == 4
        tab.reload()
        assert tab.questions.all_inner_texts() == [REQUIREMENTS, "Hoe vaak moet die gekeurd worden?"]

    def test_the_first_question_can_be_edited_too(self, tab: ChatTab) -> None:
        tab.ask(REQUIREMENTS)
        session_id = tab.session_id
        tab.edit_last_question("Hoeveel kilo mag ik tillen?")
        assert tab.session_id == session_id
        assert [text for role, text, _ in thread(tab) if role == "user"] == ["Hoeveel kilo mag ik tillen?"]

    def test_an_answer_asked_for_again_replaces_the_old_one(self, tab: ChatTab) -> None:
        tab.ask(REQUIREMENTS)
        [question, old] = stored_messages(tab.url, tab.session_id)
        tab.page.get_by_role("button", name="Opnieuw antwoorden").click()
        eventually(
            lambda: stored_messages(tab.url, tab.session_id)[-1]["id"] not in (old["id"], question["id"]), tab.page
        )
        tab.finished()
        [same, new] = stored_messages(tab.url, tab.session_id)
        assert same["id"] == question["id"]
        assert new["id"] != old["id"]

    def test_a_long_conversation_is_edited_with_all_that_came_before(
        self, open_tab: Callable[..., ChatTab], evi: Site
    ) -> None:
        said = [
            {"role": ["user", "assistant"][n % 2], "content": f"bericht {n}", "created_at": f"2026-01-01T10:{n:02}:00Z"}
            for n in range(60)
        ]
        document = {"version": 1, "session": {"title": "lang gesprek"}, "messages": said}
        session = httpx.post(f"{evi.url}/api/sessions/import", json=document).json()
        tab = open_tab(evi, f"/?session={session['id']}")
        expect(tab.answers).to_have_count(25)
        tab.page.get_by_role("button", name="Eerdere berichten tonen").wait_for()
        tab.edit_last_question("Hoeveel kilo mag ik tillen?")
        stored = [m.content for m in Message.objects.active().in_session(session["id"])]
        assert stored[:59] == [*(one["content"] for one in said[:58]), "Hoeveel kilo mag ik tillen?"]

    def test_what_is_asked_again_here_is_asked_after_the_answer_before_it(self, tab: ChatTab) -> None:
        sent: list[dict[str, Any]] = []
        tab.page.on("websocket", lambda socket: socket.on("framesent", lambda frame: sent.append(json.loads(frame))))
        tab.reload()
        tab.ask(REQUIREMENTS)
        tab.ask(PRODUCTS)
        tab.edit_last_question("Hoe vaak moet die gekeurd worden?")
        answers = [m["id"] for m in stored_messages(tab.url, tab.session_id) if m["role"] == "assistant"]
        assert [("after" in frame, frame.get("after")) for frame in sent if frame["type"] == "ask"] == [
            (False, None),
            (False, None),
            (True, answers[0]),
        ]
        assert not any("history" in frame for frame in sent)
        assert [role for role, _, _ in thread(tab)] == ["user", "assistant"] * 2

    def test_what_cannot_be_loaded_says_so(self, open_tab: Callable[..., ChatTab], evi: Site) -> None:
        said = [
            {"role": ["user", "assistant"][n % 2], "content": f"bericht {n}", "created_at": f"2026-01-01T10:{n:02}:00Z"}
            for n in range(60)
        ]
        document = {"version": 1, "session": {"title": "lang gesprek"}, "messages": said}
        session = httpx.post(f"{evi.url}/api/sessions/import", json=document).json()
        tab = open_tab(evi, f"/?session={session['id']}")
        button = tab.page.get_by_role("button", name="Eerdere berichten tonen")
        button.wait_for()
        tab.page.route("**/messages?**", lambda route: route.fulfill(status=503, json={}))
        button.click()
        expect(tab.page.locator("#toast")).not_to_be_empty()
        # The browser's own word for it, and no failure of the page.
        assert [complaint for complaint in tab.complaints if "503" not in complaint] == []
        tab.complaints.clear()


class TestStreaming:
    def test_a_stopped_answer_is_kept_and_the_conversation_goes_on(
        self, open_tab: Callable[..., ChatTab], stub_evi: Site, stub: StubModel
    ) -> None:
        tab = open_tab(stub_evi)
        tab.send("wait then say something long")
        tab.wait_for_words("You said:")
        tab.page.get_by_role("button", name="Stop").click()
        tab.finished()
        expect(tab.answers.last).to_contain_text("Afgebroken")
        eventually(lambda: len(thread(tab)) == 2, tab.page)
        assert thread(tab)[1] == ("assistant", "You said:", "interrupted")
        stub.go_on.set()
        assert tab.ask("say more") == "You said: say more"

    def test_escape_stops_an_answer(self, open_tab: Callable[..., ChatTab], stub_evi: Site) -> None:
        tab = open_tab(stub_evi)
        tab.send("wait then say something long")
        tab.wait_for_words("You said:")
        tab.page.keyboard.press("Escape")
        tab.finished()
        expect(tab.answers.last).to_contain_text("Afgebroken")

    def test_an_answer_survives_a_lost_connection_without_a_word_lost_or_repeated(
        self, open_tab: Callable[..., ChatTab], stub_evi: Site, stub: StubModel
    ) -> None:
        tab = open_tab(stub_evi)
        # A way to cut the page's connection, as a tunnel or a lid does.
        tab.page.evaluate(
            """() => {
                const Real = WebSocket;
                window.WebSocket = class extends Real {
                    constructor(...args) { super(...args); window.socket = this; }
                };
            }"""
        )
        tab.send("wait then say 😀 é something long")
        tab.wait_for_words("You said:")
        tab.page.evaluate("socket.close()")
        expect(tab.page.locator("#toast")).to_contain_text("verbinding")
        stub.go_on.set()
        assert tab.finished() == "You said: wait then say 😀 é something long"
        assert stub.calls["wait then say 😀 é something long"] == 1

    def test_a_reload_in_the_middle_of_an_answer_takes_it_up_again(
        self, open_tab: Callable[..., ChatTab], stub_evi: Site, stub: StubModel
    ) -> None:
        tab = open_tab(stub_evi)
        tab.send("wait then say it after a reload")
        tab.wait_for_words("You said:")
        tab.page.reload()
        tab.wait_for_words("You said:")
        stub.go_on.set()
        assert tab.finished() == "You said: wait then say it after a reload"
        assert [role for role, _, _ in thread(tab)] == ["user", "assistant"]
        assert stub.calls["wait then say it after a reload"] == 1

    def test_an_answer_survives_a_server_that_is_killed(
        self, fragile: Site, open_tab: Callable[..., ChatTab], stub: StubModel
    ) -> None:
        tab = open_tab(fragile)
        tab.send("wait then say it after a crash")
        tab.wait_for_words("You said:")
        fragile.stop(signal.SIGKILL)
        expect(tab.page.locator("#toast")).to_contain_text("verbinding")
        stub.go_on.set()
        fragile.start()
        # Nobody knows the half answer any more: the question is answered anew, and what was shown of it goes.
        assert tab.finished() == "You said: wait then say it after a crash"
        said = [(role, text) for role, text, _ in thread(tab)]
        assert said == [
            ("user", "wait then say it after a crash"),
            ("assistant", "You said: wait then say it after a crash"),
        ]
        assert Session.objects.get(id=tab.session_id).title == "Wait then say it after"
        expect(tab.page.locator("#title")).to_have_text("Wait then say it after")
        # What the browser itself says of a server that is not there.
        tab.complaints.clear()

    def test_two_tabs_go_on_with_one_conversation(self, open_tab: Callable[..., ChatTab], stub_evi: Site) -> None:
        one = open_tab(stub_evi)
        one.ask("say one")
        two = open_tab(stub_evi, f"/?session={one.session_id}")
        expect(two.answers).to_have_count(1)
        two.ask("say two")
        one.ask("say three")
        asked = [text for role, text, _ in thread(one) if role == "user"]
        assert asked == ["say one", "say two", "say three"]
        one.page.reload()
        expect(one.questions).to_have_text(["say one", "say two", "say three"])

    def test_another_conversation_can_be_read_meanwhile(
        self, open_tab: Callable[..., ChatTab], stub_evi: Site, stub: StubModel
    ) -> None:
        tab = open_tab(stub_evi)
        tab.send("wait then say one thing at a time")
        tab.wait_for_words("You said:")
        first = tab.session_id
        tab.page.get_by_role("button", name="Nieuw gesprek").click()
        expect(tab.page.locator("#welcome")).to_be_visible()
        tab.page.locator(f".session a[data-id='{first}']").click()
        tab.wait_for_words("You said:")
        stub.go_on.set()
        assert tab.finished() == "You said: wait then say one thing at a time"
        expect(tab.answers).to_have_count(1)

    def test_a_model_that_fails_is_told_of_in_words(self, open_tab: Callable[..., ChatTab], stub_evi: Site) -> None:
        tab = open_tab(stub_evi)
        tab.send("fail with 500")
        tab.finished()
        expect(tab.answers.last.locator(".problem")).to_contain_text("Het model is nu niet te bereiken")
        expect(tab.page.get_by_role("button", name="Opnieuw antwoorden")).to_be_visible()


class TestSessions:
    def test_rename_pin_and_delete(self, tab: ChatTab) -> None:
        tab.ask("Hoe vaak moet een ladder gekeurd worden?")
        session_id = tab.session_id
        tab.menu("Ladder gekeurd", "Hernoemen")
        tab.page.get_by_label("Nieuwe titel").fill("Ladders <b>keuren</b>")
        tab.page.keyboard.press("Enter")
        expect(tab.page.locator("#title")).to_have_text("Ladders <b>keuren</b>")
        tab.menu("Ladders", "Vastzetten")
        expect(tab.page.locator("#sessions section").first).to_contain_text("Vastgezet")
        session = Session.objects.get(id=session_id)
        assert (session.title, session.pinned) == ("Ladders <b>keuren</b>", True)

        tab.menu("Ladders", "Verwijderen")
        tab.page.get_by_role("dialog").get_by_role("button", name="Annuleren").click()
        assert Session.objects.filter(id=session_id).exists()
        tab.menu("Ladders", "Verwijderen")
        tab.page.get_by_role("dialog").get_by_role("button", name="Verwijderen").click()
        expect(tab.rows.filter(has_text="Ladders")).to_have_count(0)
        assert not Session.objects.filter(id=session_id).exists()
        expect(tab.page.locator("#welcome")).to_be_visible()

    def test_export(self, tab: ChatTab) -> None:
        tab.ask(REQUIREMENTS)
        session_id = tab.session_id
        for entry, ending in (("Markdown", "md"), ("JSON", "json")):
            with tab.page.expect_download() as download:
                tab.menu(REQUIREMENTS_TITLE, f"Exporteren als {entry}")
            assert download.value.suggested_filename == f"evi-{session_id}.{ending}"
            assert REQUIREMENTS in Path(download.value.path()).read_text()

    @pytest.mark.skipif(not has_search(), reason="needs /api/search and the titles of /api/sessions?q=")
    def test_search_finds_a_title(self, tab: ChatTab) -> None:
        tab.ask("Welke eisen gelden er voor heftrucks?")
        tab.ask("En wie mag erop rijden?")
        tab.page.keyboard.press("Control+k")
        expect(tab.page.locator("#search")).to_be_focused()
        tab.page.keyboard.type("heftrucks")
        expect(tab.page.locator("#sessions h2").first).to_have_text("In titels")
        eventually(lambda: all("heftruck" in title.casefold() for title in tab.titles()), tab.page)
        tab.page.keyboard.press("ArrowDown")
        tab.page.keyboard.press("Enter")
        expect(tab.questions.first).to_have_text("Welke eisen gelden er voor heftrucks?")
        tab.page.locator("#search").fill("")
        expect(tab.page.locator("#sessions h2").first).not_to_have_text("In titels")

    def test_search_marks_the_words_in_what_was_said(self, tab: ChatTab, evi: Site) -> None:
        # A character that JavaScript counts as two stands before the word.
        tab.ask("Hoort er bij een 🦺 ook een pikhouweel?")
        embed = [sys.executable, "manage.py", "embed_messages"]
        subprocess.run(embed, cwd=BASE_DIR, env=evi.environment, check=True)
        tab.page.locator("#search").fill("pikhouweel")
        snippet = tab.page.locator(".snippet", has_text="🦺")
        expect(snippet.locator("mark")).to_have_text("pikhouweel")

    def test_an_unknown_session_leads_to_a_new_one(self, browser: Browser, evi: Site) -> None:
        tab = ChatTab(browser, evi.url)
        tab.open("/?session=6f0c1f0e-3b52-4b8e-9a55-0d6c5e1b7a10")
        expect(tab.page.locator("#toast")).to_contain_text("bestaat niet")
        assert urlsplit(tab.page.url).query == ""
        tab.close()

    def test_the_way_back_leads_to_the_conversation_before(self, tab: ChatTab) -> None:
        tab.ask(REQUIREMENTS)
        tab.page.get_by_role("button", name="Nieuw gesprek").click()
        expect(tab.questions).to_have_count(0)
        tab.page.go_back()
        expect(tab.questions).to_have_text([REQUIREMENTS])


class TestLooks:
    @pytest.mark.parametrize("theme", ["light", "dark"])
    @pytest.mark.parametrize("width", [1280, 390])
    def test_axe_finds_nothing(self, open_tab: Callable[..., ChatTab], evi: Site, theme: Any, width: int) -> None:
        tab = open_tab(evi, theme=theme, width=width, height=844)
        assert problems(tab) == []
        tab.ask(REQUIREMENTS)
        tab.ask(PRODUCTS)
        assert problems(tab) == []
        tab.chips().first.click()
        assert problems(tab) == []
        tab.page.keyboard.press("Escape")
        if width < 768:
            tab.page.get_by_role("button", name="Gesprekken tonen").click()
        tab.page.get_by_role("button", name="Instellingen").click()
        assert problems(tab) == []

    def test_axe_finds_nothing_in_what_opens_for_a_moment(self, tab: ChatTab) -> None:
        tab.ask(REQUIREMENTS)
        actions = tab.page.locator("#session-actions")
        actions.click()
        assert problems(tab) == []
        for entry in ("Hernoemen", "Verwijderen"):
            tab.page.keyboard.press("Escape")
            actions.click()
            tab.page.get_by_role("menuitem", name=entry).click()
            assert problems(tab) == []
        tab.page.keyboard.press("Escape")
        question = tab.page.locator(".question").last
        question.hover()
        question.get_by_role("button", name="Vraag wijzigen").click()
        tab.page.locator("#search").fill("valbeveiliging")
        expect(tab.page.locator("#sessions h2").first).to_have_text("In titels")
        assert problems(tab) == []

    def test_nothing_jumps(self, tab: ChatTab) -> None:
        tab.ask(REQUIREMENTS)
        tab.reload()
        tab.ask(PRODUCTS)
        tab.page.wait_for_timeout(300)
        assert tab.shifted() < 0.1

    def test_on_a_telephone_the_list_is_a_drawer(self, open_tab: Callable[..., ChatTab], evi: Site) -> None:
        tab = open_tab(evi, width=390, height=844, has_touch=True)
        tab.ask(REQUIREMENTS)
        assert not tab.overflows()
        expect(tab.page.locator("#sidebar")).not_to_be_visible()
        tab.page.get_by_role("button", name="Gesprekken tonen").click()
        expect(tab.page.locator("#sidebar")).to_be_visible()
        tab.page.keyboard.press("Escape")
        expect(tab.page.locator("#sidebar")).not_to_be_visible()
        expect(tab.page.get_by_role("button", name="Gesprekken tonen")).to_be_focused()

    def test_the_theme_follows_the_system_until_one_is_chosen(
        self, open_tab: Callable[..., ChatTab], evi: Site
    ) -> None:
        tab = open_tab(evi, theme="dark")
        background = "getComputedStyle(document.body).backgroundColor"
        dark = tab.page.evaluate(background)
        tab.page.get_by_role("button", name="Instellingen").click()
        tab.page.get_by_label("Licht").check()
        light = tab.page.evaluate(background)
        assert light != dark
        tab.page.reload()
        assert tab.page.evaluate(background) == light

    def test_english_for_who_reads_english(self, open_tab: Callable[..., ChatTab], evi: Site) -> None:
        tab = open_tab(evi)
        tab.page.get_by_role("button", name="Instellingen").click()
        tab.page.get_by_label("English").check()
        expect(tab.page.get_by_role("heading", name="How can I help you?")).to_be_visible()
        tab.page.reload()
        expect(tab.page.get_by_role("button", name="New conversation")).to_be_visible()
        assert tab.page.evaluate("document.documentElement.lang") == "en"

    def test_a_browser_of_another_language_gets_english(self, browser: Browser, evi: Site) -> None:
        with browser.new_context(locale="en-GB") as context:
            page = context.new_page()
            page.goto(evi.url)
            expect(page.get_by_role("heading", name="How can I help you?")).to_be_visible()

    def test_all_of_it_is_under_300_kb(self, open_tab: Callable[..., ChatTab], evi: Site, browser: Browser) -> None:
        sizes: dict[str, int] = {}
        with browser.new_context(locale="nl-NL") as context:
            page = context.new_page()
            page.on("response", lambda response: sizes.update({response.url: len(response.body())}))
            page.goto(evi.url, wait_until="networkidle")
        assert any(url.endswith("markdown.js") for url in sizes)
        assert sum(sizes.values()) < 300_000, sizes


class TestKeyboard:
    def test_shift_enter_makes_a_line_and_enter_sends(self, tab: ChatTab) -> None:
        expect(tab.page.locator("#question")).to_be_focused()
        tab.page.keyboard.type("Hoeveel kilo")
        tab.page.keyboard.press("Shift+Enter")
        tab.page.keyboard.type("mag ik tillen?")
        tab.page.keyboard.press("Enter")
        tab.finished()
        assert tab.questions.all_inner_texts() == ["Hoeveel kilo\nmag ik tillen?"]
        expect(tab.page.locator("#question")).to_have_value("")

    def test_a_whole_conversation_without_a_mouse(self, tab: ChatTab) -> None:
        keys = tab.page.keyboard
        keys.type(REQUIREMENTS)
        keys.press("Enter")
        tab.finished()
        session_id = tab.session_id
        walk_to(tab, tab.chips().first, "Shift+Tab")
        keys.press("Enter")
        expect(tab.page.locator(".source[aria-current]")).to_be_focused()
        keys.press("Escape")
        walk_to(tab, tab.page.get_by_role("button", name="Vraag wijzigen"), "Shift+Tab")
        keys.press("Enter")
        keys.press("Control+a")
        keys.type("Hoeveel kilo mag ik tillen?")
        keys.press("Enter")
        expect(tab.questions).to_have_text(["Hoeveel kilo mag ik tillen?"])
        tab.finished()
        again = tab.page.get_by_role("button", name="Opnieuw antwoorden")
        walk_to(tab, again, "Tab")
        keys.press("Enter")
        tab.finished()
        actions = tab.page.locator("#session-actions")
        walk_to(tab, actions, "Shift+Tab")
        keys.press("Enter")
        expect(tab.page.get_by_role("menuitem", name="Hernoemen")).to_be_focused()
        keys.press("Enter")
        keys.type("Zonder muis")
        keys.press("Enter")
        expect(tab.page.locator("#title")).to_have_text("Zonder muis")
        expect(actions).to_be_focused()
        keys.press("Enter")
        for key in ("ArrowDown", "Enter"):
            keys.press(key)
        expect(tab.page.locator("#sessions section").first).to_contain_text("Zonder muis")
        assert Session.objects.get(id=session_id).pinned
        walk_to(tab, actions, "Shift+Tab")
        for key in ("Enter", "End", "Enter"):
            keys.press(key)
        walk_to(tab, tab.page.get_by_role("dialog").get_by_role("button", name="Verwijderen"), "Tab")
        keys.press("Enter")
        expect(tab.page.locator("#welcome")).to_be_visible()
        assert not Session.objects.filter(id=session_id).exists()

    def test_a_question_that_is_too_long_stays_to_be_made_shorter(self, tab: ChatTab) -> None:
        # A character that JavaScript counts as two.
        long = "🦺" * 32_001
        tab.page.locator("#question").fill(long)
        tab.page.keyboard.press("Enter")
        expect(tab.page.locator("#toast")).to_contain_text("te lang")
        expect(tab.page.locator("#question")).to_have_value(long)
        expect(tab.questions).to_have_count(0)

    def test_the_first_stop_is_the_way_to_the_question(self, tab: ChatTab) -> None:
        # From the question, where the page puts the cursor, to where a reader begins.
        tab.page.evaluate("document.body.tabIndex = -1; document.body.focus()")
        tab.page.keyboard.press("Tab")
        expect(tab.page.get_by_role("link", name="Naar de vraag")).to_be_focused()
        tab.page.keyboard.press("Enter")
        expect(tab.page.locator("#question")).to_be_focused()

    def test_the_answer_is_announced_once_and_as_a_whole(self, tab: ChatTab) -> None:
        tab.page.evaluate(
            """() => {
                window.heard = [];
                const announcer = document.getElementById('announcer');
                new MutationObserver(() => heard.push(announcer.textContent)).observe(announcer, {childList: true});
            }"""
        )
        answer = tab.ask(REQUIREMENTS)
        heard = tab.page.evaluate("heard")
        assert heard[0] == "EVI antwoordt"
        assert len(heard) == 2
        assert answer[:40] in heard[1]
        assert tab.page.locator("#messages").get_attribute("aria-live") is None


class TestSafety:
    def test_the_policy_is_strict(self, evi: Site) -> None:
        for path in ("/", "/login/"):
            assert httpx.get(evi.url + path).headers["Content-Security-Policy"] == POLICY

    def test_what_a_model_or_a_title_says_stays_text(
        self, open_tab: Callable[..., ChatTab], browser: Browser, evi: Site
    ) -> None:
        citation = {"marker": 1, "document_title": "<img src=x onerror=window.hacked=1>", "excerpt": "</p><script>"}
        citation |= {"url": "javascript:window.hacked=1", "similarity": 0.5, "section": "<b>s</b>", "norm": "<i>n</i>"}
        said = [
            {"role": "user", "content": HOSTILE, "created_at": "2026-01-01T10:00:00Z"},
            {
                "role": "assistant",
                "content": HOSTILE + "\n\nCited [1]",
                "created_at": "2026-01-01T10:01:00Z",
                "metadata": {"citations": [citation]},
            },
        ]
        document = {"version": 1, "session": {"title": "</title><script>hacked=1</script>"}, "messages": said}
        session = httpx.post(f"{evi.url}/api/sessions/import", json=document).json()
        tab = open_tab(evi)
        asked: list[str] = []
        tab.page.on("request", lambda request: asked.append(request.url))
        tab.page.goto(f"{evi.url}/?session={session['id']}")
        expect(tab.answers).to_have_count(1)
        tab.chips().first.click()
        assert tab.page.evaluate("window.hacked") is None
        made = "#messages :is(img, script, b, i, svg:not(.icon)), #sources :is(img, script, b, i), #sidebar script"
        assert tab.page.locator(made).count() == 0
        links = tab.page.locator("#messages a, #sources a").evaluate_all("all => all.map(a => [a.href, a.rel])")
        assert {href for href, _ in links} == {"http://127.0.0.1:9/pixel.png", "https://example.com/a?b=1&c=%222"}
        assert {rel for _, rel in links} == {"noopener noreferrer"}
        assert "<img src=x onerror=" in tab.prose()
        assert {urlsplit(url).netloc for url in asked} == {urlsplit(evi.url).netloc}

    @pytest.mark.parametrize(
        ("text", "made"),
        [
            ("# One\ntwo", "<h3>One</h3><p>two</p>"),
            ("**bold *both* b** and `a*b*`", "<p><strong>bold <em>both</em> b</strong> and <code>a*b*</code></p>"),
            ("- a\n- b\n  - c\n\ntext", "<ul><li>a</li><li>b<ul><li>c</li></ul></li></ul><p>text</p>"),
            ("3. x\n\n4. y", '<ol start="3"><li>x</li><li>y</li></ol>'),
            ("```py\na < b\n\n**no**", '<pre tabindex="0"><code>a &lt; b\n\n**no**</code></pre>'),
            ("unfinished **bold and [link](htt", "<p>unfinished **bold and [link](htt</p>"),
            ("snake_case_name and 2 * 3 * 4", "<p>snake_case_name and 2 * 3 * 4</p>"),
            ("a<br>b &amp; c", "<p>a&lt;br&gt;b &amp;amp; c</p>"),
            ("> quoted\n> more\n\n---", "<blockquote><p>quoted<br>more</p></blockquote><hr>"),
            ("\\*not\\*", "<p>*not*</p>"),
        ],
    )
    def test_markdown(self, tab: ChatTab, text: str, made: str) -> None:
        assert rendered(tab, text) == made

    def test_markdown_of_an_attacker_takes_no_time(self, tab: ChatTab) -> None:
        short, long = ("*a **b _c ~~d [e](f `g ![h <i " * times for times in (100, 1000))
        took = [tab.page.evaluate(TIMED, text) for text in (short, long)]
        # Ten times the text; with a square in it, it would be a hundred times the work.
        assert took[1] < 40 * max(took[0], 5)


TIMED = """async text => {
    const {renderMarkdown} = await import('/static/conversations/chat/markdown.js');
    const start = performance.now();
    renderMarkdown(document.createElement('div'), text);
    return performance.now() - start;
}"""
RENDERED = """async text => {
    const {renderMarkdown} = await import('/static/conversations/chat/markdown.js');
    const holder = document.createElement('div');
    renderMarkdown(holder, text);
    return holder.innerHTML;
}"""


def rendered(tab: ChatTab, text: str) -> str:
    return str(tab.page.evaluate(RENDERED, text))


def walk_to(tab: ChatTab, place: Locator, key: str) -> None:
    """Press a key until the focus is there, as who has no mouse does."""
    for _ in range(40):
        if place.evaluate("place => place === document.activeElement"):
            return
        tab.page.keyboard.press(key)
    raise AssertionError(f"{place} cannot be reached with {key}")


def problems(tab: ChatTab) -> list[str]:
    """What axe has to say about the page as it stands."""
    tab.page.wait_for_timeout(300)
    found = Axe().run(tab.page).response["violations"]
    return [f"{one['id']}: {[node['target'] for node in one['nodes']]}" for one in found]


class TestSigningIn:
    def test_who_is_unknown_is_led_to_the_door_and_back(self, browser: Browser, production: Site) -> None:
        tab = ChatTab(browser, production.url)
        tab.page.goto(f"{production.url}/?session=6f0c1f0e-3b52-4b8e-9a55-0d6c5e1b7a10")
        assert urlsplit(tab.page.url).path == "/login/"
        assert problems(tab) == []
        sign_in(tab.page, "piet", "wrong")
        expect(tab.page.get_by_role("alert")).to_be_visible()
        sign_in(tab.page, "piet", PASSWORD)
        tab.page.wait_for_url(f"{production.url}/**")
        # Back at the address that was asked for, which the browser itself complains about: there is no such session.
        expect(tab.page.locator("#toast")).to_contain_text("bestaat niet")
        tab.page.wait_for_load_state("networkidle")
        tab.complaints.clear()

        tab.open()
        tab.ask("say hello")
        session = Session.objects.get(id=tab.session_id)
        assert (session.owner, session.user_id) == (User.objects.get(username="piet"), "")
        tab.menu("Gesprek zonder titel", "Vastzetten")
        expect(tab.page.locator("#sessions section").first).to_contain_text("Vastgezet")
        assert tab.complaints == []

        tab.page.get_by_role("button", name="Instellingen").click()
        expect(tab.page.get_by_role("link", name="Beheer")).to_have_count(0)
        tab.page.get_by_role("button", name="Afmelden").click()
        tab.page.wait_for_url(re.compile("/login/"))
        tab.close()

    def test_the_way_on_stays_on_this_site(self, production: Site) -> None:
        with httpx.Client(base_url=production.url, timeout=60) as client:
            signed_in = post_sign_in(client, next="https://evil.example/")
        assert (signed_in.status_code, signed_in.headers["Location"]) == (302, "/")

    def test_the_cookie_opens_the_api_and_changes_want_the_token(self, production: Site) -> None:
        with httpx.Client(base_url=production.url, timeout=60) as client:
            post_sign_in(client)
            assert client.get("/api/sessions").status_code == 200
            document = {"version": 1, "session": {}, "messages": []}
            bodies = {"/api/sessions/import": document, "/chat": {"query": "say no"}, "/v1/chat/completions": {}}
            for path, body in bodies.items():
                refused = client.post(path, json=body)
                assert refused.status_code == 403, path
                assert "error" in refused.json()
            token = {"X-CSRFToken": client.cookies["csrftoken"]}
            assert client.post("/api/sessions/import", json=document, headers=token).status_code == 201
            elsewhere = {**token, "Origin": "https://evil.example"}
            assert client.post("/api/sessions/import", json=document, headers=elsewhere).status_code == 403

    def test_a_person_sees_their_own_sessions_only(self, production: Site) -> None:
        theirs = Session.objects.create(owner=None)
        with httpx.Client(base_url=production.url, timeout=60) as client:
            post_sign_in(client)
            assert client.get(f"/api/sessions/{theirs.id}").status_code == 404

    def test_without_a_cookie_or_a_key_nothing_opens(self, production: Site) -> None:
        with httpx.Client(base_url=production.url, cookies={"sessionid": "made-up"}) as client:
            assert client.get("/api/sessions").status_code == 401
            assert client.get("/").headers["Location"] == "/login/?next=/"


def post_sign_in(client: httpx.Client, **fields: str) -> httpx.Response:
    client.get("/login/")
    form = {"username": "piet", "password": PASSWORD, "csrfmiddlewaretoken": client.cookies["csrftoken"], **fields}
    return client.post("/login/", data=form)
