"""The pairs of a job as the driver knows them: names, references to namespaces, and depths of backlog queues."""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta

from azure.core.exceptions import AzureError

from twinbus.clock import Millis
from twinbus.errors import ArgumentError
from twinbus.pairing.backlog.queues import LOCK_DURATION
from twinbus.pairing.syphon.service import PairToDrain
from twinbus.pipeline.connection_options import CONNECTION_STRING_ENV, CONNECTION_STRING_FILE, ConnectionOptions
from twinbus.pipeline.syphon.rounds import PairPlaces

LOOKS_MAX = 16
"""How many requests run at once; there is one for each backlog queue."""


@dataclass(frozen=True, slots=True)
class PairToSyphon:
    """`name` is for people and metrics; `backlog` has the backlog queues."""

    name: str
    places: PairPlaces
    backlog: PairToDrain

    def __post_init__(self) -> None:
        for place in (self.places.primary, self.places.secondary):
            if not is_reference(place):
                raise ArgumentError(
                    f"The pair '{self.name}' needs its connection strings as {CONNECTION_STRING_ENV} or "
                    f"{CONNECTION_STRING_FILE}: Spark stores and shows the plan of a job in many places."
                )

    def lock_duration(self, queue: str) -> Millis:
        """Blocks. If the secondary does not answer, the duration that pairing creates queues with."""
        try:
            found = self.backlog.administration.get_queue(queue).lock_duration
        except AzureError:
            found = LOCK_DURATION
        return (found if isinstance(found, timedelta) else LOCK_DURATION) // timedelta(milliseconds=1)


def is_reference(place: ConnectionOptions) -> bool:
    return place.place in (CONNECTION_STRING_ENV, CONNECTION_STRING_FILE)


@dataclass(frozen=True, slots=True)
class Depths:
    """By pair and queue; a pair that did not answer has its error instead."""

    found: Mapping[int, Mapping[str, int]]
    errors: Mapping[int, AzureError]

    @property
    def total(self) -> int:
        return sum(depth for queues in self.found.values() for depth in queues.values())


def look_at_depths(pairs: Sequence[PairToSyphon]) -> Depths:
    """What a syphon could still take from each backlog queue. Blocks."""
    found: dict[int, Mapping[str, int]] = {}
    errors: dict[int, AzureError] = {}
    with ThreadPoolExecutor(LOOKS_MAX) as looking:
        futures = [[(queue, looking.submit(_depth, pair, queue)) for queue in pair.backlog.queues] for pair in pairs]
        for number, looks in enumerate(futures):
            try:
                found[number] = {queue: look.result() for queue, look in looks}
            except AzureError as error:
                errors[number] = error
    return Depths(found, errors)


def _depth(pair: PairToSyphon, queue: str) -> int:
    return pair.backlog.administration.get_queue_runtime_properties(queue).active_message_count or 0
