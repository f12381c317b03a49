"""`twinbus namespace`: everything that is defined in a namespace, as one file."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from twinbus.cli.command import Call, command
from twinbus.cli.failures import CommandFailed
from twinbus.cli.help_pages import Group
from twinbus.cli.interruption import interruptible
from twinbus.client.stock_errors import text_of_client_error
from twinbus.errors import MessagingError

app = Group("Export all entities of a namespace to a file, and import them from one.")

if TYPE_CHECKING:
    from twinbus.definitions.remote_import import RemoteImport

OWNER_ONLY = 0o600
NAMED_MAX = 3

WithKeysOption = Annotated[
    bool,
    typer.Option("--with-keys", help="Write the keys of access rules too; then only the owner can read the file."),
]
UpdateOption = Annotated[
    bool, typer.Option("--update", help="Update entities and rules that differ; delete rules that are not in the file.")
]


@command(app, "export")
def export(
    call: Call,
    file: Annotated[
        Path | None, typer.Argument(help="TOML, or JSON if the name ends in .json; standard output if omitted.")
    ] = None,
    *,
    with_keys: WithKeysOption = False,
) -> None:
    """Write the queues, topics, subscriptions, rules and access rules of a namespace to a file."""
    from twinbus.definitions.entity_file import is_json, write_entities
    from twinbus.definitions.remote_entities import read_namespace

    with call.administration() as client:
        found = read_namespace(client)
    as_json = call.output.as_json if file is None else is_json(file)
    text = write_entities(found, as_json=as_json, with_keys=with_keys)
    if file is None:
        print(text, end="")
        return
    _write(file, text, is_secret=with_keys)
    counts = {"queues": len(found.queues), "topics": len(found.topics), "subscriptions": len(found.subscriptions)}
    call.output.done(f"{file} holds {_listed(counts)}.", file=str(file), **counts)


@command(app, "import")
def import_file(
    call: Call,
    file: Annotated[
        Path, typer.Argument(help="A file written by export, a file for --entities, or the emulator's Config.json.")
    ],
    *,
    update: UpdateOption = False,
) -> None:
    """Create the entities and rules in a file that do not exist; existing ones stay unchanged."""
    from twinbus.definitions.entity_file import read_entity_file
    from twinbus.definitions.remote_import import RemoteImport

    wanted = read_entity_file(file)
    with call.administration() as client:
        importing = RemoteImport(client, may_update=update)
        try:
            with interruptible(lambda: f"{_progress(file, importing)} Import it again to finish it."):
                importing.run(wanted)
        except Exception as failure:
            raise _partly(file, importing, failure) from failure
    counts = {what: importing.counts[what] for what in ("created", "updated", "deleted", "unchanged")}
    call.output.done(f"{file}: {_listed(counts)}.", file=str(file), **counts)


def _partly(file: Path, importing: "RemoteImport", failure: Exception) -> Exception:
    """The failure, with what was done before it if anything was."""
    text = str(failure) if isinstance(failure, MessagingError) else text_of_client_error(failure)
    if not _changes(importing) or text is None:
        return failure
    return CommandFailed(f"{_progress(file, importing)} Fix this, then import it again: {text}")


def _progress(file: Path, importing: "RemoteImport") -> str:
    names = list(importing.left.values())
    more = [f"{len(names) - NAMED_MAX} more"] if len(names) > NAMED_MAX else []
    left = " and ".join([", ".join(names[:NAMED_MAX]), *more])
    # Not "nothing": the request that was under way may have been done.
    done = _listed(_changes(importing)) or "no changes yet"
    return f"{file} is imported in part ({done}; not finished: {left})."


def _changes(importing: "RemoteImport") -> dict[str, int]:
    return {what: number for what, number in importing.counts.items() if number and what != "unchanged"}


def _listed(counts: dict[str, int]) -> str:
    return ", ".join(f"{number} {what}" for what, number in counts.items())


def _write(file: Path, text: str, *, is_secret: bool) -> None:
    def opener(path: str, flags: int) -> int:
        descriptor = os.open(path, flags, OWNER_ONLY if is_secret else 0o666)
        if is_secret:
            # Opening a file that exists does not change its mode.
            os.fchmod(descriptor, OWNER_ONLY)
        return descriptor

    try:
        with open(file, "w", encoding="utf-8", opener=opener) as output:
            output.write(text)
    except OSError as fault:
        raise CommandFailed(f"{file} cannot be written: {fault.strerror}.") from None
