"""What the scheduler and the admin hand to the worker."""

from dataclasses import asdict
from uuid import UUID

from asgiref.sync import async_to_sync
from django.conf import settings

from conversations import cleanup_runs, figures, remembering, retention, summaries


def cleanup_sessions() -> dict[str, int]:
    """The daily clean-up; its result is shown with the task in the admin."""
    return asdict(retention.delete_expired_sessions())


def summarize_sessions() -> dict[str, int]:
    """The sessions that nobody uses any more, a few minutes' worth of them."""
    return asdict(async_to_sync(summaries.summarize_idle_sessions)())


def answer_telegram() -> int:
    """Each minute: what Telegram brought to a process that died, or could not be delivered. How many there were."""
    if not settings.EVI.telegram_token:
        return 0
    # It takes seconds to import, and an EVI without Telegram has no use for it.
    from conversations.api.telegram import inbox

    return inbox.answer_what_was_left()


def embed_messages() -> int:
    """What was said since the last time becomes findable."""
    return remembering.make_findable(rests=True)


def run_cleanup(run_id: str) -> None:
    """A clean-up that somebody of the staff asked for."""
    cleanup_runs.carry_out(UUID(run_id))


def keep_figures() -> dict[str, int]:
    """The figures of days that are over, for the admin's first page."""
    return {"days": figures.keep_figures()}
