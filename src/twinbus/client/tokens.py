"""Tokens for the entities of one connection: put before a link is attached, and again before they expire.

What is due is decided by the clock that was given; a task looks at it every now and then. A token that the
connection string brought along cannot be made anew: its links live as long as it does.
"""

import asyncio
from contextlib import suppress
from urllib.parse import parse_qs

from twinbus.amqp.types import Timestamp
from twinbus.client.connection_string import ConnectionString
from twinbus.client.remote_errors import error_named
from twinbus.client.request_node import Answer, RequestNode
from twinbus.client.shared_access import TOKEN_LIFETIME_S, sign
from twinbus.client.wire import Wire
from twinbus.clock import NEVER, Clock, Millis
from twinbus.errors import EntityNotFound, MessagingError, Unauthorized

# A token is renewed while it has this share of its life left, so that a slow or failed renewal is still in time.
_RENEWAL_SHARE = 0.25
_LOOK_EVERY_S = 30.0


class Tokens:
    def __init__(self, wire: Wire, target: ConnectionString, clock: Clock, timeout_s: float) -> None:
        self._wire = wire
        self._target = target
        self._clock = clock
        self._timeout_s = timeout_s
        self._node: RequestNode | None = None
        self._due: dict[str, Millis] = {}
        self._opening = asyncio.Lock()
        self._looking = asyncio.create_task(self._look())

    async def authorize(self, path: str) -> None:
        """Put a token for the path, once; from then on it is renewed."""
        async with self._opening:
            if path not in self._due:
                await self._put(path)

    async def renew_due(self) -> list[str]:
        """Renew the tokens whose time has come; the paths where that was done. The others are tried again later."""
        now = self._clock.now()
        renewed = []
        for path, due in list(self._due.items()):
            if due <= now:
                # The link ends when the old token does, and says why better than this could.
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
        target, now_s = self._target, self._clock.now() // 1000
        audience = f"sb://{target.authority}/{path}"
        if target.signature:
            token, expires_at_s, due = target.signature, _expiry_of(target.signature), NEVER
        else:
            expires_at_s = now_s + TOKEN_LIFETIME_S
            token = sign(audience, target.key_name, target.key, expires_at_s)
            due = int((expires_at_s - TOKEN_LIFETIME_S * _RENEWAL_SHARE) * 1000)
        if self._node is None or self._node.fault is not None:
            self._node = await RequestNode.attach(self._wire, "$cbs", self._timeout_s)
        properties = {
            "operation": "put-token",
            "type": "servicebus.windows.net:sastoken",
            "name": audience,
            "expiration": Timestamp(expires_at_s * 1000),
        }
        _require_accepted(await self._node.ask(properties, token, self._timeout_s), path)
        self._due[path] = due


def _expiry_of(signature: str) -> int:
    """Seconds since 1970 as the token itself has them; 0 lets the namespace find what is wrong with it."""
    text = parse_qs(signature.partition(" ")[2]).get("se", [""])[0]
    return int(text) if text.isdecimal() else 0


def _require_accepted(answer: Answer, path: str) -> None:
    if answer.status in (200, 202):
        return
    if answer.status == EntityNotFound.status:
        raise EntityNotFound(answer.description or str(EntityNotFound.at(path)))
    if answer.status == Unauthorized.status:
        raise Unauthorized(f"The namespace refused our token for '{path}': {answer.description}")
    raise error_named(answer.condition, answer.description or f"put-token was answered with {answer.status}.")
