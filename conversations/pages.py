"""The pages for people: the chat, and the way in."""

from typing import Any, TypeVar

from django.conf import settings
from django.contrib.auth.views import LoginView, redirect_to_login
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import ensure_csrf_cookie
from django.views.decorators.http import require_safe

from conversations.api.access import is_open_to, signed_in

Response = TypeVar("Response", bound=HttpResponseBase)
# Nothing from elsewhere, nothing inline: what a model, a document or a title says cannot become a program here.
POLICY = "; ".join(
    [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "img-src 'self' data:",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    ]
)


@require_safe
@never_cache
@ensure_csrf_cookie
def chat(request: HttpRequest) -> HttpResponse:
    user = signed_in(request)
    if not user and not is_open_to(request):
        return _guarded(redirect_to_login(request.get_full_path()))
    context = {"most_characters": settings.EVI.max_message_chars}
    return _guarded(render(request, "conversations/chat.html", context))


class SignIn(LoginView):
    template_name = "conversations/login.html"
    redirect_authenticated_user = True

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        return _guarded(super().dispatch(request, *args, **kwargs))


def _guarded(response: Response) -> Response:
    response["Content-Security-Policy"] = POLICY
    return response
