"""A chain of forwarding in any landscape: queue > topic > subscription > queue. Drawn from a seed."""

from collections.abc import Callable, Sequence
from typing import TypeAlias, TypeVar

from tests.simulation.landscape import LOCK_DURATION, Landscape
from tests.simulation.outlets import Mouth, Outlet
from twinbus.model.descriptions import QueueDescription, SubscriptionDescription, TopicDescription
from twinbus.testing.simulation import Simulation

OFTEN = 1_000
"""Nothing is dead-lettered for being delivered too often."""

L = TypeVar("L", bound=Landscape)
Make: TypeAlias = Callable[[int, Callable[[Simulation], None], Sequence[Mouth], Sequence[Outlet]], L]


def rehearse_chain(make: Make[L], seed: int, steps: int, *, detects_duplicates: bool = False) -> L:
    """At least once to the end of the chain, once only where the end detects duplicates, and nothing stays on the way."""

    def build(sim: Simulation) -> None:
        sim.queue(
            QueueDescription(
                "end",
                requires_duplicate_detection=detects_duplicates,
                enable_partitioning=True,
                lock_duration=LOCK_DURATION,
                max_delivery_count=OFTEN,
            )
        )
        sim.topic(TopicDescription("middle", enable_partitioning=seed % 2 == 0))
        sim.subscription(SubscriptionDescription("middle", "on", forward_to="end"))
        sim.queue(QueueDescription("first", enable_partitioning=seed % 3 == 0, forward_to="middle"))

    mouths = [Mouth("first", lambda _: ("end",), is_scheduling=True), Mouth("end", lambda _: ("end",))]
    landscape = make(seed, build, mouths, [Outlet("end", is_unique=detects_duplicates)])
    landscape.run(steps)
    landscape.heal()
    landscape.check()
    entities = landscape.sim.entities
    for entity in (entities.queue("first"), entities.subscription("middle", "on")):
        assert list(landscape.names_in(entity.id)) == []
    return landscape
