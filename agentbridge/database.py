"""Ways to the database: short phases of asynchronous work in threads of their own, and statements kept prepared."""

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, LiteralString, ParamSpec, TypeVar

from django.db import connection
from psycopg import Cursor
from psycopg.rows import dict_row
from psycopg.sql import Composed

P = ParamSpec("P")
T = TypeVar("T")

# Few threads are enough, because none of them ever waits for a model.
_threads = ThreadPoolExecutor(8, thread_name_prefix="turn-database")


async def in_database(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run one phase on the database in a thread of its own, with a connection for just that long."""

    def phase() -> T:
        try:
            return function(*args, **kwargs)
        finally:
            connection.close()

    return await asyncio.get_running_loop().run_in_executor(_threads, phase)


def prepared(statement: LiteralString | Composed, parameters: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The rows of a statement that the server plans once and not each time, as it does with Django's own cursors.

    For statements that take as long to plan as to run.
    """
    connection.ensure_connection()
    with connection.wrap_database_errors, Cursor(connection.connection, row_factory=dict_row) as cursor:
        return cursor.execute(statement, parameters, prepare=True).fetchall()
