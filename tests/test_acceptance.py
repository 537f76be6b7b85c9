"""Keeps docs/acceptance.md honest: every criterion is on the page, with exactly the tests that name it."""

import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest

from evi_site.environment import BASE_DIR

NUMBERS = [*range(1, 8), *range(101, 109), *range(201, 208), *range(301, 303), *range(401, 404)]
CRITERIA = [f"AC-FEAT-008-{number:03}" for number in NUMBERS]
STILL_TO_COME = "still to come"


def marked_tests() -> dict[str, set[str]]:
    """The tests that carry a criterion's mark, by criterion."""
    found = defaultdict(set)
    for path in sorted((BASE_DIR / "tests").glob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            for decorator in getattr(node, "decorator_list", []):
                if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "pytest.mark.ac":
                    [criterion] = (ast.literal_eval(argument) for argument in decorator.args)
                    assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef), f"{path.name}: mark tests"
                    found[criterion].add(f"{path.name}::{node.name}")
    return found


def mapped_tests() -> dict[str, set[str]]:
    """What the page says."""
    rows = re.findall(
        r"^\| (AC-\S+) \|[^|]+\|([^|]+)\|", (BASE_DIR / "docs" / "acceptance.md").read_text(), re.MULTILINE
    )
    assert len({criterion for criterion, _ in rows}) == len(rows), "a criterion stands there twice"
    return {criterion: set(re.findall(r"`([^`]+)`", cell)) for criterion, cell in rows}


def test_every_criterion_is_on_the_page() -> None:
    assert list(mapped_tests()) == CRITERIA


def test_the_page_names_exactly_the_tests_that_name_the_criterion() -> None:
    marked = marked_tests()
    assert mapped_tests() == {criterion: marked[criterion] for criterion in CRITERIA}


def test_no_test_names_a_criterion_that_does_not_exist() -> None:
    assert set(marked_tests()) <= set(CRITERIA)


def test_a_criterion_without_a_test_is_admitted() -> None:
    page = Path(BASE_DIR / "docs" / "acceptance.md").read_text()
    silent = [criterion for criterion, tests in mapped_tests().items() if not tests]
    assert [line for line in silent if not re.search(rf"^\| {line} .*{STILL_TO_COME}", page, re.MULTILINE)] == []


@pytest.mark.ac("AC-FEAT-008-403")
def test_every_manual_scenario_was_walked_and_passed() -> None:
    guide = Path(BASE_DIR / "docs" / "manual-test.md").read_text()
    scenarios = re.findall(r"^(\d+)\. \*\*", guide, re.MULTILINE)
    *_, last_walk = re.findall(r"^\| 20\d\d-\d\d-\d\d \|[^|]+\|([^|]+)\|", guide, re.MULTILINE)
    assert re.findall(r"\d+", last_walk) == scenarios
