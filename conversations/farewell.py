"""What a web process does when it is told to stop, before it goes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import cache

# How long answers under way may take to come to their end; whoever starts and stops EVI waits longer than that.
PATIENCE_SECONDS = 5


@cache
def before_the_end(work: Callable[[], Coroutine[None, None, None]]) -> None:
    """Have the web server wait for this when it is told to stop.

    Of its own accord it waits for connections only, and only until the first of them has ended.
    """
    # Which reactor that is, daphne decides when it starts.
    from twisted.internet import defer, reactor

    def begin() -> defer.Deferred[None]:
        return defer.Deferred.fromFuture(asyncio.ensure_future(work()))

    reactor.addSystemEventTrigger("before", "shutdown", begin)  # type: ignore[arg-type]  # its interface has no self
