"""Which of the nodes a process is: what it is told at its start."""

from dataclasses import dataclass

from twinbus.definitions.wanted_entities import WantedEntities
from twinbus.server.ports import PortNumbers
from twinbus.server.server_settings import ServerSettings


@dataclass(frozen=True, slots=True)
class Seat:
    settings: ServerSettings
    index: int
    count: int
    numbers: PortNumbers
    wanted: WantedEntities  # entities to create if they are missing; one of the nodes does

    def owns(self, store: int) -> bool:
        return owner_of(store, self.count) == self.index

    @property
    def stores(self) -> list[int]:
        return [store for store in range(self.settings.store_count) if self.owns(store)]


def owner_of(store: int, node_count: int) -> int:
    """In turns, so that the fragments of every partitioned entity are spread over all nodes."""
    return store % node_count
