"""What every request in one of OpenAI's shapes has in common, how it is refused, and what its answers share."""

import json
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from dataclasses import replace
from functools import cached_property, wraps
from typing import Any, Literal, TypeVar
from uuid import UUID

from django.conf import settings
from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponseBase, JsonResponse, StreamingHttpResponse
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agentbridge.citations import MARKER
from agentbridge.said import HistoryItem
from conversations.api.access import Client, check_size, header, person_of
from conversations.api.contents import Contents, Part, read_contents
from conversations.api.openwebui import Thread, task_of
from conversations.background import performed
from conversations.branches import spoken
from conversations.errors import (
    BadRequestError,
    DatabaseAwayError,
    EviError,
    OwnFaultError,
    UnsupportedMediaTypeError,
)
from conversations.events import Event, Progress, Reply, Started
from conversations.openings import TurnRequest

logger = logging.getLogger(__name__)

View = Callable[..., Coroutine[Any, Any, HttpResponseBase]]


class ChatMessage(BaseModel):
    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | list[Part] | None = None

    @cached_property
    def contents(self) -> Contents:
        return read_contents(self.content)

    @property
    def text(self) -> str:
        return self.contents.text


class ResponseFormat(BaseModel):
    type: str = "text"


class Asking(BaseModel):
    """What EVI uses of a request of any kind. The rest is ignored: EVI has tools and settings of its own."""

    model_config = ConfigDict(extra="ignore")

    stream: bool | None = None
    user: str | None = Field(None, max_length=255)
    store: bool | None = None
    temperature: float | None = Field(None, ge=0, le=2)
    top_p: float | None = Field(None, ge=0, le=1)
    # Not used, because EVI has its own; but they tell OpenWebUI's page from a program.
    tools: list[Any] | None = None

    @property
    def model_settings(self) -> dict[str, Any]:
        """What is handed on to the model, in PydanticAI's names."""
        return {name: value for name, value in self._wanted().items() if value is not None}

    def _wanted(self) -> dict[str, Any]:
        return {"temperature": self.temperature, "top_p": self.top_p}


Body = TypeVar("Body", bound=Asking)


def within_limits(messages: list[ChatMessage]) -> list[ChatMessage]:
    if len(messages) > settings.EVI.max_messages:
        raise ValueError(f"at most {settings.EVI.max_messages} messages")
    if any("\0" in message.text for message in messages):
        raise ValueError("text cannot contain NUL characters")
    return messages


def check_length(turn: TurnRequest, *, param: str) -> None:
    """The question is new. What was said before it was let in when it was said, here or by another model."""
    most = settings.EVI.max_message_chars
    if len(turn.prompt) > most and not turn.continues:
        raise BadRequestError(f"{param}: a message has at most {most} characters", param=param)


def openai_errors(view: View) -> View:
    """Every refusal in OpenAI's shape."""

    @wraps(view)
    async def wrapped(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        try:
            return await view(request, *args, **kwargs)
        except EviError as error:
            refused = error
        except (OperationalError, InterfaceError):
            logger.exception("The database is away")
            refused = DatabaseAwayError()
        except Exception:
            # A page of HTML would be of no use to a program.
            logger.exception("A request failed")
            refused = OwnFaultError()
        return refusal(refused, in_dutch=bool(header(request, "X-OpenWebUI-Chat-Id")))

    return wrapped


def turn_of(
    request: HttpRequest, body: Asking, messages: list[ChatMessage], *, client: Client, thread: Thread, param: str
) -> TurnRequest:
    person = person_of(request, user=body.user)
    question = question_of([each for each in messages if each.role in ("user", "assistant")], param=param)
    return replace(
        question,
        instructions="\n\n".join(each.text for each in messages if each.role in ("system", "developer")),
        session_id=thread.session_id,
        external_id=thread.external_id,
        lifetime=thread.lifetime,
        channel=thread.channel,
        owner_id=client.owner_id,
        user_id=person.user_id,
        person=person.about,
        in_line=client.in_line,
        create_unknown=thread.is_made_up or settings.EVI.unknown_session == "create",
        # A client that sends one message to a session leaves the history to EVI.
        is_whole_thread=thread.is_replayed or bool(question.history),
        store=body.store is not False,
        idempotency_key=request.headers.get("Idempotency-Key", "")[:255],
        is_retry=request.headers.get("X-Stainless-Retry-Count", "0") not in ("", "0"),
        model_settings=body.model_settings,
    )


def background_call(
    request: HttpRequest, body: Asking, messages: list[ChatMessage], *, turn: TurnRequest, param: str
) -> AsyncGenerator[Event] | None:
    """The answer to what a client asks for its own use, if this is such a call."""
    said = [each for each in messages if each.role not in ("system", "developer")]
    task = task_of(
        request,
        prompt=turn.prompt,
        told=turn.instructions,
        is_alone=len(said) == 1 and not body.tools,
        is_streamed=bool(body.stream),
    )
    if task:
        # Its prompt repeats a good part of the conversation, and may be as long as that is.
        return performed(task, turn)
    check_length(turn, param=param)
    return None


def read_body(request: HttpRequest, kind: type[Body]) -> Body:
    if request.content_type != "application/json":
        raise UnsupportedMediaTypeError("Send JSON, with the header 'Content-Type: application/json'.")
    check_size(request)
    try:
        return kind.model_validate_json(request.body)
    except ValidationError as error:
        problem = error.errors()[0]
        where = ".".join(map(str, problem["loc"])) or None
        raise BadRequestError(f"{where or 'The body'}: {problem['msg']}", param=where) from error


def question_of(messages: list[ChatMessage], *, param: str) -> TurnRequest:
    """The question, which comes last, and what was said before it. Or an answer comes last, of which more is wanted.

    Tool calls and their results are not among it: they belong to tools that EVI does not have.
    """
    said = [message for message in messages if spoken(message.text)]
    asked = next((message for message in reversed(said) if message.role == "user"), None)
    if asked is None:
        raise BadRequestError("There is no message of the user with text in it.", param=param)
    continues = said[-1].role == "assistant"
    earlier = said if continues else said[:-1]
    return TurnRequest(
        prompt=asked.contents.text,
        images=() if continues else asked.contents.images,
        files=asked.contents.files,
        attached_text=asked.contents.attached_text[: settings.EVI.max_message_chars],
        history=tuple(HistoryItem(message.role, message.text, message.contents.images) for message in earlier),
        continues=continues,
    )


async def begun(events: AsyncGenerator[Event], *, shows_events: bool) -> tuple[Started, Event]:
    """How a turn begins. What fails before there is anything to show still gets a status of its own."""
    started = await anext(events)
    assert isinstance(started, Started)
    first = await anext(events)
    while isinstance(first, Progress) and not shows_events:
        first = await anext(events)
    return started, first


def event_stream(lines: AsyncIterator[bytes], *, session_id: UUID | None) -> StreamingHttpResponse:
    headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no", **session_header(session_id)}
    return StreamingHttpResponse(lines, content_type="text/event-stream; charset=utf-8", headers=headers)


def url_citations(reply: Reply) -> list[dict[str, Any]]:
    """Where the text cites a source that has an address, in OpenAI's own words."""
    # An imported answer brings whatever its file had.
    cited = {each["marker"]: each for each in reply.citations if each.get("url") and type(each.get("marker")) is int}
    return [
        {
            "start_index": match.start(),
            "end_index": match.end(),
            "url": cited[marker]["url"],
            "title": cited[marker].get("document_title", ""),
        }
        for match in MARKER.finditer(reply.text)
        if (marker := int(match[1])) in cited
    ]


def usage(reply: Reply) -> dict[str, int]:
    return {
        "prompt_tokens": reply.input_tokens,
        "completion_tokens": reply.output_tokens,
        "total_tokens": reply.input_tokens + reply.output_tokens,
    }


def session_header(session_id: object) -> dict[str, str]:
    return {"X-Session-ID": str(session_id)} if session_id else {}


def error_body(error: EviError, *, in_dutch: bool = False) -> dict[str, Any]:
    """`in_dutch` where a person reads it and not a program."""
    kind = "invalid_request_error" if error.status < 500 else "server_error"
    message = error.in_dutch or error.message if in_dutch else error.message
    return {"error": {"message": message, "type": kind, "param": error.param, "code": error.code}}


def refusal(error: EviError, *, in_dutch: bool = False) -> JsonResponse:
    return JsonResponse(error_body(error, in_dutch=in_dutch), status=error.status, headers=error.headers)


def method_not_allowed(allowed: str) -> JsonResponse:
    error = {"message": f"Use {allowed} here.", "type": "invalid_request_error", "param": None, "code": None}
    return JsonResponse({"error": error}, status=405, headers={"Allow": allowed})


def sse(data: dict[str, Any]) -> bytes:
    return f"data: {json.dumps(data, ensure_ascii=False, separators=(',', ':'))}\n\n".encode()
