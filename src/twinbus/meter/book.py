"""Collects operations as they are reported, second by second: operations in, rows for the log out.

    report --up to exact_per_second_max--> a row of its own
        '--more than that-----------------> added to the row of its second, entity, fragment, cause, path and who

Each operation is in exactly one row, so sums are exact at every rate; above the limit only the link to the message is lost.
A second that passes the limit is followed by seconds without exact rows, until one stays within the limit: a few exact rows
among many could not show the way of a message, and would cost as much as all the rest. Operations without a message are
always added up.

Memory is bounded by the limit and by `KEYS_MAX` rows of sums; operations beyond that are added up without entity and who.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from twinbus.clock import Clock, Millis
from twinbus.meter.operation import NO_FRAGMENT, Cause, EntityType, Operation, Path

EXACT_PER_SECOND_DEFAULT = 1_000
KEYS_MAX = 50_000
SECOND: Millis = 1_000


class Key(NamedTuple):
    """What operations must have in common to share a row."""

    cause: Cause
    entity: str
    fragment: int
    path: Path
    who: str
    entity_type: EntityType


class Reporter(Protocol):
    """Has something to report and waits to be asked, so that many reports cost as much as one."""

    def write_down(self) -> None:
        """Report everything that has not been reported yet."""
        ...


class OperationsBook:
    """Lives on one thread."""

    def __init__(self, clock: Clock, exact_per_second_max: int = EXACT_PER_SECOND_DEFAULT) -> None:
        self.totals: dict[Cause, int] = dict.fromkeys(Cause, 0)
        """Operations by cause, in all rows that were taken."""
        self._clock = clock
        self.exact_left = exact_per_second_max
        """How many more operations may get rows of their own in this second, not counting what reporters still hold.

        Only the book changes it.
        """
        self._exact_max = exact_per_second_max
        self._second = clock.now() // SECOND
        self._exact: list[Operation] = []
        self._sums: dict[Key, list[int]] = {}
        self._closed: list[Operation] = []
        self._waiting: list[Reporter] = []
        self._is_held = False

    def turn(self) -> None:
        """Begin a new second if the time has come."""
        self._turn(self._clock.now())

    def ask_soon(self, reporter: Reporter) -> None:
        """Ask this reporter once, at the next `write_down`."""
        self._waiting.append(reporter)

    def write_down(self) -> None:
        """Ask all waiting reporters. Call it many times a second: what they hold stays in memory until then."""
        waiting, self._waiting = self._waiting, []
        for reporter in waiting:
            reporter.write_down()

    def exact_at(self, count: int) -> Millis:
        """The time, if this second has room for this many exact rows, otherwise 0.

        Under load it is mostly 0, and then the call costs almost nothing.
        """
        if self.exact_left < count:
            return 0
        now = self._clock.now()
        self._turn(now)
        return now

    def record(self, operation: Operation, /) -> None:
        """Implements the `Meter` protocol."""
        self.turn()
        if operation.message_id is not None and self.exact_left:
            self.add_exact([operation])
            return
        _, cause, entity, fragment, messages, size, units, path, who, _, _, kind, count = operation
        self.add(Key(cause, entity, fragment, path, who, kind), count, messages, size, units)

    def add_exact(self, rows: Sequence[Operation]) -> None:
        """Call it after `exact_at` has confirmed that there is room."""
        self.exact_left -= len(rows)
        self._exact += rows

    def add(self, key: Key, operations: int, messages: int, size: int, units: int) -> None:
        sums = self._sums.get(key)
        if sums is None:
            sums = self._new_sums(key)
        sums[0] += operations
        sums[1] += messages
        sums[2] += size
        sums[3] += units

    def take(self, *, is_behind: bool = False) -> list[Operation]:
        """Rows of the seconds that are over.

        With `is_behind` the writer cannot keep up: no rows are returned, and everything is added up until this is
        called without it.
        """
        self.write_down()
        if is_behind:
            self._is_held = True
            self.exact_left = 0
            return []
        self._is_held = False
        self.turn()
        return self._take_closed()

    def take_all(self) -> list[Operation]:
        """All rows, including those of the current second."""
        self.write_down()
        self._is_held = False
        self._close(self._clock.now() // SECOND)
        return self._take_closed()

    def _take_closed(self) -> list[Operation]:
        taken, self._closed = self._closed, []
        for row in taken:
            self.totals[row.cause] += row.operations
        return taken

    def _turn(self, now: Millis) -> None:
        if now // SECOND != self._second and not self._is_held:
            self.write_down()
            self._close(now // SECOND)

    def _close(self, second: int) -> None:
        at = self._second * SECOND
        reported = len(self._exact) + sum([sums[1] for key, sums in self._sums.items() if key.cause.is_billed])
        self._closed += self._exact
        self._closed += [
            Operation(at, cause, entity, fragment, messages, size, units, path, who, None, None, kind, operations)
            for (cause, entity, fragment, path, who, kind), (operations, messages, size, units) in self._sums.items()
        ]
        self._exact, self._sums = [], {}
        self._second = second
        self.exact_left = self._exact_max if reported <= self._exact_max else 0

    def _new_sums(self, key: Key) -> list[int]:
        if len(self._sums) >= KEYS_MAX:
            key = Key(key.cause, "", NO_FRAGMENT, key.path, "", EntityType.NAMESPACE)
        return self._sums.setdefault(key, [0, 0, 0, 0])
