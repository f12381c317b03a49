"""A client that only fails is served more slowly; everybody else is not (docs/contract.md A5)."""

from pathlib import Path
from uuid import UUID

import pytest

from tests.gateway.control_link import DISCHARGE, Control, active
from tests.gateway.front import Client, Front, payload
from twinbus.amqp.codec.delivery_state import ACCEPTED, DeliveryState, Modified, Rejected, TransactionalState
from twinbus.amqp.codec.types import Array, Symbol, Timestamp, Value
from twinbus.amqp.events import Dispositions
from twinbus.amqp.incoming_link import IncomingLink
from twinbus.gateway.links.failure_pace import (
    CALM_AFTER,
    FREE_COUNT,
    LEFT_MAX,
    REST_FIRST,
    REST_MAX,
    FailurePace,
    LeftPaces,
)
from twinbus.model.descriptions import QueueDescription
from twinbus.testing.messages import make_message

BEAT = 50
ABANDONED = Modified(delivery_failed=True)


@pytest.fixture
def front(tmp_path: Path) -> Front:
    front = Front(tmp_path)
    front.sim.queue(QueueDescription("orders", max_delivery_count=2**31 - 1))
    front.sim.queue(QueueDescription("other", max_delivery_count=2**31 - 1))
    return front


def beats(front: Front, client: Client, duration: int) -> None:
    for _ in range(duration // BEAT):
        front.sim.advance(BEAT)
        client.gateway.tick(front.sim.now)
        client.run()


def fails(client: Client, receiver: IncomingLink, state: DeliveryState) -> int:
    """Settles what it has got with this, and gives credit for more; returns how many there were."""
    deliveries = client.received()
    for each in deliveries:
        receiver.update(each.delivery_id, each.delivery_id, state)
        receiver.grant(1)
    client.run()
    client.take(Dispositions)
    return len(deliveries)


def circle(front: Front, client: Client, receiver: IncomingLink, state: DeliveryState, duration: int) -> int:
    """As fast as the machine can, for this long: failures."""
    count = 0
    for _ in range(duration // BEAT):
        for _ in range(100):
            failed = fails(client, receiver, state)
            count += failed
            if not failed:
                break
        beats(front, client, BEAT)
    return count


def test_the_first_failures_in_a_row_cost_nothing_and_then_each_rest_is_longer() -> None:
    pace = FailurePace()
    rests = [pace.failed(delivered=number, now=number) for number in range(FREE_COUNT + 7)]
    assert rests[:FREE_COUNT] == [0] * FREE_COUNT
    assert rests[FREE_COUNT:] == [REST_FIRST, 2 * REST_FIRST, 4 * REST_FIRST, 8 * REST_FIRST, *[REST_MAX] * 3]


def test_who_gives_back_a_whole_batch_has_failed_once() -> None:
    pace = FailurePace()
    assert [pace.failed(delivered=500, now=1) for _ in range(500)] == [0] * 500


def test_a_while_without_failures_ends_the_row() -> None:
    pace, now = FailurePace(), 1_000_000
    for number in range(2 * FREE_COUNT):
        pace.failed(number, now)
    assert pace.failed(100, now + CALM_AFTER - 1) == REST_MAX
    assert pace.failed(101, now + 2 * CALM_AFTER) == 0


def test_a_client_that_fails_for_a_year_does_not_make_the_broker_count_in_millions_of_digits() -> None:
    pace = FailurePace()
    pace._count = 10**9
    assert pace.failed(1, CALM_AFTER - 1) == REST_MAX


@pytest.mark.rule("A5.9")
def test_a_client_that_abandons_whatever_it_gets_is_slowed(front: Front) -> None:
    front.sim.send(front.sim.entities.queue("orders"), make_message("m"))
    client = front.client()
    receiver = client.receiver("orders", credit=1)
    count = circle(front, client, receiver, ABANDONED, 10_000)
    assert FREE_COUNT < count < FREE_COUNT + 25


@pytest.mark.rule("A5.9")
def test_a_client_whose_transactions_are_refused_is_slowed(front: Front) -> None:
    """Its transaction is on another queue, so the settlement is refused; it rolls back, and abandons over $management."""
    front.sim.send(front.sim.entities.queue("orders"), make_message("m"))
    client = front.client()
    receiver, control = client.receiver("orders", credit=1), Control(client)
    sender, node = client.sender("other"), client.node("orders/$management")
    count = 0
    for _ in range(10_000 // BEAT):
        while deliveries := [each for each in client.received() if len(each.delivery_tag) == 16]:
            txn_id = control.declare()
            sender.transfer(payload("out"), b"1", state=TransactionalState(txn_id=txn_id))
            state = TransactionalState(txn_id=txn_id, outcome=ACCEPTED)
            receiver.update(deliveries[0].delivery_id, deliveries[0].delivery_id, state)
            client.run()
            assert control.ask(DISCHARGE, txn_id, True) == ACCEPTED
            token = UUID(bytes_le=deliveries[0].delivery_tag)
            body: Value = {"lock-tokens": Array([token]), "disposition-status": "abandoned"}
            node.ask("com.microsoft:update-disposition", body, associated_link_name=receiver.name)
            receiver.grant(1)
            client.run()
            count += 1
            assert count < 100, "in a circle"
        beats(front, client, BEAT)
    assert FREE_COUNT < count < FREE_COUNT + 25
    assert active(front, "other") == 0


@pytest.mark.rule("A5.9")
def test_a_client_that_settles_in_transactions_and_rolls_all_of_them_back_is_slowed(front: Front) -> None:
    """It knows nothing of its deliveries any more, so they go back by themselves."""
    front.sim.send(front.sim.entities.queue("orders"), make_message("m"))
    client = front.client()
    receiver, control = client.receiver("orders", credit=1), Control(client)
    count = 0
    for _ in range(10_000 // BEAT):
        while deliveries := client.received():
            txn_id = control.declare()
            state = TransactionalState(txn_id=txn_id, outcome=ACCEPTED)
            receiver.settle(deliveries[0].delivery_id, deliveries[0].delivery_id, state)
            client.run()
            assert control.ask(DISCHARGE, txn_id, True) == ACCEPTED
            receiver.grant(1)
            client.run()
            count += 1
            assert count < 100, "in a circle"
        beats(front, client, BEAT)
    assert FREE_COUNT < count < FREE_COUNT + 25


@pytest.mark.rule("A5.9")
def test_while_one_receiver_rests_another_gets_the_message_at_once(front: Front) -> None:
    front.sim.send(front.sim.entities.queue("orders"), make_message("m"))
    client, other = front.client(), front.client()
    receiver = client.receiver("orders", credit=1)
    circle(front, client, receiver, ABANDONED, 3_000)
    second = other.receiver("orders", credit=1)
    assert fails(other, second, ACCEPTED) == 1


@pytest.mark.rule("A5.9")
@pytest.mark.parametrize("in_between", [ACCEPTED, Rejected(), Modified(undeliverable_here=True)])
def test_one_settlement_that_gets_somewhere_ends_the_row(front: Front, in_between: DeliveryState) -> None:
    queue = front.sim.entities.queue("orders")
    client = front.client()
    receiver = client.receiver("orders", credit=1)
    for _ in range(5):
        front.sim.send(queue, make_message("m"))
        client.run()
        for _ in range(FREE_COUNT):
            assert fails(client, receiver, ABANDONED) == 1
        assert fails(client, receiver, in_between) == 1


@pytest.mark.rule("A5.9")
def test_one_settlement_in_a_transaction_that_is_committed_ends_the_row(front: Front) -> None:
    queue = front.sim.entities.queue("orders")
    client = front.client()
    receiver, control = client.receiver("orders", credit=1), Control(client)
    for _ in range(5):
        front.sim.send(queue, make_message("m"))
        client.run()
        for _ in range(FREE_COUNT):
            assert fails(client, receiver, ABANDONED) == 1
        txn_id = control.declare()
        assert fails(client, receiver, TransactionalState(txn_id=txn_id, outcome=ACCEPTED)) == 1
        assert control.ask(DISCHARGE, txn_id, False) == ACCEPTED


def test_a_message_that_is_put_off_is_not_one_that_failed(front: Front) -> None:
    queue = front.sim.entities.queue("orders")
    for number in range(3 * FREE_COUNT):
        front.sim.send(queue, make_message(str(number)))
    client = front.client()
    receiver = client.receiver("orders", credit=1)
    later = Modified(message_annotations={Symbol("x-opt-delivery-time"): Timestamp(front.sim.now + 60_000)})
    assert sum(fails(client, receiver, later) for _ in range(3 * FREE_COUNT)) == 3 * FREE_COUNT


@pytest.mark.rule("A5.9")
def test_a_client_that_attaches_again_after_each_failure_is_slowed_all_the_same(front: Front) -> None:
    front.sim.send(front.sim.entities.queue("orders"), make_message("m"))
    client, count = front.client(), 0
    for _ in range(10_000 // BEAT):
        for _ in range(100):
            receiver = client.receiver("orders", credit=1)
            deliveries = client.received()
            for each in deliveries:
                receiver.update(each.delivery_id, each.delivery_id, ABANDONED)
                client.run()
            receiver.detach()
            client.run()
            count += len(deliveries)
            if not deliveries:
                break
        beats(front, client, BEAT)
    assert FREE_COUNT < count < FREE_COUNT + 25


def test_the_worst_row_of_links_that_have_ended_goes_on_and_only_a_limited_number_is_remembered() -> None:
    bad, worse, left = FailurePace(), FailurePace(), LeftPaces()
    bad.failed(1, 1)
    worse.failed(1, 1)
    worse.failed(2, 1)
    for pace in (bad, worse, bad):
        left.leave("orders", pace)
    assert left.take("orders") is worse
    assert left.take("orders") is None
    for number in range(LEFT_MAX + 1):
        left.leave(str(number), bad)
    assert left.take("0") is None
    assert left.take("1") is bad


def test_a_rest_holds_while_the_socket_is_full_and_behind_it(front: Front) -> None:
    front.sim.send(front.sim.entities.queue("orders"), make_message("m"))
    client = front.client()
    receiver = client.receiver("orders", credit=1)
    circle(front, client, receiver, ABANDONED, 3_000)
    while fails(client, receiver, ABANDONED):
        pass
    client.gateway.pause()
    client.gateway.resume(front.sim.now)
    client.run()
    assert client.received() == []
    client.gateway.pause()
    beats(front, client, 2 * REST_MAX)
    assert client.received() == []
    client.gateway.resume(front.sim.now)
    client.run()
    assert len(client.received()) == 1
