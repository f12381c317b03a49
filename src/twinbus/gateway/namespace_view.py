"""What all connections of a namespace share."""

from collections.abc import Callable
from dataclasses import dataclass

from twinbus.broker.entity.entities import Entities
from twinbus.gateway.authorization import AccessRules
from twinbus.gateway.links.traffic import Traffic
from twinbus.management.control_plane import ControlPlane
from twinbus.meter.book import OperationsBook


@dataclass(frozen=True, slots=True)
class NamespaceView:
    entities: Entities
    control: ControlPlane
    rules: AccessRules
    traffic: Traffic
    message_size_max: int
    new_id: Callable[[], str]
    book: OperationsBook | None = None  # None: nobody counts
