"""Saying something in Telegram."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from aiogram import Bot
from aiogram.enums import ChatAction
from aiogram.exceptions import TelegramAPIError, TelegramRetryAfter
from aiogram.types import InlineKeyboardMarkup, LinkPreviewOptions, Message, ReplyParameters

from agentbridge.database import in_database
from conversations.api.telegram.answers import Piece, in_pieces
from conversations.api.telegram.messages import Place
from conversations.models import TelegramUpdate

logger = logging.getLogger(__name__)

# What Telegram shows of it lasts five seconds.
TYPING_EVERY_SECONDS = 4
# Longer than that, and the update is put back instead.
MOST_PATIENCE_SECONDS = 60


@dataclass(frozen=True)
class Talk:
    """One update, with what is needed to say something back."""

    bot: Bot
    place: Place
    update: TelegramUpdate
    message: Message
    owner_id: int | None
    # An answer to an edited question, or in a group, stands by what it answers.
    points_at_it: bool = False

    async def say(self, text: str, *, keyboard: InlineKeyboardMarkup | None = None) -> None:
        for piece in in_pieces(Piece(text)):
            await self._send(piece, keyboard)

    async def answer(self, pieces: list[Piece]) -> None:
        """Say all of it, except what was said before a crash."""
        for number, piece in enumerate(pieces, 1):
            if number > self.update.pieces_sent:
                await self._send(piece, None)
                await in_database(TelegramUpdate.objects.filter(id=self.update.id).update, pieces_sent=number)

    async def _send(self, piece: Piece, keyboard: InlineKeyboardMarkup | None) -> None:
        while True:
            try:
                await self.bot.send_message(
                    self.place.chat_id,
                    piece.text,
                    message_thread_id=self.place.thread_id or None,
                    entities=piece.entities or None,
                    link_preview_options=LinkPreviewOptions(is_disabled=True),
                    reply_parameters=self._pointer(),
                    reply_markup=keyboard,
                )
            except TelegramRetryAfter as error:
                if error.retry_after > MOST_PATIENCE_SECONDS:
                    raise
                await asyncio.sleep(error.retry_after)
            else:
                return

    def _pointer(self) -> ReplyParameters | None:
        if not self.points_at_it or self.place.message_id is None:
            return None
        return ReplyParameters(message_id=self.place.message_id, allow_sending_without_reply=True)

    @asynccontextmanager
    async def typing(self) -> AsyncIterator[None]:
        """Show that an answer is being made, for as long as it takes."""
        showing = asyncio.create_task(self._show_typing())
        try:
            yield
        finally:
            showing.cancel()

    async def _show_typing(self) -> None:
        while True:
            try:
                await self.bot.send_chat_action(
                    self.place.chat_id, ChatAction.TYPING, message_thread_id=self.place.thread_id or None
                )
            except TelegramAPIError as error:
                # It is a courtesy; the answer itself finds out what is the matter.
                logger.debug("Telegram: typing was not shown: %s", error)
            await asyncio.sleep(TYPING_EVERY_SECONDS)
