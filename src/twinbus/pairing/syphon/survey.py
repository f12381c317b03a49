"""What waits in backlog queues, by destination: queues in, counts out. Looks without taking anything.

A twinbus namespace counts by itself, ten thousand messages a request; elsewhere every message is peeked at.
"""

from dataclasses import dataclass, field

from twinbus.amqp.errors import DecodeError
from twinbus.client.namespace import Namespace
from twinbus.client.received_message import ReceivedMessage
from twinbus.errors import NotImplementedHere
from twinbus.model import wire_names
from twinbus.model.message_limits import PEEK_COUNT_MAX

COUNTED_MAX = 1_000_000
PEEKED_MAX = 100_000
"""Both of one queue: a look at a backlog of millions must end."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """`path` is None for messages without a destination; `is_all` is false if the queue has more than was looked at."""

    queue: str
    path: str | None
    count: int
    size_bytes: int
    is_all: bool


@dataclass(slots=True)
class _Tally:
    is_all: bool = True
    seen: int = 0
    shares: dict[str | None, tuple[int, int]] = field(default_factory=dict)

    def add(self, path: str | None, count: int, size_bytes: int) -> None:
        counted, sized = self.shares.get(path, (0, 0))
        self.shares[path] = counted + count, sized + size_bytes
        self.seen += count


async def survey(namespace: Namespace, queues: tuple[str, ...]) -> list[Waiting]:
    """By queue and destination, the largest share of a queue first."""
    found: list[Waiting] = []
    for queue in queues:
        try:
            tally = await _ask(namespace, queue)
        except NotImplementedHere:
            tally = await _peek(namespace, queue)
        shares = sorted(tally.shares.items(), key=lambda share: (-share[1][0], share[0] or ""))
        found += [Waiting(queue, path, count, size, tally.is_all) for path, (count, size) in shares]
    return found


async def _ask(namespace: Namespace, queue: str) -> _Tally:
    extras, tally = namespace.extras(queue), _Tally()
    next_number: int | None = 0
    while next_number is not None and tally.seen < COUNTED_MAX:
        page = await extras.backlog(next_number)
        for share in page.shares:
            tally.add(*share)
        next_number = page.next_number
    tally.is_all = next_number is None
    return tally


async def _peek(namespace: Namespace, queue: str) -> _Tally:
    entity, tally = namespace.entity(queue), _Tally()
    next_number = 0
    while tally.seen < PEEKED_MAX:
        messages = await entity.peek(PEEK_COUNT_MAX, from_number=next_number)
        if not messages:
            return tally
        for message in messages:
            tally.add(_destination(message), 1, len(message.payload))
            next_number = max(next_number, (message.sequence_number or 0) + 1)
    tally.is_all = False
    return tally


def _destination(message: ReceivedMessage) -> str | None:
    try:
        path = message.application_properties.get(wire_names.TRANSFER_PATH)
    except DecodeError:
        return None
    return path if isinstance(path, str) else None
