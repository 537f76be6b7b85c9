"""The database's part of asynchronous work: short, and in threads of its own."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from django.db import connection

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
