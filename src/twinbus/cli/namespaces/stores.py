"""`twinbus store`: show the messaging stores of a namespace, check them, switch them off and on."""

import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated
from urllib.parse import quote

import typer

from twinbus.cli.command import Call, command
from twinbus.cli.confirmation import YesOption, confirm
from twinbus.cli.failures import CommandFailed
from twinbus.cli.help_pages import Group
from twinbus.cli.interruption import interruptible
from twinbus.cli.namespaces.nodes import nodes_with
from twinbus.cli.namespaces.running import read_running
from twinbus.cli.namespaces.store_option import KeptInOption, read_dsns
from twinbus.errors import ArgumentError

app = Group("Show the messaging stores of a namespace, check them, switch them off and on.")

IndexArgument = Annotated[int | None, typer.Argument(help="Number of the store, from 0.", min=0)]
AllOption = Annotated[bool, typer.Option("--all", help="All messaging stores.")]

TRIES_MAX = 100
PAUSE_S = 0.5


@command(app, "list")
def list_stores(call: Call) -> None:
    """Show every messaging store and its condition."""
    stores = call.ask("GET", "/$stores")
    call.output.table(
        ("index", "condition", "kept_in", "owner", "slow_ms", "acks_to_lose", "set_aside", "fault"), stores
    )


@command(app, "check")
def check(call: Call, index: IndexArgument = None) -> None:
    """Verify the checksums of all stored data. The exit code is 1 if anything is damaged.

    Checks all stores if no number is given. A running namespace sets damaged messages aside and continues without
    them; a stopped one is not changed.
    """
    if call.given_connection_string is None and read_running(call.folder) is None:
        found = _check_stopped(call, index)
    else:
        found = _check_running(call, index)
    if found or call.output.as_json:
        call.output.table(("index", "file", "place", "what"), found)
    else:
        call.output.done(f"No damage was found in the messaging stores of '{call.label}'.")
    if found:
        raise typer.Exit(1)


@command(app, "accept-loss")
def accept_loss(
    call: Call,
    index: Annotated[int, typer.Argument(help="Number of the store, from 0.", min=0)],
    *,
    yes: YesOption = False,
) -> None:
    """Open a missing or damaged store with the data that is left. The rest is set aside in its folder."""
    from twinbus.server.data.data_folder import witness_of
    from twinbus.store.folder.identity import accept_loss as accept

    paths = _store_paths(call)
    _require_store(call, index, len(paths))
    confirm(
        f"Give up what is missing or damaged in messaging store {index} of '{call.namespace}'?",
        yes,
        "Nothing was given up.",
    )
    accept(witness_of(paths[index]))
    running = read_running(call.folder)
    if running is not None:
        may_be_off = (
            f"Messaging store {index} of '{call.namespace}' may be off: switch it on with 'twinbus store up {index}'."
        )
        with interruptible(lambda: may_be_off):
            running.ask("POST", f"/$stores/{index}/down")
            opened = running.ask("POST", f"/$stores/{index}/up")
        _require(opened, "up", call.namespace, "The loss is accepted, but messaging")
    when = "when the namespace starts" if running is None else "now"
    call.output.done(
        f"Messaging store {index} of '{call.namespace}' opens {when} with the data that is left.",
        namespace=call.namespace,
        index=index,
    )


@command(app, "restored")
def restored(call: Call, index: IndexArgument = None, *, store: KeptInOption = None) -> None:
    """Prepare a store restored to an earlier moment: skip sequence numbers that clients may have seen.

    All stores if no number is given. The namespace must be stopped. Give the databases with --store, as for serve;
    without it the stores are in the data folder.
    """
    from twinbus.clock import SystemClock
    from twinbus.server.data.namespace_copy import FolderEnd, NamespaceEnd, PostgresEnd
    from twinbus.server.data.restored_stores import mark_restored

    dsns = read_dsns(store or ())
    end: NamespaceEnd = PostgresEnd(dsns, call.namespace) if dsns else FolderEnd(call.folder)
    with interruptible(lambda: f"Run it again before you serve '{call.namespace}'."):
        done = mark_restored(end, index, SystemClock().now())
    which = "All messaging stores" if index is None else f"Messaging store {index}"
    call.output.done(
        f"{which} of '{call.namespace}' may be served: {done.fragments} fragments skip {done.skipped:,} numbers.",
        namespace=call.namespace,
        index=index,
        fragments=done.fragments,
        skipped=done.skipped,
    )


def _check_stopped(call: Call, index: int | None) -> list[dict[str, object]]:
    from twinbus.server.data.data_folder import witness_of
    from twinbus.store.folder.folder_check import check_folder

    paths = _store_paths(call)
    _require_store(call, index, len(paths))
    chosen = range(len(paths)) if index is None else [index]
    return [
        {"index": each, **asdict(damage)}
        for each in chosen
        for damage in check_folder(paths[each], witness_of(paths[each]))
    ]


def _check_running(call: Call, index: int | None) -> list[dict[str, object]]:
    stores = call.ask("GET", "/$stores")
    _require_store(call, index, len(stores))
    chosen = [store["index"] for store in stores if index in (None, store["index"])]
    unchecked: dict[int, str] = {}
    for each in chosen:
        place: int | None = -1
        tries_left = TRIES_MAX
        while place is not None and tries_left:
            page = call.ask("POST", f"/$stores/{each}/check?after={place}")
            place = page["next"]
            if page["failed"]:
                # What was found is being set aside; the store opens again without it.
                tries_left -= 1
                time.sleep(PAUSE_S)
        if place is not None:
            unchecked[each] = f"it could not be checked to the end: {page['failed']}"
    found: list[dict[str, object]] = []
    for store in call.ask("GET", "/$stores"):
        if store["index"] in chosen:
            lines = [*store["damage"], store["fault"], unchecked.get(store["index"])]
            found += [{"index": store["index"], "file": "", "place": "", "what": line} for line in lines if line]
    return found


def _store_paths(call: Call) -> list[Path]:
    from twinbus.server.data.data_folder import known_store_paths

    try:
        return known_store_paths(call.folder)
    except FileNotFoundError:
        raise CommandFailed(f"No namespace '{call.namespace}' has its data in {call.data}.") from None


@command(app, "down")
def down(call: Call, index: IndexArgument = None, *, all_stores: AllOption = False) -> None:
    """Switch a store off, or all of them. Its messages cannot be reached until it is up again, but none is lost."""
    if index is None and not all_stores:
        raise ArgumentError("Name a store by its number, or switch all of them off with --all.")
    _switch(call, index, "down", all_stores=all_stores)


@command(app, "up")
def up(call: Call, index: IndexArgument = None, *, all_stores: AllOption = False) -> None:
    """Switch a store on again and end its faults; all of them if no number is given."""
    _switch(call, index, "up", all_stores=all_stores)


@command(app, "move")
def move(
    call: Call,
    index: Annotated[int, typer.Argument(help="Number of the store, from 0.", min=0)],
    *,
    node: Annotated[
        str | None, typer.Option("--to", metavar="NODE", help="Name of the node; if omitted, the namespace chooses.")
    ] = None,
) -> None:
    """Move a store of a namespace on several machines to another node. It stays there while that node is up."""
    if node is not None:
        nodes_with(call, node)
    _require_store(call, index, len(call.ask("GET", "/$stores")))
    call.ask("POST", f"/$stores/{index}/move" + ("" if node is None else f"?node={quote(node, safe='')}"))
    where = "to a node that the namespace chooses" if node is None else f"to node '{node}'"
    call.output.done(f"Messaging store {index} of '{call.label}' goes {where}.", index=index, node=node)


def _switch(call: Call, index: int | None, action: str, *, all_stores: bool) -> None:
    if index is not None and all_stores:
        raise ArgumentError("Give the number of a store or --all, not both.")
    namespace = call.label
    count = len(call.ask("GET", "/$stores"))
    _require_store(call, index, count)
    with interruptible(lambda: f"See which stores are switched {action} with 'twinbus store list'."):
        for each in range(count) if index is None else [index]:
            _require(call.ask("POST", f"/$stores/{each}/{action}"), action, namespace)
    which, verb = (f"All {count} messaging stores", "are") if index is None else (f"Messaging store {index}", "is")
    if index is None and count == 1:
        which, verb = "The only messaging store", "is"
    call.output.done(
        f"{which} of '{namespace}' {verb} switched {action}.", namespace=namespace, index=index, switched=action
    )


def _require(store: Mapping[str, object], condition: str, namespace: str, before: str = "Messaging") -> None:
    """Raises CommandFailed if the store is not in that condition after it was switched."""
    if store["condition"] != condition:
        fault = f": {store['fault']}" if store["fault"] else ""
        raise CommandFailed(
            f"{before} store {store['index']} of '{namespace}' is not {condition} yet, but "
            f"{store['condition']}{fault}. Check it with 'twinbus store list'."
        )


def _require_store(call: Call, index: int | None, count: int) -> None:
    if index is not None and index >= count:
        raise ArgumentError(f"There is no messaging store {index}; the last one of '{call.label}' is {count - 1}.")
