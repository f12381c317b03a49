"""Which namespaces a visitor can see: those given by connection string, and those that run on this machine."""

import asyncio
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from twinbus.client.connecting.connection_string import parse_connection_string
from twinbus.errors import EntityNotFound
from twinbus.portal.namespaces.bus import Bus

FIND_INTERVAL_S = 1.0
NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9.-]+")


@dataclass(frozen=True, slots=True)
class KnownNamespace:
    """How to reach one. `operations` is the folder of its operations log, if that is on this machine and ours to read."""

    name: str
    connection_string: str = field(repr=False)
    endpoint: str | None = None
    authorities: Sequence[Path] = ()
    is_local: bool = False


def given_namespace(connection_string: str, authorities: Sequence[Path] = ()) -> KnownNamespace:
    """Named by the first word of its host, or by the whole address. Raises ArgumentError."""
    parsed = parse_connection_string(connection_string)
    is_name = not parsed.host.replace(".", "").isdigit() and ":" not in parsed.host
    name = parsed.host.partition(".")[0] if is_name else f"{parsed.host}-{parsed.port}"
    return KnownNamespace(NOT_IN_NAMES.sub("-", name) or "namespace", connection_string, None, authorities)


class Directory:
    """`find` returns what runs on this machine now; it is asked at most once a second."""

    def __init__(
        self,
        given: Sequence[KnownNamespace],
        find: Callable[[], Sequence[KnownNamespace]] = tuple,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._given = list(given)
        self._find = find
        self._now = monotonic
        self._found_at_s = float("-inf")
        self._known: dict[str, KnownNamespace] = {}
        self._buses: dict[KnownNamespace, Bus] = {}
        self._closing: set[asyncio.Future[None]] = set()

    def add(self, known: KnownNamespace) -> None:
        """One more, instead of one with the same name."""
        self._given = [*(each for each in self._given if each.name != known.name), known]
        self._found_at_s = float("-inf")

    def known(self) -> list[KnownNamespace]:
        """By name. Of two with one name the second gets a number."""
        if self._now() - self._found_at_s >= FIND_INTERVAL_S:
            self._found_at_s = self._now()
            found = self._find()
            names: dict[str, KnownNamespace] = {}
            for each in (*found, *self._given):
                names[_free_name(each.name, names)] = each
            self._known = names
        return list(self._known.values())

    def names(self) -> list[str]:
        self.known()
        return list(self._known)

    def local(self) -> list[str]:
        return [name for name in self.names() if self._known[name].is_local]

    def get(self, name: str) -> Bus:
        """Raises EntityNotFound."""
        if name not in self.names():
            raise EntityNotFound(
                f"The portal does not know the namespace '{name}'. Is it running? The overview lists all of them."
            )
        known = self._known[name]
        bus = self._buses.get(known)
        if bus is None:
            # It has another address since it started again: what is connected to the former one is of no use.
            for former in [
                each for each in self._buses if each.name == known.name and each not in self._known.values()
            ]:
                self._closing.add(closing := asyncio.ensure_future(self._buses.pop(former).close()))
                closing.add_done_callback(self._closing.discard)
            bus = self._buses[known] = Bus(name, known.connection_string, known.endpoint, known.authorities)
        return bus

    def is_local(self, name: str) -> bool:
        return name in self.names() and self._known[name].is_local

    def reach(self, name: str) -> KnownNamespace:
        self.get(name)
        return self._known[name]

    async def close(self) -> None:
        for bus in self._buses.values():
            await bus.close()
        self._buses.clear()


def _free_name(name: str, taken: dict[str, KnownNamespace]) -> str:
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{name}-{number}"
    return free
