"""The model that needs no key and no network: it uses the same tools as a real one, and answers with what they find."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files
from typing import Any

from django.utils import timezone
from pydantic_ai.messages import ModelMessage, TextPart, ToolCallPart, ToolReturnPart, UserContent, UserPromptPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, DeltaToolCalls, FunctionModel

from agentbridge import extracts
from agentbridge.memory import Proposal, facts_in
from agentbridge.periods import period_in
from agentbridge.relevance import are_others, is_coincidence, mentions
from agentbridge.said import HistoryItem
from agentbridge.understanding import Intent, Understanding, understand

NAME = "offline"
# How any model is asked to go on with its last answer.
CONTINUE = (files("agentbridge") / "prompts" / "continue.md").read_text().strip()

# About the person, and not about what EVI knows.
PERSONAL = (Intent.REMEMBER, Intent.ABOUT_ME)


def offline_model() -> FunctionModel:
    return FunctionModel(stream_function=_respond, model_name=NAME)


@dataclass
class _Conversation:
    """What was said, what is asked, and what the tools have returned for it."""

    said: list[HistoryItem] = field(default_factory=list)
    question: str = ""
    returned: dict[str, Any] = field(default_factory=dict)
    # What was looked up for it, so that nothing is looked up twice.
    asked: list[tuple[str, str, str]] = field(default_factory=list)
    # The answer to go on with, where that is what is asked.
    so_far: str = ""
    # What is known about the person.
    facts: tuple[str, ...] = ()


async def _respond(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str | DeltaToolCalls]:
    conversation = _read(messages)
    conversation.facts = facts_in(info.instructions or "")
    tools = {tool.name for tool in info.function_tools}
    meant = understand(
        conversation.question,
        said=conversation.said,
        facts=conversation.facts,
        has_past="search_sessions" in tools,
    )
    if call := _tool_call(meant, conversation, tools=tools):
        name, arguments = call
        yield {0: DeltaToolCall(name=name, json_args=json.dumps(arguments))}
        return
    # Weighing sentences takes the processor a moment, and others are waiting for theirs.
    text = await asyncio.to_thread(_going_on if conversation.so_far else _answer, meant, conversation)
    for word in re.findall(r"\s*\S+\s*", text):
        yield word


def _read(messages: Sequence[ModelMessage]) -> _Conversation:
    conversation = _Conversation()
    for message in messages:
        for part in message.parts:
            match part:
                case UserPromptPart(content=content):
                    if conversation.question:
                        conversation.said.append(HistoryItem("user", conversation.question))
                    conversation.question = _text_of(content)
                    conversation.returned.clear()
                    conversation.asked.clear()
                case ToolCallPart(tool_name=tool):
                    conversation.asked.append(_looked_up(tool, part.args_as_dict()))
                case TextPart(content=content):
                    # An answer in two pieces has one question.
                    if conversation.question:
                        conversation.said.append(HistoryItem("user", conversation.question))
                    conversation.said.append(HistoryItem("assistant", content))
                    conversation.question = ""
                case ToolReturnPart(tool_name=tool, content=content):
                    conversation.returned[tool] = content
    if conversation.question == CONTINUE and len(conversation.said) > 1:
        asked, answered = conversation.said[-2:]
        del conversation.said[-2:]
        conversation.question, conversation.so_far = asked.content, answered.content
    return conversation


def _text_of(content: str | Sequence[UserContent]) -> str:
    if isinstance(content, str):
        return content
    return " ".join(part for part in content if isinstance(part, str))


def _tool_call(
    meant: Understanding, conversation: _Conversation, *, tools: Collection[str]
) -> tuple[str, dict[str, str]] | None:
    """What has to be looked up before the question can be answered, or remembered."""
    returned = conversation.returned
    if meant.fact and "remember" in tools and "remember" not in returned:
        return "remember", {"fact": meant.fact}
    calls: list[tuple[str, dict[str, str]]] = []
    in_guidelines = "search_guidelines", {"query": meant.query, "language": meant.language}
    if meant.intent is Intent.PAST:
        calls = [("search_sessions", {"query": meant.query})]
        if period := period_in(conversation.question, today=timezone.localdate()):
            days = {"since": period.since.isoformat(), "until": period.until.isoformat()}
            calls.insert(0, ("search_sessions", {"query": meant.query, **days}))
            if returned.get("search_sessions"):
                # What was said at another time matters only where nothing was said then.
                del calls[1:]
    elif meant.intent is Intent.WHO or (meant.intent not in PERSONAL and meant.vague and not meant.query):
        calls = [("list_subjects", {"language": meant.language})]
    elif meant.intent in (Intent.PRODUCTS, Intent.ITEM):
        calls = [("search_products", {"query": meant.query})]
        if _has_no_product(meant, returned.get("search_products")):
            # Perhaps it was no product that was asked for.
            calls.append(in_guidelines)
    elif meant.intent in (Intent.GUIDELINE, Intent.MORE, Intent.SOURCE):
        calls = [in_guidelines]
        if meant.wider and _says_nothing(meant, returned.get("search_guidelines"), before=_last_answer(conversation)):
            # Perhaps it is about what was talked of before.
            calls.append(("search_guidelines", {"query": meant.wider, "language": meant.language}))
    return next((call for call in calls if _looked_up(*call) not in conversation.asked), None)


def _looked_up(tool: str, arguments: Mapping[str, Any]) -> tuple[str, str, str]:
    return tool, str(arguments.get("query", "")), str(arguments.get("since", ""))


def _has_no_product(meant: Understanding, found: Any) -> bool:
    # A product that was listed before is looked up by its name.
    return isinstance(found, list) and (not found or (meant.intent is Intent.PRODUCTS and are_others(meant, found)))


def _was_widened(meant: Understanding, conversation: _Conversation) -> bool:
    return bool(meant.wider) and ("search_guidelines", meant.wider, "") in conversation.asked


def _says_nothing(meant: Understanding, found: Any, *, before: str) -> bool:
    if not isinstance(found, list):
        return False
    return is_coincidence(meant, found) or (meant.repeated and not extracts.says_the_same(found, said=before))


def _last_answer(conversation: _Conversation) -> str:
    return conversation.said[-1].content if conversation.said else ""


def _going_on(meant: Understanding, conversation: _Conversation) -> str:
    """What is left to say: the rest of an answer that broke off, or more than the answer had."""
    if rest := extracts.rest_of(_answer(meant, conversation), so_far=conversation.so_far).rstrip():
        return rest
    found = conversation.returned.get("search_guidelines")
    if not found:
        return " " + extracts.phrase("no_more", language=meant.language)
    return " " + extracts.from_guidelines(meant, found, already=conversation.so_far)


def _answer(meant: Understanding, conversation: _Conversation) -> str:
    if meant.intent is Intent.ABOUT_ME:
        return extracts.about_person(conversation.facts, language=meant.language)
    remembered = _of_remembering(meant, conversation.returned.get("remember")) if meant.fact else ""
    if meant.intent is Intent.REMEMBER:
        return remembered
    answer = _of_knowledge(meant, conversation)
    return f"{remembered}\n\n{answer}" if remembered else answer


def _of_remembering(meant: Understanding, returned: Any) -> str:
    if not isinstance(returned, Proposal):
        return extracts.phrase("not_remembered", language=meant.language)
    return extracts.phrase(f"remember_{returned.outcome}", language=meant.language, name=returned.fact.rstrip("."))


def _of_knowledge(meant: Understanding, conversation: _Conversation) -> str:
    language, returned = meant.language, conversation.returned
    if meant.emergency:
        found = returned.get("search_guidelines")
        # Whom to call is said even where nothing can be looked up.
        return extracts.at_once(meant.emergency, found if isinstance(found, list) else [], language=language)
    if any(isinstance(found, str) for found in returned.values()):
        return extracts.phrase("broken", language=language)
    match meant.intent:
        case Intent.GREETING:
            return extracts.phrase("greeting", language=language)
        case Intent.THANKS:
            return extracts.phrase("thanks", language=language)
        case Intent.WHO:
            return extracts.phrase("who", language=language, subjects=returned["list_subjects"])
        case Intent.PAST:
            # Nothing is looked up after what was found.
            searches = sum(tool == "search_sessions" for tool, *_ in conversation.asked)
            return extracts.from_the_past(meant, returned["search_sessions"], is_of_another_time=searches > 1)
    if "list_subjects" in returned:
        return extracts.phrase("unclear", language=language, subjects=returned["list_subjects"])
    products = returned.get("search_products")
    if products and not _has_no_product(meant, products):
        tell = extracts.about_product if meant.intent is Intent.ITEM else extracts.from_products
        return tell(meant, products)
    already = "\n".join(item.content for item in conversation.said if item.role == "assistant")
    found = returned["search_guidelines"]
    if _was_widened(meant, conversation):
        # Of what was talked of before, what says something of this.
        asked = replace(meant, query=conversation.question)
        found = [one for one in found if meant.translated or mentions(asked, f"{one.title} {one.section} {one.text}")]
        meant = replace(meant, query=meant.wider)
    if meant.intent is Intent.SOURCE:
        return extracts.sources_of(already, found, language=language)
    answer = extracts.from_guidelines(
        meant,
        found,
        already=already if meant.intent is Intent.MORE else "",
        repeating=_last_answer(conversation) if meant.repeated else "",
    )
    if meant.foreign:
        return f"{extracts.in_other_words(meant.foreign)}\n\n{answer}"
    if "search_products" in returned and returned["search_guidelines"]:
        return f"{extracts.phrase('no_products', language=language)} {answer}"
    return answer
