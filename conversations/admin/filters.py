"""How staff narrow down the list of sessions."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.contrib import admin
from django.db.models import Exists, OuterRef, QuerySet
from django.http import HttpRequest
from django.utils import timezone

from conversations.figures import DAYS, midnight
from conversations.models import Message, Session, SessionQuerySet, Status

# Every word costs a look at an index.
MOST_SEARCH_WORDS = 10


class LastUsedFilter(admin.SimpleListFilter):
    title = "laatst gebruikt"
    parameter_name = "used"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [
            ("today", "vandaag"),
            ("week", "afgelopen 7 dagen"),
            ("month", "afgelopen 30 dagen"),
            ("older", "langer geleden"),
        ]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Session]) -> QuerySet[Session]:
        now = timezone.localtime()
        match self.value():
            case "today":
                return queryset.filter(last_accessed__gte=now.replace(hour=0, minute=0, second=0, microsecond=0))
            case "week":
                return queryset.filter(last_accessed__gte=now - timedelta(days=7))
            case "month":
                return queryset.filter(last_accessed__gte=now - timedelta(days=30))
            case "older":
                return queryset.filter(last_accessed__lt=now - timedelta(days=30))
        return queryset


class SaidFilter(admin.SimpleListFilter):
    """The days that the first page counts, so that its figures lead to the rows behind them."""

    title = "wanneer"
    parameter_name = "when"
    DAYS = {"today": 1, "week": 7, "month": DAYS}  # noqa: RUF012

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("today", "vandaag"), ("week", "laatste 7 dagen"), ("month", f"laatste {DAYS} dagen")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Message]) -> QuerySet[Message]:
        if not (days := self.DAYS.get(self.value() or "")):
            return queryset
        return queryset.filter(created_at__gte=midnight(timezone.localdate() - timedelta(days=days - 1)))


class ExpiryFilter(admin.SimpleListFilter):
    title = "bewaartermijn"
    parameter_name = "expiry"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("expired", "nu op te schonen"), ("soon", "binnen 7 dagen op te schonen"), ("dated", "met einddatum")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Session]) -> QuerySet[Session]:
        assert isinstance(queryset, SessionQuerySet)
        match self.value():
            case "expired":
                return queryset.expired()
            case "soon":
                return queryset.expired(now=timezone.now() + timedelta(days=7))
            case "dated":
                return queryset.filter(expires_at__isnull=False)
        return queryset


class BrokenOffFilter(admin.SimpleListFilter):
    title = "volledigheid"
    parameter_name = "broken"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [
            ("yes", "afgebroken of mislukt bericht"),
            ("interrupted", "afgebroken bericht"),
            ("failed", "mislukt bericht"),
            ("no", "alles volledig"),
        ]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Session]) -> QuerySet[Session]:
        broken = Message.objects.filter(session=OuterRef("pk"), status__in=[Status.INTERRUPTED, Status.FAILED])
        match self.value():
            case "yes":
                return queryset.filter(Exists(broken))
            case "interrupted":
                return queryset.filter(Exists(broken.filter(status=Status.INTERRUPTED)))
            case "failed":
                return queryset.filter(Exists(broken.filter(status=Status.FAILED)))
            case "no":
                return queryset.filter(~Exists(broken))
        return queryset
