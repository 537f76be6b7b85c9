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
    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
