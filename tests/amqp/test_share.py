"""A share of one call: some of what a peer sent is worked on, the rest waits, nothing is lost or told twice."""

import pytest

from tests.amqp.wire import NOON, Script
from twinbus.amqp import dispositions
from twinbus.amqp.codec.composites import encode_composite
from twinbus.amqp.codec.delivery_state import ACCEPTED, Released, TransactionalState
from twinbus.amqp.codec.frames import EMPTY_FRAME, LARGE, encode_frame
from twinbus.amqp.codec.performatives import (
    RECEIVER,
    SENDER,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Performative,
    Transfer,
)
from twinbus.amqp.connection import FRAME_COST, NAMED_COST, NOISE_FORGOTTEN_AFTER, State
from twinbus.amqp.errors import RESOURCE_LIMIT_EXCEEDED
from twinbus.amqp.events import ConnectionClosed, Deliveries, Dispositions, LinkDetached, SessionBegun, SessionEnded
from twinbus.amqp.outgoing_link import OutgoingLink
from twinbus.amqp.session import PART_SIZE_MIN

BEGIN = Begin(next_outgoing_id=0, incoming_window=10, outgoing_window=10)


def frames(*performatives: Performative, channel: int = 0, payload: bytes = b"") -> bytes:
    return b"".join([encode_frame(channel, encode_composite(each) + payload) for each in performatives])


def transfers(count: int, size: int, handle: int = 0) -> bytes:
    """Common transfers on one handle, each a frame of `size` bytes."""
    made = []
    for number in range(count):
        transfer = Transfer(handle=handle, delivery_id=number, delivery_tag=b"t", message_format=0, settled=False)
        plain = frames(transfer)
        made.append(frames(transfer, payload=bytes(size - len(plain))))
    return b"".join(made)


def slices(script: Script, data: bytes, share: int) -> list[int]:
    """Feed all of it, share by share; how many events each call had."""
    counts = []
    while data or script.connection.is_behind:
        before = len(script.end.events)
        script.end.events += script.connection.receive_data(data, script.now, share)
        counts.append(len(script.end.events) - before)
        data = b""
        assert len(counts) < 10_000
    return counts


def test_frames_count_at_least_their_cost() -> None:
    script = Script().open()
    counts = slices(script, frames(BEGIN, End(), channel=1) * 50, 10 * FRAME_COST)
    assert counts == [10] * 10
    assert len(script.end.take(SessionBegun)) == len(script.end.take(SessionEnded)) == 50


def test_transfers_count_their_bytes() -> None:
    script = Script().open()
    script.begin()
    script.sender(credit=1_000)
    slices(script, transfers(100, 256), 2_560)
    runs = [len(run.deliveries) for run in script.end.take(Deliveries)]
    assert runs == [10] * 10


def test_transfers_and_dispositions_in_their_common_form_are_not_counted_as_frames() -> None:
    """Frames are noise where nothing else comes."""
    script = Script().open()
    script.begin()
    script.sender(credit=1_000)
    before = script.connection.frame_count
    disposition = Disposition(role=RECEIVER, first=0, last=0, settled=True, state=ACCEPTED)
    script.feed(transfers(5, 100) + frames(disposition, disposition))
    assert script.connection.frame_count == before
    # A large one that comes in two reads is joined and then like any other.
    large = transfers(1, 2 * LARGE)
    script.feed(large[:100])
    script.feed(large[100:])
    assert sum(len(run.deliveries) for run in script.end.take(Deliveries)) == 6
    assert script.connection.frame_count == before
    script.feed(frames(BEGIN, channel=1))
    assert script.connection.frame_count == before + 1


@pytest.mark.parametrize("is_common", [True, False])
def test_a_disposition_counts_what_it_names(is_common: bool) -> None:
    """It is small, and what it names is not."""
    script = Script().open()
    script.begin()
    link = script.receiver(credit=100)
    link.transfers([(b"t", b"m")] * 100)
    named = frames(Disposition(role=RECEIVER, first=0, last=99))
    if not is_common:
        named = encode_frame(0, named[8:].replace(b"\x00\x53\x15", b"\x00\x80" + bytes(7) + b"\x15"))
    script.connection.receive_data(named * 10, NOON, 200 * NAMED_COST)
    script.end.events += script.connection.receive_data(b"", NOON, 200 * NAMED_COST)
    assert len(script.end.only(Dispositions).deliveries) == 200
    slices(script, b"", 200 * NAMED_COST)
    assert [len(event.deliveries) for event in script.end.take(Dispositions)] == [200] * 3


def delivered(count: int) -> tuple[Script, OutgoingLink]:
    """A peer that was sent `count` messages on handle 0 and has settled none."""
    script = Script().open()
    script.begin()
    link = script.receiver(credit=1_000)
    link.transfers([(b"%d" % number, b"m") for number in range(count)])
    return script, link


def named(script: Script) -> list[list[int]]:
    return [[number for number, _ in event.deliveries] for event in script.end.take(Dispositions)]


@pytest.mark.parametrize("is_common", [True, False])
@pytest.mark.parametrize("last", [99, 2**31 - 1])
def test_a_range_of_more_than_the_share_is_taken_in_parts_and_what_is_behind_it_waits(
    is_common: bool, last: int
) -> None:
    script, link = delivered(100)
    data = frames(Disposition(role=RECEIVER, first=0, last=last, settled=True, state=ACCEPTED))
    if not is_common:
        data = encode_frame(0, data[8:].replace(b"\x00\x53\x15", b"\x00\x80" + bytes(7) + b"\x15"))
    data += frames(Detach(handle=0, closed=True))
    assert slices(script, data, 30 * NAMED_COST) == [1, 1, 1, 2]
    parts = named(script)
    assert [len(part) for part in parts] == [30, 30, 30, 10]
    assert [number for part in parts for number in part] == [*range(100)]
    assert script.end.only(LinkDetached).link is link
    assert not script.connection.is_behind


@pytest.mark.parametrize("share", [1, NAMED_COST, 10 * NAMED_COST + 1, FRAME_COST, 100 * FRAME_COST])
@pytest.mark.parametrize("piece", [1, 50, 1 << 20])
def test_what_is_done_by_ranges_is_the_same_however_small_the_share_and_the_reads(share: int, piece: int) -> None:
    script, link = delivered(60)
    script.sender(handle=1, credit=1_000)
    said: list[Performative] = [
        Disposition(role=RECEIVER, first=50, last=54, settled=False, state=ACCEPTED),
        Disposition(role=RECEIVER, first=10, last=29, settled=True, state=ACCEPTED),
        Disposition(role=RECEIVER, first=0, last=45, settled=True, state=Released()),
    ]
    data = b"".join([frames(each) + transfers(1, 100, handle=1) for each in said])
    data += frames(Disposition(role=RECEIVER, first=59, last=59, settled=True, state=ACCEPTED))
    for start in range(0, len(data), piece):
        script.end.events += script.connection.receive_data(data[start : start + piece], NOON, share)
    slices(script, b"", share)
    order: list[object] = []
    for event in script.end.events:
        if isinstance(event, Dispositions):
            order += [(number, event.state, event.settled) for number, _ in event.deliveries]
        elif isinstance(event, Deliveries):
            order += ["message"] * len(event.deliveries)
    assert order == [
        *[(number, ACCEPTED, False) for number in range(50, 55)],
        "message",
        *[(number, ACCEPTED, True) for number in range(10, 30)],
        "message",
        *[(number, Released(), True) for number in [*range(10), *range(30, 46)]],
        "message",
        (59, ACCEPTED, True),
    ]
    assert link.unsettled_count == 60 - 46 - 1


def test_a_range_that_a_sender_settles_is_taken_in_parts_too() -> None:
    script = Script().open()
    script.begin()
    link = script.sender(credit=1_000)
    script.feed(transfers(50, 100))
    link.update(0, 49, ACCEPTED)
    slices(script, frames(Disposition(role=SENDER, first=0, last=49, settled=True)), 20 * NAMED_COST)
    assert [len(part) for part in named(script)] == [20, 20, 10]


def test_all_ranges_of_a_call_share_what_it_has_room_for() -> None:
    script, _ = delivered(100)
    ranges = [(0, 9), (10, 99)]
    data = frames(*[Disposition(role=RECEIVER, first=first, last=last, settled=True) for first, last in ranges])
    slices(script, data, 30 * NAMED_COST)
    assert [len(part) for part in named(script)] == [30, 30, 30, 10]


def test_what_comes_behind_a_range_waits_for_the_next_call_if_the_range_used_this_one_up() -> None:
    script, _ = delivered(40)
    script.sender(handle=1, credit=10)
    data = frames(Disposition(role=RECEIVER, first=0, last=39, settled=True, state=ACCEPTED))
    script.connection.receive_data(data, NOON, 20 * NAMED_COST)
    events = script.connection.receive_data(transfers(1, 100, handle=1), NOON, 20 * NAMED_COST)
    assert [type(event) for event in events] == [Dispositions]
    assert script.connection.is_behind
    events = script.connection.receive_data(b"", NOON, 20 * NAMED_COST)
    assert [type(event) for event in events] == [Deliveries]
    assert not script.connection.is_behind


@pytest.mark.parametrize("last", [50, 2**31 - 1])
def test_what_is_gone_before_its_part_of_a_range_comes_is_passed_over(last: int) -> None:
    script, link = delivered(50)
    other = script.receiver(handle=1, credit=10)
    other.transfers([(b"other", b"m")])
    data = frames(Disposition(role=RECEIVER, first=0, last=last, settled=True, state=ACCEPTED))
    script.end.events += script.connection.receive_data(data, NOON, 20 * NAMED_COST)
    link.detach()
    slices(script, b"", 20 * NAMED_COST)
    assert named(script) == [[*range(20)], [50]]


def test_the_rest_of_a_range_ends_with_the_connection() -> None:
    script, _ = delivered(50)
    data = frames(Disposition(role=RECEIVER, first=0, last=49, settled=True, state=ACCEPTED)) + bytes(8)
    script.connection.receive_data(data, NOON, 20 * NAMED_COST)
    assert script.connection.is_behind
    script.connection.lost()
    assert not script.connection.is_behind
    assert script.connection.receive_data(b"", NOON, 20 * NAMED_COST) == []


@pytest.mark.parametrize(
    ("count", "room", "parts"),
    [
        (20, 30, [20]),
        (50, 30, [50]),
        (51, 30, [30, 21]),
        (100, 30, [30, 30, 40]),
        (40, 5, [40]),
        (100, 5, [20, 20, 20, 40]),
    ],
)
def test_a_disposition_in_a_transaction_is_cut_only_where_each_part_is_more_than_a_transaction_may_have(
    count: int, room: int, parts: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is done all or none."""
    monkeypatch.setattr(dispositions, "TOGETHER_IN_TRANSACTION", 20)
    script, _ = delivered(count)
    state = TransactionalState(txn_id=b"t", outcome=ACCEPTED)
    slices(script, frames(Disposition(role=RECEIVER, first=0, last=2**31 - 1, state=state)), room * NAMED_COST)
    assert [len(part) for part in named(script)] == parts


def test_in_a_transaction_only_what_is_unsettled_counts_for_a_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispositions, "TOGETHER_IN_TRANSACTION", 20)
    script, link = delivered(100)
    link.session.dispositions.settle_outgoing(10, 49)
    state = TransactionalState(txn_id=b"t", outcome=ACCEPTED)
    slices(script, frames(Disposition(role=RECEIVER, first=0, last=59, state=state)), NAMED_COST)
    assert named(script) == [[*range(10), *range(50, 60)]]


@pytest.mark.parametrize(("size", "counted"), [(PART_SIZE_MIN - 1, 1), (PART_SIZE_MIN, 0)])
def test_a_small_part_of_a_message_counts_as_a_frame(size: int, counted: int) -> None:
    """Or a peer could send them for ever."""
    script = Script().open()
    script.begin()
    script.sender()
    part = Transfer(handle=0, delivery_id=0, delivery_tag=b"t", message_format=0, settled=False, more=True)
    before = script.connection.frame_count
    script.feed(frames(part, payload=bytes(size)))
    assert script.connection.frame_count == before + counted


def test_transfers_of_requests_count_as_frames() -> None:
    script = Script().open()
    script.begin()
    script.sender(credit=1_000, is_for_requests=True)
    slices(script, transfers(30, 64), 10 * FRAME_COST)
    assert [len(run.deliveries) for run in script.end.take(Deliveries)] == [10] * 3


@pytest.mark.parametrize("share", [1, 100, FRAME_COST, 1_000, 1 << 20])
@pytest.mark.parametrize("piece", [1, 50, 1_000, 1 << 20])
def test_a_conversation_is_the_same_however_small_the_share_and_the_reads(share: int, piece: int) -> None:
    script = Script().open()
    script.begin()
    script.sender(credit=1_000)
    data = transfers(20, 100) + frames(BEGIN, End(), channel=1) * 3 + transfers(20, 700)
    for start in range(0, len(data), piece):
        script.end.events += script.connection.receive_data(data[start : start + piece], NOON, share)
    slices(script, b"", share)
    ids = [delivery.delivery_id for run in script.end.take(Deliveries) for delivery in run.deliveries]
    assert ids == [*range(20), *range(20)]
    assert len(script.end.take(SessionEnded)) == 3
    assert not script.connection.is_behind


def test_what_waits_counts_as_inflow_when_it_is_read() -> None:
    script = Script(inflow_size_max=5_000).open()
    script.begin()
    script.sender(credit=1_000)
    script.connection.receive_data(transfers(10, 1_000), NOON, 2_000)
    assert not script.connection.is_flooded
    slices(script, b"", 2_000)
    assert script.connection.is_flooded


def test_what_waits_behind_a_range_counts_as_inflow_when_it_is_read() -> None:
    script = Script(inflow_size_max=5_000).open()
    script.begin()
    script.receiver(credit=100).transfers([(b"t", b"m")] * 50)
    script.sender(handle=1, credit=1_000)
    settles = frames(Disposition(role=RECEIVER, first=0, last=49, settled=True, state=ACCEPTED))
    script.connection.receive_data(settles, NOON, 20 * NAMED_COST)
    script.connection.receive_data(transfers(10, 1_000, handle=1), NOON, 20 * NAMED_COST)
    assert not script.connection.is_flooded
    slices(script, b"", 1 << 20)
    assert script.connection.is_flooded
    assert script.connection.inflow.size == 10_000


def test_nothing_waits_on_a_connection_that_is_closed() -> None:
    script = Script().open()
    slices(script, frames(Close()) + frames(BEGIN, channel=1) * 20, FRAME_COST)
    assert script.connection.should_disconnect
    assert not script.connection.is_behind


def noise(script: Script) -> str | None:
    """100 empty frames, faster than they are taken; what the connection was closed with."""
    slices(script, EMPTY_FRAME * 100, 10 * FRAME_COST)
    closed = script.end.take(ConnectionClosed)
    return closed[0].error.condition if closed and closed[0].error is not None else None


def test_a_peer_that_only_makes_noise_is_closed() -> None:
    script = Script(noise_count_max=250).open()
    assert [noise(script) for _ in range(3)] == [None, None, RESOURCE_LIMIT_EXCEEDED]


def test_a_message_in_between_is_no_noise() -> None:
    script = Script(noise_count_max=250).open()
    script.begin()
    script.sender(credit=1_000)
    for _ in range(10):
        slices(script, transfers(1, 100) + EMPTY_FRAME * 20, 10 * FRAME_COST)
        assert noise(script) is None


def test_a_disposition_of_nothing_is_noise() -> None:
    script = Script(noise_count_max=250).open()
    script.begin()
    settles_nothing = frames(Disposition(role=True, first=1, last=9, settled=True))
    for _ in range(10):
        slices(script, settles_nothing + EMPTY_FRAME * 100, 10 * FRAME_COST)
    assert script.end.take(ConnectionClosed)


def test_a_peer_that_waits_for_answers_may_go_on_for_ever() -> None:
    script = Script(noise_count_max=250).open()
    for _ in range(100):
        script.end.events += script.connection.receive_data(EMPTY_FRAME * 9, NOON, 10 * FRAME_COST)
    assert not script.end.take(ConnectionClosed)


def test_noise_is_forgotten_after_a_while() -> None:
    script = Script(noise_count_max=250).open()
    for _ in range(10):
        assert noise(script) is None
        script.now += NOISE_FORGOTTEN_AFTER


def test_noise_is_not_forgotten_because_the_clock_was_set() -> None:
    script = Script(noise_count_max=250).open()
    for _ in range(2):
        assert noise(script) is None
        script.connection.clock_stepped(3_600_000)
        script.now += 3_600_000
    assert noise(script) == RESOURCE_LIMIT_EXCEEDED


def test_the_end_by_noise_is_reported_with_the_read_that_brought_it() -> None:
    script = Script(noise_count_max=250).open()
    data = EMPTY_FRAME * 1_000
    for _ in range(100):
        events = script.connection.receive_data(data, NOON, 10 * FRAME_COST)
        data = b""
        if script.connection.state is not State.OPEN:
            break
    assert [type(event) for event in events] == [ConnectionClosed]


def test_half_a_frame_is_not_work_that_waits() -> None:
    script = Script().open()
    frame = frames(BEGIN)
    script.connection.receive_data(frame[:12], NOON, 10 * FRAME_COST)
    assert not script.connection.is_behind
    script.end.events += script.connection.receive_data(frame[12:], NOON, 10 * FRAME_COST)
    assert [type(event) for event in script.end.events] == [SessionBegun]
