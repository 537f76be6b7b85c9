"""What a question means in its conversation, worked out by rules: for the model that needs no network."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from functools import reduce

from agentbridge.history import HistoryItem
from agentbridge.words import (
    ASPECTS,
    DUTCH,
    ENGLISH,
    FILLERS,
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
    # The products that were listed last.
    listed: tuple[str, ...] = ()
    # Whether the answer is a number: how high, how often, from what age.
    wants_number: bool = False
    # Whether the question names no subject, so that an answer would be a guess.
    vague: bool = False
    # Whether something has happened that cannot wait.
    urgent: bool = False
    # Whether the subject was named in another language than that of the answer.
    translated: bool = False
    # What is to be remembered about the person, whatever else is asked.
    fact: str = ""


WORD = re.compile(r"\d+(?:[.,]\d+)+|[^\W_]+(?:[-'’&][^\W_]+)*")
# A list of products, as EVI writes it.
LISTED = re.compile(r"^\d+\. \*\*(.+?)\*\*", re.MULTILINE)

WHO = re.compile(
    r"\b(wie|wat) (ben|bent) (jij|je|u)\b|\bwat (kun|kan|kunt) (jij|je|u)\b|\bwho are you\b|\bwhat (can|do) you do\b"
)
# A language that is asked for, and not asked about.
IN_LANGUAGE = re.compile(
    r"\b(?:in|naar|into?|to) (?:het |'t )?(engels|english|nederlands|dutch)\b"
    r"|^(?:en |and )?(?:het |'t )?(engels|english|nederlands|dutch)(?= (?:graag|please|aub)|\W*$)"
)
MORE = re.compile(
    r"\b(vertel|geef|zeg|weet)\b.{0,60}\bmeer\b|\bmeer over vertellen\b|^(nog )?meer\b"
    r"|\bmeer (informatie|info|details|uitleg)\b|^((ga|en) )?(verder|door)\b|\b(leg|licht)\b.{0,60}\b(uit|toe)\b"
    r"|\btell me more\b|\bmore (details|information|about)\b|^(go on|continue)\b"
)
OTHER_SUBJECT = re.compile(r"^(en|maar|and|but)?\s*((hoe|what|how) ?(zit het|about)|voor|bij|met|for|with)\b")
ANOTHER_QUESTION = re.compile(r"\b(terug naar|andere vraag|ander onderwerp|back to|another question)\b")
NUMBER = re.compile(
    r"\b(hoeveel|hoe (hoog|lang|vaak|zwaar|hard|groot|diep|breed|oud|snel|ver|warm|koud|veel)"
    r"|vanaf (welke?|hoeveel|wanneer)|maxim\w*|minim\w*"
    r"|how (many|much|high|long|often|heavy|fast|old|far)|what (age|height|weight))\b"
)
# "Welke harnassen heb je?" asks for something to buy, "heb je tips?" does not.
HAVE = re.compile(
    r"\b(?:heb|hebt|hebben|verkoop|verkopen|lever|leveren) (?:je|jij|u|jullie)\b(?!.{0,60}\bnodig\b)"
    r"|\bin huis\b|\bdo you (?:have|sell|stock)\b"
)
TO_READ = re.compile(r"\b(?:informatie|info|richtlijn\w*|regels?|tips?|advies|uitleg|information|guidelines?|advice)\b")
PRICE = re.compile(r"\b((wat|hoeveel) kost(en)?|prijs|prijzen|hoe duur|price|prices|costs?|how much (is|are))\b")
# Somebody tells that it has happened, and does not ask what to do if it should.
URGENT = re.compile(
    r"\b(is|zijn|ben|heeft|heb|hebben|ligt|staat|has|have|is having) (?!er een kans)(.{0,40}\b)?"
    r"(gevallen|bewusteloos|onwel|flauwgevallen|bekneld|vergiftigd|geëlektrocuteerd|in brand|in de fik|stroomschok|"
    r"schok gekregen|hartaanval|hartstilstand|fallen|unconscious|collapsed|trapped|on fire|electric shock)\b"
    r"|\b(er is|there is|there's) (een |a )?"
    r"(brand|ontploffing|explosie|gaslek|ongeluk|ongeval|fire|explosion|gas leak|accident)\b"
    r"|\b(zuur|loog|bijtend\w*|chemisch\w*|acid|chemicals?)\b.{0,40}\b(oog|ogen|huid|gezicht|eyes?|skin|face)\b"
    r"|\b(is|zijn|ben|heeft|heb|has|got) (.{0,30}\b)?(gewond|verbrand|gesneden|verdronken|injured|hurt|burned|burnt)\b"
    r"|\b(bloedt|ademt niet|reageert niet|zit vast in|is bleeding|not breathing)\b"
)
# "Onthoud dat ik in de bouw werk. Welke helm heb ik nodig?"; not "Onthoud je wat ik zei?".
REMEMBER = re.compile(
    r"^\W*(?:(?:wil|kun|kan|zou|could|can|will|would) (?:je|jij|u|you) )?(?:(?:alsjeblieft|aub|please) )?"
    r"(?:onthoud(?:en)?|remember)(?: (?:alsjeblieft|aub|please|even|goed|voor mij|voortaan))*(?: dat| that|:)+ +"
    r"(?P<fact>[^.!?\n]*(?:[.](?=\S)[^.!?\n]*)*)[.!?]*(?P<rest>.*)",
    re.IGNORECASE | re.DOTALL,
)
ABOUT_ME = re.compile(
    r"\bwat (weet|weten|onthoud|onthield) (je|jij|u|jullie) (allemaal |nog |eigenlijk )*(over|van) (mij|me)\b"
    r"|\bwat heb (je|jij|u) (allemaal )*(over|van) (mij|me) onthouden\b"
    r"|\bwhat (do|did) you (know|remember) about me\b|\bwhat have you remembered about me\b"
)
WISHES_LANGUAGE = re.compile(
    r"\b(?:antwoord\w*|answers?|answered|liever|liefst|graag|prefer\w*|voorkeur|alleen|only|speak|spreek|taal|language)\b"
)
# What a person's work is, where it is told as one of their facts.
TELLS_OF_WORK = re.compile(r"\b(?:werk\w*|work\w*|beroep|functie|baan|job|vak|sector|branche|ploeg|bedrijf|dienst)\b")
NAMED_LANGUAGE = re.compile(r"\b(engels|english|nederlands|dutch)(?:e|talig\w*)?\b")
DENIES = re.compile(r"\b(?:niet|geen|nooit|not|no|never|don't)\b")
# Who asks what was said, and not what holds: "wat zei ik vorige week over ladders", "waar hadden we het over".
PAST = re.compile(
    r"\bwat (?:zei|zeiden|vroeg|vroegen|vertelde|vertelden|antwoordde|adviseerde) (?:ik|je|jij|u|we|wij)\b"
    r"|\bwat (?:heb|had|hebt|hadden|hebben) (?:ik|je|jij|u|we|wij)\b.{0,60}\b"
    r"(?:gezegd|gevraagd|verteld|geantwoord|besproken|afgesproken|geadviseerd|aangeraden)\b"
    r"|\bwaar(?:over)? (?:hadden|hebben|spraken|praatten) (?:we|wij)\b"
    r"|\bwaar(?:over)? ging (?:het|ons).{0,30}\b(?:laatst|eerder|vorige|gisteren|toen|gesprek)\b"
    r"|\b(?:heb|had) ik\b.{0,20}\b(?:eerder|al|ooit|eens|weleens)\b.{0,60}\b(?:gevraagd|verteld|gezegd|genoemd)\b"
    r"|\b(?:what|when) (?:did|have|had) (?:i|you|we)\b.{0,30}"
    r"\b(?:say|said|ask|asked|tell|told|talk|talked|discuss|discussed|mention|mentioned)\b"
    r"|\b(?:have|had|did) (?:i|we)\b.{0,30}\b(?:ask|asked|talk|talked|discuss|discussed|tell|told|mention|mentioned)\b"
)
# What such a question is about comes after the last of these.
ABOUT = re.compile(r".*\b(?:over|naar|omtrent|about|regarding)\b(?! gehad\b| gesproken\b| gepraat\b)", re.DOTALL)
LANGUAGES = {"engels": "en", "english": "en", "nederlands": "nl", "dutch": "nl"}
# What to look up when it has happened.
FIRST_AID = {"nl": "eerste hulp, wat te doen bij een ongeval", "en": "first aid, what to do in an accident"}
# Names nothing that could be searched.
EMPTY = FILLERS | PRODUCT_WORDS | GREETINGS | THANKS | ORDINALS.keys()
# What a question is about is said at its beginning; the rest is a text to go with it.
MOST_CHARACTERS = 1000
# A longer answer to a question that EVI asked back is a question of its own.
MOST_WORDS_OF_A_SUBJECT = 3
MOST_WORDS_OF_WORK = 6


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
    listed = tuple(LISTED.findall(answered)) or before.listed
    remember = REMEMBER.match(question[:MOST_CHARACTERS])
    before = replace(before, listed=listed, fact="")
    if remember and remember["fact"].strip():
        rest = remember["rest"].strip()
        meant = _meaning(rest, before=before) if WORD.search(rest) else replace(before, intent=Intent.REMEMBER)
        told = language_of(question.casefold())
        return replace(meant, fact=_in_its_own_right(remember["fact"]), language=told or before.language, listed=listed)
    return replace(_meaning(question, before=before), listed=listed)


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
    text = " ".join(question[:MOST_CHARACTERS].casefold().split())
    wanted = IN_LANGUAGE.search(text)
    language = LANGUAGES[wanted[1] or wanted[2]] if wanted else language_of(text) or before.language
    text = IN_LANGUAGE.sub(" ", text).strip()
    words = WORD.findall(text)
    content = tuple(word for word in words if word not in EMPTY)
    subject = tuple(word for word in content if word not in ASPECTS and not word[0].isdigit())
    aspects = tuple(word for word in content if word in ASPECTS)
    wants_number = bool(NUMBER.search(text))
    same = replace(before, language=language)

    if not content and (GREETINGS | THANKS).intersection(words):
        return replace(same, intent=Intent.THANKS if THANKS.intersection(words) else Intent.GREETING)
    if ABOUT_ME.search(text):
        return replace(same, intent=Intent.ABOUT_ME)
    if WHO.search(text):
        return replace(same, intent=Intent.WHO)
    if wanted and not content and before.query:
        # The same once more, in another language.
        return replace(same, intent=_searching(before.intent), translated=True)
    if item := _listed_product(text, words, names=before.listed):
        return replace(same, intent=Intent.ITEM, query=item)

    is_offered = HAVE.search(text) and not TO_READ.search(text)
    wants_products = is_offered or PRODUCT_WORDS.intersection(words) or PRICE.search(text)
    intent = Intent.PRODUCTS if wants_products else Intent.GUIDELINE
    if MORE.search(text) and not subject:
        intent = Intent.MORE if before.intent is not Intent.PRODUCTS else Intent.PRODUCTS
    refers = bool(STRONGLY_REFERRING.intersection(words)) or (bool(REFERRING.intersection(words)) and len(subject) < 2)
    if ANOTHER_QUESTION.search(text):
        refers = False
    if subject and before.query and (OTHER_SUBJECT.match(text) or (words[0] in ("en", "and") and len(words) <= 4)):
        # "En voor heftrucks?": the same question about something else.
        asked = aspects or before.aspects
        return Understanding(
            _searching(before.intent) if intent is Intent.GUIDELINE else intent,
            language,
            # After a single keyword there is nothing to ask again.
            query=" ".join((*subject, *(asked or (before.topic if len(before.query.split()) > 2 else ())))),
            topic=subject,
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
    urgent = intent is Intent.GUIDELINE and bool(URGENT.search(text))
    query = " ".join(subject or content) if intent is Intent.PRODUCTS or not content else question
    if urgent:
        query = f"{FIRST_AID[language]}: {question}"
    return Understanding(
        intent,
        language,
        query=query,
        topic=subject,
        aspects=aspects,
        wants_number=wants_number,
        vague=not subject and not urgent,
        urgent=urgent,
        translated=bool(wanted),
    )


def asks_for_the_past(question: str) -> bool:
    """Whether a question is about what was said before, rather than about what holds."""
    return bool(PAST.search(" ".join(question[:MOST_CHARACTERS].casefold().split())))


def _about_the_past(question: str) -> Understanding:
    text = " ".join(question[:MOST_CHARACTERS].casefold().split())
    topic = ABOUT.sub("", text) if ABOUT.match(text) else PAST.sub(" ", text)
    words = tuple(word for word in WORD.findall(topic) if word not in FILLERS and word not in PAST_WORDS)
    return Understanding(Intent.PAST, language_of(text) or "nl", query=" ".join(words), topic=words)


def language_of(text: str) -> str | None:
    words = WORD.findall(text)
    dutch = sum(word in DUTCH for word in words)
    english = sum(word in ENGLISH for word in words)
    return None if dutch == english else "nl" if dutch > english else "en"


def _searching(intent: Intent) -> Intent:
    return intent if intent in (Intent.GUIDELINE, Intent.PRODUCTS, Intent.ITEM, Intent.MORE) else Intent.GUIDELINE


def _listed_product(text: str, words: Sequence[str], *, names: Sequence[str]) -> str:
    """The product of the list before that the question points at."""
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
