"""Who looks at the portal: a cookie in, a visitor out.

On loopback there is one visitor, the user who started the portal, who needs no login and sees every namespace that it knows. Elsewhere a visitor has typed a key for one namespace. The key, and the connections that use it, are in this
process's memory alone, and go when the visitor leaves, is away for too long, or the portal stops.
"""

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from twinbus.portal.namespaces.directory import Directory

COOKIE = "twinbus-portal"
IDLE_MAX_S = 8 * 3600.0
VISITORS_MAX = 200


@dataclass(slots=True)
class Visitor:
    """`token` is the value of the cookie; empty for the visitor who needs none."""

    directory: Directory
    token: str = field(default="", repr=False)
    seen_at_s: float = 0.0


class Visitors:
    def __init__(self, *, is_open: bool, directory: Directory, monotonic: Callable[[], float] = time.monotonic) -> None:
        """`is_open`: nobody has to log in. `directory` has the namespaces that the portal was started with."""
        self.is_open = is_open
        self._everyone = Visitor(directory)
        self._known: dict[str, Visitor] = {}
        self._now = monotonic

    async def find(self, token: str | None) -> Visitor | None:
        if self.is_open:
            return self._everyone
        await self._forget_idle()
        visitor = self._known.get(token or "")
        if visitor is not None:
            visitor.seen_at_s = self._now()
        return visitor

    async def admit(self, directory: Directory) -> Visitor:
        """Someone typed a key that a namespace accepts. The oldest of too many visitors is forgotten."""
        await self._forget_idle()
        while len(self._known) >= VISITORS_MAX:
            await self.forget(min(self._known.values(), key=lambda each: each.seen_at_s))
        visitor = Visitor(directory, secrets.token_urlsafe(32), self._now())
        self._known[visitor.token] = visitor
        return visitor

    async def forget(self, visitor: Visitor) -> None:
        if self._known.pop(visitor.token, None) is not None:
            await visitor.directory.close()

    async def close(self) -> None:
        for visitor in list(self._known.values()):
            await self.forget(visitor)
        await self._everyone.directory.close()

    async def _forget_idle(self) -> None:
        since = self._now() - IDLE_MAX_S
        for visitor in [each for each in self._known.values() if each.seen_at_s < since]:
            await self.forget(visitor)
