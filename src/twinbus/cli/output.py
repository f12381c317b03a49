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
from rich.text import Text

from twinbus.model.durations import short_duration

Record = Mapping[str, Any]

PIPE_WIDTH = 10_000

SPELT_OUT = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"}
"""Characters by which a message could move the cursor or hide what stands beside it."""


class Output:
    """Rich does the layout; it uses colour on a terminal only."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json
        self.console = Console(highlight=False, soft_wrap=True, emoji=False)
        if not self.console.is_terminal:
            # Files and pipes have no width, so nothing is cut or wrapped.
            self.console = Console(highlight=False, soft_wrap=True, emoji=False, width=PIPE_WIDTH)

    def table(self, columns: Sequence[str], records: Sequence[Record]) -> None:
        if self.as_json:
            self._json([{name: _plain(value) for name, value in record.items()} for record in records])
            return
        self.console.print(rich_table(columns, records))

    def record(self, record: Record) -> None:
        if self.as_json:
            self._json({name: _plain(value) for name, value in record.items()})
            return
        table = Table(Column(), Column(overflow="fold"), box=None, pad_edge=False, show_header=False)
        for name, value in record.items():
            table.add_row(_heading(name), _text(value))
        self.console.print(table)

    def done(self, text: str, **facts: Any) -> None:
        """The result: a sentence for people, its facts for programs."""
        if self.as_json:
            self._json({name: _plain(value) for name, value in facts.items()})
        else:
            self.console.print(text, markup=False)

    def _json(self, document: object) -> None:
        print(json_text(document))


def json_text(document: object) -> str:
    """On one line. Characters that the output encoding may lack are escaped."""
    is_whole = codecs.lookup(getattr(sys.stdout, "encoding", None) or "utf-8").name == "utf-8"
    return json.dumps(document, ensure_ascii=not is_whole)


def rich_table(columns: Sequence[str], records: Sequence[Record]) -> Table:
    """As `Output.table` prints it; for live displays."""
    # Folded if too wide: a key, a path or a number is useless with its end cut off.
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
            return short_duration(value // timedelta(milliseconds=1))
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


def _text(value: Any) -> Text:
    """As it is: in a plain string Rich would look for markup, and names and bodies may contain what it takes for that."""
    plain = _plain(value)
    if plain is None:
        return Text("-")
    if isinstance(plain, bool):
        return Text("yes" if plain else "no")
    return Text(str(plain).replace("\r\n", "\n").translate(SPELT_OUT))
