"""Messages without an answer yet, on their way into one fragment: the first of some candidates that takes them (contract A4, A8).

    staged --durable--> accepted
       '--the store failed: it may have them--> the next fragment that takes them --it failed too--> refused
    passed by: unavailable, far behind, full --> the next one, through all of them

A fragment that is passed by has written nothing, so the run may go on to any other. Where a store fails while it writes the
run, nobody knows whether it did: one other fragment is tried, so that a message is there twice at most; where stores are in
several databases, one of another database, since a database takes all of its stores with it; where several nodes share the stores, the
run waits for one (`twinbus.cluster.peers.held_sends`). If the reply of that one is lost too, the sender gets the error.

A run is in one fragment at a time: the next candidate is tried only when the answer of the last one is an error, and
then that fragment has dropped what it knew of the run. To try two at once would answer a sender twice.
"""

from collections.abc import Callable, Sequence
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING

from twinbus.broker.entity.named_stage import NamedStage, Staging
from twinbus.broker.fragment.decision import Decision
from twinbus.broker.fragment.fragment import Fragment
from twinbus.broker.wakeups import LongSteps
from twinbus.clock import Millis
from twinbus.errors import FragmentUnavailable, MessagingError, OutcomeUnknown, QuotaExceeded, ServerBusy
from twinbus.model.message import Message

if TYPE_CHECKING:
    from twinbus.broker.entity.placement import Placement


class Detour(Enum):
    """Why messages without a key are not in the fragment whose turn it was. A later one outweighs those before it."""

    FULL = "full"
    UNAVAILABLE = "unavailable"
    UNKNOWN = "unknown"  # and so they may be there as well

    @classmethod
    def because_of(cls, refusal: MessagingError) -> "Detour":
        if isinstance(refusal, OutcomeUnknown):
            return cls.UNKNOWN
        return cls.FULL if isinstance(refusal, QuotaExceeded) else cls.UNAVAILABLE


_WEIGHTS = {detour: weight for weight, detour in enumerate(Detour)}


class Run:
    """Of one placement. Calls one of `accepted` and `refused`, once."""

    __slots__ = (
        "_accepted",
        "_candidates",
        "_is_alone",
        "_is_one_try",
        "_messages",
        "_numbers",
        "_origins",
        "_placement",
        "_refusal",
        "_refused",
        "_staging",
        "_tried_count",
    )

    def __init__(
        self,
        placement: "Placement",
        messages: Sequence[Message],
        candidates: Sequence[int],
        accepted: Callable[[list[int], Millis], None],
        refused: Callable[[MessagingError, Millis], None],
        origins: Sequence[int] | None,
        names: Sequence[str] | None = None,
        *,
        is_alone: bool = True,
        is_one_try: bool = False,
    ) -> None:
        """`names`: of a second try; `is_alone`: not one of several that take too long together; `is_one_try`: if a store may have them, no
        other fragment is tried."""
        self._placement = placement
        self._staging: Staging = placement if names is None else NamedStage(placement, names)
        self._is_alone = is_alone
        self._is_one_try = is_one_try
        self._messages = messages
        self._candidates = candidates
        self._tried_count = 0
        self._accepted = accepted
        self._refused = refused
        self._origins = origins
        self._numbers: list[int] = []
        self._refusal: MessagingError | None = None  # the weightiest so far

    def attempt(self, now: Millis) -> None:
        """Give them to the next candidate that takes them."""
        placement = self._placement
        while self._tried_count < len(self._candidates):
            fragment = placement.fragments[self._candidates[self._tried_count]]
            self._tried_count += 1
            refusal: MessagingError | None = fragment.refusal
            if refusal is None:
                if placement.takes_steps and self._has_to_wait(fragment):
                    placement.wait(fragment.index, partial(self._take_in_steps, fragment))
                    return
                decision = Decision(fragment)
                try:
                    self._numbers = self._staging.stage(decision, self._messages, now, self._origins)
                except (QuotaExceeded, ServerBusy) as full:
                    refusal = full
                except MessagingError as error:
                    self._refused(error, now)
                    return
                else:
                    self._commit(decision)
                    return
            self._pass_by(refusal)
        none_elsewhere = "No messaging store of another database is served here. Try again later."
        self._refused(self._refusal or FragmentUnavailable(none_elsewhere), now)

    def _has_to_wait(self, fragment: Fragment) -> bool:
        placement = self._placement
        return not self._is_alone or placement.is_busy(fragment.index) or placement.is_long(len(self._messages))

    def _take_in_steps(self, fragment: Fragment, now: Millis) -> LongSteps:
        refusal: MessagingError | None = fragment.refusal
        if refusal is None:
            decision = Decision(fragment)
            try:
                stage = self._staging.stage_in_steps(decision, self._messages, now, self._origins)
                self._numbers = yield from stage
            except (QuotaExceeded, ServerBusy, FragmentUnavailable) as error:
                refusal = error
            except MessagingError as error:
                self._refused(error, now)
                return
            except Exception:
                self._refused(MessagingError("The messages could not be taken. The log says why."), now)
                raise
            else:
                self._commit(decision)
                return
        self._pass_by(refusal)
        self.attempt(now)

    def _commit(self, decision: Decision) -> None:
        if self._refusal is not None:
            self._placement.detours[Detour.because_of(self._refusal)] += len(self._messages)
        decision.commit(self._durable, self._failed)

    def _pass_by(self, refusal: MessagingError) -> None:
        before = self._refusal
        if before is None or _WEIGHTS[Detour.because_of(refusal)] >= _WEIGHTS[Detour.because_of(before)]:
            self._refusal = refusal

    def _durable(self, now: Millis) -> None:
        self._accepted(self._numbers, now)

    def _failed(self, error: FragmentUnavailable, now: Millis) -> None:
        if isinstance(error, OutcomeUnknown) and (self._is_one_try or isinstance(self._refusal, OutcomeUnknown)):
            self._refused(error, now)
            return
        if isinstance(error, OutcomeUnknown) and error.database is not None:
            left, database_of = self._candidates[self._tried_count :], self._placement.database_of
            self._candidates = sorted(left, key=lambda index: database_of(index) == error.database)
            self._tried_count = 0
        self._pass_by(error)
        self.attempt(now)
