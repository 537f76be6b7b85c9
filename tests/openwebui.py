"""A real OpenWebUI for tests, and a person in front of it: the program from PyPI, its pages in headless Chromium."""

import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from playwright.sync_api import Browser, BrowserContext, Locator, Page, Playwright, expect

from tests.processes import free_port, wait_for

ADMIN = ("admin@example.com", "a password for tests")
# A page that is opened first compiles megabytes of JavaScript, on a machine that may be busy.
PATIENCE_MS = 60_000


@dataclass(frozen=True)
class Account:
    """A person with an account in OpenWebUI, as its own API knows them."""

    url: str
    id: str = ""
    token: str = ""

    def get(self, path: str) -> Any:
        return httpx.get(self.url + path, headers=self._headers, timeout=30).raise_for_status().json()

    def post(self, path: str, body: Any) -> Any:
        return httpx.post(self.url + path, headers=self._headers, json=body, timeout=30).raise_for_status().json()

    def connect(self, **options: Any) -> None:
        """Change how OpenWebUI talks to EVI, as an administrator can set it for a connection."""
        config = self.get("/openai/config")
        config["OPENAI_API_CONFIGS"] = {"0": {"enable": True, **options}}
        self.post("/openai/config/update", config)

    def branch(self, chat_id: str) -> list[tuple[str, str]]:
        """What OpenWebUI itself keeps as the thread that it shows: who said what, as Markdown."""
        history = self.get(f"/api/v1/chats/{chat_id}")["chat"]["history"]
        said, at = [], history["currentId"]
        while at:
            message = history["messages"][at]
            said.append((message["role"], message["content"]))
            at = message["parentId"]
        return said[::-1]

    @property
    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"} if self.token else {}


class OpenWebUI:
    """OpenWebUI as a program of its own, with EVI as its only connection."""

    def __init__(self, program: Path, *, data: Path, evi: str, key: str) -> None:
        self.program = program
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = data / "openwebui.log"
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(data),
            "DATA_DIR": str(data),
            "WEBUI_SECRET_KEY": "only for this test",
            "WEBUI_ADMIN_EMAIL": ADMIN[0],
            "WEBUI_ADMIN_PASSWORD": ADMIN[1],
            "BYPASS_MODEL_ACCESS_CONTROL": "True",
            "CORS_ALLOW_ORIGIN": self.url,
            "NO_PROXY": "127.0.0.1,localhost",
            "OPENAI_API_BASE_URLS": evi,
            "OPENAI_API_KEYS": key,
            "ENABLE_OLLAMA_API": "False",
            "ENABLE_PERSISTENT_CONFIG": "False",
            "ENABLE_FORWARD_USER_INFO_HEADERS": "True",
            "ENABLE_CHANNELS": "True",
            # Otherwise it fetches models for embeddings and speech, and looks for a newer version.
            "OFFLINE_MODE": "True",
            "HF_HUB_OFFLINE": "1",
            "RAG_EMBEDDING_ENGINE": "openai",
            "ENABLE_VERSION_UPDATE_CHECK": "False",
            "ANONYMIZED_TELEMETRY": "False",
            "DO_NOT_TRACK": "1",
            "SCARF_NO_ANALYTICS": "true",
        }

    def start(self, **variables: str) -> None:
        command = [str(self.program), "serve", "--host", "127.0.0.1", "--port", str(self.port)]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command, env={**self.environment, **variables}, cwd=self.log.parent, stdout=log, stderr=log
            )
        wait_for(self._is_ready, seconds=600)

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def _is_ready(self) -> bool:
        assert self.process.poll() is None, f"OpenWebUI ended; see {self.log}"
        try:
            return httpx.get(f"{self.url}/health", timeout=5).status_code == 200
        except httpx.TransportError:
            return False

    def sign_in(self) -> Account:
        """The administrator, who was made at the first start."""
        return self._account("signin", Account(self.url), email=ADMIN[0], password=ADMIN[1])

    def add_person(self, name: str, *, by: Account) -> Account:
        return self._account("add", by, name=name, email=f"{name}@example.com", password=ADMIN[1], role="user")

    def _account(self, how: str, by: Account, **fields: str) -> Account:
        answer = by.post(f"/api/v1/auths/{how}", fields)
        account = Account(self.url, id=answer["id"], token=answer["token"])
        # Who has seen this version is not told what is new in it, in a window over the page.
        version = account.get("/api/version")["version"]
        account.post("/api/v1/users/user/settings/update", {"ui": {"version": version}})
        return account


class Tab:
    """A browser tab in which a person uses OpenWebUI."""

    def __init__(self, browser: Browser, account: Account, *, screenshots: Path) -> None:
        self.account = account
        self.screenshots = screenshots
        self.context: BrowserContext = browser.new_context(viewport={"width": 1280, "height": 900}, locale="en-US")
        self.context.set_default_timeout(PATIENCE_MS)
        self.context.add_init_script(f"localStorage.token = {json.dumps(account.token)}; localStorage.sidebar = 'true'")
        self.page: Page = self.context.new_page()
        self.entries = self.page.locator("#messages-container [role=listitem]")
        self.answers = self.page.locator(".chat-assistant")
        # What stood there in the end, and the chat as OpenWebUI keeps it, where it does.
        self.seen: list[tuple[str, str]] = []
        self.chat: dict[str, Any] = {}

    def remember(self) -> None:
        self.seen = self.said()
        if "/c/" in self.page.url:
            self.chat = self.account.get(f"/api/v1/chats/{self.chat_id}")

    def close(self) -> None:
        self.context.close()

    def open(self, path: str = "/") -> None:
        self.page.goto(self.account.url + path)
        self._wait_until_usable()

    def reload(self) -> None:
        shown = self.entries.count()
        self.page.reload()
        self._wait_until_usable()
        expect(self.entries).to_have_count(shown, timeout=PATIENCE_MS)

    def _wait_until_usable(self) -> None:
        self.page.locator("#chat-input").wait_for()
        # Until then Enter does nothing but ask for one.
        expect(self.page.locator("button[id^=model-selector]").first).to_contain_text("EVI", timeout=PATIENCE_MS)

    @property
    def chat_id(self) -> str:
        """The id in the address; a new chat has one as soon as its first question is sent."""
        self.page.wait_for_url(re.compile("/c/[0-9a-f-]{36}"))
        return self.page.url.split("/c/")[1][:36]

    def send(self, text: str) -> None:
        """Type a question and press Enter, and see it stand in the page."""
        shown = self.entries.count()
        self.page.locator("#chat-input").click()
        self.page.keyboard.insert_text(text)
        self.page.keyboard.press("Enter")
        expect(self.entries).to_have_count(shown + 2, timeout=PATIENCE_MS)

    def ask(self, text: str) -> str:
        self.send(text)
        return self.finished_answer()

    def edit_last_question(self, text: str) -> str:
        last = self.page.locator(".user-message").last
        old = last.get_attribute("id")
        last.hover()
        last.locator("button.edit-user-message-button").click()
        self.page.locator("textarea[id^=message-edit-]").fill(text)
        self.page.locator("#confirm-edit-message-button").click()
        expect(self.page.locator(".user-message").last).not_to_have_attribute("id", old or "")
        return self.finished_answer()

    def back_to_older_question(self) -> None:
        """Show the last question as it was before it was edited."""
        last = self.page.locator(".user-message").last
        new = last.get_attribute("id")
        last.hover()
        last.get_by_role("button", name="Previous message").click()
        expect(last).not_to_have_attribute("id", new or "")

    def regenerate(self) -> str:
        last = self.entries.last.locator("[id^=message-]").first
        old = last.get_attribute("id")
        self.entries.last.get_by_role("button", name="Regenerate").click()
        self.page.get_by_text("Try Again", exact=True).click()
        expect(last).not_to_have_attribute("id", old or "", timeout=PATIENCE_MS)
        return self.finished_answer()

    def continue_answer(self) -> str:
        old = self.answers.last.inner_text()
        self.entries.last.get_by_role("button", name="Continue Response").click()
        self._wait_for(lambda: self.answers.last.inner_text() != old)
        return self.finished_answer()

    def wait_for_words(self, text: str) -> None:
        self._wait_for(lambda: bare(text) in shown_text(self.answers.last))

    def stop(self) -> None:
        self.page.locator("button[aria-label=Stop]").click()
        self.finished_answer()

    def finished_answer(self) -> str:
        """The last answer, when all of it stands there and OpenWebUI has made its own calls about it."""
        # Only an answer that has ended can be asked for again.
        self.entries.last.get_by_role("button", name="Regenerate").wait_for()
        self._wait_for(lambda: not self._is_at_work())
        return shown_text(self.answers.last)

    def _is_at_work(self) -> bool:
        return "/c/" in self.page.url and bool(self.account.get(f"/api/tasks/chat/{self.chat_id}")["task_ids"])

    def said(self) -> list[tuple[str, str]]:
        """Who said what, as it stands in the page."""
        self._wait_for(lambda: not self._is_at_work())
        texts = self.page.locator(".chat-user, .chat-assistant").all()
        return [
            ("user" if "chat-user" in (text.get_attribute("class") or "") else "assistant", shown_text(text))
            for text in texts
        ]

    def chips(self) -> list[str]:
        """What the markers in the last answer have become: the name of the source behind each."""
        chips = self.answers.last.locator("button[aria-label^='View source: ']").all()
        return [(chip.get_attribute("aria-label") or "").removeprefix("View source: ") for chip in chips]

    def sources(self) -> list[str]:
        """The names in the list of sources below the last answer, which is unfolded for it."""
        listed = self.entries.last.locator("button[id^=source-]")
        if not listed.count():
            self.entries.last.locator("button[aria-label^=Toggle][aria-label*=source]").click()
            listed.first.wait_for()
        return [entry.inner_text().split("\n")[-1].strip() for entry in listed.all()]

    def read_source(self, number: int) -> str:
        """What the window of a source says, opened and closed again."""
        self.sources()
        self.entries.last.locator("button[id^=source-]").nth(number - 1).click()
        window = self.page.get_by_role("dialog")
        window.wait_for()
        text = window.inner_text()
        self.page.keyboard.press("Escape")
        window.wait_for(state="detached")
        return text

    def sidebar_title(self) -> str:
        """What this chat is called in the list on the left."""
        return self.page.locator(f"#sidebar-chat-item a[href='/c/{self.chat_id}'] div[dir=auto]").inner_text().strip()

    def screenshot(self, name: str) -> None:
        self.screenshots.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=self.screenshots / f"{name}.png")

    def _wait_for(self, condition: Callable[[], bool]) -> None:
        for _ in range(PATIENCE_MS // 100):
            if condition():
                return
            self.page.wait_for_timeout(100)
        raise AssertionError("waited in vain")


def shown_text(message: Locator) -> str:
    """What a reader sees of a message, without the chips, buttons and times around it."""
    script = """message => {
        const copy = message.cloneNode(true);
        copy.querySelectorAll('button, .chat-user > :last-child').forEach(extra => extra.remove());
        return copy.textContent;
    }"""
    return bare(str(message.evaluate(script)))


def bare(text: str) -> str:
    """A text without blanks, and without the marks of Markdown and citations that a page turns into something else."""
    return re.sub(r"\s|\*\*|\[\d+\]", "", re.sub(r"^\s*(\d+\.|[-*]) ", "", text, flags=re.MULTILINE))


def launch_chromium(playwright: Playwright) -> Browser:
    path = next(filter(None, map(shutil.which, ["chromium", "chromium-browser", "google-chrome"])), None)
    assert path, "No Chromium here: apt-get install chromium"
    flags = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
    return playwright.chromium.launch(
        executable_path=path, args=[*flags, "--disable-component-update", "--disable-sync"]
    )
