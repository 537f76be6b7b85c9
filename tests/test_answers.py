"""The answers as people get them, in whole conversations; and the bench that holds those."""

import csv
import json
import re
from collections.abc import AsyncIterator, Callable
from io import StringIO
from pathlib import Path
from typing import Any

import frontmatter
import pytest
from django.core.management import CommandError, call_command
from pydantic_ai.exceptions import UnexpectedModelBehavior
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pytest_django import Settings

from agentbridge.citations import without_markers
from agentbridge.conversation_bench import Conversation, Turn, evaluate, failures_of, load_conversations
from agentbridge.echo import echo_model
from agentbridge.extracts import rest_of
from agentbridge.ingest import load_sample
from agentbridge.providers import model_for
from evi_site.environment import BASE_DIR

SAMPLE = BASE_DIR / "agentbridge" / "sample"
CONVERSATIONS = SAMPLE / "conversations.yaml"

LIFTING = {"marker": 1, "kind": "guideline", "document_title": "Tillen en dragen", "source": "Arbobesluit 5.2"}
HARNESS = {"marker": 1, "kind": "product", "document_title": "Harnas", "source": "Harnas", "category": "Valbeveiliging"}


def conversation(*turns: dict[str, Any]) -> Conversation:
    return Conversation(name="gesprek", turns=[Turn(**turn) for turn in turns])


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str], Path]:
    def write(text: str) -> Path:
        path = tmp_path / "gesprekken.yaml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


@pytest.fixture
def echoing(settings: Settings) -> None:
    settings.EVI = settings.EVI.model_copy(update={"model": "echo"})


@pytest.mark.parametrize(
    ("expected", "text", "citations", "failures"),
    [
        ({"says": ["23", "a|kilo"]}, "Hoogstens **23**\nKilo.", [], []),
        ({"says": ["23 kilo"]}, "Hoogstens 25 kilo.", [], ["does not say: 23 kilo"]),
        ({"says": ["23"]}, "Sinds 2023, 23,5 kilo.", [], ["does not say: 23"]),
        ({"says": ["5 m/s²"]}, "De actiewaarde is 2,5 m/s².", [], ["does not say: 5 m/s²"]),
        ({"says": ["1"]}, "Zie de bron [1].", [LIFTING], ["does not say: 1"]),
        ({"never_says": ["is veilig"]}, "Asbest IS veilig.", [], ["says: is veilig"]),
        ({"cites": ["lawaai|tillen", "arbobesluit"]}, "Til minder [1].", [LIFTING], []),
        ({"cites": ["Lawaai"]}, "Til minder [1].", [LIFTING], ["does not cite: Lawaai"]),
        ({"cites": ["Harnas"]}, "Een harnas [1].", [HARNESS], ["does not cite: Harnas"]),
        ({"products": ["Valbeveiliging"]}, "Een harnas [1].", [HARNESS], []),
        ({"products": ["EHBO"]}, "Een harnas [1].", [HARNESS], ["names no product of: EHBO"]),
        ({"cites_nothing": True}, "Til minder [1].", [LIFTING], ["cites: Tillen en dragen"]),
        ({"asks_back": True}, "Waarover gaat het?", [], []),
        ({"asks_back": True}, "Zeg waarover.", [], ["does not end in a question"]),
        ({"asks_back": True}, "Tillen? [1] Of niet?", [LIFTING], ["cites: Tillen en dragen"]),
        ({"language": "en"}, "You must not lift more than that.", [], []),
        ({"language": "en"}, "Je mag niet meer tillen dan dat.", [], ["is in nl, not en"]),
        ({"language": "nl"}, "Ok.", [], ["is in no clear language, not nl"]),
        ({}, "Til minder.", [LIFTING], ["has the markers [] and the citations [1]"]),
        ({}, "Til minder [1] [2].", [LIFTING], ["has the markers [1, 2] and the citations [1]"]),
        ({}, "Til [2].", [{**LIFTING, "marker": 2}], ["has the markers [2] and the citations [2]"]),
        ({}, " \n", [], ["the answer is empty"]),
    ],
)
def test_what_is_not_as_expected_is_said(
    expected: dict[str, Any], text: str, citations: list[dict[str, Any]], failures: list[str]
) -> None:
    assert failures_of(Turn(ask="?", **expected), text=text, citations=citations) == failures


def test_each_turn_knows_what_was_said_before() -> None:
    report = evaluate([conversation({"ask": "een"}, {"ask": "twee", "says": ["- een"]})], model=echo_model())
    assert report.failed == []
    assert [(outcome.turn, outcome.ask) for outcome in report.outcomes] == [(1, "een"), (2, "twee")]


def test_each_conversation_begins_anew() -> None:
    held = conversation({"ask": "een", "never_says": ["Daarvoor"]})
    assert evaluate([held, held], model=echo_model()).failed == []


def test_only_the_last_messages_go_along_as_in_a_session(settings: Settings) -> None:
    settings.EVI = settings.EVI.model_copy(update={"context_messages": 2})
    last = {"ask": "drie", "says": ["Daarvoor (2): - twee"]}
    assert evaluate([conversation({"ask": "een"}, {"ask": "twee"}, last)], model=echo_model()).failed == []


def test_a_model_that_fails_fails_its_turn_only() -> None:
    asked = []

    async def stumble(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        asked.append(messages)
        if len(asked) == 1:
            raise UnexpectedModelBehavior("not today")
        yield "Daar ben ik weer."

    report = evaluate([conversation({"ask": "een"}, {"ask": "twee"})], model=FunctionModel(stream_function=stumble))
    first, second = report.outcomes
    assert "not today" in first.failures[0]
    assert second.failures == []


@pytest.mark.usefixtures("echoing")
def test_the_command_ends_well_when_every_answer_is_as_expected(write: Callable[[str], Path]) -> None:
    path = write("- name: een\n  turns: [{ask: hoi, says: [vroeg]}]\n")
    call_command("evaluate_answers", path, stdout=(said := StringIO()))
    assert "1 of 1 conversations and 1 of 1 turns went as expected." in said.getvalue()


@pytest.mark.usefixtures("echoing")
def test_the_command_ends_badly_and_says_what_failed(write: Callable[[str], Path]) -> None:
    path = write("- name: een\n  turns: [{ask: hoi}, {ask: nog een, says: ['[red]iets']}]\n")
    with pytest.raises(CommandError) as caught:
        call_command("evaluate_answers", path, stdout=(said := StringIO()))
    assert caught.value.returncode == 1
    assert "does not say: [red]iets" in " ".join(said.getvalue().split())
    assert "0 of 1 conversations and 1 of 2 turns went as expected." in said.getvalue()


@pytest.mark.usefixtures("echoing")
def test_json_is_all_that_is_printed(write: Callable[[str], Path]) -> None:
    path = write("- name: een\n  turns: [{ask: hoi, says: [iets]}]\n")
    with pytest.raises(CommandError):
        call_command("evaluate_answers", path, "--json", stdout=(said := StringIO()))
    report = json.loads(said.getvalue())
    assert (report["turns"], report["failed"]) == (1, 1)
    assert report["outcomes"][0]["answer"] == "Je vroeg: hoi"
    assert report["outcomes"][0]["failures"] == ["does not say: iets"]


@pytest.mark.usefixtures("echoing")
def test_one_conversation_can_be_chosen(write: Callable[[str], Path]) -> None:
    path = write("- {name: een, turns: [{ask: a}]}\n- {name: twee, turns: [{ask: b}]}\n")
    call_command("evaluate_answers", path, "--only", "twee", "--json", stdout=(said := StringIO()))
    assert [outcome["conversation"] for outcome in json.loads(said.getvalue())["outcomes"]] == ["twee"]
    with pytest.raises(CommandError, match="there is no conversation called drie"):
        call_command("evaluate_answers", path, "--only", "drie")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "the file as a whole: Input should be a valid list"),
        ("[]", "there is no conversation"),
        ("- name: een\n  turns: [", "line 2"),
        ("- {name: een}", "conversation 1 (een), turns: Field required"),
        ("- turns: [{ask: a}]", "conversation 1, name: Field required"),
        ("- {name: een, turns: []}", "conversation 1 (een), turns: List should have at least 1 item"),
        ("- {name: een, turns: [{ask: a}, {ask: b, sayz: [c]}]}", "conversation 1 (een), turn 2, sayz: Extra inputs"),
        ("- {name: een, turns: [{ask: a, says: [b, 7]}]}", "turn 1, says, 2: Input should be a valid string"),
        ("- {name: een, turns: [{ask: a, says: ['b|']}]}", "each side of | must hold some text"),
        ("- {name: een, turns: [{ask: ' '}]}", "turn 1, ask: "),
        ("- {name: een, turns: [{ask: a, cites: [b], asks_back: true}]}", "cannot cite something as well"),
        ("- {name: een, turns: [{ask: a}]}\n" * 2, "two conversations are called een"),
        ("- een", "conversation 1: Input should be"),
    ],
)
def test_a_file_that_is_wrong_is_refused_with_the_place(
    write: Callable[[str], Path], text: str, complaint: str
) -> None:
    with pytest.raises(CommandError) as caught:
        call_command("evaluate_answers", write(text))
    assert complaint in str(caught.value)
    assert "gesprekken.yaml" in str(caught.value)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="No such file"):
        call_command("evaluate_answers", tmp_path / "weg.yaml")


def test_what_the_sample_conversations_expect_stands_in_the_sample() -> None:
    guidelines = {str(read["title"]): read for read in map(frontmatter.load, (SAMPLE / "guidelines").glob("*.md"))}
    with (SAMPLE / "products.csv").open(encoding="utf-8", newline="") as file:
        categories = {row["category"] for row in csv.DictReader(file)}
    cited = set()
    for turn in (turn for held in load_conversations(CONVERSATIONS) for turn in held.turns):
        assert {part for item in turn.products for part in item.split("|")} <= categories
        texts = []
        for part in (part for item in turn.cites for part in item.split("|")):
            titles = {title for title in guidelines if part.casefold() in title.casefold()}
            assert titles, f"no guideline is called {part}"
            cited |= titles
            texts += [guidelines[title].content for title in titles]
        if texts:
            facts = Turn(ask=turn.ask, says=turn.says)
            assert failures_of(facts, text="\n".join(texts), citations=[]) == [], turn.ask
    assert cited >= {title for title, read in guidelines.items() if read["language"] == "nl"}


@pytest.mark.django_db(transaction=True)
def test_the_offline_model_holds_every_conversation() -> None:
    load_sample()
    report = evaluate(load_conversations(CONVERSATIONS), model=model_for("offline"))
    told = (f"{o.conversation} ({o.turn}): {o.ask}\n  {'; '.join(o.failures)}\n  {o.answer!r}" for o in report.failed)
    assert not report.failed, "\n".join([report.summary, *told])


CUT = "Foo bar baz [1] Qux quux [2]"


# Markers are passed on whole, so no cut falls into one.
@pytest.mark.parametrize("so_far", [CUT[:end] for end in range(1, len(CUT)) if not re.search(r"\[\d?$", CUT[:end])])
def test_the_rest_of_an_answer_is_found_at_every_cut(so_far: str) -> None:
    told = without_markers(so_far + rest_of(CUT, so_far=so_far.strip()))
    assert " ".join(told.split()) == "Foo bar baz Qux quux"
