"""The other processes that serve the same namespace, as the control plane needs them; with one process there are none.

A change is made by the process that was asked for it, in the turn of its name, which all processes share:

    ask which stores work  ->  own fragments  ->  catalog  ->  the others follow the catalog  ->  answer

So a change is answered when every process knows it, and one that another process cannot follow is undone and fails as a whole. A process that
is taken for dead meanwhile is not asked, and may come back with the stores that it has: so the others say with their answers which stores
are theirs, and a change also fails if nobody has answered for one in which something of it lies.
"""

from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Protocol


class Peers(Protocol):
    def turn(self, name: str) -> AbstractAsyncContextManager[None]:
        """One change at a time to this name, whichever process makes it. Raises OperationInProgress if it is not free in time."""
        ...

    async def available_stores(self) -> set[int]:
        """Those of the others that work at the moment."""
        ...

    async def follow(self, path: str) -> set[int]:
        """Every other process now has what the catalog says of this path. Returns their stores that work. Raises what one of them could
        not do."""
        ...

    async def delete(self, path: str) -> set[int]:
        """Every other process has deleted its fragments of this entity. Returns and raises as `follow`."""
        ...

    async def follow_access_rules(self) -> None:
        """Every other process has the access rules of the namespace."""
        ...

    @property
    def is_first(self) -> bool:
        """Whether this process does what one of them has to do."""
        ...

    async def is_idle(self, path: str) -> bool:
        """Whether all other processes know that nobody has used the entity for as long as its description allows."""
        ...

    async def close_if_idle(self, path: str) -> bool:
        """As `is_idle`. Whether or not all are idle, those that are refuse to have it used from their answer on, and so is one that
        starts: until `follow`, or until the turn of its name is over."""
        ...


class _NoPeers:
    def turn(self, _: str, /) -> AbstractAsyncContextManager[None]:
        return nullcontext()

    async def available_stores(self) -> set[int]:
        return set()

    async def follow(self, _: str, /) -> set[int]:
        return set()

    async def delete(self, _: str, /) -> set[int]:
        return set()

    async def follow_access_rules(self) -> None: ...

    @property
    def is_first(self) -> bool:
        return True

    async def is_idle(self, _: str, /) -> bool:
        return True

    async def close_if_idle(self, _: str, /) -> bool:
        return True


NO_PEERS: Peers = _NoPeers()
