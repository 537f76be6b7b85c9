"""Answers made of what the tools found, sentence by sentence, without a model to write them."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from agentbridge.chunks import sentences
from agentbridge.citations import without_markers
from agentbridge.embeddings import BUNDLED, Vector, embedder_for
from agentbridge.synonyms import official_words
from agentbridge.tools import Guideline, Product
from agentbridge.understanding import WORD, Understanding
from agentbridge.words import FILLERS

# Most of an answer comes from one source, so that it reads as a whole; others add what they say better.
MOST_FROM_THE_BEST = 4
MOST_FROM_OTHERS = 2
# A source this much weaker than the best is about something else.
WORTH_A_LOOK = 0.7
# A section opens with its answer, more often than not; and a word of the question is worth more than its meaning alone.
OPENING_BONUS = 0.12
WORDS_BONUS = 0.2
# Who asks how much wants a number.
NUMBER_BONUS = 0.1
NUMBER = re.compile(
    r"\d|\b(één|twee|drie|vier|vijf|half|jaarlijks|maandelijks|wekelijks|yearly|monthly|weekly|twice)\b", re.IGNORECASE
)
# Half of what the sample's own questions reach.
WEAK = 0.3
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
    if not found or _is_coincidence(meant.query, found):
        return phrases["nothing"]
    titles = list(dict.fromkeys(guideline.title for guideline in found))
    if meant.vague and len(titles) > 2:
        return phrases["which"].format(subjects=_listed(titles[:3], phrases["or"]))
    own = [guideline for guideline in found if guideline.language == meant.language]
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


def phrase(name: str, *, language: str, subjects: Sequence[str] = ()) -> str:
    """One of EVI's own sentences, with some of the subjects as examples."""
    phrases = PHRASES[language]
    if not subjects and f"{name}_empty" in phrases:
        return phrases[f"{name}_empty"]
    # From all over the list, and not just the ones that begin with an A.
    some = [_uncapitalized(subject) for subject in subjects[:: max(1, len(subjects) // 4)]][:4]
    return phrases[name].format(subjects=_listed(some, phrases["and"]))


def _uncapitalized(title: str) -> str:
    """As in the middle of a sentence; but EHBO stays what it is."""
    return title if title[1:2].isupper() else title[:1].lower() + title[1:]


def _is_coincidence(query: str, found: Sequence[Guideline]) -> bool:
    """Whether the best find is weak and has none of the question's words, nor what guidelines say for them."""
    asked = _stems(f"{query} {' '.join(official_words(query))}") - {word[:STEM] for word in FILLERS}
    told = _stems(" ".join(f"{one.title} {one.section} {one.text}" for one in found))
    return found[0].score < WEAK and not asked & told


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
        guideline.score / guidelines[0].score + _similarity(asked, vector) + 2 * WORDS_BONUS * weigh(heading)
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
