"""A queue over nodes that stand still and wake up (`late_nodes`), with clients at all of them, which end with theirs; drawn from a seed.

At the end, beside the rules of `tests.simulation.turmoil`: whoever asked has an answer, nothing is locked or held that nobody has, and one
credit at a time is enough to get everything.
"""

from collections.abc import Hashable, Sequence
from contextlib import suppress
from functools import partial

from tests.cluster.late_nodes import LateNodes
from tests.simulation.turmoil import LOCK_DURATION, OUTCOMES, AuditedReceiver, SettleAudit, Turmoil
from twinbus.broker.commands import ReceiveDeferred
from twinbus.broker.consumer import ReceiveMode, SessionLock, TakenMessage
from twinbus.broker.fragment.message_sessions import MessageSessions
from twinbus.broker.outcomes import COMPLETE, Outcome
from twinbus.clock import Millis
from twinbus.cluster.fronts.source import FrontSource
from twinbus.cluster.fronts.target import FrontQueue
from twinbus.errors import FragmentUnavailable, MessagingError, SessionLockLost
from twinbus.model.descriptions import QueueDescription
from twinbus.testing.cluster_nodes import Node
from twinbus.testing.cluster_simulation import ClusterSimulation
from twinbus.testing.messages import make_message
from twinbus.testing.simulation import Answer

STORES = 8


def front_of(node: Node) -> FrontQueue:
    found = node.fronts.find("q")
    assert isinstance(found, FrontQueue)
    return found


def main_of(node: Node) -> FrontSource:
    return front_of(node).main


class NodeReceiver(AuditedReceiver):
    """A receiver at one of the nodes. Its credit is that of a link, and follows what the client says of it (`gateway.links.receiver_binding`)."""

    def __init__(self, turmoil: "LateTurmoil", node: Node, session: SessionLock | None) -> None:
        super().__init__(turmoil, 0, session)
        self.mode = turmoil.mode
        self.node = node
        self.main = main_of(node)
        self.link_credit = 0
        self.under_way = 0
        self._granted = 0
        self._is_drain_due = False

    @property
    def is_there(self) -> bool:
        return self.node in self._turmoil.sim.nodes  # type: ignore[attr-defined]

    def deliver(self, deliveries: list[TakenMessage]) -> None:
        if not self.is_there:
            return
        self.link_credit = max(0, self.link_credit - len(deliveries))  # it may have been lowered meanwhile
        self.under_way -= len(deliveries)
        if self._is_drain_due:
            self.drain()
        # What comes when its lock has ended was long on its way, and cannot be settled: somebody else may have done so.
        now = self._turmoil.sim.now
        super().deliver([each for each in deliveries if not each.lock_token or each.locked_until > now])
        if self.mode is ReceiveMode.RECEIVE_AND_DELETE:
            self.held.clear()

    def got(self, deliveries: list[TakenMessage]) -> None:
        """What it has asked for by number."""
        super().deliver(deliveries)

    def set_credit(self, credit: int) -> None:
        self.link_credit = credit
        self._is_drain_due = False
        self._pass_on()
        if self.under_way > credit:
            self.main.recall(self, self._turmoil.sim.now, waits=False)

    def drain(self) -> None:
        self._grant(0)
        self._is_drain_due = self.under_way > 0
        if self._is_drain_due:
            self.main.recall(self, self._turmoil.sim.now)
        else:
            self.link_credit = 0

    def credit_returned(self, now: Millis) -> None:
        if self._is_drain_due:
            self.drain()
        else:
            self._pass_on()

    def tick(self) -> None:
        if self._is_drain_due:
            self.drain()

    def _pass_on(self) -> None:
        self._grant(self.link_credit)
        if self.credit > 0:
            self.main.pump(self._turmoil.sim.now, self)

    def _grant(self, credit: int) -> None:
        self.under_way += self._granted - self.credit
        self.credit = self._granted = max(0, credit - self.under_way)


class NodeSettleAudit(SettleAudit):
    def __init__(
        self, turmoil: "LateTurmoil", node: Node, deliveries: Sequence[TakenMessage], outcome: Outcome
    ) -> None:
        super().__init__(turmoil, deliveries, outcome)
        self.node = node

    @property
    def is_open(self) -> bool:
        return bool(self._open)

    def settled(self, indexes: Sequence[int], now: Millis) -> None:
        super().settled([index for index in indexes if index in self._open], now)

    def failed(self, index: int, error: MessagingError, now: Millis) -> None:
        if index in self._open:
            super().failed(index, error, now)


class LateTurmoil(LateNodes, Turmoil):
    sim: ClusterSimulation
    receivers: list[NodeReceiver]  # type: ignore[assignment]
    settling: list[NodeSettleAudit]  # type: ignore[assignment]

    def __init__(self, seed: int, description: QueueDescription, mode: ReceiveMode) -> None:
        super().__init__(seed, description, STORES)
        self.mode = mode
        self.kill_count = 0
        self._sent_at: dict[str, Node] = {}
        self._waits: list[tuple[Node, Answer[SessionLock]]] = []
        self.sim.fenced = self._fenced  # type: ignore[method-assign]
        self.begin_late()
        self._watch_ports()
        self._commands += [*self.late_commands, (self.drain, 5), (self.kill_node, 2), (self.check_held, 60)]

    def in_doubt(self) -> None:
        self._in_doubt()

    # Where clients are

    def _node(self) -> Node:
        return self.sim.nodes[self.a_node()]

    def _runs(self, node: Node) -> bool:
        return node in self.sim.nodes and node.number not in self.frozen

    def send(self) -> None:
        queue, node = self.queue, self._node()
        if queue.main.requires_session:  # what several senders send at a time has no order
            if 0 in self.frozen:
                return
            node = self.sim.nodes[0]
        before = set(self._unanswered)
        self.queue = front_of(node)  # type: ignore[assignment]
        try:
            super().send()
        finally:
            self.queue = queue
        self._sent_at.update(dict.fromkeys(set(self._unanswered) - before, node))

    def attach(self) -> None:
        self.receivers = [each for each in self.receivers if each.is_there]
        if len(self.receivers) > 8:
            self.receivers = [each for each in self.receivers if each.lost is None]
            return
        node = self._node()
        main = main_of(node)
        if not main.requires_session:
            receiver = NodeReceiver(self, node, None)
            with suppress(FragmentUnavailable):
                main.attach(receiver, self.sim.now)
                self.receivers.append(receiver)
            return
        former, request = self._wanted_session()
        if former is not None:  # what is on its way to the former comes to the same client
            assert isinstance(former, NodeReceiver)
            node = former.node
            if not self._runs(node):
                return
            main = main_of(node)
        heard: Answer[SessionLock] = Answer()
        self._waits.append((node, heard))

        def accepted(result: SessionLock | MessagingError) -> None:
            heard(result)
            if isinstance(result, MessagingError) or node not in self.sim.nodes:
                return
            receiver = NodeReceiver(self, node, result)
            if former is not None:
                receiver.held = former.held
            try:
                main.attach(receiver, self.sim.now)
            except (FragmentUnavailable, SessionLockLost):
                main.release_session(result, self.sim.now)
            else:
                self.receivers.append(receiver)

        main.accept_session(request, self.sim.now + self.random.choice((0, 1_000)), self.sim.now, accepted)

    def _some_receiver(self) -> NodeReceiver | None:
        there = [each for each in self.receivers if self._runs(each.node)]
        return self.random.choice(there) if there else None

    def detach(self) -> None:
        receiver = self._some_receiver()
        if receiver is not None:
            self.receivers.remove(receiver)
            receiver.main.detach(receiver, self.sim.now)

    def raise_credit(self) -> None:
        receiver = self._some_receiver()
        if receiver is not None:
            receiver.set_credit(self.random.randint(0, 12))

    def drain(self) -> None:
        receiver = self._some_receiver()
        if receiver is not None:
            receiver.drain()

    def settle(self) -> None:
        holders = [each for each in self.receivers if each.held and self._runs(each.node)]
        if not holders:
            return
        receiver = self.random.choice(holders)
        tokens = self.random.sample(list(receiver.held), self.random.randint(1, len(receiver.held)))
        deliveries = [receiver.held.pop(token) for token in tokens]
        outcome = self.random.choice(OUTCOMES)
        audit = NodeSettleAudit(self, receiver.node, deliveries, outcome)
        receiver.main.settle_each(tokens, outcome, self.sim.now, audit, receiver.session)

    def renew(self) -> None:
        receiver = self._some_receiver()
        if receiver is not None and receiver.session is not None:
            receiver.main.renew_session(receiver.session.session_id, self.sim.now, Answer[int]())
        elif receiver is not None:
            receiver.main.renew(list(receiver.held), self.sim.now, Answer[list[int]]())

    def receive_deferred(self) -> None:
        receiver = self._some_receiver()
        if receiver is None or receiver.session is not None or not self.deferred:
            return

        def answered(answer: list[TakenMessage] | MessagingError) -> None:
            if isinstance(answer, list):
                receiver.got(answer)

        number = self.random.choice(self.deferred)
        receiver.main.ask(ReceiveDeferred([number], ReceiveMode.PEEK_LOCK), self.sim.now, answered)

    # What does not happen at a node that stands still

    def step(self) -> None:
        busy = self.busy_ports()
        if busy:
            port = self.random.choice(busy)
            before, under_way = port.failure_count, list(self._unanswered)
            port.step(self.random.randint(1, 4))
            if port.failure_count > before:
                for name in under_way:
                    self.auditor.answer_lost(name)

    def pass_time(self) -> None:
        self.sim.clock.advance(self.random.choice([10, 100, 1_000, 2_000]))
        self.tick_nodes()
        for receiver in self.receivers:
            if self._runs(receiver.node):
                receiver.tick()

    def mend_one(self, index: int) -> None:
        owner, is_between = self.sim.owners[index], False
        if self.moving is not None and self.moving.store == index:
            is_between = self.moving.is_between
        if owner not in self.frozen and self.lease(owner, index).is_held() and not is_between:
            super().mend_one(index)
        self.sim.ports[index].is_hung = False

    def kill_node(self) -> None:
        number = self.random.randrange(1, len(self.sim.nodes))
        node = self.sim.nodes[number]
        for audit in self.settling:
            if audit.node is node:
                audit.crashed()
        self.kill(number)
        for name, at in self._sent_at.items():
            if at is node and name in self._unanswered:
                self.auditor.refused(name)
        self.kill_count += 1

    def crash(self) -> None:
        before = self.sim.nodes
        super().crash()
        if self.sim.nodes is not before:
            self.started_again()
            for store in range(STORES):
                self._fenced(store)

    # Rules

    def _fenced(self, store: int) -> None:
        self.auditor.fenced(store, self.auditor.epochs.get(store, 0) + 1)
        self._watch_ports()

    def _watch_ports(self) -> None:
        for index, port in enumerate(self.sim.ports):
            port.wrote = partial(self.auditor.wrote, index, self.auditor.epochs.get(index, 0))  # type: ignore[attr-defined]

    def check_held(self) -> None:
        """Where there is no lease, nothing that is held counts: it can neither be renewed nor settled."""
        held: dict[int, set[Hashable]] = {}
        for node in self.sim.nodes:
            queue = node.fronts.part.queue(self.queue.main.key)
            assert not any(fragment.locks.held for fragment in queue.fragments if fragment.broker.is_foreign)
            own = [each for each in queue.fragments if not each.broker.is_foreign and each.broker.lease.is_held()]
            held[node.number] = {token for fragment in own for token in fragment.locks.held}
            for sessions in [each.sessions for each in own if isinstance(each.sessions, MessageSessions)]:
                names = sessions.held_keys()
                held[node.number] |= {name for name in names if sessions.lock_of(name, self.sim.now) is not None}
        self.auditor.held(held)

    # The end

    def heal(self) -> None:
        self.wake_all()
        self.sim.connect()
        for index, port in enumerate(self.sim.ports):
            port.next_fault = None
            self.mend_one(index)
        for _ in range(10):
            self.sim.run()
            self.go_on_moving()
        self.renew_leases()
        super().heal()
        self.sim.tick()
        self.check_held()

    def check_rest(self) -> None:
        """Nobody waits for anything, and nothing is held by nobody."""
        sim = self.sim
        self._stop_receiving()
        sim.advance(30_000, 500)
        waiting = [name for name in self._unanswered if self._sent_at[name] in sim.nodes]
        assert not waiting, f"sends without an answer: {waiting}"
        assert not [each for each in self.settling if each.is_open and each.node in sim.nodes]
        assert all(heard.has_come for node, heard in self._waits if node in sim.nodes), "nobody knows of a session"
        for node in sim.nodes:
            queue = node.fronts.part.queue(self.queue.main.key)
            for fragment in queue.fragments:
                assert not fragment.locks.held, f"{len(fragment.locks.held)} locked at {node.number}"
                assert not isinstance(fragment.sessions, MessageSessions) or not fragment.sessions.held_keys()
            assert not node.owners.moves.stores
            for peer in node.fronts.peers:
                assert not peer._runs, "runs without an end"
                assert not peer._closing
                assert not peer.holds, f"holds of {peer.node} at {node.number}"
                assert peer.line is not None or peer.node >= len(sim.nodes)
                assert peer.line is None or not peer.line._waiting
            for visitor in node.fronts.part._visitors.values():
                assert not visitor.holds
                assert not visitor.waits
        for link in sim.links:
            assert not link.is_broken

    def _staying(self) -> list[NodeReceiver]:
        return [each for each in self.receivers if each.is_there and each.lost is None]

    def _stop_receiving(self) -> None:
        for receiver in self._staying():
            receiver.drain()
        for _ in range(5):
            self.sim.advance(200, 100)
            for receiver in self._staying():
                receiver.tick()
        for receiver in self._staying():
            assert (receiver.under_way, receiver.credit) == (0, 0), f"{receiver.under_way} are under way for ever"

    def check_fed(self) -> None:
        if self.queue.main.requires_session:
            return
        for receiver in self._staying():
            for number in range(12):
                name = f"f{id(receiver)}-{number}"
                self.auditor.sent(name, None, is_pinned=False)
                self._sent_at[name] = self.sim.nodes[0]
                messages = [make_message(name)]
                self.queue.send_batch(messages, self.sim.now, lambda answer, messages=messages: self.accepted(messages))  # type: ignore[misc]
            self.sim.advance(1_000, 100)
            while before := self.queue.main.counts().active:
                receiver.set_credit(self.random.choice((1, 1, 2, 3)))
                self.sim.advance(1_000, 100)
                audit = NodeSettleAudit(self, receiver.node, list(receiver.held.values()), COMPLETE)
                receiver.main.settle_each(list(receiver.held), COMPLETE, self.sim.now, audit)
                receiver.held.clear()
                self.sim.advance(200, 100)
                assert self.queue.main.counts().active < before, "there are messages, and nobody gets them"
            receiver.drain()
            self.sim.advance(1_000, 100)


def rehearse(
    seed: int,
    steps: int,
    *,
    requires_session: bool = False,
    detects: bool = False,
    mode: ReceiveMode = ReceiveMode.PEEK_LOCK,
) -> LateTurmoil:
    description = QueueDescription(
        "q",
        enable_partitioning=True,
        requires_session=requires_session,
        requires_duplicate_detection=detects,
        lock_duration=LOCK_DURATION,
        max_delivery_count=1_000,
    )
    turmoil = LateTurmoil(seed, description, mode)
    turmoil.run(steps)
    turmoil.heal()
    turmoil.check_rest()
    turmoil.check_fed()
    turmoil.receivers = []
    if mode is ReceiveMode.PEEK_LOCK:  # else what is under way to a node that ends is lost, as that mode says
        turmoil.check()
    return turmoil
