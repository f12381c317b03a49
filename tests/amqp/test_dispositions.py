import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.amqp.wire import Script, Wire
from twinbus.amqp.codec.delivery_state import ACCEPTED, DeliveryState, Modified, Rejected, Released
from twinbus.amqp.codec.error_condition import ErrorCondition
from twinbus.amqp.codec.frames import encode_frame
from twinbus.amqp.codec.performatives import RECEIVER, SENDER, Attach, Detach, Disposition, Flow, Transfer
from twinbus.amqp.codec.terminus import Source
from twinbus.amqp.codec.transfer_writer import encode_disposition
from twinbus.amqp.dispositions import RANGES_FACTOR, Unsettled
from twinbus.amqp.errors import RESOURCE_LIMIT_EXCEEDED
from twinbus.amqp.events import ConnectionClosed, Deliveries, Dispositions, LinkAttached
from twinbus.amqp.outgoing_link import OutgoingLink
from twinbus.amqp.serial_number import MASK, add
from twinbus.errors import ServerBusy


def receiving(count: int, **server: int) -> tuple[Script, OutgoingLink]:
    """A peer that was sent `count` messages and has settled none."""
    script = Script(**server).open()
    script.begin()
    link = script.receiver(credit=1000)
    link.transfers([(b"%d" % number, b"payload") for number in range(count)])
    script.raw()
    return script, link


def settles(first: int, last: int | None = None, settled: bool = True) -> Disposition:
    return Disposition(role=RECEIVER, first=first, last=last, settled=settled, state=ACCEPTED)


def test_dispositions_of_one_message_each_come_as_one_event() -> None:
    script, link = receiving(5)
    script.say(*[settles(number) for number in range(5)])
    event = script.end.only(Dispositions)
    assert event == Dispositions(link, [(number, b"%d" % number) for number in range(5)], ACCEPTED, True)
    assert link.unsettled_count == 0


def test_a_range_comes_as_one_event() -> None:
    script, link = receiving(5)
    script.say(settles(1, 3))
    assert script.end.only(Dispositions).deliveries == [(1, b"1"), (2, b"2"), (3, b"3")]
    assert link.unsettled_count == 2


@pytest.mark.parametrize(
    "descriptor", [b"\x80" + (0x15).to_bytes(8, "big"), b"\xa3\x15amqp:disposition:list"], ids=["wide", "by name"]
)
@pytest.mark.parametrize(("last", "numbers"), [(b"\x40", [1]), (b"\x52\x03", [1, 2, 3])])
def test_a_disposition_in_an_uncommon_form_does_what_the_common_one_does(
    descriptor: bytes, last: bytes, numbers: list[int]
) -> None:
    script, link = receiving(5)
    fields = b"\x41\x52\x01" + last + b"\x41\x00\x53\x24\x45"
    script.feed(encode_frame(0, b"\x00" + descriptor + b"\xc0" + bytes([len(fields) + 1, 5]) + fields))
    expected = Dispositions(link, [(number, b"%d" % number) for number in numbers], ACCEPTED, True)
    assert script.end.only(Dispositions) == expected
    assert link.unsettled_count == 5 - len(numbers)


def test_a_range_among_dispositions_of_one_message_each_settles_all_of_it() -> None:
    script, link = receiving(6)
    ranges = [(0, 0), (1, 1), (2, 4), (5, 5)]
    script.feed(b"".join([encode_disposition(0, RECEIVER, *each, True, ACCEPTED) for each in ranges]))
    assert script.end.only(Dispositions).deliveries == [(number, b"%d" % number) for number in range(6)]
    assert link.unsettled_count == 0


def test_what_a_sender_settles_among_what_a_receiver_settles_is_none_of_what_was_sent_to_it() -> None:
    script, link = receiving(4)
    roles = (RECEIVER, SENDER, RECEIVER, SENDER)
    script.feed(b"".join([encode_disposition(0, role, n, n, True, ACCEPTED) for n, role in enumerate(roles)]))
    assert script.end.only(Dispositions).deliveries == [(0, b"0"), (2, b"2")]
    assert link.unsettled_count == 2


def test_a_number_of_another_type_among_dispositions_is_as_wrong_as_in_one_alone() -> None:
    script, _ = receiving(3)
    first, second = [encode_disposition(0, RECEIVER, number, number, True, ACCEPTED) for number in (0, 1)]
    last_at = second.rindex(b"\x70\x00\x00\x00\x01")
    script.feed(first + second[:last_at] + b"\x73" + second[last_at + 1 :])
    assert script.end.only(ConnectionClosed).error is not None


def test_dispositions_with_the_same_error_come_as_one_event() -> None:
    script, _ = receiving(3)
    state = Rejected(error=ErrorCondition(condition="com.microsoft:dead-letter", description="why"))
    script.say(*[Disposition(role=RECEIVER, first=number, settled=True, state=state) for number in range(3)])
    event = script.end.only(Dispositions)
    assert (event.state, len(event.deliveries)) == (state, 3)


def test_different_outcomes_are_different_events_in_order() -> None:
    script, _ = receiving(4)
    error = ErrorCondition(condition="com.microsoft:dead-letter", info={"DeadLetterReason": "why"})
    states: list[DeliveryState] = [ACCEPTED, Rejected(error=error), Released(), Modified(undeliverable_here=True)]
    script.say(*[Disposition(role=RECEIVER, first=number, state=state) for number, state in enumerate(states)])
    assert [event.state for event in script.end.take(Dispositions)] == states


def test_a_range_over_two_links_is_an_event_for_each() -> None:
    script, first = receiving(2)
    second = script.receiver(1)
    second.transfers([(b"x", b""), (b"y", b"")])
    script.say(settles(0, 3))
    assert [(event.link, len(event.deliveries)) for event in script.end.take(Dispositions)] == [(first, 2), (second, 2)]


def test_a_delivery_is_settled_once() -> None:
    script, _ = receiving(2)
    script.say(settles(0), settles(0), settles(0, 1))
    assert script.end.only(Dispositions).deliveries == [(0, b"0"), (1, b"1")]


def test_a_range_far_wider_than_what_is_known_costs_nothing() -> None:
    script, _ = receiving(3)
    script.say(settles(0, 2**31 - 1))
    assert len(script.end.only(Dispositions).deliveries) == 3


def test_a_range_that_ends_before_it_starts_is_empty() -> None:
    script, _ = receiving(3)
    script.say(settles(2, 0))
    assert not script.end.events


def test_dispositions_for_a_link_that_is_gone_are_ignored() -> None:
    script, gone = receiving(2)
    stays = script.receiver(1)
    stays.transfer(b"", b"stays")
    script.say(Detach(handle=0, closed=True))
    script.end.events.clear()
    script.say(settles(0), settles(0, 2))
    assert script.end.only(Dispositions).link is stays
    assert gone.unsettled_count == 0


def test_a_receiver_that_settles_second_is_confirmed() -> None:
    script, link = receiving(3)
    script.say(settles(0, 2, settled=False))
    event = script.end.only(Dispositions)
    assert not event.settled
    assert link.unsettled_count == 3
    link.confirm(0, 2, ACCEPTED)
    assert script.heard() == [Disposition(role=SENDER, first=0, last=2, settled=True, state=ACCEPTED)]
    assert link.unsettled_count == 0


def test_a_client_hears_the_senders_answer_to_its_update() -> None:
    wire = Wire().open()
    session, _ = wire.session()
    receiver, sender = wire.client_receiver(session)
    sender.transfers([(b"a", b""), (b"b", b"")])
    wire.run()
    deliveries = wire.client.only(Deliveries).deliveries
    receiver.update(0, 1, Released(), tags=tuple(delivery.delivery_tag for delivery in deliveries))
    wire.run()
    wire.server.only(Dispositions)
    sender.confirm(0, 1, Released())
    wire.run()
    answer = wire.client.only(Dispositions)
    assert answer == Dispositions(receiver, [(0, b"a"), (1, b"b")], Released(), True)
    assert receiver.unsettled_count == 0


def test_a_client_hears_the_outcome_of_what_it_sent() -> None:
    wire = Wire().open()
    session, _ = wire.session()
    sender, receiver = wire.client_sender(session)
    assert sender.transfers([(b"a", b""), (b"b", b""), (b"c", b"")]) == 0
    wire.run()
    receiver.settle(0, 1, ACCEPTED)
    receiver.settle(2, 2, Rejected())
    wire.run()
    accepted, rejected = wire.client.take(Dispositions)
    assert (accepted.deliveries, accepted.state) == ([(0, b"a"), (1, b"b")], ACCEPTED)
    assert (rejected.deliveries, rejected.state) == ([(2, b"c")], Rejected())
    assert sender.unsettled_count == 0


def test_ranges_next_to_each_other_are_sent_as_one() -> None:
    script = Script().open()
    script.begin()
    link = script.sender()
    for number in range(10):
        link.settle(number, number, ACCEPTED)
    link.settle(20, 29, ACCEPTED)
    link.settle(30, 30, Rejected())
    link.settle(31, 31, Rejected())
    frames = [p for p in script.heard() if isinstance(p, Disposition)]
    assert [(p.first, p.last, p.state) for p in frames] == [(0, 9, ACCEPTED), (20, 29, ACCEPTED), (30, 31, Rejected())]
    assert all(p.settled and p.role is RECEIVER for p in frames)


def test_ranges_are_joined_where_the_numbers_wrap() -> None:
    script = Script().open()
    script.begin()
    link = script.sender()
    link.settle(MASK, MASK, ACCEPTED)
    link.settle(0, 0, ACCEPTED)
    (disposition,) = script.heard()
    assert isinstance(disposition, Disposition)
    assert (disposition.first, disposition.last) == (MASK, 0)


def test_a_disposition_is_not_overtaken_by_what_is_sent_after_it() -> None:
    script = Script().open()
    script.begin()
    link = script.sender(credit=2)
    link.settle(0, 0, ACCEPTED)
    link.grant(5)
    link.settle(1, 1, ACCEPTED)
    link.detach()
    assert [type(p) for p in script.heard()] == [Disposition, Flow, Disposition, Detach]


def test_the_outcome_of_a_request_is_not_overtaken_by_its_answer() -> None:
    script = Script().open()
    script.begin()
    requests, answers = script.sender(0), script.receiver(1)
    requests.settle(0, 0, ACCEPTED)
    answers.transfer(b"answer", b"1", settled=True)
    assert [type(p) for p in script.heard()] == [Disposition, Transfer]


def test_the_oldest_unsettled_deliveries_are_forgotten_at_the_limit() -> None:
    script, link = receiving(12, unsettled_count_max=10)
    assert link.unsettled_count == 10
    script.say(settles(0, 11))
    assert [number for number, _ in script.end.only(Dispositions).deliveries] == list(range(2, 12))


def test_what_was_settled_before_costs_a_range_nothing() -> None:
    count = 100_000
    script, link = receiving(count)
    script.say(settles(0, count - 2))
    before = time.thread_time()
    script.say(*[settles(0, count - 2)] * 20_000)
    assert time.thread_time() - before < 0.7
    assert link.unsettled_count == 1
    script.end.take(Dispositions)
    script.say(settles(0, count))
    assert [number for number, _ in script.end.only(Dispositions).deliveries] == [count - 1]


@pytest.mark.parametrize("is_gone", [False, True])
def test_what_a_peer_settles_is_reported_unless_its_link_is_gone(is_gone: bool) -> None:
    script = Script().open()
    script.begin()
    link = script.sender()
    script.say(Transfer(handle=0, delivery_id=0, delivery_tag=b"t", message_format=0), payload=b"payload")
    link.update(0, 0, ACCEPTED, (b"t",))
    if is_gone:
        script.say(Detach(handle=0, closed=True))
        link.end()
    script.say(Disposition(role=SENDER, first=0, settled=True, state=ACCEPTED))
    assert [event.deliveries for event in script.end.take(Dispositions)] == ([] if is_gone else [[(0, b"t")]])


def test_each_of_very_many_links_takes_its_own_deliveries_with_it() -> None:
    link_count, held_count = 2_000, 50_000
    script = Script().open()
    script.begin(incoming_window=1 << 20)
    script.say(*(Attach(name=f"{each}", handle=each, role=RECEIVER, source=Source()) for each in range(link_count)))
    links = [event.link for event in script.end.take(LinkAttached)]
    for link in links:
        assert isinstance(link, OutgoingLink)
        link.accept()
        link.transfers([(b"t", b"m")] * (held_count if link is links[0] else 1))
    script.raw()
    before = time.thread_time()
    for link in links[1:]:
        link.detach(ServerBusy("later"))
    assert time.thread_time() - before < 1
    script.say(settles(0, link_count + held_count))
    (event,) = script.end.take(Dispositions)
    assert (event.link, len(event.deliveries)) == (links[0], held_count)


def test_what_was_forgotten_before_does_not_slow_down_what_is_sent_next() -> None:
    script, link = receiving(100_000)
    before = time.thread_time()
    for _ in range(700):
        link.transfers([(b"t", b"payload")] * 100)
    script.raw()
    assert time.thread_time() - before < 0.8
    assert link.unsettled_count == 100_000


def test_dispositions_over_many_deliveries_again_and_again_cost_the_connection() -> None:
    script, _ = receiving(10, unsettled_count_max=10)
    undecided = Disposition(role=RECEIVER, first=0, last=9, settled=False, state=None)
    script.say(*[undecided] * RANGES_FACTOR)
    assert script.end.take(ConnectionClosed) == []
    script.say(*[undecided] * RANGES_FACTOR)
    assert script.end.take(ConnectionClosed) == []
    script.say(*[undecided] * (RANGES_FACTOR + 1))
    error = script.end.only(ConnectionClosed).error
    assert error is not None
    assert error.condition == RESOURCE_LIMIT_EXCEEDED


def test_delivery_ids_wrap_around() -> None:
    script = Script().open()
    session = script.begin()
    link = script.receiver(credit=1000)
    session.take_delivery_ids(MASK - 1)
    assert link.transfers([(b"%d" % number, b"") for number in range(4)]) == MASK - 1
    script.say(settles(MASK - 1, 1))
    assert [number for number, _ in script.end.only(Dispositions).deliveries] == [MASK - 1, MASK, 0, 1]


@given(st.integers(0, MASK), st.integers(0, 20), st.integers(-5, 25), st.integers(0, 30))
def test_the_known_of_a_range_are_those_inside_of_it(start: int, count: int, offset: int, length: int) -> None:
    table: Unsettled[str] = Unsettled()
    for step in range(count):
        table[add(start, step)] = "link"
    first, last = add(start, offset), add(start, offset + length)
    expected = [add(start, step) for step in range(count) if offset <= step <= offset + length]
    assert table.known(first, last) == expected


@pytest.mark.parametrize(
    ("first", "last", "expected"),
    [
        (5, 7, [5, 7]),
        (0, 0xFFFFFFFF, []),  # one step back: an empty range, not four billion numbers
        (7, 5, []),
        (0xFFFFFFFE, 1, [0xFFFFFFFF, 0, 1]),
        (0xFFFFFFFF, 0xFFFFFFFF, [0xFFFFFFFF]),
        (0xFFFFFFF0, 0x100, [0xFFFFFFFF, 0, 1, 5, 7]),
    ],
)
def test_a_range_finds_what_is_unsettled_in_it_also_where_numbers_wrap(
    first: int, last: int, expected: list[int]
) -> None:
    unsettled: Unsettled[str] = Unsettled()
    for number in (0xFFFFFFFF, 0, 1, 5, 7):
        unsettled[number] = "link"
    assert unsettled.known(first, last) == expected
