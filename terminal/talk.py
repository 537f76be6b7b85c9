"""The conversation that a run is in: asking in it, leaving it, and taking up another."""

import re
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from typing import Any

from terminal.arguments import SESSION_ID
from terminal.client import Client, Conversation, Ending, Event, Piece, Row
from terminal.errors import MODEL_TROUBLE, ChatError, NotThereError
from terminal.screen import SHORT_ID, print_json, say, say_error, show, show_sessions
from terminal.state import Memory
from terminal.words import storable

ANSWERED, FAILED, INTERRUPTED = 0, 1, 130
CANDIDATES = 10
# No id begins so: its first hyphen comes after eight characters.
CODE = re.compile(r"[0-9A-Z]{4}-[0-9A-Z]{4}")
INTERRUPTION = "interrupted"


class Talk:
    """One run: the way to the server, and the conversation it is in."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.memory = Memory(client.url)
        self.conversation = Conversation()
        # As they were numbered on the screen; what has not been shown cannot be meant.
        self.shown_facts: list[Row] = []
        self._hinted = ""

    def answer(self, question: str) -> int:
        """Put the question and show what comes; the result is the exit code, if this was all."""
        was_known = self.conversation.is_known
        failure = self._put(question, take=show)
        if failure and failure.code == INTERRUPTION:
            say(failure)
        elif failure:
            say_error(failure)
        if self._is_stored(failure) and not was_known and self._hinted != self.conversation.id:
            self._hinted = self.conversation.id
            say(f"Later verder in dit gesprek: --session {self.conversation.id} (of --continue)")
        return _exit_code(failure)

    def answer_as_json(self, question: str) -> int:
        """The same for scripts: one object on one line, also where it fails."""
        said: list[str] = []
        ending = Ending(model="", citations=[], usage={})

        def take(events: Iterator[Event]) -> None:
            nonlocal ending
            for event in events:
                if isinstance(event, Piece):
                    said.append(event.text)
                elif isinstance(event, Ending):
                    ending = event

        failure = self._put(question, take=take)
        reply: dict[str, Any] = {
            "answer": "".join(said),
            "citations": ending.citations,
            "session_id": self.conversation.id if self._is_stored(failure) else None,
            "model": ending.model,
            "usage": ending.usage,
        }
        print_json(reply | error_object(failure) if failure else reply)
        return _exit_code(failure)

    def _put(self, question: str, *, take: Callable[[Iterator[Event]], None]) -> ChatError | None:
        conversation, question = self.conversation, storable(question)
        failure: ChatError | None = None
        try:
            with closing(self.client.ask(question, conversation=conversation)) as events:
                take(events)
        except KeyboardInterrupt:
            failure = ChatError("(afgebroken)", code=INTERRUPTION)
        except ChatError as error:
            failure = error
        if self._is_stored(failure):
            self.memory.remember(conversation.id)
        return failure

    def _is_stored(self, failure: ChatError | None) -> bool:
        """Whether the server has the conversation. A question that was interrupted has most often reached it.

        One that the model failed at is stored, although the refusal does not say where.
        """
        return self.conversation.is_known or (failure is not None and failure.code in (INTERRUPTION, *MODEL_TROUBLE))

    def begin_anew(self) -> None:
        self.conversation = Conversation()

    def go_on_in(self, session_id: str) -> None:
        self.conversation = Conversation(session_id, is_known=True)

    def take_up(self, session: Row) -> None:
        """Go on in a session that the server told of."""
        self.go_on_in(session["id"])
        self.memory.remember(session["id"])

    def take_up_last(self) -> bool:
        """The session of the last run, or else the one that a terminal used last; whether there is one."""
        last = self.memory.last_session
        if SESSION_ID.fullmatch(last):
            with suppress(NotThereError):
                self.take_up(self.client.session(last))
                return True
        sessions, _ = self.client.sessions(channel="cli", limit=1)
        if sessions:
            self.take_up(sessions[0])
        return bool(sessions)

    def find(self, beginning: str) -> Row:
        """The one session whose id begins so."""
        found, has_more = self.client.sessions(prefix=beginning, limit=CANDIDATES)
        if not found:
            raise NoSuchSessionError(beginning)
        if len(found) > 1:
            show_sessions(found, id_chars=_enough_chars(found))
            others = " (en er zijn er nog meer)" if has_more else ""
            raise ChatError(
                f"Deze gesprekken beginnen alle met {beginning}{others}: typ iets meer van het id.", code="ambiguous"
            )
        return found[0]


class NoSuchSessionError(ChatError):
    def __init__(self, beginning: str) -> None:
        super().__init__(f"Geen gesprek begint met {beginning}: /sessions toont ze.", code="session_not_found")


def error_object(error: ChatError) -> dict[str, Any]:
    return {"error": {"code": error.code, "message": str(error)}}


def _enough_chars(sessions: list[Row]) -> int:
    """How much of their ids tells these sessions apart."""
    whole = len(sessions[0]["id"])
    return next(
        (chars for chars in range(SHORT_ID, whole) if len({each["id"][:chars] for each in sessions}) == len(sessions)),
        whole,
    )


def _exit_code(failure: ChatError | None) -> int:
    if failure is None:
        return ANSWERED
    return INTERRUPTED if failure.code == INTERRUPTION else FAILED
