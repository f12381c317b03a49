"""The traffic plan: a seed in, a list of messages with times, entities, keys and sizes out.

The paired and the unpaired sender follow the same plan, so every difference between them comes from the pairing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from random import Random

from twinbus.errors import ArgumentError
from twinbus.rehearsal.entities import SESSIONS, EntityKind, RehearsedEntity

RATE_DEFAULT = 40.0
RATE_MAX = 500.0
"""For one process with the official client, which sends about 1,900 messages a second at best."""

MESSAGES_MAX = 1_000_000
PARTITION_KEYS = tuple(f"region-{number}" for number in range(32))
# Mostly small, sometimes large, and one in a hundred over 64 KB, which is billed as two operations.
SIZES, SIZE_WEIGHTS = (200, 1_000, 8_000, 70_000), (60, 30, 9, 1)


@dataclass(frozen=True, slots=True)
class PlannedMessage:
    """`lane`: messages of one lane are sent one after the other. A message session keeps to one lane, and messages with a partition key
    have lanes of their own: one that waits for its fragment holds up none that any fragment could take."""

    number: int
    due_s: float
    entity: RehearsedEntity
    lane: int
    size: int
    session_id: str | None = None
    partition_key: str | None = None

    def body(self, message_id: str) -> bytes:
        """No two messages have the same body, so that a mix-up shows."""
        unit = message_id.encode() + b"."
        return bytes(islice(cycle(unit), self.size))


def plan_traffic(
    random: Random, entities: Sequence[RehearsedEntity], rate: float, duration_s: float, lane_count: int
) -> list[PlannedMessage]:
    """In the order in which they are due: evenly paced, each up to one interval late."""
    assert 0 < rate <= RATE_MAX
    count = max(1, int(rate * duration_s))
    if count > MESSAGES_MAX:
        raise ArgumentError(
            f"That would be {count} messages, but a rehearsal handles at most {MESSAGES_MAX}. Choose a lower rate or duration."
        )
    return [
        _plan_message(random, number, (number + random.random()) / rate, random.choice(entities), lane_count)
        for number in range(count)
    ]


def _plan_message(
    random: Random, number: int, due_s: float, entity: RehearsedEntity, lane_count: int
) -> PlannedMessage:
    session_id = partition_key = None
    lane = number % lane_count
    if entity.kind is EntityKind.SESSIONS:
        index = random.randrange(len(SESSIONS))
        session_id, lane = SESSIONS[index], index % lane_count
    elif entity.kind is EntityKind.PARTITIONED and random.random() < 0.5:
        partition_key, lane = random.choice(PARTITION_KEYS), lane + lane_count
    size = random.choices(SIZES, SIZE_WEIGHTS)[0]
    return PlannedMessage(number, due_s, entity, lane, size, session_id, partition_key)
