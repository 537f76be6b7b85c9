"""When something was said, as people put it."""

from datetime import date

import pytest

from agentbridge.periods import Period, period_in
from agentbridge.understanding import understand

# A Friday.
TODAY = date(2026, 11, 20)


@pytest.mark.parametrize(
    ("question", "since", "until"),
    [
        ("Wat zei ik vandaag over ladders?", "2026-11-20", "2026-11-20"),
        ("Wat zei ik gisteren over ladders?", "2026-11-19", "2026-11-19"),
        ("Wat vroeg ik eergisteren?", "2026-11-18", "2026-11-18"),
        ("Wat zei ik vorige week over ladders?", "2026-11-09", "2026-11-15"),
        ("Wat zei ik afgelopen week over ladders?", "2026-11-09", "2026-11-20"),
        ("Waar hadden we het deze week over?", "2026-11-16", "2026-11-22"),
        ("Wat zei ik vorige maand over ladders?", "2026-10-01", "2026-10-31"),
        ("Wat zei ik vorig jaar over ladders?", "2025-01-01", "2025-12-31"),
        ("Wat vroeg ik in maart over ladders?", "2026-03-01", "2026-03-31"),
        ("Wat vroeg ik in december over ladders?", "2025-12-01", "2025-12-31"),
        ("Wat vroeg ik in februari 2024 over ladders?", "2024-02-01", "2024-02-29"),
        ("Wat zei ik vrijdag over ladders?", "2026-11-13", "2026-11-13"),
        ("Wat zei ik maandag over ladders?", "2026-11-16", "2026-11-16"),
        ("What did I say last week about ladders?", "2026-11-09", "2026-11-15"),
    ],
)
def test_a_time_is_understood(question: str, since: str, until: str) -> None:
    assert period_in(question, today=TODAY) == Period(date.fromisoformat(since), date.fromisoformat(until))


@pytest.mark.parametrize("question", ["Wat zei ik over ladders?", "Wat zei ik laatst over ladders?"])
def test_without_a_time_there_is_none(question: str) -> None:
    assert period_in(question, today=TODAY) is None


def test_a_time_is_no_topic() -> None:
    assert understand("Wat zei ik over ladders in maart?", said=[], has_past=True).query == "ladders"
