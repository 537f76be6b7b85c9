"""The list of sessions: what stands in a row, and what a search looks through."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from uuid import UUID

from django.db.models import IntegerField, Q, QuerySet, Sum
from django.db.models.expressions import F, Func
from django.http import HttpRequest

from agentbridge.staff import StaffList
from conversations.admin.messages import words_of
from conversations.models import Message, Session
from conversations.roles import may_read_contents

# Shorter ones are more often words or numbers than the beginning of an id.
SHORTEST_ID = 4
ID_CHARACTERS = set("0123456789abcdef-")
# Nobody reads on for longer; they look for something more.
MOST_FOUND = 500


class SessionList(StaffList):
    """Adds the size of the sessions on this page, and takes the titles off for who may not read them."""

    result_list: Any

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        sessions = list(self.result_list)
        sizes = sizes_of(session.pk for session in sessions)
        for session in sessions:
            session.size = sizes.get(session.pk, 0)
            without_contents(session, unless=may_read_contents(request.user))
        self.result_list = sessions


def without_contents(session: Session, *, unless: bool) -> Session:
    """A session as somebody sees it who may not read what was said."""
    if not unless:
        session.title = ""
        session.metadata = {}
    return session


def sizes_of(session_ids: Iterable[UUID]) -> dict[UUID, int]:
    """How many bytes of text each session holds."""
    size = Sum(Func(F("content"), function="octet_length", output_field=IntegerField()))
    found = Message.objects.filter(session_id__in=list(session_ids)).order_by().values_list("session_id")
    return dict(found.annotate(size=size))


def searched(queryset: QuerySet[Session], search_term: str, *, in_contents: bool) -> QuerySet[Session]:
    """Every word must occur somewhere; words between quotes count as one."""
    words = words_of(search_term)
    if not words:
        return queryset
    matching = queryset
    for word in words:
        found = Q(user_id__icontains=word) | Q(external_id__icontains=word)
        if is_id(word):
            found |= Q(pk__in=Session.objects.id_begins_with(word.lower()).values("pk"))
        if in_contents:
            found |= Q(title__icontains=word) | Q(pk__in=Session.objects.saying(word).values("pk"))
        matching = matching.filter(found)
    # Once, and not again for their number and for each page.
    newest = matching.order_by("-last_accessed", "-id").values_list("pk", flat=True)[:MOST_FOUND]
    return queryset.filter(pk__in=list(newest))


def is_id(word: str) -> bool:
    return SHORTEST_ID <= len(word) <= 36 and set(word.lower()) <= ID_CHARACTERS
