"""Transactions: changes to one entity that happen together or not at all (contract A7).

One entity is a queue with its dead-letter queues, or a topic with its subscriptions. What is sent to others is kept here
at the commit and transferred afterwards: by links that are attached for that, or because the transaction has a home, as
those have whose control link shares an AMQP session with the links it is used on.

    open --commit--> under way --the store has it--> over
     |  '--commit: a lock or a scheduled message is gone, no room, the store failed--> over, with the error
     '--rollback, or two minutes after the first operation----> over

An operation is checked and remembered when it is asked for, and done at the commit. All of them concern one fragment,
so they are one commit to one messaging store, and a crash leaves all of them or none. Until then

* a message that was sent is nowhere and has no number, and whether it is a duplicate is not asked;
* a scheduled message that was cancelled stays scheduled, and a session state that was set shows as it was before;
* a message that was settled stays locked, and nobody else can settle it. Its lock keeps its clock: it may be renewed,
  and where it ends first, the message comes again as it always does, and the commit fails as the settlement would have.

So a rollback has nothing to undo: it forgets, and the locks live on.

A commit that is under way may take long: it waits behind what was sent to the same topic before, has many copies to make, and has to
look into the store. Nothing can be added to it then, nobody can roll it back, and the end of the connection changes nothing. All of
it is checked again, and done, in the call in which the last of this has come.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from twinbus.broker.consumer import SessionLock
from twinbus.broker.entity.message_queue import MessageQueue
from twinbus.broker.entity.placement import Placement
from twinbus.broker.entity.transfers import Transfers, ViaPlacement
from twinbus.broker.entity_settings import EntitySettings
from twinbus.broker.fragment.fragment import Fragment
from twinbus.broker.fragment.fragment_group import fragment_of_numbers, fragment_of_tokens
from twinbus.broker.fragment.reading_again import read_again
from twinbus.broker.fragment.settlement import check_live, in_transaction, refusal_of, written_bytes
from twinbus.broker.operations.by_number import scheduled_rows
from twinbus.broker.operations.steps import Steps, run
from twinbus.broker.outcomes import Outcome
from twinbus.broker.replies import Reply
from twinbus.broker.transaction_work import Cancellation, SessionState, Settlement, TransactionWork
from twinbus.broker.wakeups import Deadlines, WaitingSteps
from twinbus.clock import Millis
from twinbus.errors import (
    MessageNotFound,
    MessagingError,
    NotAllowed,
    QuotaExceeded,
    TransactionTimeout,
    TransactionUnknown,
)
from twinbus.meter.operation import NO_FRAGMENT
from twinbus.model.descriptions import FRAGMENT_COUNT
from twinbus.model.message import Message
from twinbus.model.partition_key import candidates, folded
from twinbus.store.reads import Rows

MESSAGES_MAX = 100
DURATION_MAX: Millis = 120_000


@dataclass(frozen=True, slots=True)
class _Place:
    """The one fragment of the one entity that everything in a transaction concerns."""

    settings: EntitySettings
    index: int
    key: str | None  # None: an ordinary entity, whose one fragment takes all keys
    is_fixed: bool  # False: it has transfers alone, and these can go into the fragment of whatever comes next


class FragmentTransaction:
    """Lives on the loop thread. Operations raise what is wrong with them, and are then no part of it."""

    def __init__(self) -> None:
        self._place: _Place | None = None
        self._work = TransactionWork()
        self._deadlines: Deadlines | None = None
        self._fault: MessagingError | None = None  # why it is over
        self.message_count = 0

    @property
    def size_bytes(self) -> int:
        """Of what it holds in memory until it is over."""
        return self._work.size_bytes

    # Operations, each of them whole or not. `home`: of the transaction, where it has one.

    def send(
        self, placement: Placement, messages: Sequence[Message], now: Millis, home: Transfers | None = None
    ) -> int:
        """Returns the fragment that takes them, if they go to the transaction's own entity."""
        self._check_open(now)
        if home is not None:
            placement = home.way_to(placement)
        placement.settings.last_used_at = now
        messages = placement.prepare(messages)
        placement.check_open()
        keys = {placement.key_of(message) for message in messages}
        if not keys:
            return NO_FRAGMENT
        is_transfer = isinstance(placement, ViaPlacement)
        place = self._place_of(placement.settings, keys, is_transfer=is_transfer)
        self._work.check_room(placement, place.index, messages)
        self._enlist(place, placement.fragments[place.index], len(messages), now)
        self._work.add_sends(placement, messages)
        return NO_FRAGMENT if is_transfer else place.index

    def settle(
        self,
        queue: MessageQueue,
        tokens: Sequence[bytes],
        outcome: Outcome,
        now: Millis,
        home: Transfers | None = None,
        session: SessionLock | None = None,
    ) -> None:
        self._check_open(now)
        if home is not None:
            home.check_home_of(queue.settings)
        fragment = fragment_of_tokens(queue.fragments, tokens)
        error = refusal_of(fragment, outcome, now) or check_live(fragment, tokens, now, session)
        if error is not None:
            raise error
        if fragment.locks.is_any_enlisted(tokens):
            raise in_transaction()
        chosen = list(dict.fromkeys(tokens))
        messages = [fragment.locks.held[token][0] for token in chosen]
        keys = {fragment.key_behind(message) for message in messages}
        place = self._place_of(queue.settings, keys, fragment.index)
        settlement = Settlement(fragment, chosen, outcome, written_bytes(messages, outcome))
        self._work.check_written_with(settlement)
        self._enlist(place, fragment, len(chosen), now)
        fragment.locks.enlist(chosen)
        self._work.add_settlement(settlement)

    def cancel_scheduled(
        self,
        placement: Placement,
        numbers: Sequence[int],
        now: Millis,
        reply: Reply[None],
        home: Transfers | None = None,
    ) -> None:
        """Of a queue or topic. Replies when it has seen that they are scheduled; at the commit it looks again."""
        run(self._cancel(placement, numbers, now, home), now, reply)

    def _cancel(self, placement: Placement, numbers: Sequence[int], now: Millis, home: Transfers | None) -> Steps[None]:
        self._check_open(now)
        if home is not None:
            home.check_home_of(placement.settings)
        fragment = fragment_of_numbers(placement.fragments, numbers)
        rows, later = yield from scheduled_rows(fragment, numbers)
        self._check_open(later)
        chosen = [row.sequence_number for row in rows]
        if not set(chosen).isdisjoint(self._work.cancelled_numbers):
            raise MessageNotFound(
                "The transaction cancels a message with this sequence number already. Cancel it once."
            )
        place = self._place_of(placement.settings, {fragment.key_behind(row) for row in rows}, fragment.index)
        self._enlist(place, fragment, len(chosen), later)
        self._work.cancellations.append(Cancellation(fragment, chosen))

    def set_session_state(
        self, queue: MessageQueue, session_id: str, state: bytes | None, now: Millis, home: Transfers | None = None
    ) -> None:
        self._check_open(now)
        if home is not None:
            home.check_home_of(queue.settings)
        lock = queue.sessions().check_held(session_id, now)
        fragment = queue.sessions().place(session_id)
        self._enlist(self._place_of(queue.settings, {session_id}, fragment.index), fragment, 1, now)
        self._work.add_state(SessionState(queue, fragment, lock, state))

    def doom(self, error: MessagingError) -> None:
        """An operation was refused and its sender does not learn of it, so the transaction cannot be committed."""
        if self._fault is None:
            self._end(error)

    # Discharge

    def commit(self, now: Millis, reply: Reply[None]) -> None:
        """Replies None when everything is durable. After an error it is rolled back; after FragmentUnavailable it
        may have been committed all the same, as with every change to a store that fails meanwhile."""
        try:
            self._check_open(now)
        except MessagingError as error:
            reply(error)
            return
        if not self._wait_in_line(reply):
            self._look_and_finish(now, reply)

    def _wait_in_line(self, reply: Reply[None]) -> bool:
        """False if it would overtake nothing where it sends to, and can be done at once. It is over while it waits."""
        line = None if self._place is None else self._work.waits_for(self._place.index)
        if self._place is None or line is None:
            return False
        self._close()
        line.wait(self._place.index, partial(self._commit_in_line, self._place.index, reply))
        return True

    def _commit_in_line(self, index: int, reply: Reply[None], now: Millis) -> WaitingSteps:
        try:
            yield from self._work.copy_in_steps(index, now)
            now = yield None
        except MessagingError as error:
            self.rollback()
            reply(error)
            return
        except Exception:
            self.rollback()
            reply(MessagingError("The transaction could not be committed. The log says why."))
            raise
        # It keeps its turn until it has decided, though the store may be asked before: what comes next is numbered behind it.
        yield partial(self._look_and_finish, now, reply)

    def _look_and_finish(self, now: Millis, reply: Reply[None], end_turn: Callable[[], None] | None = None) -> None:
        """`end_turn`: of its turn in line, if it is in one."""
        cancellations = self._work.cancellations
        if not cancellations:
            self._finish(reply, end_turn, ([], now))
            return
        # All of them are of one fragment. It is over until the answer comes: a cancellation whose own answer comes first would
        # be confirmed, and not done.
        self._close()
        steps = scheduled_rows(cancellations[0].fragment, self._work.cancelled_numbers)
        run(steps, now, partial(self._finish_unless_busy, reply, end_turn))

    def _finish_unless_busy(
        self,
        reply: Reply[None],
        end_turn: Callable[[], None] | None,
        found: tuple[Rows, Millis] | MessagingError,
    ) -> None:
        if end_turn is not None or isinstance(found, MessagingError) or not self._wait_in_line(reply):
            self._finish(reply, end_turn, found)

    def _finish(
        self,
        reply: Reply[None],
        end_turn: Callable[[], None] | None,
        found: tuple[Rows, Millis] | MessagingError,
    ) -> None:
        """`found`: the scheduled messages that it cancels, and when they were found."""
        unread = None if isinstance(found, MessagingError) else self._work.unread_settlement()
        if unread is not None:
            self._read_again(unread, reply, end_turn)
            return
        try:
            self._decide(reply, found)
        finally:
            if end_turn is not None:
                end_turn()

    def _decide(self, reply: Reply[None], found: tuple[Rows, Millis] | MessagingError) -> None:
        work, place = self._work, self._place
        try:
            if isinstance(found, MessagingError):
                raise found
            cancelled, now = found
            if place is not None:
                work.check(place.index, now)
        except MessagingError as error:
            self.rollback()
            reply(error)
            return
        self.rollback()
        if place is None:
            reply(None)
        else:
            work.carry_out(place.index, cancelled, now, reply)

    def _read_again(self, settlement: Settlement, reply: Reply[None], end_turn: Callable[[], None] | None) -> None:
        """The messages stay locked meanwhile. Whatever else was looked at is looked at again."""

        def found(now: Millis) -> None:
            if end_turn is not None or not self._wait_in_line(reply):
                self._look_and_finish(now, reply, end_turn)

        self._close()
        failed = partial(self._finish, reply, end_turn)
        read_again(settlement.fragment, settlement.messages(), found, lambda error, _: failed(error))

    def _close(self) -> None:
        """It is over for everybody else, and what it holds stays until it is committed."""
        self._fault = _over()
        self._forget_deadline()

    def rollback(self) -> None:
        """Forget everything; allowed even if it is over already."""
        self._end(self._fault or _over())

    def _end(self, fault: MessagingError) -> None:
        self._fault = fault
        self._forget_deadline()
        self._work.forget()
        self._work, self._place = TransactionWork(), None

    def _forget_deadline(self) -> None:
        if self._deadlines is not None:
            self._deadlines.discard(self._time_out)

    # Rules

    def _check_open(self, now: Millis) -> None:
        if self._deadlines is not None and self._deadlines.is_due(self._time_out, now):
            self._time_out(now)
        if self._fault is not None:
            raise self._fault

    def _time_out(self, _: Millis) -> None:
        if self._fault is None:
            minutes = DURATION_MAX // 60_000
            self._end(
                TransactionTimeout(
                    f"The transaction was open for {minutes} minutes, which is the limit, and was rolled back. "
                    "Do the same in a new one."
                )
            )

    def _enlist(self, place: _Place, fragment: Fragment, count: int, now: Millis) -> None:
        if self.message_count + count > MESSAGES_MAX:
            raise QuotaExceeded(
                f"A transaction holds at most {MESSAGES_MAX} messages, sent and settled ones together. "
                "Commit it, and continue in another one."
            )
        self.message_count += count
        is_first, self._place = self._place is None, place
        if is_first:
            self._deadlines = fragment.broker.transaction_deadlines
            self._deadlines.add(now + DURATION_MAX, self._time_out)

    def _place_of(
        self,
        settings: EntitySettings,
        keys: set[str | None] | set[str],
        index: int | None = None,
        *,
        is_transfer: bool = False,
    ) -> _Place:
        """Where the transaction is with these messages. Raises NotAllowed if that is not where it is already.

        `index`: the fragment they lie in, for those that lie somewhere.
        """
        here = self._place
        if here is not None and here.settings.root != settings.root:
            raise NotAllowed(
                f"A transaction stays within one entity: this one is on '{here.settings.path}' and cannot reach "
                f"'{settings.path}'. Send via '{here.settings.path}', or use two transactions."
            )
        if not settings.is_partitioned:
            return here or _Place(settings, 0, None, is_fixed=True)
        if None in keys:
            raise NotAllowed(
                f"'{settings.path}' is partitioned: every message of a transaction there needs a session id or a "
                "partition key (a via-partition-key if it is sent via it), and all of them the same one."
            )
        key, *others = {folded(key) for key in keys if key is not None}
        if others or (here is not None and here.key != key):
            raise NotAllowed(
                f"'{settings.path}' is partitioned: all messages of a transaction there must have the same session id "
                "or partition key. Use one transaction for each key."
            )
        if is_transfer and here is not None:
            return here
        place = candidates(key, FRAGMENT_COUNT, 0)[0] if index is None else index
        if here is not None and here.is_fixed and here.index != place:
            raise NotAllowed(
                f"'{settings.path}' is partitioned, and these messages lie in different fragments of it: they were sent "
                "without a session id or partition key. Use one transaction for each of them."
            )
        return _Place(settings, place, key, is_fixed=not is_transfer)


def _over() -> TransactionUnknown:
    return TransactionUnknown("The transaction is over. Declare another one.")
