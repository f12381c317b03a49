"""One other node, as the fronts of this one see it: what is asked of it, over whatever line there is to it at the moment.

A line that breaks takes with it what was held over it: receivers learn that their part is lost, holds on message sessions are over.
"""

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, Protocol

from twinbus.broker.consumer import SessionLock, TakenMessage
from twinbus.broker.fragment.names import SecondTry
from twinbus.broker.outcomes import RELEASE, Outcome
from twinbus.broker.replies import Reply, SendReply, SettleReply
from twinbus.broker.target import TargetName
from twinbus.clock import Clock, Millis
from twinbus.cluster.lines import values
from twinbus.cluster.lines.columns import ColumnWriter, unpack, write_messages
from twinbus.cluster.lines.error_values import decode_error
from twinbus.cluster.lines.line import Line
from twinbus.cluster.lines.talk import (
    COUNTED,
    DEMAND,
    QUEUE,
    RECALL,
    Progress,
    Topic,
    decode_deliver,
    decode_progress,
    encode_send,
    encode_send_again,
    encode_settle,
)
from twinbus.cluster.peers.hold import Hold
from twinbus.errors import FragmentUnavailable, MessagingError
from twinbus.model.message import Message


class RemoteShare(Protocol):
    """A receiver of this node at a part of its queue."""

    key: int
    outstanding: int

    def delivered(self, taken: list[TakenMessage]) -> None: ...

    def lost(self, error: MessagingError, now: Millis) -> None: ...

    def told_ready(self, count: int, now: Millis) -> None: ...


class _Silent:
    def settled(self, indexes: Sequence[int], now: Millis) -> None:
        """It is free again."""

    def failed(self, index: int, error: MessagingError, now: Millis) -> None:
        """Its lock ends by itself."""


SILENT = _Silent()


class _SendRun:
    def __init__(self, message_count: int, reply: SendReply) -> None:
        self.left = set(range(message_count))
        self.reply = reply

    def take(self, progress: Progress, now: Millis) -> None:
        self.left.difference_update(progress.indexes)
        if progress.indexes:
            self.reply.accepted(progress.indexes, progress.numbers, now)
        for index, error in progress.errors:
            self.left.discard(index)
            self.reply.refused(index, error, now)

    def fail(self, error: MessagingError, now: Millis) -> None:
        for index in sorted(self.left):
            self.reply.refused(index, error, now)


class _SettleRun:
    def __init__(self, message_count: int, reply: SettleReply) -> None:
        self.left = set(range(message_count))
        self.reply = reply

    def take(self, progress: Progress, now: Millis) -> None:
        self.left.difference_update(progress.indexes)
        if progress.indexes:
            self.reply.settled(progress.indexes, now)
        for index, error in progress.errors:
            self.left.discard(index)
            self.reply.failed(index, error, now)

    def fail(self, error: MessagingError, now: Millis) -> None:
        for index in sorted(self.left):
            self.reply.failed(index, error, now)


class Peer:
    """One other node."""

    def __init__(self, node: int, clock: Clock, accepted: Callable[[Hold], None]) -> None:
        """`accepted` gets every hold that the node gives."""
        self.node = node
        self.line: Line | None = None
        self._accepted = accepted
        self._clock = clock
        self._last = count(1)
        self._runs: dict[int, _SendRun | _SettleRun] = {}
        self.shares: dict[int, RemoteShare] = {}
        self._closing: dict[int, int] = {}  # receivers of which something may still come, and their queues
        self.holds: dict[int, Hold] = {}
        self._last_given = 0  # the highest number of a hold: on a line, they come in their order

    @property
    def is_open(self) -> bool:
        return self.line is not None and self.line.is_open

    def unavailable(self) -> FragmentUnavailable:
        return FragmentUnavailable(
            "The node that has this messaging store cannot be reached, and neither can what lies in it. Try again later."
        )

    # Asking

    def _ask(self, topic: Topic, payload: bytes, reply: Reply[bytes], *, is_bulk: bool = False) -> None:
        if self.line is None:
            reply(self.unavailable())
        else:
            self.line.ask(topic, payload, reply, is_bulk=is_bulk)

    def ask_values(self, topic: Topic, question: object, reply: Callable[[Any], None]) -> None:
        """`reply` gets the value that is answered, or the error."""
        try:
            payload = values.encode(question)
        except MessagingError as error:
            reply(error)
            return
        self._ask(topic, payload, lambda answer: reply(_value_of(answer)))

    def _tell(self, topic: Topic, payload: bytes) -> None:
        if self.line is not None:
            self.line.tell(topic, payload)

    # Moves

    def ask_hold(self, payload: bytes, reply: Reply[bytes]) -> None:
        self._ask(Topic.HOLD, payload, reply)

    def tell_moved_locks(self, payload: bytes) -> None:
        self._tell(Topic.MOVED_LOCKS, payload)

    # Sending

    def send_each(
        self,
        name: TargetName,
        messages: Sequence[Message],
        now: Millis,
        reply: SendReply,
        origins: Sequence[int] | None,
        failed: int | None = None,
    ) -> None:
        run, state = self._new_send_run(messages, reply)
        payload = encode_send(run, name, messages, origins, is_together=False, failed=failed)
        self._ask(Topic.SEND, payload, lambda answer: self._run_ended(run, state, answer), is_bulk=True)

    def send_each_again(
        self,
        name: TargetName,
        messages: Sequence[Message],
        second: SecondTry,
        reply: SendReply,
        origins: Sequence[int] | None,
    ) -> None:
        """NotImplementedHere for all of them where the node has an earlier release."""
        run, state = self._new_send_run(messages, reply)
        payload = encode_send_again(run, name, messages, second, origins, is_together=False)
        self._ask(Topic.SEND_AGAIN, payload, lambda answer: self._run_ended(run, state, answer), is_bulk=True)

    def _new_send_run(self, messages: Sequence[Message], reply: SendReply) -> tuple[int, _SendRun]:
        run = next(self._last)
        state = self._runs[run] = _SendRun(len(messages), reply)
        return run, state

    def _run_ended(self, run: int, state: _SendRun | _SettleRun, answer: bytes | MessagingError) -> None:
        self._runs.pop(run, None)
        now = self._clock.now()
        if isinstance(answer, MessagingError):
            state.fail(answer, now)
        else:
            state.take(decode_progress(answer), now)

    def send_together(
        self, name: TargetName, messages: Sequence[Message], reply: Reply[list[int]], failed: int | None = None
    ) -> None:
        payload = encode_send(0, name, messages, None, is_together=True, failed=failed)
        self._ask(Topic.SEND, payload, lambda answer: reply(_value_of(answer)), is_bulk=True)

    def send_together_again(
        self, name: TargetName, messages: Sequence[Message], second: SecondTry, reply: Reply[list[int]]
    ) -> None:
        """NotImplementedHere as above."""
        payload = encode_send_again(0, name, messages, second, None, is_together=True)
        self._ask(Topic.SEND_AGAIN, payload, lambda answer: reply(_value_of(answer)), is_bulk=True)

    # Receiving

    def attach(self, share: RemoteShare, mode: object, session: SessionLock | None) -> int:
        number = next(self._last)
        self.shares[number] = share
        self._tell(Topic.RECEIVER, values.encode((number, share.key, mode, self.hold_number(session))))
        return number

    def demand(self, number: int, demand: int) -> None:
        self._tell(Topic.DEMAND, DEMAND.pack(number, demand))

    def recall(self, number: int, reply: Callable[[int], None], *, waits: bool) -> None:
        line = self.line

        def answered(answer: bytes | MessagingError) -> None:
            if not isinstance(answer, MessagingError):
                reply(unpack(COUNTED, answer)[0])
            elif self.line is line and self.is_open:
                reply(0)  # it could not say; without a line the part is lost, and with it all of its demand

        self._ask(Topic.RECALL, RECALL.pack(number, waits), answered)

    def close(self, number: int) -> None:
        share = self.shares.pop(number, None)
        if share is not None and self.is_open:
            self._closing[number] = share.key

            def closed(_: bytes | MessagingError) -> None:
                self._closing.pop(number, None)

            self._ask(Topic.CLOSE, COUNTED.pack(number), closed)

    def done_here(self, topic: Topic, key: int, message_count: int) -> None:
        self._tell(topic, QUEUE.pack(key, message_count))

    # Settling

    def settle_each(
        self, key: int, tokens: Sequence[bytes], outcome: Outcome, reply: SettleReply, session: SessionLock | None
    ) -> None:
        run = next(self._last)
        state = self._runs[run] = _SettleRun(len(tokens), reply)
        try:
            payload = encode_settle(run, key, outcome, self.hold_number(session), tokens)
        except MessagingError as error:
            self._run_ended(run, state, error)
            return
        self._ask(Topic.SETTLE, payload, lambda answer: self._run_ended(run, state, answer))

    def hold_number(self, session: SessionLock | None) -> int | None:
        return session.number if isinstance(session, Hold) and session.node == self.node else None

    # Message sessions

    def accept(self, key: int, request: object, wait: Millis, reply: Reply[SessionLock]) -> int:
        number = next(self._last)

        def answered(result: Any) -> None:
            if isinstance(result, MessagingError):
                reply(result)
                return
            hold = Hold(self.node, *result)
            self.given(hold)
            self._accepted(hold)
            reply(hold)

        self.ask_values(Topic.ACCEPT, (number, key, request, wait), answered)
        return number

    def given(self, hold: Hold) -> None:
        """The node has given it, or says that it is there now."""
        self.holds[hold.number] = hold
        self._last_given = max(self._last_given, hold.number)

    def has_given(self, number: int) -> bool:
        """Whether this hold was heard of, or never will be: who does not have it has given it back, or lost it."""
        return number <= self._last_given or not self.is_open

    def cancel_wait(self, number: int) -> None:
        self._tell(Topic.CANCEL_WAIT, COUNTED.pack(number))

    def release(self, hold: Hold) -> None:
        hold.is_held = False
        if self.holds.pop(hold.number, None) is not None:
            self._tell(Topic.RELEASE, COUNTED.pack(hold.number))

    def forget(self, hold: Hold) -> None:
        """Whoever held it has closed the receiver or lost it, which is known there. One that has moved on is not meant."""
        if hold.node == self.node:
            hold.is_held = False
            self.holds.pop(hold.number, None)

    # Transactions

    def transact(
        self,
        number: int,
        operation: str,
        home: str | None,
        arguments: object,
        reply: Callable[[Any], None],
        messages: Sequence[Message] = (),
    ) -> None:
        writer = ColumnWriter()
        try:
            writer.blob(values.encode((number, operation, home, arguments)))
        except MessagingError as error:
            reply(error)
            return
        if messages:
            write_messages(writer, messages)
        self._ask(Topic.TRANSACT, writer.done(), lambda answer: reply(_value_of(answer)), is_bulk=bool(messages))

    def new_number(self) -> int:
        return next(self._last)

    # What it says

    def opened(self, line: Line) -> None:
        self.line = line

    def broken(self, now: Millis) -> None:
        """Those who wait for answers have them."""
        self.line = None
        self._closing.clear()
        for hold in self.holds.values():
            hold.is_held = False
        self.holds.clear()
        shares, self.shares = self.shares, {}
        for share in shares.values():
            share.lost(self.unavailable(), now)

    def progress(self, payload: bytes) -> None:
        progress = decode_progress(payload)
        state = self._runs.get(progress.run)
        if state is not None:
            state.take(progress, self._clock.now())

    def delivered(self, payload: bytes) -> None:
        number, taken = decode_deliver(payload)
        share = self.shares.get(number)
        if share is not None:
            share.delivered(taken)
            return
        # It crossed the close: nobody has seen them. What was to be deleted when received is gone, as that mode says.
        tokens = [each.lock_token for each in taken if each.lock_token]
        key = self._closing.get(number)
        if tokens and key is not None:
            self.settle_each(key, tokens, RELEASE, SILENT, None)

    def ready(self, payload: bytes, now: Millis) -> None:
        key, left = unpack(QUEUE, payload)
        for share in [share for share in self.shares.values() if share.key == key]:
            before = share.outstanding
            share.told_ready(left, now)
            left -= share.outstanding - before
            if left <= 0:
                break  # it says so again if it has still more

    def hold_over(self, payload: bytes) -> None:
        hold = self.holds.get(unpack(COUNTED, payload)[0])
        if hold is not None:
            self.forget(hold)

    def lost(self, payload: bytes, now: Millis) -> None:
        number, error = values.decode(payload)
        share = self.shares.pop(number, None)
        if share is not None:
            share.lost(decode_error(error), now)


def _value_of(answer: bytes | MessagingError) -> Any:
    return answer if isinstance(answer, MessagingError) else values.decode(answer)
