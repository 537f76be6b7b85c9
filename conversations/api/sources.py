"""`/api/sources`: what an answer cites, to read in full, also when the knowledge base has moved on since."""

from typing import Any

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from agentbridge.models import Chunk, Product
from conversations.api.access import UUID4, identify
from conversations.api.views import EviAPIView, refusals
from conversations.errors import NotFoundError


class SourceSerializer(serializers.Serializer[Any]):
    kind = serializers.ChoiceField(["guideline", "product"])
    title = serializers.CharField()
    section = serializers.CharField(allow_blank=True, help_text="Of a product: its category.")
    text = serializers.CharField()
    norm = serializers.CharField(allow_blank=True)
    version = serializers.CharField(allow_blank=True)
    url = serializers.CharField(allow_blank=True)
    is_current = serializers.BooleanField(help_text="Whether it is still part of what EVI knows.")


class SourceView(EviAPIView):
    @extend_schema(
        operation_id="read_source",
        summary="What a citation stands for",
        parameters=[OpenApiParameter("source_id", str, OpenApiParameter.PATH, description="A citation's `chunk_id`.")],
        responses={200: SourceSerializer, **refusals(404)},
    )
    def get(self, request: Request, source_id: str) -> Response:
        identify(request._request)
        source = find_source(source_id) if UUID4.fullmatch(source_id) else None
        if source is None:
            raise NotFoundError("There is no such source.")
        return Response(SourceSerializer(source).data)


def find_source(source_id: str) -> dict[str, Any] | None:
    if chunk := Chunk.objects.select_related("document").filter(id=source_id).first():
        document = chunk.document
        return {
            "kind": "guideline",
            "title": document.title,
            "section": chunk.section,
            "text": chunk.text,
            "norm": document.norm,
            "version": document.version,
            "url": document.url,
            "is_current": chunk.retired_at is None,
        }
    if product := Product.objects.filter(id=source_id).first():
        return {
            "kind": "product",
            "title": product.name,
            "section": product.category,
            "text": product.description,
            "norm": product.norm,
            "version": "",
            "url": product.url,
            "is_current": product.retired_at is None,
        }
    return None
