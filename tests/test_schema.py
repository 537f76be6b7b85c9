"""The data model as PostgreSQL knows it: its catalogue and its plans, not the ORM's idea of them."""

import json
import subprocess
from collections.abc import Callable
from itertools import pairwise
from typing import Any
from uuid import UUID

import pytest
from django.apps import apps
from django.contrib.auth.models import User
from django.db import IntegrityError, connection, transaction
from django.db.migrations.executor import MigrationExecutor

from conversations.models import Message, Session
from evi_site.environment import BASE_DIR
from evi_site.postgres.base import embedded_cluster

pytestmark = pytest.mark.django_db


def ask(sql: str, *params: Any) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        rows: list[tuple[Any, ...]] = cursor.fetchall()
    return rows


def plan_of(sql: str, *params: Any) -> str:
    return "\n".join(line for (line,) in ask(f"EXPLAIN {sql}", *params))


def columns(table: str) -> dict[str, tuple[str, str | None]]:
    """Each column's type and default."""
    rows = ask(
        """
        SELECT attname, format_type(atttypid, atttypmod), pg_get_expr(adbin, adrelid)
        FROM pg_attribute LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
        WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped
        """,
        table,
    )
    return {name: (type_, default) for name, type_, default in rows}


def definition(name: str) -> str:
    """A constraint or index in PostgreSQL's words."""
    constraint = ask("SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conname = %s", name)
    return str((constraint or ask("SELECT pg_get_indexdef(%s::regclass)", name))[0][0])


def test_sessions_have_the_columns_of_the_specification() -> None:
    timestamp = "timestamp with time zone"
    assert columns("sessions") == {
        "id": ("uuid", "gen_random_uuid()"),
        "owner_id": ("integer", None),
        "user_id": ("text", "''::text"),
        "channel": ("text", "'api'::text"),
        "external_id": ("text", "''::text"),
        "title": ("text", "''::text"),
        "pinned": ("boolean", "false"),
        "metadata": ("jsonb", "'{}'::jsonb"),
        "created_at": (timestamp, "statement_timestamp()"),
        "updated_at": (timestamp, "statement_timestamp()"),
        "last_accessed": (timestamp, "statement_timestamp()"),
        "expires_at": (timestamp, None),
        "message_count": ("integer", "0"),
    }


def test_messages_have_the_columns_of_the_specification() -> None:
    assert columns("messages") == {
        "id": ("uuid", "gen_random_uuid()"),
        "session_id": ("uuid", None),
        "role": ("text", None),
        "content": ("text", None),
        "status": ("text", "'complete'::text"),
        "metadata": ("jsonb", "'{}'::jsonb"),
        "created_at": ("timestamp with time zone", "clock_timestamp()"),
        "reply_to": ("uuid", None),
        "request_key": ("text", "''::text"),
        "superseded_by": ("uuid", None),
        "branch_hash": ("uuid", None),
        "seq": ("bigint", "nextval('messages_seq'::regclass)"),
    }


@pytest.mark.ac("AC-FEAT-008-207")
def test_last_accessed_is_indexed_for_the_cleanup() -> None:
    assert definition("idx_sessions_last_accessed").endswith("ON public.sessions USING btree (last_accessed)")


def test_the_context_index_descends_and_breaks_ties() -> None:
    assert definition("idx_messages_session_created_desc").endswith(
        "ON public.messages USING btree (session_id, created_at DESC, seq DESC)"
    )


def test_my_sessions_newest_first_has_an_index() -> None:
    assert definition("idx_sessions_owner_recent").endswith("(owner_id, user_id, last_accessed DESC, id DESC)")


def test_the_cascade_is_in_the_database() -> None:
    assert definition("messages_session_id_fkey") == (
        "FOREIGN KEY (session_id) REFERENCES sessions(id) ON DELETE CASCADE"
    )


@pytest.mark.parametrize(
    ("table", "column", "value"),
    [("messages", "role", "tool"), ("messages", "status", "lost"), ("sessions", "channel", "fax")],
)
def test_the_database_refuses_what_is_not_on_the_list(
    table: str, column: str, value: str, make_session: Callable[..., Session]
) -> None:
    make_session(messages=1)
    with pytest.raises(IntegrityError, match=f"{table}_{column}_check"), transaction.atomic():
        ask(f"UPDATE {table} SET {column} = %s RETURNING id", value)


def test_the_name_in_a_channel_is_unique_for_one_person_of_one_client() -> None:
    Session.objects.create(user_id="anna", channel="telegram", external_id="chat 1")
    Session.objects.create(user_id="bram", channel="telegram", external_id="chat 1")
    Session.objects.create(user_id="anna", channel="openwebui", external_id="chat 1")
    with pytest.raises(IntegrityError, match="sessions_external_id_unique"), transaction.atomic():
        Session.objects.create(user_id="anna", channel="telegram", external_id="chat 1")


def test_sessions_without_a_name_in_their_channel_are_not_alike() -> None:
    Session.objects.create(user_id="anna")
    Session.objects.create(user_id="anna")


@pytest.mark.django_db(transaction=True)
def test_the_sql_of_the_first_requirements_runs_in_psql() -> None:
    cluster = embedded_cluster()
    assert cluster
    at = cluster.address()
    script = """
        INSERT INTO sessions (id, user_id) VALUES ('00000000-0000-0000-0000-000000000001', 'test_user');
        INSERT INTO messages (session_id, role, content)
            VALUES ('00000000-0000-0000-0000-000000000001', 'user', 'Wat is de norm?');
        SELECT message_count FROM sessions WHERE user_id = 'test_user';
        DELETE FROM sessions WHERE user_id = 'test_user';
        SELECT count(*) FROM messages;
    """
    psql = [str(cluster.programs / "psql"), "-h", at.host, "-p", str(at.port), "-U", at.user, "-tAq"]
    psql += ["-v", "ON_ERROR_STOP=1", str(connection.settings_dict["NAME"])]
    said = subprocess.run(psql, input=script, env={"PGPASSWORD": at.password}, capture_output=True, text=True)
    assert (said.stdout.split(), said.stderr) == (["1", "0"], "")


@pytest.mark.ac("AC-FEAT-008-207")
def test_a_message_moves_last_accessed_whoever_writes_it(make_session: Callable[..., Session]) -> None:
    session = make_session(days_old=3)
    ask("INSERT INTO messages (session_id, role, content) VALUES (%s, 'user', 'hallo') RETURNING id", session.id)
    before, session = session, Session.objects.get(id=session.id)
    assert session.last_accessed > before.last_accessed
    assert session.updated_at > before.updated_at


def test_a_session_counts_its_messages_whoever_adds_and_removes_them(make_session: Callable[..., Session]) -> None:
    session, other = make_session(messages=3), make_session(messages=1)
    ask("DELETE FROM messages WHERE content = 'message 1' RETURNING id")
    counts = dict(Session.objects.values_list("id", "message_count"))
    assert counts == {session.id: 2, other.id: 1}


def test_emptying_the_messages_empties_the_counts(make_session: Callable[..., Session]) -> None:
    make_session(messages=3)
    with connection.cursor() as cursor:
        # What follows from messages goes with them.
        cursor.execute("TRUNCATE messages CASCADE")
    assert Session.objects.get().message_count == 0


def test_a_message_cannot_move_to_another_session(make_session: Callable[..., Session]) -> None:
    make_session(messages=1)
    other = make_session()
    with pytest.raises(IntegrityError, match="cannot move"), transaction.atomic():
        Message.objects.update(session=other)


def test_a_new_title_moves_updated_at_whoever_writes_it(make_session: Callable[..., Session]) -> None:
    session = make_session()
    ask("UPDATE sessions SET title = 'Ladders' RETURNING id")
    assert Session.objects.get().updated_at > session.updated_at


def test_the_counts_hold_without_a_search_path_as_in_a_restore(make_session: Callable[..., Session]) -> None:
    session = make_session()
    ask("SELECT set_config('search_path', '', true)")
    ask("INSERT INTO public.messages (session_id, role, content) VALUES (%s, 'user', 'a') RETURNING id", session.id)
    assert ask("SELECT message_count FROM public.sessions") == [(1,)]


@pytest.mark.ac("AC-FEAT-008-201")
def test_the_context_is_read_from_the_index_without_a_sort(filled_database: UUID) -> None:
    query = Message.objects.filter(session_id=filled_database).order_by("-created_at", "-seq")[:10]
    plan = query.explain()
    assert "Index Scan using idx_messages_session_created_desc" in plan
    assert "Sort" not in plan


def test_my_sessions_are_read_from_the_index_without_a_sort(filled_database: UUID) -> None:
    client = User.objects.create_user("client")
    ask("UPDATE sessions SET owner_id = %s, user_id = substr(id::text, 1, 1) RETURNING 1", client.id)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE sessions")
    plan = Session.objects.for_owner(client.id, user_id="a").order_by("-last_accessed", "-id")[:20].explain()
    assert "idx_sessions_owner_recent" in plan
    assert "Sort" not in plan


def test_the_cleanup_finds_the_expired_through_indexes(filled_database: UUID) -> None:
    plan = Session.objects.expired().explain()
    assert "Seq Scan" not in plan
    assert "idx_sessions_last_accessed" in plan


def test_the_cascade_finds_messages_through_the_index(filled_database: UUID) -> None:
    plan = json.dumps(plan_of("DELETE FROM messages WHERE session_id = %s", filled_database))
    assert "idx_messages_session_created_desc" in plan


MIGRATIONS = sorted(path.stem for path in (BASE_DIR / "conversations" / "migrations").glob("0*.py"))


@pytest.fixture
def migrate() -> Any:
    """Move the conversations app to a migration, or before the first, and back to the last at the end."""

    def to(name: str | None) -> None:
        executor = MigrationExecutor(connection)
        executor.migrate([("conversations", name)])

    yield to
    to(MIGRATIONS[-1])


def dump_schema() -> list[tuple[Any, ...]]:
    tables = [model._meta.db_table for model in apps.get_app_config("conversations").get_models()]
    return ask(
        r"""
        SELECT 'column', table_name, column_name, concat_ws(' ', data_type, is_nullable), column_default
        FROM information_schema.columns WHERE table_name = ANY(%s)
        UNION ALL SELECT 'constraint', conrelid::regclass::text, conname, pg_get_constraintdef(oid), NULL
        FROM pg_constraint WHERE conrelid::regclass::text = ANY(%s)
        UNION ALL SELECT 'index', tablename, indexname, indexdef, NULL FROM pg_indexes
        WHERE tablename = ANY(%s)
        UNION ALL SELECT 'trigger', tgrelid::regclass::text, tgname, pg_get_triggerdef(oid), NULL FROM pg_trigger
        WHERE tgrelid::regclass::text = ANY(%s) AND NOT tgisinternal
        UNION ALL SELECT 'function', proname, regexp_replace(prosrc, '\s+', ' ', 'g'), NULL, NULL FROM pg_proc
        WHERE pronamespace = 'public'::regnamespace
            AND NOT EXISTS (SELECT FROM pg_depend WHERE objid = pg_proc.oid AND deptype = 'e')
        UNION ALL SELECT 'sequence', relname, NULL, NULL, NULL FROM pg_class WHERE relname = 'messages_seq'
        ORDER BY 1, 2, 3, 4
        """,
        *[tables] * 4,
    )


@pytest.mark.django_db(transaction=True)
def test_each_migration_can_be_undone_down_to_nothing_and_done_again(migrate: Any) -> None:
    schemas = {}
    for later, earlier in pairwise([*reversed(MIGRATIONS), None]):
        schemas[later] = dump_schema()
        migrate(earlier)
    assert dump_schema() == []
    for migration in MIGRATIONS:
        migrate(migration)
        assert dump_schema() == schemas[migration], migration


@pytest.mark.django_db(transaction=True)
def test_messages_of_before_the_counter_are_counted(migrate: Any) -> None:
    migrate("0002_cascade_in_the_database")
    [(session,)] = ask("INSERT INTO sessions DEFAULT VALUES RETURNING id")
    ask("INSERT INTO messages (session_id, role, content) VALUES (%s, 'user', 'oud') RETURNING id", session)
    migrate(MIGRATIONS[-1])
    assert ask("SELECT message_count FROM sessions WHERE id = %s", session) == [(1,)]
