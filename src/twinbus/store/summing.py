"""Summaries of all fragments at once: one pass over the tables, plus what the layers add and hide."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from twinbus.model.wire_names import MessageState
from twinbus.store.changes import FragmentKey
from twinbus.store.fragment_view import FragmentView
from twinbus.store.located_changes import SIZE, STATE
from twinbus.store.messaging_store import FragmentSummary
from twinbus.store.overlay import Layer
from twinbus.store.tables import Snapshot


def sum_fragments(
    tables: Snapshot, layers: Sequence[Layer], last_numbers: Mapping[FragmentKey, int | None]
) -> list[FragmentSummary]:
    counts: dict[FragmentKey, Counter[int]] = defaultdict(Counter)
    sizes: Counter[FragmentKey] = Counter()
    hidden: list[int] = []
    seen_slots: dict[int, FragmentKey] = {}
    for fragment in last_numbers:
        here = tables.of(fragment)
        view = FragmentView(here, layers, fragment)
        if view.has_tables:
            seen_slots[here.slot] = fragment
            hidden += (here.id(number) for number in view.hidden_in_tables())
        for _, _, row in view.rows_in_layers():
            counts[fragment][row[STATE]] += 1
            sizes[fragment] += row[SIZE]
    for slot, state, count, size in tables.counts_without(hidden):
        if slot in seen_slots:
            counts[seen_slots[slot]][state] += count
            sizes[seen_slots[slot]] += size
    return [
        FragmentSummary(
            fragment,
            last_number,
            counts[fragment][MessageState.ACTIVE],
            counts[fragment][MessageState.DEFERRED],
            counts[fragment][MessageState.SCHEDULED],
            sizes[fragment],
        )
        for fragment, last_number in last_numbers.items()
        if last_number is not None
    ]
