"""The links of one connection and what each of them is bound to."""

from typing import TypeAlias

from twinbus.amqp.link import Link
from twinbus.gateway.coordinator import CoordinatorBinding
from twinbus.gateway.pending_session import PendingSession
from twinbus.gateway.receiver_binding import ReceiverBinding
from twinbus.gateway.request_binding import RequestBinding
from twinbus.gateway.response_links import ResponseLink
from twinbus.gateway.sender_binding import SenderBinding

Binding: TypeAlias = (
    SenderBinding | ReceiverBinding | RequestBinding | ResponseLink | PendingSession | CoordinatorBinding
)

EntityBinding: TypeAlias = SenderBinding | ReceiverBinding | PendingSession
"""Those that stand for an entity and not for a node."""

Bindings: TypeAlias = dict[Link, Binding]
