"""The first accounts: somebody who may sign in to the admin, and a client that may use the API."""

from dataclasses import dataclass

from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction
from knox.crypto import hash_token
from knox.settings import CONSTANTS

from conversations.models import ApiKey

ADMIN = "admin"
FIRST_CLIENT = "default"


@dataclass(frozen=True)
class FirstAccounts:
    """Which of the two were made just now; both exist afterwards, unless their secret was not given."""

    admin_made: bool
    api_key_made: bool


@transaction.atomic
def make_first_accounts() -> FirstAccounts:
    """Make the administrator and the first API key out of their secrets, where nobody has made any yet."""
    admin_made = api_key_made = False
    if settings.EVI.admin_password and not User.objects.filter(is_superuser=True).exists():
        User.objects.create_superuser(ADMIN, password=settings.EVI.admin_password)
        admin_made = True
    if settings.EVI.api_key and not ApiKey.objects.exists():
        client, _ = User.objects.get_or_create(username=FIRST_CLIENT)
        add_api_key(client=client, name="first key", token=settings.EVI.api_key)
        api_key_made = True
    return FirstAccounts(admin_made, api_key_made)


def add_api_key(*, client: User, name: str, token: str) -> ApiKey:
    """Store a key that exists already, as its hash."""
    key_part = token[: CONSTANTS.TOKEN_KEY_LENGTH]
    key: ApiKey = ApiKey(user=client, name=name, token_key=key_part, digest=hash_token(token))
    key.save(force_insert=True)
    return key
