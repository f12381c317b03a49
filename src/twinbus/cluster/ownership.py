"""Which node serves which fragments of an entity: nodes share the stores out, and a fragment goes with its store."""

from collections.abc import Sequence
from functools import cached_property

from twinbus.broker.fragment.fragment import Fragment


class Ownership:
    """Of one sub-queue or topic, seen from one node. `owners`: the node of each store."""

    def __init__(self, node: int, owners: Sequence[int], fragments: Sequence[Fragment]) -> None:
        self.node = node
        self.of = [owners[fragment.broker.index] for fragment in fragments]
        """The node of each fragment."""

    @cached_property
    def nodes(self) -> list[int]:
        """Those with fragments of it, this one first."""
        others = sorted({*self.of} - {self.node})
        return [self.node, *others] if self.node in self.of else others
