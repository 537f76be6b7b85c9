"""How a WebSocket begins: who opens it, from which page, and how fast they read."""

import asyncio
from importlib import import_module
from io import BytesIO
from typing import Any, Protocol, Self

from django.conf import settings
from django.contrib.auth import get_user
from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.core.exceptions import SuspiciousOperation
from django.core.handlers.asgi import ASGIRequest

from conversations.api.access import comes_from_here


class Transport(Protocol):
    def registerProducer(self, producer: object, streaming: bool) -> None: ...  # noqa: N802  # Twisted's name
    def unregisterProducer(self) -> None: ...  # noqa: N802  # Twisted's name


def request_of(scope: dict[str, Any], *, key: str = "") -> ASGIRequest:
    """The handshake as a request, for all that knows requests; with a key, as if it had come in the header."""
    # Some proxies name the WebSocket's own scheme where they are to say that it came over HTTPS.
    headers = [
        (name, b"https" if (name, value) == (b"x-forwarded-proto", b"wss") else value)
        for name, value in scope["headers"]
    ]
    if key:
        headers = [header for header in headers if header[0] != b"authorization"]
        headers.append((b"authorization", f"Bearer {key}".encode(errors="replace")))
    return ASGIRequest({**scope, "type": "http", "method": "GET", "headers": headers}, BytesIO())


def is_welcome(request: ASGIRequest) -> bool:
    """Whether the page is one of this site's, and the site is called by a name of its own."""
    try:
        return comes_from_here(request)
    except SuspiciousOperation:
        return False


def signed_in(request: ASGIRequest) -> AbstractBaseUser | AnonymousUser:
    """Who signed in on the page. A cookie counts only where the browser says which page it is sent from."""
    cookie = request.COOKIES.get(settings.SESSION_COOKIE_NAME)
    if not cookie or "Origin" not in request.headers:
        return AnonymousUser()
    request.session = import_module(settings.SESSION_ENGINE).SessionStore(cookie)
    return get_user(request)


class Pace:
    """Lets a writer wait for its reader.

    Daphne takes in all that it is given, and a reader that does not read would have it kept in memory. The transport
    below knows when it is full, and tells its producer.
    """

    def __init__(self) -> None:
        self._is_free = asyncio.Event()
        self._is_free.set()

    @classmethod
    def of(cls, send: Any) -> Self:
        """The pace of the reader behind `send`, which daphne binds to the connection."""
        pace = cls()
        transport: Transport | None = getattr(next(iter(getattr(send, "args", ())), None), "transport", None)
        if transport:
            # The HTTP request that the socket was before is still written down as the producer.
            transport.unregisterProducer()
            transport.registerProducer(pace, True)
        return pace

    @property
    def is_held_up(self) -> bool:
        return not self._is_free.is_set()

    async def free(self) -> None:
        await self._is_free.wait()

    def pauseProducing(self) -> None:  # noqa: N802  # Twisted's name
        self._is_free.clear()

    def resumeProducing(self) -> None:  # noqa: N802  # Twisted's name
        self._is_free.set()

    def stopProducing(self) -> None:  # noqa: N802  # Twisted's name
        # Nobody reads any more, so nobody has to be waited for.
        self._is_free.set()
