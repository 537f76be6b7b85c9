"""What a conversation was about: in a model's words, or in the conversation's own where there is no model."""

import asyncio
import re
from collections import Counter
from collections.abc import Sequence
from importlib.resources import files

from django.conf import settings
from django.utils.text import Truncator
from pydantic_ai import Agent
from pydantic_ai.models import Model

from agentbridge import echo, offline
from agentbridge.chunks import sentences
from agentbridge.citations import without_markers
from agentbridge.injection import safe
from agentbridge.patterns import LISTED, WORD
from agentbridge.phrases import PHRASES
from agentbridge.said import HistoryItem
from agentbridge.understanding import language_of
from agentbridge.words import ASPECTS, FILLERS, GREETINGS, PAST_WORDS, PRODUCT_WORDS, THANKS

MAX_CHARS = 1500
MOST_SUBJECTS = 3
MOST_QUESTIONS = 4
MOST_ANSWERS = 3
MOST_PRODUCTS = 3
MAX_QUOTED_CHARS = 160
MAX_ANSWER_CHARS = 240
PROMPT = (files("agentbridge") / "prompts" / "summary.md").read_text()
# Says nothing about what a conversation was about.
EMPTY = FILLERS | ASPECTS | PRODUCT_WORDS | PAST_WORDS | GREETINGS | THANKS
MARKUP = re.compile(r"[*_`#>]+")

TEXTS = {
    "nl": {
        "subjects": "Het ging over {}.",
        "asked": "Gevraagd of verteld: {}.",
        "answered": "Geantwoord: {}",
        "products": "Genoemde producten: {}.",
        "and": "en",
    },
    "en": {
        "subjects": "This was about {}.",
        "asked": "Asked or told: {}.",
        "answered": "Answered: {}",
        "products": "Products mentioned: {}.",
        "and": "and",
    },
}


async def summarize(said: Sequence[HistoryItem], *, transcript: str, model: Model) -> str:
    """The summary of what was said. A model is given the transcript; what it raises is the caller's to handle."""
    if model.model_name in (offline.NAME, echo.NAME):
        # Many conversations at once take the processor a moment.
        return await asyncio.to_thread(_in_its_own_words, said)
    async with asyncio.timeout(settings.EVI.model_timeout):
        written = (await Agent(model, instructions=PROMPT).run(safe(transcript))).output
    return Truncator(safe(without_markers(written)).strip()).chars(MAX_CHARS)


def _in_its_own_words(said: Sequence[HistoryItem]) -> str:
    """What was asked and answered most to the point, in the words and the language of the conversation."""
    questions = [(place, item.content) for place, item in enumerate(said) if item.role == "user"]
    asked = [(place, text) for place, text in questions if _content(text)] or questions
    language = _language([text for _, text in asked])
    texts = TEXTS[language]
    chosen = [*asked[:1], *asked[1:][-(MOST_QUESTIONS - 1) :]]
    quoted = dict.fromkeys(f"“{_shortened(text)}”" for _, text in chosen)
    lines = [texts["asked"].format(_listed(list(quoted), texts["and"]))] if quoted else []
    if subjects := _subjects([text for _, text in asked]):
        lines.insert(0, texts["subjects"].format(_listed(subjects, texts["and"])))
    answers = [_answer_after(place, said) for place, _ in chosen]
    told = list(dict.fromkeys(filter(None, map(_main_sentence, answers))))[:MOST_ANSWERS]
    if told:
        lines.append(texts["answered"].format(" ".join(told)))
    products = list(dict.fromkeys(name for answer in answers for name in LISTED.findall(answer)))[:MOST_PRODUCTS]
    if products:
        lines.append(texts["products"].format(_listed(products, texts["and"])))
    return Truncator(safe(" ".join(lines)).strip()).chars(MAX_CHARS)


def _language(asked: Sequence[str]) -> str:
    """That of most of the questions; of the last of them where there are as many of each."""
    spoken = Counter(found for text in reversed(asked) if (found := language_of(text.casefold())))
    return max(spoken, key=lambda language: spoken[language], default="nl")


def _content(text: str) -> list[str]:
    return [word for word in WORD.findall(text.casefold()) if word not in EMPTY and not word[0].isdigit()]


def _subjects(asked: Sequence[str]) -> list[str]:
    """The words that most of the questions turn on, as they were first written."""
    # In how many questions, so that a long text that was pasted does not decide.
    counts = Counter(word for text in asked for word in dict.fromkeys(_content(text)))
    most = max(counts.values(), default=0)
    repeated = [word for word, count in counts.items() if count > 1] if most > 1 else []
    return (repeated or list(counts))[:MOST_SUBJECTS]


def _answer_after(place: int, said: Sequence[HistoryItem]) -> str:
    following = said[place + 1 : place + 2]
    return following[0].content if following and following[0].role == "assistant" else ""


def _main_sentence(answer: str) -> str:
    """The first sentence that answers something; EVI's own phrases say nothing about the conversation."""
    for line in without_markers(answer).split("\n"):
        if line.strip() in STOCK or LISTED.match(line):
            return ""
        for sentence in sentences(MARKUP.sub("", line).strip()):
            if len(sentence.split()) > 3 and sentence not in STOCK and not sentence.endswith((":", "?")):
                return Truncator(sentence).chars(MAX_ANSWER_CHARS)
    return ""


def _shortened(text: str) -> str:
    return Truncator(" ".join(MARKUP.sub("", text).split())).chars(MAX_QUOTED_CHARS)


def _listed(items: Sequence[str], conjunction: str) -> str:
    *most, last = items
    return f"{', '.join(most)} {conjunction} {last}" if most else last


STOCK = frozenset(
    text
    for phrases in PHRASES.values()
    for phrase in phrases.values()
    for text in (phrase, *sentences(phrase))
    if "{" not in text
)
