"""The client's thread is the truth: what people do in a chat, as it arrives, and what the database makes of it."""

import json
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from pytest_django import Settings

from agentbridge.said import HistoryItem
from conversations.branches import Branch, follow, spoken
from conversations.models import Attachment, Message, Session, Status
from conversations.openings import TurnRequest, open_turn
from conversations.transcripts import every_message, render_markdown

pytestmark = pytest.mark.django_db(transaction=True)

TOOLS = [{"type": "function", "function": {"name": "get_current_timestamp"}}]


class Chat:
    """A chat as OpenWebUI keeps it: the whole thread goes along with every question."""

    def __init__(self, chat_id: str | None = None, *, user: str = "ada", **headers: str) -> None:
        self.chat_id = str(uuid4()) if chat_id is None else chat_id
        self.headers = {"X-OpenWebUI-Chat-Id": self.chat_id, "X-OpenWebUI-User-Id": user, **headers}
        self.thread: list[dict[str, Any]] = []
        self.session_id = ""

    def send(self, **more: Any) -> str:
        response = Client().post(
            "/v1/chat/completions",
            json.dumps({"model": "evi", "messages": self.thread, "tools": TOOLS, **more}),
            content_type="application/json",
            headers=self.headers,
        )
        assert response.status_code == 200, response.content
        self.session_id = response["X-Session-ID"]
        return str(response.json()["choices"][0]["message"]["content"])

    def ask(self, text: str) -> str:
        self.thread.append({"role": "user", "content": text})
        answer = self.send()
        # As it is replayed: trimmed.
        self.thread.append({"role": "assistant", "content": answer.strip()})
        return answer

    def edit(self, place: int, text: str) -> str:
        """Ask another question in place of an earlier one; the first is number 0."""
        del self.thread[2 * place :]
        return self.ask(text)

    def regenerate(self) -> str:
        return self.edit(len(self.thread) // 2 - 1, self.thread[-2]["content"])

    def carry_on(self) -> str:
        more = self.send()
        self.thread[-1]["content"] += more
        return more

    @property
    def history(self) -> list[HistoryItem]:
        return [HistoryItem(message["role"], message["content"]) for message in self.thread]

    @property
    def shown(self) -> list[str]:
        return [message["content"] for message in self.thread]

    @property
    def stored(self) -> list[str]:
        """The conversation as the database has it."""
        return [message.content for message in Message.objects.active().in_session(UUID(self.session_id))]

    @property
    def superseded(self) -> list[Message]:
        return list(Message.objects.in_session(UUID(self.session_id)).exclude(superseded_by=None))


def row(chat: Chat, content: str) -> Message:
    return Message.objects.active().get(session_id=chat.session_id, content=content)


class TestGoingOn:
    def test_the_chat_is_the_session(self) -> None:
        chat = Chat()
        chat.ask("one")
        chat.ask("two")
        session = Session.objects.get()
        assert (str(session.id), session.channel, session.user_id) == (chat.chat_id, "openwebui", "ada")
        assert chat.stored == chat.shown
        assert chat.superseded == []

    def test_it_takes_no_more_queries_than_a_client_without_history(self) -> None:
        """The common case is decided from the tail."""
        chat = Chat()
        for text in ("one", "two", "three"):
            chat.ask(text)
        known = {"session_id": UUID(chat.chat_id), "external_id": chat.chat_id, "user_id": "ada"}
        replayed = TurnRequest("next", **known, history=tuple(chat.history), is_whole_thread=True)  # type: ignore[arg-type]
        for request in (replayed, TurnRequest("again", **known)):  # type: ignore[arg-type]
            with CaptureQueriesContext(connection) as queries:
                open_turn(request)
            assert len(queries) == 1

    def test_the_agent_is_given_the_last_ten(self) -> None:
        chat = Chat()
        chat.thread = [{"role": ("user", "assistant")[number % 2], "content": f"{number}"} for number in range(16)]
        answer = chat.ask("next")
        assert answer.split("\n- ") == ["Je vroeg: next\n\nDaarvoor (10):", *map(str, range(6, 16))]

    def test_a_reasoning_that_is_dropped_when_it_is_replayed_makes_no_difference(self) -> None:
        chat = Chat()
        chat.ask("one")
        Message.objects.filter(role="assistant").update(content="<think>hm</think> " + chat.shown[-1], branch_hash=None)
        chat.ask("two")
        assert (len(chat.stored), chat.superseded) == (4, [])

    def test_a_failed_turn_leaves_two_questions_in_a_row(self) -> None:
        chat = Chat()
        chat.ask("one")
        chat.thread.append({"role": "user", "content": "two"})
        Message.objects.create(session_id=chat.session_id, role="user", content="two")
        Message.objects.create(session_id=chat.session_id, role="assistant", content="", status="failed")
        chat.ask("three")
        assert [spoken(text) for text in chat.stored if text] == [spoken(text) for text in chat.shown]
        assert chat.superseded == []

    def test_a_question_that_failed_can_be_asked_again(self) -> None:
        chat = Chat()
        chat.ask("one")
        Message.objects.filter(role="assistant").update(content="", status="failed", branch_hash=None)
        chat.regenerate()
        assert chat.stored == chat.shown
        assert [message.status for message in chat.superseded] == ["failed"]

    def test_what_reached_the_client_of_a_broken_answer_counts_as_the_answer(self) -> None:
        chat = Chat()
        chat.ask("one")
        whole = chat.stored[-1]
        Message.objects.filter(role="assistant").update(status="interrupted", branch_hash=None)
        chat.thread[-1]["content"] = whole[:5]
        chat.ask("two")
        chat.ask("three")
        assert (len(chat.stored), chat.superseded) == (6, [])


class TestGoingBack:
    def test_an_edited_question_replaces_what_came_of_the_old_one(self) -> None:
        chat = Chat()
        for text in ("one", "two", "three"):
            chat.ask(text)
        answer = chat.edit(1, "another")
        assert chat.stored == chat.shown
        assert [message.content for message in chat.superseded][::2] == ["two", "three"]
        assert {message.superseded_by for message in chat.superseded} == {row(chat, "another").id}
        assert "two" not in answer

    def test_the_first_question_can_be_edited_too(self) -> None:
        chat = Chat()
        chat.ask("one")
        assert "one" not in chat.edit(0, "another")
        assert chat.stored == chat.shown
        assert len(chat.superseded) == 2

    def test_regenerating_asks_the_same_question_and_not_one_more(self) -> None:
        chat = Chat()
        chat.ask("one")
        chat.ask("two")
        question = row(chat, "two")
        chat.regenerate()
        chat.regenerate()
        assert chat.stored == chat.shown
        assert row(chat, "two").id == question.id
        assert [(message.role, message.superseded_by) for message in chat.superseded] == [
            ("assistant", question.id),
            ("assistant", question.id),
        ]

    def test_who_goes_back_to_an_old_branch_finds_it_as_it_was(self) -> None:
        chat = Chat()
        chat.ask("one")
        chat.ask("two")
        old = list(chat.thread)
        chat.edit(1, "another")
        chat.thread = old
        answer = chat.ask("three")
        assert chat.stored == chat.shown
        assert Message.objects.filter(content="two").count() == 1
        assert {message.content.split("\n")[0] for message in chat.superseded} == {"another", "Je vroeg: another"}
        assert "another" not in answer

    def test_the_same_question_on_another_branch_is_another_question(self) -> None:
        chat = Chat()
        chat.ask("one")
        chat.ask("two")
        chat.edit(0, "another")
        first = Message.objects.get(content="two")
        chat.ask("two")
        assert Message.objects.filter(content="two").count() == 2
        assert Message.objects.get(id=first.id).branch_hash == first.branch_hash

    def test_a_deleted_exchange_is_no_longer_given_to_the_agent(self) -> None:
        chat = Chat()
        for text in ("one", "two", "three"):
            chat.ask(text)
        del chat.thread[2:4]
        answer = chat.ask("four")
        assert chat.stored == chat.shown
        assert chat.superseded[0].content == "two"
        assert Message.objects.filter(content="three").count() == 1
        assert answer.startswith("Je vroeg: four\n\nDaarvoor (4):\n- one\n- Je vroeg: one\n- three\n")

    def test_an_answer_that_the_person_edited_is_taken_as_edited(self) -> None:
        chat = Chat()
        chat.ask("one")
        chat.ask("two")
        chat.thread[1]["content"] = "corrected"
        assert "- corrected\n" in chat.ask("three")
        assert chat.stored == chat.shown

    def test_an_answer_that_only_moved_keeps_its_citations(self) -> None:
        chat = Chat()
        chat.ask("one")
        chat.ask("two")
        cited = [{"marker": 1, "source": "NEN", "chunk_id": "x", "similarity": 0.5}]
        Message.objects.filter(id=row(chat, chat.stored[3]).id).update(metadata={"citations": cited})
        chat.thread[0]["content"] = "one, put better"
        chat.ask("three")
        assert row(chat, chat.shown[3]).metadata["citations"] == cited

    def test_a_window_that_moves_along_copies_nothing(self) -> None:
        """A client that sends its last messages only."""
        chat = Chat()
        for number in range(6):
            chat.ask(f"question {number}")
            del chat.thread[:-4]
        assert chat.stored[-2:] == chat.shown[-2:]
        assert Message.objects.count() == 12


class TestCarryingOn:
    def test_more_of_an_answer_makes_it_longer(self) -> None:
        chat = Chat()
        chat.ask("one")
        old = row(chat, chat.stored[-1])
        chat.carry_on()
        assert [spoken(text) for text in chat.stored] == [spoken(text) for text in chat.shown]
        [left] = chat.superseded
        assert (left.id, left.superseded_by) == (old.id, row(chat, "one").id)

    def test_the_thread_goes_on_after_it(self) -> None:
        chat = Chat()
        chat.ask("one")
        chat.carry_on()
        chat.ask("two")
        assert len(chat.stored) == 4
        assert len(chat.superseded) == 1

    def test_the_model_is_asked_to_go_on_with_its_own_answer(self) -> None:
        chat = Chat()
        chat.ask("one")
        more = chat.carry_on()
        assert more.startswith(" Je vroeg: Ga verder met je laatste antwoord")
        assert "- Je vroeg: one" in more

    @pytest.mark.parametrize("thought", ["<think>hm</think>", '<details type="reasoning" done="true">hm</details>'])
    def test_an_answer_that_was_stopped_while_thinking_is_given_anew(self, thought: str) -> None:
        chat = Chat()
        chat.ask("one")
        chat.thread[-1]["content"] = thought
        assert chat.send() == "Je vroeg: one"
        assert chat.stored == ["one", "Je vroeg: one"]

    def test_it_goes_on_from_what_reached_the_client(self) -> None:
        chat = Chat()
        chat.ask("one")
        Message.objects.filter(role="assistant").update(content="Je vroeg: en nog", status="interrupted")
        chat.thread[-1]["content"] = "Je vroeg:"
        more = chat.carry_on()
        assert chat.stored == ["one", f"Je vroeg:{more}"]
        chat.ask("two")
        assert len(chat.superseded) == 1

    def test_thoughts_alone_are_no_question(self) -> None:
        body = {"messages": [{"role": role, "content": "<think>hm</think>"} for role in ("user", "assistant")]}
        kind = "application/json"
        response = Client().post("/v1/chat/completions", json.dumps(body), content_type=kind)
        assert (response.status_code, response.json()["error"]["param"]) == (400, "messages")

    def test_an_answer_is_known_to_who_goes_on_with_it_however_little_fits(self, settings: Settings) -> None:
        settings.EVI = settings.EVI.model_copy(update={"context_messages": 0})
        chat = Chat()
        chat.ask("one")
        assert "- one\n- Je vroeg: one" in chat.carry_on()

    def test_an_answer_that_evi_never_gave_can_be_carried_on_too(self) -> None:
        chat = Chat()
        chat.thread = [{"role": "user", "content": "one"}, {"role": "assistant", "content": "First,"}]
        chat.carry_on()
        assert chat.stored[0] == "one"
        assert chat.stored[1].startswith("First, ")


class TestTakingIn:
    def test_a_fork_is_a_session_with_the_whole_thread(self) -> None:
        chat = Chat()
        chat.ask("one")
        fork = Chat()
        fork.thread = list(chat.thread)
        assert "- one\n" in fork.ask("two")
        assert fork.stored == fork.shown
        assert len(chat.stored) == 2

    def test_a_client_that_lost_its_server_brings_everything_along(self) -> None:
        chat = Chat()
        chat.ask("one")
        chat.ask("two")
        Session.objects.all().delete()
        chat.ask("three")
        assert chat.stored == chat.shown
        assert str(Session.objects.get().id) == chat.chat_id

    def test_an_answer_that_is_longer_than_a_question_may_be_does_not_end_the_chat(self, settings: Settings) -> None:
        settings.EVI = settings.EVI.model_copy(update={"max_message_chars": 50})
        chat = Chat()
        chat.thread = [{"role": "user", "content": "x" * 51}, {"role": "assistant", "content": "y " * 1_000_000}]
        chat.carry_on()
        chat.ask("next")
        assert [spoken(text) for text in chat.stored] == [spoken(text) for text in chat.shown]

    def test_a_session_id_with_a_history_is_reconciled(self) -> None:
        session = str(Session.objects.create().id)
        chat = Chat("", user="", **{"X-Session-ID": session})
        chat.thread = [{"role": "user", "content": "one"}, {"role": "assistant", "content": "1"}]
        chat.ask("two")
        assert (chat.session_id, chat.stored) == (session, chat.shown)

    def test_a_session_id_with_one_message_is_a_client_without_history(self) -> None:
        session = str(Session.objects.create().id)
        for text in ("one", "two"):
            Client().post(
                "/v1/chat/completions",
                json.dumps({"messages": [{"role": "user", "content": text}]}),
                content_type="application/json",
                headers={"X-Session-ID": session},
            )
        assert Message.objects.active().count() == 4

    def test_many_requests_of_one_chat_at_once_leave_one_thread(self) -> None:
        chat = Chat()
        chat.ask("one")

        def fork(number: int) -> None:
            mine = Chat(chat.chat_id)
            mine.thread = list(chat.thread)
            mine.ask(f"question {number}")
            connection.close()

        with ThreadPoolExecutor(6) as pool:
            list(pool.map(fork, range(6)))
        questions = Message.objects.filter(role="user", content__startswith="question")
        assert questions.count() == 6
        assert Message.objects.filter(role="assistant", reply_to__in=questions.values("id")).count() == 6
        [asked] = questions.active()
        assert [message.reply_to for message in Message.objects.active().in_session(asked.session_id)][3:] == [asked.id]

    def test_the_images_of_a_fork_come_along(self) -> None:
        chat = Chat()
        picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGFsbG8="}}
        chat.thread = [
            {"role": "user", "content": [{"type": "text", "text": "one"}, picture]},
            {"role": "assistant", "content": "1"},
        ]
        chat.ask("two")
        assert bytes(Attachment.objects.get().content) == b"hallo"
        assert Message.objects.get(content="one").metadata["attachments"]

    def test_two_processes_that_answer_one_question_leave_one_answer(self) -> None:
        chat = Chat()
        chat.ask("one")
        question = row(chat, "one")
        Session.objects.finish_turn(session_id=UUID(chat.session_id), content="late", reply_to=question.id)
        assert chat.stored == ["one", "late"]
        Session.objects.finish_turn(
            session_id=UUID(chat.session_id), content="", status=Status.FAILED, reply_to=question.id
        )
        assert chat.stored == ["one", "late", ""]


class TestWithoutAnyId:
    def nameless(self, **headers: str) -> Chat:
        return Chat("", user="", **headers)

    def test_a_thread_is_found_again_by_what_was_said(self) -> None:
        chat = self.nameless()
        sessions = set()
        for text in ("one", "two", "three"):
            chat.ask(text)
            sessions.add(chat.session_id)
        assert len(sessions) == 1
        assert chat.stored == chat.shown

    def test_two_threads_that_begin_alike_stay_apart(self) -> None:
        first, second = self.nameless(), self.nameless()
        for chat in (first, second):
            chat.ask("one")
        for chat, text in ((first, "two"), (second, "three"), (first, "four"), (second, "five")):
            chat.ask(text)
        assert first.session_id != second.session_id
        assert (first.stored, second.stored) == (first.shown, second.shown)
        assert not first.superseded + second.superseded

    def test_going_back_stays_in_the_session(self) -> None:
        chat = self.nameless()
        chat.ask("one")
        chat.ask("two")
        session = chat.session_id
        chat.regenerate()
        chat.edit(1, "another")
        chat.carry_on()
        assert chat.session_id == session
        assert Session.objects.count() == 1
        assert [spoken(text) for text in chat.stored] == [spoken(text) for text in chat.shown]

    def test_an_answer_that_broke_off_is_found_by_what_reached_the_client(self) -> None:
        chat = self.nameless()
        chat.ask("one")
        begun = chat.session_id
        chat.ask("two")
        answer = Message.objects.active().in_session(UUID(begun)).last()
        assert answer
        # Stopped in mid-answer: the server had said more than had arrived.
        longer = Branch.of(
            [*chat.history[:-1], HistoryItem("assistant", f"{answer.content} and more")], owner_id=None, user_id=""
        )
        Message.objects.filter(id=answer.id).update(
            status=Status.INTERRUPTED, content=f"{answer.content} and more", branch_hash=longer.end
        )
        chat.ask("three")
        assert chat.session_id == begun
        assert Session.objects.count() == 1

    def test_questions_that_never_arrived_begin_no_other_session(self) -> None:
        """EVI was away for a moment; the client has what was asked meanwhile all the same."""
        chat = self.nameless()
        chat.ask("one")
        begun = chat.session_id
        chat.thread += [{"role": "user", "content": text} for text in ("lost", "lost too")]
        chat.ask("two")
        assert (chat.session_id, chat.stored) == (begun, chat.shown)
        chat.ask("three")
        assert (Session.objects.count(), chat.stored, chat.superseded) == (1, chat.shown, [])

    def test_a_question_that_never_arrived_ends_up_in_its_own_of_two_threads(self) -> None:
        first, second = self.nameless(), self.nameless()
        for chat in (first, second):
            chat.ask("one")
        first.ask("two")
        second.thread.append({"role": "user", "content": "lost"})
        second.ask("three")
        assert first.session_id != second.session_id
        assert (first.stored, second.stored) == (first.shown, second.shown)

    def test_first_questions_that_never_arrived_are_nobody_elses_thread(self) -> None:
        chat, other = self.nameless(), self.nameless()
        chat.ask("one")
        other.thread = [{"role": "user", "content": "lost"}]
        other.ask("two")
        assert other.session_id != chat.session_id
        assert other.stored == other.shown

    def test_the_same_words_of_another_person_are_another_thread(self) -> None:
        chat = self.nameless()
        chat.ask("one")
        other = self.nameless(**{"X-OpenWebUI-User-Id": "bob"})
        other.thread = list(chat.thread)
        other.ask("two")
        assert other.session_id != chat.session_id
        assert len(chat.stored) == 2

    def test_hashes_of_two_people_never_meet(self) -> None:
        said = [HistoryItem("user", "one")]
        ends = {Branch.of(said, owner_id=owner, user_id=user).end for owner in (None, 1, 2) for user in ("", "a", "b")}
        assert len(ends) == 9

    def test_a_history_that_evi_never_saw_is_taken_in(self) -> None:
        chat = self.nameless()
        chat.thread = [{"role": "user", "content": "one"}, {"role": "assistant", "content": "1"}]
        chat.ask("two")
        chat.ask("three")
        assert chat.stored == chat.shown
        assert Session.objects.count() == 1


class TestTwoPeopleBehindOneKey:
    def test_the_same_chat_id_is_two_threads(self) -> None:
        ada = Chat()
        ada.ask("my secret")
        bob = Chat(ada.chat_id, user="bob")
        assert "secret" not in bob.ask("what was said?")
        bob.ask("and now?")
        ada.ask("mine")
        assert bob.session_id != ada.session_id
        assert (ada.stored, bob.stored) == (ada.shown, bob.shown)
        assert Session.objects.get(id=bob.session_id).user_id == "bob"

    def test_the_second_ones_thread_outlives_the_first_ones(self) -> None:
        ada = Chat()
        ada.ask("one")
        bob = Chat(ada.chat_id, user="bob")
        bob.ask("two")
        Session.objects.filter(id=ada.session_id).delete()
        bob.ask("three")
        assert bob.stored == bob.shown

    def test_a_session_id_of_somebody_else_stays_unknown(self) -> None:
        ada = Chat()
        ada.ask("my secret")
        response = Client().post(
            "/v1/chat/completions",
            json.dumps({"messages": [{"role": "user", "content": "what was said?"}]}),
            content_type="application/json",
            headers={"X-Session-ID": ada.session_id, "X-OpenWebUI-User-Id": "bob"},
        )
        assert response.status_code == 404
        assert Message.objects.count() == 2


def test_what_was_superseded_is_kept_from_the_person_and_shown_to_staff(admin_client: Client) -> None:
    chat = Chat()
    chat.ask("one")
    chat.edit(0, "another")
    address = f"/api/sessions/{chat.session_id}/messages"
    listed = Client().get(address, headers={"X-OpenWebUI-User-Id": "ada"}).json()
    assert [message["content"] for message in listed["results"]] == chat.shown
    assert '"one"' not in "".join(render_markdown(Session.objects.get(), every_message(UUID(chat.session_id))))
    page = admin_client.get(f"/admin/conversations/session/{chat.session_id}/change/").content.decode()
    assert "2 vervangen berichten" in page
    assert page.count(f'href="#message-{row(chat, "another").id}"') == 2


@pytest.mark.parametrize(
    "text",
    [
        "answer",
        " answer \n",
        '<details type="reasoning" done="true">\nhm\n</details>\nanswer',
        "<think>hm</think>answer",
    ],
)
def test_what_a_client_drops_does_not_count(text: str) -> None:
    root = uuid4()
    assert follow(root, "assistant", text) == follow(root, "assistant", "answer")


@pytest.mark.parametrize(
    "piece", ['<details type="reasoning" ', "<think>", "<details ", "</think>", "<", '<details type="reasoning">']
)
def test_a_text_made_of_tags_takes_no_longer_than_its_length_says(piece: str) -> None:
    """As a ratio in one run: twice the text takes about twice the time, and not four or eight times."""

    def seconds(length: int) -> float:
        text = piece * (length // len(piece))
        started = time.perf_counter()
        for _ in range(5):
            spoken(text)
        return time.perf_counter() - started

    seconds(20_000)
    assert seconds(160_000) < 40 * max(seconds(20_000), 1e-4)
