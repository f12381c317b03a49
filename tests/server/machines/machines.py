"""A namespace on several machines: nodes as processes, each with a data folder of its own."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

from tests.server.served_on_postgres import Served

PATIENCE_S = 120.0
READY_MAX_S = 240.0
"""Three nodes start at once, each with two processes, on a machine that may have other things to do."""
STORES = 6


class Node(Served):
    def __init__(self, folder: Path, dsn: str, namespace: str, name: str, *options: str) -> None:
        self.name = name
        self.namespace = namespace
        address = () if "--listen-nodes" in options else ("--listen-nodes", "127.0.0.1:0")
        super().__init__(
            folder / name, dsn, namespace, "--node", name, *address, *options, stores=STORES, ready_max_s=READY_MAX_S
        )

    def ready(self) -> "Node":
        said = self.wait_ready()
        self.connection_string: str = said["connection_string"]
        self.http_port: int = said["http_port"]
        self.pid: int = said["pid"]
        return self

    def page(self, path: str) -> dict[str, Any]:
        try:
            with urlopen(f"http://127.0.0.1:{self.http_port}{path}", timeout=30) as answer:
                found: dict[str, Any] = json.load(answer)
        except HTTPError as refused:
            found = json.load(refused)
        return found

    def metrics(self) -> str:
        with urlopen(f"http://127.0.0.1:{self.http_port}/metrics", timeout=30) as answer:
            text: str = answer.read().decode()
        return text

    def owners(self) -> dict[str, int]:
        """How many stores each process has, by what this node says."""
        return dict(self.page("/health")["owners"])


def until(is_so: Callable[[], bool], what: str) -> float:
    """How long it took, in seconds."""
    began = time.monotonic()
    while not is_so():
        assert time.monotonic() - began < PATIENCE_S, what
        time.sleep(0.05)
    return time.monotonic() - began
