"""The `$management` node of every entity: requests in, replies out, by the handlers in `gateway.requests`.

The client says how long it waits (`com.microsoft:server-timeout`). A request that is not answered by then is answered with a
timeout, and a later answer of the broker is dropped.
"""

from collections.abc import Callable
from functools import partial

from twinbus.broker.consumer import SessionLock
from twinbus.clock import Millis
from twinbus.errors import MessagingError, NotAllowed, NotImplementedHere, OperationTimeout, ServerBusy
from twinbus.gateway.addresses import EntityNode
from twinbus.gateway.authorization import Grants
from twinbus.gateway.links.link_meter import LinkMeter
from twinbus.gateway.namespace_view import NamespaceView
from twinbus.gateway.nodes.coordinator import Transactions
from twinbus.gateway.nodes.request_message import Arguments, Request, Response
from twinbus.gateway.requests.call import Call, NamedReceiver, Respond
from twinbus.gateway.requests.handlers import HANDLERS, Handler, InTransaction
from twinbus.model import wire_names

ASSOCIATED_LINK = "associated-link-name"
TIMEOUT_DEFAULT: Millis = 60_000
PENDING_MAX = 5_000
"""Requests of one connection that wait for an answer."""


class PendingResponse:
    """Lets the first answer through and drops any later one."""

    __slots__ = ("_answered", "_respond", "deadline", "is_answered")

    def __init__(self, respond: Respond, deadline: Millis, answered: Callable[["PendingResponse"], None]) -> None:
        self._respond = respond
        self._answered = answered
        self.deadline = deadline
        self.is_answered = False

    def __call__(self, response: Response) -> None:
        if not self.is_answered:
            self.is_answered = True
            self._answered(self)
            self._respond(response)


class ManagementNode:
    """Serves the management requests of one connection."""

    def __init__(
        self,
        grants: Grants,
        namespace: NamespaceView,
        transactions: Transactions,
        is_held_here: Callable[[SessionLock], bool],
    ) -> None:
        """`is_held_here`: whether a receiver of the connection has a message session."""
        self._grants = grants
        self._namespace = namespace
        self._transactions = transactions
        self._is_held_here = is_held_here
        self._pending: set[PendingResponse] = set()

    def handle(
        self,
        request: Request,
        node: EntityNode,
        address: str,
        named: NamedReceiver | None,
        meter: LinkMeter,
        now: Millis,
        respond: Respond,
    ) -> None:
        """Call `respond` once. Tokens are checked for `address`; `named` is the receiver whose link the request names."""
        pending = PendingResponse(respond, now + timeout_of(request), self._pending.discard)
        try:
            if len(self._pending) >= PENDING_MAX:
                raise too_many_pending()
            handler = HANDLERS.get(request.operation)
            if handler is None:
                raise NotImplementedHere(f"'{request.operation}' is not an operation of this node. Check its name.")
            self._grants.require(handler.right, address, now)
            handler.run(self._call(request, handler, node, named, meter, now, pending))
        except MessagingError as error:
            pending(Response.failed(error))
        if not pending.is_answered:
            self._pending.add(pending)

    def _call(
        self,
        request: Request,
        handler: Handler,
        node: EntityNode,
        named: NamedReceiver | None,
        meter: LinkMeter,
        now: Millis,
        respond: Respond,
    ) -> Call:
        transaction = home = None
        if request.txn_id is not None:
            if handler.in_transaction is InTransaction.REFUSED:
                raise NotAllowed(f"'{request.operation}' cannot be part of a transaction. Ask for it outside one.")
            found = self._transactions.find(request.txn_id)
            if handler.in_transaction is InTransaction.TAKES_PART:
                assert request.session is not None
                transaction, home = found, self._transactions.home(request.txn_id, request.session)
        namespace = self._namespace
        return Call(
            node=node,
            arguments=Arguments.of(request),
            now=now,
            control=namespace.control,
            named=named,
            is_held_here=self._is_held_here,
            meter=meter,
            billed_as=handler.billed_as,
            new_id=namespace.new_id,
            respond=respond,
            require=lambda right, path: self._grants.require(right, path, now),
            transaction=transaction,
            home=home,
            after_commit=partial(self._transactions.after_commit, request.txn_id or b""),
            check_room=self._transactions.check_room,
        )

    def tick(self, now: Millis) -> None:
        for each in [each for each in self._pending if each.deadline <= now]:
            each(timed_out())

    def clock_stepped(self, by: Millis) -> None:
        for each in self._pending:
            each.deadline += by


def timed_out() -> Response:
    return Response.failed(OperationTimeout("The operation did not finish within its timeout. Try again."))


def too_many_pending() -> ServerBusy:
    return ServerBusy(f"{PENDING_MAX} requests of this connection wait for an answer. Try again later.")


def timeout_of(request: Request) -> Millis:
    timeout = request.properties.get(wire_names.SERVER_TIMEOUT)
    if isinstance(timeout, int) and timeout > 0:
        return min(timeout, TIMEOUT_DEFAULT)
    return TIMEOUT_DEFAULT
