"""Tokens for the entities of one connection: put before a link is attached, and again before they expire.

The given clock decides what is due; a task checks it regularly. A token that is part of the connection string cannot be renewed:
its links end when it expires.
"""

import asyncio
from contextlib import suppress

from twinbus.amqp.codec.types import Timestamp
from twinbus.client.connecting.token_sources import Token, TokenSource
from twinbus.client.connecting.wire import Wire
from twinbus.client.remote_errors import error_named
from twinbus.client.request_node import Answer, RequestNode
from twinbus.clock import NEVER, Clock, Millis
from twinbus.errors import EntityNotFound, MessagingError, Unauthorized

_RENEWAL_SHARE = 0.25
_LOOK_EVERY_S = 30.0


class Tokens:
    def __init__(self, wire: Wire, authority: str, source: TokenSource, clock: Clock, timeout_s: float) -> None:
        self._wire = wire
        self._authority = authority
        self._source = source
        self._clock = clock
        self._timeout_s = timeout_s
        self._node: RequestNode | None = None
        self._due: dict[str, Millis] = {}
        self._opening = asyncio.Lock()
        self._looking = asyncio.create_task(self._look())

    async def authorize(self, path: str) -> None:
        """Put a token for the path once; from then on it is renewed."""
        async with self._opening:
            if path not in self._due:
                await self._put(path)

    async def renew_due(self) -> list[str]:
        """Renew the tokens that are due; returns the paths where that succeeded. The others are tried again later."""
        now = self._clock.now()
        renewed = []
        for path, due in list(self._due.items()):
            if due <= now:
                # The link ends with the old token, and its error says why.
                with suppress(MessagingError):
                    await self._put(path)
                    renewed.append(path)
        return renewed

    async def close(self) -> None:
        self._looking.cancel()
        await asyncio.gather(self._looking, return_exceptions=True)

    async def _look(self) -> None:
        while self._wire.fault is None:
            await asyncio.sleep(_LOOK_EVERY_S)
            await self.renew_due()

    async def _put(self, path: str) -> None:
        now = self._clock.now()
        audience = f"sb://{self._authority}/{path}"
        token = await self._source.token(audience, now)
        if self._node is None or self._node.fault is not None:
            self._node = await RequestNode.attach(self._wire, "$cbs", self._timeout_s)
        properties = {
            "operation": "put-token",
            "type": token.kind,
            "name": audience,
            "expiration": Timestamp(token.expires_at_s * 1000),
        }
        _require_accepted(await self._node.ask(properties, token.text, self._timeout_s), path)
        self._due[path] = renewal_due(token, now)


def renewal_due(token: Token, now: Millis) -> Millis:
    """When to renew it: with a share of its lifetime left, so that there is time for a slow or failed renewal.

    A credential may return the token that it has until that is about to expire. Then the share is of what is left, and the next
    renewal comes sooner.
    """
    if not token.is_renewable:
        return NEVER
    expires_at = token.expires_at_s * 1000
    return expires_at - int(max(expires_at - now, 0) * _RENEWAL_SHARE)


def _require_accepted(answer: Answer, path: str) -> None:
    if answer.status in (200, 202):
        return
    if answer.status == EntityNotFound.status:
        raise EntityNotFound(answer.description or str(EntityNotFound.at(path)))
    if answer.status == Unauthorized.status:
        raise Unauthorized(f"The namespace refused our token for '{path}': {answer.description}")
    raise error_named(answer.condition, answer.description or f"put-token was answered with {answer.status}.")
