"""When something was said, as people put it: "vorige week", "gisteren", "in maart"."""

import re
from dataclasses import dataclass
from datetime import date, timedelta

MONTHS = {
    name: number
    for names in (
        "januari februari maart april mei juni juli augustus september oktober november december",
        "january february march april may june july august september october november december",
    )
    for number, name in enumerate(names.split(), start=1)
}
DAYS = {
    name: number
    for names in (
        "maandag dinsdag woensdag donderdag vrijdag zaterdag zondag",
        "monday tuesday wednesday thursday friday saturday sunday",
    )
    for number, name in enumerate(names.split())
}
NAMED = re.compile(
    r"\b(?:(?P<today>vandaag|vanochtend|vanmorgen|vanmiddag|today|this (?:morning|afternoon))"
    r"|(?P<before_yesterday>eergisteren|the day before yesterday)"
    r"|(?P<yesterday>gisteren(?:ochtend|middag|avond)?|yesterday)"
    r"|(?P<which>vorige?|verleden|afgelopen|deze|dit|last|this) (?P<unit>week|maand|jaar|month|year)"
    rf"|(?:in|van) (?P<month>{'|'.join(MONTHS)})(?: (?P<year>20\d\d))?"
    rf"|(?:(?:op|vorige|afgelopen|on|last) )?(?P<day>{'|'.join(DAYS)}))\b"
)


@dataclass(frozen=True)
class Period:
    """From the first day to the last, both included."""

    since: date
    until: date


def period_in(text: str, *, today: date) -> Period | None:
    """The period that a text speaks of, as seen from today; months and days without a year are the last ones."""
    named = NAMED.search(text.casefold())
    if not named:
        return None
    if named["today"]:
        return Period(today, today)
    if named["yesterday"] or named["before_yesterday"]:
        day = today - timedelta(days=1 if named["yesterday"] else 2)
        return Period(day, day)
    if named["day"]:
        day = today - timedelta(days=(today.weekday() - DAYS[named["day"]] - 1) % 7 + 1)
        return Period(day, day)
    if named["month"]:
        month = MONTHS[named["month"]]
        return _month(int(named["year"] or today.year - (month > today.month)), month)
    is_this = named["which"] in ("deze", "dit", "this")
    if named["unit"] == "week":
        monday = today - timedelta(days=today.weekday() + (0 if is_this else 7))
        # Who says "afgelopen week" on a Friday may mean these days as well.
        return Period(monday, today if named["which"] == "afgelopen" else monday + timedelta(days=6))
    if named["unit"] in ("jaar", "year"):
        year = today.year - (not is_this)
        return Period(date(year, 1, 1), date(year, 12, 31))
    return _month(today.year, today.month) if is_this else _month_before(today)


def without_period(text: str) -> str:
    return NAMED.sub(" ", text)


def _month(year: int, month: int) -> Period:
    return Period(date(year, month, 1), date(year + month // 12, month % 12 + 1, 1) - timedelta(days=1))


def _month_before(today: date) -> Period:
    last = today.replace(day=1) - timedelta(days=1)
    return _month(last.year, last.month)
