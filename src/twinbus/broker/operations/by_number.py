"""Taking messages out of a queue by their sequence numbers: deferred ones are received, scheduled ones cancelled."""

from collections.abc import Sequence

from twinbus.broker.commands import CancelScheduled, ReceiveDeferred
from twinbus.broker.consumer import ReceiveMode, TakenMessage
from twinbus.broker.fragment.decision import Decision
from twinbus.broker.fragment.fragment import Fragment
from twinbus.broker.fragment.fragment_group import fragment_of_numbers
from twinbus.broker.fragment.settlement import session_lost
from twinbus.broker.operations.asked_queue import AskedQueue
from twinbus.broker.operations.sessions import check_held
from twinbus.broker.operations.steps import Steps, commit, read_timed
from twinbus.clock import Millis
from twinbus.errors import MessageNotFound, MessageTooLarge
from twinbus.model.session_key import is_same_session
from twinbus.model.wire_names import MessageState
from twinbus.store.reads import ReadTogether, Rows

DEFERRED_BYTES_MAX, CANCELLED_BYTES_MAX = 64 * 1024 * 1024, 256 * 1024 * 1024


def receive_deferred(queue: AskedQueue, command: ReceiveDeferred, now: Millis) -> Steps[list[TakenMessage]]:
    """Locked or removed. Those of a message session are locked as long as it is held."""
    queue.settings.check_can_receive()
    fragment = fragment_of_numbers(queue.fragments, command.numbers)
    session_id = check_held(queue, command.session_id, now) if queue.requires_session else None
    lock = None if session_id is None else queue.sessions().check_held(session_id, now)
    rows, later = yield from _deferred(fragment, command.numbers, session_id)
    if session_id is not None and queue.sessions().sessions_of(fragment).lock_of(session_id, later) is not lock:
        # It was lost while the messages were looked for, and somebody else may hold it.
        raise session_lost()
    if command.mode is ReceiveMode.RECEIVE_AND_DELETE:
        yield from _remove(fragment, rows)
        return [TakenMessage(row, b"", 0) for row in rows]
    # Time has passed since the command came: a lock runs from when the messages were found.
    if lock is None:
        return _lock(fragment, rows, later)
    taken = queue.sessions().sessions_of(fragment).lock(lock, rows)
    fragment.locks.hold_deferred(rows)
    return taken


def _deferred(fragment: Fragment, numbers: Sequence[int], session_id: str | None) -> Steps[tuple[Rows, Millis]]:
    """All of them, and when they were found; or it raises.

    MessageTooLarge if they are more than one answer can hold: what it cannot bring would be taken and lost.
    """
    wanted = list(dict.fromkeys(numbers))
    rows, now = yield from read_timed(fragment, ReadTogether(fragment.key, wanted, DEFERRED_BYTES_MAX))
    if rows is None:
        raise MessageTooLarge(f"These messages have more than {DEFERRED_BYTES_MAX} bytes. Ask for fewer at once.")
    if not fragment.broker.may_hand_over():
        raise fragment.broker.unavailable()
    # The rows are as they were when they were asked for: some may have been taken or changed since.
    taken = fragment.in_flight() | fragment.locks.deferred
    free = [
        row
        for row in rows
        if row.state is MessageState.DEFERRED
        and row.sequence_number not in taken
        and (session_id is None or is_same_session(row.session_id, session_id))
    ]
    if len(free) < len(wanted):
        raise MessageNotFound(
            "A message with this sequence number is not deferred, or somebody holds it. Peek to see it."
        )
    return free, now


def _lock(fragment: Fragment, rows: Rows, now: Millis) -> list[TakenMessage]:
    taken = fragment.locks.lock(rows, now + fragment.settings.lock_duration)
    fragment.wake()
    fragment.locks.hold_deferred(rows)
    return taken


def cancel_scheduled(queue: AskedQueue, command: CancelScheduled, now: Millis) -> Steps[None]:
    yield from cancel(queue.fragments, command.numbers)


def cancel(fragments: Sequence[Fragment], numbers: Sequence[int]) -> Steps[None]:
    """Of a queue or a topic."""
    fragment = fragment_of_numbers(fragments, numbers)
    rows, _ = yield from scheduled_rows(fragment, numbers)
    yield from _remove(fragment, rows)


def scheduled_rows(fragment: Fragment, numbers: Sequence[int]) -> Steps[tuple[Rows, Millis]]:
    """All of them, and when they were found; MessageNotFound if one of them is not scheduled."""
    wanted = list(dict.fromkeys(numbers))
    rows, now = yield from read_timed(fragment, ReadTogether(fragment.key, wanted, CANCELLED_BYTES_MAX))
    if rows is None:
        raise MessageTooLarge(f"These messages have more than {CANCELLED_BYTES_MAX} bytes. Cancel fewer at once.")
    # Those that are being changed become active or are cancelled already.
    changing = fragment.in_flight()
    scheduled = [
        row
        for row in rows
        if row.state is MessageState.SCHEDULED and not fragment.is_put_off(row) and row.sequence_number not in changing
    ]
    if len(scheduled) < len(wanted):
        raise MessageNotFound("A message with this sequence number is not scheduled, or no longer. Peek to see it.")
    return scheduled, now


def _remove(fragment: Fragment, rows: Rows) -> Steps[None]:
    decision = Decision(fragment)
    decision.remove(rows)
    yield from commit(decision)
