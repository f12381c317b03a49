"""Reading by sequence number: peek at messages, and take deferred ones (contract A12, protocol.md 9)."""

from collections.abc import Callable, Sequence
from functools import partial
from operator import methodcaller

from twinbus.broker.fragment.fragment import Fragment
from twinbus.broker.fragment.hops import without_hops
from twinbus.clock import Millis
from twinbus.errors import FragmentUnavailable, MessageNotFound, MessageTooLarge, MessagingError
from twinbus.model.wire_names import MessageState
from twinbus.store.changes import FragmentKey, StoredMessage
from twinbus.store.messaging_store import MessagingStore

PEEK_COUNT_MAX = 250
PEEK_BYTES_MAX = 256 * 1024
DEFERRED_BYTES_MAX = 64 * 1024 * 1024
_STEP_COUNT = 64
ANY_STATE = (MessageState.ACTIVE, MessageState.DEFERRED, MessageState.SCHEDULED)

Rows = list[StoredMessage]


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

    fragment.broker.query(
        methodcaller("scan", key, from_number - 1, count_max, PEEK_BYTES_MAX, ANY_STATE, session_id), read
    )


def shown(rows: Rows, now: Millis) -> Rows:
    """What a reader sees of them: no expired ones, and nothing that concerns forwarding."""
    visible = [row for row in rows if row.state is not MessageState.ACTIVE or row.expires_at > now]
    for row in visible:
        row.enqueued_sequence_number = without_hops(row.enqueued_sequence_number)
    return visible


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

    fragment.broker.query(partial(_rows_for_one_answer, fragment.key, wanted), read)


def _rows_for_one_answer(key: FragmentKey, numbers: Sequence[int], store: MessagingStore) -> Rows | None:
    """None if they are too large together. A single one is not: there is no way to ask for less."""
    rows: Rows = []
    size = 0
    for start in range(0, len(numbers), _STEP_COUNT):
        found = store.read(key, numbers[start : start + _STEP_COUNT])
        rows += found
        size += sum([len(row.content) for row in found])
        if size > DEFERRED_BYTES_MAX and len(numbers) > 1:
            return None
    return rows
