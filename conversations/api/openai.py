"""`/v1`: the OpenAI-compatible surface. Anything that speaks OpenAI's chat completions can talk with EVI."""

import time
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any
from uuid import uuid4

from django.http import HttpRequest, HttpResponseBase, JsonResponse, StreamingHttpResponse
from django.views.decorators.csrf import csrf_exempt
from pydantic import BaseModel, Field, field_validator

from agentbridge.database import in_database
from conversations.api.access import Client, authenticate
from conversations.api.openai_shape import (
    Asking,
    ChatMessage,
    ResponseFormat,
    background_call,
    begun,
    error_body,
    event_stream,
    method_not_allowed,
    openai_errors,
    read_body,
    refusal,
    session_header,
    sse,
    turn_of,
    url_citations,
    usage,
    within_limits,
)
from conversations.api.openwebui import Extras, Thread, source_of, thread_of
from conversations.errors import BadRequestError, EviError, NotFoundError
from conversations.events import Delta, Event, Reply
from conversations.turns import reply_of, run_turn, stream_turn

MODEL_ID = "evi"
# When this model came to be, as the list of models wants to know.
MODEL_CREATED = 1_763_424_000
FINGERPRINT = "evi-0.1.0"


class StreamOptions(BaseModel):
    include_usage: bool = False


class CompletionRequest(Asking):
    messages: list[ChatMessage] = Field(min_length=1)
    stream_options: StreamOptions | None = None
    n: int | None = None
    response_format: ResponseFormat | None = None
    max_tokens: int | None = Field(None, ge=1)
    max_completion_tokens: int | None = Field(None, ge=1)
    seed: int | None = None
    stop: str | list[str] | None = None

    def _wanted(self) -> dict[str, Any]:
        return super()._wanted() | {
            "max_tokens": self.max_completion_tokens or self.max_tokens,
            "seed": self.seed,
            "stop_sequences": [self.stop] if isinstance(self.stop, str) else self.stop,
        }

    @field_validator("messages")
    @classmethod
    def _within_limits(cls, messages: list[ChatMessage]) -> list[ChatMessage]:
        return within_limits(messages)


@csrf_exempt
@openai_errors
async def chat_completions(request: HttpRequest) -> HttpResponseBase:
    if request.method != "POST":
        return method_not_allowed("POST")
    # What the header says is checked before anything is asked of the database.
    thread_of(request, tools=())
    client = await in_database(authenticate, request)
    body = read_body(request, CompletionRequest)
    if body.n not in (None, 1):
        raise BadRequestError("EVI gives one answer: leave n out, or set it to 1.", param="n")
    if body.response_format and body.response_format.type != "text":
        raise BadRequestError("EVI answers in text: leave response_format out.", param="response_format")
    thread = thread_of(request, tools=body.tools or ())
    try:
        return await _answered(request, body, client=client, thread=thread)
    except EviError as error:
        return refusal(error, in_dutch=thread.shows_events)


async def _answered(
    request: HttpRequest, body: CompletionRequest, *, client: Client, thread: Thread
) -> HttpResponseBase:
    turn = turn_of(request, body, body.messages, client=client, thread=thread, param="messages")
    if events := background_call(request, body, body.messages, turn=turn, param="messages"):
        if body.stream:
            return await streamed(events)
        return JsonResponse(completion(await reply_of(events)))
    if body.stream:
        include_usage = bool(body.stream_options and body.stream_options.include_usage)
        return await streamed(stream_turn(turn), include_usage=include_usage, shows_events=thread.shows_events)
    reply = await run_turn(turn)
    shown = {"sources": [source_of(citation) for citation in reply.citations]} if thread.shows_events else {}
    return JsonResponse(completion(reply) | shown, headers=session_header(reply.session_id))


@csrf_exempt
@openai_errors
async def unknown(request: HttpRequest) -> HttpResponseBase:
    raise NotFoundError(
        f"There is nothing at {request.path}. EVI has /v1/chat/completions, /v1/responses and /v1/models."
    )


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


async def streamed(
    events: AsyncGenerator[Event], *, include_usage: bool = False, shows_events: bool = False
) -> StreamingHttpResponse:
    started, first = await begun(events, shows_events=shows_events)

    async def lines() -> AsyncIterator[bytes]:
        chunk_id, created = f"chatcmpl-{uuid4().hex}", int(time.time())
        extras = Extras(shows_events)

        def line(**fields: Any) -> bytes:
            chunk = {"id": chunk_id, "object": "chat.completion.chunk", "created": created, "model": MODEL_ID}
            return sse({**chunk, "system_fingerprint": FINGERPRINT, **fields})

        def choice(delta: dict[str, str], finish_reason: str | None = None) -> dict[str, Any]:
            return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}

        def next_lines(event: Event) -> bytes:
            beside = b"".join(map(sse, extras.beside(event)))
            match event:
                case Delta(text=text):
                    return beside + line(choices=[choice({"content": text})])
                case Reply():
                    end = line(choices=[choice({}, "stop")], citations=event.citations)
                    return beside + end + (line(choices=[], usage=usage(event)) if include_usage else b"")
            return beside

        yield line(choices=[choice({"role": "assistant", "content": ""})])
        try:
            yield next_lines(first)
            async for event in events:
                if text := next_lines(event):
                    yield text
        except EviError as error:
            yield b"".join(map(sse, extras.closing())) + sse(error_body(error, in_dutch=shows_events))
        finally:
            # A client that left ends the turn at once, not when somebody collects the garbage.
            await events.aclose()
        yield b"data: [DONE]\n\n"

    return event_stream(lines(), session_id=started.session_id)


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
                    "annotations": [{"type": "url_citation", "url_citation": each} for each in url_citations(reply)],
                },
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": usage(reply),
        "citations": reply.citations,
    }


def model_card() -> dict[str, Any]:
    return {"id": MODEL_ID, "object": "model", "created": MODEL_CREATED, "owned_by": "evi", "name": "EVI"}
