"""The first accounts and the keys of clients."""

from io import StringIO

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from pytest_django import Settings

from conversations.accounts import FirstAccounts, make_first_accounts
from conversations.models import ApiKey

pytestmark = pytest.mark.django_db


def create_api_key(*arguments: str) -> str:
    out = StringIO()
    call_command("create_api_key", *arguments, stdout=out)
    return out.getvalue().strip()


def test_the_first_accounts_are_made_from_their_secrets(settings: Settings) -> None:
    assert make_first_accounts() == FirstAccounts(admin_made=True, api_key_made=True)
    admin = User.objects.get(is_superuser=True)
    assert admin.check_password(settings.EVI.admin_password)
    assert ApiKey.objects.get().digest == ApiKey.objects.digest(settings.EVI.api_key)


def test_they_are_made_once() -> None:
    make_first_accounts()
    assert make_first_accounts() == FirstAccounts(admin_made=False, api_key_made=False)
    assert User.objects.filter(is_superuser=True).count() == 1
    assert ApiKey.objects.count() == 1


def test_an_administrator_who_is_there_keeps_the_password() -> None:
    User.objects.create_superuser("anna", password="her own")
    make_first_accounts()
    assert not User.objects.filter(username="admin").exists()


def test_a_revoked_key_and_a_removed_administrator_stay_away() -> None:
    make_first_accounts()
    ApiKey.objects.all().delete()
    User.objects.filter(is_superuser=True).delete()
    assert make_first_accounts() == FirstAccounts(admin_made=False, api_key_made=False)
    assert not ApiKey.objects.exists()


def test_without_secrets_no_account_is_made(settings: Settings) -> None:
    settings.EVI = settings.EVI.model_copy(update={"admin_password": "", "api_key": ""})
    assert make_first_accounts() == FirstAccounts(admin_made=False, api_key_made=False)
    assert not User.objects.exists()


@pytest.mark.parametrize(("arguments", "in_line"), [((), False), (("--in-line",), True)])
def test_a_key_says_whether_questions_wait_in_line(arguments: tuple[str, ...], in_line: bool) -> None:
    create_api_key("openwebui", *arguments)
    assert ApiKey.objects.get().in_line == in_line


def test_a_key_is_printed_once_and_stored_as_a_hash() -> None:
    token = create_api_key("openwebui")
    key = ApiKey.objects.get()
    assert token.startswith("evi_")
    assert len(token) == 68
    assert (key.name, key.client.username, key.prefix) == ("openwebui", "openwebui", token[:12])
    assert token not in {str(value) for value in vars(key).values()}


def test_a_client_may_have_several_keys() -> None:
    keys = {create_api_key("laptop", "--client", "anna"), create_api_key("phone", "--client", "anna")}
    assert len(keys) == 2
    assert User.objects.get(username="anna").api_keys.count() == 2


def test_a_client_cannot_sign_in() -> None:
    create_api_key("openwebui")
    client = User.objects.get(username="openwebui")
    assert not client.has_usable_password()
    assert not client.is_staff


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["  "], "Give the key a name"),
        (["\udcff"], "Give the key a name that people can read"),
        (["key", "--client", "two words"], "'two words' cannot be a client's name: Enter a valid username"),
        (["key", "--client", ""], "cannot be a client's name: This field cannot be blank"),
        (["key", "--client", "x" * 151], "Ensure this value has at most 150 characters"),
        ([], "the following arguments are required: name"),
    ],
)
def test_a_name_that_cannot_be_is_refused_and_nothing_is_made(arguments: list[str], said: str) -> None:
    with pytest.raises(CommandError, match=said):
        create_api_key(*arguments)
    assert not ApiKey.objects.exists()
    assert not User.objects.exists()


def test_a_client_that_is_switched_off_gets_no_key() -> None:
    User.objects.create_user("anna", is_active=False)
    with pytest.raises(CommandError, match="switched off"):
        create_api_key("laptop", "--client", "anna")
