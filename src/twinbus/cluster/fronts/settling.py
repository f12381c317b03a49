"""Settling and renewing what is locked in any fragment of a sub-queue: each token is asked about at the node that has its fragment.

While a store moves, what concerns it waits here. What was asked of the node that it leaves before this one knew of that, and came too
late, is asked again: that node certainly has not done it, and has sent the locks on.
"""

from collections.abc import Callable, Collection, Sequence
from functools import partial

from twinbus.broker.consumer import SessionLock
from twinbus.broker.entity.message_queue import MessageQueue
from twinbus.broker.fragment.fragment_group import fragment_of_tokens, places_by_fragment
from twinbus.broker.fragment.locks import TOKEN_SIZE, fragment_index_of
from twinbus.broker.fragment.settlement import lock_lost
from twinbus.broker.outcomes import Outcome
from twinbus.broker.replies import Reply, SettleReply
from twinbus.clock import Clock, Millis
from twinbus.cluster.lines.talk import Topic
from twinbus.cluster.moves.moves import Call
from twinbus.cluster.ownership import Ownership
from twinbus.cluster.peers.hold import Hold
from twinbus.cluster.peers.peers import Peers
from twinbus.errors import FragmentUnavailable, MessagingError, OutcomeUnknown


class Settling:
    """`local`: the same sub-queue at this node."""

    def __init__(self, local: MessageQueue, ownership: Ownership, peers: Peers, clock: Clock) -> None:
        self._local = local
        self._ownership = ownership
        self._peers = peers
        self._clock = clock

    def settle_each(
        self,
        tokens: Sequence[bytes],
        outcome: Outcome,
        now: Millis,
        reply: SettleReply,
        session: SessionLock | None,
    ) -> None:
        by_node: dict[int, list[int]] = {}
        by_fragment = places_by_fragment(tokens)
        if self._ownership.waits(
            by_fragment,
            lambda later: self.settle_each(tokens, outcome, later, reply, session),
            TOKEN_SIZE * len(tokens),
        ):
            return
        for index, places in by_fragment.items():
            if not 0 <= index < len(self._ownership.of):
                for place in places:
                    reply.failed(place, lock_lost(self._local.fragments[0], session, now), now)
                continue
            by_node.setdefault(self._ownership.of[index], []).extend(places)
        for node, places in by_node.items():
            chosen = tokens if len(places) == len(tokens) else [tokens[place] for place in places]
            to = reply if chosen is tokens else _SettleSome(reply, places)
            if node == self._peers.node:
                self._local.settle_each(chosen, outcome, now, to, _own(session))
            else:
                there = _SettleThere(self, node, chosen, outcome, to, session)
                self._peers[node].settle_each(self._local.key, chosen, outcome, there, session)

    def settle(
        self, tokens: Sequence[bytes], outcome: Outcome, now: Millis, reply: Reply[None], session: SessionLock | None
    ) -> None:
        try:
            index = fragment_of_tokens(self._local.fragments, tokens).index
        except MessagingError as error:
            reply(error)
            return

        def again(later: Millis) -> None:
            self.settle(tokens, outcome, later, reply, session)

        def settled(result: MessagingError | None) -> None:
            if not self.is_asked_again(result, [index], node, again, size):
                reply(result)

        size = TOKEN_SIZE * len(tokens)
        if self._ownership.waits([index], again, size):
            return
        node = self._ownership.of[index]
        if node == self._peers.node:
            self._local.settle(tokens, outcome, now, reply, _own(session))
        else:
            peer = self._peers[node]
            question = (self._local.key, list(tokens), outcome, peer.hold_number(session))
            peer.ask_values(Topic.SETTLE_ALL, question, settled)

    def renew(self, tokens: Sequence[bytes], now: Millis, reply: Reply[list[Millis]]) -> None:
        """Where the tokens are at several nodes, all of them are looked at before any is renewed."""
        if self._local.requires_session:
            self._local.renew(tokens, now, reply)
            return
        by_fragment, size = places_by_fragment(tokens), TOKEN_SIZE * len(tokens)
        if self._ownership.waits(by_fragment, lambda later: self.renew(tokens, later, reply), size):
            return

        def renew_all(checked: list[Millis] | MessagingError) -> None:
            if isinstance(checked, MessagingError):
                reply(checked)
            else:
                self._renew(tokens, now, reply, is_check=False)

        if not tokens:
            reply([])
        elif len(self._by_node(tokens)) > 1:
            self._renew(tokens, now, renew_all, is_check=True)
        else:
            renew_all([])

    def _renew(self, tokens: Sequence[bytes], now: Millis, reply: Reply[list[Millis]], *, is_check: bool) -> None:
        by_node = self._by_node(tokens)
        gathering = _Renewal(len(tokens), len(by_node), reply)
        for node, places in by_node.items():
            chosen, done = [tokens[place] for place in places], gathering.part(places)
            if node == self._peers.node:
                self._local.renew(chosen, now, done, is_check=is_check)
            else:
                renewed = partial(self._renewed, node, chosen, done, is_check)
                self._peers[node].ask_values(Topic.RENEW, (self._local.key, chosen, is_check), renewed)

    def _renewed(
        self,
        node: int,
        tokens: Sequence[bytes],
        done: Reply[list[Millis]],
        is_check: bool,
        result: list[Millis] | MessagingError,
    ) -> None:
        def again(later: Millis) -> None:
            self._renew(tokens, later, done, is_check=is_check)

        indexes = [index for index in places_by_fragment(tokens) if 0 <= index < len(self._ownership.of)]
        if not self.is_asked_again(result, indexes, node, again, TOKEN_SIZE * len(tokens)):
            done(result)

    def is_asked_again(self, result: object, indexes: Collection[int], node: int, again: Call, size_bytes: int) -> bool:
        """Whether this node has refused something since it has given a store away."""
        if not isinstance(result, FragmentUnavailable) or isinstance(result, OutcomeUnknown):
            return False
        if self._ownership.waits(indexes, again, size_bytes):
            return True
        has_moved = any(self._ownership.of[index] != node for index in indexes)
        if has_moved:
            again(self._clock.now())
        return has_moved

    def _by_node(self, tokens: Sequence[bytes]) -> dict[int, list[int]]:
        """What is no token is refused by the first of them."""
        by_node: dict[int, list[int]] = {}
        for index, places in places_by_fragment(tokens).items():
            known = index if 0 <= index < len(self._ownership.of) else 0
            by_node.setdefault(self._ownership.of[known], []).extend(places)
        return by_node


def _own(session: SessionLock | None) -> SessionLock | None:
    return session.own if isinstance(session, Hold) else session


class _SettleThere:
    """Answers of another node."""

    def __init__(
        self,
        settling: Settling,
        node: int,
        tokens: Sequence[bytes],
        outcome: Outcome,
        reply: SettleReply,
        session: SessionLock | None,
    ) -> None:
        self._settling = settling
        self._node = node
        self._tokens = tokens
        self._outcome = outcome
        self._reply = reply
        self._session = session

    def settled(self, indexes: Sequence[int], now: Millis) -> None:
        self._reply.settled(indexes, now)

    def failed(self, index: int, error: MessagingError, now: Millis) -> None:
        token = self._tokens[index]

        def again(later: Millis) -> None:
            some = _SettleSome(self._reply, [index])
            self._settling.settle_each([token], self._outcome, later, some, self._session)

        if not self._settling.is_asked_again(error, [fragment_index_of(token)], self._node, again, TOKEN_SIZE):
            self._reply.failed(index, error, now)


class _SettleSome:
    """Answers for some of the messages that are settled together."""

    def __init__(self, reply: SettleReply, places: Sequence[int]) -> None:
        self._reply = reply
        self._places = places

    def settled(self, indexes: Sequence[int], now: Millis) -> None:
        self._reply.settled([self._places[index] for index in indexes], now)

    def failed(self, index: int, error: MessagingError, now: Millis) -> None:
        self._reply.failed(self._places[index], error, now)


class _Renewal:
    """Renewals at several nodes: an error of one is the answer."""

    def __init__(self, token_count: int, node_count: int, reply: Reply[list[Millis]]) -> None:
        self._ends = [0] * token_count
        self._left = node_count
        self._reply = reply
        self._error: MessagingError | None = None

    def part(self, places: Sequence[int]) -> Callable[[list[Millis] | MessagingError], None]:
        def done(ends: list[Millis] | MessagingError) -> None:
            self._left -= 1
            if isinstance(ends, MessagingError):
                self._error = ends
            else:
                for place, end in zip(places, ends, strict=True):
                    self._ends[place] = end
            if not self._left:
                self._reply(self._ends if self._error is None else self._error)

        return done
