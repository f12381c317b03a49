"""What a task does: its slices in, record batches out. It locks nothing, so Spark may repeat it as often as it likes.

While the rows of one page are built, the next page is being fetched.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import Future

import pyarrow as pa

from twinbus.client.entity_extras import RangePage
from twinbus.client.received_message import ReceivedMessage
from twinbus.errors import MessagingError
from twinbus.model.wire_names import MessageState
from twinbus.pipeline.source.entity_access import EntityAccess
from twinbus.pipeline.source.live_entity import LiveEntity, own, plain
from twinbus.pipeline.source.message_rows import record_batches
from twinbus.pipeline.source.options import Mode, SourceOptions
from twinbus.pipeline.source.planning import MessageSlices, Slice
from twinbus.pipeline.source.ranges import Range, RangeSet, by_fragment
from twinbus.pipeline.source.starting_points import enqueued_at

BODY = "body"


def read_slices(partition: MessageSlices, options: SourceOptions, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    detect = own if partition.is_own else plain
    for part in partition.slices:
        entity = LiveEntity(options.connection, part.path, detect=detect)
        yield from record_batches(SliceReader(entity, options, names).pages(part), part.path, names)


class SliceReader:
    def __init__(self, entity: LiveEntity, options: SourceOptions, names: Sequence[str]) -> None:
        self._entity = entity
        self._page_count = options.page_count
        # Whatever is claimed is deferred, and everything that is claimed is read.
        self._states = (MessageState.DEFERRED,) if options.mode is Mode.CONSUME else options.states
        self._oldest = options.oldest
        self._condition = options.condition
        self._has_bodies = options.has_bodies and BODY in names

    def pages(self, part: Slice) -> Iterator[list[ReceivedMessage]]:
        """Fragment after fragment, in the order of their numbers."""
        spans = [_span(ranges) for ranges in by_fragment(part.ranges).values()]
        place = 0
        first, end, wanted = spans[place]
        waiting = self._ask(first, end)
        while True:
            page, chosen = self._answer(waiting, first, end), wanted
            if page.next_number is not None:
                first = page.next_number
            elif place + 1 < len(spans):
                place += 1
                first, end, wanted = spans[place]
            else:
                yield self._only(page.messages, chosen)
                return
            waiting = self._ask(first, end)
            yield self._only(page.messages, chosen)

    def _only(self, messages: list[ReceivedMessage], wanted: RangeSet | None) -> list[ReceivedMessage]:
        if wanted is not None:
            messages = [message for message in messages if (message.sequence_number or 0) in wanted]
        if self._oldest is not None:
            messages = [message for message in messages if enqueued_at(message) >= self._oldest]
        return messages

    def _ask(self, first: int, end: int) -> "Future[RangePage] | None":
        """None while there is no connection."""
        try:
            return self._entity.start(lambda access: self._page(access, first, end))
        except MessagingError:
            return None

    def _answer(self, waiting: "Future[RangePage] | None", first: int, end: int) -> RangePage:
        try:
            if waiting is not None:
                return waiting.result()
        except MessagingError:
            pass  # asked once more, with patience
        return self._entity.call(lambda access: self._page(access, first, end))

    async def _page(self, access: EntityAccess, first: int, end: int) -> RangePage:
        return await access.page(
            first, end, self._page_count, self._states, with_bodies=self._has_bodies, condition=self._condition
        )


def _span(ranges: Sequence[Range]) -> tuple[int, int, RangeSet | None]:
    """From the first number to the end of the last, and what to take of it, None for all.

    Claims may lie in many small ranges: one pass over all of them takes fewer requests than one for each.
    """
    wanted = None if len(ranges) == 1 else RangeSet(sorted(ranges))
    return min(first for first, _ in ranges), max(end for _, end in ranges), wanted
