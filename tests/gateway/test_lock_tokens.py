"""Settling and renewing by lock token alone, from another connection than the one that received the message."""

from pathlib import Path
from uuid import UUID

import pytest

from tests.gateway.front import Client, Front, text_of
from tests.gateway.test_nodes import body, lock_one, put, status
from twinbus.amqp.codec.types import Array, Long, Symbol, Timestamp, UInt, Value
from twinbus.amqp.events import Deliveries
from twinbus.broker.replies import QueueCounts
from twinbus.model.descriptions import QueueDescription

LOCK = 60_000


@pytest.fixture
def front(tmp_path: Path) -> Front:
    front = Front(tmp_path, store_count=4)
    front.sim.queue(QueueDescription("orders"))
    front.sim.queue(QueueDescription("spread", enable_partitioning=True))
    front.sim.queue(QueueDescription("work", requires_session=True))
    return front


def settle(client: Client, path: str, token: UUID, disposition: str, **more: Value) -> tuple[int, str | None]:
    arguments = {"disposition-status": disposition, "lock-tokens": Array([token]), **more}
    return status(client.node(f"{path}/$management").ask("com.microsoft:update-disposition", arguments))


def counts(front: Front, path: str) -> QueueCounts:
    return front.sim.entities.queue(path).main.counts()


@pytest.mark.parametrize("path", ["orders", "spread"])
@pytest.mark.parametrize("is_gone", [False, True], ids=["beside the receiver", "after its connection"])
@pytest.mark.parametrize(
    ("disposition", "active", "deferred", "dead"),
    [("completed", 0, 0, 0), ("abandoned", 1, 0, 0), ("defered", 0, 1, 0), ("suspended", 0, 0, 1)],
)
@pytest.mark.rule("A5.8")
def test_a_message_is_settled_by_its_token_from_another_connection(
    front: Front, path: str, is_gone: bool, disposition: str, active: int, deferred: int, dead: int
) -> None:
    put(front, "a", path)
    receiving = front.client()
    token = lock_one(receiving, path)
    if is_gone:
        receiving.connection.close()
        receiving.run()
    assert settle(front.client(), path, token, disposition) == (200, None)
    left = counts(front, path)
    assert (left.active, left.deferred) == (active, deferred)
    assert front.sim.entities.queue(path).dead_letter.counts().active == dead


@pytest.mark.parametrize("path", ["orders", "spread"])
def test_a_lock_is_renewed_by_its_token_from_another_connection(front: Front, path: str) -> None:
    put(front, "a", path)
    token = lock_one(front.client(), path)
    other = front.client()
    other.advance(LOCK // 2)
    reply = other.node(f"{path}/$management").ask("com.microsoft:renew-lock", {"lock-tokens": Array([token])})
    (end,) = body(reply)["expirations"].values
    assert end == Timestamp(front.sim.now + LOCK)
    other.advance(LOCK - 1_000)
    assert settle(other, path, token, "completed") == (200, None)


@pytest.mark.parametrize("path", ["orders", "spread"])
def test_a_token_settles_once_whoever_comes_first(front: Front, path: str) -> None:
    put(front, "a", path)
    token = lock_one(front.client(), path)
    assert settle(front.client(), path, token, "completed") == (200, None)
    assert settle(front.client(), path, token, "completed") == (410, "com.microsoft:message-lock-lost")


def test_a_token_of_another_entity_settles_nothing(front: Front) -> None:
    put(front, "a", "orders")
    token = lock_one(front.client(), "orders")
    assert settle(front.client(), "spread", token, "completed") == (410, "com.microsoft:message-lock-lost")
    assert counts(front, "orders").active == 1


def test_a_message_of_a_session_is_settled_by_its_token_as_long_as_somebody_holds_the_session(front: Front) -> None:
    for text in ("a", "b"):
        put(front, text, "work", group_id="one")
    holding, other = front.client(), front.client()
    link = holding.receiver("work", credit=2, session_filter={Symbol("com.microsoft:session-filter"): "one"})
    first, second = [UUID(bytes_le=each.delivery_tag) for each in holding.received()]
    assert settle(other, "work", first, "completed", **{"session-id": "one"}) == (200, None)
    link.detach()
    holding.run()
    assert settle(other, "work", second, "completed") == (410, "com.microsoft:session-lock-lost")
    assert counts(front, "work").active == 1


def test_the_lock_of_a_message_in_a_session_is_renewed_with_the_session(front: Front) -> None:
    put(front, "a", "work", group_id="one")
    client = front.client()
    token = lock_one(client, "work", session_filter={Symbol("com.microsoft:session-filter"): "one"})
    node = client.node("work/$management")
    reply = node.ask("com.microsoft:renew-lock", {"lock-tokens": Array([token])})
    assert status(reply) == (400, "amqp:not-allowed")
    assert status(node.ask("com.microsoft:renew-session-lock", {"session-id": "one"}))[0] == 200


@pytest.mark.parametrize(
    ("operation", "more"),
    [
        ("renew-session-lock", {}),
        ("get-session-state", {}),
        ("set-session-state", {"session-state": b"mine"}),
        ("receive-by-sequence-number", {"sequence-numbers": Array([Long(1)]), "receiver-settle-mode": UInt(0)}),
    ],
)
@pytest.mark.rule("A9.16")
def test_a_session_is_for_the_connection_that_holds_it(front: Front, operation: str, more: dict[str, Value]) -> None:
    put(front, "a", "work", group_id="one")
    holder, other = front.client(), front.client()
    token = lock_one(holder, "work", session_filter={Symbol("com.microsoft:session-filter"): "one"})
    assert settle(holder, "work", token, "defered") == (200, None)
    request: dict[str, Value] = {"session-id": "one", **more}
    stranger = other.node("work/$management")
    for names in ({}, {"associated_link_name": "receiver"}):
        reply = stranger.ask(f"com.microsoft:{operation}", request, **names)
        assert status(reply) == (410, "com.microsoft:session-lock-lost")
    assert counts(front, "work").deferred == 1
    assert status(holder.node("work/$management").ask(f"com.microsoft:{operation}", request)) == (200, None)


def test_a_lock_token_says_nothing_about_others(front: Front) -> None:
    for text in ("a", "b", "c"):
        put(front, text)
    client = front.client()
    client.receiver("orders", credit=3)
    tokens = [each.delivery_tag for event in client.take(Deliveries) for each in event.deliveries]
    assert len({token[:1] for token in tokens}) == 1  # the fragment, by which a settlement finds its way
    for start in range(1, 16, 5):
        assert len({token[start : start + 5] for token in tokens}) == 3


def test_an_abandoned_message_goes_to_the_receiver_that_waits(front: Front) -> None:
    put(front, "a")
    receiving = front.client()
    receiving.receiver("orders", credit=2)
    (message,) = receiving.received()
    assert settle(front.client(), "orders", UUID(bytes_le=message.delivery_tag), "abandoned") == (200, None)
    receiving.run()
    assert [text_of(each.payload) for each in receiving.received()] == ["a"]
