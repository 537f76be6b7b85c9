"""`/api/sessions`: what a person can do with their conversations apart from talking."""

from datetime import UTC, datetime
from typing import Any, ClassVar
from uuid import UUID

from django.utils.dateparse import parse_datetime
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.exceptions import NotFound
from rest_framework.pagination import Cursor, CursorPagination
from rest_framework.request import Request
from rest_framework.response import Response

from conversations import transcripts
from conversations.api.access import UUID4, Caller, actor, identify
from conversations.api.views import EviAPIView, refusals
from conversations.errors import BadRequestError, InvalidSessionIdError, NotFoundError
from conversations.forgetting import delete_sessions
from conversations.models import Channel, Message, Session, SessionQuerySet

MAX_TITLE_CHARS = 200
MAX_PAGE = 100
# Before it there was nobody to talk with; and the database keeps years that Python cannot read.
EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)

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
