"""Which node is to own which messaging store: nodes and what they reach in, an owner for each store out. Pure.

Every node computes it for itself, from what it read in the register, and comes to the same result. A store goes to the node with
the highest hash of the two that has room (rendezvous hashing with a bound), so all nodes have the same number of stores, give or take one,
and few stores change hands when a node comes or goes. A node that does not reach a store's database does not count for it.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from hashlib import blake2b
from typing import NamedTuple


class Candidate(NamedTuple):
    """A node that lives and is not about to leave. `unreached`: databases, by their place among those of the namespace."""

    number: int
    name: str
    unreached: Collection[int] = ()


def share_out(
    store_count: int, database_count: int, candidates: Collection[Candidate], pins: Mapping[int, str]
) -> list[int | None]:
    """By store: the number of a node, or None if no node reaches its database. `pins`: stores that somebody gave to a node by its
    name; they go there while that node can have them."""
    wanted: list[int | None] = [None] * store_count
    load: Counter[int] = Counter()
    by_name = {each.name: each for each in candidates}
    for store, name in pins.items():
        node = by_name.get(name)
        if node is not None and store < store_count and store % database_count not in node.unreached:
            wanted[store] = node.number
            load[node.number] += 1
    room = -(-store_count // max(1, len(candidates)))
    for store in range(store_count):
        if wanted[store] is not None:
            continue
        able = [each for each in candidates if store % database_count not in each.unreached]
        able.sort(key=lambda each: _weight(store, each.name), reverse=True)
        chosen = next((each for each in able if load[each.number] < room), able[0] if able else None)
        if chosen is not None:
            wanted[store] = chosen.number
            load[chosen.number] += 1
    return wanted


def _weight(store: int, name: str) -> bytes:
    return blake2b(f"{store} {name}".encode(), digest_size=8).digest()
