"""What went through the gateway, counted for each entity by burst: cheap to keep, read only when somebody looks."""

from dataclasses import dataclass, field


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
        key = path.lower()
        traffic = self.entities.get(key)
        if traffic is None:
            traffic = self.entities[key] = EntityTraffic()
        return traffic
