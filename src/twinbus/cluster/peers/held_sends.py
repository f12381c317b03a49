"""Messages without a key that no node can take at the moment: they wait for one, for as long as `fronts.search` says.

A node that stood still or was cut off for a moment finds its lines broken, all of them at about the same time. What it was asked
meanwhile has not failed: there will be lines again. And where a database fails just after another one, its stores are lost while those of
the other one are not taken yet. What ends the wait:

    nobody could be reached                      a line has opened, or a store has another owner
    they were on a line that broke, so that      another node has answered a question that was asked since: it lives, and its line
    one node may have them already               does. A line that was only not known to be broken would take the second try with
                                                 it. Or a lease of this node's own stores was renewed since: it was not this node
                                                 that was cut off
    a database failed that may have them         a store of another database has an owner
    the second try was lost too                  its fragment is reached again, over another line or at another node: it says whether it
                                                 has them

After a while any line and any store will do: the others stay away, and these may work again.

Where a node says that its store is lost, or full, that is the answer. A store that is switched off is not waited for.

Messages with a key wait as well, and have been sent to nobody: for a line to the node that has their fragment, or for another node that has
taken it over. They have room of their own, so that they keep none of those without a key from waiting. When the node has been away for longer
than a takeover lasts (`ownership.TAKEN_MAX`) nobody waits for it any more.
"""

from collections.abc import Callable
from functools import partial
from typing import Protocol

from twinbus.broker.telling import tell
from twinbus.clock import Millis
from twinbus.cluster.lines.line import Line
from twinbus.cluster.lines.talk import Topic
from twinbus.errors import FragmentUnavailable, MessagingError

HELD_MAX: Millis = 5_000
"""For the node that has a fragment."""
HELD_BYTES_MAX = 32 << 20
CALL_BYTES = 512
"""Of a send that waits, beside what it carries."""


class SignsOfLife:
    """Which nodes have answered since a line broke. That something came says little: a node that stood still finds what was sent to it
    meanwhile on all of its lines, on those too that the other end has long closed."""

    def __init__(self, broken: Line | None, when_answered: Callable[[], None]) -> None:
        self.broken = broken
        self._when_answered = when_answered
        self._asked: dict[int, Line] = {}
        self._answered: set[int] = set()

    def has(self, node: int, line: Line | None) -> bool:
        """Asks for one, the first time that this line is looked at."""
        if line is None or not line.is_open:
            return False
        if self._asked.get(node) is not line:
            self._asked[node] = line
            self._answered.discard(node)
            line.ask(Topic.ALIVE, b"", partial(self._came, node, line))
        return node in self._answered

    def _came(self, node: int, line: Line, answer: bytes | MessagingError) -> None:
        """An error is an answer as well, unless it says that the line broke: a node of an earlier release does not know the question."""
        if self._asked.get(node) is line and not isinstance(answer, FragmentUnavailable):
            self._answered.add(node)
            self._when_answered()


class HeldSend(Protocol):
    """One that waits."""

    @property
    def size_bytes(self) -> int: ...

    @property
    def held_since(self) -> Millis: ...

    @property
    def held_max(self) -> Millis: ...

    def clock_stepped(self, by: Millis) -> None: ...

    def try_again(self, now: Millis, *, is_changed: bool) -> bool:
        """Whether it is on its way. `is_changed`: there is a line or an owner that was not there."""
        ...

    def give_up(self, now: Millis) -> None:
        """Nothing that it waits for has come."""
        ...


class KeyedSend:
    """Messages for one fragment, whose node cannot be reached."""

    held_max = HELD_MAX

    def __init__(
        self,
        size_bytes: int,
        held_since: Millis,
        is_reached: Callable[[], bool],
        send: Callable[[Millis], None],
        give_up: Callable[[Millis], None],
    ) -> None:
        """`send`: to the node that has the fragment by then; `give_up`: nobody has come, and the sender gets the error."""
        self.size_bytes = size_bytes
        self.held_since = held_since
        self._is_reached = is_reached
        self._send = send
        self.give_up = give_up

    def clock_stepped(self, by: Millis) -> None:
        self.held_since += by

    def try_again(self, now: Millis, *, is_changed: bool) -> bool:
        is_reached = self._is_reached()
        if is_reached:
            self._send(now)
        return is_reached


class HeldSends:
    """Of one node, in the order in which they began to wait."""

    def __init__(self) -> None:
        self._held: list[HeldSend] = []
        self._size_bytes = 0

    def hold(self, send: HeldSend) -> bool:
        """Whether there is room for it."""
        size_bytes = send.size_bytes + CALL_BYTES
        if self._size_bytes + size_bytes > HELD_BYTES_MAX:
            return False
        self._size_bytes += size_bytes
        self._held.append(send)
        return True

    def clock_stepped(self, by: Millis) -> None:
        for each in self._held:
            each.clock_stepped(by)

    def look(self, now: Millis, *, is_changed: bool) -> None:
        held, self._held = self._held, []
        left: list[HeldSend] = []
        for each in held:
            # The clock may have been set back; and a tick that finds a line broken began before what was on it began to wait.
            if not -each.held_max < now - each.held_since < each.held_max:
                self._size_bytes -= each.size_bytes + CALL_BYTES
                tell(each.give_up, now)
            elif _is_over(each, now, is_changed=is_changed):
                self._size_bytes -= each.size_bytes + CALL_BYTES
            else:
                left.append(each)
        self._held = left + self._held  # some may have come back meanwhile


def _is_over(send: HeldSend, now: Millis, *, is_changed: bool) -> bool:
    """Whether it waits no more: it is on its way, or broke. The others wait on, whatever this one raises."""
    is_over = True

    def attempt() -> None:
        nonlocal is_over
        is_over = send.try_again(now, is_changed=is_changed)

    tell(attempt)
    return is_over
