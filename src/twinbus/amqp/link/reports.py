"""Events that wait to be read, and the two kinds of them that grow while frames of the same kind follow each other.

Hundreds of transfers of one link stand behind each other in one read, and clients that settle one
message per frame send as many dispositions: each such run is one event.
"""

from typing import TYPE_CHECKING

from twinbus.amqp.codec.delivery_state import DeliveryState
from twinbus.amqp.events import Deliveries, Dispositions, Event, Incoming

if TYPE_CHECKING:
    from twinbus.amqp.link.incoming_link import IncomingLink
    from twinbus.amqp.link.outgoing_link import OutgoingLink


class Reports:
    def __init__(self) -> None:
        self._events: list[Event] = []
        self.runs: list[Deliveries] = []
        """Deliveries since the last `take`: whoever counts them does it per run."""
        self.link: IncomingLink | None = None
        """The link whose deliveries are the last event, and can be added to `deliveries`."""
        self.deliveries: list[Incoming] = []
        self._dispositions: Dispositions | None = None
        self.ranged_count = 0
        """Deliveries that dispositions with a range were about since the last `take`, one counted as often as named."""

    def add(self, event: Event) -> None:
        self.link = None
        self._dispositions = None
        self._events.append(event)

    def add_delivery(self, link: "IncomingLink", delivery: Incoming) -> None:
        if self.link is link:
            self.deliveries.append(delivery)
            return
        run = Deliveries(link, [delivery])
        self.add(run)
        self.runs.append(run)
        self.link = link
        self.deliveries = run.deliveries

    def add_disposition(
        self,
        link: "OutgoingLink | IncomingLink",
        delivery: tuple[int, bytes],
        state: DeliveryState | None,
        settled: bool,
    ) -> None:
        last = self._dispositions
        if (
            last is not None
            and last.link is link
            and last.settled is settled
            and (last.state is state or last.state == state)
        ):
            last.deliveries.append(delivery)
            return
        event = Dispositions(link, [delivery], state, settled)
        self.add(event)
        self._dispositions = event

    def take(self) -> list[Event]:
        events, self._events = self._events, []
        self.runs.clear()
        self.ranged_count = 0
        self.link = None
        self._dispositions = None
        return events
