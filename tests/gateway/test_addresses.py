"""What an address names."""

import pytest

from twinbus.errors import EntityNotFound
from twinbus.gateway.addresses import EntityNode, is_current, resolve
from twinbus.model.descriptions import QueueDescription, SubscriptionDescription, TopicDescription
from twinbus.model.paths import parse_address
from twinbus.testing.simulation import Answer, Simulation

DEAD, TRANSFER_DEAD = "/$DeadLetterQueue", "/$Transfer/$DeadLetterQueue"


@pytest.fixture
def sim() -> Simulation:
    sim = Simulation(1)
    sim.queue(QueueDescription("orders"))
    sim.topic(TopicDescription("news"))
    sim.subscription(SubscriptionDescription("news", "all"))
    return sim


def named(sim: Simulation, address: str) -> EntityNode:
    return resolve(sim.entities, parse_address(address))


@pytest.mark.parametrize("case", [str, str.lower, str.upper])
def test_a_queue_takes_messages_and_its_sub_queues_only_give_them(sim: Simulation, case: type[str]) -> None:
    queue = sim.entities.queue("orders")
    main, dead, transfer_dead = [named(sim, case(f"orders{end}")) for end in ("", DEAD, TRANSFER_DEAD)]
    assert (main.target, main.queue) == (queue, queue.main)
    assert (dead.target, dead.queue) == (None, queue.dead_letter)
    assert (transfer_dead.target, transfer_dead.queue) == (None, queue.transfer_dead_letter)
    assert {main.subscription, dead.subscription, transfer_dead.subscription} == {None}


def test_a_subscription_gives_messages_and_so_do_its_sub_queues(sim: Simulation) -> None:
    subscription = sim.entities.subscription("news", "all")
    nodes = [named(sim, f"news/Subscriptions/all{end}") for end in ("", DEAD, TRANSFER_DEAD)]
    queues = [subscription.main, subscription.dead_letter, subscription.transfer_dead_letter]
    assert [node.queue for node in nodes] == queues
    assert {node.target for node in nodes} == {None}
    assert {node.subscription for node in nodes} == {subscription}


def test_a_topic_takes_messages_and_has_dead_letters_of_transfers_alone(sim: Simulation) -> None:
    topic, transfer_dead = named(sim, "news"), named(sim, f"news{TRANSFER_DEAD}")
    assert topic.target is not None
    assert (topic.queue, topic.subscription) == (None, None)
    assert (transfer_dead.target, transfer_dead.queue) == (None, sim.entities.topic("news").transfer_dead_letter)
    with pytest.raises(EntityNotFound):
        named(sim, f"news{DEAD}")


@pytest.mark.parametrize("address", ["missing", f"missing{DEAD}", "news/Subscriptions/other", "orders/more"])
def test_what_does_not_exist_is_not_found(sim: Simulation, address: str) -> None:
    with pytest.raises(EntityNotFound):
        named(sim, address)


@pytest.mark.parametrize("end", ["", DEAD])
def test_a_node_is_current_until_its_entity_is_deleted_and_not_again_after_it(sim: Simulation, end: str) -> None:
    node = named(sim, f"orders{end}")
    assert is_current(sim.entities, node)
    deleted: Answer[None] = Answer()
    sim.entities.delete("orders", sim.now, deleted)
    sim.run()
    assert deleted.has_come
    assert not is_current(sim.entities, node)
    sim.queue(QueueDescription("orders"))
    assert not is_current(sim.entities, node)
