"""What the scheduler calls."""

from dataclasses import asdict

from asgiref.sync import async_to_sync

from conversations import retention, summaries


def cleanup_sessions() -> dict[str, int]:
    """The daily clean-up; its result is shown with the task in the admin."""
    return asdict(retention.delete_expired_sessions())


def summarize_sessions() -> dict[str, int]:
    """The sessions that nobody uses any more, a few minutes' worth of them."""
    return asdict(async_to_sync(summaries.summarize_idle_sessions)())
