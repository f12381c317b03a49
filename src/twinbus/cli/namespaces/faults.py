"""`twinbus fault`: rare failures on purpose, to see what an application does about them."""

from typing import Annotated
from urllib.parse import quote

import typer

from twinbus.cli.command import DATA_DEFAULT, DataOption, JsonOption
from twinbus.cli.namespaces.running import RunningNamespace, find_running
from twinbus.cli.output import Output

app = typer.Typer(no_args_is_help=True, help="Cause failures on purpose, to test an application.")

NamespaceArgument = Annotated[str, typer.Argument(help="A namespace that runs on this machine.")]
StoreOption = Annotated[
    int | None, typer.Option("--store", help="Number of the messaging store; all of them if omitted.", min=0)
]
EntityOption = Annotated[
    str | None, typer.Option("--entity", help="Detach the links to this queue, topic or subscription only.")
]


@app.command("slow")
def slow(
    namespace: NamespaceArgument,
    milliseconds: Annotated[int, typer.Argument(help="How much longer every call takes; 0 ends the fault.", min=0)],
    store: StoreOption = None,
    data: DataOption = DATA_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Slow down every call to a messaging store."""
    text = f"Every call to {_which(store)} of '{namespace}' takes {milliseconds} ms longer."
    _ask_stores(find_running(data, namespace), store, f"slow?ms={milliseconds}", text, Output(as_json=as_json))


@app.command("lose-ack")
def lose_ack(
    namespace: NamespaceArgument,
    count: Annotated[int, typer.Argument(help="How many commits; 0 ends the fault.", min=0)] = 1,
    store: StoreOption = None,
    data: DataOption = DATA_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Report the next commits of a messaging store as failed although they are done, as when the reply is lost."""
    text = f"The replies to the next {count} commits of {_which(store)} of '{namespace}' will be lost."
    _ask_stores(find_running(data, namespace), store, f"lose-ack?count={count}", text, Output(as_json=as_json))


@app.command("disconnect")
def disconnect(
    namespace: NamespaceArgument,
    entity: EntityOption = None,
    data: DataOption = DATA_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Drop the connections of all clients, or detach all links to one entity."""
    suffix = "" if entity is None else f"?entity={quote(entity, safe='')}"
    done = find_running(data, namespace).ask("POST", f"/$connections/disconnect{suffix}")
    text = (
        f"{done['connections']} connections to '{namespace}' are dropped."
        if entity is None
        else f"{done['links']} links to '{entity}' are detached."
    )
    Output(as_json=as_json).done(text, namespace=namespace, **done)


@app.command("clear")
def clear(namespace: NamespaceArgument, data: DataOption = DATA_DEFAULT, as_json: JsonOption = False) -> None:
    """End all faults: every messaging store is switched on, at full speed, and loses no replies."""
    text = f"All faults of '{namespace}' are over."
    _ask_stores(find_running(data, namespace), None, "up", text, Output(as_json=as_json))


def _ask_stores(running: RunningNamespace, store: int | None, action: str, text: str, output: Output) -> None:
    """Of one messaging store, or of all of them."""
    indexes = [store] if store is not None else [each["index"] for each in running.ask("GET", "/$stores")]
    changed = [running.ask("POST", f"/$stores/{index}/{action}") for index in indexes]
    output.done(text, namespace=running.name, stores=changed)


def _which(store: int | None) -> str:
    return "every messaging store" if store is None else f"messaging store {store}"
