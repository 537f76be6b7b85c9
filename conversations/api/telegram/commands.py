"""The commands: /start, /new, /sessions, /resume, /handover and /help."""

from __future__ import annotations

from datetime import timedelta

from aiogram.types import InlineKeyboardButton, InlineKeyboardMarkup
from django.utils import timezone, translation
from django.utils.timesince import timesince

from agentbridge.database import in_database
from conversations import handover
from conversations.api.telegram import threads
from conversations.api.telegram.messages import Command, person_of
from conversations.api.telegram.talk import Talk
from conversations.models import Session

HELP = """\
Stel je vraag gewoon in een bericht. Ik onthoud wat er in dit gesprek is gezegd, dus je kunt doorvragen. Pas je een \
vraag aan, dan beantwoord ik haar opnieuw en vervalt wat daarna kwam.

/new – een nieuw gesprek beginnen
/sessions – je laatste gesprekken
/resume – verder met een eerder gesprek, of met een code
/handover – een code om ergens anders verder te gaan
/help – deze uitleg"""
WELCOME = f"""\
Hallo! Ik ben EVI, een assistent voor veilig en gezond werken. Ik zoek in richtlijnen en producten, en zeg erbij waar \
mijn antwoord staat.

{HELP}"""
UNKNOWN = f"Dat commando ken ik niet.\n\n{HELP}"
NEW = "Je volgende vraag begint een nieuw gesprek. Het vorige vind je terug met /sessions."
NEW_ALREADY = "Je volgende vraag begint een nieuw gesprek."
NO_SESSIONS = "Je hebt hier nog geen gesprekken. Stel een vraag om te beginnen."
SESSIONS = "Je laatste gesprekken. Tik er een aan om verder te gaan, of typ /resume met het begin van het nummer."
RESUMED = "Je gaat verder met: {label}"
NO_SUCH_SESSION = "Je hebt geen gesprek dat zo begint. Met /sessions zie je je laatste gesprekken."
SEVERAL = "Er zijn meer gesprekken die zo beginnen. Typ nog een paar tekens van het nummer."
TAKEN_OVER = "Het gesprek gaat hier verder: {label}"
CODE_USED = "Deze code is al gebruikt. Met /sessions zie je of het gesprek nu hier staat."
NOTHING_HERE = "Er is hier nog geen gesprek om over te dragen. Stel eerst een vraag, of kies er een met /sessions."
OFFER = """\
Je code is {code}

Hij werkt één keer en tien minuten lang. Typ in de terminal of in een andere chat met EVI: /resume {code}
Daarna staat het gesprek daar, en begint je volgende vraag hier een nieuw gesprek."""


async def perform(command: Command, talk: Talk) -> None:
    match command.name:
        case "start":
            await talk.say(WELCOME)
        case "help":
            await talk.say(HELP)
        case "new":
            had_one = await in_database(threads.leave_session, talk.place, owner_id=talk.owner_id)
            await talk.say(NEW if had_one else NEW_ALREADY)
        case "resume" if command.argument:
            await talk.say(await _resume(command.argument, talk))
        case "sessions" | "resume":
            await _show_sessions(talk)
        case "handover":
            await _offer(talk)
        case _:
            await talk.say(UNKNOWN)


async def _show_sessions(talk: Talk) -> None:
    sessions = await in_database(threads.recent_sessions, talk.place, owner_id=talk.owner_id)
    if not sessions:
        return await talk.say(NO_SESSIONS)
    lines = [f"{str(session.id)[:8]}  {threads.label_of(session)}, {_ago(session)}" for session in sessions]
    buttons = [
        [InlineKeyboardButton(text=threads.label_of(session), callback_data=f"resume:{session.id}")]
        for session in sessions
    ]
    return await talk.say("\n".join([SESSIONS, "", *lines]), keyboard=InlineKeyboardMarkup(inline_keyboard=buttons))


def _ago(session: Session) -> str:
    if timezone.now() - session.last_accessed < timedelta(minutes=1):
        return "zojuist"
    with translation.override("nl"):
        # Between number and unit it has a space that does not break.
        return timesince(session.last_accessed, depth=1).replace("\xa0", " ") + " geleden"


async def _resume(wanted: str, talk: Talk) -> str:
    """Go on with the session that an id, its beginning, or a code means. What there is to say about it."""
    found = await in_database(threads.sessions_beginning, wanted, talk.place, owner_id=talk.owner_id)
    if len(found) > 1:
        return SEVERAL
    if found:
        await in_database(threads.go_on_with, found[0].id, talk.place, owner_id=talk.owner_id)
        return RESUMED.format(label=threads.label_of(found[0]))
    if not handover.is_code(wanted):
        return NO_SUCH_SESSION
    try:
        session = await in_database(
            threads.take_over, wanted, talk.place, owner_id=talk.owner_id, person=person_of(talk.message)
        )
    except handover.UnknownCodeError:
        if talk.update.attempts == 1:
            raise
        # The attempt before this one may have used the code, and not have been able to say so.
        return CODE_USED
    return TAKEN_OVER.format(label=threads.label_of(session))


async def _offer(talk: Talk) -> None:
    session_id = await in_database(threads.current_session, talk.place, owner_id=talk.owner_id)
    if session_id is None:
        return await talk.say(NOTHING_HERE)
    offered = await in_database(handover.offer, session_id)
    return await talk.say(OFFER.format(code=offered.code))
