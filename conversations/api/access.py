"""Who is asking: the client by its key, the person by the name the client gives."""

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from urllib.parse import unquote
from uuid import UUID

import jwt
from django.conf import settings
from django.contrib.auth import get_user
from django.contrib.auth.models import AbstractBaseUser, AnonymousUser, User
from django.core.exceptions import RequestDataTooBig
from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from rest_framework.authentication import CSRFCheck

from conversations import limits
from conversations.errors import (
    BadRequestError,
    ForgedRequestError,
    InvalidSessionIdError,
    NotAuthenticatedError,
    TooLargeError,
)
from conversations.models import ApiKey, without_unstorable

UUID4 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", re.IGNORECASE)
MAX_USER_CHARS = 255
# What OpenWebUI tells about the person, in headers that end so.
FORWARDED = ("Id", "Name", "Email", "Role")
UNSIGNED = "Users must be signed here: set FORWARD_USER_INFO_HEADER_JWT_SECRET in OpenWebUI to EVI's secret."
# Two machines' clocks differ a little.
CLOCK_LEEWAY = timedelta(seconds=30)
# Writing down every use would be a write for every request.
LAST_USED_STEP = timedelta(minutes=1)


@dataclass(frozen=True)
class Client:
    """Who has come in, by a key or by signing in. Without an owner: somebody on this machine, in development."""

    owner_id: int | None
    in_line: bool = False


@dataclass(frozen=True)
class Person:
    """Who is behind the client, and what it tells about them."""

    user_id: str = ""
    about: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Caller(Client):
    """The client and the person behind it."""

    user_id: str = ""


def identify(request: HttpRequest, *, user: str | None = None) -> Caller:
    """The caller, or a refusal. `user` is the person as the request's body names them."""
    client = authenticate(request)
    return Caller(client.owner_id, client.in_line, person_of(request, user=user).user_id)


def actor(caller: Caller) -> User | str:
    """Who does it, for the audit trail: the client, and not the person behind it."""
    return "API" if caller.owner_id is None else User.objects.get(id=caller.owner_id)


def authenticate(request: HttpRequest) -> Client:
    """The client whose key this is, or who has signed in, or a refusal."""
    client = _client(request)
    count(client)
    return client


def caller_from_session(user: AbstractBaseUser | AnonymousUser) -> Client:
    """Somebody who signed in on a page is a client of their own. Not counted yet; the surface knows what a request is.

    Whoever takes a cookie for an answer also checks where the request comes from.
    """
    if not (user.is_authenticated and user.is_active):
        raise NotAuthenticatedError("Sign in first, or send an API key.")
    return Client(user.pk)


def comes_from_here(request: HttpRequest) -> bool:
    """Whether the page that sends this request is one of this site's, or there is no page: programs name no origin."""
    origin = request.headers.get("Origin")
    own = f"{request.scheme}://{request.get_host()}"
    return origin is None or origin == own or origin in settings.CSRF_TRUSTED_ORIGINS


def signed_in(request: HttpRequest) -> AbstractBaseUser | None:
    """Who has signed in with this browser, if anyone. Without a cookie nothing is asked of the database."""
    # A WebSocket has a session only where its cookie counts: see conversations/handshake.py.
    if settings.SESSION_COOKIE_NAME not in request.COOKIES or not hasattr(request, "session"):
        return None
    # Not `request.user`: in its own views DRF has put somebody anonymous there.
    user = get_user(request)
    return user if isinstance(user, AbstractBaseUser) else None


def is_open_to(request: HttpRequest) -> bool:
    """Whether EVI answers without a key or signing in: on one's own machine, in development."""
    return settings.EVI.env == "development" and _is_loopback(request.META.get("REMOTE_ADDR", ""))


def person_of(request: HttpRequest, *, user: str | None) -> Person:
    """The person behind the client: as the client forwards them, or as the body names them."""
    person = _forwarded(request)
    if person is None:
        person = Person((user or "").strip())
        if person.user_id and settings.EVI.openwebui_jwt_secret:
            raise NotAuthenticatedError(UNSIGNED)
    for text in (person.user_id, *person.about.values()):
        if len(text) > MAX_USER_CHARS:
            raise BadRequestError(f"A user is named by at most {MAX_USER_CHARS} characters.", param="user")
        if without_unstorable(text) != text:
            raise BadRequestError("A user's name cannot contain NUL characters or surrogates.", param="user")
    return person


def _forwarded(request: HttpRequest) -> Person | None:
    """The person as OpenWebUI forwards them. Where it signs, what it has not signed may come from anybody."""
    plain = {name: unquote(header(request, f"X-OpenWebUI-User-{name}")).strip() for name in FORWARDED}
    signed = request.headers.get("X-OpenWebUI-User-Jwt", "").strip()
    secret = settings.EVI.openwebui_jwt_secret
    if signed and not secret:
        raise NotAuthenticatedError("OpenWebUI signs who is asking: set EVI_OPENWEBUI_JWT_SECRET to the same secret.")
    if signed:
        plain = _verified(signed, secret=secret)
    elif secret and any(plain.values()):
        raise NotAuthenticatedError(UNSIGNED)
    if not plain["Id"]:
        return None
    return Person(plain["Id"], {name.lower(): plain[name] for name in ("Name", "Email", "Role") if plain[name]})


def _verified(token: str, *, secret: str) -> dict[str, str]:
    try:
        claims = jwt.decode(
            token, secret, algorithms=["HS256"], leeway=CLOCK_LEEWAY, options={"require": ["sub", "exp"]}
        )
    except jwt.PyJWTError as error:
        raise NotAuthenticatedError(
            f"X-OpenWebUI-User-Jwt is not valid ({error}). OpenWebUI and EVI must have the same secret and time."
        ) from error
    told = {name: value.strip() for name, value in claims.items() if isinstance(value, str)}
    if not told.get("sub"):
        raise NotAuthenticatedError("X-OpenWebUI-User-Jwt names nobody.")
    return {"Id": told["sub"], **{name: told.get(name.lower(), "") for name in ("Name", "Email", "Role")}}


def check_size(request: HttpRequest) -> None:
    most = settings.EVI.max_body_bytes
    try:
        size = len(request.body)
    except RequestDataTooBig:
        size = most + 1
    if size > most:
        raise TooLargeError(f"The request is too large. Send at most {most} bytes.")


def header(request: HttpRequest, name: str) -> str:
    """A header's value; empty where the client's template for it stayed empty, or was not filled in at all."""
    value = request.headers.get(name, "").strip()
    return "" if value.startswith("{{") else value


def session_id_of(request: HttpRequest) -> UUID | None:
    """The session that the header names. An empty header, as an unset template sends it, names none."""
    text = header(request, "X-Session-ID")
    if not text:
        return None
    if not UUID4.fullmatch(text):
        raise InvalidSessionIdError
    return UUID(text)


def _client(request: HttpRequest) -> Client:
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    if not token:
        if user := signed_in(request):
            _check_forgery(request)
            return caller_from_session(user)
        if is_open_to(request):
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


def _nothing(request: HttpRequest) -> HttpResponse:
    """The view that Django's check wants to know, to see whether it is exempt."""
    return HttpResponse()


def _check_forgery(request: HttpRequest) -> None:
    """A browser sends its cookie along whoever made it ask: changes want the token that only EVI's own pages have."""
    # The check looks into the body as well.
    check_size(request)
    check = CSRFCheck(_nothing)
    check.process_request(request)
    if reason := check.process_view(request, _nothing, (), {}):
        raise ForgedRequestError(str(reason))


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def count(client: Client) -> None:
    """Refuse a client that asks too much; counted for each process, in windows of a minute."""
    limits.count(f"requests:{client.owner_id}", most=settings.EVI.rate_limit)
