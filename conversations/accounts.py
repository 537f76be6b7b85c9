"""Who may: the administrator of the first start, the clients of the API and their keys."""

import secrets
from dataclasses import dataclass

from django.conf import settings
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.db import transaction

from conversations.models import ApiKey

ADMIN = "admin"
FIRST_CLIENT = "default"
MAX_NAME_CHARS = 200


@dataclass(frozen=True)
class FirstAccounts:
    """Which of the two were made just now."""

    admin_made: bool
    api_key_made: bool


@transaction.atomic
def make_first_accounts() -> FirstAccounts:
    """Make the administrator and the first API key out of their secrets, in a database without any account.

    Only there: a key that was revoked and an administrator who was removed stay away at the next start.
    """
    is_first = not User.objects.exists()
    make_admin = is_first and bool(settings.EVI.admin_password)
    if make_admin:
        User.objects.create_superuser(ADMIN, password=settings.EVI.admin_password)
    make_api_key = is_first and bool(settings.EVI.api_key)
    if make_api_key:
        ApiKey.objects.store(settings.EVI.api_key, name="first key", client=_client(FIRST_CLIENT))
    return FirstAccounts(admin_made=make_admin, api_key_made=make_api_key)


@transaction.atomic
def create_api_key(*, name: str, client: str, in_line: bool = False) -> str:
    """A new key, in the clear this one time. `client` is made if there is none of that name."""
    # What a terminal could not decode is not printable either.
    if not name.strip() or not name.isprintable() or len(name) > MAX_NAME_CHARS:
        raise ValidationError("Give the key a name that people can read, such as openwebui.")
    owner = _client(client)
    if owner.is_staff:
        raise ValidationError(f"{client} administers EVI and cannot be a client too. Choose another --client.")
    if not owner.is_active:
        raise ValidationError(f"The client {client} is switched off. Switch it on in the admin first.")
    token = f"evi_{secrets.token_hex(32)}"
    ApiKey.objects.store(token, name=name.strip(), client=owner, in_line=in_line)
    return token


def _client(name: str) -> User:
    """A client is a Django user who cannot sign in: its keys come and go, its sessions stay."""
    existing = User.objects.filter(username=name).first()
    if existing:
        return existing
    client = User(username=name)
    client.set_unusable_password()
    try:
        client.full_clean(exclude=["password"])
    except ValidationError as error:
        raise ValidationError(f"{name!r} cannot be a client's name: {' '.join(error.messages)}") from error
    client.save()
    return client
