"""`twinbus store restored`: messaging stores that were taken back to an earlier moment, made fit to be served.

What was given out after that moment is forgotten here, and not by clients: they hold its sequence numbers. So every fragment
leaves out more numbers than it can have used since. Entities likewise: if the catalog was taken back and the stores were not,
ids that it would give out are known to the stores, and are left out.
"""

from contextlib import closing
from typing import Final, NamedTuple

from twinbus.clock import Millis
from twinbus.errors import ArgumentError
from twinbus.management.catalog_copy import raise_last_id
from twinbus.server.data.copy_marks import require_whole
from twinbus.server.data.namespace_copy import NamespaceEnd
from twinbus.store.changes import fragment_parts
from twinbus.store.transfer import NUMBERS_SKIPPED, skip_numbers

IDS_SKIPPED: Final = 1_000


class Restored(NamedTuple):
    fragments: int
    skipped: int


def mark_restored(end: NamespaceEnd, index: int | None, now: Millis) -> Restored:
    """Of a namespace that nobody serves; opening a store in PostgreSQL raises its epoch. Raises MessagingError."""
    with end.hold(now) as held:
        require_whole(held.mark(), held.mark_place)
        if index is not None and index >= held.store_count:
            raise ArgumentError(f"There is no messaging store {index}; the last one is {held.store_count - 1}.")
        fragments = last_id = 0
        for number in range(held.store_count) if index is None else [index]:
            with closing(held.open_store(number)) as store:
                fragments += skip_numbers(store)
                ids = [fragment_parts(summary.fragment).entity_id for summary in store.summaries()]
                last_id = max([last_id, *ids])
        raise_last_id(held.catalog, last_id, IDS_SKIPPED)
    return Restored(fragments, NUMBERS_SKIPPED)
