"""Answers made of what the tools found, sentence by sentence, without a model to write them."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date

import numpy as np
from django.utils import translation
from django.utils.formats import date_format
from django.utils.text import Truncator

from agentbridge.chunks import sentences
from agentbridge.citations import WRITTEN, without_markers
from agentbridge.embeddings import BUNDLED, Vector, embedder_for
from agentbridge.synonyms import official_words
from agentbridge.tools import Guideline, Product, Remembered
from agentbridge.understanding import WORD, Understanding
from agentbridge.words import ASPECTS, FILLERS

# Most of an answer comes from one source, so that it reads as a whole; others add what they say better.
MOST_FROM_THE_BEST = 4
MOST_FROM_OTHERS = 2
MOST_FROM_THE_PAST = 3
LONGEST_QUOTE = 300
# A source this much weaker than the best is about something else.
WORTH_A_LOOK = 0.7
# A section opens with its answer, more often than not; and a word of the question is worth more than its meaning alone.
OPENING_BONUS = 0.12
WORDS_BONUS = 0.2
# A guideline is named after its subject, and a section after what it answers.
NAMED_BONUS = 0.3
ASKED_ALIKE = 0.07
QUESTION_WORDS = {"wie", "wat", "waar", "wanneer", "hoe", "hoeveel", "welke", "who", "what", "when", "how", "which"}
# Who asks how much wants a number.
NUMBER_BONUS = 0.1
NUMBER = re.compile(
    r"\d|\b(één|twee|drie|vier|vijf|half|jaarlijks|maandelijks|wekelijks|yearly|monthly|weekly|twice)\b", re.IGNORECASE
)
# Half of what the sample's own questions reach; and what none of them reaches without a word of its subject.
WEAK = 0.3
FAIR = 0.45
HALF = 0.5
STEM = 6
STEP = re.compile(r"\s*\d+[.)] ")

PHRASES = {
    "nl": {
        "greeting": "Hallo! Ik ben EVI. Waarmee kan ik u helpen op het gebied van veilig en gezond werken?",
        "thanks": "Graag gedaan. Hebt u nog een vraag over veilig en gezond werken?",
        "who": (
            "Ik ben EVI, een assistent voor veilig en gezond werken. Ik zoek in richtlijnen en producten, en noem bij "
            "elk antwoord de bron. Vraag me bijvoorbeeld naar {subjects}."
        ),
        "who_empty": (
            "Ik ben EVI, een assistent voor veilig en gezond werken. Mijn kennisbank is nog leeg: vraag de beheerder "
            "om richtlijnen in te lezen."
        ),
        "unclear_empty": (
            "Mijn kennisbank is nog leeg, dus ik kan nog geen vragen beantwoorden. Kunt u de beheerder vragen om "
            "richtlijnen in te lezen?"
        ),
        "nothing": (
            "Daarover heb ik niets gevonden in mijn kennisbank, dus daar kan ik u niet mee helpen. Ik beantwoord "
            "vragen over veilig en gezond werken, zoals werken op hoogte, tillen of gevaarlijke stoffen."
        ),
        "no_products": "Ik heb in het assortiment geen product gevonden dat daarbij past.",
        "no_more": "Meer dan dit staat er niet over in mijn kennisbank. Hebt u een vraag over een onderdeel ervan?",
        "products": "Deze producten passen daarbij:",
        "fits": "Past bij {subjects}.",
        "on_request": "prijs op aanvraag",
        "costs": "**{name}** kost {price}.",
        "price_on_request": "De prijs van **{name}** is op aanvraag.",
        "which": "Waarover gaat uw vraag: {subjects}?",
        "unclear": "Over welk onderwerp gaat uw vraag? Ik weet bijvoorbeeld iets over {subjects}. Wat wilt u weten?",
        "broken": "Ik kan op dit moment niet in de kennisbank zoeken. Probeer het over een minuut nog eens.",
        "foreign": "Hierover heb ik alleen een Engelse bron:",
        "urgent": "Is er direct gevaar of is iemand gewond, bel dan 112 en waarschuw de BHV.",
        "unseen": "Ik kan afbeeldingen niet bekijken, dus ik ga alleen uit van uw tekst.",
        "image_alone": "Ik kan afbeeldingen niet bekijken. Kunt u uw vraag in woorden stellen?",
        "unread": "Ik kan {name} niet openen, dus ik ga alleen uit van uw vraag.",
        "remember_proposed": (
            "Ik heb voorgesteld om te onthouden: “{name}”. Zodra dat is goedgekeurd, houd ik er rekening mee."
        ),
        "remember_known": "“{name}” staat al bij wat ik van u onthoud, of wacht op goedkeuring.",
        "remember_refused": "Dat kan ik niet onthouden. Vertel in één korte zin iets over uzelf of uw werk.",
        "not_remembered": "In dit gesprek kan ik niets onthouden, want er wordt niets van bewaard.",
        "about_person": "Dit is wat ik van u onthoud:",
        "about_nobody": (
            "Ik heb nog niets over u onthouden. Zeg bijvoorbeeld “Onthoud dat ik in de bouw werk”; na goedkeuring "
            "houd ik er rekening mee."
        ),
        "said_user": "Op {date} zei u: “{text}”",
        "said_assistant": "Op {date} antwoordde ik: “{text}”",
        "said_fact": "Onthouden is: {text}",
        "said_summary": "Het gesprek van {date} ging hierover: {text}",
        "never_said": "Daarover heb ik in onze eerdere gesprekken niets gevonden.",
        "no_past": "We hebben nog niet eerder met elkaar gesproken.",
        "and": "en",
        "or": "of",
    },
    "en": {
        "greeting": "Hello! I am EVI. What would you like to know about safe and healthy work?",
        "thanks": "You're welcome. Do you have another question about safe and healthy work?",
        "who": (
            "I am EVI, an assistant for safe and healthy work. I search guidelines and products, and name the source "
            "with every answer. Ask me about {subjects}, for example."
        ),
        "who_empty": (
            "I am EVI, an assistant for safe and healthy work. My knowledge base is still empty: ask the administrator "
            "to take in guidelines."
        ),
        "unclear_empty": (
            "My knowledge base is still empty, so I cannot answer questions yet. Could you ask the administrator to "
            "take in guidelines?"
        ),
        "nothing": (
            "I found nothing about that in my knowledge base, so I cannot help you with it. I answer questions about "
            "safe and healthy work, such as working at height, lifting or hazardous substances."
        ),
        "no_products": "I found no product in the catalogue that fits.",
        "no_more": "My knowledge base has no more about this than what I said. Is there a part you want to know about?",
        "products": "These products fit (the catalogue is in Dutch):",
        "fits": "For {subjects}.",
        "on_request": "price on request",
        "costs": "**{name}** costs {price}.",
        "price_on_request": "The price of **{name}** is on request.",
        "which": "What is your question about: {subjects}?",
        "unclear": (
            "Which subject is your question about? I know something about {subjects}, for example. "
            "What would you like to know?"
        ),
        "broken": "I cannot search the knowledge base at the moment. Please try again in a minute.",
        "foreign": "I have only a Dutch source for this:",
        "urgent": "If there is immediate danger or somebody is hurt, call 112 and warn the emergency responders (BHV).",
        "unseen": "I cannot see images, so I go by your text alone.",
        "image_alone": "I cannot see images. Could you put your question into words?",
        "unread": "I cannot open {name}, so I go by your question alone.",
        "remember_proposed": (
            "I have proposed to remember: “{name}”. As soon as that is approved, I will take it into account."
        ),
        "remember_known": "“{name}” is already among what I remember about you, or waits for approval.",
        "remember_refused": "I cannot remember that. Tell me about yourself or your work in one short sentence.",
        "not_remembered": "I cannot remember anything in this conversation, because nothing of it is kept.",
        "about_person": "This is what I remember about you:",
        "about_nobody": (
            "I remember nothing about you yet. Say “Remember that I work in construction”, for example; once that is "
            "approved, I take it into account."
        ),
        "said_user": "On {date} you said: “{text}”",
        "said_assistant": "On {date} I answered: “{text}”",
        "said_fact": "What is to be remembered: {text}",
        "said_summary": "The conversation of {date} was about this: {text}",
        "never_said": "I found nothing about that in our earlier conversations.",
        "no_past": "We have not talked before.",
        "and": "and",
        "or": "or",
    },
}


@dataclass(frozen=True)
class _Sentence:
    text: str
    source: int
    position: int
    score: float


def from_guidelines(meant: Understanding, found: Sequence[Guideline], *, already: str = "") -> str:
    """The sentences that answer best, each with its source; `already` is what need not be said again."""
    phrases = PHRASES[meant.language]
    own = [guideline for guideline in found if guideline.language == meant.language]
    if not found or _is_coincidence(meant, own or found):
        return phrases["nothing"]
    titles = list(dict.fromkeys(guideline.title for guideline in found))
    if meant.vague and len(titles) > 2:
        return phrases["which"].format(subjects=_listed(titles[:3], phrases["or"]))
    worth = [one for one in own or found if one.score >= WORTH_A_LOOK * (own or found)[0].score]
    chosen = _best_sentences(meant, worth, already=without_markers(already))
    if not chosen:
        return phrases["no_more"]
    said = []
    for number, sentence in enumerate(chosen):
        is_last_of_source = number + 1 == len(chosen) or chosen[number + 1].source != sentence.source
        marker = f" [{worth[sentence.source].number}]" if is_last_of_source else ""
        said.append(sentence.text + marker)
    text = " ".join(said)
    return text if own else f"{phrases['foreign']} {text}"


def from_products(meant: Understanding, found: Sequence[Product]) -> str:
    phrases = PHRASES[meant.language]
    lines = [
        f"{place}. **{product.name}** ({_norm_and_price(product, language=meant.language)}): "
        f"{next(iter(sentences(product.description)), '')} {_fits(product, meant)} [{product.number}]"
        for place, product in enumerate(found, start=1)
    ]
    return "\n".join([phrases["products"], "", *lines])


def about_product(meant: Understanding, found: Sequence[Product]) -> str:
    phrases = PHRASES[meant.language]
    product = next((one for one in found if one.name == meant.query), found[0])
    phrase = phrases["costs"] if product.price else phrases["price_on_request"]
    told = phrase.format(name=product.name, price=_money(product.price, language=meant.language))
    return f"{told} {product.description} [{product.number}]"


def about_person(facts: Sequence[str], *, language: str) -> str:
    """What is remembered about the person, as they are told when they ask."""
    phrases = PHRASES[language]
    return "\n".join(
        [phrases["about_person"], "", *(f"- {fact}" for fact in facts)] if facts else [phrases["about_nobody"]]
    )


def from_the_past(meant: Understanding, found: Sequence[Remembered]) -> str:
    """What was said before, with its date, the best first; and that nothing was, where it is so."""
    phrases = PHRASES[meant.language]
    if not found:
        return phrases["never_said" if meant.query else "no_past"]
    with translation.override(meant.language):
        return "\n\n".join(
            phrases[f"said_{one.role or one.kind}"].format(
                date=date_format(date.fromisoformat(one.date), "j F Y"), text=_quoted(one.text)
            )
            for one in found[:MOST_FROM_THE_PAST]
        )


def _quoted(text: str) -> str:
    """On one line, as it was said; its markers stood for sources of then."""
    return Truncator(" ".join(without_markers(text).split())).chars(LONGEST_QUOTE)


def rest_of(answer: str, *, so_far: str) -> str:
    """What is left of an answer when so much of it was said; nothing where that was another answer."""
    told = _told(so_far)
    in_markers = {place for marker in WRITTEN.finditer(answer) for place in range(*marker.span())}
    # Each character that tells something, with the place where it ends; white space counts once.
    counted: list[tuple[str, int]] = []
    for place, character in enumerate(answer):
        if place not in in_markers and not (character.isspace() and (not counted or counted[-1][0] == " ")):
            counted.append((" " if character.isspace() else character, place + 1))
    if "".join(character for character, _ in counted[: len(told)]) != told:
        return ""
    rest = answer[counted[len(told) - 1][1] :] if told else answer
    if so_far.rstrip().endswith("]"):
        # Its marker was said as well.
        rest = re.sub(rf"^(?:{WRITTEN.pattern})+", "", rest)
    return rest if _told(rest) else ""


def _told(text: str) -> str:
    return " ".join(without_markers(text).split())


def phrase(sentence: str, *, language: str, subjects: Sequence[str] = (), name: str = "") -> str:
    """One of EVI's own sentences, with some of the subjects as examples."""
    phrases = PHRASES[language]
    if not subjects and f"{sentence}_empty" in phrases:
        return phrases[f"{sentence}_empty"]
    # From all over the list, and not just the ones that begin with an A.
    some = [_uncapitalized(subject) for subject in subjects[:: max(1, len(subjects) // 4)]][:4]
    return phrases[sentence].format(subjects=_listed(some, phrases["and"]), name=name)


def _uncapitalized(title: str) -> str:
    """As in the middle of a sentence; but EHBO stays what it is."""
    return title if title[1:2].isupper() else title[:1].lower() + title[1:]


def _is_coincidence(meant: Understanding, found: Sequence[Guideline]) -> bool:
    """Whether what was found is about something else: it is weak, and has too little of what the question is about."""
    best = found[0]
    if meant.translated:
        # Its words are not to be found in a text of another language.
        return False
    subject = _stems(" ".join(meant.topic) or meant.query) - {word[:STEM] for word in FILLERS}
    official = _stems(" ".join(official_words(meant.query)))
    told = _stems(f"{best.title} {best.section} {best.text}")
    share = len(subject & told) / len(subject) if subject else 1
    if best.score < WEAK:
        return share <= HALF and not official & told
    told_by_any = told.union(*(_stems(f"{one.title} {one.section} {one.text}") for one in found))
    return best.score < FAIR and not (subject | official) & told_by_any


def _is_named(meant: Understanding, guideline: Guideline) -> bool:
    """Whether a guideline is named after what is asked about: a limit for noise is none for asbestos."""
    subject = _stems(" ".join(word for word in meant.topic if word not in ASPECTS)) - {word[:STEM] for word in FILLERS}
    return bool(subject & _stems(guideline.title))


def _best_sentences(meant: Understanding, guidelines: Sequence[Guideline], *, already: str) -> list[_Sentence]:
    candidates = [
        (text, source, position)
        for source, guideline in enumerate(guidelines)
        for position, text in enumerate(_sentences_of(guideline.text))
        if text not in already
    ]
    if not candidates:
        return []
    headings = [f"{guideline.title}. {guideline.section}" for guideline in guidelines]
    official = " ".join(official_words(meant.query))
    asked, put_officially, *vectors = embedder_for(BUNDLED).embed(
        [meant.query, official or meant.query, *headings, *(text for text, _, _ in candidates)]
    )
    asked = asked + put_officially
    weigh = _weigher(f"{meant.query} {official}", [text for text, _, _ in candidates])
    # A heading says what its text answers.
    fits = [
        guideline.score / guidelines[0].score
        + _similarity(asked, vector)
        + 2 * WORDS_BONUS * weigh(heading)
        + _asks_alike(meant.query, guideline.section)
        + (NAMED_BONUS if _is_named(meant, guideline) else 0)
        for guideline, heading, vector in zip(guidelines, headings, vectors, strict=False)
    ]
    scored = []
    for (text, source, position), vector in zip(candidates, vectors[len(headings) :], strict=True):
        score = _similarity(asked, vector) + WORDS_BONUS * weigh(text)
        score += OPENING_BONUS if position == 0 else 0
        score += NUMBER_BONUS if meant.wants_number and NUMBER.search(text) else 0
        scored.append(_Sentence(text, source, position, score * fits[source] / max(fits)))
    scored.sort(key=lambda sentence: sentence.score, reverse=True)
    best = scored[0].source
    own = [sentence for sentence in scored if sentence.source == best][:MOST_FROM_THE_BEST]
    worth = own[min(1, len(own) - 1)].score
    others = [sentence for sentence in scored if sentence.source != best and sentence.score >= worth]
    chosen = own + others[:MOST_FROM_OTHERS]
    sources = list(dict.fromkeys(sentence.source for sentence in chosen))
    return sorted(chosen, key=lambda sentence: (sources.index(sentence.source), sentence.position))


def _asks_alike(question: str, heading: str) -> float:
    """Who asks "wie mag" wants the section that answers "wie mag"."""
    asked, answered = (WORD.findall(text.casefold())[:2] for text in (question, heading))
    if not asked or not answered or asked[0] != answered[0] or asked[0] not in QUESTION_WORDS:
        return 0
    return 2 * ASKED_ALIKE if asked == answered else ASKED_ALIKE


def _weigher(query: str, texts: Sequence[str]) -> Callable[[str], float]:
    """How much of the question's words a text has; a word counts for more, the fewer of the texts have it."""
    asked = _stems(query) - {word[:STEM] for word in FILLERS}
    counts = Counter(stem for text in texts for stem in asked & _stems(text))
    weights = {stem: 1 / count for stem, count in counts.items()}
    total = sum(weights.values()) or 1
    return lambda text: sum(weights.get(stem, 0) for stem in _stems(text)) / total


def _stems(text: str) -> set[str]:
    """The beginnings of the words: ladder is in ladders."""
    return {word[:STEM] for word in WORD.findall(text.casefold())}


def _sentences_of(text: str) -> list[str]:
    whole: list[str] = []
    for line in text.split("\n"):
        if STEP.match(line) and whole:
            # Steps belong together, below what announces them.
            whole[-1] += f"\n{line}"
        else:
            whole += sentences(re.sub(r"^[-*•]\s+", "", line.strip()))
    # What announces a list is nothing without it.
    return [sentence for sentence in whole if len(sentence.split()) > 3 and not sentence.endswith(":")]


def _similarity(one: Vector, other: Vector) -> float:
    return float(np.dot(one, other) / (np.linalg.norm(one) * np.linalg.norm(other) or 1))


def _norm_and_price(product: Product, *, language: str) -> str:
    price = _money(product.price, language=language) or PHRASES[language]["on_request"]
    return ", ".join(part for part in (product.norm, price) if part)


def _fits(product: Product, meant: Understanding) -> str:
    asked = set(meant.topic)
    subjects = sorted(product.subjects, key=lambda subject: not asked.intersection(subject.split()))
    phrases = PHRASES[meant.language]
    return phrases["fits"].format(subjects=_listed(subjects[:2], phrases["and"])) if subjects else ""


def _money(price: str, *, language: str) -> str:
    if not price:
        return ""
    amount, currency = price.split()
    sign = "€" if currency == "EUR" else currency
    return f"{sign} {amount.replace('.', ',') if language == 'nl' else amount}"


def _listed(items: Sequence[str], conjunction: str) -> str:
    *most, last = items or [""]
    return f"{', '.join(most)} {conjunction} {last}" if most else last
