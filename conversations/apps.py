from typing import Any

from django.apps import AppConfig
from django.db.models.signals import post_migrate


class ConversationsConfig(AppConfig):
    name = "conversations"
    verbose_name = "Gesprekken"

    def ready(self) -> None:
        post_migrate.connect(_register_schedules, sender=self)


def _register_schedules(*, using: str, **kwargs: Any) -> None:
    from django.db import connections
    from django_q.models import Schedule

    from conversations.schedules import register_schedules

    # `migrate conversations` alone, or on the way back, may find no table to put them in.
    if Schedule._meta.db_table in connections[using].introspection.table_names():
        register_schedules()
