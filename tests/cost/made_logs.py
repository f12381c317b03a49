"""Operations logs made up for tests, written by the writer of the real ones, and the count of them made without it."""

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from twinbus.clock import Millis
from twinbus.meter.log_writer import write_operations
from twinbus.meter.operation import Cause, Operation, path_of, units_of

PRIMARY, SECONDARY = "contoso", "contoso-spare"
BACKLOG = "contoso/x-servicebus-transfer/{}"
SYPHON = "twinbus-syphon/1.0"
APPLICATION = "shop"


def millis(text: str) -> Millis:
    """Of a time in UTC such as 2026-11-15 07:30."""
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


def operation(
    at: Millis,
    cause: Cause,
    entity: str = "orders",
    *,
    fragment: int = 0,
    size: int = 1000,
    who: str = APPLICATION,
    message_id: str | None = None,
    count: int = 1,
) -> Operation:
    """`count` operations of one message each in a row; those without a message have no size."""
    has_message = cause not in (Cause.EMPTY_RECEIVE, Cause.MANAGEMENT)
    bytes_each = size if has_message else 0
    units = units_of(bytes_each) * count if cause.is_billed else 0
    return Operation(
        at, cause, entity, fragment, count if has_message else 0, bytes_each * count, units, path_of(entity, who), who,
        message_id, operations=count,
    )  # fmt: skip


def write_log(log: Path, operations: Iterable[Operation], *, namespace: str = PRIMARY, seed: int = 1) -> list[Path]:
    return write_operations(log, namespace, f"node-{seed:04}", seed, operations)


def busy_hours(start: Millis, hours: int, seed: int, a_hour: int = 200) -> list[Operation]:
    """Traffic of an application on an ordinary and a partitioned queue."""
    chance = random.Random(seed)
    return [
        operation(
            start + hour * 3_600_000 + chance.randrange(3_600_000),
            chance.choices((Cause.SEND, Cause.RECEIVE, Cause.SETTLE, Cause.EMPTY_RECEIVE), (5, 5, 5, 1))[0],
            chance.choice(("orders", "events")),
            fragment=int(chance.triangular(0, 16, 3)),
            size=chance.choice((100, 2_000, 70_000)),
        )
        for hour in range(hours)
        for _ in range(a_hour)
    ]


def outage(start: Millis, messages: int) -> tuple[list[Operation], list[Operation]]:
    """What primary and secondary log: messages to the backlog, pings, and the way home."""
    primary = [operation(start + 60_000 * number, Cause.PING, size=0) for number in range(1, 6)]
    secondary = []
    for number in range(messages):
        queue, name = BACKLOG.format(number % 10), f"m-{number}"
        secondary.append(operation(start + number, Cause.SEND, queue, size=1512, message_id=name))
        home = start + 400_000 + number
        secondary.append(operation(home, Cause.RECEIVE, queue, size=1512, who=SYPHON, message_id=name))
        secondary.append(operation(home + 5, Cause.SETTLE, queue, size=1512, who=SYPHON, message_id=name))
        primary.append(operation(home + 3, Cause.SEND, size=1000, who=SYPHON, message_id=name))
        primary.append(operation(home + 90, Cause.RECEIVE, size=1000, message_id=name))
        primary.append(operation(home + 99, Cause.SETTLE, size=1000, message_id=name))
    return primary, secondary


def idle_polls(start: Millis, hours: int, queues: int = 10, poll_s: int = 900) -> list[Operation]:
    return [
        operation(start + second * 1000, Cause.EMPTY_RECEIVE, BACKLOG.format(queue), fragment=-1, who=SYPHON)
        for queue in range(queues)
        for second in range(0, hours * 3_600, poll_s)
    ]


def counted(operations: Sequence[Operation]) -> Counter[str]:
    """The independent count."""
    totals: Counter[str] = Counter()
    for each in operations:
        totals.update(operations=each.operations, messages=each.messages, bytes=each.size, units=each.units)
    return totals
