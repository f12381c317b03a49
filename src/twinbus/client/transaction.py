"""Transactions of the bulk client: a control link and the operations that name a transaction (AMQP 1.0 part 4).

    async with namespace.transaction() as transaction:
        await transaction.complete(receiver, orders)
        await transaction.send(sender, invoices)

Leaving the block commits; leaving it by an exception rolls back. See `twinbus.transactions`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import count
from types import TracebackType
from uuid import uuid4

from twinbus.amqp.codec.composites import to_described
from twinbus.amqp.codec.delivery_state import (
    ACCEPTED,
    Accepted,
    Declared,
    DeliveryState,
    Outcome,
    Rejected,
    TransactionalState,
)
from twinbus.amqp.codec.sections import Sections, ValueBody, encode_sections
from twinbus.amqp.codec.terminus import Coordinator, Declare, Discharge, Source
from twinbus.amqp.codec.types import Value
from twinbus.amqp.events import Dispositions, Event
from twinbus.amqp.outgoing_link import OutgoingLink
from twinbus.client.connecting.wire import Wire
from twinbus.client.outcomes import abandoned, dead_lettered, deferred
from twinbus.client.received_message import ReceivedMessage
from twinbus.client.receiver import Receiver
from twinbus.client.remote_errors import ConnectionLost, error_of
from twinbus.client.sender import Sender
from twinbus.errors import InternalError, MessagingError, NotAllowed, OperationTimeout

LOCAL_TRANSACTIONS = "amqp:local-transactions"


class ControlLink:
    """Declares and discharges transactions; any number of them may be open at a time."""

    def __init__(self, wire: Wire, timeout_s: float) -> None:
        self._wire = wire
        self._timeout_s = timeout_s
        self._link: OutgoingLink | None = None
        self._tags = count(1)
        self._waiting: dict[int, asyncio.Future[DeliveryState | None]] = {}
        self.fault: MessagingError | None = None

    @classmethod
    async def attach(cls, wire: Wire, timeout_s: float) -> "ControlLink":
        control = cls(wire, timeout_s)
        link = await wire.attach(
            control,
            await wire.begin(timeout_s),
            f"transactions-{uuid4().hex}",
            timeout_s,
            is_sender=True,
            source=Source(),
            target=Coordinator(capabilities=(LOCAL_TRANSACTIONS,)),
        )
        assert isinstance(link, OutgoingLink)
        control._link = link
        return control

    async def declare(self) -> bytes:
        state = await self._ask(Declare())
        if isinstance(state, Declared):
            return state.txn_id
        raise _refusal(state)

    async def discharge(self, txn_id: bytes, *, is_failed: bool) -> None:
        """Raises the reason if it could not be committed. After ConnectionLost it may have been."""
        state = await self._ask(Discharge(txn_id=txn_id, fail=is_failed))
        if not isinstance(state, Accepted):
            raise _refusal(state)

    async def _ask(self, request: Declare | Discharge) -> DeliveryState | None:
        if self.fault is not None:
            raise self.fault
        assert self._link is not None
        payload = encode_sections(Sections(body=ValueBody(to_described(request))))
        delivery_id = self._link.transfer(payload, b"%d" % next(self._tags))
        assert delivery_id is not None, "a link without a fault is attached"
        answer = self._waiting[delivery_id] = asyncio.get_running_loop().create_future()
        self._wire.flush_soon()
        try:
            return await asyncio.wait_for(answer, self._timeout_s)
        except TimeoutError:
            raise OperationTimeout(f"No answer about the transaction within {self._timeout_s:g} s.") from None
        finally:
            self._waiting.pop(delivery_id, None)

    def link_event(self, event: Event) -> None:
        if isinstance(event, Dispositions):
            for delivery_id, _ in event.deliveries:
                waiting = self._waiting.get(delivery_id)
                if waiting is not None and not waiting.done():
                    waiting.set_result(event.state)

    def link_lost(self, error: MessagingError) -> None:
        self.fault = error
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(error)


class Transaction:
    """Created by `Namespace.transaction`. Every operation raises the first refusal; what was refused is not part of the
    transaction, and the rest still is."""

    def __init__(self, control: Callable[[], Awaitable[ControlLink]]) -> None:
        self._open_control = control
        self._control: ControlLink | None = None
        self._txn_id: bytes | None = None

    async def __aenter__(self) -> "Transaction":
        self._control = await self._open_control()
        self._txn_id = await self._control.declare()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._txn_id is None:
            return
        if error is None:
            await self.commit()
            return
        try:
            await self.rollback()
        except MessagingError:
            # The namespace rolls back abandoned transactions by itself; the error in the block matters more.
            return

    async def send(self, sender: Sender, payloads: Sequence[bytes]) -> None:
        """Send encoded messages; nobody sees them before the commit, which also schedules those with a scheduled time."""
        state = TransactionalState(txn_id=self._require_open())
        _raise_first(await sender.submit(payloads, state).wait())

    async def complete(self, receiver: Receiver, messages: Sequence[ReceivedMessage]) -> None:
        await self._settle(receiver, messages, ACCEPTED)

    async def abandon(
        self, receiver: Receiver, messages: Sequence[ReceivedMessage], properties: Mapping[str, Value] | None = None
    ) -> None:
        await self._settle(receiver, messages, abandoned(properties))

    async def defer(
        self, receiver: Receiver, messages: Sequence[ReceivedMessage], properties: Mapping[str, Value] | None = None
    ) -> None:
        await self._settle(receiver, messages, deferred(properties))

    async def dead_letter(
        self,
        receiver: Receiver,
        messages: Sequence[ReceivedMessage],
        reason: str | None = None,
        description: str | None = None,
        properties: Mapping[str, Value] | None = None,
    ) -> None:
        await self._settle(receiver, messages, dead_lettered(reason, description, properties))

    async def commit(self) -> None:
        """Leaving the block does it too. Raises the reason if nothing was committed; then everything is rolled back.

        After ConnectionLost and OperationTimeout it may have been committed as a whole.
        """
        await self._discharge(is_failed=False)

    async def rollback(self) -> None:
        """Leaving the block with an exception does it too. Messages that were settled keep their locks."""
        await self._discharge(is_failed=True)

    async def _discharge(self, *, is_failed: bool) -> None:
        txn_id = self._require_open()
        self._txn_id = None
        assert self._control is not None
        await self._control.discharge(txn_id, is_failed=is_failed)

    async def _settle(self, receiver: Receiver, messages: Sequence[ReceivedMessage], outcome: Outcome) -> None:
        state = TransactionalState(txn_id=self._require_open(), outcome=outcome)
        _raise_first(await receiver.settle(messages, state))

    def _require_open(self) -> bytes:
        if self._txn_id is None:
            raise NotAllowed("This transaction is not open: it was committed or rolled back, or never entered.")
        return self._txn_id


def _raise_first(outcomes: Sequence[MessagingError | None]) -> None:
    for error in outcomes:
        if error is not None:
            raise error


def _refusal(state: DeliveryState | None) -> MessagingError:
    if isinstance(state, Rejected):
        return error_of(state.error) if state.error is not None else InternalError("The peer refused the transaction.")
    return ConnectionLost("The peer did not report the outcome of the transaction.")
