"""What a question means in its conversation, worked out by rules: for the model that needs no network."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from functools import reduce

from agentbridge.emergencies import Emergency, emergency_in
from agentbridge.patterns import (
    ABOUT,
    ABOUT_ME,
    ANOTHER_QUESTION,
    CHEAPEST,
    DEAREST,
    DENIES,
    DOUBT,
    FAREWELL,
    HAVE,
    HOW_ARE_YOU,
    IN_CASE,
    IN_LANGUAGE,
    IS_IN,
    LAW,
    LISTED,
    LISTED_PRICE,
    MORE,
    NAMED_LANGUAGE,
    NUMBER,
    OTHER_SUBJECT,
    PAST,
    PRICE,
    PRONOUN,
    REMEMBER,
    TELLS_OF_WORK,
    TO_READ,
    WHO,
    WISHES_LANGUAGE,
    WORD,
)
from agentbridge.periods import without_period
from agentbridge.phrases import PHRASES
from agentbridge.said import HistoryItem
from agentbridge.synonyms import official_words
from agentbridge.words import (
    ASPECTS,
    DUTCH,
    ENGLISH,
    FILLERS,
    FOREIGN,
    GREETINGS,
    ORDINALS,
    OWN_VERBS,
    PAST_WORDS,
    PRODUCT_WORDS,
    REFERRING,
    STRONGLY_REFERRING,
    THANKS,
)


class Intent(Enum):
    GREETING = auto()
    THANKS = auto()
    WHO = auto()
    GUIDELINE = auto()
    PRODUCTS = auto()
    # One product out of a list that was given before.
    ITEM = auto()
    MORE = auto()
    # What the last answer rests on.
    SOURCE = auto()
    REMEMBER = auto()
    # What EVI knows about the person.
    ABOUT_ME = auto()
    # What was said in an earlier conversation.
    PAST = auto()


@dataclass(frozen=True)
class Understanding:
    """A question that stands on its own."""

    intent: Intent
    language: str = "nl"
    query: str = ""
    # What the conversation is about, for the questions to come; and what was asked about it.
    topic: tuple[str, ...] = ()
    aspects: tuple[str, ...] = ()
    # The products that were listed last, and what those cost that have a price, in cents.
    listed: tuple[str, ...] = ()
    prices: tuple[tuple[str, int], ...] = ()
    # The same with the subject of before, to be tried where the question finds nothing by itself.
    wider: str = ""
    # Whether the answer is a number: how high, how often, from what age.
    wants_number: bool = False
    # Whether the question names no subject, so that an answer would be a guess.
    vague: bool = False
    # What has happened that cannot wait.
    emergency: Emergency | None = None
    # Whether the subject was named in another language than that of the answer.
    translated: bool = False
    # Whether nothing was found for what was asked before.
    was_in_vain: bool = False
    # Whether the last answer is asked for once more, in another language.
    repeated: bool = False
    # The language of the question, where that is neither of the two that EVI speaks.
    foreign: str = ""
    # What is to be remembered about the person, whatever else is asked.
    fact: str = ""


LANGUAGES = {"engels": "en", "english": "en", "nederlands": "nl", "dutch": "nl"}
# Names nothing that could be searched.
EMPTY = FILLERS | PRODUCT_WORDS | GREETINGS | THANKS | ORDINALS.keys()
# A part of a law, and not of a catalogue.
LAW_WORDS = {"artikel", "artikelen"}
# What refers to something only where no noun follows.
ARTICLES = {"het"}
LIMITS = {"grens", "grenzen", "grenswaarde", "grenswaarden", "actiewaarde", "actiewaarden", "limit", "limits"}
# What a question is about is said at its beginning; the rest is a text to go with it.
MOST_CHARACTERS = 1000
# A longer answer to a question that EVI asked back is a question of its own.
MOST_WORDS_OF_A_SUBJECT = 3
MOST_WORDS_OF_WORK = 6
# A longer question about something else says all that is needed.
MOST_WORDS_OF_A_FOLLOW_UP = 9
# Fewer words of a language may be names, or words that it shares with another.
FEWEST_FOREIGN_WORDS = 2


def understand(
    question: str, *, said: Sequence[HistoryItem], facts: Sequence[str] = (), has_past: bool = False
) -> Understanding:
    """The question in the light of what was said before it, oldest first, and of what is known about the person.

    With a past, who asks what was said in another conversation is understood so.
    """
    if has_past and asks_for_the_past(question):
        return _about_the_past(question)
    exchanges: list[tuple[str, str]] = []
    answered = ""
    for item in said:
        if item.role == "user":
            exchanges.append((item.content, answered))
            answered = ""
        elif item.role == "assistant":
            answered = item.content
    exchanges.append((question, answered))
    nothing = Understanding(Intent.GUIDELINE)
    meant = reduce(lambda before, exchange: _next(exchange[0], before=before, answered=exchange[1]), exchanges, nothing)
    return _in_the_light_of(facts, meant, question=question)


def _in_the_light_of(facts: Sequence[str], meant: Understanding, *, question: str) -> Understanding:
    """The question of a person of whom this is known: the language they want, and the work that it is about."""
    asked = " ".join(question[:MOST_CHARACTERS].casefold().split())
    wished = next(filter(None, map(_wished_language, facts)), None)
    if wished and wished != meant.language and not IN_LANGUAGE.search(asked):
        meant = replace(meant, language=wished, translated=language_of(asked) != wished)
    if meant.intent is Intent.GUIDELINE and meant.vague:
        work = [word for fact in facts if TELLS_OF_WORK.search(fact.casefold()) for word in _content_of(fact)]
        if work:
            topic = tuple(dict.fromkeys(work))[:MOST_WORDS_OF_WORK]
            meant = replace(meant, query=f"{' '.join(topic)}: {question}", topic=topic, vague=False)
    return meant


def _wished_language(fact: str) -> str | None:
    told = fact.casefold()
    named = NAMED_LANGUAGE.search(told)
    return LANGUAGES[named[1]] if named and WISHES_LANGUAGE.search(told) and not DENIES.search(told) else None


def _content_of(fact: str) -> list[str]:
    words = WORD.findall(fact.casefold())
    return [word for word in words if word not in EMPTY and word not in ASPECTS and word not in OWN_VERBS]


def _next(question: str, *, before: Understanding, answered: str) -> Understanding:
    in_vain = any(phrases["nothing"] in answered for phrases in PHRASES.values())
    listed, prices = before.listed, before.prices
    if names := tuple(LISTED.findall(answered)):
        listed = names
        prices = tuple((name, int(whole + cents)) for name, whole, cents in LISTED_PRICE.findall(answered))
    remember = REMEMBER.match(question[:MOST_CHARACTERS])
    before = replace(before, listed=listed, prices=prices, fact="", foreign="", repeated=False, was_in_vain=in_vain)
    before = replace(before, emergency=None)
    if remember and remember["fact"].strip():
        rest = remember["rest"].strip()
        meant = _meaning(rest, before=before) if WORD.search(rest) else replace(before, intent=Intent.REMEMBER)
        told = language_of(question.casefold())
        return replace(
            meant,
            fact=_in_its_own_right(remember["fact"]),
            language=told or before.language,
            listed=listed,
            prices=prices,
        )
    return replace(_meaning(question, before=before), listed=listed, prices=prices)


def _in_its_own_right(clause: str) -> str:
    """A Dutch clause as a sentence: "ik in de bouw werk" is "Ik werk in de bouw"."""
    words = clause.split()
    names_subject = 2 if words[0].casefold() in ("mijn", "onze", "ons") else 1
    subject, rest = words[:names_subject], words[names_subject:]
    if subject[0].casefold() in DUTCH and len(rest) > 1 and rest[0].casefold() not in OWN_VERBS:
        verb = next((place for place in reversed(range(len(rest))) if rest[place].casefold() in OWN_VERBS), None)
        if verb is not None:
            rest.insert(0, rest.pop(verb))
    sentence = " ".join([*subject, *rest])
    return sentence[:1].upper() + sentence[1:]


def _meaning(question: str, *, before: Understanding) -> Understanding:
    wider_before, before = before.wider, replace(before, wider="")
    text = " ".join(question[:MOST_CHARACTERS].casefold().split())
    wanted = IN_LANGUAGE.search(text)
    foreign = "" if wanted else foreign_language_of(text)
    if foreign:
        topic = tuple(word for word in WORD.findall(text) if word not in FOREIGN[foreign])
        wider = f"{' '.join(before.topic)}: {question}" if before.topic else ""
        meant = Understanding(Intent.GUIDELINE, "en", query=question, wider=wider, topic=topic, translated=True)
        return replace(meant, foreign=foreign)
    language = LANGUAGES[wanted[1] or wanted[2]] if wanted else language_of(text) or before.language
    text = IN_LANGUAGE.sub(" ", text).strip()
    words = WORD.findall(text)
    content = tuple(word for word in words if word not in EMPTY)
    if IS_IN.search(text):
        content = tuple(word for word in content if word not in ("zit", "zitten"))
    subject = tuple(word for word in content if word not in ASPECTS and not word[0].isdigit()) + _unspoken(words)
    aspects = tuple(word for word in content if word in ASPECTS)
    wants_number = bool(NUMBER.search(text))
    same = replace(before, language=language)

    if emergency := emergency_in(text):
        query = emergency.query[language]
        topic = tuple(_content_of(query))
        return Understanding(
            Intent.GUIDELINE, language, query=query, topic=topic, emergency=emergency, translated=bool(wanted)
        )

    if HOW_ARE_YOU.search(text):
        return replace(same, intent=Intent.GREETING)
    if FAREWELL.search(text) and not any(word not in EMPTY for word in WORD.findall(FAREWELL.sub(" ", text))):
        return replace(same, intent=Intent.THANKS)
    if not content and (GREETINGS | THANKS).intersection(words):
        return replace(same, intent=Intent.THANKS if THANKS.intersection(words) else Intent.GREETING)
    if ABOUT_ME.search(text):
        return replace(same, intent=Intent.ABOUT_ME)
    if WHO.search(text):
        return replace(same, intent=Intent.WHO)
    if DOUBT.search(text) and before.query and len(subject) <= 1:
        return replace(same, intent=Intent.SOURCE)
    if wanted and not content and before.query:
        # The same once more, in another language.
        return replace(same, intent=_searching(before.intent), wider=wider_before, translated=True, repeated=True)
    if item := _listed_product(text, words, names=before.listed, prices=before.prices):
        return replace(same, intent=Intent.ITEM, query=item)

    is_offered = HAVE.search(text) and not TO_READ.search(text)
    offered = PRODUCT_WORDS - LAW_WORDS if LAW.search(text) else PRODUCT_WORDS
    wants_products = is_offered or offered.intersection(words) or PRICE.search(text)
    intent = Intent.PRODUCTS if wants_products else Intent.GUIDELINE
    if MORE.search(text) and not subject:
        intent = Intent.MORE if before.intent is not Intent.PRODUCTS else Intent.PRODUCTS
    refers = bool(STRONGLY_REFERRING.intersection(words)) or (
        (bool(REFERRING.difference(ARTICLES).intersection(words)) and len(subject) < 2)
        or (len(subject) < 3 and len(words) <= MOST_WORDS_OF_A_FOLLOW_UP and _has_pronoun(text))
    )
    in_case = bool(IN_CASE.search(text)) and len(words) <= MOST_WORDS_OF_A_FOLLOW_UP
    refers = in_case or refers
    if ANOTHER_QUESTION.search(text):
        refers = False
    names_another = OTHER_SUBJECT.match(text) or (words[:1] in (["en"], ["and"]) and len(words) <= 4)
    if subject and before.query and names_another and not in_case:
        # "En voor heftrucks?": the same question about something else.
        asked = aspects or before.aspects
        # A limit is one of something, which the longest word says best.
        is_limit = bool(LIMITS.intersection(asked))
        stays: tuple[str, ...] = (max(before.topic, key=len, default=""),) if is_limit else ()
        if not asked and len(before.query.split()) > 2:
            # After a single keyword there is nothing to ask again.
            stays = before.topic
        return Understanding(
            _searching(before.intent) if intent is Intent.GUIDELINE else intent,
            language,
            query=" ".join((*subject, *asked, *stays)),
            wider=" ".join((*subject, *asked, *before.topic)),
            topic=(*subject, *stays) if is_limit else subject,
            aspects=asked,
            wants_number=wants_number or before.wants_number,
        )
    if before.vague and subject and not aspects and len(subject) <= MOST_WORDS_OF_A_SUBJECT:
        # EVI asked back, and this is the subject.
        query = " ".join((*subject, *before.aspects))
        return replace(same, query=query, topic=subject, vague=False, translated=False)
    if before.topic and (refers or not subject):
        topic = (*before.topic, *(word for word in subject if word not in before.topic))
        about = " ".join(before.topic)
        query = before.query if intent is Intent.MORE else f"{about}: {question}"
        return Understanding(
            intent,
            language,
            query=" ".join((*before.topic, *subject)) if intent is Intent.PRODUCTS else query,
            topic=topic[:8],
            aspects=aspects or before.aspects,
            wants_number=wants_number,
            translated=before.translated or language != before.language,
        )
    query = " ".join(subject or content) if intent is Intent.PRODUCTS or not content else question
    follows = (
        before.topic
        and not before.was_in_vain
        and len(words) <= MOST_WORDS_OF_A_FOLLOW_UP
        and intent is Intent.GUIDELINE
    )
    return Understanding(
        intent,
        language,
        query=query,
        wider=f"{' '.join(before.topic)}: {question}" if follows else "",
        topic=subject,
        aspects=aspects,
        wants_number=wants_number,
        vague=not subject,
        translated=bool(wanted),
    )


def _unspoken(words: Sequence[str]) -> tuple[str, ...]:
    """What everyday words say together: "te veel werk" is about "werkdruk", though none of them is a subject."""
    alone = " ".join(word if word in FILLERS else "0" for word in words)
    return tuple(word for word in official_words(alone) if word not in FILLERS)


def _has_pronoun(text: str) -> bool:
    return any(not found["after"] or found["after"] in FILLERS for found in PRONOUN.finditer(text))


def asks_for_the_past(question: str) -> bool:
    """Whether a question is about what was said before, rather than about what holds."""
    return bool(PAST.search(" ".join(question[:MOST_CHARACTERS].casefold().split())))


def _about_the_past(question: str) -> Understanding:
    text = without_period(" ".join(question[:MOST_CHARACTERS].casefold().split()))
    topic = ABOUT.sub("", text) if ABOUT.match(text) else PAST.sub(" ", text)
    words = tuple(word for word in WORD.findall(topic) if word not in FILLERS and word not in PAST_WORDS)
    return Understanding(Intent.PAST, language_of(text) or "nl", query=" ".join(words), topic=words)


def language_of(text: str) -> str | None:
    words = WORD.findall(text)
    dutch = sum(word in DUTCH for word in words)
    english = sum(word in ENGLISH for word in words)
    return None if dutch == english else "nl" if dutch > english else "en"


def foreign_language_of(text: str) -> str:
    """The language that is neither Dutch nor English, where it plainly is that."""
    words = WORD.findall(text)
    counts = {language: sum(word in known for word in words) for language, known in FOREIGN.items()}
    best = max(counts, key=lambda language: counts[language])
    spoken = max(sum(word in DUTCH for word in words), sum(word in ENGLISH for word in words))
    return best if counts[best] >= FEWEST_FOREIGN_WORDS and counts[best] > spoken else ""


def _searching(intent: Intent) -> Intent:
    return intent if intent in (Intent.GUIDELINE, Intent.PRODUCTS, Intent.ITEM, Intent.MORE) else Intent.GUIDELINE


def _listed_product(text: str, words: Sequence[str], *, names: Sequence[str], prices: Sequence[tuple[str, int]]) -> str:
    """The product of the list before that the question points at."""
    if prices and CHEAPEST.search(text):
        return min(prices, key=lambda each: each[1])[0]
    if prices and DEAREST.search(text):
        return max(prices, key=lambda each: each[1])[0]
    for word in words if names else ():
        if word in ("laatste", "last"):
            return names[-1]
        if word in ORDINALS:
            return names[ORDINALS[word] - 1] if ORDINALS[word] <= len(names) else ""
    if names and PRICE.search(text):
        mine = {word for word in words if word not in FILLERS and word not in PRODUCT_WORDS}
        overlap = {name: len(mine.intersection(WORD.findall(name.casefold()))) for name in names}
        best = max(names, key=lambda name: overlap[name])
        return best if overlap[best] else ""
    return ""
