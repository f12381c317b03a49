"""Contents that were left to the store (`twinbus.broker.held_contents`) come back into the rows that locks hold or have held."""

from collections.abc import Sequence
from functools import partial

from twinbus.broker.fragment.fragment import Fragment
from twinbus.broker.held_contents import unread_content
from twinbus.broker.message_broker import Effect, Failed
from twinbus.clock import Millis
from twinbus.errors import FragmentUnavailable
from twinbus.store.changes import StoredMessage
from twinbus.store.reads import ROWS_BYTES_MAX, ReadNumbers, Rows


def read_again(fragment: Fragment, rows: Sequence[StoredMessage], done: Effect, failed: Failed) -> None:
    """`done` when all of them have their contents. Nobody may find them in the store meanwhile: they stay locked, or are kept
    out (`Fragment.keep_out`)."""
    missing = {row.sequence_number: row for row in rows if unread_content(row) is not None}
    _read_next(fragment, missing, done, failed)


def _read_next(fragment: Fragment, missing: dict[int, StoredMessage], done: Effect, failed: Failed) -> None:
    # In the order of their numbers the store finds them next to one another.
    read = ReadNumbers(fragment.key, sorted(missing), ROWS_BYTES_MAX)
    fragment.broker.query(read, partial(_found, fragment, missing, done, failed))


def _found(
    fragment: Fragment,
    missing: dict[int, StoredMessage],
    done: Effect,
    failed: Failed,
    found: Rows | FragmentUnavailable,
    now: Millis,
) -> None:
    if isinstance(found, FragmentUnavailable):
        failed(found, now)
        return
    if not found:
        # Damaged rows are set aside, and then the store is lost before it answers. So the fragment is gone.
        failed(fragment.broker.unavailable(), now)
        return
    for row in found:
        missing.pop(row.sequence_number).content = row.content
    if missing:
        _read_next(fragment, missing, done, failed)
    else:
        done(now)
