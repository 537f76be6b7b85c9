"""A person in front of EVI's own chat page, in headless Chromium."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from typing import Any, Literal

import httpx
from playwright.sync_api import Browser, BrowserContext, Locator, Page, expect

HAS_CHROMIUM = any(map(shutil.which, ["chromium", "chromium-browser", "google-chrome"]))
# A machine that does other things as well takes its time.
PATIENCE_MS = 30_000
expect.set_options(timeout=PATIENCE_MS)
# What moved on the page without anybody asking for it, as Chromium itself counts it.
WATCH_SHIFTS = """
window.shifted = 0;
new PerformanceObserver(list => {
    for (const entry of list.getEntries()) if (!entry.hadRecentInput) window.shifted += entry.value;
}).observe({type: 'layout-shift', buffered: true});
"""
Theme = Literal["light", "dark"]


class ChatTab:
    """A browser tab with EVI in it. What the page complains about is kept."""

    def __init__(
        self, browser: Browser, url: str, *, width: int = 1280, height: int = 900, theme: Theme = "light", **more: Any
    ) -> None:
        self.url = url
        self.context: BrowserContext = browser.new_context(
            viewport={"width": width, "height": height}, locale="nl-NL", color_scheme=theme, **more
        )
        self.context.set_default_timeout(PATIENCE_MS)
        self.context.add_init_script(WATCH_SHIFTS)
        self.page: Page = self.context.new_page()
        self.complaints: list[str] = []
        self.page.on("console", self._note)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.questions = self.page.locator(".question .bubble")
        self.answers = self.page.locator(".answer")
        self.rows = self.page.locator(".session")

    def _note(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    def close(self) -> None:
        self.context.close()

    def open(self, path: str = "/") -> None:
        self.page.goto(self.url + path)
        self.wait_for_list()

    def wait_for_list(self) -> None:
        self.page.locator("#sessions > *").first.wait_for(state="attached")

    def reload(self) -> None:
        shown = self.answers.count()
        self.page.reload()
        expect(self.answers).to_have_count(shown)

    @property
    def session_id(self) -> str:
        self.page.wait_for_url(re.compile(r"\?session=[0-9a-f-]{36}$"))
        return self.page.url[-36:]

    def send(self, text: str) -> None:
        shown = self.questions.count()
        self.page.locator("#question").fill(text)
        self.page.keyboard.press("Enter")
        expect(self.questions).to_have_count(shown + 1)

    def ask(self, text: str) -> str:
        self.send(text)
        return self.finished()

    def finished(self) -> str:
        """The last answer, when all of it is there."""
        expect(self.answers.last).to_have_attribute("aria-busy", "false")
        return self.prose()

    def prose(self) -> str:
        return self.answers.last.locator(".prose").inner_text().strip()

    def wait_for_words(self, text: str) -> None:
        expect(self.answers.last.locator(".prose")).to_contain_text(text)

    def chips(self) -> Locator:
        return self.answers.last.locator(".chip")

    def edit_last_question(self, text: str) -> str:
        last = self.page.locator(".question").last
        last.hover()
        last.get_by_role("button", name="Vraag wijzigen").click()
        self.page.locator(".editor textarea").fill(text)
        self.page.keyboard.press("Enter")
        expect(self.questions.last).to_have_text(text)
        return self.finished()

    def menu(self, title: str, entry: str) -> None:
        """Choose from the menu of a conversation in the list."""
        row = self.rows.filter(has_text=title).first
        row.hover()
        row.get_by_role("button").click()
        self.page.get_by_role("menuitem", name=entry).click()

    def titles(self) -> list[str]:
        return [title.strip() for title in self.page.locator(".session-title").all_inner_texts()]

    def shifted(self) -> float:
        return float(self.page.evaluate("window.shifted"))

    def overflows(self) -> bool:
        """Whether one has to scroll sideways."""
        return bool(self.page.evaluate("document.documentElement.scrollWidth > innerWidth"))


def sign_in(page: Page, name: str, password: str) -> None:
    page.get_by_label("Gebruikersnaam").fill(name)
    page.get_by_label("Wachtwoord").fill(password)
    page.get_by_role("button", name="Aanmelden").click()


def eventually(condition: Callable[[], bool], page: Page) -> None:
    for _ in range(PATIENCE_MS // 100):
        if condition():
            return
        page.wait_for_timeout(100)
    raise AssertionError("waited in vain")


def stored_messages(url: str, session_id: str) -> list[dict[str, Any]]:
    """The thread as EVI keeps it."""
    messages: list[dict[str, Any]] = httpx.get(f"{url}/api/sessions/{session_id}/messages").json()["results"]
    return messages
