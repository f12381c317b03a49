"""`twinbus backup` and `twinbus restore`: a namespace as a folder, and back."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from twinbus.cli.command import DATA_DEFAULT, NAMESPACE_DEFAULT, DataOption, JsonOption, NamespaceOption
from twinbus.cli.failures import CommandFailed
from twinbus.cli.interruption import interruptible
from twinbus.cli.namespaces.running import namespace_folder
from twinbus.cli.output import Output


def register(app: typer.Typer) -> None:
    app.command("backup")(backup)
    app.command("restore")(restore)


def backup(
    target: Annotated[Path, typer.Argument(metavar="DIR", help="Folder to create.")],
    namespace: NamespaceOption = NAMESPACE_DEFAULT,
    data: DataOption = DATA_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Copy a running or stopped namespace to a folder.

    Every messaging store is copied as of one moment. Forwarding between entities pauses meanwhile. The folder contains keys and
    messages; only its owner can read it.
    """
    from twinbus.server.data.backup import back_up

    folder = namespace_folder(data, namespace)
    if not (folder / "store-count").exists():
        raise CommandFailed(f"No namespace '{namespace}' has its data in {data}.")
    with interruptible(lambda: f"There is no backup in {target}."):
        made = back_up(folder, target, datetime.now(UTC).isoformat(timespec="seconds"))
    size = sum(file.stat().st_size for file in target.rglob("*") if file.is_file())
    Output(as_json=as_json).done(
        f"{target} holds '{namespace}': {made.stores} messaging stores, {size:,} bytes.",
        namespace=namespace,
        backup=str(target),
        stores=made.stores,
        bytes=size,
    )


def restore(
    source: Annotated[Path, typer.Argument(metavar="DIR", help="Folder that backup created.")],
    data: DataOption = DATA_DEFAULT,
    check: Annotated[
        bool, typer.Option("--check", help="Check the backup's files against their checksums and restore nothing.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Check a backup completely, then create the data folder of a namespace from it."""
    from twinbus.server.data.backup import check_backup, read_manifest
    from twinbus.server.data.backup import restore as restore_backup

    output = Output(as_json=as_json)
    if check:
        found = check_backup(source)
        output.done(
            f"{source} is a complete backup of '{found.namespace}' from {found.made_at}.",
            namespace=found.namespace,
            made_at=found.made_at,
        )
        return
    folder = namespace_folder(data, read_manifest(source).namespace)
    with interruptible(lambda: f"Nothing is restored to {folder}."):
        found = restore_backup(source, folder)
    output.done(
        f"'{found.namespace}' is restored to {folder}, as it was at {found.made_at}. Serve it with --stores {found.stores}.",
        namespace=found.namespace,
        folder=str(folder),
        stores=found.stores,
        made_at=found.made_at,
    )
