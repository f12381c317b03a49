"""What is done in a transaction is counted when it is committed."""

from collections import Counter
from pathlib import Path

import pytest

from tests.gateway.control_link import DISCHARGE, Control
from tests.gateway.front import Client, Front, payload
from twinbus.amqp.codec.delivery_state import ACCEPTED, TransactionalState
from twinbus.amqp.events import Deliveries
from twinbus.meter.operation import Operation
from twinbus.model.descriptions import QueueDescription


@pytest.fixture
def front(tmp_path: Path) -> Front:
    made = Front(tmp_path, store_count=4)
    made.sim.queue(QueueDescription("orders"))
    made.sim.queue(QueueDescription("parts", enable_partitioning=True))
    return made


def counts(rows: list[Operation]) -> Counter[str]:
    found: Counter[str] = Counter()
    for row in rows:
        found[row.cause] += row.operations
    return found


def work(client: Client, txn_id: bytes) -> None:
    """Receive and complete a message, and send two, all in a transaction but for the receive."""
    link, sender = client.receiver("orders", credit=1), client.sender("orders")
    (delivered,) = client.take(Deliveries)
    number = delivered.deliveries[0].delivery_id
    link.update(number, number, TransactionalState(txn_id=txn_id, outcome=ACCEPTED))
    for tag in (b"1", b"2"):
        sender.transfer(payload("new"), tag, state=TransactionalState(txn_id=txn_id))
    client.run()


@pytest.mark.parametrize(("fails", "operations"), [(False, {"send": 2, "settle": 1}), (True, {})])
def test_a_transaction_is_counted_when_it_is_committed_and_not_if_it_is_rolled_back(
    front: Front, fails: bool, operations: dict[str, int]
) -> None:
    client = front.client()
    client.sender("orders").transfer(payload("old"), b"0")
    client.run()
    control = Control(client)
    txn_id = control.declare()
    work(client, txn_id)
    assert counts(front.book.take_all()) == {"send": 1, "receive": 1}
    assert control.ask(DISCHARGE, txn_id, fails) == ACCEPTED
    assert counts(front.book.take_all()) == operations


def test_a_message_sent_in_a_transaction_has_its_fragment_and_no_number(front: Front) -> None:
    client = front.client()
    control, sender = Control(client), client.sender("parts")
    txn_id = control.declare()
    state = TransactionalState(txn_id=txn_id)
    sender.transfer(payload("a", message_id="m", group_id="mySession"), b"1", state=state)
    client.run()
    control.ask(DISCHARGE, txn_id, False)
    (row,) = front.book.take_all()
    assert (row.message_id, row.sequence_number, row.fragment) == ("m", None, 6)
