"""Whether what was found is about what was asked."""

from dataclasses import replace

import pytest

from agentbridge.extracts import at_once
from agentbridge.phrases import PHRASES
from agentbridge.relevance import about_the_thing, are_others, fitting, is_coincidence, shares
from agentbridge.tools import Guideline, Product
from agentbridge.understanding import understand


def guideline(title: str, text: str, *, score: float, section: str = "") -> Guideline:
    return Guideline(number=1, title=title, section=section, source="", norm="", language="nl", text=text, score=score)


def product(name: str, description: str) -> Product:
    return Product(number=1, name=name, category="", norm="", description=description, price="", subjects=())


LIFTING = "De grens voor het gewicht van een last is 23 kilo. Zwaar tillen geeft rugklachten."


@pytest.mark.parametrize(
    ("question", "score", "coincidence"),
    [
        ("Hoe zwaar mag een last zijn?", 0.6, False),
        ("Hoe zwaar is een olifant?", 0.6, True),
        # Guidelines say it otherwise, and in a heading.
        ("Ik heb pijn door het sjouwen van dozen", 0.28, False),
        ("Ik heb pijn door het spelen van piano", 0.28, True),
        # A word of the trade counts for more than any other.
        ("Is een last goed voor een aquarium?", 0.3, False),
        ("Is de grens goed voor een aquarium?", 0.3, True),
    ],
)
def test_what_is_about_something_else_is_no_answer(question: str, score: float, coincidence: bool) -> None:
    found = [guideline("Tillen en dragen", LIFTING, score=score)]
    assert is_coincidence(understand(question, said=[]), found) is coincidence


TRUCK = guideline("Heftrucks", "Een heftruck wordt jaarlijks gekeurd.", score=0.5, section="Keuring: gekeurd en wel")
HARNESSES = guideline("Valbeveiliging", "Het harnas wordt op tijd vervangen. Valbeveiliging wordt gekeurd.", score=0.4)
HARNESSES_CHECKED = replace(HARNESSES, section="Hoe vaak wordt valbeveiliging gekeurd?")
LIFTS = guideline("Hoogte", "Werk vanaf een hoogwerker. Een steiger wordt gekeurd.", score=0.4)
BLOWERS = guideline("Lassen", "Een ventilator wordt elke week gekeurd.", score=0.4)


@pytest.mark.parametrize(
    ("question", "found", "left"),
    [
        ("Hoe vaak moet een heftruck gekeurd worden?", [TRUCK, HARNESSES], [TRUCK]),
        # The thing is in the text, and what is done with it in the heading.
        ("Hoe vaak moet een harnas gekeurd worden?", [TRUCK, HARNESSES_CHECKED], [HARNESSES_CHECKED]),
        ("Hoe vaak moet een hoogwerker gekeurd worden?", [TRUCK, LIFTS], []),
        ("Hoe vaak moet een ventilator gekeurd worden?", [TRUCK, BLOWERS], [BLOWERS]),
        # A height is asked for, and not about.
        ("Vanaf welke hoogte moet ik aanlijnen?", [LIFTS, HARNESSES], [LIFTS, HARNESSES]),
        # Nothing is done with anything.
        ("Hoe hoog is een hoogwerker?", [TRUCK, LIFTS], [TRUCK, LIFTS]),
    ],
)
def test_what_is_done_with_another_thing_is_no_answer(
    question: str, found: list[Guideline], left: list[Guideline]
) -> None:
    assert about_the_thing(understand(question, said=[]), found) == left


@pytest.mark.parametrize(
    ("asked", "told", "same"),
    [
        ("ladder", "ladders", True),
        ("gordel", "heupgordel", True),
        ("steiger", "steigervloer", True),
        ("schoenen", "veiligheidsschoenen", True),
        ("auto", "automatisch", False),
        ("nachtwacht", "nacht", False),
        ("veiligheidsschoenen", "veiligheid", False),
    ],
)
def test_a_word_is_found_in_a_compound(asked: str, told: str, same: bool) -> None:
    assert shares({asked}, [told]) is same


@pytest.mark.parametrize(
    ("question", "others"),
    [
        ("Welke auto kan ik kopen?", True),
        ("Welke kleur past bij een blauwe bank?", True),
        ("Welke ladder kan ik kopen?", False),
        ("Which car can I buy?", False),
    ],
)
def test_products_that_share_only_a_word_are_others(question: str, others: bool) -> None:
    found = [product("Blauwe ladder", "Een ladder met een automatische rem.")]
    assert are_others(understand(question, said=[]), found) is others


def test_only_products_that_fit_are_shown_where_some_do() -> None:
    trunk, needles = product("Verbanddoos", "Voor bedrijven."), product("Naaldencontainer", "Van 1,8 liter.")
    assert fitting(understand("Heb je een verbanddoos?", said=[]), [trunk, needles]) == [trunk]
    assert fitting(understand("Heb je een pleister?", said=[]), [needles]) == [needles]


def test_in_an_emergency_only_first_aid_for_it_is_said() -> None:
    emergency = understand("Ik heb chloor in mijn oog", said=[]).emergency
    assert emergency
    storage = guideline("Gevaarlijke stoffen", "Chloor staat in een kast.", score=0.9, section="Stoffen en uw ogen")
    other = guideline("Eerste hulp", "Koel een brandwond.", score=0.8, section="Eerste hulp bij brandwonden")
    eye = guideline(
        "Eerste hulp",
        "Spoel het oog minstens een kwartier met lauw water.",
        score=0.5,
        section="Een bijtende stof in het oog",
    )
    call = PHRASES["nl"]["urgent"]
    assert at_once(emergency, [storage, other], language="nl") == call
    assert (
        at_once(emergency, [storage, other, eye], language="nl")
        == f"{call}\n\nSpoel het oog minstens een kwartier met lauw water. [1]"
    )


def test_first_aid_begins_where_it_is_about_what_happened() -> None:
    emergency = understand("Mijn hand bloedt heftig", said=[]).emergency
    assert emergency
    text = "Koel een brandwond met water. Een bloedende wond drukt u dicht."
    found = [guideline("Eerste hulp", text, score=0.5, section="Brandwonden en bloedingen")]
    assert at_once(emergency, found, language="nl").endswith("\n\nEen bloedende wond drukt u dicht. [1]")
