"""What the scheduler calls."""

from dataclasses import asdict

from conversations import retention
from conversations.api.telegram import inbox


def cleanup_sessions() -> dict[str, int]:
    """The daily clean-up; its result is shown with the task in the admin."""
    return asdict(retention.delete_expired_sessions())


def answer_telegram() -> int:
    """Each minute: what Telegram brought to a process that died, or could not be delivered. How many there were."""
    return inbox.answer_what_was_left()
