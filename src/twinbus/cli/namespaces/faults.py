"""`twinbus fault`: rare failures on purpose, to see what an application does about them."""

from datetime import timedelta
from typing import Annotated
from urllib.parse import quote

import typer

from twinbus.cli.command import Call, command
from twinbus.cli.help_pages import Group
from twinbus.model.durations import parse_duration

app = Group("Cause failures on purpose, to test an application.")

StoreOption = Annotated[
    int | None, typer.Option("--store", help="Number of the messaging store; all of them if omitted.", min=0)
]
EntityOption = Annotated[
    str | None, typer.Option("--entity", help="Only detach the links to this queue, topic or subscription.")
]


def _by_which(text: str) -> timedelta:
    """A bare number is one of milliseconds."""
    return parse_duration(f"{text}ms" if text.isdecimal() else text)


@command(app, "slow")
def slow(
    call: Call,
    duration: Annotated[
        timedelta,
        typer.Argument(parser=_by_which, metavar="DURATION", help="Delay added to every call; 0ms ends the fault."),
    ],
    *,
    store: StoreOption = None,
) -> None:
    """Slow down every call to a messaging store."""
    milliseconds = duration // timedelta(milliseconds=1)
    text = f"Every call to {_which(store)} of '{call.label}' takes {milliseconds} ms longer."
    _ask_stores(call, store, f"slow?ms={milliseconds}", text)


@command(app, "lose-ack")
def lose_ack(
    call: Call,
    count: Annotated[int, typer.Argument(help="Number of commits; 0 ends the fault.", min=0)] = 1,
    *,
    store: StoreOption = None,
) -> None:
    """Report the next commits of a messaging store as failed although they succeed, as when a reply is lost."""
    text = f"The replies to the next {count} commits of {_which(store)} of '{call.label}' will be lost."
    _ask_stores(call, store, f"lose-ack?count={count}", text)


@command(app, "disconnect")
def disconnect(
    call: Call,
    *,
    entity: EntityOption = None,
) -> None:
    """Drop the connections of all clients, or detach all links to one entity."""
    suffix = "" if entity is None else f"?entity={quote(entity, safe='')}"
    done = call.ask("POST", f"/$connections/disconnect{suffix}")
    text = (
        f"{done['connections']} connections to '{call.label}' are dropped."
        if entity is None
        else f"{done['links']} links to '{entity}' are detached."
    )
    call.output.done(text, namespace=call.label, **done)


@command(app, "clear")
def clear(call: Call) -> None:
    """End all faults: switch every messaging store on, at full speed, and lose no more replies."""
    text = f"All faults of '{call.label}' are cleared."
    _ask_stores(call, None, "up", text)


def _ask_stores(call: Call, store: int | None, action: str, text: str) -> None:
    """Of one messaging store, or of all of them."""
    indexes = [store] if store is not None else [each["index"] for each in call.ask("GET", "/$stores")]
    changed = [call.ask("POST", f"/$stores/{index}/{action}") for index in indexes]
    call.output.done(text, namespace=call.label, stores=changed)


def _which(store: int | None) -> str:
    return "every messaging store" if store is None else f"messaging store {store}"
