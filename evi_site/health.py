"""What a load balancer and a container runtime ask."""

from functools import cache

from django.db import DatabaseError, connection
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder
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
        missing = _needed_migrations() - MigrationRecorder(connection).applied_migrations().keys()
    except DatabaseError:
        return JsonResponse({"status": "unavailable", "detail": "The database does not answer."}, status=503)
    if missing:
        return JsonResponse(
            {"status": "unavailable", "detail": "The database needs: manage.py prepare_database"}, status=503
        )
    return JsonResponse({"status": "ok"})


@cache
def _needed_migrations() -> frozenset[tuple[str, str]]:
    return frozenset(MigrationLoader(None, ignore_no_migrations=True).graph.leaf_nodes())
