"""Contents of many rows out of journal segments in few reads: a burst lies there back to back."""

import sys
from collections.abc import Iterator, Sequence

from twinbus.store.journal import Segment

BYTES_PER_READ = 1 << 20


def read_places(wanted: Sequence[tuple[Segment, int, int]]) -> Iterator[bytes]:
    """The content at each (segment, place, size), in the order asked for."""
    run: list[tuple[int, int]] = []
    run_segment: Segment | None = None
    end = sys.maxsize
    for segment, place, size in wanted:
        if run_segment is not None and (
            segment is not run_segment or place != end or end + size - run[0][0] > BYTES_PER_READ
        ):
            yield from _cut(run_segment, run)
            run = []
        run_segment = segment
        run.append((place, size))
        end = place + size
    if run_segment is not None:
        yield from _cut(run_segment, run)


def _cut(segment: Segment, run: list[tuple[int, int]]) -> Iterator[bytes]:
    start = run[0][0]
    piece = segment.read(start, run[-1][0] + run[-1][1] - start)
    for place, size in run:
        yield piece[place - start : place - start + size]
