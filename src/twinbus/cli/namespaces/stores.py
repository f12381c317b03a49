"""`twinbus store`: show the messaging stores of a namespace, check them, switch them off and on."""

import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from twinbus.cli.command import DATA_DEFAULT, DataOption, JsonOption
from twinbus.cli.failures import CommandFailed
from twinbus.cli.namespaces.running import RunningNamespace, find_running, namespace_folder, read_running
from twinbus.cli.output import Output

app = typer.Typer(
    no_args_is_help=True, help="Show the messaging stores of a namespace, check them, switch them off and on."
)

NamespaceArgument = Annotated[str, typer.Argument(help="A namespace that runs on this machine.")]
StoredNamespaceArgument = Annotated[str, typer.Argument(help="A namespace with its data on this machine.")]
IndexArgument = Annotated[
    int | None, typer.Argument(help="Number of the store, from 0; all of them if omitted.", min=0)
]

TRIES_MAX = 100
PAUSE_S = 0.5


@app.command("list")
def list_stores(namespace: NamespaceArgument, data: DataOption = DATA_DEFAULT, as_json: JsonOption = False) -> None:
    """Show every messaging store and its condition."""
    stores = find_running(data, namespace).ask("GET", "/$stores")
    Output(as_json=as_json).table(("index", "condition", "slow_ms", "acks_to_lose", "set_aside", "fault"), stores)


@app.command("check")
def check(
    namespace: StoredNamespaceArgument,
    index: IndexArgument = None,
    data: DataOption = DATA_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Compare everything at rest with its checksums. The exit code is 1 if something is damaged.

    A running namespace sets damaged messages aside and continues without them; of one that is stopped nothing is changed.
    """
    running = read_running(namespace_folder(data, namespace))
    if running is None:
        found = _check_stopped(data, namespace, index)
    else:
        found = _check_running(running, index)
    output = Output(as_json=as_json)
    if found or as_json:
        output.table(("index", "file", "place", "what"), found)
    else:
        output.done(f"No damage was found in the messaging stores of '{namespace}'.")
    if found:
        raise typer.Exit(1)


@app.command("accept-loss")
def accept_loss(
    namespace: StoredNamespaceArgument,
    index: Annotated[int, typer.Argument(help="Number of the store, from 0.", min=0)],
    data: DataOption = DATA_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Let a store that is missing or damaged open with what is left of it. The rest is set aside in its folder."""
    from twinbus.server.data_folder import witness_of
    from twinbus.store.folder.identity import accept_loss as accept

    paths = _store_paths(data, namespace)
    if index >= len(paths):
        raise CommandFailed(f"There is no messaging store {index}; the last one of '{namespace}' is {len(paths) - 1}.")
    accept(witness_of(paths[index]))
    running = read_running(namespace_folder(data, namespace))
    if running is not None:
        for action in ("down", "up"):
            running.ask("POST", f"/$stores/{index}/{action}")
    when = "when the namespace starts" if running is None else "now"
    output = Output(as_json=as_json)
    output.done(
        f"Messaging store {index} of '{namespace}' opens {when} with what is left of it.",
        namespace=namespace,
        index=index,
    )


def _check_stopped(data: Path, namespace: str, index: int | None) -> list[dict[str, object]]:
    from twinbus.server.data_folder import witness_of
    from twinbus.store.folder.folder_check import check_folder

    paths = _store_paths(data, namespace)
    chosen = range(len(paths)) if index is None else [index] if index < len(paths) else []
    return [
        {"index": each, **asdict(damage)}
        for each in chosen
        for damage in check_folder(paths[each], witness_of(paths[each]))
    ]


def _check_running(running: RunningNamespace, index: int | None) -> list[dict[str, object]]:
    stores = running.ask("GET", "/$stores")
    chosen = [store["index"] for store in stores if index in (None, store["index"])]
    for each in chosen:
        place: int | None = -1
        tries_left = TRIES_MAX
        while place is not None and tries_left:
            page = running.ask("POST", f"/$stores/{each}/check?after={place}")
            place = page["next"]
            if page["failed"]:
                # What was found is being set aside; the store opens again without it.
                tries_left -= 1
                time.sleep(PAUSE_S)
    found: list[dict[str, object]] = []
    for store in running.ask("GET", "/$stores"):
        if store["index"] in chosen:
            lines = [*store["damage"], *([store["fault"]] if store["fault"] else [])]
            found += [{"index": store["index"], "file": "", "place": "", "what": line} for line in lines]
    return found


def _store_paths(data: Path, namespace: str) -> list[Path]:
    from twinbus.server.data_folder import known_store_paths

    folder = namespace_folder(data, namespace)
    try:
        return known_store_paths(folder)
    except FileNotFoundError:
        raise CommandFailed(f"No namespace '{namespace}' has its data in {data}.") from None


@app.command("down")
def down(
    namespace: NamespaceArgument,
    index: IndexArgument = None,
    data: DataOption = DATA_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Switch a store off. Its messages cannot be reached until it is up again, and none is lost."""
    _switch(data, namespace, index, "down", Output(as_json=as_json))


@app.command("up")
def up(
    namespace: NamespaceArgument,
    index: IndexArgument = None,
    data: DataOption = DATA_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Switch a store on again and end all its faults."""
    _switch(data, namespace, index, "up", Output(as_json=as_json))


def _switch(data: Path, namespace: str, index: int | None, action: str, output: Output) -> None:
    running = find_running(data, namespace)
    count = len(running.ask("GET", "/$stores"))
    if index is not None and index >= count:
        raise CommandFailed(f"There is no messaging store {index}; the last one of '{namespace}' is {count - 1}.")
    for each in range(count) if index is None else [index]:
        store = running.ask("POST", f"/$stores/{each}/{action}")
        if store["condition"] != action:
            fault = f": {store['fault']}" if store["fault"] else ""
            raise CommandFailed(
                f"Messaging store {each} of '{namespace}' is not {action} yet, but {store['condition']}{fault}. "
                f"Look at it with 'twinbus store list {namespace}'."
            )
    which = f"All {count} messaging stores" if index is None else f"Messaging store {index}"
    verb = "are" if index is None else "is"
    output.done(
        f"{which} of '{namespace}' {verb} switched {action}.", namespace=namespace, index=index, switched=action
    )
