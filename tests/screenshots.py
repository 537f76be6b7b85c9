"""Pictures for README and docs, from a real run: `script/screenshots` (a folder as argument: docs/images if none)."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import httpx
from playwright.sync_api import sync_playwright

from evi_site.environment import BASE_DIR
from tests.chat_page import ChatTab, Theme
from tests.openwebui import launch_chromium
from tests.processes import free_port, wait_for

SIZES = {1280: 800, 390: 844}
THEMES: tuple[Theme, ...] = ("light", "dark")
BEFORE = ["Hoeveel kilo mag ik tillen?", "Vanaf welk geluidsniveau is gehoorbescherming verplicht?"]
QUESTIONS = ["Wat zijn de vereisten voor valbeveiliging?", "Welke producten heb je daarvoor?"]


def make_chat_screenshots(base_url: str, folder: Path) -> None:
    """The page with a conversation and its sources, in both themes and at both widths."""
    with sync_playwright() as playwright, launch_chromium(playwright) as browser:
        tab = ChatTab(browser, base_url)
        for question in BEFORE:
            tab.open()
            tab.ask(question)
        tab.open()
        for question in QUESTIONS:
            tab.ask(question)
        path = f"/?session={tab.session_id}"
        tab.close()
        for theme in THEMES:
            for width, height in SIZES.items():
                tab = ChatTab(browser, base_url, width=width, height=height, theme=theme)
                tab.open(path)
                tab.answers.nth(1).wait_for()
                if width > min(SIZES):
                    tab.answers.nth(1).locator(".chip").first.click()
                tab.page.screenshot(path=folder / f"chat-{theme}-{width}.png")
                tab.close()


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else BASE_DIR / "docs" / "images").resolve()
    with tempfile.TemporaryDirectory(prefix="evi-screenshots-") as data:
        port = free_port()
        server = subprocess.Popen(
            [sys.executable, "-m", "evi_site.server", "--port", str(port)],
            cwd=BASE_DIR,
            env={"PATH": os.environ["PATH"], "EVI_DATA_DIR": data},
        )
        try:
            base_url = f"http://127.0.0.1:{port}"
            wait_for(lambda: is_ready(base_url), seconds=180)
            make_chat_screenshots(base_url, folder)
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait()


def is_ready(base_url: str) -> bool:
    try:
        return httpx.get(f"{base_url}/readyz", timeout=5).status_code == 200
    except httpx.TransportError:
        return False


if __name__ == "__main__":
    main()
