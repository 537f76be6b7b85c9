"""Forgetting a person in the admin: what would go, and letting it go."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path

from agentbridge.staff import counted
from conversations import forgetting
from conversations.admin.base import staff
from conversations.models import Fact, Message, Session

PERMISSION = "conversations.forget_person"


class ForgetPages:
    """A page of the session admin, for those who may forget a person."""

    def forget_urls(self: Any) -> list[URLPattern]:
        view = self.admin_site.admin_view(self.forget_view)
        return [path("<uuid:session_id>/forget/", view, name="conversations_session_forget")]

    def forget_view(self: Any, request: HttpRequest, session_id: UUID) -> HttpResponse:
        """Say what is known of the person of a session; delete it all when that is posted."""
        if not staff(request).has_perm(PERMISSION):
            raise PermissionDenied
        # Who is nobody in particular cannot be forgotten: that would be everybody without a name.
        session = get_object_or_404(Session.objects.exclude(user_id=""), pk=session_id)
        if request.method == "POST":
            gone = forgetting.forget_person(owner_id=session.owner_id, user_id=session.user_id, by=staff(request))
            self.message_user(request, f"Vergeten: {described(gone)}.", messages.SUCCESS)
            return redirect("admin:conversations_session_changelist")
        preview = forgetting.preview_forgetting(owner_id=session.owner_id, user_id=session.user_id)
        context = {
            **self.admin_site.each_context(request),
            "title": "Persoon vergeten",
            "opts": self.opts,
            "original": session,
            "doomed": described(preview),
        }
        return TemplateResponse(request, "admin/conversations/session/forget.html", context)


def described(receipt: forgetting.Receipt) -> str:
    return ", ".join(counted(model, receipt.counts[model._meta.db_table]) for model in (Session, Message, Fact))
