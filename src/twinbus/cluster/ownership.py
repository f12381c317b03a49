"""Which node serves which fragments of an entity: nodes share the stores out, and a fragment goes with its store."""

from collections.abc import Callable, Iterable, Sequence, Set

from twinbus.broker.fragment.fragment import Fragment
from twinbus.clock import Millis
from twinbus.cluster.moves.moves import Call, Moves

TAKEN_MAX: Millis = 10_000
"""In which other nodes have the stores of one that is gone. What is still missed then stays away, and nobody waits for it."""


class Owners:
    """The node of each store. `version` counts the changes; `moves`: the stores that are about to have another one."""

    def __init__(self, of: Sequence[int]) -> None:
        self.of = list(of)
        self.version = 0
        self.moves = Moves()
        self.downs: Set[int] = frozenset()
        """Stores that are switched off: nobody will own them soon."""
        self._missed: dict[int, Millis] = {}  # stores whose node cannot be reached, and since when

    def look_for(self, is_reached: Callable[[int], bool], now: Millis) -> None:
        """To be called when a line has opened or broken, and when owners have changed. `is_reached`: whether this node is."""
        missed = [store for store, node in enumerate(self.of) if not is_reached(node)]
        self._missed = {store: self._missed.get(store, now) for store in missed}

    def may_be_taken(self, store: int, now: Millis) -> bool:
        """Of a store whose node cannot be reached: whether it has been so for a moment only, and another node is to have it."""
        return store not in self.downs and abs(now - self._missed.get(store, now)) < TAKEN_MAX

    def clock_stepped(self, by: Millis) -> None:
        """Moves are stepped by the mover."""
        self._missed = {store: since + by for store, since in self._missed.items()}

    def change(self, of: Sequence[int]) -> bool:
        """Whether that is a change."""
        if self.of == list(of):
            return False
        self.of = list(of)
        self.version += 1
        return True


class Ownership:
    """Of one sub-queue or topic, seen from one node. It follows the owners of the stores."""

    def __init__(self, node: int, owners: Owners, fragments: Sequence[Fragment]) -> None:
        self.node = node
        self._owners = owners
        self._stores = [fragment.broker.index for fragment in fragments]
        self._follow()

    def _follow(self) -> None:
        self._version = self._owners.version
        self._of = [self._owners.of[store] for store in self._stores]
        others = sorted({*self._of} - {self.node})
        self._nodes = [self.node, *others] if self.node in self._of else others

    @property
    def of(self) -> list[int]:
        """The node of each fragment."""
        if self._version != self._owners.version:
            self._follow()
        return self._of

    @property
    def nodes(self) -> list[int]:
        """Those with fragments of it, this one first."""
        if self._version != self._owners.version:
            self._follow()
        return self._nodes

    @property
    def awaited(self) -> set[int]:
        """The nodes of those fragments that are not switched off."""
        return {node for node, store in zip(self.of, self._stores, strict=True) if store not in self._owners.downs}

    def may_be_taken(self, index: int, now: Millis) -> bool:
        return self._owners.may_be_taken(self._stores[index], now)

    # While stores move

    @property
    def is_any_moving(self) -> bool:
        return bool(self._owners.moves.stores) and self._owners.moves.first_of(self._stores) is not None

    def is_moving(self, index: int) -> bool:
        return self._stores[index] in self._owners.moves.stores

    def waits(self, indexes: Iterable[int], call: Call, size_bytes: int = 0) -> bool:
        """Whether one of these fragments moves, and the call waits for it; then it is called when that is over."""
        moves = self._owners.moves
        if not moves.stores:
            return False
        stores = self._stores
        moving = moves.first_of(stores[index] for index in indexes if 0 <= index < len(stores))
        return moving is not None and moves.wait(moving, call, size_bytes)

    def waits_for_any(self, call: Call) -> bool:
        return self.waits(range(len(self._stores)), call)
