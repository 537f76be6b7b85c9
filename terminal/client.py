"""The way to EVI: each thing that a terminal asks of it, as one call over HTTP."""

import json
import re
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx

from terminal.errors import (
    NotThereError,
    broken_off,
    error_in,
    is_of,
    refusal,
    server_trouble,
    unknown_route,
    unreachable,
)
from terminal.interrupts import Interrupts
from terminal.words import plain

LOOPBACK = re.compile(r"127(\.\d+){3}|::1|(.+\.)?localhost")
# How long EVI may stay silent; the server itself gives up on a model long before.
SILENCE_SECONDS = 300
PATIENCE_SECONDS = 10
Row = dict[str, Any]


@dataclass
class Conversation:
    """Where questions go. The terminal makes the id up itself, and so knows it whenever it is cut short."""

    id: str = field(default_factory=lambda: str(uuid4()))
    # Whether the server has it, as far as anybody here knows.
    is_known: bool = False


@dataclass(frozen=True)
class Progress:
    """What EVI is doing while there is nothing to read yet."""

    text: str


@dataclass(frozen=True)
class Piece:
    """Some more of the answer."""

    text: str


@dataclass(frozen=True)
class Ending:
    """What came with the answer's last word."""

    model: str
    citations: list[Row]
    usage: Row


Event = Progress | Piece | Ending


class Client:
    def __init__(self, url: httpx.URL, *, key: str, interrupts: Interrupts) -> None:
        self.url = str(url).rstrip("/")
        self._interrupts = interrupts
        self._http = connect(url, key=key)

    def close(self) -> None:
        self._http.close()

    def check(self) -> None:
        """Refuse to begin a conversation that cannot be held, before a question is typed."""
        with self._answer_to("GET", "/v1/models") as response:
            if not is_of(response, "application/json"):
                raise refusal(response, url=self.url)

    def ask(self, question: str, *, conversation: Conversation) -> Generator[Event, None, None]:
        """The answer, piece by piece. Closing this hangs up, and the server keeps what it said."""
        body = {
            "model": "evi",
            "stream": True,
            "stream_options": {"include_usage": True},
            "messages": [{"role": "user", "content": question}],
        }
        headers = {"X-Session-ID": conversation.id, "X-EVI-Client": "cli"}
        if not conversation.is_known:
            headers["X-EVI-New-Session"] = "true"
        begun = False
        try:
            with self._stream("POST", "/v1/chat/completions", json=body, headers=headers) as response:
                if not is_of(response, "text/event-stream") or "X-Session-ID" not in response.headers:
                    raise refusal(response, url=self.url, session_id=conversation.id)
                conversation.id, conversation.is_known = response.headers["X-Session-ID"], True
                begun, told = True, Told()
                for event in events(self._interrupts.each(response.iter_bytes())):
                    if event == "[DONE]":
                        yield told.ending
                        return
                    yield from told.next(plain(json.loads(event)))
        except httpx.RequestError as error:
            if not begun:
                raise unreachable(error, url=self.url) from error
        raise broken_off()

    def sessions(self, **wanted: str | int) -> tuple[list[Row], bool]:
        """The sessions, the one used last first, and whether there are more of them."""
        page = self._json("GET", "/api/sessions", params=wanted)
        return list(page["results"]), bool(page.get("next"))

    def session(self, session_id: str) -> Row:
        return self._json("GET", f"/api/sessions/{session_id}")

    def last_messages(self, session_id: str, *, limit: int) -> list[Row]:
        return list(self._json("GET", f"/api/sessions/{session_id}/messages", params={"limit": limit})["results"])

    def search(self, text: str) -> list[Row]:
        return list(self._json("GET", "/api/search", params={"q": text}, purpose="zoeken")["results"])

    def facts(self) -> list[Row]:
        return list(self._json("GET", "/api/facts", purpose="onthouden")["results"])

    def remember(self, text: str) -> Row:
        return self._json("POST", "/api/facts", json={"text": text}, purpose="onthouden")

    def change_fact(self, fact_id: str, **changes: str) -> Row:
        return self._json("PATCH", f"/api/facts/{fact_id}", json=changes, purpose="onthouden")

    def forget_fact(self, fact_id: str) -> None:
        self._json("DELETE", f"/api/facts/{fact_id}", purpose="onthouden")

    def hand_over(self, session_id: str) -> Row:
        return self._json("POST", f"/api/sessions/{session_id}/handover", json={}, purpose="overdragen")

    def take_over(self, code: str) -> Row:
        """The session that was handed over with this code."""
        return self._json("POST", "/api/handover", json={"code": code}, purpose="overdragen")

    def export(self, session_id: str, *, format: str, file: Path) -> None:
        path = f"/api/sessions/{session_id}/export"
        with self._answer_to("GET", path, params={"format": format}) as response, file.open("xb") as target:
            try:
                for piece in self._interrupts.each(response.iter_bytes()):
                    target.write(piece)
            except BaseException:
                # Half a conversation looks like a whole one.
                file.unlink()
                raise

    def _json(self, method: str, path: str, **request: Any) -> Row:
        with self._answer_to(method, path, **request) as response:
            if response.status_code == httpx.codes.NO_CONTENT:
                return {}
            if not is_of(response, "application/json"):
                raise refusal(response, url=self.url)
            return dict(plain(json.loads(response.read())))

    @contextmanager
    def _answer_to(self, method: str, path: str, *, purpose: str = "dit", **request: Any) -> Iterator[httpx.Response]:
        """A response that is no refusal. `purpose` is what an older EVI, without such a route, cannot do."""
        try:
            with self._stream(method, path, timeout=PATIENCE_SECONDS, **request) as response:
                if response.status_code == httpx.codes.NOT_FOUND and path.startswith("/api/"):
                    raise NotThereError() if error_in(response) else unknown_route(purpose)
                if not response.is_success:
                    raise refusal(response, url=self.url)
                yield response
        except httpx.RequestError as error:
            raise unreachable(error, url=self.url) from error

    @contextmanager
    def _stream(self, method: str, path: str, **request: Any) -> Iterator[httpx.Response]:
        stream = self._http.stream(method, path, **request)
        with self._interrupts.waiting():
            response = stream.__enter__()
        try:
            yield response
        finally:
            stream.__exit__(None, None, None)


class Told:
    """An answer as OpenAI's chunks tell it, in the terminal's own words."""

    def __init__(self) -> None:
        self.ending = Ending(model="", citations=[], usage={})

    def next(self, chunk: Row) -> Iterator[Event]:
        if error := chunk.get("error"):
            raise server_trouble(error.get("code"))
        if event := chunk.get("event"):
            if event["type"] == "status" and not event["data"]["done"]:
                yield Progress(event["data"]["description"])
            return
        self.ending = Ending(
            model=chunk.get("model", self.ending.model),
            citations=chunk.get("citations") or self.ending.citations,
            usage=chunk.get("usage") or self.ending.usage,
        )
        if text := "".join(choice["delta"].get("content") or "" for choice in chunk["choices"]):
            yield Piece(text)


def connect(url: httpx.URL, *, key: str) -> httpx.Client:
    # A proxy cannot reach this machine's own server. A transport of one's own passes the environment's proxies by,
    # and unlike trust_env=False still honours SSL_CERT_FILE.
    transport = httpx.HTTPTransport() if LOOPBACK.fullmatch(url.host) else None
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    timeout = httpx.Timeout(PATIENCE_SECONDS, read=SILENCE_SECONDS)
    try:
        return httpx.Client(base_url=url, headers=headers, timeout=timeout, transport=transport)
    except (ImportError, ValueError, httpx.InvalidURL) as error:
        raise ValueError(f"De proxy in je omgeving is niet te gebruiken ({error}): pas HTTPS_PROXY aan.") from error


def events(pieces: Iterator[bytes]) -> Iterator[str]:
    """The data of each server-sent event. httpx's own lines also end at a U+2028, which may be part of an answer."""
    rest = b""
    for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            if line.startswith(b"data:"):
                yield line.removeprefix(b"data:").strip().decode(errors="replace")
