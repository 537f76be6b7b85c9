"""The settings of the test run: EVI's own, on a throw-away database and free of this machine's environment."""

import atexit
import os
import tempfile
from pathlib import Path

from evi_site.environment import Environment

for name in [name for name in os.environ if name.startswith("EVI_") or name in ("DATABASE_URL", "REDIS_URL")]:
    del os.environ[name]
Environment.model_config["env_file"] = None
scratch = tempfile.TemporaryDirectory(prefix="evi-test-")
os.environ["EVI_DATA_DIR"] = str(Path(scratch.name).resolve())
# Says what it was given; the tests of the specialist name theirs.
os.environ["EVI_MODEL"] = "echo"

from evi_site.settings import *  # noqa: E402, F403

# This database may be lost at any time.
EVI_CLUSTER_OPTIONS = ("fsync=off", "synchronous_commit=off", "full_page_writes=off")
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]


def _erase_cluster() -> None:
    from evi_site.postgres.base import embedded_cluster

    if cluster := embedded_cluster():
        cluster.erase()
    scratch.cleanup()


atexit.register(_erase_cluster)
