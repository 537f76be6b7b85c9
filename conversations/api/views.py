"""What the DRF surfaces share: JSON in, JSON out, and every refusal as {"error", "detail"}, in English."""

import logging
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import IO, Any

from django.core.exceptions import SuspiciousOperation
from django.db import InterfaceError, OperationalError
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils import translation
from drf_spectacular.utils import OpenApiResponse
from rest_framework import serializers
from rest_framework.exceptions import APIException, ParseError, ValidationError
from rest_framework.negotiation import DefaultContentNegotiation
from rest_framework.parsers import JSONParser
from rest_framework.renderers import BaseRenderer, JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from conversations.api.access import check_size
from conversations.errors import BadRequestError, DatabaseAwayError, EviError, InvalidSessionIdError

logger = logging.getLogger(__name__)


class ErrorSerializer(serializers.Serializer[Any]):
    error = serializers.CharField(help_text="What kind of refusal this is, in a few words.")
    detail = serializers.CharField(help_text="What was wrong, and what to do about it.")


def refusals(*statuses: int) -> dict[int, OpenApiResponse]:
    """The refusals of a route, for the schema; every route can refuse a key and too many requests."""
    return {
        status: OpenApiResponse(ErrorSerializer, description=HTTPStatus(status).phrase)
        for status in sorted({400, 401, 413, 429, 503, *statuses})
    }


class JSONBody(JSONParser):
    """JSON is UTF-8, whatever charset the header claims; and it can be nested too deeply for Python."""

    def parse(
        self, stream: IO[Any], media_type: str | None = None, parser_context: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        try:
            return super().parse(stream, media_type, {**(parser_context or {}), "encoding": "utf-8"})
        except RecursionError:
            raise ParseError("The JSON is nested too deeply.") from None


class AlwaysJSON(DefaultContentNegotiation):
    """EVI answers in JSON, also those who ask for something else; `?format=` is free for a route's own use."""

    def select_renderer(
        self, request: Request, renderers: Iterable[BaseRenderer], format_suffix: str | None = None
    ) -> tuple[BaseRenderer, str]:
        renderer = next(iter(renderers))
        return renderer, str(renderer.media_type)


class EviAPIView(APIView):
    # `access.identify` knows the clients; Django's own sign-in is for the admin.
    authentication_classes = ()
    permission_classes = ()
    parser_classes = (JSONBody,)
    renderer_classes = (JSONRenderer,)
    content_negotiation_class = AlwaysJSON

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        # The site speaks Dutch to people; programs are told what is wrong in one language.
        with translation.override("en"):
            return super().dispatch(request, *args, **kwargs)

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        check_size(request._request)

    def handle_exception(self, exc: Exception) -> Response:
        match exc:
            case InvalidSessionIdError():
                return _refusal(400, "Invalid session_id format", "session_id must be a valid UUID")
            case OperationalError() | InterfaceError():
                logger.exception("The database is away")
                return self.handle_exception(DatabaseAwayError())
            case EviError():
                return _refusal(exc.status, exc.title, exc.message, headers=exc.headers)
            case ValidationError():
                return _refusal(400, BadRequestError("").title, _first_problem(exc.detail))
            case ParseError() | SuspiciousOperation():
                return _refusal(400, BadRequestError("").title, str(exc))
            case APIException():
                return _refusal(exc.status_code, HTTPStatus(exc.status_code).phrase.capitalize(), str(exc.detail))
        return super().handle_exception(exc)


def _refusal(status: int, error: str, detail: str, headers: dict[str, str] | None = None) -> Response:
    return Response({"error": error, "detail": detail}, status=status, headers=headers)


def _first_problem(detail: Any, *path: str) -> str:
    """One problem is enough for a reader: where it is, and what it is."""
    if isinstance(detail, dict):
        field, problems = next(iter(detail.items()))
        return _first_problem(problems, *path, *([] if field == "non_field_errors" else [str(field)]))
    return f"{'.'.join(path)}: {detail[0]}" if path else str(detail[0])
