"""What a pump asks of a messaging client, as values: small, so that any client can be behind it.

A transport performs requests, blocking or awaited. Errors are those of the client; the pair's
classifier sorts them.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TypeAlias

from twinbus.amqp.codec.sections import Sections
from twinbus.amqp.errors import DecodeError
from twinbus.clock import NEVER, Millis
from twinbus.model.received_payload import read_annotations_of
from twinbus.model.wire_names import SEQUENCE_BITS
from twinbus.pairing.deciding.survey import Survey
from twinbus.pairing.rewriting.restore import NotATransfer, delivery_facts, restore
from twinbus.pairing.rewriting.stages import Stage

HELD_SIZE_MAX = 32 * 1024 * 1024
"""About how many bytes of messages a pump has taken and not settled. They are in memory twice while it sends them."""

GIVEN_BACK_TOGETHER = 100


@dataclass(frozen=True, slots=True)
class Transfer:
    """A restored message. `message` is whatever the transport sends, `size` about its bytes on the wire."""

    path: str
    message: object
    size: int
    session_id: str | None
    partition_key: str | None
    stage: Stage | None = None

    @property
    def key(self) -> str | None:
        """What a partitioned destination surely pins it by."""
        return self.session_id if self.session_id is not None else self.partition_key


@dataclass(frozen=True, slots=True)
class Taken:
    """A message from a backlog queue, locked for us. `handle` is the transport's, to settle it by while its link is there; `token`
    is the lock itself as links carry it, which lasts longer."""

    handle: object
    sequence_number: int
    locked_until: Millis
    content: Transfer | NotATransfer
    enqueued_at: Millis = NEVER
    token: bytes = b""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Messages for one destination that go together: all of them are accepted, in order, or none."""

    path: str
    taken: Sequence[Taken]
    transfers: Sequence[Transfer]


@dataclass(frozen=True, slots=True)
class Receive:
    """Answered with Taken messages in peek-lock, up to `count_max`, fewer if they are large; none if none came in time."""

    count_max: int
    wait_s: float


@dataclass(frozen=True, slots=True)
class SendAll:
    """Send the chunks, un-paired, to their destinations. Answered with an error or None for each."""

    chunks: Sequence[Chunk]


@dataclass(frozen=True, slots=True)
class Complete:
    taken: Sequence[Taken]


@dataclass(frozen=True, slots=True)
class DeadLetter:
    taken: Taken
    reason: str
    description: str


@dataclass(frozen=True, slots=True)
class Abandon:
    taken: Sequence[Taken]


@dataclass(frozen=True, slots=True)
class GiveBackLeft:
    """Abandon messages of earlier passes, by sequence number and lock token. Perhaps another pump took them."""

    tokens: Mapping[int, bytes]

    def in_requests(self) -> Iterator[dict[int, bytes]]:
        """As a namespace takes them: those of one fragment, and not all at once. If one lock is gone, it refuses those beside it."""
        for _, of_fragment in groupby(sorted(self.tokens), lambda number: number >> SEQUENCE_BITS):
            numbers = list(of_fragment)
            for start in range(0, len(numbers), GIVEN_BACK_TOGETHER):
                yield {number: self.tokens[number] for number in numbers[start : start + GIVEN_BACK_TOGETHER]}


@dataclass(frozen=True, slots=True)
class LookInto:
    """Answered with a survey of another backlog queue, complete or not. What came after `until` is of no interest."""

    queue: str
    until: Millis = NEVER


@dataclass(frozen=True, slots=True)
class Wait:
    """Let time pass, less of it if the pump is to stop."""

    duration: Millis


Request: TypeAlias = Receive | SendAll | Complete | DeadLetter | Abandon | GiveBackLeft | LookInto | Wait
Answer: TypeAlias = Sequence[Taken] | Sequence[Exception | None] | Survey | None


def taken_of(handle: object, payload: bytes, token: bytes = b"") -> Taken:
    """A message from a backlog queue by its bytes, restored if it is a transfer."""
    try:
        restored = restore(payload)
    except (NotATransfer, DecodeError) as error:
        number, locked_until, enqueued_at = delivery_facts(_read_annotations(payload))
        return Taken(handle, number, locked_until, NotATransfer(str(error)), enqueued_at, token)
    transfer = Transfer(
        restored.path,
        restored.payload,
        len(restored.payload),
        restored.session_id,
        restored.partition_key,
        restored.stage,
    )
    return Taken(handle, restored.sequence_number, restored.locked_until, transfer, restored.enqueued_at, token)


def _read_annotations(payload: bytes) -> Sections:
    """None where not even those can be read: one such message must not keep those that came with it from going home."""
    try:
        return read_annotations_of(payload)
    except DecodeError:
        return Sections()
