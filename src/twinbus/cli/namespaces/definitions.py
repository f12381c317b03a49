"""`twinbus namespace`: everything that is defined in a namespace, as one file."""

import os
from pathlib import Path
from typing import Annotated

import typer

from twinbus.cli.command import Call, command
from twinbus.cli.failure import CommandFailed

app = typer.Typer(no_args_is_help=True, help="Write all entities of a namespace to a file, and make them from one.")

OWNER_ALONE = 0o600

WithKeysOption = Annotated[
    bool, typer.Option("--with-keys", help="Write the keys of access rules too; the file is then the owner's alone.")
]
UpdateOption = Annotated[
    bool, typer.Option("--update", help="Change entities and rules that differ; rules not in the file are deleted.")
]


@command(app, "export")
def export(
    call: Call,
    file: Annotated[Path | None, typer.Argument(help="TOML, or JSON if it ends so; left out: standard output.")] = None,
    *,
    with_keys: WithKeysOption = False,
) -> None:
    """Write down the queues, topics, subscriptions, rules and access rules of a namespace."""
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
    told = ", ".join(f"{number} {what}" for what, number in counts.items())
    call.output.done(f"{file} holds {told}.", file=str(file), **counts)


@command(app, "import")
def import_file(
    call: Call,
    file: Annotated[
        Path, typer.Argument(help="What export wrote, a file for --entities, or the emulator's Config.json.")
    ],
    *,
    update: UpdateOption = False,
) -> None:
    """Make what a file describes and is not there; what is there stays as it is."""
    from twinbus.definitions.entity_file import read_entity_file
    from twinbus.definitions.remote_making import RemoteMaking

    wanted = read_entity_file(file)
    with call.administration() as client:
        making = RemoteMaking(client, may_change=update)
        making.make(wanted)
    counts = {what: making.counts[what] for what in ("made", "changed", "deleted", "left")}
    told = ", ".join(f"{number} {what}" for what, number in counts.items())
    call.output.done(f"{file}: {told}.", file=str(file), **counts)


def _write(file: Path, text: str, *, is_secret: bool) -> None:
    def opener(path: str, flags: int) -> int:
        descriptor = os.open(path, flags, OWNER_ALONE if is_secret else 0o666)
        if is_secret:
            # A file that was there before keeps its mode unless it is told.
            os.fchmod(descriptor, OWNER_ALONE)
        return descriptor

    try:
        with open(file, "w", encoding="utf-8", opener=opener) as output:
            output.write(text)
    except OSError as fault:
        raise CommandFailed(f"{file} cannot be written: {fault.strerror}.") from None
