"""The admin through its pages: what staff can read, find, change and delete, and what nobody can."""

import csv
import json
import re
import zipfile
from collections.abc import Iterator
from datetime import timedelta
from io import BytesIO
from typing import Any, Protocol
from uuid import UUID

import pytest
from asgiref.sync import async_to_sync
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Group, Permission, User
from django.db import connection
from django.db.models.signals import pre_save
from django.http import HttpResponse
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from django_q.models import OrmQ, Schedule
from pytest_django import DjangoAssertNumQueries, Settings

from conversations import figures, tasks
from conversations.models import (
    Action,
    ApiKey,
    AuditEntry,
    Channel,
    CleanupRun,
    Fact,
    FactSource,
    Message,
    Role,
    Session,
    Status,
    Summary,
)
from conversations.openings import TurnRequest
from conversations.schedules import IN_DUTCH, SCHEDULES
from conversations.turns import run_turn

pytestmark = pytest.mark.django_db

SESSIONS = "/admin/conversations/session/"
MESSAGES = "/admin/conversations/message/"
KEYS = "/admin/conversations/apikey/"
CLEANUP = f"{SESSIONS}cleanup/"


class StaffClient(Protocol):
    def __call__(self, *permissions: str) -> Client: ...


@pytest.fixture
def staff_client() -> StaffClient:
    """Sign in as somebody who may do just this: `view_session`, `delete_session`…"""

    def sign_in(*permissions: str) -> Client:
        user = User.objects.create_user("collega", is_staff=True)
        ours = Permission.objects.filter(content_type__app_label="conversations")
        user.user_permissions.set(ours.filter(codename__in=permissions))
        assert user.user_permissions.count() == len(permissions)
        client = Client()
        client.force_login(user)
        return client

    return sign_in


@pytest.fixture
def viewer(staff_client: StaffClient) -> Client:
    return staff_client("view_session", "view_message", "view_apikey")


@pytest.fixture
def session() -> Session:
    return Session.objects.create(title="Werken op hoogte", user_id="jan@bouw.nl", channel=Channel.OPENWEBUI)


@pytest.fixture
def api_key() -> ApiKey:
    client = User.objects.create_user("openwebui")
    return ApiKey.objects.store("evi_0123456789abcdef0123456789abcdef", name="kantoor", client=client)


def say(session: Session, content: str, role: Role = Role.USER, **fields: Any) -> Message:
    return Message.objects.create(session=session, role=role, content=content, **fields)


def unused_for(days: int, **fields: Any) -> Session:
    return Session.objects.create(last_accessed=timezone.now() - timedelta(days=days), **fields)


def make_sessions(number: int) -> None:
    """Sessions with an owner each and two messages, one minute apart."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            INSERT INTO auth_user (username, password, first_name, last_name, email, is_superuser, is_staff,
                                   is_active, date_joined)
            SELECT 'client-' || n, '', '', '', '', false, false, true, now() FROM generate_series(1, 20) AS n
            ON CONFLICT DO NOTHING;
            INSERT INTO sessions (owner_id, user_id, title, last_accessed)
            SELECT auth_user.id, 'persoon-' || n, 'Vraag ' || n, now()
            FROM generate_series(1, %s) AS n JOIN auth_user ON username = 'client-' || (n %% 20 + 1);
            INSERT INTO messages (session_id, role, content)
            SELECT sessions.id, role, 'Hoe veilig is ' || title
            FROM sessions, unnest(ARRAY['user', 'assistant']) AS role WHERE message_count = 0;
            UPDATE sessions SET last_accessed = created_at - substr(title, 7)::int * interval '1 minute'
            WHERE title LIKE 'Vraag %%';
            """,
            [number],
        )


def make_messages(session: Session, number: int) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            """
            INSERT INTO messages (session_id, role, content, metadata)
            SELECT %s, (ARRAY['user', 'assistant'])[n %% 2 + 1], 'bericht ' || n || '.', '{"model": "offline"}'
            FROM generate_series(1, %s) AS n
            """,
            [session.pk, number],
        )


def page_of(session: Session) -> str:
    return f"{SESSIONS}{session.pk}/change/"


def text_of(response: Any) -> str:
    assert response.status_code == 200, response.status_code
    return str(response.content.decode()).replace("\N{NO-BREAK SPACE}", " ")


def listed(client: Client, **query: str) -> set[str]:
    """The titles on the session list."""
    response = client.get(SESSIONS, query)
    assert response.status_code == 200
    return {session.title for session in response.context["cl"].result_list}


def run_action(client: Client, action: str, *sessions: Session, **fields: str) -> HttpResponse:
    selected = [str(session.pk) for session in sessions]
    response: Any = client.post(SESSIONS, {"action": action, "_selected_action": selected, **fields}, follow=True)
    assert isinstance(response, HttpResponse)
    return response


def number_of_queries(client: Client, path: str) -> int:
    # Once to fill Django's own caches.
    client.get(path)
    with CaptureQueriesContext(connection) as queries:
        assert client.get(path).status_code == 200
    return len(queries)


# The session list


def test_list_shows_what_a_session_is(admin_client: Client) -> None:
    owner = User.objects.create_user("openwebui-client")
    session = unused_for(3, title="Steigers", user_id="jan@bouw.nl", owner=owner, channel=Channel.TELEGRAM)
    make_messages(session, 7)
    Session.objects.filter(pk=session.pk).update(last_accessed=timezone.now() - timedelta(days=3, minutes=1))
    page = text_of(admin_client.get(SESSIONS))
    for shown in ("Steigers", "jan@bouw.nl", "openwebui-client", "Telegram", ">7<", "3 dagen geleden"):
        assert shown in page


def test_list_names_a_session_without_title_by_its_short_id(admin_client: Client) -> None:
    session = Session.objects.create()
    assert f">{str(session.pk)[:8]}</a>" in text_of(admin_client.get(SESSIONS))


def test_list_begins_with_the_session_used_last(admin_client: Client) -> None:
    unused_for(2, title="oud")
    unused_for(1, title="nieuw")
    result = admin_client.get(SESSIONS).context["cl"].result_list
    assert [session.title for session in result] == ["nieuw", "oud"]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ({"channel__exact": "telegram"}, {"telegram"}),
        ({"pinned__exact": "1"}, {"vast"}),
        ({"used": "today"}, {"telegram", "verloopt"}),
        ({"used": "week"}, {"telegram", "verloopt", "drie dagen"}),
        ({"used": "month"}, {"telegram", "verloopt", "drie dagen"}),
        ({"used": "older"}, {"te oud", "vast"}),
        ({"expiry": "expired"}, {"te oud", "verloopt"}),
        ({"expiry": "soon"}, {"te oud", "verloopt"}),
        ({"expiry": "dated"}, {"verloopt"}),
        ({"user_id__icontains": "BOUW"}, {"drie dagen"}),
    ],
)
def test_list_filters(admin_client: Client, query: dict[str, str], found: set[str]) -> None:
    Session.objects.create(title="telegram", channel=Channel.TELEGRAM)
    Session.objects.create(title="verloopt", expires_at=timezone.now() - timedelta(minutes=1))
    unused_for(3, title="drie dagen", user_id="anna@bouw.nl")
    unused_for(31, title="te oud")
    unused_for(31, title="vast", pinned=True)
    assert listed(admin_client, **query) == found


@pytest.mark.parametrize("status", [Status.INTERRUPTED, Status.FAILED])
def test_list_finds_sessions_in_which_something_went_wrong(admin_client: Client, status: Status) -> None:
    for number in range(2):
        say(Session.objects.create(title=f"goed {number}"), "alles goed")
    broken = Session.objects.create(title="stuk")
    say(broken, "half ant", Role.ASSISTANT, status=status)
    say(broken, "nog ee", Role.ASSISTANT, status=status)
    assert [s.title for s in admin_client.get(SESSIONS, {"broken": "yes"}).context["cl"].result_list] == ["stuk"]
    assert listed(admin_client, broken="no") == {"goed 0", "goed 1"}


@pytest.mark.parametrize(
    "term",
    [
        "0f8fad5b-d9cb-469f-a165-70867728950e",
        "0F8FAD5B",
        "0f8fad5b-d9",
        "LADDER",
        "anna@",
        "thread-77",
        "valharnas",
        "ladder valharnas",
        '"het valharnas is"',
    ],
)
def test_search_finds_a_session(admin_client: Client, term: str) -> None:
    wanted = Session.objects.create(
        id=UUID("0f8fad5b-d9cb-469f-a165-70867728950e"),
        title="Ladders keuren",
        user_id="anna@bouw.nl",
        external_id="thread-77",
    )
    say(wanted, "Waar ligt het valharnas?")
    say(wanted, "Het valharnas is van Piet", Role.ASSISTANT)
    other = Session.objects.create(title="Lasrook", user_id="piet", external_id="thread-12")
    say(other, "Is een masker verplicht?")
    result = admin_client.get(SESSIONS, {"q": term}).context["cl"].result_list
    assert [session.title for session in result] == ["Ladders keuren"]


def test_search_needs_every_word(admin_client: Client, session: Session) -> None:
    assert listed(admin_client, q="hoogte ladder") == set()


def test_search_does_not_look_into_messages_for_who_may_not_read_them(
    staff_client: StaffClient, session: Session
) -> None:
    say(session, "geheim")
    assert listed(staff_client("view_session"), q="geheim") == set()


def test_list_takes_as_many_queries_for_ten_sessions_as_for_two_hundred(admin_client: Client) -> None:
    make_sessions(10)
    with_ten = number_of_queries(admin_client, SESSIONS)
    make_sessions(190)
    assert number_of_queries(admin_client, SESSIONS) == with_ten


@pytest.mark.parametrize("query", ["", "?q=vraag", "?broken=yes&used=week", "?expiry=expired"])
def test_list_takes_few_queries(
    admin_client: Client, query: str, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    make_sessions(20)
    # The session, the user, what a search finds, the number, the page of sessions and their sizes.
    with django_assert_max_num_queries(6):
        assert admin_client.get(SESSIONS + query).status_code == 200


def test_list_of_ten_thousand_sessions_reads_an_index_instead_of_sorting_them(admin_client: Client) -> None:
    make_sessions(10_000)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE sessions, auth_user")
        with CaptureQueriesContext(connection) as queries:
            assert len(admin_client.get(SESSIONS).context["cl"].result_list) == 50
        [listing] = [query["sql"] for query in queries if "ORDER BY" in query["sql"]]
        cursor.execute(f"EXPLAIN {listing}")
        plan = "\n".join(line for (line,) in cursor.fetchall())
    assert "Index Scan Backward using idx_sessions_last_accessed" in plan
    assert "Seq Scan on sessions" not in plan


# The session page


def test_page_reads_as_a_conversation(admin_client: Client, session: Session) -> None:
    say(session, "Mag ik alleen op het dak?")
    say(session, "Nee,\nnooit alleen", Role.ASSISTANT, status=Status.INTERRUPTED)
    page = text_of(admin_client.get(page_of(session)))
    assert page.index("Mag ik alleen op het dak?") < page.index("Nee,\nnooit alleen")
    assert "<strong>Gebruiker</strong>" in page
    assert "<strong>Assistent</strong>" in page
    assert page.count("afgebroken") == 1
    assert "volledig" not in page


def test_page_escapes_what_was_said(admin_client: Client, session: Session) -> None:
    bad = "<script>alert(1)</script>"
    say(session, bad, metadata={"citations": [{"source": bad, "document_title": bad}], bad: bad})
    Session.objects.filter(pk=session.pk).update(title=bad, user_id=bad, external_id=bad, metadata={bad: bad})
    page = text_of(admin_client.get(page_of(session)))
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "<script>alert" not in page


def test_page_lists_citations(admin_client: Client, session: Session) -> None:
    citations = [
        {"source": "ai-blad-17.pdf", "document_title": "AI-blad 17", "similarity": 0.8765},
        {"source": "producten/helm.md"},
    ]
    say(session, "Zie de bronnen.", Role.ASSISTANT, metadata={"citations": citations})
    page = text_of(admin_client.get(page_of(session)))
    assert "<li>AI-blad 17 (ai-blad-17.pdf), gelijkenis 0,88</li>" in page
    assert "<li>producten/helm.md</li>" in page


@pytest.mark.parametrize(
    "metadata",
    [
        None,
        [],
        "tekst",
        7,
        {"citations": None},
        {"citations": 7},
        {"citations": {"source": "x"}},
        {"citations": ["x", None, {}, {"source": None}]},
        {"citations": [{"source": ["x"], "similarity": "hoog"}, {"source": 1, "similarity": {}}]},
    ],
)
def test_page_survives_any_metadata(admin_client: Client, session: Session, metadata: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO messages (session_id, role, content, metadata) VALUES (%s, 'user', 'leesbaar', %s::jsonb)",
            [session.pk, json.dumps(metadata)],
        )
    assert "leesbaar" in text_of(admin_client.get(page_of(session)))


def test_page_folds_the_raw_metadata(admin_client: Client, session: Session) -> None:
    say(session, "hallo", metadata={"model": "één-model"})
    page = text_of(admin_client.get(page_of(session)))
    folded = page[page.index('<details class="metadata">') :]
    assert "&quot;model&quot;: &quot;één-model&quot;" in folded[: folded.index("</details>")]


def test_page_of_a_long_session_shows_its_end_and_leads_to_the_rest(admin_client: Client, session: Session) -> None:
    make_messages(session, 130)
    shown: list[str] = []
    address = page_of(session)
    while address:
        page = text_of(admin_client.get(address))
        shown = [*re.findall(r"bericht (\d+)\.", page), *shown]
        earlier = re.search(r'href="([^"]+)" data-earlier', page)
        address = earlier[1] if earlier else ""
        assert len(shown) % 50 == 0 or not address
    assert shown == [str(number) for number in range(1, 131)]


def test_page_of_a_short_session_leads_nowhere_else(admin_client: Client, session: Session) -> None:
    make_messages(session, 50)
    assert "Toon eerdere berichten" not in text_of(admin_client.get(page_of(session)))


def test_page_takes_as_many_queries_for_two_messages_as_for_a_thousand(admin_client: Client, session: Session) -> None:
    make_messages(session, 2)
    with_two = number_of_queries(admin_client, page_of(session))
    make_messages(session, 998)
    assert number_of_queries(admin_client, page_of(session)) == with_two <= 8


def test_page_hides_the_conversation_from_who_may_not_read_messages(
    staff_client: StaffClient, session: Session
) -> None:
    say(session, "geheim")
    page = text_of(staff_client("view_session").get(page_of(session)))
    assert "geheim" not in page
    assert "mag geen berichten lezen" in page


def test_title_pin_and_expiry_can_be_changed(admin_client: Client, session: Session) -> None:
    form = {"title": "Dakwerk", "pinned": "on", "expires_at_0": "2031-05-01", "expires_at_1": "12:00:00"}
    assert admin_client.post(page_of(session), form).status_code == 302
    session.refresh_from_db()
    assert (session.title, session.pinned) == ("Dakwerk", True)
    assert session.expires_at is not None
    assert timezone.localtime(session.expires_at).isoformat() == "2031-05-01T12:00:00+02:00"


def test_nothing_else_can_be_changed(admin_client: Client, session: Session) -> None:
    before = Session.objects.filter(pk=session.pk).values().get()
    form = {
        "title": session.title,
        "user_id": "iemand anders",
        "owner": "1",
        "channel": "cli",
        "external_id": "x",
        "metadata": "[]",
        "message_count": "99",
        "last_accessed": "2020-01-01",
    }
    assert admin_client.post(page_of(session), form).status_code == 302
    assert Session.objects.filter(pk=session.pk).values().get() == before


@pytest.fixture
def message_during_save() -> Iterator[None]:
    """Somebody says something between the moment that the page reads the session and the moment it saves it."""

    def interrupt(instance: Session, **kwargs: Any) -> None:
        say(instance, "intussen")

    pre_save.connect(interrupt, sender=Session)
    yield
    pre_save.disconnect(interrupt, sender=Session)


@pytest.mark.usefixtures("message_during_save")
def test_saving_keeps_what_the_conversation_did_meanwhile(admin_client: Client) -> None:
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO sessions (title) VALUES ('oud') RETURNING id")
        session = Session.objects.get(pk=cursor.fetchone()[0])
    assert admin_client.post(page_of(session), {"title": "nieuw"}).status_code == 302
    session.refresh_from_db()
    assert (session.title, session.message_count) == ("nieuw", 1)


def test_sessions_are_not_made_in_the_admin(admin_client: Client) -> None:
    assert admin_client.get(f"{SESSIONS}add/").status_code == 403


# Deleting


def test_confirmation_says_how_many_messages_go_with_the_session(admin_client: Client, session: Session) -> None:
    make_messages(session, 12)
    assert "Berichten: 12" in text_of(admin_client.get(f"{SESSIONS}{session.pk}/delete/"))


def test_deleting_a_session_leaves_no_message(admin_client: Client, session: Session) -> None:
    make_messages(session, 12)
    kept = say(Session.objects.create(), "blijft")
    assert admin_client.post(f"{SESSIONS}{session.pk}/delete/", {"post": "yes"}).status_code == 302
    assert list(Message.objects.all()) == [kept]


def test_a_person_is_forgotten_with_all_that_is_known(admin_client: Client) -> None:
    told, other = Session.objects.create(user_id="jurgen"), Session.objects.create(user_id="bob")
    say(told, "weg ermee")
    Fact.objects.create(user_id="jurgen", text="Werkt op daken")
    kept = say(other, "blijft")
    address = f"{SESSIONS}{told.pk}/forget/"
    assert "1 gesprek, 1 bericht, 1 feit" in text_of(admin_client.get(address))
    assert "Vergeten: 1 gesprek, 1 bericht, 1 feit" in text_of(admin_client.post(address, follow=True))
    assert (list(Message.objects.all()), Fact.objects.count()) == ([kept], 0)
    assert "jurgen" not in str(AuditEntry.objects.values().get(action=Action.FORGOTTEN))


def test_nobody_in_particular_cannot_be_forgotten(admin_client: Client) -> None:
    nameless = Session.objects.create()
    assert admin_client.post(f"{SESSIONS}{nameless.pk}/forget/").status_code == 404
    assert Session.objects.exists()


def test_forgetting_a_person_needs_its_permission(staff_client: StaffClient) -> None:
    told = Session.objects.create(user_id="ada")
    client = staff_client("view_session", "change_session", "delete_session")
    assert client.post(f"{SESSIONS}{told.pk}/forget/").status_code == 403
    assert "forget" not in text_of(client.get(page_of(told)))
    assert Session.objects.exists()


def test_deleting_needs_no_permission_on_messages(staff_client: StaffClient, session: Session) -> None:
    say(session, "weg ermee")
    client = staff_client("view_session", "delete_session")
    assert client.post(f"{SESSIONS}{session.pk}/delete/", {"post": "yes"}).status_code == 302
    assert not Session.objects.exists()


def test_bulk_confirmation_says_how_many_messages_go_with_the_sessions(admin_client: Client, session: Session) -> None:
    make_messages(session, 12)
    other = Session.objects.create()
    make_messages(other, 5)
    page = text_of(run_action(admin_client, "delete_selected", session, other))
    assert "Gesprekken: 2" in page
    assert "Berichten: 17" in page


def test_bulk_deletion_leaves_no_message(admin_client: Client, session: Session) -> None:
    make_messages(session, 12)
    other = Session.objects.create()
    make_messages(other, 5)
    kept = say(Session.objects.create(), "blijft")
    run_action(admin_client, "delete_selected", session, other, post="yes")
    assert list(Message.objects.all()) == [kept]


def test_too_large_a_selection_is_explained_instead_of_refused(admin_client: Client, session: Session) -> None:
    make_sessions(950)
    page = text_of(run_action(admin_client, "delete_selected", session, select_across="1"))
    assert "hooguit 900 gesprekken tegelijk" in page
    assert Session.objects.count() == 951


def test_the_largest_selection_can_be_confirmed(admin_client: Client) -> None:
    make_sessions(900)
    run_action(admin_client, "delete_selected", *Session.objects.all(), post="yes")
    assert not Session.objects.exists()


# Pinning


def test_selected_sessions_are_pinned(admin_client: Client, session: Session) -> None:
    other = Session.objects.create()
    page = text_of(run_action(admin_client, "pin", session))
    assert "1 gesprek vastgezet." in page
    assert list(Session.objects.pinned()) == [session]
    assert not Session.objects.get(pk=other.pk).pinned


def test_selected_sessions_are_unpinned(admin_client: Client) -> None:
    kept, *loosened = (Session.objects.create(pinned=True) for _ in range(3))
    page = text_of(run_action(admin_client, "unpin", *loosened))
    assert "2 gesprekken losgemaakt." in page
    assert list(Session.objects.pinned()) == [kept]


# The clean-up


def test_list_leads_to_the_cleanup(admin_client: Client) -> None:
    assert f'href="{CLEANUP}">Opschonen</a>' in text_of(admin_client.get(SESSIONS))


def make_expired_sessions() -> None:
    """Two to clean up, with three messages, and two that stay."""
    for number, pinned in ((1, False), (2, False), (4, True)):
        session = Session.objects.create(pinned=pinned)
        make_messages(session, number)
        Session.objects.filter(pk=session.pk).update(last_accessed=timezone.now() - timedelta(days=31))
    Session.objects.create()


def test_cleanup_page_says_what_would_go_and_why(admin_client: Client) -> None:
    make_expired_sessions()
    page = text_of(admin_client.get(CLEANUP))
    assert "2 gesprekken en 3 berichten" in page
    assert "30 dagen" in page
    assert "vastgezet gesprek wordt nooit" in page


def test_cleanup_page_says_when_sessions_are_kept_for_ever(admin_client: Client, settings: Settings) -> None:
    settings.EVI = settings.EVI.model_copy(update={"retention_days": 0})
    make_expired_sessions()
    page = text_of(admin_client.get(CLEANUP))
    assert "bewaart gesprekken onbeperkt" in page
    assert "niets om op te schonen" in page


def test_reading_the_cleanup_page_deletes_nothing(admin_client: Client) -> None:
    make_expired_sessions()
    admin_client.get(CLEANUP)
    admin_client.head(CLEANUP)
    assert Session.objects.count() == 4


def test_the_worker_cleans_up_and_the_page_tells_how_far_it_is(admin_client: Client) -> None:
    make_expired_sessions()
    response = admin_client.post(CLEANUP, follow=True)
    [run] = CleanupRun.objects.all()
    assert response.redirect_chain == [(f"{CLEANUP}{run.pk}/", 302)]
    assert "Wacht op de worker" in text_of(response)
    assert Session.objects.count() == 4
    tasks.run_cleanup(str(run.pk))
    assert admin_client.get(f"{CLEANUP}{run.pk}/progress/").json() == {
        "told": "2 gesprekken en 3 berichten verwijderd.",
        "percent": 100,
        "finished": True,
        "failed": False,
    }
    assert (Session.objects.count(), Message.objects.count()) == (2, 4)


@pytest.mark.django_db(transaction=True)
def test_a_second_cleanup_joins_the_one_under_way(admin_client: Client) -> None:
    make_expired_sessions()
    first, second = (admin_client.post(CLEANUP).headers["Location"] for _ in range(2))
    assert first == second == admin_client.get(CLEANUP).headers["Location"]
    assert [task.func() for task in OrmQ.objects.all()] == ["conversations.tasks.run_cleanup"]


def test_a_cleanup_is_carried_out_once(admin_client: Client) -> None:
    admin_client.post(CLEANUP)
    [run] = CleanupRun.objects.all()
    tasks.run_cleanup(str(run.pk))
    finished = CleanupRun.objects.get().finished_at
    tasks.run_cleanup(str(run.pk))
    assert CleanupRun.objects.get().finished_at == finished


def test_cleanup_form_carries_a_csrf_token(admin_user: User) -> None:
    make_expired_sessions()
    client = Client(enforce_csrf_checks=True)
    client.force_login(admin_user)
    # The page's header has a form of its own, for logging out.
    _, form = text_of(client.get(CLEANUP)).split('id="content-main"')
    token = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', form)
    assert token
    assert client.post(CLEANUP).status_code == 403
    assert client.post(CLEANUP, {"csrfmiddlewaretoken": token[1]}).status_code == 302


def test_cleanup_page_has_no_button_when_there_is_nothing_to_delete(admin_client: Client, session: Session) -> None:
    page = text_of(admin_client.get(CLEANUP))
    assert "niets om op te schonen" in page
    assert "Nu opschonen" not in page


@pytest.mark.parametrize("method", ["get", "post"])
def test_cleanup_needs_permission_to_delete(staff_client: StaffClient, method: str) -> None:
    make_expired_sessions()
    client = staff_client("view_session", "change_session")
    assert getattr(client, method)(CLEANUP).status_code == 403
    assert Session.objects.count() == 4


# Messages


def test_message_list_shows_what_was_said_where(admin_client: Client, session: Session) -> None:
    say(session, "x" * 500, Role.ASSISTANT, status=Status.FAILED)
    page = text_of(admin_client.get(MESSAGES))
    for shown in ("x" * 119 + "…", f'<a href="{page_of(session)}">Werken op hoogte</a>', "Assistent", "mislukt"):
        assert shown in page


@pytest.mark.parametrize("query", [{"role__exact": "system"}, {"status__exact": "failed"}, {"q": "LADDER"}])
def test_message_list_filters_and_searches(admin_client: Client, session: Session, query: dict[str, str]) -> None:
    say(session, "iets anders")
    wanted = say(session, "een ladder", Role.SYSTEM, status=Status.FAILED)
    assert list(admin_client.get(MESSAGES, query).context["cl"].result_list) == [wanted]


def test_message_list_of_one_session_is_in_the_order_of_the_conversation(
    admin_client: Client, session: Session
) -> None:
    make_messages(session, 80)
    say(Session.objects.create(), "elders")
    first, second = (
        [message.content for message in admin_client.get(MESSAGES, query).context["cl"].result_list]
        for query in ({"session": str(session.pk)}, {"session": str(session.pk), "p": "2"})
    )
    assert first + second == [f"bericht {number}." for number in range(1, 81)]


def test_message_list_survives_a_mangled_session_id(admin_client: Client) -> None:
    assert admin_client.get(MESSAGES, {"session": "geen-id"}).headers["Location"].endswith("?e=1")


def test_message_list_takes_as_many_queries_for_ten_messages_as_for_two_hundred(admin_client: Client) -> None:
    for _ in range(10):
        make_messages(Session.objects.create(), 1)
    with_ten = number_of_queries(admin_client, MESSAGES)
    for _ in range(10):
        make_messages(Session.objects.create(), 19)
    assert number_of_queries(admin_client, MESSAGES) == with_ten <= 4


def test_message_can_be_read_in_full(admin_client: Client, session: Session) -> None:
    message = say(session, "<b>" + "y" * 500)
    assert "&lt;b&gt;" + "y" * 500 in text_of(admin_client.get(f"{MESSAGES}{message.pk}/change/"))


def test_even_the_administrator_cannot_change_a_message(admin_client: Client, session: Session) -> None:
    message = say(session, "gezegd")
    response = admin_client.post(f"{MESSAGES}{message.pk}/change/", {"content": "nooit gezegd"})
    assert response.status_code == 403
    message.refresh_from_db()
    assert message.content == "gezegd"


def test_even_the_administrator_cannot_delete_one_message(admin_client: Client, session: Session) -> None:
    message = say(session, "gezegd")
    assert admin_client.post(f"{MESSAGES}{message.pk}/delete/", {"post": "yes"}).status_code == 403
    admin_client.post(MESSAGES, {"action": "delete_selected", "_selected_action": str(message.pk), "post": "yes"})
    assert Message.objects.filter(pk=message.pk).exists()


def test_messages_are_not_made_in_the_admin(admin_client: Client) -> None:
    assert admin_client.get(f"{MESSAGES}add/").status_code == 403


# API keys


def test_key_list_shows_whose_key_it_is(admin_client: Client, api_key: ApiKey) -> None:
    page = text_of(admin_client.get(KEYS))
    for shown in ("kantoor", "openwebui", api_key.prefix):
        assert shown in page


@pytest.mark.parametrize("page", ["", "{key.pk}/change/", "{key.pk}/delete/", "{key.pk}/history/"])
def test_digest_is_nowhere_to_be_seen(admin_client: Client, api_key: ApiKey, page: str) -> None:
    assert api_key.digest not in text_of(admin_client.get(KEYS + page.format(key=api_key)))


def test_deleting_a_key_revokes_it(admin_client: Client, api_key: ApiKey) -> None:
    assert admin_client.post(f"{KEYS}{api_key.pk}/delete/", {"post": "yes"}).status_code == 302
    assert not ApiKey.objects.exists()


def test_keys_are_not_made_in_the_admin(admin_client: Client, api_key: ApiKey) -> None:
    assert admin_client.post(f"{KEYS}add/", {"name": "anders", "client": str(api_key.client.pk)}).status_code == 403
    assert ApiKey.objects.count() == 1


def test_a_key_gets_another_name_and_policy_but_never_another_client(admin_client: Client, api_key: ApiKey) -> None:
    other = User.objects.create(username="ander")
    form = {"name": "balie", "in_line": "on", "client": str(other.pk)}
    assert admin_client.post(f"{KEYS}{api_key.pk}/change/", form).status_code == 302
    changed = ApiKey.objects.get()
    assert (changed.name, changed.in_line, changed.client) == ("balie", True, api_key.client)


# Who may do what


def test_a_message_tells_its_sources_and_what_took_its_place_in_words(admin_client: Client, session: Session) -> None:
    by = say(session, "Wat is een ladder?")
    answer = say(session, "Een trap [1].", Role.ASSISTANT, metadata={"citations": [{"document_title": "Ladders"}]})
    Message.objects.filter(pk=answer.pk).update(superseded_by=by.pk)
    page = text_of(admin_client.get(f"{MESSAGES}{answer.pk}/change/"))
    assert ">Ladders</div>" in page
    assert f'<a href="{MESSAGES}{by.pk}/change/">een andere vraag</a>' in page


def test_admin_bears_its_name(admin_client: Client) -> None:
    assert "EVI-beheer" in text_of(admin_client.get("/admin/"))


def test_viewer_reads_everything(viewer: Client, session: Session, api_key: ApiKey) -> None:
    message = say(session, "hallo")
    for path in (SESSIONS, page_of(session), MESSAGES, f"{MESSAGES}{message.pk}/change/", KEYS):
        assert viewer.get(path).status_code == 200, path


def test_viewer_changes_nothing(viewer: Client, session: Session) -> None:
    assert viewer.post(page_of(session), {"title": "anders", "pinned": "on"}).status_code == 403
    run_action(viewer, "pin", session)
    session.refresh_from_db()
    assert (session.title, session.pinned) == ("Werken op hoogte", False)


def test_viewer_deletes_nothing(viewer: Client, session: Session, api_key: ApiKey) -> None:
    assert viewer.post(f"{SESSIONS}{session.pk}/delete/", {"post": "yes"}).status_code == 403
    assert viewer.post(f"{KEYS}{api_key.pk}/delete/", {"post": "yes"}).status_code == 403
    run_action(viewer, "delete_selected", session, post="yes")
    assert Session.objects.exists()
    assert ApiKey.objects.exists()


def test_viewer_is_offered_no_way_to_delete(viewer: Client, session: Session) -> None:
    sessions = text_of(viewer.get(SESSIONS))
    assert "Opschonen" not in sessions
    assert "verwijderen" not in sessions
    assert "Verwijderen" not in text_of(viewer.get(page_of(session)))


def every_page(session: Session, message: Message, api_key: ApiKey) -> list[str]:
    return [
        SESSIONS,
        page_of(session),
        f"{SESSIONS}{session.pk}/delete/",
        f"{SESSIONS}{session.pk}/history/",
        CLEANUP,
        MESSAGES,
        f"{MESSAGES}{message.pk}/change/",
        f"{MESSAGES}{message.pk}/history/",
        KEYS,
        f"{KEYS}{api_key.pk}/change/",
        f"{KEYS}{api_key.pk}/delete/",
    ]


def test_staff_without_permissions_sees_nothing(staff_client: StaffClient, session: Session, api_key: ApiKey) -> None:
    client = staff_client()
    for path in every_page(session, say(session, "hallo"), api_key):
        assert client.get(path).status_code == 403, path
    assert "/admin/conversations/" not in text_of(client.get("/admin/"))


def test_anonymous_visitor_is_sent_to_the_login(client: Client, session: Session, api_key: ApiKey) -> None:
    for path in every_page(session, say(session, "hallo"), api_key):
        assert client.get(path).headers["Location"] == f"/admin/login/?next={path}"
        assert client.post(path, {"post": "yes"}).status_code == 302
    assert (Session.objects.count(), ApiKey.objects.count()) == (1, 1)


@pytest.mark.parametrize(
    "address",
    [
        f"{SESSIONS}?channel=%00",
        f"{SESSIONS}?title__regex=(",
        f"{SESSIONS}?used=xxx&o=zzz&p=99999",
        f"{SESSIONS}?q=" + "woord+" * 500,
        "/admin/conversations/message/?role__exact=%00",
        "/admin/conversations/message/?session=xxx",
    ],
)
@pytest.mark.django_db(transaction=True)
def test_garbage_in_an_address_is_no_failure(address: str, admin_client: Client) -> None:
    assert admin_client.get(address).status_code in (200, 302)


@pytest.mark.parametrize("chosen", ["xx", "\0"])
@pytest.mark.django_db(transaction=True)
def test_garbage_in_an_action_is_no_failure_and_changes_nothing(chosen: str, admin_client: Client) -> None:
    session = Session.objects.create()
    admin_client.post(SESSIONS, {"action": "pin", "_selected_action": chosen})
    session.refresh_from_db()
    assert not session.pinned


def test_a_date_that_python_cannot_show_is_refused_in_the_form(admin_client: Client) -> None:
    session = Session.objects.create()
    form = {"title": "x", "expires_at_0": "0001-01-01", "expires_at_1": "00:00"}
    assert "te ver in het verleden" in text_of(admin_client.post(page_of(session), form))
    assert admin_client.get(SESSIONS).status_code == 200


# What goes along, exports and the trail


def test_confirmation_counts_summary_and_facts_that_go_along(admin_client: Client, session: Session) -> None:
    told = say(session, "Ik heb hoogtevrees.")
    Summary.objects.create(session=session, text="Over hoogte.", message_count=1, last_seq=told.seq)
    said_here, said_twice = (Fact.objects.create(text=text) for text in ("hoogtevrees", "dakdekker"))
    for fact in (said_here, said_twice):
        FactSource.objects.create(fact=fact, message=told)
    FactSource.objects.create(fact=said_twice, message=say(Session.objects.create(), "Ik ben dakdekker."))
    page = text_of(admin_client.get(f"{SESSIONS}{session.pk}/delete/"))
    for shown in ("Gesprekken: 1", "Berichten: 1", "Samenvattingen: 1", "Feiten: 1"):
        assert shown in page


@pytest.mark.parametrize(("form", "shown"), [("json", b'"content": "Mag dit?"'), ("markdown", b'Gebruiker: "Mag')])
def test_a_session_is_exported(admin_client: Client, session: Session, form: str, shown: bytes) -> None:
    say(session, "Mag dit?")
    assert shown in admin_client.get(f"{SESSIONS}{session.pk}/export/{form}/").content


def test_a_csv_export_is_no_formula(admin_client: Client, session: Session) -> None:
    say(session, '=HYPERLINK("x")')
    content = admin_client.get(f"{SESSIONS}{session.pk}/export/csv/").content.decode("utf-8-sig")
    rows = list(csv.reader(content.splitlines(), delimiter=";"))
    assert rows[1][2:5] == ["Gebruiker", "volledig", '\'=HYPERLINK("x")']


def test_several_sessions_are_exported_as_a_zip(admin_client: Client, session: Session) -> None:
    other = Session.objects.create()
    say(other, "elders")
    response = run_action(admin_client, "export_as_markdown", session, other)
    with zipfile.ZipFile(BytesIO(response.content)) as archive:
        assert sorted(archive.namelist()) == sorted(f"gesprek-{each.pk}.md" for each in (session, other))
        assert b"elders" in archive.read(f"gesprek-{other.pk}.md")


def test_an_export_that_is_too_large_is_refused_by_its_bytes(
    admin_client: Client, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Session.objects.create()
    # In bytes, and not in characters; and what is kept of a message is exported as well.
    say(session, "é" * 20_000)
    say(other, "kort", Role.ASSISTANT, metadata={"citations": [{"text": "x" * 40_000}]})
    monkeypatch.setattr("conversations.admin.sessions.MOST_BYTES", 60_000)
    refusal = text_of(run_action(admin_client, "export_as_json", session, other))
    assert "Dat is 80 kB, en een download is hooguit 60 kB. Kies minder" in refusal
    assert not AuditEntry.objects.exists()
    assert run_action(admin_client, "export_as_json", session)["Content-Type"] == "application/json"
    say(other, "x" * 20_000)
    assert "hooguit 60 kB" in text_of(admin_client.get(f"{SESSIONS}{other.pk}/export/json/", follow=True))


def trail() -> list[tuple[str, str, str]]:
    return [(entry.action, entry.actor, entry.subject) for entry in AuditEntry.objects.order_by("at")]


def test_opening_a_session_is_recorded_once_an_hour(admin_client: Client, session: Session) -> None:
    for _ in range(2):
        admin_client.get(page_of(session))
    assert trail() == [(Action.OPENED, "admin", str(session.pk))]
    AuditEntry.objects.update(at=timezone.now() - timedelta(minutes=61))
    admin_client.get(page_of(session))
    assert len(trail()) == 2


@pytest.mark.parametrize(
    "road",
    [
        f"{MESSAGES}MESSAGE/change/",
        f"{MESSAGES}?session=SESSION",
        f"{MESSAGES}?session_id=SESSION",
        f"{MESSAGES}?session__id__exact=SESSION",
        f"{SESSIONS}SESSION/before/MESSAGE/",
        "/admin/conversations/summary/SESSION/change/",
    ],
)
def test_opening_a_session_by_another_road_is_recorded_too(admin_client: Client, session: Session, road: str) -> None:
    message = say(session, "x")
    Summary.objects.create(session=session, text="x", message_count=1, last_seq=message.seq)
    admin_client.get(road.replace("SESSION", str(session.pk)).replace("MESSAGE", str(message.pk)))
    assert trail() == [(Action.OPENED, "admin", str(session.pk))]


def test_what_staff_do_is_recorded_without_contents(admin_client: Client, session: Session, api_key: ApiKey) -> None:
    about = str(session.pk)
    run_action(admin_client, "pin", session)
    admin_client.get(f"{SESSIONS}{session.pk}/export/json/")
    admin_client.post(f"{SESSIONS}{session.pk}/delete/", {"post": "yes"})
    admin_client.post(f"{KEYS}{api_key.pk}/delete/", {"post": "yes"})
    assert trail() == [
        (Action.PINNED, "admin", about),
        (Action.EXPORTED, "admin", about),
        (Action.DELETED, "admin", about),
        (Action.KEY_REVOKED, "admin", api_key.prefix),
    ]
    assert "Werken op hoogte" not in str(list(LogEntry.objects.values()) + list(AuditEntry.objects.values()))


def test_nobody_changes_the_trail(admin_client: Client, session: Session) -> None:
    admin_client.get(page_of(session))
    address = "/admin/conversations/auditentry/"
    entry = AuditEntry.objects.get()
    assert admin_client.get(f"{address}{entry.pk}/change/").status_code == 200
    assert admin_client.post(f"{address}{entry.pk}/change/", {"actor": "x"}).status_code == 403
    assert admin_client.post(f"{address}{entry.pk}/delete/", {"post": "yes"}).status_code == 403
    assert admin_client.get(f"{address}add/").status_code == 403


# The first page


def test_first_page_tells_of_today_and_of_the_days_before(admin_client: Client, session: Session) -> None:
    say(session, "vraag")
    say(
        session,
        "antwoord",
        Role.ASSISTANT,
        metadata={"model": "een-model", "tokens_used": 1234, "duration_ms": 1500},
    )
    yesterday = timezone.now() - timedelta(days=1)
    for status in (Status.FAILED, Status.INTERRUPTED, Status.INTERRUPTED):
        say(session, "", Role.ASSISTANT, status=status, created_at=yesterday)
    assert figures.keep_figures() == 29
    assert figures.keep_figures() == 0
    # The figures of a day stay when its messages go.
    Message.objects.filter(created_at=yesterday).delete()
    context = admin_client.get("/admin/").context
    tiles = {tile.title: tile.value.replace("\N{NO-BREAK SPACE}", " ") for tile in context["tiles"]}
    assert tiles["Gesprekken vandaag"] == "1"
    assert tiles["Berichten vandaag"] == "2"
    assert tiles["Actieve personen vandaag"] == "1"
    assert tiles["Antwoordtijd"] == "1,5 s"
    assert tiles["Afgebroken antwoorden"] == "2"
    assert tiles["Mislukte antwoorden"] == "1"
    assert context["token_rows"] == [("een-model", "1.234", 100)]


def test_yesterday_is_there_before_the_worker_has_counted_it(admin_client: Client, session: Session) -> None:
    yesterday = timezone.now() - timedelta(days=1)
    say(session, "", Role.ASSISTANT, status=Status.FAILED, created_at=yesterday)
    for _ in range(2):
        tiles = {tile.title: tile.value for tile in admin_client.get("/admin/").context["tiles"]}
        assert tiles["Mislukte antwoorden"] == "1"
        figures.keep_figures()


def test_figures_lead_to_the_rows_behind_them(admin_client: Client, session: Session) -> None:
    now = timezone.now()
    for days, number in ((0, 3), (29, 2), (31, 4)):
        for status in [Status.COMPLETE, Status.INTERRUPTED, Status.FAILED][:number]:
            say(session, "x", Role.ASSISTANT, status=status, created_at=now - timedelta(days=days))
    figures.keep_figures()
    tiles = {tile.title: tile for tile in admin_client.get("/admin/").context["tiles"]}
    found = {
        title: (tiles[title].value, admin_client.get(tiles[title].link).context["cl"].result_count)
        for title in ("Berichten vandaag", "Afgebroken antwoorden", "Mislukte antwoorden")
    }
    assert found == {"Berichten vandaag": ("3", 3), "Afgebroken antwoorden": ("2", 2), "Mislukte antwoorden": ("1", 1)}


def test_every_figure_leads_somewhere_for_who_may_not_read_contents(
    staff_client: StaffClient, session: Session
) -> None:
    say(session, "x")
    client = staff_client("view_session")
    page = client.get("/admin/")
    links = [tile.link for tile in page.context["tiles"]] + [link for _, link in page.context["charts"]]
    assert {client.get(link).status_code for link in [*links, page.context["token_link"]]} == {200}
    # Who talks is told without what they say.
    assert 'id="now"' in text_of(page)


@pytest.mark.parametrize("metadata", [[], 7, {"model": 7, "tokens_used": "x", "duration_ms": {}}, {"model": {}}])
def test_first_page_survives_any_metadata(admin_client: Client, session: Session, metadata: Any) -> None:
    say(session, "x", Role.ASSISTANT, metadata=metadata)
    assert admin_client.get("/admin/").status_code == 200


def test_first_page_says_that_the_worker_does_nothing(admin_client: Client) -> None:
    def worker() -> str:
        tiles = admin_client.get("/admin/").context["tiles"]
        return "".join(tile.value for tile in tiles if tile.title == "Worker")

    Schedule.objects.update(next_run=timezone.now() + timedelta(hours=1))
    assert worker() == "Nog niet gezien"
    Schedule.objects.update(next_run=timezone.now() - timedelta(minutes=3))
    assert worker() == "Loopt niet"


def test_first_page_does_not_count_all_that_waits_to_be_embedded(
    admin_client: Client, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_messages(session, 4)
    assert "0 uit de kennisbank, 4 uit gesprekken" in text_of(admin_client.get("/admin/"))
    monkeypatch.setattr("conversations.admin.dashboard.MOST_COUNTED", 3)
    assert "0 uit de kennisbank, meer dan 3 uit gesprekken" in text_of(admin_client.get("/admin/"))


def test_schedules_are_listed_by_what_they_do(admin_client: Client) -> None:
    Schedule.objects.update(task="0" * 32)
    cleanup = Schedule.objects.get(func="conversations.tasks.cleanup_sessions")
    for page in ("", f"{cleanup.pk}/change/"):
        shown = text_of(admin_client.get(f"/admin/django_q/schedule/{page}"))
        assert IN_DUTCH[cleanup.func] in shown.partition('id="content')[2]
        assert "0" * 32 not in shown


def test_every_task_has_a_name_in_dutch() -> None:
    assert {schedule["func"] for schedule in SCHEDULES.values()} <= set(IN_DUTCH)


def test_rights_are_told_in_words(admin_client: Client) -> None:
    role = Group.objects.create(name="lezers")
    page = text_of(admin_client.get(f"/admin/auth/group/{role.pk}/change/"))
    assert "Gesprekken | gesprek: verwijderen" in page
    assert "Can view" not in page


@pytest.mark.parametrize("address", ["/admin/bestaat/niet/", "/bestaat-niet"])
def test_an_address_that_leads_nowhere_says_so_in_dutch(admin_client: Client, address: str) -> None:
    response = admin_client.get(address)
    assert (response.status_code, "Niet gevonden" in response.content.decode()) == (404, True)


@pytest.mark.parametrize(
    "page", ["conversations/session/", "conversations/session/cleanup/", "agentbridge/document/search/"]
)
def test_menu_shows_one_place_at_a_time(admin_client: Client, page: str) -> None:
    opened = re.findall(r'<a href="(/admin/[^"]+)" class="[^"]* active"', text_of(admin_client.get(f"/admin/{page}")))
    assert opened == [f"/admin/{page}"]


def test_first_page_takes_few_queries(
    admin_client: Client, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    with django_assert_max_num_queries(20):
        assert admin_client.get("/admin/").status_code == 200


def test_figures_and_search_go_through_their_indexes() -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            """
            INSERT INTO sessions (id) SELECT gen_random_uuid() FROM generate_series(1, 2000);
            WITH numbered AS (SELECT id, row_number() OVER () AS place FROM sessions)
            INSERT INTO messages (session_id, role, content, created_at)
            SELECT id, 'user', 'woord' || n || ' en nog meer tekst', now() - interval '1 minute' * (100000 - n)
            FROM generate_series(1, 100000) AS n JOIN numbered ON place = n % 2000 + 1 ORDER BY n;
            ANALYZE messages
            """
        )
        cursor.execute(f"EXPLAIN {figures.COUNT}", [timezone.now() - timedelta(hours=2), timezone.now()])
        assert "idx_messages_created_brin" in "".join(line for (line,) in cursor.fetchall())
    found = Message.objects.saying("woord7777")
    assert "idx_messages_words" in found.explain()
    assert found.count() == 11
    # What everybody says is looked for among the newest alone.
    assert Message.objects.saying("meer tekst").count() == 1000


@pytest.mark.django_db(transaction=True)
def test_an_answer_is_timed() -> None:
    reply = async_to_sync(run_turn)(TurnRequest(prompt="Hoe lang duurt dit?"))
    timing = Message.objects.get(pk=reply.message_id).metadata
    assert 0 <= timing["first_token_ms"] <= timing["duration_ms"]
