"""What all connections of a namespace share: its entities, control plane and access rules, and the counters of its traffic.

Traffic is counted by burst for each entity; nothing reads the counters until somebody asks for metrics.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from twinbus.broker.directory import Directory
from twinbus.broker.transaction import OwnTransaction, Transaction
from twinbus.gateway.authorization import AccessRules, WebTokenRules
from twinbus.gateway.latencies import Stopwatch
from twinbus.gateway.transaction_room import TransactionRoom
from twinbus.management.control_plane import ControlPlane
from twinbus.meter.book import OperationsBook
from twinbus.model.paths import path_key

NAMES_MAX = 20_000
"""Beyond which counters of deleted entities are forgotten: twice as many as a namespace can hold of queues and topics."""


@dataclass(slots=True)
class EntityTraffic:
    name: str
    """The path of the entity as it was created. It stays, whatever becomes of the entity: whoever adds counters up would take
    another one for another counter."""
    messages_in: int = 0
    bytes_in: int = 0
    refused: int = 0
    messages_out: int = 0
    bytes_out: int = 0
    settled: int = 0
    requests: int = 0  # to the management node
    stopwatch: Stopwatch = field(default_factory=Stopwatch)  # of the whole namespace


@dataclass(slots=True)
class Traffic:
    """Of one namespace since its process started."""

    connections_opened: int = 0
    tokens_accepted: int = 0
    tokens_refused: int = 0
    entities: dict[str, EntityTraffic] = field(default_factory=dict)
    stopwatch: Stopwatch = field(default_factory=Stopwatch)
    name_at: Callable[[str], str | None] = lambda _: None
    """The path of an entity as it was created; None if there is none. Counters of one that is there stay: links hold them, and
    whoever adds counters up takes a missing one for 0."""
    _names_max: int = 0  # more than usual, where so many entities are there

    def of(self, path: str) -> EntityTraffic:
        key = path_key(path)
        traffic = self.entities.get(key)
        if traffic is None:
            if len(self.entities) >= max(NAMES_MAX, self._names_max):
                self._forget_deleted()
            traffic = self.entities[key] = EntityTraffic(self.name_at(key) or key, stopwatch=self.stopwatch)
        return traffic

    def _forget_deleted(self) -> None:
        """The older half of them; and not for every name that comes when most entities are there."""
        deleted = [key for key in self.entities if self.name_at(key) is None]
        for key in deleted[: -(-len(deleted) // 2)]:
            del self.entities[key]
        self._names_max = len(self.entities) + NAMES_MAX // 2


@dataclass(frozen=True, slots=True)
class NamespaceView:
    entities: Directory
    control: ControlPlane
    rules: AccessRules
    traffic: Traffic
    new_id: Callable[[], str]
    new_transaction: Callable[[], Transaction] = OwnTransaction
    transaction_room: TransactionRoom = field(default_factory=TransactionRoom)
    book: OperationsBook | None = None  # None: operations are not metered
    web_tokens: WebTokenRules | None = None  # None: shared access signatures only
    must_wait: Callable[[int, bool, Callable[[], None]], bool] = lambda *_: False
    """Whether a store is behind, and a connection with so many bytes waiting, that sent much lately or not, has its part in it. Then
    the callable is called once, when there is room again."""
    heard_of: Callable[[Callable[[], None]], None] = lambda _: None  # to be called when it has sent something since
    light_sent: Callable[[], None] = lambda: None  # to be called when somebody has sent who sends little
