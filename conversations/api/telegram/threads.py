"""Which session a thread in Telegram is in, and how it gets another one."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from django.db import transaction
from django.db.models import OuterRef, Subquery

from agentbridge.said import HistoryItem
from conversations import handover
from conversations.api.telegram.messages import Place
from conversations.models import Message, Role, Session, SessionQuerySet, TelegramUpdate
from conversations.retries import request_key

SHOWN_SESSIONS = 8
MAX_LABEL_CHARS = 50
MIN_PREFIX_CHARS = 4


def idempotency_key(update: TelegramUpdate) -> str:
    return f"telegram:{update.bot_id}:{update.update_id}"


def sessions_of(place: Place, *, owner_id: int | None) -> SessionQuerySet:
    return Session.objects.for_owner(owner_id, user_id=place.user_id)


def current_session(place: Place, *, owner_id: int | None) -> UUID | None:
    """The session of the next question here. One that was handed over keeps the channel that it began in."""
    here = sessions_of(place, owner_id=owner_id).filter(external_id=place.external_id)
    return here.order_by("-last_accessed").values_list("id", flat=True).first()


def leave_session(place: Place, *, owner_id: int | None) -> bool:
    """The next question begins a new session; the old one stays. Whether there was one."""
    return bool(sessions_of(place, owner_id=owner_id).filter(external_id=place.external_id).update(external_id=""))


@transaction.atomic
def go_on_with(session_id: UUID, place: Place, *, owner_id: int | None) -> None:
    leave_session(place, owner_id=owner_id)
    sessions_of(place, owner_id=owner_id).filter(id=session_id).update(external_id=place.external_id)


@transaction.atomic
def take_over(code: str, place: Place, *, owner_id: int | None, person: dict[str, str]) -> Session:
    """The session that a code stands for goes on here."""
    session = handover.take_over(code, owner_id=owner_id, user_id=place.user_id, by="Telegram", person=person)
    go_on_with(session.id, place, owner_id=owner_id)
    return _with_first_questions(Session.objects.filter(id=session.id)).get()


def recent_sessions(place: Place, *, owner_id: int | None) -> Sequence[Session]:
    """The sessions of this chat, with what each began with."""
    found = sessions_of(place, owner_id=owner_id).order_by("-last_accessed", "-id")
    return list(_with_first_questions(found)[:SHOWN_SESSIONS])


def _with_first_questions(sessions: SessionQuerySet) -> SessionQuerySet:
    questions = Message.objects.active().filter(session=OuterRef("pk"), role=Role.USER).order_by("created_at", "seq")
    return sessions.annotate(first_question=Subquery(questions.values("content")[:1]))


def label_of(session: Session) -> str:
    words = " ".join((session.title or getattr(session, "first_question", None) or "Zonder titel").split())
    return words if len(words) <= MAX_LABEL_CHARS else words[: MAX_LABEL_CHARS - 1].rstrip() + "…"


def sessions_beginning(prefix: str, place: Place, *, owner_id: int | None) -> list[Session]:
    """The sessions of this chat that a beginning of an id may mean: two are enough to know that it means too much."""
    if len(prefix) < MIN_PREFIX_CHARS:
        return []
    found = sessions_of(place, owner_id=owner_id).id_begins_with(prefix.lower())
    return list(_with_first_questions(found)[:2])


def was_taken_over(update: TelegramUpdate, place: Place, *, owner_id: int | None) -> bool:
    """Whether the session of the last question here belongs to somebody else now."""
    earlier = TelegramUpdate.objects.filter(
        bot_id=update.bot_id, chat_id=place.chat_id, thread_id=place.thread_id, update_id__lt=update.update_id
    )
    last = _questions_of(list(earlier.order_by("-update_id")[:20]), place, owner_id=owner_id)
    return bool(last) and last[0].session.user_id != place.user_id


def question_before(update: TelegramUpdate, place: Place, *, owner_id: int | None) -> Message | None:
    """The question that a message was, before it was edited."""
    earlier = TelegramUpdate.objects.filter(
        bot_id=update.bot_id, chat_id=place.chat_id, message_id=update.message_id, update_id__lt=update.update_id
    )
    asked = _questions_of(list(earlier.order_by("-update_id")[:20]), place, owner_id=owner_id)
    return asked[0] if asked else None


def _questions_of(updates: Sequence[TelegramUpdate], place: Place, *, owner_id: int | None) -> list[Message]:
    keys = [
        request_key(owner_id=owner_id, user_id=place.user_id, idempotency_key=idempotency_key(update))
        for update in updates
    ]
    found = Message.objects.filter(request_key__in=keys).select_related("session")
    return sorted(found, key=lambda question: keys.index(question.request_key))


def said_before(question: Message) -> tuple[HistoryItem, ...]:
    """The thread up to a question."""
    thread = []
    for message in Message.objects.active().in_session(question.session_id):
        if (message.created_at, message.seq) >= (question.created_at, question.seq):
            break
        thread.append(HistoryItem(message.role, message.content))
    return tuple(thread)
