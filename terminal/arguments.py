"""The command line, read and checked before anything is done."""

import argparse
import os
import re
from dataclasses import dataclass

import httpx

DEFAULT_URL = "http://127.0.0.1:8000"
SESSION_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
ID_BEGINNING = re.compile(r"[0-9a-f-]{4,35}")


@dataclass(frozen=True)
class Arguments:
    url: httpx.URL
    key: str
    # A whole id, or how one begins.
    session: str
    goes_on: bool
    as_json: bool
    question: str


def read_arguments() -> Arguments:
    parser = argparse.ArgumentParser(
        description="Praat met EVI. Zonder vraag begint een gesprek; met een vraag volgt alleen het antwoord.",
        add_help=False,
        allow_abbrev=False,
        exit_on_error=False,
    )
    options = parser.add_argument_group("wat je kunt opgeven")
    options.add_argument("question", nargs="*", metavar="vraag", help="een vraag, waarna cli.py stopt")
    url, key = os.environ.get("EVI_URL") or DEFAULT_URL, os.environ.get("EVI_API_KEY", "")
    options.add_argument("--url", default=url, help=f"het adres van EVI (anders EVI_URL, of {DEFAULT_URL})")
    options.add_argument("--key", default=key, help="de API-sleutel (anders EVI_API_KEY)")
    options.add_argument("--session", metavar="ID", type=str.lower, help="ga verder in dit gesprek; het begin volstaat")
    options.add_argument("--continue", dest="goes_on", action="store_true", help="ga verder in het laatste gesprek")
    options.add_argument("--json", dest="as_json", action="store_true", help="elk antwoord als een regel JSON")
    options.add_argument("-h", "--help", action="help", help="toon deze uitleg")
    try:
        given, unknown = parser.parse_known_args()
    except argparse.ArgumentError as error:
        raise ValueError(f"Na {error.argument_name} hoort een waarde: zie cli.py --help.") from None
    if unknown:
        raise ValueError(f"{unknown[0]} is geen optie: zie cli.py --help, of zet -- voor je vraag.")
    question = " ".join(given.question).strip()
    if given.question and not question:
        raise ValueError("De vraag is leeg: typ een vraag, of laat hem weg om een gesprek te beginnen.")
    if given.session is not None and not (SESSION_ID.fullmatch(given.session) or ID_BEGINNING.fullmatch(given.session)):
        raise ValueError(f"'{given.session}' is geen gesprek-id: neem het over, of laat --session weg.")
    if given.session is not None and given.goes_on:
        raise ValueError("Kies --continue (het laatste gesprek) of --session (dit gesprek), niet allebei.")
    key = given.key.strip()
    if not (key.isascii() and key.isprintable()):
        raise ValueError("In de API-sleutel staan tekens die er niet in horen: kopieer hem opnieuw.")
    return Arguments(
        url=server_url(given.url),
        key=key,
        session=given.session or "",
        goes_on=given.goes_on,
        as_json=given.as_json,
        question=question,
    )


def server_url(text: str) -> httpx.URL:
    """The server's own address, also when somebody names the /v1 below it."""
    try:
        url = httpx.URL(text.strip())
    except httpx.InvalidURL:
        url = httpx.URL()
    if url.scheme not in ("http", "https") or not url.host:
        raise ValueError(f"'{text}' is geen adres: schrijf het zoals {DEFAULT_URL}.")
    return url.copy_with(path=url.path.rstrip("/").removesuffix("/v1"), query=None, fragment=None)
