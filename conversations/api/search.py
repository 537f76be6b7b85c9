"""`GET /api/search`: what was said with a person, found again."""

import time
from typing import Any

from django.db import connection
from django.urls import reverse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from conversations.api.sessions import EARLIEST, MAX_PAGE, USER, SessionsAPIView, limit_of
from conversations.api.views import refusals
from conversations.candidates import KINDS, Filters
from conversations.models import Channel, Role
from conversations.recall import Recalled, recall

MAX_QUERY_CHARS = 2000
ROLES = [Role.USER, Role.ASSISTANT]


def check_moment(moment: Any) -> None:
    if moment < EARLIEST:
        raise serializers.ValidationError("This moment lies before 1970.")


class SearchSerializer(serializers.Serializer[Any]):
    q = serializers.CharField(max_length=MAX_QUERY_CHARS)
    kind = serializers.ChoiceField(KINDS, required=False)
    channel = serializers.ChoiceField(Channel.choices, required=False)
    role = serializers.ChoiceField(ROLES, required=False)
    since = serializers.DateTimeField(required=False, validators=[check_moment])
    until = serializers.DateTimeField(required=False, validators=[check_moment])


class FoundSerializer(serializers.Serializer[Any]):
    kind = serializers.ChoiceField(KINDS)
    id = serializers.UUIDField(help_text="Of the message or the fact; of the session where it is a summary.")
    session_id = serializers.UUIDField(allow_null=True)
    title = serializers.CharField(allow_blank=True)
    channel = serializers.CharField(allow_blank=True)
    role = serializers.CharField(allow_blank=True, help_text="Who said it, where it is a message.")
    snippet = serializers.CharField(help_text="The sentence that fits, as plain text.")
    marks = serializers.ListField(
        child=serializers.ListField(child=serializers.IntegerField(), min_length=2, max_length=2),
        help_text="Where the snippet has words of the question: from, and up to, in characters.",
    )
    score = serializers.FloatField(help_text="The higher, the better it fits; comparable within one search.")
    at = serializers.DateTimeField()
    link = serializers.CharField(allow_null=True, help_text="The session it was said in.")


class SearchResultsSerializer(serializers.Serializer[Any]):
    query = serializers.CharField()
    results = FoundSerializer(many=True)
    search_time_ms = serializers.FloatField()


class SearchView(SessionsAPIView):
    @extend_schema(
        operation_id="search",
        summary="Search what was said: messages, summaries of sessions, and approved facts",
        parameters=[
            USER,
            OpenApiParameter("q", str, required=True, description="A question or some words."),
            OpenApiParameter(
                "limit",
                {"type": "integer", "minimum": 1, "maximum": MAX_PAGE, "default": 10},
                description="How many at most.",
            ),
            OpenApiParameter("kind", str, enum=list(KINDS)),
            OpenApiParameter("channel", str, enum=Channel.values, description="Facts belong to none."),
            OpenApiParameter("role", str, enum=[role.value for role in ROLES], description="Who said it."),
            OpenApiParameter("since", OpenApiTypes.DATETIME, description="From this moment on."),
            OpenApiParameter("until", OpenApiTypes.DATETIME, description="Before this moment."),
        ],
        responses={200: SearchResultsSerializer, **refusals()},
    )
    def get(self, request: Request) -> Response:
        started = time.perf_counter()
        asked = SearchSerializer(data=request.query_params)
        asked.is_valid(raise_exception=True)
        query = asked.validated_data.pop("q")
        # A model far away may take its time; the connection that found the key goes back to the pool meanwhile.
        connection.close()
        found = recall(
            query,
            owner_id=self.caller.owner_id,
            user_id=self.caller.user_id,
            limit=limit_of(request, default=10),
            filters=Filters(**asked.validated_data),
        )
        return Response(
            {
                "query": query,
                "results": [_as_json(each) for each in found],
                "search_time_ms": round((time.perf_counter() - started) * 1000, 1),
            }
        )


def _as_json(found: Recalled) -> dict[str, Any]:
    return FoundSerializer(
        {
            "kind": found.kind,
            "id": found.id,
            "session_id": found.session_id,
            "title": found.title,
            "channel": found.channel,
            "role": found.role,
            "snippet": found.snippet.text,
            "marks": found.snippet.marks,
            "score": round(found.score, 3),
            "at": found.at,
            "link": reverse("session", args=[found.session_id]) if found.session_id else None,
        }
    ).data
