"""The admin as a site: Unfold's, with a policy for what its pages may load."""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from unfold.sites import UnfoldAdminSite

# Unfold's Alpine evaluates the expressions in its own templates, and htmx writes styles. What people and models said
# is escaped before it gets here, and no script of theirs would run: there is no 'unsafe-inline' for scripts.
POLICY = "; ".join(
    [
        "default-src 'self'",
        "script-src 'self' 'unsafe-eval'",
        "style-src 'self' 'unsafe-inline'",
        "img-src 'self' data:",
        "object-src 'none'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
    ]
)


class EviAdminSite(UnfoldAdminSite):  # type: ignore[misc]  # Unfold has no types
    site_header = "EVI-beheer"
    site_title = "EVI-beheer"
    index_title = "Overzicht"
    index_template = "admin/conversations/dashboard.html"

    def admin_view(self, view: Callable[..., HttpResponseBase], cacheable: bool = False) -> Callable[..., Any]:
        checked = super().admin_view(view, cacheable)

        def with_policy(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
            response: HttpResponseBase = checked(request, *args, **kwargs)
            response.headers.setdefault("Content-Security-Policy", POLICY)
            return response

        return update_wrapper(with_policy, view)

    def autocomplete_view(self, request: HttpRequest) -> HttpResponse:
        # No page of EVI asks for it, and it names sessions by their titles to whoever may see their list.
        raise Http404

    def login(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        response: HttpResponse = super().login(request, extra_context)
        response.headers["Content-Security-Policy"] = POLICY
        return response
