"""The official Python SDK over WebSocket and over TLS."""

import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, TransportType
from azure.servicebus.management import ServiceBusAdministrationClient

from tests.interop.running_server import RunningServer


@pytest.mark.rule("A19.2")
@pytest.mark.parametrize("port", ["amqp_port", "http_port"])
def test_messages_pass_over_websocket(server: RunningServer, port: str) -> None:
    queue = server.create_queue(f"over-websocket-at-{port}")
    client = ServiceBusClient.from_connection_string(
        server.connection_string,
        transport_type=TransportType.AmqpOverWebsocket,
        custom_endpoint_address=f"ws://127.0.0.1:{getattr(server.server, port)}",
        retry_total=0,
    )
    with client, client.get_queue_sender(queue) as sender, client.get_queue_receiver(queue) as receiver:
        sender.send_messages([ServiceBusMessage("a" * 200_000), ServiceBusMessage("b")])
        sizes: list[int] = []
        while len(sizes) < 2:
            for message in receiver.receive_messages(2, max_wait_time=5):
                sizes.append(len(str(message)))
                receiver.complete_message(message)
        assert sizes == [200_000, 1]


@pytest.fixture
def secure_server(tmp_path: Path) -> Iterator[RunningServer]:
    server = RunningServer(tmp_path / "data", store_count=2, tls_port=0)
    yield server
    server.stop()


@pytest.mark.rule("A19.1")
def test_messages_pass_over_tls(secure_server: RunningServer) -> None:
    queue, server = secure_server.create_queue("over-tls"), secure_server.server
    text = f"Endpoint=sb://localhost;SharedAccessKeyName={server.root_rule.name};SharedAccessKey={server.root_rule.primary_key}"
    client = ServiceBusClient.from_connection_string(
        text,
        custom_endpoint_address=f"sb://127.0.0.1:{server.tls_port}",
        ssl_context=ssl.create_default_context(cafile=str(server.tls_authority)),
        retry_total=0,
    )
    with client, client.get_queue_sender(queue) as sender, client.get_queue_receiver(queue) as receiver:
        sender.send_messages(ServiceBusMessage("a" * 200_000))
        (message,) = receiver.receive_messages(1, max_wait_time=5)
        receiver.complete_message(message)
        assert len(str(message)) == 200_000


@pytest.mark.rule("A19.3")
def test_the_stock_administration_client_works_over_https(secure_server: RunningServer) -> None:
    server = secure_server.server
    assert server.tls_connection_string is not None
    with ServiceBusAdministrationClient.from_connection_string(
        server.tls_connection_string, connection_verify=str(server.tls_authority)
    ) as client:
        client.create_queue("over-https")
        assert [queue.name for queue in client.list_queues()] == ["over-https"]


@pytest.mark.rule("A19.6")
def test_one_connection_string_serves_both_stock_clients(secure_server: RunningServer) -> None:
    """The administration client uses HTTPS whatever the string says, and the port without TLS takes it."""
    text = secure_server.connection_string
    assert "UseDevelopmentEmulator=true" in text
    trusted = str(secure_server.server.tls_authority)
    with ServiceBusAdministrationClient.from_connection_string(text, connection_verify=trusted) as administration:
        administration.create_queue("one-string")
    with secure_server.client() as client, client.get_queue_sender("one-string") as sender:
        sender.send_messages(ServiceBusMessage("a"))
        with client.get_queue_receiver("one-string", max_wait_time=5) as receiver:
            assert [str(message) for message in receiver.receive_messages()] == ["a"]
