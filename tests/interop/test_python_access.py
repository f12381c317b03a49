"""The official Python SDK with keys that are wrong, expired or allow too little."""

import base64
import hashlib
import hmac
import time
from typing import Any
from urllib.parse import quote_plus

import pytest
from azure.core.credentials import AzureSasCredential
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import (
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
    ServiceBusError,
)

from tests.interop.running_server import RunningServer, wait_until
from twinbus.model.descriptions import AuthorizationRule, Right

FAST: dict[str, Any] = {"retry_total": 0}


@pytest.fixture(scope="module")
def queue(server: RunningServer) -> str:
    rules = (
        AuthorizationRule("sends", "send-key", "other-send-key", frozenset({Right.SEND})),
        AuthorizationRule("listens", "listen-key", "other-listen-key", frozenset({Right.LISTEN})),
    )
    server.create_queue("closed")
    return server.create_queue("guarded", authorization_rules=rules)


def client_with(server: RunningServer, key_name: str, key: str) -> ServiceBusClient:
    text = f"Endpoint=sb://127.0.0.1:{server.server.amqp_port};SharedAccessKeyName={key_name};SharedAccessKey={key}"
    return ServiceBusClient.from_connection_string(text + ";UseDevelopmentEmulator=true", **FAST)


def send(client: ServiceBusClient, queue: str) -> None:
    with client, client.get_queue_sender(queue) as sender:
        sender.send_messages(ServiceBusMessage("a"))


def receive(client: ServiceBusClient, queue: str) -> None:
    with client, client.get_queue_receiver(queue) as receiver:
        receiver.receive_messages(1, max_wait_time=0.3)


def test_a_wrong_key_is_refused(server: RunningServer, queue: str) -> None:
    with pytest.raises(ServiceBusAuthenticationError):
        send(client_with(server, "RootManageSharedAccessKey", "wrong"), queue)


def test_an_unknown_key_name_is_refused(server: RunningServer, queue: str) -> None:
    with pytest.raises(ServiceBusAuthenticationError):
        send(client_with(server, "nobody", "send-key"), queue)


@pytest.mark.parametrize("key", ["send-key", "other-send-key"])
def test_a_key_that_may_send_sends_and_does_not_receive(server: RunningServer, queue: str, key: str) -> None:
    send(client_with(server, "sends", key), queue)
    with pytest.raises(ServiceBusAuthorizationError):
        receive(client_with(server, "sends", key), queue)


def test_a_key_that_may_listen_receives_and_does_not_send(server: RunningServer, queue: str) -> None:
    receive(client_with(server, "listens", "listen-key"), queue)
    with pytest.raises(ServiceBusAuthorizationError):
        send(client_with(server, "listens", "listen-key"), queue)


def test_the_key_of_one_entity_opens_no_other(server: RunningServer, queue: str) -> None:
    with pytest.raises(ServiceBusAuthenticationError):
        send(client_with(server, "sends", "send-key"), "closed")


def signed(server: RunningServer, queue: str, expires_in_s: int) -> AzureSasCredential:
    resource = quote_plus(f"sb://127.0.0.1:{server.server.amqp_port}/{queue}")
    expiry = int(time.time()) + expires_in_s
    key = server.server.root_rule.primary_key
    digest = hmac.new(key.encode(), f"{resource}\n{expiry}".encode(), hashlib.sha256).digest()
    signature = quote_plus(base64.b64encode(digest))
    return AzureSasCredential(
        f"SharedAccessSignature sr={resource}&sig={signature}&se={expiry}&skn=RootManageSharedAccessKey"
    )


def sas_client(server: RunningServer, credential: AzureSasCredential) -> ServiceBusClient:
    host = f"127.0.0.1:{server.server.amqp_port}"
    return ServiceBusClient(host, credential, use_tls=False, **FAST)


def test_a_signature_made_by_the_user_opens_what_it_was_made_for(server: RunningServer, queue: str) -> None:
    send(sas_client(server, signed(server, queue, 600)), queue)
    with pytest.raises(ServiceBusError):
        send(sas_client(server, signed(server, queue, 600)), "closed")


def test_an_expired_signature_is_refused(server: RunningServer, queue: str) -> None:
    with pytest.raises(ServiceBusAuthenticationError):
        send(sas_client(server, signed(server, queue, -60)), queue)


def test_a_link_whose_token_ran_out_is_detached(server: RunningServer, queue: str) -> None:
    with sas_client(server, signed(server, queue, 120)) as client, client.get_queue_sender(queue) as sender:
        sender.send_messages(ServiceBusMessage("a"))
        server.clock.advance(180)

        def is_sent() -> bool:
            sender.send_messages(ServiceBusMessage("b"))
            return False

        # The link goes with the server's next beat; until then sends may still get through.
        with pytest.raises(ServiceBusError):
            wait_until(is_sent)
