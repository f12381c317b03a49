"""One entity as a streaming query asks for it: checked once, polled with pauses, and read up to a target if the run has one."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from twinbus.errors import MessagingError, NotImplementedHere
from twinbus.pipeline.source.access.entity_access import EntityAccess, Head
from twinbus.pipeline.source.live_entity import LiveEntity, SourceUnavailable, Work
from twinbus.pipeline.source.offsets import OLDEST, JsonOffset, Positions
from twinbus.pipeline.source.options import SourceOptions
from twinbus.pipeline.source.planning import MessageSlices, fair_shares, input_partitions, task_count
from twinbus.pipeline.source.ranges import Range, count
from twinbus.pipeline.source.starting_points import chosen_heads, preflight
from twinbus.pipeline.source.time_shares import time_shares

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RunTarget:
    """How far a run reads that ends by itself. `firsts` and `ends` are by fragment, and equal where one is empty; `unknown` are
    the fragments that were unavailable when the run started.

    A continuous query reads an unavailable fragment later. The end of a run says that everything was read, so a run reads what it
    can and then fails.
    """

    path: str
    firsts: Positions
    ends: Positions
    unknown: frozenset[int]

    @classmethod
    async def of(cls, access: EntityAccess, options: SourceOptions) -> "RunTarget":
        heads = await chosen_heads(access, options)
        known = [head for head in heads if head.is_available]
        return cls(
            access.path,
            {head.fragment: head.first for head in known},
            {head.fragment: head.end for head in known},
            frozenset(head.fragment for head in heads if not head.is_available),
        )

    def require_read(self, heads: Sequence[Head], reached: Positions) -> None:
        """To be asked when nothing more is found. Raises SourceUnavailable."""
        lost = {head.fragment for head in heads if not head.is_available}
        left = self.unknown | {
            fragment
            for fragment, end in self.ends.items()
            if fragment in lost and reached.get(fragment, self.firsts[fragment]) < end
        }
        if left:
            raise SourceUnavailable(
                f"Fragments {', '.join(map(str, sorted(left)))} of '{self.path}' do not answer, or did not when the run"
                " started, so they were not read. Everything else was; start the query again later."
            )


class StreamedEntity:
    """What browsing and consuming have in common. `turn` counts the polls, so that fragments take turns."""

    def __init__(self, options: SourceOptions, entity: LiveEntity, monotonic: Callable[[], float]) -> None:
        self.options = options
        self.target: RunTarget | None = None
        self.reported: JsonOffset | None = None
        self.turn = 0
        self._entity = entity
        self._monotonic = monotonic
        self._next_poll = float("-inf")
        self._is_checked = False

    def call(self, work: Work[T]) -> T:
        return self._entity.call(work)

    def set_target(self) -> None:
        """From now on, messages that come later are left for a later run."""
        self.target = self.call(lambda access: RunTarget.of(access, self.options))

    def check(self) -> None:
        """Raises if the entity cannot be read with these options; asks the namespace once."""
        if not self._is_checked:
            self.call(lambda access: preflight(access, self.options))
            self._is_checked = True

    def is_poll_due(self) -> bool:
        """At once after a poll that found something, otherwise after the poll interval.

        Spark asks an idle source 70 times a second, and requests to a namespace are billed.
        """
        return self._monotonic() >= self._next_poll

    def polled(self, *, found_some: bool) -> None:
        self.turn += 1
        self._next_poll = float("-inf") if found_some else self._monotonic() + self.options.poll_interval_s

    async def shares(self, access: EntityAccess, room: Mapping[int, Range], limit: int | None) -> dict[int, int]:
        """How far each fragment may advance in a batch, so that their enqueued times advance together.

        Equal shares where times do not rise with numbers, or are not to be had.
        """
        widths = {fragment: end - first for fragment, (first, end) in room.items()}
        if limit is not None and not self.options.has_dead_letters:
            try:
                return await time_shares(room, limit, self.turn, access.times)
            except NotImplementedHere:
                pass
        return fair_shares(widths, limit, self.turn)

    async def report_oldest(self, access: EntityAccess, left: Mapping[int, int]) -> None:
        """Add to what is reported when the oldest message was enqueued that no batch has yet; `left` says from which number
        on there are some. It is only reported, so nothing fails because it cannot be found out."""
        if not left or self.reported is None:
            return
        try:
            found = await access.times(list(left.values()))
        except MessagingError:
            return
        times = [each[1] for each in found if each is not None]
        if times:
            self.reported = {**self.reported, OLDEST: min(times)}

    def tasks(self, ranges: Sequence[Range], mean_size: int = 0) -> int:
        return task_count(count(ranges), mean_size, self.options.partitions_min, self.options.partitions_max)

    def partitions(self, ranges: Sequence[Range], tasks: int | None, held: Sequence[Range] = ()) -> list[MessageSlices]:
        """`tasks` is what the offset says. If it says nothing, as in Spark 4.0 and 4.1 and in offsets of older releases, a task has 5,000
        messages: a batch that is run again has the tasks that it had."""
        tasks_max = self.tasks(ranges) if tasks is None else tasks
        return input_partitions([(self.options.path, ranges)], tasks_max, is_own=self._entity.is_own, held=held)
