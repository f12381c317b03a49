"""The links of one connection and what each of them is bound to."""

from typing import TypeAlias

from twinbus.amqp.link import Link
from twinbus.gateway.links.pending_session import PendingSession
from twinbus.gateway.links.receiver_binding import ReceiverBinding
from twinbus.gateway.links.sender_binding import SenderBinding
from twinbus.gateway.nodes.coordinator import CoordinatorBinding
from twinbus.gateway.nodes.request_binding import RequestBinding
from twinbus.gateway.nodes.response_links import ResponseLink

Binding: TypeAlias = (
    SenderBinding | ReceiverBinding | RequestBinding | ResponseLink | PendingSession | CoordinatorBinding
)

EntityBinding: TypeAlias = SenderBinding | ReceiverBinding | PendingSession
"""Those that stand for an entity and not for a node."""

Bindings: TypeAlias = dict[Link, Binding]
