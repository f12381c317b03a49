"""An entity of a twinbus namespace: heads, ranges and claims by the operations that it has for them."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import TypeAlias

from twinbus.client.entity_extras import EntityExtras, PackedPage
from twinbus.client.namespace import Namespace
from twinbus.clock import Millis
from twinbus.errors import InternalError, ServerBusy
from twinbus.pipeline.source.access.entity_access import Claim, Head, Wanted
from twinbus.pipeline.source.ranges import Range, by_fragment, count, half_open, in_pieces, inclusive, joined

CLAIM_COUNT_MAX = 10_000
"""In one request; each is done in small steps, so that others get their turns."""
NUMBERS_MAX = 50_000
RANGES_MAX = 4_000

Request: TypeAlias = Callable[[list[Range]], Awaitable[int]]


class OwnAccess:
    is_own = True

    def __init__(self, namespace: Namespace, path: str) -> None:
        self.path = path
        self._extras: EntityExtras = namespace.extras(path)

    async def heads(self) -> list[Head]:
        """Raises NotImplementedHere where the namespace is another one."""
        return [
            Head(
                head.fragment,
                head.is_available,
                head.first_number,
                head.last_number + 1,
                head.active,
                head.deferred,
                head.size_bytes,
                head.active + head.deferred + head.scheduled,
                head.created_at,
            )
            for head in await self._extras.fragment_heads()
        ]

    async def page(self, wanted: Wanted) -> PackedPage:
        first, end, count_max, states, with_bodies, condition = wanted
        return await self._extras.peek_packed(
            first, end - 1, count_max, states=states, with_bodies=with_bodies, condition=condition
        )

    async def times(self, numbers: Sequence[int]) -> list[tuple[int, Millis] | None]:
        return await self._extras.enqueued_times(numbers)

    async def claim(self, shares: Mapping[int, int], ends: Mapping[int, int] | None, owner: str) -> Claim:
        claims = await asyncio.gather(
            *(self._claim(fragment, share, ends, owner) for fragment, share in sorted(shares.items()))
        )
        ranges = [item for claim in claims for item in claim.ranges]
        return Claim(ranges, all(claim.is_certain for claim in claims))

    async def _claim(self, fragment: int, share: int, ends: Mapping[int, int] | None, owner: str) -> Claim:
        """A store that fails half-way ends a request early and without an error, so only an empty answer is the end."""
        last = None if ends is None else ends[fragment] - 1
        found: list[Range] = []
        left = share
        while left > 0:
            try:
                ranges = await self._extras.claim(
                    min(left, CLAIM_COUNT_MAX), owner=owner, fragment=fragment, last_number=last
                )
            except (ServerBusy, InternalError):
                # Its store is far behind or has failed. The others continue.
                return Claim(found, is_certain=False)
            if not ranges:
                break
            found += half_open(ranges)
            left -= count(half_open(ranges))
        # One request has a part of the share, and the next goes on where it ended.
        return Claim(joined(found), is_certain=True)

    async def delete(self, ranges: Sequence[Range]) -> None:
        await self._in_requests(ranges, self._extras.delete_claimed)

    async def release(self, ranges: Sequence[Range]) -> int:
        return await self._in_requests(ranges, self._extras.undefer)

    async def check_claims(self) -> None:
        """All kinds of entities have claims here."""

    async def _in_requests(self, ranges: Sequence[Range], request: Request) -> int:
        """One request per fragment, so that an unavailable one reports it; all at the same time."""
        parts = by_fragment(ranges).values()
        return sum(await asyncio.gather(*(_in_turn(part, request) for part in parts)))


async def _in_turn(part: Sequence[Range], request: Request) -> int:
    return sum([await _until_done(piece, request) for piece in _pieces(part)])


async def _until_done(piece: list[Range], request: Request) -> int:
    """A store that fails half-way ends a request early and without an error: only a request that finds nothing to do
    proves that there is nothing left."""
    left = total = count(piece)
    while left > 0:
        done = await request(inclusive(piece))
        left -= done
        if done == 0:
            break
    return total - left


def _pieces(part: Sequence[Range]) -> Iterator[list[Range]]:
    for piece in in_pieces(part, NUMBERS_MAX):
        for start in range(0, len(piece), RANGES_MAX):
            yield piece[start : start + RANGES_MAX]
