"""What the scheduler calls."""

from dataclasses import asdict

from django.conf import settings

from conversations import retention


def cleanup_sessions() -> dict[str, int]:
    """The daily clean-up; its result is shown with the task in the admin."""
    return asdict(retention.delete_expired_sessions())


def answer_telegram() -> int:
    """Each minute: what Telegram brought to a process that died, or could not be delivered. How many there were."""
    if not settings.EVI.telegram_token:
        return 0
    # It takes seconds to import, and an EVI without Telegram has no use for it.
    from conversations.api.telegram import inbox

    return inbox.answer_what_was_left()
