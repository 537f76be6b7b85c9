"""What can go wrong in a turn. Each surface puts these into its own shape, once."""

from typing import ClassVar
from uuid import UUID


class EviError(Exception):
    """Something the client is told: a status as in HTTP, a code for programs, a message for people."""

    status: ClassVar[int] = 500
    code: ClassVar[str] = "internal_error"
    # What the person who asked is told, where it is a person's to know; the message is for whoever writes a client.
    in_dutch: ClassVar[str] = ""

    def __init__(self, message: str, *, param: str | None = None, headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.headers = headers or {}

    @property
    def title(self) -> str:
        """The code in words, for surfaces that show both."""
        return self.code.replace("_", " ").capitalize()


class OwnFaultError(EviError):
    """What nobody expected; the log says more."""

    in_dutch = "Er ging bij EVI iets mis. Stel je vraag nog eens."

    def __init__(self) -> None:
        super().__init__("Something went wrong on EVI's side. Please try again.")


class BadRequestError(EviError):
    status = 400
    code = "invalid_request"


class InvalidSessionIdError(BadRequestError):
    code = "invalid_session_id"

    def __init__(self) -> None:
        super().__init__("Invalid session ID format: must be valid UUID", param="X-Session-ID")


class NotAuthenticatedError(EviError):
    status = 401
    code = "invalid_api_key"


class ForgedRequestError(EviError):
    """A change that comes with the cookie of who signed in, and perhaps from a page that is not EVI's."""

    status = 403
    code = "csrf_failed"

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"{reason} Send the cookie csrftoken's value in the header X-CSRFToken, or an API key instead."
        )


class NotFoundError(EviError):
    status = 404
    code = "not_found"


class SessionNotFoundError(NotFoundError):
    code = "session_not_found"

    def __init__(self, session_id: UUID) -> None:
        super().__init__(f"Session not found: {session_id}. Leave the X-Session-ID header out to begin a new session.")


class TooLargeError(EviError):
    status = 413
    code = "request_too_large"
    in_dutch = "Dit is te groot voor EVI. Stuur minder of kleinere bestanden mee."


class UnsupportedMediaTypeError(EviError):
    status = 415
    code = "unsupported_media_type"


class TooManyRequestsError(EviError):
    status = 429
    code = "rate_limit_exceeded"
    in_dutch = "Dat waren veel vragen achter elkaar. Probeer het over een minuut opnieuw."

    def __init__(self, *, retry_after: int) -> None:
        super().__init__(
            f"Too many requests. Try again in {retry_after} seconds.", headers={"Retry-After": str(retry_after)}
        )


class SessionBusyError(EviError):
    """For a client that lets its questions wait in line."""

    status = 429
    code = "session_busy"
    in_dutch = "Ik ben nog bezig met je vorige vraag. Probeer het over een minuut opnieuw."

    def __init__(self, *, retry_after: int) -> None:
        super().__init__(
            "Earlier questions in this session are still being answered. "
            f"Try again in {retry_after} seconds, or use another session.",
            headers={"Retry-After": str(retry_after)},
        )


class BrokenOffError(EviError):
    """For who listens to an answer that another request has put an end to."""

    status = 429
    code = "answer_broken_off"
    in_dutch = "Dit antwoord is afgebroken. Stel je vraag nog eens als je het nog wilt weten."

    def __init__(self) -> None:
        super().__init__(
            "Another request in this chat took this question over. Ask again if you still want an answer here.",
            headers={"x-should-retry": "false"},
        )


class DatabaseAwayError(EviError):
    status = 503
    code = "database_unavailable"
    in_dutch = "EVI kan nu niets opzoeken of bewaren. Probeer het over een minuut opnieuw."

    def __init__(self) -> None:
        super().__init__("EVI cannot reach its database at the moment. Please try again in a minute.")


class ModelFailedError(EviError):
    status = 502
    code = "model_error"
    in_dutch = "Het taalmodel kon deze vraag niet beantwoorden. Stel je vraag nog eens."


class ModelUnavailableError(EviError):
    status = 503
    code = "model_unavailable"
    in_dutch = "Het taalmodel is nu niet bereikbaar. Probeer het over een minuut opnieuw."


class ModelTimeoutError(EviError):
    status = 504
    code = "model_timeout"
    in_dutch = "Het antwoord liet te lang op zich wachten. Stel je vraag nog eens."
