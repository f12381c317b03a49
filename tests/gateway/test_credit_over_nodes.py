"""Credit of a receiver whose queue has parts at several nodes: it lies at the parts, and what the client takes back comes back."""

from pathlib import Path

import pytest

from tests.gateway.front import Client, Front, payload, text_of
from twinbus.amqp.codec.performatives import SenderSettleMode
from twinbus.amqp.events import CreditChanged
from twinbus.gateway.links.receiver_binding import ReceiverBinding
from twinbus.model.descriptions import QueueDescription
from twinbus.testing.simulation import Simulation

UNSETTLED, SETTLED = SenderSettleMode.UNSETTLED, SenderSettleMode.SETTLED


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Client:
    monkeypatch.setattr(Simulation, "node_count", 2)
    front = Front(tmp_path, 2)
    front.sim.queue(QueueDescription("orders", enable_partitioning=True))
    return front.client()


def send(client: Client, *texts: str) -> None:
    sender = client.sender("orders")
    for place, text in enumerate(texts):
        sender.transfer(payload(text), str(place).encode())
    client.run()


def received(client: Client) -> list[str]:
    return sorted(text_of(each.payload) for each in client.received())


@pytest.mark.parametrize("mode", [UNSETTLED, SETTLED])
@pytest.mark.parametrize("left", [0, 1, 3])
def test_no_more_comes_than_the_credit_that_a_client_has_left(
    client: Client, mode: SenderSettleMode, left: int
) -> None:
    receiver = client.receiver("orders", credit=8, mode=mode)
    receiver.grant(left)
    client.run()
    send(client, *"abcdef")
    assert len(received(client)) == left
    receiver.grant(8)
    client.run()
    assert len(received(client)) == 6 - left


def test_a_client_that_does_not_wait_for_its_drain_gets_what_it_asks_for_then(client: Client) -> None:
    receiver = client.receiver("orders", credit=8)
    receiver.drain()
    receiver.grant(4)
    client.run()
    send(client, *"abcdef")
    assert len(received(client)) == 4


@pytest.mark.parametrize("credit", [1, 8])
def test_a_drain_is_answered_when_the_credit_has_come_back_from_all_nodes(client: Client, credit: int) -> None:
    receiver = client.receiver("orders", credit=credit)
    client.take(CreditChanged)
    receiver.drain()
    client.run()
    assert [event.drain for event in client.take(CreditChanged)] == [True]
    send(client, *"abcdef")
    assert received(client) == []
    receiver.grant(2)
    client.run()
    assert len(received(client)) == 2


@pytest.mark.parametrize("mode", [UNSETTLED, SETTLED])
def test_what_a_client_does_not_read_waits_where_it_is(client: Client, mode: SenderSettleMode) -> None:
    """However much credit it has given: it would fill the memory of its node."""
    client.receiver("orders", credit=8, mode=mode)
    (binding,) = client.gateway._bindings.values()
    assert isinstance(binding, ReceiverBinding)
    client.gateway.pause()
    binding.tick(client.front.sim.now)
    client.run()
    send(client.front.client(), *"abcdef")
    client.run()
    assert (received(client), binding.credit) == ([], 0)
    client.gateway.resume(client.front.sim.now)
    client.run()
    assert received(client) == list("abcdef")
