"""Paired namespaces: an application keeps sending while its namespace is down.

`pair_namespaces` takes a primary and a secondary and returns a client whose senders fail over
to backlog queues in the secondary; a syphon brings the messages home. `twinbus.pairing.aio`
has the same for asyncio.
"""

from twinbus.pairing.courier import UNNUMBERED
from twinbus.pairing.errors import BacklogUnavailable, PairFaulted, PairingError
from twinbus.pairing.event_metrics import PairingMetrics
from twinbus.pairing.events import (
    Availability,
    BacklogQueueState,
    EntityState,
    EventKind,
    FragmentState,
    PairingEvent,
    PairState,
)
from twinbus.pairing.options import SendAvailabilityPairedNamespaceOptions
from twinbus.pairing.pair import PairedNamespaceClient, pair_namespaces
from twinbus.pairing.partnership import Partner
from twinbus.pairing.rewriting.preflight import ReservedPropertyError
from twinbus.pairing.sender import PairedSender
from twinbus.pairing.stock.failures import FailureKind, classify

__all__ = [
    "pair_namespaces",
    "PairedNamespaceClient",
    "PairedSender",
    "SendAvailabilityPairedNamespaceOptions",
    "PairState",
    "EntityState",
    "FragmentState",
    "BacklogQueueState",
    "Availability",
    "PairingEvent",
    "EventKind",
    "PairingMetrics",
    "FailureKind",
    "classify",
    "Partner",
    "PairingError",
    "PairFaulted",
    "BacklogUnavailable",
    "ReservedPropertyError",
    "UNNUMBERED",
]
