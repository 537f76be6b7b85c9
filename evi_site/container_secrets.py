"""`python -m evi_site.container_secrets FOLDER`: the secrets that docker-compose.yml needs, made on its first start.

It works without Django's settings, because in production those do not load before the secrets exist.
"""

import fcntl
import os
import secrets
import sys
from pathlib import Path

from evi_site.environment import make_secrets


def make_container_secrets(folder: Path) -> None:
    """Write each secret that is not there yet; of two that run at once, one waits for the other."""
    make_secrets(folder)
    lock = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        password = _write_once(folder / "POSTGRES_PASSWORD", secrets.token_urlsafe(32))
        _write_once(folder / "DATABASE_URL", f"postgresql://evi:{password}@db:5432/evi")
    finally:
        os.close(lock)


def _write_once(path: Path, text: str) -> str:
    if not path.exists():
        draft = path.with_name(f".{path.name}")
        # Readable by this user alone: the database's container reads its password as root.
        draft.touch(mode=0o600)
        draft.write_text(text)
        # Only a whole secret gets the name that counts.
        draft.rename(path)
    return path.read_text()


if __name__ == "__main__":
    make_container_secrets(Path(sys.argv[1]))
