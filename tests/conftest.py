import signal
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from uuid import UUID, uuid4

import pytest
from django.db import connection
from django.db.backends.postgresql.operations import DatabaseOperations
from django.utils import timezone

from conversations.limits import window
from conversations.models import Session
from evi_site.postgres.base import embedded_cluster

# A shell that runs the tests in the background has them, and what they start, ignore Ctrl-C, which some tests send.
signal.signal(signal.SIGINT, signal.default_int_handler)


# Tests that start and stop whole servers come first, or one core would still be at them when the others are done.
LONGEST = ("test_server", "test_telegram", "test_scripts", "test_error_paths", "test_chat_page", "test_production")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: LONGEST.index(item.path.stem) if item.path.stem in LONGEST else len(LONGEST))


# Rows are few, and DELETE takes a tenth of what TRUNCATE does, which makes each table's files anew. Only an index of
# vectors would go on leading to what was deleted.
EMPTY = """
    DO $$
    DECLARE
        name regclass;
    BEGIN
        -- Neither triggers nor foreign keys: everything goes.
        SET LOCAL session_replication_role = replica;
        LOCK TABLE %s IN EXCLUSIVE MODE;
        FOREACH name IN ARRAY '{%s}'::regclass[] LOOP
            EXECUTE format('DELETE FROM %%s', name);
            IF FOUND AND EXISTS (
                SELECT FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid JOIN pg_am ON pg_am.oid = relam
                WHERE indrelid = name AND amname = 'hnsw'
            ) THEN
                EXECUTE format('TRUNCATE %%s CASCADE', name);
            END IF;
        END LOOP;
    END $$
"""


@pytest.fixture(scope="session", autouse=True)
def quick_flush() -> Iterator[None]:
    """What follows each test that commits."""

    def sql_flush(self: DatabaseOperations, style: object, tables: Sequence[str], **options: bool) -> list[str]:
        names = ",".join(tables)
        return [EMPTY % (names, names)]

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(DatabaseOperations, "sql_flush", sql_flush)
        yield


@pytest.fixture(scope="session")
def database_url(django_db_setup: None) -> str:
    """The test run's database, for processes of its own."""
    cluster = embedded_cluster()
    assert cluster
    return cluster.ensure_running().url(str(connection.settings_dict["NAME"]))


@pytest.fixture(autouse=True)
def fresh_counters() -> None:
    """What other tests asked in this minute does not count."""
    window.clear()


@pytest.fixture
def make_session(db: None) -> Callable[..., Session]:
    """A session with some messages, as old as wanted."""

    def make(*, messages: int = 0, days_old: float = 0, **fields: object) -> Session:
        session = Session.objects.create(**fields)
        for number in range(messages):
            session.messages.create(role=["user", "assistant"][number % 2], content=f"message {number}")
        Session.objects.filter(id=session.id).update(last_accessed=timezone.now() - timedelta(days=days_old))
        session.refresh_from_db()
        return session

    return make


@pytest.fixture
def filled_database(db: None) -> UUID:
    """2,000 sessions with 40,000 messages, as a year's use leaves them; the id is that of one session among them."""
    chosen = uuid4()
    with connection.cursor() as cursor:
        cursor.execute(
            """
            INSERT INTO sessions (id) SELECT CASE WHEN i = 1000 THEN %s ELSE gen_random_uuid() END
            FROM generate_series(1, 2000) AS i;
            INSERT INTO messages (session_id, role, content, created_at)
            SELECT id, 'user', 'text ' || i, now() - interval '1 day' + i * interval '1 second'
            FROM sessions, generate_series(1, 20) AS i;
            ANALYZE sessions, messages;
            """,
            [chosen],
        )
    return chosen
