"""Types for the arguments of commands; argparse turns what they raise into a sentence and exit code 2."""

from argparse import ArgumentTypeError
from collections.abc import Callable


def whole_number(*, most: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        # Digits of other scripts and endless rows of them are no numbers here.
        if not (text.isascii() and text.isdigit() and len(text) <= len(str(most)) and 1 <= int(text) <= most):
            raise ArgumentTypeError(f"{text!r} is not a whole number from 1 to {most}")
        return int(text)

    return parse
