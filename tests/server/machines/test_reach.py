"""When a node is cut off: it has not reached most of the others for a while."""

from twinbus.cluster.lines.frames import Hello
from twinbus.cluster.lines.line import Line, Topics
from twinbus.server.machines.reach import MISSING_S, Reach

NAMES = {1: "b", 2: "c"}


class World:
    """Node 0, with lines under a hand that carries the bytes."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.topics = Topics()
        self.reach = Reach(self.topics, lambda: self.now_s)

    def line_to(self, number: int) -> tuple[Line, Line]:
        other = Topics()
        Reach(other)
        here = Line(Hello(0, 64, "shop"), self.topics, 0, lambda: None)
        there = Line(Hello(number, 64, "shop"), other, 0, lambda: None, peer=0)
        carry(here, there)
        return here, there


def carry(one: Line, other: Line) -> None:
    while (ahead := b"".join(one.take_output())) + (back := b"".join(other.take_output())):
        other.receive(ahead, 0)
        one.receive(back, 0)


def test_a_node_that_misses_one_of_two_is_not_cut_off_and_one_that_misses_both_is() -> None:
    world = World()
    here, _ = world.line_to(1)
    world.reach.look(NAMES, {1: here})
    world.now_s = MISSING_S + 1
    world.reach.look(NAMES, {1: here})
    assert world.reach.cut_off_from() == []
    world.reach.look(NAMES, {})
    assert world.reach.cut_off_from() == []
    world.now_s += MISSING_S + 1
    world.reach.look(NAMES, {})
    assert world.reach.cut_off_from() == ["b", "c"]
    world.reach.look(NAMES, {1: here})
    assert world.reach.cut_off_from() == []


def test_of_two_nodes_that_miss_each_other_both_serve_on() -> None:
    world = World()
    for _ in range(2):
        world.reach.look({1: "b"}, {})
        world.now_s += MISSING_S + 1
    assert world.reach.cut_off_from() == []


def test_how_long_a_question_takes_is_known_of_those_that_are_reached_and_live() -> None:
    world = World()
    here, there = world.line_to(1)
    world.reach.look(NAMES, {1: here})
    carry(here, there)
    assert list(world.reach.round_trips_s) == ["b"]
    world.reach.look({2: "c"}, {1: here})
    assert world.reach.round_trips_s == {}
