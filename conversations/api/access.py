"""Who is asking: the client by its key, the person by the name the client gives."""

import ipaddress
import re
from dataclasses import dataclass
from datetime import timedelta
from urllib.parse import unquote
from uuid import UUID

from django.conf import settings
from django.core.cache import cache
from django.core.exceptions import RequestDataTooBig
from django.db.models import Q
from django.http import HttpRequest
from django.utils import timezone

from conversations.errors import (
    BadRequestError,
    InvalidSessionIdError,
    NotAuthenticatedError,
    TooLargeError,
    TooManyRequestsError,
)
from conversations.models import ApiKey

UUID4 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", re.IGNORECASE)
MAX_USER_CHARS = 255
# Writing down every use would be a write for every request.
LAST_USED_STEP = timedelta(minutes=1)


@dataclass(frozen=True)
class Client:
    """Who has come in by a key. Without an owner: somebody on this machine, in development."""

    owner_id: int | None
    in_line: bool = False


@dataclass(frozen=True)
class Caller(Client):
    """The client and the person behind it."""

    user_id: str = ""


def identify(request: HttpRequest, *, user: str | None = None) -> Caller:
    """The caller, or a refusal. `user` is the person as the request's body names them."""
    client = authenticate(request)
    return Caller(client.owner_id, client.in_line, person_of(request, user=user))


def authenticate(request: HttpRequest) -> Client:
    """The client whose key this is, or a refusal."""
    client = _client(request)
    _count(client)
    return client


def person_of(request: HttpRequest, *, user: str | None) -> str:
    """The person behind the client: as the client forwards them, or as the body names them."""
    forwarded = unquote(request.headers.get("X-OpenWebUI-User-Id", "")).strip()
    person = forwarded or (user or "").strip()
    if len(person) > MAX_USER_CHARS or "\0" in person:
        raise BadRequestError(f"A user is named by at most {MAX_USER_CHARS} characters.", param="user")
    return person


def check_size(request: HttpRequest) -> None:
    most = settings.EVI.max_body_bytes
    try:
        size = len(request.body)
    except RequestDataTooBig:
        size = most + 1
    if size > most:
        raise TooLargeError(f"The request is too large. Send at most {most} bytes.")


def session_id_of(request: HttpRequest) -> UUID | None:
    """The session that the header names. An empty header, as an unset template sends it, names none."""
    text = request.headers.get("X-Session-ID", "").strip()
    if not text:
        return None
    if not UUID4.fullmatch(text):
        raise InvalidSessionIdError
    return UUID(text)


def _client(request: HttpRequest) -> Client:
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    if not token:
        if settings.EVI.env == "development" and _is_loopback(request.META.get("REMOTE_ADDR", "")):
            return Client(owner_id=None)
        raise NotAuthenticatedError("Send an API key as 'Authorization: Bearer KEY'.")
    key = scheme.lower() == "bearer" and ApiKey.objects.opened_by(token.strip())
    if not key:
        raise NotAuthenticatedError("This API key is not valid. Ask for a new one, or check for missing characters.")
    now = timezone.now()
    ApiKey.objects.filter(Q(last_used_at=None) | Q(last_used_at__lt=now - LAST_USED_STEP), id=key.id).update(
        last_used_at=now
    )
    return Client(key.client_id, key.in_line)


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def _count(client: Client) -> None:
    """Refuse a client that asks too much; counted for each process, in windows of a minute."""
    now = timezone.now()
    window = f"requests:{client.owner_id}:{now:%Y%m%d%H%M}"
    cache.add(window, 0, timeout=60)
    if cache.incr(window) > settings.EVI.rate_limit:
        raise TooManyRequestsError(retry_after=60 - now.second)
