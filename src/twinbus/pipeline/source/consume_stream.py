"""A stream that takes messages away: where the last batch ended in, a claim for the next one out.

    latest(start)   delete what start claimed: Spark calls only once that batch is committed
                    look for claims of our own that no offset knows: a crash between claim and log left them
                    claim the next messages, beside the first step if there is nothing to look for, and put their numbers in
                    the offset that ends the next batch
    partitions      from the offset alone, so that a batch that is run again is exactly the same
    tasks           peek at the claimed messages, as often as Spark likes, and fail if one is gone that was there when the batch was
                    planned: what is read in part would be removed as a whole

A claim is a deferred message: it outlives the query, and no receiver gets it. The name of its owner is generated for
the first, empty batch of a query, so it is in the log before anything is claimed under it.

What an offset claimed some time ago, as one of an earlier run, may be another's by now. So such a claim is looked at, and what is
not marked as ours is neither read nor deleted. Nor is anything of what was claimed in an entity that has been deleted and created
again: its numbers name other messages now, and what is marked as ours is of a claim that no offset knows.

The next batch is not claimed while tasks read this one. It would be safe, as such claims would be found like those of a
crash. But with namespace and executors on the same cores it only moved time from here to the tasks, the stores used more
of the processor, and a query that is stopped would hold two batches. And what a batch had cannot be deleted later than
here: after another commit nobody would know that these claims, still ours, had been read.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from twinbus.clock import Millis
from twinbus.errors import FragmentUnavailable
from twinbus.pipeline.source.access.entity_access import (
    Claim,
    EntityAccess,
    Head,
    creation_time,
    mean_size,
    was_created_again,
)
from twinbus.pipeline.source.claims import claims_by_owner
from twinbus.pipeline.source.live_entity import LiveEntity, SourceFailed
from twinbus.pipeline.source.offsets import ConsumeOffset, JsonOffset, Positions, reported_waiting
from twinbus.pipeline.source.options import AdoptDeferred, SourceOptions
from twinbus.pipeline.source.planning import BatchLimit, MessageSlices, fair_shares, row_limit
from twinbus.pipeline.source.ranges import Range, by_fragment, count, fragment_of, in_pieces, outside
from twinbus.pipeline.source.starting_points import chosen_heads
from twinbus.pipeline.source.streamed_entity import RunTarget, StreamedEntity

SURE_S = 60.0
"""A claim of this run is taken to be ours for this long. A look takes a request for each thousand messages; but between two batches
there may be as much time as the trigger of the query likes."""


class _Ours(NamedTuple):
    """What of a claim is ours. The ranges rise, and are the same in every run as far as they are: so are tasks, and with them the ids
    that a sink makes of where a row stands."""

    ranges: list[Range]
    held: list[Range]  # surely there, rising; also what is of other batches


class _Claimed(NamedTuple):
    """For the next batch."""

    ranges: list[Range]
    mean_size: int  # of a message of the entity
    created_at: Millis | None  # the entity


class ConsumeStream:
    def __init__(
        self,
        options: SourceOptions,
        entity: LiveEntity,
        *,
        monotonic: Callable[[], float],
        new_owner: Callable[[], str],
    ) -> None:
        self.entity = StreamedEntity(options, entity, monotonic)
        self._options = options
        self._monotonic = monotonic
        self._new_owner = new_owner
        self._claimed: ConsumeOffset | None = None
        self._claimed_at = float("-inf")
        self._settled: ConsumeOffset | None = None
        # There may be claims that no offset knows, until a look from this time on finds none: a claim whose answer
        # never came may still be under way for as long as an operation takes.
        self._is_in_doubt = True
        self._doubt_ends = float("-inf")

    def latest(self, start: JsonOffset, limit: BatchLimit) -> JsonOffset:
        """The end of a batch of messages that are claimed for it; `start` itself if there are none."""
        self.entity.check()
        before = ConsumeOffset.from_json(start, self._options.path)
        if before is None:
            return ConsumeOffset(self._options.path, self._new_owner()).to_json()
        if not self.entity.is_poll_due():
            if self._is_unsettled(before):
                self.entity.call(lambda access: self._settle(access, before))
            return start
        asked_at = self._monotonic()
        claim = self.entity.call(lambda access: self._settle_and_claim(access, before, limit))
        self.entity.polled(found_some=bool(claim.ranges))
        if not claim.ranges:
            return start
        tasks = self.entity.tasks(claim.ranges, claim.mean_size)
        self._claimed = ConsumeOffset(self._options.path, before.owner, tuple(claim.ranges), tasks, claim.created_at)
        self._claimed_at = asked_at
        return self._claimed.to_json()

    def partitions(self, end: JsonOffset) -> list[MessageSlices]:
        offset = ConsumeOffset.from_json(end, self._options.path)
        if offset is None or not offset.claim:
            return []
        ours = self.entity.call(lambda access: self._still_ours(access, offset))
        return self.entity.partitions(ours.ranges, offset.tasks, ours.held)

    async def _settle_and_claim(self, access: EntityAccess, committed: ConsumeOffset, limit: BatchLimit) -> _Claimed:
        """See `_claim`. No task runs meanwhile, so both are done at the same time where nothing is to be found out between them:
        a look at what is ours must not meet what is being claimed."""
        if self._is_in_doubt or not access.is_own or not self._is_surely_ours(committed):
            await self._settle(access, committed)
            return await self._claim(access, committed.owner, limit)
        going = committed.claim if self._is_unsettled(committed) else ()
        settled, claimed = await asyncio.gather(
            self._settle(access, committed), self._claim(access, committed.owner, limit, going), return_exceptions=True
        )
        if isinstance(settled, BaseException):
            # No offset will have what was claimed beside it: the next call looks for it.
            self._is_in_doubt = True
            raise settled
        if isinstance(claimed, BaseException):
            raise claimed
        return claimed

    async def _settle(self, access: EntityAccess, committed: ConsumeOffset) -> None:
        if self._is_unsettled(committed):
            ours = await self._still_ours(access, committed)
            # What did not show may have been hidden from the tasks as well: it stays a claim, and is read again.
            await access.delete(outside(ours.ranges, outside(ours.ranges, ours.held)))
            self._settled = committed

    def _is_surely_ours(self, offset: ConsumeOffset) -> bool:
        return offset == self._claimed and self._monotonic() - self._claimed_at < SURE_S

    def _is_unsettled(self, committed: ConsumeOffset) -> bool:
        return bool(committed.claim) and committed != self._settled

    async def _still_ours(self, access: EntityAccess, offset: ConsumeOffset) -> "_Ours":
        """The claim of an offset without what others have claimed since. Raises FragmentUnavailable."""
        claim = sorted(offset.claim)
        if offset.created_at is None and self._is_surely_ours(offset):
            return _Ours(claim, claim)
        known = await access.heads()
        if was_created_again(offset.created_at, creation_time(known)):
            return _Ours([], [])
        if self._is_surely_ours(offset):
            return _Ours(claim, claim)
        fragments = {fragment_of(first) for first, _ in offset.claim}
        heads = [head for head in known if head.fragment in fragments]
        lost = [str(head.fragment) for head in heads if not head.is_available]
        if lost:
            raise FragmentUnavailable(f"Fragments {', '.join(lost)} of '{access.path}', with claims, do not answer.")
        claims = await claims_by_owner(access, heads)
        # What nobody claimed was adopted, or is an application's own.
        ours = {offset.owner} | ({None} if self._options.adopt_deferred is AdoptDeferred.TRUE else set())
        others = [item for owner, ranges in claims.items() if owner not in ours for item in ranges]
        held = [item for owner, ranges in claims.items() if owner in ours for item in ranges]
        return _Ours(outside(claim, others), sorted(held))

    async def _claim(
        self, access: EntityAccess, owner: str, limit: BatchLimit, going: Sequence[Range] = ()
    ) -> _Claimed:
        """What is claimed for the next batch. `going` is being removed."""
        known = await chosen_heads(access, self._options)
        heads = [_behind(head, going) for head in known if head.is_available]
        waiting = self._report(heads)
        mean, created_at = mean_size(heads), creation_time(known)
        count_max = row_limit(*limit, mean)
        if self._is_in_doubt:
            asked_at = self._monotonic()
            orphans = await self._orphans(access, heads, owner)
            if orphans:
                some = orphans if count_max is None else next(in_pieces(orphans, count_max))
                await self.entity.report_oldest(access, _left(heads, waiting, some))
                return _Claimed(some, mean, created_at)
            # An unavailable fragment may hold some: they stay in doubt until it has been read.
            self._is_in_doubt = asked_at < self._doubt_ends or len(heads) < len(known)
        ends = None if self.entity.target is None else self.entity.target.ends
        claim = await self._claim_up_to(access, heads, ends, count_max, owner)
        waiting = self._report(heads, claim.ranges)
        await self.entity.report_oldest(access, _left(heads, waiting, claim.ranges))
        if not claim.ranges and self.entity.target is not None:
            self._require_all(self.entity.target, known, claim)
        return _Claimed(claim.ranges, mean, created_at)

    async def _claim_up_to(
        self, access: EntityAccess, heads: Sequence[Head], ends: Positions | None, count_max: int | None, owner: str
    ) -> Claim:
        """The oldest messages of all fragments, as far as the limit allows. What is deferred or scheduled is in the way of
        times: where only such messages are the oldest, every fragment gives an equal share."""
        before = self._is_in_doubt, self._doubt_ends
        self._is_in_doubt, self._doubt_ends = True, self._monotonic() + self._options.connection.operation_timeout_s
        waiting = self._open(heads)
        claim = Claim([], is_certain=True)
        if access.is_own and count_max is not None and sum(waiting.values()) > count_max:
            known = [head for head in heads if waiting.get(head.fragment)]
            room = {head.fragment: (head.first, head.end if ends is None else ends[head.fragment]) for head in known}
            shares = await self.entity.shares(access, room, count_max)
            oldest = {fragment: room[fragment][0] + share for fragment, share in shares.items()}
            claim = await access.claim(shares, oldest, owner)
        if claim.is_certain and not claim.ranges:
            claim = await access.claim(fair_shares(waiting, count_max, self.entity.turn), ends, owner)
        if claim.is_certain:
            self._is_in_doubt, self._doubt_ends = before
        return claim

    def _report(self, heads: Sequence[Head], claimed: Sequence[Range] = ()) -> dict[int, int]:
        """What is left after the next batch, by fragment: a query that then finds nothing more reports nothing new."""
        taken = {fragment: count(ranges) for fragment, ranges in by_fragment(claimed).items()}
        waiting = {head.fragment: max(0, head.waiting - taken.get(head.fragment, 0)) for head in heads}
        self.entity.reported = reported_waiting(self._options.path, waiting)
        return waiting

    def _require_all(self, target: RunTarget, heads: Sequence[Head], claim: Claim) -> None:
        """Raises what may pass, where a run that ends now would leave something behind."""
        if not claim.is_certain:
            raise FragmentUnavailable(f"Some of '{self._options.path}' cannot be claimed now.")
        target.require_read(heads, {})

    def _open(self, heads: Sequence[Head]) -> dict[int, int]:
        """Messages that may be claimed, by fragment."""
        target = self.entity.target
        return {head.fragment: head.waiting for head in heads if target is None or head.fragment in target.ends}

    async def _orphans(self, access: EntityAccess, heads: Sequence[Head], owner: str) -> list[Range]:
        """Claims that no offset knows, since those of `start` are deleted by now."""
        found = await claims_by_owner(access, heads)
        foreign = found.get(None, [])
        if foreign and self._options.adopt_deferred is AdoptDeferred.FAIL:
            raise SourceFailed(
                f"'{self._options.path}' has deferred messages that no query claimed. Set adoptDeferred=true to read "
                "them too, or false to leave them."
            )
        adopted = foreign if self._options.adopt_deferred is AdoptDeferred.TRUE else []
        return sorted(found.get(owner, []) + adopted)


def _left(heads: Sequence[Head], waiting: Mapping[int, int], claimed: Sequence[Range]) -> Positions:
    """From which number on a fragment has messages that are not claimed, where it has some."""
    taken = by_fragment(claimed)
    return {
        head.fragment: max((end for _, end in taken.get(head.fragment, ())), default=head.first)
        for head in heads
        if waiting[head.fragment]
    }


def _behind(head: Head, going: Sequence[Range]) -> Head:
    """As the head will be when these are gone, whether they are yet or not. They were the oldest: between them is nothing to claim,
    or little, and what there is gets claimed first."""
    ends = [end for first, end in going if fragment_of(first) == head.fragment]
    return head._replace(first=min(head.end, max(head.first, *ends))) if ends else head
