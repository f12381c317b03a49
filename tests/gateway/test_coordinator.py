"""Transactions over a real pair of AMQP connections."""

from pathlib import Path
from uuid import UUID

import pytest

from tests.gateway.control_link import DECLARE, DISCHARGE, Control, active, answers, ask_in, condition
from tests.gateway.front import Front, payload, text_of
from twinbus.amqp.codec.delivery_state import ACCEPTED, TransactionalState
from twinbus.amqp.codec.sections import DataBody, Sections, ValueBody, encode_sections
from twinbus.amqp.codec.types import Array, Described, Long, Symbol, UInt, ULong, Value
from twinbus.amqp.events import Dispositions, LinkDetached
from twinbus.broker.outcomes import Defer
from twinbus.gateway.nodes.coordinator import OPEN_MAX, SIZE_MAX
from twinbus.model.descriptions import QueueDescription
from twinbus.testing.faulty_store import Fault
from twinbus.testing.messages import make_message


@pytest.fixture
def front(tmp_path: Path) -> Front:
    front = Front(tmp_path)
    front.sim.queue(QueueDescription("orders"))
    front.sim.queue(QueueDescription("other"))
    return front


@pytest.mark.parametrize("is_failed", [False, True])
def test_messages_sent_in_a_transaction_are_there_after_the_commit_and_never_after_a_rollback(
    front: Front, is_failed: bool
) -> None:
    client = front.client()
    control, sender = Control(client), client.sender("orders")
    txn_id = control.declare()
    sender.transfer(payload("a"), b"1", state=TransactionalState(txn_id=txn_id))
    batch = encode_sections(Sections(body=DataBody([payload("b"), payload("c")])))
    sender.transfer(batch, b"2", message_format=0x80013700, state=TransactionalState(txn_id=txn_id))
    client.run()
    assert answers(client) == [TransactionalState(txn_id=txn_id, outcome=ACCEPTED)]
    assert active(front) == 0
    assert control.ask(DISCHARGE, txn_id, is_failed) == ACCEPTED
    assert active(front) == (0 if is_failed else 3)


def test_a_message_is_settled_and_another_sent_together(front: Front) -> None:
    client = front.client()
    control, sender = Control(client), client.sender("orders")
    receiver, message = client.hold(text="in")
    txn_id = control.declare()
    client.take(Dispositions)
    state = TransactionalState(txn_id=txn_id, outcome=ACCEPTED)
    receiver.update(message.delivery_id, message.delivery_id, state)
    sender.transfer(payload("out"), b"2", state=TransactionalState(txn_id=txn_id))
    client.run()
    assert answers(client) == [state, state]
    assert control.ask(DISCHARGE, txn_id, False) == ACCEPTED
    assert active(front) == 1
    client.receiver("orders", credit=1)
    assert [text_of(each.payload) for each in client.received()] == ["out"]


def test_a_message_settled_in_a_transaction_that_is_rolled_back_stays_locked(front: Front) -> None:
    client = front.client()
    control = Control(client)
    receiver, message = client.hold(credit=5)
    txn_id = control.declare()
    receiver.update(message.delivery_id, message.delivery_id, TransactionalState(txn_id=txn_id, outcome=ACCEPTED))
    client.run()
    assert control.ask(DISCHARGE, txn_id, True) == ACCEPTED
    assert client.received() == []
    client.advance(61_000)
    assert len(client.received()) == 1


def test_settling_by_token_takes_part_in_a_transaction_and_peeking_is_done_at_once(front: Front) -> None:
    client = front.client()
    control = Control(client)
    _, message = client.hold()
    node = client.node("orders/$management")
    txn_id = control.declare()
    arguments = {"disposition-status": "completed", "lock-tokens": Array([UUID(bytes_le=message.delivery_tag)])}
    for operation, status in (("update-disposition", 200), ("peek-message", 200)):
        assert ask_in(client, node, txn_id, operation, arguments)["statusCode"] == status
    assert active(front) == 1
    assert control.ask(DISCHARGE, txn_id, False) == ACCEPTED
    assert active(front) == 0


def test_an_operation_that_does_not_fit_is_refused_and_the_rest_goes_on(front: Front) -> None:
    client = front.client()
    control = Control(client)
    orders, other = client.sender("orders"), client.sender("other")
    txn_id = control.declare()
    orders.transfer(payload("a"), b"1", state=TransactionalState(txn_id=txn_id))
    other.transfer(payload("b"), b"2", state=TransactionalState(txn_id=txn_id))
    client.run()
    assert [condition(state) for state in answers(client)] == [None, "amqp:not-allowed"]
    assert control.ask(DISCHARGE, txn_id, False) == ACCEPTED
    assert (active(front), active(front, "other")) == (1, 0)


def test_a_transaction_with_a_refused_message_that_nobody_heard_of_cannot_be_committed(front: Front) -> None:
    client = front.client()
    control, sender = Control(client), client.sender("orders")
    txn_id = control.declare()
    sender.transfer(payload("a"), b"1", state=TransactionalState(txn_id=txn_id))
    sender.transfer(b"\x00", b"2", settled=True, state=TransactionalState(txn_id=txn_id))
    client.run()
    assert condition(control.ask(DISCHARGE, txn_id, False)) == "amqp:decode-error"
    assert active(front) == 0


def test_an_unknown_transaction_is_refused_wherever_it_is_named(front: Front) -> None:
    client = front.client()
    control, sender = Control(client), client.sender("orders")
    receiver, message = client.hold()
    unknown = TransactionalState(txn_id=b"?", outcome=ACCEPTED)
    sender.transfer(payload("b"), b"2", state=unknown)
    receiver.update(message.delivery_id, message.delivery_id, unknown)
    client.run()
    assert [condition(state) for state in answers(client)] == ["amqp:transaction:unknown-id"] * 2
    assert condition(control.ask(DISCHARGE, b"?", False)) == "amqp:transaction:unknown-id"
    assert condition(control.ask(0x30)) == "amqp:decode-error"


def test_transactions_end_with_the_link_that_declared_them(front: Front) -> None:
    client = front.client()
    control, sender = Control(client), client.sender("orders")
    txn_id = control.declare()
    sender.transfer(payload("a"), b"1", state=TransactionalState(txn_id=txn_id))
    client.run()
    client.take(Dispositions)
    control.link.detach()
    client.run()
    assert len(client.take(LinkDetached)) == 1
    sender.transfer(payload("b"), b"2", state=TransactionalState(txn_id=txn_id))
    client.run()
    assert [condition(state) for state in answers(client)] == ["amqp:transaction:unknown-id"]
    assert active(front) == 0


def test_a_connection_has_a_limited_number_of_open_transactions(front: Front) -> None:
    control = Control(front.client(None))
    ids = [control.declare() for _ in range(OPEN_MAX)]
    assert condition(control.ask(DECLARE, None)) == "amqp:resource-limit-exceeded"
    assert control.ask(DISCHARGE, ids[0], True) == ACCEPTED
    assert control.declare() not in ids


def test_a_request_on_a_control_link_is_small_and_a_larger_one_is_refused_unread(front: Front) -> None:
    control = Control(front.client(None))
    assert control.link.attach.max_message_size == SIZE_MAX
    assert condition(control.ask(DECLARE, b"x" * SIZE_MAX)) == "amqp:link:message-size-exceeded"
    assert control.declare()


def via(destination: str) -> dict[Value, Value]:
    return {Symbol("com.microsoft:transfer-destination-address"): destination}


def test_a_message_sent_via_another_queue_reaches_its_destination_with_the_commit(front: Front) -> None:
    client = front.client()
    control = Control(client)
    receiver, message = client.hold(text="in")
    sender = client.sender("orders", via("amqps://host/other"))
    assert via("amqps://host/other").items() <= sender.properties.items()
    txn_id = control.declare()
    state = TransactionalState(txn_id=txn_id, outcome=ACCEPTED)
    receiver.update(message.delivery_id, message.delivery_id, state)
    sender.transfer(payload("out"), b"2", state=TransactionalState(txn_id=txn_id))
    client.run()
    assert active(front, "other") == 0
    assert control.ask(DISCHARGE, txn_id, False) == ACCEPTED
    client.run()
    assert (active(front), active(front, "other")) == (0, 1)


@pytest.mark.parametrize(
    ("destination", "reason"), [("missing", "amqp:not-found"), ("other/$DeadLetterQueue", "amqp:not-allowed")]
)
def test_messages_are_not_sent_via_a_queue_to_where_nothing_can_be_sent(
    front: Front, destination: str, reason: str
) -> None:
    client = front.client()
    client.sender("orders", via(destination))
    assert [event.error.condition for event in client.take(LinkDetached) if event.error] == [reason]


def test_sending_via_a_queue_needs_the_right_for_both(front: Front) -> None:
    client = front.client(None)
    cbs = client.node("$cbs")
    cbs.ask("put-token", front.token("orders"), name="sb://host/orders")
    client.sender("orders", via("other"))
    assert len(client.take(LinkDetached)) == 1
    cbs.ask("put-token", front.token("other"), name="sb://host/other")
    client.sender("orders", via("other"))
    assert client.take(LinkDetached) == []


def test_a_distributed_transaction_is_refused_and_the_control_link_goes_on(front: Front) -> None:
    control = Control(front.client())
    assert condition(control.ask(DECLARE, b"of many resources")) == "amqp:not-implemented"
    assert control.declare()


def test_a_discharge_that_nobody_waits_for_is_done_and_not_answered(front: Front) -> None:
    client = front.client()
    control, sender = Control(client), client.sender("orders")
    for fails in (False, True):
        txn_id = control.declare()
        sender.transfer(payload("a"), b"1", state=TransactionalState(txn_id=txn_id))
        client.run()
        client.take(Dispositions)
        discharge = Sections(body=ValueBody(Described(ULong(DISCHARGE), [txn_id, fails])))
        control.link.transfer(encode_sections(discharge), b"c", settled=True)
        client.run()
        assert (answers(client), active(front)) == ([], 1)
        assert condition(control.ask(DISCHARGE, txn_id, False)) == "amqp:transaction:unknown-id"


def test_a_commit_that_fails_is_answered_when_its_store_says_so(front: Front) -> None:
    client = front.client()
    control, sender = Control(client), client.sender("orders")
    txn_id = control.declare()
    sender.transfer(payload("a"), b"1", state=TransactionalState(txn_id=txn_id))
    client.run()
    front.sim.ports[0].next_fault = Fault.REFUSE
    assert condition(control.ask(DISCHARGE, txn_id, False)) is not None
    assert [row.cause for row in front.book.take_all()] == []


def test_deferred_messages_that_are_not_there_cannot_be_taken_in_a_transaction(front: Front) -> None:
    client = front.client()
    control, node = Control(client), client.node("orders/$management")
    missing: dict[str, Value] = {"sequence-numbers": Array([Long(7)]), "receiver-settle-mode": UInt(0)}
    reply = ask_in(client, node, control.declare(), "receive-by-sequence-number", missing)
    assert (reply["statusCode"], reply["errorCondition"]) == (404, "com.microsoft:message-not-found")
    assert not node.answers()


def test_deferred_messages_of_another_fragment_than_that_of_the_transaction_cannot_be_taken_in_it(front: Front) -> None:
    """They stay deferred, and can be received when their locks have ended."""
    parts = front.sim.queue(QueueDescription("parts", enable_partitioning=True, lock_duration=5_000))
    front.sim.send(parts, make_message("there", partition_key="there"))
    held = front.sim.receiver(parts.main, 1).take()
    front.sim.settle(parts.main, held, Defer())
    client = front.client()
    control, node, sender = Control(client), client.node("parts/$management"), client.sender("parts")
    txn_id = control.declare()
    sender.transfer(payload("here", group_id="here"), b"1", state=TransactionalState(txn_id=txn_id))
    client.run()
    number = Long(held[0].message.sequence_number)
    asked: dict[str, Value] = {"sequence-numbers": Array([number]), "receiver-settle-mode": UInt(0)}
    reply = ask_in(client, node, txn_id, "receive-by-sequence-number", asked)
    assert (reply["statusCode"], reply["errorCondition"]) == (400, "amqp:not-allowed")
    assert parts.main.counts().deferred == 1


def test_a_request_for_messages_in_a_transaction_does_not_wait_for_the_client_to_read(front: Front) -> None:
    """Its commit may be the next thing that the client sends."""
    client = front.client()
    control, node = Control(client), client.node("orders/$management")
    txn_id = control.declare()
    client.gateway.pause()
    missing: dict[str, Value] = {"sequence-numbers": Array([Long(7)]), "receiver-settle-mode": UInt(0)}
    assert ask_in(client, node, txn_id, "receive-by-sequence-number", missing)["statusCode"] == 404
