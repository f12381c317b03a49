"""Operations as they are reported, kept for a second at a time: values in, rows for the log out.

    report --up to exact_per_second_max--> a row of its own
        '--more than that-----------------> added to the row of its second, entity, fragment, cause, path and who

Each operation is in exactly one row, so sums are exact at every rate; what is lost above the limit is which message it
was. After a second that passed the limit there are no exact rows until one has kept it: a few of them among many would
tell nobody the way of his message, and cost as much as all the rest. Whatever names no message is always added up.

Memory is bounded by the limit and by `KEYS_MAX` rows of sums; what has no place among those is added up without entity
and who.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from twinbus.clock import Clock, Millis
from twinbus.meter.operation import NO_FRAGMENT, Cause, EntityType, Operation, Path

EXACT_PER_SECOND_DEFAULT = 1_000
KEYS_MAX = 50_000
SECOND: Millis = 1_000


class Key(NamedTuple):
    """What operations have in common that are added up."""

    cause: Cause
    entity: str
    fragment: int
    path: Path
    who: str
    entity_type: EntityType


class Reporter(Protocol):
    """Somebody with something to report who waits to be asked, so that many reports cost as much as one."""

    def write_down(self) -> None:
        """Tell the book all that was not told yet."""
        ...


class OperationsBook:
    """Lives on one thread."""

    def __init__(self, clock: Clock, exact_per_second_max: int = EXACT_PER_SECOND_DEFAULT) -> None:
        self.totals: dict[Cause, int] = dict.fromkeys(Cause, 0)
        """Operations by cause, in all rows that were taken."""
        self._clock = clock
        self.exact_left = exact_per_second_max
        """How many more may get rows of their own in this second, as far as is known before everybody was asked.

        For the book alone to change.
        """
        self._exact_max = exact_per_second_max
        self._second = clock.now() // SECOND
        self._exact: list[Operation] = []
        self._sums: dict[Key, list[int]] = {}
        self._closed: list[Operation] = []
        self._waiting: list[Reporter] = []
        self._is_held = False

    def turn(self) -> None:
        """Begin another second if it is time."""
        self._turn(self._clock.now())

    def ask_soon(self, reporter: Reporter) -> None:
        """Ask this one at the next `write_down`, and then no more."""
        self._waiting.append(reporter)

    def write_down(self) -> None:
        """Ask everybody who waits. To be called many times a second: what they hold is in memory until then."""
        waiting, self._waiting = self._waiting, []
        for reporter in waiting:
            reporter.write_down()

    def exact_at(self, count: int) -> Millis:
        """The time, if this second has room for so many rows of their own; 0 if it has not.

        Where many report, this is mostly the latter, and then costs nothing.
        """
        if self.exact_left < count:
            return 0
        now = self._clock.now()
        self._turn(now)
        return now

    def record(self, operation: Operation, /) -> None:
        """Keeps the `Meter` protocol."""
        self.turn()
        if operation.message_id is not None and self.exact_left:
            self.add_exact([operation])
            return
        _, cause, entity, fragment, messages, size, units, path, who, _, _, kind, count = operation
        self.add(Key(cause, entity, fragment, path, who, kind), count, messages, size, units)

    def add_exact(self, rows: Sequence[Operation]) -> None:
        """After `exact_at` has said that there is room for them."""
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

        `is_behind`: whoever writes them has more than enough. Then there are none, and all is added up over as many
        seconds as it takes until this is called without it.
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
        """Every row there is, those of the present second included."""
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
