"""Nodes of which some stand still and wake up, while stores are taken over and lines break at one end before the other.

a node that stands still does nothing: it reads no line and hears no store. Others take its stores meanwhile, and it goes on as if it had
    them until it is told; it has no lease on them, and its commits fail
what one end has written on a line may come after that end has given the line up, and after there is another one
a planned move may lose its owner or its successor at any step
who serves what is known from what nodes claim on their lines, as on several machines
"""

from collections import deque
from collections.abc import Sequence
from math import inf
from random import Random

from tests.cluster.stepped_turmoil import TakeOver
from twinbus.broker.store_port import ELSEWHERE
from twinbus.clock import Millis
from twinbus.cluster.lines.line import Line
from twinbus.cluster.ownership import Owners
from twinbus.errors import StoreUnavailable
from twinbus.server.machines.claiming import Claiming
from twinbus.server.machines.claims import NOBODY
from twinbus.testing.cluster_nodes import Move, Node
from twinbus.testing.cluster_simulation import ClusterSimulation, Link
from twinbus.testing.stepped_port import SteppedPort


class SimLease:
    def __init__(self) -> None:
        self.until = inf

    def is_held(self) -> bool:
        return self.until > 0.0


class ClaimingNode(Node):
    """To be used in place of `Node`."""

    def _owners(self, simulation: ClusterSimulation) -> Owners:
        self.peer_count = NOBODY + 1
        count = len(simulation.ports)
        self._own_epochs = {store: simulation.epochs.get(store, 0) for store in range(count)}
        self._claiming = Claiming(self.number, count, self.topics, self._served, self._open_lines, simulation.clock)
        return self._claiming.owners

    def _hear(self) -> None:
        self._claiming.follow(self.fronts)

    def _open_lines(self) -> list[Line]:
        return [peer.line for peer in self.fronts.peers if peer.line is not None]

    def _served(self) -> dict[int, int]:
        return {store: self._own_epochs[store] for store, broker in enumerate(self.brokers) if broker.is_available}

    def _serves(self, simulation: ClusterSimulation, store: int) -> None:
        self._own_epochs[store] = simulation.epochs.get(store, 0)
        self._claiming.serves_more()

    def heard_owner(self, told: Sequence[int], now: Millis) -> None:
        """From the others, on their lines."""

    def end_moves(self, now: Millis) -> None:
        self._claiming.tick(now)


class LateLink:
    """A line between two nodes, with what is on its way in each direction."""

    def __init__(self, link: Link) -> None:
        self.one, self.other, self.nodes = link
        self._wires: tuple[deque[bytes], deque[bytes]] = deque(), deque()

    @property
    def is_broken(self) -> bool:
        return self.one.is_broken or self.other.is_broken

    @property
    def is_over(self) -> bool:
        return self.one.is_broken and self.other.is_broken

    def source(self, *, is_back: bool) -> int:
        return self.nodes[is_back]

    def target(self, *, is_back: bool) -> int:
        return self.nodes[not is_back]

    def write(self, *, is_back: bool) -> None:
        data = b"".join((self.other if is_back else self.one).take_output())
        if data:
            self._wires[is_back].append(data)

    def read(self, now: Millis, *, is_back: bool) -> bool:
        wire = self._wires[is_back]
        if wire:
            (self.one if is_back else self.other).receive(wire.popleft(), now)
            return True
        return False

    def step(self, now: Millis, *, is_back: bool) -> bool:
        self.write(is_back=is_back)
        has_come = False
        while self.read(now, is_back=is_back):
            has_come = True
        return has_come

    def give_up(self, now: Millis, *, is_other: bool) -> None:
        """One of the ends; the other one does not know yet."""
        (self.other if is_other else self.one).end("silent", now)

    def cut(self, now: Millis) -> None:
        for end in (self.one, self.other):
            end.end("cut", now)


class LateTakeOver(TakeOver):
    """Of a store whose owner was taken for dead, and learns of it later."""

    def __init__(self, world: "LateNodes", store: int, to: int) -> None:
        super().__init__(world.sim, store, to)
        self._world = world

    def _lose(self) -> bool:
        self._world.take_away(self.store, self.to)
        return True

    def _take(self) -> bool:
        self._world.load_at(self.store, self.to)
        return True


class LateNodes:
    """Commands for a world that has a simulation of `ClaimingNode`s. `in_doubt`: what is under way may happen and go elsewhere too."""

    sim: ClusterSimulation
    random: Random
    moving: Move | LateTakeOver | None

    def in_doubt(self) -> None:
        raise NotImplementedError

    def begin_late(self) -> None:
        self.frozen: set[int] = set()
        self.unnoticed: set[tuple[int, int]] = set()
        """Nodes that do not know that a store of theirs has been taken."""
        self.links: list[LateLink] = []
        self.moving = None
        self.freeze_count = self.move_count = self.take_over_count = 0
        self.late_commands = [
            (self.step_line, 150),
            (self.cut, 1),
            (self.connect, 10),
            (self.give_up_line, 2),
            (self.read_late, 15),
            (self.end_late, 5),
            (self.freeze, 3),
            (self.thaw, 5),
            (self.notice, 10),
            (self.lose_lease, 1),
            (self.renew_leases, 5),
            (self.move, 4),
            (self.take_over, 2),
            (self.go_on_moving, 60),
            (self.give_up_holding, 2),
            (self.give_up_resting, 2),
            (self.abandon_move, 2),
        ]
        self.sim.has_stepped_lines = True
        self.follow_nodes()

    def follow_nodes(self) -> None:
        """There are others than before."""
        for node in self.sim.nodes:
            for broker in node.brokers:
                if not isinstance(broker.lease, SimLease):
                    broker.lease = SimLease()
        self._follow_links()

    def started_again(self) -> None:
        """All nodes."""
        self.frozen, self.unnoticed, self.links, self.moving = set(), set(), [], None
        self.follow_nodes()

    def kill(self, number: int) -> None:
        self.in_doubt()
        for link in self.links:
            if number in link.nodes:
                link.cut(self.sim.now)
        if isinstance(self.moving, Move) and number in (self.moving._former, self.moving.to):
            self.abandon_move()
        self.frozen.discard(number)
        self.unnoticed = {each for each in self.unnoticed if each[0] != number}
        self.sim.kill_node(number, self.random.randrange(3))
        self.follow_nodes()

    # Leases, and nodes that stand still

    def lease(self, number: int, store: int) -> SimLease:
        lease = self.sim.nodes[number].brokers[store].lease
        assert isinstance(lease, SimLease)
        return lease

    def may_freeze(self) -> list[int]:
        return [*range(len(self.sim.nodes))]

    def a_node(self) -> int:
        """One that does not stand still."""
        return self.random.choice([number for number in range(len(self.sim.nodes)) if number not in self.frozen])

    def freeze(self) -> None:
        if not self.frozen:
            self.in_doubt()
            self.frozen.add(self.random.choice(self.may_freeze()))
            self.freeze_count += 1

    def thaw(self) -> None:
        if self.frozen and self.random.random() < 0.5:
            self.in_doubt()
            number = self.frozen.pop()
            if self.random.random() < 0.5:  # nobody has taken its stores, and its leases have ended
                for store, owner in enumerate(self.sim.owners):
                    if owner == number:
                        self.lease(number, store).until = 0.0

    def lose_lease(self) -> None:
        self.in_doubt()
        store = self.random.randrange(len(self.sim.ports))
        self.lease(self.sim.owners[store], store).until = 0.0

    def renew_leases(self) -> None:
        for store, owner in enumerate(self.sim.owners):
            if (owner, store) not in self.unnoticed and owner not in self.frozen:
                self.lease(owner, store).until = inf

    def notice(self) -> None:
        there = sorted(each for each in self.unnoticed if each[0] not in self.frozen)
        if there:
            self._notice(*self.random.choice(there))

    def _notice(self, number: int, store: int) -> None:
        self.in_doubt()
        self.unnoticed.discard((number, store))
        node = self.sim.nodes[number]
        node.brokers[store].is_foreign = True
        node.brokers[store].store_lost(StoreUnavailable("taken over"))
        node.ports[store].port = ELSEWHERE

    def busy_ports(self) -> list[SteppedPort]:
        """With something to do or to refuse, at nodes that do not stand still."""
        sim = self.sim
        ports = [port for port, owner in zip(sim.ports, sim.owners, strict=True) if owner not in self.frozen]
        for number, store in sorted(self.unnoticed):
            port = sim.nodes[number].ports[store].port
            if number not in self.frozen and isinstance(port, SteppedPort):
                ports.append(port)
        return [port for port in ports if len(port)]

    def tick_nodes(self) -> None:
        for node in self.sim.nodes:
            if node.number not in self.frozen:
                for broker in node.brokers:
                    broker.tick(self.sim.now)
                node.fronts.tick(self.sim.now)
                node.end_moves(self.sim.now)
        self.sim.turn()

    # Stores that change hands

    def take_away(self, store: int, to: int) -> None:
        """Of an owner that is not told. What it has asked for may be written still, and it hears of nothing but failures."""
        self.in_doubt()
        self.take_over_count += 1
        sim = self.sim
        former, port = sim.owners[store], sim.ports[store]
        while port._inbox and not port.is_down and self.random.random() < 0.5:
            work = port._inbox[0]
            if not work.changes:
                break
            port.store.commit(list(work.changes))
            port._inbox[0] = work._replace(changes=[])
        port.is_down, port.is_hung = True, False
        self.lease(former, store).until = 0.0
        if former == to or sim.nodes[former].brokers[store].is_foreign:
            self._notice(former, store)
        else:
            self.unnoticed.add((former, store))
        if (to, store) in self.unnoticed:
            self._notice(to, store)
        sim.owners[store] = to
        sim.epochs[store] = sim.epochs.get(store, 0) + 1
        sim.ports[store] = sim.nodes[to].ports[store].port = sim._port(port.store)
        sim.brokers = [sim.nodes[owner].brokers[index] for index, owner in enumerate(sim.owners)]
        sim.fenced(store)

    def load_at(self, store: int, to: int) -> None:
        node = self.sim.nodes[to]
        broker = node.brokers[store]
        broker.is_foreign = False
        self.lease(to, store).until = inf
        broker.expect(node.fronts.mover.arrivals(store, self.sim.epochs[store]))
        broker.store_returned()

    def move(self) -> None:
        store, to = self.random.randrange(len(self.sim.ports)), self.random.randrange(len(self.sim.nodes))
        former = self.sim.owners[store]
        if self.moving is None and former not in self.frozen and self.lease(former, store).is_held():
            if (to, store) in self.unnoticed:
                self._notice(to, store)
            self.moving = Move(self.sim, store, to)

    def take_over(self) -> None:
        if self.moving is None:
            silent = [store for store, owner in enumerate(self.sim.owners) if owner in self.frozen]
            store = self.random.choice(silent or range(len(self.sim.ports)))
            self.moving = LateTakeOver(self, store, self.a_node())

    def abandon_move(self) -> None:
        """Its owner or its successor has failed meanwhile."""
        if isinstance(self.moving, Move):
            self.moving = LateTakeOver(self, self.moving.store, self.a_node())
            self.moving.step()

    def give_up_holding(self) -> None:
        if isinstance(self.moving, Move):
            self.moving._held()

    def give_up_resting(self) -> None:
        """The store moves before it has answered everything, and without its locks (`StorePool.release`)."""
        moving = self.moving
        if isinstance(moving, Move) and len(moving._steps) == 3 and moving._former not in self.frozen:
            self.in_doubt()
            node, broker = moving._owner
            broker.is_foreign = True
            broker.store_lost(StoreUnavailable("moves"))
            self.sim.ports[moving.store].run()
            node.ports[moving.store].port = ELSEWHERE
            del moving._steps[0]

    def go_on_moving(self) -> None:
        moving = self.moving
        if moving is None:
            return
        if isinstance(moving, Move):
            if moving._former in self.frozen or moving.to in self.frozen:
                return
            if len(moving._steps) == 2:
                self.lease(moving.to, moving.store).until = inf
        elif moving.to in self.frozen:
            moving = self.moving = LateTakeOver(self, moving.store, self.a_node())
        if not moving.is_planned:
            self.in_doubt()
        moving.step()
        if moving.is_over:
            self.moving = None
            self.move_count += 1

    # Lines

    def _follow_links(self) -> None:
        known = {id(each.one): each for each in self.links}
        new = [LateLink(link) for link in self.sim.links if id(link.one) not in known]
        self.links = [each for each in self.links if not each.is_over] + new

    def connect(self) -> None:
        self.sim.connect()
        self._follow_links()

    def _some_link(self, *, is_broken: bool) -> LateLink | None:
        links = [link for link in self.links if link.is_broken is is_broken]
        return self.random.choice(links) if links else None

    def step_line(self) -> None:
        link = self._some_link(is_broken=False)
        if link is None:
            return
        is_back, choice = self.random.random() < 0.5, self.random.random()
        if link.source(is_back=is_back) not in self.frozen and choice < 0.9:
            link.write(is_back=is_back)
        if link.target(is_back=is_back) not in self.frozen and choice > 0.1:
            while link.read(self.sim.now, is_back=is_back) and self.random.random() < 0.8:
                pass

    def cut(self) -> None:
        self._end(self._some_link(is_broken=False))

    def give_up_line(self) -> None:
        """One end hears nothing any more, or the other one stands still."""
        link, is_other = self._some_link(is_broken=False), self.random.random() < 0.5
        if link is not None and link.nodes[is_other] not in self.frozen:
            self.in_doubt()
            link.give_up(self.sim.now, is_other=is_other)

    def read_late(self) -> None:
        """What was on its way when the end that wrote it gave up."""
        link, is_back = self._some_link(is_broken=True), self.random.random() < 0.5
        if link is not None:
            self.in_doubt()
            if link.target(is_back=is_back) not in self.frozen:
                link.read(self.sim.now, is_back=is_back)
            if link.source(is_back=is_back) not in self.frozen:
                link.write(is_back=is_back)

    def end_late(self) -> None:
        self._end(self._some_link(is_broken=True))

    def _end(self, link: LateLink | None) -> None:
        if link is not None and not self.frozen.intersection(link.nodes):
            self.in_doubt()
            link.cut(self.sim.now)

    # The end

    def wake_all(self) -> None:
        self.in_doubt()
        self.frozen.clear()
        for each in sorted(self.unnoticed):
            self._notice(*each)
        for link in self.links:
            for is_back in (False, True):
                link.step(self.sim.now, is_back=is_back)
            if link.is_broken:
                link.cut(self.sim.now)
        if isinstance(self.moving, Move):
            self.moving._held()
        self.renew_leases()
        self.links.clear()  # what is on them is brought by the simulation from now on
        self.sim.has_stepped_lines = False
