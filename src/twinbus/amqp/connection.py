"""One AMQP 1.0 connection without I/O, in either role: bytes in, events and bytes out (part 2, section 2.4).

state        what happens                                       next state
STARTING     headers, SASL and both opens are exchanged         OPEN
STARTING     a fault or close before frames can be sent         CLOSED
STARTING     `handshake_timeout`                                CLOSED
STARTING     close, a fault of the peer                         CLOSING
OPEN         close, a fault of the peer, silence for too long   CLOSING
OPEN         the peer closes, answered at once                  CLOSED
CLOSING      the peer closes, a second fault, `close_timeout`   CLOSED
any          the socket is lost                                 CLOSED

A fault of the peer ends the smallest scope possible: a link, a session or, if the bytes after the fault cannot be trusted
or no smaller scope is concerned, the connection. `receive_data` never raises for faults: what the peer is sent waits in
`data_to_send`, and the events report the fault to the application.

The caller passes bytes and time:

    for event in connection.receive_data(data, now): ...
    transport.write(connection.data_to_send())          after every call of any kind
    connection.tick(now)                                when the last tick asked for it
    for event in connection.take_events(): ...          after tick and close, or they come with the next bytes
    connection.should_disconnect                        then flush, and close the socket
    connection.is_flooded                               then do not read for a while
    connection.is_behind                                then call receive_data(b"", ...) later, and do not read until then
    for event in connection.lost(): ...                 when the socket is gone, whoever closed it
"""

from collections.abc import Callable
from enum import Enum, auto

from twinbus.amqp.channels import Channels
from twinbus.amqp.codec.error_condition import ErrorCondition, FaultOfPeer
from twinbus.amqp.codec.frames import (
    AMQP_FRAME,
    EMPTY_FRAME,
    FRAME_SIZE_MIN,
    NO_LIMIT,
    PROTOCOL_HEADER,
    SASL_FRAME,
    FrameReader,
)
from twinbus.amqp.codec.performatives import Close, Open, Performative, decode_performative
from twinbus.amqp.codec.sasl import SaslCode, decode_sasl
from twinbus.amqp.codec.transfer_reader import DISPOSITION_MARK, TRANSFER_MARK
from twinbus.amqp.codec.transfer_writer import Part
from twinbus.amqp.connection_context import ConnectionContext
from twinbus.amqp.connection_settings import ConnectionSettings
from twinbus.amqp.errors import (
    ILLEGAL_STATE,
    INVALID_FIELD,
    RESOURCE_LIMIT_EXCEEDED,
    AmqpError,
    ConnectionFault,
    DecodeError,
    SessionFault,
)
from twinbus.amqp.events import ConnectionClosed, Deliveries, Dispositions, Event, Opened
from twinbus.amqp.handshake import Handshake, Role
from twinbus.amqp.lasting import Lasting
from twinbus.amqp.reassembly import SharedReassembly
from twinbus.amqp.session import Session
from twinbus.clock import NEVER, Millis
from twinbus.errors import MessagingError

__all__ = ["NO_LIMIT", "Connection", "ConnectionSettings", "Role"]

FRAME_COST = 512
"""Bytes that a frame counts at least, against the share of one call, unless it is a transfer or a disposition in its common
form: a frame of twenty bytes that begins a session costs as much work as a message."""
NAMED_COST = 32
"""Bytes that each delivery counts which a disposition with a range names. The frame is small, and the range may be of all deliveries
that are unsettled, again and again. What is more than the share is left to the next call."""
NOISE_FORGOTTEN_AFTER: Millis = 10_000


class State(Enum):
    STARTING = auto()
    OPEN = auto()
    CLOSING = auto()
    CLOSED = auto()


class Connection:
    def __init__(
        self, role: Role, settings: ConnectionSettings, now: Millis, shared: SharedReassembly | None = None
    ) -> None:
        """`shared`: room for incomplete messages, which all connections of the process use together."""
        self.role = role
        self.settings = settings
        self.state = State.STARTING
        self.remote_open: Open | None = None
        self._context = ConnectionContext.of(settings, shared)
        self.inflow = self._context.inflow
        """What waits for the application: `is_flooded` and `size` are looked at after every read."""
        self._outbox = self._context.outbox
        self._reports = self._context.reports
        self._reader = FrameReader(settings.frame_size_max)
        self._handshake = Handshake(role, self._context)
        self._channels = Channels(self._context)
        self._is_open_sent = False
        self._is_reported_closed = False
        self._share = NO_LIMIT
        self._kept = b""  # what came behind a range that is not done
        self.frame_count = 0
        """Frames that arrived so far, without transfers and dispositions in their common form."""
        self._noise_count = 0
        self._noise_at = now
        self._now = self._last_received = self._last_sent = now
        self._deadline = now + settings.handshake_timeout
        self._lasting = Lasting()
        self._heartbeat_interval = settings.heartbeat_interval

    # What the owner of the socket calls.

    def receive_data(self, data: bytes, now: Millis, share: int = NO_LIMIT) -> list[Event]:
        """Take bytes from the peer. Never raises because of their content.

        `share`: about how many bytes of frames to work on in this call; the others are kept (`is_behind`).
        """
        self._now = self._last_received = now
        self._share = share
        reader, frame_count = self._reader, self.frame_count
        if self._kept:
            data, self._kept = self._kept + data, b""
        size = len(data) + (reader.unread_size if reader.unread else 0)
        if self.state is not State.CLOSED:
            self._read(data)
            if self._reports.runs:
                self._count_deliveries(size - (reader.unread_size if reader.unread else 0))
        events = self._reports.take()
        if self.frame_count != frame_count and self.is_behind:
            self._count_noise(self.frame_count - frame_count, events)
            events += self._reports.take()
        return events

    def data_to_send(self) -> bytes:
        """Everything queued since the last call, b"" if that is nothing."""
        data = self._outbox.take()
        if data:
            # The time of the last call that passed one: too early if anything, so heartbeats are never late.
            self._last_sent = self._now
        return data

    def pieces_to_send(self) -> list[Part]:
        """The same in pieces, to be written together: large ones are not copied."""
        pieces = self._outbox.take_pieces()
        if pieces:
            self._last_sent = self._now
        return pieces

    def tick(self, now: Millis) -> Millis:
        """Send heartbeats when due, and give up on a silent peer. Returns when to call again."""
        self._now = now
        if self.state in (State.STARTING, State.CLOSING):
            if now >= self._deadline:
                self._finish(None if self.state is State.CLOSING else _TOO_SLOW)
            else:
                return self._deadline
        if self.state is not State.OPEN:
            return NEVER if self.state is State.CLOSED else self._deadline
        self._context.reassembly.drop_stalled(now, self.settings.incomplete_timeout)
        # Twice what we announced: a peer that sends just in time must not be cut off because its frames take a while.
        gives_up_at = self._last_received + 2 * self.settings.idle_timeout
        if now >= gives_up_at:
            self._fail(ConnectionFault("The peer was silent for too long.", RESOURCE_LIMIT_EXCEEDED))
            return self._deadline
        if now - self._last_sent >= self._heartbeat_interval:
            self._outbox.parts.append(EMPTY_FRAME)
            self._last_sent = now
        return min(self._last_sent + self._heartbeat_interval, gives_up_at)

    def take_events(self) -> list[Event]:
        """Of calls that return none: the links that ended because `tick` or `close` ended the connection."""
        return self._reports.take()

    def clock_stepped(self, by: Millis) -> None:
        """The clock was set by this much. Nobody has been silent for that long."""
        self._now += by
        self._last_received += by
        self._last_sent += by
        self._deadline += by
        self._noise_at += by
        self._context.reassembly.clock_stepped(by)

    def lost(self) -> list[Event]:
        """The socket is gone: returns the events that end every link, every session and the connection, unless reported before."""
        self._finish(None)
        return self._reports.take()

    @property
    def should_disconnect(self) -> bool:
        """There is nothing more to send or to receive."""
        return self.state is State.CLOSED

    @property
    def is_flooded(self) -> bool:
        """Too many deliveries wait for the application; do not read from the socket."""
        return self.inflow.is_flooded

    @property
    def held_back_size(self) -> int:
        """Bytes that wait for the peer to open the windows of its sessions."""
        return self._context.held_total.size

    @property
    def is_behind(self) -> bool:
        """The last call used its share up before it had read everything."""
        is_any_left = bool(self._reader.unread or self._kept) or self._reports.rest is not None
        return is_any_left and self.state is not State.CLOSED and not self._handshake.is_deciding

    # What the application calls.

    def restrain(self) -> None:
        """Server: the peer gets little room until `trust`."""
        self._context.restrain()
        self._lasting.is_stranger = True

    def trust(self) -> None:
        """Server: the peer has proved who it is."""
        self._context.trust()
        self._lasting.is_stranger = False

    def open(self) -> None:
        """Client: start. `Opened` follows."""
        assert self.role is Role.CLIENT
        self._handshake.start()
        self._open_if_possible()

    def sasl_outcome(self, code: SaslCode) -> list[Event]:
        """Server: answer `SaslInit`. Returns the events of what the peer has sent without waiting for the answer."""
        try:
            self._handshake.decide(code)
        except ConnectionFault as fault:
            self._fail(fault)
            return self._reports.take()
        self._reader.expects_header = True
        return self.receive_data(b"", self._now, self._share)

    def begin(self) -> Session:
        """Begin a session of our own. `SessionBegun` follows; links can be attached after it."""
        if self.state is not State.OPEN:
            raise AmqpError("The connection is not open.", ILLEGAL_STATE)
        return self._channels.begin()

    def close(self, error: MessagingError | None = None) -> None:
        """End the connection with all its sessions and links. `ConnectionClosed` follows when the peer has answered."""
        if self.state in (State.STARTING, State.OPEN):
            self._send_close(None if error is None else ErrorCondition.of(error))

    # What frames do.

    def _read(self, data: bytes) -> None:
        try:
            if self._handshake.is_deciding:
                self._reader.keep(data)
            else:
                self._read_frames(data)
        except ConnectionFault as fault:
            self._fail(fault)
        except DecodeError as fault:
            self._fail(DecodeError(f"A frame could not be read: {fault}"))

    def _read_frames(self, received: bytes) -> None:
        sessions, share, reader, reports = self._channels.by_remote_channel, self._share, self._reader, self._reports
        reports.ranged_count_max = share // NAMED_COST
        if reports.rest is not None and not self._is_rest_done(reports.rest):
            self._kept = received
            return
        for frame_type, channel, mark, data, start, end in reader.frames(received, share):
            # Only a handful of frames in the life of a connection are neither transfers nor dispositions.
            if mark == TRANSFER_MARK and frame_type == AMQP_FRAME:
                session = sessions.get(channel)
                if session is not None and session.transfer_frame(data, start, end):
                    if end <= reader.last_start:
                        reader.taken_to = session.transfer_run(data, start, end, reader.last_start)
                    continue
            elif mark == DISPOSITION_MARK and frame_type == AMQP_FRAME:
                session = sessions.get(channel)
                if session is not None and session.dispositions.frame(data, start, end):
                    if reports.rest is not None or share <= NAMED_COST * reports.ranged_count:
                        break
                    if end <= reader.last_start:
                        reader.taken_to = session.dispositions.run(data, start, end, reader.last_start)
                    continue
            self._frame_received(frame_type, channel, data[start:end])
            self.frame_count += 1
            share -= max(FRAME_COST, end - start)
            if share <= NAMED_COST * reports.ranged_count or self._handshake.is_deciding or self.state is State.CLOSED:
                break

    def _is_rest_done(self, rest: Callable[[], None]) -> bool:
        """Of a range that an earlier call began with; false if there is no time for anything else in this one."""
        reports = self._reports
        reports.rest = None
        rest()
        return reports.rest is None and self._share > NAMED_COST * reports.ranged_count

    def _frame_received(self, frame_type: int, channel: int, body: bytes) -> None:
        if frame_type == PROTOCOL_HEADER:
            self._handshake.header_received(body)
        elif frame_type == SASL_FRAME:
            self._handshake.frame_received(decode_sasl(body))
            self._reader.expects_header = self._handshake.expects_header
            self._open_if_possible()
        elif frame_type != AMQP_FRAME or not self._handshake.is_done:
            raise ConnectionFault(f"A frame of type {frame_type} is not expected at this point.")
        elif body:
            self._performative_received(channel, *decode_performative(body), body)

    def _performative_received(self, channel: int, performative: Performative, end: int, body: bytes) -> None:
        if isinstance(performative, Close):
            self._close_received(performative)
            return
        if self.state is State.CLOSING:
            return
        performative = self._lasting.kept(performative, end)
        if isinstance(performative, Open):
            self._open_received(performative)
        elif self.state is not State.OPEN:
            raise ConnectionFault(f"{performative.NAME} arrived before open.", ILLEGAL_STATE)
        else:
            try:
                self._channels.handle(channel, performative, body[end:])
            except SessionFault as fault:
                self._channels.fail(channel, fault)

    def _open_received(self, performative: Open) -> None:
        if self.state is not State.STARTING:
            raise ConnectionFault("The connection is already open.", ILLEGAL_STATE)
        if performative.max_frame_size < FRAME_SIZE_MIN:
            raise ConnectionFault(f"max-frame-size has to be at least {FRAME_SIZE_MIN}.", INVALID_FIELD)
        self.remote_open = performative
        self._outbox.frame_size_max = performative.max_frame_size
        self._channels.remote_channel_max = performative.channel_max
        if performative.idle_time_out:
            self._heartbeat_interval = min(self._heartbeat_interval, max(1, performative.idle_time_out // 2))
        self._send_open()
        self.state = State.OPEN
        self._reports.add(Opened(performative))

    def _open_if_possible(self) -> None:
        """A client opens as soon as it may; a server waits for the client's open."""
        if self.role is Role.CLIENT and self._handshake.is_amqp_next:
            self._send_open()

    def _send_open(self) -> None:
        if self._is_open_sent:
            return
        self._is_open_sent = True
        settings = self.settings
        self._outbox.send(
            0,
            Open(
                container_id=settings.container_id,
                hostname=settings.hostname,
                max_frame_size=settings.frame_size_max,
                channel_max=settings.channel_max,
                idle_time_out=settings.idle_timeout,
                properties=settings.properties,
            ),
        )

    def _close_received(self, performative: Close) -> None:
        if self.state is not State.CLOSING:
            self._channels.answer_all()
            self._send_close(None)
        self._finish(performative.error)

    def _send_close(self, error: ErrorCondition | None) -> None:
        self._channels.close(error)
        if not self._handshake.is_done:
            # Before the headers are exchanged there is no frame to say it with.
            self._finish(error)
            return
        self._send_open()
        self._outbox.send(0, Close(error=error))
        self.state = State.CLOSING
        self._deadline = self._now + self.settings.close_timeout

    def _fail(self, fault: MessagingError) -> None:
        # Before AMQP begins it is an answer: the peer speaks another protocol, or refuses the credentials.
        is_answer = isinstance(fault, ConnectionFault) and not self._handshake.is_done
        error = ErrorCondition.of(fault) if is_answer else FaultOfPeer.of(fault)
        if self.state in (State.STARTING, State.OPEN):
            self._send_close(error)
            self._report_closed(error)
        else:
            # A second fault, after our close: there is no point in reading on.
            self._finish(error)

    def _finish(self, error: ErrorCondition | None) -> None:
        self.state = State.CLOSED
        self._channels.close(error)
        self._report_closed(error)

    def _report_closed(self, error: ErrorCondition | None) -> None:
        if not self._is_reported_closed:
            self._is_reported_closed = True
            self._reports.add(ConnectionClosed(error))

    def _count_noise(self, frame_count: int, events: list[Event]) -> None:
        """Called only for a peer that sends frames faster than they are taken: one that waits for answers may go on for ever."""
        if self._now - self._noise_at >= NOISE_FORGOTTEN_AFTER or any(
            isinstance(event, Deliveries | Dispositions) for event in events
        ):
            self._noise_count = 0
        self._noise_at = self._now
        self._noise_count += frame_count
        if self._noise_count > self.settings.noise_count_max and self.state is not State.CLOSING:
            self._fail(
                ConnectionFault(
                    f"{self._noise_count} frames in a row neither brought nor settled a message. Wait for answers.",
                    RESOURCE_LIMIT_EXCEEDED,
                )
            )

    def _count_deliveries(self, size: int) -> None:
        """Once per run of deliveries, because most of what is counted is the same for all of a run."""
        unsettled_count = 0
        for run in self._reports.runs:
            unsettled_count += run.link.received(run.deliveries)
            run.link.session.announce_window_if_due()
        self.inflow.received(unsettled_count, size if unsettled_count else 0)


_TOO_SLOW = FaultOfPeer(condition=RESOURCE_LIMIT_EXCEEDED, description="The connection was not opened in time.")
