"""How long the admin's pages take at a million messages, and how many queries they need."""

import sys
from argparse import ArgumentParser
from time import perf_counter

from django.conf import settings
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from rich.progress import Progress
from rich.table import Table

from bench import (
    MESSAGES_A_SESSION,
    MESSAGES_A_STATEMENT,
    Promise,
    console,
    make_tables,
    settle,
    throwaway_cluster,
    verdict,
)
from conversations.figures import keep_figures
from conversations.models import Session

MOST_MILLISECONDS = 300
MOST_QUERIES = 20
ROUNDS = 7

# As a month's use leaves it: days of messages one after another, titles, persons, answers that were timed.
SESSIONS = """
    INSERT INTO sessions (title, user_id)
    SELECT 'Gesprek ' || n, 'persoon-' || n %% 500 FROM generate_series(1, %s) AS n
"""
MESSAGES = """
    WITH numbered AS (SELECT id, row_number() OVER () - 1 AS place FROM sessions)
    INSERT INTO messages (session_id, role, content, status, metadata, created_at)
    SELECT id, CASE n %% 2 WHEN 1 THEN 'user' ELSE 'assistant' END,
        CASE WHEN n %% 1000 = 7 THEN 'Waar ligt het valharnas ' || n ELSE repeat('Wat moet ik meenemen? ', 10) END,
        CASE WHEN n %% 500 = 0 THEN 'interrupted' ELSE 'complete' END,
        CASE n %% 2 WHEN 1 THEN '{}'
            ELSE '{"model": "offline", "tokens_used": 500, "duration_ms": 900}'::jsonb END,
        now() - interval '30 days' * (1 - n::float / %s)
    FROM generate_series(%s, %s) AS n JOIN numbered ON place = (n / 2) %% (SELECT count(*) FROM sessions)
    ORDER BY n
"""
USED = "UPDATE sessions SET last_accessed = now() - random() * interval '40 days'"


def fill_month(messages: int) -> None:
    """Sessions of 20 messages, spread over a month in the order in which they were said."""
    with connection.cursor() as cursor, Progress(console=console) as bar:
        task = bar.add_task(f"{messages:,} messages", total=messages)
        cursor.execute(SESSIONS, [messages // MESSAGES_A_SESSION])
        cursor.execute("ANALYZE sessions")
        for first in range(1, messages + 1, MESSAGES_A_STATEMENT):
            last = min(first + MESSAGES_A_STATEMENT - 1, messages)
            cursor.execute(MESSAGES, [messages, first, last])
            bar.advance(task, last - first + 1)
        cursor.execute(USED)


def main() -> int:
    parser = ArgumentParser(prog="python -m bench.admin", description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000, help="to fill with (default: %(default)s)")
    options = parser.parse_args()
    settings.ALLOWED_HOSTS = ["testserver"]
    with throwaway_cluster():
        make_tables()
        fill_month(options.messages)
        settle()
        keep_figures()
        client = Client()
        client.force_login(User.objects.create_superuser("bench"))
        one = Session.objects.order_by("-message_count", "id")[0]
        sessions = "/admin/conversations/session/"
        pages = {
            "first page": "/admin/",
            "list": sessions,
            "list, second page": f"{sessions}?p=2",
            "list, interrupted": f"{sessions}?broken=interrupted",
            "list, to clean up": f"{sessions}?expiry=expired",
            "search, a rare word": f"{sessions}?q=valharnas",
            "search, a word in every message": f"{sessions}?q=meenemen",
            "search, an id": f"{sessions}?q={str(one.pk)[:8]}",
            "search in messages": "/admin/conversations/message/?q=valharnas",
            "messages, today": "/admin/conversations/message/?when=today",
            "messages, interrupted": "/admin/conversations/message/?when=month&status__exact=interrupted",
            "messages, answers of today": "/admin/conversations/message/?when=today&role__exact=assistant",
            "session": f"{sessions}{one.pk}/change/",
        }
        table = Table("page", "median ms", "queries", title=f"{options.messages:,} messages")
        promises = []
        for name, address in pages.items():
            milliseconds, queries = measure(client, address)
            table.add_row(name, f"{milliseconds:.0f}", str(queries))
            promises.append(Promise(f"{name}: time", milliseconds, MOST_MILLISECONDS, " ms"))
            promises.append(Promise(f"{name}: queries", queries, MOST_QUERIES, ""))
        console.print(table)
    return verdict(promises)


def measure(client: Client, address: str) -> tuple[float, int]:
    """The median of a few visits, and how many queries one takes."""
    taken = []
    for _ in range(ROUNDS):
        started = perf_counter()
        response = client.get(address)
        taken.append((perf_counter() - started) * 1000)
        assert response.status_code == 200, (address, response.status_code)
    with CaptureQueriesContext(connection) as queries:
        client.get(address)
    return sorted(taken)[ROUNDS // 2], len(queries)


if __name__ == "__main__":
    sys.exit(main())
