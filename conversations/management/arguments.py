"""What commands are given. What the types raise, argparse turns into a sentence and exit code 2."""

from argparse import ArgumentTypeError
from collections.abc import Callable
from datetime import datetime

from django.utils import timezone
from django.utils.dateparse import parse_date


def whole_number(*, most: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        # Digits of other scripts and endless rows of them are no numbers here.
        if not (text.isascii() and text.isdigit() and len(text) <= len(str(most)) and 1 <= int(text) <= most):
            raise ArgumentTypeError(f"{text!r} is not a whole number from 1 to {most}")
        return int(text)

    return parse


def day(text: str) -> datetime:
    """The beginning of a day here."""
    try:
        date = parse_date(text)
    except ValueError:
        date = None
    if date is None or not 1970 <= date.year < 9000:
        raise ArgumentTypeError(f"{text!r} is not a day such as 2026-01-31")
    return timezone.make_aware(datetime(date.year, date.month, date.day))  # noqa: DTZ001


def is_confirmed(question: str) -> bool:
    """Whether somebody at the keyboard types yes; where there is nobody, it is a no."""
    try:
        return input(f"{question} Type yes: ").strip() == "yes"
    except EOFError:
        return False
