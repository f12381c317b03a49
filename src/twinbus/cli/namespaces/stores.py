"""`twinbus store`: show the messaging stores of a namespace, switch them off and on."""

from pathlib import Path
from typing import Annotated

import typer

from twinbus.cli.command import DATA_DEFAULT, DataOption, JsonOption
from twinbus.cli.failures import CommandFailed
from twinbus.cli.namespaces.running import find_running
from twinbus.cli.output import Output

app = typer.Typer(no_args_is_help=True, help="Show the messaging stores of a namespace, switch them off and on.")

NamespaceArgument = Annotated[str, typer.Argument(help="A namespace that runs on this machine.")]
IndexArgument = Annotated[
    int | None, typer.Argument(help="Number of the store, from 0; all of them if omitted.", min=0)
]


@app.command("list")
def list_stores(namespace: NamespaceArgument, data: DataOption = DATA_DEFAULT, as_json: JsonOption = False) -> None:
    """Show every messaging store and its condition."""
    stores = find_running(data, namespace).ask("GET", "/$stores")
    Output(as_json=as_json).table(("index", "condition", "slow_ms", "acks_to_lose", "set_aside", "fault"), stores)


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
