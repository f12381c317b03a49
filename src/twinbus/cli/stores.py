"""`twinbus store`: look at the messaging stores of a namespace, break one, mend it."""

import json
import time
from pathlib import Path
from typing import Annotated, Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import typer

from twinbus.cli.command import DATA_DEFAULT, DataOption, JsonOption
from twinbus.cli.failure import CommandFailed
from twinbus.cli.output import Output
from twinbus.cli.running import RunningNamespace, find_running
from twinbus.client.connection_string import parse_connection_string
from twinbus.client.shared_access import sign

TIMEOUT_S = 10.0
TOKEN_LIFE_S = 60

app = typer.Typer(no_args_is_help=True, help="Look at the messaging stores of a namespace, break one, mend it.")

NamespaceArgument = Annotated[str, typer.Argument(help="A namespace that runs on this machine.")]
IndexArgument = Annotated[
    int | None, typer.Argument(help="Number of the store, from 0; all of them if left out.", min=0)
]


@app.command("list")
def list_stores(namespace: NamespaceArgument, data: DataOption = DATA_DEFAULT, as_json: JsonOption = False) -> None:
    """Show every messaging store and how it is."""
    stores = _ask(find_running(data, namespace), "GET", "/$stores")
    Output(as_json=as_json).table(("index", "condition", "fault"), stores)


@app.command("down")
def down(
    namespace: NamespaceArgument,
    index: IndexArgument = None,
    data: DataOption = DATA_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Switch a store off: what it holds cannot be reached until it is up again, and nothing of it is lost."""
    _switch(data, namespace, index, "down", Output(as_json=as_json))


@app.command("up")
def up(
    namespace: NamespaceArgument,
    index: IndexArgument = None,
    data: DataOption = DATA_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Switch a store on again."""
    _switch(data, namespace, index, "up", Output(as_json=as_json))


def _switch(data: Path, namespace: str, index: int | None, action: str, output: Output) -> None:
    running = find_running(data, namespace)
    count = len(_ask(running, "GET", "/$stores"))
    if index is not None and index >= count:
        raise CommandFailed(f"There is no messaging store {index}; the last one of '{namespace}' is {count - 1}.")
    for each in range(count) if index is None else [index]:
        _ask(running, "POST", f"/$stores/{each}/{action}")
    which = f"All {count} messaging stores" if index is None else f"Messaging store {index}"
    verb = "are" if index is None else "is"
    output.done(
        f"{which} of '{namespace}' {verb} switched {action}.", namespace=namespace, index=index, switched=action
    )


def _ask(running: RunningNamespace, method: str, path: str) -> Any:
    parsed = parse_connection_string(running.connection_string)
    token = sign(f"sb://{parsed.host}", parsed.key_name, parsed.key, int(time.time()) + TOKEN_LIFE_S)
    request = Request(running.endpoint + path, method=method, headers={"Authorization": token})
    try:
        with urlopen(request, timeout=TIMEOUT_S) as answer:
            return json.load(answer)
    except HTTPError as refused:
        raise CommandFailed(json.load(refused).get("error", f"'{running.name}' refused: {refused}.")) from None
    except (OSError, ValueError) as fault:
        raise CommandFailed(f"'{running.name}' does not answer at {running.endpoint}: {fault}.") from None
