"""`manage.py import_openwebui`: OpenWebUI's own export becomes sessions, once, however often it is taken in."""

import asyncio
import base64
import json
import tracemalloc
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4, uuid5

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.test import AsyncClient
from django.utils import timezone
from pytest_django import Settings

from agentbridge.agent import IMAGE_ALONE
from conversations.accounts import create_api_key
from conversations.api.openwebui import source_of
from conversations.models import Attachment, Message, Session
from conversations.openwebui_export import NotAnExportError, read_export
from conversations.retention import delete_expired_sessions

pytestmark = pytest.mark.django_db(transaction=True)

# Of OpenWebUI 0.12.4, after talking with EVI in a browser: an edit, a regeneration, a file, an image, and a failure.
EXPORT = Path(__file__).parent / "data" / "openwebui-export.json"
CHAT = "954e3090-7f62-4cd0-881a-e4513e756aec"
WITH_IMAGE = "872074a1-f52c-40f8-a34d-7edb908ecae5"
WITH_FILE = "2c2ed300-3538-4090-86f2-0cf32f88052e"
FAILED = "f4adff3a-6dec-4098-b19f-a96837129753"
PERSON = "2b6daab0-1069-483c-af6a-b2fa1e126afe"
BEGUN = 1_790_000_000
PNG = "data:image/png;base64," + base64.b64encode(b"\x89PNG, as it were").decode()


@pytest.fixture(autouse=True)
def key() -> str:
    return create_api_key(name="openwebui", client="default")


def exported(
    *messages: dict[str, Any], chat_id: str = "", current: str | None = None, updated: int = 0, **about: Any
) -> dict[str, Any]:
    """A chat; a message follows the one before it, unless it says what it follows."""
    tree: dict[str, Any] = {}
    before = None
    for number, message in enumerate(messages):
        key = message.get("id", f"m{number}")
        tree[key] = {"id": key, "parentId": before, "timestamp": BEGUN + number, "content": "", **message}
        before = key
    history = {"messages": tree, "currentId": before if current is None else current}
    return {
        "id": chat_id or str(uuid4()),
        "user_id": PERSON,
        "title": "Ladders",
        "chat": {"title": "Ladders", "history": history, "messages": []},
        "created_at": BEGUN,
        "updated_at": updated or BEGUN + len(messages),
        "pinned": False,
        **about,
    }


def user(content: Any, **about: Any) -> dict[str, Any]:
    return {"role": "user", "content": content, **about}


def assistant(content: Any, **about: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, "done": True, **about}


def take_in(tmp_path: Path, export: Any, *arguments: str) -> str:
    path = export
    if not isinstance(export, Path):
        path = tmp_path / "export.json"
        path.write_text(json.dumps([export] if isinstance(export, dict) and "chat" in export else export))
    out = StringIO()
    call_command("import_openwebui", str(path), *arguments, stdout=out)
    return out.getvalue().strip()


def refusal(tmp_path: Path, export: Any) -> str:
    """What is reported of the chats that are not taken in."""
    path = tmp_path / "export.json"
    path.write_text(json.dumps(export))
    out = StringIO()
    with pytest.raises(CommandError, match="could not be taken in"):
        call_command("import_openwebui", str(path), stdout=out)
    return out.getvalue()


def said_in(chat_id: str | UUID) -> list[tuple[str, str]]:
    found = Message.objects.active().filter(session__external_id=str(chat_id)).order_by("created_at", "seq")
    return list(found.values_list("role", "content"))


def everything() -> tuple[list[Any], ...]:
    return (
        list(Session.objects.order_by("id").values()),
        list(Message.objects.order_by("seq").values()),
        list(Attachment.objects.order_by("id").values("id", "session_id", "digest")),
    )


def ask(chat_id: str, said: Iterable[tuple[str, str]], question: str, *, key: str, person: str = PERSON) -> None:
    """The next question as OpenWebUI sends it: with all that was said."""

    async def request() -> int:
        response = await AsyncClient().post(
            "/v1/chat/completions",
            json.dumps(
                {
                    "model": "evi",
                    "messages": [
                        *({"role": role, "content": content} for role, content in said if content),
                        {"role": "user", "content": question},
                    ],
                }
            ),
            content_type="application/json",
            headers={
                "Authorization": f"Bearer {key}",
                "X-OpenWebUI-Chat-Id": chat_id,
                "X-OpenWebUI-User-Id": person,
            },
        )
        return response.status_code

    assert asyncio.run(request()) == 200


class TestWhatOpenWebUIExports:
    def test_every_chat_becomes_a_session_of_the_same_id(self, tmp_path: Path) -> None:
        out = take_in(tmp_path, EXPORT)
        assert out.startswith(
            "5 chats: 5 new, 0 brought up to date, 0 unchanged, 0 without messages; 15 messages added."
        )
        session = Session.objects.get(id=CHAT)
        assert (session.external_id, session.channel, session.user_id) == (CHAT, "openwebui", PERSON)
        assert session.owner == User.objects.get(username="default")
        assert (session.title, session.pinned, session.message_count) == ("Vereisten voor valbeveiliging", False, 7)
        assert session.created_at == datetime.fromtimestamp(1795018420, tz=UTC)

    def test_the_shown_branch_is_active_and_the_rest_is_superseded(self, tmp_path: Path) -> None:
        take_in(tmp_path, EXPORT)
        first, answer, edited, its_answer, question, left, shown = Message.objects.in_session(UUID(CHAT))
        assert [m.superseded_by for m in (first, answer, question, shown)] == [None] * 4
        # The edited question gave way to the one that was asked instead, the first answer to one to the same question.
        assert [m.superseded_by for m in (edited, its_answer, left)] == [question.id] * 3
        assert [m.reply_to for m in (answer, its_answer, left, shown)] == [
            first.id,
            edited.id,
            question.id,
            question.id,
        ]

    def test_messages_have_the_times_of_the_export_and_their_order(self, tmp_path: Path) -> None:
        take_in(tmp_path, EXPORT)
        times = [message.created_at for message in Message.objects.in_session(UUID(CHAT))]
        assert times == sorted(set(times))
        assert times[0] == datetime.fromtimestamp(1795018419, tz=UTC)

    def test_sources_become_citations_that_give_the_same_sources_again(self, tmp_path: Path) -> None:
        take_in(tmp_path, EXPORT)
        answer = Message.objects.in_session(UUID(CHAT))[1]
        citations = answer.metadata["citations"]
        chat = next(chat for chat in json.loads(EXPORT.read_text()) if chat["id"] == CHAT)
        sources = [m["sources"] for m in chat["chat"]["history"]["messages"].values() if m["content"] == answer.content]
        assert [source_of(citation) for citation in citations] == sources[0]
        assert [(c["marker"], c["document_title"], c["source"]) for c in citations] == [
            (1, "Valbeveiliging", "NEN-EN 361"),
            (2, "Valbeveiliging", "NEN-EN 361"),
        ]

    def test_files_and_images_that_are_not_in_the_export_are_known_by_name(self, tmp_path: Path) -> None:
        take_in(tmp_path, EXPORT)
        assert Message.objects.in_session(UUID(WITH_FILE))[0].metadata == {"files": ["note.txt"]}
        assert Message.objects.in_session(UUID(WITH_IMAGE))[0].metadata == {"files": ["red.png"]}

    def test_an_answer_that_failed_is_kept_as_that(self, tmp_path: Path) -> None:
        take_in(tmp_path, EXPORT)
        failed = Message.objects.in_session(UUID(FAILED))[1]
        assert (failed.role, failed.status, failed.content) == ("assistant", "failed", "")
        assert failed.metadata["error"] == "Model '' was not found"

    @pytest.mark.parametrize("chat_id", [CHAT, WITH_IMAGE, WITH_FILE, FAILED])
    def test_the_next_question_in_openwebui_is_simply_appended(self, tmp_path: Path, key: str, chat_id: str) -> None:
        take_in(tmp_path, EXPORT)
        before = list(Message.objects.in_session(UUID(chat_id)).values())
        ask(chat_id, said_in(chat_id), "En daarna?", key=key)
        after = list(Message.objects.in_session(UUID(chat_id)).values())
        assert after[:-2] == before
        assert [(m["role"], m["superseded_by"]) for m in after[-2:]] == [("user", None), ("assistant", None)]
        assert after[-2]["content"] == "En daarna?"

    def test_chats_one_to_a_line_are_an_export_too(self, tmp_path: Path) -> None:
        lines = tmp_path / "all.ndjson"
        lines.write_text("\n".join(json.dumps(chat) for chat in json.loads(EXPORT.read_text())))
        assert take_in(tmp_path, lines).startswith("5 chats: 5 new")
        assert take_in(tmp_path, EXPORT).startswith("5 chats: 0 new, 0 brought up to date, 5 unchanged")


class TestAgain:
    def test_the_same_file_again_changes_nothing(self, tmp_path: Path) -> None:
        chat = exported(user("Mag dit?", files=[{"type": "image", "url": PNG}]), assistant("Ja"))
        take_in(tmp_path, EXPORT)
        take_in(tmp_path, chat)
        before = everything()
        assert "5 unchanged" in take_in(tmp_path, EXPORT)
        assert "1 unchanged" in take_in(tmp_path, chat)
        assert everything() == before

    def test_chats_that_were_held_with_evi_are_known_again(self, tmp_path: Path, key: str) -> None:
        chat_id = str(uuid4())
        ask(chat_id, [], "Hoe hoog?", key=key)
        ask(chat_id, said_in(chat_id), "En hoe breed?", key=key)
        said = said_in(chat_id)
        before = everything()
        now = int(timezone.now().timestamp())
        # OpenWebUI has whole seconds, and gives an answer the time of its question.
        tree = [{"role": role, "content": f" {text}\n", "timestamp": now} for role, text in said]
        assert "1 unchanged" in take_in(tmp_path, exported(*tree, chat_id=chat_id, updated=now, title="New Chat"))
        assert everything() == before

    def test_an_answer_that_was_given_twice_in_the_same_words_is_two(self, tmp_path: Path, key: str) -> None:
        chat_id = str(uuid4())
        ask(chat_id, [], "Hoe hoog?", key=key)
        ask(chat_id, [], "Hoe hoog?", key=key)
        before = everything()
        [(_, question), (_, answer)] = said_in(chat_id)
        tree = [user(question, id="q"), assistant(answer, id="a"), assistant(answer, id="b", parentId="q")]
        chat = exported(*tree, chat_id=chat_id, title="New Chat")
        assert "1 unchanged" in take_in(tmp_path, chat)
        assert everything() == before

    def test_more_messages_are_added(self, tmp_path: Path) -> None:
        chat_id = str(uuid4())
        said = [user("Een"), assistant("1"), user("Twee"), assistant("2")]
        take_in(tmp_path, exported(*said[:2], chat_id=chat_id))
        out = take_in(tmp_path, exported(*said, chat_id=chat_id))
        assert out.startswith(
            "1 chats: 0 new, 1 brought up to date, 0 unchanged, 0 without messages; 2 messages added."
        )
        assert [text for _, text in said_in(chat_id)] == ["Een", "1", "Twee", "2"]

    def test_an_edited_answer_takes_the_place_of_the_old_one(self, tmp_path: Path, key: str) -> None:
        chat_id = str(uuid4())
        said = [user("Een"), assistant("1"), user("Twee"), assistant("2")]
        take_in(tmp_path, exported(*said, chat_id=chat_id))
        said[1] = assistant("Eén")
        for _ in range(2):
            take_in(tmp_path, exported(*said, chat_id=chat_id, updated=BEGUN + 100))
            assert [text for _, text in said_in(chat_id)] == ["Een", "Eén", "Twee", "2"]
        old = Message.objects.get(content="1")
        assert old.superseded_by == Message.objects.get(content="Een").id
        assert Message.objects.count() == 5
        ask(chat_id, said_in(chat_id), "Drie", key=key)
        assert Message.objects.exclude(superseded_by=None).get() == old

    def test_an_edit_that_was_taken_back_brings_the_old_one_back(self, tmp_path: Path) -> None:
        chat_id = str(uuid4())
        for text in ("1", "Eén", "1"):
            take_in(tmp_path, exported(user("Een"), assistant(text), chat_id=chat_id))
        assert said_in(chat_id) == [("user", "Een"), ("assistant", "1")]
        assert Message.objects.count() == 3

    def test_another_branch_that_is_shown_now_is_active(self, tmp_path: Path) -> None:
        chat_id = str(uuid4())
        tree = [user("Een", id="q"), assistant("1", id="a"), assistant("I", id="b", parentId="q")]
        take_in(tmp_path, exported(*tree, chat_id=chat_id, current="a"))
        assert said_in(chat_id) == [("user", "Een"), ("assistant", "1")]
        take_in(tmp_path, exported(*tree, chat_id=chat_id, current="b"))
        assert said_in(chat_id) == [("user", "Een"), ("assistant", "I")]

    def test_what_was_said_in_evi_since_the_export_stays(self, tmp_path: Path, key: str) -> None:
        take_in(tmp_path, EXPORT)
        ask(CHAT, said_in(CHAT), "En daarna?", key=key)
        before = everything()
        assert "5 unchanged" in take_in(tmp_path, EXPORT)
        assert everything() == before

    def test_what_evi_never_saw_of_a_chat_that_went_on_in_it_is_kept_beside(self, tmp_path: Path, key: str) -> None:
        chat_id = str(uuid4())
        ask(chat_id, [("user", "Een"), ("assistant", "1")], "Twee", key=key)
        before = said_in(chat_id)
        take_in(tmp_path, exported(user("Een"), assistant("1"), user("Nooit"), assistant("0"), chat_id=chat_id))
        assert said_in(chat_id) == before
        question = Message.objects.get(content="Twee")
        assert [m.superseded_by for m in Message.objects.filter(content__in=["Nooit", "0"])] == [question.id] * 2

    def test_messages_that_were_deleted_in_openwebui_are_superseded(self, tmp_path: Path, key: str) -> None:
        chat_id = str(uuid4())
        ask(chat_id, [], "Een", key=key)
        ask(chat_id, said_in(chat_id), "Twee", key=key)
        later = int(timezone.now().timestamp()) + 60
        take_in(
            tmp_path,
            exported(*({"role": r, "content": t} for r, t in said_in(chat_id)[:2]), chat_id=chat_id, updated=later),
        )
        assert [text for role, text in said_in(chat_id) if role == "user"] == ["Een"]

    def test_a_title_that_the_chat_got_later_is_taken_over_and_one_of_evi_stays(self, tmp_path: Path) -> None:
        chat_id = str(uuid4())
        take_in(tmp_path, exported(user("Een"), chat_id=chat_id, title="New Chat"))
        assert Session.objects.get().title == ""
        take_in(tmp_path, exported(user("Een"), chat_id=chat_id, title="Ladders"))
        take_in(tmp_path, exported(user("Een"), chat_id=chat_id, title="Trappen"))
        assert Session.objects.get().title == "Ladders"
        later = int(timezone.now().timestamp()) + 60
        take_in(tmp_path, exported(user("Een"), chat_id=chat_id, title="Trappen", updated=later))
        assert Session.objects.get().title == "Trappen"

    def test_a_chat_that_was_pinned_later_is_pinned_and_never_unpinned(self, tmp_path: Path) -> None:
        chat_id, later = str(uuid4()), int(timezone.now().timestamp()) + 60
        take_in(tmp_path, exported(user("Een"), chat_id=chat_id))
        take_in(tmp_path, exported(user("Een"), chat_id=chat_id, pinned=True, updated=later))
        assert Session.objects.get().pinned
        take_in(tmp_path, exported(user("Een"), chat_id=chat_id, updated=later + 60))
        assert Session.objects.get().pinned

    def test_a_dry_run_says_the_same_and_changes_nothing(self, tmp_path: Path) -> None:
        before = everything()
        out = take_in(tmp_path, EXPORT, "--dry-run")
        assert "5 new" in out
        assert out.endswith("Nothing was changed: this was a dry run.")
        assert everything() == before


class TestHowLongTheyStay:
    def test_an_old_chat_is_not_gone_the_next_night(self, tmp_path: Path) -> None:
        old = int((timezone.now() - timedelta(days=400)).timestamp())
        assert "deleted in 30 days" in take_in(tmp_path, exported(user("Een"), updated=old))
        assert delete_expired_sessions().sessions == 0

    def test_with_its_original_times_it_is_and_that_is_said(self, tmp_path: Path) -> None:
        old = int((timezone.now() - timedelta(days=400)).timestamp())
        chats = [exported(user("Een"), updated=old), exported(user("Twee"), updated=old, pinned=True)]
        assert "1 of them were not used for 30 days" in take_in(tmp_path, chats, "--original-times")
        assert Session.objects.get(pinned=False).last_accessed == datetime.fromtimestamp(old, tz=UTC)
        assert delete_expired_sessions().sessions == 1

    def test_sessions_are_listed_in_the_order_of_the_export(self, tmp_path: Path) -> None:
        chats = [exported(user("Een")) for _ in range(5)]
        take_in(tmp_path, chats)
        assert [str(session.id) for session in Session.objects.all()] == [chat["id"] for chat in chats]

    def test_a_session_that_was_used_since_keeps_that_time(self, tmp_path: Path, key: str) -> None:
        chat_id = str(uuid4())
        ask(chat_id, [], "Een", key=key)
        used = Session.objects.get().last_accessed
        take_in(tmp_path, exported(user("Een"), assistant("iets anders"), chat_id=chat_id), "--original-times")
        assert Session.objects.get().last_accessed == used


class TestWhose:
    def test_the_client_of_openwebuis_key_is_the_default(self, tmp_path: Path) -> None:
        User.objects.all().delete()
        create_api_key(name="openwebui", client="kantoor")
        take_in(tmp_path, EXPORT)
        assert {session.owner.username for session in Session.objects.all() if session.owner} == {"kantoor"}

    def test_an_unknown_client_is_refused_with_those_there_are(self, tmp_path: Path) -> None:
        User.objects.create_superuser("admin")
        with pytest.raises(CommandError, match=r"no client called 'kantor'. There are: default$"):
            take_in(tmp_path, EXPORT, "--client", "kantor")

    def test_two_keys_of_that_name_need_a_choice(self, tmp_path: Path) -> None:
        create_api_key(name="openwebui", client="kantoor")
        with pytest.raises(CommandError, match="Choose a --client: default, kantoor"):
            take_in(tmp_path, EXPORT)
        assert "5 new" in take_in(tmp_path, EXPORT, "--client", "kantoor")

    def test_each_chat_belongs_to_its_own_person(self, tmp_path: Path) -> None:
        take_in(tmp_path, [exported(user("Een"), user_id="ada"), exported(user("Een"), user_id="bob")])
        assert {session.user_id for session in Session.objects.all()} == {"ada", "bob"}

    def test_without_users_they_are_nobodys_as_a_connection_without_users_has_them(
        self, tmp_path: Path, key: str
    ) -> None:
        chat = exported(user("Een"), assistant("1"))
        take_in(tmp_path, chat, "--without-users")
        ask(chat["id"], said_in(chat["id"]), "Twee", key=key, person="")
        assert (Session.objects.get().user_id, Session.objects.get().message_count) == ("", 4)

    def test_somebody_elses_session_of_that_id_is_reported_and_left_alone(self, tmp_path: Path) -> None:
        theirs = Session.objects.create(user_id="eve")
        chats = [exported(user("Een"), chat_id=str(theirs.id)), exported(user("Twee"))]
        assert f"{theirs.id}: a session of this id belongs to somebody else" in refusal(tmp_path, chats)
        assert list(Message.objects.values_list("content", flat=True)) == ["Twee"]

    def test_a_chat_that_lives_beside_somebody_elses_session_is_found(self, tmp_path: Path, key: str) -> None:
        theirs = Session.objects.create(user_id="eve")
        ask(str(theirs.id), [], "Een", key=key)
        take_in(tmp_path, exported(user("Een"), assistant("1"), chat_id=str(theirs.id)))
        assert not theirs.messages.exists()
        assert Session.objects.get(external_id=str(theirs.id)).messages.filter(content="1").exists()

    def test_an_id_that_is_no_uuid_names_the_thread(self, tmp_path: Path, key: str) -> None:
        take_in(tmp_path, exported(user("Een"), assistant("1"), chat_id="oud-42"))
        ask("oud-42", said_in("oud-42"), "Twee", key=key)
        assert Session.objects.get().message_count == 4


class TestWhatIsSaid:
    def test_reasoning_and_calls_of_tools_are_no_part_of_an_answer(self, tmp_path: Path, key: str) -> None:
        content = (
            '<details type="reasoning" done="true"><summary>Thought</summary>\n> Hm\n</details>\n'
            '<details type="tool_calls" name="zoek"><summary>Tool</summary></details>\nJa.'
        )
        chat = exported(user("Mag dit?"), assistant(content))
        take_in(tmp_path, chat)
        assert said_in(chat["id"]) == [("user", "Mag dit?"), ("assistant", "Ja.")]
        ask(chat["id"], [("user", "Mag dit?"), ("assistant", content)], "Zeker?", key=key)
        assert not Message.objects.exclude(superseded_by=None).exists()

    def test_an_answer_in_parts_is_one_message_and_goes_on_as_it_is_replayed(self, tmp_path: Path, key: str) -> None:
        output = [
            {"type": "reasoning", "content": [{"type": "output_text", "text": "Hm"}]},
            {"type": "message", "content": [{"type": "output_text", "text": "Ik zoek."}]},
            {"type": "function_call", "call_id": "c", "name": "zoek", "status": "completed"},
            {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "…"}]},
            {"type": "message", "content": [{"type": "output_text", "text": "Gevonden."}]},
        ]
        chat = exported(user("Zoek"), assistant("Ik zoek. Gevonden.", output=output))
        take_in(tmp_path, chat)
        assert said_in(chat["id"])[1] == ("assistant", "Ik zoek.\nGevonden.")
        ask(chat["id"], [("user", "Zoek"), ("assistant", "Ik zoek."), ("assistant", "Gevonden.")], "En nu?", key=key)
        assert not Message.objects.exclude(superseded_by=None).exists()
        assert Message.objects.count() == 4

    def test_an_image_is_kept_once(self, tmp_path: Path) -> None:
        picture = {"type": "image", "url": PNG, "name": "ladder.png"}
        parts = [{"type": "text", "text": "En deze?"}, {"type": "image_url", "image_url": {"url": PNG}}]
        chat = exported(user("", files=[picture]), assistant("Een ladder"), user(parts))
        take_in(tmp_path, chat)
        kept = Attachment.objects.get()
        assert bytes(kept.content) == b"\x89PNG, as it were"
        first, _, second = Message.objects.in_session(UUID(chat["id"]))
        assert (first.content, second.content) == (IMAGE_ALONE, "En deze?")
        attached = [message.metadata["attachments"][0] for message in (first, second)]
        assert [each["digest"] for each in attached] == [kept.digest] * 2
        assert [each["name"] for each in attached] == ["ladder.png", ""]

    def test_what_comes_from_tools_and_systems_is_passed_over(self, tmp_path: Path) -> None:
        chat = exported(
            {"role": "system", "content": "Wees kort"},
            user("Een"),
            {"role": "tool", "content": "{}"},
            {"done": True},
            assistant("1"),
            {"role": "wizard", "content": "Abra"},
        )
        take_in(tmp_path, chat)
        assert said_in(chat["id"]) == [("user", "Een"), ("assistant", "1")]
        assert Message.objects.get(content="1").reply_to == Message.objects.get(content="Een").id

    def test_an_answer_that_broke_off_says_so(self, tmp_path: Path) -> None:
        chat = exported(
            user("Een"),
            assistant("Nou", error={"content": {"detail": "weg"}}),
            user("Twee"),
            assistant("O", done=False),
        )
        take_in(tmp_path, chat)
        answers = Message.objects.filter(role="assistant").order_by("created_at")
        assert [(m.content, m.status) for m in answers] == [("Nou", "interrupted"), ("O", "interrupted")]

    def test_a_long_message_is_taken_in_whole(self, tmp_path: Path, settings: Settings) -> None:
        chat = exported(user("x" * (settings.EVI.max_message_chars + 1)))
        take_in(tmp_path, chat)
        assert len(said_in(chat["id"])[0][1]) == settings.EVI.max_message_chars + 1

    def test_sources_of_any_kind_become_citations(self, tmp_path: Path) -> None:
        sources = [
            {
                "source": {"name": "nota.pdf", "id": "f1"},
                "document": ["a" * 1000, "b"],
                "metadata": [{"source": "nota.pdf", "page": 1}, {"source": "nota.pdf"}],
                "distances": [0.5],
            },
            {
                "source": {"name": "web", "url": "javascript:alert(1)"},
                "document": ["c"],
                "metadata": ["?"],
                "distances": "?",
            },
            {"source": None},
            {"document": [None], "metadata": [{"source": "https://example.org/a", "name": "A"}]},
            "?",
            None,
        ]
        take_in(tmp_path, exported(user("Een"), assistant("[1][2][3]", citations=sources)))
        citations = Message.objects.get(role="assistant").metadata["citations"]
        found = [(c["marker"], c["document_title"], c["url"], c["similarity"]) for c in citations]
        assert found[:2] == [(1, "nota.pdf", "", 0.5), (2, "web", "", None)]
        assert found[-1] == (4, "A", "https://example.org/a", None)
        assert len(citations[0]["excerpt"]) == 300
        assert all(source_of(citation) for citation in citations)

    def test_an_export_without_a_history_is_a_list_of_messages(self, tmp_path: Path) -> None:
        chat = exported()
        chat["chat"] = {"messages": [user("Een"), assistant("1"), user("Twee"), assistant("2")]}
        take_in(tmp_path, chat)
        assert [text for _, text in said_in(chat["id"])] == ["Een", "1", "Twee", "2"]

    def test_a_bare_chat_is_taken_in(self, tmp_path: Path) -> None:
        chat_id = str(uuid4())
        bare = {**exported(user("Een"))["chat"], "id": chat_id}
        take_in(tmp_path, [bare])
        assert said_in(chat_id) == [("user", "Een")]

    @pytest.mark.parametrize("factor", [1, 10**3, 10**6, 10**9])
    def test_times_are_in_seconds_or_smaller(self, tmp_path: Path, factor: int) -> None:
        take_in(tmp_path, exported(user("Een", timestamp=BEGUN * factor), created_at=BEGUN * factor))
        assert Message.objects.get().created_at == datetime.fromtimestamp(BEGUN, tz=UTC)
        assert Session.objects.get().created_at == datetime.fromtimestamp(BEGUN, tz=UTC)

    def test_an_answer_that_was_left_is_superseded_by_its_own_question(self, tmp_path: Path) -> None:
        # As of several models side by side.
        tree = [user("Een", id="q"), assistant("I", id="b"), assistant("1", id="a", parentId="q"), user("Twee")]
        take_in(tmp_path, exported(*tree))
        assert Message.objects.get(content="I").superseded_by == Message.objects.get(content="Een").id


class TestWhatIsBroken:
    def test_a_broken_chat_is_reported_and_the_others_are_taken_in(self, tmp_path: Path) -> None:
        broken = exported(user(42))
        out = refusal(tmp_path, [exported(user("Een")), broken, exported(user("Twee")), "?", {"chat": None}])
        assert f"Could not be taken in: {broken['id']}: chat.history.messages.m0.content" in out
        assert "chat 4: it is not a chat" in out
        assert "2 new" in out
        assert set(Message.objects.values_list("content", flat=True)) == {"Een", "Twee"}

    def test_a_chat_that_the_database_refuses_is_reported_and_leaves_nothing(self, tmp_path: Path) -> None:
        refused = exported(user("Een"))
        # Somebody has put a message of that very id elsewhere.
        other = Session.objects.create()
        other.messages.create(id=uuid5(UUID(refused["id"]), "m0"), role="user", content="Hier")
        assert f"Could not be taken in: {refused['id']}: duplicate key" in refusal(tmp_path, [refused])
        assert Session.objects.get() == other

    def test_messages_in_a_circle_are_refused(self, tmp_path: Path) -> None:
        circle = [user("Een", id="a", parentId="b"), assistant("1", id="b", parentId="a")]
        assert "in a circle" in refusal(tmp_path, [exported(*circle)])
        assert "in a circle" in refusal(tmp_path, [exported(user("Een"), user("Zelf", id="a", parentId="a"))])
        assert not Session.objects.exists()

    @pytest.mark.parametrize("current", ["", "gone"])
    def test_without_a_current_message_the_newest_branch_is_shown(self, tmp_path: Path, current: str) -> None:
        tree = [user("Een", id="q"), assistant("1", id="a", timestamp=BEGUN + 50), assistant("I", id="b", parentId="q")]
        chat = exported(*tree, current=current)
        take_in(tmp_path, chat)
        assert said_in(chat["id"]) == [("user", "Een"), ("assistant", "1")]

    def test_a_message_whose_parent_is_gone_is_a_beginning(self, tmp_path: Path) -> None:
        chat = exported(user("Een"), assistant("1"), user("Los", id="x", parentId="gone"), current="m1")
        take_in(tmp_path, chat)
        assert said_in(chat["id"]) == [("user", "Een"), ("assistant", "1")]
        assert Message.objects.get(content="Los").superseded_by == Message.objects.get(content="Een").id

    def test_nuls_and_halves_of_characters_are_no_obstacle(self, tmp_path: Path, key: str) -> None:
        source = {"source": {"name": "\0\ud800"}, "document": ["\0\udfff"]}
        chat = exported(
            user("E\0en \ud83d"), assistant("\0\ude00 1", sources=[source]), title="T\0\ud83d", user_id="a\0da"
        )
        take_in(tmp_path, chat)
        assert said_in(chat["id"]) == [("user", "Een ?"), ("assistant", "? 1")]
        assert Session.objects.get().title == "T?"
        assert "1 unchanged" in take_in(tmp_path, chat)
        ask(chat["id"], said_in(chat["id"]), "Twee", key=key, person="ada")
        assert Message.objects.count() == 4

    @pytest.mark.parametrize("time", [253402300800, -1, 0, 1e300, 10**4000, "gisteren", None, True, [], 10**20])
    def test_an_impossible_time_is_no_time(self, tmp_path: Path, time: Any) -> None:
        chat = exported(user("Een"), assistant("1", timestamp=time), user("Twee"), created_at=time, updated_at=time)
        take_in(tmp_path, chat)
        assert [text for _, text in said_in(chat["id"])] == ["Een", "1", "Twee"]
        assert Message.objects.get(content="1").created_at - Message.objects.get(content="Een").created_at < timedelta(
            1
        )

    def test_times_that_are_no_numbers_are_none(self, tmp_path: Path) -> None:
        path = tmp_path / "nan.json"
        path.write_text(json.dumps([exported(user("Een", timestamp=float("nan")), updated_at=float("inf"))]))
        assert "1 new" in take_in(tmp_path, path)

    def test_a_time_to_come_is_now_so_that_the_next_question_comes_after_it(self, tmp_path: Path, key: str) -> None:
        chat = exported(user("Een", timestamp=BEGUN * 3), assistant("1", timestamp=BEGUN * 3 + 1))
        take_in(tmp_path, chat)
        ask(chat["id"], said_in(chat["id"]), "Twee", key=key)
        assert [text for _, text in said_in(chat["id"])][:3] == ["Een", "1", "Twee"]

    def test_a_child_that_is_older_than_its_parent_comes_after_it(self, tmp_path: Path) -> None:
        chat = exported(*(user(str(number), timestamp=BEGUN - number) for number in range(5)))
        take_in(tmp_path, chat)
        assert [text for _, text in said_in(chat["id"])] == list("01234")

    def test_a_chat_that_is_twice_in_a_file_is_taken_in_once(self, tmp_path: Path) -> None:
        chat = exported(user("Een"), assistant("1"))
        assert "1 new, 0 brought up to date, 1 unchanged" in take_in(tmp_path, [chat, chat])

    def test_messages_of_the_same_id_in_two_chats_are_two(self, tmp_path: Path) -> None:
        # As in a chat that was cloned.
        take_in(tmp_path, [exported(user("Een"), assistant("1")), exported(user("Een"), assistant("1"))])
        assert Message.objects.count() == 4

    def test_a_chat_without_messages_is_counted_and_no_session(self, tmp_path: Path) -> None:
        assert "1 without messages" in take_in(tmp_path, exported())
        assert not Session.objects.exists()

    @pytest.mark.parametrize(
        "about",
        [
            {"id": ""},
            {"id": "x" * 300},
            {"id": "a\nb"},
            {"id": 7},
            {"user_id": "x" * 300},
            {"chat": {"history": []}},
            {"chat": {"history": {"messages": [1]}}},
            {"chat": {"messages": "?"}},
            {"chat": {"history": {"messages": {"m": {"role": "user", "parentId": {}}}}}},
            {"chat": {"history": {"messages": {"m": None}}}},
        ],
    )
    def test_wrong_types_are_reported(self, tmp_path: Path, about: dict[str, Any]) -> None:
        assert "Could not be taken in: " in refusal(tmp_path, [exported(user("Een")) | about])
        assert not Session.objects.exists()

    @pytest.mark.parametrize(
        "field", ["files", "sources", "citations", "output", "error", "done", "model", "timestamp"]
    )
    @pytest.mark.parametrize(
        "value", [7, "?", [], {}, [None, 1, {}], {"content": None}, [{"url": 1, "name": 2, "content": 3}]]
    )
    def test_what_is_only_told_about_a_message_may_be_anything(self, tmp_path: Path, field: str, value: Any) -> None:
        chat = exported(user("Een", **{field: value}), assistant("1", **{field: value}))
        take_in(tmp_path, chat)
        assert said_in(chat["id"]) == [("user", "Een"), ("assistant", "1")]

    @pytest.mark.parametrize(
        ("content", "reason"),
        [
            (b"", "it is empty"),
            (b"hello", "it is not JSON"),
            (b'{"id": 1}', "not an export of chats"),
            (b'[{"id": "model", "name": "GPT"}]', "not an export of chats"),
            (b"[1, 2]", "not an export of chats"),
            (b"[null]", "not an export of chats"),
            (b'{"chat": ', "a part of it is missing"),
            (b"[", "a part of it is missing"),
            (b"\xff\xfe[\0]\0", "not text in UTF-8"),
            (b"[" * 100_000, "nested too deeply"),
        ],
    )
    def test_what_is_no_export_is_refused_in_a_sentence(self, tmp_path: Path, content: bytes, reason: str) -> None:
        path = tmp_path / "export.json"
        path.write_bytes(content)
        with pytest.raises(CommandError, match=reason):
            take_in(tmp_path, path)

    def test_a_file_that_is_not_there_is_refused_in_a_sentence(self, tmp_path: Path) -> None:
        with pytest.raises(CommandError, match=r"cannot be read \(No such file or directory\)"):
            take_in(tmp_path, tmp_path / "nowhere.json")

    def test_of_a_file_that_was_cut_off_the_whole_chats_are_taken_in(self, tmp_path: Path) -> None:
        path = tmp_path / "cut.json"
        path.write_text(json.dumps([exported(user("Een")), exported(user("Twee"))])[:-40])
        out = StringIO()
        with pytest.raises(CommandError, match="could not be taken in"):
            call_command("import_openwebui", str(path), stdout=out)
        assert (
            "Could not be taken in: the rest of the file: it is not JSON, or a part of it is missing" in out.getvalue()
        )
        assert list(Message.objects.values_list("content", flat=True)) == ["Een"]

    def test_an_empty_export_is_no_failure(self, tmp_path: Path) -> None:
        assert take_in(tmp_path, []).startswith("0 chats")

    def test_a_mark_of_utf8_at_the_beginning_is_allowed(self, tmp_path: Path) -> None:
        path = tmp_path / "marked.json"
        path.write_text(json.dumps([exported(user("Een"))]), encoding="utf-8-sig")
        assert "1 new" in take_in(tmp_path, path)


class TestLargeFiles:
    def test_no_more_than_a_chat_and_a_piece_is_in_memory(self, tmp_path: Path) -> None:
        path = tmp_path / "large.json"
        text = json.dumps(exported(user("é" * 100_000, files=[{"url": PNG * 1000}])), ensure_ascii=False)
        path.write_text(f"[{','.join([text] * 100)}]")
        size = path.stat().st_size
        tracemalloc.start()
        try:
            assert sum(1 for _ in read_export(path)) == 100
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < size / 2

    def test_progress_goes_to_the_end_of_the_file(self, tmp_path: Path) -> None:
        seen: list[tuple[int, int]] = []
        assert len(list(read_export(EXPORT, progress=lambda done, total: seen.append((done, total))))) == 5
        assert seen[-1] == (EXPORT.stat().st_size, EXPORT.stat().st_size)

    def test_a_long_chat_takes_a_handful_of_statements(
        self, tmp_path: Path, django_assert_max_num_queries: Any
    ) -> None:
        chat = exported(*(user(str(n)) if n % 2 == 0 else assistant(str(n)) for n in range(400)))
        with django_assert_max_num_queries(12):
            take_in(tmp_path, chat)
        with django_assert_max_num_queries(6):
            assert "1 unchanged" in take_in(tmp_path, chat)

    def test_reading_fails_at_the_first_item_that_is_no_chat(self, tmp_path: Path) -> None:
        path = tmp_path / "models.json"
        path.write_text('[{"id": "gpt"}]')
        with pytest.raises(NotAnExportError):
            next(iter(read_export(path)))
