"""A running namespace, and plain HTTP clients with the keys of its rules."""

import time
from collections.abc import Callable, Iterator

import httpx
import pytest

from tests.interop.conftest import quick_polling
from tests.interop.running_server import RunningServer
from twinbus.client.connecting.token_sources import sign
from twinbus.model.descriptions import AuthorizationRule, Right

RULES = (
    AuthorizationRule("sends", "send-key", "send-key-2", frozenset({Right.SEND})),
    AuthorizationRule("listens", "listen-key", "listen-key-2", frozenset({Right.LISTEN})),
)
KEYS = {"sends": "send-key", "listens": "listen-key"}

__all__ = ["quick_polling"]

ClientWith = Callable[[str], httpx.Client]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """One server for each file: every test creates its own entities."""
    running = RunningServer(tmp_path_factory.mktemp("data"), store_count=4)
    yield running
    running.stop()


@pytest.fixture
def client_with(server: RunningServer) -> Iterator[ClientWith]:
    """A client that signs with the rule of this name; "" is the namespace's own."""
    opened: list[httpx.Client] = []

    def open_client(key_name: str) -> httpx.Client:
        root = server.server.root_rule
        key = KEYS.get(key_name, root.primary_key)
        token = sign("sb://localhost/", key_name or root.name, key, int(time.time()) + 600)
        base = f"http://127.0.0.1:{server.server.http_port}/"
        opened.append(httpx.Client(base_url=base, headers={"Authorization": token}, timeout=20))
        return opened[-1]

    yield open_client
    for client in opened:
        client.close()


@pytest.fixture
def http(client_with: ClientWith) -> httpx.Client:
    return client_with("")
