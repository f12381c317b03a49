"""In front of every page: a request in, the application's answer or a refusal out, with the headers of safety on both.

Host      must be a name of this server. Otherwise a page of another site could reach it under a name of its own (DNS rebinding).
Origin    must be this server for whatever changes something, so that no other site's form or script can send it. Browsers always
          say so with a POST; a request that says neither Origin nor Sec-Fetch-Site comes from no browser page of ours.
User      must be the portal's own where nobody logs in, as for commands, which read keys that only their user may read.

The policy allows scripts and styles from this server alone and none inside a page: even markup that slipped through would not run.
"""

from collections.abc import Iterable

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from twinbus.own_hosts import OwnHosts
from twinbus.portal.access.local_peers import is_own

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Frame-Options": "DENY",
}
SECURE_FOR_A_YEAR = "max-age=31536000"
SAFE_METHODS = frozenset({"GET", "HEAD"})
MISDIRECTED, FORBIDDEN = 421, 403


class Guard:
    def __init__(
        self, application: ASGIApp, names: Iterable[str], *, uses_tls: bool, is_for_owner: bool = False
    ) -> None:
        """`is_for_owner`: nobody logs in, so requests of other users of this machine are refused."""
        self._application = application
        self._is_for_owner = is_for_owner
        self._hosts = OwnHosts(names)
        self._scheme = "https" if uses_tls else "http"
        self._headers = HEADERS | ({"Strict-Transport-Security": SECURE_FOR_A_YEAR} if uses_tls else {})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            # Pages use no WebSockets; the server's own life cycle passes.
            if scope["type"] == "lifespan":
                await self._application(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in self._headers.items():
                    headers.setdefault(name, value)
            await send(message)

        answer: ASGIApp = (
            self._refusal(scope["method"], Headers(scope=scope)) or self._refusal_of_others(scope) or self._application
        )
        await answer(scope, receive, send_with_headers)

    def _refusal(self, method: str, headers: Headers) -> Response | None:
        host = headers.get("host", "")
        if not self._hosts.include(host):
            return PlainTextResponse(
                "This server has a different name. Use the address that 'twinbus portal' printed, or start it with --name.",
                MISDIRECTED,
            )
        if method not in SAFE_METHODS and not self._is_from_here(headers, host):
            return PlainTextResponse(
                "This request comes from another site, so nothing was changed. Use the portal's own pages.", FORBIDDEN
            )
        return None

    def _refusal_of_others(self, scope: Scope) -> Response | None:
        client, server = scope.get("client"), scope.get("server")
        if not self._is_for_owner or client is None or server is None or is_own(tuple(client), tuple(server)):
            return None
        text = (
            "This portal belongs to another user of this machine. Start your own, or ask for one with TLS and a login."
        )
        return PlainTextResponse(text, FORBIDDEN)

    def _is_from_here(self, headers: Headers, host: str) -> bool:
        origin = headers.get("origin")
        if origin is not None:
            return origin == f"{self._scheme}://{host}"
        return headers.get("sec-fetch-site") == "same-origin"
