"""Facts about a person: the agent proposes them, a person approves, edits or forgets them."""

from uuid import UUID

from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from django.utils import timezone

from agentbridge.injection import safe
from agentbridge.memory import MAX_FACT_CHARS, in_one_line
from conversations.errors import BadRequestError
from conversations.models import Action, AuditEntry, Fact, FactQuerySet, FactSource, FactStatus, Message

# A model that proposes all the time is not read any more.
MOST_PROPOSED = 100
# Of a person, whether they are approved or proposed. More is not known of anybody, but written by a program.
MOST_FACTS = 1000


class UnfitFactError(BadRequestError):
    """A text that cannot be a fact about this person."""

    code = "unfit_fact"


class TooManyFactsError(BadRequestError):
    """There is room for no more about this person."""

    code = "too_many_facts"

    def __init__(self) -> None:
        super().__init__(f"EVI remembers at most {MOST_FACTS} facts about you. Have it forget one first.")


@transaction.atomic
def propose(text: str, *, owner_id: int | None, user_id: str, question_id: UUID) -> bool:
    """Whether this is a new proposal. What was said before is one fact with one more source."""
    mine = Fact.objects.for_owner(owner_id, user_id=user_id)
    question = Message.objects.for_owner(owner_id, user_id=user_id).filter(id=question_id)
    # Its session may be deleted at this moment. It waits until the fact has its source, and then takes both along.
    if not question.select_for_update(of=("self",), no_key=True).exists():
        return False
    fact, is_new = mine.filter(text__iexact=text).first(), False
    if fact is None:
        if mine.filter(status=FactStatus.PROPOSED).count() >= MOST_PROPOSED or mine.count() >= MOST_FACTS:
            return False
        fact, is_new = Fact.objects.get_or_create(owner_id=owner_id, user_id=user_id, text=text)
    if is_new or FactSource.objects.filter(fact=fact).exists():
        # One that somebody wrote down has no source, and must not go with this session.
        FactSource.objects.get_or_create(fact=fact, message_id=question_id)
    return is_new


@transaction.atomic
def write_down(text: str, *, owner_id: int | None, user_id: str, by: User | str) -> Fact:
    """A fact in the person's own hand, which needs nobody else's approval."""
    text = fit(text)
    mine = Fact.objects.for_owner(owner_id, user_id=user_id)
    if known := mine.filter(text__iexact=text).first():
        return decide(mine.filter(id=known.id), by=by, approve=True) or known
    if mine.count() >= MOST_FACTS:
        raise TooManyFactsError
    fact, is_new = Fact.objects.get_or_create(
        owner_id=owner_id,
        user_id=user_id,
        text=text,
        defaults={"status": FactStatus.APPROVED, "decided_at": timezone.now()},
    )
    if not is_new:
        # The same, a moment ago.
        return decide(mine.filter(id=fact.id), by=by, approve=True) or fact
    _record(fact, "written", by=by)
    return fact


@transaction.atomic
def decide(one: FactQuerySet, *, by: User | str, text: str | None = None, approve: bool = False) -> Fact | None:
    """Change or approve a fact; None where there is no such one."""
    fact = one.select_for_update().first()
    if fact is None:
        return None
    if text is not None and (text := fit(text)) != fact.text:
        fact.text = text
        # It is found by what it said before, until the worker has looked at it again.
        fact.embedding, fact.embedding_model, fact.terms = None, "", None
        try:
            with transaction.atomic():
                fact.save(update_fields=["text", "embedding", "embedding_model", "terms"])
        except IntegrityError as error:
            raise UnfitFactError("There is such a fact already.", param="text") from error
        _record(fact, "edited", by=by)
    if approve and fact.status != FactStatus.APPROVED:
        fact.status, fact.decided_at = FactStatus.APPROVED, timezone.now()
        fact.save(update_fields=["status", "decided_at"])
        _record(fact, "approved", by=by)
    return fact


@transaction.atomic
def forget(some: FactQuerySet, *, by: User | str) -> int:
    """How many facts are gone."""
    doomed = list(some.select_for_update())
    Fact.objects.filter(id__in=[fact.id for fact in doomed]).delete()
    for fact in doomed:
        _record(fact, "forgotten", by=by)
    return len(doomed)


def fit(text: str) -> str:
    """The text as it is kept, or a refusal."""
    text = in_one_line(text)
    if not 1 <= len(text) <= MAX_FACT_CHARS:
        raise UnfitFactError(f"A fact has 1 to {MAX_FACT_CHARS} characters.", param="text")
    if safe(text) != text:
        raise UnfitFactError("A fact is about you. This speaks to the assistant.", param="text")
    return text


def _record(fact: Fact, decision: str, *, by: User | str) -> None:
    AuditEntry.objects.record(Action.FACT_DECIDED, by=by, subject=str(fact.id), counts={decision: 1})
