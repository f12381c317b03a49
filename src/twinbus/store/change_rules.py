"""Which lists of changes a store accepts: a list in, the resulting highest numbers out.

The rules protect what must never be lost or mixed up, so only changes that add something can be refused: rows, session
states and duplicate keys need a fragment that exists, and a new number has to carry the index of its fragment and to be
above every number that the fragment ever had. Removing or altering something that does not exist is not an error,
because a broker may repeat itself after a lost reply.
"""

from collections.abc import Mapping, Sequence
from itertools import islice
from operator import lt
from typing import TypeAlias

from twinbus.errors import ChangeRefused
from twinbus.model.wire_names import SEQUENCE_BITS
from twinbus.store.changes import (
    Activated,
    ActivatedTogether,
    Change,
    Copied,
    DuplicatesSeen,
    Enqueued,
    FragmentCreated,
    FragmentDeleted,
    FragmentKey,
    SessionStateSet,
    fragment_index,
)
from twinbus.store.layers.located_changes import LocatedChange, RowsAdded

COUNTER_BITS = 44
"""Of a sequence number, below the index: 17 trillion messages per fragment."""

LastNumbers: TypeAlias = dict[FragmentKey, int | None]
"""Highest number used per fragment; None if the fragment does not exist."""


def check_changes(
    changes: Sequence[Change | LocatedChange], last_numbers: Mapping[FragmentKey, int | None]
) -> LastNumbers:
    """What `last_numbers` becomes, for the fragments the changes touch. Raises ChangeRefused."""
    touched: LastNumbers = {}
    for change in changes:
        fragment = change.fragment
        last = touched[fragment] if fragment in touched else last_numbers.get(fragment)
        if isinstance(change, RowsAdded):
            touched[fragment] = _after(fragment, last, change.numbers)
        elif isinstance(change, Enqueued):
            touched[fragment] = _after(fragment, last, [message.sequence_number for message in change.messages])
        elif isinstance(change, Copied):
            numbers = range(change.first_number, change.first_number + len(change.rows))
            touched[fragment] = _after(fragment, last, numbers)
        elif isinstance(change, Activated | ActivatedTogether):
            if last is not None:
                touched[fragment] = _after(fragment, last, _new_numbers(change))
        elif isinstance(change, FragmentCreated):
            touched[fragment] = last or 0
        elif isinstance(change, FragmentDeleted):
            touched[fragment] = None
        elif isinstance(change, SessionStateSet | DuplicatesSeen) and last is None:
            raise _missing(fragment)
    return touched


def _new_numbers(change: Activated | ActivatedTogether) -> Sequence[int]:
    if isinstance(change, Activated):
        return [change.sequence_number]
    return range(change.first_number, change.first_number + len(change.scheduled_numbers))


def _after(fragment: FragmentKey, last: int | None, numbers: Sequence[int]) -> int:
    if last is None:
        raise _missing(fragment)
    if not numbers:
        return last
    first = (fragment_index(fragment) << SEQUENCE_BITS) + 1
    if numbers[0] < max(first, last + 1) or numbers[-1] >= first + (1 << COUNTER_BITS) - 1:
        raise ChangeRefused(
            f"numbers {numbers[0]} to {numbers[-1]} cannot follow {last} in fragment {fragment}, "
            f"whose numbers start at {first}. Count on from the store's summary of the fragment."
        )
    if len(numbers) > 1 and not all(map(lt, numbers, islice(numbers, 1, None))):
        raise ChangeRefused(
            f"the new numbers of fragment {fragment} are not in ascending order. Order the messages by number."
        )
    return numbers[-1]


def _missing(fragment: FragmentKey) -> ChangeRefused:
    return ChangeRefused(f"fragment {fragment} does not exist in this store. Commit FragmentCreated before it is used.")
