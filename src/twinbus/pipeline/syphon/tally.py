"""What the pump of one lane did, from its events: in total for the report, and in the present pass for the lane."""

from twinbus.pairing.events import EventKind, PairingEvent
from twinbus.pairing.failures import FailureKind, classify
from twinbus.pairing.syphon.pump import LockTooShort
from twinbus.pipeline.syphon.reports import DestinationTally

ERROR_LENGTH_MAX = 500


class LaneTally:
    def __init__(self) -> None:
        self.destinations: dict[str | None, DestinationTally] = {}
        self.error: str | None = None
        self.moved = 0
        self.begin_pass()

    def begin_pass(self) -> None:
        self.moved_in_pass = 0
        self.has_outage = False
        self.is_backlog_down = False

    def count(self, event: PairingEvent) -> None:
        if event.error is not None:
            self.error = str(event.error)[:ERROR_LENGTH_MAX]
        if event.kind is EventKind.SYPHON_SKIPPED and event.path is None and event.count == 0:
            self.is_backlog_down = True
            return
        each = self.destinations.setdefault(event.path, DestinationTally())
        if event.kind is EventKind.SYPHON_MOVED:
            each.moved += event.count
            self.moved += event.count
            self.moved_in_pass += event.count
        elif event.kind is EventKind.SYPHON_DEAD_LETTERED:
            each.dead_lettered += event.count
        elif event.kind is EventKind.SYPHON_SKIPPED:
            each.left += event.count
            self._count_failure(each, event.error)

    def _count_failure(self, each: DestinationTally, error: BaseException | None) -> None:
        if error is None or isinstance(error, LockTooShort):
            return
        kind = classify(error)
        if kind.is_outage:
            each.outages += 1
            self.has_outage = True
        elif kind is FailureKind.BUSY:
            each.throttled += 1
