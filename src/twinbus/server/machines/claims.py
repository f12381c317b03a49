"""Which node serves which messaging store, as the nodes tell each other: claims in, an owner for each store out. Pure.

A node claims a store under the epoch with which it took it. Of two claims the one with the higher epoch is right, since that one
was taken later and nobody before can write any more. A claim stays when the line to its node breaks: until somebody claims the store under a
higher epoch, its owner is that node, which cannot be reached. When there is a line again the claim is in doubt until the node has spoken: it may
have lost its stores, or be another process, and what waits for one of them would be sent to it and refused.
"""

from collections.abc import Mapping

NOBODY = 64
"""In place of the number of a node; there is never a line to it."""


class Claims:
    def __init__(self, store_count: int) -> None:
        self._count = store_count
        self._by_node: dict[int, dict[int, int]] = {}
        self._doubted: set[int] = set()

    def doubt(self, node: int) -> bool:
        """It is about to tell what it serves: nobody has its stores until then, and nobody before it has them again. Whether that is news."""
        is_new = bool(self._by_node.get(node)) and node not in self._doubted
        self._doubted.add(node)
        return is_new

    def tell(self, node: int, epochs: Mapping[int, int]) -> bool:
        """All that a node serves, with epochs. Whether that is news."""
        known = {store: epoch for store, epoch in epochs.items() if 0 <= store < self._count}
        is_new = self._by_node.get(node, {}) != known or (bool(known) and node in self._doubted)
        self._by_node[node] = known
        self._doubted.discard(node)
        return is_new

    def of(self, node: int) -> dict[int, int]:
        return dict(self._by_node.get(node, {}))

    def epoch_of(self, store: int) -> int:
        """The latest under which anybody claims it; 0 if nobody does."""
        return max([epochs.get(store, 0) for epochs in self._by_node.values()], default=0)

    def owners(self) -> list[int]:
        found = [(-1, NOBODY)] * self._count
        for node, epochs in sorted(self._by_node.items()):
            for store, epoch in epochs.items():
                found[store] = max(found[store], (epoch, node), key=lambda each: each[0])
        return [NOBODY if node in self._doubted else node for _, node in found]
