"""`cli.py` as people use it: in a terminal and in pipes, against a real server and against what is none."""

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from types import SimpleNamespace
from typing import Any, ClassVar, Self
from uuid import uuid4

import httpx
import pytest

from evi_site.environment import BASE_DIR
from evi_site.postgres.cluster import Cluster
from terminal import commands
from tests.processes import free_port, wait_for
from tests.test_server import Server, processes

CLI = [sys.executable, str(BASE_DIR / "cli.py")]
UUID4 = r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"
RETURN_HINT = re.compile(rf"Later verder in dit gesprek: --session ({UUID4})")
ANSI = re.compile(r"\x1b(?:\[[0-9;? ]*[A-Za-z]|\][^\x07\x1b]*(?:\x07|\x1b\\))")


class Model(BaseHTTPRequestHandler):
    """A model behind an OpenAI-compatible address, that does what the question says."""

    hung_up: ClassVar[Event] = Event()

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        question = body["messages"][-1]["content"]
        if question == "weiger":
            self.send_error(400)
            return
        if question == "zwijg":
            # Not a word until EVI hangs up.
            self.connection.recv(1)
            self.hung_up.set()
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        self.say(f"Dit komt op {question}.")
        match question:
            case "wacht":
                # Silent until EVI hangs up.
                self.connection.recv(1)
                self.hung_up.set()
            case "breek af":
                self.wfile.write(b"data: {broken\n\n")
            case _:
                self.say("")
                self.wfile.write(b"data: [DONE]\n\n")

    def say(self, text: str) -> None:
        choice = {
            "index": 0,
            "delta": {"role": "assistant", "content": text},
            "finish_reason": None if text else "stop",
        }
        chunk = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
        self.wfile.write(f"data: {json.dumps(chunk)}\n\n".encode())

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """Something that speaks HTTP, at the address this gives."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def answering(status: int, content: bytes, **headers: str) -> AbstractContextManager[str]:
    """A server that gives one answer to everything, and hangs up."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name.replace("_", "-"), value)
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST  # noqa: N815

        def log_message(self, format: str, *args: Any) -> None:
            pass

    return serving(Handler)


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("cli") / "data folder"
    yield folder
    # After a failure: what it left running.
    for pid in processes(folder):
        os.kill(pid, signal.SIGKILL)
    Cluster(folder / "postgres").erase()


@contextmanager
def running(data_dir: Path, **variables: str) -> Iterator[Server]:
    server = Server(data_dir, cwd=data_dir.parent, **variables)
    try:
        server.wait_until_announced()
        yield server
    finally:
        server.stop()
        Server.started.remove(server)


@pytest.fixture(scope="module")
def server(data_dir: Path) -> Iterator[Server]:
    """EVI with the model that shows what it was given."""
    with running(data_dir, EVI_MODEL="echo") as server:
        yield server


@pytest.fixture(scope="module")
def server_with_model(server: Server) -> Iterator[Server]:
    """EVI on the same database, with a model that waits and fails on request."""
    with (
        serving(Model) as address,
        running(server.data_dir, EVI_MODEL="m", EVI_MODEL_BASE_URL=f"{address}/v1") as other,
    ):
        yield other


def url(server: Server) -> str:
    return f"http://127.0.0.1:{server.port}"


def environment(**variables: str) -> dict[str, str]:
    # No terminal answers here when it is asked where its cursor is.
    terminal = {"TERM": "xterm-256color", "PROMPT_TOOLKIT_NO_CPR": "1"}
    # A place where nothing can be remembered, also not by root.
    nowhere = {"HOME": "/nonexistent", "XDG_STATE_HOME": "/dev/null/state"}
    return {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", **nowhere, **terminal, **variables}


def run(*arguments: str | bytes, stdin: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
    result = subprocess.run(
        [*CLI, *arguments], input=stdin, env=environment(**variables), capture_output=True, text=True, timeout=60
    )
    assert "Traceback" not in result.stderr
    return result


def session_in(text: str) -> str:
    [session_id] = RETURN_HINT.findall(text)
    return str(session_id)


def messages_of(server: Server, session_id: str) -> list[tuple[str, str, str]]:
    with server.connect() as connection:
        query = "SELECT role, content, status FROM messages WHERE session_id = %s ORDER BY created_at, id"
        return connection.execute(query, [session_id]).fetchall()


def number_of_sessions(server: Server) -> int:
    with server.connect() as connection:
        row = connection.execute("SELECT count(*) FROM sessions").fetchone()
        assert row
        return int(row[0])


class Terminal:
    """`cli.py` in a terminal of its own, read and typed in as a person does."""

    def __init__(self, *arguments: str, stdout: int | None = None, **variables: str) -> None:
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
        self.process = subprocess.Popen(
            [*CLI, *arguments],
            env=environment(**variables),
            stdin=slave,
            stdout=slave if stdout is None else stdout,
            stderr=slave,
            start_new_session=True,
            # The terminal that Ctrl-C comes from.
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(slave)
        self.raw = b""
        self.read_up_to = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.master)

    @property
    def shown(self) -> str:
        return ANSI.sub("", self.raw.decode(errors="replace"))

    def receive(self, *, seconds: float) -> bool:
        """Take in what is shown next; false when the program has left the terminal."""
        if not select.select([self.master], [], [], seconds)[0]:
            return True
        try:
            self.raw += (data := os.read(self.master, 65536))
        except OSError:
            return False
        return bool(data)

    def expect(self, text: str, *, seconds: float = 30) -> None:
        """Wait until `text` is shown, after what was expected before."""
        deadline = time.monotonic() + seconds
        while (at := self.shown.find(text, self.read_up_to)) < 0:
            there = self.receive(seconds=0.1)
            assert there, f"it left without {text!r}: {self.shown}"
            assert time.monotonic() < deadline, f"no {text!r} in: {self.shown[self.read_up_to :]}"
        self.read_up_to = at + len(text)

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    def ask(self, question: str) -> None:
        self.expect("›")
        self.type(f"{question}\r")

    def leave(self, key: str = "\x04") -> int:
        """Ctrl-D, or another key, at the prompt; the result is the exit code."""
        self.expect("›")
        self.type(key)
        return self.wait()

    def wait(self) -> int:
        deadline = time.monotonic() + 30
        while self.receive(seconds=0.1):
            assert time.monotonic() < deadline, "it does not end"
        return self.process.wait(timeout=30)


@pytest.mark.ac("AC-FEAT-008-004")
def test_each_run_is_a_session_of_its_own_and_knows_nothing_of_the_one_before(server: Server) -> None:
    sessions = []
    for questions in (["Wat is een RI&E?", "Wie maakt die?", "En wie toetst die?"], ["Wat vroeg ik?"]):
        with Terminal("--url", url(server)) as terminal:
            terminal.expect(f"EVI op {url(server)} · nieuw gesprek")
            for number, question in enumerate(questions):
                terminal.ask(question)
                terminal.expect(f"Je vroeg: {question}")
                if number:
                    terminal.expect(f"Daarvoor ({2 * number}):")
            assert terminal.leave() == 0
            sessions.append(session_in(terminal.shown))
    first, second = sessions
    assert first != second
    assert "Daarvoor" not in terminal.shown
    assert [content for role, content, _ in messages_of(server, first) if role == "user"] == [
        "Wat is een RI&E?",
        "Wie maakt die?",
        "En wie toetst die?",
    ]
    assert messages_of(server, second) == [
        ("user", "Wat vroeg ik?", "complete"),
        ("assistant", "Je vroeg: Wat vroeg ik?", "complete"),
    ]


@pytest.mark.ac("AC-FEAT-008-005")
def test_the_server_makes_the_session_and_the_run_stays_in_it(server: Server) -> None:
    before = number_of_sessions(server)
    with Terminal(EVI_URL=url(server)) as terminal:
        terminal.expect("nieuw gesprek")
        assert number_of_sessions(server) == before
        for question in ("een", "twee", "drie"):
            terminal.ask(question)
            terminal.expect(f"Je vroeg: {question}")
        assert terminal.leave() == 0
    assert number_of_sessions(server) == before + 1
    stored = messages_of(server, session_in(terminal.shown))
    assert [content for role, content, _ in stored if role == "user"] == ["een", "twee", "drie"]
    assert len(stored) == 6


def test_each_piped_line_is_a_question_in_one_session(server: Server) -> None:
    result = run("--url", url(server), stdin="een\n\n  twee  \n")
    assert result.returncode == 0
    assert result.stdout == "Je vroeg: een\n\nJe vroeg: twee\n\nDaarvoor (2):\n- een\n- Je vroeg: een\n"
    assert len(messages_of(server, session_in(result.stderr))) == 4


def test_a_piped_question_is_answered_before_the_next_one_comes(server: Server) -> None:
    command = [*CLI, "--url", url(server)]
    with subprocess.Popen(
        command, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdin
        assert process.stdout
        for question in ("een", "twee"):
            process.stdin.write(f"{question}\n")
            process.stdin.flush()
            while f"Je vroeg: {question}" not in process.stdout.readline():
                assert process.poll() is None
        process.stdin.close()
        process.stdout.read()
    assert process.returncode == 0


def test_a_question_as_arguments_is_answered_and_that_is_all(server: Server) -> None:
    result = run("--url", f"{url(server)}/v1/", "Hoe", "hoog", "is", "*dat*?", stdin="not read\n")
    assert result.returncode == 0
    assert result.stdout == "Je vroeg: Hoe hoog is *dat*?\n"
    greeting, hint = result.stderr.splitlines()
    assert greeting == f"EVI op {url(server)} · nieuw gesprek"
    assert len(messages_of(server, session_in(hint))) == 2


def test_in_a_terminal_markdown_is_rendered(server: Server) -> None:
    with Terminal("--url", url(server), "is dit **vet**?") as terminal:
        terminal.expect("Je vroeg: is dit vet?")
        assert terminal.wait() == 0
    assert "**" not in terminal.shown


def test_an_answer_longer_than_the_screen_is_shown_whole_in_the_end(server: Server) -> None:
    words = [f"woord{number}" for number in range(60)]
    with Terminal("--url", url(server), "\n\n".join(words)) as terminal:
        assert terminal.wait() == 0
    whole = terminal.shown[terminal.shown.rindex("Je vroeg:") :]
    assert re.findall(r"woord\d+", whole) == words


def test_a_session_goes_on_in_another_run(server: Server) -> None:
    session_id = session_in(run("--url", url(server), "een").stderr)
    result = run("--url", url(server), "--session", session_id.upper(), "twee")
    assert result.stdout == "Je vroeg: twee\n\nDaarvoor (2):\n- een\n- Je vroeg: een\n"
    assert result.stderr == f"EVI op {url(server)} · verder in gesprek {session_id}\n"
    assert len(messages_of(server, session_id)) == 4


def test_ctrl_c_breaks_off_the_answer_and_the_conversation_goes_on(server_with_model: Server) -> None:
    Model.hung_up.clear()
    with Terminal("--url", url(server_with_model)) as terminal:
        terminal.ask("wacht")
        terminal.expect("Dit komt op wacht.")
        terminal.type("\x03")
        terminal.expect("(afgebroken)")
        terminal.ask("verder")
        terminal.expect("Dit komt op verder.")
        assert terminal.leave() == 0
    assert Model.hung_up.wait(30)
    session_id = session_in(terminal.shown)
    assert sorted(messages_of(server_with_model, session_id)) == [
        ("assistant", "Dit komt op verder.", "complete"),
        ("assistant", "Dit komt op wacht.", "interrupted"),
        ("user", "verder", "complete"),
        ("user", "wacht", "complete"),
    ]


def test_ctrl_c_ends_a_single_question(server_with_model: Server) -> None:
    with Terminal("--url", url(server_with_model), "wacht") as terminal:
        terminal.expect("Dit komt op wacht.")
        terminal.type("\x03")
        assert terminal.wait() == 130
    assert "(afgebroken)" in terminal.shown
    assert "Traceback" not in terminal.shown


def test_ctrl_c_before_the_first_word_leaves_the_way_back(server_with_model: Server) -> None:
    before = number_of_sessions(server_with_model)
    with Terminal("--url", url(server_with_model), "zwijg") as terminal:
        wait_for(lambda: number_of_sessions(server_with_model) > before)
        terminal.type("\x03")
        assert terminal.wait() == 130
    assert ("user", "zwijg", "complete") in messages_of(server_with_model, session_in(terminal.shown))


def test_after_ctrl_c_before_the_first_word_the_next_question_is_in_the_same_session(server_with_model: Server) -> None:
    before = number_of_sessions(server_with_model)
    with Terminal("--url", url(server_with_model)) as terminal:
        terminal.ask("zwijg")
        wait_for(lambda: number_of_sessions(server_with_model) > before)
        terminal.type("\x03")
        terminal.expect("(afgebroken)")
        terminal.ask("verder")
        terminal.expect("Dit komt op verder.")
        assert terminal.leave() == 0
    assert number_of_sessions(server_with_model) == before + 1
    said = [
        content for role, content, _ in messages_of(server_with_model, session_in(terminal.shown)) if role == "user"
    ]
    assert said == ["zwijg", "verder"]


@pytest.mark.parametrize("seconds", [0, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2])
def test_ctrl_c_at_any_moment_is_no_disaster(seconds: float, server: Server) -> None:
    with Terminal("--url", url(server), "een") as terminal:
        terminal.expect("nieuw gesprek")
        time.sleep(seconds)
        terminal.type("\x03")
        # It may have been too late, or so late that Python was leaving already.
        assert terminal.wait() in (130, 0, -signal.SIGINT)
    assert "Traceback" not in terminal.shown
    assert "Exception ignored" not in terminal.shown
    assert session_in(terminal.shown)


@pytest.mark.parametrize("key", ["\x03", "\x04"], ids=["ctrl-c", "ctrl-d"])
def test_at_the_prompt_it_leaves_with_one_line(key: str, server: Server) -> None:
    with Terminal("--url", url(server)) as terminal:
        assert terminal.leave(key) == 0
    assert terminal.shown.splitlines()[-1] == "Tot ziens."
    assert "Traceback" not in terminal.shown


def test_an_empty_line_asks_nothing(server: Server) -> None:
    with Terminal("--url", url(server)) as terminal:
        terminal.ask("   ")
        terminal.ask("een")
        terminal.expect("Later verder")
        assert terminal.leave() == 0
    assert len(messages_of(server, session_in(terminal.shown))) == 2


def test_the_prompt_stays_in_the_terminal_when_answers_go_into_a_file(server: Server, tmp_path: Path) -> None:
    answers = tmp_path / "answers.txt"
    with answers.open("w") as file, Terminal("--url", url(server), stdout=file.fileno()) as terminal:
        terminal.ask("een")
        terminal.expect("Later verder")
        assert terminal.leave() == 0
    assert answers.read_text() == "Je vroeg: een\n"


def test_proxies_do_not_stand_between_it_and_this_machine(server: Server) -> None:
    nowhere = f"http://127.0.0.1:{free_port()}"
    result = run("--url", url(server), "een", HTTP_PROXY=nowhere, http_proxy=nowhere, ALL_PROXY=nowhere)
    assert result.stdout == "Je vroeg: een\n"


def test_text_is_text_and_steers_no_terminal(server: Server) -> None:
    result = run("--url", url(server), "een\u2028twee \x1b]0;titel\x07 ¿né? 🙂".encode(), b"\xe9")
    assert result.stdout == "Je vroeg: een\u2028twee ]0;titel ¿né? 🙂 ?\n"
    assert result.returncode == 0


def test_a_reader_that_leaves_is_no_disaster(server: Server) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    result = subprocess.run(
        [*CLI, "--url", url(server), "een"], env=environment(), stdout=writer, stderr=subprocess.PIPE, text=True
    )
    os.close(writer)
    assert result.returncode == 1
    assert "BrokenPipe" not in result.stderr


@pytest.mark.parametrize("arguments", [(), ("een",)], ids=["interactive", "one question"])
def test_a_server_that_is_away_is_one_clear_sentence(arguments: tuple[str, ...]) -> None:
    address = f"http://127.0.0.1:{free_port()}"
    sentence = (
        f"EVI is niet bereikbaar op {address} (Connection refused): "
        "start script/server, of geef een ander adres met --url."
    )
    with Terminal("--url", address, *arguments) as terminal:
        assert terminal.wait() == 1
    assert " ".join(terminal.shown.split()).endswith(sentence)
    assert "Traceback" not in terminal.shown


def test_after_a_failure_the_questions_that_follow_are_not_asked() -> None:
    result = run("--url", f"http://127.0.0.1:{free_port()}", stdin="een\ntwee\n")
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.count("niet bereikbaar") == 1


def test_a_key_opens_the_door_and_a_wrong_one_does_not(server: Server) -> None:
    key = (server.data_dir / "secrets" / "EVI_API_KEY").read_text()
    assert run("--url", url(server), "--key", key, "een").stdout == "Je vroeg: een\n"
    assert run("--url", url(server), "een", EVI_API_KEY=key).stdout == "Je vroeg: een\n"
    refused = run("--url", url(server), "--key", f"{key}x", "een")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.splitlines()[-1] == "EVI kent deze API-sleutel niet: controleer --key of EVI_API_KEY."
    with Terminal("--url", url(server), EVI_API_KEY=f"{key}x") as terminal:
        assert terminal.wait() == 1
    assert "EVI kent deze API-sleutel niet" in terminal.shown


def test_a_session_that_is_not_there_is_one_clear_sentence(server: Server) -> None:
    session_id = str(uuid4())
    result = run("--url", url(server), "--session", session_id, "een")
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.splitlines()[-1] == (
        f"Gesprek {session_id} is er niet (meer): typ /new, of start cli.py zonder --session."
    )


def test_a_refusal_in_a_conversation_is_told_and_the_prompt_comes_back(server: Server) -> None:
    with Terminal("--url", url(server), "--session", str(uuid4())) as terminal:
        terminal.ask("een")
        terminal.expect("is er niet (meer)")
        assert terminal.leave() == 0


def test_a_question_that_is_too_long_is_refused_in_one_sentence(server: Server) -> None:
    result = run("--url", url(server), "x" * 40_000)
    assert result.returncode == 1
    assert re.fullmatch(r"EVI weigert deze vraag \(.*32000 characters\): .*", result.stderr.splitlines()[-1])


def test_too_many_questions_are_told_when_to_go_on(server_with_model: Server) -> None:
    # With the key it is another client than the other tests are.
    address, key = url(server_with_model), (server_with_model.data_dir / "secrets" / "EVI_API_KEY").read_text()
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    opener.addheaders = [("Authorization", f"Bearer {key}")]

    def told() -> bool:
        """Ask until it is too much, and then once more; the count starts anew each minute, perhaps in between."""
        try:
            opener.open(f"{address}/v1/models", timeout=10).close()
        except urllib.error.HTTPError as error:
            error.close()
            result = run("--url", address, "--key", key, "een")
            return bool(re.search(r": probeer het over \d+ seconden opnieuw\.\n", result.stderr))
        return False

    deadline = time.monotonic() + 120
    while not told():
        assert time.monotonic() < deadline, "never too much"


@pytest.mark.parametrize(("question", "said"), [("weiger", ""), ("breek af", "Dit komt op breek af.\n")])
def test_a_model_that_fails_before_or_in_an_answer(question: str, said: str, server_with_model: Server) -> None:
    result = run("--url", url(server_with_model), question)
    assert (result.returncode, result.stdout) == (1, said)
    sentence = "Het model kon hier geen antwoord op geven: stel de vraag opnieuw, of anders."
    assert sentence in result.stderr.splitlines()
    # The question is stored, and the way back to it is told.
    assert messages_of(server_with_model, session_in(result.stderr))[0] == ("user", question, "complete")


EVENT = b'data: {"choices":[{"delta":{"content":"Half een antw"}}]}\n\n'
STREAM = {"Content_Type": "text/event-stream", "X_Session_ID": str(uuid4())}
HTML = {"Content_Type": "text/html"}


@pytest.mark.parametrize(
    ("elsewhere", "said", "sentence"),
    [
        (
            lambda: answering(200, b"<html>", **HTML),
            "",
            "antwoordt iets anders dan EVI (status 200): geef het goede adres",
        ),
        (
            lambda: answering(404, b"<html>", **HTML),
            "",
            "antwoordt iets anders dan EVI (status 404): geef het goede adres",
        ),
        (lambda: answering(200, b"{}", Content_Type="application/json"), "", "iets anders dan EVI (status 200)"),
        (lambda: answering(404, b"[]", Content_Type="application/json"), "", "iets anders dan EVI (status 404)"),
        (lambda: answering(301, b"", Location="https://evi.example/"), "", "verwijst naar https://evi.example/; geef"),
        (lambda: answering(401, b"", **HTML), "", "EVI vraagt een API-sleutel: geef hem met --key"),
        (lambda: answering(429, b"", **HTML), "", "probeer het over een minuut opnieuw."),
        (lambda: answering(503, b"", **HTML), "", "Bij EVI ging iets mis (503): probeer het zo nog eens"),
        (lambda: answering(200, EVENT, **STREAM), "Half een antw\n", "De verbinding brak af tijdens het antwoord"),
        (
            lambda: answering(200, EVENT, **STREAM, Content_Length="9999"),
            "Half een antw\n",
            "De verbinding brak af tijdens het antwoord",
        ),
        (lambda: answering(200, EVENT, Content_Type="text/event-stream"), "", "iets anders dan EVI (status 200)"),
    ],
)
def test_what_is_no_evi_or_breaks_off_is_one_clear_sentence(
    elsewhere: Callable[[], AbstractContextManager[str]], said: str, sentence: str
) -> None:
    with elsewhere() as address:
        result = run("--url", address, "een")
    assert (result.returncode, result.stdout) == (1, said)
    assert sum(sentence in line for line in result.stderr.splitlines()) == 1


def test_a_conversation_with_something_else_does_not_begin() -> None:
    with answering(200, b"<html>", **HTML) as address, Terminal("--url", address) as terminal:
        assert terminal.wait() == 1
    assert "antwoordt iets anders dan EVI" in terminal.shown
    assert "›" not in terminal.shown


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--session", "abc"), "'abc' is geen gesprek-id"),
        (("--session", "00000000-0000-1000-8000-000000000000"), "is geen gesprek-id"),
        (("--session", ""), "is geen gesprek-id"),
        (("--session", "3f2a", "--continue"), "niet allebei"),
        (("--url", "localhost:8000"), "'localhost:8000' is geen adres: schrijf het zoals http://127.0.0.1:8000."),
        (("--url", "http://"), "is geen adres"),
        (("--url", "http://x:port"), "is geen adres"),
        (("--key", "sleutel één"), "In de API-sleutel staan tekens die er niet in horen"),
        (("--url",), "Na --url hoort een waarde"),
        (("--fast", "een"), "--fast is geen optie"),
        (("",), "De vraag is leeg"),
    ],
)
def test_wrong_arguments_are_one_clear_sentence(arguments: tuple[str, ...], sentence: str) -> None:
    result = run(*arguments)
    assert (result.returncode, result.stdout) == (2, "")
    assert sentence in result.stderr
    assert result.stderr.count("\n") == 1


def test_help_is_there() -> None:
    result = run("--help")
    assert result.returncode == 0
    assert "Praat met EVI." in result.stdout


def test_outside_its_environment_it_says_how_to_start_it() -> None:
    result = subprocess.run([sys.executable, "-S", *CLI[1:]], capture_output=True, text=True, timeout=60)
    assert result.returncode == 1
    assert re.fullmatch(r"Deze Python mist httpx: start cli\.py met /.*/\.venv/bin/python \(.*\)\.\n", result.stderr)


def told_of(server: Server, session_id: str) -> tuple[str, str]:
    with server.connect() as connection:
        row = connection.execute("SELECT channel, title FROM sessions WHERE id = %s", [session_id]).fetchone()
    assert row
    return str(row[0]), str(row[1])


def test_its_sessions_are_the_terminals_and_are_named_by_their_first_question(server: Server) -> None:
    result = run("--url", url(server), stdin="Hoe hoog mag een ladder zijn?\ntwee\n")
    assert told_of(server, session_in(result.stderr)) == ("cli", "Hoe hoog mag een ladder")


class TestGoingOn:
    def test_continue_takes_up_the_last_session(self, server: Server, tmp_path: Path) -> None:
        first = run("--url", url(server), "een", XDG_STATE_HOME=str(tmp_path))
        second = run("--url", url(server), "--continue", "twee", XDG_STATE_HOME=str(tmp_path))
        assert second.stderr == f"EVI op {url(server)} · verder in gesprek {session_in(first.stderr)}\n"
        assert "Daarvoor (2):" in second.stdout

    def test_what_it_remembers_is_nobody_elses_to_read(self, server: Server, tmp_path: Path) -> None:
        with Terminal("--url", url(server), XDG_STATE_HOME=str(tmp_path)) as terminal:
            terminal.ask("een")
            terminal.expect("Later verder")
            assert terminal.leave() == 0
        files = {file.name: file.stat().st_mode & 0o777 for file in (tmp_path / "evi").iterdir()}
        assert files == {"sessions.json": 0o600, "history": 0o600}

    @pytest.mark.parametrize("remembered", ["{}", "no json", '{"URL": "00000000-0000-4000-8000-000000000000"}'])
    def test_without_a_memory_it_is_the_newest_of_the_terminal(
        self, remembered: str, server: Server, tmp_path: Path
    ) -> None:
        (tmp_path / "evi").mkdir()
        (tmp_path / "evi" / "sessions.json").write_text(remembered.replace("URL", url(server)))
        newest = session_in(run("--url", url(server), "een").stderr)
        result = run("--url", url(server), "--continue", "twee", XDG_STATE_HOME=str(tmp_path))
        assert result.stderr == f"EVI op {url(server)} · verder in gesprek {newest}\n"

    def test_the_beginning_of_an_id_is_enough(self, server: Server) -> None:
        session_id = session_in(run("--url", url(server), "een").stderr)
        result = run("--url", url(server), "--session", session_id[:13], "twee")
        assert "Daarvoor (2):" in result.stdout
        with Terminal("--url", url(server)) as terminal:
            terminal.ask(f"/resume {session_id[:13].upper()}")
            terminal.expect(f"Verder in gesprek {session_id}")
            terminal.expect("Jij: twee")
            terminal.ask("drie")
            terminal.expect("Daarvoor (4):")
            assert terminal.leave() == 0

    def test_a_beginning_that_several_share_lists_them(self, server: Server) -> None:
        shared = ["77770000-1111-4111-8111-111111111111", "77770000-2222-4222-8222-222222222222"]
        with server.connect() as connection:
            for session_id in shared:
                connection.execute("INSERT INTO sessions (id, title) VALUES (%s, 'Ladders')", [session_id])
        with Terminal("--url", url(server)) as terminal:
            terminal.ask("/resume 7777")
            terminal.expect("typ iets meer van het id")
            assert terminal.leave() == 0
        assert {session_id[:10] for session_id in shared} <= set(terminal.shown.split())

    def test_a_beginning_of_none_is_one_clear_sentence(self, server: Server) -> None:
        result = run("--url", url(server), "--session", "fffffff0", "een")
        assert (result.returncode, result.stdout) == (1, "")
        assert result.stderr == "Geen gesprek begint met fffffff0: /sessions toont ze.\n"


class TestCommands:
    def test_new_begins_another_session_with_the_next_question(self, server: Server) -> None:
        before = number_of_sessions(server)
        with Terminal("--url", url(server)) as terminal:
            terminal.ask("een")
            terminal.expect("Later verder")
            terminal.ask("/new")
            terminal.expect("Terug naar het vorige: /resume")
            assert number_of_sessions(server) == before + 1
            terminal.ask("twee")
            terminal.expect("Later verder")
            assert terminal.leave() == 0
        assert "Daarvoor" not in terminal.shown
        assert len(set(RETURN_HINT.findall(terminal.shown))) == 2

    def test_sessions_and_session_tell_what_there_is(self, server: Server) -> None:
        with Terminal("--url", url(server)) as terminal:
            terminal.ask("Hoe zit het met zwenkwielen?")
            terminal.expect("Later verder")
            session_id = session_in(terminal.shown)
            with server.connect() as connection:
                connection.execute(
                    "INSERT INTO summaries (session_id, text, message_count, last_seq) VALUES (%s, 'Draaiend', 2, 2)",
                    [session_id],
                )
            terminal.ask("/sessions zwenk")
            terminal.expect("samenvatting")
            terminal.expect(session_id[:8])
            terminal.expect("Draaiend")
            terminal.expect("/resume en het begin")
            terminal.ask("/session")
            terminal.expect("kanaal           cli")
            terminal.expect("berichten        2")
            terminal.expect("samenvatting     Draaiend")
            assert terminal.leave() == 0

    def test_commands_and_ids_are_completed_and_what_was_typed_comes_back(self, server: Server, tmp_path: Path) -> None:
        with Terminal("--url", url(server), XDG_STATE_HOME=str(tmp_path)) as terminal:
            terminal.ask("Wat is een kraanhaak?")
            terminal.expect("Later verder")
            session_id = session_in(terminal.shown)
            terminal.expect("›")
            # The arrow brings it back.
            terminal.type("\x1b[A\r")
            terminal.expect("Daarvoor (2):")
            terminal.ask("/new")
            terminal.expect("Terug naar het vorige")
            terminal.expect("›")
            # At once, Tab would come before there is anything to complete it with.
            terminal.type("/res")
            terminal.expect("ga verder in een ander gesprek")
            terminal.type(f"\t {session_id[:6]}")
            terminal.expect("Kraanhaak")
            terminal.type("\t\r")
            terminal.expect(f"Verder in gesprek {session_id}")
            assert terminal.leave() == 0

    def test_the_first_start_says_how_to_go_on(self, server: Server, tmp_path: Path) -> None:
        for times in (1, 0):
            with Terminal("--url", url(server), XDG_STATE_HOME=str(tmp_path)) as terminal:
                terminal.ask("een")
                terminal.expect("Later verder")
                assert terminal.leave() == 0
            assert terminal.shown.count("/new begint een ander gesprek") == times

    def test_an_unknown_command_names_the_closest_first(self, server: Server) -> None:
        before = number_of_sessions(server)
        with Terminal("--url", url(server)) as terminal:
            terminal.ask("/exprot")
            terminal.expect("/exprot ken ik niet. Bedoel je /export? Er zijn: /export, ")
            assert terminal.leave() == 0
        assert number_of_sessions(server) == before

    def test_help_names_every_command(self, server: Server) -> None:
        with Terminal("--url", url(server)) as terminal:
            terminal.ask("/help")
            for name in [
                "new",
                "resume",
                "sessions",
                "session",
                "search",
                "remember",
                "facts",
                "export",
                "handover",
                "help",
            ]:
                terminal.expect(f"/{name}")
            assert terminal.leave() == 0

    def test_a_question_may_begin_with_a_slash_behind_a_space(self, server: Server) -> None:
        with Terminal("--url", url(server)) as terminal:
            terminal.ask(" /etc is wat?")
            terminal.expect("Je vroeg: /etc is wat?")
            assert terminal.leave() == 0

    def test_an_export_is_a_file_that_was_not_there(self, server: Server, tmp_path: Path) -> None:
        as_json, as_text = tmp_path / "mijn gesprek.json", tmp_path / "gesprek.md"
        with Terminal("--url", url(server)) as terminal:
            terminal.ask("een")
            terminal.expect("Later verder")
            terminal.ask(f"/export {as_json}")
            terminal.expect("Bewaard in")
            terminal.ask(f"/export {as_text} markdown")
            terminal.expect("Bewaard in")
            terminal.ask(f"/export {as_text}")
            terminal.expect("is er al")
            assert terminal.leave() == 0
        assert json.loads(as_json.read_text())["messages"][0]["content"] == "een"
        assert 'Gebruiker: "een"' in as_text.read_text()


class TestForScripts:
    def test_an_answer_is_one_object_on_one_line(self, server: Server) -> None:
        result = run("--url", url(server), "--json", stdin="een\ntwee\n")
        assert (result.returncode, result.stderr) == (0, "")
        first, second = map(json.loads, result.stdout.splitlines())
        assert (first["answer"], first["citations"], first["model"]) == ("Je vroeg: een", [], "evi")
        assert first["usage"]["total_tokens"] > 0
        assert first["session_id"] == second["session_id"]
        assert len(messages_of(server, first["session_id"])) == 4

    @pytest.mark.parametrize(("question", "answer"), [("weiger", ""), ("breek af", "Dit komt op breek af.")])
    def test_a_failure_is_an_object_too(self, question: str, answer: str, server_with_model: Server) -> None:
        result = run("--url", url(server_with_model), "--json", question)
        said = json.loads(result.stdout)
        assert (result.returncode, result.stderr, said["answer"]) == (1, "", answer)
        assert said["error"]["code"] == "model_error"
        assert messages_of(server_with_model, said["session_id"])[0] == ("user", question, "complete")

    @pytest.mark.parametrize(
        ("arguments", "status", "code"),
        [(("--url", "nowhere"), 2, "wrong_arguments"), (("--url", "http://127.0.0.1:1", "een"), 1, "unreachable")],
    )
    def test_nor_does_it_need_a_server_for_that(self, arguments: tuple[str, ...], status: int, code: str) -> None:
        result = run("--json", *arguments)
        assert (result.returncode, result.stderr) == (status, "")
        assert json.loads(result.stdout)["error"]["code"] == code


def make_findable(server: Server, session_id: str) -> None:
    """What the worker does each minute."""
    subprocess.run(
        [sys.executable, "manage.py", "embed_messages"],
        cwd=BASE_DIR,
        env={"PATH": os.environ["PATH"], "EVI_DATA_DIR": str(server.data_dir), "EVI_MODEL": "echo"},
        capture_output=True,
        check=True,
        timeout=120,
    )
    # The worker itself may have been at it at that moment.
    with server.connect() as connection:
        wait_for(
            lambda: (
                connection.execute("SELECT FROM message_embeddings WHERE session_id = %s", [session_id]).fetchone()
                is not None
            )
        )


class TestMemory:
    """What EVI keeps of a person, asked of the real one."""

    @pytest.fixture
    def key(self, server: Server) -> str:
        """Of a client that nobody else here is."""
        return (server.data_dir / "secrets" / "EVI_API_KEY").read_text()

    def test_what_was_said_is_found(self, server: Server) -> None:
        session_id = session_in(run("--url", url(server), "Welke steiger kreeg sticker 4711?").stderr)
        make_findable(server, session_id)
        with Terminal("--url", url(server)) as terminal:
            terminal.ask("/search sticker 4711")
            terminal.expect(f"{session_id[:8]} · ")
            terminal.expect(" · bericht · ")
            terminal.expect("Welke steiger kreeg sticker 4711?")
            terminal.expect("/resume en het begin")
            assert terminal.leave() == 0

    def test_what_is_not_found_may_have_been_said_just_now(self, capsys: pytest.CaptureFixture[str]) -> None:
        commands.search(SimpleNamespace(client=SimpleNamespace(search=lambda text: [])), "ladder")  # type: ignore[arg-type]
        told = " ".join(capsys.readouterr().err.split())
        assert told == "Over 'ladder' is niets gevonden. Wat net is gezegd, vindt EVI pas na een minuut of twee."

    def test_facts_are_decided_on_by_the_numbers_that_were_shown(self, server: Server, key: str) -> None:
        with Terminal("--url", url(server), EVI_API_KEY=key) as terminal:
            terminal.ask("/facts vergeet 1")
            terminal.expect("Bekijk ze eerst met /facts")
            terminal.ask("/remember Werkt in de bouw")
            terminal.expect("Onthouden: Werkt in de bouw")
            with server.connect() as connection:
                connection.execute(
                    "INSERT INTO facts (owner_id, text) SELECT id, 'Heeft een heftruck' FROM auth_user "
                    "WHERE username = 'default'"
                )
            terminal.ask("/facts")
            terminal.expect("1. Heeft een heftruck voorstel")
            terminal.expect("2. Werkt in de bouw")
            for typed, said in [
                ("/facts akkoord 1", "Goedgekeurd: Heeft een heftruck"),
                ("/facts wijzig 1 Heeft 3 heftrucks", "Gewijzigd: Heeft 3 heftrucks"),
                ("/facts forget 2", "Vergeten: Werkt in de bouw"),
                ("/facts vergeet 2", "Was er al niet meer: Werkt in de bouw"),
                ("/facts vergeet 3", "Er staat geen 3 in de lijst"),
                ("/facts weg", "Zo: /facts akkoord 2"),
            ]:
                terminal.ask(typed)
                terminal.expect(said)
            assert terminal.leave() == 0
        with server.connect() as connection:
            assert connection.execute("SELECT text, status FROM facts").fetchall() == [
                ("Heeft 3 heftrucks", "approved")
            ]

    def test_a_conversation_is_handed_over_and_taken_up_by_its_code(self, server: Server, key: str) -> None:
        with httpx.Client(base_url=url(server), headers={"Authorization": f"Bearer {key}"}) as other:
            begun = other.post("/chat", json={"query": "Wat is een helm?", "user": "anna"})
            session_id = begun.headers["X-Session-ID"]
            code = other.post(f"/api/sessions/{session_id}/handover", params={"user": "anna"}).json()["code"]
        with Terminal("--url", url(server), EVI_API_KEY=key) as terminal:
            terminal.ask("/handover")
            terminal.expect("Er is nog geen gesprek")
            terminal.ask("/resume 2222-3333")
            terminal.expect("Deze code opent niets (meer)")
            # Without its hyphen it is a code where it cannot be the beginning of an id.
            terminal.ask(f"/resume {code.lower()}")
            terminal.expect(f"Verder in gesprek {session_id} · Helm · 2 berichten")
            terminal.expect("Jij: Wat is een helm?")
            terminal.ask(f"/resume {code}")
            terminal.expect("Deze code opent niets (meer)")
            terminal.ask("en verder")
            terminal.expect("Daarvoor (2):")
            terminal.ask("/handover")
            terminal.expect("De code is ")
            assert terminal.leave() == 0
        with server.connect() as connection:
            row = connection.execute("SELECT user_id, message_count FROM sessions WHERE id = %s", [session_id])
            assert row.fetchone() == ("", 4)


class Contract(BaseHTTPRequestHandler):
    """An older EVI, without the routes below /api; what it answers has a source and takes its time."""

    CITATION: ClassVar[dict[str, Any]] = {
        "marker": 1,
        "document_title": "Ladders en trappen",
        "section": "Hoe hoog?",
        "norm": "NEN 2484",
        "url": "https://example.org/ladders",
    }

    def answer(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        match self.command, self.path:
            case "GET", "/v1/models":
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.end_headers()
                self.wfile.write(b'{"data": []}')
            case "POST", "/v1/chat/completions":
                self.stream()
            case _:
                self.send_error(404)

    do_GET = do_POST = do_PATCH = answer  # noqa: N815

    def stream(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("X-Session-ID", str(uuid4()))
        self.end_headers()
        status = {"type": "status", "data": {"description": "Zoekt in richtlijnen…", "done": False}}
        last = {"model": "evi", "choices": [{"delta": {}}], "citations": [self.CITATION]}
        for event in ({"event": status}, {"choices": [{"delta": {"content": "Ten hoogste 7,5 meter [1]"}}]}, last):
            self.wfile.write(f"data: {json.dumps(event)}\n\n".encode())
            # Long enough for a screen to be drawn.
            time.sleep(0.4)
        self.wfile.write(b"data: [DONE]\n\n")

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture(scope="module")
def contract() -> Iterator[str]:
    with serving(Contract) as address:
        yield address


class TestByContract:
    def test_what_evi_does_is_shown_and_then_its_sources(self, contract: str) -> None:
        with Terminal("--url", contract) as terminal:
            terminal.ask("Hoe hoog mag een ladder zijn?")
            terminal.expect("Zoekt in richtlijnen…")
            terminal.expect("Bronnen")
            terminal.expect("[1] Ladders en trappen, Hoe hoog?, NEN 2484")
            terminal.expect("https://example.org/ladders")
            assert terminal.leave() == 0

    def test_an_older_evi_says_what_it_cannot_do(self, contract: str) -> None:
        with Terminal("--url", contract) as terminal:
            for typed, lacking in (
                ("/sessions", "dit"),
                ("/search ladder", "zoeken"),
                ("/facts", "onthouden"),
                ("/resume K7QF-2M9X", "overdragen"),
            ):
                terminal.ask(typed)
                terminal.expect(f"Deze EVI kan {lacking} nog niet: daar is een nieuwere versie voor nodig.")
            assert terminal.leave() == 0
