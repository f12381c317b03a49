"""A receiver of this node over all parts of a queue: its credit goes to them as demand, and what they hand over comes to it.

    credit of the receiver --plan_demand--> demand of each part --delivered--> gone
                    ^-----------------------given back, lost--'

Demand is taken from the receiver's credit when it is given, as a queue takes what it hands over: so a gateway sees it as under way until
it has become messages or comes back (`recall`). Nothing is handed over for which there is no credit, at any moment.

Under load, a receiver takes from the part of its own node as much as receivers at the other nodes take from theirs (`Keeping`).
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias

from twinbus.broker.consumer import Consumer, ReceiveMode, TakenMessage
from twinbus.broker.telling import tell
from twinbus.clock import Clock, Millis
from twinbus.cluster.fronts.demand import DemandPlan, plan_demand
from twinbus.cluster.fronts.shares import Share
from twinbus.cluster.peers.hold import Hold
from twinbus.cluster.peers.keeping import Keeping
from twinbus.errors import FragmentUnavailable, MessagingError

Sift: TypeAlias = Callable[[Consumer, int, list[TakenMessage]], list[TakenMessage]]


class FrontReceiver:
    """`may_return`: whether a part that is lost is expected back in a moment; `sift`: of what came from a node, what may still be handed
    over."""

    def __init__(
        self, receiver: Consumer, may_return: Callable[[], bool], sift: "Sift", keeping: Keeping, clock: Clock
    ) -> None:
        self.receiver = receiver
        self._sift = sift
        self._keeping = keeping
        self.hold_number = receiver.session.number if isinstance(receiver.session, Hold) else 0
        self._may_return = may_return
        self.shares: list[Share] = []
        self._leaving: list[Share] = []  # at nodes that have nothing of the queue any more
        self.is_over = False
        self.is_deaf = False
        """Its link is gone, and its message session is given back later: what is still handed over is free then."""
        self._kept_unused = 0  # of what it asked for at this node alone, how much has not become messages
        self._is_draining = False
        self._is_planning = False
        self._is_planned_again = False
        self._turn = 0
        self.clock = clock

    @property
    def misses_a_part(self) -> bool:
        return not self.is_over and not all(share.is_attached for share in self.shares)

    def attach(self, now: Millis) -> None:
        """Raises what keeps it from receiving from any part."""
        refusal: MessagingError | None = None
        for share in self.shares:
            try:
                share.attach(now)
            except MessagingError as error:
                refusal = error
        if not any(share.is_attached for share in self.shares) and not self._may_return():
            self.is_over = True
            raise refusal or FragmentUnavailable("No node that has messages of this can be reached. Try again later.")
        self.pump(now)

    def attach_again(self, now: Millis) -> None:
        """Some parts may have come back. A message session waits until everything from where it was before has come: that comes first."""
        if self._leaving and self.receiver.session is not None:
            return
        for share in self.shares:
            if not share.is_attached:
                try:
                    share.attach(now)
                except MessagingError:
                    continue
        self._plan(now)

    def follow_hold(self, hold: Hold, share_at: Callable[[int], Share], now: Millis) -> None:
        """The message session may be held elsewhere than before, or anew at the same node."""
        if self.hold_number != hold.number:
            self.hold_number = hold.number
            self.follow([], share_at, now)
        self.follow([hold.node], share_at, now)

    def follow(self, nodes: Sequence[int], share_at: Callable[[int], Share], now: Millis) -> None:
        """Have a share at each of these nodes, and at no other. What the others have not used is free again."""
        for share in [share for share in self.shares if share.node not in nodes]:
            self.shares.remove(share)
            if share.is_attached:
                # What it has handed over is on its way, and comes before its answer.
                self._leaving.append(share)
                if not share.is_recalled:
                    share.recall(now, waits=False)
        known = {share.node for share in self.shares}
        self.shares += [share_at(node) for node in nodes if node not in known]
        self.attach_again(now)

    def pump(self, now: Millis) -> None:
        """Its credit was raised."""
        self._is_draining = False
        self._plan(now)

    def recall(self, now: Millis, *, waits: bool) -> None:
        """Nothing is given to any part until the next `pump`. What is being removed for it comes, or is asked for with the next tick: its
        removal may have failed."""
        self._is_draining = True
        for share in list(self.shares):
            if share.is_attached and share.outstanding and not share.is_recalled and not share.is_used:
                share.recall(now, waits=waits)

    def close(self, now: Millis) -> None:
        self.is_over = True
        for share in [*self.shares, *self._leaving]:
            if share.is_attached:
                share.is_attached = False
                share.close(now)
        self._leaving.clear()

    # Called by the shares

    def delivered(self, share: Share, taken: list[TakenMessage]) -> None:
        share.outstanding -= len(taken)
        share.is_used = False
        if share.is_here:
            self._kept_unused = max(0, self._kept_unused - len(taken))
            self._keeping.done_here(len(taken))
        fresh = self._sift(self.receiver, share.node, taken)
        self.receiver.credit += len(taken) - len(fresh)
        if fresh and not self.is_deaf:
            tell(self.receiver.deliver, fresh)
        if share.ready and not share.outstanding and not self._is_draining:
            self._plan(self.clock.now())

    def told_ready(self, share: Share, count: int, now: Millis) -> None:
        if share.outstanding and self.receiver.mode is ReceiveMode.PEEK_LOCK:
            return  # it did not have this demand yet when it said so, and says it again if it still has more
        share.ready = count
        if not share.outstanding and not self._is_draining:
            self._plan(now)

    def look_again(self, now: Millis) -> None:
        """A part may starve because another one said that it had messages, and somebody else has got them since."""
        if not self._is_draining and not any(share.ready for share in self.shares):
            return
        for share in self.shares:
            share.is_used = False  # a removal may have failed since, and then its demand is free again
        if self._is_draining:
            self.recall(now, waits=False)
        else:
            self._plan(now)

    def returned(self, share: Share, unused: int, now: Millis) -> None:
        share.is_recalled = False
        if unused:
            share.ready = 0
        share.outstanding -= unused
        if share.is_here:
            self._unkeep(unused)
        share.is_used = share.outstanding > 0
        if self.is_over:
            return
        self.receiver.credit += unused
        if share in self._leaving:
            self._leave(share, now)
        if self._is_draining:
            tell(self.receiver.credit_returned, now)
        else:
            self._plan(now)

    def _leave(self, share: Share, now: Millis) -> None:
        self._leaving.remove(share)
        self.receiver.credit += share.outstanding  # removals that this node cannot finish
        share.outstanding = 0
        share.is_attached = False
        share.close(now)
        if self.misses_a_part:
            self.attach_again(now)

    def lost(self, share: Share, error: MessagingError, now: Millis) -> None:
        """The part is gone, for now or for good."""
        if self.is_over or not share.is_attached:
            return
        if share in self._leaving:
            self._leave(share, now)
            self._plan(now)
            return
        share.is_attached = share.is_recalled = share.is_used = False
        share.ready = 0
        unused, share.outstanding = share.outstanding, 0
        self.receiver.credit += unused
        if share.is_here:
            self._unkeep(unused)
        is_for_good = not isinstance(error, FragmentUnavailable)
        is_left_alone = len(self.shares) == 1 or not any(each.is_attached for each in self.shares)
        if is_for_good or (is_left_alone and not self._may_return()):
            self.end(error, now)
        elif self._is_draining:
            tell(self.receiver.credit_returned, now)
        else:
            self._plan(now)

    def end(self, error: MessagingError, now: Millis) -> None:
        """There is nothing to receive from any more."""
        self.close(now)
        tell(self.receiver.session_lost, error)

    @property
    def is_cut_off(self) -> bool:
        return not self.is_over and not any(share.is_attached for share in [*self.shares, *self._leaving])

    def _plan(self, now: Millis) -> None:
        # Giving can make a part say at once that it has more.
        if self._is_planning:
            self._is_planned_again = True
            return
        self._is_planning = True
        try:
            self._share_out(now)
            while self._is_planned_again:
                self._is_planned_again = False
                self._share_out(now)
        finally:
            self._is_planning = False

    def _share_out(self, now: Millis) -> None:
        turn = self._turn % max(1, len(self.shares))
        shares = [share for share in self.shares[turn:] + self.shares[:turn] if share.is_attached]
        credit = max(0, self.receiver.credit)
        if self.is_over or not (credit or any(share.ready for share in shares)):
            return
        # A part that has used its demand for messages which are being removed counts once these have come.
        ready = [0 if share.outstanding else share.ready for share in shares]
        kept = self._kept(credit, shares, ready, now)
        if kept is None:
            outstanding = [share.outstanding for share in shares]
            given, recalled = plan_demand(credit, len(shares), [count > 0 for count in ready], outstanding)
        else:
            given, recalled = kept
        if credit:
            self._turn += 1  # where credit is scarce, the parts take turns
        for share, demand in zip(shares, given, strict=True):
            if demand:
                self.receiver.credit -= demand
                share.outstanding += demand
                share.is_used = False
                share.ready = 0  # it says so again if it has still more
                share.give(demand, now)
        for part in recalled:
            share = shares[part]
            if share.is_attached and not share.is_recalled and not share.is_used:
                share.recall(now, waits=False)

    def _kept(self, credit: int, shares: Sequence[Share], ready: Sequence[int], now: Millis) -> DemandPlan | None:
        """All of it for the part of this node. While that has nothing, others get as much as they say they have."""
        here = next((place for place, share in enumerate(shares) if share.is_here), None)
        if here is None or not 0 < credit <= self._keeping.room(now):
            return None
        given = [0] * len(shares)
        if any(ready) and not shares[here].is_fed:
            for place, count in enumerate(ready):
                given[place] = min(count, credit)
                credit -= given[place]
        given[here] += credit
        self._kept_unused += credit
        self._keeping.keep(credit)
        return DemandPlan(given, [])

    def _unkeep(self, unused: int) -> None:
        """The part of this node gives back what was not used: others may still do as much for themselves."""
        kept = min(unused, self._kept_unused)
        self._kept_unused -= kept
        self._keeping.unkeep(kept)
