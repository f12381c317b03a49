"""What a task does: its slices in, record batches out. It locks nothing, so Spark may repeat it as often as it likes.

    numbers of a slice --cut--> pieces --asked for, a few ahead--> pages --in the order of the numbers--> record batches

Where a page ends is known only when it is there, so a piece is as long as a page was lately: it mostly takes one request, and
the next pieces are asked for meanwhile. A piece that takes more requests is read to its end before the next one, and where few
of the numbers are messages, pieces grow.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError, Future
from itertools import islice
from typing import NamedTuple

import pyarrow as pa

from twinbus.client.entity_extras import PackedPage
from twinbus.client.received_message import ReceivedMessage
from twinbus.errors import MessagingError
from twinbus.model.wire_names import MessageState
from twinbus.pipeline.source.access.entity_access import EntityAccess, Wanted, enqueued_at
from twinbus.pipeline.source.live_entity import LiveEntity, SourceUnavailable, own, plain
from twinbus.pipeline.source.options import Mode, SourceOptions
from twinbus.pipeline.source.planning import MessageSlices, Slice
from twinbus.pipeline.source.ranges import Range, RangeSet, by_fragment, joined
from twinbus.pipeline.source.rows.shaped_rows import Payloads, record_batches

BODY = "body"
PAGE_BYTES_MAX = 1024 * 1024
"""What a namespace puts into a page."""
PIECES_AHEAD = 3
"""Requests under way while a page is taken apart: they bound what a worker holds besides one record batch."""


class Piece(NamedTuple):
    """Numbers of one fragment, from `first` to below `end`, and what to take of them, None for all."""

    first: int
    end: int
    wanted: RangeSet | None


class Asked(NamedTuple):
    piece: Piece
    answer: "Future[PackedPage] | None"  # None: there was no connection


def read_slices(partition: MessageSlices, options: SourceOptions, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    detect = own if partition.is_own else plain
    for part in partition.slices:
        entity = LiveEntity(options.connection, part.path, detect=detect)
        reader = SliceReader(entity, options, names)
        yield from record_batches(reader.pages(part), part.path, names)
        if reader.found < part.count_min:
            raise SourceUnavailable(
                f"{part.count_min - reader.found} of {part.count_min} messages that a batch of '{part.path}' claimed are gone. Does the"
                " same query run twice, or were they purged or received by their numbers? Start it again."
            )


class SliceReader:
    def __init__(self, entity: LiveEntity, options: SourceOptions, names: Sequence[str]) -> None:
        self._entity = entity
        self._page_count = self._piece_size = options.page_count
        # Whatever is claimed is deferred, and everything that is claimed is read.
        self._states = (MessageState.DEFERRED,) if options.mode is Mode.CONSUME else options.states
        self._oldest = options.oldest
        self._condition = options.condition
        self._has_bodies = options.has_bodies and BODY in names
        self.found = 0
        """Messages so far."""

    def pages(self, part: Slice) -> Iterator[Payloads]:
        """Fragment after fragment, in the order of their numbers."""
        pieces = self._pieces(part)
        asked = deque(map(self._ask, islice(pieces, PIECES_AHEAD)))
        while asked:
            piece, answer = asked.popleft()
            page = self._answer(answer, piece)
            payloads = Payloads.of_page(page)
            if page.next_number is not None:
                rest = piece._replace(first=page.next_number)
                self._piece_size = max(1, rest.first - piece.first)
                asked.appendleft(self._ask(rest))
            else:
                if payloads.count <= self._page_count // 2 and payloads.size_bytes <= PAGE_BYTES_MAX // 2:
                    self._piece_size *= 2
                asked += map(self._ask, islice(pieces, 1))
            chosen = self._only(payloads, piece.wanted)
            self.found += chosen.count
            yield chosen

    def _pieces(self, part: Slice) -> Iterator[Piece]:
        """Each as long as pages are when it is cut."""
        for ranges in by_fragment(part.ranges).values():
            first, end, wanted = _span(ranges)
            while first < end:
                cut = min(end, first + self._piece_size)
                yield Piece(first, cut, wanted)
                first = cut

    def _only(self, payloads: Payloads, wanted: RangeSet | None) -> Payloads:
        if wanted is None and self._oldest is None:
            return payloads
        places = [place for place, message in enumerate(payloads.messages()) if self._is_in(message, wanted)]
        return payloads.taken(pa.array(places, pa.int64()))

    def _is_in(self, message: ReceivedMessage, wanted: RangeSet | None) -> bool:
        if wanted is not None and (message.sequence_number or 0) not in wanted:
            return False
        return self._oldest is None or enqueued_at(message) >= self._oldest

    def _ask(self, piece: Piece) -> Asked:
        try:
            return Asked(piece, self._entity.start(lambda access: self._page(access, piece)))
        except MessagingError:
            return Asked(piece, None)

    def _answer(self, waiting: "Future[PackedPage] | None", piece: Piece) -> PackedPage:
        try:
            if waiting is not None:
                return waiting.result()
        except (MessagingError, CancelledError):
            pass  # asked once more, with patience; also where its connection was closed meanwhile
        return self._entity.call(lambda access: self._page(access, piece))

    async def _page(self, access: EntityAccess, piece: Piece) -> PackedPage:
        first, end, _ = piece
        return await access.page(Wanted(first, end, self._page_count, self._states, self._has_bodies, self._condition))


def _span(ranges: Sequence[Range]) -> Piece:
    """From the first number to the end of the last, and what to take of it, None for all.

    Claims may lie in many small ranges: one pass over all of them takes fewer requests than one for each.
    """
    whole = joined(ranges)
    return Piece(whole[0][0], whole[-1][1], None if len(whole) == 1 else RangeSet(whole))
