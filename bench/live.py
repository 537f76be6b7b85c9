"""What looking on costs: many streams at once, with nobody watching and with staff watching all of them."""

import asyncio
import json
import os
import sys
from argparse import ArgumentParser

import aiohttp
from django.conf import settings
from django.contrib.auth.models import User
from django.test import Client
from rich.table import Table

from bench import Latency, Promise, console, make_tables, throwaway_cluster, verdict
from bench import turns as turns_bench

STREAMS = 50


def main() -> int:
    parser = ArgumentParser(description=__doc__, prog="python -m bench.live")
    parser.add_argument("--turns", type=int, default=5, help="how many each stream takes")
    turns = parser.parse_args().turns
    turns_bench.USERS = STREAMS
    # As in production; the client below is on this machine, and needs no key.
    os.environ.pop("REDIS_URL", None)
    with throwaway_cluster(), turns_bench.model() as model_url:
        make_tables()
        with turns_bench.evi(model_url) as url:
            asyncio.run(turns_bench.talk(f"{url}/v1", turns=1))
            alone = measured(url, turns=turns, cookie="")
            watched = measured(url, turns=turns, cookie=cookie_of_staff())
    table = Table(f"{STREAMS} streams", "turn median", "turn p95", "first word median", "first word p95", "told")
    for name, (whole, first, heard) in {"nobody watches": alone, "staff watch": watched}.items():
        table.add_row(
            name, *(f"{one:.1f} ms" for one in (whole.median, whole.p95, first.median, first.p95)), str(heard)
        )
    console.print(table)
    return verdict(
        [
            Promise("a turn that is watched beside one that is not", watched[0].median / alone[0].median, 1.1),
            Promise("what watching adds to the first word", watched[1].median - alone[1].median, 20, " ms"),
        ]
    )


def measured(url: str, *, turns: int, cookie: str) -> tuple[Latency, Latency, int]:
    async def both() -> tuple[tuple[list[float], list[float]], int]:
        watching = asyncio.create_task(watch(url, cookie)) if cookie else None
        # The watcher is known before the first turn begins.
        await asyncio.sleep(1)
        taken = await turns_bench.talk(f"{url}/v1", turns=turns)
        if watching is None:
            return taken, 0
        watching.cancel()
        return taken, await watching

    (whole, first), heard = asyncio.run(both())
    return Latency.of(whole), Latency.of(first), heard


async def watch(url: str, cookie: str) -> int:
    """Look at all turns, and at the session of each that begins; how many frames that were, when it is cancelled."""
    heard = 0
    headers = {"Cookie": cookie, "Origin": url}
    seen: dict[str, asyncio.Task[None]] = {}
    async with aiohttp.ClientSession(headers=headers) as client:

        async def look_at(session_id: str) -> None:
            nonlocal heard
            async with client.ws_connect(f"{url}/ws/admin/sessions/{session_id}/") as page:
                async for _ in page:
                    heard += 1

        try:
            async with client.ws_connect(f"{url}/ws/admin/now/") as now:
                async for frame in now:
                    heard += 1
                    for turn in json.loads(frame.data)["turns"]:
                        session_id = turn["session_id"]
                        if session_id not in seen:
                            seen[session_id] = asyncio.create_task(look_at(session_id))
        except asyncio.CancelledError:
            for task in seen.values():
                task.cancel()
    return heard


def cookie_of_staff() -> str:
    client = Client()
    client.force_login(User.objects.create_superuser("staff"))
    return f"{settings.SESSION_COOKIE_NAME}={client.cookies[settings.SESSION_COOKIE_NAME].value}"


if __name__ == "__main__":
    sys.exit(main())
