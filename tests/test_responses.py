"""OpenAI's Responses API as its own SDK uses it: against a real server, model and database."""

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import httpx
import openai
import pytest
from django.contrib.auth.models import User
from openai.types.responses import Response, ResponseOutputMessage, ResponseOutputText

from agentbridge.ingest import ingest
from conversations.accounts import create_api_key
from conversations.branches import thread_up_to
from conversations.models import AuditEntry, Message, Session
from tests import test_turns
from tests.processes import wait_for
from tests.stub_model import StubModel
from tests.test_turns import Site, given_to, said_in

pytestmark = pytest.mark.django_db(transaction=True)

stub, site, key, client = test_turns.stub, test_turns.site, test_turns.key, test_turns.client

URL = "https://example.org/ladders"
UNKNOWN = UUID("6f0c1f0e-3b52-4b8e-9a55-0d6c5e1b7a10")
TITLE_CALL = "### Task:\nGenerate a concise title.\n<chat_history>\nUSER: hi\n</chat_history>"


@pytest.fixture
def other(site: Site, client: openai.OpenAI) -> Iterator[openai.OpenAI]:
    """Another client of the same EVI."""
    with openai.OpenAI(
        base_url=f"{site.url}/v1", api_key=create_api_key(name="other", client="other"), max_retries=0
    ) as other:
        yield other


def ask(client: openai.OpenAI, text: Any, **options: Any) -> Response:
    response: Response = client.responses.create(model="evi", input=text, **options)
    return response


def session_of(response: Response) -> str:
    assert response.conversation
    return str(UUID(response.conversation.id.removeprefix("conv_")))


def message_of(response: Response) -> Message:
    return Message.objects.get(id=UUID(response.id.removeprefix("resp_")))


def part_of(response: Response) -> ResponseOutputText:
    [item] = response.output
    assert isinstance(item, ResponseOutputMessage)
    [part] = item.content
    assert isinstance(part, ResponseOutputText)
    return part


def active_in(session_id: str) -> list[str]:
    return [message.content.strip() for message in Message.objects.active().in_session(UUID(session_id))]


def stream_events(site: Site, key: str, body: dict[str, Any], **headers: str) -> list[dict[str, Any]]:
    """The data of every event, as a client without an SDK reads it."""
    response = httpx.post(
        f"{site.url}/v1/responses",
        json={"stream": True, **body},
        headers={"Authorization": f"Bearer {key}", **headers},
        timeout=30,
    )
    assert response.headers["Content-Type"].startswith("text/event-stream")
    return [json.loads(line[6:]) for line in response.text.splitlines() if line.startswith("data: ")]


@pytest.fixture
def ladders(tmp_path: Path) -> None:
    """A knowledge base of one guideline that stands on the web."""
    text = f"---\ntitle: Ladders\nurl: {URL}\n---\n\n## Hoogte\n\nEen ladder is ten hoogste 7,5 meter hoog.\n"
    (tmp_path / "ladders.md").write_text(text)
    ingest([tmp_path])


class TestOneResponse:
    def test_it_is_what_the_sdk_expects(self, client: openai.OpenAI) -> None:
        response = ask(client, "hello")
        # Strictly, where the SDK itself takes things as they come.
        Response.model_validate_json(response.model_dump_json(warnings="error"), strict=True)
        assert (response.object, response.status, response.model) == ("response", "completed", "evi")
        assert response.output_text == "You said: hello "

    def test_it_tells_the_tokens(self, client: openai.OpenAI) -> None:
        usage = ask(client, "hello").usage
        assert usage
        assert (usage.input_tokens, usage.output_tokens, usage.total_tokens) == (11, 7, 18)

    def test_it_is_named_after_the_stored_answer(self, client: openai.OpenAI) -> None:
        response = ask(client, "hello")
        answer = Message.objects.get(role="assistant")
        assert (response.id, response.output[0].id) == (f"resp_{answer.id.hex}", f"msg_{answer.id.hex}")
        assert session_of(response) == str(answer.session_id)

    @pytest.mark.parametrize(
        "metadata",
        [
            {"response": 5},
            {"response": {"id": "resp_forged"}},
            {"citations": 5},
            {"citations": [5, {"marker": [1], "url": "https://example.org"}]},
            {"input_tokens": "x", "output_tokens": None, "model": 3},
        ],
    )
    def test_an_answer_whose_metadata_came_from_a_file_is_told_all_the_same(
        self, client: openai.OpenAI, metadata: dict[str, Any]
    ) -> None:
        response = ask(client, "hello [1]")
        Message.objects.filter(role="assistant").update(metadata=metadata)
        told = client.responses.retrieve(response.id)
        assert (told.id, told.output_text) == (response.id, response.output_text)

    def test_the_header_names_the_session_too(self, client: openai.OpenAI) -> None:
        raw = client.responses.with_raw_response.create(model="evi", input="hello")
        assert raw.headers["X-Session-ID"] == session_of(raw.parse())

    def test_instructions_reach_the_model_and_are_not_said(self, client: openai.OpenAI, stub: StubModel) -> None:
        response = ask(client, "hello", instructions="be brief")
        assert "be brief" in [each["content"] for each in stub.requests[-1]["messages"] if each["role"] == "system"]
        assert [text for _, text, _ in said_in(session_of(response))] == ["hello", "You said: hello "]

    def test_settings_reach_the_model(self, client: openai.OpenAI, stub: StubModel) -> None:
        ask(client, "hello", temperature=0.5, top_p=0.25, max_output_tokens=99)
        request = stub.requests[-1]
        assert (request["temperature"], request["top_p"]) == (0.5, 0.25)
        assert 99 in (request.get("max_tokens"), request.get("max_completion_tokens"))

    def test_a_message_in_parts_is_read(self, client: openai.OpenAI, stub: StubModel) -> None:
        ask(client, [{"role": "user", "content": [{"type": "input_text", "text": "in parts"}]}])
        assert given_to(stub) == ["in parts"]

    def test_calls_of_tools_and_reasoning_are_passed_over(self, client: openai.OpenAI, stub: StubModel) -> None:
        others = [
            {"type": "function_call", "call_id": "1", "name": "clock", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "1", "output": "noon"},
            {"type": "reasoning", "id": "r", "summary": [], "content": {"odd": "shape"}},
            {"type": "item_reference", "id": "msg_1"},
        ]
        ask(client, [*others, {"type": "message", "role": "user", "content": "hello"}], tools=[{"type": "web_search"}])
        assert given_to(stub) == ["hello"]


class TestGoingOn:
    def test_the_next_question_goes_on_from_the_previous_response(self, client: openai.OpenAI, stub: StubModel) -> None:
        first = ask(client, "one")
        second = ask(client, "two", previous_response_id=first.id)
        assert given_to(stub) == ["one", "You said: one ", "two"]
        assert (second.previous_response_id, session_of(second)) == (first.id, session_of(first))
        assert active_in(session_of(first)) == ["one", "You said: one", "two", "You said: two"]

    def test_what_comes_before_the_question_in_the_input_is_taken_in(
        self, client: openai.OpenAI, stub: StubModel
    ) -> None:
        first = ask(client, "one")
        elsewhere = [{"role": "user", "content": "aside"}, {"role": "assistant", "content": "noted"}]
        ask(client, [*elsewhere, {"role": "user", "content": "two"}], previous_response_id=first.id)
        assert given_to(stub) == ["one", "You said: one ", "aside", "noted", "two"]
        assert active_in(session_of(first))[2:] == ["aside", "noted", "two", "You said: two"]

    def test_an_older_response_can_be_gone_on_from(self, client: openai.OpenAI, stub: StubModel) -> None:
        first = ask(client, "one")
        left = ask(client, "two", previous_response_id=first.id)
        other = ask(client, "three", previous_response_id=first.id)
        assert given_to(stub) == ["one", "You said: one ", "three"]
        assert session_of(other) == session_of(first)
        assert active_in(session_of(first)) == ["one", "You said: one", "three", "You said: three"]
        # What was left is still there.
        assert client.responses.retrieve(left.id).output_text == "You said: two "

    def test_a_branch_that_was_left_can_be_taken_up_again(self, client: openai.OpenAI, stub: StubModel) -> None:
        first = ask(client, "one")
        left = ask(client, "two", previous_response_id=first.id)
        ask(client, "three", previous_response_id=first.id)
        again = ask(client, "four", previous_response_id=left.id)
        assert given_to(stub) == ["one", "You said: one ", "two", "You said: two ", "four"]
        assert active_in(session_of(again)) == [text.strip() for text in [*given_to(stub), "You said: four"]]
        assert len(said_in(session_of(again))) == 8

    def test_back_and_forth_between_branches_nothing_is_mixed(self, client: openai.OpenAI, stub: StubModel) -> None:
        root = ask(client, "root")
        ends = {name: ask(client, name, previous_response_id=root.id) for name in ("a", "b")}
        for number in range(2):
            for name in ends:
                ends[name] = ask(client, f"{name}{number}", previous_response_id=ends[name].id)
                said = ["root", name, *(f"{name}{each}" for each in range(number + 1))]
                assert given_to(stub)[::2] == said
        assert Session.objects.count() == 1

    def test_a_question_asked_again_gets_another_answer_and_the_first_can_be_gone_on_from(
        self, client: openai.OpenAI, stub: StubModel
    ) -> None:
        first = ask(client, "one")
        answers = [ask(client, "two", previous_response_id=first.id) for _ in range(3)]
        assert len({answer.id for answer in answers}) == 3
        assert active_in(session_of(first)) == ["one", "You said: one", "two", "You said: two"]
        Message.objects.filter(id=message_of(answers[1]).id).update(content="the second")
        ask(client, "three", previous_response_id=answers[1].id)
        assert given_to(stub) == ["one", "You said: one ", "two", "the second", "three"]

    def test_two_at_once_from_one_response_are_two_branches(self, client: openai.OpenAI, stub: StubModel) -> None:
        first = ask(client, "one")
        with ThreadPoolExecutor(1) as pool:
            slow = pool.submit(ask, client, "wait two", previous_response_id=first.id)
            wait_for(lambda: stub.calls["wait two"])
            ask(client, "three", previous_response_id=first.id)
            assert given_to(stub) == ["one", "You said: one ", "three"]
            stub.go_on.set()
            left = slow.result()
        assert active_in(session_of(first)) == ["one", "You said: one", "three", "You said: three"]
        ask(client, "four", previous_response_id=left.id)
        assert given_to(stub) == ["one", "You said: one ", "wait two", "You said: wait two ", "four"]

    def test_a_conversation_is_gone_on_with(self, client: openai.OpenAI, stub: StubModel) -> None:
        first = ask(client, "one")
        assert first.conversation
        second = ask(client, "two", conversation=first.conversation.id)
        assert second.conversation == first.conversation
        third = ask(client, "three", conversation={"id": first.conversation.id})
        assert given_to(stub) == ["one", "You said: one ", "two", "You said: two ", "three"]
        ask(client, "four", conversation=session_of(third))
        assert len(said_in(session_of(first))) == 8

    def test_several_messages_are_added_to_a_conversation(
        self, client: openai.OpenAI, make_session: Callable[..., Session]
    ) -> None:
        session = make_session(owner=User.objects.get(username="client"))
        messages = [("user", "one"), ("assistant", "1"), ("user", "two")]
        for round_of in (1, 2):
            ask(client, [{"role": role, "content": text} for role, text in messages], conversation=str(session.id))
            assert active_in(str(session.id)) == ["one", "1", "two", "You said: two"] * round_of

    def test_a_history_without_an_id_is_found_by_what_was_said(self, client: openai.OpenAI) -> None:
        first = ask(client, "one")
        said = [{"role": "user", "content": "one"}, *(item.model_dump(exclude_none=True) for item in first.output)]
        second = ask(client, [*said, {"role": "user", "content": "two"}])
        assert session_of(second) == session_of(first)
        assert len(said_in(session_of(first))) == 4

    def test_chat_completions_go_on_in_the_same_session(self, client: openai.OpenAI, stub: StubModel) -> None:
        first = ask(client, "one")
        test_turns.ask(client, "two", session_of(first))
        assert given_to(stub) == ["one", "You said: one ", "two"]

    def test_a_retry_gets_the_same_response(self, client: openai.OpenAI, stub: StubModel) -> None:
        first = ask(client, "one")
        once, twice = (
            ask(client, "two", previous_response_id=first.id, extra_headers={"Idempotency-Key": "k1"}) for _ in range(2)
        )
        assert (once.id, once.output_text) == (twice.id, twice.output_text)
        assert stub.calls["two"] == 1

    def test_the_sdks_own_retry_does_not_leave_the_branch(self, client: openai.OpenAI, stub: StubModel) -> None:
        first = ask(client, "one")
        once, twice = (
            ask(client, "two", previous_response_id=first.id, extra_headers={"X-Stainless-Retry-Count": count})
            for count in ("0", "1")
        )
        assert once.id == twice.id
        assert stub.calls["two"] == 1


class TestThreads:
    """What `thread_up_to` makes of rows that no hash tells about."""

    def test_an_answer_that_was_regenerated_is_not_said_twice(self, make_session: Callable[..., Session]) -> None:
        session = make_session()
        question = session.messages.create(role="user", content="one")
        answers = [
            session.messages.create(role="assistant", content=text, reply_to=question.id, superseded_by=left_by)
            for text, left_by in (("first", question.id), ("second", question.id), ("third", None))
        ]
        assert [message.content for message in thread_up_to(answers[1])] == ["one", "second"]

    def test_what_was_left_earlier_is_not_in_it_and_what_was_left_later_is(
        self, make_session: Callable[..., Session]
    ) -> None:
        session = make_session()
        edited, question, later = uuid4(), uuid4(), uuid4()
        session.messages.create(role="user", content="typo", superseded_by=edited)
        session.messages.create(id=edited, role="user", content="edited", superseded_by=later)
        session.messages.create(role="assistant", content="well", reply_to=edited, superseded_by=later)
        session.messages.create(id=question, role="user", content="next", superseded_by=later)
        session.messages.create(role="assistant", content="", status="failed", reply_to=question, superseded_by=later)
        answer = session.messages.create(role="assistant", content="end", reply_to=question, superseded_by=later)
        session.messages.create(id=later, role="user", content="later")
        assert [message.content for message in thread_up_to(answer)] == ["edited", "well", "next", "end"]


class TestNotStoring:
    def test_nothing_is_stored(self, client: openai.OpenAI, stub: StubModel) -> None:
        raw = client.responses.with_raw_response.create(
            model="evi",
            store=False,
            input=[
                {"role": "user", "content": "one"},
                {"role": "assistant", "content": "1"},
                {"role": "user", "content": "two"},
            ],
        )
        response = raw.parse()
        assert given_to(stub) == ["one", "1", "two"]
        assert "X-Session-ID" not in raw.headers
        assert (response.to_dict()["store"], response.conversation) == (False, None)
        assert not Session.objects.exists()
        with pytest.raises(openai.NotFoundError):
            client.responses.retrieve(response.id)

    @pytest.mark.parametrize("where", ["previous_response_id", "conversation"])
    def test_nothing_is_read(self, where: str, client: openai.OpenAI) -> None:
        first = ask(client, "one")
        named = {"previous_response_id": first.id, "conversation": f"conv_{UUID(session_of(first)).hex}"}[where]
        with pytest.raises(openai.BadRequestError, match="send what was said before in input"):
            ask(client, "two", store=False, **{where: named})
        assert len(said_in(session_of(first))) == 2

    def test_a_background_call_is_answered_and_not_stored(self, client: openai.OpenAI) -> None:
        response = ask(client, TITLE_CALL)
        assert "title" in json.loads(response.output_text)
        assert (response.to_dict()["store"], response.conversation) == (False, None)
        assert not Session.objects.exists()

    def test_a_background_call_can_be_streamed(self, site: Site, key: str) -> None:
        events = stream_events(site, key, {"input": TITLE_CALL}, **{"X-Task": "title_generation"})
        assert "title" in json.loads(events[-1]["response"]["output"][0]["content"][0]["text"])
        assert not Session.objects.exists()


class TestStreaming:
    def test_the_events_come_in_openais_order(self, client: openai.OpenAI) -> None:
        events = list(client.responses.create(model="evi", input="hello", stream=True))
        assert [event.type for event in events] == [
            "response.created",
            "response.in_progress",
            "response.output_item.added",
            "response.content_part.added",
            *["response.output_text.delta"] * 3,
            "response.output_text.done",
            "response.content_part.done",
            "response.output_item.done",
            "response.completed",
        ]
        assert [event.sequence_number for event in events] == list(range(11))

    def test_the_sdk_puts_it_together(self, client: openai.OpenAI) -> None:
        with client.responses.stream(model="evi", input="hello") as stream:
            for _ in stream:
                pass
            response = stream.get_final_response()
        assert response.output_text == "You said: hello "
        assert response.usage
        assert response.usage.total_tokens == 18
        assert client.responses.retrieve(response.id).output_text == response.output_text

    def test_words_come_as_the_model_says_them(self, client: openai.OpenAI, stub: StubModel) -> None:
        with client.responses.create(model="evi", input="wait here", stream=True) as stream:
            said = [event.delta for _, event in zip(range(5), stream, strict=False) if hasattr(event, "delta")]
            assert said == ["You "]
            stub.go_on.set()
            assert list(stream)[-1].type == "response.completed"

    def test_each_event_has_its_name_in_a_line_of_its_own(self, site: Site, key: str) -> None:
        body = {"input": "hello", "stream": True}
        response = httpx.post(f"{site.url}/v1/responses", json=body, headers={"Authorization": f"Bearer {key}"})
        blocks = response.text.strip().split("\n\n")
        for block in blocks:
            name, data = block.split("\n")
            assert name == f"event: {json.loads(data[6:])['type']}"
        assert "[DONE]" not in response.text

    def test_it_goes_on_from_the_previous_response(self, client: openai.OpenAI, stub: StubModel) -> None:
        first = ask(client, "one")
        list(client.responses.create(model="evi", input="two", previous_response_id=first.id, stream=True))
        assert given_to(stub) == ["one", "You said: one ", "two"]

    def test_a_model_that_breaks_off_is_a_failed_response_and_the_words_are_kept(self, client: openai.OpenAI) -> None:
        last = list(client.responses.create(model="evi", input="break please", stream=True))[-1]
        assert last.type == "response.failed"
        assert last.response.status == "failed"
        assert last.response.error
        assert "model" in last.response.error.message
        assert last.response.output_text == "You said: "
        kept = client.responses.retrieve(last.response.id)
        assert (kept.status, kept.output_text) == ("incomplete", "You said: ")

    @pytest.mark.parametrize("stream", [False, True])
    def test_a_failure_before_the_first_word_is_a_plain_error(self, stream: bool, client: openai.OpenAI) -> None:
        with pytest.raises(openai.InternalServerError) as refusal:
            client.responses.create(model="evi", input="fail with 500", stream=stream)
        assert refusal.value.status_code == 502
        answer = Message.objects.get(role="assistant")
        kept = client.responses.retrieve(f"resp_{answer.id.hex}")
        assert (kept.status, kept.output) == ("failed", [])

    def test_leaving_keeps_the_words_as_incomplete(self, client: openai.OpenAI) -> None:
        stream = client.responses.create(model="evi", input="wait for me", stream=True)
        created = next(stream)
        assert created.type == "response.created"
        for event in stream:
            if event.type == "response.output_text.delta" and event.delta == "said: ":
                break
        stream.close()
        wait_for(lambda: Message.objects.filter(role="assistant").exists())
        assert said_in(session_of(created.response))[1] == ("assistant", "You said: ", "interrupted")
        kept = client.responses.retrieve(created.response.id)
        assert (kept.status, kept.output_text) == ("incomplete", "You said: ")


class TestOpenWebUI:
    CHAT: dict[str, str] = {"X-OpenWebUI-Chat-Id": "7d9c39a1-05d4-4a39-9a0f-5f3a0f1d1c11"}  # noqa: RUF012

    def thread(self, *texts: str) -> list[dict[str, Any]]:
        kinds = [("user", "input_text"), ("assistant", "output_text")]
        return [
            {"type": "message", "role": kinds[n % 2][0], "content": [{"type": kinds[n % 2][1], "text": text}]}
            for n, text in enumerate(texts)
        ]

    def test_its_chat_is_the_session_and_its_thread_the_truth(self, site: Site, key: str, stub: StubModel) -> None:
        stream_events(site, key, {"input": self.thread("one")}, **self.CHAT)
        stream_events(site, key, {"input": self.thread("one", "You said: one", "two")}, **self.CHAT)
        stream_events(site, key, {"input": self.thread("one", "You said: one", "edited")}, **self.CHAT)
        assert given_to(stub) == ["one", "You said: one ", "edited"]
        assert active_in(self.CHAT["X-OpenWebUI-Chat-Id"]) == ["one", "You said: one", "edited", "You said: edited"]

    def test_a_continued_answer_comes_back_in_parts_and_is_known(self, site: Site, key: str) -> None:
        stream_events(site, key, {"input": self.thread("one")}, **self.CHAT)
        stream_events(site, key, {"input": self.thread("one", "You said: one")}, **self.CHAT)
        answer = Message.objects.active().get(role="assistant")
        halves = [{"type": "output_text", "text": text} for text in (answer.content[:7], answer.content[7:])]
        [asked, _, again] = self.thread("one", "", "two")
        said = {"type": "message", "role": "assistant", "content": halves}
        stream_events(site, key, {"input": [asked, said, again]}, **self.CHAT)
        assert Message.objects.active().filter(id=answer.id).exists()

    @pytest.mark.usefixtures("ladders")
    def test_it_is_told_the_sources_and_what_is_being_done(self, site: Site, key: str, stub: StubModel) -> None:
        events = stream_events(site, key, {"input": "look up ladders"}, **self.CHAT)
        beside = [event["event"]["type"] for event in events if "event" in event]
        assert beside == ["status", "status", "source"]
        told = [event for event in events if "type" in event]
        assert [event["sequence_number"] for event in told] == list(range(len(told)))
        # It would make a second source of it.
        assert told[-1]["response"]["output"][0]["content"][0]["annotations"] == []

    @pytest.mark.usefixtures("ladders")
    def test_an_answer_that_broke_off_keeps_its_sources(self, site: Site, key: str) -> None:
        stream_events(site, key, {"input": "look up ladders and break"})
        answer = Message.objects.get(role="assistant")
        assert (answer.content.strip(), answer.status) == ("Found it [1]", "interrupted")
        assert [citation["url"] for citation in answer.citations] == [URL]

    @pytest.mark.usefixtures("ladders")
    def test_what_is_being_done_is_closed_when_the_model_fails(self, site: Site, key: str) -> None:
        events = stream_events(site, key, {"input": "look up ladders for ever"}, **self.CHAT)
        shown = [event["event"]["data"]["done"] for event in events if "event" in event]
        assert shown == [False, True] * (len(shown) // 2)
        assert (bool(shown), events[-1]["type"]) == (True, "response.failed")

    @pytest.mark.usefixtures("ladders")
    def test_a_program_is_told_the_sources_as_annotations(self, site: Site, key: str, stub: StubModel) -> None:
        events = stream_events(site, key, {"input": "look up ladders"})
        assert all("event" not in event for event in events)
        [added] = [event for event in events if event["type"] == "response.output_text.annotation.added"]
        text = events[-1]["response"]["output"][0]["content"][0]["text"]
        annotation = added["annotation"]
        assert (annotation["type"], annotation["url"]) == ("url_citation", URL)
        assert text[annotation["start_index"] : annotation["end_index"]] == "[1]"
        assert events[-1]["response"]["output"][0]["content"][0]["annotations"] == [annotation]
        assert events[-1]["response"]["citations"][0]["url"] == URL


class TestReading:
    def test_it_is_what_was_answered(self, client: openai.OpenAI) -> None:
        first = ask(client, "one")
        asked = {"metadata": {"ticket": "7"}, "temperature": 0.5, "max_output_tokens": 99}
        second = ask(client, "two", previous_response_id=first.id, **asked)
        read = client.responses.retrieve(second.id)
        differ = {"created_at"}
        assert read.model_dump(exclude=differ) == second.model_dump(exclude=differ)

    def test_the_addresses_of_its_sources_are_annotations(self, client: openai.OpenAI) -> None:
        response = ask(client, "one")
        citation = {"marker": 1, "chunk_id": str(uuid4()), "document_title": "Ladders", "url": URL}
        Message.objects.filter(role="assistant").update(content="So [1].", metadata={"citations": [citation]})
        part = part_of(client.responses.retrieve(response.id))
        assert [each.to_dict() for each in part.annotations] == [
            {"type": "url_citation", "start_index": 3, "end_index": 6, "url": URL, "title": "Ladders"}
        ]

    def test_a_deleted_response_is_gone_and_its_question_stays(self, client: openai.OpenAI, site: Site) -> None:
        response = ask(client, "one")
        deleted = httpx.delete(
            f"{site.url}/v1/responses/{response.id}", headers={"Authorization": f"Bearer {client.api_key}"}
        )
        assert deleted.json() == {"id": response.id, "object": "response", "deleted": True}
        assert said_in(session_of(response)) == [("user", "one", "complete")]
        [entry] = AuditEntry.objects.all()
        assert (entry.action, entry.actor, entry.subject) == ("answer_deleted", "client", str(session_of(response)))
        assert entry.counts == {"messages": 1}
        for gone in (client.responses.retrieve, client.responses.delete):
            with pytest.raises(openai.NotFoundError):
                gone(response.id)
        with pytest.raises(openai.NotFoundError):
            ask(client, "two", previous_response_id=response.id)

    def test_a_question_is_no_response(self, client: openai.OpenAI) -> None:
        ask(client, "one")
        question = Message.objects.get(role="user")
        with pytest.raises(openai.NotFoundError):
            client.responses.delete(f"resp_{question.id.hex}")
        assert Message.objects.count() == 2

    @pytest.mark.parametrize("method", ["PUT", "POST", "PATCH"])
    def test_other_methods_are_refused(self, method: str, site: Site) -> None:
        response = httpx.request(method, f"{site.url}/v1/responses/resp_1")
        assert (response.status_code, response.headers["Allow"]) == (405, "GET, DELETE")


class TestWhoMay:
    def test_another_clients_response_is_not_found(self, client: openai.OpenAI, other: openai.OpenAI) -> None:
        mine = ask(client, "mine")
        assert mine.conversation
        refused: list[Callable[[], Any]] = [
            lambda: other.responses.retrieve(mine.id),
            lambda: other.responses.delete(mine.id),
            lambda: ask(other, "yours?", previous_response_id=mine.id),
            lambda: ask(other, "yours?", conversation=session_of(mine)),
        ]
        for attempt in refused:
            with pytest.raises(openai.NotFoundError):
                attempt()
        assert len(said_in(session_of(mine))) == 2
        assert Session.objects.count() == 1

    def test_another_persons_response_is_not_found(self, client: openai.OpenAI) -> None:
        mine = ask(client, "mine", user="anna")
        for attempt in ({"previous_response_id": mine.id}, {"conversation": session_of(mine)}):
            for person in ("bram", ""):
                with pytest.raises(openai.NotFoundError):
                    ask(client, "yours?", user=person, **attempt)
        with pytest.raises(openai.NotFoundError):
            client.responses.retrieve(mine.id)
        assert client.responses.retrieve(mine.id, extra_query={"user": "anna"}).id == mine.id
        ask(client, "mine again", user="anna", previous_response_id=mine.id)

    @pytest.mark.parametrize("path", ["responses", "responses/resp_1"])
    def test_a_wrong_key_opens_nothing(self, path: str, site: Site) -> None:
        headers = {"Authorization": "Bearer wrong"}
        url = f"{site.url}/v1/{path}"
        response = httpx.post(url, json={"input": "hi"}, headers=headers)
        if path != "responses":
            response = httpx.get(url, headers=headers)
        assert (response.status_code, response.json()["error"]["code"]) == (401, "invalid_api_key")


class TestRefusals:
    @pytest.mark.parametrize(
        ("body", "param"),
        [
            ({}, "input"),
            ({"input": 5}, "input"),
            ({"input": []}, "input"),
            ({"input": "  "}, "input"),
            ({"input": [{"role": "assistant", "content": "hi"}]}, "input"),
            ({"input": [{"type": "function_call_output", "call_id": "1", "output": "noon"}]}, "input"),
            ({"input": [{"role": "king", "content": "hi"}]}, "input.0.role"),
            ({"input": ["hi"]}, "input.0"),
            ({"input": "nul \0"}, "input"),
            ({"input": "x" * 32_001}, "input"),
            ({"input": "hi", "instructions": "nul \0"}, "instructions"),
            ({"input": [{"role": "user", "content": "hi"}] * 1001}, "input"),
            ({"input": "hi", "temperature": 3}, "temperature"),
            ({"input": "hi", "max_output_tokens": 0}, "max_output_tokens"),
            ({"input": "hi", "metadata": {"key": 5}}, "metadata.key"),
            ({"input": "hi", "metadata": {str(n): "" for n in range(17)}}, "metadata"),
            ({"input": "hi", "text": {"format": {"type": "json_object"}}}, "text.format"),
            ({"input": "hi", "conversation": "a", "previous_response_id": "b"}, "previous_response_id"),
            ({"input": "hi", "conversation": 5}, "conversation"),
        ],
    )
    def test_what_is_not_right_is_named(self, body: dict[str, Any], param: str, site: Site) -> None:
        response = httpx.post(f"{site.url}/v1/responses", json=body)
        error = response.json()["error"]
        assert (response.status_code, error["type"], error["param"]) == (400, "invalid_request_error", param)
        assert not Session.objects.exists()

    @pytest.mark.parametrize("name", ["previous_response_id", "conversation"])
    @pytest.mark.parametrize(
        "unknown", ["x", "resp_", f"resp_{UNKNOWN.hex}", f"conv_{UNKNOWN.hex}", str(UNKNOWN), "\0"]
    )
    def test_what_does_not_exist_is_not_found(self, name: str, unknown: str, site: Site) -> None:
        response = httpx.post(f"{site.url}/v1/responses", json={"input": "hi", name: unknown})
        assert (response.status_code, response.json()["error"]["param"]) == (404, name)
        assert not Session.objects.exists()

    def test_only_json_is_read(self, site: Site) -> None:
        assert httpx.post(f"{site.url}/v1/responses", content=b"input=hi").status_code == 415

    def test_only_post_is_answered(self, site: Site) -> None:
        response = httpx.get(f"{site.url}/v1/responses")
        assert (response.status_code, response.headers["Allow"]) == (405, "POST")
