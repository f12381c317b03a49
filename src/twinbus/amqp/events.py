"""What a connection reports to its application: values, in the order in which the peer caused them.

By the time an event is read, the connection may be ahead of it (for example, a later frame of the same burst may have
detached the link). Calls on a link that is gone are therefore not errors: they do nothing. Every link that was
reported ends in exactly one `LinkDetached`, whatever ended it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from twinbus.amqp.codec.delivery_state import DeliveryState
from twinbus.amqp.codec.error_condition import ErrorCondition
from twinbus.amqp.codec.performatives import Open

if TYPE_CHECKING:
    from twinbus.amqp.incoming_link import IncomingLink
    from twinbus.amqp.link import Link
    from twinbus.amqp.outgoing_link import OutgoingLink
    from twinbus.amqp.session import Session


class Incoming(NamedTuple):
    """One complete message."""

    delivery_id: int
    delivery_tag: bytes
    payload: bytes
    message_format: int
    settled: bool
    state: DeliveryState | None


@dataclass(frozen=True, slots=True)
class SaslInit:
    """Server: the peer chose one of our mechanisms. Answer with `connection.sasl_outcome`."""

    mechanism: str
    initial_response: bytes
    hostname: str | None


@dataclass(frozen=True, slots=True)
class Opened:
    """The peer's open has arrived and ours is sent."""

    open: Open


@dataclass(frozen=True, slots=True)
class SessionBegun:
    session: "Session"


@dataclass(frozen=True, slots=True)
class LinkAttached:
    """The peer attached a link. Answer with `link.accept` or `link.refuse`, now or later."""

    link: "Link"


@dataclass(frozen=True, slots=True)
class LinkOpened:
    """The peer accepted a link that we attached."""

    link: "Link"


@dataclass(frozen=True, slots=True)
class Deliveries:
    """Messages that arrived on a link one after the other, without anything else in between."""

    link: "IncomingLink"
    deliveries: list[Incoming]


@dataclass(frozen=True, slots=True)
class OversizeDelivery:
    """A message over the link's size limit, or one without room in memory, was read and dropped. Settle it as any other,
    usually as rejected."""

    link: "IncomingLink"
    delivery_id: int
    delivery_tag: bytes
    size: int
    settled: bool
    is_over_limit: bool
    """Else there was no room for it: it may be sent again."""


@dataclass(frozen=True, slots=True)
class CreditChanged:
    """The peer's flow for a link. With `drain`, send what is available and then call `link.drained()`.

    On an incoming link: the sender answered our drain; `credit` is what is left, usually 0.
    """

    link: "Link"
    credit: int
    drain: bool
    is_news: bool = True  # False: no new flow, but credit that was granted before can be used now


@dataclass(frozen=True, slots=True)
class Dispositions:
    """The peer's state for deliveries of a link, as (delivery-id, delivery-tag).

    On an outgoing link: if not `settled`, the peer waits for `link.confirm`. On an incoming one it is
    the sender's answer to `link.update`.
    """

    link: "OutgoingLink | IncomingLink"
    deliveries: list[tuple[int, bytes]]
    state: DeliveryState | None
    settled: bool


@dataclass(frozen=True, slots=True)
class LinkDetached:
    """The link is gone, with its unsettled deliveries. `error` is the peer's, or a `FaultOfPeer`; of the two below as well."""

    link: "Link"
    closed: bool
    error: ErrorCondition | None


@dataclass(frozen=True, slots=True)
class SessionEnded:
    """The session is gone; its links were reported before."""

    session: "Session"
    error: ErrorCondition | None


@dataclass(frozen=True, slots=True)
class ConnectionClosed:
    """Nothing further will come. Links and sessions were reported before."""

    error: ErrorCondition | None


Event: TypeAlias = (
    SaslInit
    | Opened
    | SessionBegun
    | LinkAttached
    | LinkOpened
    | Deliveries
    | OversizeDelivery
    | CreditChanged
    | Dispositions
    | LinkDetached
    | SessionEnded
    | ConnectionClosed
)


class Reports:
    """Events that wait to be read.

    Hundreds of transfers of one link follow each other in one read, and clients that settle one message per
    frame send as many dispositions. Each such run becomes one event, which grows while the run lasts.
    """

    def __init__(self) -> None:
        self._events: list[Event] = []
        self.runs: list[Deliveries] = []
        """Deliveries since the last `take`, so that they can be counted per run."""
        self.link: IncomingLink | None = None
        """The link whose deliveries are the last event, and can be added to `deliveries`."""
        self.deliveries: list[Incoming] = []
        self._dispositions: Dispositions | None = None
        self.ranged_count = 0
        """Deliveries that dispositions with a range named since the last `take`, each counted every time it is named."""
        self.ranged_count_max = 0
        """As many of them as there is time for in this call."""
        self.rest: Callable[[], None] | None = None
        """Takes more of a range of which there was no time for all. Nothing else is read before."""

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

    def add_deliveries(self, link: "IncomingLink", deliveries: list[Incoming]) -> None:
        """At least one."""
        if self.link is not link:
            self.add_delivery(link, deliveries.pop(0))
        self.deliveries += deliveries

    def dispositions_of(
        self, link: "OutgoingLink | IncomingLink", state: DeliveryState | None, settled: bool
    ) -> list[tuple[int, bytes]]:
        """Where to add those of this link with this state, until anything else is added."""
        last = self._dispositions
        if (
            last is not None
            and last.link is link
            and last.settled is settled
            and (last.state is state or last.state == state)
        ):
            return last.deliveries
        event = Dispositions(link, [], state, settled)
        self.add(event)
        self._dispositions = event
        return event.deliveries

    def add_disposition(
        self,
        link: "OutgoingLink | IncomingLink",
        delivery: tuple[int, bytes],
        state: DeliveryState | None,
        settled: bool,
    ) -> None:
        self.dispositions_of(link, state, settled).append(delivery)

    def take(self) -> list[Event]:
        events, self._events = self._events, []
        self.runs.clear()
        self.ranged_count = 0
        self.link = None
        self._dispositions = None
        return events
