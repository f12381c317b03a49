"""Reading by sequence number: peek at messages, and take deferred ones (contract A12, protocol.md 9)."""

from collections.abc import Callable, Sequence

from twinbus.broker.fragment.fragment import Fragment
from twinbus.broker.fragment.hops import without_hops
from twinbus.clock import Millis
from twinbus.errors import FragmentUnavailable, MessageNotFound, MessageTooLarge, MessagingError
from twinbus.model.request_limits import PEEK_COUNT_MAX
from twinbus.model.wire_names import MessageState
from twinbus.store.reads import ReadTogether, Rows, Scan, unexpired

PEEK_BYTES_MAX = 256 * 1024
DEFERRED_BYTES_MAX = 64 * 1024 * 1024


def peek(
    fragment: Fragment,
    from_number: int,
    count_max: int,
    session_id: str | None,
    now: Millis,
    done: Callable[[Rows | FragmentUnavailable], None],
) -> None:
    """Rows in any state from a number on; an empty answer means that there is none."""
    key, count_max = fragment.key, min(count_max, PEEK_COUNT_MAX)

    def read(rows: Rows | FragmentUnavailable) -> None:
        if isinstance(rows, FragmentUnavailable) or not rows:
            done(rows)
            return
        visible = shown(rows, now)
        if visible:
            done(visible)
        else:
            peek(fragment, rows[-1].sequence_number + 1, count_max, session_id, now, done)

    fragment.broker.query(Scan(key, from_number - 1, count_max, PEEK_BYTES_MAX, session_id=session_id), read)


def shown(rows: Rows, now: Millis) -> Rows:
    """What a reader sees of them: no expired ones, and nothing that concerns forwarding."""
    return without_hops_shown(unexpired(rows, now))


def without_hops_shown(rows: Rows) -> Rows:
    for row in rows:
        row.enqueued_sequence_number = without_hops(row.enqueued_sequence_number)
    return rows


def read_deferred(
    fragment: Fragment,
    numbers: Sequence[int],
    session_id: str | None,
    done: Callable[[Rows | MessagingError], None],
) -> None:
    """The deferred messages with these numbers that nobody holds: all of them, or MessageNotFound.

    MessageTooLarge if they are more than one answer can hold: what it cannot bring would be taken and lost.
    """
    wanted = list(dict.fromkeys(numbers))

    def read(rows: Rows | FragmentUnavailable | None) -> None:
        if rows is None:
            done(MessageTooLarge(f"These messages have more than {DEFERRED_BYTES_MAX} bytes. Ask for fewer at once."))
            return
        if isinstance(rows, FragmentUnavailable):
            done(rows)
            return
        taken = fragment.in_flight() | fragment.deferred_locked
        good = [
            row
            for row in rows
            if row.state is MessageState.DEFERRED
            and row.sequence_number not in taken
            and (session_id is None or row.session_id == session_id)
        ]
        if len(good) < len(wanted):
            done(MessageNotFound("A message with this sequence number is not deferred, or somebody holds it."))
        else:
            done(good)

    fragment.broker.query(ReadTogether(fragment.key, wanted, DEFERRED_BYTES_MAX), read)
