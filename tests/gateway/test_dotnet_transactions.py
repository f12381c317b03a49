"""Transactions as the .NET SDK says them on the wire, frame by frame (docs/contract.md A7).

With cross-entity transactions the SDK has one AMQP session for everything but `$cbs`: a control link, the links to
entities in the order of their first use, and another control link that declares. Links name no entity to send via.
"""

from pathlib import Path

import pytest

from tests.gateway.control_link import active
from tests.gateway.front import Front
from tests.gateway.raw_wire import (
    ACCEPTED,
    ANNOTATIONS,
    APPLICATION_PROPERTIES,
    COORDINATOR,
    DATA,
    DECLARE,
    DECLARED,
    DISCHARGE,
    IN_TRANSACTION,
    PROPERTIES,
    REJECTED,
    VALUE,
    RawWire,
    composite,
    in_transaction,
    section,
    source,
    target,
)
from twinbus.amqp.codec.sections import ValueBody, decode_sections
from twinbus.amqp.codec.types import Array, Described, Long, Symbol, Timestamp, UByte, UInt, ULong, Value
from twinbus.broker.outcomes import Defer
from twinbus.model.descriptions import QueueDescription, SubscriptionDescription, TopicDescription
from twinbus.model.message import read_message
from twinbus.testing.messages import make_message

NOT_ALLOWED = "amqp:not-allowed"
ACCEPT = composite(ACCEPTED)


@pytest.fixture
def front(tmp_path: Path) -> Front:
    front = Front(tmp_path, store_count=16)
    for name in ("a", "b", "c"):
        front.sim.queue(QueueDescription(name))
    front.sim.queue(QueueDescription("pa", enable_partitioning=True))
    front.sim.queue(QueueDescription("pb", enable_partitioning=True))
    front.sim.topic(TopicDescription("t"))
    front.sim.subscription(SubscriptionDescription("t", "s"))
    return front


def message(text: str, key: str | None = None) -> bytes:
    """As the SDK encodes it, with nulls for the keys that are not set."""
    annotations: Value = {Symbol("x-opt-partition-key"): key, Symbol("x-opt-via-partition-key"): key}
    return section(ANNOTATIONS, annotations) + section(DATA, text.encode())


def condition_of(state: Value) -> str | None:
    """Of a refusal, whether or not it is inside a transaction; None if it is accepted."""
    assert isinstance(state, Described)
    assert isinstance(state.value, list)
    if state.descriptor == ULong(IN_TRANSACTION):
        return condition_of(state.value[1])
    if state.descriptor == ULong(ACCEPTED):
        return None
    assert state.descriptor == ULong(REJECTED)
    error = state.value[0]
    assert isinstance(error, Described)
    assert isinstance(error.value, list)
    return str(error.value[0])


class DotNet:
    """A client with cross-entity transactions: everything on channel 1."""

    def __init__(self, front: Front) -> None:
        self.front, self.wire = front, RawWire(front)
        self._delivery_id = -1
        self._handle = -1
        self._control = 0
        self.begin()

    def begin(self) -> None:
        """The AMQP session and its first control link, which never declares anything."""
        self.wire.say(1, "begin", None, UInt(1), UInt(4294967295), UInt(5000), UInt(262143), None, None, {})
        self._delivery_id = self._handle = -1
        self.control_link()
        self._control = 0

    def control_link(self) -> int:
        self._handle += 1
        origin = source(f"c{self._handle}", *[None] * 5, Symbol("move"), *[None] * 4)
        rest: list[Value] = [None, None, origin, composite(COORDINATOR, None), *[None] * 7]
        self.wire.say(1, "attach", f"control{self._handle}", UInt(self._handle), False, *rest)
        assert self.wire.take("flow")
        return self._handle

    def sender(self, path: str) -> int:
        self.wire.put_token(path)
        self._handle += 1
        rest: list[Value] = [None, None, source(f"{path}-1"), target(f"/{path}"), None, None, UInt(0), *[None] * 3]
        timeout: Value = {Symbol("com.microsoft:timeout"): UInt(14_997)}
        self.wire.say(1, "attach", f"sender{self._handle}", UInt(self._handle), False, *rest, timeout)
        return self._handle

    def receiver(self, path: str, credit: int = 1) -> int:
        self.wire.put_token(path)
        self._handle += 1
        origin = source(f"/{path}", *[None] * 6, {}, *[None] * 3)
        rest: list[Value] = [None, UByte(1), origin, target("me"), *[None] * 7]
        self.wire.say(1, "attach", f"receiver{self._handle}", UInt(self._handle), True, *rest)
        if credit:
            self.wire.flow(1, self._handle, credit)
        return self._handle

    def session_receiver(self, path: str, session_id: str | None = None, timeout: int = 5_000) -> int:
        self.wire.put_token(path)
        self._handle += 1
        origin = source(f"/{path}", *[None] * 6, {Symbol("com.microsoft:session-filter"): session_id}, *[None] * 3)
        limits: Value = {Symbol("com.microsoft:timeout"): UInt(timeout)}
        rest: list[Value] = [None, UByte(1), origin, target("me"), *[None] * 6, limits]
        self.wire.say(1, "attach", f"receiver{self._handle}", UInt(self._handle), True, *rest)
        return self._handle

    def delivery(self) -> int:
        """Id of the one delivery that has come."""
        (transfer,) = self.wire.take("transfer")
        number = transfer.fields[1]
        assert isinstance(number, int)
        return number

    def declare(self) -> bytes:
        if not self._control:
            self._control = self.control_link()
        state = self._transfer(self._control, section(VALUE, composite(DECLARE, None)))
        assert isinstance(state, Described)
        assert state.descriptor == ULong(DECLARED)
        assert isinstance(state.value, list)
        assert isinstance(state.value[0], bytes)
        return state.value[0]

    def discharge(self, txn_id: bytes, *, fails: bool = False) -> str | None:
        return condition_of(self._transfer(self._control, section(VALUE, composite(DISCHARGE, txn_id, fails))))

    def send(self, handle: int, payload: bytes, txn_id: bytes | None = None) -> str | None:
        state = None if txn_id is None else in_transaction(txn_id)
        return condition_of(self._transfer(handle, payload, state))

    def complete(self, delivery_id: int, txn_id: bytes) -> str | None:
        state = in_transaction(txn_id, ACCEPT)
        self.wire.say(1, "disposition", True, UInt(delivery_id), None, False, state, None)
        (answer,) = self.wire.take("disposition")
        assert answer.fields[:4] == [False, delivery_id, delivery_id, True]
        return condition_of(answer.fields[4])

    def refusal(self) -> str | None:
        """The condition that the last attach was refused with."""
        for detach in self.wire.take("detach"):
            error = detach.fields[2]
            assert isinstance(error, Described)
            assert isinstance(error.value, list)
            return str(error.value[0])
        return None

    def _transfer(self, handle: int, payload: bytes, state: Value = None) -> Value:
        self._delivery_id += 1
        self.wire.take()
        self.wire.transfer(1, handle, self._delivery_id, payload, state)
        answers = self.wire.take()
        self.wire._answers = [each for each in answers if each.name != "disposition"]
        (answer,) = [each for each in answers if each.name == "disposition"]
        assert answer.fields[:4] == [True, self._delivery_id, self._delivery_id, True]
        return answer.fields[4]


def put(front: Front, path: str, encoded: bytes) -> None:
    entity = front.sim.entities.find(path)
    assert entity is not None
    front.sim.send(entity, read_message(encoded, lambda: "id"))


@pytest.mark.rule("A7.8")
@pytest.mark.parametrize(("home", "other", "key"), [("a", "b", None), ("pa", "pb", "k")])
@pytest.mark.parametrize("fails", [False, True])
def test_a_message_is_received_from_one_entity_and_another_sent_to_the_next_in_one_transaction(
    front: Front, home: str, other: str, key: str | None, fails: bool
) -> None:
    put(front, home, message("in", key))
    client = DotNet(front)
    client.receiver(home)
    delivery_id, txn_id = client.delivery(), client.declare()
    sender = client.sender(other)
    assert client.send(sender, message("out", key), txn_id) is None
    assert client.complete(delivery_id, txn_id) is None
    assert (active(front, home), active(front, other)) == (1, 0)
    assert client.discharge(txn_id, fails=fails) is None
    client.wire.run()
    assert (active(front, home), active(front, other)) == ((1, 0) if fails else (0, 1))


@pytest.mark.rule("A7.7")
def test_a_message_with_a_via_partition_key_alone_is_settled_in_a_transaction_on_a_partitioned_home(
    front: Front,
) -> None:
    annotations: Value = {Symbol("x-opt-partition-key"): None, Symbol("x-opt-via-partition-key"): "order-2"}
    encoded = section(ANNOTATIONS, annotations) + section(DATA, b"in")
    put(front, "pa", encoded)
    client = DotNet(front)
    client.receiver("pa")
    delivery_id, txn_id = client.delivery(), client.declare()
    assert client.complete(delivery_id, txn_id) is None
    for path in ("pb", "t"):
        assert client.send(client.sender(path), encoded, txn_id) is None
    assert client.discharge(txn_id) is None
    client.wire.run()
    counts = front.sim.entities.subscription("t", "s").main.counts()
    assert (active(front, "pa"), active(front, "pb"), counts.active) == (0, 1, 1)


@pytest.mark.rule("A7.9")
def test_a_receiver_on_another_entity_is_refused_where_the_first_link_is_a_sender(front: Front) -> None:
    client = DotNet(front)
    sender = client.sender("b")
    assert client.send(sender, message("in")) is None
    client.receiver("a", credit=0)
    assert client.refusal() == NOT_ALLOWED
    client.receiver("b")
    delivery_id, txn_id = client.delivery(), client.declare()
    assert client.complete(delivery_id, txn_id) is None
    assert client.send(client.sender("c"), message("out"), txn_id) is None
    assert client.discharge(txn_id) is None
    client.wire.run()
    assert (active(front, "b"), active(front, "c")) == (0, 1)


def test_after_a_refusal_an_sdk_that_begins_another_amqp_session_chooses_the_home_anew(front: Front) -> None:
    client = DotNet(front)
    client.sender("b")
    client.receiver("a", credit=0)
    assert client.refusal() == NOT_ALLOWED
    client.wire.say(1, "end", None)
    put(front, "a", message("in"))
    client.begin()
    client.receiver("a")
    delivery_id, txn_id = client.delivery(), client.declare()
    assert client.send(client.sender("b"), message("out"), txn_id) is None
    assert client.complete(delivery_id, txn_id) is None
    assert client.discharge(txn_id) is None
    client.wire.run()
    assert (active(front, "a"), active(front, "b")) == (0, 1)


@pytest.mark.rule("A7.9")
def test_a_settlement_on_a_third_entity_is_refused_and_the_rest_is_committed(front: Front) -> None:
    for path in ("a", "c"):
        put(front, path, message("in"))
    client = DotNet(front)
    client.receiver("a")
    first = client.delivery()
    client.receiver("c")
    third, txn_id = client.delivery(), client.declare()
    assert client.complete(third, txn_id) == NOT_ALLOWED
    assert client.complete(first, txn_id) is None
    assert client.discharge(txn_id) is None
    assert (active(front, "a"), active(front, "c")) == (0, 1)


def test_the_first_operation_on_any_link_may_be_in_a_transaction(front: Front) -> None:
    client = DotNet(front)
    txn_id = client.declare()
    for path in ("a", "b"):
        assert client.send(client.sender(path), message("out"), txn_id) is None
    assert client.discharge(txn_id) is None
    client.wire.run()
    assert (active(front, "a"), active(front, "b")) == (1, 1)


def test_the_home_stays_while_links_come_and_go_as_those_of_a_processor_do(front: Front) -> None:
    client = DotNet(front)
    receiver = client.receiver("a", credit=0)
    sender = client.sender("b")
    for number in range(3):
        client.wire.say(1, "detach", UInt(receiver), True, None)
        put(front, "a", message(str(number)))
        receiver = client.receiver("a")
        delivery_id, txn_id = client.delivery(), client.declare()
        assert client.complete(delivery_id, txn_id) is None
        assert client.send(sender, message("out"), txn_id) is None
        assert client.discharge(txn_id) is None
    client.wire.run()
    assert (active(front, "a"), active(front, "b")) == (0, 3)


def test_a_send_outside_of_transactions_goes_straight_to_its_entity(front: Front) -> None:
    client = DotNet(front)
    client.receiver("a")
    front.sim.ports[front.sim.entities.queue("a").main.fragments[0].broker.index].is_hung = True
    assert client.send(client.sender("b"), message("out")) is None
    assert active(front, "b") == 1


def test_a_connection_that_is_dropped_leaves_nothing_half_done(front: Front) -> None:
    put(front, "a", message("in"))
    client = DotNet(front)
    client.receiver("a")
    delivery_id, txn_id = client.delivery(), client.declare()
    assert client.complete(delivery_id, txn_id) is None
    assert client.send(client.sender("b"), message("out"), txn_id) is None
    client.wire.gateway.lost(front.sim.now)
    front.sim.advance(61_000)
    assert (active(front, "a"), active(front, "b")) == (1, 0)
    again = DotNet(front)
    again.receiver("a")
    again.delivery()


def test_a_subscription_is_a_home_and_needs_no_right_to_send_to_its_topic(front: Front) -> None:
    front.sim.send(front.sim.entities.topic("t"), make_message("in"))
    client = DotNet(front)
    client.receiver("t/Subscriptions/s")
    delivery_id, txn_id = client.delivery(), client.declare()
    assert client.complete(delivery_id, txn_id) is None
    assert client.send(client.sender("b"), message("out"), txn_id) is None
    assert client.discharge(txn_id) is None
    client.wire.run()
    assert (front.sim.entities.subscription("t", "s").main.counts().active, active(front, "b")) == (0, 1)


@pytest.mark.rule("A7.8")
@pytest.mark.parametrize("gives_up", ["the time is over", "the client detaches"])
def test_a_link_that_gets_no_message_session_takes_the_home_from_none_that_got_one(front: Front, gives_up: str) -> None:
    """As a processor of message sessions does that waits for another one all the time."""
    queue = front.sim.queue(QueueDescription("sessions", requires_session=True))
    client = DotNet(front)
    idle = client.session_receiver("sessions")
    holder = client.session_receiver("sessions", "s")
    front.sim.send(queue, make_message("in", session_id="s"))
    client.wire.flow(1, holder, 1)
    delivery_id = client.delivery()
    if gives_up == "the time is over":
        front.sim.advance(6_000, 1_000)
    else:
        client.wire.say(1, "detach", UInt(idle), True, None)
    txn_id = client.declare()
    assert client.send(client.sender("b"), message("out"), txn_id) is None
    assert client.complete(delivery_id, txn_id) is None
    assert client.discharge(txn_id) is None
    client.wire.run()
    assert (queue.main.counts().active, active(front, "b")) == (0, 1)


@pytest.mark.rule("A7.8")
@pytest.mark.parametrize("gives_up", ["the time is over", "the client detaches"])
def test_a_link_that_never_got_a_message_session_is_no_home(front: Front, gives_up: str) -> None:
    front.sim.queue(QueueDescription("sessions", requires_session=True))
    client = DotNet(front)
    waiting = client.session_receiver("sessions")
    first = client.sender("a")
    if gives_up == "the time is over":
        front.sim.advance(6_000, 1_000)
    else:
        client.wire.say(1, "detach", UInt(waiting), True, None)
    txn_id = client.declare()
    front.sim.ports[front.sim.entities.queue("sessions").main.fragments[0].broker.index].is_hung = True
    for sender in (client.sender("b"), first):
        assert client.send(sender, message("out"), txn_id) is None
    assert client.discharge(txn_id) is None
    client.wire.run()
    assert (active(front, "a"), active(front, "b")) == (1, 1)
    client.receiver("b", credit=0)
    assert client.refusal() == NOT_ALLOWED


@pytest.mark.rule("A7.8")
@pytest.mark.parametrize("is_another_gone", [False, True], ids=["alone", "and another one has given up"])
def test_a_link_that_waits_for_a_message_session_keeps_the_home_before_those_that_are_attached_meanwhile(
    front: Front, is_another_gone: bool
) -> None:
    queue = front.sim.queue(QueueDescription("sessions", requires_session=True))
    client = DotNet(front)
    another = client.session_receiver("sessions") if is_another_gone else None
    waiting = client.session_receiver("sessions")
    if another is not None:
        client.wire.say(1, "detach", UInt(another), True, None)
    sender = client.sender("b")
    front.sim.send(queue, make_message("in", session_id="s"))
    client.wire.flow(1, waiting, 1)
    delivery_id, txn_id = client.delivery(), client.declare()
    assert client.send(sender, message("out"), txn_id) is None
    assert client.complete(delivery_id, txn_id) is None
    assert client.discharge(txn_id) is None
    client.wire.run()
    assert (queue.main.counts().active, active(front, "b")) == (0, 1)


# Without cross-entity transactions: each link and the control link have AMQP sessions of their own


@pytest.mark.rule("A7.10")
def test_with_a_control_link_on_an_amqp_session_of_its_own_a_transaction_stays_within_one_entity(front: Front) -> None:
    client = DotNet(front)
    txn_id = client.declare()
    wire = client.wire
    wire.say(2, "begin", None, UInt(1), UInt(4294967295), UInt(5000), UInt(262143), None, None, {})
    for handle, path in enumerate(("a", "b")):
        wire.put_token(path)
        rest: list[Value] = [None, None, source(path), target(f"/{path}"), None, None, UInt(0), *[None] * 4]
        wire.say(2, "attach", path, UInt(handle), False, *rest)
    wire.take()
    conditions = []
    for handle in (0, 1):
        wire.transfer(2, handle, handle, message("m"), in_transaction(txn_id))
        (answer,) = wire.take("disposition")
        conditions.append(condition_of(answer.fields[4]))
    assert conditions == [None, NOT_ALLOWED]
    assert client.discharge(txn_id) is None
    assert (active(front, "a"), active(front, "b")) == (1, 0)


class Separate:
    """A client without cross-entity transactions: a management pair of `orders` and a control link, each on its own channel."""

    def __init__(self, front: Front, address: str) -> None:
        self.wire = RawWire(front)
        self._request_id = 0
        self._control_id = -1
        for channel in (1, 2):
            self.wire.say(channel, "begin", None, UInt(1), UInt(4294967295), UInt(5000), UInt(262143), None, None, {})
        self.wire.put_token(address)
        kind: Value = {Symbol("com.microsoft:entity-type"): "entity-mgmt"}
        pair: list[Value] = [None, source(None), target(address), *[None] * 6, kind]
        self.wire.say(1, "attach", "m:sender", UInt(0), False, UByte(1), *pair)
        pair = [None, source(address), target("answers"), *[None] * 6, kind]
        self.wire.say(1, "attach", "m:receiver", UInt(1), True, UByte(1), *pair)
        self.wire.flow(1, handle=1, credit=50)
        origin = source("c", *[None] * 5, Symbol("move"), *[None] * 4)
        rest: list[Value] = [None, None, origin, composite(COORDINATOR, None), *[None] * 7]
        self.wire.say(2, "attach", "control", UInt(0), False, *rest)
        self.wire.take()

    def hold_session(self, address: str, session_id: str) -> None:
        self.wire.put_token(address)
        origin = source(address, *[None] * 6, {Symbol("com.microsoft:session-filter"): session_id}, *[None] * 3)
        self.wire.say(1, "attach", "holder", UInt(2), True, UByte(0), None, origin, target("here"), *[None] * 7)
        self.wire.take()

    def discharge(self, txn_id: bytes | None, *, fails: bool = False) -> Value:
        """Without an id: declare."""
        self._control_id += 1
        request = composite(DECLARE, None) if txn_id is None else composite(DISCHARGE, txn_id, fails)
        self.wire.transfer(2, 0, self._control_id, section(VALUE, request))
        (answer,) = self.wire.take("disposition")
        return answer.fields[4]

    def declare(self) -> bytes:
        state = self.discharge(None)
        assert isinstance(state, Described)
        assert isinstance(state.value, list)
        assert isinstance(state.value[0], bytes)
        return state.value[0]

    def ask(self, operation: str, body: Value, txn_id: bytes | None = None) -> tuple[int, Value]:
        """Status and body of the reply."""
        properties: list[Value] = [f"request{self._request_id}", None, None, None, "answers", *[None] * 8]
        names: Value = {"operation": f"com.microsoft:{operation}", "com.microsoft:server-timeout": UInt(15_000)}
        request = section(PROPERTIES, properties) + section(APPLICATION_PROPERTIES, names) + section(VALUE, body)
        state = None if txn_id is None else in_transaction(txn_id)
        self.wire.transfer(1, 0, self._request_id, request, state, tag=b"", settled=True)
        self._request_id += 1
        (reply,) = self.wire.take("transfer")
        sections = decode_sections(reply.payload)
        assert isinstance(sections.body, ValueBody)
        status = (sections.application_properties or {})["statusCode"]
        assert isinstance(status, int)
        return status, sections.body.value


@pytest.mark.rule("A7.1")
@pytest.mark.parametrize("fails", [True, False])
def test_a_cancelled_message_is_scheduled_again_after_a_rollback(front: Front, fails: bool) -> None:
    client, due = Separate(front, "a/$management"), front.sim.now + 60_000
    annotations: Value = {Symbol("x-opt-scheduled-enqueue-time"): Timestamp(due), Symbol("x-opt-partition-key"): None}
    entry: Value = {"message": section(ANNOTATIONS, annotations) + section(DATA, b"later"), "message-id": None}
    assert client.ask("schedule-message", {"messages": [entry]})[0] == 200
    txn_id = client.declare()
    assert client.ask("cancel-scheduled-message", {"sequence-numbers": Array([Long(1)])}, txn_id)[0] == 200
    assert front.sim.entities.queue("a").main.counts().scheduled == 1
    assert condition_of(client.discharge(txn_id, fails=fails)) is None
    assert front.sim.entities.queue("a").main.counts().scheduled == (1 if fails else 0)


@pytest.mark.parametrize("fails", [True, False])
def test_a_session_state_and_deferred_messages_take_part_in_a_transaction_and_reading_them_does_not_wait(
    front: Front, fails: bool
) -> None:
    queue = front.sim.queue(QueueDescription("sessions", requires_session=True))
    front.sim.send(queue, make_message("m", session_id="s"))
    lock = front.sim.accept(queue.main, "s").value
    receiver = front.sim.receiver(queue.main, 1, session=lock)
    front.sim.settle(queue.main, receiver.take(), Defer())
    queue.main.release_session(lock, front.sim.now)
    client = Separate(front, "sessions/$management")
    client.hold_session("sessions", "s")
    txn_id, session = client.declare(), {"session-id": "s"}
    assert client.ask("set-session-state", {**session, "session-state": b"new"}, txn_id)[0] == 200
    assert client.ask("get-session-state", session, txn_id) == (200, {"session-state": None})
    assert client.ask("renew-session-lock", session, txn_id)[0] == 200
    assert client.ask("get-message-sessions", {}, txn_id)[0] == 204
    numbers: Value = {**session, "sequence-numbers": Array([Long(1)]), "receiver-settle-mode": UInt(0)}
    missing: Value = {**numbers, "sequence-numbers": Array([Long(2)])}
    assert client.ask("receive-by-sequence-number", missing, txn_id)[0] == 404
    code, answer = client.ask("receive-by-sequence-number", numbers, txn_id)
    assert code == 200
    (received,) = answer["messages"]
    assert "lock-token" not in received, "it is deleted, so there is nothing to settle"
    assert queue.main.counts().deferred == 1
    assert condition_of(client.discharge(txn_id, fails=fails)) is None
    assert client.ask("get-session-state", session)[1] == {"session-state": None if fails else b"new"}
    assert queue.main.counts().deferred == (1 if fails else 0)


@pytest.mark.rule("A7.8")
def test_an_operation_whose_home_is_gone_is_refused(front: Front) -> None:
    client = DotNet(front)
    client.sender("a")
    sender = client.sender("b")
    front.sim.entities.delete("a", front.sim.now, lambda _: None)
    front.sim.run()
    assert client.send(sender, message("out"), client.declare()) == "amqp:not-found"
