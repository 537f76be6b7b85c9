"""`/api/sessions`: what a person can do with their conversations apart from talking."""

import math
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from datetime import UTC, datetime
from itertools import islice
from typing import Any, ClassVar
from uuid import UUID

from django.conf import settings
from django.http import StreamingHttpResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.dateparse import parse_datetime
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.exceptions import NotFound
from rest_framework.pagination import Cursor, CursorPagination
from rest_framework.request import Request
from rest_framework.response import Response

from agentbridge.database import in_database
from conversations import transcripts
from conversations.api.access import UUID4, Caller, actor, identify
from conversations.api.views import EviAPIView, refusals
from conversations.errors import BadRequestError, InvalidSessionIdError, NotFoundError
from conversations.forgetting import delete_sessions
from conversations.models import Channel, Message, Role, Session, SessionQuerySet, Status

MAX_TITLE_CHARS = 200
MAX_PAGE = 100
MAX_IMPORTED_MESSAGES = 10_000
MAX_METADATA_DEPTH = 50
# Before it there was nobody to talk with; and the database keeps years that Python cannot read.
EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)
EXPORT_PIECES = 200

USER = OpenApiParameter(
    "user",
    str,
    description="The person behind the client, as in the chat's `user`. The header X-OpenWebUI-User-Id goes before it.",
)
SESSION_ID = OpenApiParameter("session_id", OpenApiTypes.UUID, OpenApiParameter.PATH, description="A UUID, version 4.")


class UnknownSessionError(NotFoundError):
    code = "session_not_found"

    def __init__(self, session_id: UUID) -> None:
        super().__init__(f"You have no session {session_id}.")


class UnknownMessageError(NotFoundError):
    code = "message_not_found"

    def __init__(self, message_id: UUID) -> None:
        super().__init__(f"This session has no message {message_id}.")


class SessionSerializer(serializers.ModelSerializer[Session]):
    summary = serializers.SerializerMethodField(help_text="What it was about; empty while it is in use.")

    def get_summary(self, session: Session) -> str:
        return session.summary.text if hasattr(session, "summary") else ""

    class Meta:
        model = Session
        fields: ClassVar = [
            "id",
            "title",
            "channel",
            "pinned",
            "message_count",
            "created_at",
            "updated_at",
            "last_accessed",
            "expires_at",
            "summary",
        ]
        read_only_fields = fields


class SessionFilterSerializer(serializers.Serializer[Any]):
    """Which sessions are asked for; all of them when nothing is said."""

    prefix = serializers.RegexField(
        "^[0-9a-fA-F-]{4,36}$", required=False, help_text="How the id begins: 4 to 36 characters of it."
    )
    q = serializers.CharField(
        required=False, allow_blank=True, max_length=MAX_TITLE_CHARS, help_text="What the title contains."
    )
    channel = serializers.ChoiceField(Channel.choices, required=False, help_text="Where it began.")

    def chosen(self, sessions: SessionQuerySet) -> SessionQuerySet:
        self.is_valid(raise_exception=True)
        wanted = self.validated_data
        if prefix := wanted.get("prefix"):
            sessions = sessions.id_begins_with(prefix.lower())
        if words := wanted.get("q"):
            sessions = sessions.titled(words)
        return sessions.filter(channel=wanted["channel"]) if "channel" in wanted else sessions


class SessionChangesSerializer(serializers.Serializer[Any]):
    title = serializers.CharField(required=False, allow_blank=True, max_length=MAX_TITLE_CHARS)
    pinned = serializers.BooleanField(required=False)

    def validate(self, changes: dict[str, Any]) -> dict[str, Any]:
        if others := sorted(set(self.initial_data) - set(self.fields)):
            raise serializers.ValidationError({others[0]: ["Only title and pinned can be changed."]})
        return changes


class MessageSerializer(serializers.ModelSerializer[Message]):
    class Meta:
        model = Message
        fields: ClassVar = ["id", "role", "content", "status", "metadata", "created_at"]
        read_only_fields = fields


class MessagePageSerializer(serializers.Serializer[Any]):
    results = MessageSerializer(many=True)
    has_more = serializers.BooleanField(help_text="Whether there are more in the direction that was asked for.")
    before = serializers.UUIDField(allow_null=True, help_text="Send it as `before` to see what came earlier.")
    after = serializers.UUIDField(allow_null=True, help_text="Send it as `after` to see what came later.")


def check_moment(moment: datetime) -> None:
    if not EARLIEST <= moment <= timezone.now():
        raise serializers.ValidationError("This moment lies in the future, or before 1970.")


def check_metadata(metadata: dict[str, Any]) -> None:
    """Refuse what is JSON to Python and not to PostgreSQL."""
    level: list[Any] = [metadata]
    for _ in range(MAX_METADATA_DEPTH):
        if not level:
            return
        for item in level:
            if isinstance(item, str) and ("\0" in item or _has_surrogates(item)):
                raise serializers.ValidationError("Text cannot contain NUL characters or surrogates.")
            if isinstance(item, float) and not math.isfinite(item):
                raise serializers.ValidationError("This number is too large.")
        level = [child for item in level for child in _children(item)]
    raise serializers.ValidationError("This is nested too deeply.")


class ImportedSessionSerializer(serializers.Serializer[Any]):
    title = serializers.CharField(required=False, allow_blank=True, max_length=MAX_TITLE_CHARS)
    channel = serializers.ChoiceField(Channel.choices, required=False)
    pinned = serializers.BooleanField(required=False)
    created_at = serializers.DateTimeField(required=False, validators=[check_moment])


class ImportedMessageSerializer(serializers.Serializer[Any]):
    role = serializers.ChoiceField(Role.choices)
    content = serializers.CharField(allow_blank=True, trim_whitespace=False)
    status = serializers.ChoiceField(Status.choices, default=Status.COMPLETE)
    metadata = serializers.DictField(default=dict, validators=[check_metadata])
    created_at = serializers.DateTimeField(validators=[check_moment])

    def validate_content(self, content: str) -> str:
        if len(content) > settings.EVI.max_message_chars:
            raise serializers.ValidationError(f"At most {settings.EVI.max_message_chars} characters.")
        return content


class ImportSerializer(serializers.Serializer[Any]):
    """What an export holds. Ids, counts and other times may be in it, and are made anew."""

    version = serializers.IntegerField(min_value=transcripts.VERSION, max_value=transcripts.VERSION)
    session = ImportedSessionSerializer()
    messages = serializers.ListField(child=ImportedMessageSerializer(), max_length=MAX_IMPORTED_MESSAGES)

    def validate_messages(self, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        times = [message["created_at"] for message in messages]
        if times != sorted(times):
            raise serializers.ValidationError("The messages must come oldest first.")
        return messages


class RecentFirst(CursorPagination):
    """Pages of sessions, along idx_sessions_owner_recent."""

    ordering = ("-last_accessed", "-id")
    page_size = 20
    page_size_query_param = "limit"
    max_page_size = MAX_PAGE
    # Sessions that came in together have the same time, and DRF counts its way through those.
    offset_cutoff = 1_000_000
    cursor_query_description = "Where the page begins, from `next` or `previous` of another page."
    page_size_query_description = f"How many, 1 to {MAX_PAGE}; 20 if left out."

    def get_page_size(self, request: Request) -> int:
        return limit_of(request, default=20)

    def decode_cursor(self, request: Request) -> Cursor | None:
        try:
            cursor = super().decode_cursor(request)
            if cursor and cursor.position is not None:
                position = parse_datetime(str(cursor.position))
                if position is None or position.utcoffset() is None or position < EARLIEST:
                    raise ValueError(cursor.position)
        except (NotFound, ValueError, OverflowError):
            raise BadRequestError("cursor: take it from `next` or `previous` of another page.") from None
        return cursor

    def get_schema_operation_parameters(self, view: Any) -> list[dict[str, Any]]:
        cursor, limit = super().get_schema_operation_parameters(view)
        return [cursor, {**limit, "schema": {"type": "integer", "minimum": 1, "maximum": MAX_PAGE, "default": 20}}]


class SessionsAPIView(EviAPIView):
    """A view that knows who asks, and which of their sessions they mean."""

    caller: Caller
    session_id: UUID

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        if "session_id" in kwargs:
            if not UUID4.fullmatch(kwargs["session_id"]):
                raise InvalidSessionIdError
            self.session_id = UUID(kwargs["session_id"])
        self.caller = identify(request._request, user=request.query_params.get("user"))

    def sessions(self) -> SessionQuerySet:
        return Session.objects.for_owner(self.caller.owner_id, user_id=self.caller.user_id)

    def session(self) -> Session:
        """The session that the path names; another's is as unknown as one that never was."""
        session = self.sessions().filter(id=self.session_id).select_related("summary").first()
        if session is None:
            raise UnknownSessionError(self.session_id)
        return session


class SessionListView(SessionsAPIView):
    pagination_class = RecentFirst

    @extend_schema(
        operation_id="list_sessions",
        summary="Your sessions, the one used last first",
        parameters=[USER, SessionFilterSerializer],
        responses={200: SessionSerializer(many=True), **refusals()},
    )
    def get(self, request: Request) -> Response:
        pages = self.pagination_class()
        chosen = SessionFilterSerializer(data=request.query_params).chosen(self.sessions().select_related("summary"))
        sessions = pages.paginate_queryset(chosen, request, view=self)
        return pages.get_paginated_response(SessionSerializer(sessions, many=True).data)


@extend_schema(parameters=[SESSION_ID, USER])
class SessionView(SessionsAPIView):
    @extend_schema(
        operation_id="read_session",
        summary="One session",
        responses={200: SessionSerializer, **refusals(404)},
    )
    def get(self, request: Request, session_id: str) -> Response:
        return Response(SessionSerializer(self.session()).data)

    @extend_schema(
        operation_id="change_session",
        summary="Rename or pin a session",
        request=SessionChangesSerializer,
        responses={200: SessionSerializer, **refusals(404, 415)},
    )
    def patch(self, request: Request, session_id: str) -> Response:
        changes = SessionChangesSerializer(data=request.data)
        changes.is_valid(raise_exception=True)
        if changes.validated_data:
            # A turn may be running: what the database keeps itself is not written back.
            self.sessions().filter(id=self.session_id).update(**changes.validated_data)
        return Response(SessionSerializer(self.session()).data)

    @extend_schema(
        operation_id="delete_session",
        summary="Delete a session with all its messages",
        responses={204: OpenApiResponse(description="It is gone."), **refusals(404)},
    )
    def delete(self, request: Request, session_id: str) -> Response:
        if not delete_sessions(self.sessions().filter(id=self.session_id), by=actor(self.caller)):
            raise UnknownSessionError(self.session_id)
        return Response(status=204)


class SessionMessagesView(SessionsAPIView):
    @extend_schema(
        operation_id="list_messages",
        summary="The messages of a session, oldest first; the last page if no place is given",
        parameters=[
            SESSION_ID,
            USER,
            OpenApiParameter("before", OpenApiTypes.UUID, description="The last messages before this one."),
            OpenApiParameter("after", OpenApiTypes.UUID, description="The first messages after this one."),
            OpenApiParameter(
                "limit",
                {"type": "integer", "minimum": 1, "maximum": MAX_PAGE, "default": 50},
                description="How many.",
            ),
        ],
        responses={200: MessagePageSerializer, **refusals(404)},
    )
    def get(self, request: Request, session_id: str) -> Response:
        limit = limit_of(request, default=50)
        before_id, after_id = message_id_of(request, "before"), message_id_of(request, "after")
        if before_id and after_id:
            raise BadRequestError("Send before or after, not both.")
        self.session()
        before, after = self._message(before_id), self._message(after_id)
        found = transcripts.page_of_messages(self.session_id, limit=limit + 1, before=before, after=after)
        page = found[:limit] if after else found[-limit:]
        return Response(
            {
                "results": MessageSerializer(page, many=True).data,
                "has_more": len(found) > limit,
                "before": page[0].id if page else before_id,
                "after": page[-1].id if page else after_id,
            }
        )

    def _message(self, message_id: UUID | None) -> Message | None:
        if message_id is None:
            return None
        message = Message.objects.filter(session_id=self.session_id, id=message_id).only("created_at", "seq").first()
        if message is None:
            raise UnknownMessageError(message_id)
        return message


class SessionExportView(SessionsAPIView):
    @extend_schema(
        operation_id="export_session",
        summary="Download a session",
        parameters=[
            SESSION_ID,
            USER,
            OpenApiParameter(
                "format",
                str,
                enum=["json", "markdown"],
                default="json",
                description="JSON can be imported again; Markdown is a transcript in Dutch.",
            ),
        ],
        responses={
            (200, "application/json"): ImportSerializer,
            (200, "text/markdown"): OpenApiTypes.STR,
            **refusals(404),
        },
    )
    def get(self, request: Request, session_id: str) -> StreamingHttpResponse:
        render: Callable[[Session, Iterable[Message]], Iterator[str]]
        match request.query_params.get("format", "json"):
            case "json":
                render, content_type, ending = transcripts.export_json, "application/json", "json"
            case "markdown":
                render, content_type, ending = transcripts.render_markdown, "text/markdown; charset=utf-8", "md"
            case _:
                raise BadRequestError("format: json or markdown.", param="format")
        session = self.session()
        return StreamingHttpResponse(
            in_pieces(render(session, transcripts.every_message(session.id))),
            content_type=content_type,
            headers={"Content-Disposition": f'attachment; filename="evi-{session.id}.{ending}"'},
        )


class SessionImportView(SessionsAPIView):
    @extend_schema(
        operation_id="import_session",
        summary="Make a new session of an export",
        parameters=[
            USER,
            OpenApiParameter("Location", str, OpenApiParameter.HEADER, response=[201], description="The new session."),
        ],
        request=ImportSerializer,
        responses={201: SessionSerializer, **refusals(415)},
    )
    def post(self, request: Request) -> Response:
        document = ImportSerializer(data=request.data)
        document.is_valid(raise_exception=True)
        session = transcripts.import_json(
            document.validated_data, owner_id=self.caller.owner_id, user_id=self.caller.user_id
        )
        return Response(
            SessionSerializer(session).data,
            status=201,
            headers={"Location": reverse("session", args=[session.id])},
        )


def limit_of(request: Request, *, default: int) -> int:
    text = request.query_params.get("limit")
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) <= 3 and 1 <= int(text) <= MAX_PAGE):
        raise BadRequestError(f"limit: a whole number from 1 to {MAX_PAGE}.", param="limit")
    return int(text)


def message_id_of(request: Request, name: str) -> UUID | None:
    text = request.query_params.get(name)
    if text is None:
        return None
    try:
        return UUID(text)
    except ValueError:
        raise BadRequestError(f"{name}: the id of a message, which is a UUID.", param=name) from None


async def in_pieces(text: Iterator[str]) -> AsyncIterator[str]:
    """A long text as it is read; between two pieces, while the client takes its time, no connection is held."""
    while piece := await in_database(lambda: "".join(islice(text, EXPORT_PIECES))):
        yield piece


def _children(item: Any) -> list[Any]:
    if isinstance(item, dict):
        return [*item.keys(), *item.values()]
    return item if isinstance(item, list) else []


def _has_surrogates(text: str) -> bool:
    return any("\ud800" <= character <= "\udfff" for character in text)
