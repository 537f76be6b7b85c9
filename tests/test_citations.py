"""Markers in an answer: numbered as they come, and never one without a source."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentbridge.citations import Citing, without_markers

SOURCES = {number: {"source": f"bron {number}"} for number in (1, 2, 7)}


def cited(*pieces: str) -> tuple[str, list[tuple[int, str]]]:
    citing = Citing(SOURCES)
    text = "".join(map(citing.feed, pieces)) + citing.rest()
    return text, [(citation["marker"], citation["source"]) for citation in citing.citations]


def test_markers_are_numbered_in_the_order_of_their_appearance() -> None:
    assert cited("Eén [7]. Twee [1]. Weer [7].") == (
        "Eén [1]. Twee [2]. Weer [1].",
        [(1, "bron 7"), (2, "bron 1")],
    )


def test_a_marker_without_a_source_is_taken_away() -> None:
    assert cited("Verzonnen [3]. Echt [2].") == ("Verzonnen. Echt [1].", [(1, "bron 2")])


def test_several_in_one_are_set_apart() -> None:
    assert cited("Samen [1, 7; 9].")[0] == "Samen [1][2]."


@pytest.mark.parametrize("text", ["[2024]", "[zie 1]", "[", "[1", "a[b]c", "[]", "een [link](https://x.nl)"])
def test_what_is_no_marker_stays(text: str) -> None:
    assert cited(text) == (text, [])


def test_a_source_that_was_found_and_not_cited_is_no_citation() -> None:
    assert cited("Zonder bron.") == ("Zonder bron.", [])


@given(st.text(alphabet="ab [],;127\n", max_size=40), st.data())
def test_the_pieces_make_no_difference(text: str, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    edges = [0, *cuts, len(text)]
    pieces = [text[start:end] for start, end in itertools.pairwise(edges)]
    # But for a space that was passed on before a marker without a source came.
    (shown, citations), (whole, all_citations) = cited(*pieces), cited(text)
    assert ("".join(shown.split()), citations) == ("".join(whole.split()), all_citations)


@given(st.text(alphabet="a [],127", max_size=40))
def test_every_marker_left_has_its_citation(text: str) -> None:
    shown, citations = cited(text)
    assert without_markers(shown) == without_markers(text)
    assert [marker for marker, _ in citations] == list(range(1, len(citations) + 1))
