"""Where to start and how far to go in each fragment: heads and options in, sequence numbers out."""

import asyncio
import logging
from collections.abc import Mapping, Sequence

from twinbus.pipeline.connection_options import OptionError
from twinbus.pipeline.source.entity_access import EntityAccess, Head
from twinbus.pipeline.source.live_entity import SourceFailed, SourceUnavailable
from twinbus.pipeline.source.offsets import Positions
from twinbus.pipeline.source.option_table import FRAGMENTS, STARTING_OFFSETS
from twinbus.pipeline.source.options import Edge, SourceOptions, Start
from twinbus.pipeline.source.time_search import first_at

log = logging.getLogger(__name__)


async def chosen_heads(access: EntityAccess, options: SourceOptions) -> list[Head]:
    """Of the fragments that the options ask for. Raises OptionError if one of them cannot be."""
    heads = await access.heads()
    present = {head.fragment for head in heads}
    missing = sorted((options.fragments or frozenset()) - present)
    # Elsewhere a fragment is not seen before it has messages, so nothing can be said about one that has none.
    if missing and access.is_own:
        raise OptionError(f"{FRAGMENTS} has {missing[0]}; '{access.path}' has fragments 0 to {max(present)}.")
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
            f"'{options.path}' cannot report where its fragments {', '.join(lost)} end: they are not available, and a new"
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
