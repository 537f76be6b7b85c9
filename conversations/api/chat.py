"""`POST /chat`: one question in, one answer out."""

from typing import Any

from asgiref.sync import async_to_sync
from django.conf import settings
from django.db import connection
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from conversations.api.access import identify, session_id_of
from conversations.api.views import EviAPIView, refusals
from conversations.openings import TurnRequest
from conversations.turns import run_turn

SESSION_HEADER = OpenApiParameter(
    "X-Session-ID",
    str,
    OpenApiParameter.HEADER,
    description="A UUID of version 4. Left out: a new session, whose id comes back in the same header.",
)
ANSWERED_SESSION_HEADER = OpenApiParameter(
    "X-Session-ID", str, OpenApiParameter.HEADER, response=[200], description="The session that the answer is in."
)


def refuse_nul(value: str) -> None:
    """PostgreSQL keeps no NUL characters, and nobody means them."""
    if "\0" in value:
        raise serializers.ValidationError("Text cannot contain NUL characters.")


class TextField(serializers.CharField):
    """Text and nothing else: DRF itself would take a number for it."""

    def to_internal_value(self, data: object) -> str:
        if not isinstance(data, str):
            self.fail("invalid")
        return super().to_internal_value(data)


class ChatRequestSerializer(serializers.Serializer[Any]):
    query = TextField(trim_whitespace=False, validators=[refuse_nul])
    user = TextField(required=False, allow_blank=True, max_length=255, validators=[refuse_nul])

    def validate_query(self, value: str) -> str:
        if not value.strip():
            raise serializers.ValidationError("This field may not be blank.")
        if len(value) > settings.EVI.max_message_chars:
            raise serializers.ValidationError(f"At most {settings.EVI.max_message_chars} characters.")
        return value


class CitationSerializer(serializers.Serializer[Any]):
    """A piece of a guideline, or a product, that the answer rests on."""

    marker = serializers.IntegerField(help_text="The number that the text cites it by, as in [1].")
    kind = serializers.ChoiceField(["guideline", "product"])
    source = serializers.CharField()  # type: ignore[assignment]  # a field of that name is a field all the same
    chunk_id = serializers.UUIDField(help_text="The piece itself, or the product.")
    similarity = serializers.FloatField()
    document_title = serializers.CharField(help_text="The guideline's title, or the product's name.")
    norm = serializers.CharField(allow_blank=True)
    url = serializers.URLField(allow_blank=True)
    excerpt = serializers.CharField(required=False, help_text="How the piece begins, or the product's description.")
    section = serializers.CharField(required=False)
    version = serializers.CharField(required=False)
    language = serializers.CharField(required=False)
    category = serializers.CharField(required=False)


class ChatMetadataSerializer(serializers.Serializer[Any]):
    messages_in_context = serializers.IntegerField()
    session_id = serializers.UUIDField()
    model = serializers.CharField()
    tokens_used = serializers.IntegerField()
    search_results = serializers.DictField(help_text="What was searched for, how much was found and in what time.")


class ChatResponseSerializer(serializers.Serializer[Any]):
    answer = serializers.CharField()
    citations = CitationSerializer(many=True)
    metadata = ChatMetadataSerializer()


class ChatView(EviAPIView):
    @extend_schema(
        operation_id="chat",
        summary="Ask a question",
        request=ChatRequestSerializer,
        responses={200: ChatResponseSerializer, **refusals(404, 415, 500, 502, 503, 504)},
        parameters=[SESSION_HEADER, ANSWERED_SESSION_HEADER],
    )
    def post(self, request: Request) -> Response:
        session_id = session_id_of(request._request)
        body = ChatRequestSerializer(data=request.data)
        body.is_valid(raise_exception=True)
        caller = identify(request._request, user=body.validated_data.get("user"))
        # The model takes its time; the connection that found the key goes back to the pool meanwhile.
        connection.close()
        reply = async_to_sync(run_turn)(
            TurnRequest(
                prompt=body.validated_data["query"],
                session_id=session_id,
                owner_id=caller.owner_id,
                user_id=caller.user_id,
                in_line=caller.in_line,
                create_unknown=settings.EVI.unknown_session != "reject",
            )
        )
        metadata = {
            "messages_in_context": reply.messages_in_context,
            "session_id": str(reply.session_id),
            "model": reply.model,
            "tokens_used": reply.input_tokens + reply.output_tokens,
            "search_results": reply.search_results,
        }
        return Response(
            {"answer": reply.text, "citations": reply.citations, "metadata": metadata},
            headers={"X-Session-ID": str(reply.session_id)},
        )
