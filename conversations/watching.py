"""`ws/admin/…`: what staff see of conversations as they happen."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import defaultdict
from collections.abc import Iterable
from typing import Any
from uuid import UUID

from channels.generic.websocket import AsyncWebsocketConsumer
from django.contrib.auth.models import User
from django.utils.formats import number_format

from agentbridge.database import in_database
from conversations.admin.conversation import entry_of
from conversations.handshake import Pace, is_welcome, request_of, signed_in
from conversations.live import ANNOUNCERS, FORGET_SECONDS, NOW, REPEAT_SECONDS, VIEWERS, session_group
from conversations.models import AuditEntry, Message, Session
from conversations.roles import may_read_contents

logger = logging.getLogger(__name__)

# As many as a page shows; whoever was away for longer loads the page again.
MOST_MESSAGES = 100
# HTTP's, in the room that WebSocket has for applications.
NOT_ALLOWED, TRY_LATER = 4403, 4503


class WatchingConsumer(AsyncWebsocketConsumer):  # type: ignore[misc]  # Channels has no types
    """Says every few seconds that somebody looks on, and stops when they may no longer."""

    group = ""

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        self.pace = Pace.of(send)
        self.request = request_of(scope)
        self.watching: asyncio.Task[None] | None = None
        try:
            await super().__call__(scope, receive, send)
        finally:
            if self.watching:
                self.watching.cancel()

    async def connect(self) -> None:
        if not (is_welcome(self.request) and await in_database(self._may_begin)):
            await self.close()
            return
        await self.accept()
        self.watching = asyncio.create_task(self._watch_until_it_fails())

    async def disconnect(self, code: int) -> None:
        await self.channel_layer.group_discard(VIEWERS, self.channel_name)
        await self.channel_layer.group_discard(self.group, self.channel_name)

    async def live_who(self, event: dict[str, Any]) -> None:
        await self._look_on(is_new=True)

    def _may_look(self) -> bool:
        raise NotImplementedError

    def _may_begin(self) -> bool:
        return self._may_look()

    async def _watch_until_it_fails(self) -> None:
        try:
            await self._watch()
        except Exception as error:
            logger.warning("Somebody can no longer look on: %r", error)
            await self.close(TRY_LATER)

    async def _watch(self) -> None:
        is_new = True
        while True:
            await self.channel_layer.group_add(VIEWERS, self.channel_name)
            await self.channel_layer.group_add(self.group, self.channel_name)
            await self._look_on(is_new=is_new)
            is_new = False
            await asyncio.sleep(REPEAT_SECONDS)
            if not await in_database(self._may_look):
                await self.close(NOT_ALLOWED)
                return

    async def _look_on(self, *, is_new: bool) -> None:
        hello = {"type": "live.hello", "group": self.group, "is_new": is_new}
        await self.channel_layer.group_send(ANNOUNCERS, hello)

    async def _say(self, **frame: Any) -> None:
        await self.pace.free()
        await self.send(text_data=json.dumps(frame))


class SessionConsumer(WatchingConsumer):
    """One session: the messages that are added, and the answers while they are being said."""

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        self.session_id: UUID = scope["url_route"]["kwargs"]["session_id"]
        self.group = session_group(self.session_id)
        self.begun: set[str] = set()
        await super().__call__(scope, receive, send)

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        """The id of the last message that the page has, or "again" where it missed a piece of an answer."""
        if text_data == "again":
            await self._look_on(is_new=True)
            return
        try:
            last = UUID(text_data or "")
        except ValueError:
            last = None
        for message in await in_database(_messages_after, self.session_id, last):
            await self._say(type="message", message=message)

    async def live_text(self, event: dict[str, Any]) -> None:
        if event["answer_id"] not in self.begun:
            self.begun.add(event["answer_id"])
            await self._show(event["question_id"])
        await self._say(**event | {"type": "text"})

    async def live_end(self, event: dict[str, Any]) -> None:
        self.begun.discard(event["answer_id"])
        await self._show(event["question_id"], event["answer_id"])
        await self._say(type="end", answer_id=event["answer_id"])

    def _may_look(self) -> bool:
        return may_read_contents(signed_in(self.request)) and Session.objects.filter(id=self.session_id).exists()

    def _may_begin(self) -> bool:
        if not self._may_look():
            return False
        user = signed_in(self.request)
        assert isinstance(user, User)
        # Without the page, too.
        AuditEntry.objects.record_opening(self.session_id, by=user)
        return True

    async def _show(self, *ids: str) -> None:
        for message in await in_database(_messages, self.session_id, ids):
            await self._say(type="message", message=message)


class NowConsumer(WatchingConsumer):
    """All turns in progress, of all processes."""

    group = NOW

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        # By process: when it was last heard of, and its turns.
        self.heard: dict[str, tuple[float, list[dict[str, Any]]]] = {}
        self.shows_people = False
        await super().__call__(scope, receive, send)

    async def live_now(self, event: dict[str, Any]) -> None:
        now = time.monotonic()
        self.heard[event["process"]] = (now, event["turns"])
        # A process that was killed does not say that its turns are over.
        self.heard = {process: told for process, told in self.heard.items() if told[0] > now - FORGET_SECONDS}
        turns = sorted((turn for _, told in self.heard.values() for turn in told), key=lambda turn: turn["since"])
        hidden = {} if self.shows_people else {"person": None}
        await self._say(type="now", turns=[turn | hidden for turn in turns])

    def _may_look(self) -> bool:
        user = signed_in(self.request)
        self.shows_people = may_read_contents(user)
        return may_see_sessions(user)


def may_see_sessions(user: object) -> bool:
    return isinstance(user, User) and user.is_active and user.is_staff and user.has_perm("conversations.view_session")


def _messages(session_id: UUID, ids: tuple[str, ...]) -> list[dict[str, Any]]:
    return _all_shown(Message.objects.in_session(session_id).filter(id__in=ids))


def _messages_after(session_id: UUID, last_id: UUID | None) -> list[dict[str, Any]]:
    """The latest messages, after the one of that id where it is among them."""
    latest = Message.objects.last_in_session(session_id, limit=MOST_MESSAGES)
    ids = [message.id for message in latest]
    return _all_shown(latest[ids.index(last_id) + 1 :] if last_id in ids else latest)


def _all_shown(messages: Iterable[Message]) -> list[dict[str, Any]]:
    """The messages, each with those that it took the place of: an edited question, an answer that is given anew."""
    by_id = {message.id: message for message in messages}
    replaced = defaultdict(list)
    for left in Message.objects.filter(
        session_id__in={message.session_id for message in by_id.values()}, superseded_by__in=by_id
    ).order_by("created_at", "seq"):
        replaced[left.superseded_by].append(str(left.id))
    return [_shown(message) | {"replaces": replaced[message.id]} for message in by_id.values()]


def _shown(message: Message) -> dict[str, Any]:
    return {
        "id": str(message.id),
        "role": message.role,
        "role_label": message.get_role_display(),
        "status": message.status,
        "status_label": message.get_status_display(),
        "created_at": message.created_at.isoformat(),
        "content": message.content,
        "citations": [str(each.get("document_title") or each.get("source") or "") for each in message.citations],
        "about": _about(message),
    }


def _about(message: Message) -> list[str]:
    """Model, tokens and time, in the words of the page."""
    entry = entry_of(message)
    tokens = entry.tokens and f"{entry.tokens} token{'s' if entry.tokens != 1 else ''}"
    seconds = None if entry.seconds is None else f"{number_format(entry.seconds, 1)} s"
    return [told for told in (entry.model, tokens, seconds) if told]
