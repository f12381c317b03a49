"""`twinbus restore` and `twinbus store restored`: messaging stores that were taken back to an earlier moment, made fit to be served.

What was given out after that moment is forgotten here, and not by clients: they hold its sequence numbers. So every fragment
leaves out more numbers than it can have used since, also one that a store did not have yet at that moment. Entities likewise: if
the catalog was taken back and the stores were not, ids that it would give out are known to the stores, and are left out.
"""

from collections.abc import Iterable
from contextlib import closing
from typing import Final, NamedTuple

from twinbus.broker.entity.sub_queues import first_store_of, stores_of
from twinbus.clock import Millis
from twinbus.errors import ArgumentError
from twinbus.management.catalog import Catalog
from twinbus.management.catalog_copy import raise_last_id
from twinbus.model.descriptions import QueueDescription, TopicDescription
from twinbus.server.data.copy_marks import require_whole
from twinbus.server.data.namespace_copy import HeldNamespace, NamespaceEnd
from twinbus.store.changes import FragmentKey, SubQueue, fragment_key, fragment_parts
from twinbus.store.transfer import NUMBERS_SKIPPED, create_missing, skip_numbers

IDS_SKIPPED: Final = 1_000

IN_QUEUES: Final = tuple(SubQueue)
IN_TOPICS: Final = (SubQueue.MAIN, SubQueue.TRANSFER_DEAD_LETTER, SubQueue.TRANSFER)
IN_SUBSCRIPTIONS: Final = (SubQueue.MAIN, SubQueue.DEAD_LETTER, SubQueue.TRANSFER_DEAD_LETTER)


class Restored(NamedTuple):
    fragments: int
    skipped: int


def mark_restored(end: NamespaceEnd, index: int | None, now: Millis) -> Restored:
    """Of a namespace that nobody serves; opening a store in PostgreSQL raises its epoch. Raises MessagingError."""
    with end.hold(now, is_taken_back=index is None) as held:
        require_whole(held.mark(), held.mark_place)
        if index is not None and index >= held.store_count:
            raise ArgumentError(f"There is no messaging store {index}; the last one is {held.store_count - 1}.")
        indexes = range(held.store_count) if index is None else [index]
        return Restored(leave_out(held, indexes), NUMBERS_SKIPPED)


def leave_out(held: HeldNamespace, indexes: Iterable[int]) -> int:
    """Whatever may have been given out since the moment of these stores. Returns the number of fragments."""
    known = fragments_by_store(Catalog(held.catalog), held.store_count)
    fragments = last_id = 0
    for number in indexes:
        with closing(held.open_store(number, is_taken_back=True)) as store:
            create_missing(store, known[number])
            fragments += skip_numbers(store)
            ids = [fragment_parts(summary.fragment).entity_id for summary in store.summaries()]
            last_id = max([last_id, *ids])
        # Only now: until then it is refused, also if this ends before, or fails because of another store.
        held.numbers_left_out(number)
    raise_last_id(held.catalog, last_id, IDS_SKIPPED)
    return fragments


def fragments_by_store(catalog: Catalog, store_count: int) -> list[list[FragmentKey]]:
    """Of all entities. Those of a subscription are where its topic's are."""
    found: list[list[FragmentKey]] = [[] for _ in range(store_count)]
    for entry in (*catalog.entries(QueueDescription), *catalog.entries(TopicDescription)):
        match entry.description:
            case QueueDescription(enable_partitioning=is_partitioned):
                parts = [(entry.id, IN_QUEUES)]
            case TopicDescription(name=name, enable_partitioning=is_partitioned):
                below = [(each.id, IN_SUBSCRIPTIONS) for each in catalog.subscriptions(name)]
                parts = [(entry.id, IN_TOPICS), *below]
        first_store = entry.first_store
        if first_store is None:
            first_store = first_store_of(entry.id, is_partitioned, store_count)
        for index, store in enumerate(stores_of(is_partitioned, first_store, store_count)):
            found[store] += [
                fragment_key(entity_id, index, each) for entity_id, sub_queues in parts for each in sub_queues
            ]
    return found
