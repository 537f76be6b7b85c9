"""The specialist on a fresh start: no key, no network, the sample that EVI brings, and every way to talk with it."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import openai
import pytest

from evi_site.environment import BASE_DIR
from evi_site.postgres.cluster import Cluster
from tests.test_server import Server, processes

FALL_PROTECTION = ("Wat zijn de vereisten voor valbeveiliging?", "Welke producten heb je daarvoor?")
BACK_PAIN = ("Ik heb rugklachten", "In English", "What about lifting?")


@dataclass(frozen=True)
class Said:
    text: str
    citations: list[dict[str, Any]]

    def cites(self, kind: str) -> set[str]:
        return {str(cited["document_title"]) for cited in self.citations if cited["kind"] == kind}


Talk = Callable[..., list[Said]]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    data_dir = tmp_path_factory.mktemp("specialist") / "data"
    server = Server(data_dir, cwd=data_dir.parent, EVI_SAMPLE="true")
    try:
        server.wait_until_announced()
        yield server
        server.stop()
    finally:
        Server.started.remove(server)
        for pid in processes(data_dir):
            os.kill(pid, signal.SIGKILL)
        Cluster(data_dir / "postgres").erase()


def url(server: Server) -> str:
    return f"http://127.0.0.1:{server.port}"


def by_chat(server: Server, *questions: str) -> list[Said]:
    said = []
    headers: dict[str, str] = {}
    for question in questions:
        answer = httpx.post(f"{url(server)}/chat", json={"query": question}, headers=headers, timeout=60)
        headers = {"X-Session-ID": answer.headers["X-Session-ID"]}
        said.append(Said(answer.json()["answer"], answer.json()["citations"]))
    return said


def by_stream(server: Server, *questions: str) -> list[Said]:
    said = []
    headers: dict[str, str] = {}
    with openai.OpenAI(base_url=f"{url(server)}/v1", api_key=key_of(server)) as client:
        for question in questions:
            raw = client.chat.completions.with_raw_response.create(
                model="evi", stream=True, messages=[{"role": "user", "content": question}], extra_headers=headers
            )
            headers = {"X-Session-ID": raw.headers["X-Session-ID"]}
            chunks = list(raw.parse())
            assert len(chunks) > 5
            text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
            said.append(Said(text, chunks[-1].to_dict()["citations"]))  # type: ignore[arg-type]
    return said


def by_terminal(server: Server, *questions: str) -> list[Said]:
    command = [sys.executable, str(BASE_DIR / "cli.py"), "--url", url(server)]
    environment = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8"}
    ran = subprocess.run(
        command, input="\n".join(questions), env=environment, capture_output=True, text=True, timeout=120, check=True
    )
    session_id = ran.stderr.split("--session ")[1].split()[0]
    with server.connect() as connection:
        rows = connection.execute(
            "SELECT content, metadata FROM messages WHERE session_id = %s AND role = 'assistant' ORDER BY seq",
            [session_id],
        ).fetchall()
    for _, metadata in rows:
        for cited in metadata["citations"]:
            assert f"[{cited['marker']}] {cited['document_title']}" in ran.stdout
    return [Said(content, metadata["citations"]) for content, metadata in rows]


def key_of(server: Server) -> str:
    return (server.data_dir / "secrets" / "EVI_API_KEY").read_text()


@pytest.fixture(params=[by_chat, by_stream, by_terminal], ids=lambda talk: talk.__name__)
def talk(request: pytest.FixtureRequest, server: Server) -> Talk:
    return lambda *questions: request.param(server, *questions)


@pytest.mark.ac("AC-FEAT-008-001")
def test_a_follow_up_about_products_is_understood_from_the_question_before(talk: Talk) -> None:
    requirements, products = talk(*FALL_PROTECTION)
    assert requirements.cites("guideline") == {"Valbeveiliging"}
    assert "valbeveiliging" in requirements.text.lower()
    assert {cited["category"] for cited in products.citations} == {"Valbeveiliging"}
    assert "harnas" in products.text.lower()


def test_the_same_in_english_and_on(talk: Talk) -> None:
    complaint, in_english, lifting = talk(*BACK_PAIN)
    assert complaint.cites("guideline") == {"Tillen en dragen"}
    assert in_english.cites("guideline") == {"Lifting and carrying"}
    assert "back" in in_english.text
    assert lifting.cites("guideline") == {"Lifting and carrying"}
    assert "lifting" in lifting.text.lower()


@pytest.mark.parametrize(
    "question", ["Hoeveel belasting betaal ik over mijn erfenis?", "Heb je een recept voor erwtensoep?"]
)
def test_another_subject_is_declined_in_dutch_without_a_citation(talk: Talk, question: str) -> None:
    [declined] = talk(question)
    assert declined.text.startswith("Daarover heb ik niets gevonden")
    assert declined.citations == []


@pytest.mark.ac("AC-FEAT-008-202")
def test_what_an_answer_rests_on_is_stored_with_it(server: Server) -> None:
    answer = httpx.post(f"{url(server)}/chat", json={"query": FALL_PROTECTION[0]}, timeout=60).json()
    with server.connect() as connection:
        [(metadata,)] = connection.execute(
            "SELECT metadata FROM messages WHERE session_id = %s AND role = 'assistant'",
            [answer["metadata"]["session_id"]],
        ).fetchall()
    assert metadata["citations"] == answer["citations"]
    assert metadata["search_results"]["query"] == FALL_PROTECTION[0]
    assert metadata["search_results"]["results_count"] > 0
    assert metadata["search_results"]["search_time_ms"] > 0
    assert metadata["model"] == "offline"
    assert metadata["tokens_used"] > 0


def test_a_citation_leads_to_its_source(server: Server) -> None:
    [said] = by_chat(server, FALL_PROTECTION[0])
    source = httpx.get(f"{url(server)}/api/sources/{said.citations[0]['chunk_id']}").json()
    assert (source["title"], source["kind"], source["is_current"]) == ("Valbeveiliging", "guideline", True)
    assert source["text"].split(".")[0] in said.text


def test_openai_clients_find_the_citations_where_they_look(server: Server) -> None:
    with openai.OpenAI(base_url=f"{url(server)}/v1", api_key=key_of(server)) as client:
        answer = client.chat.completions.create(model="evi", messages=[{"role": "user", "content": FALL_PROTECTION[0]}])
    message = answer.choices[0].message
    assert message.content
    assert message.annotations
    for annotation in message.annotations:
        cited = annotation.url_citation
        assert message.content[cited.start_index : cited.end_index].startswith("[")
        assert cited.url.startswith("https://")


def test_the_start_says_what_it_does(server: Server) -> None:
    assert "Taking in the sample" in server.said


def test_the_sample_is_complete() -> None:
    sample = BASE_DIR / "agentbridge" / "sample"
    dutch = [path for path in (sample / "guidelines").glob("*.md") if not path.name.endswith(".en.md")]
    sections = sum(path.read_text().count("\n## ") for path in dutch)
    products = (sample / "products.csv").read_text().splitlines()[1:]
    assert len(dutch) >= 20
    assert sections >= 60
    assert len(products) >= 60
    assert all("voorbeeld" in path.read_text() for path in dutch)
    english = {path.name for path in (sample / "guidelines").glob("*.en.md")}
    assert english == {f"{path.stem}.en.md" for path in dutch}
