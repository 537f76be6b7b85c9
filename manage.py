#!/usr/bin/env python
"""Django's command line for EVI: `.venv/bin/python manage.py help` lists what there is."""

import os
import sys


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "evi_site.settings")
    try:
        from django.core.management import execute_from_command_line
    except ImportError:
        sys.exit("Django is not installed for this Python. Run script/setup, then use .venv/bin/python manage.py")
    from django.core.exceptions import ImproperlyConfigured
    from django.db import OperationalError, ProgrammingError
    from psycopg.errors import UndefinedTable

    try:
        execute_from_command_line(sys.argv)
    except OperationalError as error:
        sys.exit(f"The database cannot be used: {error}")
    except ProgrammingError as error:
        if not isinstance(error.__cause__, UndefinedTable):
            raise
        sys.exit("The database has no tables yet. Make them with: manage.py prepare_database")
    except ImproperlyConfigured as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
