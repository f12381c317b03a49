"""The server is killed while the official SDK works with it: what was acknowledged stays so."""

import random
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceiveMode
from azure.servicebus.exceptions import ServiceBusError

from tests.interop.child_server import ChildServer


@pytest.fixture
def child(tmp_path: Path) -> Iterator[ChildServer]:
    child = ChildServer(tmp_path)
    yield child
    child.kill()


def send_until_it_fails(client: ServiceBusClient, queue: str, prefix: str, acknowledged: set[str]) -> None:
    try:
        with client.get_queue_sender(queue) as sender:
            for number in range(100_000):
                texts = [f"{prefix}-{number}-{part}" for part in range(5)]
                sender.send_messages([ServiceBusMessage(text) for text in texts])
                acknowledged.update(texts)
    except (ServiceBusError, ConnectionError):
        pass


def drain(client: ServiceBusClient, queue: str) -> list[str]:
    found: list[str] = []
    mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
    with client.get_queue_receiver(queue, receive_mode=mode, prefetch_count=200) as receiver:
        while batch := receiver.receive_messages(200, max_wait_time=1.5):
            found += [str(message) for message in batch]
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("queue", "seed"), [("ordinary", 1), ("partitioned", 2)])
def test_every_acknowledged_message_is_there_after_a_kill(child: ChildServer, queue: str, seed: int) -> None:
    moments = random.Random(seed)
    acknowledged: set[str] = set()
    for life in range(2):
        with child.client() as client:
            sending = threading.Thread(target=send_until_it_fails, args=(client, queue, f"{life}", acknowledged))
            sending.start()
            threading.Event().wait(moments.uniform(0.5, 1.2))
            child.kill()
            sending.join(30)
        child.start()
    with child.client() as client:
        found = drain(client, queue)
    assert len(acknowledged) > 20
    assert acknowledged <= set(found)
    assert len(found) == len(set(found))


@pytest.mark.parametrize("queue", ["ordinary", "partitioned"])
def test_every_acknowledged_message_is_there_after_a_kill_of_the_stores_alone(child: ChildServer, queue: str) -> None:
    acknowledged: set[str] = set()
    with child.client(retry_total=0) as client:
        sending = threading.Thread(target=send_until_it_fails, args=(client, queue, "0", acknowledged))
        sending.start()
        while len(acknowledged) < 50:
            sending.join(0.01)
            assert sending.is_alive()
        child.kill_stores()
        sending.join(30)
    with child.client() as client:
        found = drain(client, queue)
    assert acknowledged <= set(found)
    assert len(found) == len(set(found))


def test_what_was_completed_before_a_kill_does_not_come_back(child: ChildServer) -> None:
    with child.client() as client:
        with client.get_queue_sender("ordinary") as sender:
            sender.send_messages([ServiceBusMessage(str(number)) for number in range(10)])
        completed: set[str] = set()
        with client.get_queue_receiver("ordinary") as receiver:
            while len(completed) < 5:
                for message in receiver.receive_messages(5 - len(completed), max_wait_time=5):
                    receiver.complete_message(message)
                    completed.add(str(message))
            child.kill()
    child.start()
    with child.client() as client:
        assert sorted(drain(client, "ordinary")) == sorted(set(map(str, range(10))) - completed)


def test_a_client_goes_on_after_the_server_was_restarted(child: ChildServer) -> None:
    with child.client() as client, client.get_queue_sender("ordinary") as sender:
        sender.send_messages(ServiceBusMessage("before"))
        assert child.stop() == 0
        child.start()
        sender.send_messages(ServiceBusMessage("after"))
        assert sorted(drain(client, "ordinary")) == ["after", "before"]
