"""Where the fragments of a queue begin and end: a queue in, numbers and counts of every fragment out, and no bodies."""

from collections.abc import Sequence
from typing import NamedTuple

from twinbus.broker.entity.message_queue import MessageQueue
from twinbus.broker.fragment.fragment import Fragment
from twinbus.broker.replies import Reply
from twinbus.clock import Millis
from twinbus.errors import FragmentUnavailable
from twinbus.store.reads import Rows, Scan


class FragmentHead(NamedTuple):
    fragment: int
    is_available: bool  # false: nothing is known, and all that follows is 0
    first_number: int  # of the messages in it; one above the last where there is none
    last_number: int  # the highest that was ever given
    active: int
    deferred: int
    scheduled: int
    size_bytes: int


def fragment_heads(queue: MessageQueue, now: Millis, reply: Reply[list[FragmentHead]]) -> None:
    """In the order of the fragments. Whatever is numbered up to `last_number` is durable, or is gone again."""
    queue.settings.last_used_at = now
    _Heads(queue.fragments, reply).collect()


class _Heads:
    def __init__(self, fragments: Sequence[Fragment], reply: Reply[list[FragmentHead]]) -> None:
        self._fragments = fragments
        self._reply = reply
        self._heads: list[FragmentHead] = []

    def collect(self) -> None:
        for fragment in self._fragments:
            self._ask(fragment)

    def _ask(self, fragment: Fragment) -> None:
        # Now and not when the answer comes: the store has then done all that was asked of it before.
        last = fragment.last_number

        def answered(rows: Rows | FragmentUnavailable) -> None:
            if isinstance(rows, FragmentUnavailable):
                self._add(FragmentHead(fragment.index, False, 0, 0, 0, 0, 0, 0))
                return
            first = rows[0].sequence_number if rows else last + 1
            counts = fragment.active_count, fragment.deferred_count, fragment.scheduled_count, fragment.size_bytes
            self._add(FragmentHead(fragment.index, True, first, last, *counts))

        fragment.broker.query(Scan(fragment.key, 0, 1, 1), answered)

    def _add(self, head: FragmentHead) -> None:
        self._heads.append(head)
        if len(self._heads) == len(self._fragments):
            self._reply(sorted(self._heads))
