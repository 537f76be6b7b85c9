"""Text as a terminal may show it, and moments as people say them."""

from datetime import datetime
from typing import TypeVar

# An answer is text: it does not get to steer the terminal.
CONTROL_CODES = {code: None for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}
MONTHS = ["jan", "feb", "mrt", "apr", "mei", "jun", "jul", "aug", "sep", "okt", "nov", "dec"]
TODAY = "vandaag"
Value = TypeVar("Value")


def plain(value: Value) -> Value:
    """What JSON held, without the codes that steer a terminal."""
    cleaned: object = value
    if isinstance(value, str):
        cleaned = value.translate(CONTROL_CODES)
    elif isinstance(value, list):
        cleaned = [plain(item) for item in value]
    elif isinstance(value, dict):
        cleaned = {plain(key): plain(item) for key, item in value.items()}
    return cleaned  # type: ignore[return-value]  # of the same type as it was


def storable(text: str) -> str:
    """Bytes of the command line that are no text would not survive the encoding as JSON."""
    return text.encode("utf-8", "replace").decode()


def one_line(text: str, *, at_most: int) -> str:
    """The beginning of a text, broken off between words."""
    text = " ".join(text.split())
    if len(text) <= at_most:
        return text
    cut = text[:at_most]
    return (cut.rpartition(" ")[0] or cut).rstrip(" ,;:.") + "…"


def moment(text: object) -> str:
    """When, as short as it can be said on this machine's clock."""
    then = _local(text)
    if then is None:
        return ""
    date = day(text)
    if date == TODAY:
        return f"{then:%H:%M}"
    return date if then.year != datetime.now().astimezone().year else f"{date} {then:%H:%M}"


def day(text: object) -> str:
    then = _local(text)
    if then is None:
        return ""
    today = datetime.now().astimezone().date()
    match (today - then.date()).days:
        case 0:
            return TODAY
        case 1:
            return "gisteren"
    return f"{then.day} {MONTHS[then.month - 1]}" + (f" {then.year}" if then.year != today.year else "")


def _local(text: object) -> datetime | None:
    try:
        return datetime.fromisoformat(str(text)).astimezone()
    except (ValueError, OverflowError):
        return None
