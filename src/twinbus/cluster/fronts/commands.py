"""Commands to a queue with parts at several nodes: which nodes are asked, and what their replies make together.

    by number, message session or fragment    the one node that has it, and its reply as it is
    looking from a number on                  all nodes, each from there; the page of the lowest fragment, since pages of several do not mix
    merged, listed, counted                   all nodes at once, and their replies merged as a queue merges those of its fragments
    changing the first ones                   one node after the other, until enough are changed

A node that cannot be reached is a store that is lost: commands that skip unavailable fragments skip it, and fail if nothing is left.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Protocol, TypeAlias

from twinbus.broker import commands
from twinbus.broker.commands import Command, Range, SessionCounts
from twinbus.broker.entity.message_queue import MessageQueue
from twinbus.broker.operations.peek import PEEK_BYTES_MAX
from twinbus.clock import Millis
from twinbus.cluster.ownership import Ownership
from twinbus.errors import ArgumentError, FragmentUnavailable, MessagingError
from twinbus.model.message_limits import PEEK_COUNT_MAX
from twinbus.model.partition_key import candidates
from twinbus.model.wire_names import SEQUENCE_BITS
from twinbus.store.changes import StoredMessage
from twinbus.store.reads import BacklogShares


class AskedFront(Protocol):
    local: MessageQueue
    ownership: Ownership

    def ask_node(self, node: int, command: Command[Any], now: Millis, reply: Callable[[Any], None]) -> None: ...


Reply: TypeAlias = Callable[[Any], None]
Way: TypeAlias = Callable[[AskedFront, Any, Millis, Reply], None]


def run_command(front: AskedFront, command: Command[Any], now: Millis, reply: Reply) -> None:
    try:
        _WAYS[type(command)](front, command, now, reply)
    except MessagingError as error:
        reply(error)


# Whom to ask


def _node_of_number(front: AskedFront, number: int) -> int | None:
    """None: there is no such fragment, and any node says so."""
    index = number >> SEQUENCE_BITS
    return front.ownership.of[index] if 0 <= index < len(front.ownership.of) else None


def _one(front: AskedFront, node: int | None, command: Command[Any], now: Millis, reply: Reply) -> None:
    front.ask_node(front.ownership.nodes[0] if node is None else node, command, now, reply)


def _by_numbers(front: AskedFront, command: Any, now: Millis, reply: Reply) -> None:
    _one(front, _node_of_number(front, command.numbers[0]) if command.numbers else None, command, now, reply)


def _by_first(front: AskedFront, command: Any, now: Millis, reply: Reply) -> None:
    _one(front, _node_of_number(front, command.first), command, now, reply)


def _preview(front: AskedFront, command: commands.PreviewRepair, now: Millis, reply: Reply) -> None:
    _one(front, _node_of_number(front, command.repair.first), command, now, reply)


def _by_session(front: AskedFront, command: Any, now: Millis, reply: Reply) -> None:
    of = front.ownership.of
    _one(front, of[candidates(command.session_id, len(of), 0)[0]], command, now, reply)


class _Gathering:
    """Replies of several nodes. Those that cannot be reached are left out; if none can, the reply is that error."""

    def __init__(self, count: int, done: Callable[[list[Any], bool], None], reply: Reply) -> None:
        self._left = count
        self._done = done
        self._reply = reply
        self._found: dict[int, Any] = {}
        self.lost: FragmentUnavailable | None = None
        self._error: MessagingError | None = None

    def take(self, place: int, result: Any) -> None:
        self._left -= 1
        if isinstance(result, FragmentUnavailable):
            self.lost = result
        elif isinstance(result, MessagingError):
            self._error = result
        else:
            self._found[place] = result
        if self._left:
            return
        if self._error is not None:
            self._reply(self._error)
        elif not self._found and self.lost is not None:
            self._reply(self.lost)
        else:
            self._done([self._found[place] for place in sorted(self._found)], self.lost is None)


def _all(
    front: AskedFront, command: Command[Any], now: Millis, reply: Reply, done: Callable[[list[Any], bool], None]
) -> None:
    """`done` gets the replies of the nodes, and whether these are all nodes."""
    nodes = front.ownership.nodes
    gathering = _Gathering(len(nodes), done, reply)
    for place, node in enumerate(nodes):
        front.ask_node(node, command, now, lambda result, place=place: gathering.take(place, result))  # type: ignore[misc]


# Looking


def _peek(front: AskedFront, command: commands.Peek, now: Millis, reply: Reply) -> None:
    if command.session_id is not None and front.local.requires_session:
        _by_session(front, command, now, reply)
        return

    def done(pages: list[list[StoredMessage]], _: bool) -> None:
        reply(min([page for page in pages if page], key=lambda page: page[0].sequence_number, default=[]))

    _all(front, command, now, reply, done)


def _peek_merged(front: AskedFront, command: commands.PeekMerged, now: Millis, reply: Reply) -> None:
    def done(pages: list[list[StoredMessage]], _: bool) -> None:
        count_max = min(command.count_max, PEEK_COUNT_MAX)
        # A page that is full may go on with what is earlier than the rest of another one.
        ends = [page[-1].enqueued_at for page in pages if len(page) >= count_max or _size(page) > PEEK_BYTES_MAX // 2]
        until = min(ends, default=None)
        rows = sorted(
            [row for page in pages for row in page if until is None or row.enqueued_at <= until],
            key=lambda row: (row.enqueued_at, row.sequence_number),
        )
        page: list[StoredMessage] = []
        size = 0
        for row in rows[:count_max]:
            size += len(row.content)
            if size > PEEK_BYTES_MAX and page:
                break
            page.append(row)
        reply(page)

    _all(front, command, now, reply, done)


def _size(rows: Iterable[StoredMessage]) -> int:
    return sum([len(row.content) for row in rows])


# Changing the first ones


def _one_after_the_other(front: AskedFront, command: Any, now: Millis, reply: Reply) -> None:
    done: list[int] = []
    nodes = list(front.ownership.nodes)
    lost: list[FragmentUnavailable] = []

    def next_node() -> None:
        left = command.count_max - len(done)
        if nodes and left > 0:
            front.ask_node(nodes.pop(0), replace(command, count_max=left), now, take)
        else:
            reply(lost[0] if lost and not done else done)

    def take(result: list[int] | MessagingError) -> None:
        if isinstance(result, FragmentUnavailable):
            lost.append(result)
        elif isinstance(result, MessagingError):
            # What was changed at nodes before has to be known; whoever asks for the rest gets the error.
            reply(done or result)
            return
        else:
            done.extend(result)
        next_node()

    next_node()


def _purge(front: AskedFront, command: commands.Purge, now: Millis, reply: Reply) -> None:
    if command.session_id is not None and front.local.requires_session:
        _by_session(front, command, now, reply)
    else:
        _one_after_the_other(front, command, now, reply)


def _claim(front: AskedFront, command: commands.Claim, now: Millis, reply: Reply) -> None:
    index, of = command.fragment_index, front.ownership.of
    if index is None:
        _one_after_the_other(front, command, now, reply)
    else:
        _one(front, of[index] if 0 <= index < len(of) else None, command, now, reply)


def _by_ranges(front: AskedFront, command: Any, now: Millis, reply: Reply) -> None:
    by_node: dict[int | None, list[Range]] = {}
    left = commands.NUMBERS_MAX
    for first, last in command.ranges:
        left -= last - first + 1
        if last < first or left < 0:
            by_node = {None: list(command.ranges)}  # any node says what is wrong with them
            break
        by_node.setdefault(_node_of_number(front, first), []).append((first, last))
    if len(by_node) <= 1:
        _one(front, next(iter(by_node), None), command, now, reply)
        return

    def done(found: list[list[int]], _: bool) -> None:
        numbers = [number for numbers in found for number in numbers]
        # Of what lies at a node that cannot be reached nothing is known: that nothing was left to change is not.
        reply(numbers if numbers or gathering.lost is None else gathering.lost)

    gathering = _Gathering(len(by_node), done, reply)
    for place, (node, ranges) in enumerate(by_node.items()):
        part = replace(command, ranges=ranges)
        _one(front, node, part, now, lambda result, place=place: gathering.take(place, result))  # type: ignore[misc]


# Listing and counting


def _list_sessions(front: AskedFront, command: commands.ListSessions, now: Millis, reply: Reply) -> None:
    front.local.sessions()

    def done(found: list[list[str]], _: bool) -> None:
        names = sorted(name for names in found for name in names)
        reply(names[command.skip : command.skip + command.top])

    _all(front, replace(command, skip=0, top=command.skip + command.top), now, reply, done)


def _count_sessions(front: AskedFront, command: commands.CountSessions, now: Millis, reply: Reply) -> None:
    front.local.sessions()

    def done(found: list[SessionCounts], is_all: bool) -> None:
        page = sorted(
            [each for counts in found for each in counts.page], key=lambda each: (-each.active, each.session_id)
        )
        reply(
            SessionCounts(
                sessions=sum(counts.sessions for counts in found),
                held=sum(counts.held for counts in found),
                active=sum(counts.active for counts in found),
                page=page[command.skip : command.skip + command.top],
                is_all=is_all and all(counts.is_all for counts in found),
            )
        )

    _all(front, replace(command, skip=0, top=command.skip + command.top), now, reply, done)


def _list_fragments(front: AskedFront, command: commands.ListFragments, now: Millis, reply: Reply) -> None:
    """Each node knows its own; what lies in the stores of one that cannot be reached is not known."""
    unknown = [
        commands.FragmentHead(fragment.index, False, 0, 0, 0, 0, 0, 0, fragment.broker.index)
        for fragment in front.local.fragments
    ]
    nodes = front.ownership.nodes
    left = len(nodes)

    def take(node: int, found: list[commands.FragmentHead] | MessagingError) -> None:
        nonlocal left
        left -= 1
        if not isinstance(found, MessagingError):
            for index, head in enumerate(found):
                if front.ownership.of[index] == node:
                    unknown[index] = head
        if not left:
            reply(unknown)

    for node in nodes:
        front.ask_node(node, command, now, lambda found, node=node: take(node, found))  # type: ignore[misc]


def _find_times(front: AskedFront, command: commands.FindTimes, now: Millis, reply: Reply) -> None:
    by_node: dict[int, list[int]] = {}
    for place, number in enumerate(command.numbers):
        node = _node_of_number(front, number)
        if node is None:
            raise ArgumentError(
                "A sequence number names a fragment that the entity does not have. Use numbers of its own messages."
            )
        by_node.setdefault(node, []).append(place)
    found: list[Any] = [None] * len(command.numbers)
    if not by_node:
        reply(found)
    left, errors = len(by_node), list[MessagingError]()

    def take(places: Sequence[int], times: Any) -> None:
        nonlocal left
        left -= 1
        if isinstance(times, MessagingError):
            errors.append(times)
        else:
            for place, time in zip(places, times, strict=True):
                found[place] = time
        if not left:
            reply(errors[0] if errors else found)

    for node, places in by_node.items():
        part = commands.FindTimes([command.numbers[place] for place in places])
        front.ask_node(node, part, now, lambda times, places=places: take(places, times))  # type: ignore[misc]


def _count_shares(front: AskedFront, command: commands.CountShares, now: Millis, reply: Reply) -> None:
    """Node after node. A number says how far the count is, and its upper bits which fragment: those of nodes that come before are done.

    The fragments of a node are counted in its order; when it has no more, the next node begins at its first fragment.
    """
    of = front.ownership.of
    nodes = sorted(front.ownership.nodes, key=of.index)
    number = max(0, command.from_number)
    node = _node_of_number(front, number) if number else nodes[0]
    if node is None:
        reply(BacklogShares())
        return

    def go_on(node: int, number: int, is_any_reached: bool) -> None:
        def take(found: BacklogShares | MessagingError) -> None:
            following = nodes[nodes.index(node) + 1 :]
            if isinstance(found, FragmentUnavailable):
                if following:
                    go_on(following[0], of.index(following[0]) << SEQUENCE_BITS, is_any_reached)
                else:
                    reply(BacklogShares() if is_any_reached else found)
                return
            if not isinstance(found, MessagingError) and found.next_number is None and following:
                found.next_number = of.index(following[0]) << SEQUENCE_BITS
            reply(found)

        front.ask_node(node, replace(command, from_number=number), now, take)

    go_on(node, number, number > 0)


_WAYS: Final[Mapping[type[Command[Any]], Way]] = {
    commands.Peek: _peek,
    commands.PeekMerged: _peek_merged,
    commands.PeekRange: _by_first,
    commands.PeekPacked: _by_first,
    commands.ReceiveDeferred: _by_numbers,
    commands.CancelScheduled: _by_numbers,
    commands.Purge: _purge,
    commands.Claim: _claim,
    commands.DeleteDeferred: _by_ranges,
    commands.Undefer: _by_ranges,
    commands.UndeferAll: _one_after_the_other,
    commands.Repair: _by_first,
    commands.PreviewRepair: _preview,
    commands.GetSessionState: _by_session,
    commands.SetSessionState: _by_session,
    commands.ListSessions: _list_sessions,
    commands.CountSessions: _count_sessions,
    commands.ListFragments: _list_fragments,
    commands.FindTimes: _find_times,
    commands.CountShares: _count_shares,
}
