"""Requests of the command line to the HTTP side of a namespace that runs on this machine, signed with its own key."""

from typing import Any

from twinbus.cli.namespaces.running import RunningNamespace
from twinbus.client import namespace_http


def ask(running: RunningNamespace, method: str, path: str, body: object = None) -> Any:
    """The JSON that it answers. What it refuses, and a namespace that is not there, raise NamespaceRefused."""
    return namespace_http.ask(running.connection_string, running.endpoint, method, path, body)
