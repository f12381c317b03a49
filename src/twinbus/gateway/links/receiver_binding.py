"""A client's receiver link, bound to a queue: credit in, messages out, dispositions in, confirmations out.

Delivery tags are the lock tokens, so a disposition finds its messages without a map here. Message locks outlive the link; a
lock on a message session ends with it.

Default outcome. The SDKs name none. A client that names one in its source, as those for JMS do, wants it for every message
that it leaves without an outcome (AMQP 1.0, section 3.5.3): when it settles without one, and when the link ends. Such a link
remembers what is unsettled (`_unsettled`), and its locks do not outlive it. A settlement in a transaction that is rolled back
has no outcome either: if the client has settled it, and so knows nothing of it any more, the message goes back.

Credit. The client gives credit to the link, and the queue takes from `credit`. In receive-and-delete the queue takes messages
and delivers them only when their removal is durable; until then they are under way:

    under way   = _under_way + _granted - credit
    link credit = credit + under way              while the link may be served; otherwise credit is 0

So a client never gets more than it asked for, even if it lowers or raises its credit while removals are being written. This
holds because `_grant` alone sets `credit`: the queue only lowers it by what it takes, and raises it by what it could not
remove. Setting `credit` anywhere else, or delivering messages that were not taken from it, breaks it.

Where a queue has parts at several nodes, it passes credit on to them, and that is under way as well, for as long as nothing comes. If
the client lowers its credit to less than that, the queue recalls it all, and gets what is left.

Drain. `drained` is the promise that nothing more comes for the credit given, so it is sent only when nothing is under way
and no confirmation is outstanding (`_settling`). Each event that can end the wait calls `_drain` again: a delivery, an answer
to a settlement, new credit, and the tick, because a store that fails says nothing of messages that will not come.

Confirmations. A settlement that the client did not settle itself is confirmed exactly once, when the queue has decided,
however long that takes; `_settling` counts those that are outstanding. Settlements of one disposition may be decided in parts.

After the end. A client that detaches does not see what comes after our answer, so `_end` holds the answer back until every
settlement is confirmed (`is_answer_held` keeps the AMQP layer from answering itself). Later calls find a link that is gone
and send nothing: messages in receive-and-delete whose removal was under way (they are lost, which that mode permits), and
answers of the queue after the connection is lost (the client learns the outcome by receiving the message again, or not).
"""

from collections.abc import Callable, Sequence
from functools import partial

from twinbus.amqp.codec.delivery_state import DeliveryState, Rejected, TransactionalState
from twinbus.amqp.codec.performatives import ReceiverSettleMode
from twinbus.amqp.codec.transfer_writer import Payload
from twinbus.amqp.outgoing_link import OutgoingLink
from twinbus.broker.consumer import ReceiveMode, SessionLock, TakenMessage
from twinbus.broker.outcomes import COMPLETE, RELEASE, Abandon, Outcome
from twinbus.broker.replies import UNAWAITED
from twinbus.clock import Millis
from twinbus.errors import ArgumentError, MessagingError
from twinbus.gateway.addresses import EntityNode
from twinbus.gateway.links.failure_pace import FailurePace, LeftPaces
from twinbus.gateway.links.link_meter import LinkMeter
from twinbus.gateway.links.outcome_states import confirmation, is_refusal, outcome_of, ranges
from twinbus.gateway.links.receive_window import ReceiveWindow
from twinbus.gateway.namespace_view import EntityTraffic
from twinbus.gateway.nodes.coordinator import Transactions
from twinbus.meter.operation import Cause
from twinbus.model.delivery import encode_delivery, encode_locked
from twinbus.store.changes import StoredMessage


class ReceiverBinding:
    """Implements the broker's `Consumer`."""

    __slots__ = (
        "_default_outcome",
        "_granted",
        "_is_drain_due",
        "_is_end_due",
        "_is_paused",
        "_is_socket_full",
        "_left_paces",
        "_link",
        "_pace",
        "_queue",
        "_rests_until",
        "_settling",
        "_traffic",
        "_transactions",
        "_under_way",
        "_unsettled",
        "_used_at",
        "_wake",
        "_window",
        "credit",
        "meter",
        "mode",
        "node",
        "path",
        "session",
    )

    def __init__(
        self,
        link: OutgoingLink,
        node: EntityNode,
        path: str,
        mode: ReceiveMode,
        session: SessionLock | None,
        traffic: EntityTraffic,
        meter: LinkMeter,
        transactions: Transactions,
        now: Millis,
        wake: Callable[[], None],
        left_paces: LeftPaces,
    ) -> None:
        assert node.queue is not None
        self.credit = 0
        self.mode = mode
        self.node = node
        self.session = session
        self.path = path
        self._link = link
        link.is_answer_held = True
        self._queue = node.queue
        self._used_at = now
        self._traffic = traffic
        self.meter = meter
        self._window = ReceiveWindow(deletes=mode is ReceiveMode.RECEIVE_AND_DELETE)
        self._transactions = transactions
        self._wake = wake
        named = None if link.source is None else link.source.default_outcome
        self._default_outcome = outcome_of(named) or RELEASE
        self._unsettled: set[bytes] | None = None if named is None else set()
        self._granted = 0  # what `credit` was set to last
        self._under_way = 0  # taken from earlier credit and not delivered yet; see above
        self._settling = 0  # settlements that the client waits for
        self._is_drain_due = False
        self._is_end_due = False
        self._is_socket_full = False
        self._left_paces = left_paces
        self._pace = left_paces.take(path)  # since it has failed without a success
        self._rests_until: Millis = 0  # because of failures; 0: it does not rest
        if self._pace is not None and self._pace.rests_until > now:
            self._rests_until = self._pace.rests_until
        self._is_paused = self._rests_until > 0  # for this, or a full socket

    # Called by the queue.

    def deliver(self, deliveries: list[TakenMessage]) -> None:
        is_locking = self.mode is ReceiveMode.PEEK_LOCK
        encoded: list[tuple[bytes, Payload]]
        encoded = encode_locked(deliveries) if is_locking else [(b"", _unlocked(row)) for row, _, _ in deliveries]
        self._link.transfers(encoded, settled=not is_locking)
        if self._unsettled is not None and is_locking:
            self._unsettled.update([token for token, _ in encoded])
        self._under_way -= len(encoded)
        if self._link.session.is_held_back:
            # Nothing more while the window of the client's AMQP session is shut; its opening is reported as a change of credit.
            self._grant(0)
        if self._is_drain_due:
            self._drain()
        traffic, stopwatch = self._traffic, self._traffic.stopwatch
        traffic.messages_out += len(encoded)
        if encoded:
            # The first is the oldest of the burst; to look at each would cost more than it tells.
            waited_ms = stopwatch.wall() - deliveries[0].message.enqueued_at
            stopwatch.waited.observe(max(0, waited_ms) / 1000, len(encoded))
            if stopwatch.spans is not None:
                stopwatch.spans.delivered(self.path, deliveries)
        traffic.bytes_out += sum(
            [len(payload) if isinstance(payload, bytes) else payload.size for _, payload in encoded]
        )
        self._window.delivered(len(encoded))
        self.meter.delivered(deliveries)
        self._wake()

    def credit_returned(self, now: Millis) -> None:
        if self._is_drain_due:
            self._drain()
        elif self._is_paused:
            self._grant(0)
        else:
            self._pass_on(now)

    def session_lost(self, error: MessagingError) -> None:
        self._link.detach(error)
        self._wake()

    # Called by the connection.

    def credit_told(self, credit: int, *, drain: bool) -> None:
        """The client sent its credit; `credit_changed` follows. This only decides whether the last receive was empty."""
        if self._window.told(credit, drain=drain):
            self.meter.counted(Cause.EMPTY_RECEIVE)

    def credit_changed(self, now: Millis) -> None:
        """Follow the link's credit as it is now: the event may be older than deliveries of the same read."""
        link = self._link
        self._used_at = now
        if not self._is_paused:
            self._pass_on(now)
            if self._under_way > link.credit and not link.session.is_held_back:
                # The client has taken some of it back. What is being removed comes nevertheless; the rest must not.
                self._queue.recall(self, now, waits=False)
        if link.is_draining:
            self._drain()
        else:
            self._is_drain_due = False

    def _pass_on(self, now: Millis) -> None:
        self._grant(self._link.credit)
        if self.credit > 0:
            self._queue.pump(now, self)

    def _grant(self, credit: int) -> None:
        """Set what the queue may take: the link's credit, less what is under way."""
        self._under_way += self._granted - self.credit
        self.credit = self._granted = max(0, credit - self._under_way)

    def _drain(self, *, may_wait: bool = True) -> None:
        """Answer a drain with what is there, now or as soon as nothing is under way.

        The JavaScript SDK closes a link that makes it wait, so messages that may arrive later are not waited for. Messages
        under way come first, or they would reach a client that has stopped listening. So do confirmations: that SDK
        drains a link before it closes it, and does not see what comes after. What the queue is reading from the store counts
        as there, but a store may hang, so that is waited for only until the next tick (`may_wait`).
        """
        if may_wait and self.credit > 0 and self._queue.is_reading:
            self._is_drain_due = True
            return
        self._grant(0)
        self._is_drain_due = self._under_way > 0 or self._settling > 0
        if self._under_way > 0:
            self._queue.recall(self, self._used_at)
        elif not self._is_drain_due:
            self._end_receive()
            self._link.drained()
            self._wake()

    def _end_receive(self) -> None:
        if self._window.ended():
            self.meter.counted(Cause.EMPTY_RECEIVE)

    def pause(self) -> None:
        """The socket's buffer is full: nothing is handed over until `resume`."""
        self._is_socket_full = self._is_paused = True
        self._grant(0)

    def resume(self, now: Millis) -> None:
        self._is_socket_full = False
        self._go_on(now)

    def _go_on(self, now: Millis) -> None:
        self._is_paused = self._is_socket_full or self._rests_until > 0
        if not self._is_paused:
            self.credit_changed(now)

    def failed(self, now: Millis) -> None:
        """Something that was delivered here was abandoned, or its settlement refused: it may come again at once, but not for
        ever. See `failure_pace`."""
        if self._pace is None:
            self._pace = FailurePace()
        rest = self._pace.failed(self._link.delivery_count, now)
        if rest:
            self._rests_until = now + rest
            self._is_paused = True
            self._grant(0)

    def dispositions(
        self, deliveries: Sequence[tuple[int, bytes]], state: DeliveryState | None, *, is_settled: bool, now: Millis
    ) -> None:
        self._used_at = now
        if isinstance(state, TransactionalState):
            self._settle_in_transaction(deliveries, state, is_settled=is_settled, now=now)
            return
        try:
            outcome = self._default_outcome if state is None else outcome_of(state)
        except ArgumentError as error:
            # The message stays locked; a client that settled it itself gets it again when the lock ends.
            if not is_settled:
                self.confirm([delivery_id for delivery_id, _ in deliveries], Rejected.because(error))
            return
        if outcome is None or (state is None and not is_settled):
            return
        if outcome is COMPLETE:
            self._pace = None
        else:
            self._unusual(outcome, now)
        self._traffic.settled += len(deliveries)
        self._window.settled(len(deliveries))
        tokens = [tag for _, tag in deliveries]
        if self._unsettled is not None:
            self._unsettled.difference_update(tokens)
        if is_settled:
            self.meter.settled(len(tokens))
            self._queue.settle_each(tokens, outcome, now, UNAWAITED, self.session)
            return
        self._settling += len(deliveries)
        reply = _SettleReply(self, [delivery_id for delivery_id, _ in deliveries], confirmation(state))
        self._queue.settle_each(tokens, outcome, now, reply, self.session)

    def _unusual(self, outcome: Outcome, now: Millis) -> None:
        """An outcome other than completion: whether it is a failure, gets somewhere, or is neither."""
        if isinstance(outcome, Abandon):
            if not outcome.hidden_until(now):
                self.failed(now)
        elif outcome is not RELEASE:
            self._pace = None

    def _settle_in_transaction(
        self, deliveries: Sequence[tuple[int, bytes]], state: TransactionalState, *, is_settled: bool, now: Millis
    ) -> None:
        self._traffic.settled += len(deliveries)
        self._window.settled(len(deliveries))
        ids, tokens = [delivery_id for delivery_id, _ in deliveries], [tag for _, tag in deliveries]
        self._transactions.settle(
            state,
            self._link.session,
            self._queue,
            tokens,
            now,
            partial(self._settled_in_transaction, ids, tokens, state, is_settled, now),
            is_settled=is_settled,
            message_session=self.session,
        )

    def _settled_in_transaction(
        self,
        ids: Sequence[int],
        tokens: Sequence[bytes],
        state: TransactionalState,
        is_settled: bool,
        now: Millis,
        answer: DeliveryState,
    ) -> None:
        is_taken = isinstance(answer, TransactionalState) and not is_refusal(answer.outcome)
        if is_taken:
            self._transactions.after_commit(state.txn_id, partial(self._committed, len(tokens)))
        else:
            self.failed(now)
        if is_settled:
            if self._unsettled is not None:
                self._unsettled.difference_update(tokens)
            if isinstance(answer, TransactionalState):
                self._transactions.after_rollback(state.txn_id, partial(self._give_back, tokens), now)
            else:
                self._give_back(tokens, now)
            return
        if is_taken and self._link.rcv_settle_mode is ReceiverSettleMode.FIRST:
            # In this mode the client waits for no answer, and after a rollback it may settle the same delivery differently,
            # so the delivery stays unsettled until the commit.
            self._transactions.after_commit(state.txn_id, partial(self.confirm, ids, answer))
        else:
            self.confirm(ids, answer)

    def _committed(self, count: int) -> None:
        self._pace = None
        self.meter.settled(count)

    def _give_back(self, tokens: Sequence[bytes], now: Millis) -> None:
        """The client is done with these and gave them no outcome that counts: its transaction failed, or the link ended."""
        self.failed(now)
        self._queue.settle_each(tokens, self._default_outcome, now, UNAWAITED)

    def confirm(self, ids: Sequence[int], state: DeliveryState) -> None:
        for first, last in ranges(ids):
            self._link.confirm(first, last, state)
        self._wake()

    def answer(self, ids: Sequence[int], state: DeliveryState) -> None:
        """Confirm settlements that the queue has decided."""
        self.confirm(ids, state)
        self._settling -= len(ids)
        if self._is_drain_due:
            self._drain()
        if self._is_end_due:
            self._end()

    def is_idle_since(self, when: Millis) -> bool:
        """A link that waits for messages is in use, however long none arrives."""
        return self._used_at < when and not self._link.credit

    def tick(self, now: Millis) -> None:
        if self._rests_until and now >= self._rests_until:
            self._rests_until = 0
            self._go_on(now)
        if self._is_paused and self._under_way > 0:
            # What other nodes may still hand over would come in spite of that, and wait in memory.
            self._queue.recall(self, now, waits=False)
        # If the store failed while messages were under way, nothing else reports that none will come.
        if self._is_drain_due:
            self._drain(may_wait=False)

    def clock_stepped(self, by: Millis) -> None:
        self._used_at += by
        if self._rests_until:
            self._rests_until += by
        if self._pace is not None:
            self._pace.clock_stepped(by)

    def unbind(self, now: Millis) -> None:
        """The link or the connection is gone."""
        self._end_receive()
        self._grant(0)
        if self._unsettled:
            self._give_back(list(self._unsettled), now)
        if self._pace is not None:
            self._left_paces.leave(self.path, self._pace)
        self._queue.detach(self, now)
        self._end()

    def _end(self) -> None:
        """Answer the client's detach, which waits for it, once its settlements are confirmed."""
        self._is_end_due = self._settling > 0
        if not self._is_end_due:
            self._link.end()
            self._wake()


def _unlocked(row: StoredMessage) -> bytes:
    return encode_delivery(
        row.content,
        sequence_number=row.sequence_number,
        enqueued_at=row.enqueued_at,
        delivery_count=row.delivery_count,
        state=row.state,
        enqueued_sequence_number=row.enqueued_sequence_number,
        expires_at=row.expires_at,
    )


class _SettleReply:
    """The queue's answers to the dispositions of one frame, by position in it."""

    __slots__ = ("_binding", "_ids", "_state")

    def __init__(self, binding: ReceiverBinding, ids: list[int], state: DeliveryState) -> None:
        self._binding = binding
        self._ids = ids
        self._state = state

    def settled(self, indexes: Sequence[int], now: Millis) -> None:
        ids = self._ids
        self._binding.meter.settled(len(indexes))
        self._binding.answer(ids if len(indexes) == len(ids) else [ids[index] for index in indexes], self._state)

    def failed(self, index: int, error: MessagingError, now: Millis) -> None:
        self._binding.answer([self._ids[index]], Rejected.because(error))
