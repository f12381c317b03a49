"""`twinbus node`: the machines that serve a namespace."""

from typing import Annotated
from urllib.parse import quote

import typer

from twinbus.cli.command import Call, command
from twinbus.cli.help_pages import Group

app = Group("Show the machines that serve a namespace, and take one out of service.")


@command(app, "list")
def list_nodes(call: Call) -> None:
    """Show every node that lives, with its address, its state and its messaging stores."""
    nodes = call.ask("GET", "/$nodes")
    call.output.table(
        ("name", "address", "state", "stores", "connections", "process", "unreached", "is_reached"), nodes
    )


@command(app, "drain")
def drain(call: Call, name: Annotated[str, typer.Argument(help="Name of the node, as --node gave it.")]) -> None:
    """Let a node hand its messaging stores over to the others and end, as SIGTERM does."""
    from twinbus.server.server_settings import require_node_name

    require_node_name(name)
    call.ask("POST", f"/$nodes/{quote(name, safe='')}/drain")
    call.output.done(f"Node '{name}' of '{call.label}' hands its messaging stores over and ends.", node=name)
