"""Whatever bytes come, the connection answers in the protocol or ends with a condition; it never raises."""

import functools
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.amqp.wire import NOON, Wire, frames_in
from twinbus.amqp.codec.frames import AMQP_HEADER, SASL_HEADER
from twinbus.amqp.codec.performatives import Close
from twinbus.amqp.codec.sasl import SaslCode
from twinbus.amqp.connection import Connection, ConnectionSettings, Role
from twinbus.amqp.events import (
    ConnectionClosed,
    Event,
    LinkAttached,
    LinkDetached,
    LinkOpened,
    SaslInit,
    SessionBegun,
    SessionEnded,
)
from twinbus.amqp.incoming_link import IncomingLink
from twinbus.amqp.outgoing_link import OutgoingLink


@functools.cache
def conversation() -> tuple[bytes, bytes]:
    """Everything that a client and a server said in a connection with a bit of everything."""
    wire = Wire(server={"frame_size_max": 512}, client={"frame_size_max": 512}).open()
    session, _ = wire.session()
    sender, incoming = wire.client_sender(session)
    receiver, outgoing = wire.client_receiver(session)
    sender.transfers([(b"tag-%d" % number, bytes(50)) for number in range(3)])
    sender.transfer(bytes(1500), b"large")
    outgoing.transfers([(b"tag-%d" % number, bytes(50)) for number in range(4)])
    wire.run()
    incoming.settle(0, 3, None)
    receiver.settle(0, 2, None)
    receiver.drain()
    wire.run()
    outgoing.drained()
    sender.detach()
    wire.run()
    session.end()
    wire.run()
    wire.client.connection.close()
    wire.run()
    return wire.client.sent, wire.server.sent


class App:
    """Answers every event, so that damaged bytes get as deep as they can; checks that links and sessions end once."""

    def __init__(self, role: Role) -> None:
        self.connection = Connection(role, ConnectionSettings(container_id="fuzzed", frame_size_max=512), NOON)
        if role is Role.CLIENT:
            self.connection.open()
        self.alive: set[Any] = set()
        self.gone: set[Any] = set()
        self.closed: list[ConnectionClosed] = []

    def feed(self, data: bytes) -> None:
        self.handle(self.connection.receive_data(data, NOON))
        self.check_output(self.connection.data_to_send())

    def handle(self, events: list[Event]) -> None:
        for event in events:
            assert not self.closed, "nothing is reported after the end"
            if isinstance(event, SaslInit):
                self.handle(self.connection.sasl_outcome(SaslCode.OK))
            elif isinstance(event, SessionBegun):
                self.alive.add(event.session)
            elif isinstance(event, LinkAttached | LinkOpened):
                self.alive.add(event.link)
                self.answer(event.link)
            elif isinstance(event, LinkDetached):
                self.end(event.link)
            elif isinstance(event, SessionEnded):
                self.end(event.session)
            elif isinstance(event, ConnectionClosed):
                self.closed.append(event)

    def answer(self, link: Any) -> None:
        if isinstance(link, IncomingLink):
            link.accept(credit=10)
        elif isinstance(link, OutgoingLink):
            link.accept()
            link.transfers([(b"t", b"payload")] * 3)

    def end(self, what: Any) -> None:
        assert what not in self.gone
        self.gone.add(what)
        self.alive.discard(what)

    def check_output(self, data: bytes) -> None:
        """Our own words stay well-formed, and the last one about a fault names a condition."""
        for header in (SASL_HEADER, AMQP_HEADER):
            data = data.replace(header, b"")
        for _, performative, _ in frames_in(data):
            if isinstance(performative, Close) and performative.error is not None:
                assert performative.error.condition
                assert performative.error.description

    def finish(self) -> None:
        self.handle(self.connection.lost())
        assert len(self.closed) == 1
        assert not self.alive


@settings(max_examples=150)
@given(st.lists(st.binary(max_size=80), max_size=5), st.sampled_from([b"", AMQP_HEADER, SASL_HEADER]))
def test_garbage_never_raises(chunks: list[bytes], header: bytes) -> None:
    app = App(Role.SERVER)
    app.feed(header)
    for chunk in chunks:
        app.feed(chunk)
    app.finish()


@settings(max_examples=300)
@given(
    st.sampled_from(Role),
    st.lists(st.tuples(st.integers(0, 1 << 16), st.integers(0, 255)), max_size=4),
    st.integers(1, 3000),
)
def test_a_damaged_conversation_never_raises(role: Role, damages: list[tuple[int, int]], chunk_size: int) -> None:
    data = bytearray(conversation()[0 if role is Role.SERVER else 1])
    for place, value in damages:
        data[place % len(data)] = value
    app = App(role)
    app.check_output(app.connection.data_to_send())
    for pos in range(0, len(data), chunk_size):
        app.feed(bytes(data[pos : pos + chunk_size]))
    app.finish()


@settings(max_examples=150)
@given(st.data())
def test_frames_in_any_order_never_raise(data: st.DataObject) -> None:
    stream = conversation()[0]
    start = stream.index(AMQP_HEADER) + 8
    pieces, pos = [], start
    while pos < len(stream):
        size = int.from_bytes(stream[pos : pos + 4])
        pieces.append(stream[pos : pos + size])
        pos += size
    order = data.draw(st.lists(st.sampled_from(pieces), max_size=25))
    app = App(Role.SERVER)
    app.feed(AMQP_HEADER + pieces[0] + pieces[1])
    for piece in order:
        app.feed(piece)
    app.finish()


def test_the_undamaged_conversation_closes_without_an_error() -> None:
    app = App(Role.SERVER)
    app.feed(conversation()[0])
    assert [event.error for event in app.closed] == [None]
    assert app.connection.should_disconnect
