from typing import Any

from django.core.management import BaseCommand, CommandError

from evi_site.postgres.base import embedded_cluster
from evi_site.postgres.cluster import ClusterError


class Command(BaseCommand):
    help = "Stop an embedded database that was left behind, for example by a process that was killed."

    def handle(self, *args: Any, **options: Any) -> None:
        cluster = embedded_cluster()
        if cluster is None:
            raise CommandError("DATABASE_URL is set, so EVI does not manage the database. Stop it where it runs.")
        try:
            stopped = cluster.stop()
        except ClusterError as error:
            raise CommandError(str(error)) from error
        self.stdout.write("Stopped the embedded database." if stopped else "The embedded database is not running.")
