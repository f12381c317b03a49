"""Which of the nodes a process is: what it is told at its start."""

from dataclasses import dataclass, replace

from twinbus.definitions.wanted_entities import WantedEntities
from twinbus.model.message_limits import MESSAGE_SIZE_CEILING
from twinbus.server.listening.admission import SharedLimits
from twinbus.server.listening.ports import PortNumbers
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


def settings_of_one(settings: ServerSettings, count: int) -> ServerSettings:
    """What one of so many nodes is told. Limits of the namespace are shared out, as its connections are."""
    limits = settings.shared_limits
    return replace(
        settings,
        shared_access_key=None,  # the catalog has it by now
        shared_limits=SharedLimits(
            undecided_count_max=-(-limits.undecided_count_max // count),
            http_count_max=-(-limits.http_count_max // count),
            # Or a node would never take one of the largest messages.
            incomplete_size_max=max(
                limits.incomplete_size_max // count, min(limits.incomplete_size_max, MESSAGE_SIZE_CEILING)
            ),
            unread_size_max=max(limits.unread_size_max // count, min(limits.unread_size_max, MESSAGE_SIZE_CEILING)),
        ),
        exact_operations_max=-(-settings.exact_operations_max // count),
    )


def owner_of(store: int, node_count: int) -> int:
    """In turns, so that the fragments of every partitioned entity are spread over all nodes."""
    return store % node_count
