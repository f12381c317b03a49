"""One pump: empties one backlog queue, pass by pass. The decisions of it, as a generator of requests.

A pass takes up to 100 messages, groups them by destination, sends the groups in order and
completes what was accepted. A destination that is down or full keeps its messages in the
backlog: they are left, and come again when their locks end or the destination may be tried again. What can never arrive is
dead-lettered in the backlog queue with destination and reason.

A message that follows others of its session in another backlog queue (see `pairing/rewriting/stages.py`) is left until those are home, and so
is what comes behind it in its session; nothing else waits for it.

A message is completed only after its destination accepted it, so a crash at any point repeats
messages and loses none.

A message goes home with the id that its sender gave it. If its destination detects duplicates
and drops it, it has had this very message: from the sender, who got no answer and turned to the
backlog, or from a pump that died before it could complete it. Dropping it is right then, and the
pump completes it as accepted.
"""

from collections.abc import Callable, Generator, Sequence
from enum import IntEnum
from typing import TypeAlias

from twinbus.clock import Clock, Millis
from twinbus.errors import MessagingError
from twinbus.model.pairing_limits import SYPHON_POLL
from twinbus.pairing.deciding.survey import Survey
from twinbus.pairing.events import EventKind, PairingEvent, tell
from twinbus.pairing.rewriting.restore import NotATransfer
from twinbus.pairing.stock.failures import Classifier, FailureKind, kind_by
from twinbus.pairing.syphon.broker_clock import LOCK_MARGIN
from twinbus.pairing.syphon.destinations import RETRY_MAX, RETRY_MIN, Cut, Group, Lock, PumpMemory, first_chunk
from twinbus.pairing.syphon.followers import parted
from twinbus.pairing.syphon.rate_cap import Pace
from twinbus.pairing.syphon.transport import (
    Abandon,
    Answer,
    Chunk,
    Complete,
    DeadLetter,
    GiveBackLeft,
    LookInto,
    Receive,
    Request,
    SendAll,
    Taken,
    Wait,
)

BATCH_MAX = 100
LEFT_MAX = 10_000
BEHIND_WAIT_MIN: Millis = 500
BEHIND_WAIT_GROWTH = 3
BEHIND_WAIT_SHARE = 4
"""Where messages wait for earlier ones whose locks have not ended, the next pass comes after this, then after three times as long
and so on, up to a fourth of a lock. Each pass costs those messages one of their deliveries, and a backlog queue that
somebody else created may dead-letter them after ten."""

REASON_NOT_A_TRANSFER = "TransferPropertiesInvalid"
REASON_NOT_FOUND = "TransferDestinationNotFound"
REASON_REFUSED = "TransferRefused"

Steps: TypeAlias = Generator[Request, Answer, None]


class LockTooShort(TimeoutError):
    """Nobody's outage: the messages waited here for too long."""


class PoisonQuotaUsedUp(MessagingError):
    """This message can never arrive either, and stays where it is."""


class PoisonQuota:
    """How many messages may be dead-lettered before somebody has to look. Several pumps may share one; None has no limit.

    A few messages that can never arrive are poison. Thousands of them are a configuration mistake, such as the wrong primary,
    and are safer in the backlog queue.
    """

    def __init__(self, count_max: int | None = None) -> None:
        self._left = count_max
        self.is_used_up = False
        """True once a message had to stay because the quota was used up."""

    def take(self) -> bool:
        """True if one more message may be dead-lettered."""
        if self._left is None:
            return True
        if self._left == 0:
            self.is_used_up = True
            return False
        self._left -= 1
        return True


class Pass(IntEnum):
    """What came of a pass; true where the next one may follow at once."""

    FUTILE = 0
    """Nothing could be done, and an immediate next pass would be the same."""
    EMPTY = 1
    """No message came in time."""
    USEFUL = 2


class Pump:
    """`is_stopping` is set from outside; the generator then ends at its next turn."""

    def __init__(
        self,
        queue: str,
        classifier: Classifier,
        pace: Pace,
        clock: Clock,
        on_event: Callable[[PairingEvent], None],
        *,
        poison_quota: PoisonQuota | None = None,
        memory: PumpMemory | None = None,
        page_max: int = BATCH_MAX,
    ) -> None:
        self.queue = queue
        self.is_stopping = False
        self._is_woken = False  # something that it waits for has come about
        self.memory = PumpMemory() if memory is None else memory
        self._classifier = classifier
        self._pace = pace
        self._clock = clock
        self._on_event = on_event
        self._poison_quota = PoisonQuota() if poison_quota is None else poison_quota
        self._page_max = page_max
        self._retry_after = RETRY_MIN
        self._behind_wait = BEHIND_WAIT_MIN
        self._gave_back = False
        """In this pass, because earlier messages to the same destination are still locked."""
        self._left_followers = False
        self._reserved: dict[str, int] = {}
        """How many messages to each destination may go at once: they waited for their turn until their locks had ended. Waiting once
        more in the same way, they would never go."""

    def destination_recovered(self, path: str) -> None:
        """Somebody knows that it works again: no need to wait for the next try. From any thread."""
        destination = self.memory.destinations.get(path)
        if destination is not None:
            destination.recovered()
            self._is_woken = True

    def take_wake(self) -> bool:
        """Whether it was woken. Asked by whoever waits for it, who then waits no longer."""
        was_woken, self._is_woken = self._is_woken, False
        return was_woken

    def primary_recovered(self) -> None:
        """All of it answers again."""
        for path in list(self.memory.destinations):
            self.destination_recovered(path)

    @property
    def has_paused(self) -> bool:
        now = self._clock.now()
        return any(now < each.paused_until for each in list(self.memory.destinations.values()))

    def run(self) -> Steps:
        while not self.is_stopping:
            outcome = yield from self.do_pass(self._poll_s())
            if outcome:
                self._retry_after = RETRY_MIN
            if self._gave_back:
                yield Wait(self._wait_behind())
                continue
            self._behind_wait = BEHIND_WAIT_MIN
            if not outcome:
                yield Wait(self._retry_after)
                self._retry_after = min(RETRY_MAX, 2 * self._retry_after)

    def _poll_s(self) -> float:
        """No longer than until a destination may be tried again with what was left for it."""
        now = self._clock.now()
        tries = [
            max(RETRY_MIN, each.paused_until - now)
            for each in self.memory.destinations.values()
            if each.holds_back(now)
        ]
        return min([SYPHON_POLL.total_seconds(), *(wait / 1000 for wait in tries)])

    def _wait_behind(self) -> Millis:
        """Before the next pass after one that gave messages back. No longer than until all that was left is free again."""
        now, wait = self._clock.now(), self._behind_wait
        self._behind_wait = min(self._behind_wait_max, BEHIND_WAIT_GROWTH * wait)
        return max(BEHIND_WAIT_MIN, min(wait, self.memory.all_free_at(now) - now))

    @property
    def _behind_wait_max(self) -> Millis:
        return max(BEHIND_WAIT_MIN, self.memory.lock_duration // BEHIND_WAIT_SHARE)

    def do_pass(self, poll_s: float) -> Generator[Request, Answer, Pass]:
        """Take, move, settle."""
        self._gave_back = self._left_followers = False
        yield from self._give_back_left()
        try:
            answer = yield Receive(self._page_max, poll_s)
        except Exception as error:
            self._tell(EventKind.SYPHON_SKIPPED, None, 0, error)
            return Pass.FUTILE
        taken = sorted(_taken_of(answer), key=lambda each: each.sequence_number)
        if not taken:
            return Pass.EMPTY
        if self.is_stopping:
            yield from self._give_back(taken)
            return Pass.USEFUL
        taken = self._by_our_clock(taken)
        received_at = self._delivered_at(taken)
        groups, did_settle = yield from self._group(taken)
        is_new = self._note_arrivals(groups)
        did_move = yield from self._move(groups, received_at)
        # Those that follow others come again when their locks end; there is nothing to wait for before that.
        is_worth_more = (is_new or self._left_followers) and not self._gave_back
        is_useful = did_settle or did_move or (is_worth_more and self.memory.left_count() < LEFT_MAX)
        return Pass.USEFUL if is_useful else Pass.FUTILE

    def _give_back_left(self) -> Steps:
        """What keeps a destination from being tried, and is locked for no other reason than that it failed."""
        now = self._clock.now()
        chosen = {path: each.to_give_back(now) for path, each in self.memory.destinations.items()}
        tokens = {number: token for each in chosen.values() for number, token in each.items()}
        if not tokens:
            return
        free_at: Millis | None = None
        try:
            yield GiveBackLeft(tokens)
        except Exception as error:
            self._tell(EventKind.SYPHON_SKIPPED, None, len(tokens), error)
        else:
            free_at = self._clock.now()
        for path, each in chosen.items():
            self.memory.destination(path).gave_back(each, free_at)

    def _by_our_clock(self, taken: Sequence[Taken]) -> list[Taken]:
        clock = self.memory.broker_clock
        ahead_before = clock.ahead
        by_ours = clock.by_ours(taken, self._clock.now())
        if clock.ahead != ahead_before:
            # What was measured by another clock says nothing.
            self.memory.lock_duration = 0
        return by_ours

    def _delivered_at(self, taken: Sequence[Taken]) -> Millis:
        """When the first of them was handed out, which prefetching makes earlier than now."""
        latest, earliest = max(each.locked_until for each in taken), min(each.locked_until for each in taken)
        self.memory.lock_duration = max(self.memory.lock_duration, latest - self._clock.now())
        return earliest - self.memory.lock_duration

    def _group(self, taken: Sequence[Taken]) -> Generator[Request, Answer, tuple[dict[str, Group], bool]]:
        """By destination, in order; True if one was dead-lettered because it has none."""
        groups: dict[str, Group] = {}
        did_settle = False
        for each in taken:
            if isinstance(each.content, NotATransfer):
                did_settle |= yield from self._dead_letter(each, None, REASON_NOT_A_TRANSFER, each.content)
            else:
                groups.setdefault(each.content.path, []).append((each, each.content))
        return groups, did_settle

    def _note_arrivals(self, groups: dict[str, Group]) -> bool:
        """True if one of them was not seen before."""
        came_again = [
            self.memory.destination(path).came_again(taken.sequence_number)
            for path, group in groups.items()
            for taken, _ in group
        ]
        return not all(came_again)

    def _move(self, groups: dict[str, Group], received_at: Millis) -> Generator[Request, Answer, bool]:
        """Round by round, a chunk for each destination. True if a message was moved or dead-lettered."""
        for path in list(groups):
            groups[path] = yield from self._cleared(path, groups[path], received_at)
        yield from self._leave_followers(groups, received_at)
        did_move = False
        while groups := {path: group for path, group in groups.items() if group}:
            chunks = [first_chunk(path, group, self.memory.destination(path).cut) for path, group in groups.items()]
            errors = yield from self._send(chunks)
            accepted = [chunk for chunk, error in zip(chunks, errors, strict=True) if error is None]
            yield from self._complete(accepted)
            did_move = did_move or bool(accepted)
            for chunk, error in zip(chunks, errors, strict=True):
                done, was_refused = yield from self._conclude(groups[chunk.path], chunk, error)
                groups[chunk.path] = groups[chunk.path][done:]
                did_move = did_move or was_refused
        return did_move

    def _cleared(self, path: str, group: Group, received_at: Millis) -> Generator[Request, Answer, Group]:
        """Those of the group that may go. The others are left, or given back where only earlier ones that are still locked
        hold them up: left too, each would come home one lock later than it could, and keep the ones behind it waiting."""
        destination = self.memory.destination(path)
        destination.begin_pass()
        barrier = destination.barrier(received_at, self._clock.now())
        behind = [each for each in group if each[0].sequence_number >= barrier]
        if behind and barrier > 0:
            self._gave_back = True
            are_free = yield from self._give_back([taken for taken, _ in behind])
            # They come again, but in which order a link that hands out in advance does not say.
            for taken, _ in behind:
                destination.leave(taken.sequence_number, Lock(self._clock.now() if are_free else taken.locked_until))
        elif behind:
            self._leave(path, behind, None)
        return group[: len(group) - len(behind)]

    def _leave_followers(self, groups: dict[str, Group], received_at: Millis) -> Steps:
        """Takes out of the groups what has to wait for messages of its session in other backlog queues."""
        came_at: dict[int, Millis] = {}
        """When the last one came that follows another queue."""
        for taken, transfer in (each for group in groups.values() for each in group):
            for index in () if transfer.stage is None else transfer.stage.follows:
                came_at[index] = max(taken.enqueued_at, came_at.get(index, 0))
        surveys: dict[int, Survey | None] = {}
        for index, until in sorted(came_at.items()):
            surveys[index] = yield from self._look_into(index, until)
        for path, group in groups.items():
            destination = self.memory.destination(path)
            groups[path], following = parted(path, group, surveys, destination, received_at)
            if not following:
                continue
            self._left_followers = True
            self._tell(EventKind.SYPHON_SKIPPED, path, len(following), None)
            if self._behind_wait < self._behind_wait_max:
                # Likely to be home in a moment. Later on they are left, so that others in this queue get their turn.
                self._gave_back = True
                if (yield from self._give_back([taken for taken, _ in following])):
                    destination.are_free([taken.sequence_number for taken, _ in following], self._clock.now())

    def _look_into(self, index: int, until: Millis) -> Generator[Request, Answer, Survey | None]:
        """None if nobody knows what is in that queue."""
        try:
            answer = yield LookInto(f"{self.queue.rpartition('/')[0]}/{index}", until)
        except Exception as error:
            if kind_by(self._classifier, error) is FailureKind.NOT_FOUND:
                return Survey(0)  # it was deleted, and what follows it would wait for good
            self._tell(EventKind.SYPHON_SKIPPED, None, 0, error)
            return None
        return answer if isinstance(answer, Survey) else None

    def _send(self, chunks: Sequence[Chunk]) -> Generator[Request, Answer, Sequence[Exception | None]]:
        counts = {chunk.path: len(chunk.taken) for chunk in chunks}
        lacking = {path: count - self._reserved.get(path, 0) for path, count in counts.items()}
        lacking = {path: count for path, count in lacking.items() if count > 0}
        pause = self._pace.reserve(lacking, self._clock.now()) if lacking else 0
        if pause:
            yield Wait(pause)
        soonest = min(taken.locked_until for chunk in chunks for taken in chunk.taken)
        if soonest < self._clock.now() + LOCK_MARGIN:
            self._reserved |= {path: max(count, self._reserved.get(path, 0)) for path, count in counts.items()}
            return [LockTooShort("The locks end too soon to send these messages now.")] * len(chunks)
        self._reserved |= {path: max(0, self._reserved.get(path, 0) - count) for path, count in counts.items()}
        try:
            return _errors_of((yield SendAll(chunks)))
        except Exception as error:
            return [error] * len(chunks)

    def _conclude(
        self, group: Group, chunk: Chunk, error: Exception | None
    ) -> Generator[Request, Answer, tuple[int, bool]]:
        """How many of the group are dealt with after this chunk, and whether some were refused for good."""
        destination = self.memory.destination(chunk.path)
        if error is None:
            destination.accepted()
            return len(chunk.taken), False
        kind = kind_by(self._classifier, error)
        if kind.is_of_the_message and len(chunk.taken) > 1:
            destination.cut = Cut(min(destination.cut + 1, Cut.SINGLE))
            return 0, False
        if not _is_final(kind):
            destination.failed(self._clock.now())
            self._leave(chunk.path, group, error)
            return len(group), False
        destination.had_poison = True
        reason = REASON_NOT_FOUND if kind is FailureKind.NOT_FOUND else REASON_REFUSED
        was_settled = False
        for taken in chunk.taken:
            was_settled |= yield from self._dead_letter(taken, chunk.path, reason, error)
        return len(chunk.taken), was_settled

    def _complete(self, chunks: Sequence[Chunk]) -> Steps:
        if not chunks:
            return
        failure: Exception | None = None
        try:
            yield Complete([taken for chunk in chunks for taken in chunk.taken])
        except Exception as error:  # they are at home; those whose lock was lost come again and are sent twice
            failure = error
        for chunk in chunks:
            self._tell(EventKind.SYPHON_MOVED, chunk.path, len(chunk.taken), failure)

    def _dead_letter(
        self, taken: Taken, path: str | None, reason: str, error: Exception
    ) -> Generator[Request, Answer, bool]:
        """True if it was tried; a message that may not be is left to its lock."""
        description = str(error) if path is None else f"Destination '{path}': {error}"
        if not self._poison_quota.take():
            if path is not None:
                self.memory.destination(path).leave(taken.sequence_number, Lock(taken.locked_until))
            self._tell(EventKind.SYPHON_SKIPPED, path, 1, PoisonQuotaUsedUp(description))
            return False
        try:
            yield DeadLetter(taken, reason, description)
        except Exception as failure:  # its lock ends and it comes again
            self._tell(EventKind.SYPHON_SKIPPED, path, 1, failure)
        else:
            self._tell(EventKind.SYPHON_DEAD_LETTERED, path, 1, error)
        return True

    def _leave(self, path: str, group: Group, error: Exception | None) -> None:
        destination = self.memory.destination(path)
        for taken, _ in group:
            destination.leave(taken.sequence_number, Lock(taken.locked_until, taken.token))
        self._tell(EventKind.SYPHON_SKIPPED, path, len(group), error)

    def _give_back(self, taken: Sequence[Taken]) -> Generator[Request, Answer, bool]:
        """False if it is not known that they are free again: then their locks end by themselves."""
        try:
            yield Abandon(taken)
        except Exception as error:
            self._tell(EventKind.SYPHON_SKIPPED, None, len(taken), error)
            return False
        return True

    def _tell(self, kind: EventKind, path: str | None, count: int, error: BaseException | None) -> None:
        tell(self._on_event, PairingEvent(kind, self._clock.now(), path, self.queue, count, error))


def _is_final(kind: FailureKind) -> bool:
    """The destination will never take it: it is gone, or the message is not acceptable."""
    return kind is FailureKind.NOT_FOUND or kind.is_of_the_message


def _taken_of(answer: Answer) -> list[Taken]:
    return [] if answer is None or isinstance(answer, Survey) else [each for each in answer if isinstance(each, Taken)]


def _errors_of(answer: Answer) -> list[Exception | None]:
    assert answer is not None
    assert not isinstance(answer, Survey)
    return [each for each in answer if each is None or isinstance(each, Exception)]
