"""One messaging store of sixteen is down: the official SDK notices on what is pinned to it, and nowhere else."""

from collections.abc import Iterator

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusReceiveMode
from azure.servicebus.exceptions import ServiceBusError

from tests.interop.running_server import RunningServer, StoreSwitch

KEY = "myPartitionKey"


@pytest.fixture
def queue(server: RunningServer, request: pytest.FixtureRequest) -> str:
    return server.create_queue(request.node.name, enable_partitioning=True)


@pytest.fixture
def store(server: RunningServer, queue: str) -> Iterator[StoreSwitch]:
    """Where the messages with `KEY` are."""
    switch = server.store_of(queue, KEY)
    yield switch
    switch.up()


def test_messages_without_a_key_go_on_and_all_are_received(
    server: RunningServer, queue: str, store: StoreSwitch
) -> None:
    with server.client() as client, client.get_queue_sender(queue) as sender:
        for number in range(40):
            if number == 10:
                store.down()
            sender.send_messages(ServiceBusMessage(str(number)))
        store.up()
        found: list[str] = []
        mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
        with client.get_queue_receiver(queue, receive_mode=mode) as receiver:
            while len(found) < 40:
                batch = receiver.receive_messages(40, max_wait_time=5)
                assert batch
                found += map(str, batch)
        assert sorted(found, key=int) == [str(number) for number in range(40)]


def test_the_rest_of_a_queue_is_received_while_a_store_is_down(
    server: RunningServer, queue: str, store: StoreSwitch
) -> None:
    with server.client() as client, client.get_queue_sender(queue) as sender:
        for key in (KEY, "mySession", "contoso"):
            sender.send_messages(ServiceBusMessage(key, partition_key=key))
        store.down()
        with client.get_queue_receiver(queue) as receiver:
            found = [str(message) for _ in range(2) for message in receiver.receive_messages(1, max_wait_time=5)]
            assert sorted(found) == ["contoso", "mySession"]
            assert receiver.receive_messages(1, max_wait_time=0.3) == []


def test_a_pinned_message_is_refused_until_its_store_is_back(
    server: RunningServer, queue: str, store: StoreSwitch
) -> None:
    store.down()
    with server.client(retry_total=0) as client, client.get_queue_sender(queue) as sender:
        with pytest.raises(ServiceBusError):
            sender.send_messages(ServiceBusMessage("a", partition_key=KEY))
        sender.send_messages(ServiceBusMessage("b", partition_key="mySession"))
        store.up()
        sender.send_messages(ServiceBusMessage("c", partition_key=KEY))
