"""`/api/sessions/{id}/handover` and `/api/handover`: leave a session here, and go on with it somewhere else."""

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from conversations import handover
from conversations.api.access import actor
from conversations.api.chat import TextField
from conversations.api.sessions import SESSION_ID, USER, SessionsAPIView, SessionSerializer
from conversations.api.views import refusals

MAX_CODE_CHARS = 40


class OfferSerializer(serializers.Serializer[Any]):
    code = serializers.CharField(help_text="To be typed where the session is to go on. It works once.")
    expires_at = serializers.DateTimeField()


class CodeSerializer(serializers.Serializer[Any]):
    code = TextField(max_length=MAX_CODE_CHARS, help_text="As it was shown; case and the hyphen do not matter.")


class SessionHandoverView(SessionsAPIView):
    @extend_schema(
        operation_id="offer_session",
        summary="A code to go on with a session elsewhere",
        description="Whoever sends it to `/api/handover`, or types `/resume CODE` in Telegram or in the terminal, "
        "takes the session over: as another person, of the same client. A new code replaces the one before it.",
        parameters=[SESSION_ID, USER],
        request=None,
        responses={201: OfferSerializer, **refusals(404)},
    )
    def post(self, request: Request, session_id: str) -> Response:
        return Response(OfferSerializer(handover.offer(self.session().id)).data, status=201)


class HandoverView(SessionsAPIView):
    @extend_schema(
        operation_id="take_session_over",
        summary="Go on with a session of elsewhere",
        description="The session is yours from now on, and no longer of whoever gave the code.",
        parameters=[USER],
        request=CodeSerializer,
        responses={200: SessionSerializer, **refusals(404, 415)},
    )
    def post(self, request: Request) -> Response:
        body = CodeSerializer(data=request.data)
        body.is_valid(raise_exception=True)
        session = handover.take_over(
            body.validated_data["code"],
            owner_id=self.caller.owner_id,
            user_id=self.caller.user_id,
            by=actor(self.caller),
        )
        return Response(SessionSerializer(session).data)
