"""The official Python SDK with a credential that returns JSON web tokens, as `DefaultAzureCredential` does."""

import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from azure.core.credentials import AccessToken
from azure.core.exceptions import ClientAuthenticationError
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient as AioClient
from azure.servicebus.exceptions import ServiceBusAuthenticationError, ServiceBusAuthorizationError, ServiceBusError
from azure.servicebus.management import ServiceBusAdministrationClient

from tests.gateway.web_token_keys import ROLE_OWNER, TRUSTED, claims, jwk, key_set, sign
from tests.interop.running_server import RunningServer, wait_until
from twinbus.gateway.trusted_issuer import TrustedIssuer


class Credential:
    """A TokenCredential whose issuer is the test."""

    def __init__(self, server: RunningServer, lifetime_s: int = 600, **changes: Any) -> None:
        self._server, self._lifetime_s, self._changes = server, lifetime_s, changes
        self.scopes: list[str] = []

    def get_token(self, *scopes: str, **options: Any) -> AccessToken:
        self.scopes += scopes
        now = self._server.clock.now()
        expiry = now // 1_000 + self._lifetime_s
        return AccessToken(sign(claims(now, exp=expiry, **self._changes)), expiry)


class AioCredential(Credential):
    async def get_token(self, *scopes: str, **options: Any) -> AccessToken:  # type: ignore[override]
        return super().get_token(*scopes, **options)

    async def close(self) -> None:
        pass

    async def __aenter__(self) -> "AioCredential":
        return self

    async def __aexit__(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder: Path = tmp_path_factory.mktemp("trust")
    (folder / "keys.json").write_bytes(key_set(jwk("one")))
    issuer = TrustedIssuer(TRUSTED.issuer, str(folder / "keys.json"), TRUSTED.grants)
    running = RunningServer(folder / "data", store_count=2, tls_port=0, trusted_issuers=(issuer,))
    yield running
    running.stop()


def options(server: RunningServer) -> dict[str, Any]:
    return {
        "custom_endpoint_address": f"sb://127.0.0.1:{server.server.tls_port}",
        "ssl_context": ssl.create_default_context(cafile=str(server.server.tls_authority)),
        "retry_total": 0,
    }


def client(server: RunningServer, credential: Credential) -> ServiceBusClient:
    return ServiceBusClient("localhost", credential, **options(server))


@pytest.mark.rule("A17.6")
def test_a_client_with_a_token_credential_sends_receives_and_settles(server: RunningServer) -> None:
    queue, credential = server.create_queue("with-token"), Credential(server)
    with client(server, credential) as connected:
        with connected.get_queue_sender(queue) as sender:
            sender.send_messages([ServiceBusMessage("a"), ServiceBusMessage("b")])
        with connected.get_queue_receiver(queue) as receiver:
            for message in receiver.peek_messages(2) and receiver.receive_messages(2, max_wait_time=5):
                receiver.complete_message(message)
    assert credential.scopes[0].startswith("https://servicebus.azure.net")


async def test_the_asynchronous_client_does_too(server: RunningServer) -> None:
    queue = server.create_queue("with-token-aio")
    async with (
        AioClient("localhost", AioCredential(server), **options(server)) as connected,
        connected.get_queue_sender(queue) as sender,
        connected.get_queue_receiver(queue) as receiver,
    ):
        await sender.send_messages(ServiceBusMessage("a"))
        (message,) = await receiver.receive_messages(1, max_wait_time=5)
        await receiver.complete_message(message)


def test_the_administration_client_manages_entities_with_a_token(server: RunningServer) -> None:
    def administration(**changes: Any) -> ServiceBusAdministrationClient:
        return ServiceBusAdministrationClient(
            f"localhost:{server.server.tls_port}",
            Credential(server, **changes),
            connection_verify=str(server.server.tls_authority),
            retry_total=0,
        )

    with administration() as allowed:
        allowed.create_queue("by-token")
        assert "by-token" in [queue.name for queue in allowed.list_queues()]
    with administration(roles=["sender"]) as refused, pytest.raises(ClientAuthenticationError):
        refused.create_queue("not-by-token")


def test_a_client_does_no_more_than_its_claims_allow(server: RunningServer) -> None:
    queue = server.create_queue("only-sent-to")
    with client(server, Credential(server, roles=["sender"])) as connected:
        with connected.get_queue_sender(queue) as sender:
            sender.send_messages(ServiceBusMessage("a"))
        with pytest.raises((ServiceBusAuthorizationError, ServiceBusAuthenticationError)):
            connected.get_queue_receiver(queue).receive_messages(1, max_wait_time=5)


@pytest.mark.parametrize(
    "changes",
    [{"aud": "https://vault.azure.net"}, {"iss": "https://evil.test"}, {"roles": None}, {"nbf": 4_000_000_000}],
)
def test_a_client_whose_token_is_not_for_us_is_refused(server: RunningServer, changes: dict[str, Any]) -> None:
    queue = server.create_queue(f"refused-{next(iter(changes))}-{len(str(changes))}")
    with client(server, Credential(server, **changes)) as connected, pytest.raises(ServiceBusError):
        connected.get_queue_sender(queue).send_messages(ServiceBusMessage("a"))


def test_a_receiver_loses_its_link_when_its_token_ends(server: RunningServer) -> None:
    queue = server.create_queue("ends-with-token")
    with client(server, Credential(server, roles=[ROLE_OWNER])) as connected:
        receiver = connected.get_queue_receiver(queue)
        server.put(queue, "a")
        assert len(receiver.receive_messages(1, max_wait_time=5)) == 1
        entity = server.server.entities.queue(queue)
        assert entity.main.receiver_count == 1
        server.clock.advance(700)
        wait_until(lambda: entity.main.receiver_count == 0)
