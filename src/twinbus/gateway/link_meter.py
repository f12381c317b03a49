"""What one client does on one entity, told to the book of operations: bursts in, rows or sums out (`twinbus.meter`).

On the way of every message, so a burst is only put down here; many times a second the book asks for all of them
together. Where messages get rows of their own they are held in memory for so long; where they are added up only their
sizes are, for contents that outlive their way through the broker push what comes next out of the processor's caches,
which costs more than all the counting. Without a book nothing is done.
"""

from collections.abc import Sequence
from typing import TypeAlias

from twinbus.amqp.performatives import Open
from twinbus.broker.receiver import Delivery
from twinbus.broker.settings import EntitySettings
from twinbus.clock import Millis
from twinbus.cost.operations_book import Key, OperationsBook
from twinbus.gateway.addresses import Node
from twinbus.meter import (
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
from twinbus.store.changes import SEQUENCE_BITS, StoredMessage

OVERHEAD = PREFIX.size
"""Bytes of a stored message that are the store's own."""


_Burst: TypeAlias = tuple[Sequence[Message], Sequence[int] | None, Cause, int]
"""Messages, their numbers, and what `LinkMeter.sent` was told besides."""


class LinkMeter:
    """`sent`, `delivered` and `settled` only keep what they are told, until the book asks for it."""

    __slots__ = (
        "_book",
        "_bursts",
        "_deliveries",
        "_entity",
        "_entity_type",
        "_is_partitioned",
        "_is_waiting",
        "_keys",
        "_path",
        "_settled_count",
        "_sizes",
        "_who",
    )

    def __init__(
        self, book: OperationsBook | None, entity: str, entity_type: EntityType, who: str, *, is_partitioned: bool
    ) -> None:
        self._book = book
        self._entity = entity
        self._entity_type = entity_type
        self._who = who
        self._path = path_of(entity, who)
        self._is_partitioned = is_partitioned
        self._keys: dict[tuple[Cause, int], Key] = {}
        self._is_waiting = False
        self._bursts: list[_Burst] = []
        self._deliveries: list[Delivery] = []
        self._settled_count = 0
        self._sizes: dict[tuple[Cause, int], list[int]] = {}

    @classmethod
    def of(cls, book: OperationsBook | None, node: Node, who: str) -> "LinkMeter":
        settings = _settings_of(node)
        return cls(book, settings.path, _entity_type_of(node), who, is_partitioned=settings.is_partitioned)

    def sent(
        self,
        messages: Sequence[Message],
        numbers: Sequence[int] | None,
        cause: Cause = Cause.SEND,
        fragment: int = NO_FRAGMENT,
    ) -> None:
        """They were accepted, by one fragment. `numbers` are their own, 0 for a duplicate that was dropped; where
        they are not known, `fragment` says which."""
        if self._book is not None and messages:
            if self._book.has_room(len(messages)):
                self._bursts.append((messages, numbers, cause, fragment))
            else:
                self._put_sent(messages, numbers, cause, fragment)
            if not self._is_waiting:
                self._wait()

    def delivered(self, deliveries: Sequence[Delivery]) -> None:
        if self._book is not None:
            if self._book.has_room(len(deliveries)):
                self._deliveries += deliveries
            else:
                self._put_stored(Cause.RECEIVE, [delivery.message for delivery in deliveries])
            if not self._is_waiting:
                self._wait()

    def settled(self, count: int) -> None:
        if self._book is not None:
            self._settled_count += count
            if not self._is_waiting:
                self._wait()

    def _wait(self) -> None:
        assert self._book is not None
        self._is_waiting = True
        self._book.ask_soon(self)

    def write_down(self) -> None:
        """Called by the book."""
        assert self._book is not None
        self._is_waiting = False
        bursts, self._bursts = self._bursts, []
        deliveries, self._deliveries = self._deliveries, []
        count, self._settled_count = self._settled_count, 0
        if bursts:
            self._write_sent(bursts)
        if deliveries:
            self.handed_out([delivery.message for delivery in deliveries])
        if count:
            self._book.add(self._key(Cause.SETTLE, NO_FRAGMENT), count, count, 0, 0)
        self._add_sizes()

    def _write_sent(self, bursts: Sequence[_Burst]) -> None:
        assert self._book is not None
        at = self._book.exact_at(sum([len(burst[0]) for burst in bursts]))
        for messages, numbers, cause, fragment in bursts:
            if not at:
                self._put_sent(messages, numbers, cause, fragment)
                continue
            if numbers is not None:
                fragment = fragment_of(max(numbers))
            # Pings are always added up: nobody looks for one.
            self._put_sizes(Cause.PING, fragment, [len(message.content) for message in messages if message.is_ping])
            places = [place for place, message in enumerate(messages) if not message.is_ping]
            known = [None] * len(places) if numbers is None else [numbers[place] or None for place in places]
            self._write_exact(at, [messages[place] for place in places], known, cause, fragment)

    def _put_sent(
        self, messages: Sequence[Message], numbers: Sequence[int] | None, cause: Cause, fragment: int
    ) -> None:
        if numbers is not None:
            fragment = fragment_of(max(numbers))
        sizes = [len(message.content) for message in messages if not message.is_ping]
        if len(sizes) < len(messages):
            self._put_sizes(Cause.PING, fragment, [len(message.content) for message in messages if message.is_ping])
        self._put_sizes(cause, fragment, sizes)

    def _put_stored(self, cause: Cause, messages: Sequence[StoredMessage]) -> None:
        if not self._is_partitioned:
            self._put_sizes(cause, 0, [len(message.content) for message in messages])
            return
        sizes: dict[int, list[int]] = {}
        for message in messages:
            sizes.setdefault(message.sequence_number >> SEQUENCE_BITS, []).append(len(message.content))
        for fragment, found in sizes.items():
            self._put_sizes(cause, fragment, found)

    def _put_sizes(self, cause: Cause, fragment: int, stored_sizes: list[int]) -> None:
        if stored_sizes:
            kept = self._sizes.get((cause, fragment))
            if kept is None:
                self._sizes[cause, fragment] = stored_sizes
            else:
                kept += stored_sizes

    def _add_sizes(self) -> None:
        sizes, self._sizes = self._sizes, {}
        for (cause, fragment), found in sizes.items():
            self._add(cause, fragment, found)

    def _write_exact(
        self, at: Millis, messages: Sequence[Message], numbers: Sequence[int | None], cause: Cause, fragment: int
    ) -> None:
        assert self._book is not None
        self._book.add_exact(
            [
                self._row(at, cause, fragment, len(message.content) - OVERHEAD, message.message_id, number)
                for message, number in zip(messages, numbers, strict=True)
            ]
        )

    def handed_out(self, messages: Sequence[StoredMessage], cause: Cause = Cause.RECEIVE) -> None:
        """They were delivered, or shown."""
        book = self._book
        if book is None:
            return
        if at := book.exact_at(len(messages)):
            book.add_exact([self._stored_row(at, cause, message) for message in messages])
        else:
            self._put_stored(cause, messages)
            self._add_sizes()

    def peeked(self, messages: Sequence[StoredMessage]) -> None:
        if messages:
            self.handed_out(messages, Cause.PEEK)
        else:
            self.counted(Cause.PEEK)

    def counted(
        self, cause: Cause, count: int = 1, *, messages: int = 0, size: int = 0, fragment: int = NO_FRAGMENT
    ) -> None:
        """Operations without a size of their own, or of which only the number is known."""
        book = self._book
        if book is not None:
            book.turn()
            units = 0 if not cause.is_billed else units_of(size) if count == 1 else count
            book.add(self._key(cause, fragment), count, messages, size, units)

    def _add(self, cause: Cause, fragment: int, stored_sizes: list[int]) -> None:
        assert self._book is not None
        count = len(stored_sizes)
        units = count
        if max(stored_sizes) > UNIT_BYTES + OVERHEAD:
            units = sum([units_of(size - OVERHEAD) for size in stored_sizes])
        self._book.add(self._key(cause, fragment), count, count, sum(stored_sizes) - count * OVERHEAD, units)

    def _key(self, cause: Cause, fragment: int) -> Key:
        key = self._keys.get((cause, fragment))
        if key is None:
            key = Key(cause, self._entity, fragment, self._path, self._who, self._entity_type)
            self._keys[cause, fragment] = key
        return key

    def _stored_row(self, at: Millis, cause: Cause, message: StoredMessage) -> Operation:
        content, number = message.content, message.sequence_number
        return self._row(at, cause, number >> SEQUENCE_BITS, len(content) - OVERHEAD, message_id_of(content), number)

    def _row(
        self, at: Millis, cause: Cause, fragment: int, size: int, message_id: str, number: int | None
    ) -> Operation:
        path, who, kind = self._path, self._who, self._entity_type
        return Operation(
            at, cause, self._entity, fragment, 1, size, units_of(size), path, who, message_id, number, kind
        )


def fragment_of(number: int) -> int:
    """A duplicate that was dropped has no number and lies nowhere."""
    return number >> SEQUENCE_BITS if number else NO_FRAGMENT


def _settings_of(node: Node) -> EntitySettings:
    """With the path as the entity was created, however the client spells it."""
    if node.queue is not None:
        return node.queue.settings
    assert node.target is not None
    return node.target.settings


def _entity_type_of(node: Node) -> EntityType:
    if node.subscription is not None:
        return EntityType.SUBSCRIPTION
    return EntityType.TOPIC if node.queue is None else EntityType.QUEUE


def who_of(opened: Open) -> str:
    """What a connection calls itself: the application's own name where an SDK was given one, else the SDK's."""
    properties = {str(name): value for name, value in (opened.properties or {}).items()}
    product, agent = str(properties.get("product") or ""), str(properties.get("user-agent") or "")
    return who_of_agent(agent) or (product or opened.container_id)[:WHO_LENGTH_MAX]
