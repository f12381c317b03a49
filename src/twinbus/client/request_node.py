"""Requests to the nodes `$cbs` and `<entity>/$management`: an operation and a value out, a status and a value back."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import count
from typing import Any, TypeAlias
from uuid import uuid4

from twinbus.amqp.codec.delivery_state import ACCEPTED, Rejected
from twinbus.amqp.codec.sections import MessageProperties, Sections, ValueBody, decode_sections, encode_sections
from twinbus.amqp.codec.terminus import Source, Target
from twinbus.amqp.codec.types import Value
from twinbus.amqp.events import Deliveries, Dispositions, Event, Incoming
from twinbus.amqp.incoming_link import IncomingLink
from twinbus.amqp.outgoing_link import OutgoingLink
from twinbus.client.connecting.wire import Wire
from twinbus.client.remote_errors import error_named, error_of
from twinbus.errors import MessagingError, OperationTimeout

_CREDIT = 100
_NO_CONTENT = 204


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    description: str
    condition: str
    body: Any

    @property
    def fields(self) -> dict[str, Any]:
        """The body, which is a map; empty if there is no content."""
        return {} if self.status == _NO_CONTENT or not self.body else dict(self.body)

    def require_ok(self) -> "Answer":
        if 200 <= self.status < 300:
            return self
        raise error_named(self.condition, self.description or f"The request failed with status {self.status}.")


Ask: TypeAlias = Callable[[str, str, dict[str, Value]], Awaitable[Answer]]
"""Sends a request to the node of an entity: path, operation and body in, the answer out."""


class RequestNode:
    """A pair of links to one node. Requests may overlap: answers are matched by correlation id."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._reply_to = f"replies-{uuid4().hex}"
        self._ids = count(1)
        self._waiting: dict[str, asyncio.Future[Answer]] = {}
        self._requests: OutgoingLink | None = None
        self.fault: MessagingError | None = None

    @classmethod
    async def attach(cls, wire: Wire, address: str, timeout_s: float) -> "RequestNode":
        node = cls(wire)
        # Both in one session: the peer looks for the response link there.
        session = await wire.begin(timeout_s)
        responses = await wire.attach(
            node,
            session,
            node._reply_to,
            timeout_s,
            is_sender=False,
            source=Source(address=address),
            target=Target(address=node._reply_to),
        )
        assert isinstance(responses, IncomingLink)
        responses.keep_credit(_CREDIT)
        requests = await wire.attach(
            node,
            session,
            f"requests-{uuid4().hex}",
            timeout_s,
            is_sender=True,
            source=Source(address=node._reply_to),
            target=Target(address=address),
        )
        assert isinstance(requests, OutgoingLink)
        node._requests = requests
        return node

    async def ask(self, properties: dict[str, Value], body: Value, timeout_s: float) -> Answer:
        """Raises OperationTimeout, or the error that ended the link. A refusal is an answer: see `require_ok`."""
        if self.fault is not None:
            raise self.fault
        assert self._requests is not None
        message_id = str(next(self._ids))
        payload = encode_sections(
            Sections(
                properties=MessageProperties(message_id=message_id, reply_to=self._reply_to),
                application_properties=properties,
                body=ValueBody(body),
            )
        )
        answer = self._waiting[message_id] = asyncio.get_running_loop().create_future()
        self._requests.transfer(payload, message_id.encode())
        self._wire.flush_soon()
        try:
            return await asyncio.wait_for(answer, timeout_s)
        except TimeoutError:
            raise OperationTimeout(f"The request was not answered within {timeout_s:g} s. Try again.") from None
        finally:
            self._waiting.pop(message_id, None)

    def link_event(self, event: Event) -> None:
        if isinstance(event, Deliveries):
            for delivery in event.deliveries:
                self._answered(delivery)
                if not delivery.settled:
                    event.link.settle(delivery.delivery_id, delivery.delivery_id, ACCEPTED)
        elif isinstance(event, Dispositions) and isinstance(event.state, Rejected):
            # The request was not read, for example because it is too large: there will be no answer.
            for _, tag in event.deliveries:
                _fail(self._waiting.get(tag.decode()), error_of(event.state.error))

    def link_lost(self, error: MessagingError) -> None:
        # The second of the two links ends because the first one did.
        self.fault = self.fault or error
        for answer in self._waiting.values():
            _fail(answer, error)

    def _answered(self, delivery: Incoming) -> None:
        sections = decode_sections(delivery.payload)
        properties = sections.properties or MessageProperties()
        waiting = self._waiting.get(str(properties.correlation_id))
        if waiting is None or waiting.done():
            return
        fields = {str(name): value for name, value in (sections.application_properties or {}).items()}
        waiting.set_result(
            Answer(
                status=_number(fields.get("statusCode", fields.get("status-code"))),
                description=str(fields.get("statusDescription", fields.get("status-description")) or ""),
                condition=str(fields.get("errorCondition") or "amqp:internal-error"),
                body=sections.body.value if isinstance(sections.body, ValueBody) else None,
            )
        )


def _fail(answer: "asyncio.Future[Answer] | None", error: MessagingError) -> None:
    if answer is not None and not answer.done():
        answer.set_exception(error)


def _number(value: Value) -> int:
    return int(value) if isinstance(value, int) else 0
