"""A sub-queue with parts at several nodes, as a gateway sees it: the same as one whose fragments are all here.

A front decides two things only: which part gets demand (`receiver`), and whom to ask (`commands`). Whatever a token, a number or
a message session is about is decided at the one node that has its fragment, by the code that decides it on a single node. A line that is
broken is a store that is lost.
"""

from collections.abc import Callable, MutableSet, Sequence
from functools import partial
from typing import Any, TypeVar

from twinbus.broker.commands import Command
from twinbus.broker.consumer import Consumer, SessionLock, SessionRequest, TakenMessage
from twinbus.broker.entity.message_queue import MessageQueue
from twinbus.broker.entity.session_desk import NO_WAITER
from twinbus.broker.entity_settings import EntitySettings
from twinbus.broker.fragment.fragment import Fragment
from twinbus.broker.outcomes import RELEASE, Outcome
from twinbus.broker.replies import Reply, SettleReply, Waiter
from twinbus.clock import Clock, Millis
from twinbus.cluster.fronts.commands import run_command
from twinbus.cluster.fronts.receiver import FrontReceiver
from twinbus.cluster.fronts.session_waiter import SessionWaiter
from twinbus.cluster.fronts.settling import Settling
from twinbus.cluster.fronts.shares import DistantShare, LocalShare
from twinbus.cluster.lines.talk import Topic
from twinbus.cluster.ownership import Owners, Ownership
from twinbus.cluster.parts.part import PartServer
from twinbus.cluster.peers.hold import Hold
from twinbus.cluster.peers.peer import SILENT
from twinbus.cluster.peers.peers import Peers
from twinbus.errors import ArgumentError, FragmentUnavailable, MessagingError, SessionLockLost
from twinbus.model.partition_key import candidates
from twinbus.model.session_key import session_key
from twinbus.store.changes import FragmentKey

T = TypeVar("T")


class FrontSource:
    """`local`: the same sub-queue at this node, with the fragments that this node serves, if any. `received_from`: those that
    have to be ticked, because there are receivers, or somebody waits for a message session."""

    def __init__(
        self,
        local: MessageQueue,
        owners: Owners,
        peers: Peers,
        part: PartServer,
        clock: Clock,
        received_from: MutableSet["FrontSource"],
    ) -> None:
        self.local = local
        self.ownership = Ownership(peers.node, owners, local.fragments)
        self.peers = peers
        self._settling = Settling(local, self.ownership, peers, clock)
        self._part = part
        self._clock = clock
        self._received_from = received_from
        self._receivers: dict[Consumer, FrontReceiver] = {}
        self._holds: dict[str, Hold] = {}
        self._waiters: set[SessionWaiter] = set()
        self._nodes_seen = self.ownership.nodes
        self._keeping = peers.keeping(Topic.TAKEN, local.key, self.ownership)

    @property
    def key(self) -> FragmentKey:
        return self.local.key

    @property
    def fragments_here(self) -> Sequence[Fragment]:
        return self.local.fragments

    @property
    def settings(self) -> EntitySettings:
        return self.local.settings

    @property
    def requires_session(self) -> bool:
        return self.local.requires_session

    @property
    def receiver_count(self) -> int:
        """Every part knows the receivers of all nodes, except those with a message session."""
        return max(self.local.receiver_count, len(self._receivers))

    @property
    def is_reading(self) -> bool:
        """A drain waits for it at each part."""
        return False

    def after_reading(self, call: Callable[[], None]) -> None:
        call()

    @property
    def _is_here(self) -> bool:
        return self.ownership.node in self.ownership.of

    # Receiving

    def attach(self, receiver: Consumer, now: Millis) -> None:
        self.settings.last_used_at = now
        self.local.check_receiver(receiver)
        front = FrontReceiver(receiver, lambda: self.ownership.is_any_moving, self._sift, self._keeping, self._clock)
        if isinstance(receiver.session, Hold):
            if not receiver.session.is_held:
                raise SessionLockLost("The message session is not held any more. Accept it again.")
            if not self.ownership.is_moving(receiver.session.fragment_index):
                front.shares = [self._share_at(front, receiver.session.node)]
        else:
            front.shares = [self._share_at(front, node) for node in self.ownership.nodes]
        self._receivers[receiver] = front
        self._received_from.add(self)
        try:
            front.attach(now)
        except MessagingError:
            del self._receivers[receiver]
            raise

    def _share_at(self, front: FrontReceiver, node: int) -> LocalShare | DistantShare:
        if node == self.peers.node:
            return LocalShare(front, self.local, self._part.left_overs(self.local), node)
        return DistantShare(front, self.peers[node], self.key)

    def _sift(self, receiver: Consumer, node: int, taken: list[TakenMessage]) -> list[TakenMessage]:
        """Messages may be long on their way from a node that has lost the store meanwhile, and the next one may have given them to
        somebody else. If their locks have moved there, nobody has seen them. A node that hands something over has said before that
        it serves the store."""
        of, session = self.ownership.of, receiver.session
        left = {index for index in {each.lock_token[0] for each in taken if each.lock_token} if of[index] != node}
        if not left or (isinstance(session, Hold) and session.is_held and session.node == of[session.fragment_index]):
            return taken  # a message session that has moved took its locks along
        tokens = [each.lock_token for each in taken if each.lock_token and each.lock_token[0] in left]
        self.settle_each(tokens, RELEASE, self._clock.now(), SILENT)
        return [each for each in taken if not each.lock_token or each.lock_token[0] not in left]

    def follow_owners(self, now: Millis) -> None:
        """Fragments may have other nodes than before: receivers have a part at each node that has some, and at no other."""
        nodes = self.ownership.nodes
        for front in [front for front in self._receivers.values() if not front.is_over]:
            share_at, session = partial(self._share_at, front), front.receiver.session
            # A message session is lost, or moves, with its fragment: its node says so.
            if not isinstance(session, Hold):
                if nodes != self._nodes_seen:
                    front.follow(nodes, share_at, now)
            elif session.is_held and not self.ownership.is_moving(session.fragment_index):
                front.follow_hold(session, share_at, now)
        if nodes == self._nodes_seen:
            return
        self._nodes_seen = nodes
        for waiter in list(self._waiters):
            waiter.follow(nodes, now)

    def move_over(self, store: int, now: Millis, *, is_served: bool) -> None:
        """A store does not move any more. Message sessions that have not moved with it are lost, and so is whoever has no part left."""
        self.follow_owners(now)
        lost: set[SessionLock] = set()
        for hold in [hold for hold in self._holds.values() if hold.is_held]:
            is_meant = self.local.fragments[hold.fragment_index].broker.index == store
            if is_meant and not (is_served and self._is_at_its_node(hold)):
                self._give_back(hold, now)
                hold.is_held = False
                lost.add(hold)
        for front in [front for front in self._receivers.values() if not front.is_deaf]:
            if front.receiver.session in lost:
                front.end(SessionLockLost("The message session is not held any more. Accept it again."), now)
            elif front.is_cut_off and not self.ownership.is_any_moving:
                front.end(
                    FragmentUnavailable("No node that has messages of this can be reached. Try again later."), now
                )

    def _is_at_its_node(self, hold: Hold) -> bool:
        return hold.node == self.ownership.of[hold.fragment_index] and (
            hold.own is not None or hold.node != self.peers.node
        )

    def detach(self, receiver: Consumer, now: Millis) -> None:
        self.settings.last_used_at = now
        session, front = receiver.session, self._receivers.get(receiver)
        if isinstance(session, Hold) and session.is_held:
            index = session.fragment_index
            if self.ownership.waits([index], lambda later: self.detach(receiver, later)):
                if front is not None:
                    front.is_deaf = True
                return
        self._receivers.pop(receiver, None)
        if front is not None:
            front.close(now)
        if isinstance(session, Hold):
            self.release_session(session, now)

    def pump(self, now: Millis, receiver: Consumer | None = None) -> None:
        fronts = list(self._receivers.values()) if receiver is None else [self._receivers.get(receiver)]
        for front in fronts:
            if front is not None:
                front.pump(now)

    def recall(self, receiver: Consumer, now: Millis, *, waits: bool = True) -> None:
        front = self._receivers.get(receiver)
        if front is not None:
            front.recall(now, waits=waits)

    def tick(self, now: Millis) -> None:
        for receiver, front in list(self._receivers.items()):
            if front.is_over:
                self._receivers.pop(receiver, None)
                continue
            for share in front.shares:
                if isinstance(share, LocalShare) and share.is_recalled:
                    share.tick()
            if front.misses_a_part:
                front.attach_again(now)
            front.look_again(now)
        for waiter in list(self._waiters):
            waiter.ask_again(self.ownership.nodes, now)

    def clock_stepped(self, by: Millis) -> None:
        for waiter in self._waiters:
            waiter.clock_stepped(by)

    @property
    def is_quiet(self) -> bool:
        return not self._receivers and not self._waiters

    def done_waiting(self, waiter: SessionWaiter) -> None:
        self._waiters.discard(waiter)

    # Settling

    def settle_each(
        self,
        tokens: Sequence[bytes],
        outcome: Outcome,
        now: Millis,
        reply: SettleReply,
        session: SessionLock | None = None,
    ) -> None:
        self._settling.settle_each(tokens, outcome, now, reply, session)

    def settle(
        self,
        tokens: Sequence[bytes],
        outcome: Outcome,
        now: Millis,
        reply: Reply[None],
        session: SessionLock | None = None,
    ) -> None:
        self._settling.settle(tokens, outcome, now, reply, session)

    def renew(self, tokens: Sequence[bytes], now: Millis, reply: Reply[list[Millis]]) -> None:
        self._settling.renew(tokens, now, reply)

    # Message sessions

    def _index_of(self, session_id: str) -> int:
        return candidates(session_id, len(self.ownership.of), 0)[0]

    def _node_of(self, session_id: str) -> int:
        return self.ownership.of[self._index_of(session_id)]

    def accept_session(
        self, request: SessionRequest, deadline: Millis, now: Millis, reply: Reply[SessionLock]
    ) -> Waiter:
        self.settings.last_used_at = now
        try:
            self.settings.check_can_receive()
            self.local.sessions()
            if request.session_id is None and request.token is not None:
                raise ArgumentError("A lock token is for one message session. Name that session, or omit the token.")
        except MessagingError as error:
            reply(error)
            return NO_WAITER
        waiting = SessionWaiter(self, request, deadline, reply)
        self._ask_for_session(waiting, request.session_id, now)
        return waiting

    def _ask_for_session(self, waiting: SessionWaiter, session_id: str | None, now: Millis) -> None:
        def later(now: Millis) -> None:
            if not waiting.is_over:
                self._ask_for_session(waiting, session_id, now)

        if session_id is not None:
            if not self.ownership.waits([self._index_of(session_id)], later):
                waiting.ask([self._node_of(session_id)], now)
        elif not self.ownership.waits_for_any(later):
            waiting.ask(self.ownership.nodes, now)
            if not waiting.is_over:
                self._waiters.add(waiting)
                self._received_from.add(self)

    def accepted(self, lock: SessionLock) -> Hold:
        hold = lock if isinstance(lock, Hold) else self.peers.own_hold(lock)
        self._holds = {name: known for name, known in self._holds.items() if known.is_held}
        self._holds[session_key(hold.session_id)] = hold
        return hold

    def release_session(self, lock: SessionLock, now: Millis) -> None:
        if not isinstance(lock, Hold):
            self.local.release_session(lock, now)
        elif lock.is_held and not self.ownership.waits(
            [lock.fragment_index], lambda later: self.release_session(lock, later)
        ):
            self._give_back(lock, now)

    def _give_back(self, hold: Hold, now: Millis) -> None:
        if hold.own is not None:
            self.local.release_session(hold.own, now)
        elif hold.node != self.peers.node:
            self.peers[hold.node].release(hold)

    def renew_session(self, session_id: str, now: Millis, reply: Reply[Millis]) -> None:
        if self.requires_session and self.ownership.waits(
            [self._index_of(session_id)], lambda later: self.renew_session(session_id, later, reply)
        ):
            return
        if not self.requires_session or self._node_of(session_id) == self.peers.node:
            self.local.renew_session(session_id, now, reply)
            return

        def renewed(end: Millis | MessagingError) -> None:
            hold = self._holds.get(session_key(session_id))
            if hold is not None and not isinstance(end, MessagingError):
                hold.locked_until = end
            reply(end)

        self.peers[self._node_of(session_id)].ask_values(Topic.RENEW_SESSION, (self.key, session_id), renewed)

    def session_lock(self, session_id: str, now: Millis) -> SessionLock | None:
        """If a receiver of this node holds it; whether one of another node does is asked where its fragment is."""
        if not self.requires_session:
            return None
        hold = self._holds.get(session_key(session_id))
        if hold is not None and hold.is_held and hold.locked_until > now:
            return hold
        return self.local.session_lock(session_id, now) if self._node_of(session_id) == self.peers.node else None

    # Everything else

    def ask(self, command: Command[T], now: Millis, reply: Reply[T]) -> None:
        self.settings.last_used_at = now
        if not self.ownership.waits_for_any(lambda later: self.ask(command, later, reply)):
            run_command(self, command, now, reply)

    def ask_node(self, node: int, command: Command[Any], now: Millis, reply: Callable[[Any], None]) -> None:
        if node == self.peers.node:
            self.local.ask(command, now, reply)
        else:
            self.peers[node].ask_values(Topic.ASK, (self.key, command), reply)
