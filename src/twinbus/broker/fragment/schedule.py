"""Messages for later: scheduled ones and those abandoned with a delay (contract A13).

A scheduled message becomes active under a new number, as if it were sent then. A delayed one has been delivered before,
which is how the two are told apart, and keeps its number and so its place.
"""

from collections.abc import Callable

from twinbus.broker.fragment.fragment import Fragment
from twinbus.clock import NEVER, Millis
from twinbus.errors import FragmentUnavailable
from twinbus.model.wire_names import MessageState
from twinbus.store.changes import Activated, Altered, Change, StoredMessage
from twinbus.store.reads import DueRows, Timely

DUE_COUNT_MAX = 256

Activate = Callable[[Fragment, list[StoredMessage], Millis], None]


def look_for_due(fragment: Fragment, now: Millis, activate: Activate) -> None:
    """Ask the store what is due; `activate` gets it when the answer comes."""
    if fragment.is_activating or fragment.next_due > now:
        return
    fragment.is_activating = True
    fragment.next_due = NEVER

    def found(answer: Timely | FragmentUnavailable) -> None:
        if isinstance(answer, FragmentUnavailable):
            return
        fragment.is_activating = False
        changing = fragment.in_flight()
        rows = [row for row in answer.rows if row.sequence_number not in changing]
        if rows:
            activate(fragment, rows, fragment.broker.clock.now())
        fragment.next_due = min(fragment.next_due, answer.next_at)
        fragment.wake()

    fragment.broker.query(DueRows(fragment.key, now, DUE_COUNT_MAX), found)


def activate(fragment: Fragment, rows: list[StoredMessage], now: Millis) -> None:
    """Due rows of a queue become active ones."""
    numbers = [row.sequence_number for row in rows]
    changes: list[Change] = []
    delayed, scheduled = [], []
    for row in rows:
        fragment.count_state(MessageState.SCHEDULED, -1)
        fragment.count_state(MessageState.ACTIVE, 1)
        if row.delivery_count:
            changes.append(_wake_delayed(fragment, row))
            delayed.append(row)
        else:
            changes.append(_activate_scheduled(fragment, row, now))
            scheduled.append(row)
        fragment.will_expire(row.expires_at)

    def durable() -> None:
        fragment.put_back(delayed)
        if scheduled:
            fragment.admit(scheduled, sum([len(row.content) for row in scheduled]))

    fragment.change(numbers, changes, durable)


def _wake_delayed(fragment: Fragment, row: StoredMessage) -> Change:
    row.state, row.due_at = MessageState.ACTIVE, 0
    return Altered(fragment.key, row.sequence_number, row.state, row.delivery_count, 0, row.expires_at)


def _activate_scheduled(fragment: Fragment, row: StoredMessage, now: Millis) -> Change:
    scheduled_number = row.sequence_number
    if row.expires_at < NEVER:
        # The time to live counts from now; the row has it from the time it was due.
        row.expires_at += now - row.due_at
    fragment.last_number += 1
    row.sequence_number, row.enqueued_at = fragment.last_number, now
    row.state, row.due_at = MessageState.ACTIVE, 0
    return Activated(fragment.key, scheduled_number, row.sequence_number, now, row.expires_at)
