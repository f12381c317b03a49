"""Messages on their way from a front to the nodes that have the fragments: each run to the first node that takes it.

passed by: unreachable, all its stores lost, behind, full --> the next node, through all of them
its answer was lost, or that of its store                 --> a second try, at another node if one takes them, in another database
                                                              if there are several
the answer of the second try was lost                     --> the same try again, when its fragment is reached: it is named (`search`)
none takes them, and some could not be reached,           --> they wait (`HeldSends`)
or have nothing but stores of the database that failed
"""

from collections.abc import Sequence
from typing import Protocol

from twinbus.broker.entity.runs import Detour
from twinbus.broker.fragment.names import SecondTry
from twinbus.broker.replies import Reply, SendReply
from twinbus.clock import Millis
from twinbus.cluster.fronts.search import Entrance, Search
from twinbus.errors import MessagingError, OutcomeUnknown, QuotaExceeded
from twinbus.model.message import Message


class Way(Entrance, Protocol):
    """The front whose messages these are."""

    def send_at(
        self,
        node: int,
        messages: Sequence[Message],
        now: Millis,
        reply: SendReply,
        origins: Sequence[int] | None,
        failed: int | None,
        second: SecondTry | None,
    ) -> None: ...

    def send_together_at(
        self,
        node: int,
        messages: Sequence[Message],
        now: Millis,
        reply: Reply[list[int]],
        failed: int | None,
        second: SecondTry | None,
    ) -> None: ...

    def answered(self, turn: int | None, count: int) -> None: ...


def weightier(before: MessagingError | None, error: MessagingError) -> MessagingError:
    """Of two reasons to pass by: that one may have been done counts most, that a store is lost more than that one is full."""

    def weight(each: MessagingError) -> int:
        return 2 if isinstance(each, OutcomeUnknown) else 0 if isinstance(each, QuotaExceeded) else 1

    return error if before is None or weight(error) >= weight(before) else before


class Run:
    """Messages of one sender for one node, with an answer for each. Takes the answers of the node, and goes on to the next one."""

    def __init__(
        self,
        way: Way,
        messages: Sequence[Message],
        places: list[int],
        origins: Sequence[int] | None,
        nodes: Sequence[int],
        reply: SendReply,
        turn: int | None = None,
        before: dict[int, MessagingError] | None = None,
        search: Search | None = None,
    ) -> None:
        """`places`: of the messages that are its own, in their order; `turn`: None if they have a key, and go nowhere else;
        `before`: why other nodes passed them by."""
        self._way = way
        self._messages = messages
        self._places = places
        self._origins = origins
        self._nodes = nodes
        self._reply = reply
        self._turn = turn
        self._before = before or {}
        self._search = search
        self._left = len(places)
        self._again: dict[int, MessagingError] = {}
        self._bound: dict[int, MessagingError] = {}  # those that the fragment of the second try may have
        self._refusal: MessagingError | None = None

    def attempt(self, now: Millis) -> None:
        self._attempt_at(self._nodes[0], now)

    def _attempt_at(self, node: int, now: Millis) -> None:
        is_whole = len(self._places) == len(self._messages)
        chosen = self._messages if is_whole else [self._messages[place] for place in self._places]
        origins = None if self._origins is None else [self._origins[place] for place in self._places]
        failed, second = None, None
        if self._search is not None:
            failed, second = self._search.failed, self._search.second_try(self._places)
        self._way.send_at(node, chosen, now, self, origins, failed, second)

    def accepted(self, indexes: Sequence[int], numbers: Sequence[int], now: Millis) -> None:
        self._left -= len(indexes)
        self._way.answered(self._turn, len(indexes))
        places = self._places
        for index in indexes if self._before else ():
            self._way.local.placement.detours[Detour.because_of(self._before[places[index]])] += 1
        if len(indexes) == len(self._messages):
            self._reply.accepted(indexes, numbers, now)
        else:
            self._reply.accepted([places[index] for index in indexes], numbers, now)
        self._end(now)

    def refused(self, index: int, error: MessagingError, now: Millis) -> None:
        self._left -= 1
        place = self._places[index]
        before = self._before.get(place)
        if self._turn is None:
            self._reply.refused(place, error, now)
            return
        search = self._search = self._search or Search(self._way, self._nodes)
        if not search.goes_on(before, error):
            self._way.answered(self._turn, 1)
            self._reply.refused(place, error, now)
        elif search.is_bound_by(error):
            self._bound[place] = weightier(before, error)
        else:
            self._again[place] = weightier(before, error)
            self._refusal = weightier(self._refusal, error)
        self._end(now)

    def _end(self, now: Millis) -> None:
        if self._left or self._search is None:
            return
        bound, again = self._bound, self._again
        self._bound, self._again = {}, {}
        if bound:
            self._continue(bound, self._search.bound(now), now)
        if again:
            assert self._refusal is not None
            self._search.passed_by(self._refusal)
            self._continue(again, self._search, now)

    def _continue(self, before: dict[int, MessagingError], search: Search, now: Millis) -> None:
        run = Run(self._way, self._messages, sorted(before), self._origins, (), self._reply, self._turn, before, search)
        run._go_on(now)

    def _go_on(self, now: Millis) -> None:
        assert self._search is not None
        if not self.try_again(now, is_changed=False) and not hold(self._way, self, self._search, now):
            self.give_up(now)

    # While it waits

    @property
    def size_bytes(self) -> int:
        return sum([len(self._messages[place].content) for place in self._places])

    @property
    def held_since(self) -> Millis:
        return held_since(self._search)

    @property
    def held_max(self) -> Millis:
        assert self._search is not None
        return self._search.held_max

    def clock_stepped(self, by: Millis) -> None:
        assert self._search is not None
        self._search.clock_stepped(by)

    def try_again(self, now: Millis, *, is_changed: bool) -> bool:
        assert self._search is not None
        if is_changed:
            self._search.begin_again()
        stop = self._search.next_stop()
        if stop is not None:
            self._attempt_at(stop.node, now)
        return stop is not None

    def give_up(self, now: Millis) -> None:
        assert self._search is not None
        if self._search.is_choosy:
            self._search.take_any()
            self._go_on(now)
            return
        self._way.answered(self._turn, len(self._places))
        for place in self._places:
            self._reply.refused(place, self._before[place], now)


class TogetherRun:
    """Messages without a key that are to be all in one fragment, or none of them anywhere."""

    def __init__(self, way: Way, messages: Sequence[Message], nodes: Sequence[int], reply: Reply[list[int]]) -> None:
        self._way = way
        self._messages = messages
        self._reply = reply
        self._search = Search(way, nodes)
        self._before: MessagingError | None = None

    def attempt(self, now: Millis) -> None:
        if not self.try_again(now, is_changed=False) and not hold(self._way, self, self._search, now):
            self.give_up(now)

    def _attempt_at(self, node: int, now: Millis) -> None:
        search = self._search
        second = search.second_try(range(len(self._messages)))
        self._way.send_together_at(node, self._messages, now, self._answered, search.failed, second)

    def _answered(self, result: list[int] | MessagingError) -> None:
        search, now = self._search, self._way.clock.now()
        if not isinstance(result, MessagingError) or not search.goes_on(self._before, result):
            self._reply(result)
            return
        self._before = weightier(self._before, result)
        if search.is_bound_by(result):
            self._search = search.bound(now)
        else:
            search.passed_by(result)
        self.attempt(now)

    # While it waits

    @property
    def size_bytes(self) -> int:
        return sum([len(message.content) for message in self._messages])

    @property
    def held_since(self) -> Millis:
        return held_since(self._search)

    @property
    def held_max(self) -> Millis:
        return self._search.held_max

    def clock_stepped(self, by: Millis) -> None:
        self._search.clock_stepped(by)

    def try_again(self, now: Millis, *, is_changed: bool) -> bool:
        if is_changed:
            self._search.begin_again()
        stop = self._search.next_stop()
        if stop is not None:
            self._attempt_at(stop.node, now)
        return stop is not None

    def give_up(self, now: Millis) -> None:
        if self._search.is_choosy:
            self._search.take_any()
            self.attempt(now)
            return
        assert self._before is not None
        self._reply(self._before)


def hold(way: Way, send: Run | TogetherRun, search: Search, now: Millis) -> bool:
    """Whether it waits for a node."""
    if not search.may_wait:
        return False
    if search.held_since is None:
        search.held_since = now
    return way.peers.held_sends.hold(send)


def held_since(search: Search | None) -> Millis:
    assert search is not None
    assert search.held_since is not None
    return search.held_since
