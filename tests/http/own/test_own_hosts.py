"""Pages that need no token: a name of somebody else's site does not open them."""

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from twinbus.model.descriptions import QueueDescription
from twinbus.own_hosts import OwnHosts
from twinbus.server.namespace import NamespaceServer
from twinbus.server.server_settings import ServerSettings

OURS = ["localhost", "LocalHost:5300", "localhost.", "a.localhost", "127.0.0.1", "127.0.0.1:80", "[::1]", "[::1]:5300"]
ALSO_OURS = ["192.0.2.7", "bus.example", "BUS.example:443", "a.shop.example"]
FOREIGN = [
    "evil.example",
    "localhost.evil.example",
    "127.0.0.1.evil.example",
    "shop.example",
    "xbus.example",
    "",
    "::1:x",
]


@pytest.mark.parametrize("host", [*OURS, *ALSO_OURS])
def test_addresses_and_known_names_are_ours(host: str) -> None:
    assert OwnHosts(["bus.example", "*.shop.example"]).include(host)


@pytest.mark.parametrize("host", FOREIGN)
def test_any_other_name_is_not(host: str) -> None:
    assert not OwnHosts(["bus.example", "*.shop.example"]).include(host)


@pytest.fixture
async def http(tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    settings = ServerSettings(
        "secret-name", tmp_path, amqp_port=0, http_port=0, store_count=1, advertised_host="bus.example"
    )
    server = NamespaceServer(settings)
    await server.start()
    await server.control.create_queue(QueueDescription("secret-orders"))
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.http_port}") as client:
        yield client
    await server.stop()


@pytest.mark.parametrize("host", ["localhost:5300", "127.0.0.1", "bus.example"])
async def test_metrics_and_health_answer_to_our_names(http: httpx.AsyncClient, host: str) -> None:
    assert "secret-orders" in (await http.get("/metrics", headers={"host": host})).text
    assert (await http.get("/health", headers={"host": host})).json()["namespace"] == "secret-name"


async def test_another_name_gets_no_metrics_and_of_health_the_status_alone(http: httpx.AsyncClient) -> None:
    answer = await http.get("/metrics", headers={"host": "evil.example"})
    assert answer.status_code == 421
    assert "secret" not in answer.text
    answer = await http.get("/health", headers={"host": "evil.example"})
    assert (answer.status_code, answer.json()) == (200, {"status": "healthy"})
