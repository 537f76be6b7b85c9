"""One run of the terminal: how it begins, which questions it puts, and how it ends."""

import os
import sys
from collections.abc import Iterable
from contextlib import closing
from io import TextIOWrapper

from terminal.arguments import SESSION_ID, Arguments, read_arguments
from terminal.client import Client
from terminal.errors import ChatError
from terminal.interrupts import Interrupts
from terminal.screen import print_json, say, say_error
from terminal.talk import FAILED, INTERRUPTED, Talk, error_object

WRONG_ARGUMENTS = 2


def main() -> int:
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")
    interrupts = Interrupts()
    interrupts.listen()
    as_json = "--json" in sys.argv[1:]
    try:
        arguments = read_arguments()
        client = Client(arguments.url, key=arguments.key, interrupts=interrupts)
    except ValueError as error:
        fail(ChatError(str(error), code="wrong_arguments"), as_json=as_json)
        return WRONG_ARGUMENTS
    try:
        with closing(client):
            return run(Talk(client), arguments, interrupts=interrupts)
    except ChatError as error:
        fail(error, as_json=as_json)
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read the answers has left; Python's own last flush must not complain about that.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED


def fail(error: ChatError, *, as_json: bool) -> None:
    if as_json:
        print_json(error_object(error))
    else:
        say_error(error)


def run(talk: Talk, arguments: Arguments, *, interrupts: Interrupts) -> int:
    """The whole of it; the result is its exit code."""
    is_interactive = not arguments.question and sys.stdin.isatty() and not arguments.as_json
    if is_interactive:
        talk.client.check()
    is_first_run = not talk.memory.last_session
    begin(talk, arguments)
    if not arguments.as_json:
        where = f"verder in gesprek {talk.conversation.id}" if talk.conversation.is_known else "nieuw gesprek"
        say(f"EVI op {talk.client.url} · {where}{' · stoppen met Ctrl-D' if is_interactive else ''}")
    if is_interactive:
        from terminal.prompt import converse

        if is_first_run:
            say("Met je eerste vraag wordt een gesprek gemaakt, en EVI onthoudt het. Vraag maar, in gewone woorden.")
            say("/new begint een ander gesprek, /sessions toont ze allemaal, /help zegt wat er nog meer kan.")
        return converse(talk, interrupts=interrupts)
    lines = map(str.strip, interrupts.each(sys.stdin))
    return answer_all(talk, [arguments.question] if arguments.question else lines, as_json=arguments.as_json)


def begin(talk: Talk, arguments: Arguments) -> None:
    """Put the run in the conversation that the command line asks for."""
    if SESSION_ID.fullmatch(arguments.session):
        talk.go_on_in(arguments.session)
    elif arguments.session:
        talk.take_up(talk.find(arguments.session))
    elif arguments.goes_on and not talk.take_up_last() and not arguments.as_json:
        say("Er is nog geen gesprek om mee verder te gaan: dit wordt het eerste.")


def answer_all(talk: Talk, questions: Iterable[str], *, as_json: bool) -> int:
    """Answer until one fails: the questions after it may lean on its answer."""
    for number, question in enumerate(filter(None, questions)):
        if number and not as_json:
            print()
        if code := talk.answer_as_json(question) if as_json else talk.answer(question):
            return code
    return 0
