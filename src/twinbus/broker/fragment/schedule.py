"""Messages for later: scheduled ones and those abandoned with a delay (contract A13).

A scheduled message becomes active under a new number, as if it were sent then. A delayed one has been delivered before,
which is how the two are told apart, and keeps its number and so its place.
"""

from collections.abc import Callable

from twinbus.broker.fragment.decision import Decision
from twinbus.broker.fragment.fragment import Fragment
from twinbus.clock import Millis
from twinbus.errors import FragmentUnavailable
from twinbus.store.changes import StoredMessage
from twinbus.store.reads import DueRows, Timely

DUE_COUNT_MAX = 256

Activate = Callable[[Fragment, list[StoredMessage], Millis], None]


def look_for_due(fragment: Fragment, now: Millis, activate: Activate) -> None:
    """Ask the store what is due; `activate` gets it when the answer comes."""
    if not fragment.agenda.start_activating(now):
        return

    def found(answer: Timely | FragmentUnavailable, later: Millis) -> None:
        if isinstance(answer, FragmentUnavailable):
            return
        fragment.agenda.stop_activating(answer.next_at)
        fragment.wake()
        changing = fragment.in_flight()
        rows = [row for row in answer.rows if row.sequence_number not in changing]
        if rows:
            activate(fragment, rows, later)

    fragment.broker.query(DueRows(fragment.key, now, DUE_COUNT_MAX), found)


def activate(fragment: Fragment, rows: list[StoredMessage], now: Millis) -> None:
    """Due rows of a queue become active ones."""
    decision = Decision(fragment)
    for row in rows:
        decision.activate(row, now)
    decision.commit()
