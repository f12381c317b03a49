"""A queue over several nodes while lines bring things late or break, nodes are killed and stores fail; drawn from a seed.

What is added to `tests.simulation.turmoil` is what lies between the nodes, and two rules: nothing is locked at two nodes, and no store takes
a commit of a node that has lost it.
"""

from collections.abc import Hashable
from functools import partial

from tests.simulation.turmoil import KEYS, LOCK_DURATION, AuditedReceiver, Turmoil
from twinbus.broker.consumer import SessionLock
from twinbus.errors import FragmentUnavailable, MessagingError, SessionLockLost
from twinbus.model.descriptions import QueueDescription
from twinbus.testing.cluster_nodes import Move
from twinbus.testing.cluster_simulation import ClusterSimulation

STORES = 8
HELD_EVERY = 5
"""Commands after which all locks are looked at."""
CREDIT = 1_000
"""More than there are messages."""
FED_WITHIN = 1_000
"""Some ticks: what was recalled of other receivers comes back."""


class TakeOver:
    """Of a store whose owner was taken for dead, step by step as a planned move: nothing goes with it."""

    is_planned = False

    def __init__(self, sim: ClusterSimulation, store: int, to: int) -> None:
        self.store = store
        self.is_over = False
        self._sim = sim
        self.to = to
        self._steps = [self._lose, self._take, self._is_taken]

    @property
    def is_between(self) -> bool:
        """Whether nobody serves the store."""
        return len(self._steps) == 2

    def step(self) -> bool:
        if not self._steps[0]():
            return False
        del self._steps[0]
        self.is_over = not self._steps
        return True

    def _lose(self) -> bool:
        self._sim.change_owner(self.store, self.to)
        return True

    def _take(self) -> bool:
        node, epoch = self._sim.nodes[self.to], self._sim.epochs[self.store]
        broker = node.brokers[self.store]
        broker.is_foreign = False
        broker.expect(node.fronts.mover.arrivals(self.store, epoch))
        broker.store_returned()
        return True

    def _is_taken(self) -> bool:
        return self._sim.nodes[self.to].brokers[self.store].is_available


class StepsTurmoil(Turmoil):
    sim: ClusterSimulation

    def __init__(self, seed: int, description: QueueDescription) -> None:
        super().__init__(seed, description, STORES)
        self.sim.has_stepped_lines = True
        self.sim.fenced = self._fenced  # type: ignore[method-assign]
        self.kill_count = 0
        self._watch_ports()
        self._commands += [
            (self.step_line, 150),
            (self.cut, 1),
            (self.connect, 10),
            (self.kill_node, 2),
            (self.check_held, 300 // HELD_EVERY),
        ]
        self.moving: Move | TakeOver | None = None
        self.move_count = 0
        if self.sim.has_moves:
            self._commands += [(self.move, 4), (self.take_over, 2), (self.go_on_moving, 60)]

    def roughen(self) -> None:
        """From now on failures follow each other, so that the second try of a message is lost as often as the first one."""
        self._commands += [(self.send, 20), (self.cut, 8), (self.fail_next, 12), (self.kill_node, 4)]

    # Lines and nodes

    def step_line(self) -> None:
        if self.sim.links:
            self.random.choice(self.sim.links).step(self.sim.now, is_back=self.random.random() < 0.5)

    def cut(self) -> None:
        if self.sim.links:
            self._in_doubt()
            self.sim.cut(self.random.randrange(len(self.sim.links)))

    def connect(self) -> None:
        self.sim.connect()

    def kill_node(self) -> None:
        self._in_doubt()
        self.sim.kill_node(self.random.randrange(1, len(self.sim.nodes)), self.random.randrange(3))
        self.kill_count += 1
        self._watch_ports()

    def move(self) -> None:
        if self.moving is None:
            self.moving = Move(self.sim, self.random.randrange(STORES), self.random.randrange(len(self.sim.nodes)))

    def take_over(self) -> None:
        if self.moving is None:
            self.moving = TakeOver(self.sim, self.random.randrange(STORES), self.random.randrange(len(self.sim.nodes)))

    def go_on_moving(self) -> None:
        if self.moving is not None:
            if not self.moving.is_planned:
                self._in_doubt()
            self.moving.step()
            if self.moving.is_over:
                self.moving = None
                self.move_count += 1
            self._watch_ports()

    def mend_one(self, index: int) -> None:
        if self.moving is None or self.moving.store != index or not self.moving.is_between:
            super().mend_one(index)
        self.sim.ports[index].is_hung = False

    def pass_time(self) -> None:
        super().pass_time()
        for node in self.sim.nodes:
            node.fronts.tick(self.sim.now)
            node.end_moves(self.sim.now)

    def crash(self) -> None:
        before = self.sim.nodes
        super().crash()
        if self.sim.nodes is not before:
            self.moving = None
            for store in range(STORES):
                self._fenced(store)
            self._watch_ports()

    def attach(self) -> None:
        """What is accepted may be known later."""
        if not self.queue.main.requires_session or len(self.receivers) > 6:
            super().attach()
            return
        former, request = self._wanted_session()
        sim = self.sim.nodes

        def accepted(result: SessionLock | MessagingError) -> None:
            if isinstance(result, MessagingError) or self.sim.nodes is not sim:
                return
            receiver = AuditedReceiver(self, self.random.randint(0, 10), result)
            if former is not None:
                receiver.held = former.held  # also of what is still on its way to the former
            try:
                self.queue.main.attach(receiver, self.sim.now)
            except (FragmentUnavailable, SessionLockLost):
                self.queue.main.release_session(result, self.sim.now)
            else:
                self.receivers.append(receiver)

        self.queue.main.accept_session(request, self.sim.now, self.sim.now, accepted)

    # The two rules

    def _fenced(self, store: int) -> None:
        self.auditor.fenced(store, self.auditor.epochs.get(store, 0) + 1)

    def _watch_ports(self) -> None:
        for index, port in enumerate(self.sim.ports):
            port.wrote = partial(self.auditor.wrote, index, self.auditor.epochs.get(index, 0))  # type: ignore[attr-defined]

    def check_held(self) -> None:
        held: dict[int, set[Hashable]] = {}
        for node in self.sim.nodes:
            queue = node.fronts.part.queue(self.queue.main.key)
            own = [fragment for fragment in queue.fragments if not fragment.broker.is_foreign]
            assert not any(fragment.locks.held for fragment in queue.fragments if fragment.broker.is_foreign)
            held[node.number] = {token for fragment in own for token in fragment.locks.held}
            if queue.requires_session:
                names = (key or "none" for key in KEYS)
                held[node.number] |= {name for name in names if queue.session_lock(name, self.sim.now) is not None}
        self.auditor.held(held)

    # The end

    def heal(self) -> None:
        self.sim.has_stepped_lines = False
        self.sim.connect()
        for index, port in enumerate(self.sim.ports):
            port.next_fault = None
            self.mend_one(index)
        for _ in range(10):
            self.sim.run()
            self.go_on_moving()
        super().heal()
        self.sim.tick()
        self.check_held()

    def check_fed(self) -> None:
        """Whoever has stayed all the time is handed what there is: its demand is where the messages are, whatever became of its parts."""
        main = self.queue.main
        self.sim.advance(2 * LOCK_DURATION, 1_000)
        staying = [receiver for receiver in self.receivers if receiver.lost is None and receiver.session is None]
        for receiver in staying:
            receiver.credit += CREDIT
            main.pump(self.sim.now, receiver)
            self.sim.advance(FED_WITHIN, 100)
            assert not any(fragment.lane.ready or fragment.lane.beyond for fragment in main.fragments)
            receiver.credit = 0
            main.recall(receiver, self.sim.now)
            self.sim.advance(2 * LOCK_DURATION, 1_000)


def rehearse(seed: int, steps: int, *, requires_session: bool, is_rough: bool = False) -> StepsTurmoil:
    description = QueueDescription(
        "q",
        enable_partitioning=True,
        requires_session=requires_session,
        lock_duration=LOCK_DURATION,
        max_delivery_count=1_000,  # nothing leaves a session unseen
    )
    turmoil = StepsTurmoil(seed, description)
    if is_rough:
        turmoil.roughen()
    turmoil.run(steps)
    turmoil.heal()
    turmoil.check_fed()
    turmoil.check()
    return turmoil
