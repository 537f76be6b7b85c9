"""What a database needs before EVI can use it."""

import psycopg
from django.conf import settings
from django.core.management import call_command
from django.db import connection

from agentbridge.database import advisory_lock
from agentbridge.embeddings import EmbeddingAwayError
from agentbridge.ingest import load_sample
from conversations.accounts import FirstAccounts, make_first_accounts

# Any number that nothing else in this database locks.
LOCK = 0x4556490000


class DatabaseAwayError(Exception):
    """No server where there should be one; the message holds what was said."""


def prepare_database(*, verbosity: int = 1) -> FirstAccounts:
    """Bring tables, schedules, first accounts and sample up to date; of two that start at once, one waits."""
    try:
        # Past the pool, which would wait for a while and not say why.
        psycopg.connect(**{"connect_timeout": 10, **connection.get_connection_params()}).close()
    except psycopg.Error as error:
        raise DatabaseAwayError(f"the database does not answer: {str(error).splitlines()[0]}") from error
    # Django's migrate is not made for two at once.
    with advisory_lock(LOCK):
        call_command("migrate", interactive=False, verbosity=verbosity)
        accounts = make_first_accounts()
        wanted = settings.EVI.sample
        if wanted is None:
            # People in production would take it for their own rules.
            wanted = settings.EVI.env == "development"
        if wanted:
            _load_sample()
        return accounts


def _load_sample() -> None:
    try:
        load_sample(announce=lambda: print("Taking in the sample of guidelines and products …", flush=True))
    except EmbeddingAwayError as error:
        # It is found by its words meanwhile.
        print(f"The sample is there, but {error}. When it does: manage.py reembed", flush=True)
