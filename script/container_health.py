"""What Docker asks inside a container: `container_health.py web URL` or `container_health.py worker PID`.

Standard library only: it runs every few seconds.
"""

import sys
import urllib.request
from pathlib import Path

# The least that a cluster of django-q2 has below its guard: a worker, what feeds it and what stores its results.
CLUSTER_SIZE = 3


def main() -> None:
    kind, subject = sys.argv[1:]
    check = {"web": check_web, "worker": check_worker}[kind]
    if problem := check(subject):
        sys.exit(problem)


def check_web(url: str) -> str | None:
    # Straight to this container, whatever proxy Docker put into its environment.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        opener.open(url, timeout=4).close()
    except OSError as error:
        return f"{url}: {error}"
    return None


def check_worker(pid: str) -> str | None:
    # evi_site.worker starts the cluster anew when it lost a process. That has a guard, and the guard has the rest.
    # django-q2 keeps its own status in Django's cache, which other processes cannot read.
    guards = [guard for cluster in children_of(pid) for guard in children_of(cluster)]
    if any(len(children_of(guard)) >= CLUSTER_SIZE for guard in guards):
        return None
    return f"Process {pid} has no running cluster."


def children_of(parent: str) -> list[str]:
    """The processes below `parent` that run; /proc says it, because the image has no ps."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            # The program's name comes before, in brackets, and may itself hold anything.
            state, parent_pid = stat.read_text().rpartition(")")[2].split()[:2]
        except (FileNotFoundError, ProcessLookupError):
            # It ended in the meantime.
            continue
        if parent_pid == parent and state in "RSDI":
            found.append(stat.parent.name)
    return found


if __name__ == "__main__":
    main()
