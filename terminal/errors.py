"""What can go wrong, each in a sentence that says what to do about it."""

import json
import re
from typing import Any

import httpx

from terminal.words import plain

MODEL_TROUBLE = {
    "model_error": "Het model kon hier geen antwoord op geven: stel de vraag opnieuw, of anders.",
    "model_unavailable": "Het model is nu niet bereikbaar: probeer het over een minuut opnieuw.",
    "model_timeout": "Het model deed te lang over het antwoord: stel de vraag opnieuw.",
}


class ChatError(Exception):
    """What went wrong and what to do about it, in a sentence for the person at the keyboard."""

    def __init__(self, sentence: str, *, code: str = "") -> None:
        super().__init__(sentence)
        # For scripts.
        self.code = code


class NotThereError(ChatError):
    def __init__(self) -> None:
        super().__init__("Dat is er niet (meer).", code="not_found")


def unknown_route(purpose: str) -> ChatError:
    return ChatError(f"Deze EVI kan {purpose} nog niet: daar is een nieuwere versie voor nodig.", code="unknown_route")


def unreachable(error: httpx.RequestError, *, url: str) -> ChatError:
    if isinstance(error, httpx.ReadTimeout):
        return ChatError(f"EVI op {url} zwijgt: kijk of de server nog werkt en stel de vraag opnieuw.", code="silent")
    reason = re.sub(r"^\[.*?\] ", "", str(error)) or type(error).__name__
    return ChatError(
        f"EVI is niet bereikbaar op {url} ({reason}): start script/server, of geef een ander adres met --url.",
        code="unreachable",
    )


def broken_off() -> ChatError:
    return ChatError(
        "De verbinding brak af tijdens het antwoord: kijk of EVI nog draait en stel de vraag opnieuw.",
        code="broken_off",
    )


def server_trouble(code: object) -> ChatError:
    sentence = f"Bij EVI ging iets mis ({code}): probeer het zo nog eens, of kijk in het log van de server."
    return ChatError(MODEL_TROUBLE.get(str(code), sentence), code=str(code))


def refusal(response: httpx.Response, *, url: str, session_id: str = "") -> ChatError:
    """The sentence for an answer that is none; `session_id` is where a question was asked."""
    error = error_in(response)
    code = str(error.get("code") or response.status_code)
    match response.status_code:
        case 401 if "Authorization" in response.request.headers:
            sentence = "EVI kent deze API-sleutel niet: controleer --key of EVI_API_KEY."
        case 401:
            sentence = "EVI vraagt een API-sleutel: geef hem met --key, of zet hem in EVI_API_KEY."
        case 404 if error.get("code") == "session_not_found":
            sentence = f"Gesprek {session_id} is er niet (meer): typ /new, of start cli.py zonder --session."
        case 429:
            seconds = response.headers.get("Retry-After", "")
            when = f"{seconds} seconden" if seconds.isdigit() else "een minuut"
            sentence = f"Dat waren te veel vragen achter elkaar: probeer het over {when} opnieuw."
        case status if status >= 500:
            return server_trouble(code)
        case status if error and session_id:
            sentence = f"EVI weigert deze vraag ({error.get('message', status)}): stel hem korter of anders."
        case status if error:
            sentence = f"EVI weigert dit ({error.get('message', status)})."
        case status:
            moved = response.headers.get("Location")
            hint = f"het verwijst naar {moved}; geef" if moved else "geef"
            sentence = f"Op {url} antwoordt iets anders dan EVI (status {status}): {hint} het goede adres met --url."
    return ChatError(sentence, code=code)


def error_in(response: httpx.Response) -> dict[str, Any]:
    """The error as EVI words it, in either of its shapes; empty when it came from something else."""
    if not is_of(response, "application/json"):
        return {}
    try:
        body = plain(json.loads(response.read()))
        error = body["error"]
        return dict(error) if isinstance(error, dict) else {"message": body["detail"]}
    except (ValueError, KeyError, TypeError):
        return {}


def is_of(response: httpx.Response, content_type: str) -> bool:
    return str(response.headers.get("Content-Type", "")).startswith(content_type)
