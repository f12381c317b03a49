"""A client's link to a `$cbs` or `$management` node: requests in, replies out on the paired link."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from twinbus.amqp.codec.delivery_state import ACCEPTED, DeliveryState, Rejected, TransactionalState
from twinbus.amqp.events import Incoming
from twinbus.amqp.incoming_link import IncomingLink
from twinbus.clock import Millis
from twinbus.errors import MessagingError
from twinbus.gateway.nodes.coordinator import in_transaction
from twinbus.gateway.nodes.request_message import ReplyNames, Request, Response, encode_response, read_request
from twinbus.gateway.nodes.response_links import ResponseLink
from twinbus.gateway.requests.call import Respond

CREDIT = 500

Handle = Callable[[Request, Millis, Respond], None]
FindResponseLink = Callable[[IncomingLink, str, str | None], ResponseLink | None]


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
                request = replace(request, txn_id=delivery.state.txn_id)
            self._settle(delivery, answer)
            self._handle(request, now, self._respond_to(request))

    def _settle(self, delivery: Incoming, state: DeliveryState) -> None:
        if not delivery.settled:
            self._link.settle(delivery.delivery_id, delivery.delivery_id, state)

    def _respond_to(self, request: Request) -> Respond:
        def respond(response: Response) -> None:
            # Looked for when the answer is there: some clients attach the reply link after the first request.
            link = self._find(self._link, self.node, request.reply_to)
            if link is not None:
                link.send(encode_response(response, request.message_id, self._names))
                self._wake()

        return respond
