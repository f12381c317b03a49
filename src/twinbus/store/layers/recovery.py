"""Recovery: the journal segments that the tables do not hold yet in, a layer and its changes for each out.

Segments that the tables hold are left over from a crash between a checkpoint and its cleanup, and are deleted. Nothing
else on disk changes before every segment has been read and found whole. What is read may be in the page cache only, if a
sync failed before: it is made durable before anything builds on it. A last segment that is blank, or ends before the last commit
that somebody was told of, has lost what was in it.
"""

from collections.abc import Iterator

from twinbus.errors import StoreDamaged
from twinbus.store.journal_record import decode_changes
from twinbus.store.layers.located_changes import LocatedChange
from twinbus.store.layers.overlay import Layer
from twinbus.store.medium import Medium, Segment

FIRST_SEGMENT = 1
FIRST_SEQUENCE = 1


def recover_layers(medium: Medium, position: int, *, is_new: bool) -> Iterator[tuple[Layer, list[LocatedChange]]]:
    """Layers, bottom first; the last one can take commits. `position` is the newest segment in the tables."""
    on_disk = medium.segment_numbers()
    numbers = [number for number in on_disk if number > position]
    _check_numbers(medium, position, numbers, is_new=is_new)
    segments: list[Segment] = []
    try:
        may_be_blank = is_new and numbers == [FIRST_SEGMENT]
        replays = [_read_segment(medium, number, segments, may_be_blank=may_be_blank) for number in numbers]
        _check_end(medium, segments, medium.last_commit)
        for number in on_disk:
            if number <= position:
                medium.delete_segment(number)
        if not segments:
            segments.append(medium.create_segment(FIRST_SEGMENT, FIRST_SEQUENCE))
        else:
            segments[-1].renew_tail()
        for changes in replays or [[]]:
            yield Layer(segments.pop(0)), changes
    finally:
        for segment in segments:
            segment.close()


def check_segments(medium: Medium, position: int, last_commit: int, *, is_new: bool) -> Iterator[str]:
    """What is wrong with the segments that the tables do not hold, without changing anything."""
    numbers = [number for number in medium.segment_numbers() if number > position]
    segments: list[Segment] = []
    try:
        _check_numbers(medium, position, numbers, is_new=is_new)
        for number in numbers:
            _read_segment(medium, number, segments, may_be_blank=is_new and numbers == [FIRST_SEGMENT])
        _check_end(medium, segments, last_commit)
    except StoreDamaged as damage:
        yield str(damage)
    finally:
        for segment in segments:
            segment.close()


def _check_numbers(medium: Medium, position: int, numbers: list[int], *, is_new: bool) -> None:
    """A new segment is created before an older one is checkpointed, so there is always at least one, and no gap."""
    if not numbers and position == 0 and is_new:
        return
    expected = range(position + 1, position + 1 + max(len(numbers), 1))
    missing = sorted(set(expected) - set(numbers))
    if missing:
        raise StoreDamaged(f"{medium.segment_name(missing[0])} is missing. Restore the store from a copy.")


def _check_end(medium: Medium, segments: list[Segment], last_commit: int) -> None:
    last = segments[-1].next_sequence - 1 if segments else 0
    if last < last_commit:
        raise StoreDamaged(
            f"{medium} is older than it was: its last {last_commit - last} commits are missing. If it was restored from a copy, run "
            "'twinbus store restored' while the namespace is stopped; otherwise restore it, or accept the loss with "
            "'twinbus store accept-loss'."
        )


def _read_segment(medium: Medium, number: int, segments: list[Segment], *, may_be_blank: bool) -> list[LocatedChange]:
    """The changes in one segment, which is appended to `segments` unless it was never used. The header of a segment is durable
    before the segment has its name, so that one was used which has none, unless nothing was ever kept here."""
    segment = medium.open_segment(number)
    if segment is None:
        if may_be_blank:
            return []
        raise StoreDamaged(f"{medium.segment_name(number)} has lost its file header. Restore the store from a copy.")
    if segments and segment.next_sequence != segments[-1].next_sequence:
        segment.close()
        raise StoreDamaged(
            f"{medium.segment_name(number)} does not follow the segment before it. Restore the store from a copy."
        )
    segments.append(segment)
    changes: list[LocatedChange] = []
    for batch in segment.batches():
        changes += decode_changes(batch.body, batch.place)
    return changes
