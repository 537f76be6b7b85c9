"""What the scheduler calls."""

from dataclasses import asdict

from conversations import remembering, retention


def cleanup_sessions() -> dict[str, int]:
    """The daily clean-up; its result is shown with the task in the admin."""
    return asdict(retention.delete_expired_sessions())


def embed_messages() -> int:
    """What was said since the last time becomes findable."""
    return remembering.make_findable()
