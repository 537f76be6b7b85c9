"""What came in, in EVI's terms: where it was said, by whom, and what it asks for."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from aiogram.enums import ChatType, ContentType, MessageEntityType
from aiogram.types import CallbackQuery, Message, PhotoSize, Update, User

from conversations.models import without_unstorable

COMMAND = re.compile(r"/(\w{1,64})(?:@(\w+))?(?:\s+(.*))?", re.DOTALL)
# Said by a person, and nothing that EVI can read. The rest is what Telegram says itself: who joined, what was pinned.
UNREADABLE = {
    ContentType.ANIMATION,
    ContentType.AUDIO,
    ContentType.CONTACT,
    ContentType.DICE,
    ContentType.DOCUMENT,
    ContentType.LOCATION,
    ContentType.POLL,
    ContentType.STICKER,
    ContentType.STORY,
    ContentType.VENUE,
    ContentType.VIDEO,
    ContentType.VIDEO_NOTE,
    ContentType.VOICE,
}


@dataclass(frozen=True)
class Place:
    """A thread: a chat, or a topic in one."""

    chat_id: int
    thread_id: int = 0
    # The message that is answered.
    message_id: int | None = None
    is_group: bool = False

    @property
    def user_id(self) -> str:
        """The person, which in Telegram is the chat: what a group says, the group has said."""
        return f"telegram:{self.chat_id}"

    @property
    def external_id(self) -> str:
        return f"{self.chat_id}:{self.thread_id}"


@dataclass(frozen=True)
class Command:
    name: str
    argument: str = ""


@dataclass(frozen=True)
class Question:
    text: str
    photo: PhotoSize | None = None


Asked = Command | Question | Literal["unreadable"]


def message_of(update: Update) -> Message | None:
    """The message that an update is about, if it is one that a person can have sent."""
    if update.callback_query:
        about = update.callback_query.message
        return about if isinstance(about, Message) else None
    return update.message or update.edited_message


def place_of(update: Update) -> Place | None:
    message = message_of(update)
    if message is None or message.chat.type not in {ChatType.PRIVATE, ChatType.GROUP, ChatType.SUPERGROUP}:
        return None
    return Place(
        message.chat.id,
        # In a group without topics this is the number of the message that a reply is about.
        (message.message_thread_id or 0) if message.is_topic_message else 0,
        None if update.callback_query else message.message_id,
        is_group=message.chat.type != ChatType.PRIVATE,
    )


def is_beginning(update: Update) -> bool:
    """Whether somebody opens the chat with the bot."""
    command = COMMAND.fullmatch((update.message and update.message.text) or "")
    return bool(command and command[1].lower() == "start")


def asked_in(message: Message, *, me: User) -> Asked | None:
    """What a message asks of EVI. None: it says nothing to EVI."""
    if message.from_user and message.from_user.is_bot:
        return None
    text = without_unstorable(message.text or message.caption or "").strip()
    command = COMMAND.fullmatch(text)
    for_me = bool(command and command[2] and command[2].lower() == (me.username or "").lower())
    is_private = message.chat.type == ChatType.PRIVATE
    if not (is_private or for_me or _is_reply_to(message, me) or _mentions(message, me)):
        return None
    if command and command[2] and not for_me:
        return None
    if command:
        return Command(command[1].lower(), (command[3] or "").strip())
    if not is_private:
        text = _without_mentions(text, me)
    if message.photo:
        return Question(text, message.photo[-1])
    if message.content_type in UNREADABLE:
        return "unreadable"
    return Question(text) if text else None


def chosen_in(query: CallbackQuery) -> Command | None:
    """The command behind a button."""
    name, _, argument = (query.data or "").partition(":")
    return Command(name, argument) if argument else None


def person_of(message: Message) -> dict[str, str]:
    """What Telegram tells about who is talking; in a group, about the group."""
    if message.chat.type != ChatType.PRIVATE:
        about = {"name": message.chat.title, "username": message.chat.username}
    elif sender := message.from_user:
        about = {"name": sender.full_name, "username": sender.username}
    else:
        about = {}
    return {name: without_unstorable(value) for name, value in about.items() if value}


def _is_reply_to(message: Message, me: User) -> bool:
    to = message.reply_to_message
    # In a topic, what replies to nothing replies to the topic's beginning.
    return bool(to and to.from_user and to.from_user.id == me.id and not to.forum_topic_created)


def _mentions(message: Message, me: User) -> bool:
    text = message.text or message.caption or ""
    for entity in message.entities or message.caption_entities or ():
        if entity.type == MessageEntityType.TEXT_MENTION and entity.user and entity.user.id == me.id:
            return True
        if entity.type == MessageEntityType.MENTION and entity.extract_from(text).lower() == f"@{me.username}".lower():
            return True
    return False


def _without_mentions(text: str, me: User) -> str:
    """A group's question as it would be asked in private."""
    return re.sub(rf"@{re.escape(me.username or '')}\b[,:]?", "", text, flags=re.IGNORECASE).strip()
