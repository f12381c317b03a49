"""A whole namespace in a process: HTTP side, stores that break, restarts."""

import asyncio
import base64
import hashlib
import hmac
import os
import socket
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
import uvloop

from twinbus.errors import ArgumentError, StoreInUse
from twinbus.model.descriptions import QueueDescription, SubscriptionDescription, TopicDescription
from twinbus.server.namespace import NamespaceServer
from twinbus.server.server_settings import ServerSettings

STORE_COUNT = 4


def settings(folder: Path) -> ServerSettings:
    return ServerSettings("test", folder, amqp_port=0, http_port=0, store_count=STORE_COUNT)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[NamespaceServer]:
    server = NamespaceServer(settings(tmp_path))
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
async def http(server: NamespaceServer) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.http_port}") as http:
        yield http


def signed(server: NamespaceServer, key: str | None = None) -> dict[str, str]:
    resource, expiry = "http%3a%2f%2flocalhost", str(int(time.time()) + 60)
    secret = (key or server.root_rule.primary_key).encode()
    digest = hmac.new(secret, f"{resource}\n{expiry}".encode(), hashlib.sha256).digest()
    sig = base64.b64encode(digest).decode().replace("+", "%2B")
    return {"authorization": f"SharedAccessSignature sr={resource}&sig={sig}&se={expiry}&skn={server.root_rule.name}"}


async def test_health_lists_unhealthy_stores(server: NamespaceServer, http: httpx.AsyncClient) -> None:
    healthy = await http.get("/health")
    assert (healthy.status_code, healthy.json()["status"]) == (200, "healthy")
    await http.post("/$stores/2/down", headers=signed(server))
    limited = await http.get("/health")
    owner = f"{socket.gethostname()}, process {os.getpid()}"
    count = len(server.stores.stores)
    assert (limited.status_code, limited.json()) == (
        200,
        {
            "namespace": "test",
            "status": "limited",
            "unhealthy_stores": {"2": "down"},
            "kept_in": {"folder, one disk": count},
            "owners": {owner: count - 1},
        },
    )


async def test_a_namespace_is_ready_while_a_store_works(server: NamespaceServer, http: httpx.AsyncClient) -> None:
    ready = await http.get("/ready")
    assert (ready.status_code, ready.json()["status"]) == (200, "ready")
    for index in range(len(server.stores.stores)):
        await http.post(f"/$stores/{index}/down", headers=signed(server))
    refused = await http.get("/ready")
    assert (refused.status_code, refused.json()["status"]) == (503, "not ready")
    assert (await http.get("/ready", headers={"host": "evil.example"})).json() == {"status": "not ready"}


async def test_stores_are_listed_broken_and_mended(server: NamespaceServer, http: httpx.AsyncClient) -> None:
    listed = (await http.get("/$stores", headers=signed(server))).json()
    assert [(store["index"], store["condition"]) for store in listed] == [(index, "up") for index in range(STORE_COUNT)]
    for _ in range(5):
        down = await http.post("/$stores/1/down", headers=signed(server))
        assert (down.status_code, down.json()["condition"]) == (200, "down")
        assert not server.stores.brokers[1].is_available
        up = await http.post("/$stores/1/up", headers=signed(server))
        assert (up.status_code, up.json()["condition"]) == (200, "up")
        assert server.stores.brokers[1].is_available


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/$stores/9/down", 404),
        ("/$stores/0/explode", 404),
        ("/$stores/0/slow?ms=x", 400),
        ("/$stores/0/slow?ms=0", 202),
        ("/$stores/0/slow?ms=60001", 400),
        ("/$stores/0/lose-ack?count=1001", 400),
        ("/$stores/0/lose-ack", 400),
    ],
)
async def test_a_switch_that_does_not_exist_or_goes_too_far_is_refused(
    server: NamespaceServer, http: httpx.AsyncClient, path: str, status: int
) -> None:
    assert (await http.post(path, headers=signed(server))).status_code == status


async def test_the_log_says_that_a_lost_store_is_back(
    server: NamespaceServer, caplog: pytest.LogCaptureFixture
) -> None:
    """At the level that a log has by default; the first opening is no news."""
    caplog.set_level("INFO")
    await server.stores.switch_off(2)
    assert await server.stores.switch_on(2)
    events = [record.getMessage() for record in caplog.records if record.getMessage().startswith("store_")]
    assert events == ["store_lost", "store_opened"]


async def test_metrics_show_stores_connections_and_every_sub_queue(
    server: NamespaceServer, http: httpx.AsyncClient
) -> None:
    await server.control.create_queue(QueueDescription("orders"))
    await server.control.create_topic(TopicDescription("news"))
    await server.control.create_subscription(SubscriptionDescription("news", "all"))
    server.traffic.of("orders").messages_in += 3
    assert [server.traffic.name_at(path) for path in ("ORDERS", "news/subscriptions/all", "gone")] == [
        "orders",
        "news/Subscriptions/all",
        None,
    ]
    text = (await http.get("/metrics")).text
    assert 'twinbus_entity_messages_in_total{entity="orders",namespace="test"} 3.0' in text
    assert 'twinbus_queue_active{entity="news/Subscriptions/all",namespace="test",sub_queue="dead_letter"} 0.0' in text
    assert 'twinbus_store_up{namespace="test",store="03"} 1.0' in text
    assert 'twinbus_connections{namespace="test"} 0.0' in text


@pytest.mark.rule("A4")
async def test_metrics_show_messages_that_went_to_another_fragment_and_why(
    server: NamespaceServer, http: httpx.AsyncClient
) -> None:
    await server.control.create_queue(QueueDescription("spread", enable_partitioning=True))
    await http.post("/$stores/1/down", headers=signed(server))
    for number in range(16):
        sent = await http.post("/spread/messages", content=str(number), headers=signed(server))
        assert sent.status_code == 201
    lines = (await http.get("/metrics")).text.splitlines()
    counted = {line.rpartition(" ")[2] for line in lines if line.startswith("twinbus_entity_rerouted_total{")}
    assert counted == {"0.0", f"{float(16 // STORE_COUNT)}"}


async def test_both_ports_take_connections_as_soon_as_the_namespace_has_started(tmp_path: Path) -> None:
    server = NamespaceServer(settings(tmp_path))
    await server.start()
    try:
        for port in (server.amqp_port, server.http_port):
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
    finally:
        await server.stop()


async def test_ports_open_when_the_entities_that_were_asked_for_exist(tmp_path: Path) -> None:
    server = NamespaceServer(ServerSettings("test", tmp_path, amqp_port=0, http_port=0, store_count=1))

    async def prepare(starting: NamespaceServer) -> None:
        for port in (starting.amqp_port, starting.http_port):
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection("127.0.0.1", port)
        await starting.control.create_queue(QueueDescription("asked-for"))

    await server.start(prepare)
    assert server.entities.queue("asked-for")
    _, writer = await asyncio.open_connection("127.0.0.1", server.http_port)
    writer.close()
    await server.stop()


async def test_a_namespace_whose_entities_cannot_be_created_leaves_nothing_open(tmp_path: Path) -> None:
    settings = ServerSettings("test", tmp_path, amqp_port=0, http_port=0, store_count=1)

    async def prepare(_: NamespaceServer) -> None:
        raise ArgumentError("not these")

    with pytest.raises(ArgumentError, match="not these"):
        await NamespaceServer(settings).start(prepare)
    again = NamespaceServer(settings)
    await again.start()
    await again.stop()


def test_a_namespace_that_loses_a_port_while_it_starts_leaves_nothing_behind(tmp_path: Path) -> None:
    """Until somebody listens on a bound port, another program may do so first."""
    settings = ServerSettings("test", tmp_path, amqp_port=0, http_port=0, store_count=1, is_metered=True)

    async def start_without_the_last_port() -> int:
        with socket.socket() as faster:
            faster.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)

            async def prepare(starting: NamespaceServer) -> None:
                faster.bind(("127.0.0.1", starting.http_port))
                faster.listen()

            server = NamespaceServer(settings)
            with pytest.raises(ArgumentError, match="is in use"):
                await server.start(prepare)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return server.amqp_port

    before = threading.enumerate()
    amqp_port = uvloop.run(start_without_the_last_port())
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", amqp_port), 5)
    for thread in set(threading.enumerate()) - set(before):
        thread.join(10)  # those of the stores are told to end, and not waited for
        assert not thread.is_alive(), thread.name


async def test_a_restart_finds_entities_and_key(tmp_path: Path) -> None:
    first = NamespaceServer(settings(tmp_path))
    await first.start()
    await first.control.create_queue(QueueDescription("orders", enable_partitioning=True))
    key = first.root_rule.primary_key
    await first.stop()
    second = NamespaceServer(settings(tmp_path))
    await second.start()
    assert second.entities.queue("ORDERS").description.enable_partitioning
    assert second.root_rule.primary_key == key
    await second.stop()


async def test_a_second_process_on_the_same_folder_is_refused_in_one_line(tmp_path: Path) -> None:
    first = NamespaceServer(settings(tmp_path))
    await first.start()
    with pytest.raises(StoreInUse, match="in use by process") as refused:
        await NamespaceServer(settings(tmp_path)).start()
    assert "\n" not in str(refused.value)
    await first.stop()


async def test_a_port_in_use_is_named_and_the_folder_is_released(server: NamespaceServer, tmp_path: Path) -> None:
    folder = tmp_path / "other"
    taken = ServerSettings("other", folder, amqp_port=server.amqp_port, http_port=0, store_count=1)
    with pytest.raises(ArgumentError, match=f"Port {server.amqp_port}"):
        await NamespaceServer(taken).start()
    again = NamespaceServer(ServerSettings("other", folder, amqp_port=0, http_port=0, store_count=1))
    await again.start()
    await again.stop()


async def test_a_receive_that_does_not_wait_finds_messages_that_have_to_be_read_first(tmp_path: Path) -> None:
    first = NamespaceServer(settings(tmp_path))
    await first.start()
    await first.control.create_queue(QueueDescription("orders"))
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{first.http_port}", headers=signed(first)) as http:
        assert (await http.post("/orders/messages", content=b"hello")).status_code == 201
    await first.stop()
    again = NamespaceServer(settings(tmp_path))
    await again.start()
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{again.http_port}", headers=signed(again)) as http:
        assert (await http.delete("/orders/messages/head?timeout=0")).content == b"hello"
        assert (await http.delete("/orders/messages/head?timeout=0")).status_code == 204
    await again.stop()
