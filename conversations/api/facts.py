"""`/api/facts`: what EVI remembers about a person, and what it would like to."""

from typing import Any, ClassVar
from uuid import UUID

from django.db.models import F, QuerySet
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from conversations import facts
from conversations.api.access import Caller, actor, identify
from conversations.api.chat import TextField, refuse_nul
from conversations.api.sessions import USER
from conversations.api.views import EviAPIView, refusals
from conversations.errors import BadRequestError, NotFoundError
from conversations.models import MAX_FACT_CHARS, Fact, FactQuerySet, FactSource, FactStatus

# Nobody reads more, and each has its sources.
MOST_LISTED = 500

FACT_ID = OpenApiParameter("fact_id", OpenApiTypes.UUID, OpenApiParameter.PATH)


class UnknownFactError(NotFoundError):
    code = "fact_not_found"

    def __init__(self, fact_id: UUID) -> None:
        super().__init__(f"You have no fact {fact_id}.")


class FactSourceSerializer(serializers.Serializer[Any]):
    message_id = serializers.UUIDField()
    session_id = serializers.UUIDField()


class FactSerializer(serializers.ModelSerializer[Fact]):
    sources = FactSourceSerializer(many=True, help_text="Where it was said; none where you wrote it down yourself.")

    class Meta:
        model = Fact
        fields: ClassVar = ["id", "text", "status", "created_at", "decided_at", "sources"]
        read_only_fields = fields


class FactListSerializer(serializers.Serializer[Any]):
    results = FactSerializer(many=True)


class NewFactSerializer(serializers.Serializer[Any]):
    text = TextField(max_length=MAX_FACT_CHARS, validators=[refuse_nul])


class FactChangesSerializer(serializers.Serializer[Any]):
    text = TextField(required=False, max_length=MAX_FACT_CHARS, validators=[refuse_nul])
    status = serializers.ChoiceField(FactStatus.choices, required=False)

    def validate_status(self, status: str) -> str:
        if status != FactStatus.APPROVED:
            raise serializers.ValidationError("A fact can be approved. To take that back, delete it.")
        return status

    def validate(self, changes: dict[str, Any]) -> dict[str, Any]:
        if others := sorted(set(self.initial_data) - set(self.fields)):
            raise serializers.ValidationError({others[0]: ["Only text and status can be changed."]})
        return changes


class FactsAPIView(EviAPIView):
    caller: Caller
    fact_id: UUID

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        if "fact_id" in kwargs:
            try:
                self.fact_id = UUID(kwargs["fact_id"])
            except ValueError:
                raise BadRequestError("fact_id: the id of a fact, which is a UUID.", param="fact_id") from None
        self.caller = identify(request._request, user=request.query_params.get("user"))

    def facts(self) -> FactQuerySet:
        return Fact.objects.for_owner(self.caller.owner_id, user_id=self.caller.user_id)


class FactListView(FactsAPIView):
    @extend_schema(
        operation_id="list_facts",
        summary="What EVI remembers about you, and what it proposes to; the newest first",
        parameters=[USER],
        responses={200: FactListSerializer, **refusals()},
    )
    def get(self, request: Request) -> Response:
        return Response({"results": as_told(self.facts()[:MOST_LISTED])})

    @extend_schema(
        operation_id="add_fact",
        summary="Have EVI remember something; since you say so yourself, it is approved",
        parameters=[USER],
        request=NewFactSerializer,
        responses={201: FactSerializer, **refusals(415)},
    )
    def post(self, request: Request) -> Response:
        body = NewFactSerializer(data=request.data)
        body.is_valid(raise_exception=True)
        fact = facts.write_down(
            body.validated_data["text"],
            owner_id=self.caller.owner_id,
            user_id=self.caller.user_id,
            by=actor(self.caller),
        )
        return Response(as_told(self.facts().filter(id=fact.id))[0], status=201)


@extend_schema(parameters=[FACT_ID, USER])
class FactView(FactsAPIView):
    @extend_schema(
        operation_id="change_fact",
        summary="Approve a fact, or put it differently",
        request=FactChangesSerializer,
        responses={200: FactSerializer, **refusals(404, 415)},
    )
    def patch(self, request: Request, fact_id: str) -> Response:
        changes = FactChangesSerializer(data=request.data)
        changes.is_valid(raise_exception=True)
        one = self.facts().filter(id=self.fact_id)
        wanted = changes.validated_data
        if not facts.decide(one, by=actor(self.caller), text=wanted.get("text"), approve="status" in wanted):
            raise UnknownFactError(self.fact_id)
        return Response(as_told(one)[0])

    @extend_schema(
        operation_id="delete_fact",
        summary="Have EVI forget a fact",
        responses={204: OpenApiResponse(description="It is forgotten."), **refusals(404)},
    )
    def delete(self, request: Request, fact_id: str) -> Response:
        if not facts.forget(self.facts().filter(id=self.fact_id), by=actor(self.caller)):
            raise UnknownFactError(self.fact_id)
        return Response(status=204)


def as_told(found: QuerySet[Fact]) -> list[dict[str, Any]]:
    """Facts with where they were said, in two queries."""
    told: list[Fact] = list(found)
    said = FactSource.objects.filter(fact__in=told).order_by("id").annotate(session_id=F("message__session_id"))
    by_fact: dict[UUID, list[dict[str, UUID]]] = {fact.id: [] for fact in told}
    for fact_id, message_id, session_id in said.values_list("fact_id", "message_id", "session_id"):
        by_fact[fact_id].append({"message_id": message_id, "session_id": session_id})
    return [
        {
            "id": fact.id,
            "text": fact.text,
            "status": fact.status,
            "created_at": fact.created_at,
            "decided_at": fact.decided_at,
            "sources": by_fact[fact.id],
        }
        for fact in told
    ]
