"""One pump: empties one backlog queue, pass by pass.

A pass takes up to 100 messages, groups them by destination, sends each group in order and
completes what was accepted. A destination that is down or full keeps its messages in the
backlog: they are left, their locks end, they come again. What can never arrive is
dead-lettered in the backlog queue with destination and reason.

A message is completed only after its destination accepted it, so a crash at any point repeats
messages and loses none.
"""

from collections.abc import Callable, Sequence

from twinbus.clock import Clock, Millis
from twinbus.pairing.events import EventKind, PairingEvent
from twinbus.pairing.failures import FailureKind
from twinbus.pairing.options import Classifier
from twinbus.pairing.restore import NotATransfer
from twinbus.pairing.syphon.destinations import RETRY_MAX, RETRY_MIN, Cut, Destination
from twinbus.pairing.syphon.rate_cap import RateCap
from twinbus.pairing.syphon.transport import SyphonTransport, Taken, Transfer

LONG_POLL_S = 15 * 60.0
BATCH_MAX = 100
CHUNK_SIZE_MAX = 240 * 1024
"""Of one batch to a destination; the rest of 256 KB is for the envelope."""
LEFT_MAX = 10_000
LOCK_MARGIN: Millis = 5_000
"""A send is not begun this shortly before the lock ends: the message would come again."""

REASON_NOT_A_TRANSFER = "TransferPropertiesInvalid"
REASON_NOT_FOUND = "TransferDestinationNotFound"
REASON_REFUSED = "TransferRefused"

Group = list[tuple[Taken, Transfer]]


class Pump:
    """`wait` sleeps for some milliseconds and returns early, with False, when the pump is to stop."""

    def __init__(
        self,
        queue: str,
        transport: SyphonTransport,
        classifier: Classifier,
        rate_cap: RateCap,
        clock: Clock,
        wait: Callable[[Millis], bool],
        on_event: Callable[[PairingEvent], None],
    ) -> None:
        self.queue = queue
        self._transport = transport
        self._classifier = classifier
        self._rate_cap = rate_cap
        self._clock = clock
        self._wait = wait
        self._on_event = on_event
        self._destinations: dict[str, Destination] = {}
        self._retry_after = RETRY_MIN

    def run(self) -> None:
        """Passes until `wait` says stop. What a pass took and did not move is given back at the end."""
        while self._wait(0):
            if self.do_pass(LONG_POLL_S):
                self._retry_after = RETRY_MIN
            elif self._wait(self._retry_after):
                self._retry_after = min(RETRY_MAX, 2 * self._retry_after)

    def do_pass(self, poll_s: float) -> bool:
        """Take, move, settle. False if nothing came of it and an immediate next pass would be the same."""
        try:
            taken = self._transport.receive(BATCH_MAX, poll_s)
        except Exception as error:
            self._tell(EventKind.SYPHON_SKIPPED, None, 0, error)
            return False
        if not taken:
            return True
        received_at = self._clock.now()
        groups, did_settle = self._group(sorted(taken, key=lambda each: each.sequence_number))
        if not self._wait(0):
            self._give_back(taken)
            return True
        is_new = self._note_arrivals(groups)
        moved = [self._move_group(path, group, received_at) for path, group in groups.items()]
        return did_settle or any(moved) or (is_new and self._left_count() < LEFT_MAX)

    def _group(self, taken: Sequence[Taken]) -> tuple[dict[str, Group], bool]:
        """By destination, in order; True if one was dead-lettered because it has none."""
        groups: dict[str, Group] = {}
        did_settle = False
        for each in taken:
            if isinstance(each.content, NotATransfer):
                self._dead_letter(each, None, REASON_NOT_A_TRANSFER, each.content)
                did_settle = True
            else:
                groups.setdefault(each.content.path, []).append((each, each.content))
        return groups, did_settle

    def _note_arrivals(self, groups: dict[str, Group]) -> bool:
        """True if one of them was not seen before."""
        came_again = [
            self._destination(path).came_again(taken.sequence_number)
            for path, group in groups.items()
            for taken, _ in group
        ]
        return not all(came_again)

    def _move_group(self, path: str, group: Group, received_at: Millis) -> bool:
        """Send what may go, leave the rest. True if a message was moved or dead-lettered."""
        destination = self._destination(path)
        barrier = destination.barrier(received_at, self._clock.now())
        behind = [each for each in group if each[0].sequence_number >= barrier]
        group = group[: len(group) - len(behind)]
        if behind:
            self._leave(path, behind, None)
        sent = 0
        while sent < len(group):
            chunk = _cut(group[sent:], destination.cut)
            try:
                self._send(path, chunk)
            except Exception as error:
                kind = self._classifier(error)
                if kind.is_of_the_message and len(chunk) > 1:
                    destination.cut = Cut(min(destination.cut + 1, Cut.SINGLE))
                    continue
                if not _is_final(kind):
                    destination.failed(self._clock.now())
                    self._leave(path, group[sent:], error)
                    return sent > 0
                self._refuse(path, chunk, kind, error)
            else:
                destination.accepted()
                self._complete(path, chunk)
            sent += len(chunk)
        return sent > 0

    def _send(self, path: str, chunk: Group) -> None:
        self._wait(self._rate_cap.reserve(len(chunk), self._clock.now()))
        if min(taken.locked_until for taken, _ in chunk) < self._clock.now() + LOCK_MARGIN:
            raise TimeoutError("The locks end too soon to send these messages now.")
        self._transport.send(path, [transfer for _, transfer in chunk])

    def _complete(self, path: str, chunk: Group) -> None:
        try:
            self._transport.complete([taken for taken, _ in chunk])
        except Exception as error:  # they are at home; those whose lock was lost come again and are sent twice
            self._tell(EventKind.SYPHON_MOVED, path, len(chunk), error)
        else:
            self._tell(EventKind.SYPHON_MOVED, path, len(chunk), None)

    def _refuse(self, path: str, chunk: Group, kind: FailureKind, error: Exception) -> None:
        reason = REASON_NOT_FOUND if kind is FailureKind.NOT_FOUND else REASON_REFUSED
        for taken, _ in chunk:
            self._dead_letter(taken, path, reason, error)

    def _dead_letter(self, taken: Taken, path: str | None, reason: str, error: Exception) -> None:
        description = str(error) if path is None else f"Destination '{path}': {error}"
        try:
            self._transport.dead_letter(taken, reason, description)
        except Exception as failure:  # its lock ends and it comes again
            self._tell(EventKind.SYPHON_SKIPPED, path, 1, failure)
        else:
            self._tell(EventKind.SYPHON_DEAD_LETTERED, path, 1, error)

    def _leave(self, path: str, group: Group, error: Exception | None) -> None:
        destination = self._destination(path)
        for taken, _ in group:
            destination.leave(taken.sequence_number, taken.locked_until)
        self._tell(EventKind.SYPHON_SKIPPED, path, len(group), error)

    def _give_back(self, taken: Sequence[Taken]) -> None:
        try:
            self._transport.abandon(taken)
        except Exception as error:  # their locks end by themselves
            self._tell(EventKind.SYPHON_SKIPPED, None, len(taken), error)

    def _destination(self, path: str) -> Destination:
        return self._destinations.setdefault(path, Destination())

    def _left_count(self) -> int:
        return sum(len(each.left) for each in self._destinations.values())

    def _tell(self, kind: EventKind, path: str | None, count: int, error: BaseException | None) -> None:
        self._on_event(PairingEvent(kind, self._clock.now(), path, self.queue, count, error))


def _is_final(kind: FailureKind) -> bool:
    """The destination will never take it: it is gone, or the message is not acceptable."""
    return kind is FailureKind.NOT_FOUND or kind.is_of_the_message


def _cut(group: Group, cut: Cut) -> Group:
    """The first chunk of a group: what one batch may hold by its size and by the cut.

    A run of one key and not all of that key: taking later ones would overtake those between.
    """
    count, size = 1, group[0][1].size
    key = group[0][1].key
    for _, transfer in group[1:]:
        size += transfer.size
        if size > CHUNK_SIZE_MAX or cut is Cut.SINGLE or (cut is Cut.BY_KEY and transfer.key != key):
            break
        count += 1
    return group[:count]
