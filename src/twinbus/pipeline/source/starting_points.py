"""Where to start and how far to go in each fragment: heads and options in, sequence numbers or one clear error out.

Within a fragment sequence numbers and enqueued times rise together, so the number for a time is found by halving, one message a
request and without bodies. This does not work in a dead-letter queue: its messages keep their times and get new numbers.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence

from twinbus.clock import Millis
from twinbus.errors import NotAllowed
from twinbus.pipeline.connection_options import OptionError
from twinbus.pipeline.source.access.entity_access import ALL_STATES, EntityAccess, Head, Wanted, enqueued_at
from twinbus.pipeline.source.live_entity import SourceFailed, SourceUnavailable
from twinbus.pipeline.source.offsets import Positions
from twinbus.pipeline.source.option_table import (
    ENDING_OFFSETS,
    FAIL_ON_DATA_LOSS,
    FILTER,
    FRAGMENTS,
    STARTING_OFFSETS,
)
from twinbus.pipeline.source.options import Edge, Mode, SourceOptions, Start

log = logging.getLogger(__name__)


async def chosen_heads(access: EntityAccess, options: SourceOptions) -> list[Head]:
    """Of the fragments that the options ask for. Raises OptionError if one of them cannot be."""
    heads = await access.heads()
    present = {head.fragment for head in heads}
    named = {
        FRAGMENTS: options.fragments or frozenset(),
        STARTING_OFFSETS: options.start.keys() if isinstance(options.start, dict) else frozenset(),
        ENDING_OFFSETS: frozenset(options.ending or ()),
    }
    for name, fragments in named.items():
        missing = min(fragments - present, default=None)
        # Elsewhere a fragment is not seen before it has messages, so nothing can be said about one that has none.
        if missing is not None and access.is_own:
            raise OptionError(f"{name} has {missing}; '{access.path}' has fragments 0 to {max(present)}.")
    return [head for head in heads if options.wants(head.fragment)]


async def starting_positions(access: EntityAccess, heads: Sequence[Head], options: SourceOptions) -> Positions:
    start: Start = options.start if options.oldest is None else Edge.EARLIEST
    if isinstance(start, dict):
        return {head.fragment: start.get(head.fragment, head.first) for head in heads}
    if isinstance(start, Edge):
        return {head.fragment: head.first if start is Edge.EARLIEST else head.end for head in heads}
    found = await asyncio.gather(*(first_at(access, head.first, head.end, start) for head in heads))
    return {head.fragment: number for head, number in zip(heads, found, strict=True)}


def check_start(options: SourceOptions, heads: Sequence[Head]) -> None:
    """A stream cannot wait for a number: one beyond the end is how it recognizes an entity that was created again.

    Raises OptionError.
    """
    start = options.start if isinstance(options.start, dict) else {}
    for head in heads:
        if start.get(head.fragment, 0) > head.end:
            raise OptionError(
                f"{STARTING_OFFSETS} has {start[head.fragment]} for fragment {head.fragment}, but the next message of"
                f" '{options.path}' there gets {head.end}."
            )


def check_latest(options: SourceOptions, heads: Sequence[Head]) -> None:
    """Where an unavailable fragment ends now cannot be found out later, when more has arrived. Raises SourceUnavailable."""
    lost = [str(head.fragment) for head in heads if not head.is_available]
    if lost and options.start is Edge.LATEST:
        raise SourceUnavailable(
            f"'{options.path}' cannot report where its fragments {', '.join(lost)} end: they are unavailable, and a new"
            f" query with {STARTING_OFFSETS}=latest starts there. Start it again later."
        )


async def visible_ends(
    access: EntityAccess, positions: Positions, ends: Mapping[int, int], time: float
) -> dict[int, int]:
    """The ends moved down to before the first message that was enqueued at that time or later."""
    fragments = [fragment for fragment in ends if positions[fragment] < ends[fragment]]
    found = await asyncio.gather(
        *(first_at(access, positions[fragment], ends[fragment], int(time)) for fragment in fragments)
    )
    return {**ends, **dict(zip(fragments, found, strict=True))}


def lost_counts(positions: Positions, heads: Sequence[Head]) -> dict[int, int]:
    """By fragment, how many numbers between where a reader is and the first message there is have no message."""
    return {
        head.fragment: head.first - positions[head.fragment]
        for head in heads
        if head.first > positions.get(head.fragment, head.first)
    }


def report_loss(path: str, lost: Mapping[int, int], *, fails: bool) -> None:
    """A warning, or SourceFailed."""
    if not lost:
        return
    text = (
        f"'{path}': up to {sum(lost.values())} messages were removed or expired before they were read, in fragments"
        f" {', '.join(map(str, sorted(lost)))}."
    )
    if fails:
        raise SourceFailed(f"{text} Set failOnDataLoss=false to continue after them.")
    log.warning(text)


async def first_at(access: EntityAccess, first: int, end: int, time: Millis) -> int:
    """The lowest number in the range from which on no message was enqueued before the time; `end` if all were."""
    low, high = first, end
    while low < high:
        middle = (low + high) // 2
        found = await _next_time(access, middle, high)
        if found is None or found[1] >= time:
            high = middle
        else:
            low = found[0] + 1
    return low


async def _next_time(access: EntityAccess, first: int, end: int) -> tuple[int, Millis] | None:
    """The number and the time of the first message there."""
    following: int | None = first
    while following is not None:
        page = await access.page(Wanted(following, end, 1, ALL_STATES))
        for message in page.messages():
            return message.sequence_number or 0, enqueued_at(message)
        following = page.next_number
    return None


async def preflight(access: EntityAccess, options: SourceOptions) -> None:
    """Raises what the namespace has against it (EntityNotFound, Unauthorized ...), NotAllowed or OptionError."""
    await chosen_heads(access, options)
    if options.mode is Mode.CONSUME:
        await access.check_claims()
    if access.is_own:
        return
    if options.condition is not None:
        raise NotAllowed(f"{FILTER} needs a twinbus namespace: this one sends every message. Use where().")
    if options.fails_on_data_loss:
        raise NotAllowed(f"{FAIL_ON_DATA_LOSS} needs a twinbus namespace: this one does not report lost messages.")
    if options.mode is Mode.CONSUME and options.fragments is not None:
        raise NotAllowed(
            f"{FRAGMENTS} needs a twinbus namespace for mode=consume: this one chooses the fragments itself."
        )
