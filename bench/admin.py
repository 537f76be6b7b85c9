"""How long the admin's pages take at a million messages, and how many queries they need."""

import sys
from argparse import ArgumentParser
from time import perf_counter

from django.conf import settings
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from rich.table import Table

from bench import Promise, console, fill, make_tables, settle, throwaway_cluster, verdict
from conversations.figures import keep_figures
from conversations.models import Session

MOST_MILLISECONDS = 300
MOST_QUERIES = 20
ROUNDS = 7

# As a month's use leaves it: days of messages one after another, titles, persons, answers that were timed.
SPREAD = """
    CREATE TEMPORARY TABLE spread AS SELECT id, session_id, role, row_number() OVER (ORDER BY seq) AS place,
        count(*) OVER () AS whole FROM messages;
    TRUNCATE messages, fact_sources;
    INSERT INTO messages (id, session_id, role, content, status, metadata, created_at)
    SELECT id, session_id, role,
        CASE WHEN place % 1000 = 7 THEN 'Waar ligt het valharnas ' || place
            ELSE repeat('Wat moet ik meenemen? ', 10) END,
        CASE WHEN role = 'assistant' AND place % 500 = 0 THEN 'interrupted' ELSE 'complete' END,
        CASE role WHEN 'assistant' THEN jsonb_build_object('model', 'offline', 'tokens_used', 500, 'duration_ms', 900)
            ELSE '{}' END,
        now() - interval '30 days' * (1 - place::float / whole)
    FROM spread ORDER BY place;
    DROP TABLE spread;
    -- The triggers counted the messages twice and touched every session.
    UPDATE sessions SET title = 'Gesprek ' || left(id::text, 4), user_id = 'persoon-' || abs(hashtext(id::text)) % 500,
        message_count = message_count / 2,
        last_accessed = now() - random() * interval '40 days';
"""


def main() -> int:
    parser = ArgumentParser(prog="python -m bench.admin", description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000, help="to fill with (default: %(default)s)")
    options = parser.parse_args()
    settings.ALLOWED_HOSTS = ["testserver"]
    with throwaway_cluster():
        make_tables()
        fill(messages=options.messages, description=f"{options.messages:,} messages")
        with connection.cursor() as cursor:
            cursor.execute(SPREAD)
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
