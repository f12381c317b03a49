"""Links and rights of a connection, over a real pair of AMQP connections."""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from tests.amqp.wire import frames_in
from tests.gateway.control_link import Control
from tests.gateway.front import LISTENS, ROOT, SENDS, STEP, Client, Front, payload, text_of
from tests.gateway.raw_wire import RawWire, source, target
from twinbus.amqp.codec.delivery_state import (
    ACCEPTED,
    RELEASED,
    DeliveryState,
    Modified,
    Received,
    Rejected,
    TransactionalState,
)
from twinbus.amqp.codec.encode import encode_descriptor, encode_value
from twinbus.amqp.codec.error_condition import ErrorCondition
from twinbus.amqp.codec.frames import EMPTY_FRAME
from twinbus.amqp.codec.performatives import Disposition, SenderSettleMode
from twinbus.amqp.codec.sections import DATA, HEADER, DataBody, Sections, encode_sections
from twinbus.amqp.codec.terminus import Source, Target
from twinbus.amqp.codec.types import Array, Encoded, Symbol, UInt, Value
from twinbus.amqp.connection import ConnectionSettings, State
from twinbus.amqp.errors import RESOURCE_LIMIT_EXCEEDED
from twinbus.amqp.events import ConnectionClosed, CreditChanged, Dispositions, LinkDetached
from twinbus.amqp.incoming_link import IncomingLink
from twinbus.errors import QuotaExceeded
from twinbus.gateway.authorization import CLOCK_SKEW
from twinbus.gateway.connection_gateway import (
    STRANGER_FRAMES_MAX,
    STRANGER_UNREAD_SIZE_MAX,
    TOKEN_WAIT,
    UNREAD_SIZE_MAX,
)
from twinbus.model import wire_names
from twinbus.model.descriptions import AuthorizationRule, QueueDescription, SubscriptionDescription, TopicDescription
from twinbus.model.message_limits import MESSAGE_SIZE_MAX
from twinbus.model.wire_names import TRANSFER_DESTINATION_ADDRESS
from twinbus.testing.faulty_store import Fault
from twinbus.testing.messages import make_message


@pytest.fixture
def front(tmp_path: Path) -> Front:
    front = Front(tmp_path)
    front.sim.queue(QueueDescription("orders"))
    front.sim.topic(TopicDescription("news"))
    return front


def conditions(client: Client) -> list[str]:
    return [event.error.condition for event in client.take(LinkDetached) if event.error is not None]


def hang(front: Front, is_hung: bool = True) -> None:
    front.sim.ports[0].is_hung = is_hung


def assert_drained_after_messages(front: Front, client: Client, receiver: IncomingLink, *texts: str) -> None:
    """The drain is not answered while the store hangs; then the messages come first."""
    credit = receiver.credit
    receiver.drain()
    client.run()
    assert receiver.credit == credit
    hang(front, False)
    client.run()
    assert [text_of(message.payload) for message in client.received()] == list(texts)
    assert receiver.credit == 0


@pytest.mark.parametrize("mode", [SenderSettleMode.UNSETTLED, SenderSettleMode.SETTLED])
def test_the_highest_credit_is_as_good_as_any_and_can_be_drained(front: Front, mode: SenderSettleMode) -> None:
    client = front.client()
    receiver = client.receiver("orders", credit=0xFFFF_FFFF, mode=mode)
    client.sender("orders").transfers([(b"1", payload("a")), (b"2", payload("b"))])
    client.run()
    assert [text_of(message.payload) for message in client.received()] == ["a", "b"]
    receiver.drain()
    client.run()
    assert [event.drain for event in client.take(CreditChanged) if event.link is receiver] == [True]


def test_messages_sent_together_are_accepted_with_one_disposition_once_they_are_durable(front: Front) -> None:
    client = front.client()
    sender = client.sender("orders")
    hang(front)
    sender.transfers([(b"%d" % number, payload(str(number))) for number in range(50)])
    client.run()
    assert client.take(Dispositions) == []
    hang(front, False)
    client.run()
    (answer,) = client.take(Dispositions)
    assert (len(answer.deliveries), answer.state, answer.settled) == (50, ACCEPTED, True)


def test_what_is_not_durable_is_not_accepted_with_what_others_sent_settled(tmp_path: Path) -> None:
    front = Front(tmp_path, store_count=2)
    slow, quick = (front.sim.queue(QueueDescription(name)) for name in ("slow", "quick"))
    assert slow.main.fragments[0].broker is not quick.main.fragments[0].broker
    client = front.client()
    to_slow, to_quick = client.sender("slow"), client.sender("quick")
    front.sim.ports[slow.main.fragments[0].broker.index].is_hung = True
    assert to_slow.transfer(payload("not durable"), b"0") == 0
    to_quick.transfer(payload("durable"), b"1")
    for tag in (b"2", b"3"):
        to_quick.transfer(payload("nobody waits for it"), tag, settled=True)
    client.run()
    (answer,) = client.take(Dispositions)
    assert (answer.link, answer.deliveries) == (to_quick, [(1, b"1")])


def test_what_is_sent_settled_counts_until_the_stores_have_it(front: Front) -> None:
    client = front.client()
    sender = client.sender("orders")
    hang(front, True)
    for number in range(90):
        sender.transfer(payload("x" * 200_000), b"%d" % number, settled=True)
    client.run()
    assert client.gateway.is_flooded
    hang(front, False)
    client.run()
    assert not client.gateway.is_flooded
    assert client.gateway.connection.inflow.size == 0


def test_refused_messages_that_were_sent_settled_do_not_count_any_more(front: Front) -> None:
    client = front.client()
    sender = client.sender("orders")
    for _ in range(5):
        sender.transfer(b"\x00" * 10, b"1", settled=True)
        sender.transfer(b"\x00" * 10, b"2", settled=True, state=TransactionalState(txn_id=b"unknown"))
    sender.transfer(payload("x" * 2_000_000), b"3", settled=True)
    client.run()
    assert client.gateway.connection.inflow.size == 0


@pytest.mark.parametrize("is_refused", [False, True])
@pytest.mark.parametrize("is_in_transaction", [False, True])
def test_what_is_sent_settled_and_taken_or_refused_at_once_leaves_what_still_waits(
    front: Front, is_refused: bool, is_in_transaction: bool
) -> None:
    client = front.client()
    control, sender = Control(client), client.sender("orders")
    state = TransactionalState(txn_id=control.declare()) if is_in_transaction else None
    hang(front, True)
    sender.transfer(payload("x" * 1_000), b"1", settled=True)
    client.run()
    waiting = client.gateway.connection.inflow.size
    assert waiting > 1_000
    sender.transfer(b"\x00" if is_refused else payload("a"), b"2", settled=True, state=state)
    client.run()
    is_with_the_store = not is_refused and not is_in_transaction
    assert (client.gateway.connection.inflow.size > waiting) is is_with_the_store
    assert client.gateway.connection.inflow.size > 0
    hang(front, False)
    client.run()
    assert client.gateway.connection.inflow.size == 0


def test_the_very_first_message_of_a_client_if_it_is_refused_leaves_what_still_waits(front: Front) -> None:
    client = front.client()
    hang(front, True)
    client.sender("orders").transfers([(b"1", b"\x00"), (b"2", payload("x"))])
    client.run()
    assert client.gateway.connection.inflow.count == 1


def test_a_message_over_the_limit_that_was_sent_settled_leaves_what_still_waits(front: Front) -> None:
    """It was never taken, so there is nothing of it to let go."""
    client = front.client()
    sender = client.sender("orders")
    hang(front, True)
    sender.transfer(payload("x" * 1_000), b"1", settled=True)
    client.run()
    waiting = client.gateway.connection.inflow.size
    assert waiting > 1_000
    sender.transfer(payload("x" * 2_000_000), b"2", settled=True)
    client.run()
    assert client.gateway.connection.inflow.size == waiting
    assert front.traffic.of("orders").refused == 1
    hang(front, False)
    client.run()
    assert client.gateway.connection.inflow.size == 0


def test_whoever_has_much_waiting_is_not_read_from_while_a_store_is_behind(front: Front) -> None:
    is_behind = False
    front.view = replace(front.view, must_wait=lambda inflow, _, __: is_behind and inflow > 256 * 1024)
    greedy, modest = front.client(), front.client()
    senders = [client.sender("orders") for client in (greedy, modest)]
    hang(front, True)
    senders[0].transfers([(b"1", payload("x" * 200_000)), (b"2", payload("x" * 200_000))])
    senders[1].transfer(payload("x"), b"1")
    for client in (greedy, modest):
        client.run()
        assert not client.gateway.is_flooded
    is_behind = True
    assert (greedy.gateway.is_flooded, modest.gateway.is_flooded) == (True, False)
    hang(front, False)
    greedy.run()
    assert not greedy.gateway.is_flooded


@pytest.mark.parametrize(
    "operation",
    [
        wire_names.PEEK_MESSAGE,
        wire_names.PEEK_MERGED,
        wire_names.PEEK_RANGE,
        wire_names.PREVIEW_REPAIR,
        wire_names.RECEIVE_BY_SEQUENCE_NUMBER,
        wire_names.GET_SESSION_STATE,
    ],
)
def test_a_connection_whose_requests_for_messages_wait_is_not_read_from(front: Front, operation: str) -> None:
    """Each is small and its answer is not: whoever reads none of the answers could ask for all of them."""
    client = front.client()
    client.hold()
    node = client.node("orders/$management")
    client.gateway.pause()
    node.send(operation, {})
    assert node.answers() == []
    assert client.gateway.is_flooded
    client.gateway.resume(front.sim.now)
    client.run()
    assert len(node.answers()) == 1
    assert not client.gateway.is_flooded


def test_a_request_that_brings_no_messages_does_not_wait_for_the_client_to_read(front: Front) -> None:
    client = front.client()
    node = client.node("orders/$management")
    client.gateway.pause()
    node.send("com.microsoft:no-such-operation", {})
    assert len(node.answers()) == 1
    assert not client.gateway.is_flooded


def test_whoever_sends_much_is_not_read_from_while_a_store_falls_behind(front: Front) -> None:
    is_pressed = False
    heard_of: list[Callable[[], None]] = []
    light: list[bool] = []
    front.view = replace(
        front.view,
        must_wait=lambda _, is_heavy, __: is_pressed and is_heavy,
        heard_of=heard_of.append,
        light_sent=lambda: light.append(True),
    )
    greedy, modest = front.client(), front.client()
    senders = [client.sender("orders") for client in (greedy, modest)]
    for number in range(6):
        senders[0].transfer(payload("x" * 200_000), bytes([number]))
        senders[1].transfer(payload("x" * 20_000), bytes([number]))
    for client in (greedy, modest):
        client.run()
        assert not client.gateway.is_flooded
    light.clear()
    heard_of.clear()
    senders[0].transfer(payload("x"), b"heavy")
    greedy.run()
    assert not light
    assert heard_of
    heard_of.clear()
    senders[1].transfer(payload("x"), b"light")
    modest.run()
    assert light
    assert not heard_of
    is_pressed = True
    assert (greedy.gateway.is_flooded, modest.gateway.is_flooded) == (True, False)
    is_pressed = False
    assert not greedy.gateway.is_flooded


def test_a_message_is_delivered_and_its_settlement_confirmed_with_the_same_outcome(front: Front) -> None:
    client = front.client()
    client.sender("orders").transfer(payload("a"), b"1")
    receiver = client.receiver("orders", credit=1)
    outcomes: list[tuple[DeliveryState, DeliveryState]] = [
        (Modified(delivery_failed=True), Modified(delivery_failed=True)),
        (Rejected(error=ErrorCondition(condition="com.microsoft:dead-letter")), Rejected()),
    ]
    for state, confirmed in outcomes:
        (message,) = client.received()
        assert text_of(message.payload) == "a"
        client.take(Dispositions)
        receiver.update(message.delivery_id, message.delivery_id, state)
        client.run()
        (answer,) = client.take(Dispositions)
        assert (answer.state, answer.settled) == (confirmed, True)
        receiver.grant(1)
        client.run()


def test_any_value_that_amqp_has_can_be_a_property_to_modify(front: Front) -> None:
    client = front.client()
    receiver, message = client.hold()
    not_a_number = b"\x82\x7f\xf8" + bytes(6)
    array = Encoded(b"\xe0\x0e\x02\x00" + not_a_number + b"\x50\x01\x02")
    state = Modified(delivery_failed=True, message_annotations={Symbol("note"): array})
    receiver.update(message.delivery_id, message.delivery_id, state, (message.delivery_tag,))
    client.run()
    (answer,) = client.take(Dispositions)
    assert isinstance(answer.state, Modified)


def test_a_settlement_whose_lock_is_lost_is_rejected_with_the_reason(front: Front) -> None:
    client = front.client()
    receiver, message = client.hold()
    client.advance(61_000)
    receiver.update(message.delivery_id, message.delivery_id, ACCEPTED)
    client.run()
    (answer,) = client.take(Dispositions)
    assert isinstance(answer.state, Rejected)
    assert answer.state.error is not None
    assert answer.state.error.condition == "com.microsoft:message-lock-lost"


def test_of_messages_settled_together_only_those_whose_lock_is_lost_are_rejected(front: Front) -> None:
    client = front.client()
    client.sender("orders").transfers([(b"%d" % number, payload("a")) for number in range(3)])
    receiver = client.receiver("orders", credit=3)
    first, middle, last = client.received()
    token = UUID(bytes_le=middle.delivery_tag)
    settled = {"disposition-status": "completed", "lock-tokens": Array([token])}
    client.node("orders/$management").ask("com.microsoft:update-disposition", settled)
    receiver.update(first.delivery_id, last.delivery_id, ACCEPTED)
    client.gateway.receive(client.connection.data_to_send(), front.sim.now)
    front.sim.run()
    # As it is on the wire: our client takes no second answer for what was answered before.
    told = [said for _, said, _ in frames_in(client.gateway.data_to_send()) if isinstance(said, Disposition)]
    assert sorted((said.first, said.last or said.first, isinstance(said.state, Rejected)) for said in told) == [
        (first.delivery_id, first.delivery_id, False),
        (middle.delivery_id, middle.delivery_id, True),
        (last.delivery_id, last.delivery_id, False),
    ]


@pytest.mark.parametrize("state", [None, Received(section_number=0, section_offset=0)])
def test_a_state_that_decides_nothing_leaves_the_message_with_its_receiver(
    front: Front, state: DeliveryState | None
) -> None:
    client = front.client()
    receiver, message = client.hold()
    receiver.update(message.delivery_id, message.delivery_id, state)
    client.run()
    client.receiver("orders", credit=1)
    assert (client.take(Dispositions), client.received()) == ([], [])
    receiver.update(message.delivery_id, message.delivery_id, ACCEPTED)
    client.run()
    (answer,) = client.take(Dispositions)
    assert answer.state == ACCEPTED


def test_a_released_message_comes_again_with_the_same_count_and_without_an_answer(front: Front) -> None:
    client = front.client()
    receiver, first = client.hold(credit=2)
    receiver.settle(first.delivery_id, first.delivery_id, RELEASED)
    client.run()
    (second,) = client.received()
    assert client.take(Dispositions) == []
    assert second.payload[:20] == first.payload[:20]  # the header with the delivery count


def test_receive_and_delete_delivers_settled_with_an_empty_tag(front: Front) -> None:
    client = front.client()
    client.sender("orders").transfer(payload("a"), b"1")
    client.receiver("orders", credit=5, mode=SenderSettleMode.SETTLED)
    (message,) = client.received()
    assert (message.settled, message.delivery_tag) == (True, b"")


def test_credit_is_not_passed_while_messages_are_being_deleted(front: Front) -> None:
    client = front.client()
    sender = client.sender("orders")
    sender.transfers([(b"%d" % number, payload(str(number))) for number in range(10)])
    receiver = client.receiver("orders", mode=SenderSettleMode.SETTLED)
    hang(front)
    for _ in range(3):  # the same credit, sent again and again as the Python SDK does
        receiver.grant(2)
        client.run()
    hang(front, False)
    client.run()
    assert len(client.received()) == 2


def test_while_the_window_of_a_session_is_shut_its_receivers_leave_messages_to_others(front: Front) -> None:
    """Whatever they took would wait in memory for a client that does not read."""
    wire, others = RawWire(front), front.client()
    wire.put_token("orders")
    wire.say(1, "begin", None, UInt(0), UInt(1), UInt(5_000))
    wire.say(1, "attach", "in", UInt(0), True, None, None, source("orders"), target("me"), *[None] * 7)

    def window(next_incoming_id: int, room: int) -> None:
        frames = [UInt(next_incoming_id), UInt(room), UInt(0), UInt(5_000)]
        wire.say(1, "flow", *frames, UInt(0), UInt(0), UInt(10), None, False, None)

    def texts() -> list[str]:
        wire.run()
        return [text_of(each.payload) for each in wire.take("transfer")]

    window(0, 1)
    sender = others.sender("orders")
    sender.transfers([(b"1", payload("seen")), (b"2", payload("held back"))])
    others.run()
    assert texts() == ["seen"]
    sender.transfer(payload("for another"), b"3")
    others.receiver("orders", credit=1)
    assert [text_of(each.payload) for each in others.received()] == ["for another"]
    sender.transfer(payload("later"), b"4")
    others.run()
    window(1, 10)
    assert texts() == ["held back", "later"]


@pytest.mark.parametrize("texts", ["a", "ab"])
def test_a_drain_is_answered_after_messages_under_way(front: Front, texts: str) -> None:
    client = front.client()
    client.sender("orders").transfers([(text.encode(), payload(text)) for text in texts])
    receiver = client.receiver("orders", mode=SenderSettleMode.SETTLED)
    hang(front)
    receiver.grant(10)
    assert_drained_after_messages(front, client, receiver, *texts)


@pytest.mark.parametrize(("credit", "texts"), [(1, "a"), (10, "ab")])
def test_a_drain_is_answered_after_messages_that_are_being_read(front: Front, credit: int, texts: str) -> None:
    client = front.client()
    client.sender("orders").transfers([(b"1", payload("a")), (b"2", payload("b"))])
    client.run()
    front.sim.lose_store(0)
    front.sim.return_store(0)
    hang(front)
    receiver = client.receiver("orders", credit=credit)
    assert_drained_after_messages(front, client, receiver, *texts)


def test_a_drain_without_credit_is_answered_at_once_even_if_others_wait_for_a_store(front: Front) -> None:
    """The JavaScript SDK closes a link that makes it wait."""
    client = front.client()
    client.sender("orders").transfer(payload("a"), b"1")
    client.run()
    front.sim.lose_store(0)
    front.sim.return_store(0)
    hang(front)
    client.receiver("orders", credit=1)
    receiver = client.receiver("orders")
    client.take(CreditChanged)
    receiver.drain()
    client.run()
    assert [event.link for event in client.take(CreditChanged)] == [receiver]


def test_a_link_gets_nothing_after_its_drain_until_it_gives_credit_again(front: Front) -> None:
    client = front.client()
    receiver = client.receiver("orders", credit=10)
    receiver.drain()
    client.run()
    client.sender("orders").transfer(payload("a"), b"1")
    client.run()
    assert client.received() == []
    receiver.grant(1)
    client.run()
    assert len(client.received()) == 1


def test_a_client_that_gives_credit_again_instead_of_waiting_for_its_drain_keeps_it(front: Front) -> None:
    client = front.client()
    sender = client.sender("orders")
    sender.transfer(payload("a"), b"1")
    receiver = client.receiver("orders", mode=SenderSettleMode.SETTLED)
    hang(front)
    receiver.grant(10)
    client.run()
    receiver.drain()
    client.run()
    receiver.grant(10)
    client.run()
    hang(front, False)
    client.run()
    sender.transfer(payload("b"), b"2")
    client.run()
    assert [text_of(message.payload) for message in client.received()] == ["a", "b"]


def test_a_drain_does_not_wait_for_a_store_that_hangs(front: Front) -> None:
    client = front.client()
    client.sender("orders").transfer(payload("a"), b"1")
    client.run()
    front.sim.lose_store(0)
    front.sim.return_store(0)
    hang(front)
    receiver = client.receiver("orders", credit=10)
    receiver.drain()
    client.run()
    assert receiver.credit == 10
    client.advance(250)
    assert receiver.credit == 0


def test_a_drain_is_answered_after_the_settlements_before_it(front: Front) -> None:
    client = front.client()
    receiver, message = client.hold(credit=10)
    hang(front)
    receiver.update(message.delivery_id, message.delivery_id, ACCEPTED)
    receiver.drain()
    client.run()
    assert (client.take(Dispositions), receiver.credit) == ([], 9)
    hang(front, False)
    client.run()
    assert (len(client.take(Dispositions)), receiver.credit) == (1, 0)


def test_a_detach_is_answered_after_the_settlements_before_it(front: Front) -> None:
    client = front.client()
    receiver, message = client.hold(credit=10)
    hang(front)
    receiver.update(message.delivery_id, message.delivery_id, ACCEPTED)
    receiver.detach()
    client.run()
    assert client.take(LinkDetached) == []
    hang(front, False)
    client.run()
    assert len(client.take(LinkDetached)) == 1


def test_a_drain_of_an_empty_queue_is_answered_at_once(front: Front) -> None:
    client = front.client()
    receiver = client.receiver("orders", credit=10)
    receiver.drain()
    client.run()
    assert receiver.credit == 0


def test_nothing_is_handed_over_while_the_transport_is_full(front: Front) -> None:
    client = front.client()
    receiver = client.receiver("orders", credit=10)
    client.gateway.pause()
    client.sender("orders").transfer(payload("a"), b"1")
    receiver.grant(10)
    client.run()
    assert client.received() == []
    client.gateway.resume(front.sim.now)
    client.run()
    assert len(client.received()) == 1


def test_a_message_over_the_limit_is_rejected_and_the_link_goes_on(front: Front) -> None:
    client = front.client()
    sender = client.sender("orders")
    sender.transfer(payload("a" * MESSAGE_SIZE_MAX), b"1")
    sender.transfer(payload("b"), b"2")
    client.run()
    too_large, fine = client.take(Dispositions)
    assert isinstance(too_large.state, Rejected)
    assert too_large.state.error is not None
    assert too_large.state.error.condition == "amqp:link:message-size-exceeded"
    assert fine.state == ACCEPTED


@pytest.mark.parametrize(
    "wrong",
    [
        b"\x00" + encode_value(bytes(60_000)) + b"\x40",
        encode_descriptor(HEADER) + encode_value([bytes(20_000)]),
    ],
)
def test_the_rejection_of_a_message_fits_into_a_frame_whatever_is_wrong_with_it(front: Front, wrong: bytes) -> None:
    client = front.client()
    client.sender("orders").transfer(wrong + encode_descriptor(DATA) + encode_value(b"body"), b"1")
    client.run()
    (answer,) = client.take(Dispositions)
    assert isinstance(answer.state, Rejected)
    assert not client.take(ConnectionClosed)


def test_what_is_not_a_message_is_rejected_alone(front: Front) -> None:
    client = front.client()
    client.sender("orders").transfers([(b"1", b"\x00\x53"), (b"2", payload("b"))])
    client.run()
    states = {type(answer.state) for answer in client.take(Dispositions)}
    assert states == {Rejected, type(ACCEPTED)}
    assert (front.traffic.of("orders").refused, front.traffic.of("orders").messages_in) == (1, 1)


def test_traffic_is_counted_by_messages_and_bytes_each_way(front: Front) -> None:
    client = front.client()
    sent = [payload("a"), payload("b" * 1_000)]
    client.sender("orders").transfers([(b"%d" % number, each) for number, each in enumerate(sent)])
    client.run()
    traffic = front.traffic.of("ORDERS")
    assert (traffic.messages_in, traffic.bytes_in, traffic.refused) == (2, sum(map(len, sent)), 0)
    assert (traffic.messages_out, traffic.bytes_out) == (0, 0)
    receiver = client.receiver("orders", credit=1)
    (first,) = client.received()
    assert (traffic.messages_out, traffic.bytes_out) == (1, len(first.payload))
    receiver.grant(1)
    client.run()
    (second,) = client.received()
    assert (traffic.messages_out, traffic.bytes_out) == (2, len(first.payload) + len(second.payload))
    assert traffic.settled == 0
    receiver.settle(first.delivery_id, second.delivery_id, ACCEPTED)
    client.run()
    assert traffic.settled == 2


def test_tokens_are_counted_by_whether_they_were_accepted(front: Front) -> None:
    node = front.client(None).node("$cbs")
    node.ask("put-token", front.token("orders"), name="sb://host/orders")
    for _ in range(2):
        node.ask("put-token", "SharedAccessSignature sr=x", name="sb://host/orders")
    assert (front.traffic.tokens_accepted, front.traffic.tokens_refused) == (1, 2)


def test_a_batch_is_taken_whole(front: Front) -> None:
    client = front.client()
    batch = encode_sections(Sections(body=DataBody([payload("a"), payload("b")])))
    client.sender("orders").transfer(batch, b"1", message_format=0x80013700)
    client.receiver("orders", credit=5)
    assert [text_of(message.payload) for message in client.received()] == ["a", "b"]
    assert front.traffic.of("orders").messages_in == 2


@pytest.mark.parametrize(
    "address", ["news/Subscriptions/all", "orders/$DeadLetterQueue", "orders/$Transfer/$DeadLetterQueue"]
)
def test_messages_are_not_sent_to_what_only_gives_them(front: Front, address: str) -> None:
    front.sim.subscription(SubscriptionDescription("news", "all"))
    client = front.client()
    client.sender(address)
    client.sender("orders", {Symbol(TRANSFER_DESTINATION_ADDRESS): address})
    assert conditions(client) == ["amqp:not-allowed"] * 2
    assert client.sender("orders").is_attached


@pytest.mark.parametrize("node", ["$cbs", "orders/$management", None])
def test_each_request_counts_as_a_frame_however_many_come_together(front: Front, node: str | None) -> None:
    """A read may have thousands of small ones, and each is more work than a message."""
    client = front.client()
    requests = Control(client).link if node is None else client.sender(node)
    sender = client.sender("orders")
    before = client.gateway.connection.frame_count
    for link, count in ((sender, 0), (requests, 20)):
        for number in range(20):
            link.transfer(payload("no request"), b"%d" % number, settled=True)
        client.run()
        assert client.gateway.connection.frame_count - before == count


def test_an_empty_batch_is_accepted_and_counts_no_message(front: Front) -> None:
    client = front.client()
    client.sender("orders").transfer(b"", b"1", message_format=0x80013700)
    client.run()
    (answer,) = client.take(Dispositions)
    assert (answer.state, front.traffic.of("orders").messages_in) == (ACCEPTED, 0)


def test_messages_and_batches_of_one_read_are_all_taken_in_order(front: Front) -> None:
    client = front.client()
    sender = client.sender("orders")
    batch = encode_sections(Sections(body=DataBody([payload("b"), payload("c")])))
    sender.transfer(payload("a"), b"1")
    sender.transfer(batch, b"2", message_format=0x80013700)
    sender.transfer(payload("d"), b"3")
    client.run()
    answers = client.take(Dispositions)
    assert {answer.state for answer in answers} == {ACCEPTED}
    assert sorted(id_ for answer in answers for id_, _ in answer.deliveries) == [0, 1, 2]
    client.receiver("orders", credit=9)
    assert [text_of(message.payload) for message in client.received()] == list("abcd")


def test_a_send_that_the_store_refuses_is_answered_at_once(front: Front) -> None:
    client = front.client()
    sender = client.sender("orders")
    front.sim.ports[0].next_fault = Fault.REFUSE
    sender.transfer(payload("a"), b"1")
    client.run()
    (answer,) = client.take(Dispositions)
    assert isinstance(answer.state, Rejected)


@pytest.mark.rule("A17.4")
@pytest.mark.parametrize(
    ("rule", "condition"),
    [(LISTENS, "amqp:unauthorized-access"), (None, "amqp:unauthorized-access"), (SENDS, None), (ROOT, None)],
)
def test_sending_needs_the_send_claim(front: Front, rule: AuthorizationRule | None, condition: str | None) -> None:
    client = front.client(rule)
    client.sender("orders")
    assert conditions(client) == ([condition] if condition else [])


@pytest.mark.rule("A17.4")
@pytest.mark.parametrize(("rule", "is_allowed"), [(LISTENS, True), (SENDS, False), (None, False)])
def test_receiving_needs_the_listen_claim(front: Front, rule: AuthorizationRule | None, is_allowed: bool) -> None:
    client = front.client(rule)
    client.receiver("orders")
    assert (conditions(client) == []) is is_allowed


def test_a_refused_link_has_neither_source_nor_target(front: Front) -> None:
    client = front.client()
    link = client.sender("missing")
    assert conditions(client) == ["amqp:not-found"]
    assert (link.source, link.target) == (None, None)


def test_a_topic_gives_no_messages(front: Front) -> None:
    client = front.client()
    client.receiver("news")
    assert conditions(client) == ["amqp:not-allowed"]


def test_a_wrong_password_ends_the_connection_before_it_opens(front: Front) -> None:
    client = front.client(AuthorizationRule("Root", "wrong", "", frozenset()))
    assert client.connection.should_disconnect


def test_a_connection_without_a_token_is_closed(front: Front) -> None:
    client = front.client(None)
    client.advance(TOKEN_WAIT - 1)
    assert client.take(ConnectionClosed) == []
    client.advance(1)
    (closed,) = client.take(ConnectionClosed)
    assert closed.error is not None
    assert closed.error.condition == "amqp:unauthorized-access"


def test_a_link_is_detached_when_its_token_runs_out_unless_it_was_renewed(front: Front) -> None:
    front.sim.queue(QueueDescription("invoices"))
    client = front.client(None)
    cbs = client.node("$cbs")
    for path in ("orders", "invoices"):
        cbs.ask("put-token", front.token(path, lifetime=60_000), name=f"sb://host/{path}")
        client.sender(path)
    client.advance(50_000)
    cbs.ask("put-token", front.token("orders"), name="sb://host/orders")
    client.advance(10_000 + CLOCK_SKEW)
    assert conditions(client) == ["com.microsoft:auth-failed"]
    client.sender("orders")
    assert conditions(client) == []


def test_a_lost_connection_leaves_locks_and_takes_no_more_messages(front: Front) -> None:
    one, two = front.client(), front.client()
    one.sender("orders").transfer(payload("a"), b"1")
    one.receiver("orders", credit=5)
    one.gateway.lost(front.sim.now)
    two.receiver("orders", credit=5)
    assert two.received() == []
    two.advance(61_000)
    assert len(two.received()) == 1


def fall_silent(client: Client) -> None:
    """Until its connection is closed for that. It does not answer, so the connection is not gone yet."""
    for _ in range(8):
        client.front.sim.advance(STEP)
        client.gateway.tick(client.front.sim.now)
    assert client.gateway.connection.state is State.CLOSING


def shut_down(client: Client) -> None:
    client.gateway.shut_down(client.front.sim.now)


@pytest.mark.parametrize("end", [fall_silent, shut_down])
@pytest.mark.parametrize("mode", [SenderSettleMode.UNSETTLED, SenderSettleMode.SETTLED])
def test_a_connection_that_this_side_ends_takes_no_more_messages_though_its_client_does_not_answer(
    front: Front, end: Callable[[Client], None], mode: SenderSettleMode
) -> None:
    one = front.client()
    one.receiver("orders", credit=5, mode=mode)
    end(one)
    two = front.client()
    two.sender("orders").transfer(payload("a"), b"1")
    two.receiver("orders", credit=5)
    assert [text_of(message.payload) for message in two.received()] == ["a"]


@pytest.mark.parametrize("end", [fall_silent, shut_down])
def test_a_message_session_is_free_when_this_side_ends_the_connection_that_held_it(
    front: Front, end: Callable[[Client], None]
) -> None:
    front.sim.queue(QueueDescription("work", requires_session=True, lock_duration=300_000))
    front.sim.send(front.sim.entities.queue("work"), make_message("m", session_id="s"))
    one = front.client()
    any_session: dict[Value, Value] = {Symbol("com.microsoft:session-filter"): None}
    one.receiver("work", credit=1, session_filter=any_session)
    (held,) = one.received()
    end(one)
    two = front.client()
    two.receiver("work", credit=1, session_filter=any_session)
    (message,) = two.received()
    assert text_of(message.payload) == text_of(held.payload)


def test_a_transaction_is_rolled_back_when_this_side_ends_its_connection(front: Front) -> None:
    client = front.client()
    txn_id = Control(client).declare()
    receiver, message = client.hold()
    receiver.update(message.delivery_id, message.delivery_id, TransactionalState(txn_id=txn_id, outcome=ACCEPTED))
    client.run()
    locks = front.sim.entities.queue("orders").main.fragments[0].locks
    assert len(locks.enlisted) == 1
    shut_down(client)
    assert locks.enlisted == set()


def test_very_many_links_that_wait_for_a_message_session_end_together_and_hold_nobody_up(front: Front) -> None:
    client = front.client()
    session = client.begin()
    for name in ("first", "second"):
        front.sim.queue(QueueDescription(name, requires_session=True))
        for number in range(4_900):
            filters = {Symbol("com.microsoft:session-filter"): None}
            session.attach(
                f"{name}-{number}", is_sender=False, source=Source(address=name, filter=filters), target=Target()
            )
    client.run()
    before = time.thread_time()
    client.gateway.lost(front.sim.now)
    assert time.thread_time() - before < 1
    assert front.sim.entities.queue("first").main.receiver_count == 0


def test_a_connection_over_the_limit_is_opened_and_closed_with_the_reason(front: Front) -> None:
    client = front.client(refusal=QuotaExceeded("too many"))
    (closed,) = client.take(ConnectionClosed)
    assert closed.error is not None
    assert closed.error.condition == "amqp:resource-limit-exceeded"


def test_messages_sent_settled_are_taken_without_an_answer(front: Front) -> None:
    client = front.client()
    client.sender("orders").transfers([(b"1", payload("a")), (b"2", payload("b"))], settled=True)
    client.run()
    assert client.take(Dispositions) == []
    assert front.sim.entities.queue("orders").main.counts().active == 2


def closed_with(client: Client) -> str | None:
    events = client.take(ConnectionClosed)
    return events[0].error.condition if events and events[0].error is not None else None


def test_a_connection_without_a_token_may_send_a_few_frames_only(front: Front) -> None:
    client = front.client(None)
    left = STRANGER_FRAMES_MAX - client.gateway.connection.frame_count
    client.gateway.receive(EMPTY_FRAME * left, front.sim.now)
    client.run()
    assert closed_with(client) is None
    client.gateway.receive(EMPTY_FRAME, front.sim.now)
    client.run()
    assert closed_with(client) == RESOURCE_LIMIT_EXCEEDED


def test_a_connection_without_a_token_may_send_a_few_bytes_only(front: Front) -> None:
    client = front.client(None)
    # An extended header of a kilobyte before an empty body: it says nothing, whatever its size.
    nothing = b"\x00\x00\x03\xfc\xff\x00\x00\x00" + bytes(1_012)
    client.gateway.receive(nothing * 500, front.sim.now)
    client.run()
    assert closed_with(client) is None
    client.gateway.receive(nothing * 550, front.sim.now)
    client.run()
    assert closed_with(client) == RESOURCE_LIMIT_EXCEEDED


def test_a_connection_with_a_key_may_send_as_much_as_it_likes(front: Front) -> None:
    client = front.client()
    for _ in range(20):
        client.gateway.receive(EMPTY_FRAME * STRANGER_FRAMES_MAX, front.sim.now)
        client.run()
    assert not client.gateway.is_stranger
    assert closed_with(client) is None


def test_a_link_that_attaches_while_the_transport_is_full_waits_too(front: Front) -> None:
    client = front.client()
    client.sender("orders").transfer(payload("a"), b"1")
    client.run()
    client.gateway.pause()
    client.receiver("orders", credit=10)
    assert client.received() == []
    client.gateway.resume(front.sim.now)
    client.run()
    assert len(client.received()) == 1


def test_a_link_that_attaches_when_the_transport_has_room_again_is_served_at_once(front: Front) -> None:
    client = front.client()
    client.sender("orders").transfer(payload("a"), b"1")
    client.gateway.pause()
    client.gateway.resume(front.sim.now)
    client.receiver("orders", credit=10)
    assert len(client.received()) == 1


def test_a_server_that_stops_closes_its_connections_and_says_that_they_may_come_back(front: Front) -> None:
    client = front.client()
    assert not client.gateway.is_closed
    shut_down(client)
    client.run()
    assert closed_with(client) == "amqp:connection:forced"
    assert client.gateway.is_closed


def test_what_is_beyond_the_share_of_a_read_waits_for_its_turn(front: Front) -> None:
    client = front.client()
    gateway, now = client.gateway, front.sim.now
    assert not gateway.is_behind
    gateway.receive(EMPTY_FRAME * 1_000, now, share=1)
    assert gateway.is_behind
    gateway.receive(b"", now)
    assert not gateway.is_behind


def test_whoever_has_no_valid_token_may_leave_less_unread(front: Front) -> None:
    client = front.client(None)
    assert client.gateway.unread_size_max == STRANGER_UNREAD_SIZE_MAX
    client.node("$cbs").ask("put-token", front.token("orders"), name="sb://host/orders")
    assert client.gateway.unread_size_max == UNREAD_SIZE_MAX > STRANGER_UNREAD_SIZE_MAX


@pytest.mark.parametrize("is_settled", [False, True])
def test_a_message_whose_frames_could_not_wait_that_long_is_refused_for_now(front: Front, is_settled: bool) -> None:
    """Not as one that is too large: its sender would give it up."""
    settings = ConnectionSettings(container_id="net")
    wire = RawWire(front, settings)
    wire.put_token("orders")
    wire.say(1, "begin", None, UInt(0), UInt(5_000), UInt(5_000))
    wire.say(1, "attach", "out", UInt(0), False, None, None, source("me"), target("orders"), None, None, UInt(0))

    def part(*, more: bool) -> None:
        fields: list[Value] = [UInt(0), UInt(0), b"t", UInt(0), is_settled, more]
        wire.say(1, "transfer", *fields, payload=bytes(1_000))

    part(more=True)
    for _ in range(3):
        wire.gateway.tick(front.sim.now)
        front.sim.advance(settings.incomplete_timeout)
    wire.take()
    part(more=False)
    refusals = str(wire.take("disposition"))
    assert front.traffic.of("orders").refused == 1
    assert ("com.microsoft:server-busy" in refusals) is not is_settled


@pytest.mark.parametrize("node", ["$cbs", "orders/$management"])
def test_what_is_no_request_is_rejected_and_the_next_one_answered(front: Front, node: str) -> None:
    client = front.client()
    requests = client.node(node).requests
    requests.transfer(b"\x00" * 10, b"1")
    client.run()
    (answer,) = client.take(Dispositions)
    assert isinstance(answer.state, Rejected)
    assert answer.state.error is not None
    assert answer.state.error.condition == "amqp:decode-error"
    assert client.node("orders/$management").ask("com.microsoft:peek-message", {}).application_properties
