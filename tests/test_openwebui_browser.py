"""OpenWebUI as people use it: a real one, in a real browser, and what EVI then has in its database."""

import json
import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import pytest
from django.core.management import call_command
from django.db import connection, transaction
from django.utils import timezone
from playwright.sync_api import Browser, sync_playwright

from agentbridge.ingest import load_sample
from conversations.accounts import create_api_key
from conversations.models import Message, Session
from conversations.openwebui_import import Outcome, import_openwebui
from evi_site.environment import BASE_DIR
from tests.openwebui import Account, OpenWebUI, Tab, bare, launch_chromium
from tests.processes import wait_for
from tests.stub_model import StubModel
from tests.test_turns import Site

PROGRAM = os.environ.get("OPENWEBUI_PROGRAM")
SCREENSHOTS = Path(os.environ.get("OPENWEBUI_SCREENSHOTS") or BASE_DIR / ".data" / "openwebui-screenshots")
pytestmark = [
    pytest.mark.skipif(not PROGRAM, reason="needs OpenWebUI: script/test-openwebui"),
    # The tests themselves only read. What EVI writes is there for the next one too, as in real life.
    pytest.mark.django_db,
]

REQUIREMENTS = "Wat zijn de vereisten voor valbeveiliging?"
PRODUCTS = "Welke producten heb je daarvoor?"
A_PRODUCT = "Allround harnas met twee bevestigingspunten"

OFFLINE = {"EVI_MODEL": "offline", "EVI_MODEL_BASE_URL": ""}


@pytest.fixture(scope="module")
def key(django_db_setup: None, django_db_blocker: Any) -> Iterator[str]:
    """OpenWebUI's key to EVI, and a database with something to know."""
    with pytest.MonkeyPatch.context() as patch, django_db_blocker.unblock():
        # Playwright has an event loop in the thread that also asks the database.
        patch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "true")
        load_sample()
        key = create_api_key(name="test", client="openwebui")
        # Beside an event loop Django keeps another connection, and this one would stay open for ever.
        connection.close()
        yield key
        call_command("flush", interactive=False, verbosity=0)


@pytest.fixture(scope="module")
def stub() -> Iterator[StubModel]:
    stub = StubModel()
    yield stub
    stub.go_on.set()
    stub.shutdown()
    stub.server_close()


@pytest.fixture(scope="module")
def evi(key: str, stub: StubModel, database_url: str) -> Iterator[Site]:
    evi = Site(database_url, stub, **OFFLINE)
    yield evi
    evi.stop()


@pytest.fixture(scope="module")
def openwebui(evi: Site, key: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenWebUI]:
    assert PROGRAM
    openwebui = OpenWebUI(
        Path(PROGRAM).absolute(), data=tmp_path_factory.mktemp("openwebui"), evi=f"{evi.url}/v1", key=key
    )
    openwebui.start()
    yield openwebui
    openwebui.stop()


@pytest.fixture(scope="module")
def person(openwebui: OpenWebUI) -> Account:
    return openwebui.sign_in()


@pytest.fixture(scope="module")
def browser(key: str) -> Iterator[Browser]:
    with sync_playwright() as playwright, launch_chromium(playwright) as browser:
        yield browser
        connection.close()


@pytest.fixture
def open_tab(
    browser: Browser, request: pytest.FixtureRequest, made: dict[UUID, Tab | None]
) -> Iterator[Callable[..., Tab]]:
    opened: list[Tab] = []

    def open_tab(account: Account, path: str = "/") -> Tab:
        tab = Tab(browser, account, screenshots=SCREENSHOTS)
        opened.append(tab)
        tab.open(path)
        return tab

    yield open_tab
    for number, tab in enumerate(opened, start=1):
        tab.screenshot(f"{request.node.name.removeprefix('test_')}-{number}")
        if tab in made.values():
            tab.remember()
        tab.close()


@pytest.fixture
def tab(open_tab: Callable[..., Tab], person: Account) -> Tab:
    return open_tab(person)


@pytest.fixture(scope="module")
def made() -> dict[UUID, Tab | None]:
    """The sessions that a person began, each with the tab it was shown in, for the last look at all of them."""
    return {}


def answer_with(evi: Site, **variables: str) -> None:
    """EVI once more at the same address, with another model."""
    evi.stop()
    evi.environment |= variables
    evi.start()


def session_of(tab: Tab, made: dict[UUID, Tab | None]) -> Session:
    """The session of the chat in the tab, with all that is the same for every chat."""
    session = Session.objects.get(id=tab.chat_id)
    made[session.id] = tab
    assert session.channel == "openwebui"
    assert session.user_id == tab.account.id
    return session


def thread(session_id: UUID) -> list[Message]:
    return list(Message.objects.in_session(session_id).active())


def check_page(tab: Tab, messages: list[Message]) -> None:
    """What is stored as the thread is what the person sees, and what OpenWebUI keeps."""
    stored = [(message.role, message.content.strip()) for message in messages]
    assert [(role, text.strip()) for role, text in tab.account.branch(tab.chat_id)] == stored
    assert tab.said() == [(role, bare(text)) for role, text in stored]
    assert tab.chips() == cited_in(messages[-1])


def cited_in(answer: Message) -> list[str]:
    """The name of the source behind each marker in the text."""
    sources = {citation["marker"]: citation for citation in answer.metadata["citations"]}
    cited = [sources[int(marker)] for marker in re.findall(r"\[(\d+)\]", answer.content)]
    return [" – ".join(filter(None, (source["document_title"], source.get("section")))) for source in cited]


def test_a_follow_up_is_understood_and_the_chat_is_one_session(tab: Tab, made: dict[UUID, Tab | None]) -> None:
    tab.ask(REQUIREMENTS)
    answer = tab.ask(PRODUCTS)
    assert bare(A_PRODUCT) in answer

    session = session_of(tab, made)
    said = list(Message.objects.in_session(session.id))
    assert [message.role for message in said] == ["user", "assistant", "user", "assistant"]
    assert [said[0].content, said[2].content] == [REQUIREMENTS, PRODUCTS]
    assert {message.status for message in said} == {"complete"}
    check_page(tab, said)
    assert session.title
    assert session.title == tab.sidebar_title()


def test_a_marker_is_a_chip_that_stays_and_opens_its_source(tab: Tab, made: dict[UUID, Tab | None]) -> None:
    tab.ask(REQUIREMENTS)
    session = session_of(tab, made)
    [_, answer] = thread(session.id)
    cited = cited_in(answer)
    assert cited
    assert tab.chips() == cited
    tab.reload()
    assert tab.chips() == cited
    assert tab.sources() == list(dict.fromkeys(cited))
    assert cited[0] in tab.read_source(1)


def test_an_edited_question_replaces_the_old_one_and_its_answer(tab: Tab, made: dict[UUID, Tab | None]) -> None:
    tab.ask(REQUIREMENTS)
    tab.ask(PRODUCTS)
    session = session_of(tab, made)
    before = thread(session.id)
    tab.edit_last_question("Hoe vaak moet die gekeurd worden?")

    after = thread(session.id)
    assert [message.id for message in after[:2]] == [message.id for message in before[:2]]
    assert after[2].content == "Hoe vaak moet die gekeurd worden?"
    old = Message.objects.filter(id__in=[message.id for message in before[2:]])
    assert [message.superseded_by for message in old] == [after[2].id] * 2
    check_page(tab, after)
    assert Message.objects.in_session(session.id).count() == 6


def test_going_back_to_the_older_question_brings_its_answer_back(tab: Tab, made: dict[UUID, Tab | None]) -> None:
    tab.ask(REQUIREMENTS)
    session = session_of(tab, made)
    first = thread(session.id)
    tab.edit_last_question("Wat is een gasmeting?")
    second = thread(session.id)
    tab.back_to_older_question()
    assert bare(A_PRODUCT) in tab.ask(PRODUCTS)

    after = thread(session.id)
    assert [message.id for message in after[:2]] == [message.id for message in first]
    check_page(tab, after)
    left = Message.objects.filter(id__in=[message.id for message in second])
    assert [message.superseded_by for message in left] == [after[2].id] * 2


def test_an_answer_asked_for_again_replaces_the_old_one(tab: Tab, made: dict[UUID, Tab | None]) -> None:
    tab.ask(REQUIREMENTS)
    session = session_of(tab, made)
    [question, old] = thread(session.id)
    tab.regenerate()

    [same, new] = thread(session.id)
    assert same.id == question.id
    assert new.id != old.id
    old.refresh_from_db()
    assert old.superseded_by == question.id
    check_page(tab, [same, new])
    assert Message.objects.in_session(session.id).count() == 3


def test_a_continued_answer_is_one_answer(tab: Tab, made: dict[UUID, Tab | None]) -> None:
    tab.ask(REQUIREMENTS)
    session = session_of(tab, made)
    [question, old] = thread(session.id)
    tab.continue_answer()

    [same, whole] = thread(session.id)
    assert same.id == question.id
    assert whole.content.startswith(old.content)
    # A marker alone is no continuation.
    assert len(bare(whole.content)) > len(bare(old.content))
    old.refresh_from_db()
    assert old.superseded_by
    check_page(tab, [same, whole])


def test_a_stopped_answer_is_kept_and_the_chat_goes_on(
    tab: Tab, evi: Site, stub: StubModel, made: dict[UUID, Tab | None]
) -> None:
    answer_with(evi, EVI_MODEL="stub", EVI_MODEL_BASE_URL=stub.base_url)
    try:
        tab.send("wait then say something long")
        tab.wait_for_words("You said:")
        tab.stop()
        session = session_of(tab, made)
        wait_for(lambda: len(thread(session.id)) == 2)
        [_, stopped] = thread(session.id)
        assert (stopped.content.strip(), stopped.status) == ("You said:", "interrupted")
        assert tab.said()[-1] == ("assistant", bare(stopped.content))
        tab.screenshot("a_stopped_answer_is_kept_and_the_chat_goes_on-stopped")
        stub.go_on.set()
        tab.ask("say more")
    finally:
        answer_with(evi, **OFFLINE)
    said = list(Message.objects.in_session(session.id))
    assert [message.content.strip() for message in said] == [
        "wait then say something long",
        "You said:",
        "say more",
        "You said: say more",
    ]
    check_page(tab, said)


def test_a_temporary_chat_is_gone_soon(
    open_tab: Callable[..., Tab], person: Account, made: dict[UUID, Tab | None]
) -> None:
    tab = open_tab(person, "/?temporary-chat=true")
    tab.ask(REQUIREMENTS)
    assert bare(A_PRODUCT) in tab.ask(PRODUCTS)

    session = Session.objects.get(external_id__startswith="temporary:")
    made[session.id] = tab
    assert (session.channel, session.user_id) == ("openwebui", person.id)
    assert tab.said() == [(message.role, bare(message.content)) for message in thread(session.id)]
    assert session.expires_at
    assert session.expires_at < timezone.now() + timedelta(days=2)
    assert "/c/" not in tab.page.url


def test_two_people_have_nothing_to_do_with_each_other(
    openwebui: OpenWebUI,
    open_tab: Callable[..., Tab],
    person: Account,
    evi: Site,
    key: str,
    made: dict[UUID, Tab | None],
) -> None:
    other = openwebui.add_person("other", by=person)
    sessions = {}
    for account in (person, other):
        tab = open_tab(account)
        tab.ask(REQUIREMENTS)
        sessions[account.id] = session_of(tab, made).id
        check_page(tab, thread(sessions[account.id]))
    assert sessions[person.id] != sessions[other.id]

    for account, stranger in ((person, other), (other, person)):
        headers = {"Authorization": f"Bearer {key}", "X-OpenWebUI-User-Id": account.id}
        with httpx.Client(base_url=evi.url, headers=headers) as client:
            listed = {UUID(session["id"]) for session in client.get("/api/sessions").json()["results"]}
            assert sessions[account.id] in listed
            assert sessions[stranger.id] not in listed
            assert client.get(f"/api/sessions/{sessions[account.id]}").status_code == 200
            assert client.get(f"/api/sessions/{sessions[stranger.id]}").status_code == 404


def test_a_follow_up_is_understood_after_a_crash_of_evi(tab: Tab, evi: Site, made: dict[UUID, Tab | None]) -> None:
    tab.ask(REQUIREMENTS)
    evi.stop(signal.SIGKILL)
    evi.start()
    assert bare(A_PRODUCT) in tab.ask(PRODUCTS)
    session = session_of(tab, made)
    assert Message.objects.in_session(session.id).count() == 4
    check_page(tab, thread(session.id))


def test_a_connection_of_the_type_responses_does_the_same(
    tab: Tab, person: Account, made: dict[UUID, Tab | None]
) -> None:
    person.connect(api_type="responses")
    try:
        tab.ask(REQUIREMENTS)
        session = session_of(tab, made)
        assert tab.chips() == cited_in(thread(session.id)[-1])
        assert bare(A_PRODUCT) in tab.ask(PRODUCTS)
    finally:
        person.connect()
    # And the chat goes on over the other type.
    tab.ask(REQUIREMENTS)
    said = list(Message.objects.in_session(session.id))
    assert len(said) == 6
    check_page(tab, said)


def test_what_openwebui_asks_behind_a_model_with_instructions_is_no_part_of_the_chat(
    open_tab: Callable[..., Tab], person: Account, made: dict[UUID, Tab | None]
) -> None:
    model = {"id": "brief", "base_model_id": "evi", "name": "EVI in het kort", "meta": {}}
    person.post("/api/v1/models/create", {**model, "params": {"system": "Wees kort."}})
    try:
        tab = open_tab(person, "/?models=brief")
        tab.ask(REQUIREMENTS)
        assert bare(A_PRODUCT) in tab.ask(PRODUCTS)
        session = session_of(tab, made)
        # Buttons that a page with several models has.
        asked = {"model": "brief", "prompt": REQUIREMENTS, "chat_id": tab.chat_id}
        merged = person.post("/api/v1/tasks/moa/completions", {**asked, "responses": ["Een.", "Twee."]})
        assert "valbeveiliging" in merged["choices"][0]["message"]["content"]
        emoji = person.post("/api/v1/tasks/emoji/completions", asked)
        assert emoji["choices"][0]["message"]["content"] == "🙂"
    finally:
        person.post("/api/v1/models/model/delete", {"id": "brief"})
    said = list(Message.objects.in_session(session.id))
    assert len(said) == 4
    check_page(tab, said)
    assert session.title == tab.sidebar_title()


def test_an_export_of_openwebui_has_what_evi_has(
    tab: Tab, person: Account, made: dict[UUID, Tab | None], tmp_path: Path
) -> None:
    tab.ask(REQUIREMENTS)
    tab.ask(PRODUCTS)
    tab.edit_last_question("Wat is een gasmeting?")
    tab.regenerate()
    session = session_of(tab, made)
    shown = [(message.role, message.content) for message in thread(session.id)]
    export = tmp_path / "chats.json"
    export.write_text(json.dumps(person.get(f"/api/v1/chats/{tab.chat_id}")) + "\n")

    again = import_openwebui(export, client="openwebui")
    assert (again.chats, again.messages, again.failures) == ({Outcome.UNCHANGED: 1}, 0, [])
    with transaction.atomic():
        Session.objects.filter(id=session.id).delete()
        anew = import_openwebui(export, client="openwebui")
        assert (anew.chats, anew.failures) == ({Outcome.NEW: 1}, [])
        assert [(message.role, message.content) for message in thread(session.id)] == shown
        assert Message.objects.in_session(session.id).count() == 7
        transaction.set_rollback(True)


def test_who_asks_in_a_channel_can_ask_on(person: Account, made: dict[UUID, Tab | None]) -> None:
    channel = person.post("/api/v1/channels/create", {"name": "dakwerk", "type": "group"})
    messages = f"/api/v1/channels/{channel['id']}/messages"
    stored = Message.objects.active().filter(session__external_id=f"channel:{channel['id']}").order_by("seq")
    asked = person.post(f"{messages}/post", {"content": f"<@M:evi|EVI> {REQUIREMENTS}"})
    wait_for(lambda: stored.count() == 2)
    person.post(f"{messages}/post", {"content": f"<@M:evi|EVI> {PRODUCTS}", "parent_id": asked["id"]})
    wait_for(lambda: stored.count() == 4)

    answer = stored[3]
    assert A_PRODUCT in answer.content
    wait_for(lambda: answer.content in [each["content"] for each in person.get(f"{messages}/{asked['id']}/thread")])
    # What is said in a channel stands in no tab.
    made[answer.session_id] = None


class TestWithoutForwardedHeaders:
    @pytest.fixture(scope="class")
    @classmethod
    def person(cls, openwebui: OpenWebUI) -> Iterator[Account]:
        openwebui.stop()
        openwebui.start(ENABLE_FORWARD_USER_INFO_HEADERS="False")
        yield openwebui.sign_in()
        openwebui.stop()
        openwebui.start()

    def test_a_chat_is_one_session_too(self, tab: Tab, made: dict[UUID, Tab | None]) -> None:
        known = set(Session.objects.values_list("id", flat=True))
        tab.ask(REQUIREMENTS)
        assert bare(A_PRODUCT) in tab.ask(PRODUCTS)
        [session] = Session.objects.exclude(id__in=known)
        made[session.id] = tab
        said = list(Message.objects.in_session(session.id))
        assert len(said) == 4
        check_page(tab, said)
        assert session.title == tab.sidebar_title()

    def test_headers_of_the_connection_name_the_chat_and_the_task(
        self, person: Account, tab: Tab, made: dict[UUID, Tab | None]
    ) -> None:
        person.connect(headers={"X-Session-ID": "{{CHAT_ID}}", "X-Task": "{{TASK}}"})
        tab.ask(REQUIREMENTS)
        assert bare(A_PRODUCT) in tab.ask(PRODUCTS)
        session = Session.objects.get(id=tab.chat_id)
        made[session.id] = tab
        assert (session.channel, session.user_id) == ("openwebui", "")
        said = list(Message.objects.in_session(session.id))
        assert len(said) == 4
        check_page(tab, said)


def test_in_the_end_there_is_what_people_saw_and_nothing_else(made: dict[UUID, Tab | None]) -> None:
    # OpenWebUI's own calls come in the seconds after an answer.
    time.sleep(3)
    assert set(Session.objects.values_list("id", flat=True)) == set(made)
    assert not Message.objects.filter(content__contains="### Task").exists()
    for session in Session.objects.all():
        if not (tab := made[session.id]):
            continue
        stored = list(Message.objects.in_session(session.id))
        assert [(each.role, bare(each.content)) for each in stored if not each.superseded_by] == tab.seen
        if not tab.chat:
            # A temporary chat: OpenWebUI keeps nothing of it.
            continue
        assert session.title
        assert session.title == tab.chat["title"]
        # On whichever branch: both have all of it. Of an answer that was continued EVI also has what it was before.
        kept = {(each["role"], each["content"].strip()) for each in tab.chat["chat"]["history"]["messages"].values()}
        ours = {(each.role, each.content.strip()) for each in stored}
        assert kept <= ours
        assert not [
            each for each in ours - kept if not any(each[0] == role and text.startswith(each[1]) for role, text in kept)
        ]
