"""The links of one connection, what each is bound to, and when a binding ends: token expired, entity deleted, link idle."""

from typing import TypeAlias

from twinbus.amqp.errors import DETACH_FORCED, LinkFault
from twinbus.amqp.link import Link
from twinbus.clock import NEVER, Millis
from twinbus.errors import EntityNotFound, MessagingError, TokenExpired
from twinbus.gateway.addresses import is_current
from twinbus.gateway.authorization import Grants, covers
from twinbus.gateway.links.receiver_binding import ReceiverBinding
from twinbus.gateway.links.sender_binding import SenderBinding
from twinbus.gateway.links.session_attach import PendingSession
from twinbus.gateway.namespace_view import NamespaceView
from twinbus.gateway.nodes.coordinator import CoordinatorBinding
from twinbus.gateway.nodes.request_links import RequestBinding, ResponseLink
from twinbus.model.descriptions import Right

Binding: TypeAlias = (
    SenderBinding | ReceiverBinding | RequestBinding | ResponseLink | PendingSession | CoordinatorBinding
)

EntityBinding: TypeAlias = SenderBinding | ReceiverBinding | PendingSession
"""Those bound to an entity rather than to a node."""

Bindings: TypeAlias = dict[Link, Binding]

LOOK_EVERY: Millis = 1_000
IDLE_MAX: Millis = 600_000


class LinkWatch:
    def __init__(self, namespace: NamespaceView, grants: Grants, bindings: Bindings) -> None:
        self._namespace = namespace
        self._grants = grants
        self._bindings = bindings
        self._looked_at: Millis = 0
        self._next_expiry: Millis = NEVER

    def tick(self, now: Millis) -> None:
        if now < self._next_expiry and now - self._looked_at < LOOK_EVERY:
            return
        self._looked_at = now
        self._next_expiry = self._grants.next_expiry(now)
        for link, binding in list(self._bindings.items()):
            error = self._fault_of(binding, now) if isinstance(binding, EntityBinding) else None
            if error is not None:
                self._detach(link, binding, error, now)

    def clock_stepped(self, by: Millis) -> None:
        self._looked_at += by

    def force_detach(self, path: str, now: Millis) -> int:
        """Detach the links to an entity and everything below it, as the service does when an entity moves; returns how many."""
        fault = LinkFault("The link was detached by fault injection. Attach again.", DETACH_FORCED)
        found = [
            (link, binding)
            for link, binding in self._bindings.items()
            if isinstance(binding, EntityBinding) and covers(path, binding.path)
        ]
        for link, binding in found:
            self._detach(link, binding, fault, now)
        return len(found)

    def _detach(self, link: Link, binding: Binding, error: MessagingError, now: Millis) -> None:
        del self._bindings[link]
        unbind(binding, now)
        link.detach(error)

    def _fault_of(self, binding: EntityBinding, now: Millis) -> MessagingError | None:
        if not is_current(self._namespace.entities, binding.node):
            return EntityNotFound.at(binding.path)
        if not self._is_authorized(binding, now):
            return TokenExpired("The token for this link has expired. Put a new one on $cbs and attach again.")
        if not isinstance(binding, PendingSession) and binding.is_idle_since(now - IDLE_MAX):
            minutes = IDLE_MAX // 60_000
            return LinkFault(
                f"The link was not used for {minutes} minutes. Attach again when you need it.", DETACH_FORCED
            )
        return None

    def _is_authorized(self, binding: EntityBinding, now: Millis) -> bool:
        right = Right.SEND if isinstance(binding, SenderBinding) else Right.LISTEN
        return self._grants.allows(right, binding.path, now)


def unbind(binding: Binding, now: Millis) -> None:
    """The link is gone: release what it held."""
    if isinstance(binding, ReceiverBinding | PendingSession | CoordinatorBinding):
        binding.unbind(now)
