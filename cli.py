"""Talk with EVI in a terminal: python cli.py [--url URL] [--key KEY] [--continue | --session ID] [question …]."""

import signal
import sys
from pathlib import Path

# Until the program listens itself, Ctrl-C just ends it: nobody wants to read where in its imports it was.
signal.signal(signal.SIGINT, signal.SIG_DFL)

try:
    from terminal.run import main
except ModuleNotFoundError as missing:
    python = Path(__file__).resolve().parent / ".venv" / "bin" / "python"
    sys.exit(f"Deze Python mist {missing.name}: start cli.py met {python} (script/setup maakt die).")

if __name__ == "__main__":
    sys.exit(main())
