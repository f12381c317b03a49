"""How full some fragments are: fragments in, the sum of those that can be asked out."""

from collections.abc import Sequence

from twinbus.broker.fragment.fragment import Fragment
from twinbus.broker.replies import QueueCounts


def counts_of(fragments: Sequence[Fragment]) -> QueueCounts:
    served = [fragment for fragment in fragments if fragment.is_available]
    return QueueCounts(
        active=sum(fragment.active_count for fragment in served),
        deferred=sum(fragment.deferred_count for fragment in served),
        scheduled=sum(fragment.scheduled_count for fragment in served),
        size_bytes=sum(fragment.size_bytes for fragment in served),
        is_limited=len(served) < len(fragments),
    )
