"""Sending and receiving: the service's REST API, in front of the administration API.

POST   /{entity}/messages                          send one message or a batch       Send     201
DELETE /{entity}/messages/head?timeout=S           receive and delete                Listen   200, or 204 for none
POST   /{entity}/messages/head?timeout=S           lock the next message             Listen   201, or 204 for none
DELETE /{entity}/messages/{id or number}/{token}   complete                          Listen   200
PUT    /{entity}/messages/{id or number}/{token}   unlock                            Listen   200
POST   /{entity}/messages/{id or number}/{token}   renew the lock                    Listen   200

An entity that does not exist is answered with 410 and a lock that is gone with 404, as the service documents it. Callers
without the right get 401 whether the entity exists or not. Any other request goes to the application behind this one.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Collection, Iterator
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import quote
from uuid import UUID

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from twinbus.broker.consumer import ReceiveMode, TakenMessage
from twinbus.broker.outcomes import COMPLETE, Abandon, Outcome
from twinbus.broker.replies import Reply
from twinbus.broker.source import Source
from twinbus.clock import Clock
from twinbus.errors import (
    EntityNotFound,
    FragmentUnavailable,
    MessageLockLost,
    MessageTooLarge,
    MessagingError,
    NotAllowed,
    OperationTimeout,
    ServerBusy,
    SessionLockLost,
)
from twinbus.gateway.addresses import EntityNode, is_current, resolve
from twinbus.gateway.links.link_meter import LinkMeter
from twinbus.gateway.namespace_view import NamespaceView
from twinbus.http.access import Answer, HttpAccess
from twinbus.http.messaging.cased_headers import request_headers
from twinbus.http.messaging.message_content import (
    http_message,
    is_batch,
    payload_of_request,
    payloads_of_batch,
    read_timeout,
)
from twinbus.http.messaging.single_receive import SingleReceive
from twinbus.http.pace import Pace
from twinbus.http.refusals import XmlResponder
from twinbus.http.request_body import Bodies
from twinbus.management.waiting import answer_of, reply_to
from twinbus.meter.operation import Cause, who_of_agent
from twinbus.model.descriptions import Right
from twinbus.model.message import Message, check_batch_size, read_message
from twinbus.model.message_limits import BATCH_SIZE_MAX, MESSAGE_SIZE_MAX
from twinbus.model.paths import parse_address

RECEIVES_MAX = 5_000
UNDER_WAY_WAIT_S = 10.0
READING_WAIT_S = 1.0
ANSWER_WAIT_S = 60.0
BATCH_BODY_FACTOR = 6
"""A byte of a body takes up to six in JSON; the messages of the batch are measured after they are read."""

_ENTITY = r"/(?P<entity>.+)/messages"
# Without that in the message a long path is read once, and not once more for each place where the entity may end.
_LOCK = r"/(?P<message>(?:(?!/messages/).)+)/(?P<token>[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})"
MESSAGES = re.compile(rf"{_ENTITY}/?", re.IGNORECASE | re.DOTALL)
HEAD = re.compile(rf"{_ENTITY}/head/?", re.IGNORECASE | re.DOTALL)
LOCKED = re.compile(rf"{_ENTITY}{_LOCK}/?", re.IGNORECASE | re.DOTALL)

# Where messages are sent and received, the service uses other statuses for these than elsewhere.
STATUSES: tuple[tuple[type[MessagingError], int], ...] = (
    (EntityNotFound, 410),
    (MessageLockLost, 404),
    (SessionLockLost, 404),
)


class Asked(NamedTuple):
    """A request whose caller has the right that its operation needs."""

    request: Request
    path: str
    node: EntityNode
    lock_token: bytes  # b"" where the path has none


class HttpOperation(NamedTuple):
    method: str
    path: re.Pattern[str]
    right: Right
    perform: Callable[[Asked], Awaitable[Response]]


class MessagingApi:
    """An ASGI application that answers what it knows and leaves the rest to the one behind it."""

    def __init__(
        self, namespace: NamespaceView, access: HttpAccess, clock: Clock, bodies: Bodies, behind: ASGIApp
    ) -> None:
        self._namespace = namespace
        self._bodies = bodies
        self._access = access
        self._clock = clock
        self._behind = behind
        self._responder = XmlResponder(namespace.new_id, clock, STATUSES)
        self._waiting: set[SingleReceive] = set()
        receive_and_delete = partial(self._receive, mode=ReceiveMode.RECEIVE_AND_DELETE)
        lock = partial(self._receive, mode=ReceiveMode.PEEK_LOCK)
        self.operations = (
            HttpOperation("POST", MESSAGES, Right.SEND, self._send),
            HttpOperation("DELETE", HEAD, Right.LISTEN, receive_and_delete),
            HttpOperation("POST", HEAD, Right.LISTEN, lock),
            HttpOperation("DELETE", LOCKED, Right.LISTEN, partial(self._settle, outcome=COMPLETE)),
            HttpOperation("PUT", LOCKED, Right.LISTEN, partial(self._settle, outcome=Abandon())),
            HttpOperation("POST", LOCKED, Right.LISTEN, self._renew),
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        respond = self._find(scope) if scope["type"] == "http" else None
        if respond is None:
            await self._behind(scope, receive, send)
        else:
            await self._responder.answer(scope, receive, send, respond)

    def close(self) -> None:
        """Answer every request that waits for a message that there is none: the server stops."""
        for receive in list(self._waiting):
            receive.give_up(self._clock.now())

    def _find(self, scope: Scope) -> Answer | None:
        for operation in self.operations:
            if scope["method"] == operation.method and (found := operation.path.fullmatch(scope["path"])) is not None:
                return partial(self._perform, operation, found)
        return None

    async def _perform(self, operation: HttpOperation, found: re.Match[str], request: Request) -> Response:
        path = found["entity"]
        # Rights come first: without one, nobody learns which entities exist.
        self._access.require(request, path.strip("/"), operation.right)
        node = resolve(self._namespace.entities, parse_address(path))
        token = found.groupdict().get("token")
        return await operation.perform(Asked(request, path, node, UUID(token).bytes_le if token else b""))

    def _meter(self, request: Request, node: EntityNode) -> LinkMeter:
        return LinkMeter.of(self._namespace.book, node, who_of_agent(request.headers.get("user-agent", "")))

    async def _send(self, asked: Asked) -> Response:
        request, path, node, _ = asked
        if node.target is None:
            raise NotAllowed(f"Messages cannot be sent to '{path}': send to its queue or topic.")
        size_max, now = node.message_size_max, self._clock.now()
        headers = request_headers(request.scope)
        traffic = self._namespace.traffic.of(node.path)
        body_size_max = BATCH_BODY_FACTOR * min(size_max, BATCH_SIZE_MAX) if is_batch(headers) else size_max
        async with self._bodies.read(request, body_size_max, MessageTooLarge) as body:
            given = (
                payloads_of_batch(body, now) if is_batch(headers) else iter((payload_of_request(headers, body, now),))
            )
            messages, size = await self._read_messages(path, given, size_max)
            send_batch = node.target.send_batch
            self._namespace.light_sent()
            try:
                numbers = await _answer(
                    lambda reply: send_batch(messages, self._clock.now(), reply),
                    read_timeout(request.query_params.get("timeout")),
                )
            except MessagingError:
                traffic.refused += len(messages)
                raise
        traffic.messages_in += len(messages)
        traffic.bytes_in += size
        assert isinstance(numbers, list)
        self._meter(request, node).sent(messages, numbers)
        return Response(status_code=201)

    async def _read_messages(self, path: str, given: Iterator[bytes], size_max: int) -> tuple[list[Message], int]:
        """The messages and their bytes. A full batch takes a tenth of a second, which is shared with everybody else."""
        payloads, messages, size, pace = list[bytes](), list[Message](), 0, Pace()
        for payload in given:
            payloads.append(payload)
            size += len(payload)
            if size > size_max:
                break
            await pace.rest()
        check_batch_size(path, payloads, size_max)
        for payload in payloads:
            messages.append(read_message(payload, self._namespace.new_id))
            await pace.rest()
        return messages, size

    async def _receive(self, asked: Asked, mode: ReceiveMode) -> Response:
        request, path, node, _ = asked
        queue = _queue(asked)
        timeout_s = read_timeout(request.query_params.get("timeout"))
        # The server reports that the client has gone only after the body, so the body is read even though it means nothing.
        async with self._bodies.read(request, MESSAGE_SIZE_MAX, MessageTooLarge):
            pass
        delivery = await self._receive_one(request, queue, mode, timeout_s)
        meter = self._meter(request, node)
        if delivery is None:
            meter.counted(Cause.EMPTY_RECEIVE)
            if not is_current(self._namespace.entities, node):
                raise EntityNotFound.at(node.path)
            return Response(status_code=204)
        meter.handed_out([delivery.message])
        message = http_message(delivery)
        traffic = self._namespace.traffic.of(node.path)
        traffic.messages_out += 1
        traffic.bytes_out += len(message.body)
        response = Response(message.body, 201 if delivery.lock_token else 200)
        response.raw_headers += [(name.encode(), text.encode()) for name, text in message.headers]
        if delivery.lock_token:
            token = UUID(bytes_le=delivery.lock_token)
            place = f"{quote(path, safe='/$')}/messages/{delivery.message.sequence_number}/{token}"
            response.headers["location"] = f"{request.base_url}{place}"
        return response

    async def _receive_one(
        self, request: Request, queue: Source, mode: ReceiveMode, timeout_s: float
    ) -> TakenMessage | None:
        if len(self._waiting) >= RECEIVES_MAX:
            raise ServerBusy(f"{RECEIVES_MAX} requests are waiting for messages, which is the limit. Try again later.")
        answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        receive = SingleReceive(queue, mode, reply_to(answered))
        self._waiting.add(receive)
        leaving = asyncio.ensure_future(request.receive())
        try:
            receive.start(self._clock.now())
            await asyncio.wait((answered, leaving), timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
            await _while_reading(queue, (answered, leaving))
            has_left = leaving.done()
            receive.give_up(self._clock.now())
            await asyncio.wait((answered,), timeout=UNDER_WAY_WAIT_S)
            if not answered.done():
                raise FragmentUnavailable("The messaging store did not answer in time. Try again later.")
            delivery: TakenMessage | MessagingError | None = answered.result()
            if isinstance(delivery, MessagingError):
                raise delivery
            if has_left and delivery is not None:
                receive.return_message(delivery, self._clock.now())
                raise ClientDisconnect
            return delivery
        finally:
            leaving.cancel()
            self._waiting.discard(receive)
            receive.finish(self._clock.now())

    async def _settle(self, asked: Asked, outcome: Outcome) -> Response:
        request, _, node, token = asked
        queue = _queue(asked)
        await _answer(lambda reply: queue.settle([token], outcome, self._clock.now(), reply), ANSWER_WAIT_S)
        self._namespace.traffic.of(node.path).settled += 1
        self._meter(request, node).counted(Cause.SETTLE, messages=1)
        return Response(status_code=200)

    async def _renew(self, asked: Asked) -> Response:
        request, _, node, token = asked
        queue = _queue(asked)
        await _answer(lambda reply: queue.renew([token], self._clock.now(), reply), ANSWER_WAIT_S)
        self._meter(request, node).counted(Cause.RENEW, messages=1)
        return Response(status_code=200)


def _queue(asked: Asked) -> Source:
    if asked.node.queue is None:
        raise NotAllowed(f"'{asked.path}' is a topic: receive from one of its subscriptions.")
    return asked.node.queue


async def _while_reading(queue: Source, ends: Collection["asyncio.Future[Any]"]) -> None:
    """Messages that a store is reading count as there, even for a caller that does not want to wait for new ones."""
    is_read: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    queue.after_reading(partial(reply_to(is_read), None))
    await asyncio.wait((is_read, *ends), timeout=READING_WAIT_S, return_when=asyncio.FIRST_COMPLETED)


async def _answer(ask: Callable[[Reply[Any]], None], timeout_s: float) -> object:
    late = OperationTimeout("The operation was not finished in time and may still happen. Check, or try again.")
    return await answer_of(ask, max(timeout_s, 1.0), late)
