"""`twinbus node`: the machines that serve a namespace."""

from typing import Annotated, Any
from urllib.parse import quote

import typer

from twinbus.cli.command import Call, command
from twinbus.cli.confirmation import YesOption, confirm
from twinbus.cli.help_pages import Group
from twinbus.errors import ArgumentError

app = Group("Show the machines that serve a namespace, and take one out of service.")


@command(app, "list")
def list_nodes(call: Call) -> None:
    """Show every node with its address, its state and its messaging stores.

    A node that disappeared without being stopped is shown as gone, for a day.
    """
    nodes = call.ask("GET", "/$nodes")
    call.output.table(
        ("name", "number", "address", "state", "stores", "connections", "process", "unreached", "is_reached"), nodes
    )


@command(app, "drain")
def drain(
    call: Call,
    name: Annotated[str, typer.Argument(help="Name of the node, as --node gave it.")],
    *,
    yes: YesOption = False,
) -> None:
    """Make a node hand its messaging stores over to the others and exit, as SIGTERM does.

    Asks for confirmation before it ends the last node.
    """
    nodes = nodes_with(call, name)
    others = [node for node in nodes if node["name"] != name and node["state"] == "serving"]
    if not others:
        question = f"This is the last node of '{call.label}': nothing will serve it. End it?"
        confirm(question, yes, f"Node '{name}' keeps serving.")
    call.ask("POST", f"/$nodes/{quote(name, safe='')}/drain")
    call.output.done(f"Node '{name}' of '{call.label}' hands its messaging stores over and exits.", node=name)


def nodes_with(call: Call, name: str) -> list[dict[str, Any]]:
    """All nodes. Raises ArgumentError if none that lives has this name."""
    from twinbus.server.server_settings import require_node_name

    require_node_name(name)
    nodes: list[dict[str, Any]] = call.ask("GET", "/$nodes")
    if not any(node["name"] == name and node["state"] != "gone" for node in nodes):
        raise ArgumentError(f"No node '{name}' serves '{call.label}'. 'twinbus node list' shows those that do.")
    return nodes
