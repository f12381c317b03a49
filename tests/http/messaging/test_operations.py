"""What is done over HTTP, in the operations log."""

from collections import Counter
from collections.abc import Iterator

import httpx
import pytest

from tests.http.conftest import ClientWith
from tests.interop.running_server import RunningServer
from tests.meter.operation_rows import read_log


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    running = RunningServer(tmp_path_factory.mktemp("data"), store_count=2, is_metered=True)
    yield running
    running.stop()


@pytest.mark.rule("D1")
def test_messages_and_requests_over_http_are_counted_as_those_over_amqp(
    server: RunningServer, client_with: ClientWith
) -> None:
    http: httpx.Client = client_with("")
    server.create_queue("orders")
    assert http.post("orders/messages", content=b"a").status_code == 201
    batch = {"Content-Type": "application/vnd.microsoft.servicebus.json"}
    assert http.post("orders/messages", content=b'[{"Body":"b"},{"Body":"c"}]', headers=batch).status_code == 201
    locked = http.post("orders/messages/head?timeout=5")
    assert locked.status_code == 201
    assert http.post(locked.headers["location"]).status_code == 200
    assert http.delete(locked.headers["location"]).status_code == 200
    assert http.delete(locked.headers["location"]).status_code == 404
    for status in (200, 200, 204):
        assert http.delete("orders/messages/head?timeout=1").status_code == status
    assert http.get("orders?api-version=2021-05").status_code == 200
    assert http.get("nowhere?api-version=2021-05").status_code == 404
    assert server.server.metering is not None
    server.run(server.server.metering.flush())
    rows = read_log(server.server.metering.folder)
    counts: Counter[tuple[object, object]] = Counter()
    for row in rows:
        counts[row["cause"], row["entity"]] += int(str(row["operations"]))
    assert counts == {
        ("send", "orders"): 3,
        ("receive", "orders"): 3,
        ("renew", "orders"): 1,
        ("settle", "orders"): 1,
        ("empty_receive", "orders"): 1,
        ("management", "orders"): 1,
    }
    assert {row["who"] for row in rows} == {"python-httpx"}
