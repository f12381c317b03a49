"""Claims that lie in an entity: the deferred messages of it in, whose they are out."""

import asyncio
from collections.abc import Sequence

from twinbus.client.received_message import MessageState
from twinbus.pipeline.source.entity_access import EntityAccess, Head, owner_of
from twinbus.pipeline.source.ranges import Range, runs

DEFERRED = (MessageState.DEFERRED,)
PAGE_COUNT = 1_000


async def claims_by_owner(access: EntityAccess, heads: Sequence[Head]) -> dict[str | None, list[Range]]:
    """Everything that is deferred, by who claimed it; None: somebody deferred it without a claim."""
    scans = [_scan(access, head) for head in heads if head.is_available and head.deferred != 0]
    numbers: dict[str | None, list[int]] = {}
    for found in await asyncio.gather(*scans):
        for owner, number in found:
            numbers.setdefault(owner, []).append(number)
    return {owner: runs(each) for owner, each in numbers.items()}


async def _scan(access: EntityAccess, head: Head) -> list[tuple[str | None, int]]:
    found: list[tuple[str | None, int]] = []
    following: int | None = head.first if head.first < head.end else None
    while following is not None:
        page = await access.page(following, head.end, PAGE_COUNT, DEFERRED, with_bodies=False)
        found += [(owner_of(message), message.sequence_number or 0) for message in page.messages]
        following = page.next_number
    return found
