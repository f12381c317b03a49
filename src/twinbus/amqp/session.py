"""One session: frames of a channel in, events and answers out (AMQP 1.0 part 2, section 2.5).

state        what happens                                       next state
(none)       the peer begins, answered at once                  MAPPED
(none)       we begin                                           BEGINNING
BEGINNING    the peer begins as well                            MAPPED
BEGINNING    end, a fault of the peer                           ENDING
MAPPED       end, a fault of the peer                           ENDING
MAPPED       the peer ends, answered at once                    ENDED
MAPPED       the peer ends, and a link owes it a detach         FINISHING
FINISHING    the last of those detaches is sent, then our end   ENDED
ENDING       the peer ends; other frames are ignored            ENDED
any          the connection ends                                ENDED

A session holds its links by handle, numbers deliveries over all of them, and holds transfer frames back while the
peer's window is closed.
"""

from collections.abc import Callable
from enum import Enum, auto
from typing import Any, NamedTuple

from twinbus.amqp.codec.error_condition import ErrorCondition, FaultOfPeer
from twinbus.amqp.codec.frame_runs import TransferShape, transfer_shape
from twinbus.amqp.codec.frames import LARGE
from twinbus.amqp.codec.performatives import (
    Attach,
    Begin,
    Detach,
    Disposition,
    End,
    Flow,
    Performative,
    ReceiverSettleMode,
    SenderSettleMode,
    Transfer,
)
from twinbus.amqp.codec.terminus import Coordinator, Source, Target
from twinbus.amqp.codec.transfer_reader import NO_ID, TransferFields, read_transfer
from twinbus.amqp.codec.transfer_writer import Part
from twinbus.amqp.connection_context import ConnectionContext
from twinbus.amqp.dispositions import SessionDispositions
from twinbus.amqp.errors import NOT_ALLOWED, RESOURCE_LIMIT_EXCEEDED, UNATTACHED_HANDLE, LinkFault, SessionFault
from twinbus.amqp.events import Event, Incoming, SessionBegun, SessionEnded
from twinbus.amqp.incoming_link import IncomingLink
from twinbus.amqp.link import Link
from twinbus.amqp.link_table import LinkTable
from twinbus.amqp.outgoing_link import OutgoingLink
from twinbus.amqp.serial_number import MASK
from twinbus.amqp.windows import HeldBack, SessionWindows
from twinbus.errors import MessagingError

_new_tuple = tuple.__new__

PATIENCE_MAX = 64
PART_SIZE_MIN = 512
"""Every peer accepts frames of this size, so a part that is not the last one is rarely smaller."""


class _Run(NamedTuple):
    """What the transfers have in common that were last taken together."""

    shape: TransferShape
    handle: int
    message_format: int
    settled: bool


class SessionState(Enum):
    BEGINNING = auto()
    MAPPED = auto()
    FINISHING = auto()  # the peer has ended it, and we still owe it the answer to a detach that came before
    ENDING = auto()
    ENDED = auto()


class Session:
    def __init__(self, context: ConnectionContext, channel: int, forget: Callable[["Session"], None]) -> None:
        """`forget` is called when both sides have ended it."""
        self.channel = channel
        """Our channel; the peer's frames come on `remote_channel`."""
        self.remote_channel: int | None = None
        self.state = SessionState.BEGINNING
        self.windows = SessionWindows(context.settings.incoming_window)
        self.dispositions = SessionDispositions(context, channel)
        self.settings = context.settings
        self.inflow = context.inflow
        self.reassembly = context.reassembly
        self._outbox = context.outbox
        self._reports = context.reports
        self._links = LinkTable(self, context)
        self._held = HeldBack(context.held_total)
        self._held_total = context.held_total
        self._next_delivery_id = 0
        self._run: _Run | None = None
        self._unlike_count = 0  # transfers in a row that were followed by one unlike the remembered one
        self._patience = 1  # after this many of them, another shape is remembered
        self._is_reported_ended = False
        self._forget = forget
        self._remote_error: ErrorCondition | None = None

    # What the application calls.

    def attach(
        self,
        name: str,
        *,
        is_sender: bool,
        source: Source | None = None,
        target: Target | Coordinator | None = None,
        snd_settle_mode: SenderSettleMode = SenderSettleMode.MIXED,
        rcv_settle_mode: ReceiverSettleMode = ReceiverSettleMode.FIRST,
        max_message_size: int | None = None,
        properties: dict[Any, Any] | None = None,
    ) -> Link:
        """Attach a link of our own. `LinkOpened` or `LinkDetached` follows; a receiver grants credit after `LinkOpened`."""
        return self._links.attach(
            Attach(
                name=name,
                handle=0,
                role=not is_sender,
                snd_settle_mode=snd_settle_mode,
                rcv_settle_mode=rcv_settle_mode,
                source=source or Source(),
                target=target or Target(),
                initial_delivery_count=0 if is_sender else None,
                max_message_size=max_message_size,
                properties=properties,
            )
        )

    def end(self, error: MessagingError | None = None) -> None:
        """End the session and all its links. `SessionEnded` follows when the peer has answered."""
        if self.state in (SessionState.BEGINNING, SessionState.MAPPED):
            self._send_end(None if error is None else ErrorCondition.of(error))

    @property
    def is_held_back(self) -> bool:
        """Transfers wait for the peer's window: do not send more now."""
        return bool(self._held)

    @property
    def remote_frame_size_max(self) -> int:
        return self._outbox.frame_size_max

    # What the connection calls.

    def begin(self, remote_channel: int | None) -> None:
        """Send our begin: the first, or the answer to the peer's."""
        windows = self.windows
        self._outbox.send(
            self.channel,
            Begin(
                remote_channel=remote_channel,
                next_outgoing_id=windows.next_outgoing_id,
                incoming_window=windows.incoming_window,
                outgoing_window=windows.outgoing_window,
                handle_max=self.settings.handle_max,
            ),
        )

    def begin_received(self, remote_channel: int, begin: Begin) -> None:
        self.remote_channel = remote_channel
        self.windows.begun(begin.next_outgoing_id, begin.incoming_window)
        self._links.remote_handle_max = begin.handle_max
        if self.state is SessionState.BEGINNING:
            self.state = SessionState.MAPPED
            self.report(SessionBegun(self))

    def transfer_frame(self, data: bytes, start: int, end: int) -> bool:
        """Take a transfer in its common form. False if it has any other form, or needs special handling."""
        fields = read_transfer(data, start, end)
        if fields is None:
            return False
        handle, delivery_id, tag, message_format, settled, more, payload_start = fields
        link = self._links.receiving.get(handle)
        if link is None:
            return False
        if more or link.partial is not None:
            return self._part_of_delivery(link, fields, data, end)
        if delivery_id == NO_ID or end - payload_start > link.message_size_max:
            return False
        self.windows.incoming_count += 1
        delivery: Incoming = _new_tuple(
            Incoming, (delivery_id, tag, data[payload_start:end], message_format, settled, None)
        )
        reports = self._reports
        if reports.link is link:
            reports.deliveries.append(delivery)
        else:
            reports.add_delivery(link, delivery)
        return True

    def _part_of_delivery(self, link: IncomingLink, fields: TransferFields, data: bytes, end: int) -> bool:
        _, delivery_id, tag, message_format, settled, more, payload_start = fields
        # Small ones count as frames, as whatever else brings no message: a peer could send them for ever.
        if (more and end - payload_start < PART_SIZE_MIN) or not link.takes_part(delivery_id):
            return False
        # The last part is joined with the others at once; the others have to outlive what was read with them.
        is_view = not more and end - payload_start >= LARGE
        payload = memoryview(data)[payload_start:end] if is_view else data[payload_start:end]
        self.windows.incoming_count += 1
        link.part_received(delivery_id, tag, message_format, payload, settled=settled, more=more)
        self.announce_window_if_due()
        return True

    def transfer_run(self, data: bytes, start: int, pos: int, last_start: int) -> int:
        """Take the transfers from `pos` on that are like the one whose body starts at `start`, which has just been taken, as
        far as they start at `last_start` or before. Returns where the first other frame starts."""
        run = self._run
        if run is not None:
            end = self._take_run(run, data, pos, last_start)
            if end > pos:
                self._unlike_count = 0
                return end
        self._unlike_count += 1
        if self._unlike_count < self._patience:
            return pos
        self._unlike_count, self._patience = 0, min(2 * self._patience, PATIENCE_MAX)
        self._run = run = self._run_like(data, start, pos)
        return pos if run is None else self._take_run(run, data, pos, last_start)

    def _run_like(self, data: bytes, start: int, end: int) -> "_Run | None":
        fields = read_transfer(data, start, end)
        assert fields is not None, "it has just been taken"
        handle, delivery_id, _, message_format, settled, more, payload_start = fields
        if delivery_id == NO_ID:
            return None
        shape = transfer_shape(data, start, payload_start)
        return None if more or shape is None else _Run(shape, handle, message_format, settled)

    def _take_run(self, run: "_Run", data: bytes, pos: int, last_start: int) -> int:
        shape, handle, message_format, settled = run
        link = self._links.receiving.get(handle)
        if link is None or link.partial is not None:
            return pos
        unpack, head_size, front, tag_mark, back = shape
        last_start = min(last_start, len(data) - head_size)
        size_max = min(self.settings.frame_size_max, head_size + link.message_size_max)
        deliveries: list[Incoming] = []
        while pos <= last_start:
            size, found_front, delivery_id, found_mark, tag, found_back = unpack(data, pos)
            end = pos + size
            if (
                found_front != front
                or found_mark != tag_mark
                or found_back != back
                or not head_size <= size <= size_max
                or end > len(data)
            ):
                break
            payload = data[pos + head_size : end]
            deliveries.append(_new_tuple(Incoming, (delivery_id, tag, payload, message_format, settled, None)))
            pos = end
        if deliveries:
            self.windows.incoming_count += len(deliveries)
            self._reports.add_deliveries(link, deliveries)
        return pos

    def handle(self, performative: Performative, payload: bytes) -> None:
        """Any frame of the channel but begin. SessionFault if the session cannot go on, ConnectionFault if the connection cannot."""
        if isinstance(performative, End):
            self._end_received(performative)
        elif self.state is SessionState.MAPPED:
            if isinstance(performative, Transfer):
                self._transfer_received(performative, payload)
            else:
                _HANDLERS[type(performative)](self, performative)

    def announce_window_if_due(self) -> None:
        if self.windows.is_announcement_due and self.state is SessionState.MAPPED:
            self.send_flow()

    def fail(self, fault: MessagingError) -> None:
        """The peer violated the protocol of the session: end it, and report that at once."""
        if self.state in (SessionState.BEGINNING, SessionState.MAPPED):
            error = FaultOfPeer.of(fault)
            self._send_end(error)
            self._report_ended(error)

    def answer_all(self) -> None:
        """The peer closes the connection: answer its detaches and its end at once, whatever else is owed."""
        for link in self._links.ending():
            link.end()

    def connection_closed(self, error: ErrorCondition | None) -> None:
        self._clear(error)
        self.state = SessionState.ENDED
        self._report_ended(error)

    # What links call.

    def send(self, performative: Performative) -> None:
        """Send after the dispositions that were made before: a detach must not overtake them."""
        self.dispositions.flush()
        self._outbox.send(self.channel, performative)

    def report(self, event: Event) -> None:
        self._reports.add(event)

    def uncounted(self, link: IncomingLink) -> int:
        """How many deliveries of this read have come on the link so far: they are counted at its end."""
        return sum([len(run.deliveries) for run in self._reports.runs if run.link is link])

    def report_delivery(self, link: IncomingLink, delivery: Incoming) -> None:
        self._reports.add_delivery(link, delivery)

    def send_flow(
        self,
        handle: int | None = None,
        delivery_count: int | None = None,
        credit: int | None = None,
        drain: bool = False,
    ) -> None:
        """Every flow announces the whole state of the session, and opens our window fully."""
        windows = self.windows
        windows.announce()
        self.send(
            Flow(
                next_incoming_id=windows.next_incoming_id,
                incoming_window=windows.incoming_window,
                next_outgoing_id=windows.next_outgoing_id,
                outgoing_window=windows.outgoing_window,
                handle=handle,
                delivery_count=delivery_count,
                link_credit=credit,
                drain=drain,
            )
        )

    def take_delivery_ids(self, count: int) -> int:
        """Reserve `count` consecutive ids; returns the first."""
        first = self._next_delivery_id
        self._next_delivery_id = (first + count) & MASK
        return first

    def transmit(self, link: OutgoingLink, parts: list[Part]) -> None:
        """Send frames (pairs of parts) as far as the peer's window allows, and hold the others back.

        After the dispositions that were made before: uAMQP takes an answer for an error if it overtakes the outcome of its request.
        """
        self.dispositions.flush()
        frame_count = len(parts) >> 1
        waiting_size = self._held_total.size
        if frame_count <= self.windows.remote_incoming_window and not self._held:
            self._outbox.parts += parts
            self.windows.sent(frame_count)
        else:
            self._held.add(link, parts)
            self._release_held()
        self.dispositions.bound()
        # What is sent at once always has room, or a large message could never be.
        if waiting_size > self.settings.held_back_size_max:
            self.fail(
                SessionFault(
                    f"{waiting_size} bytes of this connection wait for the incoming-windows of its sessions. Open them, or grant "
                    "less credit.",
                    RESOURCE_LIMIT_EXCEEDED,
                )
            )

    def transmit_drained(self, link: OutgoingLink) -> None:
        """Send the flow that reports a drained link; it must not overtake the transfers before it."""
        if self._held:
            self._held.add_drained(link)
        else:
            link.send_flow(drain=True)

    def forget_outgoing(self, link: OutgoingLink) -> None:
        """Ignore what the peer says about its deliveries from now on, and drop those that wait for the window."""
        self.dispositions.forget_outgoing(link)
        if self._held:
            self._held.drop(link)

    def remove(self, link: Link) -> None:
        self._links.remove(link)
        # All others ended with the peer's end.
        if self.state is SessionState.FINISHING and self._links.is_empty:
            self._finish()

    def take_singly(self, link: IncomingLink) -> None:
        """From now on its transfers are frames like any other, each of which counts against the share of a connection."""
        self._links.stop_receiving(link)

    def forget_incoming(self, link: IncomingLink) -> None:
        self._links.stop_receiving(link)
        self.dispositions.forget_incoming(link)

    # What frames do.

    def _attach_received(self, attach: Attach) -> None:
        self._links.attach_received(attach)

    def _detach_received(self, detach: Detach) -> None:
        self._links.detach_received(detach)

    def _flow_received(self, flow: Flow) -> None:
        self.windows.flow_received(flow.next_incoming_id, flow.incoming_window)
        self._release_held()
        if flow.handle is None:
            if flow.echo:
                self.send_flow()
            return
        link = self._link_of(flow.handle)
        assert isinstance(link, OutgoingLink | IncomingLink)
        link.flow_received(flow)

    def _transfer_received(self, transfer: Transfer, payload: bytes) -> None:
        self.windows.incoming_count += 1
        link = self._link_of(transfer.handle)
        if isinstance(link, IncomingLink):
            link.transfer_received(transfer, payload)
        else:
            link.fail(LinkFault("A transfer arrived on a link on which the peer is the receiver.", NOT_ALLOWED))
        self.announce_window_if_due()

    def _disposition_received(self, disposition: Disposition) -> None:
        self.dispositions.received(disposition)

    def _end_received(self, end: End) -> None:
        self._remote_error = end.error
        if self.state is SessionState.MAPPED and self._links.ending():
            # An answer to a detach is held back while its link owes something to the peer: the end waits for it.
            self.state = SessionState.FINISHING
            self._held.clear()
            self._links.clear(end.error, spares_ending=True)
        elif self.state is not SessionState.FINISHING:
            self._finish()

    def _finish(self) -> None:
        """The peer has ended the session: answer that, unless it is itself an answer."""
        if self.state is not SessionState.ENDING:
            self._send_end(None, self._remote_error)
        self.state = SessionState.ENDED
        self._report_ended(self._remote_error)
        self._forget(self)

    def _send_end(self, error: ErrorCondition | None, remote_error: ErrorCondition | None = None) -> None:
        self.send(End(error=error))
        self.state = SessionState.ENDING
        self._clear(error or remote_error)

    def _clear(self, error: ErrorCondition | None) -> None:
        self.dispositions.clear()
        self._held.clear()
        self._links.clear(error)

    def _report_ended(self, error: ErrorCondition | None) -> None:
        if not self._is_reported_ended:
            self._is_reported_ended = True
            self.report(SessionEnded(self, error))

    def _link_of(self, handle: int) -> Link:
        link = self._links.by_remote_handle.get(handle)
        if link is None:
            raise SessionFault(f"No link is attached at handle {handle}.", UNATTACHED_HANDLE)
        return link

    def _release_held(self) -> None:
        if not self._held:
            return
        while self._held:
            window = self.windows.remote_incoming_window
            if self._held.is_next_a_transfer and window <= 0:
                return
            link, parts = self._held.pop(window)
            if parts:
                self._outbox.parts += parts
                self.windows.sent(len(parts) >> 1)
            else:
                link.send_flow(drain=True)
        for link in self._links.outgoing():
            link.report_credit()


_HANDLERS: dict[type[Performative], Callable[[Session, Any], None]] = {
    Attach: Session._attach_received,
    Flow: Session._flow_received,
    Disposition: Session._disposition_received,
    Detach: Session._detach_received,
}
