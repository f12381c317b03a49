"""What a node takes for served by others, as lines to them break and open."""

import json
from pathlib import Path

from twinbus.broker.entity.entities import Entities
from twinbus.clock import NamespaceClock
from twinbus.cluster.lines.frames import Hello
from twinbus.cluster.lines.line import Line, Topics
from twinbus.server.machines.claiming import OWNED
from twinbus.server.machines.claims import NOBODY
from twinbus.server.machines.node import MachineNode
from twinbus.server.machines.register import NODES_MAX
from twinbus.server.server_settings import ServerSettings
from twinbus.store.postgres.place import Owner

NAME = "shop"
HERE, THERE = 0, 1


class TwoEnds:
    """A line between a node and one that only talks."""

    def __init__(self, node: MachineNode) -> None:
        self.here, self.there = (
            Line(Hello(number, NODES_MAX, NAME), topics, 0, lambda: None)
            for number, topics in ((HERE, node._topics), (THERE, Topics()))
        )
        self.carry()

    def serves(self, epochs: dict[int, int]) -> None:
        self.there.tell(OWNED, json.dumps(epochs).encode())
        self.carry()

    def carry(self) -> None:
        for source, target in ((self.there, self.here), (self.here, self.there)):
            target.receive(b"".join(source.take_output()), 0)


def test_a_node_that_is_reached_again_serves_nothing_until_it_says_so(tmp_path: Path) -> None:
    settings = ServerSettings(
        NAME, tmp_path, store_count=2, store_dsns=("postgresql://db/bus",), node_name="a", listen_nodes="127.0.0.1:0"
    )
    node = MachineNode(settings, Owner.this_process(), clock := NamespaceClock())
    node.number = HERE
    node.fronts(Entities([]), clock)
    line = TwoEnds(node)
    line.serves({0: 1, 1: 1})
    assert node.claiming.owners.of == [THERE, THERE]
    line.here.end("it is cut", 0)
    assert node.claiming.owners.of == [THERE, THERE]
    line = TwoEnds(node)
    assert node.claiming.owners.of == [NOBODY, NOBODY]
    line.serves({1: 1})
    assert node.claiming.owners.of == [NOBODY, THERE]
