"""Talk with EVI in a terminal: python cli.py [--url URL] [--key KEY] [--session ID] [question …]. Over HTTP only."""

import argparse
import json
import os
import re
import sys
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from io import TextIOWrapper
from pathlib import Path
from typing import Any

try:
    import httpx
    from prompt_toolkit import PromptSession
    from prompt_toolkit.output import create_output
    from rich.console import Console, RenderableType
    from rich.live import Live
    from rich.markdown import Markdown
    from rich.segment import SegmentLines
    from rich.spinner import Spinner
except ModuleNotFoundError as missing:
    python = Path(__file__).resolve().parent / ".venv" / "bin" / "python"
    sys.exit(f"Deze Python mist {missing.name}: start cli.py met {python} (script/setup maakt die).")

DEFAULT_URL = "http://127.0.0.1:8000"
SESSION_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
LOOPBACK = re.compile(r"127(\.\d+){3}|::1|(.+\.)?localhost")
# How long EVI may stay silent; the server itself gives up on a model long before.
SILENCE_SECONDS = 300
# An answer is text: it does not get to steer the terminal.
CONTROL_CODES = {code: None for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}
MODEL_TROUBLE = {
    "model_error": "Het model kon hier geen antwoord op geven: stel de vraag opnieuw, of anders.",
    "model_unavailable": "Het model is nu niet bereikbaar: probeer het over een minuut opnieuw.",
    "model_timeout": "Het model deed te lang over het antwoord: stel de vraag opnieuw.",
}
FAILED, WRONG_ARGUMENTS, INTERRUPTED = 1, 2, 130

screen = Console()
notes = Console(stderr=True)


class ChatError(Exception):
    """What went wrong and what to do about it, in a sentence for the person at the keyboard."""


@dataclass
class Chat:
    """One run: the way to the server, and the session as soon as there is one."""

    client: httpx.Client
    session_id: str | None

    @property
    def url(self) -> str:
        return str(self.client.base_url).rstrip("/")


def main() -> int:
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        chat, question = read_arguments()
    except ValueError as error:
        say(error, style="red")
        return WRONG_ARGUMENTS
    try:
        with chat.client:
            return talk(chat, question)
    except ChatError as error:
        say(error, style="red")
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read the answers has left; Python's own last flush must not complain about that.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED


def read_arguments() -> tuple[Chat, str]:
    parser = argparse.ArgumentParser(
        description="Praat met EVI. Zonder vraag begint een gesprek; met een vraag volgt alleen het antwoord.",
        add_help=False,
        allow_abbrev=False,
        exit_on_error=False,
    )
    options = parser.add_argument_group("wat je kunt opgeven")
    options.add_argument("question", nargs="*", metavar="vraag", help="een vraag, waarna cli.py stopt")
    url, key = os.environ.get("EVI_URL") or DEFAULT_URL, os.environ.get("EVI_API_KEY", "")
    options.add_argument("--url", default=url, help=f"het adres van EVI (anders EVI_URL, of {DEFAULT_URL})")
    options.add_argument("--key", default=key, help="de API-sleutel (anders EVI_API_KEY)")
    options.add_argument("--session", metavar="ID", type=str.lower, help="ga verder in dit gesprek")
    options.add_argument("-h", "--help", action="help", help="toon deze uitleg")
    try:
        given, unknown = parser.parse_known_args()
    except argparse.ArgumentError as error:
        raise ValueError(f"Na {error.argument_name} hoort een waarde: zie cli.py --help.") from None
    if unknown:
        raise ValueError(f"{unknown[0]} is geen optie: zie cli.py --help, of zet -- voor je vraag.")
    question = " ".join(given.question).strip()
    if given.question and not question:
        raise ValueError("De vraag is leeg: typ een vraag, of laat hem weg om een gesprek te beginnen.")
    if given.session is not None and not SESSION_ID.fullmatch(given.session):
        raise ValueError(f"'{given.session}' is geen gesprek-id: neem het hele id over, of laat --session weg.")
    key = given.key.strip()
    if not (key.isascii() and key.isprintable()):
        raise ValueError("In de API-sleutel staan tekens die er niet in horen: kopieer hem opnieuw.")
    return Chat(connect(server_url(given.url), key=key), given.session), question


def server_url(text: str) -> httpx.URL:
    """The server's own address, also when somebody names the /v1 below it."""
    try:
        url = httpx.URL(text.strip())
    except httpx.InvalidURL:
        url = httpx.URL()
    if url.scheme not in ("http", "https") or not url.host:
        raise ValueError(f"'{text}' is geen adres: schrijf het zoals {DEFAULT_URL}.")
    return url.copy_with(path=url.path.rstrip("/").removesuffix("/v1"), query=None, fragment=None)


def connect(url: httpx.URL, *, key: str) -> httpx.Client:
    # A proxy cannot reach this machine's own server. A transport of one's own passes the environment's proxies by,
    # and unlike trust_env=False still honours SSL_CERT_FILE.
    transport = httpx.HTTPTransport() if LOOPBACK.fullmatch(url.host) else None
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    timeout = httpx.Timeout(10, read=SILENCE_SECONDS)
    try:
        return httpx.Client(base_url=url, headers=headers, timeout=timeout, transport=transport)
    except (ImportError, ValueError, httpx.InvalidURL) as error:
        raise ValueError(f"De proxy in je omgeving is niet te gebruiken ({error}): pas HTTPS_PROXY aan.") from error


def talk(chat: Chat, question: str) -> int:
    """The whole run; the result is its exit code."""
    where = f"EVI op {chat.url} · {f'verder in gesprek {chat.session_id}' if chat.session_id else 'nieuw gesprek'}"
    if not question and sys.stdin.isatty():
        check(chat)
        say(f"{where} · stoppen met Ctrl-D")
        return converse(chat)
    say(where)
    return answer_all(chat, [question] if question else map(str.strip, sys.stdin))


def converse(chat: Chat) -> int:
    # The prompt belongs to the person, also when the answers go into a file.
    prompt: PromptSession[str] = PromptSession(output=create_output(always_prefer_tty=True))
    while True:
        try:
            question = prompt.prompt("\n› ").strip()
        except (KeyboardInterrupt, EOFError):
            say("Tot ziens.")
            return 0
        if question:
            say("")
            answer(chat, question)


def answer_all(chat: Chat, questions: Iterable[str]) -> int:
    """Answer until one fails: the questions after it may lean on its answer."""
    for number, question in enumerate(filter(None, questions)):
        if number:
            print()
        if code := answer(chat, question):
            return code
    return 0


def answer(chat: Chat, question: str) -> int:
    """Put the question and show what comes; the result is the exit code, if this was all."""
    session_before, code = chat.session_id, 0
    try:
        with closing(ask(chat, question)) as pieces:
            show(pieces)
    except KeyboardInterrupt:
        say("(afgebroken)")
        code = INTERRUPTED
    except ChatError as error:
        say(error, style="red")
        code = FAILED
    if chat.session_id != session_before:
        say(f"Later verder in dit gesprek: --session {chat.session_id}")
    return code


def check(chat: Chat) -> None:
    """Refuse to begin a conversation that cannot be held, before a question is typed."""
    try:
        response = chat.client.get("/v1/models", timeout=10)
    except httpx.RequestError as error:
        raise ChatError(unreachable(chat, error)) from error
    if response.is_error or not is_of(response, "application/json"):
        raise ChatError(refusal(chat, response))


def ask(chat: Chat, question: str) -> Generator[str, None, None]:
    """The answer, piece by piece. Closing this hangs up, and the server keeps what it said."""
    # Bytes of the command line that are no text would not survive the encoding as JSON.
    text = question.encode("utf-8", "replace").decode()
    body = {"model": "evi", "stream": True, "messages": [{"role": "user", "content": text}]}
    headers = {"X-Session-ID": chat.session_id} if chat.session_id else {}
    begun = False
    try:
        with chat.client.stream("POST", "/v1/chat/completions", json=body, headers=headers) as response:
            if not is_of(response, "text/event-stream") or "X-Session-ID" not in response.headers:
                raise ChatError(refusal(chat, response))
            chat.session_id, begun = response.headers["X-Session-ID"], True
            for event in events(response):
                if event == "[DONE]":
                    return
                chunk = json.loads(event)
                if piece := piece_of(chunk) + sources_of(chunk):
                    yield piece.translate(CONTROL_CODES)
    except httpx.RequestError as error:
        if not begun:
            raise ChatError(unreachable(chat, error)) from error
    raise ChatError("De verbinding brak af tijdens het antwoord: kijk of EVI nog draait en stel de vraag opnieuw.")


def events(response: httpx.Response) -> Iterator[str]:
    """The data of each server-sent event. httpx's own lines also end at a U+2028, which may be part of an answer."""
    response.encoding, rest = "utf-8", ""
    for text in response.iter_text():
        *lines, rest = (rest + text).split("\n")
        yield from (line.removeprefix("data:").strip() for line in lines if line.startswith("data:"))


def piece_of(chunk: dict[str, Any]) -> str:
    if error := chunk.get("error"):
        raise ChatError(server_trouble(error.get("code")))
    return "".join(choice["delta"].get("content") or "" for choice in chunk["choices"])


def sources_of(chunk: dict[str, Any]) -> str:
    """What the answer cites, as a list below it."""
    lines = [
        f"[{cited['marker']}] "
        + ", ".join(filter(None, (cited["document_title"], cited.get("section"), cited["norm"])))
        for cited in chunk.get("citations") or []
    ]
    return "\n\n" + "  \n".join(lines) if lines else ""


def show(pieces: Iterator[str]) -> None:
    """The answer while it comes; what was said stays, however it ends."""
    if not sys.stdout.isatty() or screen.is_dumb_terminal:
        said = ""
        try:
            for said in pieces:
                print(said, end="", flush=True)
        finally:
            print(end="\n" if said else "", flush=True)
        return
    text, waiting = "", Spinner("dots", style="dim")

    def last_lines() -> RenderableType:
        # Only what the screen holds can be drawn again; the whole follows at the end.
        lines = screen.render_lines(Markdown(text))[2 - screen.height :]
        return SegmentLines(lines, new_lines=True) if text else waiting

    try:
        with Live(get_renderable=last_lines, console=screen, transient=True, refresh_per_second=12):
            for piece in pieces:
                text += piece
    finally:
        if text:
            screen.print(Markdown(text))


def unreachable(chat: Chat, error: httpx.RequestError) -> str:
    if isinstance(error, httpx.ReadTimeout):
        return f"EVI op {chat.url} zwijgt: kijk of de server nog werkt en stel de vraag opnieuw."
    reason = re.sub(r"^\[.*?\] ", "", str(error)) or type(error).__name__
    return f"EVI is niet bereikbaar op {chat.url} ({reason}): start script/server, of geef een ander adres met --url."


def refusal(chat: Chat, response: httpx.Response) -> str:
    """A sentence for an answer that is none."""
    error = error_in(response)
    match response.status_code:
        case 401 if "Authorization" in chat.client.headers:
            return "EVI kent deze API-sleutel niet: controleer --key of EVI_API_KEY."
        case 401:
            return "EVI vraagt een API-sleutel: geef hem met --key, of zet hem in EVI_API_KEY."
        case 404 if error.get("code") == "session_not_found":
            return f"Gesprek {chat.session_id} is er niet (meer): start cli.py zonder --session voor een nieuw gesprek."
        case 429:
            seconds = response.headers.get("Retry-After", "")
            when = f"{seconds} seconden" if seconds.isdigit() else "een minuut"
            return f"Dat waren te veel vragen achter elkaar: probeer het over {when} opnieuw."
        case status if status >= 500:
            return server_trouble(error.get("code") or status)
        case status if error:
            message = str(error.get("message", status)).translate(CONTROL_CODES)
            return f"EVI weigert deze vraag ({message}): stel hem korter of anders."
        case status:
            moved = response.headers.get("Location")
            hint = f"het verwijst naar {moved}; geef" if moved else "geef"
            return f"Op {chat.url} antwoordt iets anders dan EVI (status {status}): {hint} het goede adres met --url."


def error_in(response: httpx.Response) -> dict[str, Any]:
    """The error as OpenAI words it; empty when it came from something else."""
    try:
        return dict(json.loads(response.read())["error"]) if is_of(response, "application/json") else {}
    except (ValueError, KeyError, TypeError):
        return {}


def is_of(response: httpx.Response, content_type: str) -> bool:
    return str(response.headers.get("Content-Type", "")).startswith(content_type)


def server_trouble(code: object) -> str:
    return MODEL_TROUBLE.get(
        str(code), f"Bij EVI ging iets mis ({code}): probeer het zo nog eens, of kijk in het log van de server."
    )


def say(text: object, *, style: str = "dim") -> None:
    """A word of the program itself, beside the answers."""
    notes.print(str(text), style=style, markup=False, highlight=False, soft_wrap=True)


if __name__ == "__main__":
    sys.exit(main())
