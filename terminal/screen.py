"""What the person sees: answers as they come, sources, tables, and the program's own words."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console

from terminal.client import Ending, Event, Piece, Progress
from terminal.words import day, moment, one_line

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

SHORT_ID = 8
NARROW = 100

screen = Console()
notes = Console(stderr=True)


def say(text: object, *, style: str = "dim") -> None:
    """A word of the program itself, beside the answers; a line stays a line for who reads it in a pipe."""
    notes.print(str(text), style=style, markup=False, highlight=False, soft_wrap=not notes.is_terminal)


def say_error(text: object) -> None:
    say(text, style="red")


def print_json(value: dict[str, Any]) -> None:
    print(json.dumps(value, ensure_ascii=False), flush=True)


def show(events: Iterator[Event]) -> None:
    """The answer while it comes; what was said stays, however it ends."""
    if not sys.stdout.isatty() or screen.is_dumb_terminal:
        _print(events)
    else:
        _draw(events)


def _print(events: Iterator[Event]) -> None:
    said = ""
    try:
        for event in events:
            match event:
                case Piece(text=said):
                    print(said, end="", flush=True)
                case Ending(citations=citations) if citations:
                    sources = "\n".join(f"[{cited['marker']}] {_source(cited)}" for cited in citations)
                    print(f"\n\n{sources}", end="", flush=True)
    finally:
        print(end="\n" if said else "", flush=True)


def _draw(events: Iterator[Event]) -> None:
    from rich.live import Live
    from rich.markdown import Markdown
    from rich.segment import SegmentLines
    from rich.spinner import Spinner

    text, citations = "", list[dict[str, Any]]()
    waiting = Spinner("dots", style="dim")

    def last_lines() -> RenderableType:
        # Only what the screen holds can be drawn again; the whole follows at the end.
        lines = screen.render_lines(Markdown(text))[2 - screen.height :]
        return SegmentLines(lines, new_lines=True) if text else waiting

    try:
        with Live(get_renderable=last_lines, console=screen, transient=True, refresh_per_second=12):
            for event in events:
                match event:
                    case Progress(text=doing):
                        waiting.update(text=_dim(doing))
                    case Piece(text=piece):
                        text += piece
                    case Ending():
                        citations = event.citations
    finally:
        if text:
            screen.print(Markdown(text))
    if citations:
        screen.print(_sources(citations))


def _sources(citations: Sequence[dict[str, Any]]) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 1))
    table.title, table.title_style, table.title_justify = "\nBronnen", "dim", "left"
    for cited in citations:
        about = Text(_source(cited))
        if url := cited.get("url"):
            about.append(f"\n{url}", style="dim")
        table.add_row(Text(f"[{cited['marker']}]", style="cyan"), about)
    return table


def _source(cited: dict[str, Any]) -> str:
    return ", ".join(filter(None, (cited["document_title"], cited.get("section"), cited["norm"])))


def show_sessions(sessions: Sequence[dict[str, Any]], *, current: str = "", id_chars: int = SHORT_ID) -> None:
    from rich.table import Table

    is_narrow = screen.width < NARROW
    table = Table(box=None, padding=(0, 1), header_style="dim", expand=False)
    table.add_column("id", no_wrap=True)
    table.add_column("titel", ratio=2, max_width=32)
    table.add_column("begonnen", no_wrap=True)
    table.add_column("gebruikt" if is_narrow else "laatst gebruikt", no_wrap=True)
    table.add_column("ber." if is_narrow else "berichten", justify="right", no_wrap=True)
    table.add_column("samenvatting", ratio=3)
    for session in sessions:
        mark = "bold" if session["id"] == current else ""
        row = [
            session["id"][:id_chars],
            one_line(session["title"], at_most=60) or "–",
            (day if is_narrow else moment)(session["created_at"]),
            (day if is_narrow else moment)(session["last_accessed"]),
            str(session["message_count"]),
            one_line(session.get("summary") or "", at_most=120),
        ]
        table.add_row(*map(_text, row), style=mark)
    screen.print(table)


def show_details(details: Sequence[tuple[str, str]]) -> None:
    """Names with their values, one below the other."""
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    for name, value in details:
        table.add_row(_dim(name), _text(value))
    screen.print(table)


def show_finds(finds: Sequence[dict[str, Any]]) -> None:
    """What a search found: where and when, and the words around it."""
    kinds = {"message": "bericht", "summary": "samenvatting", "fact": "feit"}
    for find in finds:
        session = str(find.get("session_id") or "")[:SHORT_ID]
        about = (session, one_line(find.get("title") or "", at_most=50), kinds.get(find["kind"], find["kind"]))
        screen.print(_dim(" · ".join(filter(None, (*about, moment(find.get("at")))))))
        screen.print(_text(f"  {one_line(find['snippet'], at_most=300)}"))


def show_facts(facts: Sequence[dict[str, Any]]) -> None:
    from rich.table import Table

    table = Table.grid(padding=(0, 1))
    for number, fact in enumerate(facts, start=1):
        waits = fact["status"] == "proposed"
        table.add_row(_dim(f"{number}."), _text(fact["text"]), _text("voorstel" if waits else "", style="yellow"))
    screen.print(table)


def _text(text: str, *, style: str = "") -> RenderableType:
    from rich.text import Text

    return Text(text, style=style)


def _dim(text: str) -> Any:
    return _text(text, style="dim")
