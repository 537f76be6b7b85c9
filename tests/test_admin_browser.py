"""The admin as staff use it: in a real browser, with a real worker behind it."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from django.conf import global_settings
from django.contrib.auth.models import Group, Permission, User
from django.core.management import call_command
from django.db import connection
from django.test import override_settings
from django.utils import timezone
from playwright.sync_api import Browser, Page, expect, sync_playwright

from conversations.models import Message, Session
from evi_site.environment import BASE_DIR
from tests.admin_screenshots import PASSWORD, fill_with_examples
from tests.openwebui import launch_chromium
from tests.stub_model import StubModel
from tests.test_turns import Site

pytestmark = [
    pytest.mark.skipif(not shutil.which("chromium"), reason="needs a browser: apt-get install chromium"),
    pytest.mark.django_db,
]

SESSIONS = "/admin/conversations/session/"
PATIENCE_MS = 30_000
MESSAGES = "/admin/conversations/message/"
READERS = "Lezers"
UNWANTED, EXPIRED = "Mag weg", "Verlopen"
# As long as a link or a table without spaces.
ONE_WORD = "Valbeveiligingsvoorschriften" * 12
# Cells whose contents do not fit in them.
CUT_OFF = """[...document.querySelectorAll('#result_list [data-label]')]
    .filter(cell => cell.scrollHeight > cell.clientHeight + 1 || cell.scrollWidth > cell.clientWidth + 1)
    .map(cell => cell.outerHTML.slice(0, 100))"""


@pytest.fixture(scope="module")
def chosen(django_db_setup: None, django_db_blocker: Any) -> Iterator[Session]:
    with pytest.MonkeyPatch.context() as patch, django_db_blocker.unblock():
        # Playwright has an event loop in the thread that also asks the database.
        patch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "true")
        # The tests' own way of hashing is not known to a real site.
        with override_settings(PASSWORD_HASHERS=global_settings.PASSWORD_HASHERS):
            User.objects.create_superuser("beheer", password=PASSWORD)
        session = fill_with_examples(now=timezone.now(), sessions=60)
        Group.objects.create(name=READERS).permissions.set(Permission.objects.filter(codename__startswith="view_"))
        Session.objects.create(title=ONE_WORD, user_id=ONE_WORD).messages.create(role="user", content=ONE_WORD)
        Session.objects.create(title=UNWANTED).messages.create(role="user", content="Dag")
        # Within a test a row would not be committed.
        Session.objects.filter(pk=Session.objects.create(title=EXPIRED).pk).update(
            last_accessed=timezone.now() - timedelta(days=40)
        )
        connection.close()
        yield session
        call_command("flush", interactive=False, verbosity=0)
        connection.close()


@pytest.fixture(scope="module")
def site(chosen: Session, database_url: str) -> Iterator[Site]:
    stub = StubModel()
    site = Site(database_url, stub)
    yield site
    site.stop()
    stub.server_close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = launch_chromium(playwright)
        yield browser
        browser.close()
        # The one that Django keeps beside Playwright's event loop.
        connection.close()


@pytest.fixture(scope="module")
def signed_in(site: Site, browser: Browser) -> Any:
    """What a browser keeps after its person signed in on the page."""
    context = browser.new_context(locale="nl-NL")
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    page.goto(f"{site.url}/admin/")
    page.locator("[name=username]").fill("beheer")
    page.locator("[name=password]").fill(PASSWORD)
    page.get_by_role("button", name="Aanmelden").click()
    expect(page.get_by_role("heading", name="Overzicht")).to_be_visible(timeout=PATIENCE_MS)
    state = context.storage_state()
    context.close()
    return state


Open = Callable[..., Page]


@pytest.fixture
def visit(site: Site, browser: Browser, signed_in: Any) -> Iterator[Open]:
    """Opens a page; in the end nothing may have been complained of in the console."""
    contexts, complaints = [], []

    def visit(address: str, *, width: int = 1280, theme: str = "light") -> Page:
        context = browser.new_context(storage_state=signed_in, viewport={"width": width, "height": 900}, locale="nl-NL")
        contexts.append(context)
        context.add_init_script(f"localStorage.setItem('adminTheme', JSON.stringify('{theme}'))")
        page = context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        page.on("console", lambda said: complaints.append(said.text) if said.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(site.url + address)
        page.wait_for_load_state("networkidle")
        return page

    yield visit
    for context in contexts:
        context.close()
    assert complaints == []


def address_of(name: str, chosen: Session) -> str:
    return {
        "first": "/admin/",
        "list": SESSIONS,
        "session": f"{SESSIONS}{chosen.pk}/change/",
        "messages": MESSAGES,
        "message": f"{MESSAGES}{Message.objects.get(content=ONE_WORD).pk}/change/",
        "role": f"/admin/auth/group/{Group.objects.get(name=READERS).pk}/change/",
    }[name]


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("name", ["first", "list", "session", "role"])
def test_pages_are_accessible(visit: Open, chosen: Session, name: str, theme: str) -> None:
    page = visit(address_of(name, chosen), theme=theme)
    assert ("dark" in (page.locator("html").get_attribute("class") or "")) == (theme == "dark")
    found = Axe().run(page)
    assert [(each["id"], each["nodes"][0]["html"][:200]) for each in found.response["violations"]] == []


@pytest.mark.parametrize("name", ["first", "list", "session", "messages", "message", "role"])
def test_pages_fit_a_phone(visit: Open, chosen: Session, name: str) -> None:
    page = visit(address_of(name, chosen), width=390)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.evaluate(CUT_OFF) == []


@pytest.mark.parametrize("name", ["list", "messages"])
def test_lists_fit_a_desk(visit: Open, chosen: Session, name: str) -> None:
    page = visit(address_of(name, chosen))
    sizes = "table => [table.scrollWidth, table.parentElement.clientWidth]"
    wide, room = page.locator("#result_list").evaluate(sizes)
    assert wide <= room


def test_the_menu_opens_without_a_mouse(visit: Open) -> None:
    page = visit("/admin/", width=390)
    entry = page.get_by_role("link", name="Controlespoor")
    expect(entry).not_to_be_in_viewport()
    page.get_by_role("button", name="Menu tonen").first.press("Enter")
    expect(entry).to_be_visible()


def test_filters_account_and_theme_are_reached_without_a_mouse(visit: Open) -> None:
    page = visit(SESSIONS)
    page.get_by_role("button", name="Filters", exact=True).press("Enter")
    expect(page.get_by_role("heading", name="Op kanaal")).to_be_visible()
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Account").press("Enter")
    expect(page.get_by_role("button", name="Afmelden")).to_be_visible()
    dark = page.get_by_role("button", name="Donker")
    menu = dark.locator("xpath=ancestor::nav[1]")
    assert menu.evaluate("menu => menu.scrollWidth <= menu.clientWidth")
    dark.press("Enter")
    expect(page.locator("html")).to_have_class(re.compile("dark"))


def test_a_session_is_searched_and_read_back_to_its_beginning(visit: Open, chosen: Session) -> None:
    page = visit(SESSIONS)
    page.get_by_placeholder("Zoek in titels").fill(str(chosen.pk)[:13])
    page.keyboard.press("Enter")
    page.locator("#result_list").get_by_role("link", name=chosen.title).click()
    messages = page.locator(".evi-message")
    expect(messages).to_have_count(50)
    page.get_by_role("link", name="Toon eerdere berichten").click()
    expect(messages).to_have_count(chosen.messages.count())
    expect(page.get_by_role("link", name="Toon eerdere berichten")).to_have_count(0)
    # Answers are set as their Markdown means, also those that came later.
    expect(page.locator(".evi-message.assistant .evi-text:not([data-read])")).to_have_count(0)
    expect(messages.nth(1).locator("strong", has_text="2,5 meter")).to_be_visible()
    expect(page.get_by_text("**2,5 meter**")).to_have_count(0)
    replaced = page.get_by_text("2 vervangen berichten")
    hidden = page.get_by_text("Wat is valbeveiliging?", exact=True)
    expect(hidden).to_be_hidden()
    replaced.click()
    expect(hidden).to_be_visible()


def test_a_session_is_deleted_after_a_look_at_what_goes(visit: Open) -> None:
    doomed = Session.objects.get(title=UNWANTED)
    page = visit(f"{SESSIONS}{doomed.pk}/change/")
    page.get_by_role("link", name=re.compile("Verwijderen")).click()
    expect(page.get_by_text("Berichten: 1")).to_be_visible()
    page.get_by_role("button", name="Ja, ik weet het zeker").click()
    page.wait_for_url(re.compile(f"{SESSIONS}$"))
    assert not Session.objects.filter(pk=doomed.pk).exists()


def test_the_worker_cleans_up_while_one_watches(visit: Open, database_url: str) -> None:
    page = visit(f"{SESSIONS}cleanup/")
    page.get_by_role("button", name="Nu opschonen").click()
    expect(page.locator("[data-told]")).to_contain_text("Wacht op de worker")
    environment = {**os.environ, "DATABASE_URL": database_url, "DJANGO_SETTINGS_MODULE": "evi_site.settings"}
    worker = subprocess.Popen([sys.executable, "manage.py", "qcluster"], cwd=BASE_DIR, env=environment)
    try:
        expect(page.locator("[data-told]")).to_have_text(re.compile("verwijderd.$"), timeout=60_000)
    finally:
        worker.terminate()
        worker.wait(30)
    assert page.evaluate("document.querySelector('progress').value") == 100
    expect(page.get_by_text("het opschonen gaat door")).to_be_hidden()
    assert not Session.objects.filter(title=EXPIRED).exists()
