"""Administration of a real namespace: brokers, stores, HTTP and the official client together."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from azure.core.exceptions import ClientAuthenticationError, HttpResponseError
from azure.servicebus import ServiceBusSubQueue
from azure.servicebus.exceptions import ServiceBusError
from azure.servicebus.management import AccessRights, AuthorizationRule, ServiceBusAdministrationClient

from tests.interop.running_server import RunningServer, wait_until
from twinbus.client.administration import administration_client
from twinbus.model.descriptions import MINUTE

STORE_COUNT = 4


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RunningServer]:
    server = RunningServer(tmp_path, store_count=STORE_COUNT)
    yield server
    server.stop()


def administration(server: RunningServer, connection_string: str | None = None) -> ServiceBusAdministrationClient:
    endpoint = f"http://127.0.0.1:{server.server.http_port}"
    return administration_client(connection_string or server.connection_string, endpoint)


def switch_off(server: RunningServer, index: int) -> None:
    server.server.stores.stores[index].down()
    wait_until(lambda: not server.server.stores.brokers[index].is_available)


def test_counts_of_a_partitioned_queue_are_summed_over_its_fragments(server: RunningServer) -> None:
    server.create_queue("q", enable_partitioning=True)
    server.put("q", *(f"message {number}" for number in range(40)))
    with administration(server) as client:
        counts = client.get_queue_runtime_properties("q")
        assert (counts.active_message_count, counts.total_message_count) == (40, 40)
        assert counts.size_in_bytes is not None
        assert counts.size_in_bytes > 40 * len("message 0")


@pytest.mark.parametrize("name", ["health", "metrics"])
def test_an_entity_may_have_the_name_of_a_page_of_ours(server: RunningServer, name: str) -> None:
    with administration(server) as client:
        client.create_queue(name, max_delivery_count=3)
        assert client.get_queue(name).max_delivery_count == 3
        client.delete_queue(name)


def test_an_unhealthy_store_limits_the_entities_it_holds_and_fails_their_changes(server: RunningServer) -> None:
    server.create_queue("split", enable_partitioning=True)
    # Ids are given in order, so these four lie in the four stores.
    for number in range(STORE_COUNT):
        server.create_queue(f"whole{number}")
    switch_off(server, 1)
    with administration(server) as client:
        states = {queue.name: queue.availability_status for queue in client.list_queues()}
        assert states["split"] == "Limited"
        assert [states[f"whole{number}"] for number in range(STORE_COUNT)].count("Limited") == 1
        with pytest.raises(HttpResponseError, match="messaging store 1, which is unavailable"):
            client.delete_queue("split", retry_total=0)
        with pytest.raises(HttpResponseError, match="messaging store 1, which is unavailable"):
            client.create_queue("another", enable_partitioning=True, retry_total=0)
        names = [queue.name for queue in client.list_queues()]
        assert "split" in names
        assert "another" not in names
        server.server.stores.stores[1].up()
        wait_until(lambda: server.server.stores.brokers[1].is_available)
        assert client.get_queue("split").availability_status == "Available"
        client.delete_queue("split")


@pytest.mark.rule("A4.9")
def test_a_lost_store_never_looks_empty(server: RunningServer) -> None:
    """By the official clients and over HTTP: receive, dead letters, peek, counts and metrics."""
    queue = server.create_queue("lost")
    server.put(queue, "a")
    index = server.server.entities.queue(queue).main.fragments[0].broker.index
    with administration(server) as admin, server.client(retry_total=0) as client:
        waiting = client.get_queue_receiver(queue)
        with waiting:
            assert [str(message) for message in waiting.receive_messages(max_wait_time=5)] == ["a"]
            switch_off(server, index)
            with pytest.raises(ServiceBusError, match="unavailable"):
                waiting.receive_messages(max_wait_time=1)
        for sub_queue in (None, ServiceBusSubQueue.DEAD_LETTER):
            receiver = client.get_queue_receiver(queue, sub_queue=sub_queue)
            with pytest.raises(ServiceBusError, match="unavailable"):
                receiver.receive_messages(max_wait_time=1)
            receiver.close()
        with pytest.raises(HttpResponseError, match="unavailable"):
            admin.get_queue_runtime_properties(queue, retry_total=0)
        (shown,) = [each for each in admin.list_queues_runtime_properties() if each.name == queue]
        assert (shown.total_message_count, shown.active_message_count, shown.size_in_bytes) == (None, None, None)
        (state,) = [each.availability_status for each in admin.list_queues() if each.name == queue]
        assert state == "Limited"
        metrics = httpx.get(f"http://127.0.0.1:{server.server.http_port}/metrics").text
        assert 'twinbus_queue_limited{entity="lost",namespace="interop",sub_queue="main"} 1.0' in metrics
        assert 'twinbus_queue_active{entity="lost"' not in metrics


@pytest.mark.rule("A6.3")
def test_changes_of_rules_fail_whole_while_a_store_is_lost(server: RunningServer) -> None:
    with administration(server) as client:
        client.create_topic("news", enable_partitioning=True)
        client.create_subscription("news", "reader")
        switch_off(server, 2)
        with pytest.raises(HttpResponseError, match="messaging store 2, which is unavailable"):
            client.create_rule("news", "reader", "more", retry_total=0)
        with pytest.raises(HttpResponseError, match="messaging store 2, which is unavailable"):
            client.delete_rule("news", "reader", "$Default", retry_total=0)
        assert [rule.name for rule in client.list_rules("news", "reader")] == ["$Default"]


def test_everything_is_there_after_a_restart(tmp_path: Path) -> None:
    first = RunningServer(tmp_path, store_count=STORE_COUNT)
    with administration(first) as client:
        client.create_queue("q", enable_partitioning=True, max_delivery_count=3)
        client.create_topic("t")
        client.create_subscription("t", "s", requires_session=True)
        client.create_rule("t", "s", "r")
        client.create_queue("gone")
        client.delete_queue("gone")
    first.put("q", "one", "two")
    first.stop()
    second = RunningServer(tmp_path, store_count=STORE_COUNT)
    with administration(second) as client:
        assert [queue.name for queue in client.list_queues()] == ["q"]
        assert client.get_queue("q").max_delivery_count == 3
        assert client.get_queue_runtime_properties("q").active_message_count == 2
        assert [rule.name for rule in client.list_rules("t", "s")] == ["$Default", "r"]
        assert client.get_subscription("t", "s").requires_session
    second.stop()


def test_a_queue_of_the_same_name_starts_empty(server: RunningServer) -> None:
    server.create_queue("q")
    server.put("q", "old")
    with administration(server) as client:
        client.delete_queue("q")
        client.create_queue("q")
        assert client.get_queue_runtime_properties("q").total_message_count == 0


def test_an_entity_that_nobody_used_is_deleted_after_its_idle_time(server: RunningServer) -> None:
    server.create_queue("idle", auto_delete_on_idle=5 * MINUTE)
    server.create_queue("kept", auto_delete_on_idle=60 * MINUTE)
    server.create_topic("t", "s", auto_delete_on_idle=5 * MINUTE)
    server.clock.advance(299)
    server.put("kept", "used")
    server.clock.advance(2)
    wait_until(lambda: server.server.catalog.find("idle") is None and server.server.catalog.find("t") is None)
    assert server.server.catalog.find("t/Subscriptions/s") is None
    with administration(server) as client:
        assert [queue.name for queue in client.list_queues()] == ["kept"]


def test_the_key_of_an_entity_manages_that_entity_and_nothing_else(server: RunningServer) -> None:
    rule = AuthorizationRule(
        type="SharedAccessAuthorizationRule",
        claim_type="SharedAccessKey",
        claim_value="None",
        key_name="owner",
        rights=[AccessRights.MANAGE, AccessRights.LISTEN, AccessRights.SEND],
        primary_key="primary of owner",
        secondary_key="secondary of owner",
    )
    with administration(server) as client:
        client.create_queue("own", authorization_rules=[rule])
        client.create_queue("other")
    root = server.connection_string
    name, key = root.split("SharedAccessKeyName=")[1].split(";SharedAccessKey=")
    for own_key in ("primary of owner", "secondary of owner"):
        owner = root.replace(name, "owner").replace(key.split(";")[0], own_key)
        with administration(server, owner) as client:
            assert client.get_queue("own").name == "own"
            for refused in (lambda: client.get_queue("other"), lambda: list(client.list_queues())):
                with pytest.raises(ClientAuthenticationError):
                    refused()
