"""The worker alone, as in a container: looked after as `script/server` looks after its own.

Docker starts again what has ended, and a worker that lost a process does not end: it looks alive and does nothing.
"""

import signal
import sys
import time

from evi_site.processes import KeepsStoppingError, Worker, interrupt

# The task in hand may take so long to finish; docker-compose.yml gives a little more.
PATIENCE_SECONDS = 50


def main() -> None:
    for meant in (signal.SIGINT, signal.SIGTERM):
        signal.signal(meant, interrupt)
    try:
        with Worker(patience=PATIENCE_SECONDS) as worker:
            while True:
                time.sleep(0.5)
                worker.keep_alive()
    except KeyboardInterrupt:
        pass
    except KeepsStoppingError as error:
        sys.exit(f"EVI's worker cannot run: {error}")


if __name__ == "__main__":
    main()
