"""EVI in Telegram: a real EVI and a stand-in for the Bot API, and HTTP between them."""

import re
import signal
import subprocess
import sys
from base64 import b64decode
from collections.abc import Iterator
from datetime import timedelta
from io import StringIO
from itertools import count
from typing import Any

import httpx
import pytest
from django.core.management import CommandError, call_command
from django.db.models import F
from django.test import Client
from django.utils import timezone
from pydantic import ValidationError
from pytest_django import Settings

from conversations.accounts import create_api_key
from conversations.api.telegram.inbox import MAX_ATTEMPTS
from conversations.models import Message, Session, TelegramUpdate
from conversations.models.telegram import LEASE
from evi_site.environment import BASE_DIR, Environment
from tests.bot_api import ME, TOKEN, BotAPI, RefusedError
from tests.processes import wait_for
from tests.stub_model import StubModel
from tests.test_turns import Site

pytestmark = pytest.mark.django_db(transaction=True)

SECRET = "a-secret-for-tests_0123456789"
GROUP = {"id": -100, "type": "supergroup", "title": "Ploeg 3"}
# Telegram never uses a number twice, and neither do the tests.
numbers = count(1000)


@pytest.fixture(scope="module")
def stub() -> Iterator[StubModel]:
    stub = StubModel()
    yield stub
    stub.shutdown()
    stub.server_close()


@pytest.fixture(scope="module")
def bot_api() -> Iterator[BotAPI]:
    api = BotAPI()
    yield api
    api.shutdown()
    api.server_close()


@pytest.fixture(scope="module")
def variables(bot_api: BotAPI) -> dict[str, str]:
    return {
        "EVI_TELEGRAM_TOKEN": TOKEN,
        "EVI_TELEGRAM_SECRET": SECRET,
        "EVI_TELEGRAM_CHATS": "7, 8, -100",
        "EVI_TELEGRAM_API_URL": bot_api.url,
    }


class TelegramSite(Site):
    def manage(self, *arguments: str, **variables: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "manage.py", *arguments],
            cwd=BASE_DIR,
            env={**self.environment, **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def answer_what_was_left(self) -> int:
        """What the worker's schedule does; how many updates it took up."""
        process = self.manage("shell", "-v0", "-c", "from conversations import tasks; print(tasks.answer_telegram())")
        printed, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors
        return int(printed)


@pytest.fixture(scope="module")
def site(stub: StubModel, database_url: str, variables: dict[str, str]) -> Iterator[TelegramSite]:
    site = TelegramSite(database_url, stub, **variables)
    yield site
    site.stop()


@pytest.fixture(autouse=True)
def key() -> str:
    """Of the client whose sessions those in Telegram are."""
    return create_api_key(name="test", client="default")


@pytest.fixture
def api(bot_api: BotAPI, stub: StubModel) -> Iterator[BotAPI]:
    stub.reset()
    bot_api.reset()
    yield bot_api
    stub.go_on.set()
    bot_api.go_on.set()
    wait_for(lambda: not TelegramUpdate.objects.filter(done_at=None, claimed_until__gt=timezone.now()).exists())
    assert bot_api.problems == []


class Phone:
    """Somebody with Telegram."""

    def __init__(self, site: TelegramSite, api: BotAPI, chat: dict[str, Any] | None = None) -> None:
        self.site = site
        self.api = api
        self.chat = chat or {"id": 7, "type": "private", "first_name": "Anna"}
        self.sender = {"id": 7, "is_bot": False, "first_name": "Anna", "last_name": "de Wit", "username": "anna"}

    def message(self, text: str = "", **fields: Any) -> dict[str, Any]:
        said: dict[str, Any] = {"text": text} if text else {}
        if names := list(re.finditer(r"(?<![/\w])@\w+", text)):
            # These are ASCII, so that characters and Telegram's units are the same.
            said["entities"] = [{"type": "mention", "offset": name.start(), "length": len(name[0])} for name in names]
        return {"message_id": next(numbers), "date": 1, "chat": self.chat, "from": self.sender, **said, **fields}

    def update(self, message: dict[str, Any], kind: str = "message") -> dict[str, Any]:
        return {"update_id": next(numbers), kind: message}

    def bring(self, update: dict[str, Any], *, secret: str = SECRET) -> int:
        """What Telegram does: it brings an update, and hears whether that is kept."""
        headers = {"X-Telegram-Bot-Api-Secret-Token": secret}
        return httpx.post(f"{self.site.url}/telegram/webhook", json=update, headers=headers, timeout=60).status_code

    def say(self, text: str = "", **fields: Any) -> dict[str, Any]:
        update = self.update(self.message(text, **fields))
        assert self.bring(update) == 200
        return update

    def hears(self, messages: int = 1) -> list[str]:
        """What EVI says next, once there are so many messages."""
        wait_for(lambda: len(self.api.texts(self.chat["id"])) >= messages)
        said = self.api.texts(self.chat["id"])
        self.api.sent[:] = [message for message in self.api.sent if message["chat_id"] != self.chat["id"]]
        assert len(said) == messages
        return said

    def ask(self, text: str, **fields: Any) -> str:
        self.say(text, **fields)
        return self.hears()[0]

    def edit(self, update: dict[str, Any], text: str) -> None:
        assert self.bring(self.update({**update["message"], "text": text, "edit_date": 2}, "edited_message")) == 200


@pytest.fixture
def phone(site: TelegramSite, api: BotAPI) -> Phone:
    return Phone(site, api)


@pytest.fixture
def group(site: TelegramSite, api: BotAPI) -> Phone:
    return Phone(site, api, GROUP)


def given_to(stub: StubModel) -> list[str]:
    return [m["content"] for m in stub.requests[-1]["messages"] if m["role"] != "system"]


def active(chat_id: int = 7) -> list[str]:
    session = Session.objects.get(user_id=f"telegram:{chat_id}")
    return [message.content.strip() for message in Message.objects.active().in_session(session.id)]


def all_done() -> bool:
    return not TelegramUpdate.objects.filter(done_at=None).exists()


class TestTalking:
    def test_three_turns_with_a_restart_in_between_keep_their_thread(
        self, phone: Phone, site: TelegramSite, stub: StubModel
    ) -> None:
        assert phone.ask("een") == "You said: een"
        phone.ask("twee")
        site.stop()
        assert all_done()
        site.start()
        assert phone.ask("drie") == "You said: drie"
        assert [text.strip() for text in given_to(stub)] == ["een", "You said: een", "twee", "You said: twee", "drie"]

    def test_a_session_is_the_chats_and_says_who_it_is(self, phone: Phone) -> None:
        phone.ask("hallo")
        session = Session.objects.get()
        assert session.owner
        assert (session.owner.username, session.user_id, session.channel, session.external_id) == (
            "default",
            "telegram:7",
            "telegram",
            "7:0",
        )
        assert session.metadata == {"person": {"name": "Anna de Wit", "username": "anna"}}

    def test_each_topic_is_a_thread_of_its_own(self, group: Phone, stub: StubModel, api: BotAPI) -> None:
        topic = {"message_thread_id": 3, "is_topic_message": True}
        group.ask("@evi_test_bot een", **topic)
        assert api.calls[-1][1]["message_thread_id"] == 3
        group.ask("@evi_test_bot twee")
        assert given_to(stub) == ["twee"]

    def test_questions_in_quick_succession_are_answered_in_order(self, phone: Phone, stub: StubModel) -> None:
        phone.say("wait een")
        phone.say("twee")
        wait_for(lambda: stub.requests)
        stub.go_on.set()
        assert phone.hears(2) == ["You said: wait een", "You said: twee"]

    def test_typing_is_shown_again_while_it_takes_longer(self, phone: Phone, api: BotAPI, stub: StubModel) -> None:
        phone.say("wait for it")
        wait_for(lambda: len(api.called("sendChatAction")) >= 2)
        stub.go_on.set()
        phone.hears()
        assert api.called("sendChatAction")[0] == {"chat_id": 7, "action": "typing"}

    def test_a_question_that_needs_no_answer_here_is_not_kept(self, phone: Phone) -> None:
        assert phone.bring({"update_id": next(numbers), "poll_answer": {"poll_id": "1", "option_ids": []}}) == 200
        assert not TelegramUpdate.objects.exists()

    def test_when_it_is_answered_its_contents_are_in_the_session_alone(self, phone: Phone) -> None:
        phone.ask("geheim")
        wait_for(all_done)
        assert list(TelegramUpdate.objects.values_list("content", flat=True)) == [{}]

    @pytest.mark.parametrize(
        "sent",
        [
            {"voice": {"file_id": "v", "file_unique_id": "v", "duration": 1}},
            {"document": {"file_id": "d", "file_unique_id": "d"}, "caption": "lees dit"},
            {"location": {"latitude": 52.1, "longitude": 4.3}},
            {"photo": [{"file_id": "photo", "file_unique_id": "p", "width": 1, "height": 1}], "caption": "wat is dit"},
        ],
    )
    def test_what_cannot_be_read_is_told_in_one_sentence(self, sent: dict[str, Any], phone: Phone) -> None:
        phone.say(**sent)
        (said,) = phone.hears()
        assert said.startswith("Ik kan ")
        assert not Session.objects.exists()

    def test_a_model_that_fails_is_told_in_one_dutch_sentence(self, phone: Phone) -> None:
        assert phone.ask("fail with 400") == "Het taalmodel kon deze vraag niet beantwoorden. Stel je vraag nog eens."
        assert phone.ask("en nu") == "You said: en nu"

    def test_sources_come_with_the_answer(self, phone: Phone, knowledge: None) -> None:
        answer, sources = phone.ask("look up ladders").split("\n\nBronnen\n")
        assert answer.startswith("Found it [1]")
        assert sources.startswith("[1] Ladders en trappen – ")


@pytest.fixture
def knowledge() -> None:
    from agentbridge.ingest import SAMPLE, ingest

    ingest([SAMPLE / "guidelines" / "ladders-en-trappen.md"])


class TestDelivery:
    def test_an_update_that_comes_twice_is_answered_once(self, phone: Phone, stub: StubModel) -> None:
        update = phone.say("een")
        phone.hears()
        assert phone.bring(update) == 200
        phone.ask("twee")
        assert stub.calls["een"] == 1
        assert active() == ["een", "You said: een", "twee", "You said: twee"]

    def test_an_update_that_comes_twice_at_once_is_answered_once(self, phone: Phone, stub: StubModel) -> None:
        update = phone.say("wait een")
        phone.bring(update)
        wait_for(lambda: stub.requests)
        stub.go_on.set()
        phone.hears()
        wait_for(all_done)
        assert stub.calls["wait een"] == 1

    def test_telegrams_wish_to_wait_is_obeyed(self, phone: Phone, api: BotAPI) -> None:
        api.refusals = [RefusedError(429, "Too Many Requests: retry after 1", retry_after=1)]
        assert phone.ask("een") == "You said: een"
        first, second = [place for place, call in enumerate(api.calls) if call[0] == "sendMessage"]
        assert first < second

    def test_whoever_blocked_the_bot_is_left_alone(self, phone: Phone, api: BotAPI) -> None:
        api.refusals = [RefusedError(403, "Forbidden: bot was blocked by the user")]
        phone.say("een")
        wait_for(all_done)
        assert (api.texts(), len(api.called("sendMessage"))) == ([], 1)

    def test_an_answer_that_was_not_delivered_is_sent_later_and_not_asked_again(
        self, phone: Phone, api: BotAPI, stub: StubModel
    ) -> None:
        api.refusals = [RefusedError(500, "Internal Server Error")]
        phone.say("een")
        wait_for(self.is_put_back)
        self.time_passes()
        Phone(phone.site, api, {"id": 8, "type": "private"}).ask("iets anders")
        assert phone.hears() == ["You said: een"]
        assert stub.calls["een"] == 1

    def is_put_back(self) -> bool:
        """Held for longer than a process holds what it has just begun."""
        longer = F("received_at") + LEASE + timedelta(seconds=5)
        return TelegramUpdate.objects.filter(done_at=None, claimed_until__gt=longer).exists()

    def time_passes(self) -> None:
        """As long as a process may hold an update without a sign of life, and a question without an answer."""
        TelegramUpdate.objects.update(claimed_until=timezone.now() - timedelta(seconds=1))
        Message.objects.update(created_at=timezone.now() - timedelta(hours=1))

    def test_killed_between_acknowledgement_and_answer_it_answers_after_the_restart(
        self, phone: Phone, site: TelegramSite, stub: StubModel, api: BotAPI
    ) -> None:
        phone.say("wait for the end")
        wait_for(lambda: stub.requests)
        site.stop(signal.SIGKILL)
        stub.go_on.set()
        self.time_passes()
        held = TelegramUpdate.objects.filter(done_at=None)
        held.update(claimed_until=timezone.now() + timedelta(hours=1))
        site.start()
        # Another chat does not wait for it.
        assert Phone(site, api, {"id": 8, "type": "private"}).ask("een ander") == "You said: een ander"
        held.update(claimed_until=timezone.now() + timedelta(seconds=3))
        phone.say("twee")
        assert phone.hears(2) == ["You said: wait for the end", "You said: twee"]
        asked = Message.objects.filter(session__user_id="telegram:7", role="user").order_by("seq")
        assert [m.content for m in asked] == ["wait for the end", "twee"]

    def test_told_to_stop_it_says_what_it_has_begun_to_say_and_lets_go_of_the_rest(
        self, phone: Phone, site: TelegramSite, api: BotAPI, stub: StubModel
    ) -> None:
        other = Phone(site, api, {"id": 8, "type": "private"})
        api.most = 0
        phone.say("een")
        wait_for(lambda: api.called("sendMessage"))
        other.say("wait for the end")
        wait_for(lambda: stub.calls["wait for the end"])
        site.process.send_signal(signal.SIGTERM)
        api.go_on.set()
        site.process.wait(30)
        assert phone.hears() == ["You said: een"]
        [left] = TelegramUpdate.objects.filter(done_at=None)
        # Not held for the half minute that a process may be silent.
        assert left.claimed_until
        assert (left.chat_id, left.claimed_until < timezone.now()) == (8, True)
        stub.go_on.set()
        site.start()
        # Nobody had to say anything new, and no worker had to look.
        assert other.hears() == ["You said: wait for the end"]
        assert active(8) == ["wait for the end", "You said: wait for the end"]

    def test_killed_between_two_pieces_it_sends_the_rest(
        self, phone: Phone, site: TelegramSite, api: BotAPI, stub: StubModel
    ) -> None:
        # The stand-in for the model says it again.
        question = " ".join(f"woord{number}" for number in range(1000))
        api.most = 1
        phone.say(question)
        wait_for(lambda: len(api.called("sendMessage")) == 2)
        site.stop(signal.SIGKILL)
        api.go_on.set()
        wait_for(lambda: len(api.sent) == 2)
        self.time_passes()
        site.start()
        # The second one was under way when EVI died. Nobody can know that it arrived, and so it comes twice.
        first, second, again, third = phone.hears(4)
        assert second == again
        assert f"{first} {second} {third}" == f"You said: {question}"
        assert stub.calls[question] == 1

    def test_the_worker_answers_what_a_dead_process_left_and_gives_up_one_day(
        self, phone: Phone, site: TelegramSite, stub: StubModel, api: BotAPI
    ) -> None:
        other = Phone(site, api, {"id": 8, "type": "private"})
        phone.say("wait for the end")
        other.say("wait for ever")
        wait_for(lambda: len(stub.requests) == 2)
        site.stop(signal.SIGKILL)
        stub.go_on.set()
        self.time_passes()
        TelegramUpdate.objects.filter(chat_id=8).update(attempts=MAX_ATTEMPTS)
        assert site.answer_what_was_left() == 2
        site.start()
        assert (phone.hears(), api.texts(8)) == (["You said: wait for the end"], [])
        assert all_done()

    def test_old_updates_are_forgotten(self, phone: Phone) -> None:
        phone.ask("een")
        phone.ask("twee")
        wait_for(all_done)
        first = TelegramUpdate.objects.order_by("id")[:1]
        TelegramUpdate.objects.filter(id__in=first.values("id")).update(received_at=timezone.now() - timedelta(days=4))
        TelegramUpdate.objects.forget_old()
        assert TelegramUpdate.objects.count() == 1


class TestWhoMayComeIn:
    @pytest.mark.parametrize("secret", ["", "wrong", SECRET[:-1]])
    def test_without_the_secret_nothing_is_taken(self, secret: str, phone: Phone) -> None:
        assert phone.bring(phone.update(phone.message("een")), secret=secret) == 401
        assert not TelegramUpdate.objects.exists()

    @pytest.mark.parametrize("body", ["", "[]", "nonsense", '{"update_id": "1"}', '{"message": {}}', "[" * 100_000])
    def test_what_is_no_update_is_refused(self, body: str, site: TelegramSite) -> None:
        headers = {"X-Telegram-Bot-Api-Secret-Token": SECRET}
        refused = httpx.post(f"{site.url}/telegram/webhook", content=body, headers=headers)
        assert (refused.status_code, set(refused.json())) == (400, {"error", "detail"})

    def test_what_telegram_may_bring_one_day_is_acknowledged_and_left(self, phone: Phone) -> None:
        strange = {**phone.message("een"), "chat": {"id": "seven", "type": "hologram"}}
        assert phone.bring(phone.update(strange)) == 200
        assert not TelegramUpdate.objects.exists()

    def test_other_chats_get_no_answer_and_learn_their_number_by_start(self, site: TelegramSite, api: BotAPI) -> None:
        stranger = Phone(site, api, {"id": 9, "type": "private"})
        stranger.say("Wat is valbeveiliging?")
        assert "het nummer is 9" in stranger.ask("/start")
        assert not Session.objects.exists()

    def test_without_a_token_there_is_no_telegram(self) -> None:
        headers = {"X-Telegram-Bot-Api-Secret-Token": SECRET}
        refused = Client().post("/telegram/webhook", {"update_id": 1}, "application/json", headers=headers)
        assert refused.status_code == 404


class TestEditing:
    def test_an_edited_question_takes_the_place_of_the_old_one(
        self, phone: Phone, api: BotAPI, stub: StubModel
    ) -> None:
        phone.ask("een")
        second = phone.say("twee")
        phone.hears()
        phone.ask("drie")
        phone.edit(second, "twee anders")
        wait_for(lambda: api.sent)
        assert api.sent[0]["reply_parameters"]["message_id"] == second["message"]["message_id"]
        assert phone.hears() == ["You said: twee anders"]
        assert active() == ["een", "You said: een", "twee anders", "You said: twee anders"]
        assert "twee" not in given_to(stub)

    def test_it_can_be_edited_again_and_back(self, phone: Phone) -> None:
        first = phone.say("een")
        phone.hears()
        for text in ("twee", "drie", "een"):
            phone.edit(first, text)
            assert phone.hears() == [f"You said: {text}"]
            assert active() == [text, f"You said: {text}"]

    def test_an_edit_that_changes_nothing_is_not_answered(self, phone: Phone) -> None:
        first = phone.say("een")
        phone.hears()
        phone.edit(first, "een")
        assert phone.ask("twee") == "You said: twee"

    def test_an_edit_that_comes_twice_is_answered_once(self, phone: Phone, stub: StubModel) -> None:
        first = phone.say("een")
        phone.hears()
        edit = phone.update({**first["message"], "text": "anders"}, "edited_message")
        phone.bring(edit)
        phone.bring(edit)
        phone.hears()
        phone.ask("twee")
        assert stub.calls["anders"] == 1

    def test_a_question_of_an_earlier_session_is_not_changed_from_here(self, phone: Phone) -> None:
        first = phone.say("een")
        phone.hears()
        phone.ask("/new")
        phone.edit(first, "anders")
        assert phone.hears()[0].startswith("Die vraag staat in een ander gesprek.")
        assert active() == ["een", "You said: een"]


class TestCommands:
    def test_start_welcomes_and_says_how_to_go_on(self, phone: Phone) -> None:
        said = phone.ask("/start")
        assert said.startswith("Hallo! Ik ben EVI")
        assert "/handover" in said

    def test_what_is_no_command_gets_the_help(self, phone: Phone) -> None:
        assert phone.ask("/hlep").startswith("Dat commando ken ik niet.")

    def test_new_begins_a_new_session_and_keeps_the_old(self, phone: Phone, stub: StubModel) -> None:
        phone.ask("een")
        phone.ask("/new")
        phone.ask("twee")
        assert given_to(stub) == ["twee"]
        assert Session.objects.count() == 2

    def test_sessions_are_listed_with_buttons_that_take_one_up(
        self, phone: Phone, api: BotAPI, stub: StubModel
    ) -> None:
        phone.ask("een")
        phone.ask("/new")
        phone.ask("twee")
        phone.say("/sessions")
        wait_for(lambda: api.sent)
        newest, oldest = (row[0] for row in api.sent[0]["reply_markup"]["inline_keyboard"])
        assert (newest["text"], oldest["text"]) == ("Twee", "een")
        assert "een, zojuist" in phone.hears()[0]
        query = {"id": "1", "from": phone.sender, "chat_instance": "1", "data": oldest["callback_data"]}
        phone.bring({"update_id": next(numbers), "callback_query": {**query, "message": phone.message("lijst")}})
        assert phone.hears() == ["Je gaat verder met: een"]
        phone.ask("drie")
        assert given_to(stub)[0] == "een"
        assert api.called("answerCallbackQuery")

    def test_resume_takes_the_beginning_of_an_id(self, phone: Phone, stub: StubModel) -> None:
        phone.ask("een")
        first = Session.objects.get()
        phone.ask("/new")
        phone.ask("twee")
        assert phone.ask(f"/resume {str(first.id)[:8].upper()}") == "Je gaat verder met: een"
        phone.ask("drie")
        assert given_to(stub)[0] == "een"

    def test_nobody_resumes_the_session_of_another_chat(self, phone: Phone, site: TelegramSite, api: BotAPI) -> None:
        phone.ask("een")
        other = Phone(site, api, {"id": 8, "type": "private"})
        assert other.ask(f"/resume {Session.objects.get().id}").startswith("Je hebt geen gesprek dat zo begint.")
        assert other.ask("/sessions").startswith("Je hebt hier nog geen gesprekken.")


class TestGroups:
    def test_what_is_not_meant_for_evi_is_not_answered(self, group: Phone, stub: StubModel) -> None:
        group.say("Wie heeft er koffie?")
        group.say("/start@another_bot")
        group.say("/new")
        assert group.ask("@EVI_test_bot, en thee?") == "You said: en thee?"
        assert list(stub.calls) == ["en thee?"]

    def test_a_reply_to_evi_is_a_question(self, group: Phone) -> None:
        said = {**group.message("Iets"), "from": ME}
        assert group.ask("Waarom?", reply_to_message=said) == "You said: Waarom?"

    def test_a_command_by_name_is_for_evi(self, group: Phone) -> None:
        assert group.ask("/new@evi_test_bot").startswith("Je volgende vraag begint een nieuw gesprek.")

    def test_another_bot_is_not_answered(self, group: Phone, stub: StubModel) -> None:
        robot = {**group.message("@evi_test_bot hallo"), "from": {"id": 99, "is_bot": True, "first_name": "R"}}
        group.bring(group.update(robot))
        group.ask("@evi_test_bot een")
        assert list(stub.calls) == ["een"]


class TestHandOver:
    def code_of(self, phone: Phone) -> str:
        return phone.ask("/handover").splitlines()[0].removeprefix("Je code is ")

    def api_client(self, site: TelegramSite, key: str) -> httpx.Client:
        return httpx.Client(base_url=site.url, headers={"Authorization": f"Bearer {key}"}, params={"user": "bert"})

    def test_from_telegram_to_the_api_and_back(
        self, phone: Phone, site: TelegramSite, key: str, stub: StubModel
    ) -> None:
        phone.ask("een")
        with self.api_client(site, key) as client:
            taken = client.post("/api/handover", json={"code": self.code_of(phone)})
            assert taken.status_code == 200, taken.text
            session_id = taken.json()["id"]
            asked = {"query": "twee", "user": "bert"}
            client.post("/chat", json=asked, headers={"X-Session-ID": session_id}).raise_for_status()
            assert [text.strip() for text in given_to(stub)] == ["een", "You said: een", "twee"]
            code = client.post(f"/api/sessions/{session_id}/handover").json()["code"]
        assert phone.ask(f"/resume {code}") == "Het gesprek gaat hier verder: Twee"
        phone.ask("drie")
        assert [text.strip() for text in given_to(stub)][-3:] == ["twee", "You said: twee", "drie"]
        assert Session.objects.get().user_id == "telegram:7"

    def test_what_was_handed_over_is_told_when_a_new_session_begins(
        self, phone: Phone, site: TelegramSite, key: str, stub: StubModel
    ) -> None:
        phone.ask("een")
        with self.api_client(site, key) as client:
            client.post("/api/handover", json={"code": self.code_of(phone)})
        phone.say("twee")
        told, answer = phone.hears(2)
        assert told.startswith("Je vorige gesprek gaat ergens anders verder.")
        assert (answer, given_to(stub)) == ("You said: twee", ["twee"])
        assert phone.ask("drie") == "You said: drie"

    def test_a_wrong_code_says_so(self, phone: Phone) -> None:
        assert phone.ask("/resume ZZZZ-ZZZZ").startswith("Deze code klopt niet")

    def test_without_a_session_there_is_nothing_to_hand_over(self, phone: Phone) -> None:
        assert phone.ask("/handover").startswith("Er is hier nog geen gesprek")


class TestCommandLine:
    """`manage.py telegram`, as whoever runs EVI uses it."""

    @pytest.fixture(autouse=True)
    def _configured(self, settings: Settings, variables: dict[str, str], api: BotAPI) -> None:
        self.settings = settings
        self.configure(**{name.removeprefix("EVI_").lower(): value for name, value in variables.items()})

    def configure(self, **changes: Any) -> None:
        self.settings.EVI = Environment.model_validate({**self.settings.EVI.model_dump(), **changes})

    def run(self, *arguments: str) -> str:
        printed = StringIO()
        call_command("telegram", *arguments, stdout=printed)
        return printed.getvalue()

    def test_set_webhook_tells_telegram_where_and_with_which_secret(self, api: BotAPI) -> None:
        assert "@evi_test_bot" in self.run("set-webhook", "https://evi.example.nl/")
        (asked,) = api.called("setWebhook")
        assert (asked["url"], asked["secret_token"], asked["allowed_updates"]) == (
            "https://evi.example.nl/telegram/webhook",
            SECRET,
            ["message", "edited_message", "callback_query"],
        )

    def test_without_a_secret_of_its_own_it_has_one_that_nobody_can_guess(self, api: BotAPI) -> None:
        self.configure(telegram_secret="")
        self.run("set-webhook", "https://evi.example.nl/")
        (asked,) = api.called("setWebhook")
        assert re.fullmatch(r"[0-9a-f]{64}", str(asked["secret_token"]))

    def test_people_are_shown_the_commands(self, api: BotAPI) -> None:
        self.run("set-webhook", "https://evi.example.nl/telegram/webhook")
        (asked,) = api.called("setMyCommands")
        assert [command["command"] for command in asked["commands"]][:2] == ["new", "sessions"]

    def test_delete_webhook_removes_it(self, api: BotAPI) -> None:
        api.webhook = "https://evi.example.nl/telegram/webhook"
        self.run("delete-webhook")
        assert api.webhook == ""

    @pytest.mark.parametrize(
        ("changes", "reason"),
        [
            ({"telegram_token": ""}, "EVI_TELEGRAM_TOKEN is not set"),
            ({"telegram_token": "4242:another"}, "Telegram does not know EVI_TELEGRAM_TOKEN"),
            ({"telegram_client": "nobody"}, "there is no client 'nobody'"),
            ({"telegram_api_url": "http://127.0.0.1:9"}, "Telegram refused: "),
        ],
    )
    def test_what_is_wrong_is_said(self, changes: dict[str, str], reason: str) -> None:
        self.configure(**changes)
        with pytest.raises(CommandError, match=reason):
            self.run("delete-webhook")

    def test_an_address_without_https_is_refused(self, api: BotAPI) -> None:
        with pytest.raises(CommandError, match="https://"):
            self.run("set-webhook", "http://evi.example.nl")
        assert not api.called("setWebhook")

    def test_an_empty_list_of_chats_is_told(self, caplog: pytest.LogCaptureFixture) -> None:
        self.configure(telegram_chats=[])
        self.run("delete-webhook")
        assert "nobody may talk with EVI" in caplog.text

    def test_poll_does_not_fetch_what_a_webhook_is_brought(self, api: BotAPI) -> None:
        api.webhook = "https://evi.example.nl/telegram/webhook"
        with pytest.raises(CommandError, match=r"manage\.py telegram delete-webhook"):
            self.run("poll")


def test_poll_fetches_and_answers_until_it_is_stopped(
    site: TelegramSite, phone: Phone, api: BotAPI, stub: StubModel
) -> None:
    photo: dict[str, Any] = {"photo": [{"file_id": "photo", "file_unique_id": "p", "width": 1, "height": 1}]}
    process = site.manage("telegram", "poll", EVI_MODEL_SEES_IMAGES="true")
    try:
        api.updates.append(phone.update(phone.message("een")))
        assert phone.hears() == ["You said: een"]
        api.updates.append(phone.update(phone.message(caption="wat is dit", **photo)))
        phone.hears()
        seen = stub.requests[-1]["messages"][-1]["content"][1]["image_url"]["url"]
        assert b64decode(seen.partition(",")[2]) == api.files["photo"]
    finally:
        process.send_signal(signal.SIGINT)
        printed, errors = process.communicate(timeout=90)
    assert (process.returncode, printed.splitlines()[-1]) == (0, "Stopped.")
    assert "Traceback" not in errors


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("telegram_token", "no colon"),
        ("telegram_secret", "too short"),
        ("telegram_chats", "7,seven"),
        ("telegram_chats", "@ploeg"),
        ("telegram_api_url", "api.telegram.org"),
    ],
)
def test_a_setting_that_makes_no_sense_is_refused(name: str, value: str) -> None:
    with pytest.raises(ValidationError) as refused:
        Environment.model_validate({name: value})
    assert [problem["loc"] for problem in refused.value.errors()] == [(name,)]
