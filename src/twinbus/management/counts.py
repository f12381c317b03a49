"""How full an entity is, and whether it is available: the counts of all its fragments, summed (contract A6)."""

from collections.abc import Iterable
from dataclasses import dataclass

from twinbus.broker.replies import Holdings, QueueCounts
from twinbus.clock import Millis


@dataclass(frozen=True, slots=True)
class EntityCounts:
    active: int = 0
    deferred: int = 0
    scheduled: int = 0
    dead_letter: int = 0
    transfer: int = 0
    transfer_dead_letter: int = 0
    size_bytes: int = 0
    is_limited: bool = False  # the counts are partial
    is_unknown: bool = False  # nothing of it can be reached: the zeros mean nothing
    last_used_at: Millis = 0  # 0: nobody has used it

    @property
    def messages(self) -> int:
        waiting = self.active + self.deferred + self.scheduled + self.transfer
        return waiting + self.dead_letter + self.transfer_dead_letter

    @property
    def availability(self) -> str:
        """`Limited` while a fragment has no working messaging store."""
        return "Limited" if self.is_limited else "Available"


NOTHING = EntityCounts()


def counts_of(held: Holdings) -> EntityCounts:
    """Of a queue or subscription."""
    main, dead, transfer, undelivered = held.main, held.dead_letter, held.transfer, held.transfer_dead_letter
    return EntityCounts(
        active=main.active,
        deferred=main.deferred,
        scheduled=main.scheduled,
        dead_letter=dead.active + dead.deferred,
        transfer=transfer.active,
        transfer_dead_letter=undelivered.active + undelivered.deferred,
        size_bytes=main.size_bytes + dead.size_bytes + undelivered.size_bytes + transfer.size_bytes,
        is_limited=main.is_limited or dead.is_limited or undelivered.is_limited or transfer.is_limited,
        is_unknown=main.is_unknown,
        last_used_at=held.last_used_at,
    )


def topic_counts(held: Holdings, subscriptions: Iterable[EntityCounts]) -> EntityCounts:
    """A topic holds scheduled messages and transfers itself; its size and availability are those of it and its subscriptions together."""
    own, transfer, undelivered = held.main, held.transfer, held.transfer_dead_letter
    parts: list[QueueCounts | EntityCounts] = [own, transfer, undelivered, *subscriptions]
    return EntityCounts(
        scheduled=own.scheduled,
        transfer=transfer.active,
        transfer_dead_letter=undelivered.active + undelivered.deferred,
        size_bytes=sum(part.size_bytes for part in parts),
        is_limited=any(part.is_limited for part in parts),
        is_unknown=own.is_unknown,
        last_used_at=held.last_used_at,
    )
