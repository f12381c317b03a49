"""How a message broker reaches its messaging store without ever waiting for it."""

from collections.abc import Callable
from math import inf
from typing import Protocol, TypeVar

from twinbus.errors import StoreUnavailable
from twinbus.store.changes import Change
from twinbus.store.reads import Read

T = TypeVar("T")


class StorePort(Protocol):
    """A queue of work for one store, in order: a query sees every commit asked for before it.

    Each `done` is called once, on the loop thread, in the order of the calls, and never from
    inside the call it belongs to. Commits that wait next to each other may be joined into one.
    After the first failure every later call fails as well until the store has been opened again.
    """

    @property
    def waiting_bytes(self) -> int:
        """Of commits that have no answer yet, about."""
        ...

    @property
    def is_pressed(self) -> bool:
        """The store falls behind: what nobody waits for should wait (`MessagingStore.is_pressed`)."""
        ...

    @property
    def is_full(self) -> bool:
        """The store has no room for more messages, but what removes some is taken (`RoomLeft.NONE`)."""
        ...

    def commit(
        self, changes: list[Change], done: Callable[[StoreUnavailable | None], None], /, *, is_awaited: bool = True
    ) -> None:
        """`is_awaited`: somebody waits for `done`. If nobody does, the store may take its time, to write it with what comes next."""
        ...

    def query(self, read: Read[T], done: Callable[[T | StoreUnavailable], None], /) -> None:
        """`read` is one of `twinbus.store.reads.READS`, carried out where the store is."""
        ...


class _Elsewhere:
    """Of a store that another node serves: nobody asks, for its message broker is never available here."""

    waiting_bytes = 0
    is_pressed = False
    is_full = False

    def commit(
        self, changes: list[Change], done: Callable[[StoreUnavailable | None], None], /, *, is_awaited: bool = True
    ) -> None:
        raise AssertionError("another node serves this store")

    def query(self, read: Read[T], done: Callable[[T | StoreUnavailable], None], /) -> None:
        raise AssertionError("another node serves this store")


ELSEWHERE: StorePort = _Elsewhere()


class StoreLease(Protocol):
    """Whether the store is still ours, at this moment: another process may own it by now, if this one was frozen.

    What is written is fenced by the store itself. What is handed over, renewed or accepted writes nothing, so it looks here,
    once for each burst.
    """

    until: float
    """A time that rises with every renewal, each of which shows that the store answers; infinity if none is needed."""

    def is_held(self) -> bool: ...


class _AlwaysHeld:
    """Of a store that only this process can have, such as a folder with its lock."""

    until = inf

    def is_held(self) -> bool:
        return True


ALWAYS_HELD: StoreLease = _AlwaysHeld()
