"""One namespace: AMQP, administration and HTTP, each opened when it is first needed and opened again after it failed.

Everything here is what any client with the key may use. What only twinbus has raises NotImplementedHere elsewhere, so a page asks
and shows what it gets.
"""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp

from twinbus.client.administration import administration_endpoint
from twinbus.client.connecting.connection_string import parse_connection_string
from twinbus.client.connecting.token_sources import sign
from twinbus.client.connecting.trust import tls_context
from twinbus.client.namespace import Namespace
from twinbus.client.namespace_http import NamespaceRefused
from twinbus.errors import EntityNotFound, NotImplementedHere, Unauthorized

if TYPE_CHECKING:
    from azure.servicebus.aio.management import ServiceBusAdministrationClient

CONNECT_TIMEOUT_S = 15.0
HTTP_TIMEOUT_S = 15.0
TOKEN_LIFE_S = 600
TOKEN_RENEWAL_S = 60
PRODUCT = "twinbus portal"


class Bus:
    def __init__(
        self, name: str, connection_string: str, endpoint: str | None = None, authorities: Sequence[Path] = ()
    ) -> None:
        self.name = name
        self.connection_string = connection_string
        self.target = parse_connection_string(connection_string)
        self.authorities = authorities
        self.given_endpoint = endpoint
        host = f"[{self.target.host}]" if ":" in self.target.host else self.target.host
        secure = f"https://{host}:{self.target.http_port}"
        self.endpoint = endpoint or (secure if self.target.uses_tls else administration_endpoint(self.target))
        self.is_twinbus: bool | None = None
        """None until it was asked for something that only twinbus has."""
        self.is_closed = False
        self._amqp: Namespace | None = None
        self._http: aiohttp.ClientSession | None = None
        self._connecting = asyncio.Lock()
        self._token = ("", 0)

    async def amqp(self) -> Namespace:
        async with self._connecting:
            if self._amqp is None or self._amqp.fault is not None:
                self._amqp = await Namespace.connect(
                    self.connection_string,
                    tls=tls_context(self.authorities) if self.target.uses_tls else None,
                    timeout_s=CONNECT_TIMEOUT_S,
                    product=PRODUCT,
                )
            return self._amqp

    @contextlib.asynccontextmanager
    async def own_amqp(self) -> AsyncIterator[Namespace]:
        """A connection for long work, so that pages do not wait behind it."""
        namespace = await Namespace.connect(
            self.connection_string,
            tls=tls_context(self.authorities) if self.target.uses_tls else None,
            timeout_s=CONNECT_TIMEOUT_S,
            product=PRODUCT,
        )
        async with namespace:
            yield namespace

    @contextlib.asynccontextmanager
    async def administration(self) -> "AsyncIterator[ServiceBusAdministrationClient]":
        # Importing it takes longer than drawing a page, and few pages need it.
        from twinbus.client.async_administration import async_administration_client

        async with async_administration_client(
            self.connection_string, self.given_endpoint, authorities=self.authorities
        ) as client:
            yield client

    async def ask(self, method: str, path: str, query: Mapping[str, str] | None = None) -> Any:
        """The JSON that a page of twinbus's own answers. Raises NotImplementedHere where the namespace has no such page."""
        status, text = await self._request(method, path, query)
        try:
            said = json.loads(text)
        except ValueError:
            self.is_twinbus = False
            raise NotImplementedHere(
                f"The namespace '{self.name}' does not offer this: it is not a twinbus namespace."
            ) from None
        if status >= 400:
            text = str(said.get("error") if isinstance(said, dict) else said)
            raise Unauthorized(text) if status == 401 else NamespaceRefused(text)
        self.is_twinbus = True
        return said

    async def text(self, path: str, query: Mapping[str, str] | None = None) -> str:
        """The answer as it is. Raises Unauthorized, EntityNotFound or NamespaceRefused for any status but 200."""
        status, text = await self._request("GET", path, query)
        if status == 200:
            return text
        if status == 401:
            raise Unauthorized(f"The key '{self.target.key_name}' does not have the right to do this on '{self.name}'.")
        if status == 404:
            raise EntityNotFound(f"'{self.name}' has nothing at {path}.")
        raise NamespaceRefused(f"'{self.name}' refused the request with status {status}. Try again later.")

    async def health(self) -> dict[str, Any]:
        """Of a twinbus namespace; 503 is an answer too."""
        _, text = await self._request("GET", "/health", None)
        try:
            said = json.loads(text)
        except ValueError:
            said = None
        if not isinstance(said, dict) or "status" not in said:
            self.is_twinbus = False
            raise NotImplementedHere(f"'{self.name}' does not report its health: it is not a twinbus namespace.")
        self.is_twinbus = True
        return said

    async def _request(self, method: str, path: str, query: Mapping[str, str] | None) -> tuple[int, str]:
        session = self._session()
        headers = {"Authorization": self.token()}
        async with session.request(method, self.endpoint + path, params=query, headers=headers) as answer:
            return answer.status, await answer.text()

    def token(self) -> str:
        if self.target.signature:
            return self.target.signature
        text, until = self._token
        if time.time() > until - TOKEN_RENEWAL_S:
            until = int(time.time()) + TOKEN_LIFE_S
            # As the official client signs for each: Azure compares the scheme of administration.
            scheme = "https" if self.target.uses_tls else "sb"
            text = sign(f"{scheme}://{self.target.host}", self.target.key_name, self.target.key, until)
            self._token = text, until
        return text

    def _session(self) -> aiohttp.ClientSession:
        if self._http is None or self._http.closed:
            connector = aiohttp.TCPConnector(
                limit=8, ssl=tls_context(self.authorities) if self.endpoint.startswith("https:") else False
            )
            self._http = aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=HTTP_TIMEOUT_S))
        return self._http

    async def close(self) -> None:
        self.is_closed = True
        if self._http is not None:
            await self._http.close()
        if self._amqp is not None:
            await self._amqp.close()
