"""Faults on purpose, switched over HTTP, as an application with the official SDK meets them."""

import time
from collections.abc import Callable, Iterator

import httpx
import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusReceiveMode
from azure.servicebus.exceptions import ServiceBusError

from tests.interop.running_server import RunningServer, wait_until
from twinbus.client.connecting.token_sources import sign


@pytest.fixture
def faults(server: RunningServer) -> Iterator[httpx.Client]:
    root = server.server.root_rule
    token = sign("sb://localhost/", root.name, root.primary_key, int(time.time()) + 600)
    base = f"http://127.0.0.1:{server.server.http_port}"
    with httpx.Client(base_url=base, headers={"Authorization": token}) as client:
        yield client
        for index in range(len(server.server.stores.stores)):
            client.post(f"/$stores/{index}/up")


def store_of(server: RunningServer, queue: str) -> int:
    return server.server.entities.queue(queue).main.fragments[0].broker.index


def count_of(server: RunningServer, queue: str) -> int:
    return server.server.entities.queue(queue).main.counts().active


def test_a_send_whose_reply_is_lost_fails_and_the_message_is_there(server: RunningServer, faults: httpx.Client) -> None:
    queue = server.create_queue("lost-ack")
    with server.client(retry_total=0) as client, client.get_queue_sender(queue) as sender:
        assert faults.post(f"/$stores/{store_of(server, queue)}/lose-ack?count=1").json()["acks_to_lose"] == 1
        with pytest.raises(ServiceBusError):
            sender.send_messages(ServiceBusMessage("once"))
        wait_until(lambda: count_of(server, queue) == 1)
    assert faults.get("/$stores").json()[store_of(server, queue)]["acks_to_lose"] == 0


@pytest.mark.parametrize(("detects", "count"), [(False, 2), (True, 1)])
def test_a_retry_after_a_lost_reply_doubles_the_message_unless_duplicates_are_detected(
    server: RunningServer, faults: httpx.Client, detects: bool, count: int
) -> None:
    queue = server.create_queue(f"retry-{detects}", requires_duplicate_detection=detects)
    with server.client(retry_total=5) as client, client.get_queue_sender(queue) as sender:
        faults.post(f"/$stores/{store_of(server, queue)}/lose-ack?count=1")
        sender.send_messages(ServiceBusMessage("again", message_id="m"))
    assert count_of(server, queue) == count


def test_a_slow_store_makes_sends_slow_and_nothing_else(server: RunningServer, faults: httpx.Client) -> None:
    slow, quick = server.create_queue("slow"), server.create_queue("quick")
    assert store_of(server, slow) != store_of(server, quick)
    with server.client() as client, client.get_queue_sender(slow) as first, client.get_queue_sender(quick) as second:
        first.send_messages(ServiceBusMessage("a"))
        second.send_messages(ServiceBusMessage("a"))
        assert faults.post(f"/$stores/{store_of(server, slow)}/slow?ms=800").json()["slow_ms"] == 800
        assert duration(lambda: first.send_messages(ServiceBusMessage("b"))) >= 0.8
        assert duration(lambda: second.send_messages(ServiceBusMessage("b"))) < 0.8


def duration(work: Callable[[], object]) -> float:
    started = time.monotonic()
    work()
    return time.monotonic() - started


def test_clients_that_were_cut_off_connect_again(server: RunningServer, faults: httpx.Client) -> None:
    queue = server.create_queue("cut")
    mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
    with server.client(retry_total=3) as client, client.get_queue_sender(queue) as sender:
        sender.send_messages(ServiceBusMessage("before"))
        assert faults.post("/$connections/disconnect").json()["connections"] >= 1
        sender.send_messages(ServiceBusMessage("after"))
        with client.get_queue_receiver(queue, receive_mode=mode) as receiver:
            found = [str(message) for _ in range(2) for message in receiver.receive_messages(1, max_wait_time=5)]
    assert found == ["before", "after"]


def test_the_links_of_one_entity_are_detached_and_attached_again(server: RunningServer, faults: httpx.Client) -> None:
    queue, other = server.create_queue("moved"), server.create_queue("stays")
    before = server.server.traffic.connections_opened
    with (
        server.client(retry_total=3) as client,
        client.get_queue_sender(queue) as sender,
        client.get_queue_sender(other) as bystander,
    ):
        sender.send_messages(ServiceBusMessage("before"))
        bystander.send_messages(ServiceBusMessage("before"))
        opened = server.server.traffic.connections_opened
        assert opened > before
        assert faults.post("/$connections/disconnect?entity=MOVED").json() == {"entity": "MOVED", "links": 1}
        sender.send_messages(ServiceBusMessage("after"))
        bystander.send_messages(ServiceBusMessage("after"))
    assert (count_of(server, queue), count_of(server, other)) == (2, 2)


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/$stores/0/slow?ms=60000", 202),
        ("/$stores/0/slow?ms=60001", 400),
        ("/$stores/0/lose-ack?count=1000", 202),
        ("/$stores/0/lose-ack?count=1001", 400),
        ("/$stores/0/lose-ack?count=-1", 400),
        ("/$stores/0/lose-ack", 400),
        ("/$stores/99999999999999999999/up", 404),
    ],
)
def test_faults_have_limits(faults: httpx.Client, path: str, status: int) -> None:
    assert faults.post(path).status_code == status
    faults.post("/$stores/0/up")


def test_faults_need_the_right_to_manage(server: RunningServer) -> None:
    base = f"http://127.0.0.1:{server.server.http_port}"
    for path in ("/$stores/0/lose-ack?count=1", "/$connections/disconnect", "/$connections/disconnect?entity=cut"):
        assert httpx.post(base + path).status_code == 401
