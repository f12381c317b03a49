"""JSON web tokens put on `$cbs`: links attach and end by what the token says."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.gateway.front import Client, Front, NodeClient, payload
from tests.gateway.web_token_keys import TRUSTED, claims, jwk, key_set, sign, trusting
from twinbus.amqp.codec.sections import Sections
from twinbus.amqp.events import LinkDetached
from twinbus.clock import Millis
from twinbus.gateway.web_tokens import REREAD_AFTER, WebTokens, read_key_set
from twinbus.model.descriptions import QueueDescription

LIFETIME = 600_000


@pytest.fixture
def front(tmp_path: Path) -> Front:
    front = Front(tmp_path)
    front.sim.queue(QueueDescription("orders"))
    front.sim.queue(QueueDescription("bills"))
    front.view = replace(front.view, web_tokens=trusting(now=front.sim.now))
    return front


def code(reply: Sections) -> tuple[object, object]:
    properties = reply.application_properties or {}
    return properties["status-code"], properties.get("status-description")


def put(node: NodeClient, path: str, token: str, kind: str = "jwt") -> Sections:
    return node.ask("put-token", token, name=f"sb://host/{path}", type=kind)


def conditions(client: Client) -> list[str]:
    return [event.error.condition for event in client.take(LinkDetached) if event.error is not None]


def test_a_token_opens_what_its_claims_allow_and_no_more(front: Front) -> None:
    client = front.client(None)
    cbs = client.node("$cbs")
    token = sign(claims(front.sim.now, roles=None, oid="only-orders"))
    assert code(put(cbs, "orders", token))[0] == 202
    client.sender("orders").transfer(payload("a"), b"1")
    client.run()
    client.receiver("orders", credit=1)
    assert len(client.received()) == 1
    assert conditions(client) == []
    assert code(put(cbs, "bills", token))[0] == 401
    client.sender("bills")
    assert conditions(client) == ["amqp:unauthorized-access"]


def test_a_shared_access_signature_still_works_beside_it(front: Front) -> None:
    client = front.client(None)
    token = front.token("orders")
    assert code(put(client.node("$cbs"), "orders", token, "servicebus.windows.net:sastoken"))[0] == 202


def test_a_link_ends_with_its_token_unless_a_new_one_is_put(front: Front) -> None:
    client = front.client(None)
    cbs = client.node("$cbs")
    put(cbs, "orders", sign(claims(front.sim.now)))
    client.receiver("orders", credit=1)
    client.advance(LIFETIME - 60_000)
    put(cbs, "orders", sign(claims(front.sim.now)))
    client.advance(LIFETIME - 60_000)
    assert conditions(client) == []
    client.advance(120_000)
    assert conditions(client) == ["com.microsoft:auth-failed"]


def test_a_namespace_that_trusts_nobody_refuses_web_tokens(tmp_path: Path) -> None:
    front = Front(tmp_path)
    front.sim.queue(QueueDescription("orders"))
    client = front.client(None)
    reply = put(client.node("$cbs"), "orders", sign(claims(front.sim.now)))
    assert code(reply)[0] == 401
    assert front.traffic.tokens_refused == 1


class Fetcher:
    """Publishes another key set when it is asked."""

    def __init__(self, front: Front, tokens: WebTokens, number: int | None) -> None:
        self.front, self.tokens, self.number = front, tokens, number
        self.done: list[Callable[[Millis], None]] = []

    def fetch(self, done: Callable[[Millis], None]) -> None:
        self.done.append(done)

    def answer(self) -> None:
        now = self.front.sim.now
        keys = None if self.number is None else read_key_set(key_set(jwk("two", number=self.number)))
        self.tokens.set_keys(TRUSTED, keys, now)
        self.done.pop(0)(now)


@pytest.mark.parametrize(("published", "answer"), [(1, 202), (2, 401), (None, 401)])
def test_a_token_of_a_new_key_is_answered_when_the_key_set_was_read_again(
    front: Front, published: int | None, answer: int
) -> None:
    tokens = trusting(now=front.sim.now - REREAD_AFTER)
    fetcher = tokens.fetcher = Fetcher(front, tokens, published)
    front.view = replace(front.view, web_tokens=tokens)
    client = front.client(None)
    cbs = client.node("$cbs")
    cbs.send("put-token", sign(claims(front.sim.now), "two", number=1), name="sb://host/orders", type="jwt")
    assert cbs.answers() == []
    fetcher.answer()
    client.run()
    (reply,) = cbs.answers()
    assert code(reply)[0] == answer
    client.sender("orders")
    assert conditions(client) == ([] if answer == 202 else ["amqp:unauthorized-access"])


def test_a_connection_that_is_gone_when_the_keys_come_changes_nothing(front: Front) -> None:
    tokens = trusting(now=front.sim.now - REREAD_AFTER)
    fetcher = tokens.fetcher = Fetcher(front, tokens, 1)
    front.view = replace(front.view, web_tokens=tokens)
    client = front.client(None)
    token = sign(claims(front.sim.now), "two", number=1)
    client.node("$cbs").send("put-token", token, name="sb://host/orders", type="jwt")
    client.connection.close()
    client.run()
    fetcher.answer()
    client.run()
    assert front.traffic.tokens_accepted == 1
