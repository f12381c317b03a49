"""The namespace that is shipped for tests of applications: what it promises to those tests."""

import threading
import time
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceiveMode
from azure.servicebus.exceptions import ServiceBusError

from twinbus.errors import ArgumentError
from twinbus.server.namespace import NamespaceServer
from twinbus.testing.local_namespace import LocalNamespace
from twinbus.testing.pytest_plugin import Pair, namespace_fixture

QUICK_S = 1.0

shared = namespace_fixture(scope="module", queues=["orders"], topics=["news/all", "bare"], store_count=2)


def send(namespace: LocalNamespace, queue: str, text: str, **options: int) -> None:
    with namespace.client(**{"retry_total": 0, **options}) as client, client.get_queue_sender(queue) as sender:
        sender.send_messages(ServiceBusMessage(text))


def take_all(client: ServiceBusClient, queue: str, count: int) -> list[str]:
    mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
    with client.get_queue_receiver(queue, receive_mode=mode) as receiver:
        return [str(message) for message in receiver.receive_messages(count, max_wait_time=5)]


def test_it_starts_in_less_than_a_second(tmp_path: Path) -> None:
    # The best of three: the machine may be busy with something else.
    durations = []
    for number in range(3):
        started = time.monotonic()
        with LocalNamespace(tmp_path / str(number)):
            durations.append(time.monotonic() - started)
    assert min(durations) < QUICK_S


def test_it_may_be_closed_twice(tmp_path: Path) -> None:
    with LocalNamespace(tmp_path) as namespace:
        namespace.close()


def test_its_thread_ends_even_if_it_cannot_be_stopped_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stop = NamespaceServer.stop

    async def fail(server: NamespaceServer) -> None:
        await stop(server)
        raise OSError("the disk is gone")

    namespace = LocalNamespace(tmp_path, "ended")
    monkeypatch.setattr(NamespaceServer, "stop", fail)
    with pytest.raises(OSError, match="the disk is gone"):
        namespace.close()
    assert "namespace-ended" not in {thread.name for thread in threading.enumerate()}


def test_a_fixture_of_ones_own_has_its_entities(shared: LocalNamespace) -> None:
    assert shared.administration.get_queue("orders").name == "orders"
    assert shared.administration.get_subscription("news", "all").name == "all"
    assert shared.administration.get_topic("bare").name == "bare"


def test_messages_survive_a_restart_and_a_kill_at_the_same_address(twinbus_namespace: LocalNamespace) -> None:
    queue = twinbus_namespace.create_queue("kept", lock_duration="PT30S")
    address = twinbus_namespace.connection_string
    send(twinbus_namespace, queue, "a")
    twinbus_namespace.restart()
    assert (twinbus_namespace.connection_string, twinbus_namespace.message_count(queue)) == (address, 1)
    with twinbus_namespace.client(retry_total=3, retry_backoff_factor=0.1) as client:
        with client.get_queue_receiver(queue) as receiver:
            assert len(receiver.receive_messages(1, max_wait_time=5)) == 1
            twinbus_namespace.kill()
            twinbus_namespace.start()
        assert take_all(client, queue, 1) == ["a"]


def test_a_namespace_that_was_stopped_answers_nobody(twinbus_namespace: LocalNamespace) -> None:
    queue = twinbus_namespace.create_queue("q")
    client = twinbus_namespace.client(retry_total=0)
    twinbus_namespace.stop()
    with pytest.raises(ServiceBusError), client, client.get_queue_sender(queue) as sender:
        sender.send_messages(ServiceBusMessage("a"))
    with pytest.raises(ArgumentError, match="is not running"):
        twinbus_namespace.message_count(queue)


def test_a_store_is_down_when_the_call_returns_and_up_again(shared: LocalNamespace) -> None:
    index = shared.store_of("orders")
    shared.store_down(index)
    with pytest.raises(ServiceBusError):
        send(shared, "orders", "a")
    shared.store_up(index)
    send(shared, "orders", "b")
    assert shared.message_count("orders") == 1


def test_a_lost_reply_fails_a_send_that_happened(shared: LocalNamespace) -> None:
    queue = shared.create_queue("unsure")
    shared.lose_acks(shared.store_of(queue))
    with pytest.raises(ServiceBusError):
        send(shared, queue, "a")
    shared.store_up(shared.store_of(queue))
    assert shared.message_count(queue) == 1


def test_a_slow_store_delays_what_is_sent_to_it(shared: LocalNamespace) -> None:
    queue = shared.create_queue("delayed")
    shared.store_slow(shared.store_of(queue), 300)
    started = time.monotonic()
    send(shared, queue, "a")
    assert time.monotonic() - started >= 0.3
    shared.store_up(shared.store_of(queue))


def test_a_sender_survives_being_cut_off_and_detached(shared: LocalNamespace) -> None:
    queue = shared.create_queue("cut")
    with shared.client(retry_backoff_factor=0.1) as client, client.get_queue_sender(queue) as sender:
        sender.send_messages(ServiceBusMessage("a"))
        assert shared.disconnect(queue) == 1
        sender.send_messages(ServiceBusMessage("b"))
        assert shared.disconnect() >= 1
        sender.send_messages(ServiceBusMessage("c"))
    assert shared.message_count(queue) == 3


def test_what_makes_no_sense_is_refused(shared: LocalNamespace) -> None:
    with pytest.raises(ArgumentError, match="no messaging store 2"):
        shared.store_down(2)
    with pytest.raises(ArgumentError):
        shared.store_slow(0, 60_001)
    with pytest.raises(ArgumentError):
        shared.lose_acks(0, 1_001)
    with pytest.raises(ArgumentError, match="is a topic"):
        shared.message_count("news")


def test_a_pair_is_two_namespaces(twinbus_pair: Pair) -> None:
    primary, secondary = twinbus_pair
    primary.create_queue("only-here")
    assert [queue.name for queue in secondary.administration.list_queues()] == []
    assert primary.connection_string != secondary.connection_string
