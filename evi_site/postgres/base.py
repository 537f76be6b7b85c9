"""Django's PostgreSQL engine, with the embedded server behind it and a pool that survives a fork."""

import os
from collections.abc import Iterable
from functools import cache
from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import connections
from django.db.backends.postgresql import base, client

from evi_site.postgres.cluster import Cluster, ClusterError


@cache
def embedded_cluster() -> Cluster | None:
    """The server to start where DATABASE_URL names none."""
    if settings.EVI.database_url:
        return None
    return Cluster(settings.EVI.data_dir / "postgres", options=settings.EVI_CLUSTER_OPTIONS)


def _locate(settings_dict: dict[str, Any]) -> bool:
    """Put the embedded server's address into the settings; whether it has moved since the last time."""
    cluster = embedded_cluster()
    if not cluster:
        return False
    try:
        at = cluster.ensure_running()
    except ClusterError as error:
        raise ImproperlyConfigured(str(error)) from error
    has_moved = settings_dict.get("PORT") not in ("", None, at.port)
    settings_dict.update(HOST=at.host, PORT=at.port, USER=at.user, PASSWORD=at.password)
    return has_moved


class DatabaseClient(client.DatabaseClient):
    """`manage.py dbshell`, with the wheel's psql where it is the wheel's server."""

    @classmethod
    def settings_to_cmd_args_env(
        cls, settings_dict: dict[str, Any], parameters: Iterable[str]
    ) -> tuple[list[str], dict[str, str] | None]:
        _locate(settings_dict)
        args, env = super().settings_to_cmd_args_env(settings_dict, parameters)
        if cluster := embedded_cluster():
            args[0] = str(cluster.programs / args[0])
        return args, env


class DatabaseWrapper(base.DatabaseWrapper):
    client_class = DatabaseClient

    def get_connection_params(self) -> dict[str, Any]:
        if _locate(self.settings_dict) and (pool := self._connection_pools.pop(self.alias, None)):  # type: ignore[attr-defined]
            # It would go on trying the old address.
            pool.close()
        return super().get_connection_params()


def _forget_inherited_connections() -> None:
    # A pool's threads end at a fork and its sockets belong to the parent: a child that used them would
    # garble the parent's conversation with the server. The child starts without any.
    DatabaseWrapper._connection_pools.clear()  # type: ignore[attr-defined]  # missing in the stubs
    for connection in connections.all(initialized_only=True):
        connection.connection = None


os.register_at_fork(after_in_child=_forget_inherited_connections)
