"""Where every request over HTTP is asked for its right: request, path and right in, nothing out, or Unauthorized.

The token is in the `Authorization` header, and `gateway.authorization` says what it gives. `page` guards the pages that need
Manage; the APIs of messages and of administration call `require`. These need no token:

GET /health, /ready            which stores work, where they are kept and which process owns them, and no more
GET /metrics                   from this machine, by one of its names: whoever is on it could read the data folder as well
/$servicebus/websocket         AMQP, whose clients put their tokens on $cbs
"""

import asyncio
from collections.abc import Awaitable, Callable
from ipaddress import ip_address
from typing import TypeAlias

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from twinbus.clock import Clock
from twinbus.errors import MessagingError, Unauthorized
from twinbus.gateway.authorization import AccessRules, TokenGate, WebTokenRules, is_web_token, without_scheme
from twinbus.http.refusals import json_refusal
from twinbus.model.descriptions import Right
from twinbus.own_hosts import OwnHosts

AUTHORIZATION = "authorization"
MISDIRECTED = 421  # RFC 9110, section 15.5.20

Answer: TypeAlias = Callable[[Request], Awaitable[Response]]


def the_namespace(_: Request) -> str:
    return ""


class HttpAccess:
    def __init__(self, rules: AccessRules, clock: Clock, web_tokens: WebTokenRules | None = None) -> None:
        self._gate = TokenGate(rules, clock, web_tokens)
        self._web_tokens = web_tokens
        self._clock = clock

    def guarded(self, application: ASGIApp) -> ASGIApp:
        """The application, with requests held back whose token is signed with a key that has yet to be read."""
        web_tokens = self._web_tokens
        if web_tokens is None:
            return application

        async def respond(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] == "http":
                await self._key_known(web_tokens, Headers(scope=scope).get(AUTHORIZATION, ""))
            await application(scope, receive, send)

        return respond

    async def _key_known(self, web_tokens: WebTokenRules, header: str) -> None:
        token = without_scheme(header)
        if token and is_web_token(token):
            known = asyncio.Event()
            if web_tokens.when_key_is_known(token, self._clock.now(), lambda _: known.set()):
                await known.wait()

    def require(self, request: Request, path: str, right: Right, *other_headers: str) -> None:
        """Raise Unauthorized unless the request may use this right on the path ("" is the namespace).

        A token in one of the `other_headers` will do as well.
        """
        for name in other_headers:
            if (token := request.headers.get(name)) and self._gives(token, path, right):
                return
        self._gate.require(request.headers.get(AUTHORIZATION, ""), path, right)

    def _gives(self, token: str, path: str, right: Right) -> bool:
        try:
            self._gate.require(token, path, right)
        except Unauthorized:
            return False
        return True

    def page(self, answer: Answer, at: Callable[[Request], str] = the_namespace) -> Answer:
        """Answer those who have Manage on the namespace, or on the path that `at` reads from the request. Errors are JSON."""

        async def respond(request: Request) -> Response:
            try:
                self.require(request, at(request), Right.MANAGE)
                return await answer(request)
            except MessagingError as error:
                return json_refusal(error)

        return respond

    def page_open_here(self, answer: Answer, hosts: OwnHosts) -> Answer:
        """As `page`, but requests from this machine need no token if they name one of these hosts."""
        guarded = self.page(answer)

        async def respond(request: Request) -> Response:
            if not _is_from_here(request):
                return await guarded(request)
            if hosts.include_host_of(request):
                return await answer(request)
            if AUTHORIZATION not in request.headers:
                text = (
                    "This name is not known here. Ask for localhost, or tell the namespace its name with --advertise."
                )
                return JSONResponse({"error": text}, status_code=MISDIRECTED)
            return await guarded(request)

        return respond


def _is_from_here(request: Request) -> bool:
    try:
        return request.client is not None and ip_address(request.client.host).is_loopback
    except ValueError:
        return False
