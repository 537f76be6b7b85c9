"""`/v1/responses`: the same turns for clients of OpenAI's Responses API, who name the answer that they go on from."""

import re
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any
from uuid import UUID

from django.http import HttpRequest, HttpResponseBase, JsonResponse, StreamingHttpResponse
from django.views.decorators.csrf import csrf_exempt
from pydantic import BaseModel, Field, StringConstraints, field_validator

from agentbridge.database import in_database
from agentbridge.said import HistoryItem
from conversations.api.access import actor, authenticate, identify
from conversations.api.openai import MODEL_ID
from conversations.api.openai_shape import (
    Asking,
    ChatMessage,
    ResponseFormat,
    background_call,
    begun,
    event_stream,
    method_not_allowed,
    openai_errors,
    read_body,
    session_header,
    sse,
    turn_of,
    url_citations,
    within_limits,
)
from conversations.api.openwebui import Extras, thread_of
from conversations.branches import thread_up_to
from conversations.errors import BadRequestError, EviError, ModelFailedError, NotFoundError
from conversations.events import Delta, Event, Reply, Started
from conversations.forgetting import delete_answer
from conversations.models import Message, Role, Session, Status
from conversations.openings import TurnRequest
from conversations.turns import reply_of, run_turn, stored_reply, stream_turn

RESPONSE_ID = re.compile(r"resp_([0-9a-f]{32})")
CONVERSATION_ID = re.compile(r"(?:conv_)?([0-9a-f]{8}-?(?:[0-9a-f]{4}-?){3}[0-9a-f]{12})", re.IGNORECASE)
STATUSES = {Status.COMPLETE: "completed", Status.INTERRUPTED: "incomplete", Status.FAILED: "failed"}
WISHES = {"previous_response_id", "metadata", "temperature", "top_p", "max_output_tokens", "user"}
MetadataKey = Annotated[str, StringConstraints(max_length=64)]
MetadataValue = Annotated[str, StringConstraints(max_length=512)]


class Reference(BaseModel):
    id: str = Field(max_length=255)


class TextOptions(BaseModel):
    format: ResponseFormat | None = None


class ResponseRequest(Asking):
    input: list[ChatMessage]
    instructions: str | None = None
    previous_response_id: str | None = Field(None, max_length=255)
    conversation: Reference | None = None
    max_output_tokens: int | None = Field(None, ge=1)
    metadata: dict[MetadataKey, MetadataValue] | None = Field(None, max_length=16)
    text: TextOptions | None = None

    @field_validator("input", mode="before", json_schema_input_type=str | list[ChatMessage])
    @classmethod
    def _messages_among_it(cls, value: object) -> object:
        if isinstance(value, str):
            return [{"role": "user", "content": value}]
        if not isinstance(value, list):
            return value
        # Calls of tools, their results and reasoning belong to tools and models that EVI does not have.
        return [item for item in value if not isinstance(item, dict) or item.get("type") in (None, "message")]

    @field_validator("input")
    @classmethod
    def _within_limits(cls, messages: list[ChatMessage]) -> list[ChatMessage]:
        return within_limits(messages)

    @field_validator("instructions")
    @classmethod
    def _like_a_message(cls, text: str | None) -> str | None:
        within_limits([ChatMessage(role="system", content=text)])
        return text

    @field_validator("conversation", mode="before", json_schema_input_type=str | Reference | None)
    @classmethod
    def _as_object(cls, value: object) -> object:
        return {"id": value} if isinstance(value, str) else value

    @property
    def messages(self) -> list[ChatMessage]:
        told = [ChatMessage(role="system", content=self.instructions)] if self.instructions else []
        return [*told, *self.input]

    @property
    def wishes(self) -> dict[str, Any]:
        """What the request decided about the response, and is told again with it."""
        return self.model_dump(include=WISHES, exclude_none=True)

    def _wanted(self) -> dict[str, Any]:
        return super()._wanted() | {"max_tokens": self.max_output_tokens}


@csrf_exempt
@openai_errors
async def responses(request: HttpRequest) -> HttpResponseBase:
    if request.method != "POST":
        return method_not_allowed("POST")
    # What the header says is checked before anything is asked of the database.
    thread_of(request, tools=())
    client = await in_database(authenticate, request)
    body = read_body(request, ResponseRequest)
    check_together(body)
    thread = thread_of(request, tools=body.tools or ())
    turn = turn_of(request, body, body.messages, client=client, thread=thread, param="input")
    frame = Frame(body.wishes, instructions=body.instructions, is_stored=turn.store)
    if events := background_call(request, body, body.messages, turn=turn, param="input"):
        frame = replace(frame, is_stored=False)
        return await streamed(events, frame) if body.stream else JsonResponse(frame.finished(await reply_of(events)))
    if body.previous_response_id or body.conversation:
        turn = await in_database(placed, turn, body)
    if body.wishes:
        turn = replace(turn, answer_metadata={"response": body.wishes})
    if body.stream:
        return await streamed(stream_turn(turn), frame, shows_events=thread.shows_events)
    reply = await run_turn(turn)
    return JsonResponse(frame.finished(reply), headers=session_header(reply.session_id))


@csrf_exempt
@openai_errors
async def response(request: HttpRequest, response_id: str) -> HttpResponseBase:
    if request.method not in ("GET", "HEAD", "DELETE"):
        return method_not_allowed("GET, DELETE")
    caller = await in_database(identify, request, user=request.GET.get("user"))
    answer = await in_database(find_answer, response_id, owner_id=caller.owner_id, user_id=caller.user_id)
    if answer is None:
        raise NotFoundError(f"Response with id '{response_id}' not found.", param="response_id")
    if request.method == "DELETE":
        await in_database(lambda: delete_answer(answer, by=actor(caller)))
        return JsonResponse({"id": response_id, "object": "response", "deleted": True})
    return JsonResponse(stored_response(answer))


def check_together(body: ResponseRequest) -> None:
    if body.text and body.text.format and body.text.format.type != "text":
        raise BadRequestError("EVI answers in text: leave text.format out.", param="text.format")
    if body.previous_response_id and body.conversation:
        raise BadRequestError(
            "Send previous_response_id or conversation, not both: either says where the question belongs.",
            param="previous_response_id",
        )
    if body.store is False and (body.previous_response_id or body.conversation):
        raise BadRequestError(
            "With store: false nothing is read or stored: send what was said before in input.", param="store"
        )


def placed(turn: TurnRequest, body: ResponseRequest) -> TurnRequest:
    """The question after the answer that the request names, or at the end of the conversation that it names."""
    if body.previous_response_id:
        answer = find_answer(body.previous_response_id, owner_id=turn.owner_id, user_id=turn.user_id)
        if answer is None:
            raise NotFoundError(
                f"Previous response with id '{body.previous_response_id}' not found.", param="previous_response_id"
            )
        session_id = answer.session_id
        is_end = Message.objects.active().last_in_session(session_id, limit=1) == [answer]
        said = thread_up_to(answer) if turn.history or not is_end else []
    else:
        assert body.conversation
        found = CONVERSATION_ID.fullmatch(body.conversation.id)
        mine = Session.objects.for_owner(turn.owner_id, user_id=turn.user_id)
        if not found or not mine.filter(id=found[1]).exists():
            raise NotFoundError(f"Conversation with id '{body.conversation.id}' not found.", param="conversation")
        session_id = UUID(found[1])
        said = list(Message.objects.active().in_session(session_id)) if turn.history else []
    history = (*(HistoryItem(message.role, message.content) for message in said), *turn.history)
    return replace(
        turn,
        session_id=session_id,
        external_id="",
        create_unknown=False,
        history=history,
        # One question at the end is added there, whoever else is asking at this moment.
        is_whole_thread=bool(history),
    )


def find_answer(response_id: str, *, owner_id: int | None, user_id: str) -> Message | None:
    found = RESPONSE_ID.fullmatch(response_id)
    mine = Message.objects.for_owner(owner_id, user_id=user_id).select_related("session")
    return mine.filter(id=found[1], role=Role.ASSISTANT).first() if found else None


@dataclass(frozen=True)
class Frame:
    """What is the same in all that is told about one response."""

    wishes: Mapping[str, Any]
    instructions: str | None = None
    is_stored: bool = True
    created_at: int = field(default_factory=lambda: int(time.time()))

    def finished(self, reply: Reply, *, status: str = "completed", annotated: bool = True) -> dict[str, Any]:
        annotations = [{"type": "url_citation", **each} for each in url_citations(reply)] if annotated else []
        item = message_item(reply.message_id, text_part(reply.text, annotations), status=status)
        described = self.described(reply.message_id, reply.session_id, status=status, output=[item])
        return described | {"usage": usage(reply), "citations": reply.citations}

    def failed(
        self, message_id: UUID, session_id: UUID | None, *, error: EviError, output: Iterable[dict[str, Any]] = ()
    ) -> dict[str, Any]:
        described = self.described(message_id, session_id, status="failed", output=output)
        return described | {"error": {"code": "server_error", "message": error.message}}

    def described(
        self, message_id: UUID, session_id: UUID | None, *, status: str, output: Iterable[dict[str, Any]] = ()
    ) -> dict[str, Any]:
        return {
            "id": f"resp_{message_id.hex}",
            "object": "response",
            "created_at": self.created_at,
            "status": status,
            "error": None,
            "incomplete_details": None,
            "instructions": self.instructions,
            "model": MODEL_ID,
            "output": list(output),
            "conversation": {"id": f"conv_{session_id.hex}"} if session_id else None,
            "store": self.is_stored,
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            "text": {"format": {"type": "text"}},
            "truncation": "disabled",
            "background": False,
            "usage": None,
            "previous_response_id": None,
            "metadata": {},
            "temperature": None,
            "top_p": None,
            "max_output_tokens": None,
            "user": None,
            **self.wishes,
        }


def stored_response(answer: Message) -> dict[str, Any]:
    told = answer.detail("response", dict[str, Any]())
    wishes = {name: value for name, value in told.items() if name in WISHES}
    frame = Frame(wishes, created_at=int(answer.created_at.timestamp()))
    if answer.status == Status.FAILED:
        error = ModelFailedError("This question was not answered.")
        return frame.failed(answer.id, answer.session_id, error=error)
    return frame.finished(stored_reply(answer), status=STATUSES[Status(answer.status)])


def message_item(message_id: UUID, *parts: dict[str, Any], status: str) -> dict[str, Any]:
    return {
        "id": f"msg_{message_id.hex}",
        "type": "message",
        "role": "assistant",
        "status": status,
        "content": list(parts),
    }


def text_part(text: str, annotations: Sequence[dict[str, Any]] = ()) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": list(annotations), "logprobs": []}


def usage(reply: Reply) -> dict[str, Any]:
    return {
        "input_tokens": reply.input_tokens,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": reply.output_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": reply.input_tokens + reply.output_tokens,
    }


async def streamed(events: AsyncGenerator[Event], frame: Frame, *, shows_events: bool = False) -> StreamingHttpResponse:
    started, first = await begun(events, shows_events=shows_events)

    async def lines() -> AsyncIterator[bytes]:
        telling = Telling(frame, started, Extras(shows_events))
        try:
            yield telling.beginning()
            yield telling.next_lines(first)
            async for event in events:
                if text := telling.next_lines(event):
                    yield text
        except EviError as error:
            yield telling.failure(error)
        finally:
            # A client that left ends the turn at once, not when somebody collects the garbage.
            await events.aclose()

    return event_stream(lines(), session_id=started.session_id)


@dataclass
class Telling:
    """One response as a stream of numbered events."""

    frame: Frame
    started: Started
    extras: Extras
    said: str = ""
    _number: int = 0

    def beginning(self) -> bytes:
        described = self.frame.described(self.started.message_id, self.started.session_id, status="in_progress")
        return (
            self._line("response.created", response=described)
            + self._line("response.in_progress", response=described)
            + self._line("response.output_item.added", output_index=0, item=self._item(status="in_progress"))
            + self._part_line("response.content_part.added", part=text_part(""))
        )

    def next_lines(self, event: Event) -> bytes:
        beside = b"".join(map(sse, self.extras.beside(event)))
        match event:
            case Delta(text=text):
                self.said += text
                return beside + self._part_line("response.output_text.delta", delta=text, logprobs=[])
            case Reply():
                return beside + self._end(event)
        return beside

    def failure(self, error: EviError) -> bytes:
        output = [self._item(text_part(self.said), status="incomplete")] if self.said else []
        failed = self.frame.failed(self.started.message_id, self.started.session_id, error=error, output=output)
        return b"".join(map(sse, self.extras.closing())) + self._line("response.failed", response=failed)

    def _end(self, reply: Reply) -> bytes:
        # OpenWebUI makes a source of each annotation; it has been told the sources already.
        finished = self.frame.finished(reply, annotated=not self.extras.shows_events)
        [item] = finished["output"]
        [part] = item["content"]
        annotated = b"".join(
            self._part_line("response.output_text.annotation.added", annotation_index=index, annotation=annotation)
            for index, annotation in enumerate(part["annotations"])
        )
        return (
            annotated
            + self._part_line("response.output_text.done", text=reply.text, logprobs=[])
            + self._part_line("response.content_part.done", part=part)
            + self._line("response.output_item.done", output_index=0, item=item)
            + self._line("response.completed", response=finished)
        )

    def _item(self, *parts: dict[str, Any], status: str) -> dict[str, Any]:
        return message_item(self.started.message_id, *parts, status=status)

    def _part_line(self, kind: str, **fields: Any) -> bytes:
        item_id = f"msg_{self.started.message_id.hex}"
        return self._line(kind, item_id=item_id, output_index=0, content_index=0, **fields)

    def _line(self, kind: str, **fields: Any) -> bytes:
        line = sse({"type": kind, "sequence_number": self._number, **fields})
        self._number += 1
        return f"event: {kind}\n".encode() + line
