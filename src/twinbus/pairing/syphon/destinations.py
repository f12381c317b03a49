"""What a pump knows of each destination: whether it is paused, how its batches must be cut, what was left behind.

Order is kept by not overtaking: a message that was left stays locked for a while, and until it comes again nothing with a higher
number may go to the same destination. A broker hands out the lowest number that is free, so once the lock of a left message has
ended, that message comes before all others, unless another syphon took it or it is gone.

A destination that may be tried again does not wait for those locks. After a pause the first of its messages are given back, to try
it with; once it has accepted one, or somebody knows that it works, all of them are.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TypeAlias

from twinbus.clock import NEVER, Millis
from twinbus.model.message_limits import MESSAGE_SIZE_MAX
from twinbus.pairing.syphon.broker_clock import LOCK_MARGIN, BrokerClock
from twinbus.pairing.syphon.transport import Chunk, Taken, Transfer

RETRY_MIN: Millis = 1_000
RETRY_MAX: Millis = 120_000
TRIED_MAX = 100
"""How many messages a destination that failed is tried with: a page. Each try costs them a delivery."""

CLOCK_SKEW_MAX: Millis = 1_000
NO_BARRIER = 2**63
CHUNK_SIZE_MAX = MESSAGE_SIZE_MAX - 16 * 1024
"""Of one batch; the rest is for the envelope."""

Group: TypeAlias = list[tuple[Taken, Transfer]]


class Cut(IntEnum):
    """From coarse to fine; after a refused chunk the destination gets the next finer cut.

    A partitioned destination takes a batch only if all its messages have one key, and where it detects duplicates the message
    id is a key too. A pump cannot ask which kind a destination is.
    """

    WHOLE = 0
    BY_KEY = 1
    SINGLE = 2


@dataclass(frozen=True, slots=True)
class Lock:
    """Of a message that was left. Without a token there is nothing to give back: it is free, or is to stay until its lock ends."""

    until: Millis
    token: bytes = b""

    def can_be_given_back(self, now: Millis) -> bool:
        """One that is about to end need not be, and might spoil it for others."""
        return bool(self.token) and self.until > now + LOCK_MARGIN


@dataclass(slots=True)
class Destination:
    cut: Cut = Cut.WHOLE
    paused_until: Millis = 0
    retry_after: Millis = RETRY_MIN
    left: dict[int, Lock] = field(default_factory=dict)
    """By sequence number."""
    following: dict[str, dict[int, Millis]] = field(default_factory=dict)
    """What was left because it follows messages in other backlog queues: by session, sequence number to end of lock."""
    had_poison: bool = False
    """In this pass. The fine cut may have been necessary only for one message, which is gone."""

    @property
    def next_cut(self) -> Cut:
        """The cut that the next pass begins with."""
        return Cut.WHOLE if self.had_poison else self.cut

    def begin_pass(self) -> None:
        self.cut, self.had_poison = self.next_cut, False

    def barrier(self, received_at: Millis, now: Millis) -> int:
        """Messages with lower numbers may go now.

        Forgets what would have come again by `received_at`: another syphon has moved it.
        """
        if now < self.paused_until:
            return 0
        for number in [number for number, lock in self.left.items() if lock.until + CLOCK_SKEW_MAX <= received_at]:
            del self.left[number]
        return min(self.left, default=NO_BARRIER)

    def leave(self, sequence_number: int, lock: Lock) -> None:
        self.left[sequence_number] = lock

    @property
    def is_failing(self) -> bool:
        """It has not accepted anything since it failed, and nobody knows that it works again."""
        return self.retry_after > RETRY_MIN

    def holds_back(self, now: Millis) -> bool:
        """Whether anything is left that could be given back."""
        return any(lock.can_be_given_back(now) for lock in self.left.values())

    def to_give_back(self, now: Millis) -> dict[int, bytes]:
        """By sequence number, the tokens of what may come again now."""
        if now < self.paused_until:
            return {}
        numbers = sorted(number for number, lock in self.left.items() if lock.can_be_given_back(now))
        return {number: self.left[number].token for number in (numbers[:TRIED_MAX] if self.is_failing else numbers)}

    def gave_back(self, sequence_numbers: Iterable[int], free_at: Millis | None) -> None:
        """None if that failed: then their locks end by themselves."""
        for number in sequence_numbers:
            self.left[number] = Lock(self.left[number].until if free_at is None else free_at)

    def next_try_at(self, now: Millis) -> Millis:
        """When the first of what is left can come again and be tried. Only where something is left."""
        free_at = now if self.holds_back(now) else min(lock.until for lock in self.left.values())
        return max(self.paused_until, free_at)

    def follow(self, session: str, sequence_number: int, locked_until: Millis) -> None:
        self.following.setdefault(session, {})[sequence_number] = locked_until

    def are_free(self, sequence_numbers: Sequence[int], now: Millis) -> None:
        """Followers that were given back."""
        for numbers in self.following.values():
            for number in numbers.keys() & set(sequence_numbers):
                numbers[number] = now

    def is_behind(self, session: str, sequence_number: int, received_at: Millis) -> bool:
        """Whether an earlier message of the session was left and has not come again. Forgets what would have come by now."""
        numbers = self.following.get(session)
        if numbers is None:
            return False
        for number in [number for number, until in numbers.items() if until + CLOCK_SKEW_MAX <= received_at]:
            del numbers[number]
        if not numbers:
            del self.following[session]
        return any(number < sequence_number for number in numbers)

    def failed(self, now: Millis) -> None:
        self.paused_until = now + self.retry_after
        self.retry_after = min(RETRY_MAX, 2 * self.retry_after)

    def recovered(self) -> None:
        self.paused_until, self.retry_after = 0, RETRY_MIN

    def accepted(self) -> None:
        self.retry_after = RETRY_MIN

    def came_again(self, sequence_number: int) -> bool:
        """True for a message that was left before."""
        followed = [numbers.pop(sequence_number, None) for numbers in self.following.values()]
        return self.left.pop(sequence_number, None) is not None or any(followed)


@dataclass(slots=True)
class PumpMemory:
    """What a pump has learned. Another pump of the same queue that is given it continues in its place."""

    destinations: dict[str, Destination] = field(default_factory=dict)
    lock_duration: Millis = 0
    """The longest lock seen on arrival, which is the queue's."""
    broker_clock: BrokerClock = field(default_factory=BrokerClock)

    def destination(self, path: str) -> Destination:
        return self.destinations.setdefault(path, Destination())

    def all_free_at(self, now: Millis) -> Millis:
        """When the last lock ends of what was left for destinations that are not paused; NEVER if nothing was."""
        open_now = [each for each in self.destinations.values() if now >= each.paused_until]
        return max((lock.until for each in open_now for lock in each.left.values()), default=NEVER)

    def left_count(self) -> int:
        followers = sum(len(numbers) for each in self.destinations.values() for numbers in each.following.values())
        return followers + sum(len(each.left) for each in self.destinations.values())


def first_chunk(path: str, group: Group, cut: Cut) -> Chunk:
    """What one batch can hold. By key it is a run of equal keys, not all of one key: later ones would overtake those between."""
    count, size = 1, group[0][1].size
    key = group[0][1].key
    for _, transfer in group[1:]:
        size += transfer.size
        if size > CHUNK_SIZE_MAX or cut is Cut.SINGLE or (cut is Cut.BY_KEY and transfer.key != key):
            break
        count += 1
    return Chunk(path, [taken for taken, _ in group[:count]], [transfer for _, transfer in group[:count]])
