"""A WebSocket client for tests that are not asynchronous, with a clock in every wait."""

import asyncio
import base64
import json
import os
import socket
import threading
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

import aiohttp

T = TypeVar("T")
PATIENCE = 20.0


class Sockets:
    """A loop in a thread of its own, and what is connected in it."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._client = self.run(self._make_client())

    async def _make_client(self) -> aiohttp.ClientSession:
        return aiohttp.ClientSession()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE + 10)

    def open(self, url: str, **headers: str) -> "Socket":
        """Connect; `cookie` and `origin` are headers as well."""
        return Socket(self, self.run(self._open(url.replace("http://", "ws://"), headers)))

    async def _open(self, url: str, headers: Mapping[str, str]) -> aiohttp.ClientWebSocketResponse:
        return await self._client.ws_connect(url, headers=headers, max_msg_size=0)

    def close(self) -> None:
        self.run(self._client.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class Socket:
    def __init__(self, sockets: Sockets, connection: aiohttp.ClientWebSocketResponse) -> None:
        self._sockets = sockets
        self._connection = connection

    def send(self, **frame: Any) -> None:
        self.send_text(json.dumps(frame))

    def send_text(self, text: str) -> None:
        self._sockets.run(self._connection.send_str(text))

    def send_bytes(self, data: bytes) -> None:
        self._sockets.run(self._connection.send_bytes(data))

    def next(self) -> dict[str, Any]:
        message = self._sockets.run(self._connection.receive(PATIENCE))
        assert message.type is aiohttp.WSMsgType.TEXT, (message, self._connection.close_code)
        frame: dict[str, Any] = json.loads(message.data)
        return frame

    def until(self, *kinds: str) -> list[dict[str, Any]]:
        """All that comes, up to and including the first frame of one of these kinds."""
        frames = [self.next()]
        while frames[-1]["type"] not in kinds:
            frames.append(self.next())
        return frames

    def end(self) -> int | None:
        """The code with which the other side closes."""
        while self._sockets.run(self._connection.receive(PATIENCE)).type is aiohttp.WSMsgType.TEXT:
            pass
        return self._connection.close_code

    def close(self) -> None:
        self._sockets.run(self._connection.close())

    def drop(self) -> None:
        """Go without a word, as when a cable is pulled."""

        async def abort() -> None:
            transport = self._connection._response.connection and self._connection._response.connection.transport
            assert isinstance(transport, asyncio.Transport)
            transport.abort()

        self._sockets.run(abort())


@contextmanager
def deaf(port: int, path: str) -> Iterator[socket.socket]:
    """A connection that has been opened, and is not read from any more."""
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", port))
        key = base64.b64encode(os.urandom(16)).decode()
        connection.sendall(
            f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
        )
        while b"ready" not in connection.recv(4096):
            pass
        yield connection


def write_text(connection: socket.socket, text: str) -> None:
    """One frame as clients send them, masked with zeros."""
    data = text.encode()
    assert 125 < len(data) < 65536
    connection.sendall(b"\x81" + bytes([0x80 | 126]) + len(data).to_bytes(2, "big") + bytes(4) + data)
