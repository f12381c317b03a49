"""Decides what a link that a client attaches is bound to: an address and rights in, a binding out.

role of the client   address                binding
sender               $cbs, .../$management  RequestBinding, paired with a ResponseLink
sender               queue or topic         SenderBinding               needs Send
receiver             $cbs, .../$management  ResponseLink
receiver             queue or subscription  ReceiverBinding             needs Listen
receiver with a session filter              PendingSession, and a ReceiverBinding once a session is locked
"""

from collections.abc import Callable, MutableMapping
from dataclasses import dataclass
from typing import TypeAlias

from twinbus.amqp.incoming_link import IncomingLink
from twinbus.amqp.link import Link
from twinbus.amqp.outgoing_link import OutgoingLink
from twinbus.amqp.performatives import SenderSettleMode
from twinbus.amqp.terminus import Coordinator, Source
from twinbus.broker.entities import Entities
from twinbus.broker.message_queue import MessageQueue
from twinbus.broker.receiver import ReceiveMode, SessionLock
from twinbus.broker.replies import Waiter
from twinbus.clock import Millis
from twinbus.errors import ArgumentError, MessagingError, NotAllowed, NotImplementedHere, Unauthorized
from twinbus.gateway.addresses import CBS, Node, parse_address, resolve, strip_authority
from twinbus.gateway.authorization import AccessRules, Grants
from twinbus.gateway.cbs_node import CbsNode
from twinbus.gateway.management_node import ASSOCIATED_LINK, ManagementNode
from twinbus.gateway.operations import Respond
from twinbus.gateway.receiver_binding import ReceiverBinding
from twinbus.gateway.request_binding import CREDIT as REQUEST_CREDIT
from twinbus.gateway.request_binding import RequestBinding
from twinbus.gateway.requests import CBS_NAMES, MANAGEMENT_NAMES, ReplyNames, Request, text_of
from twinbus.gateway.response_links import ResponseLink, find_response_link
from twinbus.gateway.sender_binding import CREDIT as SENDER_CREDIT
from twinbus.gateway.sender_binding import SenderBinding
from twinbus.gateway.session_attach import (
    has_session_filter,
    session_properties,
    session_source,
    wait_of,
    wanted_session,
)
from twinbus.gateway.traffic import Traffic
from twinbus.management.control_plane import ControlPlane
from twinbus.model.descriptions import Right

REQUEST_SIZE_FACTOR = 4


@dataclass(frozen=True, slots=True)
class NamespaceView:
    """What all connections of a namespace share."""

    entities: Entities
    control: ControlPlane
    rules: AccessRules
    traffic: Traffic
    message_size_max: int
    new_id: Callable[[], str]


class PendingSession:
    """A receiver link whose attach is held back until a message session is free."""

    __slots__ = ("path", "waiter")

    def __init__(self, path: str) -> None:
        self.path = path
        self.waiter: Waiter | None = None

    def unbind(self, now: Millis) -> None:
        if self.waiter is not None:
            self.waiter.cancel()


Binding: TypeAlias = SenderBinding | ReceiverBinding | RequestBinding | ResponseLink | PendingSession


class Attachment:
    """Makes and remembers the bindings of one connection."""

    def __init__(
        self,
        namespace: NamespaceView,
        grants: Grants,
        bindings: MutableMapping[Link, Binding],
        wake: Callable[[], None],
    ) -> None:
        self._namespace = namespace
        self._grants = grants
        self._bindings = bindings
        self._wake = wake
        self._cbs = CbsNode(namespace.entities, namespace.rules, namespace.traffic)
        self._management = ManagementNode(grants, namespace.control, namespace.message_size_max, namespace.new_id)

    def bind(self, link: Link, now: Millis) -> Binding:
        """Accept the link, now or once a session is free. Raises MessagingError where it has to be refused."""
        address = _address_of(link)
        if isinstance(link, IncomingLink):
            binding = self._bind_incoming(link, address, now)
        else:
            assert isinstance(link, OutgoingLink)
            binding = self._bind_outgoing(link, address, now)
        self._bindings.setdefault(link, binding)
        return binding

    def is_authorized(self, binding: Binding, now: Millis) -> bool:
        """Whether the tokens that are still good allow this link."""
        try:
            if isinstance(binding, SenderBinding):
                self._grants.require(Right.SEND, binding.path, now)
            elif isinstance(binding, ReceiverBinding | PendingSession):
                self._grants.require(Right.LISTEN, binding.path, now)
        except Unauthorized:
            return False
        return True

    def tick(self, now: Millis) -> None:
        self._management.tick(now)

    def _bind_incoming(self, link: IncomingLink, address: str, now: Millis) -> Binding:
        node_name = strip_authority(address).lower()
        if node_name == CBS:
            return self._bind_requests(link, node_name, address, CBS_NAMES, self._answer_cbs)
        parsed = parse_address(address)
        if parsed.is_management:
            self._require_any_right(address, now)
            node = resolve(self._namespace.entities, parsed)
            return self._bind_requests(link, node_name, address, MANAGEMENT_NAMES, self._management_of(node, address))
        path = strip_authority(address)
        self._grants.require(Right.SEND, path, now)
        target = resolve(self._namespace.entities, parsed).target
        if target is None:
            raise NotAllowed(f"Messages cannot be sent to '{path}': send to its queue or topic.")
        link.accept(max_message_size=self._namespace.message_size_max, credit=SENDER_CREDIT)
        return SenderBinding(
            link,
            target,
            path,
            self._namespace.traffic.of(parsed.entity_path),
            message_size_max=self._namespace.message_size_max,
            new_id=self._namespace.new_id,
            wake=self._wake,
        )

    def _bind_outgoing(self, link: OutgoingLink, address: str, now: Millis) -> Binding:
        node_name, parsed = strip_authority(address).lower(), parse_address(address)
        if node_name == CBS or parsed.is_management:
            if parsed.is_management:
                self._require_any_right(address, now)
                resolve(self._namespace.entities, parsed)
            link.accept()
            return ResponseLink(link, node_name)
        path = strip_authority(address)
        self._grants.require(Right.LISTEN, path, now)
        queue = resolve(self._namespace.entities, parsed).queue
        if queue is None:
            raise NotAllowed(f"'{path}' is a topic: receive from one of its subscriptions.")
        source = link.source
        assert source is not None
        if has_session_filter(source):
            return self._wait_for_session(link, source, queue, path, now)
        binding = self._receiver(link, queue, path, None)
        queue.attach(binding, now)
        link.accept()
        binding.credit_changed(now)
        return binding

    def _receiver(
        self, link: OutgoingLink, queue: MessageQueue, path: str, session: SessionLock | None
    ) -> ReceiverBinding:
        is_settled = link.snd_settle_mode is SenderSettleMode.SETTLED
        mode = ReceiveMode.RECEIVE_AND_DELETE if is_settled else ReceiveMode.PEEK_LOCK
        traffic = self._namespace.traffic.of(parse_address(path).entity_path)
        return ReceiverBinding(link, queue, path, mode, session, traffic, self._wake)

    def _wait_for_session(
        self, link: OutgoingLink, source: Source, queue: MessageQueue, path: str, now: Millis
    ) -> Binding:
        if not queue.requires_session:
            raise NotAllowed(f"'{path}' has no message sessions: receive from it without a session.")
        wanted = wanted_session(source)
        pending = PendingSession(path)
        self._bindings[link] = pending

        def reply(result: SessionLock | MessagingError) -> None:
            if self._bindings.get(link) is not pending:
                if isinstance(result, SessionLock):
                    queue.release_session(result, now)
                return
            del self._bindings[link]
            if isinstance(result, MessagingError):
                link.refuse(result)
            else:
                self._open_session(link, source, queue, path, result, now)
            self._wake()

        pending.waiter = queue.accept_session(wanted, now + wait_of(link.properties), now, reply)
        return pending

    def _open_session(
        self, link: OutgoingLink, source: Source, queue: MessageQueue, path: str, lock: SessionLock, now: Millis
    ) -> None:
        binding = self._receiver(link, queue, path, lock)
        try:
            queue.attach(binding, now)
        except MessagingError as error:
            queue.release_session(lock, now)
            link.refuse(error)
            return
        self._bindings[link] = binding
        link.accept(source=session_source(source, lock), properties=session_properties(lock))
        # Its credit came while the attach was held back.
        binding.credit_changed(now)

    def _bind_requests(
        self,
        link: IncomingLink,
        node_name: str,
        address: str,
        names: ReplyNames,
        handle: Callable[[Request, Millis, Respond], None],
    ) -> Binding:
        # A request holds whole messages and more, and its refusal should be the operation's own.
        size_max = REQUEST_SIZE_FACTOR * self._namespace.message_size_max
        link.accept(max_message_size=size_max, credit=REQUEST_CREDIT)
        return RequestBinding(link, node_name, address, names, handle, self._find_response_link, self._wake)

    def _find_response_link(self, link: Link, node: str, reply_to: str | None) -> ResponseLink | None:
        candidates = [binding for binding in self._bindings.values() if isinstance(binding, ResponseLink)]
        return find_response_link(candidates, link, node, reply_to)

    def _answer_cbs(self, request: Request, now: Millis, respond: Respond) -> None:
        respond(self._cbs.answer(request, self._grants, now))

    def _management_of(self, node: Node, address: str) -> Callable[[Request, Millis, Respond], None]:
        path = strip_authority(address)
        traffic = self._namespace.traffic.of(node.path)

        def handle(request: Request, now: Millis, respond: Respond) -> None:
            traffic.requests += 1
            session = self._session_of(text_of(request.properties.get(ASSOCIATED_LINK)))
            self._management.handle(request, node, path, session, now, respond)

        return handle

    def _session_of(self, link_name: str) -> SessionLock | None:
        if link_name:
            for link, binding in self._bindings.items():
                if isinstance(binding, ReceiverBinding) and link.name == link_name:
                    return binding.session
        return None

    def _require_any_right(self, address: str, now: Millis) -> None:
        path = strip_authority(address)
        if not self._grants.rights_on(path, now):
            raise Unauthorized(f"No valid token for '{path}'. Put one on $cbs before attaching to it.")


def _address_of(link: Link) -> str:
    if isinstance(link.target, Coordinator):
        raise NotImplementedHere("Transactions are not supported by this version.")
    terminus = link.target if isinstance(link, IncomingLink) else link.source
    if terminus is None or not isinstance(terminus.address, str) or not terminus.address:
        raise ArgumentError("The link has no address: name a queue, topic, subscription or node.")
    return str(terminus.address)
