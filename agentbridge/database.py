"""Ways to the database: short phases of asynchronous work, statements kept prepared, and locks between processes."""

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from types import MappingProxyType
from typing import Any, LiteralString, ParamSpec, TypeVar

from django.db import connection
from psycopg import Cursor
from psycopg.rows import dict_row
from psycopg.sql import Composed

# How often those who wait for a lock look whether it is free.
LOOK_AGAIN_SECONDS = 0.1
P = ParamSpec("P")
T = TypeVar("T")

# Few threads are enough, because none of them ever waits for a model that is far away (question_vectors.ahead).
_threads = ThreadPoolExecutor(8, thread_name_prefix="turn-database")


@contextmanager
def advisory_lock(number: int, *, wait: bool = True) -> Iterator[bool]:
    """Whether the lock of this number is ours while the block runs; without `wait` it may be somebody else's.

    It goes with the connection, so no crash leaves it behind.
    """
    with connection.cursor() as cursor:
        while True:
            cursor.execute("SELECT pg_try_advisory_lock(%s)", [number])
            is_ours = cursor.fetchone() == (True,)
            if is_ours or not wait:
                break
            # Not by a statement that waits: whoever has the lock and makes an index concurrently would wait for that.
            time.sleep(LOOK_AGAIN_SECONDS)
    try:
        yield is_ours
    finally:
        if is_ours and connection.is_usable():
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_advisory_unlock(%s)", [number])


async def in_database(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run one phase on the database in a thread of its own, with a connection for just that long."""

    def phase() -> T:
        try:
            return function(*args, **kwargs)
        finally:
            connection.close()

    return await asyncio.get_running_loop().run_in_executor(_threads, phase)


def prepared(
    statement: LiteralString | Composed,
    parameters: Mapping[str, Any],
    *,
    settings: Mapping[LiteralString, LiteralString] = MappingProxyType({}),
) -> list[dict[str, Any]]:
    """The rows of a statement that the server plans once and not each time, as it does with Django's own cursors.

    For statements that take as long to plan as to run. The server's `settings` hold for this one, or to the end of the
    transaction that it is part of.
    """
    connection.ensure_connection()
    raw = connection.connection
    with (
        connection.wrap_database_errors,
        raw.transaction() if settings else nullcontext(),
        Cursor(raw, row_factory=dict_row) as cursor,
    ):
        if settings:
            cursor.execute(";".join(f"SET LOCAL {name} = {value}" for name, value in settings.items()))
        return cursor.execute(statement, parameters, prepare=True).fetchall()
