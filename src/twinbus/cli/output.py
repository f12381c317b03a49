"""What a command prints: tables for people, one JSON document for programs (`--json`)."""

import codecs
import json
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from enum import Enum
from typing import Any

from rich.console import Console
from rich.table import Column, Table

from twinbus.model.iso8601 import NEVER_TEXT, write_duration

Record = Mapping[str, Any]

PIPE_WIDTH = 10_000


class Output:
    """Colour and box drawing are left to rich, which uses colour on a terminal only."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json
        self.console = Console(highlight=False, soft_wrap=True)
        if not self.console.is_terminal:
            # Files and pipes have no width: nothing is cut or wrapped for them.
            self.console = Console(highlight=False, soft_wrap=True, width=PIPE_WIDTH)

    def table(self, columns: Sequence[str], records: Sequence[Record]) -> None:
        if self.as_json:
            self._json([{name: _plain(value) for name, value in record.items()} for record in records])
            return
        self.console.print(made_table(columns, records))

    def record(self, record: Record) -> None:
        if self.as_json:
            self._json({name: _plain(value) for name, value in record.items()})
            return
        table = Table(Column(), Column(overflow="fold"), box=None, pad_edge=False, show_header=False)
        for name, value in record.items():
            table.add_row(_heading(name), _text(value))
        self.console.print(table)

    def done(self, text: str, **facts: Any) -> None:
        """What was achieved: a sentence, or its facts."""
        if self.as_json:
            self._json({name: _plain(value) for name, value in facts.items()})
        else:
            self.console.print(text, markup=False)

    def _json(self, document: object) -> None:
        print(json_text(document))


def json_text(document: object) -> str:
    """On one line. Where the output cannot hold every character, JSON has a spelling of its own for the others."""
    is_whole = codecs.lookup(getattr(sys.stdout, "encoding", None) or "utf-8").name == "utf-8"
    return json.dumps(document, ensure_ascii=not is_whole)


def made_table(columns: Sequence[str], records: Sequence[Record]) -> Table:
    """As `Output.table` prints it; for displays that change."""
    # Folded where it is too wide: a key, a path or a number of which the end is cut off is of no use.
    heads = (Column(_heading(name), overflow="fold") for name in columns)
    table = Table(*heads, box=None, pad_edge=False, header_style="bold")
    for record in records:
        table.add_row(*(_text(record.get(name)) for name in columns))
    return table


def _heading(name: str) -> str:
    return name.replace("_", " ")


def _plain(value: Any) -> Any:
    match value:
        case timedelta():
            return write_duration(value // timedelta(milliseconds=1))
        case datetime():
            return value.isoformat()
        case Enum():
            return value.value
        case Mapping():
            return {str(key): _plain(item) for key, item in value.items()}
        case bytes():
            return value.decode(errors="replace")
        case list() | tuple():
            return [_plain(item) for item in value]
        case str() | int() | float() | None:
            return value
        case _:
            return str(value)


def _text(value: Any) -> str:
    plain = _plain(value)
    if plain is None:
        return "-"
    if plain == NEVER_TEXT:
        return "never"
    if isinstance(plain, bool):
        return "yes" if plain else "no"
    # Rich reads brackets as markup; names and bodies may hold them.
    return str(plain).replace("[", "\\[")
