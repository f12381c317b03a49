"""The links of one connection, what each is bound to, and when a binding ends: token expired, entity deleted, link idle."""

from typing import NamedTuple, TypeAlias

from twinbus.amqp.errors import DETACH_FORCED, LinkFault
from twinbus.amqp.link import Link
from twinbus.clock import NEVER, Millis
from twinbus.errors import EntityNotFound, MessagingError, TokenExpired
from twinbus.gateway.addresses import EntityNode, resolve
from twinbus.gateway.authorization import Grants, covers
from twinbus.gateway.links.receiver_binding import ReceiverBinding
from twinbus.gateway.links.sender_binding import SenderBinding
from twinbus.gateway.links.session_attach import PendingSession
from twinbus.gateway.namespace_view import NamespaceView
from twinbus.gateway.nodes.coordinator import CoordinatorBinding
from twinbus.gateway.nodes.request_links import RequestBinding, ResponseLink
from twinbus.model.descriptions import Right
from twinbus.model.paths import path_key

Binding: TypeAlias = (
    SenderBinding | ReceiverBinding | RequestBinding | ResponseLink | PendingSession | CoordinatorBinding
)

EntityBinding: TypeAlias = SenderBinding | ReceiverBinding | PendingSession
"""Those bound to an entity rather than to a node."""

Bindings: TypeAlias = dict[Link, Binding]

LOOK_EVERY: Millis = 1_000
IDLE_MAX: Millis = 600_000


class _Place(NamedTuple):
    """What is at a path now, and what the client may do there."""

    node: EntityNode | None
    may_send: bool
    may_listen: bool


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
        places: dict[str, _Place] = {}  # looked at once, because a client may have ten thousand links to a single one
        for link, binding in list(self._bindings.items()):
            if isinstance(binding, EntityBinding):
                key = path_key(binding.path)
                place = places.get(key)
                if place is None:
                    place = places[key] = self._look_at(binding, now)
                error = _fault_of(binding, place, now)
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

    def _look_at(self, binding: EntityBinding, now: Millis) -> _Place:
        path, allows = binding.path, self._grants.allows
        try:
            node = resolve(self._namespace.entities, binding.node.address)
        except EntityNotFound:
            node = None
        return _Place(node, allows(Right.SEND, path, now), allows(Right.LISTEN, path, now))


def _fault_of(binding: EntityBinding, place: _Place, now: Millis) -> MessagingError | None:
    if place.node is None or not place.node.is_same(binding.node):
        return EntityNotFound.at(binding.path)
    if not (place.may_send if isinstance(binding, SenderBinding) else place.may_listen):
        return TokenExpired("The token for this link has expired. Put a new one on $cbs and attach again.")
    if not isinstance(binding, PendingSession) and binding.is_idle_since(now - IDLE_MAX):
        minutes = IDLE_MAX // 60_000
        return LinkFault(f"The link was not used for {minutes} minutes. Attach again when you need it.", DETACH_FORCED)
    return None


def unbind(binding: Binding, now: Millis) -> None:
    """The link is gone: release what it held."""
    if isinstance(binding, ReceiverBinding | PendingSession | CoordinatorBinding):
        binding.unbind(now)
