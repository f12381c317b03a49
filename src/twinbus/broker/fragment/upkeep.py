"""What a fragment does as time passes, with nobody asking: locks end, messages become due or expire, keys are forgotten.

    lock ended        the delivery failed: as if the message had been abandoned (`settlement.fail_delivery`)
    due               a scheduled message becomes active under a new number, as if it were sent then; one that was
                      abandoned with a delay has been delivered before and keeps its number and place (contract A13)
    expired           removed, or dead-lettered where the entity says so (contract A14)
    duplicate window  the keys of message ids are forgotten (contract A10), and so are the names of second tries (A4.6)

An active message expires when the sweep finds it or when it would be handed over, whichever is first; a locked one
when it is free again; a deferred one never, and neither does anything in a dead-letter queue, whose rows have no expiry.

What is due and what has expired is known to the store alone. It answers as of when it was asked: rows that were changed
since are in flight, and those that were locked since are in the lock table. Both are left alone; without that, a message
that a receiver has just got would expire under its lock, or one that has just been cancelled would become active.

A million messages may be due at once. They are taken in pieces, each asked for when the last one is decided, and one for all
fragments of a store at a time (`OneByOne`). Nobody waits for them as a sender waits: while the store falls behind there is none.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from twinbus.broker.fragment.decision import TTL_EXPIRED, Decision
from twinbus.broker.fragment.fragment import Fragment
from twinbus.broker.fragment.settlement import expire_locks
from twinbus.clock import Millis
from twinbus.errors import FragmentUnavailable
from twinbus.store.changes import DuplicatesForgotten, StoredMessage, SubQueue
from twinbus.store.reads import DueFacts, DueRows, DueUnread, ExpiredRows, Read, Timely

DUE_COUNT_MAX = 256
DUE_UNREAD_MAX = 512
"""Where at least DUE_COUNT_MAX are due at once: some milliseconds for each piece, and contents are not read."""
SWEEP_COUNT_MAX = 256
# What is expired but locked is looked at again after this.
RETRY_AFTER: Millis = 1_000
# How long a store that falls behind is left alone.
PRESSED_AFTER: Millis = 20

T = TypeVar("T")

Activate = Callable[[Fragment, list[StoredMessage], Millis], bool]
"""Gets rows that are due. False: they cannot be activated now, and are to be looked for again at the next tick."""


def keep_up(fragment: Fragment, now: Millis) -> None:
    """For the fragments of queues and subscriptions."""
    keep_up_with(fragment, now, activate, DUE_COUNT_MAX)


def keep_up_with(fragment: Fragment, now: Millis, activate_due: Activate, due_count_max: int) -> None:
    """`activate_due` gets the rows that are due, at most this many at a time."""
    expire_locks(fragment, now)
    _look_for_due(fragment, now, activate_due, due_count_max)
    _sweep(fragment, now)
    until = fragment.forget_keys(now)
    if until:
        decision = Decision(fragment)
        decision.write(DuplicatesForgotten(fragment.key, until))
        # Keys that stay in a store that fails are dropped with the next ones.
        decision.commit()


# Due


def _look_for_due(fragment: Fragment, now: Millis, activate: Activate, count_max: int) -> None:
    if fragment.agenda.start_activating(now):
        read = DueRows(fragment.key, now, count_max)
        _ask(fragment, read, partial(_found_due, fragment, activate, count_max), now)


def _found_due(fragment: Fragment, activate: Activate, count_max: int, answer: Timely, now: Millis) -> None:
    fragment.agenda.stop_activating(answer.next_at)
    changing = fragment.in_flight()
    rows = [row for row in answer.rows if row.sequence_number not in changing]
    if rows and activate(fragment, rows, now):
        fragment.settings.alive_at = now
        _look_for_more(fragment, now, activate, count_max, len(rows))
    fragment.wake()


def _look_for_more(fragment: Fragment, now: Millis, activate_due: Activate, count_max: int, found_count: int) -> None:
    """Very many are due: they need not pass through memory. A put-off message is put back to its place, so it does."""
    is_any_put_off = fragment.sub_queue is not SubQueue.MAIN
    if activate_due is not activate or found_count < count_max or is_any_put_off:
        _look_for_due(fragment, now, activate_due, count_max)
    elif fragment.agenda.start_activating(now):
        read = DueFacts(fragment.key, now, DUE_UNREAD_MAX)
        _ask(fragment, read, partial(_found_unread, fragment), now)


def _found_unread(fragment: Fragment, answer: DueUnread, now: Millis) -> None:
    fragment.agenda.stop_activating(now if answer.is_put_off_next else answer.next_at)
    due = answer.without(fragment.in_flight())
    if due.numbers:
        fragment.settings.alive_at = now
        decision = Decision(fragment)
        decision.activate_unread(due, now)
        decision.commit()
    if answer.is_put_off_next or not due.numbers:
        _look_for_due(fragment, now, activate, DUE_COUNT_MAX)
    else:
        _look_for_more(fragment, now, activate, DUE_COUNT_MAX, len(due.numbers))
    fragment.wake()


def _ask(fragment: Fragment, read: Read[T], found: Callable[[T, Millis], None], now: Millis) -> None:
    """When it is this fragment's turn. Nothing is found if its store is lost: a new agenda replaces the one that asked."""
    broker, agenda = fragment.broker, fragment.agenda

    def begin(now: Millis) -> None:
        if fragment.agenda is not agenda:
            broker.upkeep.done()
        elif broker.is_pressed:
            broker.wakeups.at(now + PRESSED_AFTER, begin)
        else:
            broker.query(read, answered)

    def answered(answer: T | FragmentUnavailable, now: Millis) -> None:
        try:
            if not isinstance(answer, FragmentUnavailable):
                found(answer, now)
        finally:
            broker.upkeep.done()

    broker.upkeep.add(partial(begin, now))


def activate(fragment: Fragment, rows: list[StoredMessage], now: Millis) -> bool:
    """Due rows of a queue become active ones."""
    decision = Decision(fragment)
    for row in rows:
        decision.activate(row, now)
    decision.commit()
    return True


# Expired


def expire(fragment: Fragment, messages: Sequence[StoredMessage]) -> None:
    """Remove messages that are no longer in a lane, to the dead-letter queue where the entity says so."""
    decision = Decision(fragment)
    if fragment.settings.dead_letter_on_expiry and fragment.dead_letters is not None:
        for message in messages:
            decision.move(message, fragment.dead_letters, TTL_EXPIRED)
    else:
        decision.remove(messages)
    decision.commit()


def _sweep(fragment: Fragment, now: Millis) -> None:
    if fragment.agenda.start_expiring(now):
        locked = [message for message, _ in fragment.locks.held.values()]
        held = frozenset([message.sequence_number for message in locked if message.expires_at <= now])
        read = ExpiredRows(fragment.key, now, SWEEP_COUNT_MAX, held, retry_at=now + RETRY_AFTER)
        _ask(fragment, read, partial(_found_expired, fragment), now)


def _found_expired(fragment: Fragment, answer: Timely, now: Millis) -> None:
    rows, next_expiry = answer
    out_of_lane = fragment.out_of_lane(rows)
    expired = [row for row in rows if row.sequence_number not in out_of_lane]
    if len(expired) < len(rows):
        next_expiry = min(next_expiry, now + RETRY_AFTER)
    fragment.agenda.stop_expiring(next_expiry)
    lanes = fragment.withdraw(expired)
    if expired:
        expire(fragment, expired)
    for lane in lanes:
        fragment.announce(lane, now)
    if expired:
        _sweep(fragment, now)
    fragment.wake()
