"""An entity of any Service Bus namespace, by the operations that all of them have: peek, receive, defer.

No operation returns the end of a fragment, so it is searched: from the last known end in doubling steps, then by bisection,
one message a request. A claim receives messages and defers them with the owner as a property; a claim is deleted by
receiving its deferred messages in the mode that deletes.
"""

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from typing import TypeVar

from twinbus.amqp.codec.section_bounds import ordered_sections
from twinbus.amqp.codec.sections import Header, Sections, encode_sections
from twinbus.client.entity_extras import PackedPage
from twinbus.client.namespace import Namespace
from twinbus.client.received_message import ReceivedMessage
from twinbus.client.receiver import Receiver
from twinbus.client.sender import Sender
from twinbus.clock import Millis
from twinbus.errors import MessageNotFound, MessagingError, NotAllowed, NotImplementedHere, OperationTimeout
from twinbus.model import wire_names
from twinbus.model.message_limits import PEEK_COUNT_MAX
from twinbus.model.paths import SubQueue, parse_address
from twinbus.model.received_payload import BROKER_ANNOTATIONS, BROKER_DELIVERY_ANNOTATIONS, read_front, without
from twinbus.model.wire_names import SEQUENCE_BITS, MessageState
from twinbus.pipeline.copy_ids import rename
from twinbus.pipeline.source.access.entity_access import Claim, Head, Seen, Wanted, enqueued_at
from twinbus.pipeline.source.ranges import Range, by_fragment, fragment_of, in_pieces, runs

T = TypeVar("T")

CREDIT_MAX = 1_000
CLAIM_WAIT_S = 0.5
"""How long a claim waits for a message; a stream asks again soon enough."""
DELETE_COUNT_MAX = 250
RELEASE_COUNT_MAX = 100
_LEFT_BEHIND = BROKER_ANNOTATIONS | {wire_names.CLAIMED_BY}


class PlainAccess:
    is_own = False

    def __init__(self, namespace: Namespace, path: str) -> None:
        self.path = path
        self._namespace = namespace
        self._entity = namespace.entity(path)
        self._firsts: dict[int, int] = {}
        self._ends: dict[int, int] = {}
        self._seen: dict[int, tuple[Seen, Seen]] = {}
        self._seen_bytes = self._seen_count = 0
        self.asked_count = 0
        """Questions for where a fragment ends."""

    async def heads(self) -> list[Head]:
        """Fragments in which there is or was a message while this object lives. `first` is as it was first seen."""
        number = self._ends.get(0, 0)
        while (found := await self._first_from(number)) is not None:
            fragment = fragment_of(found)
            known = self._ends.get(fragment, fragment << SEQUENCE_BITS)
            if found < known:
                number = known
                continue
            self._firsts.setdefault(fragment, found)
            self._ends[fragment] = await self._end_of(found)
            following = fragment + 1
            number = self._ends.get(following, following << SEQUENCE_BITS)
        return [self._head(fragment) for fragment in sorted(self._ends)]

    def _head(self, fragment: int) -> Head:
        first, end = self._firsts[fragment], self._ends[fragment]
        seen = self._seen.get(fragment, ())
        return Head(fragment, True, first, end, end - first, None, self._seen_bytes, self._seen_count, seen=seen)

    async def _first_from(self, number: int) -> int | None:
        """The lowest number at or above it, whichever fragment it is in."""
        self.asked_count += 1
        found = await self._entity.peek(1, from_number=number)
        if not found:
            return None
        self._seen_bytes += len(found[0].payload)
        self._seen_count += 1
        answer = _number(found[0])
        self._remember(found[0])
        # Peek over several fragments promises no order; what lies behind is known already.
        return answer if answer >= number else None

    def _remember(self, message: ReceivedMessage) -> None:
        """The first and the last of a fragment. One that is scheduled gets another number when it becomes active."""
        if message.state is MessageState.SCHEDULED:
            return
        seen = Seen(_number(message), enqueued_at(message))
        first, last = self._seen.get(fragment_of(seen.number), (seen, seen))
        self._seen[fragment_of(seen.number)] = min(first, seen), max(last, seen)

    async def _end_of(self, number: int) -> int:
        """One above the last number of its fragment."""
        fragment, last, step = fragment_of(number), number, 1
        beyond = (fragment + 1) << SEQUENCE_BITS
        while last + 1 < beyond:
            probe = min(last + step, beyond - 1)
            found = await self._first_from(probe)
            if found is not None and fragment_of(found) == fragment:
                last, step = found, step * 2
            elif step == 1:
                break
            else:
                beyond, step = probe, max(1, (probe - last) // 2)
        return last + 1

    async def page(self, wanted: Wanted) -> PackedPage:
        first, end, count_max, states, with_bodies, _ = wanted
        found = await self._entity.peek(min(count_max, PEEK_COUNT_MAX), from_number=first)
        inside = [message for message in found if first <= _number(message) < end]
        following = _number(inside[-1]) + 1 if inside else end
        chosen = [message for message in inside if message.state in states]
        if not with_bodies:
            chosen = [_without_body(message) for message in chosen]
        return PackedPage.of([message.payload for message in chosen], following if following < end else None)

    async def times(self, numbers: Sequence[int]) -> list[tuple[int, Millis] | None]:
        raise NotImplementedHere("This namespace can only peek at whole messages, not report times.")

    async def claim(self, shares: Mapping[int, int], ends: Mapping[int, int] | None, owner: str) -> Claim:
        """A receiver takes what it is given, so the shares count as a sum only."""
        left = sum(shares.values())
        numbers: list[int] = []
        while left > 0:
            asked = min(left, CREDIT_MAX)
            claimed = await self._claim_some(asked, ends, owner)
            numbers += claimed
            left -= len(claimed)
            if len(claimed) < asked:
                break
        return Claim(runs(numbers), is_certain=True)

    async def _claim_some(self, count: int, ends: Mapping[int, int] | None, owner: str) -> list[int]:
        receiver = await self._namespace.receiver(self.path, credit=count)
        try:
            messages = await receiver.collect(count, CLAIM_WAIT_S)
            # Or what is deferred would make room for more, which nobody has asked for.
            await receiver.pause()
            messages += await receiver.receive(count - len(messages), 0) if len(messages) < count else []
            return await self._defer(receiver, messages, ends, owner)
        finally:
            await receiver.close()

    async def _defer(
        self, receiver: Receiver, messages: Sequence[ReceivedMessage], ends: Mapping[int, int] | None, owner: str
    ) -> list[int]:
        wanted: list[ReceivedMessage] = []
        others: list[ReceivedMessage] = []
        for message in messages:
            number = _number(message)
            is_late = ends is not None and number >= ends.get(fragment_of(number), 0)
            (others if is_late else wanted).append(message)
        if others:
            await receiver.release(others)
        outcomes = await self._within_time(receiver.defer(wanted, {wire_names.CLAIMED_BY: owner}))
        _raise_if_in_doubt(outcomes)
        return [_number(message) for message, error in zip(wanted, outcomes, strict=True) if error is None]

    async def _within_time(self, outcomes: Awaitable[T]) -> T:
        """A request has its time; what is sent or settled on a link has none."""
        timeout_s = self._namespace.timeout_s
        try:
            return await asyncio.wait_for(outcomes, timeout_s)
        except TimeoutError:
            raise OperationTimeout(f"'{self.path}' did not answer within {timeout_s:g} s. Try again.") from None

    async def delete(self, ranges: Sequence[Range]) -> None:
        for part in by_fragment(ranges).values():
            for piece in in_pieces(part, DELETE_COUNT_MAX):
                await self._delete(_numbers(piece))

    async def _delete(self, numbers: list[int]) -> None:
        """One that is gone fails the request for all: halves, until it is found."""
        try:
            await self._entity.receive_deferred(numbers, deletes=True)
        except MessageNotFound:
            if len(numbers) > 1:
                middle = len(numbers) // 2
                await asyncio.gather(self._delete(numbers[:middle]), self._delete(numbers[middle:]))

    async def release(self, ranges: Sequence[Range]) -> int:
        """By copies, sent to the end of the entity: a deferred message never becomes active again here. Where it is
        interrupted, a message may be there twice, and none is lost: a copy has an id of its own (`copy_ids`), since the
        entity has had that of the original, and would drop the copy if it detects duplicates."""
        address = parse_address(self.path)
        if address.subscription is not None or address.sub_queue is not SubQueue.MAIN:
            raise NotAllowed(
                f"Messages cannot be sent to '{self.path}', and only a twinbus namespace makes deferred messages active "
                "again. Receive them by their sequence numbers."
            )
        sender = await self._namespace.sender(self.path)
        try:
            pieces = [piece for part in by_fragment(ranges).values() for piece in in_pieces(part, RELEASE_COUNT_MAX)]
            return sum([await self._send_again(sender, _numbers(piece)) for piece in pieces])
        finally:
            await sender.close()

    async def _send_again(self, sender: Sender, numbers: list[int]) -> int:
        try:
            messages = await self._entity.receive_deferred(numbers)
        except MessageNotFound:
            if len(numbers) == 1:
                return 0
            middle = len(numbers) // 2
            return await self._send_again(sender, numbers[:middle]) + await self._send_again(sender, numbers[middle:])
        copies = [_fresh_copy(message.payload, self.path) for message in messages]
        outcomes = await self._within_time(sender.send(copies))
        sent = [message for message, error in zip(messages, outcomes, strict=True) if error is None]
        await self._entity.complete(sent)
        refused = next((error for error in outcomes if error is not None), None)
        if refused is not None:
            raise refused
        return len(sent)

    async def check_claims(self) -> None:
        """A receiver is opened and closed, which gives back the one message that it may have got."""
        try:
            receiver = await self._namespace.receiver(self.path, credit=1)
        except NotAllowed as refused:
            raise NotAllowed(
                f"mode=consume cannot claim messages of an entity with message sessions in this namespace: {refused}"
            ) from None
        await receiver.close()


def _raise_if_in_doubt(outcomes: Sequence[MessagingError | None]) -> None:
    """A lock that was lost leaves its message to somebody else. But where the answer was lost, the message may be
    deferred, and the caller has to look for it; and where nothing at all could be deferred, something is wrong."""
    errors = [error for error in outcomes if error is not None]
    lost = next((error for error in errors if error.is_transient), None)
    if lost is not None:
        raise lost
    if errors and len(errors) == len(outcomes):
        raise errors[0]


def _without_body(message: ReceivedMessage) -> ReceivedMessage:
    payload, bounds = ordered_sections(message.payload)
    return ReceivedMessage(payload[: bounds[-1]])


def _numbers(ranges: Sequence[Range]) -> list[int]:
    return [number for first, end in ranges for number in range(first, end)]


def _number(message: ReceivedMessage) -> int:
    return message.sequence_number or 0


def _fresh_copy(payload: bytes, path: str) -> bytes:
    """A payload from this path to send again: with an id of its own, without what the broker wrote and without the mark of a
    claim. Delivery count and time to live start over; body and footer pass byte for byte. Raises DecodeError if the bytes
    are not a message."""
    sections, rest = read_front(payload)
    rename(sections, path)
    header = sections.header or Header()
    header.delivery_count = header.first_acquirer = None
    front = Sections(
        header=header,
        delivery_annotations=without(sections.delivery_annotations, BROKER_DELIVERY_ANNOTATIONS) or None,
        message_annotations=without(sections.message_annotations, _LEFT_BEHIND) or None,
        properties=sections.properties,
        application_properties=without(sections.application_properties, frozenset({wire_names.CLAIMED_BY})) or None,
    )
    return encode_sections(front) + rest
