"""What a load balancer and a container runtime ask."""

from functools import cache

import psycopg
from django.core.exceptions import ImproperlyConfigured
from django.db import connection
from django.db.migrations.loader import MigrationLoader
from django.http import HttpRequest, JsonResponse
from django.views.decorators.http import require_safe


@require_safe
async def healthz(request: HttpRequest) -> JsonResponse:
    """The process answers; nothing is said of what it depends on."""
    return JsonResponse({"status": "ok"})


@require_safe
def readyz(request: HttpRequest) -> JsonResponse:
    """The process can serve: its database is there and has the tables this version needs."""
    try:
        # Past the pool: a busy server is not an unready one, and a dead one is to be known at once.
        with psycopg.connect(**{**connection.get_connection_params(), "connect_timeout": 2}) as direct:
            applied = set(direct.execute("SELECT app, name FROM django_migrations"))
    except psycopg.errors.UndefinedTable:
        applied = set()
    except (psycopg.OperationalError, ImproperlyConfigured):
        return JsonResponse({"status": "unavailable", "detail": "The database does not answer."}, status=503)
    if not applied.issuperset(_needed_migrations()):
        return JsonResponse(
            {"status": "unavailable", "detail": "The database is not up to date: manage.py prepare_database"},
            status=503,
        )
    return JsonResponse({"status": "ok"})


@cache
def _needed_migrations() -> frozenset[tuple[str, str]]:
    return frozenset(MigrationLoader(None, ignore_no_migrations=True).graph.leaf_nodes())
