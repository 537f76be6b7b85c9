"""`/v1`: the OpenAI-compatible surface. Anything that speaks OpenAI's chat completions can talk with EVI."""

import json
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from functools import wraps
from typing import Any, Literal
from uuid import uuid4

from django.conf import settings
from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponseBase, JsonResponse, StreamingHttpResponse
from django.views.decorators.csrf import csrf_exempt
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from agentbridge.citations import MARKER
from agentbridge.database import in_database
from agentbridge.history import HistoryItem
from conversations.api.access import authenticate, check_size, person_of, session_id_of
from conversations.errors import BadRequestError, DatabaseAwayError, EviError, NotFoundError, UnsupportedMediaTypeError
from conversations.openings import TurnRequest
from conversations.turns import Delta, Event, Reply, Started, run_turn, stream_turn

logger = logging.getLogger(__name__)

MODEL_ID = "evi"
# When this model came to be, as the list of models wants to know.
MODEL_CREATED = 1_763_424_000
FINGERPRINT = "evi-0.1.0"
View = Callable[..., Coroutine[Any, Any, HttpResponseBase]]


class Part(BaseModel):
    type: str
    text: str = ""


class ChatMessage(BaseModel):
    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | list[Part] | None = None

    @property
    def text(self) -> str:
        if isinstance(self.content, list):
            return "\n".join(part.text for part in self.content if part.type in ("text", "input_text", "refusal"))
        return self.content or ""


class StreamOptions(BaseModel):
    include_usage: bool = False


class ResponseFormat(BaseModel):
    type: str = "text"


class CompletionRequest(BaseModel):
    """What EVI uses of a request. The rest is accepted and ignored: EVI has tools and settings of its own."""

    model_config = ConfigDict(extra="ignore")

    messages: list[ChatMessage] = Field(min_length=1)
    stream: bool = False
    stream_options: StreamOptions | None = None
    user: str | None = Field(None, max_length=255)
    store: bool | None = None
    n: int | None = None
    response_format: ResponseFormat | None = None
    temperature: float | None = Field(None, ge=0, le=2)
    top_p: float | None = Field(None, ge=0, le=1)
    max_tokens: int | None = Field(None, ge=1)
    max_completion_tokens: int | None = Field(None, ge=1)
    seed: int | None = None
    stop: str | list[str] | None = None

    @property
    def model_settings(self) -> dict[str, Any]:
        """What is handed on to the model, in PydanticAI's names."""
        wanted = {
            "temperature": self.temperature,
            "top_p": self.top_p,
            "max_tokens": self.max_completion_tokens or self.max_tokens,
            "seed": self.seed,
            "stop_sequences": [self.stop] if isinstance(self.stop, str) else self.stop,
        }
        return {name: value for name, value in wanted.items() if value is not None}

    @field_validator("messages")
    @classmethod
    def _within_limits(cls, messages: list[ChatMessage]) -> list[ChatMessage]:
        if len(messages) > settings.EVI.max_messages:
            raise ValueError(f"at most {settings.EVI.max_messages} messages")
        if any(len(message.text) > settings.EVI.max_message_chars for message in messages):
            raise ValueError(f"a message has at most {settings.EVI.max_message_chars} characters")
        if any("\0" in message.text for message in messages):
            raise ValueError("text cannot contain NUL characters")
        return messages


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
        return JsonResponse(error_body(refused), status=refused.status, headers=refused.headers)

    return wrapped


@csrf_exempt
@openai_errors
async def chat_completions(request: HttpRequest) -> HttpResponseBase:
    if request.method != "POST":
        return method_not_allowed("POST")
    session_id = session_id_of(request)
    client = await in_database(authenticate, request)
    body = read_body(request)
    prompt, history = split(body.messages)
    turn = TurnRequest(
        prompt=prompt,
        history=history,
        session_id=session_id,
        owner_id=client.owner_id,
        user_id=person_of(request, user=body.user),
        in_line=client.in_line,
        create_unknown=settings.EVI.unknown_session == "create",
        store=body.store is not False,
        idempotency_key=request.headers.get("Idempotency-Key", "")[:255],
        is_retry=request.headers.get("X-Stainless-Retry-Count", "0") not in ("", "0"),
        model_settings=body.model_settings,
    )
    if body.stream:
        include_usage = bool(body.stream_options and body.stream_options.include_usage)
        return await streamed(stream_turn(turn), include_usage=include_usage)
    reply = await run_turn(turn)
    return JsonResponse(completion(reply), headers=session_header(reply.session_id))


@csrf_exempt
@openai_errors
async def models(request: HttpRequest) -> HttpResponseBase:
    if request.method not in ("GET", "HEAD"):
        return method_not_allowed("GET")
    await in_database(authenticate, request)
    return JsonResponse({"object": "list", "data": [model_card()]})


@csrf_exempt
@openai_errors
async def model(request: HttpRequest, model_id: str) -> HttpResponseBase:
    if request.method not in ("GET", "HEAD"):
        return method_not_allowed("GET")
    await in_database(authenticate, request)
    if model_id != MODEL_ID:
        raise NotFoundError(f"The model '{model_id}' does not exist. EVI has one model: {MODEL_ID}.", param="model")
    return JsonResponse(model_card())


def read_body(request: HttpRequest) -> CompletionRequest:
    if request.content_type != "application/json":
        raise UnsupportedMediaTypeError("Send JSON, with the header 'Content-Type: application/json'.")
    check_size(request)
    try:
        body = CompletionRequest.model_validate_json(request.body)
    except ValidationError as error:
        problem = error.errors()[0]
        where = ".".join(map(str, problem["loc"])) or None
        raise BadRequestError(f"{where or 'The body'}: {problem['msg']}", param=where) from error
    if body.n not in (None, 1):
        raise BadRequestError("EVI gives one answer: leave n out, or set it to 1.", param="n")
    if body.response_format and body.response_format.type != "text":
        raise BadRequestError("EVI answers in text: leave response_format out.", param="response_format")
    return body


def split(messages: list[ChatMessage]) -> tuple[str, tuple[HistoryItem, ...]]:
    """The question, which comes last, and what was said before it."""
    *earlier, last = messages
    if last.role != "user":
        raise BadRequestError("The last message must be the user's.", param="messages")
    if not last.text.strip():
        raise BadRequestError("The last message has no text. EVI reads text only.", param="messages")
    roles = {"developer": "system"}
    # Tool calls and their results belong to tools that EVI does not have.
    spoken = [message for message in earlier if message.role not in ("tool", "function") and message.text.strip()]
    return last.text, tuple(HistoryItem(roles.get(message.role, message.role), message.text) for message in spoken)


async def streamed(events: AsyncGenerator[Event], *, include_usage: bool) -> StreamingHttpResponse:
    """The answer as server-sent events. What fails before the first word still gets a status of its own."""
    started = await anext(events)
    assert isinstance(started, Started)
    first = await anext(events)

    async def lines() -> AsyncIterator[bytes]:
        chunk_id, created = f"chatcmpl-{uuid4().hex}", int(time.time())

        def line(**fields: Any) -> bytes:
            chunk = {"id": chunk_id, "object": "chat.completion.chunk", "created": created, "model": MODEL_ID}
            return sse({**chunk, "system_fingerprint": FINGERPRINT, **fields})

        def choice(delta: dict[str, str], finish_reason: str | None = None) -> dict[str, Any]:
            return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}

        def next_lines(event: Event) -> bytes:
            match event:
                case Delta(text=text):
                    return line(choices=[choice({"content": text})])
                case Reply():
                    end = line(choices=[choice({}, "stop")], citations=event.citations)
                    return end + line(choices=[], usage=usage(event)) if include_usage else end
            raise AssertionError(event)

        yield line(choices=[choice({"role": "assistant", "content": ""})])
        try:
            yield next_lines(first)
            async for event in events:
                yield next_lines(event)
        except EviError as error:
            yield sse(error_body(error))
        finally:
            # A client that left ends the turn at once, not when somebody collects the garbage.
            await events.aclose()
        yield b"data: [DONE]\n\n"

    headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no", **session_header(started.session_id)}
    return StreamingHttpResponse(lines(), content_type="text/event-stream; charset=utf-8", headers=headers)


def completion(reply: Reply) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-{uuid4().hex}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": MODEL_ID,
        "system_fingerprint": FINGERPRINT,
        "choices": [
            {
                "index": 0,
                "message": {
                    "role": "assistant",
                    "content": reply.text,
                    "refusal": None,
                    "annotations": annotations(reply),
                },
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": usage(reply),
        "citations": reply.citations,
    }


def annotations(reply: Reply) -> list[dict[str, Any]]:
    """Where the text cites a source that has an address, in OpenAI's own shape."""
    cited = {citation.get("marker"): citation for citation in reply.citations if citation.get("url")}
    return [
        {
            "type": "url_citation",
            "url_citation": {
                "start_index": match.start(),
                "end_index": match.end(),
                "url": cited[marker]["url"],
                "title": cited[marker].get("document_title", ""),
            },
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


def model_card() -> dict[str, Any]:
    return {"id": MODEL_ID, "object": "model", "created": MODEL_CREATED, "owned_by": "evi", "name": "EVI"}


def error_body(error: EviError) -> dict[str, Any]:
    kind = "invalid_request_error" if error.status < 500 else "server_error"
    return {"error": {"message": error.message, "type": kind, "param": error.param, "code": error.code}}


def method_not_allowed(allowed: str) -> JsonResponse:
    error = {"message": f"Use {allowed} here.", "type": "invalid_request_error", "param": None, "code": None}
    return JsonResponse({"error": error}, status=405, headers={"Allow": allowed})


def sse(data: dict[str, Any]) -> bytes:
    return f"data: {json.dumps(data, ensure_ascii=False, separators=(',', ':'))}\n\n".encode()
