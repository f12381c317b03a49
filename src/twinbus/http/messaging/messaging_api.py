"""Sending and receiving over HTTP, the service's REST API, in front of the administration API.

POST   /{entity}/messages                          send one message or a batch       Send     201
DELETE /{entity}/messages/head?timeout=S           receive and delete                Listen   200, or 204 for none
POST   /{entity}/messages/head?timeout=S           lock the next message             Listen   201, or 204 for none
DELETE /{entity}/messages/{id or number}/{token}   complete                          Listen   200
PUT    /{entity}/messages/{id or number}/{token}   unlock                            Listen   200
POST   /{entity}/messages/{id or number}/{token}   renew the lock                    Listen   200

An entity that does not exist is answered with 410 and a lock that is gone with 404, as the service documents it. Who has
no right on the entity gets 401 and learns nothing else. Any other request goes to the application behind.
"""

import asyncio
import contextlib
import logging
import re
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any
from urllib.parse import quote
from uuid import UUID

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from twinbus.broker.consumer import ReceiveMode, TakenMessage
from twinbus.broker.entity.message_queue import MessageQueue
from twinbus.broker.outcomes import COMPLETE, Abandon, Outcome
from twinbus.broker.replies import Reply
from twinbus.clock import Clock
from twinbus.errors import (
    EntityNotFound,
    InternalError,
    MessageTooLarge,
    MessagingError,
    NotAllowed,
    OperationTimeout,
    ServerBusy,
    Unauthorized,
)
from twinbus.gateway.addresses import Node, is_current, resolve
from twinbus.gateway.links.link_meter import LinkMeter
from twinbus.gateway.namespace_view import NamespaceView
from twinbus.http.administration.administration_api import Authorize
from twinbus.http.messaging.cased_headers import request_headers
from twinbus.http.messaging.message_content import (
    http_message,
    is_batch,
    payload_of_request,
    payloads_of_batch,
    read_timeout,
)
from twinbus.http.messaging.single_receive import SingleReceive
from twinbus.http.refusals import refusal
from twinbus.meter.operation import Cause, who_of_agent
from twinbus.model.descriptions import Right
from twinbus.model.message import Message, read_message
from twinbus.model.paths import parse_address

log = logging.getLogger(__name__)

RECEIVES_MAX = 5_000
UNDER_WAY_WAIT_S = 10.0
READING_WAIT_S = 1.0
ANSWER_WAIT_S = 60.0
BATCH_BODY_FACTOR = 6
"""A byte of a body takes up to six in JSON; the batch itself is measured once it is read."""

MESSAGES = re.compile(r"/(?P<entity>.+)/messages(?P<head>/head)?/?", re.IGNORECASE | re.DOTALL)
LOCKED = re.compile(
    r"/(?P<entity>.+)/messages/(?P<message>.+)/(?P<token>[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})/?",
    re.IGNORECASE | re.DOTALL,
)


class HttpMessaging:
    """An ASGI application that answers what it knows and leaves the rest to the one behind it."""

    def __init__(self, namespace: NamespaceView, authorize: Authorize, clock: Clock, behind: ASGIApp) -> None:
        self._namespace = namespace
        self._authorize = authorize
        self._clock = clock
        self._behind = behind
        self._waiting: set[SingleReceive] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        handler = self._handler(scope) if scope["type"] == "http" else None
        if handler is None:
            await self._behind(scope, receive, send)
            return
        try:
            response = await self._respond(Request(scope, receive), handler)
        except ClientDisconnect:
            return
        await response(scope, receive, send)

    def close(self) -> None:
        """Tell everybody who waits for a message that there is none: the server stops."""
        for receive in list(self._waiting):
            receive.give_up()

    def _handler(self, scope: Scope) -> Callable[[Request], Any] | None:
        method = scope["method"]
        if (found := MESSAGES.fullmatch(scope["path"])) is not None:
            entity = found["entity"]
            if found["head"] is None:
                return (lambda request: self._send(request, entity)) if method == "POST" else None
            if method in ("POST", "DELETE"):
                mode = ReceiveMode.PEEK_LOCK if method == "POST" else ReceiveMode.RECEIVE_AND_DELETE
                return lambda request: self._receive(request, entity, mode)
        elif (found := LOCKED.fullmatch(scope["path"])) is not None and method in ("POST", "PUT", "DELETE"):
            entity, token = found["entity"], UUID(found["token"]).bytes_le
            if method == "POST":
                return lambda request: self._renew(request, entity, token)
            outcome = COMPLETE if method == "DELETE" else Abandon()
            return lambda request: self._settle(request, entity, token, outcome)
        return None

    async def _respond(self, request: Request, handler: Callable[[Request], Any]) -> Response:
        try:
            return await handler(request)  # type: ignore[no-any-return]
        except ClientDisconnect:
            raise
        except MessagingError as error:
            return refusal(error, self._namespace.new_id(), self._clock.now())
        except Exception:
            log.exception("messaging_failed method=%s", request.method)
            broken = InternalError("Something broke on our side. The log of the server says more.")
            return refusal(broken, self._namespace.new_id(), self._clock.now())

    def _node(self, request: Request, path: str, right: Right) -> Node:
        """What the path names, for somebody who has this right on it. Rights come first: names are not told to others."""
        token = request.headers.get("authorization", "")
        if not token:
            raise Unauthorized("The request has no Authorization header. Sign it with a shared access key.")
        self._authorize(token, path.strip("/"), right)
        return resolve(self._namespace.entities, parse_address(path))

    def _meter(self, request: Request, node: Node) -> LinkMeter:
        return LinkMeter.of(self._namespace.book, node, who_of_agent(request.headers.get("user-agent", "")))

    async def _send(self, request: Request, path: str) -> Response:
        node = self._node(request, path, Right.SEND)
        if node.target is None:
            raise NotAllowed(f"Messages cannot be sent to '{path}': send to its queue or topic.")
        size_max, now = self._namespace.message_size_max, self._clock.now()
        headers = request_headers(request.scope)
        traffic = self._namespace.traffic.of(node.path)
        if is_batch(headers):
            payloads = payloads_of_batch(await _read_body(request, BATCH_BODY_FACTOR * size_max), now)
        else:
            payloads = [payload_of_request(headers, await _read_body(request, size_max), now)]
        messages = self._messages(payloads)
        send_batch = node.target.send_batch
        try:
            numbers = await _answer(
                lambda reply: send_batch(messages, self._clock.now(), reply),
                read_timeout(request.query_params.get("timeout")),
            )
        except MessagingError:
            traffic.refused += len(messages)
            raise
        traffic.messages_in += len(messages)
        traffic.bytes_in += sum(map(len, payloads))
        assert isinstance(numbers, list)
        self._meter(request, node).sent(messages, numbers)
        return Response(status_code=201)

    def _messages(self, payloads: Sequence[bytes]) -> list[Message]:
        size, size_max = sum(map(len, payloads)), self._namespace.message_size_max
        if size > size_max:
            raise MessageTooLarge(
                f"With its properties this is {size} bytes; {size_max} are the limit. Send less at once."
            )
        return [read_message(payload, self._namespace.new_id) for payload in payloads]

    async def _receive(self, request: Request, path: str, mode: ReceiveMode) -> Response:
        node = self._node(request, path, Right.LISTEN)
        queue = _queue(node, path)
        timeout_s = read_timeout(request.query_params.get("timeout"))
        # Also what makes the server see that the client has gone: it is told so behind the body.
        await _read_body(request, self._namespace.message_size_max)
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
        self, request: Request, queue: MessageQueue, mode: ReceiveMode, timeout_s: float
    ) -> TakenMessage | None:
        if len(self._waiting) >= RECEIVES_MAX:
            raise ServerBusy(f"{RECEIVES_MAX} requests wait for messages already. Try again in a while.")
        answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        receive = SingleReceive(queue, mode, _reply_to(answered))
        self._waiting.add(receive)
        leaving = asyncio.ensure_future(request.receive())
        try:
            receive.start(self._clock.now())
            await asyncio.wait((answered, leaving), timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
            await _while_reading(queue, (answered, leaving))
            has_left = leaving.done()
            receive.give_up()
            await asyncio.wait((answered,), timeout=UNDER_WAY_WAIT_S)
            if not answered.done():
                raise ServerBusy("The messaging store did not answer in time. Try again in a while.")
            delivery: TakenMessage | None = answered.result()
            if has_left and delivery is not None:
                receive.return_message(delivery, self._clock.now())
                raise ClientDisconnect
            return delivery
        finally:
            leaving.cancel()
            self._waiting.discard(receive)
            receive.finish(self._clock.now())

    async def _settle(self, request: Request, path: str, token: bytes, outcome: Outcome) -> Response:
        node = self._node(request, path, Right.LISTEN)
        queue = _queue(node, path)
        await _answer(lambda reply: queue.settle([token], outcome, self._clock.now(), reply), ANSWER_WAIT_S)
        self._namespace.traffic.of(node.path).settled += 1
        self._meter(request, node).counted(Cause.SETTLE, messages=1)
        return Response(status_code=200)

    async def _renew(self, request: Request, path: str, token: bytes) -> Response:
        node = self._node(request, path, Right.LISTEN)
        queue = _queue(node, path)
        await _answer(lambda reply: queue.renew([token], self._clock.now(), reply), ANSWER_WAIT_S)
        self._meter(request, node).counted(Cause.RENEW, messages=1)
        return Response(status_code=200)


def _queue(node: Node, path: str) -> MessageQueue:
    if node.queue is None:
        raise NotAllowed(f"'{path}' is a topic: receive from one of its subscriptions.")
    return node.queue


async def _while_reading(queue: MessageQueue, ends: Collection["asyncio.Future[Any]"]) -> None:
    """Messages that are on their way from a store are there, also for a caller that does not wait for others."""
    is_read: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    queue.after_reading(partial(_reply_to(is_read), None))
    await asyncio.wait((is_read, *ends), timeout=READING_WAIT_S, return_when=asyncio.FIRST_COMPLETED)


async def _answer(ask: Callable[[Reply[Any]], None], timeout_s: float) -> object:
    """The broker's answer; what it says after the time is over is dropped."""
    answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    ask(_reply_to(answered))
    with contextlib.suppress(TimeoutError):
        result: object = await asyncio.wait_for(answered, max(timeout_s, 1.0))
        if isinstance(result, MessagingError):
            raise result
        return result
    raise OperationTimeout("The operation was not done in time; it may be done yet. Look, or try again.")


def _reply_to(answered: "asyncio.Future[Any]") -> Callable[[Any], None]:
    def reply(result: Any) -> None:
        if not answered.done():
            answered.set_result(result)

    return reply


async def _read_body(request: Request, size_max: int) -> bytes:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > size_max:
            raise MessageTooLarge(f"The body has more than {size_max} bytes, which is the limit. Send less at once.")
    return bytes(body)
