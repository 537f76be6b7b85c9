"""The prompt: what is typed, with what was typed before and what could be meant."""

from __future__ import annotations

import time
from collections.abc import Iterator

from prompt_toolkit import PromptSession
from prompt_toolkit.auto_suggest import AutoSuggestFromHistory
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.output import create_output

from terminal.client import Row
from terminal.commands import COMMANDS, FACT_WORDS, perform
from terminal.errors import ChatError
from terminal.interrupts import Interrupts
from terminal.screen import SHORT_ID, say
from terminal.talk import Talk
from terminal.words import moment, one_line

OFFERED_SESSIONS = 50
# Typing is quicker than sessions change.
FRESH_SECONDS = 15


def converse(talk: Talk, *, interrupts: Interrupts) -> int:
    file = talk.memory.history_file()
    history: History = FileHistory(str(file)) if file else InMemoryHistory()
    prompt: PromptSession[str] = PromptSession(
        # The prompt belongs to the person, also when the answers go into a file.
        output=create_output(always_prefer_tty=True),
        history=history,
        auto_suggest=AutoSuggestFromHistory(),
        completer=Offers(talk),
        complete_in_thread=True,
        reserve_space_for_menu=6,
    )
    while True:
        try:
            line = prompt.prompt("\n› ")
        except (KeyboardInterrupt, EOFError):
            say("Tot ziens.")
            return 0
        interrupts.listen()
        if not line.strip():
            continue
        say("")
        if line.startswith("/"):
            perform(talk, line.strip())
        else:
            talk.answer(line.strip())


class Offers(Completer):
    """What could be meant: commands, and the sessions there are. A question is nobody else's to finish."""

    def __init__(self, talk: Talk) -> None:
        self._talk = talk
        self._sessions: list[Row] = []
        self._asked_at = float("-inf")

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
        command, has_more, typed = document.text_before_cursor.partition(" ")
        if not command.startswith("/"):
            return
        typed = typed.lstrip()
        if not has_more:
            for each in COMMANDS:
                if each.name.startswith(command.lower()):
                    yield Completion(each.name, -len(command), display_meta=each.purpose)
        elif command == "/resume":
            for session in self._known_sessions():
                if session["id"].startswith(typed.lower()):
                    about = one_line(session["title"] or session.get("summary") or "", at_most=50)
                    when = moment(session["last_accessed"])
                    yield Completion(session["id"][:SHORT_ID], -len(typed), display_meta=f"{about} · {when}")
        elif command == "/facts" and " " not in typed:
            for word in FACT_WORDS:
                if word.startswith(typed.lower()):
                    yield Completion(word, -len(typed))

    def _known_sessions(self) -> list[Row]:
        if time.monotonic() - self._asked_at > FRESH_SECONDS:
            self._asked_at = time.monotonic()
            try:
                self._sessions, _ = self._talk.client.sessions(limit=OFFERED_SESSIONS)
            except ChatError:
                # Nothing to offer is no trouble; who presses Enter is told.
                self._sessions = []
        return self._sessions
