"""Credentials as azure-identity has them: asked for tokens, which are put as JSON web tokens and renewed in time."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Iterator
from threading import Event

import pytest
from azure.core.credentials import AccessToken
from azure.core.exceptions import ClientAuthenticationError, ServiceRequestError

from tests.client.relay import Relay
from tests.interop.running_server import RunningServer, ShiftedClock
from twinbus.client.connecting.dialling import Transport
from twinbus.client.connecting.token_sources import (
    SCOPE,
    CredentialTokens,
    Token,
    TokenCredential,
    TokenUnavailable,
    sign,
)
from twinbus.client.connecting.tokens import renewal_due
from twinbus.client.message import encode_message
from twinbus.client.namespace import Namespace
from twinbus.client.sender import Sender
from twinbus.clock import Millis
from twinbus.errors import ArgumentError, OperationTimeout, Unauthorized
from twinbus.server.tls import server_context

SECRET = "eyJhbGciOiJub25lIn0.c2VjcmV0.c2lnbmF0dXJl"
AUDIENCE = "sb://contoso.servicebus.windows.net/orders"
HOUR_S = 3_600
NOON: Millis = 1_800_000_000_000
WAIT_S = 10
STEP_S = 20


class Credential:
    """Gives the same token until it is told another, or raises what it is told."""

    def __init__(self, expires_on: int = NOON // 1000 + HOUR_S, failure: Exception | None = None) -> None:
        self.expires_on = expires_on
        self.failure = failure
        self.asked: list[tuple[str, ...]] = []

    def get_token(self, *scopes: str, **options: object) -> AccessToken:
        self.asked.append(scopes)
        if self.failure is not None:
            raise self.failure
        return AccessToken(SECRET, self.expires_on)


@pytest.fixture(scope="module")
def secure_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    running = RunningServer(tmp_path_factory.mktemp("secure"), store_count=2, tls_port=0)
    running.create_queue("guarded")
    yield running
    running.stop()


@pytest.fixture
async def relay(secure_server: RunningServer) -> AsyncIterator[Relay]:
    """TLS ends here, so that a test can see what was sent."""
    folder = secure_server.settings.data_folder / "tls"
    relay = Relay(secure_server.server.amqp_port, server_context(folder / "certificate.pem", folder / "key.pem"))
    await relay.start()
    yield relay
    await relay.stop()


async def connect(
    server: RunningServer, port: int | None, credential: TokenCredential, transport: Transport = Transport.AMQP
) -> Namespace:
    return await Namespace.connect(
        f"Endpoint=sb://127.0.0.1:{port}",
        credential=credential,
        transport=transport,
        tls=ssl.create_default_context(cafile=server.server.tls_authority),
        clock=server.clock,
        timeout_s=WAIT_S,
    )


async def test_the_token_arrives_as_a_json_web_token(secure_server: RunningServer, relay: Relay) -> None:
    credential = Credential()
    async with await connect(secure_server, relay.port, credential) as namespace:
        with pytest.raises(Unauthorized):
            await namespace.sender("guarded")
    assert credential.asked == [(SCOPE,)]
    assert SECRET.encode() in relay.heard
    assert b"\xa1\x03jwt" in relay.heard
    assert f"sb://127.0.0.1:{relay.port}/guarded".encode() in relay.heard


@pytest.mark.parametrize("transport", Transport)
async def test_a_namespace_that_takes_no_such_tokens_says_so_in_one_line(
    secure_server: RunningServer, transport: Transport
) -> None:
    async with await connect(secure_server, secure_server.server.tls_port, Credential(), transport) as namespace:
        with pytest.raises(Unauthorized) as caught:
            await namespace.receiver("guarded")
    assert str(caught.value) == (
        "The namespace refused our token for 'guarded': The token is not a shared access signature. "
        "JSON web tokens are not accepted: connect with a shared access key."
    )
    assert not caught.value.is_transient


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("Endpoint=sb://127.0.0.1:1;UseDevelopmentEmulator=true", "only over TLS"),
        ("Endpoint=sb://127.0.0.1:1;SharedAccessKeyName=root;SharedAccessKey=key", "one of the two"),
        ("Endpoint=sb://127.0.0.1:1;SharedAccessSignature=SharedAccessSignature sr=a", "one of the two"),
    ],
)
async def test_a_credential_is_used_with_tls_and_without_a_key(text: str, complaint: str) -> None:
    credential = Credential()
    with pytest.raises(ArgumentError, match=complaint):
        await Namespace.connect(text, credential=credential)
    assert not credential.asked


class Signer:
    """A credential whose tokens our server takes: it tells by the text, and not by the type, what a token is."""

    def __init__(self, server: RunningServer) -> None:
        self._server = server
        self.failure: Exception | None = None
        self.asked_count = 0

    def get_token(self, *scopes: str, **options: object) -> AccessToken:
        self.asked_count += 1
        if self.failure is not None:
            raise self.failure
        rule, expires_on = self._server.server.root_rule, self._server.clock.now() // 1000 + HOUR_S
        return AccessToken(sign("sb://127.0.0.1", rule.name, rule.primary_key, expires_on), expires_on)


async def _use(sender: Sender, clock: ShiftedClock, seconds: float) -> None:
    """Time goes by, and something is sent every twenty seconds: a link that is idle is detached, and a
    connection that is silent is closed."""
    for left in range(int(seconds), 0, -STEP_S):
        clock.advance(min(left, STEP_S))
        assert await sender.send([encode_message("still here")]) == [None]


async def test_a_link_outlives_the_first_token_of_its_credential(secure_server: RunningServer) -> None:
    signer, clock = Signer(secure_server), secure_server.clock
    async with await connect(secure_server, secure_server.server.tls_port, signer) as namespace:
        sender = await namespace.sender("guarded")
        await _use(sender, clock, HOUR_S * 0.74)
        assert await namespace.renew_tokens() == []
        clock.advance(HOUR_S * 0.02)
        signer.failure = ServiceRequestError("the authority is away")
        assert await namespace.renew_tokens() == []
        signer.failure = None
        await namespace.renew_tokens()  # unless the namespace's own turn came first
        assert await namespace.renew_tokens() == []
        await _use(sender, clock, HOUR_S * 0.5)
        assert signer.asked_count >= 3


async def test_a_token_keeps_the_time_that_the_credential_gave_it_and_is_not_shown() -> None:
    token = await CredentialTokens(Credential(), WAIT_S).token(AUDIENCE, NOON)
    assert (token.kind, token.text, token.expires_at_s) == ("jwt", SECRET, NOON // 1000 + HOUR_S)
    assert SECRET not in repr(token)


@pytest.mark.parametrize(
    ("failure", "kind"),
    [
        (ClientAuthenticationError("No credential worked.\nAttempted:\n\tEnvironmentCredential: no"), Unauthorized),
        (ServiceRequestError("login.example\ncannot be reached"), TokenUnavailable),
        (ConnectionResetError("reset"), TokenUnavailable),
        (ValueError("a tenant is needed"), Unauthorized),
    ],
)
async def test_a_credential_that_fails_is_reported_in_one_line(failure: Exception, kind: type[Unauthorized]) -> None:
    with pytest.raises(Unauthorized, match="The credential gave no token") as caught:
        await CredentialTokens(Credential(failure=failure), WAIT_S).token(AUDIENCE, NOON)
    assert type(caught.value) is kind
    assert "\n" not in str(caught.value)
    assert type(failure).__name__ in str(caught.value)
    assert " ".join(str(failure).split()) in str(caught.value)


async def test_a_credential_that_does_not_answer_is_not_waited_for_and_blocks_nobody() -> None:
    is_over = Event()

    class Slow(Credential):
        def get_token(self, *scopes: str, **options: object) -> AccessToken:
            is_over.wait(WAIT_S)
            return super().get_token(*scopes)

    asking = asyncio.create_task(CredentialTokens(Slow(), timeout_s=0.05).token(AUDIENCE, NOON))
    with pytest.raises(OperationTimeout, match="gave no token within"):
        await asking
    is_over.set()


def test_a_token_is_due_with_a_quarter_of_its_life_left() -> None:
    token = Token("jwt", SECRET, NOON // 1000 + HOUR_S)
    assert renewal_due(token, NOON) == NOON + 2_700_000


def test_a_token_that_is_given_again_is_due_sooner_each_time() -> None:
    token, now, dues = Token("jwt", SECRET, NOON // 1000 + HOUR_S), NOON, []
    for _ in range(4):
        now = renewal_due(token, now)
        dues.append(NOON + HOUR_S * 1000 - now)
    assert dues == [900_000, 225_000, 56_250, 14_062]


def test_a_token_that_has_expired_is_due_at_once() -> None:
    token = Token("jwt", SECRET, NOON // 1000)
    assert renewal_due(token, NOON) <= NOON
    assert renewal_due(token, NOON + HOUR_S) <= NOON + HOUR_S
