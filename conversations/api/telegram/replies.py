"""What EVI does with what somebody says in Telegram."""

from __future__ import annotations

import logging
from dataclasses import replace
from io import BytesIO

from aiogram import Bot
from aiogram.exceptions import TelegramBadRequest, TelegramNetworkError
from aiogram.methods import GetFile
from aiogram.types import PhotoSize, Update
from aiohttp import ClientError
from django.conf import settings

from agentbridge.agent import IMAGE_ALONE
from agentbridge.database import in_database
from agentbridge.said import Image
from conversations.api.telegram import threads
from conversations.api.telegram.answers import answer_in_pieces
from conversations.api.telegram.bot import telegram_bot
from conversations.api.telegram.commands import perform
from conversations.api.telegram.messages import (
    Asked,
    Command,
    Question,
    asked_in,
    chosen_in,
    message_of,
    person_of,
    place_of,
)
from conversations.api.telegram.setup import is_allowed, owner_id
from conversations.api.telegram.talk import Talk
from conversations.errors import EviError, OwnFaultError
from conversations.limits import count
from conversations.models import Channel, TelegramUpdate
from conversations.openings import TurnRequest
from conversations.turns import run_turn

logger = logging.getLogger(__name__)

UNREADABLE = "Ik kan alleen tekst lezen. Stel je vraag in een bericht."
NO_PHOTOS = "Ik kan geen foto's bekijken. Beschrijf in een bericht wat erop te zien is."
TOO_LONG = "Dit bericht is te lang voor mij. Stel je vraag in hooguit {most} tekens."
NOT_ALLOWED = (
    "Je kunt in deze chat nog niet met EVI praten. Vraag de beheerder van EVI om de chat toe te laten; "
    "het nummer is {chat_id}."
)
TAKEN_OVER = "Je vorige gesprek gaat ergens anders verder. Dit is het begin van een nieuw gesprek."
EARLIER_SESSION = (
    "Die vraag staat in een ander gesprek. Ga daar eerst mee verder met /sessions, of stel de vraag hier opnieuw."
)


async def respond(update: TelegramUpdate) -> None:
    """Do what an update asks for; nothing where it asks nothing of EVI."""
    incoming = Update.model_validate(update.content)
    message, place = message_of(incoming), place_of(incoming)
    if message is None or place is None:
        return
    bot = telegram_bot()
    is_edit = incoming.edited_message is not None
    talk = Talk(bot, place, update, message, await in_database(owner_id), points_at_it=is_edit or place.is_group)
    asked: Asked | None
    if query := incoming.callback_query:
        # It stops the button's waiting, and has to come soon to be of any use.
        try:
            await bot.answer_callback_query(query.id)
        except TelegramBadRequest:
            logger.debug("Telegram: the button was pressed too long ago")
        asked = chosen_in(query)
    else:
        asked = asked_in(message, me=await bot.me())
    if asked is None:
        return
    try:
        if update.attempts == 1:
            count(f"telegram:{place.chat_id}", most=settings.EVI.rate_limit)
        match asked:
            case _ if not is_allowed(place.chat_id):
                logger.info("Telegram: chat %d is not among EVI_TELEGRAM_CHATS", place.chat_id)
                await talk.say(NOT_ALLOWED.format(chat_id=place.chat_id))
            case Command():
                await perform(asked, talk)
            case Question():
                await _answer(asked, talk, is_edit=is_edit)
            case _ if not is_edit:
                # Telegram calls every step of a shared location an edit.
                await talk.say(UNREADABLE)
    except EviError as error:
        await talk.say(error.in_dutch or OwnFaultError.in_dutch)


async def _answer(question: Question, talk: Talk, *, is_edit: bool) -> None:
    place, owner = talk.place, talk.owner_id
    text = question.text or IMAGE_ALONE
    if question.photo and not settings.EVI.model_sees_images:
        return await talk.say(NO_PHOTOS)
    if len(text) > settings.EVI.max_message_chars:
        return await talk.say(TOO_LONG.format(most=settings.EVI.max_message_chars))
    current = await in_database(threads.current_session, place, owner_id=owner)
    request = TurnRequest(
        prompt=text,
        session_id=current,
        external_id=place.external_id,
        owner_id=owner,
        user_id=place.user_id,
        person=person_of(talk.message),
        channel=Channel.TELEGRAM,
        idempotency_key=threads.idempotency_key(talk.update),
    )
    edited = await in_database(threads.question_before, talk.update, place, owner_id=owner) if is_edit else None
    if edited:
        if edited.content == text:
            # Telegram calls more an edit than people do.
            return None
        if edited.session_id != current:
            return await talk.say(EARLIER_SESSION)
        history = await in_database(threads.said_before, edited)
        request = replace(request, history=history, is_whole_thread=True)
    elif current is None and await in_database(threads.was_taken_over, talk.update, place, owner_id=owner):
        await talk.say(TAKEN_OVER)
    async with talk.typing():
        if question.photo:
            request = replace(request, images=(await _photo(question.photo, talk.bot),))
        reply = await run_turn(request)
    await talk.answer(answer_in_pieces(reply.text, reply.citations))
    return None


async def _photo(photo: PhotoSize, bot: Bot) -> Image:
    content = BytesIO()
    try:
        await bot.download(photo, content)
    except ClientError as error:
        # Its words have the file's address in them, and that has the token.
        raise TelegramNetworkError(
            method=GetFile(file_id=photo.file_id), message=f"a photo was not fetched ({type(error).__name__})"
        ) from None
    # Telegram makes every photo one.
    return Image("image/jpeg", content.getvalue(), "foto.jpg")
