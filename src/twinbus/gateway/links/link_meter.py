"""What one client does on one entity, for the book of operations: bursts in, rows or sums out (`twinbus.meter.operation`).

    the book has room for rows ----> the burst itself is kept, and becomes rows of its own
    the book is above its limit ---> its count and bytes are added to those of its cause and fragment

Every message passes here, so a burst is only noted; many times a second the book asks for all notes together. Above the limit
nothing of a message is kept until then, not even its size, so that its memory is free for the next one as early as without
a meter.
"""

from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from typing import Any, TypeAlias

from twinbus.amqp.codec.performatives import Open
from twinbus.broker.consumer import TakenMessage
from twinbus.broker.entity_settings import EntitySettings
from twinbus.clock import Millis
from twinbus.gateway.addresses import EntityNode
from twinbus.meter.book import Key, OperationsBook
from twinbus.meter.operation import (
    NO_FRAGMENT,
    UNIT_BYTES,
    WHO_LENGTH_MAX,
    Cause,
    EntityType,
    Operation,
    path_of,
    units_of,
    who_of_agent,
)
from twinbus.model.content import PREFIX
from twinbus.model.message import Message, message_id_of
from twinbus.model.wire_names import SEQUENCE_BITS
from twinbus.store.changes import StoredMessage

OVERHEAD = PREFIX.size
"""Bytes that the store adds to each message."""

_ONE_UNIT_MAX = UNIT_BYTES + OVERHEAD
"""The largest content that is billed as one."""

_SEND = Cause.SEND
"""Looking up a member of an enum costs as much as a call."""

_Burst: TypeAlias = tuple[Sequence[Message], Sequence[int] | None, Cause, int]
"""Messages, their sequence numbers, cause and fragment, as `LinkMeter.sent` takes them."""


class _Sums:
    """Messages of one cause in one fragment since the book last asked."""

    __slots__ = ("count", "further_units", "size")

    def __init__(self) -> None:
        self.count = 0
        self.size = 0  # of the contents, including the store's own bytes
        self.further_units = 0  # beyond the one of each message

    def add(self, size: int) -> None:
        self.count += 1
        self.size += size
        if size > _ONE_UNIT_MAX:
            self.further_units += units_of(size - OVERHEAD) - 1


_ByFragment: TypeAlias = defaultdict[int, _Sums]


class _Rows:
    """Rows and keys of sums for the operations of one client on one entity."""

    __slots__ = ("_entity", "_entity_type", "_keys", "_path", "_who")

    def __init__(self, entity: str, entity_type: EntityType, who: str) -> None:
        self._entity = entity
        self._entity_type = entity_type
        self._who = who
        self._path = path_of(entity, who)
        self._keys: dict[tuple[Cause, int], Key] = {}

    def key(self, cause: Cause, fragment: int) -> Key:
        key = self._keys.get((cause, fragment))
        if key is None:
            key = Key(cause, self._entity, fragment, self._path, self._who, self._entity_type)
            self._keys[cause, fragment] = key
        return key

    def of_sent(
        self, at: Millis, cause: Cause, fragment: int, messages: Sequence[Message], numbers: Sequence[int] | None
    ) -> list[Operation]:
        """`numbers` as `LinkMeter.sent` has them. Pings are omitted."""
        known: Sequence[int] = [0] * len(messages) if numbers is None else numbers
        return [
            self._row(at, cause, fragment, message.content, message.message_id, number or None)
            for message, number in zip(messages, known, strict=True)
            if not message.is_ping
        ]

    def of_stored(self, at: Millis, cause: Cause, messages: Sequence[StoredMessage]) -> list[Operation]:
        return [self._stored_row(at, cause, message.content, message.sequence_number) for message in messages]

    def _stored_row(self, at: Millis, cause: Cause, content: bytes, number: int) -> Operation:
        return self._row(at, cause, number >> SEQUENCE_BITS, content, message_id_of(content), number)

    def _row(
        self, at: Millis, cause: Cause, fragment: int, content: bytes, message_id: str, number: int | None
    ) -> Operation:
        size = len(content) - OVERHEAD
        path, who, kind = self._path, self._who, self._entity_type
        return Operation(
            at, cause, self._entity, fragment, 1, size, units_of(size), path, who, message_id, number, kind
        )


class LinkMeter:
    """`sent`, `delivered` and `settled` only keep what they are given until the book asks for it."""

    __slots__ = (
        "_book",
        "_bursts",
        "_deliveries",
        "_is_partitioned",
        "_is_waiting",
        "_received",
        "_rows",
        "_sent",
        "_settled_count",
        "_sums",
    )

    def __init__(
        self, book: OperationsBook, entity: str, entity_type: EntityType, who: str, *, is_partitioned: bool
    ) -> None:
        self._book = book
        self._rows = _Rows(entity, entity_type, who)
        self._is_partitioned = is_partitioned
        self._is_waiting = False
        self._bursts: list[_Burst] = []
        self._deliveries: list[TakenMessage] = []
        self._settled_count = 0
        self._sums: defaultdict[Cause, _ByFragment] = defaultdict(partial(defaultdict, _Sums))
        # Kept because the hash of a cause is computed in Python each time.
        self._sent = self._sums[Cause.SEND]
        self._received = self._sums[Cause.RECEIVE]

    @staticmethod
    def of(book: OperationsBook | None, node: EntityNode, who: str) -> "LinkMeter":
        """A meter that does nothing if there is no book."""
        if book is None:
            return UNMETERED
        settings = _settings_of(node)
        return LinkMeter(book, settings.path, _entity_type_of(node), who, is_partitioned=settings.is_partitioned)

    def sent(
        self,
        messages: Sequence[Message],
        numbers: Sequence[int] | None,
        cause: Cause = Cause.SEND,
        fragment: int = NO_FRAGMENT,
    ) -> None:
        """One fragment accepted them. `numbers` are their sequence numbers, 0 for a duplicate that was dropped; None if
        they are not known, and then `fragment` says which fragment it was."""
        if not messages:
            return
        if not self._is_waiting:
            self._wait()
        if numbers is not None:
            fragment = _fragment_of(numbers)
        if self._book.exact_left >= len(messages):
            self._bursts.append((messages, numbers, cause, fragment))
            return
        size = 0
        for message in messages:
            found = len(message.content)
            if found > _ONE_UNIT_MAX or message.is_ping:
                self._add_sent(messages, cause, fragment)
                return
            size += found
        sums = (self._sent if cause is _SEND else self._sums[cause])[fragment]
        sums.count += len(messages)
        sums.size += size

    def delivered(self, deliveries: Sequence[TakenMessage]) -> None:
        if not self._is_waiting:
            self._wait()
        if self._book.exact_left >= len(deliveries):
            self._deliveries += deliveries
            return
        if self._is_partitioned:
            self._add_stored([delivery.message for delivery in deliveries], self._received)
            return
        size = 0
        for delivery in deliveries:
            found = len(delivery.message.content)
            if found > _ONE_UNIT_MAX:
                self._add_stored([delivery.message for delivery in deliveries], self._received)
                return
            size += found
        sums = self._received[0]
        sums.count += len(deliveries)
        sums.size += size

    def settled(self, count: int) -> None:
        if not self._is_waiting:
            self._wait()
        self._settled_count += count

    def handed_out(self, messages: Sequence[StoredMessage], cause: Cause = Cause.RECEIVE) -> None:
        """They were delivered or peeked at."""
        if at := self._book.exact_at(len(messages)):
            self._book.add_exact(self._rows.of_stored(at, cause, messages))
            return
        if not self._is_waiting:
            self._wait()
        self._add_stored(messages, self._sums[cause])

    def peeked(self, messages: Sequence[StoredMessage]) -> None:
        if messages:
            self.handed_out(messages, Cause.PEEK)
        else:
            self.counted(Cause.PEEK)

    def paged(self, sizes: Sequence[int], fragment: int) -> None:
        """A page of one fragment, of contents of these sizes. Always summed: nobody looks for one message among thousands."""
        if not self._is_waiting:
            self._wait()
        sums = self._sums[Cause.PEEK][fragment]
        if max(sizes) > _ONE_UNIT_MAX:
            for size in sizes:
                sums.add(size)
        else:
            sums.count += len(sizes)
            sums.size += sum(sizes)

    def counted(
        self, cause: Cause, count: int = 1, *, messages: int = 0, size: int = 0, fragment: int = NO_FRAGMENT
    ) -> None:
        """Operations without a size of their own, or of which only the count is known."""
        self._book.turn()
        units = 0 if not cause.is_billed else units_of(size) if count == 1 else count
        self._book.add(self._rows.key(cause, fragment), count, messages, size, units)

    def write_down(self) -> None:
        """Called by the book."""
        bursts, self._bursts = self._bursts, []
        deliveries, self._deliveries = self._deliveries, []
        if bursts:
            self._write_sent(bursts)
        if deliveries:
            self.handed_out([delivery.message for delivery in deliveries])
        self._write_sums()
        self._is_waiting = False

    def _wait(self) -> None:
        self._is_waiting = True
        self._book.ask_soon(self)

    def _add_sent(self, messages: Sequence[Message], cause: Cause, fragment: int) -> None:
        for message in messages:
            self._sums[Cause.PING if message.is_ping else cause][fragment].add(len(message.content))

    def _add_stored(self, messages: Sequence[StoredMessage], sums: _ByFragment) -> None:
        for message in messages:
            sums[message.sequence_number >> SEQUENCE_BITS].add(len(message.content))

    def _write_sent(self, bursts: Sequence[_Burst]) -> None:
        at = self._book.exact_at(sum([len(burst[0]) for burst in bursts]))
        for messages, numbers, cause, fragment in bursts:
            if not at:
                self._add_sent(messages, cause, fragment)
                continue
            # Pings are always summed: nobody looks for a single one.
            self._add_sent([message for message in messages if message.is_ping], cause, fragment)
            self._book.add_exact(self._rows.of_sent(at, cause, fragment, messages, numbers))

    def _write_sums(self) -> None:
        book, rows = self._book, self._rows
        for cause, by_fragment in self._sums.items():
            for fragment, sums in by_fragment.items():
                count = sums.count
                size, units = sums.size - count * OVERHEAD, count + sums.further_units
                book.add(rows.key(cause, fragment), count, count, size, units)
            by_fragment.clear()
        count, self._settled_count = self._settled_count, 0
        if count:
            book.add(rows.key(Cause.SETTLE, NO_FRAGMENT), count, count, 0, 0)


class _Unmetered(LinkMeter):
    """For a namespace without a book."""

    __slots__ = ()

    def __init__(self) -> None:
        pass

    def sent(self, *_: Any, **__: Any) -> None:
        pass

    def delivered(self, *_: Any) -> None:
        pass

    def settled(self, *_: Any) -> None:
        pass

    def handed_out(self, *_: Any) -> None:
        pass

    def paged(self, *_: Any) -> None:
        pass

    def counted(self, *_: Any, **__: Any) -> None:
        pass


UNMETERED = _Unmetered()


class LinkMeters:
    """Of the links of one connection."""

    def __init__(self, book: OperationsBook | None) -> None:
        self._book = book
        self.who = ""
        """What the client called itself when it opened the connection."""

    def of(self, node: EntityNode) -> LinkMeter:
        return LinkMeter.of(self._book, node, self.who)


def _fragment_of(numbers: Sequence[int]) -> int:
    """The fragment of a burst. A duplicate that was dropped has no number and is in no fragment."""
    number = numbers[-1] or max(numbers)
    return number >> SEQUENCE_BITS if number else NO_FRAGMENT


def _settings_of(node: EntityNode) -> EntitySettings:
    """They have the path as the entity was created, however the client spells it."""
    if node.queue is not None:
        return node.queue.settings
    assert node.target is not None
    return node.target.settings


def _entity_type_of(node: EntityNode) -> EntityType:
    if node.subscription is not None:
        return EntityType.SUBSCRIPTION
    return EntityType.TOPIC if node.queue is None else EntityType.QUEUE


def who_of(opened: Open) -> str:
    """What a client calls itself: the application's own name if the SDK was given one, otherwise the SDK's."""
    properties = {str(name): value for name, value in (opened.properties or {}).items()}
    product, agent = str(properties.get("product") or ""), str(properties.get("user-agent") or "")
    return who_of_agent(agent) or (product or opened.container_id)[:WHO_LENGTH_MAX]
