"""Links whose entity, token or use has come to an end."""

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from tests.gateway.front import Client, Front, payload
from twinbus.amqp.codec.delivery_state import ACCEPTED
from twinbus.amqp.codec.terminus import Source, Target
from twinbus.amqp.codec.types import Symbol
from twinbus.amqp.events import Deliveries, Dispositions, LinkDetached
from twinbus.broker.directory import QueueNode, TopicNode
from twinbus.broker.entity.entities import Entities
from twinbus.gateway.links.bindings import IDLE_MAX
from twinbus.model.descriptions import QueueDescription
from twinbus.testing.simulation import Answer


@pytest.fixture
def front(tmp_path: Path) -> Front:
    front = Front(tmp_path)
    front.sim.queue(QueueDescription("orders"))
    front.sim.queue(QueueDescription("talks", requires_session=True))
    return front


def conditions(client: Client) -> list[str]:
    return [event.error.condition for event in client.take(LinkDetached) if event.error is not None]


def delete(front: Front, path: str) -> None:
    answer: Answer[None] = Answer()
    front.sim.entities.delete(path, front.sim.now, answer)
    front.sim.run()
    assert answer.has_come


def test_the_links_of_an_entity_end_when_it_is_deleted(front: Front) -> None:
    client = front.client()
    client.sender("orders")
    client.receiver("orders", credit=1)
    client.receiver("talks", session_filter={Symbol("com.microsoft:session-filter"): None})
    delete(front, "orders")
    delete(front, "talks")
    client.advance(1_000)
    assert conditions(client) == ["amqp:not-found"] * 3


def test_links_do_not_pass_to_an_entity_created_again_under_the_name(front: Front) -> None:
    client = front.client()
    client.receiver("orders", credit=1)
    node = client.node("orders/$management")
    delete(front, "orders")
    front.sim.queue(QueueDescription("orders"))
    client.advance(1_000)
    assert conditions(client) == ["amqp:not-found"]
    # A node is its address: it stands for whatever entity is there.
    reply = node.ask("com.microsoft:peek-message", {})
    assert (reply.application_properties or {})["statusCode"] == 204


def test_a_request_to_an_entity_that_was_deleted_meanwhile_is_answered(front: Front) -> None:
    client = front.client()
    node = client.node("orders/$management")
    delete(front, "orders")
    reply = node.ask("com.microsoft:peek-message", {}).application_properties or {}
    assert (reply["statusCode"], reply["errorCondition"]) == (404, "amqp:not-found")


def test_a_sender_that_is_not_used_is_detached_and_one_that_is_used_stays(front: Front) -> None:
    client = front.client()
    client.sender("orders")
    used = client.sender("orders")
    client.advance(IDLE_MAX // 2)
    used.transfer(payload("a"), b"1")
    client.run()
    client.advance(IDLE_MAX // 2 + 1_000)
    (detached,) = client.take(LinkDetached)
    assert detached.error is not None
    assert detached.error.condition == "amqp:link:detach-forced"
    assert "for 10 minutes" in str(detached.error.description)
    assert used.is_attached


def test_a_receiver_that_waits_for_messages_is_in_use(front: Front) -> None:
    client = front.client()
    client.receiver("orders", credit=1)
    client.receiver("orders")
    client.advance(IDLE_MAX + 1_000)
    assert conditions(client) == ["amqp:link:detach-forced"]
    client.sender("orders").transfer(payload("a"), b"1")
    client.run()
    assert len(client.take(Deliveries)) == 1


def test_a_receiver_that_has_just_taken_its_credit_back_is_in_use(front: Front) -> None:
    client = front.client()
    receiver = client.receiver("orders", credit=1)
    client.advance(IDLE_MAX)
    receiver.grant(0)
    client.run()
    client.advance(IDLE_MAX // 2)
    assert conditions(client) == []
    client.advance(IDLE_MAX // 2 + 1_000)
    assert conditions(client) == ["amqp:link:detach-forced"]


def test_a_receiver_that_settles_is_in_use(front: Front) -> None:
    client = front.client()
    receiver, message = client.hold()
    client.advance(IDLE_MAX // 2)
    receiver.update(message.delivery_id, message.delivery_id, ACCEPTED)
    client.run()
    client.advance(IDLE_MAX // 2 + 1_000)
    assert receiver.is_attached


def test_a_receiver_that_has_just_attached_is_in_use_before_it_gives_credit(front: Front) -> None:
    client = front.client()
    client.receiver("orders")
    client.advance(5 * 60_000)
    assert not client.take(LinkDetached)


def test_links_to_an_entity_and_below_are_detached_by_force_and_all_others_stay(front: Front) -> None:
    front.sim.queue(QueueDescription("orders2"))
    client = front.client()
    client.sender("orders")
    client.receiver("orders/$DeadLetterQueue", credit=1)
    stays = client.sender("orders2")
    node = client.node("orders/$management")
    assert client.gateway.force_detach("Orders", front.sim.now) == 2
    assert client.gateway.force_detach("Orders", front.sim.now) == 0
    client.run()
    assert conditions(client) == ["amqp:link:detach-forced"] * 2
    stays.transfer(payload("a"), b"1")
    client.run()
    assert len(client.take(Dispositions)) == 1
    assert node.ask("com.microsoft:peek-message", {}).application_properties


def test_a_session_is_free_once_the_link_that_holds_it_was_detached_by_force(front: Front) -> None:
    client = front.client()
    wanted: dict[Any, Any] = {Symbol("com.microsoft:session-filter"): "a"}
    client.receiver("talks", session_filter=wanted)
    client.gateway.force_detach("talks", front.sim.now)
    client.run()
    assert conditions(client) == ["amqp:link:detach-forced"]
    client.receiver("talks", session_filter=wanted)
    assert conditions(client) == []


@pytest.mark.parametrize("address", [None, "", 7])
@pytest.mark.parametrize("is_sender", [False, True])
def test_a_link_without_an_address_is_refused_and_the_connection_serves_on(
    front: Front, address: Any, is_sender: bool
) -> None:
    client = front.client()
    client.begin().attach(
        "nameless", is_sender=is_sender, source=Source(address=address), target=Target(address=address)
    )
    client.run()
    assert conditions(client) == ["com.microsoft:argument-error"]
    client.sender("orders").transfer(payload("a"), b"1")
    client.run()
    assert len(client.take(Dispositions)) == 1


class CountedEntities:
    """The entities of a namespace, and how often one was looked for."""

    def __init__(self, entities: Entities) -> None:
        self._entities = entities
        self.count = 0

    def find(self, path: str) -> QueueNode | TopicNode | None:
        self.count += 1
        return self._entities.find(path)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._entities, name)


def test_an_entity_is_looked_at_once_for_all_links_of_a_connection_to_it(front: Front) -> None:
    entities = CountedEntities(front.sim.entities)
    front.view = replace(front.view, entities=cast(Entities, entities))
    client = front.client()
    for address in ("orders", "Orders", "ORDERS"):
        client.sender(address)
        client.receiver(address, credit=1)
    entities.count = 0
    client.advance(1_000)
    assert entities.count == 1
    delete(front, "orders")
    client.advance(1_000)
    assert conditions(client) == ["amqp:not-found"] * 6
