"""TLS: a certificate that the caller's context trusts is taken, any other is refused."""

import ssl
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.client.relay import Relay
from tests.interop.running_server import RunningServer
from twinbus.client.message import encode_message
from twinbus.client.namespace import Namespace
from twinbus.client.remote_errors import ConnectionLost, PeerNotTrusted


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A self-signed certificate and its key, in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "twinbus test")])
    now = datetime.now(UTC)
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path_factory.mktemp("tls") / "server.pem"
    encoded_key = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.write_bytes(encoded_key + signed.public_bytes(serialization.Encoding.PEM))
    return path


@pytest.fixture
async def relay(server: RunningServer, certificate: Path) -> AsyncIterator[Relay]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    relay = Relay(server.server.amqp_port, context)
    await relay.start()
    yield relay
    await relay.stop()


def secure(server: RunningServer, port: int) -> str:
    rule = server.server.root_rule
    return f"Endpoint=sb://127.0.0.1:{port};SharedAccessKeyName={rule.name};SharedAccessKey={rule.primary_key}"


async def test_a_certificate_that_the_context_trusts_is_taken(
    server: RunningServer, relay: Relay, certificate: Path
) -> None:
    server.create_queue("secret")
    trusting = ssl.create_default_context(cafile=certificate)
    async with await Namespace.connect(secure(server, relay.port), tls=trusting, clock=server.clock) as namespace:
        sender = await namespace.sender("secret")
        payloads = [encode_message(bytes(1_000), message_id=str(number)) for number in range(500)]
        assert await sender.send(payloads) == [None] * 500
        receiver = await namespace.receiver("secret", deletes=True)
        assert (await receiver.receive(1, wait_s=5))[0].message_id == "0"


async def test_a_certificate_that_nobody_vouches_for_is_refused_for_good(server: RunningServer, relay: Relay) -> None:
    with pytest.raises(PeerNotTrusted, match="self-signed") as caught:
        await Namespace.connect(secure(server, relay.port))
    assert not caught.value.is_transient


async def test_a_server_that_does_not_speak_tls_is_not_talked_to(server: RunningServer) -> None:
    with pytest.raises((PeerNotTrusted, ConnectionLost)):
        await Namespace.connect(secure(server, server.server.amqp_port))


async def test_a_client_without_tls_gets_nowhere_with_a_server_that_has_it(server: RunningServer, relay: Relay) -> None:
    with pytest.raises(ConnectionLost):
        await Namespace.connect(secure(server, relay.port) + ";UseDevelopmentEmulator=true", timeout_s=5)
