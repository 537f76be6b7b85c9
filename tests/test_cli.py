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
from typing import Any, ClassVar, Self
from uuid import uuid4

import pytest

from evi_site.environment import BASE_DIR
from evi_site.postgres.cluster import Cluster
from tests.processes import free_port
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
    return {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "LANG": "C.UTF-8", **terminal, **variables}


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
    assert terminal.shown.splitlines()[-1] == sentence
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
        f"Gesprek {session_id} is er niet (meer): start cli.py zonder --session voor een nieuw gesprek."
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
