"""`POST /telegram/webhook`: Telegram brings something. It is kept, acknowledged, and answered after that."""

from __future__ import annotations

import asyncio
import json
import logging
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any

from django.conf import settings
from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, JsonResponse
from django.utils.crypto import constant_time_compare
from django.views.decorators.csrf import csrf_exempt

from conversations.api.access import check_size
from conversations.api.telegram.setup import BotSettingsError, webhook_secret
from conversations.errors import BadRequestError, DatabaseAwayError, EviError, NotAuthenticatedError, NotFoundError
from conversations.farewell import before_the_end

logger = logging.getLogger(__name__)


class NotNowError(EviError):
    status = 503
    code = "telegram_not_ready"


@csrf_exempt
async def webhook(request: HttpRequest) -> JsonResponse:
    try:
        if request.method != "POST":
            return JsonResponse(
                {"error": "Method not allowed", "detail": "Use POST."}, status=405, headers={"Allow": "POST"}
            )
        update = _read(request)
        inbox = await _inbox()
        await inbox.receive(update)
    except EviError as error:
        refused = error
    except BotSettingsError as error:
        logger.error("%s", error)
        refused = NotNowError("EVI's settings for Telegram need attention; its log says what.")
    except (OperationalError, InterfaceError):
        logger.exception("The database is away")
        refused = DatabaseAwayError()
    else:
        inbox.begin()
        return JsonResponse({})
    return JsonResponse({"error": refused.title, "detail": refused.message}, status=refused.status)


@cache
def look_for_what_was_left() -> asyncio.Task[None] | None:
    """When a process starts: what the one before it could not answer is answered, also if nobody says anything new."""
    return asyncio.create_task(_look()) if settings.EVI.telegram_token else None


async def _look() -> None:
    (await _inbox()).begin()


async def _inbox() -> ModuleType:
    # The first time it takes seconds, and nobody else shall wait for that.
    inbox = await asyncio.to_thread(import_module, "conversations.api.telegram.inbox")
    before_the_end(inbox.stop)
    return inbox


def _read(request: HttpRequest) -> dict[str, Any]:
    if not settings.EVI.telegram_token:
        raise NotFoundError("This EVI has no Telegram bot.")
    if not constant_time_compare(request.headers.get("X-Telegram-Bot-Api-Secret-Token", ""), webhook_secret()):
        raise NotAuthenticatedError("The secret is not the one that was set with the webhook.")
    check_size(request)
    try:
        content = json.loads(request.body)
    except (ValueError, RecursionError):
        raise BadRequestError("The body is no JSON.") from None
    if not isinstance(content, dict) or type(content.get("update_id")) is not int:
        raise BadRequestError("The body is no update.")
    return content
