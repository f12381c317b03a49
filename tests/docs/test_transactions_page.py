"""The example of the page on transactions does what the page says."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.interop.running_server import RunningServer, wait_until

PAGE = Path(__file__).parents[2] / "docs/how-to/transactions.md"
EXAMPLE = re.compile(r"```python\n(.*?)```", re.DOTALL)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RunningServer]:
    running = RunningServer(tmp_path, store_count=2)
    yield running
    running.stop()


async def test_the_example_bills_every_order(server: RunningServer) -> None:
    server.put(server.create_queue("orders"), "a", "b")
    server.create_queue("invoices")
    names: dict[str, Any] = {}
    for example in EXAMPLE.findall(PAGE.read_text()):
        exec(example, names)
    await names["bill_orders"](server.connection_string)
    entities = server.server.entities
    wait_until(lambda: entities.queue("invoices").main.counts().active == 2)
    assert entities.queue("orders").main.counts().active == 0
