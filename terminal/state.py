"""What the terminal remembers between two runs: the last session of each server, and what was typed."""

import json
import os
from pathlib import Path


def folder() -> Path:
    home = os.environ.get("XDG_STATE_HOME", "")
    # As the XDG rules say: a path that is not absolute does not count.
    base = Path(home) if Path(home).is_absolute() else Path(os.path.expanduser("~/.local/state"))  # noqa: PTH111
    return base / "evi"


class Memory:
    """For one server. Where nothing can be written, nothing is remembered, and everything else goes on."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._file = folder() / "sessions.json"

    @property
    def last_session(self) -> str:
        return str(self._read().get(self.url, ""))

    def remember(self, session_id: str) -> None:
        if self.last_session == session_id:
            return
        known = {**self._read(), self.url: session_id}
        # Two terminals may write at once: each puts a whole file in place.
        draft = self._file.with_name(f"sessions.{os.getpid()}.json")
        try:
            _make_private(draft).write_text(json.dumps(known, indent=1))
            draft.replace(self._file)
        except OSError:
            return

    def history_file(self) -> Path | None:
        try:
            return _make_private(folder() / "history")
        except OSError:
            return None

    def _read(self) -> dict[str, str]:
        try:
            known = json.loads(self._file.read_text())
        except (OSError, ValueError):
            return {}
        return known if isinstance(known, dict) else {}


def _make_private(file: Path) -> Path:
    """A file that nobody else on this machine can read: questions are in it."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    file.touch(mode=0o600)
    file.chmod(0o600)
    return file
