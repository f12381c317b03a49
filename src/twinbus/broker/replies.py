"""How answers come back: at once or after the store has made the change durable, always on the loop thread.

`now` is when they come: the time of the call, or that of the store's answer.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias, TypeVar

from twinbus.clock import Millis
from twinbus.errors import MessagingError

T = TypeVar("T")

Reply: TypeAlias = Callable[[T | MessagingError], None]
"""Called exactly once, with the result or with the error instead of it."""


class SendReply(Protocol):
    """Answers for messages sent together but independently: every index in exactly one call."""

    def accepted(self, indexes: Sequence[int], numbers: Sequence[int], now: Millis, /) -> None:
        """These are durable, all in one fragment, under these sequence numbers (0 for a dropped duplicate)."""
        ...

    def refused(self, index: int, error: MessagingError, now: Millis, /) -> None: ...


class SettleReply(Protocol):
    """Answers for messages settled together but independently: every index in exactly one call."""

    def settled(self, indexes: Sequence[int], now: Millis, /) -> None:
        """The outcome of these is durable."""
        ...

    def failed(self, index: int, error: MessagingError, now: Millis, /) -> None: ...


class _Unawaited:
    def settled(self, indexes: Sequence[int], now: Millis, /) -> None:
        pass

    def failed(self, index: int, error: MessagingError, now: Millis, /) -> None:
        pass


UNAWAITED: Final[SettleReply] = _Unawaited()
"""For who settled without waiting for an answer: a lost lock shows when the message returns."""


class Waiter(Protocol):
    """A request that waits for something to happen, such as a message session to come free."""

    def cancel(self) -> None:
        """Forget it without an answer. After its answer this does nothing."""
        ...


@dataclass(frozen=True, slots=True)
class QueueCounts:
    """Of one sub-queue, summed over its fragments. Unavailable fragments are missing from the sums."""

    active: int
    deferred: int
    scheduled: int
    size_bytes: int
    is_limited: bool  # a fragment has no working store (contract A6), so the sums are partial
    is_unknown: bool = False  # no fragment has: the zeros mean nothing

    def __add__(self, other: "QueueCounts") -> "QueueCounts":
        return QueueCounts(
            self.active + other.active,
            self.deferred + other.deferred,
            self.scheduled + other.scheduled,
            self.size_bytes + other.size_bytes,
            is_limited=self.is_limited or other.is_limited,
            is_unknown=self.is_unknown and other.is_unknown,
        )


NO_COUNTS = QueueCounts(0, 0, 0, 0, is_limited=False)


@dataclass(frozen=True, slots=True)
class Holdings:
    """Of all sub-queues of a queue or subscription; of a topic those that it has itself."""

    main: QueueCounts
    dead_letter: QueueCounts
    transfer: QueueCounts  # of what was sent via it and has not reached its destination yet
    transfer_dead_letter: QueueCounts
    last_used_at: Millis  # 0: nobody has used it

    def __add__(self, other: "Holdings") -> "Holdings":
        return Holdings(
            self.main + other.main,
            self.dead_letter + other.dead_letter,
            self.transfer + other.transfer,
            self.transfer_dead_letter + other.transfer_dead_letter,
            max(self.last_used_at, other.last_used_at),
        )
