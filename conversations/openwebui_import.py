"""OpenWebUI's export taken into sessions: what EVI has not seen yet is added, and what it has is not added again."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4, uuid5

from django.conf import settings
from django.contrib.auth.models import User
from django.db import DatabaseError, OperationalError, transaction
from django.utils import timezone

from agentbridge.said import HistoryItem, Image
from conversations import attachments
from conversations.accounts import FIRST_CLIENT
from conversations.api.access import UUID4
from conversations.branches import Branch, follow, same, spoken
from conversations.models import ApiKey, Channel, Message, Role, Session
from conversations.models.statements import MADE_TITLE
from conversations.openwebui_export import BrokenChatError, Chat, NotAnExportError, Said, read_chat, read_export

BATCH = 500
# What OpenWebUI's key is called where people follow the manual.
KEY_NAME = "openwebui"
TICK = timedelta(microseconds=1)
# The first chat of an export is the newest: this far apart, a list of sessions has them in the same order.
STEP = timedelta(milliseconds=1)


class UnknownClientError(Exception):
    """There is no such client; the message says which there are."""


class Outcome(StrEnum):
    NEW = "new"
    UPDATED = "brought up to date"
    UNCHANGED = "unchanged"
    EMPTY = "without messages"


@dataclass
class ImportReport:
    """What became of an export, or would."""

    chats: Counter[Outcome] = field(default_factory=Counter)
    messages: int = 0
    failures: list[str] = field(default_factory=list)
    # New ones that were used so long ago that the next clean-up takes them.
    expired: int = 0

    def __str__(self) -> str:
        lines = [f"Could not be taken in: {failure}" for failure in self.failures]
        counts = ", ".join(f"{self.chats[outcome]} {outcome}" for outcome in Outcome)
        lines.append(f"{self.chats.total()} chats: {counts}; {self.messages} messages added.")
        days = settings.EVI.retention_days
        if self.expired:
            lines.append(f"{self.expired} of them were not used for {days} days: the next clean-up deletes them.")
        elif self.chats[Outcome.NEW] and days:
            lines.append(f"Chats that nobody goes on with or pins are deleted in {days} days, as any other.")
        return "\n".join(lines)


@dataclass(frozen=True)
class Plan:
    """What is to be done so that a session has all that its chat has."""

    added: list[Message]
    changed: list[Message]
    images: list[Image]


def import_openwebui(
    path: Path,
    *,
    client: str | None = None,
    without_users: bool = False,
    original_times: bool = False,
    dry_run: bool = False,
    progress: Callable[[int, int], object] = lambda done, total: None,
) -> ImportReport:
    """Take in an export, a chat to a transaction. A chat that is broken is reported, and the others are taken in.

    A new session counts as used now, or the clean-up would take it before anybody has seen it; with `original_times`
    it counts as used when its chat was. `without_users` is for a connection that does not tell who is asking.
    """
    owner, report, started = find_client(client), ImportReport(), timezone.now()

    def take_in(number: int, item: Mapping[str, Any]) -> None:
        chat = read_chat(item)
        if without_users:
            chat = replace(chat, user_id="")
        used_at = (original_times and chat.updated_at) or started - number * STEP
        _take_in(chat, owner=owner, used_at=min(used_at, started), dry_run=dry_run, report=report)

    try:
        for number, item in enumerate(read_export(path, progress=progress)):
            try:
                take_in(number, item)
            except BrokenChatError as error:
                report.failures.append(f"{_name_of(item, number)}: {error}")
            except OperationalError:
                raise
            except DatabaseError as error:
                report.failures.append(f"{_name_of(item, number)}: {str(error).splitlines()[0]}")
    except NotAnExportError as error:
        if not report.chats and not report.failures:
            raise
        report.failures.append(f"the rest of the file: {error}")
    return report


def find_client(name: str | None) -> User:
    """The client of this name; without one, that of the key for OpenWebUI, or the first."""
    if name is None:
        owners = ApiKey.objects.filter(name=KEY_NAME).values_list("client__username", flat=True).distinct()
        if len(owners) > 1:
            raise UnknownClientError(
                f"There are several keys called {KEY_NAME}. Choose a --client: {', '.join(owners)}"
            )
        name = owners[0] if owners else FIRST_CLIENT
    clients = User.objects.filter(is_staff=False).order_by("username")
    if client := clients.filter(username=name.replace("\0", "")).first():
        return client
    there_are = (
        ", ".join(clients.values_list("username", flat=True)) or "none: make a key with manage.py create_api_key"
    )
    raise UnknownClientError(f"There is no client called {name!r}. There are: {there_are}")


def _name_of(item: Mapping[str, Any], number: int) -> str:
    chat_id = item.get("id")
    return chat_id[:100] if isinstance(chat_id, str) and chat_id.isprintable() and chat_id else f"chat {number + 1}"


@transaction.atomic
def _take_in(chat: Chat, *, owner: User, used_at: datetime, dry_run: bool, report: ImportReport) -> None:
    if not chat.said:
        report.chats[Outcome.EMPTY] += 1
        return
    session = _session_of(chat, owner=owner)
    is_new = session._state.adding
    stored = [] if is_new else list(Message.objects.in_session(session.id))
    plan = _plan(chat, session=session, stored=stored)
    about = _renamed(chat, session)
    is_changed = bool(plan.added or plan.changed or about)
    outcome = Outcome.NEW if is_new else Outcome.UPDATED if is_changed else Outcome.UNCHANGED
    if not dry_run and outcome != Outcome.UNCHANGED:
        _carry_out(plan, about, session=session, used_at=used_at)
    report.chats[outcome] += 1
    report.messages += len(plan.added)
    days = settings.EVI.retention_days
    report.expired += bool(is_new and days and not session.pinned and used_at < timezone.now() - timedelta(days=days))


def _session_of(chat: Chat, *, owner: User) -> Session:
    """The session of a chat, kept from others to the end of the transaction; or a new one, not saved yet."""
    sessions = Session.objects.select_for_update(no_key=True)
    mine = sessions.for_owner(owner.pk, user_id=chat.user_id)
    session_id = UUID(chat.id) if UUID4.fullmatch(chat.id) else uuid4()
    found = mine.filter(id=session_id).first()
    found = found or mine.filter(channel=Channel.OPENWEBUI, external_id=chat.id).first()
    if found:
        return found
    if Session.objects.filter(id=session_id).exists():
        raise BrokenChatError("a session of this id belongs to somebody else")
    now = timezone.now()
    begun = chat.created_at or min((said.time for said in chat.said if said.time), default=now)
    return Session(
        id=session_id,
        owner=owner,
        user_id=chat.user_id,
        channel=Channel.OPENWEBUI,
        external_id=chat.id,
        title=chat.title,
        pinned=chat.is_pinned,
        created_at=min(begun, now),
    )


def _renamed(chat: Chat, session: Session) -> list[str]:
    """Which of the session's fields the chat has set since; nothing is unpinned, for that would let it be deleted."""
    if session._state.adding:
        return []
    is_newer = bool(chat.updated_at and chat.updated_at > session.updated_at)
    changed = []
    known = session.metadata if isinstance(session.metadata, dict) else {}
    was_chosen = session.title not in ("", known.get(MADE_TITLE))
    if chat.title and chat.title != session.title and (is_newer or not was_chosen):
        session.title = chat.title
        changed.append("title")
    if chat.is_pinned and not session.pinned and is_newer:
        session.pinned = True
        changed.append("pinned")
    return changed


def _carry_out(plan: Plan, about: Sequence[str], *, session: Session, used_at: datetime) -> None:
    if session._state.adding:
        session.save(force_insert=True)
    else:
        used_at = max(used_at, session.last_accessed)
        if about:
            session.save(update_fields=about)
    attachments.store(plan.images, session.id)
    Message.objects.bulk_create(sorted(plan.added, key=lambda message: message.created_at), batch_size=BATCH)
    Message.objects.bulk_update(plan.changed, ["superseded_by", "branch_hash", "metadata"], batch_size=BATCH)
    # The database has called it used just now.
    Session.objects.filter(id=session.id).update(last_accessed=used_at)


def _plan(chat: Chat, *, session: Session, stored: Sequence[Message]) -> Plan:
    before = {message.id: _changeable(message) for message in stored}
    hashes = _hashes(chat, Branch.of((), owner_id=session.owner_id, user_id=session.user_id).root)
    rows = _matched(chat, hashes, session=session, stored=stored)
    active = [message for message in stored if message.superseded_by is None]
    known = {row.id for row in rows.values()}
    unknown = [message for message in active if message.content and message.id not in known]
    shown = [rows[said] for said in chat.said if said.is_shown]
    # A conversation that went on in EVI after the chat was exported stays as it is.
    went_on = any(message.created_at > (chat.updated_at or shown[-1].created_at) for message in unknown)
    thread = Thread(active if went_on else shown)
    if not went_on:
        for message in unknown:
            message.superseded_by = thread.left_by(message, stored)
    images: list[Image] = []
    for said, row in rows.items():
        if row.id not in before or not went_on:
            row.branch_hash = hashes[said] if spoken(row.content) else None
            row.superseded_by = None if row.id in thread else row.superseded_by or thread.forked_at(said, rows)
        # What EVI knows about a message, it knows best.
        if not row.metadata:
            row.metadata = said.metadata | attachments.references(said.images)
            images += said.images
    return Plan(
        added=[row for row in rows.values() if row.id not in before],
        changed=[message for message in stored if before[message.id] != _changeable(message)],
        images=images,
    )


def _changeable(message: Message) -> tuple[Any, ...]:
    return message.superseded_by, message.branch_hash, message.metadata


def _hashes(chat: Chat, root: UUID) -> dict[Said, UUID]:
    """Of all that was said up to each message, as it is replayed."""
    hashes: dict[Said, UUID] = {}
    for said in chat.said:
        end = hashes[said.parent] if said.parent else root
        for text in said.replayed:
            end = follow(end, said.role, text) if spoken(text) else end
        hashes[said] = end
    return hashes


def _matched(
    chat: Chat, hashes: Mapping[Said, UUID], *, session: Session, stored: Sequence[Message]
) -> dict[Said, Message]:
    """Every message of the chat with its row, which is new where none of the stored ones is it."""
    rows: dict[Said, Message] = {}
    questions: dict[Said | None, UUID | None] = {None: None}
    by_id = {message.id: message for message in stored}
    by_hash, by_question = defaultdict(list), defaultdict(list)
    for message in stored:
        if message.branch_hash:
            by_hash[message.branch_hash].append(message)
        if message.role == Role.ASSISTANT:
            by_question[message.reply_to].append(message)
    taken: set[UUID] = set()
    now = timezone.now()
    # What is shown comes first, for it is what is active where two are alike; each still comes after its parent.
    for said in sorted(chat.said, key=lambda said: not said.is_shown):
        item, question = HistoryItem(said.role, said.text), questions[said.parent]
        own_id = uuid5(session.id, said.key)
        # Of a message that was edited, both versions are kept.
        edited_id = uuid5(own_id, spoken(said.text))
        candidates = [by_id[each] for each in (own_id, edited_id) if each in by_id and same(by_id[each], item)]
        alike = by_hash[hashes[said]] if spoken(said.text) else []
        if said.role == Role.ASSISTANT:
            alike = [*alike, *(message for message in by_question[question] if same(message, item))]
        candidates += sorted(alike, key=lambda message: (message.superseded_by is None) != said.is_shown)
        row = next((message for message in candidates if message.id not in taken), None)
        if row is None:
            time = min(said.time or session.created_at, now)
            row = Message(
                id=edited_id if own_id in by_id else own_id,
                session_id=session.id,
                role=said.role,
                content=said.text,
                status=said.status,
                metadata={},
                created_at=max(time, rows[said.parent].created_at + TICK) if said.parent else time,
                reply_to=question if said.role == Role.ASSISTANT else None,
            )
        taken.add(row.id)
        rows[said] = row
        questions[said] = row.id if said.role == Role.USER else question
    return rows


class Thread:
    """What is active in a session, and what took the place of what is not."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self.messages = messages
        self.places = {message.id: place for place, message in enumerate(messages)}

    def __contains__(self, message_id: UUID) -> bool:
        return message_id in self.places

    def forked_at(self, said: Said, rows: Mapping[Said, Message]) -> UUID:
        """The question that was asked instead of this one, or that was answered again."""
        first, fork = said, said.parent
        while fork and rows[fork].id not in self:
            first, fork = fork, fork.parent
        if fork and first.role == Role.ASSISTANT and fork.role == Role.USER:
            return rows[fork].id
        return self._question_after(rows[fork].id if fork else None)

    def left_by(self, message: Message, stored: Sequence[Message]) -> UUID:
        """The question that came in the place of one that the client no longer has."""
        if message.reply_to and message.reply_to in self:
            return message.reply_to
        earlier = stored[: stored.index(message)]
        return self._question_after(next((each.id for each in reversed(earlier) if each.id in self), None))

    def _question_after(self, message_id: UUID | None) -> UUID:
        """The question that the thread goes on with; at its end the last one."""
        begin = self.places[message_id] + 1 if message_id else 0
        asked = [message for message in self.messages if message.role == Role.USER]
        following = next((message for message in self.messages[begin:] if message.role == Role.USER), None)
        return (following or (asked or self.messages)[-1]).id
