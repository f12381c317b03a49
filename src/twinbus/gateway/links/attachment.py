"""Decides what a link that a client attaches is bound to: an address and rights in, a binding out.

role of the client   address                binding
sender               $cbs, .../$management  RequestBinding, paired with a ResponseLink
sender               queue or topic         SenderBinding               needs Send
receiver             $cbs, .../$management  ResponseLink
receiver             queue or subscription  ReceiverBinding             needs Listen
receiver with a session filter              PendingSession, and a ReceiverBinding once a session is locked
"""

from collections.abc import Callable
from functools import partial

from twinbus.amqp.codec.terminus import Coordinator, Source
from twinbus.amqp.codec.terminus import Target as TargetTerminus
from twinbus.amqp.codec.types import Long, Symbol, Value
from twinbus.amqp.incoming_link import IncomingLink
from twinbus.amqp.link import Link
from twinbus.amqp.outgoing_link import OutgoingLink
from twinbus.broker.consumer import SessionLock
from twinbus.broker.target import Target, WayIn
from twinbus.clock import Millis
from twinbus.errors import ArgumentError, MessagingError, NotAllowed
from twinbus.gateway.addresses import resolve
from twinbus.gateway.authorization import Grants
from twinbus.gateway.links.bindings import Bindings
from twinbus.gateway.links.link_meter import LinkMeters
from twinbus.gateway.links.receiver_attach import ReceiverAttach
from twinbus.gateway.links.receiver_binding import ReceiverBinding
from twinbus.gateway.links.sender_binding import CREDIT as SENDER_CREDIT
from twinbus.gateway.links.sender_binding import SenderBinding
from twinbus.gateway.namespace_view import NamespaceView
from twinbus.gateway.nodes.cbs_node import CbsNode
from twinbus.gateway.nodes.coordinator import CREDIT as COORDINATOR_CREDIT
from twinbus.gateway.nodes.coordinator import SIZE_MAX as COORDINATOR_SIZE_MAX
from twinbus.gateway.nodes.coordinator import CoordinatorBinding, Transactions
from twinbus.gateway.nodes.management_node import ASSOCIATED_LINK, ManagementNode, timeout_of
from twinbus.gateway.nodes.read_turns import ReadTurns
from twinbus.gateway.nodes.request_links import CREDIT as REQUEST_CREDIT
from twinbus.gateway.nodes.request_links import Handle, RequestBinding, ResponseLink, find_response_link
from twinbus.gateway.nodes.request_message import CBS_NAMES, MANAGEMENT_NAMES, ReplyNames, Request, Response, text_of
from twinbus.gateway.nodes.transaction_homes import TransactionHomes
from twinbus.gateway.requests.call import Respond
from twinbus.gateway.requests.handlers import BRINGS_MESSAGES
from twinbus.model import wire_names
from twinbus.model.descriptions import Right
from twinbus.model.message_limits import BATCH_SIZE_MAX, HEADER_SIZE_MAX, MESSAGE_SIZE_MAX
from twinbus.model.paths import CBS, Address, parse_address, strip_authority

REQUEST_SIZE_MIN = 4 * MESSAGE_SIZE_MAX
TOKEN_SIZE_MAX = 64 * 1024
"""A request that brings a token; those of known issuers are below 20 KB."""
TRANSFER_DESTINATION = Symbol(wire_names.TRANSFER_DESTINATION_ADDRESS)
BATCH_SIZE = Symbol(wire_names.BATCH_SIZE_MAX)


class Attachment:
    """Creates the bindings of one connection."""

    def __init__(
        self,
        namespace: NamespaceView,
        grants: Grants,
        bindings: Bindings,
        wake: Callable[[], None],
    ) -> None:
        self._namespace = namespace
        self._grants = grants
        self._bindings = bindings
        self._wake = wake
        self._homes = TransactionHomes(namespace.entities)
        self._transactions = Transactions(self._homes, namespace.new_transaction, namespace.transaction_room)
        self.reads = ReadTurns()
        self._meters = LinkMeters(namespace.book)
        self._receivers = ReceiverAttach(
            bindings, namespace.traffic, self._meters, self._transactions, self._homes, wake
        )
        self._cbs = CbsNode(namespace.entities, namespace.rules, namespace.traffic, namespace.web_tokens)
        # What is passed on must not refer to this: only the collector would free it when the connection is gone.
        self._management = ManagementNode(grants, namespace, self._transactions, partial(_is_held, bindings))

    def bind(self, link: Link, now: Millis) -> None:
        """Accept the link, now or once a message session is free. Raises MessagingError if it must be refused."""
        if isinstance(link, IncomingLink) and isinstance(link.target, Coordinator):
            # Needs no right: what is done in a transaction is done on links that needed theirs.
            link.accept(max_message_size=COORDINATOR_SIZE_MAX, credit=COORDINATOR_CREDIT, is_for_requests=True)
            self._homes.control_link_attached(link)
            self._bindings[link] = CoordinatorBinding(link, self._transactions, self._wake)
            return
        address = _address_of(link)
        if isinstance(link, IncomingLink):
            self._bind_incoming(link, address, now)
        else:
            assert isinstance(link, OutgoingLink)
            self._bind_outgoing(link, address, now)

    def opened_by(self, who: str) -> None:
        """What the client called itself."""
        self._meters.who = who

    def tick(self, now: Millis) -> None:
        self._management.tick(now)
        self.reads.tick(now)

    def clock_stepped(self, by: Millis) -> None:
        self._management.clock_stepped(by)
        self.reads.clock_stepped(by)
        self._receivers.clock_stepped(by)

    def pause(self) -> None:
        self.reads.pause()

    def resume(self, now: Millis) -> None:
        self.reads.resume(now)

    def _bind_incoming(self, link: IncomingLink, address: str, now: Millis) -> None:
        parsed, node_name = parse_address(address), strip_authority(address).lower()
        if node_name == CBS:
            link.accept(max_message_size=TOKEN_SIZE_MAX, credit=REQUEST_CREDIT, is_for_requests=True)
            self._bind_requests(link, node_name, CBS_NAMES, self._answer_cbs)
        elif parsed.is_management:
            self._grants.require_any(strip_authority(address), now)
            node = resolve(self._namespace.entities, parsed)
            handle = self._management_of(parsed, strip_authority(address))
            # A request holds whole messages and more, and the handler should be the one to refuse it.
            size_max = max(REQUEST_SIZE_MIN, node.message_size_max + HEADER_SIZE_MAX)
            link.accept(max_message_size=size_max, credit=REQUEST_CREDIT, is_for_requests=True)
            self._bind_requests(link, node_name, MANAGEMENT_NAMES, handle)
        else:
            self._bind_sender(link, parsed, strip_authority(address), now)

    def _bind_sender(self, link: IncomingLink, address: Address, path: str, now: Millis) -> None:
        self._grants.require(Right.SEND, path, now)
        node = resolve(self._namespace.entities, address)
        if node.target is None:
            raise NotAllowed(f"Messages cannot be sent to '{path}': send to its queue or topic.")
        destination = link.properties.get(TRANSFER_DESTINATION)
        target: WayIn = node.target
        properties: dict[Symbol, Value] = {}
        size_max = node.message_size_max
        if destination is not None:
            target, destination_size_max = self._via(node.target, destination, now)
            properties[TRANSFER_DESTINATION] = destination
            size_max = min(size_max, destination_size_max)
        # A long: of the SDKs that read it, that of .NET takes no other integer.
        properties[BATCH_SIZE] = Long(min(size_max, BATCH_SIZE_MAX))
        # SDKs fill a batch with messages up to the limit, and not all of them count what they put around it.
        link.accept(
            max_message_size=size_max, size_allowance=HEADER_SIZE_MAX, credit=SENDER_CREDIT, properties=properties
        )
        self._bindings[link] = SenderBinding(
            link,
            node,
            target,
            path,
            self._namespace.traffic.of(node.path),
            self._meters.of(node),
            self._transactions,
            now=now,
            message_size_max=size_max,
            new_id=self._namespace.new_id,
            wake=self._wake,
        )
        self._homes.attached(link, address, is_sender=True)

    def _via(self, target: Target, destination: Value, now: Millis) -> tuple[WayIn, int]:
        """Where messages go that are sent via this entity, and how large they may be at their destination. The sender
        needs the right to send to both."""
        path = strip_authority(text_of(destination))
        self._grants.require(Right.SEND, path, now)
        node = resolve(self._namespace.entities, parse_address(path))
        if node.target is None:
            raise NotAllowed(f"Messages cannot be sent to '{path}': send to its queue or topic.")
        return target.via(path), node.message_size_max

    def _bind_outgoing(self, link: OutgoingLink, address: str, now: Millis) -> None:
        parsed, path = parse_address(address), strip_authority(address)
        if path.lower() == CBS or parsed.is_management:
            if parsed.is_management:
                self._grants.require_any(path, now)
                resolve(self._namespace.entities, parsed)
            link.accept()
            self._bindings[link] = ResponseLink(link, path.lower(), self.replies_size)
            return
        self._grants.require(Right.LISTEN, path, now)
        self._receivers.bind(link, resolve(self._namespace.entities, parsed), path, now)

    def _bind_requests(self, link: IncomingLink, node_name: str, names: ReplyNames, handle: Handle) -> None:
        find, wake = self._find_response_link, self._wake
        self._bindings[link] = RequestBinding(link, node_name, names, handle, find, wake)

    def replies_size(self) -> int:
        """Bytes of the replies that wait for credit."""
        return sum(each.waiting_bytes for each in self._bindings.values() if isinstance(each, ResponseLink))

    def _find_response_link(self, link: Link, node: str, reply_to: str | None) -> ResponseLink | None:
        candidates = [binding for binding in self._bindings.values() if isinstance(binding, ResponseLink)]
        return find_response_link(candidates, link, node, reply_to)

    def _answer_cbs(self, request: Request, now: Millis, respond: Respond) -> None:
        self._cbs.answer(request, self._grants, now, respond)

    def _management_of(self, address: Address, path: str) -> Handle:
        def handle(request: Request, now: Millis, respond: Respond) -> None:
            self._namespace.traffic.of(address.entity_path).requests += 1
            # In a transaction it cannot wait: the commit may be the next thing that the client sends.
            if request.operation in BRINGS_MESSAGES and request.txn_id is None:
                self.reads.ask(partial(serve, request), now, now + timeout_of(request), respond)
            else:
                serve(request, now, respond)

        def serve(request: Request, now: Millis, respond: Respond) -> None:
            try:
                # For each request, not once for the link: the entity may be deleted and created again meanwhile.
                node = resolve(self._namespace.entities, address)
            except MessagingError as error:
                respond(Response.failed(error))
                return
            named = self._receiver_named(text_of(request.properties.get(ASSOCIATED_LINK)))
            self._management.handle(request, node, path, named, self._meters.of(node), now, respond)

        return handle

    def _receiver_named(self, link_name: str) -> ReceiverBinding | None:
        if link_name:
            for link, binding in self._bindings.items():
                if isinstance(binding, ReceiverBinding) and link.name == link_name:
                    return binding
        return None


def _is_held(bindings: Bindings, lock: SessionLock) -> bool:
    return any(isinstance(each, ReceiverBinding) and each.session is lock for each in bindings.values())


def _address_of(link: Link) -> str:
    terminus = link.target if isinstance(link, IncomingLink) else link.source
    if (
        not isinstance(terminus, Source | TargetTerminus)
        or not isinstance(terminus.address, str)
        or not terminus.address
    ):
        raise ArgumentError("The link has no address. Name a queue, topic, subscription or node.")
    return str(terminus.address)
