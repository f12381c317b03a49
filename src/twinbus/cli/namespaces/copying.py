"""`twinbus copy`: a namespace from a folder to PostgreSQL, or back."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from twinbus.cli.command import JsonOption
from twinbus.cli.failures import CommandFailed
from twinbus.cli.interruption import interruptible
from twinbus.cli.namespaces.running import NAME
from twinbus.cli.namespaces.store_option import is_postgresql, read_dsns
from twinbus.cli.output import Output
from twinbus.errors import ArgumentError, StoreUnavailable

if TYPE_CHECKING:
    from twinbus.server.data.namespace_copy import NamespaceEnd

PLACE_HELP = "Folder of a namespace, such as ./twinbus-data/shop, or postgresql://..."
GO_ON = "Run it again: it continues where it ended."
TELL_EVERY = 100_000
HAS_SCHEME = re.compile(r"[a-z]+://")


def register(app: typer.Typer) -> None:
    app.command("copy")(copy)


def copy(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help=PLACE_HELP)],
    target: Annotated[str, typer.Argument(metavar="TARGET", help=PLACE_HELP)],
    name: Annotated[
        str | None, typer.Option("--name", help="Name of the namespace in PostgreSQL; that of the folder if omitted.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Move a stopped namespace from a folder to PostgreSQL, back, or to another database.

    All messages, sessions, entities, rules and keys go over, and are counted on both sides. If it is interrupted, run it
    again: it goes on where it ended. Afterwards the source is marked as moved and is not served any more.
    """
    from twinbus.clock import SystemClock
    from twinbus.server.data.namespace_copy import copy_namespace

    output = Output(as_json=as_json)
    known = name or _folder_name(target) or _folder_name(source)
    if known is None:
        raise ArgumentError("Source and target are both databases. Give the name of the namespace with --name.")
    if not NAME.fullmatch(known):
        raise ArgumentError(f"'{known}' is not a valid name for a namespace. Give one with --name.")
    try:
        with interruptible(lambda: GO_ON):
            copied = copy_namespace(
                _end(source, known), _end(target, known), SystemClock().now(), _Progress(output).told
            )
    except StoreUnavailable as fault:  # a full disk, a database that is gone
        raise CommandFailed(f"{fault} {GO_ON}") from None
    output.done(
        f"'{known}' is in {target}: {copied.stores} messaging stores, {copied.entities} entities, "
        f"{copied.messages:,} messages with {copied.size_bytes:,} bytes, counted on both sides. "
        f"{source} is unchanged, but marked as moved.",
        namespace=known,
        stores=copied.stores,
        entities=copied.entities,
        messages=copied.messages,
        bytes=copied.size_bytes,
    )


def _folder_name(place: str) -> str | None:
    return None if is_postgresql(place) else Path(place).resolve().name


def _end(place: str, name: str) -> "NamespaceEnd":
    from twinbus.server.data.namespace_copy import FolderEnd, PostgresEnd

    if is_postgresql(place):
        return PostgresEnd(read_dsns([place]), name)
    if HAS_SCHEME.match(place):
        raise ArgumentError(f"'{place}' is neither a folder nor a PostgreSQL database.")
    return FolderEnd(Path(place))


class _Progress:
    """A line now and then: a namespace may have millions of messages."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._count = self._next = 0

    def told(self, store: int, rows: int) -> None:
        self._count += rows
        if self._count >= self._next + TELL_EVERY and not self._output.as_json:
            self._next = self._count
            self._output.console.print(f"{self._count:,} messages, up to messaging store {store}", markup=False)
