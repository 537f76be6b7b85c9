"""Sessions out of EVI and into it, as documents."""

import math
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from datetime import datetime
from itertools import islice
from typing import Any

from django.http import StreamingHttpResponse
from django.urls import reverse
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from agentbridge.database import in_database
from conversations import transcripts
from conversations.api.sessions import EARLIEST, MAX_TITLE_CHARS, SESSION_ID, USER, SessionsAPIView, SessionSerializer
from conversations.api.views import refusals
from conversations.errors import BadRequestError
from conversations.models import Channel, Message, Role, Session, Status

MAX_METADATA_DEPTH = 50
EXPORT_PIECES = 200


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


class ImportSerializer(serializers.Serializer[Any]):
    """What an export holds. Ids, counts and other times may be in it, and are made anew.

    It may be as long as a body may be: an answer is as long as its model made it, and a session as its people.
    """

    version = serializers.IntegerField(min_value=transcripts.VERSION, max_value=transcripts.VERSION)
    session = ImportedSessionSerializer()
    messages = serializers.ListField(child=ImportedMessageSerializer())

    def validate_messages(self, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        times = [message["created_at"] for message in messages]
        if times != sorted(times):
            raise serializers.ValidationError("The messages must come oldest first.")
        return messages


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
