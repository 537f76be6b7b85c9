"""What a client asks for behind the scenes: a title, tags, what one might ask next. Never an error."""

import asyncio
import json
import logging
import re
from collections.abc import Sequence
from functools import partial
from typing import Any

from django.conf import settings
from pydantic_ai import Agent
from pydantic_ai.models import Model

from agentbridge import echo, offline, retrieval
from agentbridge.citations import MARKER, without_markers
from agentbridge.database import in_database
from agentbridge.patterns import WORD
from agentbridge.question_vectors import Embedding, ahead
from agentbridge.said import HistoryItem
from agentbridge.understanding import Intent, language_of, understand
from agentbridge.words import FILLERS

logger = logging.getLogger(__name__)

SPEAKER = re.compile(r"^(USER|ASSISTANT): ?", re.MULTILINE)
IN_JSON = frozenset(
    [
        *(f"{name}_generation" for name in ("title", "tags", "follow_up", "query", "image_prompt", "autocomplete")),
        "function_calling",
        "memory_review",
    ]
)
# What is answered in words, and the answer without a model. Where it has no summary, OpenWebUI makes extracts itself.
IN_WORDS = {"emoji_generation": "🙂", "context_compaction": ""}
TASKS = IN_JSON | IN_WORDS.keys()
# Answers of several models, to be merged into one.
MERGING = 'You have been provided with a set of responses from various models to the latest user query: "'
END_OF_QUESTION = '"\n\nYour task is to synthesize these responses'
ASKING = frozenset(["hoe", "wat", "how", "what"])
MOST_TITLE_WORDS = 5
MOST_TITLE_CHARS = 60
# Whatever is pasted below it, the beginning of a question says what it is about.
MOST_ASKED_CHARS = 1000
MOST_FOLLOW_UPS = 3
MOST_TAGS = 3

TEXTS = {
    "nl": {
        "title": "Nieuw gesprek",
        "tag": "Veilig werken",
        "no_tag": "Algemeen",
        "products": "Welke producten heb je daarvoor?",
        "more": "Vertel meer over {}",
        "who": "Wat kun je voor mij doen?",
    },
    "en": {
        "title": "New conversation",
        "tag": "Safe work",
        "no_tag": "General",
        "products": "Which products do you have for that?",
        "more": "Tell me more about {}",
        "who": "What can you do for me?",
    },
}


async def perform(task: str, prompt: str, *, model: Model, instructions: str = "") -> str:
    """What one of TASKS expects: from the model, or by rules where there is none or it does not manage."""
    if model.model_name not in (offline.NAME, echo.NAME):
        try:
            async with asyncio.timeout(settings.EVI.model_timeout):
                answered = (await Agent(model, instructions=instructions or None).run(prompt)).output
            if task in IN_WORDS:
                return answered
            begin, end = answered.find("{"), answered.rfind("}") + 1
            if 0 <= begin < end:
                json.loads(answered[begin:end])
                return answered[begin:end]
        except Exception:
            # Whatever a provider raises: nobody waits for a title, and there is another way to make one.
            logger.warning("A background call was answered by rules", exc_info=True)
    if task in IN_WORDS:
        return IN_WORDS[task]
    embedding = await ahead(partial(_embedding_for, task=task), prompt)
    return json.dumps(await in_database(_by_rules, task, prompt, embedding), ensure_ascii=False)


def merged_question(prompt: str) -> str:
    """The question whose answers are to be merged, if that is what a prompt asks for."""
    if not prompt.startswith(MERGING):
        return ""
    question, ends, _ = prompt.removeprefix(MERGING).partition(END_OF_QUESTION)
    return question if ends else ""


def conversation_in(prompt: str) -> list[HistoryItem]:
    """What was said, as the prompt of a background call tells it."""
    _, begins, told = prompt.partition("<chat_history>")
    told, ends, _ = told.rpartition("</chat_history>")
    _, *pieces = SPEAKER.split(told.removeprefix("\n") if begins and ends else f"USER: {prompt}")
    items = (
        HistoryItem("user" if speaker == "USER" else "assistant", _without_files(text).strip())
        for speaker, text in zip(pieces[::2], pieces[1::2], strict=True)
    )
    return [item for item in items if item.content]


def _without_files(text: str) -> str:
    # From place to place: an expression looks for an end from every beginning, which takes minutes where there is none.
    kept, position = [], 0
    while (begin := text.find("<attached_files>", position)) >= 0:
        end = text.find("</attached_files>", begin)
        if end < 0:
            break
        kept.append(text[position:begin])
        position = end + len("</attached_files>")
    return "".join([*kept, text[position:]])


def _embedding_for(prompt: str, *, task: str) -> Embedding | None:
    """What is looked up for a task, on its way to a vector."""
    said = conversation_in(prompt)
    is_looked_up = task == "tags_generation" or (task == "follow_up_generation" and _is_known(said))
    query = _standing_alone(said) if is_looked_up else ""
    return retrieval.embedding_of(query) if query else None


def _by_rules(task: str, prompt: str, embedding: Embedding | None) -> dict[str, Any]:
    said = conversation_in(prompt)
    asked = [item.content for item in said if item.role == "user"] or [""]
    language = next((found for text in reversed(asked) if (found := language_of(text.casefold()))), "nl")
    match task:
        case "title_generation":
            return {"title": title_of(asked[0]) or TEXTS[language]["title"]}
        case "tags_generation":
            return {"tags": _tags(said, embedding, language=language)}
        case "follow_up_generation":
            return {"follow_ups": _follow_ups(said, embedding, language=language)}
        case "query_generation":
            return {"queries": [query] if (query := _standing_alone(said)) else []}
        case "image_prompt_generation":
            return {"prompt": asked[-1]}
        case "autocomplete_generation":
            return {"text": ""}
        case "function_calling":
            # EVI has tools of its own.
            return {"tool_calls": []}
        case "memory_review":
            return {"operations": []}
    raise ValueError(task)


def title_of(question: str) -> str:
    """The question from its first word that says something; empty where none does."""
    words = WORD.findall(question[:MOST_ASKED_CHARS])
    begins = next((place for place, word in enumerate(words) if word.casefold() not in FILLERS), len(words))
    if 0 < begins < len(words) and words[begins - 1].casefold() in ASKING:
        # "Hoe hoog …" and "Wat kost …" say nothing without it.
        begins -= 1
    del words[:begins]
    del words[MOST_TITLE_WORDS:]
    while words and words[-1].casefold() in FILLERS:
        del words[-1]
    title = " ".join(words)[:MOST_TITLE_CHARS].strip()
    return title[:1].upper() + title[1:]


def _tags(said: Sequence[HistoryItem], embedding: Embedding | None, *, language: str) -> list[str]:
    hits = retrieval.search_guidelines(_standing_alone(said), language=language, embedding=embedding)
    titles = dict.fromkeys(hit.title for hit in hits if hit.language == language)
    return [TEXTS[language]["tag"], *list(titles)[: MOST_TAGS - 1]] if titles else [TEXTS[language]["no_tag"]]


def _follow_ups(said: Sequence[HistoryItem], embedding: Embedding | None, *, language: str) -> list[str]:
    """What else the guidelines say about it, and what there is to buy for it."""
    texts = TEXTS[language]
    *before, question = _asked(said)
    meant = understand(question.content, said=before)
    hits = (
        retrieval.search_guidelines(meant.query, language=language, limit=20, embedding=embedding)
        if meant.query and _is_known(said)
        else []
    )
    told = without_markers(" ".join(item.content for item in said)).casefold()
    quoted = [hit for hit in hits if hit.text[:60].casefold() in told]
    # The guideline that was quoted goes first; in others there is not much that one would ask next.
    subject = next((hit.title for hit in (*quoted, *hits)), "")
    sections = dict.fromkeys(
        hit.section
        for hit in sorted(hits, key=lambda hit: hit.title != subject)
        # What was quoted need not be asked for.
        if hit.language == language and hit.section and hit not in quoted
    )
    asks = [
        # A heading may be a question with an addition.
        f"{question}?" if mark else texts["more"].format(section[:1].lower() + section[1:])
        for section in sections
        if section.casefold() not in told
        for question, mark, _ in [section.partition("?")]
    ]
    if hits and meant.intent is not Intent.PRODUCTS:
        asks.insert(min(1, len(asks)), texts["products"])
    return asks[:MOST_FOLLOW_UPS] or [texts["who"]]


def _is_known(said: Sequence[HistoryItem]) -> bool:
    """Where no source was found for the question, none is known for what follows from it."""
    return bool(said) and said[-1].role == "assistant" and bool(MARKER.search(said[-1].content))


def _standing_alone(said: Sequence[HistoryItem]) -> str:
    *before, question = _asked(said)
    return understand(question.content, said=before).query


def _asked(said: Sequence[HistoryItem]) -> list[HistoryItem]:
    """The conversation up to its last question."""
    last = max((place for place, item in enumerate(said) if item.role == "user"), default=None)
    return list(said[: last + 1]) if last is not None else [HistoryItem("user", "")]
