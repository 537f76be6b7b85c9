"""What the scheduler and the admin hand to the worker."""

from dataclasses import asdict
from uuid import UUID

from conversations import cleanup_runs, figures, retention


def cleanup_sessions() -> dict[str, int]:
    """The daily clean-up; its result is shown with the task in the admin."""
    return asdict(retention.delete_expired_sessions())


def run_cleanup(run_id: str) -> None:
    """A clean-up that somebody of the staff asked for."""
    cleanup_runs.carry_out(UUID(run_id))


def keep_figures() -> dict[str, int]:
    """The figures of days that are over, for the admin's first page."""
    return {"days": figures.keep_figures()}
