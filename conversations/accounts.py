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


@dataclass(frozen=True)
class FirstAccounts:
    """Which of the two were made just now."""

    admin_made: bool
    api_key_made: bool


@transaction.atomic
def make_first_accounts() -> FirstAccounts:
    """Make the administrator and the first API key out of their secrets, where nobody has made any yet."""
    make_admin = bool(settings.EVI.admin_password) and not User.objects.filter(is_superuser=True).exists()
    if make_admin:
        User.objects.create_superuser(ADMIN, password=settings.EVI.admin_password)
    make_api_key = bool(settings.EVI.api_key) and not ApiKey.objects.exists()
    if make_api_key:
        ApiKey.objects.store(settings.EVI.api_key, name="first key", client=_client(FIRST_CLIENT))
    return FirstAccounts(admin_made=make_admin, api_key_made=make_api_key)


@transaction.atomic
def create_api_key(*, name: str, client: str) -> str:
    """A new key, in the clear this one time. `client` is made if there is none of that name."""
    if not name.strip():
        raise ValidationError("Give the key a name, such as openwebui.")
    owner = _client(client)
    if not owner.is_active:
        raise ValidationError(f"The client {client} is switched off. Switch it on in the admin first.")
    token = f"evi_{secrets.token_hex(32)}"
    ApiKey.objects.store(token, name=name.strip(), client=owner)
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
