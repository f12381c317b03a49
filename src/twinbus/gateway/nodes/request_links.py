"""A client's two links to a `$cbs` or `$management` node: requests in on one, replies out on the other.

The links belong together when they are on the same AMQP session and the request's `reply-to` is the reply link's target
address or name; a client that gives no `reply-to` has one reply link for the node there.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace

from twinbus.amqp.codec.delivery_state import ACCEPTED, DeliveryState, Rejected, TransactionalState
from twinbus.amqp.codec.terminus import Target
from twinbus.amqp.events import Incoming
from twinbus.amqp.incoming_link import IncomingLink
from twinbus.amqp.link import Link
from twinbus.amqp.outgoing_link import OutgoingLink
from twinbus.clock import Millis
from twinbus.errors import MessagingError, QuotaExceeded
from twinbus.gateway.nodes.coordinator import in_transaction
from twinbus.gateway.nodes.request_message import ReplyNames, Request, Response, encode_response, read_request
from twinbus.gateway.requests.call import Respond

CREDIT = 500
WAITING_MAX = 1_000
WAITING_BYTES_MAX = 64 * 1024 * 1024
"""Of replies that wait for credit, over all links of a connection; a single reply may be larger."""

Handle = Callable[[Request, Millis, Respond], None]
FindResponseLink = Callable[[IncomingLink, str, str | None], "ResponseLink | None"]


class RequestBinding:
    __slots__ = ("_find", "_handle", "_link", "_names", "_wake", "node")

    def __init__(
        self,
        link: IncomingLink,
        node: str,
        names: ReplyNames,
        handle: Handle,
        find: FindResponseLink,
        wake: Callable[[], None],
    ) -> None:
        self.node = node
        self._link = link
        self._names = names
        self._handle = handle
        self._find = find
        self._wake = wake

    def receive(self, deliveries: Sequence[Incoming], now: Millis) -> None:
        for delivery in deliveries:
            try:
                request = read_request(delivery.payload)
            except MessagingError as error:
                self._settle(delivery, Rejected.because(error))
                continue
            answer: DeliveryState = ACCEPTED
            if isinstance(delivery.state, TransactionalState):
                answer = in_transaction(delivery.state, ACCEPTED)
                request = replace(request, txn_id=delivery.state.txn_id, session=self._link.session)
            self._settle(delivery, answer)
            self._handle(request, now, self._respond_to(request))

    def _settle(self, delivery: Incoming, state: DeliveryState) -> None:
        if not delivery.settled:
            self._link.settle(delivery.delivery_id, delivery.delivery_id, state)

    def _respond_to(self, request: Request) -> Respond:
        def respond(response: Response) -> None:
            # Not before the answer is there: some clients attach the reply link after the first request.
            link = self._find(self._link, self.node, request.reply_to)
            if link is not None:
                link.send(encode_response(response, request.message_id, self._names))
                self._wake()

        return respond


class ResponseLink:
    """Replies wait here until the client gives credit. They are sent settled: no client settles them reliably."""

    __slots__ = ("_link", "_sent_count", "_size_of_all", "_waiting", "node", "waiting_bytes")

    def __init__(self, link: OutgoingLink, node: str, size_of_all: Callable[[], int]) -> None:
        """`size_of_all`: bytes that wait on all such links of the connection."""
        self.node = node
        self._size_of_all = size_of_all
        self._link = link
        self._waiting: deque[bytes] = deque()
        self.waiting_bytes = 0
        self._sent_count = 0

    def send(self, payload: bytes) -> None:
        if self._link.credit <= 0 and self._is_too_much(len(payload)):
            self._give_up()
            return
        self._waiting.append(payload)
        self.waiting_bytes += len(payload)
        self.flush()

    def _is_too_much(self, size: int) -> bool:
        waiting_size = self._size_of_all()
        return len(self._waiting) >= WAITING_MAX or (waiting_size > 0 and waiting_size + size > WAITING_BYTES_MAX)

    def _give_up(self) -> None:
        count, size = len(self._waiting), self.waiting_bytes
        self._waiting.clear()
        self.waiting_bytes = 0
        self._link.detach(
            QuotaExceeded(f"{count} replies of {size} bytes wait for credit on this link. Give it credit.")
        )

    def flush(self) -> None:
        while self._waiting and self._link.credit > 0:
            self._sent_count += 1
            tag = (self._sent_count & 0xFFFFFFFF).to_bytes(4, "big")
            payload = self._waiting.popleft()
            self.waiting_bytes -= len(payload)
            self._link.transfer(payload, tag, settled=True)

    def is_named(self, reply_to: str) -> bool:
        target = self._link.target
        return self._link.name == reply_to or (isinstance(target, Target) and target.address == reply_to)

    def is_on_session_of(self, link: Link) -> bool:
        return self._link.session is link.session

    def credit_changed(self, now: Millis) -> None:
        self.flush()
        if self._link.is_draining:
            self._link.drained()


def find_response_link(
    candidates: list[ResponseLink], request_link: Link, node: str, reply_to: str | None
) -> ResponseLink | None:
    """None if the client has not attached one: then the reply is dropped."""
    found = [each for each in candidates if each.node == node and each.is_on_session_of(request_link)]
    if reply_to is not None:
        for each in found:
            if each.is_named(reply_to):
                return each
    return found[0] if found else None
