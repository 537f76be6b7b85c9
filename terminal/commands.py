"""What can be typed at the prompt that is no question: each begins with a slash."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from terminal.client import Row
from terminal.errors import ChatError, NotThereError
from terminal.screen import (
    SHORT_ID,
    say,
    say_error,
    show_details,
    show_facts,
    show_finds,
    show_sessions,
)
from terminal.talk import CODE, Talk
from terminal.words import moment, one_line, storable

LISTED_SESSIONS = 20
MIN_BEGINNING = 4
APPROVE, FORGET, CHANGE = "akkoord", "vergeet", "wijzig"
# The words of the API do as well.
FACT_WORDS = {APPROVE: APPROVE, FORGET: FORGET, CHANGE: CHANGE, "approve": APPROVE, "forget": FORGET, "edit": CHANGE}
ENDINGS = {"json": "json", "markdown": "md"}


@dataclass(frozen=True)
class Command:
    name: str
    takes: str
    purpose: str
    perform: Callable[[Talk, str], None]


def perform(talk: Talk, line: str) -> None:
    """Do what was typed, or say what could have been."""
    name, _, rest = storable(line).partition(" ")
    command = next((each for each in COMMANDS if each.name == name.lower()), None)
    try:
        if command is None:
            say_unknown(name)
        else:
            command.perform(talk, rest.strip())
    except ChatError as error:
        say_error(error)
    except KeyboardInterrupt:
        say("(afgebroken)")


def say_unknown(name: str) -> None:
    names = [command.name for command in COMMANDS]
    close = get_close_matches(name.lower(), names, n=len(names), cutoff=0.0)
    say_error(f"{name} ken ik niet. Bedoel je {close[0]}? Er zijn: {', '.join(close)}.")
    say("Begint je vraag zelf met een schuine streep? Zet er dan een spatie voor.")


def new(talk: Talk, rest: str) -> None:
    before = talk.conversation
    talk.begin_anew()
    say("Een nieuw gesprek, dat met je volgende vraag wordt gemaakt.")
    if before.is_known:
        say(f"Terug naar het vorige: /resume {before.id[:SHORT_ID]}")


def resume(talk: Talk, rest: str) -> None:
    if not rest:
        raise ChatError("Welk gesprek? /resume met het begin van zijn id (/sessions toont ze), of met een code.")
    session = _handed_over(talk, rest) if _is_code(rest) else talk.find(_beginning(rest))
    talk.take_up(session)
    title = one_line(session["title"], at_most=60)
    say(" · ".join(filter(None, (f"Verder in gesprek {session['id']}", title, _count(session)))))
    said = [each for each in talk.client.last_messages(session["id"], limit=2) if each["content"]]
    for message in said:
        who = {"user": "Jij", "assistant": "EVI"}.get(message["role"], message["role"])
        say(f"{who}: {one_line(message['content'], at_most=200)}")


def _is_code(text: str) -> bool:
    """A hand-over code, also without its hyphen; then only where it cannot be the beginning of an id."""
    code = text.upper()
    return bool(CODE.fullmatch(code) or (re.fullmatch("[0-9A-Z]{8}", code) and not re.fullmatch("[0-9A-F]{8}", code)))


def _handed_over(talk: Talk, text: str) -> Row:
    code = text.upper().replace("-", "")
    try:
        return talk.client.take_over(f"{code[:4]}-{code[4:]}")
    except NotThereError:
        raise ChatError(
            "Deze code opent niets (meer): hij geldt één keer, maar even, en met een sleutel van dezelfde client. "
            "Vraag een nieuwe met /handover."
        ) from None


def _beginning(text: str) -> str:
    if not re.fullmatch(f"[0-9a-f-]{{{MIN_BEGINNING},36}}", text.lower()):
        raise ChatError(f"'{text}' is geen begin van een id: neem er minstens vier tekens van over.")
    return text.lower()


def sessions(talk: Talk, rest: str) -> None:
    found, has_more = talk.client.sessions(limit=LISTED_SESSIONS, **({"q": rest} if rest else {}))
    if not found:
        say(f"Geen gesprek heeft '{rest}' in zijn titel." if rest else "Er zijn nog geen gesprekken.")
        return
    show_sessions(found, current=talk.conversation.id)
    more = "Er zijn er meer: /sessions TEKST zoekt in titels. " if has_more else ""
    say(f"{more}Verder in een ervan: /resume en het begin van zijn id.")


def session(talk: Talk, rest: str) -> None:
    about = talk.client.session(_known_id(talk))
    show_details(
        [
            ("id", about["id"]),
            ("titel", about["title"] or "–"),
            ("kanaal", about["channel"]),
            ("begonnen", moment(about["created_at"])),
            ("laatst gebruikt", moment(about["last_accessed"])),
            ("berichten", str(about["message_count"])),
            ("samenvatting", about.get("summary") or "–"),
        ]
    )


def search(talk: Talk, rest: str) -> None:
    if not rest:
        raise ChatError("Waarnaar? /search en een paar woorden.")
    found = talk.client.search(rest)
    if not found:
        say(f"Over '{rest}' is niets gevonden. Wat net is gezegd, vindt EVI pas na een minuut of twee.")
        return
    show_finds(found)
    say("Verder in een gesprek: /resume en het begin van zijn id.")


def remember(talk: Talk, rest: str) -> None:
    if not rest:
        raise ChatError("Wat? /remember en wat EVI over je moet onthouden.")
    fact = talk.client.remember(rest)
    say(f"Onthouden: {fact['text']}")


def facts(talk: Talk, rest: str) -> None:
    if rest:
        _decide(talk, rest)
        return
    talk.shown_facts = talk.client.facts()
    if not talk.shown_facts:
        say("EVI heeft nog niets over je onthouden. /remember TEKST legt iets vast.")
        return
    show_facts(talk.shown_facts)
    say(
        f"/facts {APPROVE} 2 keurt een voorstel goed, /facts {FORGET} 2 vergeet het, /facts {CHANGE} 2 TEKST verbetert."
    )


def _decide(talk: Talk, rest: str) -> None:
    word, _, which = rest.partition(" ")
    decision = FACT_WORDS.get(word.lower())
    # Only a correction has words after its number.
    numbers, _, text = which.strip().partition(" ") if decision == CHANGE else (which, "", "")
    if decision is None or not re.fullmatch(r"\d+([ ,]+\d+)*", numbers.strip()) or (decision == CHANGE and not text):
        raise ChatError(f"Zo: /facts {APPROVE} 2, /facts {FORGET} 1 3, of /facts {CHANGE} 2 nieuwe tekst.")
    for fact in [_fact(talk, int(number)) for number in re.findall(r"\d+", numbers)]:
        try:
            if decision == FORGET:
                talk.client.forget_fact(fact["id"])
                say(f"Vergeten: {fact['text']}")
            elif decision == APPROVE:
                fact |= talk.client.change_fact(fact["id"], status="approved")
                say(f"Goedgekeurd: {fact['text']}")
            else:
                fact |= talk.client.change_fact(fact["id"], text=text.strip())
                say(f"Gewijzigd: {fact['text']}")
        except NotThereError:
            say(f"Was er al niet meer: {fact['text']}")


def _fact(talk: Talk, number: int) -> Row:
    if not talk.shown_facts:
        raise ChatError("Bekijk ze eerst met /facts: de nummers zijn die van de lijst.")
    if not 1 <= number <= len(talk.shown_facts):
        raise ChatError(f"Er staat geen {number} in de lijst: /facts toont hem opnieuw.")
    return talk.shown_facts[number - 1]


def export(talk: Talk, rest: str) -> None:
    session_id = _known_id(talk)
    *words, last = rest.split() or [""]
    if last.lower() in ENDINGS:
        kind, name = last.lower(), " ".join(words)
    else:
        kind, name = "json" if rest.lower().endswith(".json") else "markdown", rest
    # Path's own expanduser() fails on the home of somebody who is not there.
    file = Path(os.path.expanduser(name or f"gesprek-{session_id[:SHORT_ID]}.{ENDINGS[kind]}")).absolute()  # noqa: PTH111
    try:
        talk.client.export(session_id, format=kind, file=file)
    except FileExistsError:
        raise ChatError(f"{file} is er al: kies een andere naam, /export NAAM.") from None
    except OSError as error:
        raise ChatError(f"{file} kan niet worden gemaakt ({error.strerror}).") from None
    say(f"Bewaard in {file}")


def hand_over(talk: Talk, rest: str) -> None:
    given = talk.client.hand_over(_known_id(talk))
    say(f"De code is {given['code']}, één keer te gebruiken tot {moment(given['expires_at'])}.", style="")
    say(f"In Telegram of een andere terminal gaat dit gesprek verder met: /resume {given['code']}")


def show_help(talk: Talk, rest: str) -> None:
    show_details([(" ".join(filter(None, (each.name, each.takes))), each.purpose) for each in COMMANDS])
    say("Alles wat niet met / begint is een vraag. Ctrl-C breekt een antwoord af, Ctrl-D stopt; Tab vult aan.")


def _known_id(talk: Talk) -> str:
    if not talk.conversation.is_known:
        raise ChatError("Er is nog geen gesprek: dat wordt met je eerste vraag gemaakt.")
    return talk.conversation.id


def _count(session: Row) -> str:
    return "1 bericht" if session["message_count"] == 1 else f"{session['message_count']} berichten"


COMMANDS = (
    Command("/new", "", "begin een nieuw gesprek", new),
    Command("/resume", "ID | CODE", "ga verder in een ander gesprek; het begin van het id volstaat", resume),
    Command("/sessions", "[TEKST]", "toon je gesprekken, of die met deze titel", sessions),
    Command("/session", "", "toon dit gesprek", session),
    Command("/search", "TEKST", "zoek in alles wat er gezegd is", search),
    Command("/remember", "TEKST", "laat EVI iets over je onthouden", remember),
    Command("/facts", f"[{APPROVE}|{FORGET}|{CHANGE} N]", "wat EVI over je onthoudt, en wat het voorstelt", facts),
    Command("/export", "[BESTAND] [json | markdown]", "bewaar dit gesprek in een bestand", export),
    Command("/handover", "", "maak een code om elders verder te gaan", hand_over),
    Command("/help", "", "toon deze lijst", show_help),
)
