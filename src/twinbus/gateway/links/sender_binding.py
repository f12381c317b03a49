"""A client's sender link, bound to a queue or topic: deliveries in, settlements back once they are durable.

All transfers of one socket read arrive together and go to the entity together; what it answers together is settled with one
disposition for each run of delivery ids. The only outcomes are `accepted` and `rejected`: the Python SDK never returns from
a send that was answered with any other. Answers may arrive after the link is gone, which then sends nothing.
"""

from collections.abc import Callable, Sequence
from functools import partial

from twinbus.amqp.codec.delivery_state import ACCEPTED, Outcome, Rejected, TransactionalState
from twinbus.amqp.events import Incoming
from twinbus.amqp.incoming_link import IncomingLink
from twinbus.broker.target import WayIn
from twinbus.clock import Millis
from twinbus.errors import MessageTooLarge, MessagingError
from twinbus.gateway.addresses import EntityNode
from twinbus.gateway.latencies import Stopwatch
from twinbus.gateway.links.link_meter import LinkMeter
from twinbus.gateway.links.outcome_states import ranges
from twinbus.gateway.namespace_view import EntityTraffic
from twinbus.gateway.nodes.coordinator import Transactions, in_transaction
from twinbus.model.message import Message, check_batch_size, split_batch
from twinbus.model.message_reader import MessageReader
from twinbus.model.wire_names import BATCH_FORMAT

CREDIT = 2_000


class SenderBinding:
    __slots__ = (
        "_held_count",
        "_link",
        "_message_size_max",
        "_meter",
        "_read",
        "_settings",
        "_target",
        "_traffic",
        "_transactions",
        "_used_at",
        "_wake",
        "node",
        "path",
    )

    def __init__(
        self,
        link: IncomingLink,
        node: EntityNode,
        target: WayIn,
        path: str,
        traffic: EntityTraffic,
        meter: LinkMeter,
        transactions: Transactions,
        *,
        now: Millis,
        message_size_max: int,
        new_id: Callable[[], str],
        wake: Callable[[], None],
    ) -> None:
        self.node = node
        self.path = path
        self._used_at = now
        self._held_count = 0
        self._link = link
        self._target = target
        self._settings = target.settings
        self._traffic = traffic
        self._meter = meter
        self._transactions = transactions
        self._message_size_max = message_size_max
        self._read = MessageReader(new_id).read
        self._wake = wake

    def receive(self, deliveries: Sequence[Incoming], now: Millis) -> None:
        self._used_at = now
        messages: list[Message] = []
        ids: list[int] = []
        size_max, read, size = self._size_max_now, self._read, 0
        for delivery_id, _, payload, message_format, is_settled, state in deliveries:
            # -1 stands for a delivery whose answer nobody waits for.
            if is_settled:
                answer_id = -1
                self._hold(len(payload))
            else:
                answer_id = delivery_id
            size += len(payload)
            try:
                if isinstance(state, TransactionalState):
                    self._send_in_transaction(state, payload, message_format, answer_id, now)
                    continue
                if message_format == BATCH_FORMAT:
                    self._send(messages, ids, now)
                    messages, ids = [], []
                    self._send_batch(payload, answer_id, now)
                else:
                    if len(payload) > size_max:
                        raise MessageTooLarge.at(self.path, len(payload), size_max)
                    messages.append(read(payload))
                    ids.append(answer_id)
            except MessagingError as error:
                self.refused(answer_id, error)
        self._traffic.bytes_in += size
        self._send(messages, ids, now)

    def is_idle_since(self, when: Millis) -> bool:
        return self._used_at < when

    def clock_stepped(self, by: Millis) -> None:
        self._used_at += by

    @property
    def _size_max_now(self) -> int:
        """What was announced, or less if the entity takes less since then."""
        return min(self._message_size_max, self._settings.message_size_max)

    def _read_batch(self, payload: bytes) -> list[Message]:
        parts = split_batch(payload)
        check_batch_size(self.path, parts, self._size_max_now)
        return [self._read(part) for part in parts]

    def _send(self, messages: list[Message], ids: list[int], now: Millis) -> None:
        if messages:
            self._target.send_each(messages, now, _BurstReply(self, ids, messages, self._traffic.stopwatch))

    def _send_batch(self, payload: bytes, delivery_id: int, now: Millis) -> None:
        messages = self._read_batch(payload)
        stopwatch = self._traffic.stopwatch
        since = stopwatch.steady()

        def reply(result: list[int] | MessagingError) -> None:
            took = stopwatch.steady() - since
            if isinstance(result, MessagingError):
                if stopwatch.spans is not None:
                    stopwatch.spans.refused(self.path, messages, took, result)
                self.refused(delivery_id, result)
            else:
                if stopwatch.spans is not None:
                    stopwatch.spans.sent(self.path, messages, took)
                stopwatch.acknowledged.observe(took, len(messages))
                self.accepted([delivery_id], messages, result)

        if messages:
            self._target.send_batch(messages, now, reply)
        else:
            self.accepted([delivery_id], messages, [])

    def _send_in_transaction(
        self, state: TransactionalState, payload: bytes, message_format: int, delivery_id: int, now: Millis
    ) -> None:
        is_batch = message_format == BATCH_FORMAT
        transaction = self._transactions.find(state.txn_id)
        messages: list[Message] = []
        since = self._traffic.stopwatch.steady()

        def reply(result: int | MessagingError) -> None:
            outcome: Outcome = ACCEPTED
            if isinstance(result, MessagingError):
                self._traffic.refused += 1
                outcome = Rejected.because(result)
                if delivery_id < 0:
                    transaction.doom(result)
            else:
                self._traffic.messages_in += len(messages)
                count = partial(self._meter.sent, messages, None, fragment=result)
                self._transactions.after_commit(state.txn_id, count)
                if self._traffic.stopwatch.spans is not None:
                    self._transactions.after_commit(state.txn_id, partial(self._trace, messages, since))
            if delivery_id >= 0:
                self._link.settle(delivery_id, delivery_id, in_transaction(state, outcome))
                self._wake()
            else:
                self._let_go(1)

        try:
            size_max = self._size_max_now
            if len(payload) > size_max and not is_batch:
                raise MessageTooLarge.at(self.path, len(payload), size_max)
            self._transactions.check_room(len(payload))
            messages += self._read_batch(payload) if is_batch else [self._read(payload)]
            home = self._transactions.home(state.txn_id, self._link.session)
        except MessagingError as error:
            reply(error)
            return
        transaction.send(self._target, messages, now, reply, home)

    def _trace(self, messages: Sequence[Message], since: float) -> None:
        stopwatch = self._traffic.stopwatch
        if stopwatch.spans is not None:
            stopwatch.spans.sent(self.path, messages, stopwatch.steady() - since)

    def accepted(self, ids: Sequence[int], messages: Sequence[Message], numbers: Sequence[int]) -> None:
        self._traffic.messages_in += len(messages)
        self._meter.sent(messages, numbers)
        for first, last in ranges(ids):
            if last >= 0:
                self._link.settle(max(first, 0), last, ACCEPTED)
        if self._held_count:
            self._let_go(ids.count(-1))
        self._wake()

    def refused(self, delivery_id: int, error: MessagingError) -> None:
        if delivery_id < 0:
            self._let_go(1)
        self.not_taken(delivery_id, error)

    def not_taken(self, delivery_id: int, error: MessagingError) -> None:
        """Refuse a delivery of which nothing is held, since it did not come whole."""
        self._traffic.refused += 1
        if delivery_id >= 0:
            self._link.settle(delivery_id, delivery_id, Rejected.because(error))
        self._wake()

    # Deliveries that came settled: nobody waits for an answer, and yet they are not taken faster than the stores write them.

    def _hold(self, size: int) -> None:
        self._held_count += 1
        self._link.hold(size)

    def _let_go(self, count: int) -> None:
        self._held_count -= count
        self._link.let_go(count)


class _BurstReply:
    """The entity's answers to one burst, by position in it."""

    __slots__ = ("_binding", "_ids", "_messages", "_since", "_stopwatch")

    def __init__(self, binding: SenderBinding, ids: list[int], messages: list[Message], stopwatch: Stopwatch) -> None:
        self._stopwatch = stopwatch
        self._since = stopwatch.steady()
        self._binding = binding
        self._ids = ids
        self._messages = messages

    def accepted(self, indexes: Sequence[int], numbers: Sequence[int], now: Millis) -> None:
        ids, messages, stopwatch = self._ids, self._messages, self._stopwatch
        took = stopwatch.steady() - self._since
        stopwatch.acknowledged.observe(took, len(indexes))
        if stopwatch.spans is not None:
            stopwatch.spans.sent(self._binding.path, [messages[index] for index in indexes], took)
        if len(indexes) == len(ids):
            self._binding.accepted(ids, messages, numbers)
        else:
            chosen = [messages[index] for index in indexes]
            self._binding.accepted([ids[index] for index in indexes], chosen, numbers)

    def refused(self, index: int, error: MessagingError, now: Millis) -> None:
        if (spans := self._stopwatch.spans) is not None:
            spans.refused(self._binding.path, [self._messages[index]], self._stopwatch.steady() - self._since, error)
        self._binding.refused(self._ids[index], error)
