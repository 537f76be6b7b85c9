"""Answers made of what the tools found, sentence by sentence, without a model to write them."""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import date

import numpy as np
from django.utils import translation
from django.utils.formats import date_format
from django.utils.text import Truncator

from agentbridge.chunks import sentences
from agentbridge.citations import WRITTEN, without_markers
from agentbridge.embeddings import BUNDLED, Vector, embedder_for
from agentbridge.emergencies import FIRST_AID, Emergency
from agentbridge.lexical import JOINED, TOKEN, words
from agentbridge.patterns import WORD
from agentbridge.phrases import OTHER_LANGUAGES, PHRASES
from agentbridge.relevance import (
    NO_SUBJECT,
    about_the_thing,
    fitting,
    in_own_language,
    is_coincidence,
    mentions,
    shares,
    stems,
)
from agentbridge.synonyms import official_words
from agentbridge.tools import Guideline, Product, Remembered
from agentbridge.understanding import Understanding
from agentbridge.words import ASPECTS, EVERYWHERE, FILLERS

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
# What guidelines say for a word says half as much as the word itself.
OTHER_WORD = 0.5
ASKED_ALIKE = 0.07
QUESTION_WORDS = {"wie", "wat", "waar", "wanneer", "hoe", "hoeveel", "welke", "who", "what", "when", "how", "which"}
# Who asks how much wants a number.
NUMBER_BONUS = 0.1
NUMBER = re.compile(
    r"\d|\b(één|twee|drie|vier|vijf|half|jaarlijks|maandelijks|wekelijks|yearly|monthly|weekly|twice)\b", re.IGNORECASE
)
# And one of the kind that was asked for.
QUANTITY_BONUS = 0.3
HEIGHT = {"hoogte", "height"}
ASKS_HEIGHT = re.compile(r"\b(?:welke|what|which) (?:\w+)?(?:hoogte|height)\b")
QUANTITIES = [
    (
        ASKS_HEIGHT,
        re.compile(
            r"(?:hoogte|height)\b.{0,30}\d (?:meter|metres|m)\b"
            r"|\d (?:meter|metres|m)\b.{0,30}\b(?:vallen|fall)\b"
        ),
    ),
    (
        re.compile(r"\b(?:hoe vaak|how often)\b"),
        re.compile(
            r"\b(?:keer|eenmaal|eens|maal|once|twice) (?:per|in|a|an|every)\b"
            r"|\b(?:jaarlijks|maandelijks|wekelijks|dagelijks|yearly|annually|monthly|weekly|daily)"
        ),
    ),
]
# Translations of a sentence are nearer to each other than this, and other sentences are not, in the bundled model.
SAYS_THE_SAME = 0.5
# The number of a norm, or of an article of the law, is no answer to that.
NORM = re.compile(
    r"\b(?:NEN|EN|ISO|IEC|PGS|artikel|article|klasse|class|CO)[-\s]?(?:EN|ISO|IEC|lid)?[-\s]?\d[\d.:-]*\w?"
)
STEP = re.compile(r"\s*\d+[.)] ")


@dataclass(frozen=True)
class _Sentence:
    text: str
    source: int
    position: int
    score: float


def from_guidelines(meant: Understanding, found: Sequence[Guideline], *, already: str = "", repeating: str = "") -> str:
    """The sentences that answer best, each with its source; `already` is what need not be said again.

    With `repeating`, those that say in another language what this answer said.
    """
    phrases = PHRASES[meant.language]
    own = about_the_thing(meant, in_own_language(meant, found))
    if is_coincidence(meant, found) or not own:
        return phrases["nothing"]
    titles = list(dict.fromkeys(guideline.title for guideline in found))
    if meant.vague and len(titles) > 2:
        return phrases["which"].format(subjects=_listed(titles[:3], phrases["or"]))
    worth = _worth_a_look(meant, own)
    chosen = _same_sentences(found, said=without_markers(repeating)) if repeating else []
    if chosen:
        worth = list(found)
    else:
        chosen = _best_sentences(meant, worth, already=without_markers(already))
    if not chosen:
        return phrases["no_more"]
    said = []
    for number, sentence in enumerate(chosen):
        is_last_of_source = number + 1 == len(chosen) or chosen[number + 1].source != sentence.source
        marker = f" [{worth[sentence.source].number}]" if is_last_of_source else ""
        said.append(sentence.text + marker)
    text = " ".join(said)
    return text if own[0].language == meant.language else f"{phrases['foreign']} {text}"


def says_the_same(found: Sequence[Guideline], *, said: str) -> bool:
    """Whether what was said can be said again with what was found, in another language."""
    return bool(_same_sentences(found, said=without_markers(said)))


def at_once(emergency: Emergency, found: Sequence[Guideline], *, language: str) -> str:
    """Whom to call, and the first aid for what happened: in the order in which things have to be done."""
    first = PHRASES[language]["urgent"]
    helps = [
        one for one in found if emergency.heading.search(one.section) and FIRST_AID.search(f"{one.title} {one.section}")
    ]
    section = next((one for one in helps if one.language == language), next(iter(helps), None))
    if not section:
        return first
    steps = _sentences_of(section.text)
    begin = next((place for place, step in enumerate(steps) if emergency.begins and emergency.begins.search(step)), 0)
    return f"{first}\n\n{' '.join(steps[begin : begin + MOST_FROM_THE_BEST])} [{section.number}]"


def sources_of(answered: str, found: Sequence[Guideline], *, language: str) -> str:
    """Where what was answered stands."""
    phrases = PHRASES[language]
    said = without_markers(answered)
    quoted = [one for one in found if any(sentence in said for sentence in _sentences_of(one.text))]
    if not quoted:
        return phrases["no_source"]
    lines = [
        phrases["source_of"].format(
            title=one.title, section=one.section or one.title, source=f" ({one.source})" if one.source else ""
        )
        for one in quoted
    ]
    listed = "\n".join(f"- {line} [{one.number}]" for line, one in zip(lines, quoted, strict=True))
    return f"{phrases['rests_on']}\n\n{listed}\n\n{phrases['check']}"


def in_other_words(language: str) -> str:
    """What is said to somebody in their own language, where EVI has no answer in it."""
    return OTHER_LANGUAGES[language]


def from_products(meant: Understanding, found: Sequence[Product]) -> str:
    phrases = PHRASES[meant.language]
    lines = [
        f"{place}. **{product.name}** ({_norm_and_price(product, language=meant.language)}): "
        f"{next(iter(sentences(product.description)), '')} {_fits(product, meant)} [{product.number}]"
        for place, product in enumerate(fitting(meant, found), start=1)
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


def from_the_past(meant: Understanding, found: Sequence[Remembered], *, is_of_another_time: bool = False) -> str:
    """What was said before, with its date, the best first; and that nothing was, where it is so."""
    phrases = PHRASES[meant.language]
    if not found:
        return phrases["never_said" if meant.query else "no_past"]
    # The same words are told once, however often they were said.
    different = list({" ".join(words(one.text)): one for one in reversed(found)}.values())[::-1]
    with translation.override(meant.language):
        told = [
            phrases[f"said_{one.role or one.kind}"].format(
                date=date_format(date.fromisoformat(one.date), "j F Y"), text=_quoted(one.text)
            )
            for one in different[:MOST_FROM_THE_PAST]
        ]
    return "\n\n".join([phrases["not_then"], *told] if is_of_another_time else told)


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


def _worth_a_look(meant: Understanding, guidelines: Sequence[Guideline]) -> list[Guideline]:
    """Those that score well, and those named after the subject, beside which nothing counts that does not mention it.

    A limit for vibration is none for noise.
    """
    worth = [one for one in guidelines if one.score >= WORTH_A_LOOK * guidelines[0].score or _is_named(meant, one)]
    if meant.translated or not any(_is_named(meant, one) for one in worth):
        return worth
    subject = _subject_of(meant)
    return [one for one in worth if shares(subject, words(f"{one.title} {one.section} {one.text}"))]


def _subject_of(meant: Understanding) -> set[str]:
    subject = {word for each in meant.topic if each not in ASPECTS | EVERYWHERE for word in words(each)} - FILLERS
    # "Vanaf welke hoogte" is not about working at height.
    return (subject - HEIGHT if ASKS_HEIGHT.search(meant.query.casefold()) else subject) or subject


def _is_named(meant: Understanding, guideline: Guideline) -> bool:
    """Whether a guideline is named after what is asked about: a limit for noise is none for asbestos."""
    return shares(_subject_of(meant), words(guideline.title))


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
    weigh = _weigher(meant.query, [text for text, _, _ in candidates], official=official)
    quantity = next((told for wanted, told in QUANTITIES if wanted.search(meant.query.casefold())), None)
    # A heading says what its text answers.
    fits = [
        guideline.score / guidelines[0].score
        + _similarity(asked, vector)
        + 2 * WORDS_BONUS * weigh(heading)
        + _asks_alike(meant.query, guideline.section)
        + (NAMED_BONUS if _is_named(meant, guideline) else 0)
        + (QUANTITY_BONUS if quantity and quantity.search(guideline.text) else 0)
        for guideline, heading, vector in zip(guidelines, headings, vectors, strict=False)
    ]
    scored = []
    for (text, source, position), vector in zip(candidates, vectors[len(headings) :], strict=True):
        score = _similarity(asked, vector) + WORDS_BONUS * weigh(text)
        score += OPENING_BONUS if position == 0 else 0
        score += NUMBER_BONUS if meant.wants_number and NUMBER.search(NORM.sub("", text)) else 0
        score += QUANTITY_BONUS if quantity and quantity.search(text) else 0
        scored.append(_Sentence(text, source, position, score * fits[source] / max(fits)))
    scored.sort(key=lambda sentence: sentence.score, reverse=True)
    best = scored[0].source
    own = [sentence for sentence in scored if sentence.source == best][:MOST_FROM_THE_BEST]
    worth = own[min(1, len(own) - 1)].score
    others = [
        sentence
        for sentence in scored
        if sentence.source != best
        and sentence.score >= worth
        # What is only about the same kind of thing: how heavy a scaffold is, for who asks how heavy a box may be.
        and (meant.translated or mentions(meant, f"{headings[sentence.source]} {sentence.text}"))
    ]
    chosen = own + others[:MOST_FROM_OTHERS]
    sources = list(dict.fromkeys(sentence.source for sentence in chosen))
    return sorted(chosen, key=lambda sentence: (sources.index(sentence.source), sentence.position))


def _same_sentences(guidelines: Sequence[Guideline], *, said: str) -> list[_Sentence]:
    """What says the same in another language, sentence by sentence; none where something of it is not to be found."""
    wanted = _sentences_of(said)[: MOST_FROM_THE_BEST + MOST_FROM_OTHERS]
    candidates = [
        (text, source, position)
        for source, guideline in enumerate(guidelines)
        for position, text in enumerate(_sentences_of(guideline.text))
    ]
    if not wanted or not candidates:
        return []
    vectors = embedder_for(BUNDLED).embed([*wanted, *(text for text, _, _ in candidates)])
    chosen: dict[int, _Sentence] = {}
    for vector in vectors[: len(wanted)]:
        alike = [_similarity(vector, other) for other in vectors[len(wanted) :]]
        best = max(range(len(alike)), key=lambda place: alike[place])
        if alike[best] < SAYS_THE_SAME:
            return []
        text, source, position = candidates[best]
        chosen[best] = _Sentence(text, source, position, alike[best])
    sources = list(dict.fromkeys(sentence.source for sentence in chosen.values()))
    return sorted(chosen.values(), key=lambda sentence: (sources.index(sentence.source), sentence.position))


def _asks_alike(question: str, heading: str) -> float:
    """Who asks "wie mag" wants the section that answers "wie mag"."""
    asked, answered = (WORD.findall(text.casefold())[:2] for text in (question, heading))
    if not asked or not answered or asked[0] != answered[0] or asked[0] not in QUESTION_WORDS:
        return 0
    return 2 * ASKED_ALIKE if asked == answered else ASKED_ALIKE


def _weigher(query: str, texts: Sequence[str], *, official: str = "") -> Callable[[str], float]:
    """How much of the question's words a text has; a word counts for more, the fewer of the texts have it."""
    asked = [word for word in dict.fromkeys(words(query)) if not stems(word) <= NO_SUBJECT]
    others = [word for word in dict.fromkeys(words(official)) if word not in asked]
    found = {text: _said_of((*asked, *others), text) for text in texts}
    counts = Counter(word for said in found.values() for word in said)
    # Not in proportion: what all is about is in many of the texts, and matters all the same.
    weights = {
        word: math.log(1 + len(texts) / count) * (1 if word in asked else OTHER_WORD) for word, count in counts.items()
    }
    total = sum(weights.values()) or 1

    def weigh(text: str) -> float:
        said = found[text] if text in found else _said_of(weights, text)
        return sum(weights.get(word, 0) for word in said) / total

    return weigh


def _said_of(asked: Iterable[str], text: str) -> list[str]:
    """Those of these words that a text has; of "klasse 3" it may say "steigerklasse 3"."""
    told = words(text)
    spaced = f"{' '.join(TOKEN.findall(text.lower()))} "
    return [word for word in asked if shares({word}, told) or ((apart := _apart(word)) and apart in spaced)]


def _apart(word: str) -> str:
    joined = JOINED.fullmatch(word)
    return f"{joined[1]} {word.removeprefix(joined[1])} " if joined and joined[1] else ""


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
