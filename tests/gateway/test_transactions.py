"""The rules of transactions as a client meets them on the wire: conditions, limits, and who gets which answer (docs/contract.md A7)."""

from pathlib import Path

import pytest

from tests.gateway.control_link import DISCHARGE, Control, active, answers, ask_in, condition, reply_in
from tests.gateway.front import Client, Front, payload
from twinbus.amqp.codec.delivery_state import ACCEPTED, RELEASED, Modified, Outcome, Rejected, TransactionalState
from twinbus.amqp.codec.error_condition import ErrorCondition
from twinbus.amqp.codec.sections import DataBody, Sections, ValueBody, encode_sections
from twinbus.amqp.codec.terminus import Source, Target
from twinbus.amqp.codec.types import Described, Long, Symbol, Timestamp, ULong, Value
from twinbus.amqp.connection import NAMED_COST
from twinbus.amqp.dispositions import TOGETHER_IN_TRANSACTION
from twinbus.amqp.incoming_link import IncomingLink
from twinbus.amqp.outgoing_link import OutgoingLink
from twinbus.broker.entity import topic_placement
from twinbus.broker.entity.topic_entity import TopicEntity
from twinbus.broker.fragment_transaction import DURATION_MAX, MESSAGES_MAX
from twinbus.errors import ServerBusy
from twinbus.gateway import transaction_room
from twinbus.gateway.requests.handlers import HANDLERS, InTransaction
from twinbus.gateway.transaction_room import TransactionRoom
from twinbus.model import wire_names
from twinbus.model.descriptions import QueueDescription, SubscriptionDescription, TopicDescription
from twinbus.model.message_limits import MESSAGE_SIZE_MAX
from twinbus.testing.messages import make_message

NOT_ALLOWED = "amqp:not-allowed"


@pytest.fixture
def front(tmp_path: Path) -> Front:
    front = Front(tmp_path, store_count=16)
    front.sim.queue(QueueDescription("orders"))
    front.sim.queue(QueueDescription("parts", enable_partitioning=True))
    return front


def keyed(text: str, key: str) -> bytes:
    annotations: dict[Value, Value] = {Symbol("x-opt-partition-key"): key}
    return encode_sections(Sections(message_annotations=annotations, body=DataBody([text.encode()])))


def send(client: Client, sender: OutgoingLink, txn_id: bytes, *payloads: bytes) -> list[str | None]:
    """The condition of every refusal, None where there is none; all answers name the transaction."""
    conditions = []
    for each in payloads:
        sender.transfer(each, b"t", state=TransactionalState(txn_id=txn_id))
        client.run()
        (answer,) = answers(client)
        assert isinstance(answer, TransactionalState)
        assert answer.txn_id == txn_id
        conditions.append(condition(answer))
    return conditions


@pytest.mark.rule("A7.4")
@pytest.mark.parametrize(
    ("payloads", "refusals"),
    [
        ([keyed("a", "k"), keyed("b", "k")], [None, None]),
        ([payload("a")], [NOT_ALLOWED]),
        ([keyed("a", "k"), payload("b"), keyed("c", "k")], [None, NOT_ALLOWED, None]),
        ([keyed("a", "k"), keyed("b", "l")], [None, NOT_ALLOWED]),
        ([payload("a", group_id="s"), payload("b", group_id="t")], [None, NOT_ALLOWED]),
    ],
)
def test_on_a_partitioned_entity_all_messages_carry_one_key(
    front: Front, payloads: list[bytes], refusals: list[str | None]
) -> None:
    client = front.client()
    control, sender = Control(client), client.sender("parts")
    txn_id = control.declare()
    assert send(client, sender, txn_id, *payloads) == refusals
    assert control.ask(DISCHARGE, txn_id, False) == ACCEPTED
    assert active(front, "parts") == refusals.count(None)


def test_the_101st_message_is_refused_and_the_100_are_committed(front: Front) -> None:
    client = front.client()
    control, sender = Control(client), client.sender("orders")
    txn_id = control.declare()
    batch = encode_sections(Sections(body=DataBody([payload(str(number)) for number in range(MESSAGES_MAX)])))
    sender.transfer(batch, b"1", message_format=0x80013700, state=TransactionalState(txn_id=txn_id))
    client.run()
    assert answers(client) == [TransactionalState(txn_id=txn_id, outcome=ACCEPTED)]
    assert send(client, sender, txn_id, payload("more")) == ["amqp:resource-limit-exceeded"]
    assert control.ask(DISCHARGE, txn_id, False) == ACCEPTED
    assert active(front) == 100


@pytest.mark.parametrize(("age", "reason"), [(DURATION_MAX - 1, None), (DURATION_MAX, "amqp:transaction:timeout")])
def test_a_transaction_lives_for_two_minutes(front: Front, age: int, reason: str | None) -> None:
    client = front.client()
    control, sender = Control(client), client.sender("orders")
    client.advance(DURATION_MAX)
    txn_id = control.declare()
    assert send(client, sender, txn_id, payload("a")) == [None]
    client.advance(age)
    assert send(client, sender, txn_id, payload("b")) == [reason]
    assert condition(control.ask(DISCHARGE, txn_id, False)) == reason
    assert active(front) == (2 if reason is None else 0)


def test_a_transaction_that_timed_out_can_be_rolled_back(front: Front) -> None:
    client = front.client()
    control, sender = Control(client), client.sender("orders")
    txn_id = control.declare()
    send(client, sender, txn_id, payload("a"))
    client.advance(DURATION_MAX)
    assert control.ask(DISCHARGE, txn_id, True) == ACCEPTED


def test_a_commit_whose_lock_ended_is_refused_as_a_lost_lock(front: Front) -> None:
    client = front.client()
    control, sender = Control(client), client.sender("orders")
    receiver, message = client.hold(text="old")
    txn_id = control.declare()
    receiver.update(message.delivery_id, message.delivery_id, TransactionalState(txn_id=txn_id, outcome=ACCEPTED))
    client.run()
    answers(client)
    send(client, sender, txn_id, payload("new"))
    client.advance(61_000)
    assert condition(control.ask(DISCHARGE, txn_id, False)) == "com.microsoft:message-lock-lost"
    assert active(front) == 1


def test_an_outcome_is_confirmed_inside_the_transaction_without_the_clients_error(front: Front) -> None:
    client = front.client()
    control, sender = Control(client), client.sender("orders")
    for number in range(3):
        sender.transfer(payload(str(number)), b"%d" % number)
    receiver = client.receiver("orders", credit=3)
    messages = client.received()
    answers(client)
    txn_id = control.declare()
    outcomes: tuple[Outcome, ...] = (
        Rejected(),
        Modified(delivery_failed=True, undeliverable_here=True),
        Modified(delivery_failed=True),
    )
    for message, outcome in zip(messages, outcomes, strict=True):
        state = TransactionalState(txn_id=txn_id, outcome=outcome)
        receiver.update(message.delivery_id, message.delivery_id, state)
        client.run()
        assert answers(client) == [state]
    assert control.ask(DISCHARGE, txn_id, False) == ACCEPTED
    queue = front.sim.entities.queue("orders")
    assert (queue.dead_letter.counts().active, queue.main.counts().deferred, queue.main.counts().active) == (1, 1, 1)


def test_a_settlement_without_an_outcome_is_refused_in_the_transaction_and_the_message_stays(front: Front) -> None:
    client = front.client()
    control = Control(client)
    receiver, message = client.hold()
    txn_id = control.declare()
    answers(client)
    receiver.update(message.delivery_id, message.delivery_id, TransactionalState(txn_id=txn_id))
    client.run()
    (answer,) = answers(client)
    assert isinstance(answer, TransactionalState)
    assert (answer.txn_id, condition(answer)) == (txn_id, "com.microsoft:argument-error")
    assert control.ask(DISCHARGE, txn_id, False) == ACCEPTED
    assert active(front) == 1


def test_a_settlement_without_an_outcome_that_nobody_waits_for_stops_the_commit(front: Front) -> None:
    client = front.client()
    control = Control(client)
    receiver, message = client.hold()
    txn_id = control.declare()
    answers(client)
    receiver.settle(message.delivery_id, message.delivery_id, TransactionalState(txn_id=txn_id))
    client.run()
    assert condition(control.ask(DISCHARGE, txn_id, False)) == "com.microsoft:argument-error"
    assert active(front) == 1


def test_more_deliveries_than_a_transaction_may_have_are_refused_together_however_they_are_taken(front: Front) -> None:
    client = front.client()
    count = 2 * TOGETHER_IN_TRANSACTION
    front.sim.send(front.sim.entities.queue("orders"), *[make_message(str(number)) for number in range(count)])
    receiver = client.receiver("orders", credit=count)
    taken = client.received()
    txn_id = Control(client).declare()
    state = TransactionalState(txn_id=txn_id, outcome=ACCEPTED)
    receiver.update(taken[0].delivery_id, taken[-1].delivery_id, state)
    data = client.connection.data_to_send()
    while data or client.gateway.is_behind:
        client.gateway.receive(data, front.sim.now, NAMED_COST * (TOGETHER_IN_TRANSACTION - 1))
        data = b""
    client.run()
    assert {condition(answer) for answer in answers(client)} == {"amqp:resource-limit-exceeded"}
    assert front.sim.entities.queue("orders").main.fragments[0].locks.enlisted == set()
    assert TOGETHER_IN_TRANSACTION > MESSAGES_MAX


def test_a_settlement_that_failed_unheard_stops_the_commit(front: Front) -> None:
    client = front.client()
    control = Control(client)
    receiver, message = client.hold()
    client.advance(61_000)
    txn_id = control.declare()
    answers(client)
    receiver.settle(message.delivery_id, message.delivery_id, TransactionalState(txn_id=txn_id, outcome=ACCEPTED))
    client.run()
    assert answers(client) == []
    assert condition(control.ask(DISCHARGE, txn_id, False)) == "com.microsoft:message-lock-lost"


def test_what_is_not_a_message_or_too_large_is_refused_inside_the_transaction(front: Front) -> None:
    client = front.client()
    control, sender = Control(client), client.sender("orders")
    txn_id = control.declare()
    assert send(client, sender, txn_id, b"\x00" * 10) == ["amqp:decode-error"]
    sender.transfer(payload("x" * MESSAGE_SIZE_MAX), b"t", state=TransactionalState(txn_id=txn_id))
    client.run()
    assert [condition(state) for state in answers(client)] == ["amqp:link:message-size-exceeded"]
    assert front.traffic.of("orders").refused == 2


def test_messages_are_scheduled_in_a_transaction(front: Front) -> None:
    client = front.client()
    control, node = Control(client), client.node("orders/$management")
    txn_id = control.declare()
    due: dict[Value, Value] = {Symbol("x-opt-scheduled-enqueue-time"): Timestamp(front.sim.now + 60_000)}
    message = encode_sections(Sections(message_annotations=due, body=DataBody([b"later"])))
    wanted = {"messages": [{"message-id": "1", "message": message}]}
    reply = reply_in(client, node, txn_id, "schedule-message", wanted)
    assert (reply.application_properties or {})["statusCode"] == 200
    # It has no number before the commit.
    assert isinstance(reply.body, ValueBody)
    assert reply.body.value["sequence-numbers"].values == [0]
    queue = front.sim.entities.queue("orders")
    assert queue.main.counts().scheduled == 0
    assert control.ask(DISCHARGE, txn_id, False) == ACCEPTED
    assert queue.main.counts().scheduled == 1


@pytest.mark.parametrize(
    ("operation", "body", "refusal"),
    [
        ("schedule-message", {"messages": [{"message-id": "1", "message": payload("x")}]}, NOT_ALLOWED),
        ("cancel-scheduled-message", {"sequence-numbers": [Long(7)]}, "com.microsoft:message-not-found"),
    ],
)
def test_what_a_transaction_refuses_is_answered_and_no_part_of_it(
    front: Front, operation: str, body: dict[str, Value], refusal: str
) -> None:
    front.sim.queue(QueueDescription("other"))
    client = front.client()
    # Links on an AMQP session of their own: a transaction that has no home stays within one entity.
    control, node = Control(client), client.node("other/$management")
    txn_id = control.declare()
    if operation == "schedule-message":
        assert send(client, client.sender("orders"), txn_id, payload("a")) == [None]
    assert ask_in(client, node, txn_id, operation, body)["errorCondition"] == refusal
    assert control.ask(DISCHARGE, txn_id, False) == ACCEPTED
    assert active(front, "other") == front.sim.entities.queue("other").main.counts().scheduled == 0


@pytest.mark.rule("A7.11")
@pytest.mark.parametrize("operation", ["add-rule", "remove-rule", "batch-delete-messages"])
def test_rules_and_changes_of_any_number_of_messages_are_not_part_of_a_transaction(
    front: Front, operation: str
) -> None:
    front.sim.topic(TopicDescription("news"))
    subscription = front.sim.subscription(SubscriptionDescription("news", "all"))
    client = front.client()
    control, node = Control(client), client.node("news/subscriptions/all/$management")
    reply = ask_in(client, node, control.declare(), operation, {"rule-name": "$Default"})
    assert (reply["statusCode"], reply["errorCondition"]) == (400, NOT_ALLOWED)
    assert list(subscription.rules) == ["$default"]


def test_what_only_looks_or_renews_is_done_at_once_in_a_transaction_too() -> None:
    at_once = {name for name, handler in HANDLERS.items() if handler.in_transaction is InTransaction.AT_ONCE}
    assert at_once == {
        wire_names.RENEW_LOCK,
        wire_names.RENEW_SESSION_LOCK,
        wire_names.PEEK_MESSAGE,
        wire_names.PEEK_MERGED,
        wire_names.PEEK_RANGE,
        wire_names.GET_SESSION_STATE,
        wire_names.GET_MESSAGE_SESSIONS,
        wire_names.ENUMERATE_RULES,
        wire_names.FRAGMENT_HEADS,
        wire_names.ENQUEUED_TIMES,
        wire_names.BACKLOG,
        wire_names.COUNT_SESSIONS,
        wire_names.PREVIEW_REPAIR,
    }


def test_a_transaction_is_discharged_on_the_link_that_declared_it(front: Front) -> None:
    client = front.client()
    control, other, sender = Control(client), Control(client), client.sender("orders")
    txn_id = control.declare()
    send(client, sender, txn_id, payload("a"))
    assert condition(other.ask(DISCHARGE, txn_id, False)) == "amqp:transaction:unknown-id"
    other.link.detach()
    client.run()
    assert control.ask(DISCHARGE, txn_id, False) == ACCEPTED
    assert active(front) == 1


def test_a_lost_connection_rolls_back_and_frees_the_message(front: Front) -> None:
    client, witness = front.client(), front.client()
    control, sender = Control(client), client.sender("orders")
    receiver, message = client.hold(text="old")
    txn_id = control.declare()
    receiver.update(message.delivery_id, message.delivery_id, TransactionalState(txn_id=txn_id, outcome=ACCEPTED))
    sender.transfer(payload("new"), b"2", state=TransactionalState(txn_id=txn_id))
    client.run()
    client.gateway.lost(front.sim.now)
    witness.receiver("orders", credit=5)
    assert witness.received() == []
    witness.advance(61_000)
    assert len(witness.received()) == 1


def test_what_open_transactions_hold_in_memory_has_a_limit(front: Front, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_room, "SIZE_MAX", 500)
    client = front.client()
    control, sender = Control(client), client.sender("orders")
    first, second = control.declare(), control.declare()
    assert send(client, sender, first, payload("x" * 300)) == [None]
    assert send(client, sender, second, payload("x" * 300)) == ["amqp:resource-limit-exceeded"]
    entry = {"message-id": "1", "message": payload("x" * 300)}
    reply = ask_in(client, client.node("orders/$management"), second, "schedule-message", {"messages": [entry]})
    assert reply["errorCondition"] == "amqp:resource-limit-exceeded"
    assert control.ask(DISCHARGE, first, False) == ACCEPTED
    # A single message always has room, however large it is.
    assert send(client, sender, second, payload("x" * 900)) == [None]


def large_commit(front: Front, client: Client, monkeypatch: pytest.MonkeyPatch) -> tuple[OutgoingLink, TopicEntity]:
    """Asked for, of a message that is copied in steps, and not begun; a sender to a queue, and the topic."""
    monkeypatch.setattr(topic_placement, "COPIES_AT_ONCE", 0)
    monkeypatch.setattr(topic_placement, "COPIES_OF_ONE_AT_ONCE", 0)
    topic = front.sim.topic(TopicDescription("news"))
    front.sim.subscription(SubscriptionDescription("news", "reader"))
    control, sender = Control(client), client.sender("orders")
    txn_id = control.declare()
    assert send(client, client.sender("news"), txn_id, payload("x" * 300)) == [None]
    discharge = Described(ULong(DISCHARGE), [txn_id, False])
    control.link.transfer(encode_sections(Sections(body=ValueBody(discharge))), b"d")
    client.gateway.receive(client.connection.data_to_send(), front.sim.now)
    return sender, topic


def test_what_a_commit_under_way_holds_in_memory_counts_until_it_is_answered(
    front: Front, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transaction_room, "SIZE_MAX", 500)
    client = front.client()
    other = Control(client).declare()
    sender, _ = large_commit(front, client, monkeypatch)
    sender.transfer(payload("x" * 300), b"t", state=TransactionalState(txn_id=other))
    client.run()
    assert [condition(each) for each in answers(client)] == ["amqp:resource-limit-exceeded", None]
    assert send(client, sender, other, payload("x" * 300)) == [None]


def test_a_commit_that_was_asked_for_is_done_though_the_connection_is_lost(
    front: Front, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = front.client()
    _, topic = large_commit(front, client, monkeypatch)
    front.sim.turn()
    assert topic.subscriptions["reader"].main.counts().active == 0
    client.gateway.lost(front.sim.now)
    front.sim.run()
    assert topic.subscriptions["reader"].main.counts().active == 1


def test_what_is_written_on_settled_messages_counts_as_well(front: Front, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_room, "SIZE_MAX", 500)
    client = front.client()
    control = Control(client)
    receiver, message = client.hold()
    txn_id = control.declare()
    noted = Modified(message_annotations={Symbol("note"): "x" * 300})
    state = TransactionalState(txn_id=txn_id, outcome=noted)
    receiver.update(message.delivery_id, message.delivery_id, state)
    client.run()
    assert [condition(each) for each in answers(client)] == [None]
    assert send(client, client.sender("orders"), txn_id, payload("x" * 300)) == ["amqp:resource-limit-exceeded"]


def test_a_settlement_is_refused_if_what_it_writes_has_no_room_and_has_room_if_it_writes_nothing(
    front: Front, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transaction_room, "SIZE_MAX", 500)
    client = front.client()
    control = Control(client)
    held = [client.hold(), client.hold()]
    txn_id = control.declare()
    assert send(client, client.sender("orders"), txn_id, payload("x" * 900)) == [None]
    noted = Rejected(error=ErrorCondition(condition="com.microsoft:dead-letter", info={Symbol("note"): "x"}))
    outcomes: list[tuple[Outcome, str | None]] = [(noted, "amqp:resource-limit-exceeded"), (ACCEPTED, None)]
    for (receiver, message), (outcome, refusal) in zip(held, outcomes, strict=True):
        state = TransactionalState(txn_id=txn_id, outcome=outcome)
        receiver.update(message.delivery_id, message.delivery_id, state)
        client.run()
        assert [condition(each) for each in answers(client)] == [refusal]


def test_a_session_state_is_cleared_in_a_transaction_that_has_no_room_for_a_new_one(
    front: Front, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transaction_room, "SIZE_MAX", 500)
    front.sim.queue(QueueDescription("talks", requires_session=True))
    client = front.client()
    client.receiver("talks", session_filter={Symbol("com.microsoft:session-filter"): "s"})
    node, txn_id = client.node("talks/$management"), Control(client).declare()
    assert send(client, client.sender("talks"), txn_id, payload("x" * 900, group_id="s")) == [None]
    for state, code in ((b"x", 403), (None, 200)):
        wanted = {"session-id": "s", "session-state": state}
        reply = ask_in(client, node, txn_id, "set-session-state", wanted)
        assert reply["statusCode"] == code


def test_what_the_open_transactions_of_all_connections_hold_in_memory_has_a_limit(
    front: Front, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transaction_room, "SHARED_SIZE_MAX", 1_000)
    clients = [front.client() for _ in range(3)]
    controls = [Control(client) for client in clients]
    senders = [client.sender("orders") for client in clients]
    ids = [control.declare() for control in controls]
    for client, sender, txn_id in list(zip(clients, senders, ids, strict=True))[:2]:
        assert send(client, sender, txn_id, payload("x" * 400)) == [None]
    assert send(clients[2], senders[2], ids[2], payload("x" * 400)) == ["com.microsoft:server-busy"]
    assert controls[0].ask(DISCHARGE, ids[0], False) == ACCEPTED
    assert send(clients[2], senders[2], ids[2], payload("x" * 400)) == [None]
    # What a connection held that was lost, or a transaction that lasted too long, is room for others.
    clients[1].gateway.lost(front.sim.now)
    assert send(clients[0], senders[0], controls[0].declare(), payload("x" * 400)) == [None]
    assert send(clients[0], senders[0], controls[0].declare(), payload("x" * 400)) == ["com.microsoft:server-busy"]


def test_what_ended_transactions_held_is_room_to_the_last_byte() -> None:
    class Holder:
        size_bytes = 0

    room, ended, other = TransactionRoom(), Holder(), Holder()
    room.check(ended, transaction_room.SHARED_SIZE_MAX)
    room.check(other, transaction_room.SHARED_SIZE_MAX)
    with pytest.raises(ServerBusy):
        room.check(other, transaction_room.SHARED_SIZE_MAX + 1)


def taken_in_transaction(client: Client) -> tuple[Control, bytes, IncomingLink, int]:
    """By a receiver that settles first and waits for no answer; its credit has room for another message."""
    control = Control(client)
    client.sender("orders").transfer(payload("a"), b"1")
    receiver = client.begin().attach("first", is_sender=False, source=Source(address="orders"), target=Target())
    assert isinstance(receiver, IncomingLink)
    client.run()
    receiver.grant(2)
    client.run()
    (message,) = client.received()
    txn_id = control.declare()
    receiver.update(message.delivery_id, message.delivery_id, TransactionalState(txn_id=txn_id, outcome=ACCEPTED))
    client.run()
    assert answers(client) == []
    return control, txn_id, receiver, message.delivery_id


def test_a_delivery_that_nobody_waits_for_is_settled_with_the_commit(front: Front) -> None:
    client = front.client()
    control, txn_id, _, _ = taken_in_transaction(client)
    assert control.ask(DISCHARGE, txn_id, False) == ACCEPTED
    assert answers(client) == [TransactionalState(txn_id=txn_id, outcome=ACCEPTED)]
    assert active(front) == 0


def test_a_delivery_that_was_rolled_back_can_be_released_at_once(front: Front) -> None:
    client = front.client()
    control, txn_id, receiver, delivery_id = taken_in_transaction(client)
    assert control.ask(DISCHARGE, txn_id, True) == ACCEPTED
    receiver.settle(delivery_id, delivery_id, RELEASED)
    client.run()
    assert (len(client.received()), answers(client)) == (1, [])


def test_a_refusal_reaches_even_clients_that_do_not_wait(front: Front) -> None:
    client = front.client()
    _, txn_id, receiver, delivery_id = taken_in_transaction(client)
    receiver.update(delivery_id, delivery_id, TransactionalState(txn_id=txn_id, outcome=ACCEPTED))
    client.run()
    assert [condition(answer) for answer in answers(client)] == [NOT_ALLOWED]
