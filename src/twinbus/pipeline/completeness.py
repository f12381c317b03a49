"""Up to which number a capture is complete: its checkpoint and what is in the entity in, two numbers for each fragment out.

A batch counts once Spark has committed it. A capture that browses has passed all numbers below the end of that batch. One
that consumes has removed what it captured, so it is complete below the first message that is still in the entity; what the
last batch had claimed is removed when the next one is planned, and counts as removed.

Whatever somebody else removed before it was read was never captured: no number can say that.
"""

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from twinbus.errors import MessagingError
from twinbus.model.wire_names import SEQUENCE_BITS
from twinbus.pipeline.connection_options import ConnectionOptions
from twinbus.pipeline.lake import file_names, file_text
from twinbus.pipeline.source.access.entity_access import (
    ALL_STATES,
    EntityAccess,
    Head,
    Wanted,
    creation_time,
    was_created_again,
)
from twinbus.pipeline.source.checkpoints import logged_offsets
from twinbus.pipeline.source.live_entity import LiveEntity
from twinbus.pipeline.source.offsets import BrowseOffset, ConsumeOffset, JsonOffset
from twinbus.pipeline.source.options import Mode
from twinbus.pipeline.source.ranges import Range, fragment_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

LOOKS_MAX = 1_000
"""At the first message that is left of a fragment. After that many claims in a row the number is lower than it could be."""
_LOW_BITS = (1 << SEQUENCE_BITS) - 1


class Complete(NamedTuple):
    """Every message of the fragment with a number up to `up_to` is in the lake; `last` is the highest that was given.

    Both carry the fragment in their upper bits, as all sequence numbers do.
    """

    fragment: int
    up_to: int
    last: int

    @property
    def is_all(self) -> bool:
        return self.up_to >= self.last

    def __str__(self) -> str:
        reached, last = self.up_to & _LOW_BITS, self.last & _LOW_BITS
        return f"up to {last}" if self.is_all else f"up to {reached} of {last}"


def complete_text(fragments: Sequence[Complete]) -> str:
    """In a few words: those that are not complete are named, with numbers as they count within a fragment."""
    if len(fragments) == 1:
        return str(fragments[0])
    partial = [f"{each.fragment} {each}" for each in fragments if not each.is_all]
    whole = f"{len(fragments) - len(partial)} of {len(fragments)} fragments" if partial else "all fragments"
    return "; ".join([whole, *partial])


def committed_offset(spark: "SparkSession", checkpoint: str) -> JsonOffset:
    """Of the newest batch that is done, in a checkpoint of one source of ours; empty if there is none."""
    planned, committed = _batches(spark, checkpoint)
    done = planned & committed
    found = logged_offsets(file_text(spark, f"{checkpoint}/offsets/{max(done)}")) if done else []
    return found[0] if found else {}


def unfinished_batch(spark: "SparkSession", checkpoint: str) -> int | None:
    """The batch that Spark repeats when a query with this checkpoint starts."""
    planned, committed = _batches(spark, checkpoint)
    return max(planned - committed, default=None)


def _batches(spark: "SparkSession", checkpoint: str) -> tuple[set[int], set[int]]:
    """The numbers of those that are in the log, and of those that are done."""
    planned, committed = (
        {int(name) for name in file_names(spark, f"{checkpoint}/{kind}") if name.isdecimal()}
        for kind in ("offsets", "commits")
    )
    return planned, committed


def complete_fragments(options: ConnectionOptions, entity: str, committed: JsonOffset) -> list[Complete] | None:
    """None if the namespace does not say, or a fragment is not available."""
    try:
        return LiveEntity(options, entity).call(lambda access: _complete(access, committed))
    except MessagingError as failure:
        log.warning("Cannot determine up to which number '%s' is captured: %s", entity, failure)
        return None


async def _complete(access: EntityAccess, committed: JsonOffset) -> list[Complete] | None:
    heads = await access.heads()
    if not all(head.is_available for head in heads):
        return None
    done = _offset_of(committed)
    if done is not None and was_created_again(done.created_at, creation_time(heads)):
        done = None  # it is of other messages
    found = []
    for head in heads:
        reached = await _reached(access, head, done)
        found.append(Complete(head.fragment, min(reached, head.end) - 1, head.end - 1))
    return found


def _offset_of(committed: JsonOffset) -> BrowseOffset | ConsumeOffset | None:
    """Raises OffsetError."""
    if "mode" not in committed:
        return None
    kind = BrowseOffset if committed["mode"] == Mode.BROWSE.value else ConsumeOffset
    return kind.from_json(committed, committed.get("entity", ""))


async def _reached(access: EntityAccess, head: Head, done: BrowseOffset | ConsumeOffset | None) -> int:
    """The first number that is not known to be captured. What is below the first message is captured or gone."""
    if isinstance(done, BrowseOffset):
        return max(head.first, done.end.get(head.fragment, 0))
    claims = () if done is None else done.claim
    return await _first_left(access, head, sorted(item for item in claims if fragment_of(item[0]) == head.fragment))


async def _first_left(access: EntityAccess, head: Head, claimed: Sequence[Range]) -> int:
    number, following = head.first, iter(claimed)
    claim = next(following, None)
    for _ in range(LOOKS_MAX):
        page = await access.page(Wanted(number, head.end, 1, ALL_STATES)) if number < head.end else None
        found = [] if page is None else page.messages()
        if not found:
            number = head.end if page is None or page.next_number is None else page.next_number
            if number >= head.end:
                return head.end
            continue
        number = found[0].sequence_number or 0
        while claim is not None and claim[1] <= number:
            claim = next(following, None)
        if claim is None or not claim[0] <= number < claim[1]:
            return number
        number = claim[1]
    return number
