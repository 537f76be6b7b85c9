"""Charts drawn on the server: shapes for who sees, a table behind them for who does not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

from django.utils.formats import date_format, number_format

WIDTH, HEIGHT = 600, 140


@dataclass(frozen=True)
class Series:
    """A number for each day; None where there is nothing to tell."""

    name: str
    values: Sequence[float | None]
    # The class in admin.css that colours it.
    tone: str = "a"


@dataclass(frozen=True)
class Shape:
    x: float
    y: float
    width: float
    height: float
    tone: str
    tip: str


@dataclass(frozen=True)
class Chart:
    title: str
    shapes: list[Shape]
    points: list[tuple[str, str]]
    top: str
    first: str
    last: str
    summary: str
    legend: list[tuple[str, str]]
    headings: list[str]
    rows: list[tuple[str, list[str]]]
    width: int = WIDTH
    height: int = HEIGHT


def bars(title: str, days: Sequence[date], *series: Series, unit: str = "") -> Chart:
    """Bars for each day; those of several series stand on each other."""
    totals = [sum(each.values[at] or 0 for each in series) for at in range(len(days))]
    highest = max([*totals, 1])
    step = WIDTH / len(days)
    shapes = []
    for at, day in enumerate(days):
        base = float(HEIGHT)
        for each in series:
            value = each.values[at] or 0
            if height := HEIGHT * value / highest:
                base -= height
                tip = f"{_short(day)}: {_number(value)}{unit} {each.name.lower()}"
                shapes.append(Shape(at * step + 1.5, base, step - 3, height, each.tone, tip))
    return _chart(title, days, series, highest=highest, unit=unit, shapes=shapes, points=[])


def lines(title: str, days: Sequence[date], *series: Series, unit: str = "") -> Chart:
    """A line for each series, broken where there is nothing to tell."""
    highest = max([value for each in series for value in each.values if value is not None] or [1]) or 1
    step = WIDTH / len(days)
    points, shapes = [], []
    for each in series:
        stretch: list[str] = []
        for at, value in enumerate([*each.values, None]):
            if value is None:
                if len(stretch) > 1:
                    points.append((each.tone, " ".join(stretch)))
                stretch = []
                continue
            x, y = (at + 0.5) * step, HEIGHT - 3 - (HEIGHT - 6) * value / highest
            stretch.append(f"{x:.1f},{y:.1f}")
            tip = f"{_short(days[at])}: {each.name} {_number(value)}{unit}"
            shapes.append(Shape(x - 2.5, y - 2.5, 5, 5, each.tone, tip))
    return _chart(title, days, series, highest=highest, unit=unit, shapes=shapes, points=points)


def _chart(
    title: str,
    days: Sequence[date],
    series: Sequence[Series],
    *,
    highest: float,
    unit: str,
    shapes: list[Shape],
    points: list[tuple[str, str]],
) -> Chart:
    summary = f"{title}, van {_short(days[0])} tot en met {_short(days[-1])}. Hoogste: {_number(highest)}{unit}."
    return Chart(
        title=title,
        shapes=shapes,
        points=points,
        top=f"{_number(highest)}{unit}" if shapes else "",
        first=_short(days[0]),
        last="vandaag",
        summary=summary,
        legend=[(each.name, each.tone) for each in series] if len(series) > 1 else [],
        headings=[each.name for each in series],
        rows=[
            (_short(day), ["–" if (value := each.values[at]) is None else f"{_number(value)}{unit}" for each in series])
            for at, day in reversed(list(enumerate(days)))
        ],
    )


def _short(day: date) -> str:
    return date_format(day, "j b")


def _number(value: float) -> str:
    return number_format(value, 0 if value == int(value) else 1, force_grouping=True)
