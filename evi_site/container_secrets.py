"""`python -m evi_site.container_secrets FOLDER`: the secrets that docker-compose.yml needs, made on its first start.

It works without Django's settings, because in production those do not load before the secrets exist.
"""

import secrets
import sys
from pathlib import Path

from evi_site.environment import FIRST_RUN_SECRETS, make_secrets


def make_container_secrets(folder: Path) -> None:
    """Write each secret that is not there yet; two that run at once agree."""
    make_secrets(folder, {**FIRST_RUN_SECRETS, "POSTGRES_PASSWORD": lambda: secrets.token_urlsafe(32)})
    password = (folder / "POSTGRES_PASSWORD").read_text()
    make_secrets(folder, {"DATABASE_URL": lambda: f"postgresql://evi:{password}@db:5432/evi"})


if __name__ == "__main__":
    make_container_secrets(Path(sys.argv[1]))
