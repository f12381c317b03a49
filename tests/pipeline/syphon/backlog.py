"""A backlog of its own for a test: queues on the secondary, and messages in them that are bound for the primary."""

import asyncio
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import timedelta

from tests.pairing.conftest import Spaces
from twinbus.client.blocking import BlockingNamespace
from twinbus.client.message import encode_message
from twinbus.client.namespace import Namespace
from twinbus.pairing.backlog.queues import backlog_queue_path
from twinbus.pairing.syphon.destinations import PumpMemory
from twinbus.pairing.syphon.pump import BATCH_MAX
from twinbus.pairing.syphon.service import find_backlog
from twinbus.pipeline.syphon.key_folder import KeyFolder
from twinbus.pipeline.syphon.pairs import PairToSyphon
from twinbus.pipeline.syphon.rounds import Lane, LanePlan, PairPlaces, PairPlan, TaskPlan
from twinbus.pipeline.syphon.task_pace import PacePlan

LOCK = timedelta(seconds=5)
PEEK_COUNT = 200


class Backlog:
    """With the shortest locks, so that what was left comes again soon; or with longer ones, so that it does not."""

    def __init__(self, spaces: Spaces, keys: KeyFolder, queue_count: int = 2, lock: timedelta = LOCK) -> None:
        self.spaces = spaces
        self.name = f"p{uuid.uuid4().hex[:8]}"
        self.queues = [backlog_queue_path(self.name, index) for index in range(queue_count)]
        self.places = PairPlaces(
            keys.keep(spaces.primary.connection_string), keys.keep(spaces.secondary.connection_string)
        )
        with spaces.secondary.administration() as administration:
            for queue in self.queues:
                administration.create_queue(queue, max_delivery_count=1000, lock_duration=lock)

    def fill(self, path: str | None, count: int, prefix: str = "m") -> list[str]:
        """Returns the bodies, in the order in which each queue has them; each queue stands for one sender."""
        bodies = [f"{prefix}{number}" for number in range(count)]
        asyncio.run(self._fill(path, bodies))
        return bodies

    async def _fill(self, path: str | None, bodies: list[str]) -> None:
        properties = {} if path is None else {"x-ms-path": path}
        async with await Namespace.connect(self.spaces.secondary.connection_string) as namespace:
            for index, queue in enumerate(self.queues):
                payloads = [
                    encode_message(body.encode(), message_id=body, application_properties=properties)
                    for body in self.share(index, bodies)
                ]
                assert not any(await (await namespace.sender(queue)).send_batches(payloads, keeps_keys_apart=False))

    def share(self, index: int, bodies: list[str]) -> list[str]:
        """What went into one of the queues."""
        return bodies[index :: len(self.queues)]

    def pair(self) -> PairToSyphon:
        spaces = self.spaces
        found = find_backlog(
            spaces.primary.connection_string,
            spaces.secondary.connection_string,
            spaces.secondary.administration(),
            self.name,
        )
        return PairToSyphon(self.name, self.places, found)

    def task(
        self,
        *,
        budget_s: float = 20.0,
        rate: float | None = None,
        poison_quota: int = 100,
        keeps_order: bool = True,
        stop_file: str | None = None,
        page_max: int = BATCH_MAX,
        memories: Mapping[str, PumpMemory] | None = None,
    ) -> TaskPlan:
        """A plan with one lane for each queue."""
        lanes = [
            LanePlan(Lane(0, queue, 0, 1), None if memories is None else memories[queue], page_max)
            for queue in self.queues
        ]
        pair = PairPlan(self.places.primary, self.places.secondary, PacePlan(rate=rate), poison_quota)
        return TaskPlan(0, lanes, {0: pair}, budget_s, keeps_order, stop_file)

    def waiting(self) -> list[str]:
        """Bodies that are still there; they are taken."""
        return [body for queue in self.queues for body in self.spaces.secondary.take_all(queue)]

    def waiting_count(self) -> int:
        return sum(self.spaces.secondary.count(queue) for queue in self.queues)

    def forget_locks(self) -> None:
        """A namespace forgets locks when it is started anew."""
        self.spaces.secondary.kill()
        self.spaces.secondary.revive()

    def dead_reasons(self) -> Counter[str]:
        found: Counter[str] = Counter()
        with BlockingNamespace.connect(self.spaces.secondary.connection_string) as namespace:
            for queue in self.queues:
                dead = namespace.run(namespace.extras(f"{queue}/$DeadLetterQueue").peek_merged(PEEK_COUNT))
                found.update(str(message.dead_letter_reason) for message in dead)
        return found


def in_order(bodies: Sequence[str], wanted: Sequence[str]) -> bool:
    """Are all of `wanted` among the bodies, and in that order?"""
    chosen = set(wanted)
    return [body for body in bodies if body in chosen] == list(wanted)
