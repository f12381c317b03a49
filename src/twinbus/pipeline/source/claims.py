"""Claims that lie in an entity: the deferred messages of it in, whose they are out."""

import asyncio
from collections.abc import Collection, Sequence

from twinbus.model.wire_names import MessageState
from twinbus.pipeline.source.access.entity_access import (
    EntityAccess,
    Head,
    Wanted,
    creation_time,
    owner_of,
    was_created_again,
)
from twinbus.pipeline.source.checkpoints import CheckpointClaims
from twinbus.pipeline.source.ranges import Range, append, count, joined, outside

DEFERRED = (MessageState.DEFERRED,)
PAGE_COUNT = 1_000


async def claims_by_owner(access: EntityAccess, heads: Sequence[Head]) -> dict[str | None, list[Range]]:
    """Everything that is deferred, by who claimed it; None: somebody deferred it without a claim."""
    scans = [_scan(access, head) for head in heads if head.is_available and head.deferred != 0]
    found: dict[str | None, list[Range]] = {}
    for of_fragment in await asyncio.gather(*scans):
        for owner, ranges in of_fragment.items():
            found.setdefault(owner, []).extend(ranges)
    return {owner: joined(ranges) for owner, ranges in found.items()}


async def _scan(access: EntityAccess, head: Head) -> dict[str | None, list[Range]]:
    """Of a fragment, as ranges from the start on: there may be millions."""
    found: dict[str | None, list[Range]] = {}
    following: int | None = head.first if head.first < head.end else None
    while following is not None:
        page = await access.page(Wanted(following, head.end, PAGE_COUNT, DEFERRED))
        for message in page.messages():
            append(found.setdefault(owner_of(message), []), message.sequence_number or 0)
        following = page.next_number
    return found


async def claims_of_queries(access: EntityAccess) -> dict[str, list[Range]]:
    """By owner, what streaming queries hold; what somebody deferred without a claim is not theirs."""
    found = await claims_by_owner(access, await access.heads())
    return {owner: ranges for owner, ranges in found.items() if owner is not None}


async def release_claims(access: EntityAccess, owners: Collection[str] | None) -> dict[str, int]:
    """Make the claims of these owners active again, or those of all (None); how many messages it were of each."""
    claims = await claims_of_queries(access)
    chosen = claims if owners is None else {owner: claims.get(owner, []) for owner in owners}
    return {owner: await access.release(ranges) for owner, ranges in chosen.items()}


async def delete_committed(access: EntityAccess, of_query: CheckpointClaims) -> int:
    """Remove what a batch that is done had and its owner still holds, or it would be read a second time; how many.

    Nothing of an entity that has been created again since: its numbers name other messages.
    """
    heads = await access.heads()
    if was_created_again(of_query.created_at, creation_time(heads)):
        return 0
    held = (await claims_by_owner(access, heads)).get(of_query.owner, [])
    done = outside(held, outside(held, of_query.committed))
    await access.delete(done)
    return count(done)
