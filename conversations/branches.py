"""The thread as a client replays it beside the thread as it is stored: what is the same, what was left, what is new."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from typing import Any
from uuid import UUID, uuid4

from django.db.models import Exists, OuterRef

from agentbridge.said import HistoryItem
from conversations import attachments
from conversations.models import Message, Place, Role, Status

# How models write down what they think, and how clients store it: <think> and <details type="reasoning">.
TAG = re.compile(r"<(/?)(details|think|thinking)\b([^<>]*)>", re.IGNORECASE)


@dataclass(frozen=True)
class Branch:
    """What a client says was said, message by message, each with the hash of all up to and including it."""

    said: tuple[HistoryItem, ...]
    hashes: tuple[UUID, ...]
    root: UUID

    @classmethod
    def of(cls, history: Iterable[HistoryItem], *, owner_id: int | None, user_id: str) -> Branch:
        # The hashes begin with who is talking: the same words of another person never look alike.
        root = _hash(repr((owner_id, user_id)).encode())
        said = tuple(item for item in history if spoken(item.content))
        hashes = accumulate(said, lambda before, item: follow(before, item.role, item.content), initial=root)
        return cls(said, tuple(hashes)[1:], root)

    @property
    def end(self) -> UUID:
        return self.hashes[-1] if self.hashes else self.root

    @property
    def answered(self) -> Branch:
        """As far as it was answered: without the questions at its end, which may not have arrived."""
        last = max((n for n, item in enumerate(self.said, start=1) if item.role != Role.USER), default=0)
        return Branch(self.said[:last], self.hashes[:last], self.root)

    def place_of(self, question: str) -> Place:
        """Where a question belongs that comes after all this."""
        return Place(self.end, follow(self.end, Role.USER, question), is_first=not self.said)


@dataclass(frozen=True)
class Reconciled:
    """A stored thread that is now as the client says."""

    question: Message
    # Whether it was stored before, and is asked again.
    is_repeated: bool
    # The answer that the client wants more of.
    unfinished: Message | None


def spoken(text: str) -> str:
    """What counts of a message: clients trim what they replay, and drop the reasoning."""
    return " ".join(without_reasoning(text).split())


def without_reasoning(text: str, *, folded: Collection[str] = ("reasoning",)) -> str:
    """The text without what a model thought, and what a client shows folded up as one of these kinds."""
    # Tag by tag: one expression for all of it takes minutes on a text that is made of opening tags.
    kept, position = [], 0
    opening: re.Match[str] | None = None
    for tag in TAG.finditer(text):
        closes, name, attributes = tag[1], tag[2].lower(), tag[3].lower()
        if opening is None:
            is_left_out = name != "details" or any(f'type="{kind}"' in attributes for kind in folded)
            opening = tag if is_left_out and not closes else None
        elif closes and name == opening[2].lower():
            kept.append(text[position : opening.start()])
            position, opening = tag.end(), None
    return " ".join([*kept, text[position:]]) if kept else text


def follow(before: UUID, role: str, text: str) -> UUID:
    """The hash of a branch with one more message."""
    return _hash(before.bytes + f"{role}\0{spoken(text)}".encode(errors="replace"))


def with_hashes(thread: Iterable[Message], *, owner_id: int | None, user_id: str) -> Iterator[Message]:
    """Messages that are to be stored as a whole thread, so that a client which replays it finds it again."""
    end = Branch.of((), owner_id=owner_id, user_id=user_id).root
    for message in thread:
        if spoken(message.content):
            message.branch_hash = end = follow(end, message.role, message.content)
        yield message


def find_thread(branch: Branch, *, question: str, owner_id: int | None, user_id: str) -> UUID | None:
    """The session in which this was said, for a client that names none.

    Best is one that ends with it. Where none does, the client went back: to ask the question again, or another one. Or
    EVI was away when the last questions were asked, and the client has them all the same.
    """
    found = _said_in(branch, question=question, owner_id=owner_id, user_id=user_id)
    answered = branch.answered
    if found or len(answered.said) in (0, len(branch.said)):
        return found
    return _said_in(answered, question=question, owner_id=owner_id, user_id=user_id)


def _said_in(branch: Branch, *, question: str, owner_id: int | None, user_id: str) -> UUID | None:
    place = branch.place_of(question)
    later = Message.objects.active().filter(session=OuterRef("session"), seq__gt=OuterRef("seq")).exclude(content="")
    found = (
        Message.objects.for_owner(owner_id, user_id=user_id)
        .filter(branch_hash__in=[place.after, place.branch_hash])
        .annotate(is_passed=Exists(later))
        .order_by("-session__last_accessed")
        .values_list("session_id", "branch_hash", "is_passed", "superseded_by")[:50]
    )
    best = min(
        found,
        key=lambda row: (row[3] is not None, row[1:3] != (place.after, False), row[1] != place.branch_hash),
        default=None,
    )
    return best[0] if best else _broken_off(branch, owner_id=owner_id, user_id=user_id)


def _broken_off(branch: Branch, *, owner_id: int | None, user_id: str) -> UUID | None:
    """The session whose last answer broke off, where the client may have got less of it than was stored, or more."""
    if not branch.said or branch.said[-1].role != Role.ASSISTANT:
        return None
    asked = branch.hashes[-2] if len(branch.hashes) > 1 else branch.root
    questions = (
        Message.objects.for_owner(owner_id, user_id=user_id)
        .active()
        .filter(role=Role.USER, branch_hash=asked)
        .order_by("-session__last_accessed")
        .values_list("id", flat=True)[:50]
    )
    answers = Message.objects.active().filter(reply_to__in=list(questions), status=Status.INTERRUPTED)
    return next((each.session_id for each in answers if same(each, branch.said[-1])), None)


def thread_up_to(answer: Message) -> list[Message]:
    """What was said up to and including a message, also where its person has left that branch since."""
    stored = list(Message.objects.in_session(answer.session_id))
    times = {message.id: (message.created_at, message.seq) for message in stored}
    answered_at = (answer.created_at, answer.seq)
    earlier = [message for message in stored if message.content and times[message.id] < answered_at]
    # What was left together with the answer, or after it, was there when it was given.
    later = {None, answer.superseded_by, *(each for each, time in times.items() if time > answered_at)}
    there = {message.id for message in earlier if message.superseded_by in later}
    root = Branch.of((), owner_id=answer.session.owner_id, user_id=answer.session.user_id).root
    places = {message.id: place for place, message in enumerate(earlier)}
    thread = [answer]
    while before := _said_before(thread[-1], earlier, root=root, there=there):
        thread.append(before)
        earlier = earlier[: places[before.id]]
    return thread[::-1]


def _said_before(message: Message, earlier: Sequence[Message], *, root: UUID, there: set[UUID]) -> Message | None:
    """The one of `earlier` that a message came after: as the hashes say, or else the rows."""
    if message.branch_hash == follow(root, message.role, message.content):
        return None
    by_hash = (
        each
        for each in (reversed(earlier) if message.branch_hash else ())
        if each.branch_hash and follow(each.branch_hash, message.role, message.content) == message.branch_hash
    )
    asked = (each for each in (reversed(earlier) if message.reply_to else ()) if each.id == message.reply_to)
    # A question that was just added to its session came after what was there.
    latest = (each for each in reversed(earlier) if each.id in there)
    return next(chain(by_hash, asked, latest), None)


def reconcile(
    branch: Branch,
    *,
    session_id: UUID,
    question: str,
    question_metadata: dict[str, Any],
    request_key: str = "",
    continues: bool = False,
) -> Reconciled:
    """Make the stored thread what the client says it is, and put the question at its end.

    What both have stays. What the client no longer has is superseded, not deleted. What only the client has is taken
    in. Call it in a transaction that holds the session.
    """
    stored = list(Message.objects.in_session(session_id))
    active = [message for message in stored if message.superseded_by is None]
    road, kept = active, _common(active, branch.said)
    if len(kept) < len(branch.said) and len(again := _common(stored, branch.said)) > len(kept):
        # The client has gone back to a branch that it had left.
        road, kept = stored, again
    thread = [*kept, *_take_in(branch, kept=kept, stored=stored, session_id=session_id)]
    unfinished = thread[-1] if continues else None
    asked_before = (
        next(message for message in reversed(thread) if message.role == Role.USER)
        if unfinished
        else _asked_next(road, kept=kept, branch=branch, question=question)
    )
    branch_hash = branch.place_of(question).branch_hash
    asked = asked_before or Message(
        id=uuid4(),
        session_id=session_id,
        role=Role.USER,
        content=question,
        metadata=question_metadata,
        request_key=request_key,
        branch_hash=branch_hash,
    )
    _supersede(active, stays={message.id for message in (*thread, asked)}, by=asked.id)
    _rehash(zip(kept, branch.hashes, strict=False))
    if not asked_before:
        asked.save(force_insert=True)
        asked.refresh_from_db(fields=["created_at", "seq"])
    elif not continues:
        _rehash([(asked, branch_hash)])
    if asked_before and request_key:
        # The request is known again by the question that it asks again.
        Message.objects.filter(id=asked.id).update(request_key=request_key)
    return Reconciled(asked, is_repeated=bool(asked_before), unfinished=unfinished)


def _common(stored: Sequence[Message], said: Sequence[HistoryItem]) -> list[Message]:
    """The stored messages that are the beginning of what was said; others between them were deleted by the client."""
    kept: list[Message] = []
    for message in stored:
        if len(kept) < len(said) and same(message, said[len(kept)]):
            kept.append(message)
    return kept


def same(message: Message, item: HistoryItem) -> bool:
    """Whether a stored message is what a client says was said."""
    if message.role != item.role:
        return False
    ours, theirs = spoken(message.content), spoken(item.content)
    # Of an answer that broke off, the last words may have reached one side alone.
    broke_off = message.status == Status.INTERRUPTED and bool(ours)
    return ours == theirs or (broke_off and (ours.startswith(theirs) or theirs.startswith(ours)))


def _asked_next(road: Sequence[Message], *, kept: Sequence[Message], branch: Branch, question: str) -> Message | None:
    """The stored question, if it is asked again at the same place."""
    if len(kept) < len(branch.said):
        return None
    after = road[road.index(kept[-1]) + 1 :] if kept else road
    following = next((message for message in after if message.content), None)
    if not following or not same(following, HistoryItem(Role.USER, question)):
        return None
    # Where branches that were left lie between, the next row may belong to one of those.
    is_here = following.superseded_by is None or following.branch_hash in (None, branch.place_of(question).branch_hash)
    return following if is_here else None


def _take_in(branch: Branch, *, kept: Sequence[Message], stored: Sequence[Message], session_id: UUID) -> list[Message]:
    known = {(message.role, spoken(message.content)): message.metadata for message in stored}
    added: list[Message] = []
    question_id = next((message.id for message in reversed(kept) if message.role == Role.USER), None)
    for item, branch_hash in list(zip(branch.said, branch.hashes, strict=True))[len(kept) :]:
        message = Message(
            id=uuid4(),
            session_id=session_id,
            role=item.role,
            content=item.content,
            # An answer that only moved keeps its citations.
            metadata=known.get((item.role, spoken(item.content)), {}) | attachments.store(item.images, session_id),
            reply_to=question_id if item.role == Role.ASSISTANT else None,
            branch_hash=branch_hash,
        )
        if item.role == Role.USER:
            question_id = message.id
        added.append(message)
    Message.objects.bulk_create(added)
    return added


def _supersede(active: Sequence[Message], *, stays: set[UUID], by: UUID) -> None:
    """Mark what the thread no longer has, and unmark what it has again."""
    left = []
    before: UUID | None = None
    for message in active:
        if message.content:
            before = message.id
        # An answer that failed without a word was never in the client's thread. It goes with its question, or when
        # that is asked again.
        if (message.id if message.content else before) not in stays or (not message.content and before == by):
            left.append(message.id)
    Message.objects.filter(id__in=left).update(superseded_by=by)
    Message.objects.filter(id__in=stays).exclude(superseded_by=None).update(superseded_by=None)


def _rehash(wanted: Iterable[tuple[Message, UUID]]) -> None:
    changed = []
    for message, branch_hash in wanted:
        if message.branch_hash != branch_hash:
            message.branch_hash = branch_hash
            changed.append(message)
    Message.objects.bulk_update(changed, ["branch_hash"], batch_size=500)


def _hash(data: bytes) -> UUID:
    return UUID(bytes=hashlib.sha256(data).digest()[:16])
