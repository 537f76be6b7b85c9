"""What a question means after what was said before it."""

import time

import pytest

from agentbridge.phrases import PHRASES
from agentbridge.said import HistoryItem
from agentbridge.understanding import Intent, Understanding, understand

PRODUCTS = "Deze producten passen daarbij:\n\n1. **Harnas** (EN 361): …\n2. **Vanglijn** (EN 355): …"


def ask(*questions: str, answer: str = "Een antwoord.") -> Understanding:
    """The last of these questions, each answered before the next."""
    said = [
        item
        for question in questions[:-1]
        for item in (HistoryItem("user", question), HistoryItem("assistant", answer))
    ]
    return understand(questions[-1], said=said)


@pytest.mark.parametrize(
    "question",
    [
        "Welke producten heb je daarvoor?",
        "welke producten passen daarbij",
        "Heb je daar iets voor?",
        "wat raad je daarvoor aan?",
        "Which products do you have for that?",
    ],
)
def test_products_for_what_was_talked_about(question: str) -> None:
    meant = ask("Wat zijn de vereisten voor valbeveiliging?", question)
    assert (meant.intent, meant.query) == (Intent.PRODUCTS, "valbeveiliging")


@pytest.mark.parametrize(
    "question", ["In English", "en in het Engels?", "Kun je dat vertalen naar het Engels?", "english please"]
)
def test_the_same_in_english(question: str) -> None:
    meant = ask("Ik heb rugklachten", question)
    assert (meant.intent, meant.language, meant.query) == (Intent.GUIDELINE, "en", "Ik heb rugklachten")


def test_the_language_stays_until_it_changes() -> None:
    assert ask("Ik heb rugklachten", "In English", "What about lifting?").language == "en"
    assert ask("Ik heb rugklachten", "In English", "lifting").language == "en"
    assert ask("Ik heb rugklachten", "In English", "en wat mag ik tillen?").language == "nl"
    assert ask("How high may a ladder be?", "in het Nederlands graag").language == "nl"


def test_what_refers_back_is_searched_with_its_subject() -> None:
    assert ask("Wat zijn de eisen voor ladders?", "Hoe vaak moeten die gekeurd worden?").query.startswith("ladders: ")


def test_the_same_question_about_something_else() -> None:
    meant = ask("Hoe vaak moet een ladder gekeurd worden?", "en voor heftrucks?")
    assert set(meant.query.split()) == {"heftrucks", "gekeurd"}
    assert meant.topic == ("heftrucks",)


@pytest.mark.parametrize("question", ["Hoe maak ik appeltaart?", "Hoe voorkom ik dat medewerkers vallen van een dak?"])
def test_a_question_with_a_subject_of_its_own_stands_alone(question: str) -> None:
    assert ask("Wat zijn de eisen voor ladders?", question).query == question


@pytest.mark.parametrize(
    "question", ["vertel meer", "Kun je daar meer over vertellen?", "meer", "Tell me more", "ga verder"]
)
def test_more_of_the_same(question: str) -> None:
    meant = ask("Wat zijn de eisen voor ladders?", question)
    assert (meant.intent, meant.query) == (Intent.MORE, "Wat zijn de eisen voor ladders?")


@pytest.mark.parametrize(
    ("question", "product"),
    [
        ("wat kost de tweede?", "Vanglijn"),
        ("en de eerste?", "Harnas"),
        ("wat kost het harnas?", "Harnas"),
        ("How much is the last one?", "Vanglijn"),
    ],
)
def test_one_product_of_the_list_before(question: str, product: str) -> None:
    meant = ask("Welke producten voor valbeveiliging?", question, answer=PRODUCTS)
    assert (meant.intent, meant.query) == (Intent.ITEM, product)


@pytest.mark.parametrize(
    "question", ["Wat zijn de regels?", "welke producten heb je?", "hoe vaak moet dat gekeurd worden?", "en?", "?", ""]
)
def test_a_question_without_a_subject_is_vague(question: str) -> None:
    assert ask(question).vague


def test_the_answer_to_what_evi_asked_back_is_the_subject() -> None:
    meant = ask("welke producten heb je?", "gehoorbescherming")
    assert (meant.intent, meant.query) == (Intent.PRODUCTS, "gehoorbescherming")


@pytest.mark.parametrize(
    ("text", "intent"),
    [
        *((text, Intent.GREETING) for text in ("Hallo", "goedemorgen!", "Hi", "Hoe gaat het?")),
        *((text, Intent.THANKS) for text in ("Bedankt!", "thanks", "ok, duidelijk", "Tot morgen!")),
        *((text, Intent.WHO) for text in ("Wie ben je?", "wat kun jij?", "Who are you?")),
    ],
)
def test_courtesies_are_no_questions(text: str, intent: Intent) -> None:
    assert ask(text).intent is intent


def test_another_product_of_the_same_list() -> None:
    said = [HistoryItem("user", "Welke producten voor valbeveiliging?"), HistoryItem("assistant", PRODUCTS)]
    said += [HistoryItem("user", "wat kost de eerste?"), HistoryItem("assistant", "Het harnas kost € 94,50.")]
    for question in ("en de tweede?", "wat kost de tweede?"):
        assert understand(question, said=said).query == "Vanglijn"


def test_a_place_in_no_list_is_vague() -> None:
    assert ask("wat kost de tweede?").vague


@pytest.mark.parametrize("question", ["en steigers?", "en voor steigers?"])
def test_another_keyword_after_a_keyword(question: str) -> None:
    assert ask("ladders", question).query == "steigers"


def test_a_greeting_before_a_question_is_no_greeting() -> None:
    assert ask("Hallo, hoe hoog mag een ladder zijn?").intent is Intent.GUIDELINE


@pytest.mark.parametrize("text", ["leg ", "vertel ", "heb je ", "en voor ", "[1] "])
def test_a_very_long_question_is_understood_at_once(text: str) -> None:
    def takes(times: int) -> float:
        started = time.process_time()
        ask(text * times)
        return time.process_time() - started

    # A regular expression that goes back and forth takes a hundred times as long for ten times as much, or longer.
    assert takes(8000) < 40 * max(takes(800) for _ in range(3))


def test_thanks_do_not_change_the_subject() -> None:
    assert (
        ask("Wat zijn de eisen voor valbeveiliging?", "bedankt", "welke producten heb je daarvoor?").query
        == "valbeveiliging"
    )


@pytest.mark.parametrize(
    "question",
    ["weet je dat zeker?", "Klopt dat wel?", "waar staat dat?", "wat is je bron?", "Are you sure?", "How do you know?"],
)
def test_who_doubts_is_told_where_it_stands(question: str) -> None:
    meant = ask("Hoe zwaar mag ik tillen?", question)
    assert (meant.intent, meant.query) == (Intent.SOURCE, "Hoe zwaar mag ik tillen?")


@pytest.mark.parametrize("question", ["Waar staat de brandblusser?", "Klopt het dat ladders gekeurd moeten worden?"])
def test_a_question_about_something_is_no_doubt(question: str) -> None:
    assert ask("Hoe zwaar mag ik tillen?", question).intent is Intent.GUIDELINE


@pytest.mark.parametrize(
    ("question", "language"),
    [
        ("Quelles sont les règles pour une échelle ?", "fr"),
        ("Wie hoch darf eine Leiter sein?", "de"),
        ("¿Cuáles son las normas para una escalera?", "es"),
        ("Jakie są zasady pracy na drabinie?", "pl"),
        ("Hoe hoog mag een ladder zijn?", ""),
        ("Wat is de norm voor een harnas?", ""),
        ("How high can a ladder be?", ""),
        ("RI&E", ""),
    ],
)
def test_other_languages_are_noticed(question: str, language: str) -> None:
    assert ask(question).foreign == language


@pytest.mark.parametrize(
    ("question", "looked_up"),
    [
        ("mijn collega is gevallen", "val"),
        ("stroomschok gehad wat nu", "schok"),
        ("Er is brand in de keuken!", "brand"),
        ("hij ademt niet", "hartstilstand"),
        ("Er ligt iemand op de grond die niet reageert", "bewusteloosheid"),
        ("Mijn collega zit met zijn hand vast in de machine", "beknelling"),
        ("Ik heb een slok bleekmiddel ingeslikt", "bijtende stof"),
        ("iemand is onder stroom komen te staan", "schok"),
        ("ik ruik gas", "gas"),
        ("Help!", "ongeval"),
        ("My colleague has fallen from a scaffold", "fall"),
        ("Onze magazijnmedewerker heeft bleekmiddel in zijn oog gekregen, wat nu?", "stof in het oog"),
        ("mijn collega heeft chloor in zijn oog wat moet ik doen", "stof in het oog"),
        ("Wat moet ik doen? Ik heb schoonmaakmiddel in mijn ogen", "stof in het oog"),
        ("Ik heb een stuk metaal in mijn oog", "metaal in het oog"),
        ("Er is zuur over mijn hand gekomen", "op de huid"),
        ("Mijn collega heeft terpentine gedronken", "inslikken"),
        ("Wasbenzine ingeslikt door collega", "inslikken"),
        ("Er heeft iemand ontstopper binnengekregen", "inslikken"),
        ("Someone drank white spirit", "swallowing"),
        ("Er is ammoniak gelekt en mensen hoesten", "gaslek"),
        ("Er lekt ammoniak uit de koelinstallatie", "gaslek"),
        ("Wat moet ik doen, er lekt gas", "gaslek"),
        ("I can smell gas in the basement", "gas leak"),
        ("Hij heeft zijn vinger afgezaagd", "amputatie"),
        ("Mijn vinger ligt eraf", "amputatie"),
        ("Mijn hand bloedt heftig", "bloeding"),
        ("Iemand stikt in een stuk brood", "verslikken"),
        ("Mijn collega krijgt geen lucht", "verslikken"),
        ("Iemand heeft pijn op de borst", "borst"),
        ("Een collega is bewusteloos in de tank", "besloten ruimte"),
        ("Een man is in de put gevallen", "besloten ruimte"),
        ("Hij heeft een schok gekregen en is bewusteloos", "schok"),
        ("Mijn oog brandt door bleek", "stof in het oog"),
        ("Er is brand in de meterkast!", "brand"),
        ("Fire in the kitchen!", "fire"),
    ],
)
def test_in_an_emergency_first_aid_for_it_is_looked_up(question: str, looked_up: str) -> None:
    meant = ask("Hoe hoog mag een ladder zijn?", question)
    assert meant.emergency
    assert looked_up in meant.query


def test_an_emergency_comes_before_the_answer_to_what_evi_asked_back() -> None:
    assert ask("Wat moet ik weten?", "Mijn collega zit vast in de machine").emergency


@pytest.mark.parametrize(
    "question",
    [
        "Wat moet ik doen als iemand niet reageert?",
        "Hoe help ik iemand die iets heeft ingeslikt?",
        "Wanneer zit een harnas goed vast?",
        "Welke helm zit vast op mijn hoofd?",
        "Welke eisen gelden bij een oogdouche?",
        "Waar hangt de oogdouche als iemand chloor in zijn oog krijgt?",
        "Wat moet ik doen bij zuur in het oog?",
        "Welke bril beschermt tegen splinters in het oog?",
        "Veiligheidsbril tegen stof in de ogen",
        "Ik heb pijn in mijn ogen van het beeldscherm",
        "Is zuur schadelijk voor de huid?",
        "Hoe sla ik ammoniak op?",
        "Kan gas lekken uit een kapotte fles?",
        "Mijn heftruck lekt olie",
        "Wie mag hartmassage leren?",
        "Ik stik van het werk",
        "Het lampje brandt op de heftruck",
        "There is a fire extinguisher missing",
        "Ik werk vaak in een tank",
        "Ik wil leren wat te doen bij pijn op de borst",
        "Brand in de keuken oefenen",
        "How do I store ammonia?",
    ],
)
def test_who_wants_to_know_is_in_no_emergency(question: str) -> None:
    assert not ask(question).emergency


@pytest.mark.parametrize("question", ["en als het regent?", "wat als het donker is?", "And if it rains?"])
def test_the_same_question_in_other_circumstances(question: str) -> None:
    assert ask("Mag ik op een ladder staan?", question).query.startswith("ladder: ")


def test_het_before_a_noun_refers_to_nothing() -> None:
    question = "Mag ik kolven op het werk?"
    assert ask("Mag een zwangere medewerker nachtdiensten draaien?", question).query == question


def test_what_was_found_with_the_subject_is_repeated_with_it() -> None:
    said = ["Hoe lang mag ik achter een beeldscherm werken?", "En krijg ik een bril vergoed?"]
    meant = ask(*said, "In English please")
    assert meant.repeated
    assert meant.wider == ask(*said).wider != ""


def test_a_subject_that_nothing_is_known_of_is_not_gone_back_to() -> None:
    nothing = PHRASES["nl"]["nothing"]
    assert ask("Hoe onderhoud ik mijn fiets?", "Wie schilderde dit doek?", answer=nothing).wider == ""
    assert ask("Hoe onderhoud ik mijn ladder?", "Wie schilderde dit doek?").wider != ""


def test_words_that_are_a_subject_together() -> None:
    meant = ask("ik heb veel te veel werk")
    assert not meant.vague
    assert meant.topic == ("werkdruk",)


def test_what_is_in_something_has_nothing_to_do_with_sitting() -> None:
    assert ask("Wat moet er in een verbanddoos zitten?", "Heb je er een?").query == "verbanddoos"


def test_an_article_of_the_law_is_no_product() -> None:
    assert ask("Wat zegt artikel 7.23 van het Arbobesluit?").intent is Intent.GUIDELINE
    assert ask("Welk artikel voor gehoorbescherming kan ik bestellen?").intent is Intent.PRODUCTS


def test_the_cheapest_of_a_list() -> None:
    listed = "1. **Harnas** (EN 361, € 94,50): …\n2. **Vanglijn** (€ 12,75): …\n3. **Haak** (prijs op aanvraag): …"
    question = "Welke producten voor valbeveiliging?"
    assert ask(question, "wat is de goedkoopste?", answer=listed).query == "Vanglijn"
    assert ask(question, "en de duurste?", answer=listed).query == "Harnas"


def test_a_follow_up_without_the_subject_can_be_tried_with_it() -> None:
    assert ask("Hoe zwaar mag ik tillen?", "En vrouwen?").wider == "vrouwen zwaar tillen"
    assert not ask("Hoe zwaar mag ik tillen?").wider
