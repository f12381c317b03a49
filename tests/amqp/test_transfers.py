"""Messages in both directions: grouping, several frames, limits, settled or not."""

import weakref
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.amqp.wire import NOON, Script, Wire
from twinbus.amqp.codec.composites import encode_composite
from twinbus.amqp.codec.delivery_state import ACCEPTED, Rejected, TransactionalState
from twinbus.amqp.codec.frames import encode_frame
from twinbus.amqp.codec.performatives import SENDER, Detach, Transfer
from twinbus.amqp.codec.transfer_writer import FrontedPayload
from twinbus.amqp.codec.types import UInt
from twinbus.amqp.connection_context import PIECE_SIZE_MIN, Outbox
from twinbus.amqp.events import (
    Deliveries,
    Dispositions,
    Incoming,
    LinkDetached,
    OversizeDelivery,
)
from twinbus.amqp.reassembly import PartialDelivery, ReassemblyBudget, SharedReassembly
from twinbus.errors import MessageTooLarge

FRAME = 512


def received(deliveries: list[Deliveries]) -> list[Incoming]:
    return [delivery for event in deliveries for delivery in event.deliveries]


def started(**server: int) -> Script:
    script = Script(**server).open()
    script.begin()
    return script


def transfer(delivery_id: int, handle: int = 0, settled: bool = False) -> Transfer:
    tag = b"tag-%d" % delivery_id
    return Transfer(handle=handle, delivery_id=delivery_id, delivery_tag=tag, message_format=0, settled=settled)


def test_transfers_of_one_read_come_as_one_event() -> None:
    script = started()
    link = script.sender()
    script.say(*[transfer(number) for number in range(20)], payload=b"payload")
    event = script.end.only(Deliveries)
    assert event.link is link
    assert event.deliveries == [
        Incoming(number, b"tag-%d" % number, b"payload", 0, False, None) for number in range(20)
    ]


def test_what_comes_between_transfers_stays_between_them() -> None:
    script = started()
    first, second = script.sender(0), script.sender(1)
    script.say(transfer(0), transfer(1), transfer(2, handle=1), transfer(3), Detach(handle=1, closed=True))
    kinds = [(type(event), getattr(event, "link", None)) for event in script.end.events]
    assert kinds == [(Deliveries, first), (Deliveries, second), (Deliveries, first), (LinkDetached, second)]


def test_transfers_pipelined_behind_an_attach_are_reported() -> None:
    script = started()
    link = script.attach(role=SENDER)
    script.say(transfer(0))
    assert script.end.only(Deliveries).link is link


def test_format_settled_and_state_are_passed_on() -> None:
    wire = Wire().open()
    session, _ = wire.session()
    sender, _ = wire.client_sender(session)
    state = TransactionalState(txn_id=b"txn")
    sender.transfer(b"batch", b"tag", settled=True, message_format=0x80013700)
    sender.transfer(b"in transaction", b"tag", state=state)
    wire.run()
    assert received(wire.server.take(Deliveries)) == [
        Incoming(0, b"tag", b"batch", 0x80013700, True, None),
        Incoming(1, b"tag", b"in transaction", 0, False, state),
    ]


def test_the_first_frame_of_a_transfer_says_format_zero() -> None:
    script = started()
    link = script.receiver()
    link.transfer(b"one", b"tag")
    link.transfers([(b"tag", b"two")])
    link.transfer(bytes(200_000), b"", settled=True)
    for performative in script.heard():
        assert isinstance(performative, Transfer)
        assert performative.message_format == 0


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.binary(max_size=32), st.integers(0, 3 * FRAME)), min_size=1, max_size=6),
    st.booleans(),
    st.sampled_from([None, TransactionalState(txn_id=b"txn")]),
    st.sampled_from([1, 100, 1 << 20]),
)
def test_messages_of_any_size_arrive_whole_through_small_frames(
    messages: list[tuple[bytes, int]], settled: bool, state: TransactionalState | None, chunk_size: int
) -> None:
    wire = Wire(client={"frame_size_max": FRAME}, server={"frame_size_max": FRAME}).open()
    session, _ = wire.session()
    sender, _ = wire.client_sender(session)
    wire.chunk_size = chunk_size
    sent = [(tag, bytes(number % 251 for number in range(size))) for tag, size in messages]
    if state is None:
        sender.transfers(sent, settled)
    else:
        for tag, payload in sent:
            sender.transfer(payload, tag, settled, state=state)
    wire.run()
    assert received(wire.server.take(Deliveries)) == [
        Incoming(number, tag, payload, 0, settled, state) for number, (tag, payload) in enumerate(sent)
    ]
    assert not wire.client.connection.should_disconnect


@pytest.mark.parametrize("size", range(FRAME - 60, FRAME + 4))
def test_frames_are_filled_up_to_the_peers_limit_and_not_beyond(size: int) -> None:
    script = Script().open(max_frame_size=FRAME)
    script.begin()
    link = script.receiver()
    link.transfers([(b"0123456789abcdef", bytes(size))])
    data = script.raw()
    pos, sizes = 0, []
    while pos < len(data):
        sizes.append(int.from_bytes(data[pos : pos + 4]))
        pos += sizes[-1]
    assert max(sizes) <= FRAME
    assert len(sizes) == (1 if size <= FRAME - 46 else 2)


def test_continuation_frames_omit_delivery_id_and_tag() -> None:
    script = Script().open(max_frame_size=FRAME)
    script.begin()
    link = script.receiver()
    link.transfer(bytes(3 * FRAME), b"tag")
    first, *middle, last = [p for p in script.heard() if isinstance(p, Transfer)]
    assert (first.delivery_id, first.delivery_tag, first.more) == (0, b"tag", True)
    assert middle
    for continuation in [*middle, last]:
        assert (continuation.delivery_id, continuation.delivery_tag) == (None, None)
    assert all(continuation.more for continuation in middle)
    assert not last.more


def test_continuations_may_repeat_delivery_id_and_tag() -> None:
    script = started()
    script.sender()
    script.say(Transfer(handle=0, delivery_id=7, delivery_tag=b"t", more=True), payload=b"one ")
    script.say(Transfer(handle=0, delivery_id=7, delivery_tag=b"t", more=True), payload=b"two ")
    script.say(Transfer(handle=0, delivery_id=7, delivery_tag=b"t", settled=True), payload=b"three")
    assert received(script.end.take(Deliveries)) == [Incoming(7, b"t", b"one two three", 0, True, None)]


def test_messages_of_two_links_may_come_interleaved() -> None:
    script = started()
    script.sender(0)
    script.sender(1)
    script.say(Transfer(handle=0, delivery_id=0, delivery_tag=b"a", more=True), payload=b"a")
    script.say(Transfer(handle=1, delivery_id=1, delivery_tag=b"b", more=True), payload=b"b")
    script.say(Transfer(handle=1), payload=b"b")
    script.say(Transfer(handle=0), payload=b"a")
    assert [delivery.payload for delivery in received(script.end.take(Deliveries))] == [b"bb", b"aa"]


def test_an_aborted_delivery_is_forgotten() -> None:
    script = started()
    link = script.sender(credit=10)
    script.say(Transfer(handle=0, delivery_id=0, delivery_tag=b"a", more=True), payload=b"a")
    script.say(Transfer(handle=0, aborted=True))
    script.say(Transfer(handle=0, delivery_id=1, delivery_tag=b"b", aborted=True), transfer(2))
    (delivery,) = received(script.end.take(Deliveries))
    assert (delivery.delivery_id, delivery.payload) == (2, b"")
    assert link.credit == 7


@pytest.mark.parametrize("settled", [False, True])
def test_a_delivery_that_the_peer_resumes_is_ignored(settled: bool) -> None:
    """Section 2.7.5: a receiver ignores resumed deliveries of which it has no state."""
    script = started()
    link = script.sender(credit=10)
    script.say(replace(transfer(0, settled=settled), resume=True), transfer(1), payload=b"whole")
    script.say(replace(transfer(2, settled=settled), resume=True, more=True), payload=b"first")
    script.say(Transfer(handle=0, more=True), Transfer(handle=0), transfer(3), payload=b"more")
    script.say(replace(transfer(4), resume=True, state=ACCEPTED))
    deliveries = received(script.end.take(Deliveries))
    assert [(each.delivery_id, each.payload) for each in deliveries] == [(1, b"whole"), (3, b"more")]
    assert not script.end.take(OversizeDelivery)
    assert (link.credit, link.unsettled_count) == (5, 2)


@pytest.mark.parametrize("frame_size_max", [512, 6_000, 65_536])
def test_a_message_over_the_limit_is_reported_and_the_link_lives_on(frame_size_max: int) -> None:
    wire = Wire(server={"frame_size_max": frame_size_max}).open()
    session, _ = wire.session()
    sender, receiver = wire.client_sender(session, max_message_size=9_999)
    sender.transfer(bytes(9_999), b"fits")
    sender.transfer(bytes(10_000), b"too large")
    sender.transfer(b"next", b"next")
    wire.run()
    assert [delivery.delivery_tag for delivery in received(wire.server.take(Deliveries))] == [b"fits", b"next"]
    oversize = wire.server.only(OversizeDelivery)
    assert (oversize.delivery_id, oversize.delivery_tag, oversize.size) == (1, b"too large", 10_000)
    receiver.settle(oversize.delivery_id, oversize.delivery_id, Rejected.because(MessageTooLarge("Too large.")))
    receiver.settle(2, 2, ACCEPTED)
    wire.run()
    rejected, accepted = wire.client.take(Dispositions)
    assert rejected.deliveries == [(1, b"too large")]
    assert isinstance(rejected.state, Rejected)
    assert accepted.state == ACCEPTED


@pytest.mark.parametrize("is_repeated", [True, False])
@pytest.mark.parametrize("chunk_size", [1_000, 30_000, 1 << 20])
def test_a_message_in_several_frames_is_whole_whether_they_repeat_its_id_or_not(
    is_repeated: bool, chunk_size: int
) -> None:
    script = started()
    script.sender()
    parts = [bytes([number]) * 20_000 for number in range(1, 4)]
    said = [
        transfer(7) if is_repeated or not number else Transfer(handle=0, settled=False) for number in range(len(parts))
    ]
    data = b"".join(
        encode_frame(0, encode_composite(replace(each, more=part is not parts[-1])) + part)
        for each, part in zip(said, parts, strict=True)
    )
    for start in range(0, len(data), chunk_size):
        script.feed(data[start : start + chunk_size])
    assert received(script.end.take(Deliveries)) == [Incoming(7, b"tag-7", b"".join(parts), 0, False, None)]


def test_a_frame_of_another_delivery_amid_the_frames_of_one_ends_the_link() -> None:
    script = started()
    script.sender()
    script.say(replace(transfer(0), more=True), replace(transfer(1), more=True), payload=bytes(1_000))
    assert script.end.only(LinkDetached).error is not None


@pytest.mark.parametrize(("frame_size_max", "frames"), [(65_536, 2), (1_048_576, 1)])
def test_large_payloads_are_sent_from_where_they_are_and_their_front_before_them(
    frame_size_max: int, frames: int
) -> None:
    content, wire = bytes(range(256)) * 400, Wire(client={"frame_size_max": frame_size_max}).open()
    session, _ = wire.session()
    _, sender = wire.client_receiver(session)
    payload = FrontedPayload(b"front", memoryview(content)[100:])
    sender.transfers([(b"one", payload), (b"two", b"small"), (b"three", payload)])
    pieces = wire.server.connection.pieces_to_send()
    assert sum(isinstance(piece, memoryview) and piece.obj is content for piece in pieces) == 2 * frames
    wire.feed(wire.client, b"".join(pieces))
    assert [delivery.payload for delivery in received(wire.client.take(Deliveries))] == [
        b"front" + content[100:],
        b"small",
        b"front" + content[100:],
    ]


def test_what_is_to_be_sent_comes_once_and_no_piece_of_it_is_empty() -> None:
    outbox, large = Outbox(), bytes(PIECE_SIZE_MIN)
    assert outbox.take_pieces() == []
    for parts, pieces in (
        ([large, large], [large, large]),
        ([b"a", b"b", large, b"c", b"d"], [b"ab", large, b"cd"]),
        ([b"a", b"b"], [b"ab"]),
    ):
        outbox.parts += parts
        assert outbox.take_pieces() == pieces
        assert outbox.take_pieces() == []


def test_a_front_that_is_larger_than_a_frame_is_sent_in_several() -> None:
    front, rest, wire = bytes(range(256)) * 8, b"rest" * 100, Wire(client={"frame_size_max": 512}).open()
    session, _ = wire.session()
    _, sender = wire.client_receiver(session)
    sender.transfers([(b"one", FrontedPayload(front, memoryview(rest)))])
    wire.run()
    (delivery,) = received(wire.client.take(Deliveries))
    assert delivery.payload == front + rest


def test_the_parts_of_an_oversize_message_are_dropped_as_they_come() -> None:
    partial = PartialDelivery(0, b"tag", 0, settled=False, state=None, size_max=10)
    partial.add(bytes(10), None, settled=False)
    assert (partial.held_size, len(partial.parts)) == (10, 1)
    for _ in range(3):
        partial.add(bytes(10), None, settled=False)
        assert (partial.held_size, partial.parts) == (0, [])
    assert partial.size == 40


def test_frames_without_bytes_leave_nothing_behind() -> None:
    partial = PartialDelivery(0, b"tag", 0, settled=False, state=None, size_max=10)
    for _ in range(3):
        partial.add(b"", None, settled=False)
    assert partial.parts == []


def test_an_oversize_message_takes_no_room_of_others() -> None:
    script = started(reassembly_size_max=2_000)
    script.sender(max_message_size=1_000)
    for number in range(100):
        script.say(Transfer(handle=0, delivery_id=0, delivery_tag=b"t", more=number < 99), payload=bytes(500))
    assert script.end.only(OversizeDelivery).size == 50_000


def test_incomplete_messages_of_a_connection_are_limited() -> None:
    script = started(reassembly_size_max=1_000)
    for handle in range(3):
        script.sender(handle)
    for handle in range(2):
        script.say(Transfer(handle=handle, delivery_id=handle, delivery_tag=b"t", more=True), payload=bytes(500))
    assert not script.end.events
    script.say(Transfer(handle=2, delivery_id=2, delivery_tag=b"t", more=True), payload=b"x")
    (detach,) = script.heard()
    assert isinstance(detach, Detach)
    assert detach.error is not None
    assert detach.error.condition == "amqp:resource-limit-exceeded"
    script.end.only(LinkDetached)
    script.say(Transfer(handle=1), payload=bytes(500))
    assert len(received(script.end.take(Deliveries))) == 1
    script.say(Transfer(handle=0, more=True), payload=bytes(500))
    assert not script.end.events


def test_two_messages_as_large_as_a_link_takes_have_room_at_once() -> None:
    script = started(reassembly_size_max=1_000)
    for handle in range(2):
        script.sender(handle, max_message_size=5_000)
        script.say(Transfer(handle=handle, delivery_id=handle, delivery_tag=b"t", more=True), payload=bytes(4_999))
    for handle in range(2):
        script.say(Transfer(handle=handle), payload=b"x")
    assert [len(each.payload) for each in received(script.end.take(Deliveries))] == [5_000, 5_000]


def test_tags_of_different_sizes_share_a_burst() -> None:
    wire = Wire().open()
    session, _ = wire.session()
    sender, _ = wire.client_sender(session)
    tags = [b"", b"a", bytes(16), b"", bytes(32), b"b"]
    sender.transfers([(tag, b"payload") for tag in tags])
    wire.run()
    assert [delivery.delivery_tag for delivery in received(wire.server.take(Deliveries))] == tags


def test_a_transfer_in_an_uncommon_encoding_is_read_all_the_same() -> None:
    script = started()
    script.sender()
    uncommon = Transfer(handle=0, delivery_id=UInt(3), delivery_tag=b"t", batchable=True, message_format=5)
    script.say(uncommon, payload=b"payload")
    assert received(script.end.take(Deliveries)) == [Incoming(3, b"t", b"payload", 5, False, None)]


def test_an_incomplete_message_without_a_frame_for_a_while_loses_its_bytes_and_the_link_goes_on() -> None:
    script = started(incomplete_timeout=1_000)
    script.sender()
    script.say(Transfer(handle=0, delivery_id=0, delivery_tag=b"t", more=True), payload=bytes(500))
    (session,) = script.connection._channels.by_remote_channel.values()
    script.connection.tick(NOON)
    script.connection.tick(NOON + 999)
    assert session.reassembly.size == 500
    script.connection.tick(NOON + 1_000)
    assert session.reassembly.size == 0
    script.say(Transfer(handle=0, delivery_id=0, delivery_tag=b"t"), payload=bytes(500))
    dropped = script.end.only(OversizeDelivery)
    assert dropped.size == 1_000
    assert not dropped.is_over_limit
    script.say(transfer(1), payload=b"next")
    assert script.end.only(Deliveries).deliveries[0].payload == b"next"


@pytest.mark.parametrize("by", [3_600_000, -3_600_000], ids=["forward", "back"])
def test_an_incomplete_message_has_as_long_as_ever_when_the_clock_was_set(by: int) -> None:
    script = started(incomplete_timeout=1_000)
    script.sender()
    script.say(Transfer(handle=0, delivery_id=0, delivery_tag=b"t", more=True), payload=bytes(500))
    (session,) = script.connection._channels.by_remote_channel.values()
    script.connection.tick(NOON)
    script.connection.clock_stepped(by)
    script.connection.tick(NOON + by + 999)
    assert session.reassembly.size == 500
    script.connection.tick(NOON + by + 1_000)
    assert session.reassembly.size == 0


def test_an_incomplete_message_that_goes_on_keeps_its_bytes() -> None:
    script = started(incomplete_timeout=1_000)
    script.sender()
    for second in range(5):
        script.say(Transfer(handle=0, delivery_id=0, delivery_tag=b"t", more=True), payload=b"x")
        script.connection.tick(NOON + 1_000 * second)
    script.say(Transfer(handle=0, delivery_id=0, delivery_tag=b"t"))
    assert script.end.only(Deliveries).deliveries[0].payload == b"xxxxx"


def test_over_the_limit_of_all_connections_the_one_that_holds_most_loses_its_bytes() -> None:
    shared = SharedReassembly(1_000)
    modest, greedy = ReassemblyBudget(10_000, shared), ReassemblyBudget(10_000, shared)
    partials = {budget: PartialDelivery(0, b"t", 0, False, None, size_max=10_000) for budget in (modest, greedy)}
    for budget, size in ((greedy, 600), (modest, 300), (modest, 101)):
        budget.release(partials[budget])
        partials[budget].add(bytes(size), None, settled=False)
        budget.hold(partials[budget])
    assert partials[greedy].is_dropped
    assert partials[greedy].parts == []
    assert (greedy.size, modest.size, shared.size) == (0, 401, 401)
    assert not partials[modest].is_dropped
    assert shared.dropped_count == 1
    modest.release(partials[modest])
    assert shared.size == 0


def test_a_message_whose_bytes_are_gone_already_is_not_counted_as_dropped_again() -> None:
    shared = SharedReassembly(1_000)
    budget = ReassemblyBudget(10_000, shared)
    stalled, going_on = [PartialDelivery(0, b"t", 0, False, None, size_max=10_000) for _ in range(2)]
    stalled.add(bytes(500), None, settled=False)
    budget.hold(stalled)
    for now in (0, 1_000):
        budget.drop_stalled(now, 1_000)
    assert (stalled.is_dropped, budget.size) == (True, 0)
    going_on.add(bytes(1_001), None, settled=False)
    budget.hold(going_on)
    assert (shared.size, shared.dropped_count) == (0, 1)


def test_a_message_counts_as_dropped_however_little_of_it_had_come() -> None:
    budget = ReassemblyBudget(10_000)
    for content in (b"x", b""):
        partial = PartialDelivery(0, b"t", 0, False, None, size_max=10_000)
        partial.add(content, None, settled=False)
        budget.hold(partial)
    assert budget.drop_all() == 1


def test_a_message_that_is_never_reported_leaves_no_bytes() -> None:
    partial = PartialDelivery(0, b"t", 0, False, None, size_max=10_000)
    partial.add(b"x", None, settled=False)
    partial.ignore()
    partial.add(b"x", None, settled=False)
    assert (partial.is_ignored, partial.parts, partial.held_size) == (True, [], 0)


def test_a_connection_that_holds_nothing_any_more_is_forgotten() -> None:
    """Or every connection that ever sent a message in several frames would stay in memory."""
    shared = SharedReassembly(1_000)
    budget = ReassemblyBudget(10_000, shared)
    partial = PartialDelivery(0, b"t", 0, False, None, size_max=10_000)
    partial.add(b"x", None, settled=False)
    budget.hold(partial)
    budget.release(partial)
    gone = weakref.ref(budget)
    del budget
    assert gone() is None
