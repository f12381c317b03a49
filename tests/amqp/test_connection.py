import pytest

from tests.amqp.wire import NOON, Script, Wire, frames_in
from twinbus.amqp.codec.composites import encode_composite
from twinbus.amqp.codec.delivery_state import ACCEPTED
from twinbus.amqp.codec.frames import AMQP_HEADER, EMPTY_FRAME, encode_frame
from twinbus.amqp.codec.performatives import (
    RECEIVER,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Open,
    Performative,
    Transfer,
)
from twinbus.amqp.codec.types import Symbol
from twinbus.amqp.errors import RESOURCE_LIMIT_EXCEEDED, AmqpError
from twinbus.amqp.events import ConnectionClosed, Deliveries, LinkDetached, Opened, SessionBegun, SessionEnded
from twinbus.clock import NEVER
from twinbus.errors import ServerBusy

BEGIN = Begin(next_outgoing_id=0, incoming_window=10, outgoing_window=10)


def condition_of(script: Script) -> str:
    error = script.end.only(ConnectionClosed).error
    assert error is not None
    return error.condition


@pytest.mark.parametrize("chunk_size", [1, 2, 3, 7, 8, 9, 64, 1 << 20])
def test_a_conversation_is_the_same_however_its_bytes_are_cut(chunk_size: int) -> None:
    wire = Wire(chunk_size=chunk_size).open()
    session, _ = wire.session()
    sender, _ = wire.client_sender(session)
    _, out = wire.client_receiver(session)
    sender.transfers([(b"t%d" % number, b"payload %d" % number) for number in range(3)])
    out.transfer(b"down", b"tag")
    wire.run()
    up = [delivery.payload for event in wire.server.take(Deliveries) for delivery in event.deliveries]
    down = [delivery.payload for event in wire.client.take(Deliveries) for delivery in event.deliveries]
    assert up == [b"payload 0", b"payload 1", b"payload 2"]
    assert down == [b"down"]
    wire.client.connection.close()
    wire.run()
    assert wire.client.connection.should_disconnect
    assert wire.server.connection.should_disconnect


def test_the_open_tells_our_limits() -> None:
    product = {Symbol("product"): "here"}
    script = Script(frame_size_max=4096, channel_max=7, idle_timeout=30_000, properties=product)
    script.feed(AMQP_HEADER)
    script.say(Open(container_id="peer"))
    answer = script.raw()
    assert answer[:8] == AMQP_HEADER
    ((_, performative, _),) = frames_in(answer[8:])
    assert isinstance(performative, Open)
    assert (performative.max_frame_size, performative.channel_max) == (4096, 7)
    assert (performative.idle_time_out, performative.properties) == (30_000, product)


def test_pipelined_frames_before_our_answer_are_served_in_order() -> None:
    script = Script()
    script.feed(AMQP_HEADER)
    script.say(Open(container_id="peer"), BEGIN, channel=0)
    assert [type(event) for event in script.end.events] == [Opened, SessionBegun]


def test_the_peers_close_is_answered_once_and_everything_ends() -> None:
    wire = Wire().open()
    session, _ = wire.session()
    wire.client_sender(session)
    wire.client.connection.close(ServerBusy("later"))
    wire.run()
    kinds = [type(event) for event in wire.server.events if not isinstance(event, Opened)]
    assert kinds[-3:] == [LinkDetached, SessionEnded, ConnectionClosed]
    error = wire.server.only(ConnectionClosed).error
    assert error is not None
    assert (error.condition, error.description) == ("com.microsoft:server-busy", "later")
    assert wire.client.only(ConnectionClosed).error is None
    assert [type(p) for _, p, _ in frames_in(_behind_headers(wire.server.sent))].count(Close) == 1


def _behind_headers(sent: bytes) -> bytes:
    return sent[sent.index(AMQP_HEADER) + 8 :]


def test_the_answer_to_our_close_gets_no_answer() -> None:
    script = Script().open()
    script.connection.close()
    assert script.heard() == [Close()]
    assert not script.connection.should_disconnect
    script.say(Close())
    assert script.heard() == []
    assert script.connection.should_disconnect
    assert script.end.only(ConnectionClosed).error is None


def test_frames_that_cross_our_close_are_ignored() -> None:
    script = Script().open()
    script.begin()
    script.connection.close()
    script.raw()
    script.say(Transfer(handle=3), End(), BEGIN)
    assert script.heard() == []
    assert not script.end.take(SessionBegun)


def test_a_peer_that_does_not_answer_our_close_is_dropped_after_a_while() -> None:
    script = Script(close_timeout=5_000).open()
    script.connection.close()
    assert script.connection.tick(NOON + 4_999) == NOON + 5_000
    assert not script.connection.should_disconnect
    assert script.connection.tick(NOON + 5_000) == NEVER
    assert script.connection.should_disconnect
    script.feed(b"")
    assert script.end.only(ConnectionClosed).error is None


def test_a_lost_socket_ends_everything_once() -> None:
    script = Script().open()
    script.begin()
    script.sender()
    kinds = [type(event) for event in script.connection.lost()]
    assert kinds == [LinkDetached, SessionEnded, ConnectionClosed]
    assert script.connection.lost() == []


def test_silence_is_broken_every_ten_seconds_asked_for_or_not() -> None:
    script = Script().open(idle_time_out=None)
    assert script.connection.tick(NOON + 9_999) == NOON + 10_000
    assert script.raw() == b""
    assert script.connection.tick(NOON + 10_000) == NOON + 20_000
    assert script.raw() == EMPTY_FRAME


def test_a_peer_that_wants_to_hear_us_more_often_does() -> None:
    script = Script().open(idle_time_out=4_000)
    assert script.connection.tick(NOON + 2_000) == NOON + 4_000
    assert script.raw() == EMPTY_FRAME


def test_what_is_sent_puts_the_heartbeat_off() -> None:
    script = Script().open()
    script.now = NOON + 6_000
    script.begin()
    script.raw()
    assert script.connection.tick(NOON + 10_000) == NOON + 16_000
    assert script.raw() == b""


@pytest.mark.parametrize("in_pieces", [False, True], ids=["in one", "in pieces"])
def test_what_is_sent_between_two_ticks_puts_the_heartbeat_off(in_pieces: bool) -> None:
    script = Script().open()
    script.connection.tick(NOON + 6_000)
    script.connection.begin()
    assert script.connection.pieces_to_send() if in_pieces else script.raw()
    assert script.connection.tick(NOON + 15_999) == NOON + 16_000
    assert script.raw() == b""


def test_to_look_whether_there_is_something_to_send_puts_no_heartbeat_off() -> None:
    script = Script().open()
    script.connection.tick(NOON + 6_000)
    assert script.connection.pieces_to_send() == []
    script.connection.tick(NOON + 10_000)
    assert script.connection.pieces_to_send() == [EMPTY_FRAME]


def test_a_silent_peer_is_given_up_after_twice_the_idle_timeout() -> None:
    script = Script(idle_timeout=60_000, close_timeout=30_000).open()
    script.connection.tick(NOON + 119_999)
    script.raw()
    assert script.connection.tick(NOON + 120_000) == NOON + 150_000, "when it has had time to answer"
    (close,) = script.heard()
    assert isinstance(close, Close)
    assert close.error is not None
    assert close.error.condition == "amqp:resource-limit-exceeded"


def test_empty_frames_keep_a_connection_alive() -> None:
    script = Script(idle_timeout=60_000).open()
    script.now = NOON + 100_000
    script.feed(EMPTY_FRAME)
    script.connection.tick(NOON + 150_000)
    assert script.raw() == EMPTY_FRAME
    assert not script.end.take(ConnectionClosed)


@pytest.mark.parametrize("by", [3_600_000, -3_600_000], ids=["forward", "back"])
def test_a_connection_is_not_silent_because_the_clock_was_set(by: int) -> None:
    script = Script(idle_timeout=60_000).open()
    script.connection.tick(NOON + 9_999)
    script.connection.clock_stepped(by)
    script.connection.tick(NOON + by + 9_999)
    assert script.raw() == b""
    script.connection.tick(NOON + by + 10_000)
    assert script.raw() == EMPTY_FRAME
    script.connection.tick(NOON + by + 119_999)
    script.raw()
    script.connection.tick(NOON + by + 120_000)
    assert isinstance(script.heard()[0], Close)


@pytest.mark.parametrize("by", [3_600_000, -3_600_000], ids=["forward", "back"])
def test_what_is_sent_after_the_clock_was_set_puts_the_heartbeat_off_by_as_long_as_ever(by: int) -> None:
    script = Script().open()
    script.connection.clock_stepped(by)
    script.connection.begin()
    assert script.raw()
    assert script.connection.tick(NOON + by + 9_999) == NOON + by + 10_000
    assert script.raw() == b""


@pytest.mark.parametrize("by", [3_600_000, -3_600_000], ids=["forward", "back"])
def test_a_peer_has_as_long_to_open_when_the_clock_was_set(by: int) -> None:
    script = Script(handshake_timeout=30_000)
    script.feed(AMQP_HEADER)
    script.connection.clock_stepped(by)
    assert script.connection.tick(NOON + by + 29_999) == NOON + by + 30_000
    script.connection.tick(NOON + by + 30_000)
    assert script.connection.should_disconnect


def test_a_peer_that_never_opens_is_dropped() -> None:
    script = Script(handshake_timeout=30_000)
    script.feed(AMQP_HEADER)
    assert script.connection.tick(NOON + 29_999) == NOON + 30_000
    assert script.connection.tick(NOON + 30_000) == NEVER
    assert script.connection.should_disconnect
    script.feed(b"")
    error = script.end.only(ConnectionClosed).error
    assert error is not None
    assert error.condition == RESOURCE_LIMIT_EXCEEDED


@pytest.mark.parametrize(
    ("data", "condition"),
    [
        (b"\x00\x01\x00\x01\x02\x00\x00\x00", "amqp:connection:framing-error"),
        (b"\x00\x00\x00\x08\x01\x00\x00\x00", "amqp:connection:framing-error"),
        (encode_frame(0, b"", 9), "amqp:connection:framing-error"),
        (encode_frame(0, b"\x00\x53\x10"), "amqp:decode-error"),
        (encode_frame(0, b"\x00\x53\x99\x45"), "amqp:decode-error"),
        (encode_frame(0, b"\x00\x53\x14\xc0\xff\x05\x43\x43"), "amqp:decode-error"),
        (encode_frame(0, b"\x00\x53\x10\xc0\x04\x01\xa1\x01x"), "amqp:illegal-state"),
        (encode_frame(5, b"\x00\x53\x17\x45"), "amqp:illegal-state"),
        (encode_frame(5000, b"\x00\x53\x11\xc0\x05\x04\x40\x43\x43\x43"), "amqp:connection:framing-error"),
    ],
)
def test_a_fault_of_the_connection_closes_it_with_its_condition(data: bytes, condition: str) -> None:
    script = Script().open()
    script.feed(data)
    (close,) = script.heard()
    assert isinstance(close, Close)
    assert close.error is not None
    assert close.error.condition == condition
    assert close.error.description
    assert condition_of(script) == condition
    # Our close is out; what else comes on the broken connection changes nothing any more.
    script.feed(b"\xff" * 100)
    assert script.raw() == b""
    assert script.connection.should_disconnect


@pytest.mark.parametrize(
    "performative",
    [
        Transfer(handle=0, delivery_id=0, delivery_tag=b"t", message_format=0),
        Disposition(role=RECEIVER, first=0, last=0, settled=True, state=ACCEPTED),
    ],
)
def test_what_a_frame_of_another_type_holds_is_neither_a_transfer_nor_a_disposition(
    performative: Performative,
) -> None:
    script = Script().open()
    script.begin()
    script.sender()
    script.feed(encode_frame(0, encode_composite(performative), 9))
    assert not script.end.take(Deliveries)
    assert condition_of(script) == "amqp:connection:framing-error"


def test_a_fault_before_the_open_is_reported_after_ours() -> None:
    script = Script()
    script.feed(AMQP_HEADER)
    script.say(BEGIN)
    assert [type(p) for _, p, _ in frames_in(script.raw()[8:])] == [Open, Close]


def test_a_frame_size_below_the_minimum_is_refused() -> None:
    script = Script()
    script.feed(AMQP_HEADER)
    script.say(Open(container_id="peer", max_frame_size=511))
    assert condition_of(script) == "amqp:invalid-field"


def test_channels_up_to_the_limit_work_and_the_next_one_closes_the_connection() -> None:
    script = Script(channel_max=2).open()
    for channel in range(3):
        script.begin(channel)
    script.say(BEGIN, channel=3)
    assert condition_of(script) == "amqp:connection:framing-error"


def test_a_channel_cannot_begin_twice() -> None:
    script = Script().open()
    script.begin(1)
    script.say(BEGIN, channel=1)
    assert condition_of(script) == "amqp:illegal-state"


def test_a_channel_begins_again_after_its_end() -> None:
    script = Script().open()
    for _ in range(3):
        script.begin(1)
        script.say(End(), channel=1)
    assert len(script.end.take(SessionEnded)) == 3


def test_frames_on_a_channel_after_its_end_are_ignored() -> None:
    script = Script().open()
    script.begin(1)
    script.say(End(), Detach(handle=0, closed=True), Transfer(handle=0, delivery_id=0), channel=1)
    (_, end) = script.heard()
    assert isinstance(end, End)
    assert not script.end.take(ConnectionClosed)


def test_a_client_needs_an_open_connection_to_begin() -> None:
    wire = Wire()
    with pytest.raises(AmqpError, match="not open"):
        wire.client.connection.begin()


def test_each_side_finds_the_other_ones_channel() -> None:
    wire = Wire().open()
    pairs = [wire.session() for _ in range(3)]
    pairs[0][0].end()
    wire.run()
    again, _ = wire.session()
    assert again.channel == 0
    sender, _ = wire.client_sender(pairs[2][0])
    sender.transfer(b"payload", b"tag")
    wire.run()
    assert wire.server.only(Deliveries).link.session is pairs[2][1]
