"""What waits in backlog queues, by destination: queues in, counts out. Looks without taking anything."""

from dataclasses import dataclass

from twinbus.amqp.errors import DecodeError
from twinbus.client.namespace import Namespace
from twinbus.client.received_message import ReceivedMessage
from twinbus.pairing.transfer import PATH

PEEK_MAX = 250
LOOKED_AT_MAX = 100_000
"""Of one queue: a look at a backlog of millions must end."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """`path` is None for messages without a destination; `is_all` is false if the queue has more than was looked at."""

    queue: str
    path: str | None
    count: int
    is_all: bool


async def survey(namespace: Namespace, queues: tuple[str, ...]) -> list[Waiting]:
    """By queue and destination, the largest share of a queue first."""
    found: list[Waiting] = []
    for queue in queues:
        counts, is_all = await _look(namespace, queue)
        shares = sorted(counts.items(), key=lambda share: (-share[1], share[0] or ""))
        found += [Waiting(queue, path, count, is_all) for path, count in shares]
    return found


async def _look(namespace: Namespace, queue: str) -> tuple[dict[str | None, int], bool]:
    entity = namespace.entity(queue)
    counts: dict[str | None, int] = {}
    seen = next_number = 0
    while seen < LOOKED_AT_MAX:
        messages = await entity.peek(PEEK_MAX, from_number=next_number)
        if not messages:
            return counts, True
        for message in messages:
            path = _destination(message)
            counts[path] = counts.get(path, 0) + 1
            next_number = max(next_number, (message.sequence_number or 0) + 1)
        seen += len(messages)
    return counts, False


def _destination(message: ReceivedMessage) -> str | None:
    try:
        path = message.application_properties.get(PATH)
    except DecodeError:
        return None
    return path if isinstance(path, str) else None
