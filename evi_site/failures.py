"""What is answered where no view is: JSON to programs, each in its surface's shape, and a page to people."""

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views import defaults

from conversations.api.openai_shape import refusal
from conversations.errors import BadRequestError, EviError, NotFoundError


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    # The reason may name what only an administrator should know, and stands in the log.
    error = BadRequestError("EVI cannot read this request, or does not go by this host name (EVI_ALLOWED_HOSTS).")
    return _to_program(request, error) or defaults.bad_request(request, exception)


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    error = NotFoundError(f"There is nothing at {request.path}. /api/docs/ shows every route.")
    return _to_program(request, error) or defaults.page_not_found(request, exception)


def _to_program(request: HttpRequest, error: EviError) -> HttpResponse | None:
    if request.path.startswith("/v1"):
        return refusal(error)
    if request.path.startswith(("/api/", "/chat")):
        return JsonResponse({"error": error.title, "detail": error.message}, status=error.status)
    return None
