"""A stream that looks at messages and leaves them: where the last batch ended in, where the next one ends out.

All of it runs in the one process that Spark keeps for a query, and holds nothing that an offset does not: after a crash
the offsets are enough.
"""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from twinbus.clock import Millis
from twinbus.model.wire_names import MessageState
from twinbus.pipeline.source.access.entity_access import (
    EntityAccess,
    Head,
    Wanted,
    creation_time,
    enqueued_at,
    mean_size,
    was_created_again,
)
from twinbus.pipeline.source.live_entity import LiveEntity, SourceFailed
from twinbus.pipeline.source.offsets import BrowseOffset, JsonOffset, Positions, reported_ends
from twinbus.pipeline.source.options import Edge, SourceOptions
from twinbus.pipeline.source.planning import BatchLimit, MessageSlices, row_limit
from twinbus.pipeline.source.starting_points import (
    check_latest,
    check_start,
    chosen_heads,
    lost_counts,
    report_loss,
    starting_positions,
    visible_ends,
)
from twinbus.pipeline.source.streamed_entity import StreamedEntity

log = logging.getLogger(__name__)

_IN_PLACE = (MessageState.ACTIVE, MessageState.DEFERRED)


class BrowseStream:
    def __init__(
        self,
        options: SourceOptions,
        entity: LiveEntity,
        *,
        monotonic: Callable[[], float],
        wall: Callable[[], Millis],
    ) -> None:
        self.entity = StreamedEntity(options, entity, monotonic)
        self._options = options
        self._wall = wall
        self._compared: tuple[BrowseOffset, bool] | None = None
        """Where this run began, and whether that was in an entity that is gone."""

    def latest(self, start: JsonOffset, limit: BatchLimit) -> JsonOffset:
        """Where a batch from `start` on should end; `start` itself if there is nothing to read."""
        self.entity.check()
        if not self.entity.is_poll_due():
            return start
        before = BrowseOffset.from_json(start, self._options.path)
        found = self.entity.call(lambda access: self._next(access, before, limit))
        self.entity.polled(found_some=found is not None)
        return start if found is None else found.to_json()

    def partitions(self, end: JsonOffset) -> list[MessageSlices]:
        offset = BrowseOffset.from_json(end, self._options.path)
        return [] if offset is None else self.entity.partitions(offset.ranges(), offset.tasks)

    async def _next(self, access: EntityAccess, before: BrowseOffset | None, limit: BatchLimit) -> BrowseOffset | None:
        """None: there is nothing new."""
        known = await chosen_heads(access, self._options)
        if before is None:
            check_latest(self._options, known)
        found = await self._reached(access, before, [head for head in known if head.is_available], limit)
        # One that was created again may end at the same numbers.
        if found is not None and (before is None or found.end != before.end or found.ranges()):
            return found
        if self.entity.target is not None:
            self.entity.target.require_read(known, {} if found is None else found.end)
        return None

    async def _reached(
        self, access: EntityAccess, before: BrowseOffset | None, heads: Sequence[Head], limit: BatchLimit
    ) -> BrowseOffset | None:
        ends = {head.fragment: head.end for head in heads}
        self.entity.reported = reported_ends(self._options.path, ends)
        over = set() if before is None else await self._started_over(access, before, heads)
        positions = await self._positions(access, before, heads, over)
        if positions is None:
            return None
        if self._options.visibility_lag_s:
            ends = await visible_ends(access, positions, ends, self._wall() - self._options.visibility_lag_s * 1000)
        size = mean_size(heads)
        admitted = await self._admitted(access, positions, ends, row_limit(*limit, size))
        # A namespace that does not say it just now does not make it unknown.
        created_at = creation_time(heads) or (None if before is None else before.created_at)
        seen = {
            **({} if before is None or over else before.seen),
            **{head.fragment: head.seen for head in heads if head.seen},
        }
        admitted = replace(admitted, tasks=self.entity.tasks(admitted.ranges(), size), created_at=created_at, seen=seen)
        left = {fragment: number for fragment, number in admitted.end.items() if number < ends.get(fragment, 0)}
        await self.entity.report_oldest(access, left)
        return admitted

    async def _positions(
        self, access: EntityAccess, before: BrowseOffset | None, heads: Sequence[Head], over: Collection[int]
    ) -> Positions | None:
        """Where this batch starts in each fragment; None as long as a new query has nothing to start with. The numbers of fragments
        that are `over` have started over: these are read from their first message."""
        if before is None:
            found = await self._starts(access, heads, self._options)
            # A start that moves with time has to be written down before anything is read; an edge that does not,
            # need not.
            is_empty = all(found[head.fragment] >= head.end for head in heads)
            return None if is_empty and self._options.start is Edge.EARLIEST else found
        reached = {fragment: number for fragment, number in before.end.items() if fragment not in over}
        self._report_loss(reached, heads)
        unknown = [head for head in heads if head.fragment not in before.end]
        # The ends of all were known when the query began at them: one that was not there had nothing then.
        is_latest = self._options.start is Edge.LATEST
        options = replace(self._options, start=Edge.EARLIEST) if is_latest else self._options
        firsts = {head.fragment: head.first for head in heads}
        positions = firsts | await self._starts(access, unknown, options) | reached
        return self._behind_gaps(positions, heads) if access.is_own else positions

    async def _starts(self, access: EntityAccess, heads: Sequence[Head], options: SourceOptions) -> Positions:
        """In fragments that the query has not read yet."""
        found = await starting_positions(access, heads, options)
        check_start(self._options, heads)
        self._report_loss(found, heads)
        return found

    def _behind_gaps(self, positions: Positions, heads: Sequence[Head]) -> Positions:
        """Moved up to the first message there is, so that no batch is spent on numbers that others consumed.

        Not beyond the target of a run: it would never end while others consume.
        """
        targets = {} if self.entity.target is None else self.entity.target.ends
        firsts = {head.fragment: min(head.first, targets.get(head.fragment, head.first)) for head in heads}
        return {fragment: max(number, firsts.get(fragment, number)) for fragment, number in positions.items()}

    async def _started_over(self, access: EntityAccess, before: BrowseOffset, heads: Sequence[Head]) -> set[int]:
        """Fragments whose numbers have started over since: those of an entity that was created again, and those that end before where
        the query was. Elsewhere the last message of a fragment may just be gone."""
        if was_created_again(before.created_at, creation_time(heads)) or await self._is_replaced(access, before):
            over = set(before.end)
        elif access.is_own:
            over = {head.fragment for head in heads if before.end.get(head.fragment, 0) > head.end}
        else:
            over = set()
        if over:
            text = f"'{self._options.path}' was deleted and created again, and its sequence numbers start again."
            if self._options.fails_on_data_loss:
                raise SourceFailed(
                    f"{text} Use another checkpointLocation, or failOnDataLoss=false to read it from the start."
                )
            log.warning(text)
        return over

    async def _is_replaced(self, access: EntityAccess, before: BrowseOffset) -> bool:
        """Whether other messages have the numbers of those that were seen. Looked up once in a run: each of them takes a request."""
        if self._compared is None:
            is_replaced = False
            for seen in {each for found in before.seen.values() for each in found}:
                page = await access.page(Wanted(seen.number, seen.number + 1, 1, _IN_PLACE))
                is_replaced |= any(enqueued_at(message) != seen.enqueued_at for message in page.messages())
            self._compared = before, is_replaced
        return self._compared == (before, True)

    async def _admitted(
        self, access: EntityAccess, positions: Positions, ends: Mapping[int, int], limit: int | None
    ) -> BrowseOffset:
        targets = ends if self.entity.target is None else self.entity.target.ends
        room = {
            fragment: (position, min(ends.get(fragment, position), targets.get(fragment, position)))
            for fragment, position in positions.items()
        }
        shares = await self.entity.shares(access, room, limit)
        end = {fragment: position + shares.get(fragment, 0) for fragment, position in positions.items()}
        return BrowseOffset(self._options.path, positions, end)

    def _report_loss(self, positions: Positions, heads: Sequence[Head]) -> None:
        report_loss(self._options.path, lost_counts(positions, heads), fails=self._options.fails_on_data_loss)
