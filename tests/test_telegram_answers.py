"""How an answer is written for Telegram: what of its Markdown stays, and where it is cut."""

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conversations.api.telegram.answers import MOST_UNITS, Piece, Span, answer_in_pieces, in_pieces, units

SOURCE = {
    "marker": 1,
    "document_title": "Ladders",
    "section": "Keuren",
    "norm": "NEN 2484",
    "url": "https://evi.example",
}


def only(markdown: str, citations: tuple[dict[str, Any], ...] = ()) -> Piece:
    (piece,) = answer_in_pieces(markdown, citations)
    return piece


def marked(piece: Piece) -> list[tuple[str, str]]:
    """What stands out in a message, read as Telegram reads it: by units of UTF-16."""
    encoded = piece.text.encode("utf-16-le")
    return [
        (entity.type, encoded[2 * entity.offset : 2 * (entity.offset + entity.length)].decode("utf-16-le"))
        for entity in piece.entities
    ]


@pytest.mark.parametrize(
    ("markdown", "text", "entities"),
    [
        ("**Let op:** *nooit* `zo`.", "Let op: nooit zo.", [("bold", "Let op:"), ("italic", "nooit"), ("code", "zo")]),
        ("😀😀 **vet**", "😀😀 vet", [("bold", "vet")]),
        ("## Kop\nTekst", "Kop\n\nTekst", [("bold", "Kop")]),
        ("- een\n- **twee**\n  - diep\n", "• een\n• twee\n  • diep", [("bold", "twee")]),
        ("3. drie\n4. vier", "3. drie\n4. vier", []),
        ("Een.\n\n- twee\n\nDrie.", "Een.\n\n• twee\n\nDrie.", []),
        ("[NEN](https://nen.example) [1]", "NEN [1]", [("text_link", "NEN")]),
        ("[klik](javascript:alert(1))", "[klik](javascript:alert(1))", []),
        ("<b>1 < 2 & 3</b>", "<b>1 < 2 & 3</b>", []),
        ("```\nx = 1\n```", "x = 1", [("pre", "x = 1")]),
        ("> Citaat", "Citaat", [("blockquote", "Citaat")]),
        ("| a | b |\n|---|---|\n| 1 | 2 |", "a | b\n1 | 2", []),
    ],
)
def test_markdown_becomes_text_that_stands_out_where_it_did(
    markdown: str, text: str, entities: list[tuple[str, str]]
) -> None:
    piece = only(markdown)
    assert (piece.text, marked(piece)) == (text, entities)


def test_sources_are_a_list_of_links_at_the_end() -> None:
    piece = only("Keur hem [1].", (SOURCE, {"marker": 2, "document_title": "Trap", "url": ""}))
    assert piece.text == "Keur hem [1].\n\nBronnen\n[1] Ladders – Keuren (NEN 2484)\n[2] Trap"
    assert marked(piece) == [("bold", "Bronnen"), ("text_link", "Ladders")]


def test_a_long_answer_is_cut_between_paragraphs() -> None:
    paragraph = "Dit is een zin. " * 60
    pieces = answer_in_pieces("\n\n".join([paragraph] * 10))
    assert len(pieces) == 3
    assert {len(piece.text) % (len(paragraph.strip()) + 2) for piece in pieces} == {len(paragraph.strip())}


def test_a_long_paragraph_is_cut_between_sentences() -> None:
    pieces = answer_in_pieces("Dit is een zin van niets. " * 400)
    assert len(pieces) == 3
    assert {piece.text[-5:] for piece in pieces} == {"iets."}


def test_a_text_without_seams_is_cut_all_the_same() -> None:
    assert [units(piece.text) for piece in answer_in_pieces("😀" * 5000)] == [4096, 4096, 1808]


def test_what_is_bold_stays_bold_on_both_sides_of_a_cut() -> None:
    pieces = answer_in_pieces(f"**{'woord ' * 1000}einde**")
    assert [marked(piece) for piece in pieces] == [[("bold", piece.text)] for piece in pieces]


@given(st.text(alphabet="ab😀.\n é", max_size=300), st.integers(0, 300), st.integers(1, 300))
@settings(max_examples=300, derandomize=True, database=None, deadline=None)
def test_cut_anywhere_nothing_but_white_space_is_lost(text: str, begin: int, length: int) -> None:
    span = Span(min(begin, len(text)), min(begin + length, len(text)), "bold")
    pieces = in_pieces(Piece(text, (span,)), most=20)
    assert all(piece.text == piece.text.strip() and units(piece.text) <= 20 for piece in pieces)
    assert "".join("".join(piece.text.split()) for piece in pieces) == "".join(text.split())
    bold = "".join(found for piece in pieces for _, found in marked(piece))
    assert "".join(bold.split()) == "".join(text[span.begin : span.end].split())


@given(st.text(alphabet="*_[]()<>`#-|> \n1.~ab", max_size=200))
@settings(max_examples=300, derandomize=True, database=None, deadline=None)
def test_no_markdown_is_too_odd(markdown: str) -> None:
    for piece in answer_in_pieces(markdown):
        assert 0 < units(piece.text) <= MOST_UNITS
        assert all(re.search(r"\S", found) for _, found in marked(piece))
