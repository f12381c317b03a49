"""What went through the gateway, counted for each entity by burst: cheap to keep, read only when somebody looks."""

from dataclasses import dataclass, field

from twinbus.model.paths import path_key

ENTITIES_MAX = 20_000
"""Twice as many as a namespace holds at a time."""


@dataclass(slots=True)
class EntityTraffic:
    messages_in: int = 0
    bytes_in: int = 0
    refused: int = 0
    messages_out: int = 0
    bytes_out: int = 0
    settled: int = 0
    requests: int = 0  # to the management node


@dataclass(slots=True)
class Traffic:
    """Of one namespace since its process started."""

    connections_opened: int = 0
    tokens_accepted: int = 0
    tokens_refused: int = 0
    entities: dict[str, EntityTraffic] = field(default_factory=dict)

    def of(self, path: str) -> EntityTraffic:
        key = path_key(path)
        traffic = self.entities.get(key)
        if traffic is None:
            if len(self.entities) >= ENTITIES_MAX:
                # Entities long deleted: the first ones seen go first.
                del self.entities[next(iter(self.entities))]
            traffic = self.entities[key] = EntityTraffic()
        return traffic
