"""Who may see and do what in the admin, by direct address: every address that the site has, over real HTTP."""

import importlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from django.apps import apps
from django.conf import settings
from django.contrib import admin
from django.contrib.auth.models import Group, Permission, User
from django.core.management import call_command
from django.db import connection, models
from django.test import Client
from django.urls import URLPattern, URLResolver
from django_q.models import Failure, OrmQ, Schedule, Success, Task

from agentbridge.models import Document, Product
from conversations.models import (
    ApiKey,
    AuditEntry,
    CleanupRun,
    Fact,
    Message,
    Session,
    Summary,
)
from tests.stub_model import StubModel
from tests.test_turns import Site

pytestmark = pytest.mark.django_db

SECRET = "geheim-van-jan"
# As a database tells of the row that it refused.
FAILED = f"Failing row contains ({SECRET}) : Traceback …\npsycopg.errors.CheckViolation: ({SECRET})\n"
# It names rows for a field of another model.
NAMES_OF_SESSIONS = "/admin/autocomplete/?app_label=conversations&model_name=message&field_name=session&term="
ROLES = ("EVI: kijker", "EVI: operator", "EVI: beheerder")
# What looking at a page may add to.
WATCHED = (Session, Message, Summary, Fact, ApiKey, User, Group, Document, Product, Schedule, Task, OrmQ)


@dataclass(frozen=True)
class World:
    """A site whose contents are hidden, with one row of everything in it, and a way to sign in."""

    url: str
    session: Session
    rows: dict[type[models.Model], models.Model]
    cookies: dict[str, str]

    def client(self, who: str) -> httpx.Client:
        cookies = {"csrftoken": "c" * 32}
        if who:
            cookies[settings.SESSION_COOKIE_NAME] = self.cookies[who]
        return httpx.Client(
            base_url=self.url, cookies=cookies, headers={"X-CSRFToken": "c" * 32}, follow_redirects=True, timeout=60
        )

    def addresses(self) -> list[str]:
        """Every address of the admin, with real ids in it."""
        return sorted({self._filled(route) for route in routes(admin.site.urls[0])})

    def _filled(self, route: str) -> str:
        row = next(
            (
                row
                for model, row in self.rows.items()
                if route.startswith(f"{model._meta.label_lower.replace('.', '/')}/")
            ),
            self.session,
        )
        message = self.rows[Message]
        given = {
            "object_id": str(row.pk),
            "id": str(row.pk),
            "content_type_id": "1",
            "session_id": str(self.session.pk),
            "message_id": str(message.pk),
            "run_id": str(self.rows[CleanupRun].pk),
            "name": "json",
            "app_label": "conversations",
            "url": "nergens",
        }
        # Regular expressions and routes both name their parts between < and >.
        route = re.sub(r"\(\?P<(\w+)>[^)]*\)", lambda part: given[part[1]], route)
        return "/admin/" + re.sub(r"<(?:\w+:)?(\w+)>", lambda part: given[part[1]], route).strip("^$").replace("$", "")


def routes(patterns: Iterable[Any], before: str = "") -> Iterator[str]:
    for pattern in patterns:
        route = before + str(pattern.pattern).lstrip("^")
        if isinstance(pattern, URLResolver):
            yield from routes(pattern.url_patterns, route)
        else:
            assert isinstance(pattern, URLPattern)
            yield route


@pytest.fixture(scope="module")
def world(django_db_setup: None, django_db_blocker: Any, database_url: str) -> Iterator[World]:
    stub = StubModel()
    with django_db_blocker.unblock():
        # Other tests empty all tables, and these are made by a migration.
        importlib.import_module("conversations.migrations.0016_roles").make_roles(apps, None)
        session = Session.objects.create(title=SECRET, user_id="jan", metadata={"person": {"name": SECRET}})
        message = Message.objects.create(session=session, role="user", content=SECRET, metadata={"files": [SECRET]})
        client = User.objects.create_user("client")
        times = {"started": session.created_at, "stopped": session.created_at, "func": "x.y"}
        rows: list[models.Model] = [
            session,
            message,
            Summary.objects.create(session=session, text=SECRET, message_count=1, last_seq=1),
            Fact.objects.create(text=SECRET, user_id="jan"),
            ApiKey.objects.store("evi_" + "0" * 64, name="sleutel", client=client),
            client,
            Group.objects.get(name=ROLES[0]),
            Document.objects.create(origin="upload/x.md", title="x", content_hash="x"),
            Product.objects.create(sku="x", name="x", category="x", description="x", content_hash="x"),
            Schedule.objects.create(name="x", func="x.y"),
            Success.objects.create(id="1", name="x", success=True, **times),
            Failure.objects.create(id="2", name="y", success=False, result=FAILED, **times),
            OrmQ.objects.create(key="evi", payload="x"),
            AuditEntry.objects.record("opened", by="x", subject=str(session.pk)),  # type: ignore[arg-type]
            CleanupRun.objects.create(expected_sessions=1, finished_at=session.created_at),
        ]
        cookies = {}
        for name in ("staff", *ROLES):
            user = User.objects.create_user(name, is_staff=True)
            user.groups.set(Group.objects.filter(name=name))
            browser = Client()
            browser.force_login(user)
            cookies[name] = browser.cookies[settings.SESSION_COOKIE_NAME].value
        site = Site(database_url, stub, EVI_ADMIN_HIDE_CONTENT="true")
        yield World(site.url, session, {type(row): row for row in rows}, cookies)
        site.stop()
        stub.server_close()
        call_command("flush", interactive=False, verbosity=0)
        connection.close()


def counts() -> dict[str, int]:
    return {model.__name__: model._default_manager.count() for model in WATCHED}


def test_every_address_is_tried(world: World) -> None:
    addresses = world.addresses()
    assert f"/admin/conversations/session/{world.session.pk}/change/" in addresses
    assert not [address for address in addresses if re.search(r"[<>()?\\]", address)]
    missing = [model for model in admin.site._registry if model not in world.rows]
    assert missing == []


def test_an_outsider_sees_nothing(world: World) -> None:
    with world.client("") as outsider:
        for address in world.addresses():
            response = outsider.get(address)
            assert str(response.url.path) == "/admin/login/" or response.status_code == 404, address
            assert SECRET not in response.text


def test_an_outsider_changes_nothing(world: World) -> None:
    before = counts()
    with world.client("") as outsider:
        for address in world.addresses():
            assert outsider.post(address, data={"post": "yes"}).url.path == "/admin/login/", address
    assert counts() == before


def test_staff_without_a_role_sees_no_row(world: World) -> None:
    open_to_all = {"/admin/", "/admin/jsi18n/", "/admin/login/", "/admin/search/"}
    with world.client("staff") as staff:
        for address in world.addresses():
            if address in open_to_all or address.startswith(("/admin/password_change", "/admin/logout")):
                continue
            assert staff.get(address).status_code in (400, 403, 404, 405), address


@pytest.mark.parametrize("role", ROLES[:2])
def test_hidden_contents_are_nowhere(world: World, role: str) -> None:
    with world.client(role) as client:
        for address in [*world.addresses(), "/admin/search/?s=geheim", NAMES_OF_SESSIONS]:
            if "logout" not in address:
                assert SECRET not in client.get(address).text, address


@pytest.mark.parametrize("role", ROLES)
def test_the_menu_leads_to_no_closed_door(world: World, role: str) -> None:
    with world.client(role) as client:
        menu = set(re.findall(r'href="(/admin/[^"?]*)"', client.get("/admin/").text))
        closed = [address for address in menu if client.get(address).status_code != 200]
    assert len(menu) > 8
    assert closed == []


@pytest.mark.parametrize("role", ROLES[:2])
def test_hidden_contents_are_not_in_exports_and_confirmations(world: World, role: str) -> None:
    sessions = "/admin/conversations/session/"
    with world.client(role) as client:
        for action in ("export_as_json", "export_as_markdown", "export_as_csv", "delete_selected"):
            response = client.post(sessions, data={"action": action, "_selected_action": str(world.session.pk)})
            assert SECRET not in response.text
        assert client.get(f"{sessions}{world.session.pk}/export/json/").status_code == 403


def test_a_hidden_failure_still_says_what_kind_it_is(world: World) -> None:
    failures = "/admin/django_q/failure/"
    with world.client(ROLES[1]) as operator:
        for address in (failures, f"{failures}2/change/"):
            assert "psycopg.errors.CheckViolation" in operator.get(address).text


def test_hidden_words_are_not_found(world: World) -> None:
    with world.client(ROLES[1]) as operator:
        page = operator.get("/admin/conversations/session/", params={"q": SECRET}).text
    assert str(world.session.pk)[:8] not in page


def test_an_administrator_reads_what_is_hidden(world: World) -> None:
    with world.client(ROLES[2]) as administrator:
        assert SECRET in administrator.get(f"/admin/conversations/session/{world.session.pk}/change/").text


def test_a_viewer_deletes_and_changes_nothing(world: World) -> None:
    before = counts()
    title = Session.objects.get().title
    with world.client(ROLES[0]) as viewer:
        for address in world.addresses():
            if "logout" in address:
                continue
            for form in ({"post": "yes"}, {"title": "x", "pinned": "on", "name": "x"}):
                assert viewer.post(address, data=form).status_code < 500, address
        for model, row in world.rows.items():
            address = f"/admin/{model._meta.label_lower.replace('.', '/')}/"
            for action in ("delete_selected", "pin", "retire", "resubmit", "forget", "approve"):
                viewer.post(address, data={"action": action, "_selected_action": str(row.pk), "post": "yes"})
    assert counts() == before
    assert (Session.objects.get().title, Session.objects.get().pinned) == (title, False)


def test_roles_hold_what_their_names_say() -> None:
    importlib.import_module("conversations.migrations.0016_roles").make_roles(apps, None)

    def may(role: str, permission: str) -> bool:
        app, codename = permission.split(".")
        return Permission.objects.filter(group__name=role, content_type__app_label=app, codename=codename).exists()

    expected = {
        "conversations.view_message": (True, True, True),
        "conversations.delete_session": (False, True, True),
        "conversations.read_hidden_contents": (False, False, True),
        "conversations.forget_person": (False, False, True),
        "conversations.view_auditentry": (False, True, True),
        "conversations.delete_apikey": (False, False, True),
        "auth.change_user": (False, False, True),
    }
    assert {each: tuple(may(role, each) for role in ROLES) for each in expected} == expected


def test_a_role_that_was_changed_is_kept(world: World) -> None:
    make_roles = importlib.import_module("conversations.migrations.0016_roles").make_roles
    group = Group.objects.get(name=ROLES[0])
    before = group.permissions.count()
    group.permissions.remove(group.permissions.first() or Permission())
    make_roles(apps, None)
    assert group.permissions.count() == before - 1


def test_nobody_makes_themselves_almighty(world: World) -> None:
    me = User.objects.get(username=ROLES[2])
    with world.client(ROLES[2]) as administrator:
        form = {"username": me.username, "is_staff": "on", "is_active": "on", "is_superuser": "on"}
        administrator.post(f"/admin/auth/user/{me.pk}/change/", data=form)
    assert not User.objects.get(pk=me.pk).is_superuser
