"""The turn as programs in JavaScript see it: the official SDK from npm, unchanged, against a real server."""

import json
import os
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from conversations.accounts import create_api_key
from conversations.models import Message, Session
from evi_site.environment import BASE_DIR
from tests.processes import wait_for
from tests.stub_model import StubModel
from tests.test_turns import Site, given_to, said_in

pytestmark = pytest.mark.django_db(transaction=True)

# Anything else that goes wrong with the package, such as a wrong checksum, is a failure.
NO_NETWORK = re.compile(
    "ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ENETUNREACH|EHOSTUNREACH|ETIMEDOUT|E40[134]|ENOTCACHED"
)


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the scenarios and the SDK that the lock file names."""
    npm = shutil.which("npm")
    if not (npm and shutil.which("node")):
        pytest.skip("Node.js and npm are not installed")
    folder = tmp_path_factory.mktemp("npm")
    shutil.copytree(BASE_DIR / "tests" / "npm", folder, dirs_exist_ok=True)
    install = [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
    patience = ["--fetch-retries=1", "--fetch-retry-mintimeout=1000", "--fetch-timeout=30000"]
    installed = subprocess.run([*install, *patience], cwd=folder, capture_output=True, text=True)
    if installed.returncode and NO_NETWORK.search(installed.stderr):
        pytest.skip("the package openai cannot be fetched from npm here")
    assert installed.returncode == 0, installed.stderr
    return folder


@pytest.fixture(scope="module")
def stub() -> Iterator[StubModel]:
    stub = StubModel()
    yield stub
    stub.shutdown()
    stub.server_close()


@pytest.fixture(scope="module")
def site(stub: StubModel, database_url: str) -> Iterator[Site]:
    site = Site(database_url, stub)
    yield site
    site.stop()


class Program:
    """A program with the SDK: what it sees, line by line."""

    def __init__(self, package: Path, site: Site) -> None:
        self.package = package
        self.variables = {
            "PATH": os.environ["PATH"],
            "EVI_URL": site.url,
            "EVI_KEY": create_api_key(name="test", client="client"),
        }

    @contextmanager
    def doing(self, scenario: str, *arguments: str) -> Iterator[Iterator[Any]]:
        """The scenario under way."""
        command = ["node", "scenarios.mjs", scenario, *arguments]
        with subprocess.Popen(command, cwd=self.package, env=self.variables, stdout=subprocess.PIPE, text=True) as node:
            assert node.stdout
            ending = threading.Timer(60, node.kill)
            ending.start()
            try:
                yield map(json.loads, node.stdout)
                assert node.wait() == 0
            finally:
                ending.cancel()
                node.kill()

    def sees(self, scenario: str, *arguments: str) -> list[Any]:
        """All that a scenario sees, at its end."""
        with self.doing(scenario, *arguments) as seen:
            return list(seen)


@pytest.fixture
def program(package: Path, site: Site, stub: StubModel) -> Iterator[Program]:
    stub.reset()
    yield Program(package, site)
    stub.go_on.set()


class TestMemory:
    def test_an_answer_comes_with_the_session_that_it_is_in(self, program: Program) -> None:
        [seen] = program.sees("chat", "hello")
        assert (seen["answer"], seen["finish_reason"]) == ("You said: hello ", "stop")
        assert seen["usage"] == {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}
        assert said_in(seen["session"]) == [
            ("user", "hello", "complete"),
            ("assistant", "You said: hello ", "complete"),
        ]

    def test_the_header_takes_the_conversation_up_again(self, program: Program, stub: StubModel) -> None:
        seen = program.sees("conversation", "one", "two", "three")
        assert len({turn["session"] for turn in seen}) == 1
        assert given_to(stub) == ["one", "You said: one ", "two", "You said: two ", "three"]
        assert Session.objects.count() == 1

    def test_a_history_without_a_session_becomes_one(self, program: Program, stub: StubModel) -> None:
        [seen] = program.sees("historyOfTheClient", "true")
        assert [text for _, text, _ in said_in(seen["session"])] == ["one", "1", "two", "You said: two "]
        assert given_to(stub) == ["one", "1", "two"]

    def test_not_storing_leaves_no_trace(self, program: Program, stub: StubModel) -> None:
        [seen] = program.sees("historyOfTheClient", "false")
        assert (seen["answer"], seen["session"]) == ("You said: two ", None)
        assert given_to(stub) == ["one", "1", "two"]
        assert not Session.objects.exists()


class TestStreaming:
    def test_the_answer_comes_word_by_word_and_ends_with_its_cost(self, program: Program, stub: StubModel) -> None:
        with program.doing("stream", "wait here") as seen:
            session = next(seen)["session"]
            # The model has said two words and waits: they are here already.
            said = [next(seen)["choices"][0]["delta"] for _ in range(3)]
            assert said == [{"role": "assistant", "content": ""}, {"content": "You "}, {"content": "said: "}]
            stub.go_on.set()
            *words, end, cost = seen
        assert [chunk["choices"][0]["delta"]["content"] for chunk in words] == ["wait ", "here "]
        assert end["choices"][0]["finish_reason"] == "stop"
        assert (cost["choices"], cost["usage"]["total_tokens"]) == ([], 18)
        assert said_in(session)[1] == ("assistant", "You said: wait here ", "complete")

    def test_a_model_that_breaks_off_is_an_error_and_the_words_are_kept(self, program: Program) -> None:
        begin, end = program.sees("brokenStream", "break please")
        assert (end["kind"], end["official"], end["words"]) == ("APIError", True, "You said: ")
        assert said_in(begin["session"])[1] == ("assistant", "You said: ", "interrupted")


class TestLeaving:
    def test_an_abort_keeps_the_words_as_interrupted(self, program: Program, stub: StubModel) -> None:
        begin, end = program.sees("abort", "wait for me")
        assert end == {"words": "You said: "}
        wait_for(lambda: len(said_in(begin["session"])) == 2)
        assert said_in(begin["session"])[1] == ("assistant", "You said: ", "interrupted")
        # The model never got to the rest.
        assert not stub.go_on.is_set()

    def test_a_timeout_leaves_the_question_once_and_the_answer_comes_after_it(
        self, program: Program, stub: StubModel
    ) -> None:
        [seen] = program.sees("timeout", "wait for me")
        assert (seen["kind"], seen["official"]) == ("APIConnectionTimeoutError", True)
        session = str(Session.objects.get().id)
        assert said_in(session) == [("user", "wait for me", "complete")]
        stub.go_on.set()
        wait_for(lambda: len(said_in(session)) == 2)
        assert said_in(session)[1] == ("assistant", "You said: wait for me ", "complete")


class TestRetries:
    @pytest.mark.parametrize("status", [429, 500, 503])
    def test_the_sdk_asks_again_after_a_failure_and_the_question_is_stored_once(
        self, status: int, program: Program, stub: StubModel
    ) -> None:
        question = f"fail with {status} at first"
        with program.doing("retry", question) as seen:
            wait_for(lambda: Message.objects.filter(status="failed").exists())
            stub.go_on.set()
            [answered] = seen
        assert answered["answer"] == f"You said: {question} "
        assert [(role, status) for role, _, status in said_in(answered["session"])] == [
            ("user", "complete"),
            ("assistant", "failed"),
            ("assistant", "complete"),
        ]
        assert Session.objects.count() == 1

    def test_the_sdks_retry_after_a_timeout_joins_the_turn_that_runs(self, program: Program, stub: StubModel) -> None:
        threading.Timer(2.5, stub.go_on.set).start()
        [seen] = program.sees("retryAfterTimeout", "wait for the retry")
        assert seen["answer"] == "You said: wait for the retry "
        assert stub.calls["wait for the retry"] == 1
        assert len(said_in(seen["session"])) == 2
        assert Session.objects.count() == 1

    def test_the_same_key_gets_the_stored_answer(self, program: Program, stub: StubModel) -> None:
        first, second = program.sees("sameKeyTwice", "hello")
        assert first == second
        assert stub.calls["hello"] == 1
        assert Message.objects.count() == 2


class TestErrors:
    @pytest.mark.parametrize("asked", ["fail with 500", "fail with 503"])
    def test_a_failing_model_is_a_servers_error_and_the_question_is_kept(self, asked: str, program: Program) -> None:
        [seen] = program.sees("refusedQuestion", asked)
        assert (seen["kind"], seen["official"]) == ("InternalServerError", True)
        assert said_in(str(Session.objects.get().id)) == [("user", asked, "complete"), ("assistant", "", "failed")]

    def test_a_wrong_key_is_an_authentication_error(self, program: Program) -> None:
        [seen] = program.sees("refusedKey", "evi_nonsense")
        assert (seen["kind"], seen["official"], seen["status"]) == ("AuthenticationError", True, 401)
        assert seen["code"] == "invalid_api_key"

    @pytest.mark.ac("AC-FEAT-008-106")
    def test_an_unknown_session_is_a_not_found_error_that_says_what_to_do(self, program: Program) -> None:
        unknown = str(uuid4())
        [seen] = program.sees("refusedSession", unknown)
        assert seen == {
            "kind": "NotFoundError",
            "official": True,
            "status": 404,
            "code": "session_not_found",
            "message": (f"404 Session not found: {unknown}. Leave the X-Session-ID header out to begin a new session."),
        }
        assert not Session.objects.exists()

    @pytest.mark.ac("AC-FEAT-008-101")
    def test_a_session_id_that_is_no_uuid_is_a_bad_request(self, program: Program) -> None:
        [seen] = program.sees("refusedSession", "not-a-uuid")
        assert seen == {
            "kind": "BadRequestError",
            "official": True,
            "status": 400,
            "code": "invalid_session_id",
            "message": "400 Invalid session ID format: must be valid UUID",
        }

    def test_an_empty_question_is_a_bad_request(self, program: Program) -> None:
        [seen] = program.sees("refusedQuestion", " ")
        assert (seen["kind"], seen["official"], seen["status"]) == ("BadRequestError", True, 400)


def test_the_models_are_listed_and_found(program: Program) -> None:
    [seen] = program.sees("models")
    assert [model["id"] for model in seen["listed"]] == ["evi"]
    assert seen["retrieved"] == seen["listed"][0]
    assert (seen["unknown"]["kind"], seen["unknown"]["official"]) == ("NotFoundError", True)
