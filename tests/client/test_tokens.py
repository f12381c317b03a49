"""Shared access signatures: accepted, refused, and renewed before they expire."""

import asyncio

import pytest

from tests.interop.running_server import RunningServer
from twinbus.client.connecting.token_sources import TOKEN_LIFETIME_S, sign
from twinbus.client.message import encode_message
from twinbus.client.namespace import Namespace
from twinbus.errors import ArgumentError, EntityNotFound, MessagingError, Unauthorized
from twinbus.model.descriptions import AuthorizationRule, Right

STEP_S = 60
WAIT_S = 10


def with_keys(server: RunningServer, name: str, key: str, more: str = "") -> str:
    endpoint = f"Endpoint=sb://127.0.0.1:{server.server.amqp_port};UseDevelopmentEmulator=true"
    return f"{endpoint};SharedAccessKeyName={name};SharedAccessKey={key};{more}"


def with_signature(server: RunningServer, path: str, lifetime_s: int) -> str:
    authority = f"127.0.0.1:{server.server.amqp_port}"
    rule, expires_at_s = server.server.root_rule, server.clock.now() // 1000 + lifetime_s
    token = sign(f"sb://{authority}/{path}", rule.name, rule.primary_key, expires_at_s)
    return f"Endpoint=sb://{authority};UseDevelopmentEmulator=true;SharedAccessSignature={token}"


async def connect(server: RunningServer, connection_string: str) -> Namespace:
    return await Namespace.connect(connection_string, clock=server.clock, timeout_s=WAIT_S)


@pytest.fixture(scope="module", autouse=True)
def guarded(server: RunningServer) -> str:
    rule = AuthorizationRule("sends", "send-key", "other-key", frozenset({Right.SEND}))
    return server.create_queue("guarded", authorization_rules=(rule,))


async def test_a_signed_token_opens_what_its_key_may(server: RunningServer) -> None:
    async with await connect(server, with_keys(server, "sends", "send-key")) as namespace:
        sender = await namespace.sender("guarded")
        assert await sender.send([encode_message("a")]) == [None]
        with pytest.raises(Unauthorized):
            await namespace.receiver("guarded")


@pytest.mark.parametrize(("name", "key"), [("sends", "wrong"), ("nobody", "send-key")])
async def test_a_wrong_key_or_name_is_refused(server: RunningServer, name: str, key: str) -> None:
    async with await connect(server, with_keys(server, name, key)) as namespace:
        with pytest.raises(Unauthorized) as caught:
            await namespace.sender("guarded")
        assert not caught.value.is_transient
        assert key not in str(caught.value)


async def test_an_entity_that_does_not_exist_is_reported_to_whoever_has_a_key(namespace: Namespace) -> None:
    with pytest.raises(EntityNotFound, match="missing"):
        await namespace.sender("missing")


async def test_a_connection_string_for_one_entity_is_used_for_no_other(server: RunningServer) -> None:
    async with await connect(server, with_keys(server, "sends", "send-key", "EntityPath=Guarded")) as namespace:
        assert await (await namespace.sender("guarded")).send([encode_message("a")]) == [None]
        with pytest.raises(ArgumentError, match="Guarded"):
            await namespace.sender("guarded-too")


async def test_a_signature_of_the_connection_string_is_used_as_it_stands(server: RunningServer) -> None:
    async with await connect(server, with_signature(server, "guarded", 600)) as namespace:
        assert await (await namespace.sender("guarded")).send([encode_message("a")]) == [None]
        server.clock.advance(STEP_S)
        assert await namespace.renew_tokens() == []


async def test_an_expired_signature_is_refused(server: RunningServer) -> None:
    async with await connect(server, with_signature(server, "guarded", -600)) as namespace:
        with pytest.raises(Unauthorized, match="expired"):
            await namespace.sender("guarded")


async def test_a_token_is_not_renewed_before_three_quarters_of_its_life(server: RunningServer) -> None:
    async with await connect(server, server.connection_string) as namespace:
        await namespace.authorize("guarded")
        server.clock.advance(TOKEN_LIFETIME_S * 0.74)
        assert await namespace.renew_tokens() == []
        server.clock.advance(TOKEN_LIFETIME_S * 0.02)
        assert await namespace.renew_tokens() == ["guarded"]
        assert await namespace.renew_tokens() == []


async def test_a_link_outlives_its_first_token_if_that_is_renewed(server: RunningServer) -> None:
    async with await connect(server, server.connection_string) as namespace:
        sender = await namespace.sender("guarded")
        for _ in range(2 * TOKEN_LIFETIME_S // STEP_S):
            server.clock.advance(STEP_S)
            await namespace.renew_tokens()
            assert await sender.send([encode_message("still here")]) == [None]


async def test_a_link_ends_with_a_token_that_is_not_renewed_and_says_why(server: RunningServer) -> None:
    async with await connect(server, server.connection_string) as namespace:
        sender = await namespace.sender("guarded")
        error: MessagingError | None = None
        for _ in range(TOKEN_LIFETIME_S // STEP_S + 2):
            server.clock.advance(STEP_S)
            (error,) = await sender.send([encode_message("still here")])
        async with asyncio.timeout(WAIT_S):
            while error is None:
                (error,) = await sender.send([encode_message("still here")])
        assert isinstance(error, Unauthorized)
        assert sender.fault is error


async def test_a_renewal_that_fails_is_tried_again(server: RunningServer) -> None:
    server.create_queue("for-a-while")
    async with await connect(server, server.connection_string) as namespace:
        await namespace.authorize("for-a-while")
        server.run(server.server.control.delete("for-a-while"))
        server.clock.advance(TOKEN_LIFETIME_S * 0.8)
        assert await namespace.renew_tokens() == []
        server.create_queue("for-a-while")
        assert await namespace.renew_tokens() == ["for-a-while"]
