"""The key sets of trusted issuers: read from files and URLs, on threads, and given to `gateway.web_tokens`.

When a namespace starts, a file must be readable; a URL may be down, and is asked again when a token needs it. Later a key set
that cannot be read leaves the keys as they are. A URL is https, except at the loopback address, and redirects are not followed.

A server that answers byte by byte holds its thread for as long as it likes. So each key set has a thread of its own, one at a
time, which neither the other work of the namespace nor its end waits for.
"""

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import IO
from urllib.error import URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, HTTPSHandler, Request, build_opener

from twinbus.client.connecting.trust import tls_context
from twinbus.clock import Clock, Millis
from twinbus.errors import ArgumentError
from twinbus.gateway.trusted_issuer import TrustedIssuer
from twinbus.gateway.web_tokens import KEY_SET_SIZE_MAX, SigningKey, WebTokens, read_key_set
from twinbus.server.server_settings import is_loopback

READ_TIMEOUT_S = 5.0
WAIT_MAX_S = 10.0
"""For all of it, with a name that resolves slowly."""

log = logging.getLogger(__name__)


class TrustedKeys:
    def __init__(self, tokens: WebTokens, clock: Clock) -> None:
        self._tokens = tokens
        self._clock = clock
        self._task: asyncio.Task[None] | None = None
        self._unanswered: set[int] = (
            set()
        )  # identities of the issuers whose thread is reading; several may share a key set

    async def start(self) -> None:
        """Raises ArgumentError if a file cannot be read or is not a key set."""
        for issuer in self._tokens.issuers:
            check_location(issuer.keys)
        await self._read_all(is_first=True)
        self._tokens.fetcher = self

    def close(self) -> None:
        self._tokens.fetcher = None
        if self._task is not None:
            self._task.cancel()

    def fetch(self, done: Callable[[Millis], None]) -> None:
        async def read() -> None:
            try:
                await self._read_all(is_first=False)
            finally:
                done(self._clock.now())

        self._task = asyncio.get_running_loop().create_task(read())

    async def _read_all(self, *, is_first: bool) -> None:
        await asyncio.gather(*(self._read(issuer, is_first=is_first) for issuer in self._tokens.issuers))

    async def _read(self, issuer: TrustedIssuer, *, is_first: bool) -> None:
        keys: tuple[SigningKey, ...] | None = None
        try:
            keys = await asyncio.wait_for(self._keys_of(issuer), WAIT_MAX_S)
        except (OSError, HTTPException, ValueError, ArgumentError) as fault:  # TimeoutError is an OSError
            if is_first and not _is_url(issuer.keys):
                raise ArgumentError(f"The key set {issuer.keys} cannot be read: {fault}") from None
            fields = {"issuer": issuer.issuer, "keys": issuer.keys, "fault": str(fault)}
            log.warning("key set not read", extra={"fields": fields})
        self._tokens.set_keys(issuer, keys, self._clock.now())

    def _keys_of(self, issuer: TrustedIssuer) -> "asyncio.Future[tuple[SigningKey, ...]]":
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[tuple[SigningKey, ...]] = loop.create_future()
        if id(issuer) in self._unanswered:
            answer.set_exception(TimeoutError("it has yet to answer the last request"))
            return answer

        def read() -> None:
            try:
                keys = _keys_at(issuer.keys)
            except Exception as fault:  # whatever it is, it belongs to whoever waits
                tell(answer.set_exception, fault)
            else:
                tell(answer.set_result, keys)

        def tell(call: Callable[..., None], result: object) -> None:
            # The loop may be closed by now, and whoever waited may have given up.
            self._unanswered.discard(id(issuer))
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(lambda: None if answer.done() else call(result))

        self._unanswered.add(id(issuer))
        threading.Thread(target=read, name="twinbus-keys", daemon=True).start()
        return answer


def check_location(location: str) -> None:
    """Raises ArgumentError unless it is a path, or a URL that keys may be read from."""
    if not _is_url(location):
        return
    parts = urlsplit(location)
    if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback(parts.hostname or "")):
        raise ArgumentError(f"'{location}' is not a place for keys. Use a file or an https URL.")


def _is_url(location: str) -> bool:
    return "://" in location


def _keys_at(location: str) -> tuple[SigningKey, ...]:
    if not _is_url(location):
        with Path(location).open("rb") as file:
            return read_key_set(file.read(KEY_SET_SIZE_MAX + 1))
    request = Request(location, headers={"Accept": "application/json"})
    deadline = time.monotonic() + READ_TIMEOUT_S
    opener = build_opener(_NoRedirects, HTTPSHandler(context=tls_context()))
    with opener.open(request, timeout=READ_TIMEOUT_S) as response:
        return read_key_set(_body(response, deadline))


def _body(response: HTTPResponse, deadline: float) -> bytes:
    """The timeout of a socket is for each part that comes, and a body that trickles would hold the thread for ever."""
    body = b""
    while len(body) <= KEY_SET_SIZE_MAX and (part := response.read1(KEY_SET_SIZE_MAX)):
        body += part
        if time.monotonic() > deadline:
            raise TimeoutError(f"it did not answer within {READ_TIMEOUT_S:g} seconds")
    return body


class _NoRedirects(HTTPRedirectHandler):
    def redirect_request(self, req: Request, fp: IO[bytes], code: int, msg: str, headers: object, newurl: str) -> None:
        raise URLError("the server redirects, which is not followed")
