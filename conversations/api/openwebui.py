"""What OpenWebUI tells about itself: which chat, which task; and what it alone understands in an answer."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.conf import settings
from django.http import HttpRequest

from agentbridge.background import merged_question
from conversations.api.access import UUID4, header
from conversations.errors import BadRequestError, InvalidSessionIdError
from conversations.events import Event, Progress, Reply
from conversations.models import Channel

# Chats that OpenWebUI does not save, and those in its channels.
OTHER_CHAT_IDS = re.compile(r"(temporary|local|channel):[\x21-\x7e]+")
TEMPORARY = ("temporary:", "local:")
CHANNEL = "channel:"
MAX_ID_CHARS = 255
# One of the tools that its own page offers with every question.
BUILT_IN_TOOL = "get_current_timestamp"
TASK = "### Task:"
# How the prompts of its background calls go on. The heading alone says nothing: it also stands above questions about
# files.
TASKS = {
    "Generate a concise title": "title_generation",
    "Generate a concise, 3-5 word title": "title_generation",
    "Generate 1-3 broad tags": "tags_generation",
    "Predict 3-5 useful messages": "follow_up_generation",
    "Suggest 3-5 relevant follow-up": "follow_up_generation",
    "Analyze the chat history to determine": "query_generation",
    "You are an autocompletion system": "autocomplete_generation",
    "Generate a detailed prompt for am image": "image_prompt_generation",
    "Summarize the conversation history that will be compacted": "context_compaction",
}
# And those without that heading: how they begin, and what the model is told with them.
OTHER_TASKS = (
    ("Your task is to reflect the speaker's likely facial expression", "", "emoji_generation"),
    ("Review the completed conversation turn", "private memory reviewer", "memory_review"),
    ("Query: ", "choose and return the correct tool(s)", "function_calling"),
    ("History:\n", "choose and return the correct tool(s)", "function_calling"),
)


@dataclass(frozen=True)
class Thread:
    """Which conversation a request belongs to, and whether the client shows more than text."""

    session_id: UUID | None = None
    external_id: str = ""
    is_openwebui: bool = False
    # An id that OpenWebUI hands over is its own, as is one that a client made up for a new session; no need to know it.
    is_made_up: bool = False
    channel: Channel = Channel.API
    shows_events: bool = False

    @property
    def is_replayed(self) -> bool:
        """Whether each request has the whole thread. From a channel comes the question alone."""
        return self.is_openwebui and not self.external_id.startswith(CHANNEL)

    @property
    def lifetime(self) -> timedelta | None:
        is_temporary = self.external_id.startswith(TEMPORARY)
        return timedelta(hours=settings.EVI.temporary_hours) if is_temporary else None


def thread_of(request: HttpRequest, *, tools: Sequence[Any]) -> Thread:
    chat_id, named = header(request, "X-OpenWebUI-Chat-Id"), header(request, "X-Session-ID")
    # A connection that is told to send its task says so even where there is none.
    has_signs = "X-Task" in request.headers or offers_built_in_tools(tools)
    is_openwebui = bool(chat_id) or has_signs or bool(OTHER_CHAT_IDS.fullmatch(named))
    if named and not UUID4.fullmatch(named) and not OTHER_CHAT_IDS.fullmatch(named):
        raise InvalidSessionIdError
    thread_id = named or chat_id
    if len(thread_id) > MAX_ID_CHARS or not thread_id.isprintable():
        raise BadRequestError(
            f"A chat id has at most {MAX_ID_CHARS} characters, all of them printable.", param="X-OpenWebUI-Chat-Id"
        )
    is_uuid = bool(UUID4.fullmatch(thread_id))
    is_terminal = header(request, "X-EVI-Client") == Channel.CLI and not is_openwebui
    return Thread(
        session_id=UUID(thread_id) if is_uuid else None,
        external_id=(thread_id.lower() if is_uuid else thread_id) if is_openwebui else "",
        is_openwebui=is_openwebui,
        is_made_up=is_openwebui or header(request, "X-EVI-New-Session") == "true",
        channel=Channel.OPENWEBUI if is_openwebui else Channel.CLI if is_terminal else Channel.API,
        # Programs can come through OpenWebUI as well, and would stumble over them: they have no chat and no such tools.
        shows_events=is_terminal or (is_openwebui and bool(thread_id or offers_built_in_tools(tools))),
    )


def offers_built_in_tools(tools: Sequence[Any]) -> bool:
    functions = (tool.get("function", tool) for tool in tools if isinstance(tool, dict))
    return any(isinstance(function, dict) and function.get("name") == BUILT_IN_TOOL for function in functions)


def task_of(request: HttpRequest, *, prompt: str, told: str, is_alone: bool, is_streamed: bool) -> str:
    """Which of its background calls this is, if any. `is_alone`: nothing was said before it, and it has no tools.

    What the model is `told` says little: the instructions of a model that an administrator made come with every call.
    """
    task = header(request, "X-Task")
    # A connection that is told to send its task says with an empty one that there is none, whatever the words are.
    says_so = bool(task) or request.headers.get("X-Task", "-").strip() == ""
    if says_so or not is_alone:
        return task
    if merged_question(prompt):
        # The only one that a person reads, and therefore streamed.
        return "moa_response_generation"
    if is_streamed:
        return ""
    if prompt.lstrip().startswith(TASK):
        purpose = prompt.lstrip().removeprefix(TASK).lstrip()
        return next((task for beginning, task in TASKS.items() if purpose.startswith(beginning)), "")
    return next((task for beginning, said, task in OTHER_TASKS if prompt.startswith(beginning) and said in told), "")


class Extras:
    """What OpenWebUI and EVI's terminal are told beside the words: what is being done, and the sources."""

    def __init__(self, shows_events: bool) -> None:
        self.shows_events = shows_events
        self._when_done = ""

    def beside(self, event: Event) -> Iterator[dict[str, Any]]:
        """What comes with the next event of a turn."""
        if not self.shows_events:
            return
        # What was being done is done when something else happens.
        yield from self.closing()
        if isinstance(event, Progress):
            self._when_done = event.done
            yield _status(event.text, done=False)
        if isinstance(event, Reply):
            for citation in event.citations:
                yield {"event": {"type": "source", "data": source_of(citation)}}

    def closing(self) -> Iterator[dict[str, Any]]:
        """What is still shown as being done, told as done; a turn that fails comes to nothing else."""
        if self._when_done:
            yield _status(self._when_done, done=True)
            self._when_done = ""


def _status(text: str, *, done: bool) -> dict[str, Any]:
    return {"event": {"type": "status", "data": {"description": text, "done": done}}}


def source_of(citation: Mapping[str, Any]) -> dict[str, Any]:
    """A citation as OpenWebUI shows it. Its id is its own, or two pieces of one guideline would share a number."""
    name = " – ".join(str(part) for part in (citation.get("document_title"), citation.get("section")) if part)
    source_id = citation.get("chunk_id", "")
    about = {"id": source_id, "name": name, "url": citation.get("url", "")}
    return {
        "source": about,
        "document": [citation.get("excerpt", "")],
        "metadata": [
            {
                "source": source_id,
                "name": name,
                "norm": citation.get("norm", ""),
                "version": citation.get("version", ""),
            }
        ],
        "distances": [citation.get("similarity", 0)],
    }
