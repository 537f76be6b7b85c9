"""The admin's screenshots: `python -m tests.admin_screenshots` makes them on a throw-away EVI with examples in it."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from django.contrib.auth.models import User
    from playwright.sync_api import Browser

    from conversations.models import Session

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "images"
PASSWORD = "a password for screenshots"
WIDTHS = (1280, 390)
PEOPLE = ["jan@bouw.nl", "fatima@installatie.nl", "piet@dakwerk.nl", "sanne@zorg.nl", "mo@haven.nl", "els@verf.nl"]
QUESTIONS = [
    (
        "Valbeveiliging op een plat dak",
        "Wat zijn de vereisten voor valbeveiliging op een plat dak?",
        (
            "Vanaf **2,5 meter** is valbeveiliging verplicht [1]:\n\n"
            "1. eerst een leuning of hekwerk langs de dakrand;\n"
            "2. pas als dat niet kan, een harnas met een vanglijn en een ankerpunt.\n\n"
            "Werk nooit alleen als u een harnas gebruikt: iemand moet u binnen tien minuten kunnen redden [2]."
        ),
        ["werken-op-hoogte.md", "valbeveiliging.md"],
    ),
    (
        "Gehoorbescherming bij een slijptol",
        "Vanaf hoeveel decibel is gehoorbescherming verplicht?",
        "Vanaf 80 dB(A) moet uw werkgever die aanbieden, vanaf 85 dB(A) bent u verplicht die te dragen [1].",
        ["lawaai-en-gehoor.md"],
    ),
    (
        "Tillen in de zorg",
        "Hoe zwaar mag ik tillen?",
        "In de beste omstandigheden ten hoogste 23 kilo, anders minder; met een tillift hoeft u niet te tillen [1].",
        ["tillen-en-dragen.md"],
    ),
    (
        "Heftruckcertificaat",
        "Heb ik een certificaat nodig voor een heftruck?",
        "Een certificaat is niet letterlijk voorgeschreven, aantoonbare deskundigheid wel [1].",
        ["heftrucks.md"],
    ),
    (
        "Asbest gevonden",
        "Wat doe ik als ik asbest vind?",
        "Stop het werk, houd anderen weg en meld het [1].",
        ["asbest.md"],
    ),
    (
        "Werken bij hitte",
        "Vanaf welke temperatuur geldt een hitteplan?",
        "Er is geen wettelijke grens; boven 26 graden adviseert de richtlijn maatregelen [1].",
        ["hitte-en-kou.md"],
    ),
]


def fill_with_examples(*, now: datetime, sessions: int = 140) -> Session:
    """Conversations of the last weeks; the one that is returned has something of everything."""
    from django.contrib.auth.models import User
    from django_q.models import Schedule, Success

    from conversations.figures import keep_figures
    from conversations.models import Channel, Session

    chance = random.Random(7)
    client = User.objects.create_user("openwebui")
    for number in range(sessions):
        # More on a Tuesday than on a Sunday.
        day = now - timedelta(days=chance.triangular(0, 40, 3), minutes=5)
        weekday = day.weekday()
        if weekday > 4 and chance.random() < 0.7:
            day -= timedelta(days=weekday - 4)
        title, question, answer, sources = QUESTIONS[number % len(QUESTIONS)]
        session = Session.objects.create(
            title=title if number % 11 else "",
            user_id=chance.choice(PEOPLE),
            owner=client,
            channel=chance.choice([Channel.OPENWEBUI, Channel.OPENWEBUI, Channel.WEB, Channel.CLI, Channel.TELEGRAM]),
            pinned=number % 23 == 5,
            created_at=day,
        )
        status = "failed" if number % 29 == 3 else "interrupted" if number % 17 == 2 else "complete"
        for turn in range(chance.randint(1, 6)):
            at = day + timedelta(minutes=2 * turn)
            _say(session, question, answer, sources, at=at, chance=chance, status=status if turn == 0 else "complete")
        Session.objects.filter(pk=session.pk).update(last_accessed=at)
    chosen = _everything(client, now=now, chance=chance)
    keep_figures()
    for number, schedule in enumerate(Schedule.objects.all()):
        ran = now - timedelta(minutes=7 + number)
        task = Success.objects.create(
            id=f"{number:032}", name=schedule.name, func=schedule.func, started=ran, stopped=ran, success=True
        )
        Schedule.objects.filter(pk=schedule.pk).update(task=task.pk, next_run=now + timedelta(minutes=53 + number))
    return chosen


def _everything(client: User, *, now: datetime, chance: random.Random) -> Session:
    from conversations.models import Channel, Message, Session

    title, question, answer, sources = QUESTIONS[0]
    session = Session.objects.create(
        title=title,
        user_id="jan@bouw.nl",
        owner=client,
        channel=Channel.OPENWEBUI,
        metadata={"person": {"name": "Jan de Vries", "email": "jan@bouw.nl"}},
        created_at=now - timedelta(minutes=30),
    )
    for turn in range(28):
        _say(
            session,
            *QUESTIONS[turn % 6][1:],
            at=now - timedelta(minutes=29) + timedelta(seconds=40 * turn),
            chance=chance,
        )
    _say(session, "Wat is valbeveiliging?", answer, sources, at=now - timedelta(minutes=9), chance=chance)
    replaced = list(session.messages.order_by("-created_at")[:2])
    _say(session, question, answer, sources, at=now - timedelta(minutes=8), chance=chance)
    by = session.messages.filter(role="user").latest("created_at")
    Message.objects.filter(pk__in=[message.pk for message in replaced]).update(superseded_by=by.pk)
    _say(
        session,
        "Welke producten heb je daarvoor?",
        "Voor een plat dak past het allround harnas met twee bevestigings",
        [],
        at=now - timedelta(minutes=3),
        chance=chance,
        status="interrupted",
    )
    Session.objects.filter(pk=session.pk).update(last_accessed=now - timedelta(minutes=3))
    return session


def _say(
    session: Session,
    question: str,
    answer: str,
    sources: list[str],
    *,
    at: datetime,
    chance: random.Random,
    status: str = "complete",
) -> None:
    from conversations.models import Message

    session.messages.create(role="user", content=question, created_at=at)
    duration = chance.lognormvariate(7.2, 0.5)
    tokens = chance.randint(300, 1600)
    said = {"complete": answer, "interrupted": answer[:60], "failed": ""}[status]
    Message.objects.create(
        session=session,
        role="assistant",
        content=said,
        status=status,
        created_at=at + timedelta(milliseconds=duration),
        metadata={
            "model": chance.choice(["openai:gpt-5-mini", "openai:gpt-5-mini", "offline"]),
            "tokens_used": tokens,
            "duration_ms": round(duration),
            "citations": [
                {"source": source, "document_title": source[:-3].replace("-", " ").capitalize(), "similarity": 0.82}
                for source in sources
            ],
        }
        if status == "complete"
        else {"duration_ms": round(duration), **({"error": "TimeoutError"} if status == "failed" else {})},
    )


def make_admin_screenshots(
    base_url: str, folder: Path, *, browser: Browser, session_id: str, username: str, password: str
) -> None:
    """Each of the three pages in light and dark, on a desk and in a hand."""
    pages = {
        "dashboard": "/admin/",
        "sessions": "/admin/conversations/session/",
        "session": f"/admin/conversations/session/{session_id}/change/",
    }
    folder.mkdir(parents=True, exist_ok=True)
    for theme in ("light", "dark"):
        for width in WIDTHS:
            # In EVI's own zone: elsewhere Django warns beside each moment that the reader's clock differs.
            context = browser.new_context(
                viewport={"width": width, "height": 900}, locale="nl-NL", timezone_id="Europe/Amsterdam"
            )
            context.add_init_script(f"localStorage.setItem('adminTheme', JSON.stringify('{theme}'))")
            page = context.new_page()
            page.goto(f"{base_url}/admin/")
            page.fill("[name=username]", username)
            page.fill("[name=password]", password)
            page.click("[type=submit]")
            for name, address in pages.items():
                page.goto(base_url + address)
                page.wait_for_load_state("networkidle")
                page.evaluate("document.fonts.ready")
                page.wait_for_timeout(300)
                page.screenshot(path=folder / f"admin-{name}-{theme}-{width}.png", full_page=name == "dashboard")
            context.close()


def main() -> int:
    # Imported here: bench makes a throw-away environment of whatever process imports it.
    from bench import make_tables, throwaway_cluster  # isort: skip
    from django.contrib.auth.models import User
    from django.db import connection
    from django.utils import timezone
    from playwright.sync_api import sync_playwright

    from conversations.schedules import register_schedules
    from evi_site.postgres.base import embedded_cluster
    from tests.openwebui import launch_chromium

    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    with throwaway_cluster():
        make_tables()
        register_schedules()
        User.objects.create_superuser("beheer", password=PASSWORD)
        session = fill_with_examples(now=timezone.now())
        cluster = embedded_cluster()
        assert cluster
        url = cluster.ensure_running().url(str(connection.settings_dict["NAME"]))
        for base_url in _served(url):
            with sync_playwright() as playwright:
                browser = launch_chromium(playwright)
                make_admin_screenshots(
                    base_url, folder, browser=browser, session_id=str(session.pk), username="beheer", password=PASSWORD
                )
                browser.close()
    return 0


def _served(database_url: str) -> Iterator[str]:
    import os
    import subprocess
    import time

    import httpx

    from tests.processes import free_port

    port = free_port()
    environment = {"PATH": os.environ["PATH"], "EVI_DATA_DIR": os.environ["EVI_DATA_DIR"], "DATABASE_URL": database_url}
    command = [sys.executable, "-m", "daphne", "-v", "0", "-p", str(port), "evi_site.asgi:application"]
    process = subprocess.Popen(command, env=environment)
    try:
        for _ in range(300):
            try:
                httpx.get(f"http://127.0.0.1:{port}/healthz", timeout=5)
                break
            except httpx.TransportError:
                time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(30)


if __name__ == "__main__":
    sys.exit(main())
