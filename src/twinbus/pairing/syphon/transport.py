"""What a pump needs of a messaging client. Small, so that any client can be behind it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from twinbus.clock import Millis
from twinbus.pairing.restore import NotATransfer


@dataclass(frozen=True, slots=True)
class Transfer:
    """A restored message. `message` is whatever the transport sends, `size` about its bytes on the wire."""

    path: str
    message: object
    size: int
    session_id: str | None
    partition_key: str | None

    @property
    def key(self) -> str | None:
        """What a partitioned destination surely pins it by."""
        return self.session_id if self.session_id is not None else self.partition_key


@dataclass(frozen=True, slots=True)
class Taken:
    """A message from a backlog queue, locked for us. `handle` is the transport's, to settle it by."""

    handle: object
    sequence_number: int
    locked_until: Millis
    content: Transfer | NotATransfer


class SyphonTransport(Protocol):
    """Of one pump. Calls block; errors are those of the client and are told apart by the pair's classifier."""

    def receive(self, count_max: int, wait_s: float) -> list[Taken]:
        """Up to `count_max` messages in peek-lock; an empty list when none came in time or on `interrupt`."""
        ...

    def send(self, path: str, transfers: Sequence[Transfer]) -> None:
        """Send un-paired and in order, all or none; returns when the destination has accepted them."""
        ...

    def complete(self, taken: Sequence[Taken]) -> None: ...

    def dead_letter(self, taken: Taken, reason: str, description: str) -> None: ...

    def abandon(self, taken: Sequence[Taken]) -> None: ...

    def interrupt(self) -> None:
        """From another thread: end a receive that waits."""
        ...

    def close(self) -> None: ...
